/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_policy_default.c - what the learning policy does beside what every policy must do
 * (test_policy.c): it keeps what comes back, remembers a bounded number of ghosts, weighs what
 * callers say, steers what is written, gives up doubles in their order, knows what LRU would do,
 * and is the same each time.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bytes.h"
#include "policy_default_internal.h"
#include "policy_rig.h"
#include "stop_on_proof.h"

enum {
    CACHE_BLOCKS = 200,
    SCAN_BLOCKS = 10 * CACHE_BLOCKS,
};

static const uint64_t second_ns = 1000000000;

static int
setup(void **state)
{
    struct policy_rig *rig = policy_rig_open(&policy_default_ops);

    if (rig == NULL)
        return -1;
    rig->now_ns = 1000 * second_ns;
    *state = rig;
    return 0;
}

static int
teardown(void **state)
{
    policy_rig_close(*state);
    return 0;
}

/* The block with that key is used, or comes; then the place is trimmed. */
static void
access_key(struct policy_rig *rig, uint64_t key)
{
    uint32_t number = policy_rig_find(rig, key);

    if (number == ENTRY_NONE)
        (void)policy_rig_copy_of(rig, key, ENTRY_NONE);
    else
        policy_rig_use(rig, number);
    policy_rig_trim(rig, CACHE_BLOCKS);
}

/* --- What is learned -------------------------------------------------------------------------- */

/* Each second a block that comes back after 60 s, and ten that never do: six times as many as fit
 * come between the two uses. */
static uint32_t
returns_kept(struct policy_rig *rig, uint32_t seconds)
{
    uint32_t hit_count = 0;

    for (uint64_t second = 0; second < seconds; second++) {
        rig->now_ns += second_ns;
        if (second >= 60) {
            hit_count += policy_rig_find(rig, second - 60) != ENTRY_NONE;
            access_key(rig, second - 60);
        }
        access_key(rig, second);
        for (uint64_t i = 0; i < 20; i++) {
            uint32_t parent = policy_rig_copy_of(rig, (1 << 20) + second * 100 + i, ENTRY_NONE);

            /* They come in runs of four: another class. */
            for (uint64_t deep = 1; deep < 4; deep++)
                parent = policy_rig_copy_of(rig, (1 << 20) + second * 100 + deep * 20 + i, parent);
            policy_rig_trim(rig, CACHE_BLOCKS);
        }
    }
    return hit_count;
}

static void
what_comes_back_is_kept_although_more_than_fits_comes_between(void **state)
{
    assert_true(returns_kept(*state, 900) > 600);
}

static void
the_same_calls_have_the_same_answers(void **state)
{
    struct policy_rig *again = policy_rig_open(&policy_default_ops);

    assert_non_null(again);
    again->now_ns = ((struct policy_rig *)*state)->now_ns;
    assert_int_equal(returns_kept(*state, 300), returns_kept(again, 300));
    for (uint32_t i = 0; i < CACHE_BLOCKS; i++) {
        uint32_t victim = policy_rig_victim(*state, POLICY_HOST, ENTRY_NONE);

        assert_int_equal(victim, policy_rig_victim(again, POLICY_HOST, ENTRY_NONE));
        policy_rig_drop(*state, victim);
        policy_rig_drop(again, victim);
    }
    policy_rig_close(again);
}

static void
a_block_that_comes_back_as_a_ghost_was_used_before(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t number = policy_rig_copy_of(rig, 1, ENTRY_NONE);

    assert_int_equal(entries_at(rig->entries, number)->use_count, 1);
    policy_rig_drop(rig, number);
    rig->now_ns += 100 * second_ns;
    number = policy_rig_copy_of(rig, 1, ENTRY_NONE);
    assert_int_equal(entries_at(rig->entries, number)->use_count, 2);
    assert_int_equal(default_traits(entries_at(rig->entries, number)).gap, 3);
    policy_rig_delete(rig, number); /* What is deleted leaves no ghost. */
    number = policy_rig_copy_of(rig, 1, ENTRY_NONE);
    assert_int_equal(entries_at(rig->entries, number)->use_count, 1);
}

