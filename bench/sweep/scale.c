/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - `tierbench scale`: what few and many entries cost.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "number_list.h"
#include "outputs.h"
#include "plot.h"
#include "quantity.h"
#include "scale_measure.h"
#include "tierbench.h"

enum {
    SIZES_MAX = 8,
    ENTRIES_MIN = 1000,
    ENTRIES_MAX = 100000000,
    BLOCK_BYTES_DEFAULT = 4096,
    BLOCK_BYTES_MAX = 1 << 20,
    PATH_BYTES = 4096,
};

enum {
    OPTION_DIR,
    OPTION_ENTRIES,
    OPTION_BLOCK_BYTES,
    OPTION_KEEP,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where the stores are made and removed; made when missing"},
    [OPTION_ENTRIES] = {"--entries", "COUNTS",
        "how many blocks; separated by commas (default\n1000,10000,100000,1000000)"},
    [OPTION_BLOCK_BYTES] = {"--block-bytes", "SIZE",
        "of a block: a multiple of 4K up to 1M (default 4K)"},
    [OPTION_KEEP] = {"--keep", NULL, "leave the last store in DIR/scale-store"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = OUTPUT_PLOT_OPTION("draw memory, opening, lookups and puts (gnuplot)"),
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_scale_line = {
    .program = "tierbench",
    .command = "scale",
    .operands = "",
    .summary = "Measure memory, lookups, puts and reopening with few and many small blocks.",
    .text =
        "A store of each size, one after the other, each in a process of its own. A million "
        "blocks\n"
        "of 4 KiB need 6 GiB of disk, ten million 60 GiB.\n"
        "\n"
        "JSON: \"block_bytes\", \"results\" [{\"entries\", \"entry_memory_bytes\" (growth of the "
        "process's\n"
        "anonymous memory for each entry, key included; of few entries only a hint),\n"
        "\"lookup_1000_p50_ns\", \"lookup_1000_p99_ns\" (with lease and release),\n"
        "\"lookup_found\" (of the last 1,000), \"reopen_clean_ns\", \"reopen_killed_ns\" (until\n"
        "1,000 keys were answered), \"page_cache_dropped\" (needs root), \"put_per_s\" (durable)}]",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

struct scale_plan {
    const char *directory;
    uint64_t entries[SIZES_MAX];
    uint32_t size_count;
    uint64_t block_bytes;
    bool keeps;
    struct outputs outputs;
    bool as_json;
};

static void
rows_print_json(const struct scale_plan *plan, const struct scale_row *rows)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_number(&json, "block_bytes", plan->block_bytes);
    json_array_begin(&json, "results");
    for (uint32_t i = 0; i < plan->size_count; i++) {
        json_object_begin(&json, NULL);
        json_number(&json, "entries", rows[i].entries);
        json_real(&json, "entry_memory_bytes", rows[i].entry_memory_bytes);
        json_number(&json, "lookup_1000_p50_ns", rows[i].lookup_p50_ns);
        json_number(&json, "lookup_1000_p99_ns", rows[i].lookup_p99_ns);
        json_number(&json, "lookup_found", rows[i].lookup_found);
        json_number(&json, "reopen_clean_ns", (uint64_t)(rows[i].reopen_clean_seconds * 1e9));
        json_number(&json, "reopen_killed_ns", (uint64_t)(rows[i].reopen_killed_seconds * 1e9));
        json_bool(&json, "page_cache_dropped", rows[i].cache_dropped);
        json_real(&json, "put_per_s", rows[i].put_per_s);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

static void
row_print(const struct scale_row *row)
{
    char text[QUANTITY_TEXT_BYTES];

    printf("%-34s %12s\n", "entries", quantity_count_text(text, row->entries));
    printf("  %-32s %12.1f bytes\n", "memory of an entry, key included", row->entry_memory_bytes);
    printf("  %-32s %12s p50", "lookup of 1,000 keys, with lease",
        quantity_time_text(text, (double)row->lookup_p50_ns));
    printf(" %12s p99\n", quantity_time_text(text, (double)row->lookup_p99_ns));
    printf("  %-32s %12s a second\n", "durable puts",
        quantity_count_text(text, (uint64_t)row->put_per_s));
    printf("  %-32s %12s\n", "reopen after a close",
        quantity_time_text(text, row->reopen_clean_seconds * 1e9));
    printf("  %-32s %12s\n", "reopen after SIGKILL",
        quantity_time_text(text, row->reopen_killed_seconds * 1e9));
    if (!row->cache_dropped)
        printf("  the page cache was not dropped (that needs root): reopens read from memory\n");
}

static bool
rows_csv(const struct scale_plan *plan, const struct scale_row *rows)
{
    const char *path = plan->outputs.csv_path;
    FILE *out = csv_open(path,
        "block_bytes,entries,entry_memory_bytes,lookup_1000_p50_ns,lookup_1000_p99_ns,"
        "reopen_clean_ns,reopen_killed_ns,put_per_s");

    if (out == NULL)
        return false;
    for (uint32_t i = 0; i < plan->size_count; i++)
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",%.6g,%" PRIu64 ",%" PRIu64 ",%.0f,%.0f,%.6g\n",
            plan->block_bytes, rows[i].entries, rows[i].entry_memory_bytes, rows[i].lookup_p50_ns,
            rows[i].lookup_p99_ns, rows[i].reopen_clean_seconds * 1e9,
            rows[i].reopen_killed_seconds * 1e9, rows[i].put_per_s);
    return csv_close(out, path);
}

/* Four small pictures over the number of blocks. */
static bool
rows_plot(const struct scale_plan *plan, const struct scale_row *rows)
{
    char size[QUANTITY_TEXT_BYTES];
    struct plot plot;

    (void)quantity_bytes_text(size, (double)plan->block_bytes);
    if (!plot_begin(&plot, "Blocks in one store", 1000, 700))
        return false;
    fprintf(plot.script, "$rows << EOD\n");
    for (uint32_t i = 0; i < plan->size_count; i++)
        fprintf(plot.script, "%" PRIu64 " %.6g %.6g %.6g %.6g %.6g %.6g\n", rows[i].entries,
            rows[i].entry_memory_bytes, (double)rows[i].lookup_p50_ns / 1e3,
            (double)rows[i].lookup_p99_ns / 1e3, rows[i].reopen_clean_seconds * 1e3,
            rows[i].reopen_killed_seconds * 1e3, rows[i].put_per_s / 1e3);
    fprintf(plot.script,
        "EOD\n"
        "set multiplot layout 2,2 title 'Blocks of %s in one store'\nunset title\n"
        "set logscale x 10\nset format x '10^{%%T}'\nset key inside left top\n"
        "set xlabel 'blocks'\nset yrange [0:*]\n"
        "set ylabel 'memory of a block, bytes'\nplot $rows using 1:2 with linespoints notitle\n"
        "set ylabel 'puts, thousands a second'\nplot $rows using 1:7 with linespoints notitle\n"
        "set ylabel 'lookup of 1,000 keys, microseconds'\n"
        "plot $rows using 1:3 with linespoints title 'p50', "
        "'' using 1:4 with linespoints title 'p99'\n"
        "set ylabel 'opening, milliseconds'\nset logscale y 10\nset yrange [*:*]\n"
        "plot $rows using 1:5 with linespoints title 'after a close', "
        "'' using 1:6 with linespoints title 'after SIGKILL'\n"
        "unset multiplot\n",
        size);
    return plot_end(&plot, plan->outputs.plot_path);
}

static bool
rows_report(const struct scale_plan *plan, const struct scale_row *rows)
{
    if (plan->as_json) {
        rows_print_json(plan, rows);
    } else {
        for (uint32_t i = 0; i < plan->size_count; i++)
            row_print(&rows[i]);
    }
    if (plan->outputs.csv_path != NULL && !rows_csv(plan, rows))
        return false;
    return plan->outputs.plot_path == NULL || rows_plot(plan, rows);
}

static bool
plan_read(const struct arguments *arguments, struct scale_plan *plan)
{
    const char *entries = arguments->values[OPTION_ENTRIES];
    const char *block_bytes = arguments->values[OPTION_BLOCK_BYTES];
    bool is_fine = number_list_read(entries != NULL ? entries : "1000,10000,100000,1000000",
        ENTRIES_MAX, plan->entries, SIZES_MAX, &plan->size_count);

    for (uint32_t i = 0; is_fine && i < plan->size_count; i++)
        is_fine = plan->entries[i] >= ENTRIES_MIN;
    if (!is_fine) {
        complain("--entries %s is no list of up to 8 counts of 1000 to 100000000", entries);
        return false;
    }
    plan->block_bytes = BLOCK_BYTES_DEFAULT;
    if (block_bytes != NULL &&
        (!quantity_size(block_bytes, &plan->block_bytes) || plan->block_bytes == 0 ||
            plan->block_bytes > BLOCK_BYTES_MAX || plan->block_bytes % BLOCK_BYTES_DEFAULT != 0)) {
        complain("--block-bytes %s is no multiple of 4K up to 1M", block_bytes);
        return false;
    }
    plan->keeps = arguments->values[OPTION_KEEP] != NULL;
    plan->directory = arguments->values[OPTION_DIR];
    plan->outputs = (struct outputs){arguments->values[OPTION_CSV], arguments->values[OPTION_PLOT]};
    plan->as_json = arguments->values[OPTION_JSON] != NULL;
    if (plan->directory == NULL)
        complain("scale needs --dir DIR");
    return plan->directory != NULL;
}

int
tierbench_scale(int argc, char **argv)
{
    struct arguments arguments;
    struct scale_plan plan;
    struct scale_row rows[SIZES_MAX];
    char path[PATH_BYTES];
    int exit_code = EXIT_FINE;

    if (!arguments_read(&tierbench_scale_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    if (snprintf(path, sizeof(path), "%s/scale-store", plan.directory) >= (int)sizeof(path)) {
        complain("%s is too long", plan.directory);
        return EXIT_USAGE;
    }
    if (!outputs_check(&plan.outputs) || !directory_make(plan.directory))
        return EXIT_PROBLEM;
    for (uint32_t i = 0; i < plan.size_count; i++) {
        const struct scale_store store = {.path = path,
            .entries = plan.entries[i],
            .block_bytes = (uint32_t)plan.block_bytes,
            .keeps = plan.keeps && i + 1 == plan.size_count};

        if (!scale_measure(&store, &rows[i]))
            return EXIT_PROBLEM;
    }
    return rows_report(&plan, rows) ? EXIT_FINE : EXIT_PROBLEM;
}
