/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_measure.c - makes two tables and fetches rows of them for batches of tokens.
 *
 * Tokens are classes. A row's bytes are pattern_fill() of its table and number, so that whatever
 * arrives can be compared; that is done for one step of each figure, outside of what is timed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "complain.h"
#include "directory.h"
#include "disk_probe.h"
#include "engram_device.h"
#include "engram_rig_bench.h"
#include "kvtier/kvtier.h"
#include "pattern.h"
#include "progress.h"
#include "statistics.h"

enum {
    STEPS_IN_FLIGHT = ENGRAM_STEPS_IN_FLIGHT,
    COLUMNS = ENGRAM_COLUMNS,
    PATH_BYTES = ENGRAM_PATH_BYTES,
    STEPS_MAX = 20000, /* Whose times are kept. */
    ROUNDS = 3,        /* Of the stream and its ceiling, in turns. */
};

const char *const engram_table_names[ENGRAM_TABLES] = {"layer1", "layer14"};

/* --- 1. Tables -------------------------------------------------------------------------------- */

static uint64_t
row_number(uint32_t layer_index, uint64_t row)
{
    return ((uint64_t)layer_index + 1) << 40 | row;
}

static enum kvt_status
rows_make(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    const struct engram_bench_rig *rig = context;
    uint8_t *rows = rows_out;

    for (uint64_t i = 0; i < row_count; i++, rows += rig->profile.row_bytes)
        pattern_fill(row_number(rig->layer_index, row_first + i), rows, rig->profile.row_bytes);
    return KVT_OK;
}

/* V4.1's profile with so many rows. */
static void
profile_shrink(struct engram_bench_rig *rig)
{
    for (uint32_t i = 0; i < ENGRAM_TABLES; i++) {
        struct kvt_engram_layer *layer = &rig->profile.layers[i];

        layer->row_count = 0;
        for (uint32_t c = 0; c < COLUMNS; c++) {
            layer->primes[c] = (uint32_t)(rig->plan->row_count / COLUMNS) - 2 * COLUMNS + 2 * c;
            layer->offsets[c] = layer->row_count;
            layer->row_count += layer->primes[c];
        }
    }
}

static bool
table_make(struct engram_bench_rig *rig, uint32_t index)
{
    const struct kvt_engram_source source = {.struct_size = sizeof(source),
        .flags = KVT_ENGRAM_IMPORT_UNREAD,
        .name = engram_table_names[index],
        .profile = &rig->profile,
        .layer_index = index,
        .read = rows_make,
        .context = rig};
    enum kvt_status status;

    rig->layer_index = index;
    status = kvt_engram_import(rig->store, &source);
    if (status == KVT_OK)
        status = kvt_engram_open(rig->store, engram_table_names[index], &rig->tables[index]);
    if (status != KVT_OK)
        complain_status(status, "cannot make the table %s", engram_table_names[index]);
    return status == KVT_OK;
}

static bool
store_make(struct engram_bench_rig *rig)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.host_capacity_bytes = 64 << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    if (snprintf(rig->path, sizeof(rig->path), "%s/engram-store", rig->plan->directory) >=
            (int)sizeof(rig->path) ||
        !directory_remove(rig->path)) {
        complain("%s cannot be used", rig->plan->directory);
        return false;
    }
    return engram_device_store_open(
               rig->path, &options, rig->plan->device, &rig->store, &rig->has_device) &&
           table_make(rig, 0) && table_make(rig, 1);
}

bool
engram_tables_again(struct engram_bench_rig *rig)
{
    enum kvt_status status = KVT_OK;

    for (uint32_t t = 0; t < ENGRAM_TABLES && status == KVT_OK; t++) {
        status = kvt_engram_close(rig->tables[t]);
        if (status != KVT_OK)
            break;
        rig->tables[t] = NULL;
        status = kvt_engram_open(rig->store, engram_table_names[t], &rig->tables[t]);
    }
    if (status != KVT_OK)
        complain_status(status, "cannot open the tables again");
    return status == KVT_OK;
}

/* --- 2. The ceiling --------------------------------------------------------------------------- */

/* Pages a second at a depth; below 0: complained. */
static double
ceiling_run(struct engram_bench_rig *rig, uint32_t depth, double seconds)
{
    struct kvt_engram_info info;
    struct disk_read_plan plan = {
        .start_bytes = 4096, .piece_bytes = 4096, .depth = depth, .is_random = true};
    double rate;

    if (kvt_engram_info_get(rig->tables[1], &info) != KVT_OK)
        return -1;
    plan.end_bytes = info.file_bytes - 4096;
    plan.seconds = seconds;
    rate = disk_probe_read(&rig->probe, &plan);
    if (rate < 0)
        complain("cannot measure the ceiling: %s", rig->probe.message);
    return rate < 0 ? -1 : rate / 4096;
}