/* The table that a choice looks classes up in says what the traits say. */
static void
a_class_looked_up_is_that_of_the_traits(void **state)
{
    struct policy_rig *rig = *state;
    struct default_policy *self = default_of(rig->policy);
    uint32_t number = policy_rig_block(rig, ENTRY_NONE);
    struct entry_state *block = entries_at(rig->entries, number);
    const struct entry_state before = *block;

    for (uint32_t i = 0; i < 9 * 256; i++) {
        struct hazard_traits traits;

        block->use_count = (1 + i / 256) & 15u;
        block->gap = i & 3u;
        block->segment = i >> 2 & 3u;
        block->turn = i >> 4 & 3u;
        block->hint = i >> 6 & 3u;
        traits = default_traits(block);
        assert_int_equal(default_class(self, block), hazard_class(&traits));
    }
    *block = before;
}

static void
a_run_is_as_long_as_all_its_calls_and_one_turn(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t chain[20];

    for (uint32_t i = 0; i < 17; i++) {
        chain[i] = policy_rig_copy(rig, i == 0 ? ENTRY_NONE : chain[i - 1]);
        rig->now_ns += second_ns; /* Each waits for room. */
    }
    rig->policy->ops->request(rig->policy, chain, 17, rig->now_ns);
    for (uint32_t i = 17; i < 20; i++)
        chain[i] = policy_rig_copy(rig, chain[i - 1]);
    for (uint32_t i = 0; i < 20; i++) {
        struct hazard_traits traits = default_traits(entries_at(rig->entries, chain[i]));

        assert_int_equal(traits.segment, i < 17 ? 3 : 0);
        assert_int_equal(traits.turn, i < 17 ? 1 : 2);
    }
}

/* --- Ghosts ----------------------------------------------------------------------------------- */

static void
ghosts_are_bounded_and_the_oldest_are_forgotten(void **state)
{
    struct policy_rig *rig = *state;
    struct default_policy *self = default_of(rig->policy);
    struct ghost_facts facts;
    uint32_t young_count = 0, old_count = 0;

    for (uint64_t key = 0; key < 100 * CACHE_BLOCKS; key++) {
        rig->now_ns += second_ns / 10;
        access_key(rig, key);
    }
    assert_in_range(ghost_table_bytes(&self->ghosts), 4 * CACHE_BLOCKS * 64 / 5,
        4 * (CACHE_BLOCKS + 2) * 64 / 5 + 64);
    for (uint64_t age = CACHE_BLOCKS; age < 10 * CACHE_BLOCKS; age++) {
        uint64_t key = 100 * CACHE_BLOCKS - 1 - age;
        uint32_t number = policy_rig_copy_of(rig, key, ENTRY_NONE);
        bool was_ghost = entries_at(rig->entries, number)->use_count == 2;

        young_count += was_ghost && age < 2 * CACHE_BLOCKS;
        old_count += was_ghost && age > 8 * CACHE_BLOCKS;
        policy_rig_delete(rig, number);
    }
    assert_in_range(young_count, CACHE_BLOCKS * 9 / 10, CACHE_BLOCKS);
    assert_in_range(
        old_count, 0, CACHE_BLOCKS / 5); /* Of 2 * CACHE_BLOCKS: some buckets are lucky. */
    assert_false(ghost_table_take(&self->ghosts, 12345, &facts));
}

static void
the_table_of_ghosts_grows_without_forgetting(void **state)
{
    struct policy_rig *rig = *state;
    struct ghost_table table = {.chunks = NULL};
    struct ghost_facts facts = {.last_use = 1, .traits = 1}, forgotten;
    struct rng rng = {.state = 1};
    uint32_t kept_count = 0;

    assert_true(ghost_table_add(&table, 1, &facts, &forgotten)); /* Without memory: forgotten. */
    assert_int_equal(forgotten.traits, 1);
    for (uint32_t i = 0; i < 3000; i++) {
        for (uint32_t j = 0; j < 8; j++)
            ghost_table_reserve(&table, &rig->env, UINT64_C(20) * (i + 1));
        facts.last_use = i;
        (void)ghost_table_add(&table, rng_next(&rng), &facts, &forgotten);
    }
    rng.state = 1;
    for (uint32_t i = 0; i < 3000; i++)
        kept_count += ghost_table_take(&table, rng_next(&rng), &facts) && facts.last_use == i;
    assert_in_range(kept_count, 2990, 3000);
    ghost_table_reserve(&table, &rig->env, UINT64_MAX / 2);
    assert_in_range(ghost_table_bytes(&table), 1, GHOSTS_BYTES_MAX);
    ghost_table_close(&table, &rig->env);
}

/* --- What callers say ------------------------------------------------------------------------- */

