/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_sim.c - the policy simulator (bench/sim/) against what must hold of any policy, against an
 * exhaustive search, and against figures that were measured with another program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"
#include "sim_run.h"
#include "stop_on_proof.h"

enum {
    BLOCKS_MAX = 64,
    REQUESTS_MAX = 300,
    TINY_BLOCKS = 8,
    TINY_REQUESTS = 9,
    ROUNDS_TINY = 400,
    ROUNDS_SMALL = 12,
};

static const struct sim_policy_ops *const all[] = {&sim_lru_ops, &sim_s3fifo_ops, &sim_default_ops,
    &sim_lfu_ops, &sim_sieve_ops, &sim_arc_ops, &sim_gdsf_ops, &sim_two_queue_ops, &sim_lfuda_ops,
    &sim_min_ops};

#define POLICY_COUNT (sizeof(all) / sizeof(all[0]))

/* --- Traces without a file -------------------------------------------------------------------- */

/* A random forest, and requests for random paths in it from a root down. */
struct forest {
    struct trace trace;
    struct chains chains;
    struct trace_request requests[REQUESTS_MAX];
    uint64_t ids[REQUESTS_MAX * BLOCKS_MAX];
    uint32_t parents[BLOCKS_MAX];
    uint32_t ends[REQUESTS_MAX]; /* The last block of each request. */
};

/* Appends the path down to `block`. */
static void
path_append(struct forest *forest, uint32_t block)
{
    if (forest->parents[block] != BLOCK_NONE)
        path_append(forest, forest->parents[block]);
    forest->ids[forest->trace.id_count++] = 1000 + block;
}

static void
forest_grow(struct forest *forest, uint64_t seed, uint32_t block_count, uint32_t request_count)
{
    struct rng rng = {.state = seed};
    bool is_used[BLOCKS_MAX] = {false};
    char message[TRACE_MESSAGE_BYTES];

    memset(forest, 0, sizeof(*forest));
    forest->trace.requests = forest->requests;
    forest->trace.ids = forest->ids;
    for (uint32_t block = 0; block < block_count; block++) {
        uint32_t parent = rng_below(&rng, block + 1);

        forest->parents[block] = parent == block ? BLOCK_NONE : parent;
    }
    for (uint32_t i = 0; i < request_count; i++) {
        struct trace_request *request = &forest->requests[forest->trace.request_count++];

        forest->ends[i] = rng_below(&rng, block_count);
        request->timestamp_ms = i * 1000u;
        request->id_start = forest->trace.id_count;
        path_append(forest, forest->ends[i]);
        request->id_count = (uint32_t)(forest->trace.id_count - request->id_start);
        request->input_length = (uint64_t)request->id_count * TRACE_BLOCK_TOKENS;
        for (uint32_t b = forest->ends[i]; b != BLOCK_NONE && !is_used[b]; b = forest->parents[b]) {
            is_used[b] = true;
            forest->trace.unique_count++;
        }
    }
    assert_true(chains_create(&forest->chains, &forest->trace, message));
    assert_int_equal(forest->chains.block_count, forest->trace.unique_count);
}

/* --- Runs ------------------------------------------------------------------------------------- */

static uint64_t
hits_of(const struct sim_totals *totals)
{
    return totals->hits[SIM_HBM] + totals->hits[SIM_HOST] + totals->hits[SIM_NVME];
}

/* No tier holds more than it can, and no child is better off than its parent. */
static void
store_check(void *context, const struct sim_copies *copies, const struct chain *chain)
{
    const struct sim_plan *plan = context;
    uint32_t counts[SIM_PLACE_COUNT] = {0};

    (void)chain;
    for (uint32_t block = 0; block < copies->chains->block_count; block++) {
        uint32_t parent = copies->chains->parents[block];
        unsigned places = copies->places[block];

        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++)
            counts[place] += (places & 1u << place) != 0;
        if (places == 0 || parent == BLOCK_NONE || plan->segment_blocks > 0)
            continue;
        assert_int_not_equal(copies->places[parent], 0);
        assert_true(__builtin_ctz(copies->places[parent]) <= __builtin_ctz(places));
    }
    for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
        assert_int_equal(counts[place], copies->counts[place]);
        assert_true(counts[place] <= plan->capacities[place]);
    }
}

