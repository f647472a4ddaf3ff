/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_device_steps.c - steps whose rows go to memory of a device: gathered there from tables
 * that lie on it or in pinned memory, or fetched from NVMe, with and without a cache of rows on it;
 * alone, and with a kernel that computes.
 *
 * Alone: one step behind the other. Synchronous: a step has its rows brought and then computes.
 * Prefetched: while a step computes the host plans and asks for the next one's; a step begins when
 * both are done. The host waits for all of it: nothing is left in flight when a figure is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "engram_device.h"
#include "engram_stream.h"
#include "kvtier/kvtier_unstable.h"
#include "progress.h"
#include "statistics.h"

enum {
    STEP_TIMES_MAX = 20000, /* That are kept. */
    STEPS = 2,              /* In turns: one computes, the next is brought. */
    WARM_STEPS = 400,       /* Before a cache is measured, for at most so many figures' time: */
    WARM_FIGURES = 4,
    PAGE_BYTES = 4096,
    LOAD_PAGES = 256, /* To the device at a time. */
};

#define FIGURE_SECONDS_MIN 0.05

struct device_steps {
    struct engram_bench_rig *rig;
    struct engram_stream stream;
    struct engram_device_row *row; /* Being measured. */
    struct kvt_engram_info info;   /* Of either table. */
    uint64_t *times_ns;
    double seconds;    /* Of each figure. */
    uint64_t ids_max;  /* Of a step and table. */
    uint64_t part;     /* Bytes of the rows of a step and table. */
    uint8_t *memory;   /* Of the device: a page of verdicts, then the rows. */
    uint32_t *ids;     /* Of the host. */
    kvt_region region; /* Of the memory. */
    kvt_region ids_region;
    uint8_t *tables[ENGRAM_TABLES]; /* On the device. NULL: they are not there. */
};

/* --- 1. Memory -------------------------------------------------------------------------------- */

static uint64_t
pages_up(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t
memory_bytes(const struct device_steps *steps)
{
    return PAGE_BYTES + STEPS * ENGRAM_TABLES * steps->part;
}

static uint64_t
ids_bytes(const struct device_steps *steps)
{
    return pages_up(STEPS * ENGRAM_TABLES * steps->ids_max * sizeof(*steps->ids));
}

static uint32_t *
ids_at(const struct device_steps *steps, uint32_t step, uint32_t table)
{
    return steps->ids + (step * ENGRAM_TABLES + table) * steps->ids_max;
}

/* No pointers of the host. */
static uint8_t *
rows_at(const struct device_steps *steps, uint32_t step, uint32_t table)
{
    return (uint8_t *)((uintptr_t)steps->memory + PAGE_BYTES +
                       (uintptr_t)((step * ENGRAM_TABLES + table) * steps->part));
}

static uint64_t *
verdict_at(const struct device_steps *steps, uint32_t step, uint32_t table)
{
    return (uint64_t *)((uintptr_t)steps->memory +
                        (uintptr_t)(step * ENGRAM_TABLES + table) * sizeof(uint64_t));
}

static bool
memory_take(struct device_steps *steps)
{
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
    enum kvt_status status;
    void *memory = NULL;

    status = kvt_device_alloc(steps->rig->store, 0, memory_bytes(steps), &memory);
    steps->memory = memory;
    about.address = memory;
    about.size = memory_bytes(steps);
    if (status == KVT_OK)
        status = kvt_region_register(steps->rig->store, &about, &steps->region);
    memory = NULL;
    if (status == KVT_OK && posix_memalign(&memory, PAGE_BYTES, ids_bytes(steps)) != 0)
        status = KVT_E_NOMEM;
    steps->ids = memory;
    about.tier = KVT_TIER_HOST;
    about.address = memory;
    about.size = ids_bytes(steps);
    if (status == KVT_OK)
        status = kvt_region_register(steps->rig->store, &about, &steps->ids_region);
    if (status != KVT_OK)
        complain_status(status, "cannot take memory for the steps of a device");
    return status == KVT_OK;
}

static bool
steps_open(struct device_steps *steps)
{
    const struct engram_plan *plan = steps->rig->plan;
    uint64_t batch_max = 0;

    for (uint32_t i = 0; i < plan->batch_count; i++)
        batch_max = plan->batches[i] > batch_max ? plan->batches[i] : batch_max;
    steps->ids_max = batch_max * ENGRAM_COLUMNS;
    steps->part = pages_up(steps->ids_max * steps->rig->profile.row_bytes);
    steps->seconds =
        plan->seconds / 4 < FIGURE_SECONDS_MIN ? FIGURE_SECONDS_MIN : plan->seconds / 4;
    steps->times_ns = calloc(STEP_TIMES_MAX, sizeof(*steps->times_ns));
    if (steps->times_ns == NULL) {
        complain("there is no memory for steps");
        return false;
    }
    return kvt_engram_info_get(steps->rig->tables[0], &steps->info) == KVT_OK &&
           engram_stream_open(&steps->stream, steps->rig) && memory_take(steps);
}

static uint64_t
table_bytes(const struct device_steps *steps)
{
    return ((steps->info.row_count - 1) / steps->info.rows_per_page + 1) * PAGE_BYTES;
}

static void
tables_put(struct device_steps *steps)
{
    for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
        if (steps->tables[t] != NULL)
            kvt_device_free(steps->rig->store, 0, steps->tables[t], table_bytes(steps));
        steps->tables[t] = NULL;
    }
}

