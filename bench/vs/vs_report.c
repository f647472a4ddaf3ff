/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs_report.c - what `tierbench vs` found: a table or JSON, CSV, a picture.
 */
#include "vs_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "json_writer.h"
#include "plot.h"
#include "quantity.h"

static void
points_print_json(
    struct json *json, const char *key, const struct contest_point *points, uint32_t count)
{
    json_array_begin(json, key);
    for (uint32_t i = 0; i < count; i++) {
        json_object_begin(json, NULL);
        json_number(json, "threads", points[i].callers);
        json_real(json, "bytes_per_s", points[i].bytes_per_s);
        json_real(json, "cpu_ns", points[i].cpu_ns);
        json_real(json, "read_bytes", points[i].read_bytes);
        json_object_end(json);
    }
    json_array_end(json);
}

static void
row_print_json(struct json *json, const struct contest *contest, const struct contest_row *row)
{
    const struct contest_point *put = contest_best(row->puts, row->put_count);
    const struct contest_point *get = contest_best(row->gets, row->get_count);

    json_object_begin(json, NULL);
    json_string(json, "peer", row->peer->name);
    json_string(json, "version", row->facts.version);
    json_string(json, "settings", row->facts.settings);
    points_print_json(json, "puts", row->puts, row->put_count);
    points_print_json(json, "gets", row->gets, row->get_count);
    json_number(json, "put_best_threads", put->callers);
    json_real(json, "put_best_bytes_per_s", put->bytes_per_s);
    json_real(json, "put_best_cpu_ns", put->cpu_ns);
    json_number(json, "get_best_threads", get->callers);
    json_real(json, "get_best_bytes_per_s", get->bytes_per_s);
    json_real(json, "get_best_cpu_ns", get->cpu_ns);
    json_real(json, "get_best_read_bytes", get->read_bytes);
    if (contest->ceiling_bytes_per_s > 0)
        json_real(json, "get_best_ceiling_share", get->bytes_per_s / contest->ceiling_bytes_per_s);
    json_bool(json, "is_cold", contest_is_cold(contest, row));
    json_number(json, "got_blocks", row->got_blocks);
    json_number(json, "wrong_bytes", row->wrong_bytes);
    json_number(json, "wrong_blocks", row->wrong_blocks);
    json_number(json, "refused_blocks", row->refused_blocks);
    json_object_end(json);
}

static void
ratios_print_json(struct json *json, const struct contest *contest)
{
    struct vs_ratio ratios[VS_RATIO_MAX];
    uint32_t count = vs_ratios(contest, ratios);

    json_array_begin(json, "ratios");
    for (uint32_t i = 0; i < count; i++) {
        json_object_begin(json, NULL);
        json_string(json, "ratio", ratios[i].name);
        json_real(json, "value", ratios[i].value);
        if (ratios[i].bar > 0) {
            json_real(json, "bar", ratios[i].bar);
            json_bool(json, "is_reached", vs_ratio_is_reached(&ratios[i]));
        }
        json_object_end(json);
    }
    json_array_end(json);
}

static void
report_print_json(
    const struct vs_settings *settings, const struct contest *contests, uint32_t count)
{
    struct json json = JSON_INIT(stdout);
    uint64_t wrong_bytes = 0;
    uint64_t refused_blocks = 0;

    json_object_begin(&json, NULL);
    json_string(&json, "dir", settings->directory);
    json_number(&json, "rounds", settings->rounds);
    json_real(&json, "seconds", settings->seconds);
    json_array_begin(&json, "results");
    for (uint32_t i = 0; i < count; i++) {
        json_object_begin(&json, NULL);
        json_number(&json, "block_bytes", contests[i].block_bytes);
        json_number(&json, "block_count", contests[i].block_count);
        json_number(&json, "batch_blocks", contests[i].batch_blocks);
        json_number(&json, "lap_blocks", contests[i].lap_blocks);
        if (contests[i].ceiling_bytes_per_s > 0) {
            json_real(&json, "ceiling_bytes_per_s", contests[i].ceiling_bytes_per_s);
            json_number(&json, "ceiling_depth", contests[i].ceiling_depth);
        }
        json_array_begin(&json, "peers");
        for (uint32_t j = 0; j < contests[i].row_count; j++) {
            row_print_json(&json, &contests[i], &contests[i].rows[j]);
            wrong_bytes += contests[i].rows[j].wrong_bytes;
            refused_blocks += contests[i].rows[j].refused_blocks;
        }
        json_array_end(&json);
        ratios_print_json(&json, &contests[i]);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_number(&json, "wrong_bytes", wrong_bytes);
    json_number(&json, "refused_blocks", refused_blocks);
    json_object_end(&json);
    json_end(&json);
}

static void
points_print(const char *name, const char *move, const struct contest_point *points, uint32_t count)
{
    const struct contest_point *best = contest_best(points, count);

    for (uint32_t i = 0; i < count; i++) {
        char rate[QUANTITY_TEXT_BYTES];
        char cpu[QUANTITY_TEXT_BYTES];
        char read[QUANTITY_TEXT_BYTES];

        printf("  %-8s %-4s %3u thread%s %12s %10s CPU %10s read%s\n", name, move,
            points[i].callers, points[i].callers == 1 ? " " : "s",
            quantity_rate_text(rate, points[i].bytes_per_s),
            quantity_time_text(cpu, points[i].cpu_ns),
            quantity_bytes_text(read, points[i].read_bytes), &points[i] == best ? "  best" : "");
    }
}

static void
ratios_print(const struct contest *contest)
{
    struct vs_ratio ratios[VS_RATIO_MAX];
    uint32_t count = vs_ratios(contest, ratios);

    for (uint32_t i = 0; i < count; i++) {
        printf("  %-22s %8.3f", ratios[i].name, ratios[i].value);
        if (ratios[i].bar > 0)
            printf("  %s %.3g: %s", ratios[i].is_limit ? "at most" : "at least", ratios[i].bar,
                vs_ratio_is_reached(&ratios[i]) ? "reached" : "MISSED");
        printf("\n");
    }
}

static void
contest_print(const struct contest *contest)
{
    char text[QUANTITY_TEXT_BYTES];
    char rate[QUANTITY_TEXT_BYTES];

    printf("%" PRIu64 " blocks of %s, batches of %u\n", contest->block_count,
        quantity_bytes_text(text, (double)contest->block_bytes), contest->batch_blocks);
    for (uint32_t i = 0; i < contest->row_count; i++) {
        const struct contest_row *row = &contest->rows[i];

        printf("%s %s: %s\n", row->peer->name, row->facts.version, row->facts.settings);
        points_print(row->peer->name, "put", row->puts, row->put_count);
        points_print(row->peer->name, "get", row->gets, row->get_count);
        printf("  %-8s %" PRIu64 " blocks compared, %" PRIu64 " wrong bytes, %" PRIu64
               " refused%s\n",
            row->peer->name, row->got_blocks, row->wrong_bytes, row->refused_blocks,
            contest_is_cold(contest, row) ? "" : "; NOT all of it was read from storage");
    }
    if (contest->ceiling_bytes_per_s > 0)
        printf("  the disk without any of them: reads of %s, %s at depth %u\n",
            quantity_bytes_text(text, (double)contest->block_bytes),
            quantity_rate_text(rate, contest->ceiling_bytes_per_s), contest->ceiling_depth);
    ratios_print(contest);
}

static void
points_write(FILE *out, const struct contest *contest, const struct contest_row *row, bool is_put)
{
    const struct contest_point *points = is_put ? row->puts : row->gets;
    uint32_t count = is_put ? row->put_count : row->get_count;

    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "%" PRIu64 ",%s,%s,%u,%.6g,%.6g,%.6g,%" PRIu64 ",%" PRIu64 "\n",
            contest->block_bytes, row->peer->name, is_put ? "put" : "get", points[i].callers,
            points[i].bytes_per_s, points[i].cpu_ns, points[i].read_bytes,
            is_put ? 0 : row->wrong_bytes, is_put ? 0 : row->refused_blocks);
}