static bool
ceiling_prepare(struct engram_bench_rig *rig)
{
    static const uint32_t depths[] = {64, 128, 256};
    char path[PATH_BYTES + 64];
    double best = 0;

    snprintf(path, sizeof(path), "%s/engram/%s.engram", rig->path, engram_table_names[1]);
    if (!disk_probe_open(&rig->probe, path)) {
        complain("cannot measure the ceiling: %s", rig->probe.message);
        return false;
    }
    rig->has_probe = true;
    for (uint32_t i = 0; i < 3; i++) {
        double rate = ceiling_run(rig, depths[i], rig->plan->seconds / 3);

        if (rate < 0)
            return false;
        if (rate > best) {
            best = rate;
            rig->depth = depths[i];
        }
    }
    return true;
}

/* --- 3. Tokens -------------------------------------------------------------------------------- */

static bool
tokens_prepare(struct engram_bench_rig *rig)
{
    uint32_t count = rig->profile.class_count;

    rig->sums = calloc(count, sizeof(*rig->sums));
    rig->tokens = calloc(ENGRAM_TOKENS_MAX, sizeof(*rig->tokens));
    rig->first_ns = calloc(STEPS_MAX, sizeof(*rig->first_ns));
    rig->step_ns = calloc(STEPS_MAX, sizeof(*rig->step_ns));
    if (rig->sums == NULL || rig->tokens == NULL || rig->first_ns == NULL || rig->step_ns == NULL) {
        complain("there is no memory for tokens");
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        rig->sums[i] = (i == 0 ? 0 : rig->sums[i - 1]) + 1.0 / (i + 1);
    return true;
}

uint32_t
engram_token_next(struct engram_bench_rig *rig, bool is_zipf)
{
    uint64_t random = pattern_mix(rig->random++);
    uint32_t low = 0, high = rig->profile.class_count - 1;
    double at = (double)(random >> 11) * 0x1p-53 * rig->sums[high];

    if (!is_zipf)
        return (uint32_t)(random % rig->profile.class_count);
    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (rig->sums[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* --- 4. Steps --------------------------------------------------------------------------------- */

bool
engram_steps_take(struct engram_bench_rig *rig, uint32_t batch)
{
    size_t bytes = (size_t)batch * COLUMNS * rig->profile.row_bytes;

    for (uint32_t i = 0; i < STEPS_IN_FLIGHT; i++) {
        struct engram_step *step = &rig->steps[i];

        if (kvt_engram_plan_create(rig->hasher, batch, &step->plan) != KVT_OK)
            return false;
        for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
            step->rows[t] = malloc(bytes);
            if (step->rows[t] == NULL)
                return false;
            memset(step->rows[t], PATTERN_POISON, bytes); /* Its pages are there, too. */
        }
    }
    return true;
}

void
engram_steps_put(struct engram_bench_rig *rig)
{
    for (uint32_t i = 0; i < STEPS_IN_FLIGHT; i++) {
        kvt_engram_fetch_free(rig->steps[i].fetch);
        kvt_engram_plan_destroy(rig->steps[i].plan);
        for (uint32_t t = 0; t < ENGRAM_TABLES; t++)
            free(rig->steps[i].rows[t]);
    }
    memset(rig->steps, 0, sizeof(rig->steps));
}

/* Tokens of a decode step: each its own sequence, whose N-grams are as random as its token. */
static bool
step_plan(struct engram_bench_rig *rig, struct engram_step *step, uint32_t batch, bool is_zipf)
{
    const struct kvt_engram_sequence sequence = {.tokens = rig->tokens, .token_count = batch};

    for (uint32_t i = 0; i < batch; i++)
        rig->tokens[i] = engram_token_next(rig, is_zipf);
    return kvt_engram_plan_fill(step->plan, &sequence, 1, KVT_ENGRAM_UNIQUE) == KVT_OK;
}

/* Pages and rows of a plan, for the report. */
void
engram_step_count(struct engram_bench_rig *rig, struct engram_step *step)
{
    step->page_count = 0;
    step->row_count = 0;
    for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
        struct kvt_engram_rows rows;
        uint32_t before = UINT32_MAX;

        if (kvt_engram_plan_rows(step->plan, t, &rows) != KVT_OK)
            continue;
        step->row_count += rows.slot_count;
        for (uint32_t i = 0; i < rows.row_count; i++) {
            uint32_t page = rows.rows[i] / (4088 / rig->profile.row_bytes);

            step->page_count += page != before;
            before = page;
        }
    }
}

bool
engram_step_submit(struct engram_bench_rig *rig, struct engram_step *step, uint32_t batch)
{
    struct kvt_engram_target targets[ENGRAM_TABLES] = {0};

    for (uint32_t t = 0; t < ENGRAM_TABLES; t++)
        targets[t] = (struct kvt_engram_target){.table = rig->tables[t],
            .layer_index = t,
            .destination = step->rows[t],
            .capacity = (uint64_t)batch * COLUMNS * rig->profile.row_bytes,
            .deadline_ns = t == 0 ? 1 : 2};
    return kvt_engram_fetch_submit(step->plan, targets, ENGRAM_TABLES, &step->fetch) == KVT_OK;
}

bool
engram_step_wait(struct engram_step *step)
{
    bool is_fine = true;

    for (uint32_t t = 0; t < ENGRAM_TABLES; t++)
        is_fine = kvt_engram_fetch_wait(step->fetch, t, KVT_FOREVER, NULL) == KVT_OK && is_fine;
    kvt_engram_fetch_free(step->fetch);
    step->fetch = NULL;
    return is_fine;
}

uint64_t
engram_step_wrong_rows(struct engram_bench_rig *rig, const struct engram_step *step)
{
    uint64_t wrong = 0;

    for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
        struct kvt_engram_rows rows;

        if (kvt_engram_plan_rows(step->plan, t, &rows) != KVT_OK)
            return 1;
        for (uint32_t i = 0; i < rows.slot_count; i++)
            wrong +=
                pattern_wrong_bytes(
                    row_number(t, rows.rows[rows.inverse == NULL ? i : rows.inverse[i]]),
                    step->rows[t] + (size_t)i * rig->profile.row_bytes, rig->profile.row_bytes) > 0;
    }
    return wrong;
}

/* --- 5. Figures ------------------------------------------------------------------------------- */

/* One step at a time. */
static bool
steps_run(struct engram_bench_rig *rig, struct engram_row *row, uint32_t batch)
{
    struct engram_step *step = &rig->steps[0];
    double start = clock_seconds(), plan_seconds = 0, step_seconds = 0;
    uint32_t count = 0;

    do {
        double begin = clock_seconds(), planned = 0, first = 0;

        if (!step_plan(rig, step, batch, row->is_zipf))
            return false;
        begin = clock_seconds(); /* Making tokens up is nobody's cost: plan them again. */
        if (kvt_engram_plan_fill(step->plan,
                &(struct kvt_engram_sequence){.tokens = rig->tokens, .token_count = batch}, 1,
                KVT_ENGRAM_UNIQUE) != KVT_OK)
            return false;
        planned = clock_seconds();
        if (!engram_step_submit(rig, step, batch) ||
            kvt_engram_fetch_wait(step->fetch, 0, KVT_FOREVER, NULL) != KVT_OK)
            return false;
        first = clock_seconds();
        if (!engram_step_wait(step))
            return false;
        plan_seconds += planned - begin;
        step_seconds += clock_seconds() - begin;
        rig->first_ns[count % STEPS_MAX] = (uint64_t)((first - begin) * 1e9);
        rig->step_ns[count++ % STEPS_MAX] = (uint64_t)((clock_seconds() - begin) * 1e9);
    } while (clock_seconds() - start < rig->plan->seconds);
    row->wrong_rows += engram_step_wrong_rows(rig, step);
    row->plan_tokens_per_s = (double)batch * count / plan_seconds;
    row->step_tokens_per_s = (double)batch * count / step_seconds;
    count = count < STEPS_MAX ? count : STEPS_MAX;
    row->first_p50_ns = number_percentile(rig->first_ns, count, 0.5);
    row->first_p99_ns = number_percentile(rig->first_ns, count, 0.99);
    row->step_p50_ns = number_percentile(rig->step_ns, count, 0.5);
    row->step_p99_ns = number_percentile(rig->step_ns, count, 0.99);
    return true;
}

/* All threads of the process together. */
static double
cpu_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Four steps in flight, for `seconds`. */
static bool
stream_run(struct engram_bench_rig *rig, struct engram_row *row, uint32_t batch, double seconds)
{
    double start = clock_seconds(), cpu_start = cpu_seconds(), elapsed = 0;
    uint64_t steps = 0, pages = 0, rows = 0;
    uint32_t next = 0;

    do {
        struct engram_step *step = &rig->steps[next++ % STEPS_IN_FLIGHT];

        if (step->fetch != NULL && !engram_step_wait(step))
            return false;
        if (!step_plan(rig, step, batch, row->is_zipf))
            return false;
        engram_step_count(rig, step);
        if (!engram_step_submit(rig, step, batch))
            return false;
        steps++;
        pages += step->page_count;
        rows += step->row_count;
    } while (clock_seconds() - start < seconds);
    for (uint32_t i = 0; i < STEPS_IN_FLIGHT; i++) {
        if (rig->steps[i].fetch != NULL && !engram_step_wait(&rig->steps[i]))
            return false;
    }
    elapsed = clock_seconds() - start;
    row->stream_cpu_ns_per_page =
        (cpu_seconds() - cpu_start) * 1e9 / (double)(pages + (pages == 0));
    row->wrong_rows += engram_step_wrong_rows(rig, &rig->steps[(next - 1) % STEPS_IN_FLIGHT]);
    row->stream_tokens_per_s = (double)(steps * batch) / elapsed;
    row->stream_rows_per_s = (double)rows / elapsed;
    row->stream_pages_per_s = (double)pages / elapsed;
    return true;
}

/* The stream and its ceiling in turns; of each the median. */
static bool
turns_run(struct engram_bench_rig *rig, struct engram_row *row, uint32_t batch)
{
    double tokens[ROUNDS], rows[ROUNDS], pages[ROUNDS], cpu_ns[ROUNDS], ceilings[ROUNDS];

    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!stream_run(rig, row, batch, rig->plan->seconds / ROUNDS))
            return false;
        tokens[i] = row->stream_tokens_per_s;
        rows[i] = row->stream_rows_per_s;
        pages[i] = row->stream_pages_per_s;
        cpu_ns[i] = row->stream_cpu_ns_per_page;
        ceilings[i] = ceiling_run(rig, rig->depth, rig->plan->seconds / ROUNDS);
        if (ceilings[i] < 0)
            return false;
    }
    row->stream_tokens_per_s = median(tokens, ROUNDS);
    row->stream_rows_per_s = median(rows, ROUNDS);
    row->stream_pages_per_s = median(pages, ROUNDS);
    row->stream_cpu_ns_per_page = median(cpu_ns, ROUNDS);
    row->ceiling_pages_per_s = median(ceilings, ROUNDS);
    return true;
}

