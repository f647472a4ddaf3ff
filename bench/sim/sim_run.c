/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_run.c - a trace through a simulated store with one policy.
 */
#include "sim_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "progress.h"
#include "sim_segments.h"

enum {
    TICK_SHIFT = 26, /* Of the engine's ticks: 67 ms. */
};

struct run {
    const struct sim_plan *plan;
    struct sim_view view;
    struct sim_copies copies;
    struct sim_policy *policy;
    struct sim_segments *segments; /* NULL: NVMe gives up block by block. */
    struct sim_totals totals;
    uint32_t *lowered_at; /* By block: the request that lowered it to HOST, and one more. */
    uint32_t request;     /* The one that runs. */
    bool is_scored;       /* It counts. */
};

/* --- Copies ----------------------------------------------------------------------------------- */

static bool
copy_add(struct run *run, enum sim_place place, uint32_t block)
{
    sim_copies_add(&run->copies, place, block);
    return run->policy->ops->add(run->policy, place, block);
}

/* The block leaves the store with its last copy. */
static void
copy_remove(struct run *run, enum sim_place place, uint32_t block)
{
    sim_copies_remove(&run->copies, place, block);
    run->policy->ops->remove(run->policy, place, block);
    if (run->copies.places[block] == 0 && run->policy->ops->leave != NULL)
        run->policy->ops->leave(run->policy, block);
}

/* It has children in the store, which would be of no use without it. */
static bool
is_needed(const struct run *run, uint32_t block)
{
    return run->copies.child_counts[(size_t)block * SIM_PLACE_COUNT + SIM_NVME] > 0;
}

/* --- Segments of NVMe ------------------------------------------------------------------------- */

static bool
segment_has_children(void *context, uint32_t block)
{
    return is_needed(context, block);
}

static uint64_t
segment_importance(void *context, uint32_t block)
{
    struct run *run = context;

    if (run->policy->ops->importance == NULL)
        return sim_segments_last_use(run->segments, block);
    return run->policy->ops->importance(run->policy, block);
}

static void
segment_drop(void *context, uint32_t block)
{
    struct run *run = context;

    sim_segments_forget(run->segments, block);
    copy_remove(run, SIM_NVME, block);
}

static void
segment_rewritten(void *context, uint32_t block)
{
    struct run *run = context;

    (void)block;
    run->totals.nvme_rewrite_count += run->is_scored;
}

static bool
segments_open(struct run *run)
{
    const struct sim_plan *plan = run->plan;
    const struct sim_segments_user user = {
        .context = run,
        .has_children = segment_has_children,
        .importance = segment_importance,
        .drop = segment_drop,
        .rewritten = segment_rewritten,
    };

    if (plan->segment_blocks == 0)
        return true;
    run->segments = sim_segments_create(plan->chains,
        plan->capacities[SIM_NVME] / plan->segment_blocks, plan->segment_blocks, &user);
    return run->segments != NULL;
}

/* All blocks of the request were used now. */
static void
segments_use(struct run *run, const struct chain *chain)
{
    for (uint32_t i = 0; run->segments != NULL && i < chain->count; i++)
        sim_segments_use(run->segments, chain->blocks[i], (uint32_t)(chain->now_ns >> TICK_SHIFT));
}

/* --- Trimming --------------------------------------------------------------------------------- */

static bool
is_written(struct run *run, uint32_t block)
{
    const struct sim_policy_ops *ops = run->policy->ops;

    if (run->plan->capacities[SIM_NVME] == 0 || sim_copies_has(&run->copies, SIM_NVME, block))
        return false;
    /* The policy is asked in any case: it may count what is written. */
    return ops->admits == NULL || ops->admits(run->policy, block) || is_needed(run, block);
}

static bool
is_lowered(struct run *run, uint32_t block)
{
    const struct sim_policy_ops *ops = run->policy->ops;

    return ops->lowers == NULL || ops->lowers(run->policy, block) || is_needed(run, block);
}

/* HBM gives a copy up; HOST may have one already. */
static bool
hbm_lower(struct run *run, uint32_t block)
{
    if (!sim_copies_has(&run->copies, SIM_HOST, block) && is_lowered(run, block)) {
        if (!copy_add(run, SIM_HOST, block))
            return false;
        run->lowered_at[block] = run->request + 1;
        run->totals.d2h_count += run->is_scored;
    }
    copy_remove(run, SIM_HBM, block);
    return true;
}

