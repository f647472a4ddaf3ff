/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - `tierbench sweep`: block size x depth through a store, beside the machine's ceilings.
 */
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "kvtier/kvtier.h"
#include "number_list.h"
#include "outputs.h"
#include "plot.h"
#include "quantity.h"
#include "tierbench.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum {
    PAGE_BYTES = 4096,
};

enum {
    OPTION_DIR,
    OPTION_BLOCK_BYTES,
    OPTION_DEPTH,
    OPTION_STORE_BYTES,
    OPTION_SEGMENT_BYTES,
    OPTION_SECONDS,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where to measure; made when missing"},
    [OPTION_BLOCK_BYTES] = {"--block-bytes", "SIZES",
        "separated by commas, multiples of 4K up to 64M (default\n64K,1M)"},
    [OPTION_DEPTH] = {"--depth", "COUNTS",
        "blocks being read at once (default 1,4,8,16,32,64,128)"},
    [OPTION_STORE_BYTES] = {"--store-bytes", "SIZE",
        "NVMe capacity (default 4G); a raw file of the same\nsize lies beside it"},
    [OPTION_SEGMENT_BYTES] = {"--segment-bytes", "SIZE",
        "of the store's segments (default 256M, which stores\nof 16G and more have by themselves; "
        "at most a 16th)"},
    [OPTION_SECONDS] = {"--seconds", "S", "for each figure (default 1.5)"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = OUTPUT_PLOT_OPTION("draw the share of the ceiling over depth (gnuplot)"),
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_sweep_line = {
    .program = "tierbench",
    .command = "sweep",
    .operands = "",
    .summary = "Measure puts, gets and lookups for block sizes and depths, beside the ceilings.",
    .text =
        "Each figure of the store is measured in turns with its ceiling, five rounds, medians:\n"
        "durable puts in batches of 8 MiB against writes and fdatasync of such batches into a\n"
        "file in the same state; gets from NVMe against reads of the store's own data file;\n"
        "gets from HOST against memcpy. Gets go into huge-page buffers, checksums on.\n"
        "\n"
        "JSON: \"dir\", \"store_bytes\", \"segment_bytes\", \"wrong_bytes\", \"results\" [for each "
        "block size:\n"
        "\"block_bytes\",\n"
        "{put_first,put_again}_{bytes_per_s,ceiling_bytes_per_s,ceiling_share}, \"nvme_get\"\n"
        "[{\"depth\", \"bytes_per_s\", \"ceiling_bytes_per_s\", \"ceiling_share\"} ...] (both\n"
        "at that depth),\n"
        "nvme_get_best_{bytes_per_s,depth,ceiling_bytes_per_s,ceiling_depth,ceiling_share}\n"
        "(each at its own best depth),\n"
        "host_get_{bytes_per_s,ceiling_bytes_per_s,ceiling_share}, lookup_1000_{p50, p99}_ns\n"
        "(lease and release), nvme_get_{p50,p99}_ns, \"wrong_bytes\", \"miss_blocks\"]",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

/* Whole pages: what is put, and read beside the ceiling, is counted without padding. */
static bool
sizes_read(const char *sizes, struct sweep_plan *plan)
{
    bool is_fine = number_list_read(sizes != NULL ? sizes : "64K,1M", KVT_BLOCK_BYTES_MAX,
        plan->block_bytes, SWEEP_SIZE_MAX, &plan->size_count);

    for (uint32_t i = 0; is_fine && i < plan->size_count; i++)
        is_fine = plan->block_bytes[i] % PAGE_BYTES == 0;
    if (!is_fine)
        complain("--block-bytes %s is no list of up to 16 multiples of 4K up to 64M", sizes);
    return is_fine;
}

static bool
plan_read(const struct arguments *arguments, struct sweep_plan *plan)
{
    const char *depths = arguments->values[OPTION_DEPTH];
    const char *bytes = arguments->values[OPTION_STORE_BYTES];
    const char *segment = arguments->values[OPTION_SEGMENT_BYTES];
    const char *seconds = arguments->values[OPTION_SECONDS];

    plan->directory = arguments->values[OPTION_DIR];
    if (plan->directory == NULL) {
        complain("sweep needs --dir DIR");
        return false;
    }
    if (!sizes_read(arguments->values[OPTION_BLOCK_BYTES], plan))
        return false;
    if (!number_list_read(depths != NULL ? depths : "1,4,8,16,32,64,128", 256, plan->depths,
            SWEEP_DEPTH_MAX, &plan->depth_count)) {
        complain("--depth %s is no list of up to 16 counts of 1 to 256", depths);
        return false;
    }
    if (bytes != NULL && (!quantity_size(bytes, &plan->store_bytes) || plan->store_bytes < GIB ||
                             plan->store_bytes > UINT64_C(1) << 42)) {
        complain("--store-bytes %s is no size of 1G to 4T", bytes);
        return false;
    }
    if (segment != NULL && (!quantity_size(segment, &plan->segment_bytes) ||
                               plan->segment_bytes < MIB || plan->segment_bytes > GIB)) {
        complain("--segment-bytes %s is no size of 1M to 1G", segment);
        return false;
    }
    /* A small store has at least 16 segments. */
    while (segment == NULL && plan->segment_bytes > plan->store_bytes / 16)
        plan->segment_bytes /= 2;
    if (seconds != NULL && !quantity_seconds(seconds, &plan->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds);
        return false;
    }
    return true;
}

static double
share_of(const struct sweep_pair *pair)
{
    return pair->raw_bytes_per_s > 0 ? pair->ours_bytes_per_s / pair->raw_bytes_per_s : 0;
}

static void
pair_print_json(struct json *json, const char *name, const struct sweep_pair *pair)
{
    char key[64];

    snprintf(key, sizeof(key), "%sbytes_per_s", name);
    json_real(json, key, pair->ours_bytes_per_s);
    snprintf(key, sizeof(key), "%sceiling_bytes_per_s", name);
    json_real(json, key, pair->raw_bytes_per_s);
    snprintf(key, sizeof(key), "%sceiling_share", name);
    json_real(json, key, share_of(pair));
}

static void
row_print_json(struct json *json, const struct sweep_plan *plan, const struct sweep_row *row)
{
    json_object_begin(json, NULL);
    json_number(json, "block_bytes", row->block_bytes);
    pair_print_json(json, "put_first_", &row->put_first);
    pair_print_json(json, "put_again_", &row->put_again);
    json_array_begin(json, "nvme_get");
    for (uint32_t i = 0; i < plan->depth_count; i++) {
        json_object_begin(json, NULL);
        json_number(json, "depth", plan->depths[i]);
        pair_print_json(json, "", &row->reads[i]);
        json_object_end(json);
    }
    json_array_end(json);
    pair_print_json(json, "nvme_get_best_", &row->read_best);
    json_number(json, "nvme_get_best_depth", row->ours_best_depth);
    json_number(json, "nvme_get_best_ceiling_depth", row->raw_best_depth);
    pair_print_json(json, "host_get_", &row->host_get);
    json_number(json, "lookup_1000_p50_ns", row->lookup_p50_ns);
    json_number(json, "lookup_1000_p99_ns", row->lookup_p99_ns);
    json_number(json, "nvme_get_p50_ns", row->get_p50_ns);
    json_number(json, "nvme_get_p99_ns", row->get_p99_ns);
    json_number(json, "wrong_bytes", row->wrong_bytes);
    json_number(json, "miss_blocks", row->miss_count);
    json_object_end(json);
}

static void
pair_print(const char *name, const struct sweep_pair *pair)
{
    char ours[QUANTITY_TEXT_BYTES];
    char raw[QUANTITY_TEXT_BYTES];

    printf("  %-28s %12s of %12s  %6.3f\n", name, quantity_rate_text(ours, pair->ours_bytes_per_s),
        quantity_rate_text(raw, pair->raw_bytes_per_s), share_of(pair));
}

static void
row_print(const struct sweep_plan *plan, const struct sweep_row *row)
{
    char text[QUANTITY_TEXT_BYTES];
    char name[64];

    printf("blocks of %s\n", quantity_bytes_text(text, (double)row->block_bytes));
    pair_print("durable put, first fill", &row->put_first);
    pair_print("durable put, recycled", &row->put_again);
    for (uint32_t i = 0; i < plan->depth_count; i++) {
        snprintf(name, sizeof(name), "get from NVMe, depth %" PRIu64, plan->depths[i]);
        pair_print(name, &row->reads[i]);
    }
    snprintf(name, sizeof(name), "get from NVMe, best %u / %u", row->ours_best_depth,
        row->raw_best_depth);
    pair_print(name, &row->read_best);
    pair_print("get from HOST", &row->host_get);
    printf("  %-28s %12s p50", "lookup of 1,000 keys",
        quantity_time_text(text, (double)row->lookup_p50_ns));
    printf(" %12s p99\n", quantity_time_text(text, (double)row->lookup_p99_ns));
    printf("  %-28s %12" PRIu64 " wrong bytes, %" PRIu64 " misses\n", "compared", row->wrong_bytes,
        row->miss_count);
}

static bool
rows_measure(const struct sweep_plan *plan, struct sweep_row *rows, uint64_t *bad_out)
{
    *bad_out = 0;
    for (uint32_t i = 0; i < plan->size_count; i++) {
        if (!sweep_measure(plan, plan->block_bytes[i], &rows[i]))
            return false;
        *bad_out += rows[i].wrong_bytes + rows[i].miss_count;
    }
    return true;
}

static void
rows_print(const struct sweep_plan *plan, const struct sweep_row *rows, bool as_json)
{
    struct json json = JSON_INIT(stdout);
    uint64_t wrong_bytes = 0;

    if (!as_json) {
        printf("ours of ceiling, share; five rounds in turns, medians\n");
        for (uint32_t i = 0; i < plan->size_count; i++)
            row_print(plan, &rows[i]);
        return;
    }
    json_object_begin(&json, NULL);
    json_string(&json, "dir", plan->directory);
    json_number(&json, "store_bytes", plan->store_bytes);
    json_number(&json, "segment_bytes", plan->segment_bytes);
    json_array_begin(&json, "results");
    for (uint32_t i = 0; i < plan->size_count; i++) {
        row_print_json(&json, plan, &rows[i]);
        wrong_bytes += rows[i].wrong_bytes;
    }
    json_array_end(&json);
    json_number(&json, "wrong_bytes", wrong_bytes);
    json_object_end(&json);
    json_end(&json);
}

static void
pair_write(FILE *out, uint64_t block_bytes, const char *figure, uint64_t depth,
    const struct sweep_pair *pair)
{
    fprintf(out, "%" PRIu64 ",%s,%" PRIu64 ",%.6g,%.6g,%.4f\n", block_bytes, figure, depth,
        pair->ours_bytes_per_s, pair->raw_bytes_per_s, share_of(pair));
}

static bool
rows_csv(const struct sweep_plan *plan, const struct sweep_row *rows, const char *path)
{
    FILE *out =
        csv_open(path, "block_bytes,figure,depth,bytes_per_s,ceiling_bytes_per_s,ceiling_share");

    if (out == NULL)
        return false;
    for (uint32_t i = 0; i < plan->size_count; i++) {
        pair_write(out, rows[i].block_bytes, "put_first", 0, &rows[i].put_first);
        pair_write(out, rows[i].block_bytes, "put_again", 0, &rows[i].put_again);
        for (uint32_t j = 0; j < plan->depth_count; j++)
            pair_write(out, rows[i].block_bytes, "nvme_get", plan->depths[j], &rows[i].reads[j]);
        pair_write(out, rows[i].block_bytes, "host_get", 0, &rows[i].host_get);
    }
    return csv_close(out, path);
}

/* A line for each block size: which share of the same reads without a store it has. */
static bool
rows_plot(const struct sweep_plan *plan, const struct sweep_row *rows, const char *path)
{
    struct plot plot;

    if (!plot_begin(&plot, "Gets from NVMe: share of the ceiling at the same depth", 900, 450))
        return false;
    for (uint32_t i = 0; i < plan->size_count; i++) {
        fprintf(plot.script, "$size%u << EOD\n", i);
        for (uint32_t j = 0; j < plan->depth_count; j++)
            fprintf(
                plot.script, "%" PRIu64 " %.6g\n", plan->depths[j], share_of(&rows[i].reads[j]));
        fprintf(plot.script, "EOD\n");
    }
    fprintf(plot.script, "set logscale x 2\nset yrange [0:*]\nset xlabel 'blocks at once'\n"
                         "set ylabel 'share of the ceiling'\nplot ");
    for (uint32_t i = 0; i < plan->size_count; i++) {
        char text[QUANTITY_TEXT_BYTES];

        fprintf(plot.script, "$size%u using 1:2 with linespoints title '%s', ", i,
            quantity_bytes_text(text, (double)rows[i].block_bytes));
    }
    fprintf(plot.script, "1 with lines dashtype 2 lc rgb 'black' lw 1 title 'ceiling'\n");
    return plot_end(&plot, path);
}

int
tierbench_sweep(int argc, char **argv)
{
    struct arguments arguments;
    struct sweep_plan plan = {.store_bytes = 4 * GIB, .segment_bytes = 256 * MIB, .seconds = 1.5};
    struct sweep_row rows[SWEEP_SIZE_MAX];
    struct outputs outputs;
    uint64_t bad = 0;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&tierbench_sweep_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    outputs = (struct outputs){arguments.values[OPTION_CSV], arguments.values[OPTION_PLOT]};
    if (!outputs_check(&outputs) || !directory_make(plan.directory))
        return EXIT_PROBLEM;
    if (!rows_measure(&plan, rows, &bad))
        return EXIT_PROBLEM;
    rows_print(&plan, rows, arguments.values[OPTION_JSON] != NULL);
    if (outputs.csv_path != NULL && !rows_csv(&plan, rows, outputs.csv_path))
        return EXIT_PROBLEM;
    if (outputs.plot_path != NULL && !rows_plot(&plan, rows, outputs.plot_path))
        return EXIT_PROBLEM;
    return bad == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
