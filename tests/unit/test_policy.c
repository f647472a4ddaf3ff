/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_policy.c - leaf-first order: chains lose their ends first, whatever was used in between, and
 * a parent that went is no parent any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    BLOCKS_MAX = 64,
    STEPS = 4000,
};

struct fixture {
    struct kvt_env env;
    struct residency *map;
    struct policy *policy;
    uint64_t next_key;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (fixture == NULL)
        return -1;
    env_host(&fixture->env);
    if (residency_open(&fixture->env, 1000, &fixture->map) != KVT_OK ||
        policy_open(&fixture->env, fixture->map, &fixture->policy) != KVT_OK)
        return -1;
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    policy_close(fixture->policy);
    residency_close(fixture->map);
    free(fixture);
    return 0;
}

/* A block in HOST behind `parent` (ENTRY_NONE: a root). */
static uint32_t
block_add(struct fixture *fixture, uint32_t parent)
{
    uint64_t key_number = ++fixture->next_key;
    struct hash128 fingerprint = {.low = key_number, .high = 1};
    struct block_key key = {.namespace_id = 1, .form = 0, .length = sizeof(key_number)};
    uint32_t number;

    memcpy(key.bytes, &key_number, sizeof(key_number));
    assert_int_equal(residency_insert(fixture->map, fingerprint, &key, &number), KVT_OK);
    assert_int_equal(policy_reserve(fixture->policy, number), KVT_OK);
    policy_link(fixture->policy, number, parent);
    residency_publish(fixture->map, number, TIER_HOST);
    policy_host_add(fixture->policy, number);
    return number;
}

/* The block leaves the store. */
static void
block_remove(struct fixture *fixture, uint32_t number)
{
    residency_doom(fixture->map, number);
    policy_host_remove(fixture->policy, number);
    policy_unlink(fixture->policy, number);
    assert_true(residency_release(fixture->map, number));
}

static void
expect_victim(struct fixture *fixture, uint32_t wanted)
{
    assert_int_equal(policy_victim(fixture->policy, ENTRY_NONE), wanted);
}

static void
an_empty_list_has_no_victim(void **state)
{
    struct fixture *fixture = *state;
    uint32_t block;

    expect_victim(fixture, ENTRY_NONE);
    block = block_add(fixture, ENTRY_NONE);
    expect_victim(fixture, block);
    assert_int_equal(policy_victim(fixture->policy, block), ENTRY_NONE);
    block_remove(fixture, block);
    expect_victim(fixture, ENTRY_NONE);
}

static void
blocks_without_relations_go_in_order_of_their_last_use(void **state)
{
    struct fixture *fixture = *state;
    uint32_t a = block_add(fixture, ENTRY_NONE);
    uint32_t b = block_add(fixture, ENTRY_NONE);
    uint32_t c = block_add(fixture, ENTRY_NONE);

    policy_touch(fixture->policy, a);
    expect_victim(fixture, b);
    assert_int_equal(policy_victim(fixture->policy, b), c);
    assert_int_equal(policy_victim(fixture->policy, c), a);
    assert_int_equal(policy_victim(fixture->policy, a), ENTRY_NONE);
}

static void
a_chain_goes_from_its_end(void **state)
{
    struct fixture *fixture = *state;
    uint32_t chain[5];

    for (uint32_t i = 0; i < 5; i++)
        chain[i] = block_add(fixture, i == 0 ? ENTRY_NONE : chain[i - 1]);
    for (uint32_t i = 5; i > 0; i--) {
        expect_victim(fixture, chain[i - 1]);
        block_remove(fixture, chain[i - 1]);
    }
}

/* A block that arrives stands behind its parent, not in front of what was used since. */
static void
a_block_is_as_old_as_the_parent_it_joins(void **state)
{
    struct fixture *fixture = *state;
    uint32_t parent = block_add(fixture, ENTRY_NONE);
    uint32_t other = block_add(fixture, ENTRY_NONE);
    uint32_t child = block_add(fixture, parent);

    expect_victim(fixture, child);
    policy_touch(fixture->policy, child);
    policy_touch(fixture->policy, parent);
    expect_victim(fixture, other);
}

