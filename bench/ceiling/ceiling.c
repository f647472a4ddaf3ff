/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ceiling.c - `tierbench ceiling`: prints what the machine gives without kvtier.
 */
#include "ceiling.h"

#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "outputs.h"
#include "plot.h"
#include "quantity.h"
#include "tierbench.h"

enum {
    OPTION_DIR,
    OPTION_FILE_BYTES,
    OPTION_SECONDS,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where to measure; made when missing"},
    [OPTION_FILE_BYTES] = {"--file-bytes", "SIZE", "of the file to measure with (default 2G)"},
    [OPTION_SECONDS] = {"--seconds", "S", "for each way to read (default 0.6)"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = OUTPUT_PLOT_OPTION("draw the reads over depth (gnuplot)"),
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_ceiling_line = {
    .program = "tierbench",
    .command = "ceiling",
    .operands = "",
    .summary = "Measure what the disk and the memory give without kvtier.",
    .text =
        "Reads and writes a nameless file in DIR with O_DIRECT, io_uring and registered\n"
        "huge-page buffers. A write is a batch of 8 MiB and fdatasync. Three rounds, medians.\n"
        "\n"
        "JSON: \"dir\", \"file_bytes\", \"o_direct\", \"registered_buffers\",\n"
        "read_{1m,64k}_{random, sequential}_bytes_per_s with the best _depth of each,\n"
        "\"write_first_bytes_per_s\" (into allocated space), \"write_again_bytes_per_s\" (over\n"
        "written space), \"memcpy_bytes_per_s\", \"xxh3_128_bytes_per_s\" (both one core, 1 MiB\n"
        "pieces in no cache), \"points\" [{\"piece_bytes\", \"depth\", \"is_random\",\n"
        "\"bytes_per_s\"} ...], \"read_bytes_hash\"",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

static const uint64_t pieces[] = {1 << 20, 64 << 10};
static const uint32_t depths[] = {1, 2, 4, 8, 16, 32, 64};

/* The four figures that have a name. */
static const struct {
    const char *rate_key;
    const char *depth_key;
    const char *text;
    uint64_t piece_bytes;
    bool is_random;
} named_reads[] = {
    {"read_1m_random_bytes_per_s", "read_1m_random_depth", "read 1 MiB, random", 1 << 20, true},
    {"read_1m_sequential_bytes_per_s", "read_1m_sequential_depth", "read 1 MiB, sequential",
        1 << 20, false},
    {"read_64k_random_bytes_per_s", "read_64k_random_depth", "read 64 KiB, random", 64 << 10, true},
    {"read_64k_sequential_bytes_per_s", "read_64k_sequential_depth", "read 64 KiB, sequential",
        64 << 10, false},
};

enum {
    NAMED_READ_COUNT = sizeof(named_reads) / sizeof(named_reads[0])
};

static void
ceiling_print_json(const struct ceiling *ceiling, const struct ceiling_plan *plan)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "dir", plan->directory);
    json_number(&json, "file_bytes", plan->file_bytes);
    json_bool(&json, "o_direct", ceiling->is_direct);
    json_bool(&json, "registered_buffers", ceiling->is_registered);
    for (size_t i = 0; i < NAMED_READ_COUNT; i++) {
        const struct ceiling_point *best =
            ceiling_best_read(ceiling, named_reads[i].piece_bytes, named_reads[i].is_random);

        if (best == NULL)
            continue;
        json_real(&json, named_reads[i].rate_key, best->bytes_per_s);
        json_number(&json, named_reads[i].depth_key, best->depth);
    }
    json_real(&json, "write_first_bytes_per_s", ceiling->write_first_bytes_per_s);
    json_real(&json, "write_again_bytes_per_s", ceiling->write_again_bytes_per_s);
    json_real(&json, "memcpy_bytes_per_s", ceiling->copy_bytes_per_s);
    json_real(&json, "xxh3_128_bytes_per_s", ceiling->hash_bytes_per_s);
    json_array_begin(&json, "points");
    for (uint32_t i = 0; i < ceiling->point_count; i++) {
        json_object_begin(&json, NULL);
        json_number(&json, "piece_bytes", ceiling->points[i].piece_bytes);
        json_number(&json, "depth", ceiling->points[i].depth);
        json_bool(&json, "is_random", ceiling->points[i].is_random);
        json_real(&json, "bytes_per_s", ceiling->points[i].bytes_per_s);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_number(&json, "read_bytes_hash", ceiling->read_bytes_hash);
    json_object_end(&json);
    json_end(&json);
}

static void
rate_print(const char *text, double rate, const char *remark)
{
    char number[QUANTITY_TEXT_BYTES];

    printf("%-40s %12s  %s\n", text, quantity_rate_text(number, rate), remark);
}

static void
ceiling_print(const struct ceiling *ceiling)
{
    for (size_t i = 0; i < NAMED_READ_COUNT; i++) {
        const struct ceiling_point *best =
            ceiling_best_read(ceiling, named_reads[i].piece_bytes, named_reads[i].is_random);
        char remark[64];

        if (best == NULL)
            continue;
        snprintf(remark, sizeof(remark), "depth %u", best->depth);
        rate_print(named_reads[i].text, best->bytes_per_s, remark);
    }
    rate_print("write 8 MiB + fdatasync, first time", ceiling->write_first_bytes_per_s, "");
    rate_print("write 8 MiB + fdatasync, again", ceiling->write_again_bytes_per_s, "");
    rate_print("memcpy, one core", ceiling->copy_bytes_per_s, "");
    rate_print("XXH3-128, one core", ceiling->hash_bytes_per_s, "");
    if (!ceiling->is_direct)
        printf("this file system has no O_DIRECT: these are figures of the page cache\n");
}

static bool
ceiling_csv(const struct ceiling *ceiling, const char *path)
{
    FILE *out = csv_open(path, "figure,piece_bytes,depth,bytes_per_s");

    if (out == NULL)
        return false;
    for (uint32_t i = 0; i < ceiling->point_count; i++) {
        const struct ceiling_point *point = &ceiling->points[i];

        fprintf(out, "%s,%" PRIu64 ",%u,%.6g\n",
            point->is_random ? "read_random" : "read_sequential", point->piece_bytes, point->depth,
            point->bytes_per_s);
    }
    fprintf(out, "write_first,%d,,%.6g\n", DISK_BATCH_BYTES, ceiling->write_first_bytes_per_s);
    fprintf(out, "write_again,%d,,%.6g\n", DISK_BATCH_BYTES, ceiling->write_again_bytes_per_s);
    fprintf(out, "memcpy,,,%.6g\n", ceiling->copy_bytes_per_s);
    fprintf(out, "xxh3_128,,,%.6g\n", ceiling->hash_bytes_per_s);
    return csv_close(out, path);
}

/* A line for each piece and order. */
static bool
ceiling_plot(const struct ceiling *ceiling, const struct ceiling_plan *plan, const char *path)
{
    struct plot plot;

    if (!plot_begin(&plot, "Reads without a store", 900, 450))
        return false;
    for (uint32_t line = 0; line < 2 * plan->piece_count; line++) {
        fprintf(plot.script, "$line%u << EOD\n", line);
        for (uint32_t i = 0; i < ceiling->point_count; i++) {
            const struct ceiling_point *point = &ceiling->points[i];

            if (point->piece_bytes == plan->pieces[line / 2] && point->is_random == (line % 2 == 0))
                fprintf(plot.script, "%u %.6g\n", point->depth, point->bytes_per_s / 1e9);
        }
        fprintf(plot.script, "EOD\n");
    }
    fprintf(plot.script, "set logscale x 2\nset yrange [0:*]\nset xlabel 'reads at once'\n"
                         "set ylabel 'GB/s'\nplot ");
    for (uint32_t line = 0; line < 2 * plan->piece_count; line++) {
        char text[QUANTITY_TEXT_BYTES];

        fprintf(plot.script, "%s$line%u using 1:2 with linespoints title '%s %s'",
            line > 0 ? ", " : "", line, quantity_bytes_text(text, (double)plan->pieces[line / 2]),
            line % 2 == 0 ? "random" : "sequential");
    }
    fprintf(plot.script, "\n");
    return plot_end(&plot, path);
}

static bool
options_read(const struct arguments *arguments, struct ceiling_plan *plan)
{
    const char *bytes = arguments->values[OPTION_FILE_BYTES];
    const char *seconds = arguments->values[OPTION_SECONDS];

    plan->directory = arguments->values[OPTION_DIR];
    if (plan->directory == NULL) {
        complain("ceiling needs --dir DIR");
        return false;
    }
    if (bytes != NULL && (!quantity_size(bytes, &plan->file_bytes) ||
                             plan->file_bytes < 2 * (uint64_t)DISK_BATCH_BYTES ||
                             plan->file_bytes > UINT64_C(1) << 44)) {
        complain("--file-bytes %s is no size of 16M to 16T", bytes);
        return false;
    }
    if (seconds != NULL && !quantity_seconds(seconds, &plan->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds);
        return false;
    }
    return true;
}

int
tierbench_ceiling(int argc, char **argv)
{
    struct arguments arguments;
    struct ceiling ceiling;
    struct outputs outputs;
    struct ceiling_plan plan = {
        .file_bytes = UINT64_C(2) << 30,
        .seconds = 0.6,
        .rounds = 3,
        .pieces = pieces,
        .piece_count = sizeof(pieces) / sizeof(pieces[0]),
        .depths = depths,
        .depth_count = sizeof(depths) / sizeof(depths[0]),
        .has_sequential = true,
    };
    int exit_code = EXIT_FINE;

    if (!arguments_read(&tierbench_ceiling_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!options_read(&arguments, &plan))
        return EXIT_USAGE;
    outputs = (struct outputs){arguments.values[OPTION_CSV], arguments.values[OPTION_PLOT]};
    if (!outputs_check(&outputs) || !directory_make(plan.directory))
        return EXIT_PROBLEM;
    if (!ceiling_measure(&ceiling, &plan)) {
        complain("cannot measure in %s: %s", plan.directory, ceiling.message);
        return EXIT_PROBLEM;
    }
    if (arguments.values[OPTION_JSON] != NULL)
        ceiling_print_json(&ceiling, &plan);
    else
        ceiling_print(&ceiling);
    if (outputs.csv_path != NULL && !ceiling_csv(&ceiling, outputs.csv_path))
        return EXIT_PROBLEM;
    if (outputs.plot_path != NULL && !ceiling_plot(&ceiling, &plan, outputs.plot_path))
        return EXIT_PROBLEM;
    return EXIT_FINE;
}
