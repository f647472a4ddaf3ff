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
plan_make(struct run_plan *plan, struct rng *rng, uint64_t block_bytes, uint32_t slot_count)
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
plan_place(struct run_plan *plan, const void *base, kvt_region region)
{
    for (uint32_t i = 0; i < plan->run_count; i++) {
        plan->runs[i].address =
            (void *)((uintptr_t)plan->runs[i].address - plan->base + (uintptr_t)base);
        plan->runs[i].region = region;
    }
    plan->base = (uintptr_t)base;
}

enum kvt_status
plan_register(const struct run_plan *plan, kvt_store *store, kvt_layout *layout_out)
{
    const struct kvt_layout_options options = {.struct_size = sizeof(options),
        .run_count = plan->run_count,
        .runs = plan->runs,
        .slot_count = plan->slot_count};

    return kvt_layout_register(store, &options, layout_out);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Where in the area the piece lies. */
static uint64_t
piece_at(const struct run_plan *plan, uint32_t slot, uint32_t run, uint32_t piece)
{
    const struct kvt_run *about = &plan->runs[run];

    return (uintptr_t)about->address - plan->base + slot * about->slot_stride +
           piece * about->piece_stride;
}

/* For every byte of the range: its place in the area, to `places`. */
static uint64_t *
places_of(const struct run_plan *plan, const struct plan_range *range)
{
    uint64_t *places = calloc((size_t)range->length + 1, sizeof(*places));
    uint64_t at = 0; /* In the block. */

    if (places == NULL)
        abort();
    for (uint32_t run = 0; run < plan->run_count; run++) {
        for (uint32_t piece = 0; piece < plan->runs[run].piece_count; piece++) {
            for (uint64_t i = 0; i < plan->runs[run].piece_bytes; i++, at++) {
                if (at >= range->offset && at - range->offset < range->length)
                    places[at - range->offset] = piece_at(plan, range->slot, run, piece) + i;
            }
        }
    }
    return places;
}

void
plan_store(const struct run_plan *plan, const struct plan_range *range, uint8_t *area,
    const uint8_t *bytes)
{
    uint64_t *places = places_of(plan, range);

    for (uint64_t i = 0; i < range->length; i++)
        area[places[i]] = bytes[i];
    free(places);
}

void
plan_load(const struct run_plan *plan, const struct plan_range *range, const uint8_t *area,
    uint8_t *bytes)
{
    uint64_t *places = places_of(plan, range);

    for (uint64_t i = 0; i < range->length; i++)
        bytes[i] = area[places[i]];
    free(places);
}

bool
plan_is_clean(const struct run_plan *plan, const struct plan_range *range, const uint8_t *area,
    uint8_t filler)
{
    uint64_t *places = places_of(plan, range);
    uint8_t *copy = malloc((size_t)plan->area_bytes);
    bool is_clean = true;

    if (copy == NULL)
        abort();
    memcpy(copy, area, (size_t)plan->area_bytes);
    for (uint64_t i = 0; i < range->length; i++)
        copy[places[i]] = filler;
    for (uint64_t i = 0; i < plan->area_bytes && is_clean; i++)
        is_clean = copy[i] == filler;
    free(copy);
    free(places);
    return is_clean;
}
