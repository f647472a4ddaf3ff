/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_report.c - what a replay found, as JSON or as a table.
 */
#include <inttypes.h>
#include <stdio.h>

#include "figures.h"
#include "json_writer.h"
#include "plot.h"
#include "quantity.h"
#include "replay.h"

/* One row of the table of paths. */
struct path_row {
    const char *key;
    const char *text;
    struct replay_path path;
    double ceiling;
    const char *ceiling_text; /* What was measured. */
};

enum {
    PATH_COUNT = 8
};

/* Bytes that the store moved by itself, behind the requests. */
static struct replay_path
path_behind(const struct replay *replay, uint64_t bytes)
{
    return (struct replay_path){.bytes = bytes, .busy_seconds = replay->totals.elapsed_seconds};
}

/* Those that end or begin in HBM. The emulation copies as the host does; of a GPU no ceiling is
 * measured here. */
static uint32_t
hbm_paths_list(const struct replay *replay, struct path_row *rows)
{
    const struct replay_totals *totals = &replay->totals;
    bool is_emulated = replay->device_kind == KVT_DEVICE_EMULATION;
    double copy = is_emulated ? replay->ceiling.copy_bytes_per_s : 0;
    const char *text = is_emulated ? "host memcpy" : NULL;

    rows[0] =
        (struct path_row){"caller_to_hbm", "caller -> HBM", totals->caller_to_hbm, copy, text};
    rows[1] = (struct path_row){"hbm_to_host", "HBM -> HOST",
        path_behind(replay, replay->stats.hbm_lower_bytes), copy, text};
    rows[2] = (struct path_row){"host_to_hbm", "HOST -> HBM",
        path_behind(replay, replay->stats.hbm_raise_bytes), copy, text};
    rows[3] =
        (struct path_row){"hbm_to_caller", "HBM -> caller", totals->hbm_to_caller, copy, text};
    return 4;
}

/* The paths of the run's tiers; how many. */
static uint32_t
paths_list(const struct replay *replay, struct path_row rows[PATH_COUNT])
{
    const struct replay_totals *totals = &replay->totals;
    const struct ceiling_point *read =
        replay->has_ceiling && replay->ceiling.point_count > 0
            ? ceiling_best_read(&replay->ceiling, replay->ceiling.points[0].piece_bytes, true)
            : NULL;
    bool has_hbm = replay->settings->hbm_bytes > 0;
    /* To a device the last step is its copy. */
    bool is_host_copy = !has_hbm || replay->device_kind == KVT_DEVICE_EMULATION;
    uint32_t count = has_hbm ? hbm_paths_list(replay, rows) : 0;

    rows[count++] = (struct path_row){"caller_to_host", "caller -> HOST", totals->caller_to_host,
        replay->ceiling.copy_bytes_per_s, "host memcpy"};
    rows[count++] = (struct path_row){"host_to_nvme", "HOST -> NVMe",
        path_behind(replay, replay->stats.durable_bytes), replay->ceiling.write_first_bytes_per_s,
        "raw writes and fdatasync"};
    rows[count++] = (struct path_row){"nvme_to_caller", "NVMe -> caller", totals->nvme_to_caller,
        read != NULL ? read->bytes_per_s : 0, "raw reads"};
    rows[count++] = (struct path_row){"host_to_caller", "HOST -> caller", totals->host_to_caller,
        is_host_copy ? replay->ceiling.copy_bytes_per_s : 0, "host memcpy"};
    return count;
}

static double
path_rate(const struct replay_path *path)
{
    return path->busy_seconds > 0 ? (double)path->bytes / path->busy_seconds : 0;
}

static double
percent_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void
paths_print_json(const struct replay *replay, struct json *json)
{
    struct path_row rows[PATH_COUNT];
    uint32_t count = paths_list(replay, rows);

    json_object_begin(json, "paths");
    for (uint32_t i = 0; i < count; i++) {
        double rate = path_rate(&rows[i].path);

        json_object_begin(json, rows[i].key);
        json_number(json, "bytes", rows[i].path.bytes);
        json_number(json, "busy_ns", (uint64_t)(rows[i].path.busy_seconds * 1e9));
        json_real(json, "bytes_per_s", rate);
        if (rows[i].ceiling > 0) {
            json_real(json, "ceiling_bytes_per_s", rows[i].ceiling);
            json_real(json, "ceiling_share", rate / rows[i].ceiling);
            json_string(json, "ceiling", rows[i].ceiling_text);
        }
        json_object_end(json);
    }
    json_object_end(json);
}

