/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_replay.c - recorded traces through a whole store, and through the simulator of policies
 * (bench/sim/): both must hit the same.
 *
 * The store lives in the simulated world, whose clock follows the trace: one request at a time, in
 * the order of their times, and before the next one everything that it set going has ended. A
 * request looks its chain up with a lease and releases it, which is what the policy hears of; then
 * it has its hits brought to HBM, and puts what was missing there.
 *
 * The simulator's tiers are as large as the store's, in blocks, with what the store does otherwise
 * than a policy would: HBM is emptied to 90 % whenever it is above 95 %, NVMe is reclaimed by
 * segments, and HOST gives up copies as the policy says, not those of the last request first.
 *
 * By hand, of a whole trace: model_replay TRACE POLICY [REQUESTS]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/regions.h"
#include "sim_run.h"
#include "sim_store.h"
#include "store_internal.h"

enum {
    BLOCK_BYTES = 16384,
    TICK_SHIFT = 26, /* Of the policies: 67 ms. */
    AGENT_REQUESTS = 500,
    SEGMENT_BYTES = 4 << 20,
    SEGMENT_BLOCKS = 248, /* Of its 256, in the mean: headers take the rest. */
};

/* The simulator's trace begins then (sim_production.c): the ticks of both begin together. */
#define TRACE_START_NS UINT64_C(1000000000)

static const uint64_t patience_ns = UINT64_C(3600) * 1000000000;

struct replay {
    struct trace trace;
    struct chains chains;
    struct sim_store sim;
    kvt_namespace ns;
    kvt_region region;
    uint8_t *memory; /* What every block is made of. */
    uint64_t start_ns;
    uint32_t capacities[SIM_PLACE_COUNT];
    struct sim_totals totals;
    double segment_blocks;  /* What a segment took before it was full, in the mean. */
    double rewritten_share; /* Blocks that were written again, of those that were admitted. */
    /* Of the chain that is replayed. */
    uint32_t numbers[TRACE_CHAIN_MAX];
    struct kvt_key keys[TRACE_CHAIN_MAX];
    struct kvt_key raised[TRACE_CHAIN_MAX];
    struct kvt_put puts[TRACE_CHAIN_MAX];
    uint8_t tiers[TRACE_CHAIN_MAX];
};

/* --- The store -------------------------------------------------------------------------------- */

static void
store_make(struct replay *replay, uint32_t policy)
{
    const struct sim_options world_options = {
        .seed = 5, .align_bytes = 512, .latency_ns_max = 6000};
    struct sim_store *sim = &replay->sim;
    uint64_t block_count = replay->chains.block_count;
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.hbm_capacity_bytes = (block_count * 2 / 100) * BLOCK_BYTES;
    options.host_capacity_bytes = (block_count * 5 / 100) * BLOCK_BYTES;
    options.nvme_capacity_bytes = (block_count * 30 / 100) * BLOCK_BYTES;
    options.segment_bytes = SEGMENT_BYTES;
    options.block_bytes_max = BLOCK_BYTES;
    options.index_map_bytes = 64 << 20;
    options.entry_count_max = block_count + 1;
    options.host_high_percent = options.host_low_percent = 100;
    options.nvme_high_percent = 97;
    options.dirty_bytes_max = options.host_capacity_bytes;
    options.worker_count = 1;
    options.policy = policy;
    memset(sim, 0, sizeof(*sim));
    sim->world = sim_world_create(&world_options);
    sim->env = *sim_env(sim->world);
    sim->env.device = &device_host_ops;
    sim->env.device_context = &sim->device;
    sim->device.seed = 5;
    sim->store_world = (struct store_world){
        .env = &sim->env, .index_ops = &sim_index_ops, .index_context = sim->world};
    sim->options = options;
    sim_store_reopen(sim);
    assert_int_equal(kvt_namespace_open(sim->store, "replay", "", 0, &replay->ns), KVT_OK);
}

static void
memory_register(struct replay *replay)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = BLOCK_BYTES};

    replay->memory = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
    assert_non_null(replay->memory);
    memset(replay->memory, 0x5A, BLOCK_BYTES);
    about.address = replay->memory;
    assert_int_equal(kvt_region_register(replay->sim.store, &about, &replay->region), KVT_OK);
}