/* One in ten weighs more; ten times as many blocks come as fit. */
static void
the_top_tenth_survives_a_scan(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t numbers[CACHE_BLOCKS];
    uint64_t keys[CACHE_BLOCKS];
    uint32_t other_count = 0;

    for (uint32_t i = 0; i < CACHE_BLOCKS; i++) {
        numbers[i] = policy_rig_block_weighing(rig, i % 10 == 0 ? 70 + i % 30 : 0);
        policy_rig_add(rig, POLICY_HOST, numbers[i]);
        keys[i] = policy_rig_key(rig, numbers[i]);
        rig->now_ns += second_ns / 10;
    }
    for (uint32_t i = 0; i < SCAN_BLOCKS; i++) {
        (void)policy_rig_copy(rig, ENTRY_NONE);
        policy_rig_trim(rig, CACHE_BLOCKS);
        rig->now_ns += second_ns / 10;
    }
    for (uint32_t i = 0; i < CACHE_BLOCKS; i++) {
        bool is_there = policy_rig_find(rig, keys[i]) != ENTRY_NONE;

        assert_true(i % 10 != 0 || is_there);
        other_count += i % 10 != 0 && is_there;
    }
    assert_in_range(other_count, 0, CACHE_BLOCKS / 10);
}

static void
weights_count_by_rank(void **state)
{
    struct weights weights = {.total = 0};

    (void)state;
    assert_true(weights_factor(&weights, 7) == 1);
    for (uint32_t i = 0; i < 1000; i++)
        weights_add(&weights, 7);
    assert_true(weights_factor(&weights, 7) == 1); /* All weigh the same. */
    for (uint32_t i = 0; i < 100000; i++)
        weights_add(&weights, i % 100 < 90 ? i % 100 : 1000000 + i % 100);
    assert_true(weights_factor(&weights, 1000000) == 4096);
    assert_true(weights_factor(&weights, 10) == 1);
    assert_true(weights_factor(&weights, 80) > 16 && weights_factor(&weights, 80) < 4096);
}

/* --- Tiers ------------------------------------------------------------------------------------ */

static void
doubles_of_the_last_request_go_first_and_the_others_last(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t blocks[4], shown[4];

    for (uint32_t i = 0; i < 4; i++)
        blocks[i] = policy_rig_copy(rig, ENTRY_NONE);
    policy_rig_add(rig, POLICY_HBM, blocks[0]);
    policy_rig_add(rig, POLICY_HBM, blocks[2]);
    rig->now_ns += second_ns;
    policy_rig_use(rig, blocks[2]);
    shown[0] = policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE);
    for (uint32_t i = 1; i < 4; i++)
        shown[i] = policy_rig_victim(rig, POLICY_HOST, shown[i - 1]);
    assert_int_equal(shown[0], blocks[2]);
    assert_true((shown[1] == blocks[1]) != (shown[1] == blocks[3]));
    assert_int_equal(shown[3], blocks[0]);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, shown[3]), ENTRY_NONE);
}

static void
what_is_cheap_to_have_again_leaves_host_first(void **state)
{
    struct policy_rig *rig = *state;
    const struct policy_costs costs = {.host_load_ns = 1000, .nvme_load_ns = 100000};
    uint32_t dear, cheap, there;

    rig->policy->ops->costs_set(rig->policy, &costs);
    dear = policy_rig_copy(rig, ENTRY_NONE);
    cheap = policy_rig_copy(rig, ENTRY_NONE);
    there = policy_rig_copy(rig, ENTRY_NONE);
    /* Not worth a write: computing it is hardly dearer than loading it. */
    entries_at(rig->entries, dear)->recompute_us = 99;
    entries_at(rig->entries, cheap)->recompute_us = 10;
    entries_at(rig->entries, there)->recompute_us = 1000;
    policy_rig_add(rig, POLICY_NVME, there);
    rig->now_ns += second_ns;
    policy_rig_use(rig, dear);
    policy_rig_use(rig, cheap);
    policy_rig_use(rig, there);
    assert_false(rig->policy->ops->admits(rig->policy, dear));
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), cheap);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, cheap), dear);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, dear), there);
    entries_at(rig->entries, dear)->recompute_us = 1000000;
    assert_true(rig->policy->ops->admits(rig->policy, dear));
}