/* With the checks that go over every block after every request, or without. */
static struct sim_totals
run(struct sim_plan *plan, bool is_checked)
{
    struct sim_totals totals;

    plan->costs = (struct sim_costs){.host_load_ms = 1.34,
        .nvme_load_ms = 6.7,
        .recompute_ms = 18,
        .recompute_depth_ms = 0.3,
        .write_price_ms = plan->costs.write_price_ms};
    plan->block_tokens = TRACE_BLOCK_TOKENS;
    if (is_checked) {
        plan->look = store_check;
        plan->look_context = plan;
    }
    assert_true(sim_plan_run(plan, &totals));
    return totals;
}

static struct sim_totals
run_one_tier(const struct chains *chains, const struct sim_policy_ops *policy, uint32_t capacity)
{
    struct sim_plan plan = {
        .chains = chains, .policy = policy, .capacities = {[SIM_HOST] = capacity}};

    return run(&plan, chains->block_count <= BLOCKS_MAX);
}

/* --- Against an exhaustive search ------------------------------------------------------------- */

/* The most hits that any choice of what stays behind each request allows. */
static uint32_t
best_hits(const struct forest *forest, uint32_t block_count, uint32_t capacity)
{
    int32_t best[1 << TINY_BLOCKS], next[1 << TINY_BLOCKS];
    uint32_t set_count = 1u << block_count;
    int32_t most = 0;

    memset(best, 0xFF, sizeof(best)); /* -1: such a set cannot be there. */
    best[0] = 0;
    for (uint32_t i = 0; i < forest->trace.request_count; i++) {
        const struct trace_request *request = &forest->requests[i];
        uint32_t asked = 0;

        memset(next, 0xFF, sizeof(next));
        for (uint32_t at = 0; at < request->id_count; at++)
            asked |= 1u << (forest->ids[request->id_start + at] - 1000);
        for (uint32_t set = 0; set < set_count; set++) {
            uint32_t hits = 0, there = set | asked;

            if (best[set] < 0)
                continue;
            while (hits < request->id_count &&
                   (set >> (forest->ids[request->id_start + hits] - 1000) & 1u) != 0)
                hits++;
            for (uint32_t kept = there;; kept = (kept - 1) & there) {
                if ((uint32_t)__builtin_popcount(kept) <= capacity &&
                    best[set] + (int32_t)hits > next[kept])
                    next[kept] = best[set] + (int32_t)hits;
                if (kept == 0)
                    break;
            }
        }
        memcpy(best, next, sizeof(best));
    }
    for (uint32_t set = 0; set < set_count; set++)
        most = best[set] > most ? best[set] : most;
    return (uint32_t)most;
}

static void
min_has_as_many_hits_as_an_exhaustive_search_finds(void **state)
{
    static struct forest forest;
    uint64_t hits = 0;

    (void)state;
    for (uint32_t round = 0; round < ROUNDS_TINY; round++) {
        uint32_t block_count = 3 + round % (TINY_BLOCKS - 2);
        uint32_t capacity = 1 + round / 7 % (block_count - 1);
        struct sim_totals totals;

        forest_grow(&forest, round, block_count, TINY_REQUESTS);
        totals = run_one_tier(&forest.chains, &sim_min_ops, capacity);
        assert_int_equal(hits_of(&totals), best_hits(&forest, block_count, capacity));
        hits += hits_of(&totals);
        chains_destroy(&forest.chains);
    }
    assert_true(hits > 5u * ROUNDS_TINY); /* It was not about nothing. */
}

/* --- What holds of every policy --------------------------------------------------------------- */

static void
no_policy_is_above_min_or_leaves_a_child_without_its_parent(void **state)
{
    static struct forest forest;

    (void)state;
    for (uint32_t round = 0; round < ROUNDS_SMALL; round++) {
        forest_grow(&forest, 1000 + round, BLOCKS_MAX, REQUESTS_MAX);
        for (uint32_t capacity = 1; capacity < 50; capacity += 1 + capacity / 4) {
            struct sim_totals bound = run_one_tier(&forest.chains, &sim_min_ops, capacity);

            for (size_t i = 0; i < POLICY_COUNT; i++) {
                struct sim_totals totals = run_one_tier(&forest.chains, all[i], capacity);

                assert_true(hits_of(&totals) <= hits_of(&bound));
                assert_true(totals.saved_tokens == hits_of(&totals) * TRACE_BLOCK_TOKENS);
            }
        }
        chains_destroy(&forest.chains);
    }
}