/* The simulator has tiers of the same size. */
static void
capacities_take(struct replay *replay)
{
    struct kvt_store *store = replay->sim.store;

    replay->capacities[SIM_HBM] =
        (uint32_t)(slab_capacity(place_slab(store, POLICY_HBM)) / BLOCK_BYTES) * 95 / 100;
    replay->capacities[SIM_HOST] =
        (uint32_t)(slab_capacity(place_slab(store, POLICY_HOST)) / BLOCK_BYTES);
    replay->capacities[SIM_NVME] =
        (uint32_t)(replay->sim.options.nvme_capacity_bytes / SEGMENT_BYTES) * SEGMENT_BLOCKS;
}

static bool
is_at_rest(void *context)
{
    struct kvt_store *store = context;

    return inbox_is_empty(&store->messages) && !store->room_changed && commit_is_idle(store) &&
           reclaim_is_idle(store) && !work_is_in_flight(store) && !room_is_wanted(store);
}

static void
store_settle(struct replay *replay)
{
    assert_int_equal(sim_run(replay->sim.world, is_at_rest, replay->sim.store,
                         sim_now(replay->sim.world) + patience_ns),
        SIM_DONE);
}

/* --- One request ------------------------------------------------------------------------------ */

static void
clock_follow(struct replay *replay, const struct chain *chain)
{
    uint64_t due_ns = replay->start_ns + chain->now_ns;

    if (sim_now(replay->sim.world) < due_ns)
        (void)sim_run(replay->sim.world, NULL, NULL, due_ns);
}

static void
keys_make(struct replay *replay, const struct chain *chain)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        replay->numbers[i] = chain->blocks[i];
        replay->keys[i] =
            (struct kvt_key){.bytes = &replay->numbers[i], .length = sizeof(replay->numbers[i])};
    }
}

static void
hits_note(struct replay *replay, const struct chain *chain, uint32_t hit_count)
{
    struct sim_totals *totals = &replay->totals;
    uint64_t tokens = (uint64_t)hit_count * TRACE_BLOCK_TOKENS;

    totals->request_count++;
    totals->block_count += chain->count;
    totals->input_tokens += chain->tokens;
    totals->saved_tokens += tokens < chain->tokens ? tokens : chain->tokens;
    for (uint32_t i = 0; i < hit_count; i++)
        totals->hits[(replay->tiers[i] & KVT_TIER_HBM) != 0    ? SIM_HBM
                     : (replay->tiers[i] & KVT_TIER_HOST) != 0 ? SIM_HOST
                                                               : SIM_NVME]++;
}

