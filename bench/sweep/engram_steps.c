/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_steps.c - steps that compute, and need their rows first: how much of the computing's rate
 * is left, with the rows in pinned memory, on NVMe, and there with a cache.
 *
 * The computing is a timed wait of the host: what a GPU does while the host is free. Synchronous: a
 * step asks for its rows, waits, computes. Prefetched: while a step computes the host plans and
 * asks for the next one's; a step begins when both are done.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "complain.h"
#include "engram_stream.h"
#include "statistics.h"

enum {
    STEP_TIMES_MAX = 20000, /* That are kept. */
    WARM_STEPS = 400,       /* Before a cache is measured, for at most so many figures' time: */
    WARM_FIGURES = 5,
    NS_PER_S = 1000000000,
};

struct steps {
    struct engram_bench_rig *rig;
    struct engram_stream stream;
    struct engram_step_row *row; /* Being measured. */
    uint64_t *times_ns;
};

static uint64_t
time_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void
sleep_until(uint64_t until_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* --- 1. One step ------------------------------------------------------------------------------ */

static bool
step_gather(struct steps *steps, struct engram_step *step)
{
    for (uint32_t t = 0; t < ENGRAM_TABLES; t++) {
        struct kvt_engram_rows rows;
        struct kvt_engram_selection gather = {.table = steps->rig->tables[t],
            .destination = step->rows[t],
            .capacity = steps->row->batch * ENGRAM_COLUMNS * steps->rig->profile.row_bytes};

        if (kvt_engram_plan_rows(step->plan, t, &rows) != KVT_OK)
            return false;
        gather.ids = rows.rows;
        gather.count = rows.slot_count;
        if (kvt_engram_gather(&gather) != KVT_OK)
            return false;
    }
    return true;
}

static bool
step_begin(struct steps *steps, struct engram_step *step)
{
    uint32_t batch = (uint32_t)steps->row->batch;
    uint32_t flags = steps->row->way == ENGRAM_PINNED ? 0 : KVT_ENGRAM_UNIQUE;

    if (!engram_stream_plan(&steps->stream, steps->row->tokens, step, batch, flags))
        return false;
    return steps->row->way == ENGRAM_PINNED ? step_gather(steps, step)
                                            : engram_step_submit(steps->rig, step, batch);
}

static bool
step_end(const struct steps *steps, struct engram_step *step)
{
    return steps->row->way == ENGRAM_PINNED || engram_step_wait(step);
}

/* --- 2. Many steps ---------------------------------------------------------------------------- */

/* Steps a second that only compute. */
static double
compute_run(const struct steps *steps, double seconds)
{
    uint64_t begin_ns = time_ns(), now_ns = begin_ns;
    uint64_t count = 0;

    do {
        sleep_until(now_ns + steps->rig->plan->step_ns);
        now_ns = time_ns();
        count++;
    } while ((double)(now_ns - begin_ns) < seconds * NS_PER_S);
    return (double)count * NS_PER_S / (double)(now_ns - begin_ns);
}

/* For `seconds`, or with 0 for WARM_STEPS without computing. Steps a second; below 0: it failed. */
static double
steps_run(struct steps *steps, double seconds, uint32_t *count_out)
{
    struct engram_bench_rig *rig = steps->rig;
    bool is_warm_up = seconds == 0;
    uint64_t compute_ns = is_warm_up ? 0 : rig->plan->step_ns;
    uint64_t begin_ns, now_ns;
    uint32_t count = 0;

    /* The first step's rows are there. */
    if (!step_begin(steps, &rig->steps[0]) || !step_end(steps, &rig->steps[0]))
        return -1;
    begin_ns = now_ns = time_ns();
    do {
        struct engram_step *next = &rig->steps[(count + 1) % 2];
        uint64_t step_ns = now_ns;

        if (steps->row->is_prefetched) {
            if (!step_begin(steps, next))
                return -1;
            sleep_until(step_ns + compute_ns);
            if (!step_end(steps, next))
                return -1;
        } else {
            if (!step_begin(steps, next) || !step_end(steps, next))
                return -1;
            sleep_until(time_ns() + compute_ns);
        }
        now_ns = time_ns();
        steps->times_ns[count++ % STEP_TIMES_MAX] = now_ns - step_ns;
    } while (is_warm_up ? count < WARM_STEPS && (double)(now_ns - begin_ns) <
                                                    rig->plan->seconds * WARM_FIGURES * NS_PER_S
                        : (double)(now_ns - begin_ns) < seconds * NS_PER_S);
    steps->row->wrong_rows += engram_step_wrong_rows(rig, &rig->steps[count % 2]);
    *count_out = count;
    return (double)count * NS_PER_S / (double)(now_ns - begin_ns);
}

static bool
row_measure(struct steps *steps)
{
    struct engram_bench_rig *rig = steps->rig;
    struct engram_step_row *row = steps->row;
    struct kvt_stats before = {.struct_size = sizeof(before)}, after = before;
    double seconds = rig->plan->seconds, alone, rate;
    uint32_t count = 0;
    uint64_t looked;

    if (row->way == ENGRAM_NVME_CACHE && steps_run(steps, 0, &count) < 0)
        return false;
    if (kvt_stats_get(rig->store, &before) != KVT_OK)
        return false;
    alone = compute_run(steps, seconds / 4);
    rate = steps_run(steps, seconds, &count);
    alone = (alone + compute_run(steps, seconds / 4)) / 2;
    if (rate < 0 || kvt_stats_get(rig->store, &after) != KVT_OK)
        return false;
    looked = after.engram_cache_row_count - before.engram_cache_row_count;
    row->tokens_per_s = rate * (double)row->batch;
    row->compute_share = rate / alone;
    row->pages_per_step =
        (double)(after.engram_page_count - before.engram_page_count) / ((double)count + 1);
    row->cache_hit_share =
        looked == 0 ? 0
                    : (double)(after.engram_cache_hit_count - before.engram_cache_hit_count) /
                          (double)looked;
    looked = after.engram_cache_sample_count - before.engram_cache_sample_count;
    row->cache_sample_share =
        looked == 0
            ? 0
            : (double)(after.engram_cache_sample_hit_count - before.engram_cache_sample_hit_count) /
                  (double)looked;
    row->cache_worth_ns = after.engram_cache_worth_ns_now;
    row->cache_cost_ns = after.engram_cache_cost_ns_now;
    row->cache_on_count = (uint32_t)after.engram_cache_on_now;
    count = count < STEP_TIMES_MAX ? count : STEP_TIMES_MAX;
    row->step_p50_ns = number_percentile(steps->times_ns, count, 0.5);
    row->step_p99_ns = number_percentile(steps->times_ns, count, 0.99);
    return true;
}

/* --- 3. All ----------------------------------------------------------------------------------- */

/* The tables anew, as this way wants them. */
static bool
tables_open(struct engram_bench_rig *rig, enum engram_way way)
{
    enum kvt_status status = KVT_OK;

    if (!engram_tables_again(rig))
        return false;
    for (uint32_t t = 0; t < ENGRAM_TABLES && status == KVT_OK; t++) {
        if (way == ENGRAM_PINNED)
            status = kvt_engram_pin(rig->tables[t], KVT_ENGRAM_ROWS_ALL, 0);
        else if (way == ENGRAM_NVME_CACHE)
            status = kvt_engram_cache(rig->tables[t], rig->plan->cache_bytes);
    }
    if (status != KVT_OK)
        complain_status(status, "cannot prepare the tables");
    return status == KVT_OK;
}

static bool
steps_open(struct steps *steps)
{
    steps->times_ns = calloc(STEP_TIMES_MAX, sizeof(*steps->times_ns));
    if (steps->times_ns == NULL)
        complain("there is no memory for steps");
    return steps->times_ns != NULL && engram_stream_open(&steps->stream, steps->rig);
}

static bool
batch_measure(struct steps *steps)
{
    struct engram_bench_rig *rig = steps->rig;
    uint32_t batch = (uint32_t)steps->row->batch;
    struct kvt_error error;
    bool is_fine;

    engram_stream_start(&steps->stream, batch);
    is_fine = engram_steps_take(rig, batch) && row_measure(steps);
    kvt_last_error(&error);
    if (!is_fine)
        complain("cannot run steps of %" PRIu32 " tokens: %s", batch, error.text);
    engram_steps_put(rig);
    return is_fine;
}

static bool
way_measure(struct steps *steps, enum engram_way way, struct engram_step_row **row)
{
    const struct engram_plan *plan = steps->rig->plan;
    enum engram_tokens streams = (enum engram_tokens)engram_tokens_count(plan);

    if (!tables_open(steps->rig, way))
        return false;
    for (enum engram_tokens tokens = ENGRAM_UNIFORM; tokens < streams; tokens++) {
        for (uint32_t i = 0; i < 2 * plan->batch_count; i++, (*row)++) {
            **row = (struct engram_step_row){.tokens = tokens,
                .way = way,
                .is_prefetched = i % 2 != 0,
                .batch = plan->batches[i / 2]};
            steps->row = *row;
            if (!batch_measure(steps))
                return false;
        }
    }
    return true;
}

bool
engram_steps_measure(struct engram_bench_rig *rig, struct engram_step_row *rows_out)
{
    struct steps steps = {.rig = rig};
    bool is_fine = steps_open(&steps);

    for (enum engram_way way = ENGRAM_PINNED; is_fine && way < ENGRAM_WAY_COUNT; way++)
        is_fine = way_measure(&steps, way, &rows_out);
    engram_stream_close(&steps.stream);
    free(steps.times_ns);
    return is_fine;
}
