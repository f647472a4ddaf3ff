/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_rm.c - `kvtool rm`: forget a block, or a file in parts; no crash brings it back once the
 * command ends.
 */
#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_content.h"

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_rm_line = {
    .program = "kvtool",
    .command = "rm",
    .operands = "DIR KEY",
    .summary = "Delete one block, durably.",
    .text = "JSON: {\"key\", \"outcome\": \"deleted\" or \"missing\"}. A block that is not there\n"
            "gives exit code 1.",
    .operand_min = 2,
    .operand_max = 2,
    .options = options,
};

static void
outcome_print(const struct arguments *arguments, bool was_there)
{
    struct json json = JSON_INIT(stdout);

    if (arguments->values[OPTION_JSON] == NULL) {
        text_print(stdout, arguments->operands[1], 0);
        printf(" %s\n", was_there ? "is deleted" : "was not there");
        return;
    }
    json_object_begin(&json, NULL);
    json_string(&json, "key", arguments->operands[1]);
    json_string(&json, "outcome", was_there ? "deleted" : "missing");
    json_object_end(&json);
    json_end(&json);
}

int
kvtool_rm(int argc, char **argv)
{
    struct arguments arguments;
    struct spelled_key key;
    struct kvt_options existing = KVT_OPTIONS_INIT;
    kvt_store *store = NULL;
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_PROBLEM;

    if (!arguments_read(&kvtool_rm_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!spelled_key_read(&key, arguments.operands[1]))
        return EXIT_USAGE;
    exit_code = EXIT_PROBLEM;
    existing.host_capacity_bytes = KVTOOL_HOST_BYTES;
    store = store_open_to_write(arguments.operands[0], &existing, NULL);
    if (store != NULL) {
        status = content_delete(store, &key);
        if (status != KVT_OK && status != KVT_MISS)
            complain_status(status, "cannot delete the block %s", arguments.operands[1]);
        else
            outcome_print(&arguments, status == KVT_OK);
        if (store_close(store, arguments.operands[0]) && status == KVT_OK)
            exit_code = EXIT_FINE;
    }
    spelled_key_free(&key);
    return exit_code;
}