static void
verified_print_json(const struct replay_verified *verified, struct json *json)
{
    json_object_begin(json, "verify");
    json_number(json, "keys", verified->key_count);
    json_number(json, "lost_blocks", verified->lost_count);
    json_number(json, "wrong_blocks", verified->wrong_block_count);
    json_number(json, "wrong_bytes", verified->wrong_bytes);
    json_number(json, "read_bytes", verified->read_bytes);
    json_number(json, "read_ns", (uint64_t)(verified->read_seconds * 1e9));
    json_number(json, "open_ns", (uint64_t)(verified->open_seconds * 1e9));
    json_number(json, "reopen_ns", (uint64_t)(verified->reopen_seconds * 1e9));
    json_object_end(json);
}

static void
settings_print_json(const struct replay_settings *settings, uint32_t device_kind, struct json *json)
{
    static const char *const devices[] = {"auto", "cuda", "emulation"};
    static const char *const durabilities[] = {"memory", "relaxed", "sync"};
    static const char *const policies[] = {"default", "lru", "s3fifo", "ghi"};

    if (settings->trace_path != NULL)
        json_string(json, "trace", settings->trace_path);
    json_string(json, "dir", settings->directory);
    json_number(json, "block_bytes", settings->block_bytes);
    if (settings->hbm_bytes > 0) {
        json_number(json, "hbm_capacity_bytes", settings->hbm_bytes);
        json_string(json, "hbm_device", devices[device_kind]);
    }
    json_number(json, "host_capacity_bytes", settings->host_bytes);
    json_number(json, "nvme_capacity_bytes", settings->nvme_bytes);
    json_string(json, "policy", policies[settings->policy]);
    json_string(json, "durability", durabilities[settings->durability]);
    json_number(json, "durable_every", settings->durable_every);
    json_number(json, "first_request", settings->resume_at);
}

static void
report_print_json(const struct replay *replay)
{
    const struct replay_totals *totals = &replay->totals;
    uint64_t hits = totals->hit_hbm_count + totals->hit_host_count + totals->hit_nvme_count;
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    settings_print_json(replay->settings, replay->device_kind, &json);
    json_number(&json, "requests", totals->request_count);
    json_number(&json, "blocks", totals->block_count);
    if (replay->settings->hbm_bytes > 0)
        json_number(&json, "hit_hbm_blocks", totals->hit_hbm_count);
    json_number(&json, "hit_host_blocks", totals->hit_host_count);
    json_number(&json, "hit_nvme_blocks", totals->hit_nvme_count);
    json_number(&json, "miss_blocks", totals->block_count - hits);
    json_real(&json, "hit_percent", percent_of(hits, totals->block_count));
    json_number(&json, "input_tokens", totals->input_tokens);
    json_number(&json, "saved_tokens", totals->saved_tokens);
    json_real(&json, "prefix_hit_percent", percent_of(totals->saved_tokens, totals->input_tokens));
    json_number(&json, "read_blocks", totals->read_count);
    json_number(&json, "wrong_bytes", totals->wrong_bytes);
    json_number(&json, "wrong_blocks", totals->wrong_block_count);
    json_number(&json, "leased_miss_blocks", totals->leased_miss_count);
    json_number(&json, "read_refused_blocks", totals->read_refused_count);
    json_number(&json, "put_blocks", totals->put_count);
    json_number(&json, "put_refused_blocks", totals->put_refused_count);
    json_number(&json, "acknowledged_blocks", totals->acknowledged_count);
    json_number(&json, "shown_blocks", totals->shown_count);
    json_number(&json, "dropped_blocks", totals->dropped_count);
    json_number(&json, "durable_failed_blocks", totals->durable_failed_count);
    json_number(&json, "elapsed_ns", (uint64_t)(totals->elapsed_seconds * 1e9));
    json_number(&json, "durable_wait_ns", (uint64_t)(totals->durable_wait_seconds * 1e9));
    json_number(&json, "pattern_ns", (uint64_t)(totals->verify_seconds * 1e9));
    if (replay->settings->hbm_bytes > 0)
        json_number(&json, "hbm_pool_ns", (uint64_t)(totals->hbm_pool_seconds * 1e9));
    paths_print_json(replay, &json);
    if (replay->verified.key_count > 0)
        verified_print_json(&replay->verified, &json);
    latencies_print_json(&json, &replay->stats);
    counters_print_json(&json, &replay->stats);
    json_object_end(&json);
    json_end(&json);
}

