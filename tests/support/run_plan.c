/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plan.c - strided runs by chance (run_plan.h).
 */
#include "run_plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    GAP_MAX = 40,
    PIECES_MAX = 6, /* Of a run. */
};

/* --- Making ----------------------------------------------------------------------------------- */

static uint32_t
gap_choose(struct rng *rng)
{
    return rng_below(rng, 2) == 0 ? 0 : 1 + rng_below(rng, GAP_MAX);
}

/* How many pieces of which size, without places. */
static void
sizes_choose(struct run_plan *plan, struct rng *rng)
{
    uint64_t left = plan->block_bytes;

    while (left > 0) {
        struct kvt_run *run = &plan->runs[plan->run_count++];

        run->piece_count = 1 + rng_below(rng, PIECES_MAX);
        run->piece_bytes = left / run->piece_count;
        if (plan->run_count == PLAN_RUNS_MAX || run->piece_bytes == 0) {
            run->piece_count = 1;
            run->piece_bytes = left;
        } else if (rng_below(rng, 3) > 0) {
            run->piece_bytes = 1 + rng_below(rng, (uint32_t)run->piece_bytes);
        }
        left -= run->piece_count * run->piece_bytes;
    }
}

/* Each run has a stretch of its own; in it the slots of a piece lie side by side. */
static uint64_t
run_place_paged(struct run_plan *plan, struct kvt_run *run, struct rng *rng)
{
    run->slot_stride = run->piece_bytes + gap_choose(rng);
    run->piece_stride = plan->slot_count * run->slot_stride + gap_choose(rng);
    return run->piece_count * run->piece_stride;
}

/* Each run has a stretch in every slot. */
static uint64_t
run_place_behind(struct kvt_run *run, struct rng *rng)
{
    run->piece_stride = run->piece_bytes + gap_choose(rng);
    return run->piece_count * run->piece_stride;
}

void
run_plan_make(struct run_plan *plan, struct rng *rng, uint64_t block_bytes, uint32_t slot_count)
{
    bool is_paged = rng_below(rng, 2) == 0;
    bool is_backwards = rng_below(rng, 2) == 0;
    uint64_t end = 0;

    *plan = (struct run_plan){.slot_count = slot_count, .block_bytes = block_bytes};
    sizes_choose(plan, rng);
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct kvt_run *run = &plan->runs[is_backwards ? plan->run_count - 1 - i : i];
        uint64_t size = is_paged ? run_place_paged(plan, run, rng) : run_place_behind(run, rng);

        run->address = (void *)(uintptr_t)end;
        end += size;
    }
    for (uint32_t i = 0; i < plan->run_count && !is_paged; i++)
        plan->runs[i].slot_stride = end;
    plan->area_bytes = is_paged ? end : slot_count * end;
    if (plan->area_bytes > slot_count * (block_bytes + PLAN_GAPS_MAX))
        abort();
}

void
run_plan_place(struct run_plan *plan, const void *base, kvt_region region)
{
    for (uint32_t i = 0; i < plan->run_count; i++) {
        plan->runs[i].address =
            (void *)((uintptr_t)plan->runs[i].address - plan->base + (uintptr_t)base);
        plan->runs[i].region = region;
    }
    plan->base = (uintptr_t)base;
}

enum kvt_status
run_plan_register(const struct run_plan *plan, kvt_store *store, kvt_layout *layout_out)
{
    const struct kvt_layout_options options = {.struct_size = sizeof(options),
        .run_count = plan->run_count,
        .runs = plan->runs,
        .slot_count = plan->slot_count};

    return kvt_layout_register(store, &options, layout_out);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Bytes of one piece that belong to a range. */
struct part {
    uint64_t area, range; /* Where they begin. */
    uint64_t length;      /* 0: none do. */
};

/* `at`: where the piece begins in the block. */
static struct part
part_of(const struct run_plan *plan, const struct run_plan_range *range, const struct kvt_run *run,
    uint32_t piece, uint64_t at)
{
    uint64_t begin = at > range->offset ? at : range->offset;
    uint64_t end = at + run->piece_bytes;
    struct part part = {.length = 0};

    if (end > range->offset + range->length)
        end = range->offset + range->length;
    if (begin >= end)
        return part;
    part.area = (uintptr_t)run->address - plan->base + range->slot * run->slot_stride +
                piece * run->piece_stride + (begin - at);
    part.range = begin - range->offset;
    part.length = end - begin;
    return part;
}

/* Calls `visit` for the pieces of the range, in their order. */
static void
parts_visit(const struct run_plan *plan, const struct run_plan_range *range,
    void (*visit)(const struct part *part, uint8_t *area, uint8_t *bytes), uint8_t *area,
    uint8_t *bytes)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < plan->run_count; i++) {
        const struct kvt_run *run = &plan->runs[i];

        for (uint32_t piece = 0; piece < run->piece_count; piece++, at += run->piece_bytes) {
            struct part part = part_of(plan, range, run, piece, at);

            if (part.length > 0)
                visit(&part, area, bytes);
        }
    }
}

static void
part_store(const struct part *part, uint8_t *area, uint8_t *bytes)
{
    memcpy(area + part->area, bytes + part->range, (size_t)part->length);
}

static void
part_load(const struct part *part, uint8_t *area, uint8_t *bytes)
{
    memcpy(bytes + part->range, area + part->area, (size_t)part->length);
}

/* `bytes`: the filler. */
static void
part_clear(const struct part *part, uint8_t *area, uint8_t *bytes)
{
    memset(area + part->area, *bytes, (size_t)part->length);
}

void
run_plan_store(const struct run_plan *plan, const struct run_plan_range *range, uint8_t *area,
    const uint8_t *bytes)
{
    parts_visit(plan, range, part_store, area, (uint8_t *)(uintptr_t)bytes);
}

void
run_plan_load(const struct run_plan *plan, const struct run_plan_range *range, const uint8_t *area,
    uint8_t *bytes)
{
    parts_visit(plan, range, part_load, (uint8_t *)(uintptr_t)area, bytes);
}

bool
run_plan_is_clean(const struct run_plan *plan, const struct run_plan_range *range,
    const uint8_t *area, uint8_t filler)
{
    uint8_t *copy = malloc((size_t)plan->area_bytes);
    bool is_clean;

    if (copy == NULL)
        abort();
    memcpy(copy, area, (size_t)plan->area_bytes);
    parts_visit(plan, range, part_clear, copy, &filler);
    is_clean = copy[0] == filler && memcmp(copy, copy + 1, (size_t)plan->area_bytes - 1) == 0;
    free(copy);
    return is_clean;
}