static void
a_block_is_admitted_when_it_is_worth_the_price_or_has_a_child_there(void **state)
{
    struct policy_rig *rig = *state;
    struct policy_costs costs = {
        .host_load_ns = 1000000, .nvme_load_ns = 6000000, .recompute_ns = 18000000};
    uint32_t block, child;

    block = policy_rig_copy(rig, ENTRY_NONE);
    assert_true(rig->policy->ops->admits(rig->policy, block)); /* Nothing is known of costs. */
    rig->policy->ops->costs_set(rig->policy, &costs);
    assert_true(rig->policy->ops->admits(rig->policy, block));
    costs.nvme_write_price_ns = 12000000; /* What it would save if it came back for certain. */
    rig->policy->ops->costs_set(rig->policy, &costs);
    assert_false(rig->policy->ops->admits(rig->policy, block));
    child = policy_rig_block(rig, block);
    assert_true(rig->policy->ops->admits(rig->policy, block));
    policy_rig_add(rig, POLICY_HOST, child); /* In memory it is no leaf's reason. */
    assert_false(rig->policy->ops->admits(rig->policy, block));
}

/* How many of `count` blocks, which save 6 ms to about a second times `scale`, are written within a
 * second under a budget of ten. */
static uint32_t
written_in_a_second(struct policy_rig *rig, uint32_t count, double scale)
{
    uint32_t written_count = 0;

    rig->now_ns += second_ns;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = policy_rig_copy(rig, ENTRY_NONE);

        entries_at(rig->entries, number)->recompute_us = (uint32_t)(scale * (6000 + i * i * i));
        written_count += rig->policy->ops->admits(rig->policy, number);
        policy_rig_drop(rig, number);
    }
    return written_count;
}

static const struct policy_costs budget_costs = {.host_load_ns = 1000000,
    .nvme_load_ns = 6000000,
    .recompute_ns = 18000000,
    .nvme_writes_per_second_max = 10};

/* Half of the time nothing is asked, then ten times the budget. */
static void
a_write_budget_is_held_whatever_comes_in_bursts(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t written_count = 0;

    rig->policy->ops->costs_set(rig->policy, &budget_costs);
    for (uint32_t second = 0; second < 8000; second++)
        written_count += written_in_a_second(rig, second / 40 % 2 == 0 ? 0 : 100, 1);
    assert_in_range(written_count, 8000 * 95 / 10, 8000 * 105 / 10);
}

/* Ten times the budget is asked for, and is worth 500 times the first price and then ever more, 2 %
 * in ten seconds: a price that only follows stays behind, and lets an eighth more through. */
static void
a_write_budget_is_held_while_the_price_is_learnt(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t written_count = 0;

    rig->policy->ops->costs_set(rig->policy, &budget_costs);
    for (uint32_t second = 0; second < 2000; second++)
        written_count += written_in_a_second(rig, 100, exp(0.002 * second));
    assert_in_range(written_count, 2000 * 95 / 10, 2000 * 105 / 10);
}

/* Blocks become larger and smaller, and the budget, in blocks, smaller and larger. */
static void
a_write_budget_that_changes_is_held_on_average(void **state)
{
    struct policy_rig *rig = *state;
    struct policy_costs costs = budget_costs;
    uint32_t written_count = 0;

    for (uint32_t second = 0; second < 4000; second++) {
        costs.nvme_writes_per_second_max = 10.5 + (double)(second % 7) / 6;
        rig->policy->ops->costs_set(rig->policy, &costs);
        written_count += written_in_a_second(rig, 40, 1);
    }
    assert_in_range(written_count, 4000 * 11 * 95 / 100, 4000 * 11 * 105 / 100);
}

/* A restart takes price and debt over: it need not be learnt again what a write is worth. */
static void
the_price_of_a_budget_outlives_a_restart(void **state)
{
    struct policy_rig *rig = *state;
    struct policy_rig *next = policy_rig_open(&policy_default_ops);
    uint8_t *bytes = malloc(POLICY_STATE_BYTES_MAX);
    uint32_t written_count = 0;
    size_t size;

    assert_non_null(bytes);
    rig->policy->ops->costs_set(rig->policy, &budget_costs);
    for (uint32_t second = 0; second < 2000; second++)
        (void)written_in_a_second(rig, 100, 1);
    policy_rig_use(rig, policy_rig_copy(rig, ENTRY_NONE)); /* So that there is anything to keep. */
    size = rig->policy->ops->save(rig->policy, bytes);
    assert_false(next->policy->ops->restore(next->policy, bytes, size - 1));
    put_u64(bytes + size - 8, (uint64_t)3600001);
    assert_false(next->policy->ops->restore(next->policy, bytes, size));
    put_u64(bytes + size - 8, 0);
    assert_true(next->policy->ops->restore(next->policy, bytes, size));
    next->policy->ops->costs_set(next->policy, &budget_costs);
    for (uint32_t second = 0; second < 200; second++)
        written_count += written_in_a_second(next, 100, 1);
    assert_in_range(written_count, 2000 * 8 / 10, 2000 * 12 / 10);
    free(bytes);
    policy_rig_close(next);
}