static void
steps_close(struct device_steps *steps)
{
    tables_put(steps);
    if (steps->ids_region.id != 0)
        (void)!kvt_region_unregister(steps->rig->store, steps->ids_region);
    if (steps->region.id != 0)
        (void)!kvt_region_unregister(steps->rig->store, steps->region);
    if (steps->memory != NULL)
        kvt_device_free(steps->rig->store, 0, steps->memory, memory_bytes(steps));
    free(steps->ids);
    free(steps->times_ns);
    engram_stream_close(&steps->stream);
}

/* The pages of a table as they lie in its file. */
static bool
table_load(struct device_steps *steps, uint32_t table, uint8_t *buffer)
{
    uint32_t rows_per_page = steps->info.rows_per_page, row_bytes = steps->info.row_bytes;
    uint8_t *rows = buffer + (size_t)LOAD_PAGES * PAGE_BYTES;

    for (uint64_t row = 0; row < steps->info.row_count; row += LOAD_PAGES * rows_per_page) {
        uint64_t left = steps->info.row_count - row;
        uint64_t count = left < LOAD_PAGES * rows_per_page ? left : LOAD_PAGES * rows_per_page;

        if (kvt_engram_read(steps->rig->tables[table], row, count, rows) != KVT_OK)
            return false;
        for (uint64_t i = 0; i < count; i++)
            memcpy(buffer + i / rows_per_page * PAGE_BYTES + i % rows_per_page * row_bytes,
                rows + i * row_bytes, row_bytes);
        if (kvt_device_write(steps->rig->store, 0,
                (void *)((uintptr_t)steps->tables[table] +
                         (uintptr_t)(row / rows_per_page * PAGE_BYTES)),
                buffer, ((count - 1) / rows_per_page + 1) * PAGE_BYTES) != KVT_OK)
            return false;
    }
    return true;
}

/* False: complained. Where the device has no room for them they are not there, and that is fine. */
static bool
tables_load(struct device_steps *steps)
{
    uint8_t *buffer = calloc(2, (size_t)LOAD_PAGES * PAGE_BYTES);
    enum kvt_status status = KVT_OK;
    bool is_fine = buffer != NULL;

    for (uint32_t t = 0; is_fine && t < ENGRAM_TABLES && status == KVT_OK; t++) {
        void *memory = NULL;

        status = kvt_device_alloc(steps->rig->store, 0, table_bytes(steps), &memory);
        steps->tables[t] = memory;
        is_fine = status == KVT_E_NOMEM || (status == KVT_OK && table_load(steps, t, buffer));
    }
    free(buffer);
    if (status == KVT_E_NOMEM)
        tables_put(steps);
    if (!is_fine)
        complain("cannot bring the tables to the device");
    return is_fine;
}

/* --- 2. One step ------------------------------------------------------------------------------ */

