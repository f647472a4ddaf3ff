/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_device_report.c - what `tierbench engram` says of steps whose rows go to a device.
 */
#include <inttypes.h>
#include <stdio.h>

#include "engram_bench.h"
#include "json_writer.h"
#include "quantity.h"

static const char *
way_name(enum engram_device_way way)
{
    static const char *const names[] = {"hbm", "pinned_uva", "nvme", "nvme_hbm_cache"};

    return names[way];
}

static const char *
mode_name(enum engram_mode mode)
{
    static const char *const names[] = {"alone", "synchronous", "prefetched"};

    return names[mode];
}

static const char *
compute_name(const struct engram_device_rows *rows)
{
    return rows->facts.is_emulated ? "a timed wait of the emulation" : "a kernel";
}

void
engram_device_rows_print_json(
    struct json *json, const struct engram_plan *plan, const struct engram_device_rows *rows)
{
    if (!rows->has_device)
        return;
    json_string(json, "device", rows->facts.name);
    json_bool(json, "is_emulated", rows->facts.is_emulated);
    json_string(json, "device_compute", compute_name(rows));
    json_number(json, "device_step_ns", plan->step_ns);
    json_number(json, "device_cache_bytes", plan->cache_bytes);
    json_array_begin(json, "device_steps");
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct engram_device_row *row = &rows->rows[i];

        json_object_begin(json, NULL);
        json_string(json, "tokens", engram_tokens_name(row->tokens));
        json_string(json, "way", way_name(row->way));
        json_string(json, "mode", mode_name(row->mode));
        json_number(json, "batch", row->batch);
        json_real(json, "rows_per_s", row->rows_per_s);
        json_real(json, "tokens_per_s", row->tokens_per_s);
        json_real(json, "compute_share", row->compute_share);
        json_number(json, "step_p50_ns", row->step_p50_ns);
        json_number(json, "step_p99_ns", row->step_p99_ns);
        json_real(json, "pages_per_step", row->pages_per_step);
        json_real(json, "cache_hit_share", row->cache_hit_share);
        json_real(json, "cache_sample_share", row->cache_sample_share);
        json_number(json, "cache_worth_ns", row->cache_worth_ns);
        json_number(json, "cache_cost_ns", row->cache_cost_ns);
        json_number(json, "cache_on_count", row->cache_on_count);
        json_number(json, "wrong_rows", row->wrong_rows);
        json_object_end(json);
    }
    json_array_end(json);
}

void
engram_device_rows_print(const struct engram_plan *plan, const struct engram_device_rows *rows)
{
    char time[QUANTITY_TEXT_BYTES];

    if (!rows->has_device)
        return;
    printf("rows to memory of %s%s; what computes, for %s, is %s\n", rows->facts.name,
        rows->facts.is_emulated ? " (its copies are the host's: no measure of a GPU)" : "",
        quantity_time_text(time, (double)plan->step_ns), compute_name(rows));
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct engram_device_row *row = &rows->rows[i];
        char texts[2][QUANTITY_TEXT_BYTES];

        printf("  %-7s %5" PRIu64 "  %-14s  %-11s %9.0f tokens/s  %11.0f rows/s  %6.3f  %10s p50"
               " %10s p99  %6.0f pages  %.2f cached (%.2f of the sample; worth %" PRIu64
               " of %" PRIu64 " ns)\n",
            engram_tokens_name(row->tokens), row->batch, way_name(row->way), mode_name(row->mode),
            row->tokens_per_s, row->rows_per_s, row->compute_share,
            quantity_time_text(texts[0], (double)row->step_p50_ns),
            quantity_time_text(texts[1], (double)row->step_p99_ns), row->pages_per_step,
            row->cache_hit_share, row->cache_sample_share, row->cache_worth_ns, row->cache_cost_ns);
    }
}