/* HOST gives a copy up. Of a block that came down only now, and goes no further, no bytes have
 * moved: where it ends is decided before the copy starts. */
static bool
host_lower(struct run *run, uint32_t block)
{
    bool is_last = !sim_copies_has(&run->copies, SIM_HBM, block);

    if (is_last && is_written(run, block)) {
        if (run->segments != NULL)
            sim_segments_write(run->segments, block);
        if (!copy_add(run, SIM_NVME, block))
            return false;
        run->totals.nvme_write_count += run->is_scored;
    } else if (is_last && run->lowered_at[block] == run->request + 1) {
        run->totals.d2h_count -= run->is_scored;
    }
    copy_remove(run, SIM_HOST, block);
    return true;
}

/* What the request has just taken to HBM leaves HOST before anything else does. */
static void
host_spare(struct run *run, const struct chain *chain, uint32_t hit_count)
{
    for (uint32_t i = hit_count; i-- > 0;) {
        uint32_t block = chain->blocks[i];

        if (run->copies.counts[SIM_HOST] <= run->plan->capacities[SIM_HOST])
            return;
        if (sim_copies_has(&run->copies, SIM_HOST, block) &&
            sim_copies_has(&run->copies, SIM_HBM, block))
            copy_remove(run, SIM_HOST, block);
    }
}

static bool
place_lower(struct run *run, enum sim_place place, uint32_t block)
{
    switch (place) {
    case SIM_HBM:
        return hbm_lower(run, block);
    case SIM_HOST:
        return host_lower(run, block);
    case SIM_NVME:
    case SIM_PLACE_COUNT:
        break;
    }
    copy_remove(run, SIM_NVME, block);
    return true;
}

/* A block that came back while a child of it had stayed on NVMe may not know of it. */
static bool
may_go(const struct run *run, enum sim_place place, uint32_t block)
{
    return run->segments != NULL || sim_copies_may_go(&run->copies, place, block);
}

/* What a tier that holds too much keeps. */
static uint32_t
low_mark(const struct run *run, enum sim_place place)
{
    uint32_t capacity = run->plan->capacities[place];
    uint32_t percent = run->plan->hbm_low_percent;

    if (place != SIM_HBM || percent == 0 || run->copies.counts[place] <= capacity)
        return capacity;
    return (uint32_t)((uint64_t)capacity * percent / 100);
}

static bool
place_trim(struct run *run, enum sim_place place)
{
    uint32_t kept = low_mark(run, place);

    while (run->copies.counts[place] > kept) {
        uint32_t victim = run->policy->ops->victim(run->policy, place);

        if (victim == BLOCK_NONE && run->copies.pinned != 0)
            break; /* All that is there belongs to the request. */
        if (victim == BLOCK_NONE || !sim_copies_has(&run->copies, place, victim) ||
            !may_go(run, place, victim)) {
            complain("the policy %s names no copy that could go, in request %" PRIu32,
                run->policy->ops->name, run->request + 1);
            return false;
        }
        if (!place_lower(run, place, victim))
            return false;
    }
    return true;
}

/* --- Requests --------------------------------------------------------------------------------- */

static double
recompute_ms(const struct run *run, uint32_t depth)
{
    return run->plan->costs.recompute_ms + run->plan->costs.recompute_depth_ms * depth;
}

/* How many leading blocks are there, counted by the best tier of each. */
static uint32_t
hits_count(struct run *run, const struct chain *chain)
{
    const double load_ms[SIM_PLACE_COUNT] = {
        0, run->plan->costs.host_load_ms, run->plan->costs.nvme_load_ms};
    struct sim_totals *totals = &run->totals;
    uint64_t hit_tokens;
    uint32_t hit_count = 0;

    while (hit_count < chain->count && run->copies.places[chain->blocks[hit_count]] != 0)
        hit_count++;
    totals->access_count += chain->count;
    if (!run->is_scored)
        return hit_count;
    totals->request_count++;
    totals->block_count += chain->count;
    totals->input_tokens += chain->tokens;
    hit_tokens = (uint64_t)hit_count * run->plan->block_tokens;
    totals->saved_tokens += hit_tokens < chain->tokens ? hit_tokens : chain->tokens;
    for (uint32_t i = 0; i < chain->count; i++) {
        unsigned place = (unsigned)__builtin_ctz(run->copies.places[chain->blocks[i]] | 1u << 7);

        totals->recompute_ms += recompute_ms(run, i);
        if (i >= hit_count)
            continue;
        totals->hits[place]++;
        totals->saved_ms += recompute_ms(run, i) - load_ms[place];
    }
    return hit_count;
}