static void
tiers_hold_what_they_can_and_parents_before_children(void **state)
{
    static struct forest forest;

    (void)state;
    for (uint32_t round = 0; round < ROUNDS_SMALL; round++) {
        struct sim_totals bound;

        forest_grow(&forest, 2000 + round, BLOCKS_MAX, REQUESTS_MAX);
        bound = run_one_tier(&forest.chains, &sim_min_ops, 3 + 6 + 20);
        for (size_t i = 0; i < POLICY_COUNT; i++) {
            struct sim_plan plan = {.chains = &forest.chains,
                .policy = all[i],
                .capacities = {3, 6, 20},
                .segment_blocks = round % 3 == 2 ? 4 : 0};
            struct sim_totals totals, again;

            plan.costs.write_price_ms = round % 2 == 0 ? 0 : 6;
            totals = run(&plan, true);
            assert_true(hits_of(&totals) <= hits_of(&bound));
            assert_true(totals.hits[SIM_NVME] == 0 || totals.nvme_write_count > 0);
            assert_true(plan.segment_blocks > 0 || totals.nvme_rewrite_count == 0);
            again = run(&plan, true);
            totals.elapsed_seconds = again.elapsed_seconds = 0;
            assert_memory_equal(&totals, &again, sizeof(totals));
        }
        chains_destroy(&forest.chains);
    }
}

/* Of a chain that fits all comes back, whatever the policy. */
static void
what_fits_is_a_hit(void **state)
{
    static struct forest forest;

    (void)state;
    forest_grow(&forest, 1, BLOCKS_MAX, REQUESTS_MAX);
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        struct sim_totals totals = run_one_tier(&forest.chains, all[i], BLOCKS_MAX);

        assert_int_equal(totals.block_count - hits_of(&totals), forest.chains.block_count);
    }
    chains_destroy(&forest.chains);
}

static void
requests_before_the_first_that_counts_are_run_and_not_counted(void **state)
{
    static struct forest forest;
    struct sim_plan plan = {
        .policy = &sim_lru_ops, .chains = &forest.chains, .capacities = {[SIM_HOST] = BLOCKS_MAX}};
    struct sim_totals all_of_them, late;

    (void)state;
    forest_grow(&forest, 2, BLOCKS_MAX, REQUESTS_MAX);
    all_of_them = run(&plan, false);
    plan.score_from = REQUESTS_MAX - 1;
    late = run(&plan, false);
    assert_int_equal(late.request_count, 1);
    assert_int_equal(late.block_count, forest.requests[REQUESTS_MAX - 1].id_count);
    assert_int_equal(hits_of(&late), late.block_count);
    assert_int_equal(late.access_count, all_of_them.access_count);
    chains_destroy(&forest.chains);
}

static void
ids_that_name_no_prefix_are_refused(void **state)
{
    static struct forest forest;
    struct chains chains;
    char message[TRACE_MESSAGE_BYTES] = "";

    (void)state;
    forest_grow(&forest, 3, BLOCKS_MAX, 20);
    chains_destroy(&forest.chains);
    forest.ids[forest.requests[19].id_start] = 9999;
    forest.requests[19].id_count = 2;
    forest.ids[forest.requests[19].id_start + 1] = forest.ids[0];
    forest.trace.unique_count++;
    assert_false(chains_create(&chains, &forest.trace, message));
    assert_non_null(strstr(message, "request 20 "));
}

/* --- Against figures that were measured with another program ---------------------------------- */

static struct trace recorded;
static struct chains recorded_chains;

static void
recorded_load(const char *name)
{
    char path[4096], message[TRACE_MESSAGE_BYTES] = "";

    snprintf(path, sizeof(path), "%s/%s", KVT_TRACE_FOLDER, name);
    if (!trace_load(&recorded, path, message))
        fail_msg("%s", message);
    assert_true(chains_create(&recorded_chains, &recorded, message));
}

static void
recorded_free(void)
{
    chains_destroy(&recorded_chains);
    trace_free(&recorded);
}

static void
expect_hits(const struct sim_policy_ops *policy, double percent, double wanted, double tolerance)
{
    uint32_t capacity = (uint32_t)(percent / 100 * recorded_chains.block_count + 0.5);
    struct sim_totals totals = run_one_tier(&recorded_chains, policy, capacity);
    double hits = 100 * (double)totals.saved_tokens / (double)totals.input_tokens;

    print_message("%s, %.1f %% of the blocks: %.2f %% of the tokens (%.1f)\n", policy->name,
        percent, hits, wanted);
    assert_true(hits > wanted - tolerance && hits < wanted + tolerance);
}