static bool
is_gathered(const struct device_steps *steps)
{
    return steps->row->way == ENGRAM_ON_DEVICE || steps->row->way == ENGRAM_UVA;
}

/* Numbers of rows as the kernel finds them. */
static bool
ids_fill(struct device_steps *steps, uint32_t step, uint32_t table, uint64_t *count_out)
{
    struct kvt_engram_rows rows;

    if (kvt_engram_plan_rows(steps->rig->steps[step].plan, table, &rows) != KVT_OK)
        return false;
    memcpy(ids_at(steps, step, table), rows.rows, rows.slot_count * sizeof(*rows.rows));
    *count_out = rows.slot_count;
    return true;
}

static bool
table_gather(struct device_steps *steps, uint32_t step, uint32_t table)
{
    uint64_t count = 0;

    if (!ids_fill(steps, step, table, &count))
        return false;
    if (steps->row->way == ENGRAM_ON_DEVICE)
        return engram_device_gather(
            &(struct engram_device_gather){.ids = ids_at(steps, step, table),
                .count = count,
                .pages = steps->tables[table],
                .row_count = (uint32_t)steps->info.row_count,
                .rows_per_page = steps->info.rows_per_page,
                .row_bytes = steps->info.row_bytes,
                .target = rows_at(steps, step, table),
                .verdict = verdict_at(steps, step, table)});
    return kvt_engram_gather(&(struct kvt_engram_selection){.table = steps->rig->tables[table],
               .ids = ids_at(steps, step, table),
               .count = count,
               .destination = rows_at(steps, step, table),
               .capacity = steps->part,
               .region = steps->region,
               .ids_region = steps->ids_region,
               .stream = engram_device_stream(ENGRAM_STREAM_ROWS),
               .verdict = verdict_at(steps, step, table)}) == KVT_OK;
}

static bool
step_fetch(struct device_steps *steps, uint32_t step)
{
    struct kvt_engram_target targets[ENGRAM_TABLES] = {0};

    for (uint32_t t = 0; t < ENGRAM_TABLES; t++)
        targets[t] = (struct kvt_engram_target){.table = steps->rig->tables[t],
            .layer_index = t,
            .destination = rows_at(steps, step, t),
            .capacity = steps->part,
            .region = steps->region,
            .deadline_ns = t + 1};
    return kvt_engram_fetch_submit(steps->rig->steps[step].plan, targets, ENGRAM_TABLES,
               &steps->rig->steps[step].fetch) == KVT_OK;
}

static bool
step_begin(struct device_steps *steps, uint32_t step)
{
    uint32_t flags = is_gathered(steps) ? 0 : KVT_ENGRAM_UNIQUE;

    if (!engram_stream_plan(&steps->stream, steps->row->tokens, &steps->rig->steps[step],
            (uint32_t)steps->row->batch, flags))
        return false;
    if (!is_gathered(steps))
        return step_fetch(steps, step);
    return table_gather(steps, step, 0) && table_gather(steps, step, 1) &&
           engram_device_mark(ENGRAM_STREAM_ROWS);
}

static bool
step_end(struct device_steps *steps, uint32_t step)
{
    return is_gathered(steps) ? engram_device_wait(ENGRAM_STREAM_ROWS)
                              : engram_step_wait(&steps->rig->steps[step]);
}

static bool
compute_begin(const struct device_steps *steps)
{
    return engram_device_compute(steps->rig->plan->step_ns, steps->memory) &&
           engram_device_mark(ENGRAM_STREAM_COMPUTE);
}

/* One computes while, or after, the rows of the other come. */
static bool
steps_turn(struct device_steps *steps, uint32_t next)
{
    switch (steps->row->mode) {
    case ENGRAM_SYNCHRONOUS:
        return step_begin(steps, next) && step_end(steps, next) && compute_begin(steps) &&
               engram_device_wait(ENGRAM_STREAM_COMPUTE);
    case ENGRAM_PREFETCHED:
        return compute_begin(steps) && step_begin(steps, next) &&
               engram_device_wait(ENGRAM_STREAM_COMPUTE) && step_end(steps, next);
    case ENGRAM_ALONE:
    case ENGRAM_MODE_COUNT:
        break;
    }
    return step_begin(steps, next) && step_end(steps, next);
}

