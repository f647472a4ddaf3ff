/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plan.h - strided runs by chance, and where the bytes of a block lie in them, computed piece
 * by piece from what layouts.h says, for tests to hold the store against.
 *
 * A plan is made for an area that begins at 0, and then placed where that lies. What the area holds
 * is kept in host memory of the test: the area itself, or a copy of it.
 */
#ifndef KVT_TESTS_RUN_PLAN_H
#define KVT_TESTS_RUN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"
#include "rng.h"

enum {
    PLAN_RUNS_MAX = 6,
    PLAN_GAPS_MAX = 4096, /* Bytes of a slot at most that are none of its block's. */
};

struct run_plan {
    struct kvt_run runs[PLAN_RUNS_MAX];
    uint32_t run_count;
    uint32_t slot_count;
    uint64_t block_bytes;
    uint64_t area_bytes; /* At most slot_count * (block_bytes + PLAN_GAPS_MAX). */
    uintptr_t base;
};

/* run_plan_make - runs for blocks of that length; every other plan has its slots side by side for
 * each piece, as a paged pool, the others slot behind slot. */
void run_plan_make(
    struct run_plan *plan, struct rng *rng, uint64_t block_bytes, uint32_t slot_count);
/* run_plan_place - the area begins there; region {0}: none. */
void run_plan_place(struct run_plan *plan, const void *base, kvt_region region);

/* Some bytes of the block in one slot. */
struct run_plan_range {
    uint32_t slot;
    uint64_t offset, length;
};

/* run_plan_store - from `bytes` to the area (or its copy); run_plan_load: back. */
void run_plan_store(const struct run_plan *plan, const struct run_plan_range *range, uint8_t *area,
    const uint8_t *bytes);
void run_plan_load(const struct run_plan *plan, const struct run_plan_range *range,
    const uint8_t *area, uint8_t *bytes);
/* run_plan_is_clean - whatever is not of the range still is `filler`. */
bool run_plan_is_clean(const struct run_plan *plan, const struct run_plan_range *range,
    const uint8_t *area, uint8_t filler);

/* run_plan_register - as a layout. The call's status. */
enum kvt_status run_plan_register(
    const struct run_plan *plan, kvt_store *store, kvt_layout *layout_out);

#endif /* KVT_TESTS_RUN_PLAN_H */
