/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_entries.c - links from blocks to their parents never form a ring, whatever parents are
 * named, and every other link is made that takes no more steps than a turn of the loop has; none is
 * good again when its parent's number is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "entries.h"
#include "policy_rig.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    BLOCKS = 12,
    STEPS = 20000,
    GENERATIONS = 1 << 24, /* So many uses of a number have different ones. */
    OTHERS = 300,
    MANY = 20000,
    TURNS = 1000,
};

static int
setup(void **state)
{
    return (*state = policy_rig_open(&policy_lru_ops)) == NULL ? -1 : 0;
}

static int
teardown(void **state)
{
    policy_rig_close(*state);
    return 0;
}

static void
expect_parent(struct policy_rig *rig, uint32_t number, uint32_t wanted)
{
    assert_int_equal(entries_parent(rig->entries, number), wanted);
}

/* A chain of `count` blocks in HOST. */
static void
chain_make(struct policy_rig *rig, uint32_t *chain, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        chain[i] = policy_rig_copy(rig, i == 0 ? ENTRY_NONE : chain[i - 1]);
}

static void
a_link_that_would_close_a_ring_is_not_made(void **state)
{
    struct policy_rig *rig = *state;

    for (uint32_t count = 1; count <= 5; count++) {
        uint32_t chain[5];

        chain_make(rig, chain, count);
        entries_link(rig->entries, chain[0], chain[count - 1]);
        expect_parent(rig, chain[0], ENTRY_NONE);
        assert_int_equal(entries_at(rig->entries, chain[count - 1])->child_count, 0);
        for (uint32_t i = count; i-- > 0;) {
            assert_int_equal(policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE), chain[i]);
            policy_rig_drop(rig, chain[i]);
        }
    }
}

/* The old parent is none any more: the entry is the first of its chain. */
static void
a_link_that_is_not_made_leaves_no_parent(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t top = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t middle = policy_rig_copy(rig, top);
    uint32_t end = policy_rig_copy(rig, middle);

    entries_link(rig->entries, middle, end);
    expect_parent(rig, middle, ENTRY_NONE);
    expect_parent(rig, end, middle);
    assert_int_equal(entries_at(rig->entries, top)->child_count, 0);
    assert_int_equal(entries_at(rig->entries, top)->memory_child_count, 0);
}

static void
a_block_with_children_gets_another_parent(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t chain[5], other[5];

    chain_make(rig, chain, 5);
    chain_make(rig, other, 5);
    entries_link(rig->entries, chain[2], other[4]);
    expect_parent(rig, chain[2], other[4]);
    assert_int_equal(entries_at(rig->entries, chain[1])->child_count, 0);
    /* Its old parent is not above it any more. */
    entries_link(rig->entries, other[0], chain[1]);
    expect_parent(rig, other[0], chain[1]);
    /* A parent that left is above nobody. */
    policy_rig_drop(rig, chain[1]);
    entries_link(rig->entries, chain[0], chain[4]);
    expect_parent(rig, chain[0], chain[4]);
}

/* The way up from `number`, as the test remembers it. */
static bool
is_above(const uint32_t *parents, uint32_t number, uint32_t above)
{
    while (number != ENTRY_NONE && number != above)
        number = parents[number];
    return number == above;
}

static void
random_links_agree_with_a_naive_forest(void **state)
{
    struct policy_rig *rig = *state;
    struct rng rng = {.state = 1};
    uint32_t numbers[BLOCKS], parents[BLOCKS];
    uint32_t refused_count = 0;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        numbers[i] = policy_rig_copy(rig, ENTRY_NONE);
        parents[i] = ENTRY_NONE;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t child = (uint32_t)rng_below(&rng, BLOCKS);
        uint32_t parent = (uint32_t)rng_below(&rng, BLOCKS);
        bool is_refused = is_above(parents, parent, child);

        entries_turn(rig->entries);
        entries_link(rig->entries, numbers[child], numbers[parent]);
        parents[child] = is_refused ? ENTRY_NONE : parent;
        refused_count += is_refused;
        for (uint32_t i = 0; i < BLOCKS; i++)
            expect_parent(
                rig, numbers[i], parents[i] == ENTRY_NONE ? ENTRY_NONE : numbers[parents[i]]);
    }
    assert_in_range(refused_count, STEPS / 10, STEPS / 2);
}