static void
hit_line_print(const char *name, uint64_t part, const struct replay_totals *totals)
{
    char count[QUANTITY_TEXT_BYTES];

    printf("%-22s %12s  %5.1f %%\n", name, quantity_count_text(count, part),
        percent_of(part, totals->block_count));
}

static void
count_line_print(const char *name, uint64_t number)
{
    char count[QUANTITY_TEXT_BYTES];

    printf("%-22s %12s\n", name, quantity_count_text(count, number));
}

static void
hits_print(const struct replay_totals *totals, bool has_hbm)
{
    uint64_t hits = totals->hit_hbm_count + totals->hit_host_count + totals->hit_nvme_count;
    char count[QUANTITY_TEXT_BYTES];

    count_line_print("requests", totals->request_count);
    count_line_print("blocks asked for", totals->block_count);
    if (has_hbm)
        hit_line_print("hits in HBM", totals->hit_hbm_count, totals);
    hit_line_print("hits in HOST", totals->hit_host_count, totals);
    hit_line_print("hits on NVMe", totals->hit_nvme_count, totals);
    hit_line_print("misses", totals->block_count - hits, totals);
    printf("%-22s %12s  %5.1f %% of the input\n", "prefill tokens saved",
        quantity_count_text(count, totals->saved_tokens),
        percent_of(totals->saved_tokens, totals->input_tokens));
    count_line_print("blocks read, compared", totals->read_count);
    count_line_print("wrong bytes", totals->wrong_bytes);
    if (totals->leased_miss_count > 0)
        count_line_print("leased, and missing", totals->leased_miss_count);
    if (totals->read_refused_count > 0)
        count_line_print("reads refused", totals->read_refused_count);
    if (totals->put_refused_count > 0)
        count_line_print("puts refused", totals->put_refused_count);
    if (totals->durable_failed_count > 0)
        count_line_print("not made durable", totals->durable_failed_count);
}

static void
writes_print(const struct replay *replay)
{
    const struct replay_totals *totals = &replay->totals;

    count_line_print("blocks made durable", replay->stats.durable_count);
    count_line_print("left to make room", replay->stats.hbm_drop_count +
                                              replay->stats.host_drop_count +
                                              replay->stats.nvme_evict_count);
    printf("%-22s %10.1f s  (%.1f s make and compare bytes", "time", totals->elapsed_seconds,
        totals->verify_seconds);
    if (replay->settings->hbm_bytes > 0)
        printf(", %.1f s take them to the device and back", totals->hbm_pool_seconds);
    printf(",\n%-38s%.1f s wait for the disk to follow)\n", "", totals->durable_wait_seconds);
}

static void
paths_print(const struct replay *replay)
{
    struct path_row rows[PATH_COUNT];
    uint32_t count = paths_list(replay, rows);

    printf("\n%-16s %10s %12s %12s %8s  %s\n", "path", "bytes", "rate", "ceiling", "share", "of");
    for (uint32_t i = 0; i < count; i++) {
        char bytes[QUANTITY_TEXT_BYTES];
        char rate[QUANTITY_TEXT_BYTES];
        char ceiling[QUANTITY_TEXT_BYTES] = "-";

        quantity_bytes_text(bytes, (double)rows[i].path.bytes);
        quantity_rate_text(rate, path_rate(&rows[i].path));
        printf("%-16s %10s %12s", rows[i].text, bytes, rate);
        if (rows[i].path.bytes > 0 && rows[i].ceiling > 0)
            printf(" %12s %6.0f %%  %s\n", quantity_rate_text(ceiling, rows[i].ceiling),
                100 * path_rate(&rows[i].path) / rows[i].ceiling, rows[i].ceiling_text);
        else
            printf(" %12s\n", ceiling);
    }
}