static bool
report_csv(const char *path, const struct contest *contests, uint32_t count)
{
    FILE *out = csv_open(path, "block_bytes,peer,operation,threads,bytes_per_s,cpu_ns,read_bytes,"
                               "wrong_bytes,refused_blocks");

    if (out == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < contests[i].row_count; j++) {
            points_write(out, &contests[i], &contests[i].rows[j], true);
            points_write(out, &contests[i], &contests[i].rows[j], false);
        }
    }
    return csv_close(out, path);
}

/* A line for each block size, a column for each peer, of one figure of its best gets. */
static void
block_print(FILE *script, const char *name, const struct contest *contests, uint32_t count,
    double (*figure)(const struct contest_point *))
{
    fprintf(script, "$%s << EOD\nsize", name);
    for (uint32_t j = 0; j < contests[0].row_count; j++)
        fprintf(script, " %s", contests[0].rows[j].peer->name);
    fprintf(script, "\n");
    for (uint32_t i = 0; i < count; i++) {
        char text[QUANTITY_TEXT_BYTES];

        fprintf(script, "\"%s\"", quantity_bytes_text(text, (double)contests[i].block_bytes));
        for (uint32_t j = 0; j < contests[i].row_count; j++) {
            const struct contest_row *row = &contests[i].rows[j];

            fprintf(script, " %.6g", figure(contest_best(row->gets, row->get_count)));
        }
        fprintf(script, "\n");
    }
    fprintf(script, "EOD\n");
}

static double
rate_figure(const struct contest_point *point)
{
    return point->bytes_per_s / 1e9;
}

static double
cpu_figure(const struct contest_point *point)
{
    return point->cpu_ns / 1e3;
}

static bool
report_plot(const char *path, const struct contest *contests, uint32_t count)
{
    struct plot plot;

    if (!plot_begin(&plot, "Cold gets, each at its best number of threads", 900, 700))
        return false;
    block_print(plot.script, "rates", contests, count, rate_figure);
    block_print(plot.script, "cpu", contests, count, cpu_figure);
    fprintf(plot.script,
        "set multiplot layout 2,1\n"
        "set style data histograms\nset style histogram clustered gap 1\n"
        "set style fill solid 0.9 noborder\nset boxwidth 0.9\nset yrange [0:*]\n"
        "set ylabel 'GB/s'\n"
        "plot for [i=2:%u] $rates using i:xtic(1) title columnheader(i)\n"
        "unset title\nset ylabel 'CPU of a get, microseconds'\nset xlabel 'block'\n"
        "plot for [i=2:%u] $cpu using i:xtic(1) title columnheader(i)\n"
        "unset multiplot\n",
        contests[0].row_count + 1, contests[0].row_count + 1);
    return plot_end(&plot, path);
}

bool
vs_report(const struct vs_settings *settings, const struct contest *contests, uint32_t count)
{
    if (settings->as_json) {
        report_print_json(settings, contests, count);
    } else {
        for (uint32_t i = 0; i < count; i++)
            contest_print(&contests[i]);
    }
    if (settings->outputs.csv_path != NULL &&
        !report_csv(settings->outputs.csv_path, contests, count))
        return false;
    return settings->outputs.plot_path == NULL ||
           report_plot(settings->outputs.plot_path, contests, count);
}