static void
a_parent_that_was_used_without_its_child_is_passed_over(void **state)
{
    struct fixture *fixture = *state;
    uint32_t parent = block_add(fixture, ENTRY_NONE);
    uint32_t child = block_add(fixture, parent);

    policy_touch(fixture->policy, child); /* The parent is older now. */
    expect_victim(fixture, child);
    policy_host_remove(
        fixture->policy, child); /* Its copy in HOST went, the block is still there. */
    expect_victim(fixture, parent);
    assert_int_equal(policy_at(fixture->policy, parent)->host_child_count, 0);
    assert_int_equal(policy_at(fixture->policy, parent)->child_count, 1);
    policy_host_add(fixture->policy, child);
    expect_victim(fixture, child);
}

static void
a_parent_that_left_is_nobodys_parent(void **state)
{
    struct fixture *fixture = *state;
    uint32_t parent = block_add(fixture, ENTRY_NONE);
    uint32_t child = block_add(fixture, parent);
    uint32_t early = block_add(fixture, parent);
    uint32_t successor;

    assert_int_equal(policy_parent(fixture->policy, child), parent);
    block_remove(fixture, parent);
    assert_int_equal(policy_parent(fixture->policy, early), ENTRY_NONE);
    successor = block_add(fixture, ENTRY_NONE);
    assert_int_equal(
        successor, parent); /* The number is used again: for a block without children. */
    assert_int_equal(policy_parent(fixture->policy, child), ENTRY_NONE);
    assert_int_equal(policy_at(fixture->policy, successor)->child_count, 0);
    block_remove(fixture, child);
    assert_int_equal(policy_at(fixture->policy, successor)->child_count, 0);
}

/* Random trees: the counts are those of the living, and a victim never has a child in HOST. */
static void
a_victim_never_has_children_in_host(void **state)
{
    struct fixture *fixture = *state;
    struct rng rng = {.state = 7};
    uint32_t blocks[BLOCKS_MAX];
    uint32_t count = 0;

    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t choice = rng_below(&rng, 4);
        uint32_t victim;

        if (count > 0 && choice == 0)
            policy_touch(fixture->policy, blocks[rng_below(&rng, count)]);
        else if (count < BLOCKS_MAX && choice < 3) {
            uint32_t parent = count == 0 ? ENTRY_NONE : blocks[rng_below(&rng, count)];

            blocks[count] = block_add(fixture, rng_below(&rng, 4) == 0 ? ENTRY_NONE : parent);
            count++;
        } else if (count > 0) {
            uint32_t gone = rng_below(&rng, count);
            bool is_eviction = rng_below(&rng, 4) != 0; /* Else a delete, which asks nobody. */

            victim = policy_victim(fixture->policy, ENTRY_NONE);
            for (uint32_t i = 0; is_eviction && i < count; i++)
                gone = blocks[i] == victim ? i : gone;
            block_remove(fixture, blocks[gone]);
            blocks[gone] = blocks[--count];
        }
        victim = policy_victim(fixture->policy, ENTRY_NONE);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t children = 0;

            for (uint32_t j = 0; j < count; j++)
                children += policy_parent(fixture->policy, blocks[j]) == blocks[i];
            assert_int_equal(policy_at(fixture->policy, blocks[i])->child_count, children);
            assert_int_equal(policy_at(fixture->policy, blocks[i])->host_child_count, children);
            assert_true(blocks[i] != victim || children == 0);
        }
        assert_true(victim != ENTRY_NONE || count == 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_empty_list_has_no_victim, setup, teardown),
        cmocka_unit_test_setup_teardown(
            blocks_without_relations_go_in_order_of_their_last_use, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chain_goes_from_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_block_is_as_old_as_the_parent_it_joins, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_parent_that_was_used_without_its_child_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(a_parent_that_left_is_nobodys_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(a_victim_never_has_children_in_host, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