/* --- 3. Many steps ---------------------------------------------------------------------------- */

/* Steps a second that only compute; below 0: it failed. */
static double
compute_run(const struct device_steps *steps)
{
    double begin = clock_seconds();
    uint64_t count = 0;

    do {
        if (!compute_begin(steps) || !engram_device_wait(ENGRAM_STREAM_COMPUTE))
            return -1;
        count++;
    } while (clock_seconds() - begin < steps->seconds / 4);
    return (double)count / (clock_seconds() - begin);
}

/* For `seconds`, at most so many steps. Steps a second; below 0: it failed. */
static double
steps_run(struct device_steps *steps, double seconds, uint32_t count_max, uint32_t *count_out)
{
    double begin, now;
    uint32_t count = 0;

    if (!step_begin(steps, 0) || !step_end(steps, 0))
        return -1;
    begin = now = clock_seconds();
    do {
        double before = now;

        if (!steps_turn(steps, (count + 1) % STEPS))
            return -1;
        now = clock_seconds();
        steps->times_ns[count++ % STEP_TIMES_MAX] = (uint64_t)((now - before) * 1e9);
    } while (count < count_max && now - begin < seconds);
    *count_out = count;
    return (double)count / (now - begin);
}

/* Whether rows of the last step are what they should be. False: they could not be read. */
static bool
rows_compare(struct device_steps *steps, uint32_t step)
{
    struct engram_bench_rig *rig = steps->rig;
    uint64_t bytes = steps->row->batch * ENGRAM_COLUMNS * rig->profile.row_bytes;

    for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
        if (kvt_device_read(
                rig->store, 0, rig->steps[step].rows[t], rows_at(steps, step, t), bytes) != KVT_OK)
            return false;
    }
    steps->row->wrong_rows = engram_step_wrong_rows(rig, &rig->steps[step]);
    return true;
}

/* What a run before it has left there is not taken for its own. */
static bool
rows_poison(struct device_steps *steps)
{
    struct engram_bench_rig *rig = steps->rig;
    uint64_t bytes = steps->row->batch * ENGRAM_COLUMNS * rig->profile.row_bytes;

    for (uint32_t i = 0; i < STEPS * ENGRAM_TABLES; i++) {
        if (kvt_device_write(rig->store, 0, rows_at(steps, i / ENGRAM_TABLES, i % ENGRAM_TABLES),
                rig->steps[i / ENGRAM_TABLES].rows[i % ENGRAM_TABLES], bytes) != KVT_OK)
            return false;
    }
    return true;
}

static double
ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (double)part / (double)whole;
}

static void
row_fill(struct engram_device_row *row, const struct kvt_stats *before,
    const struct kvt_stats *after, double steps_per_s, uint32_t count)
{
#define GROWN(name) (after->name - before->name)
    row->tokens_per_s = steps_per_s * (double)row->batch;
    row->rows_per_s = row->tokens_per_s * ENGRAM_COLUMNS * ENGRAM_TABLES;
    row->pages_per_step = (double)GROWN(engram_page_count) / ((double)count + 1);
    row->cache_hit_share =
        ratio(GROWN(engram_cache_device_hit_count), GROWN(engram_cache_device_row_count));
    row->cache_sample_share =
        ratio(GROWN(engram_cache_device_sample_hit_count), GROWN(engram_cache_device_sample_count));
    row->cache_worth_ns = after->engram_cache_device_worth_ns_now;
    row->cache_cost_ns = after->engram_cache_device_cost_ns_now;
    row->cache_on_count = (uint32_t)after->engram_cache_device_on_now;
#undef GROWN
}