/* A debt of ten minutes of the budget stays that when blocks become a hundred times as large. */
static void
what_is_owed_is_as_many_bytes_when_blocks_become_larger(void **state)
{
    struct write_price price = {0};
    double now = 0;

    (void)state;
    write_price_set(&price, 0, 100);
    write_price_step(&price, now);
    for (uint32_t i = 0; i < 60; i++) {
        price.write_count = 2000;
        write_price_step(&price, now += 10);
    }
    assert_in_range((uint32_t)price.owed_count, 59999, 60001);
    write_price_set(&price, 0, 1);
    assert_in_range((uint32_t)price.owed_count, 599, 601);
}

/* Three hours without a write are worth ten minutes of the budget, no more. */
static void
an_idle_night_saves_no_flood_of_writes_up(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t written_count = 0;

    rig->policy->ops->costs_set(rig->policy, &budget_costs);
    for (uint32_t second = 0; second < 1000; second++)
        (void)written_in_a_second(rig, 40, 1);
    for (uint32_t second = 0; second < 10800; second++)
        (void)written_in_a_second(rig, 0, 1);
    for (uint32_t second = 0; second < 3600; second++)
        written_count += written_in_a_second(rig, 40, 1);
    assert_in_range(written_count, 36000 * 95 / 100, (36000 + 6000) * 105 / 100);
}

/* --- The guard -------------------------------------------------------------------------------- */

/* A list that is searched from end to end, of what LRU would hold. */
static double
lru_hits(const uint64_t *keys, uint32_t count)
{
    double hits = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t others = 0;
        uint32_t last = i;

        for (uint32_t j = i; j-- > 0 && last == i;) {
            if (keys[j] == keys[i])
                last = j;
        }
        for (uint32_t j = last + 1; j < i; j++) {
            bool is_again = false;

            for (uint32_t k = last + 1; k < j; k++)
                is_again = is_again || keys[k] == keys[j];
            others += !is_again;
        }
        hits += last < i && others < CACHE_BLOCKS;
    }
    return hits;
}

static void
what_lru_would_hit_is_known(void **state)
{
    struct policy_rig *rig = *state;
    struct default_policy *self = default_of(rig->policy);
    struct rng rng = {.state = 3};
    uint64_t keys[1200];
    double wanted;

    for (uint32_t i = 0; i < 1200; i++) {
        keys[i] = 1 + rng_below(&rng, 100) * (1 + rng_below(&rng, 8));
        rig->now_ns += second_ns / 100 * 7; /* A tick or two: the counts hardly fade. */
        access_key(rig, keys[i]);
    }
    wanted = lru_hits(keys, 1200);
    assert_true(self->guards[SET_MAP].lru_hits > wanted * 0.85);
    assert_true(self->guards[SET_MAP].lru_hits < wanted * 1.02);
    assert_true(self->guards[SET_MEMORY].lru_hits == self->guards[SET_MAP].lru_hits);
    assert_true(self->guards[SET_HBM].lru_hits == 0);
}

static void
lru_is_obeyed_while_it_leads_and_tried_no_longer_than_its_term(void **state)
{
    struct guard guard = {.hits = 0};
    uint32_t changes[4] = {0};
    uint32_t change_count = 0;

    (void)state;
    for (uint32_t second = 5; second < 4000 && change_count < 4; second += 5) {
        bool was_lru = guard.is_lru;

        for (uint32_t i = 0; i < 1000; i++)
            guard_note(&guard, i % 100 < 90, i % 100 < 96 ? 0 : 10, 10);
        guard_step(&guard, second, 5);
        if (guard.is_lru != was_lru)
            changes[change_count++] = second;
    }
    assert_int_equal(change_count, 4);
    assert_in_range(changes[0], 240, 260);
    assert_in_range(changes[1] - changes[0], 300, 305); /* Its first term, */
    assert_in_range(changes[2] - changes[1], 240, 260);
    assert_in_range(changes[3] - changes[2], 600, 605); /* and its second. */
    guard = (struct guard){.hits = 0};
    for (uint32_t second = 5; second < 4000; second += 5) {
        for (uint32_t i = 0; i < 1000; i++)
            guard_note(&guard, i % 100 < 90, i % 100 < 92 ? 0 : 10, 10);
        guard_step(&guard, second, 5);
        assert_false(guard.is_lru); /* A small lead is none. */
    }
}

