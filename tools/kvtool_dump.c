/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_dump.c - `kvtool dump`: the inside of a store, one JSON object a line.
 */
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "kvtool_owner.h"
#include "quantity.h"

enum {
    OPTION_SEGMENT,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_SEGMENT] = {"--segment", "NUMBER", "only of this segment"},
    [OPTION_JSON] = {"--json", NULL, "accepted: the output is one JSON object a line anyway"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_dump_line = {
    .program = "kvtool",
    .command = "dump",
    .operands = "DIR segments|records|extents|batches",
    .summary = "Print segments, index records, extents or batch headers of the store in DIR.",
    .text = "One JSON object a line, with the fields of tiers/FORMAT.md and index/SCHEMA.md. Not\n"
            "stable.",
    .operand_min = 2,
    .operand_max = 2,
    .options = options,
};

static const struct {
    const char *word;
    enum kvt_dump_kind kind;
} kinds[] = {
    {"segments", KVT_DUMP_SEGMENTS},
    {"records", KVT_DUMP_RECORDS},
    {"extents", KVT_DUMP_EXTENTS},
    {"batches", KVT_DUMP_BATCHES},
};

/* Stops when nobody reads any more. */
static int
line_print(void *context, const char *json)
{
    FILE *out = context;

    return fprintf(out, "%s\n", json) < 0;
}

static int
dump(const char *path, enum kvt_dump_kind kind, uint32_t segment)
{
    enum kvt_status status = kvt_dump(path, kind, segment, line_print, stdout);

    if (status == KVT_OK)
        return EXIT_FINE;
    if (status == KVT_MISS)
        complain("there is no store in %s", path);
    else if (status == KVT_E_LOCKED)
        owner_complain(path);
    else
        complain_status(status, "cannot read %s", path);
    return EXIT_PROBLEM;
}

int
kvtool_dump(int argc, char **argv)
{
    struct arguments arguments;
    uint64_t segment = UINT32_MAX;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_dump_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (arguments.values[OPTION_SEGMENT] != NULL &&
        (!quantity_count(arguments.values[OPTION_SEGMENT], &segment) || segment >= UINT32_MAX)) {
        complain("--segment %s is no number of a segment", arguments.values[OPTION_SEGMENT]);
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(arguments.operands[1], kinds[i].word) == 0)
            return dump(arguments.operands[0], kinds[i].kind, (uint32_t)segment);
    }
    complain("%s is nothing to dump: segments, records, extents or batches", arguments.operands[1]);
    return EXIT_USAGE;
}