static bool
row_measure(struct device_steps *steps)
{
    struct engram_device_row *row = steps->row;
    struct kvt_stats before = {.struct_size = sizeof(before)}, after = before;
    double alone = 1, rate;
    uint32_t count = 0;

    if (row->way == ENGRAM_DEVICE_CACHED && row->mode == ENGRAM_ALONE &&
        steps_run(steps, WARM_FIGURES * steps->seconds, WARM_STEPS, &count) < 0)
        return false;
    if (!rows_poison(steps) || kvt_stats_get(steps->rig->store, &before) != KVT_OK)
        return false;
    if (row->mode != ENGRAM_ALONE)
        alone = compute_run(steps);
    rate = steps_run(steps, steps->seconds, UINT32_MAX, &count);
    if (row->mode != ENGRAM_ALONE)
        alone = (alone + compute_run(steps)) / 2;
    if (alone < 0 || rate < 0 || kvt_stats_get(steps->rig->store, &after) != KVT_OK ||
        !rows_compare(steps, count % STEPS))
        return false;
    row_fill(row, &before, &after, rate, count);
    row->compute_share = row->mode == ENGRAM_ALONE ? 0 : rate / alone;
    count = count < STEP_TIMES_MAX ? count : STEP_TIMES_MAX;
    row->step_p50_ns = number_percentile(steps->times_ns, count, 0.5);
    row->step_p99_ns = number_percentile(steps->times_ns, count, 0.99);
    return true;
}

/* --- 4. All ----------------------------------------------------------------------------------- */

/* The tables, as this way wants them. False: complained. */
static bool
tables_prepare(struct device_steps *steps, enum engram_device_way way)
{
    enum kvt_status status = KVT_OK;

    if (way == ENGRAM_ON_DEVICE) /* They are pinned. */
        return tables_load(steps);
    tables_put(steps);
    if (!engram_tables_again(steps->rig))
        return false;
    for (uint32_t t = 0; t < ENGRAM_TABLES && status == KVT_OK; t++) {
        if (way == ENGRAM_UVA)
            status = kvt_engram_pin(steps->rig->tables[t], KVT_ENGRAM_ROWS_ALL, 0);
        else if (way == ENGRAM_DEVICE_CACHED)
            status =
                kvt_engram_cache_device(steps->rig->tables[t], 0, steps->rig->plan->cache_bytes);
    }
    if (status != KVT_OK)
        complain_status(status, "cannot prepare the tables");
    return status == KVT_OK;
}

static bool
batch_measure(struct device_steps *steps)
{
    struct engram_bench_rig *rig = steps->rig;
    uint32_t batch = (uint32_t)steps->row->batch;
    struct kvt_error error;
    bool is_fine;

    engram_stream_start(&steps->stream, batch);
    is_fine = engram_steps_take(rig, batch) && row_measure(steps);
    kvt_last_error(&error);
    if (!is_fine)
        complain("cannot run steps of %u tokens on the device: %s", batch, error.text);
    engram_steps_put(rig);
    return is_fine;
}

static bool
way_measure(struct device_steps *steps, enum engram_device_way way, struct engram_device_rows *out)
{
    const struct engram_plan *plan = steps->rig->plan;
    uint32_t modes = plan->step_ns == 0 ? 1 : ENGRAM_MODE_COUNT;
    uint32_t count = engram_tokens_count(plan) * plan->batch_count * modes;

    if (!tables_prepare(steps, way))
        return false;
    if (way == ENGRAM_ON_DEVICE && steps->tables[ENGRAM_TABLES - 1] == NULL)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        steps->row = &out->rows[out->count++];
        *steps->row = (struct engram_device_row){
            .tokens = (enum engram_tokens)(i / modes / plan->batch_count),
            .way = way,
            .mode = (enum engram_mode)(i % modes),
            .batch = plan->batches[i / modes % plan->batch_count]};
        if (!batch_measure(steps))
            return false;
    }
    return true;
}

bool
engram_device_measure(struct engram_bench_rig *rig, struct engram_device_rows *rows_out)
{
    /* The tables are pinned once for both of the first. */
    static const enum engram_device_way ways[] = {
        ENGRAM_UVA, ENGRAM_ON_DEVICE, ENGRAM_TO_DEVICE, ENGRAM_DEVICE_CACHED};
    struct device_steps steps = {.rig = rig};
    bool is_fine = steps_open(&steps);

    engram_device_name(&rows_out->facts);
    for (uint32_t i = 0; is_fine && i < ENGRAM_DEVICE_WAY_COUNT; i++)
        is_fine = way_measure(&steps, ways[i], rows_out);
    steps_close(&steps);
    return is_fine;
}