static bool
batch_run(struct engram_bench_rig *rig, struct engram_row *row)
{
    uint32_t batch = (uint32_t)row->batch;
    bool is_fine =
        engram_steps_take(rig, batch) && steps_run(rig, row, batch) && turns_run(rig, row, batch);
    struct kvt_error error;

    kvt_last_error(&error);
    if (!is_fine)
        complain("cannot fetch rows for %" PRIu32 " tokens: %s", batch, error.text);
    engram_steps_put(rig);
    return is_fine;
}

static void
rig_close(struct engram_bench_rig *rig)
{
    if (rig->has_probe)
        disk_probe_close(&rig->probe);
    for (uint32_t t = 0; t < ENGRAM_TABLES; t++)
        (void)!kvt_engram_close(rig->tables[t]);
    engram_device_close();
    if (rig->store != NULL)
        (void)!kvt_close(rig->store);
    kvt_engram_hasher_close(rig->hasher);
    free(rig->sums);
    free(rig->tokens);
    free(rig->first_ns);
    free(rig->step_ns);
    (void)!directory_remove(rig->path);
    free(rig);
}

bool
engram_measure(const struct engram_plan *plan, struct engram_row *rows_out,
    struct engram_step_row *steps_out, struct engram_device_rows *device_rows_out)
{
    struct engram_bench_rig *rig = calloc(1, sizeof(*rig));
    bool is_fine;

    if (rig == NULL) {
        complain("there is no memory");
        return false;
    }
    rig->plan = plan;
    is_fine = kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &rig->profile) == KVT_OK;
    profile_shrink(rig);
    is_fine = is_fine && kvt_engram_hasher_open(&rig->profile, NULL, 0, &rig->hasher) == KVT_OK &&
              tokens_prepare(rig) && store_make(rig) && ceiling_prepare(rig);
    for (uint32_t i = 0; is_fine && i < 2 * plan->batch_count; i++) {
        rows_out[i] = (struct engram_row){
            .is_zipf = i >= plan->batch_count, .batch = plan->batches[i % plan->batch_count]};
        is_fine = batch_run(rig, &rows_out[i]);
    }
    if (is_fine && plan->step_ns > 0)
        is_fine = engram_steps_measure(rig, steps_out);
    device_rows_out->has_device = rig->has_device;
    if (is_fine && rig->has_device)
        is_fine = engram_device_measure(rig, device_rows_out);
    rig_close(rig);
    return is_fine;
}