/* What does not find room beside the rest of its request stays below. */
static void
hits_raise(struct replay *replay, uint32_t hit_count)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    uint32_t count = 0;
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < hit_count; i++) {
        if ((replay->tiers[i] & KVT_TIER_HBM) == 0)
            replay->raised[count++] = replay->keys[i];
    }
    if (count == 0)
        return;
    assert_int_equal(kvt_prefetch_submit(
                         replay->sim.store, replay->ns, replay->raised, count, &how, NULL, &ticket),
        KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static void
missing_put(struct replay *replay, const struct chain *chain, uint32_t hit_count)
{
    uint32_t count = chain->count - hit_count;
    kvt_ticket *ticket;

    if (count == 0)
        return;
    for (uint32_t i = hit_count; i < chain->count; i++)
        replay->puts[i - hit_count] = (struct kvt_put){
            .key = replay->keys[i],
            .parent = i == 0 ? NULL : &replay->keys[i - 1],
            .source = replay->memory,
            .region = replay->region,
            .length = BLOCK_BYTES,
            .depth = i,
            .token_start = i * TRACE_BLOCK_TOKENS,
            .token_count = TRACE_BLOCK_TOKENS,
            .recompute_us = 18000 + 300 * i,
            .tier = KVT_TIER_HBM,
        };
    assert_int_equal(kvt_put_submit(replay->sim.store, replay->ns, replay->puts, count, KVT_MEMORY,
                         NULL, &ticket),
        KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

/* What had stayed on NVMe when blocks before it left is not brought up by its put. */
static void
exists_raise(struct replay *replay, const struct chain *chain, uint32_t hit_count)
{
    if (hit_count == chain->count)
        return;
    assert_int_equal(kvt_lookup(replay->sim.store, replay->ns, replay->keys, chain->count,
                         replay->tiers, NULL, NULL),
        KVT_OK);
    for (uint32_t i = 0; i < chain->count; i++) {
        if (i < hit_count || replay->tiers[i] != KVT_TIER_NVME)
            replay->tiers[i] = KVT_TIER_HBM;
    }
    hits_raise(replay, chain->count);
}

static void
request_replay(struct replay *replay, const struct chain *chain)
{
    uint32_t hit_count = 0;
    kvt_lease lease;

    clock_follow(replay, chain);
    keys_make(replay, chain);
    if (chain->count == 0)
        return;
    assert_int_equal(kvt_lookup(replay->sim.store, replay->ns, replay->keys, chain->count,
                         replay->tiers, &hit_count, &lease),
        KVT_OK);
    hits_note(replay, chain, hit_count);
    kvt_lease_release(replay->sim.store, lease);
    store_settle(replay);
    hits_raise(replay, hit_count);
    store_settle(replay);
    missing_put(replay, chain, hit_count);
    store_settle(replay);
    exists_raise(replay, chain, hit_count);
    store_settle(replay);
}

/* --- Runs ------------------------------------------------------------------------------------- */

static struct replay *
replay_open(const char *name, uint32_t request_count)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    char message[TRACE_MESSAGE_BYTES];
    char path[4096];

    assert_non_null(replay);
    snprintf(path, sizeof(path), "%s/%s.jsonl.zst", KVT_TRACE_FOLDER, name);
    if (!trace_load(&replay->trace, path, message))
        fail_msg("%s", message);
    if (replay->trace.request_count > request_count)
        replay->trace.request_count = request_count;
    assert_true(chains_create(&replay->chains, &replay->trace, message));
    return replay;
}

static void
replay_close(struct replay *replay)
{
    assert_int_equal(kvt_region_unregister(replay->sim.store, replay->region), KVT_OK);
    sim_store_close(&replay->sim);
    chains_destroy(&replay->chains);
    trace_free(&replay->trace);
    free(replay->memory);
    free(replay);
}

/* Blocks that were written, of each segment that was filled; one that is being filled counts as the
 * part of one that is full. */
static double
segment_blocks_mean(struct kvt_store *store)
{
    uint32_t count = (uint32_t)(store->options.nvme_capacity_bytes / SEGMENT_BYTES);
    double filled = (double)atomic_load(&store->counters.segment_recycle_count);
    double blocks = (double)atomic_load(&store->counters.durable_count) +
                    (double)atomic_load(&store->counters.nvme_relocate_count);

    for (uint32_t i = 0; i < count; i++) {
        const struct segment *segment = segment_at(store->segments, i);

        if (segment->state == SEGMENT_SEALED)
            filled++;
        else if (segment->state == SEGMENT_ACTIVE)
            filled += (double)segment->fill_page / store->file.segment_pages;
    }
    return filled == 0 ? 0 : blocks / filled;
}

static void
replay_run(struct replay *replay, uint32_t policy)
{
    uint64_t tick_ns = UINT64_C(1) << TICK_SHIFT;

    store_make(replay, policy);
    memory_register(replay);
    capacities_take(replay);
    replay->start_ns = TRACE_START_NS % tick_ns;
    while (replay->start_ns < sim_now(replay->sim.world))
        replay->start_ns += tick_ns;
    for (uint32_t i = 0; i < replay->chains.request_count; i++) {
        struct chain chain = chains_at(&replay->chains, i);

        request_replay(replay, &chain);
    }
    replay->segment_blocks = segment_blocks_mean(replay->sim.store);
    replay->rewritten_share =
        (double)atomic_load(&replay->sim.store->counters.nvme_relocate_count) /
        (double)atomic_load(&replay->sim.store->counters.durable_count);
}

static struct sim_totals
simulate(const struct replay *replay, const struct sim_policy_ops *policy)
{
    struct sim_totals totals;
    struct sim_plan plan = {
        .chains = &replay->chains,
        .policy = policy,
        .costs = {.host_load_ms = 1.34,
            .nvme_load_ms = 6.7,
            .recompute_ms = 18,
            .recompute_depth_ms = 0.3},
        .block_tokens = TRACE_BLOCK_TOKENS,
        .segment_blocks = SEGMENT_BLOCKS,
        .keeps_doubles = true,
        .hbm_low_percent = 95, /* Of what it may hold, which is 95 % itself. */
    };

    memcpy(plan.capacities, replay->capacities, sizeof(plan.capacities));
    assert_true(sim_plan_run(&plan, &totals));
    return totals;
}

/* Percent: of all tokens (SIM_PLACE_COUNT), or of all blocks from that tier. */
static double
hits_percent(const struct sim_totals *totals, unsigned place)
{
    if (place == SIM_PLACE_COUNT)
        return 100.0 * (double)totals->saved_tokens / (double)totals->input_tokens;
    return 100.0 * (double)totals->hits[place] / (double)totals->block_count;
}

static void
line_print(const char *who, const struct sim_totals *totals)
{
    printf("%-10s  tokens %6.2f  hbm %6.2f  host %6.2f  nvme %6.2f\n", who,
        hits_percent(totals, SIM_PLACE_COUNT), hits_percent(totals, SIM_HBM),
        hits_percent(totals, SIM_HOST), hits_percent(totals, SIM_NVME));
}

/* What both hit. */
struct figures {
    struct sim_totals store, simulator;
    double segment_blocks;
};

static struct figures
compare(const char *name, const char *policy, uint32_t request_count)
{
    bool is_lru = strcmp(policy, "lru") == 0;
    struct replay *replay = replay_open(name, request_count);
    struct figures figures;

    replay_run(replay, is_lru ? KVT_POLICY_LRU : KVT_POLICY_GHI);
    figures.store = replay->totals;
    figures.segment_blocks = replay->segment_blocks;
    figures.simulator = simulate(replay, is_lru ? &sim_lru_ops : &sim_default_ops);
    printf("%s, %s: %u requests, %llu accesses, %u unique; %u, %u, %u blocks\n", name, policy,
        replay->chains.request_count, (unsigned long long)replay->totals.block_count,
        replay->chains.block_count, replay->capacities[SIM_HBM], replay->capacities[SIM_HOST],
        replay->capacities[SIM_NVME]);
    line_print("store", &figures.store);
    printf("%-10s  %.1f blocks a segment, %.3f written again for each\n", "",
        replay->segment_blocks, replay->rewritten_share);
    line_print("simulator", &figures.simulator);
    replay_close(replay);
    return figures;
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void
are_near(const struct figures *figures, unsigned place, double points)
{
    double difference =
        hits_percent(&figures->store, place) - hits_percent(&figures->simulator, place);

    if (difference > points || difference < -points)
        fail_msg("the store's hits of tier %u differ by %.2f points", place, difference);
}

/* A segment's end is filled, too. */
static void
segments_are_full(const struct figures *figures)
{
    if (figures->segment_blocks < SEGMENT_BLOCKS - 2)
        fail_msg("a segment took %.1f blocks, the simulator's %d", figures->segment_blocks,
            SEGMENT_BLOCKS);
}

static void
lru_hits_in_the_store_what_it_hits_in_the_simulator(void **state)
{
    struct figures figures = compare("conversation_h1", "lru", UINT32_MAX);

    (void)state;
    segments_are_full(&figures);
    for (unsigned place = SIM_HBM; place <= SIM_PLACE_COUNT; place++)
        are_near(&figures, place, 1);
}

/* HOST keeps more copies of what is in HBM than the simulator does: bench/results/policy/replay.txt
 * has the figures. All that is hit, and what HBM does, is the same. */
static void
ghi_hits_in_the_store_what_it_hits_in_the_simulator(void **state)
{
    struct figures figures = compare("conversation_h1", "default", UINT32_MAX);

    (void)state;
    segments_are_full(&figures);
    are_near(&figures, SIM_HBM, 1);
    are_near(&figures, SIM_PLACE_COUNT, 1);
    are_near(&figures, SIM_HOST, 3);
}

/* A request larger than HBM and HOST together left HOST with ancestors only: what was lowered to
 * make room in HBM was given up in HOST for the next that was lowered, for ever. */
static void
requests_larger_than_memory_come_to_an_end(void **state)
{
    (void)state;
    (void)compare("agents_dev", "default", AGENT_REQUESTS);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_hits_in_the_store_what_it_hits_in_the_simulator),
        cmocka_unit_test(ghi_hits_in_the_store_what_it_hits_in_the_simulator),
        cmocka_unit_test(requests_larger_than_memory_come_to_an_end),
    };

    if (argc > 2) {
        (void)compare(
            argv[1], argv[2], argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : UINT32_MAX);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