/* What it takes to find that a block is not above another one: no more than so many steps, and no
 * more for all links of a turn. */
static void
links_of_a_turn_climb_no_more_than_a_long_chain(void **state)
{
    static uint32_t chain[LINK_CLIMB_MAX + 1];
    struct policy_rig *rig = *state;
    uint32_t one[2], other[2];

    chain_make(rig, chain, LINK_CLIMB_MAX + 1);
    chain_make(rig, one, 2);
    chain_make(rig, other, 2);
    entries_turn(rig->entries);
    entries_link(rig->entries, one[0], chain[LINK_CLIMB_MAX]);
    expect_parent(rig, one[0], ENTRY_NONE);
    entries_link(rig->entries, other[0], chain[0]);
    expect_parent(rig, other[0], ENTRY_NONE);
    entries_link(rig->entries, other[1], chain[LINK_CLIMB_MAX]); /* Has no children. */
    expect_parent(rig, other[1], chain[LINK_CLIMB_MAX]);
    entries_turn(rig->entries);
    entries_link(rig->entries, one[0], chain[LINK_CLIMB_MAX - 1]);
    expect_parent(rig, one[0], chain[LINK_CLIMB_MAX - 1]);
}

/* The number of a block that has left the map is used so often, each time under the generation
 * behind the one before. */
static void
uses_pass(struct policy_rig *rig, uint32_t number, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(entries_reserve(rig->entries, number), KVT_OK);
        (void)atomic_fetch_add(&residency_at(rig->map, number)->word, UINT64_C(1) << 40);
    }
}

/* ... until its generation comes again, and then by another block. */
static void
generations_pass(struct policy_rig *rig, uint32_t number)
{
    uses_pass(rig, number, GENERATIONS - 1);
    assert_int_equal(policy_rig_copy(rig, ENTRY_NONE), number);
}

/* Children below and above it, and others, of which nobody asks for their parents meanwhile. More
 * than once. */
static void
a_block_with_the_generation_of_one_that_left_is_no_parent(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t first = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t last = parent;

    for (uint32_t i = 0; i < OTHERS; i++)
        last = policy_rig_copy(rig, first);
    for (uint32_t round = 0; round < 3; round++) {
        entries_link(rig->entries, first, parent);
        entries_link(rig->entries, last, parent);
        policy_rig_drop(rig, parent);
        generations_pass(rig, parent);
        expect_parent(rig, first, ENTRY_NONE);
        expect_parent(rig, last, ENTRY_NONE);
        expect_parent(rig, last - 1, first); /* What is good stays. */
        assert_int_equal(entries_at(rig->entries, parent)->child_count, 0);
    }
    policy_rig_drop(rig, last);
}

/* Not as an open uses them, each once, nor as a store that is full does, all in turn. The link of
 * the first would be looked at first. */
static void
numbers_that_are_used_seldom_cost_no_looks(void **state)
{
    static uint32_t numbers[MANY];
    struct policy_rig *rig = *state;
    uint32_t first = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);

    for (uint32_t i = 0; i < MANY; i++)
        numbers[i] = policy_rig_copy(rig, ENTRY_NONE);
    for (uint32_t i = 0; i < MANY; i++)
        policy_rig_drop(rig, numbers[i]);
    entries_link(rig->entries, first, parent);
    policy_rig_drop(rig, parent);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < MANY; i++)
            uses_pass(rig, numbers[i], 1);
    }
    assert_int_equal(entries_at(rig->entries, first)->parent, parent);
    expect_parent(rig, first, ENTRY_NONE);
}

/* The number of an entry may be in the map although there was no memory for its state. */
static void
an_entry_without_a_state_is_not_kept(void **state)
{
    const struct policy_rig *rig = *state;

    assert_null(entries_at(rig->entries, ENTRIES_PER_CHUNK));
    assert_false(entries_is_kept(rig->entries, ENTRIES_PER_CHUNK));
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_link_that_would_close_a_ring_is_not_made),
        TEST(a_link_that_is_not_made_leaves_no_parent),
        TEST(a_block_with_children_gets_another_parent),
        TEST(random_links_agree_with_a_naive_forest),
        TEST(links_of_a_turn_climb_no_more_than_a_long_chain),
        TEST(a_block_with_the_generation_of_one_that_left_is_no_parent),
        TEST(numbers_that_are_used_seldom_cost_no_looks),
        TEST(an_entry_without_a_state_is_not_kept),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