static void
chat_hits_as_often_as_it_was_measured(void **state)
{
    (void)state;
    recorded_load("conversation_h1.jsonl.zst");
    expect_hits(&sim_lru_ops, 0.5, 4.1, 0.1);
    expect_hits(&sim_lru_ops, 5, 11.2, 0.1);
    expect_hits(&sim_min_ops, 0.5, 13.5, 0.1);
    expect_hits(&sim_min_ops, 2, 24.9, 0.1);
    expect_hits(&sim_min_ops, 20, 35.2, 0.1);
    expect_hits(&sim_lfuda_ops, 5, 14.0, 0.1);
    expect_hits(&sim_sieve_ops, 5, 10.6, 0.1);
    expect_hits(&sim_two_queue_ops, 2, 7.5, 0.1);
    expect_hits(&sim_arc_ops, 5, 11.4, 0.3);
    recorded_free();
}

static void
agents_hit_as_often_as_it_was_measured(void **state)
{
    (void)state;
    recorded_load("agents_dev.jsonl.zst");
    expect_hits(&sim_lru_ops, 2, 45.1, 0.1);
    expect_hits(&sim_min_ops, 1, 51.0, 0.1);
    recorded_free();
}

/* Of three tiers; for each 1,000 blocks asked for. */
struct moved {
    double hits, h2d, d2h, nvme_reads, nvme_writes; /* Hits and time in percent. */
    double time_saved;
};

static void
expect_near(const char *name, double value, double wanted, double tolerance)
{
    print_message("  %s: %.1f (%.1f)\n", name, value, wanted);
    assert_true(value >= wanted - tolerance && value <= wanted + tolerance);
}

/* HBM 1 %, HOST 5 %, NVMe 30 %: within a twentieth (and what the figures were rounded by), and half
 * a point of the time. */
static void
expect_moved(const struct sim_policy_ops *policy, const struct moved *wanted)
{
    struct sim_plan plan = {
        .policy = policy, .chains = &recorded_chains, .capacities = {942, 4709, 28252}};
    struct sim_totals totals = run(&plan, false);
    double thousands = (double)totals.block_count / 1000;

    print_message("%s\n", policy->name);
    expect_near("hits", (double)hits_of(&totals) / thousands / 10, wanted->hits, 0.5);
    expect_near("H2D", (double)totals.hits[SIM_HOST] / thousands, wanted->h2d, wanted->h2d / 20);
    expect_near("D2H", (double)totals.d2h_count / thousands, wanted->d2h, wanted->d2h / 20);
    expect_near("NVMe reads", (double)totals.hits[SIM_NVME] / thousands, wanted->nvme_reads,
        wanted->nvme_reads / 20 + 0.5);
    expect_near("NVMe writes", (double)totals.nvme_write_count / thousands, wanted->nvme_writes,
        wanted->nvme_writes / 20 + 0.5);
    expect_near("time", 100 * totals.saved_ms / totals.recompute_ms, wanted->time_saved, 0.5);
}

static void
three_tiers_move_as_much_as_was_measured(void **state)
{
    const struct moved lru = {33.9, 99, 947, 196, 634, 26.7};
    const struct moved min = {35.9, 158, 132, 11, 10, 33.2};

    (void)state;
    recorded_load("conversation_h1.jsonl.zst");
    expect_moved(&sim_lru_ops, &lru);
    expect_moved(&sim_min_ops, &min);
    recorded_free();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(min_has_as_many_hits_as_an_exhaustive_search_finds),
        cmocka_unit_test(no_policy_is_above_min_or_leaves_a_child_without_its_parent),
        cmocka_unit_test(tiers_hold_what_they_can_and_parents_before_children),
        cmocka_unit_test(what_fits_is_a_hit),
        cmocka_unit_test(requests_before_the_first_that_counts_are_run_and_not_counted),
        cmocka_unit_test(ids_that_name_no_prefix_are_refused),
        cmocka_unit_test(chat_hits_as_often_as_it_was_measured),
        cmocka_unit_test(agents_hit_as_often_as_it_was_measured),
        cmocka_unit_test(three_tiers_move_as_much_as_was_measured),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
