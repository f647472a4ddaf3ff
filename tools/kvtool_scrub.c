/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_scrub.c - `kvtool scrub`: read every payload at the disk's rate, and name damaged ones.
 */
#include <stdlib.h>

#include "complain.h"
#include "kvtool.h"
#include "kvtool_findings.h"

enum {
    OPTION_NAMESPACE,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_NAMESPACE] = {"--namespace", "NAME", "only blocks of this namespace"},
    [OPTION_JSON] = {"--json", NULL, "print JSON, as check does"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_scrub_line = {
    .program = "kvtool",
    .command = "scrub",
    .operands = "DIR",
    .summary = "Read every block in DIR at the disk's rate and name those that are damaged.",
    .text =
        "check looks at everything else as well. The exit code is 1 when anything was found, or\n"
        "records of the index were refused.",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

static int
scrub(kvt_store *store, const char *path, const struct arguments *arguments)
{
    struct kvt_namespace_info only = {.ns = {0}};
    struct kvt_examiner examiner;
    struct findings *findings = NULL;
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_PROBLEM;

    if (arguments->values[OPTION_NAMESPACE] != NULL)
        status = namespace_find(store, arguments->values[OPTION_NAMESPACE], &only);
    if (status == KVT_MISS) {
        namespace_complain(arguments->values[OPTION_NAMESPACE], path);
        return EXIT_PROBLEM;
    }
    findings = malloc(sizeof(*findings));
    if (findings == NULL) {
        complain("there is no memory to read %s", path);
        return EXIT_PROBLEM;
    }
    findings_begin(findings, "scrub", arguments->values[OPTION_JSON] != NULL, &examiner);
    if (status == KVT_OK)
        status = kvt_scrub(store, only.ns, &examiner, &findings->report);
    if (status == KVT_CANCELLED)
        complain("interrupted");
    else if (status != KVT_OK)
        complain_status(status, "cannot read the blocks of %s", path);
    exit_code = findings_end(findings, status);
    if (!store_is_whole(store, path))
        exit_code = EXIT_PROBLEM;
    free(findings);
    return exit_code;
}

int
kvtool_scrub(int argc, char **argv)
{
    struct arguments arguments;
    kvt_store *store = NULL;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_scrub_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    store = store_open_to_read(arguments.operands[0]);
    if (store == NULL)
        return EXIT_PROBLEM;
    exit_code = scrub(store, arguments.operands[0], &arguments);
    return store_close(store, arguments.operands[0]) ? exit_code : EXIT_PROBLEM;
}