/* While LRU is obeyed, order is all that counts. */
static void
the_oldest_goes_while_lru_is_obeyed(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t blocks[20];
    uint32_t shown = ENTRY_NONE;

    for (uint32_t i = 0; i < 20; i++) {
        rig->now_ns += second_ns;
        blocks[i] = policy_rig_copy(rig, ENTRY_NONE);
        /* The older the likelier to come back, as far as is known. */
        entries_at(rig->entries, blocks[i])->recompute_us = 1000 * (20 - i);
    }
    default_of(rig->policy)->guards[SET_MEMORY].is_lru = true;
    for (uint32_t i = 0; i < 20; i++) {
        shown = policy_rig_victim(rig, POLICY_HOST, shown);
        assert_int_equal(shown, blocks[i]);
    }
}

/* --- Walks ------------------------------------------------------------------------------------ */

/* After a leaf its parent, if that is no younger: a chain goes from its end, whole. */
static void
flight_set(struct policy_rig *rig, uint32_t number, bool has_one)
{
    static uint8_t some_flight;

    entries_at(rig->entries, number)->flight = has_one ? (struct flight *)&some_flight : NULL;
    rig->policy->ops->recheck(rig->policy, number);
}

static void
a_leaf_is_not_shown_while_it_has_a_flight(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t child = policy_rig_copy(rig, parent);

    flight_set(rig, parent, true);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), child);
    flight_set(rig, child, true);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, child), ENTRY_NONE);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), ENTRY_NONE);
    flight_set(rig, child, false);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), child);
    policy_rig_drop(rig, child);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), ENTRY_NONE);
    flight_set(rig, parent, false);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), parent);
    policy_rig_drop(rig, parent);
}

static void
a_chain_goes_whole(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t chain[10];
    uint32_t shown;

    for (uint32_t i = 0; i < 10; i++)
        chain[i] = policy_rig_copy(rig, i == 0 ? ENTRY_NONE : chain[i - 1]);
    for (uint32_t i = 0; i < 500; i++) {
        if (i % 50 == 0)
            rig->now_ns += second_ns;
        (void)policy_rig_copy(rig, ENTRY_NONE);
    }
    do {
        shown = policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE);
        if (shown != chain[9])
            policy_rig_drop(rig, shown);
    } while (shown != chain[9]);
    for (uint32_t i = 10; i-- > 0;) {
        assert_int_equal(shown, chain[i]);
        policy_rig_drop(rig, shown);
        shown = policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE);
    }
}

#define OF_RIG(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        OF_RIG(what_comes_back_is_kept_although_more_than_fits_comes_between),
        OF_RIG(the_same_calls_have_the_same_answers),
        OF_RIG(a_block_that_comes_back_as_a_ghost_was_used_before),
        OF_RIG(a_class_looked_up_is_that_of_the_traits),
        OF_RIG(a_run_is_as_long_as_all_its_calls_and_one_turn),
        OF_RIG(ghosts_are_bounded_and_the_oldest_are_forgotten),
        OF_RIG(the_table_of_ghosts_grows_without_forgetting),
        OF_RIG(the_top_tenth_survives_a_scan),
        cmocka_unit_test(weights_count_by_rank),
        OF_RIG(doubles_of_the_last_request_go_first_and_the_others_last),
        OF_RIG(what_is_cheap_to_have_again_leaves_host_first),
        OF_RIG(a_block_is_admitted_when_it_is_worth_the_price_or_has_a_child_there),
        OF_RIG(a_write_budget_is_held_whatever_comes_in_bursts),
        OF_RIG(a_write_budget_is_held_while_the_price_is_learnt),
        OF_RIG(a_write_budget_that_changes_is_held_on_average),
        OF_RIG(the_price_of_a_budget_outlives_a_restart),
        cmocka_unit_test(what_is_owed_is_as_many_bytes_when_blocks_become_larger),
        OF_RIG(an_idle_night_saves_no_flood_of_writes_up),
        OF_RIG(what_lru_would_hit_is_known),
        cmocka_unit_test(lru_is_obeyed_while_it_leads_and_tried_no_longer_than_its_term),
        OF_RIG(the_oldest_goes_while_lru_is_obeyed),
        OF_RIG(a_leaf_is_not_shown_while_it_has_a_flight),
        OF_RIG(a_chain_goes_whole),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
