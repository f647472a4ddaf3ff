/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_check.c - `kvtool check`: read every payload and every structure of a store, and tell what
 * is wrong with it; with --rebuild make its index anew first.
 */
#include <stdlib.h>

#include "complain.h"
#include "kvtool.h"
#include "kvtool_check_tables.h"
#include "kvtool_owner.h"
#include "quantity.h"

enum {
    OPTION_REBUILD,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_REBUILD] = {"--rebuild", NULL,
        "first make the index anew from the segments, whether it\nlooks whole or not, is damaged "
        "or gone"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_check_line = {
    .program = "kvtool",
    .command = "check",
    .operands = "DIR",
    .summary = "Read and verify everything in the store in DIR; change nothing.",
    .text =
        "Kinds of findings: store, names (a copy of STORE or NAMES), index (LMDB), record (of the\n"
        "index), file (a data file is too short), header (of a batch: what a rebuild reads),\n"
        "payload, table (of N-gram embeddings). Each says what to do.\n"
        "JSON: {\"findings\" [{\"kind\", \"text\", \"segment\", \"page\"} ...] (the first 1000),\n"
        "\"damaged\" (blocks that cannot be served), \"blocks\", \"read_bytes\", "
        "\"finding_count\",\n"
        "\"elapsed_ns\", \"status\"}. The exit code is 1 when anything was found.",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* An open that rebuilds, and a close; and how many segments it could not read all headers of. */
static bool
rebuild(const char *path, bool as_json, uint64_t *unread_count_out)
{
    struct kvt_options wanted = KVT_OPTIONS_INIT;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    char text[QUANTITY_TEXT_BYTES];
    kvt_store *store = NULL;
    enum kvt_status status = KVT_OK;

    wanted.flags = KVT_OPEN_REBUILD;
    wanted.host_capacity_bytes = (uint64_t)KVTOOL_HOST_BYTES * 4;
    store = store_open_to_write(path, &wanted, NULL);
    if (store == NULL)
        return false;
    status = kvt_stats_get(store, &stats);
    if (status != KVT_OK)
        complain_status(status, "cannot look into %s", path);
    else if (!as_json)
        printf("the index was made anew: %s blocks were found in the segments\n",
            quantity_count_text(text, stats.recover_block_count));
    *unread_count_out = stats.recover_unread_count;
    return store_close(store, path) && status == KVT_OK;
}

int
kvtool_check(int argc, char **argv)
{
    struct arguments arguments;
    struct findings *findings = NULL;
    struct kvt_examiner examiner;
    enum kvt_status status = KVT_OK;
    char text[QUANTITY_TEXT_BYTES];
    uint64_t unread_count = 0;
    const char *path = NULL;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_check_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    path = arguments.operands[0];
    if (arguments.values[OPTION_REBUILD] != NULL &&
        !rebuild(path, arguments.values[OPTION_JSON] != NULL, &unread_count))
        return EXIT_PROBLEM;
    findings = malloc(sizeof(*findings));
    if (findings == NULL) {
        complain("there is no memory to check %s", path);
        return EXIT_PROBLEM;
    }
    findings_begin(findings, "check", arguments.values[OPTION_JSON] != NULL, &examiner);
    status = kvt_check(path, &examiner, &findings->report);
    if (unread_count > 0)
        findings_note(findings, "header",
            "of %s segments not all headers could be read when the index was made anew: blocks "
            "that these name were given up",
            quantity_count_text(text, unread_count));
    if (status == KVT_OK)
        status = check_tables(path, findings);
    if (status == KVT_MISS)
        complain("there is no store in %s", path);
    else if (status == KVT_E_LOCKED)
        owner_complain(path);
    else if (status == KVT_CANCELLED)
        complain("interrupted");
    else if (status != KVT_OK)
        complain_status(status, "cannot check %s", path);
    exit_code = findings_end(findings, status);
    free(findings);
    return exit_code;
}
