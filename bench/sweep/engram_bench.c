/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_bench.c - `tierbench engram`: rows of N-gram tables from NVMe for batches of tokens.
 */
#include "engram_bench.h"

#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "kvtier/kvtier.h"
#include "number_list.h"
#include "quantity.h"
#include "tierbench.h"

enum {
    ROWS_DEFAULT = 4000000,
    ROWS_MIN = 10000,
    ROWS_MAX = 400000000,
};

enum {
    OPTION_DIR,
    OPTION_ROWS,
    OPTION_BATCH,
    OPTION_SECONDS,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where to measure; made when missing"},
    [OPTION_ROWS] = {"--rows", "COUNT", "of each of the two tables (default 4000000: 1.1 GB)"},
    [OPTION_BATCH] = {"--batch", "COUNTS",
        "tokens of a step, separated by commas (default\n1,16,64,256,1024)"},
    [OPTION_SECONDS] = {"--seconds", "S", "for each figure (default 1)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_engram_line = {
    .program = "tierbench",
    .command = "engram",
    .operands = "",
    .summary = "Measure fetching rows of N-gram tables for batches of tokens, beside the ceiling.",
    .text =
        "Two tables of the shape of DeepSeek-V4.1's (24 rows of 264 bytes a token from each, 15 "
        "rows\n"
        "a page), with fewer rows. Nothing is cached: every page is read with O_DIRECT. Of the\n"
        "stream four steps are in flight; its ceiling, random reads of 4 KiB of the same file at\n"
        "the best of three depths, is measured in turns with it.\n"
        "\n"
        "JSON: \"dir\", \"row_count\", \"row_bytes\", \"wrong_rows\", \"results\" [{\"tokens\" "
        "(uniform or\n"
        "zipf: Zipf's law with exponent 1), \"batch\", \"plan_tokens_per_s\", "
        "\"step_tokens_per_s\",\n"
        "\"stream_tokens_per_s\", \"stream_rows_per_s\", \"stream_pages_per_s\",\n"
        "\"ceiling_pages_per_s\", \"ceiling_share\", first_table_{p50,p99}_ns (from the start of "
        "the\n"
        "plan until the table with the earlier deadline is there), step_{p50,p99}_ns,\n"
        "\"wrong_rows\"}]",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

static double
share_of(const struct engram_row *row)
{
    return row->ceiling_pages_per_s > 0 ? row->stream_pages_per_s / row->ceiling_pages_per_s : 0;
}

static void
rows_print_json(const struct engram_plan *plan, const struct engram_row *rows, uint64_t wrong_rows)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "dir", plan->directory);
    json_number(&json, "row_count", plan->row_count);
    json_number(&json, "row_bytes", 264);
    json_number(&json, "wrong_rows", wrong_rows);
    json_array_begin(&json, "results");
    for (uint32_t i = 0; i < 2 * plan->batch_count; i++) {
        json_object_begin(&json, NULL);
        json_string(&json, "tokens", rows[i].is_zipf ? "zipf" : "uniform");
        json_number(&json, "batch", rows[i].batch);
        json_real(&json, "plan_tokens_per_s", rows[i].plan_tokens_per_s);
        json_real(&json, "step_tokens_per_s", rows[i].step_tokens_per_s);
        json_real(&json, "stream_tokens_per_s", rows[i].stream_tokens_per_s);
        json_real(&json, "stream_rows_per_s", rows[i].stream_rows_per_s);
        json_real(&json, "stream_pages_per_s", rows[i].stream_pages_per_s);
        json_real(&json, "ceiling_pages_per_s", rows[i].ceiling_pages_per_s);
        json_real(&json, "ceiling_share", share_of(&rows[i]));
        json_number(&json, "first_table_p50_ns", rows[i].first_p50_ns);
        json_number(&json, "first_table_p99_ns", rows[i].first_p99_ns);
        json_number(&json, "step_p50_ns", rows[i].step_p50_ns);
        json_number(&json, "step_p99_ns", rows[i].step_p99_ns);
        json_number(&json, "wrong_rows", rows[i].wrong_rows);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

static void
row_print(const struct engram_row *row)
{
    char texts[2][QUANTITY_TEXT_BYTES];

    printf("%s tokens, %" PRIu64 " a step\n", row->is_zipf ? "zipf" : "uniform", row->batch);
    printf("  %-32s %12.0f tokens a second\n", "plan", row->plan_tokens_per_s);
    printf("  %-32s %12.0f tokens a second\n", "one step at a time", row->step_tokens_per_s);
    printf("  %-32s %12.0f tokens a second, %.0f rows\n", "four steps in flight",
        row->stream_tokens_per_s, row->stream_rows_per_s);
    printf("  %-32s %12.0f of %.0f  %6.3f\n", "pages a second", row->stream_pages_per_s,
        row->ceiling_pages_per_s, share_of(row));
    printf("  %-32s %12s p50 %12s p99\n", "first table",
        quantity_time_text(texts[0], (double)row->first_p50_ns),
        quantity_time_text(texts[1], (double)row->first_p99_ns));
    printf("  %-32s %12s p50 %12s p99\n", "both tables",
        quantity_time_text(texts[0], (double)row->step_p50_ns),
        quantity_time_text(texts[1], (double)row->step_p99_ns));
}

static bool
plan_read(const struct arguments *arguments, struct engram_plan *plan)
{
    const char *rows = arguments->values[OPTION_ROWS];
    const char *batches = arguments->values[OPTION_BATCH];
    const char *seconds = arguments->values[OPTION_SECONDS];

    plan->directory = arguments->values[OPTION_DIR];
    plan->row_count = ROWS_DEFAULT;
    plan->seconds = 1;
    if (plan->directory == NULL) {
        complain("engram needs --dir DIR");
        return false;
    }
    if (rows != NULL && (!quantity_count(rows, &plan->row_count) || plan->row_count < ROWS_MIN ||
                            plan->row_count > ROWS_MAX)) {
        complain("--rows %s is no count of %d to %d", rows, ROWS_MIN, ROWS_MAX);
        return false;
    }
    if (!number_list_read(batches != NULL ? batches : "1,16,64,256,1024", 16384, plan->batches,
            ENGRAM_BATCH_MAX, &plan->batch_count)) {
        complain("--batch %s is no list of up to 16 counts of 1 to 16384", batches);
        return false;
    }
    if (seconds != NULL && !quantity_seconds(seconds, &plan->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds);
        return false;
    }
    return true;
}

int
tierbench_engram(int argc, char **argv)
{
    struct engram_row rows[2 * ENGRAM_BATCH_MAX];
    struct engram_plan plan;
    struct arguments arguments;
    int exit_code = EXIT_FINE;
    uint64_t wrong_rows = 0;

    if (!arguments_read(&tierbench_engram_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    if (!directory_make(plan.directory) || !engram_measure(&plan, rows))
        return EXIT_PROBLEM;
    for (uint32_t i = 0; i < 2 * plan.batch_count; i++)
        wrong_rows += rows[i].wrong_rows;
    if (arguments.values[OPTION_JSON] != NULL) {
        rows_print_json(&plan, rows, wrong_rows);
    } else {
        for (uint32_t i = 0; i < 2 * plan.batch_count; i++)
            row_print(&rows[i]);
        printf("compared: %" PRIu64 " wrong rows\n", wrong_rows);
    }
    return wrong_rows == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
