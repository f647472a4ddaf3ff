/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_bench.c - `tierbench engram`: rows of N-gram tables from NVMe for batches of tokens.
 */
#include "engram_bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    STEP_MS_MAX = 10000,
    CACHE_DEFAULT = 256 << 20,
    CACHE_MIN = 256 << 10,
};

enum {
    OPTION_DIR,
    OPTION_ROWS,
    OPTION_BATCH,
    OPTION_SECONDS,
    OPTION_STEP,
    OPTION_CACHE,
    OPTION_TEXT,
    OPTION_DEVICE,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where to measure; made when missing"},
    [OPTION_ROWS] = {"--rows", "COUNT", "of each of the two tables (default 4000000: 1.1 GB)"},
    [OPTION_BATCH] = {"--batch", "COUNTS",
        "tokens of a step, separated by commas (default\n1,16,64,256,1024)"},
    [OPTION_SECONDS] = {"--seconds", "S", "for each figure (default 1)"},
    [OPTION_STEP] = {"--step-ms", "MS", "also run steps that compute for so long"},
    [OPTION_CACHE] = {"--cache", "SIZE", "of rows, for each table of these (default 256M)"},
    [OPTION_TEXT] = {"--text", "FILES",
        "whose bytes are a third stream of these,\nseparated by commas"},
    [OPTION_DEVICE] = {"--device", "KIND",
        "auto (default: a GPU when there is one), none, cuda or\nemulation"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_engram_line = {
    .program = "tierbench",
    .command = "engram",
    .operands = "",
    .summary = "Measure fetching rows of N-gram tables for batches of tokens, beside the ceiling.",
    .text =
        "Two tables of the shape of DeepSeek-V4.1's (24 rows of 264 bytes a token from each, 15\n"
        "rows a page), with fewer rows. Nothing is cached: every page is read with O_DIRECT. Of\n"
        "the stream four steps are in flight; its ceiling, random reads of 4 KiB of the same\n"
        "file at the best of three depths, is measured in turns with it.\n"
        "\n"
        "With --step-ms: steps that need their rows and then compute, which is a timed wait of\n"
        "the host (no GPU computes); the rows in pinned memory, on NVMe, and there with a cache;\n"
        "asked for when the step begins, or prefetched while the one before computes. The ids of\n"
        "text are those of byte pairs that are made of the files, each token of a batch with a\n"
        "place of its own there. The share is of the rate of steps that only compute.\n"
        "\n"
        "With a device: steps whose rows go to its memory, gathered by a kernel from tables that\n"
        "lie there (left out without room for them) or in pinned memory, or fetched from NVMe,\n"
        "with and without a cache of rows in its memory; alone, and with --step-ms with a kernel\n"
        "that computes for so long. Each figure takes a quarter of --seconds, or one step. On the\n"
        "emulation the figures mean nothing.\n"
        "\n"
        "JSON: \"dir\", \"row_count\", \"row_bytes\", \"wrong_rows\", \"results\" [{\"tokens\"\n"
        "(uniform or zipf: Zipf's law with exponent 1), \"batch\", \"plan_tokens_per_s\",\n"
        "\"step_tokens_per_s\", \"stream_tokens_per_s\", \"stream_rows_per_s\",\n"
        "\"stream_pages_per_s\", \"stream_cpu_ns_per_page\" (of the process),\n"
        "\"ceiling_pages_per_s\", \"ceiling_share\",\n"
        "first_table_{p50,p99}_ns (from the start of the plan until the table with the earlier\n"
        "deadline is there), step_{p50,p99}_ns, \"wrong_rows\"}]; with --step-ms \"compute\",\n"
        "\"step_ns\", \"cache_bytes\", \"steps\" [{\"tokens\", \"way\" (pinned, nvme, "
        "nvme_cache),\n"
        "\"prefetched\", \"batch\", \"tokens_per_s\", \"compute_share\", step_{p50,p99}_ns,\n"
        "\"pages_per_step\", \"cache_hit_share\", \"cache_sample_share\", cache_{worth,cost}_ns "
        "(of a\n"
        "row), \"cache_on_count\", \"wrong_rows\"}]; with a device \"device\", \"is_emulated\",\n"
        "\"device_compute\", \"device_step_ns\", \"device_cache_bytes\", \"device_steps\" "
        "[{\"tokens\",\n"
        "\"way\" (hbm, pinned_uva, nvme, nvme_hbm_cache), \"mode\" (alone, synchronous, "
        "prefetched),\n"
        "\"batch\", \"rows_per_s\", and what \"steps\" has from \"tokens_per_s\" on}]",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

static double
share_of(const struct engram_row *row)
{
    return row->ceiling_pages_per_s > 0 ? row->stream_pages_per_s / row->ceiling_pages_per_s : 0;
}

const char *
engram_tokens_name(enum engram_tokens tokens)
{
    static const char *const names[] = {"uniform", "zipf", "text"};

    return names[tokens];
}

static const char *
way_name(enum engram_way way)
{
    static const char *const names[] = {"pinned", "nvme", "nvme_cache"};

    return names[way];
}

static void
steps_print_json(
    struct json *json, const struct engram_plan *plan, const struct engram_step_row *rows)
{
    if (plan->step_ns == 0)
        return;
    json_string(json, "compute", "a timed wait of the host");
    json_number(json, "step_ns", plan->step_ns);
    json_number(json, "cache_bytes", plan->cache_bytes);
    json_array_begin(json, "steps");
    for (uint32_t i = 0; i < engram_step_row_count(plan); i++) {
        json_object_begin(json, NULL);
        json_string(json, "tokens", engram_tokens_name(rows[i].tokens));
        json_string(json, "way", way_name(rows[i].way));
        json_bool(json, "prefetched", rows[i].is_prefetched);
        json_number(json, "batch", rows[i].batch);
        json_real(json, "tokens_per_s", rows[i].tokens_per_s);
        json_real(json, "compute_share", rows[i].compute_share);
        json_number(json, "step_p50_ns", rows[i].step_p50_ns);
        json_number(json, "step_p99_ns", rows[i].step_p99_ns);
        json_real(json, "pages_per_step", rows[i].pages_per_step);
        json_real(json, "cache_hit_share", rows[i].cache_hit_share);
        json_real(json, "cache_sample_share", rows[i].cache_sample_share);
        json_number(json, "cache_worth_ns", rows[i].cache_worth_ns);
        json_number(json, "cache_cost_ns", rows[i].cache_cost_ns);
        json_number(json, "cache_on_count", rows[i].cache_on_count);
        json_number(json, "wrong_rows", rows[i].wrong_rows);
        json_object_end(json);
    }
    json_array_end(json);
}

static void
steps_print(const struct engram_plan *plan, const struct engram_step_row *rows)
{
    if (plan->step_ns == 0)
        return;
    printf(
        "steps that compute for %.1f ms (a timed wait of the host)\n", (double)plan->step_ns / 1e6);
    for (uint32_t i = 0; i < engram_step_row_count(plan); i++) {
        char texts[2][QUANTITY_TEXT_BYTES];

        printf("  %-7s %5" PRIu64 "  %-10s  %-11s %9.0f tokens/s  %6.3f  %10s p50 %10s p99"
               "  %6.0f pages  %.2f cached (%.2f of the sample; worth %" PRIu64 " of %" PRIu64
               " ns)\n",
            engram_tokens_name(rows[i].tokens), rows[i].batch, way_name(rows[i].way),
            rows[i].is_prefetched ? "prefetched" : "synchronous", rows[i].tokens_per_s,
            rows[i].compute_share, quantity_time_text(texts[0], (double)rows[i].step_p50_ns),
            quantity_time_text(texts[1], (double)rows[i].step_p99_ns), rows[i].pages_per_step,
            rows[i].cache_hit_share, rows[i].cache_sample_share, rows[i].cache_worth_ns,
            rows[i].cache_cost_ns);
    }
}

static void
rows_print_json(const struct engram_plan *plan, const struct engram_row *rows,
    const struct engram_step_row *steps, const struct engram_device_rows *device_rows,
    uint64_t wrong_rows)
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
        json_real(&json, "stream_cpu_ns_per_page", rows[i].stream_cpu_ns_per_page);
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
    steps_print_json(&json, plan, steps);
    engram_device_rows_print_json(&json, plan, device_rows);
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
    printf("  %-32s %9.0f ns on a processor\n", "a page", row->stream_cpu_ns_per_page);
    printf("  %-32s %12s p50 %12s p99\n", "first table",
        quantity_time_text(texts[0], (double)row->first_p50_ns),
        quantity_time_text(texts[1], (double)row->first_p99_ns));
    printf("  %-32s %12s p50 %12s p99\n", "both tables",
        quantity_time_text(texts[0], (double)row->step_p50_ns),
        quantity_time_text(texts[1], (double)row->step_p99_ns));
}

/* What concerns steps that compute. */
static bool
plan_read_steps(const struct arguments *arguments, struct engram_plan *plan)
{
    const char *step = arguments->values[OPTION_STEP];
    const char *cache = arguments->values[OPTION_CACHE];
    uint64_t step_ms = 0;

    plan->step_ns = 0;
    plan->cache_bytes = CACHE_DEFAULT;
    plan->text = arguments->values[OPTION_TEXT];
    if (step != NULL &&
        (!quantity_count(step, &step_ms) || step_ms == 0 || step_ms > STEP_MS_MAX)) {
        complain("--step-ms %s is no count of 1 to %d", step, STEP_MS_MAX);
        return false;
    }
    plan->step_ns = step_ms * 1000000;
    if (cache != NULL &&
        (!quantity_size(cache, &plan->cache_bytes) || plan->cache_bytes < CACHE_MIN)) {
        complain("--cache %s is no size of 256K or more", cache);
        return false;
    }
    if (step == NULL && arguments->values[OPTION_DEVICE] == NULL &&
        (cache != NULL || plan->text != NULL)) {
        complain("--cache and --text are of steps: of --step-ms, and of a --device");
        return false;
    }
    return true;
}

static bool
device_read(const char *kind, struct engram_plan *plan)
{
    static const char *const kinds[] = {"auto", "none", "cuda", "emulation"};

    plan->device = ENGRAM_DEVICE_AUTO;
    while (kind != NULL && plan->device < ENGRAM_DEVICE_CHOICE_COUNT &&
           strcmp(kind, kinds[plan->device]) != 0)
        plan->device++;
    if (plan->device == ENGRAM_DEVICE_CHOICE_COUNT)
        complain("--device %s is none of auto, none, cuda, emulation", kind);
    return plan->device != ENGRAM_DEVICE_CHOICE_COUNT;
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
    return device_read(arguments->values[OPTION_DEVICE], plan) && plan_read_steps(arguments, plan);
}

int
tierbench_engram(int argc, char **argv)
{
    struct engram_row rows[2 * ENGRAM_BATCH_MAX];
    static struct engram_step_row steps[ENGRAM_STEP_ROWS_MAX];
    static struct engram_device_rows device_rows;
    struct engram_plan plan;
    struct arguments arguments;
    int exit_code = EXIT_FINE;
    uint64_t wrong_rows = 0;

    if (!arguments_read(&tierbench_engram_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    if (!directory_make(plan.directory) || !engram_measure(&plan, rows, steps, &device_rows))
        return EXIT_PROBLEM;
    for (uint32_t i = 0; i < 2 * plan.batch_count; i++)
        wrong_rows += rows[i].wrong_rows;
    for (uint32_t i = 0; i < engram_step_row_count(&plan); i++)
        wrong_rows += steps[i].wrong_rows;
    for (uint32_t i = 0; i < device_rows.count; i++)
        wrong_rows += device_rows.rows[i].wrong_rows;
    if (arguments.values[OPTION_JSON] != NULL) {
        rows_print_json(&plan, rows, steps, &device_rows, wrong_rows);
    } else {
        for (uint32_t i = 0; i < 2 * plan.batch_count; i++)
            row_print(&rows[i]);
        steps_print(&plan, steps);
        engram_device_rows_print(&plan, &device_rows);
        printf("compared: %" PRIu64 " wrong rows\n", wrong_rows);
    }
    return wrong_rows == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