static void
latencies_print(const struct kvt_stats *stats)
{
    struct latency_figure figures[LATENCY_COUNT];

    latency_figures(stats, figures);
    printf("\n%-16s %10s %10s %10s %10s  %s\n", "latency", "p50", "p99", "p99.9", "max", "of");
    for (size_t i = 0; i < LATENCY_COUNT; i++) {
        const struct kvt_latency *value = &figures[i].value;
        char texts[4][QUANTITY_TEXT_BYTES];

        if (value->count == 0)
            continue;
        printf("%-16s %10s %10s %10s %10s  %s\n", figures[i].name,
            quantity_time_text(texts[0], (double)value->p50_ns),
            quantity_time_text(texts[1], (double)value->p99_ns),
            quantity_time_text(texts[2], (double)value->p999_ns),
            quantity_time_text(texts[3], (double)value->max_ns), figures[i].text);
    }
}

static void
verified_print(const struct replay_verified *verified)
{
    char count[QUANTITY_TEXT_BYTES];
    char bytes[QUANTITY_TEXT_BYTES];
    char open[QUANTITY_TEXT_BYTES];

    printf("acknowledged blocks: %s read (%s in %.1f s)",
        quantity_count_text(count, verified->key_count),
        quantity_bytes_text(bytes, (double)verified->read_bytes), verified->read_seconds);
    printf(", %s lost", quantity_count_text(count, verified->lost_count));
    printf(", %s wrong\n", quantity_count_text(count, verified->wrong_block_count));
    printf("reopened: 1,000 keys answered after %s\n\n",
        quantity_time_text(open, verified->reopen_seconds * 1e9));
}

static void
report_print(const struct replay *replay)
{
    if (replay->verified.key_count > 0)
        verified_print(&replay->verified);
    if (replay->totals.request_count == 0)
        return;
    hits_print(&replay->totals, replay->settings->hbm_bytes > 0);
    writes_print(replay);
    paths_print(replay);
    latencies_print(&replay->stats);
}

static bool
report_csv(const struct replay *replay, const char *path)
{
    struct path_row rows[PATH_COUNT];
    uint32_t count = paths_list(replay, rows);
    FILE *out = csv_open(path, "path,bytes,busy_ns,bytes_per_s,ceiling_bytes_per_s,ceiling_share");

    if (out == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        double rate = path_rate(&rows[i].path);

        fprintf(out, "%s,%" PRIu64 ",%.0f,%.6g,", rows[i].key, rows[i].path.bytes,
            rows[i].path.busy_seconds * 1e9, rate);
        if (rows[i].ceiling > 0)
            fprintf(out, "%.6g,%.4f\n", rows[i].ceiling, rate / rows[i].ceiling);
        else
            fprintf(out, ",\n");
    }
    return csv_close(out, path);
}

/* Two bars for each path. */
static bool
report_plot(const struct replay *replay, const char *path)
{
    struct path_row rows[PATH_COUNT];
    uint32_t count = paths_list(replay, rows);
    struct plot plot;

    if (!plot_begin(&plot, "Replay: paths and their ceilings", 900, 450))
        return false;
    fprintf(plot.script, "$paths << EOD\n");
    for (uint32_t i = 0; i < count; i++)
        fprintf(plot.script, "\"%s\" %.6g %.6g\n", rows[i].text, path_rate(&rows[i].path) / 1e9,
            rows[i].ceiling / 1e9);
    fprintf(plot.script, "EOD\n"
                         "set style data histograms\nset style histogram clustered gap 1\n"
                         "set style fill solid 0.9 noborder\nset boxwidth 0.9\nset yrange [0:*]\n"
                         "set ylabel 'GB/s'\n"
                         "plot $paths using 2:xtic(1) title 'replay', '' using 3 title 'ceiling' "
                         "lc rgb '#cccccc'\n");
    return plot_end(&plot, path);
}

bool
replay_report(const struct replay *replay)
{
    const struct outputs *outputs = &replay->settings->outputs;

    if (replay->settings->as_json)
        report_print_json(replay);
    else
        report_print(replay);
    if (outputs->csv_path != NULL && !report_csv(replay, outputs->csv_path))
        return false;
    return outputs->plot_path == NULL || report_plot(replay, outputs->plot_path);
}