/* What NVMe alone has comes to HOST on its way to HBM, and stays there. */
static bool
block_pass_host(struct run *run, uint32_t block)
{
    return !sim_copies_has(&run->copies, SIM_NVME, block) ||
           sim_copies_has(&run->copies, SIM_HOST, block) || copy_add(run, SIM_HOST, block);
}

/* All of the chain comes to the highest tier. */
static bool
chain_raise(struct run *run, const struct chain *chain)
{
    enum sim_place best = run->plan->capacities[SIM_HBM] > 0 ? SIM_HBM : SIM_HOST;

    for (uint32_t i = 0; i < chain->count; i++) {
        if (sim_copies_has(&run->copies, best, chain->blocks[i]))
            continue;
        if ((best == SIM_HBM && !block_pass_host(run, chain->blocks[i])) ||
            !copy_add(run, best, chain->blocks[i]) ||
            (run->copies.pinned != 0 && !place_trim(run, best)))
            return false;
    }
    sim_copies_unpin(&run->copies);
    return true;
}

static bool
request_run(struct run *run, uint32_t request)
{
    const struct sim_policy_ops *ops = run->policy->ops;
    struct chain chain = chains_at(run->plan->chains, request);
    uint32_t hit_count;

    run->request = request;
    run->is_scored = request >= run->plan->score_from;
    hit_count = hits_count(run, &chain);
    if (ops->has_no_bypass)
        sim_copies_pin(&run->copies, &chain);
    segments_use(run, &chain);
    ops->request(run->policy, &chain, hit_count);
    if (hit_count < chain.count && ops->arrive != NULL &&
        !ops->arrive(run->policy, &chain, hit_count))
        return false;
    if (!chain_raise(run, &chain))
        return false;
    if (run->plan->capacities[SIM_HBM] > 0 && !place_trim(run, SIM_HBM))
        return false;
    if (!run->plan->keeps_doubles)
        host_spare(run, &chain, hit_count);
    if (!place_trim(run, SIM_HOST) || (run->plan->capacities[SIM_NVME] > 0 &&
                                          run->segments == NULL && !place_trim(run, SIM_NVME)))
        return false;
    if (run->plan->look != NULL)
        run->plan->look(run->plan->look_context, &run->copies, &chain);
    return true;
}

/* --- Runs ------------------------------------------------------------------------------------- */

static bool
run_open(struct run *run, const struct sim_plan *plan)
{
    run->plan = plan;
    run->view = (struct sim_view){
        .chains = plan->chains,
        .copies = &run->copies,
        .costs = plan->costs,
        .block_tokens = plan->block_tokens,
        .hints = plan->hints,
        .has_segments = plan->segment_blocks > 0,
    };
    memcpy(run->view.capacities, plan->capacities, sizeof(plan->capacities));
    run->lowered_at = calloc((size_t)plan->chains->block_count + 1, sizeof(*run->lowered_at));
    if (run->lowered_at == NULL || !sim_copies_create(&run->copies, plan->chains)) {
        complain("there is no memory to simulate %" PRIu32 " blocks", plan->chains->block_count);
        return false;
    }
    return segments_open(run) && plan->policy->open(&run->view, &run->policy);
}

static void
run_close(struct run *run)
{
    if (run->policy != NULL)
        run->policy->ops->close(run->policy);
    sim_segments_destroy(run->segments);
    sim_copies_destroy(&run->copies);
    free(run->lowered_at);
}

bool
sim_plan_run(const struct sim_plan *plan, struct sim_totals *totals_out)
{
    struct run run = {0};
    bool is_fine = run_open(&run, plan);
    double start = clock_seconds();

    for (uint32_t i = 0; is_fine && i < plan->chains->request_count; i++)
        is_fine = request_run(&run, i);
    run.totals.elapsed_seconds = clock_seconds() - start;
    run_close(&run);
    *totals_out = run.totals;
    return is_fine;
}
