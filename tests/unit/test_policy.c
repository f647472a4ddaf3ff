/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_policy.c - what every policy must do, and what each does in its own way.
 *
 * All: leaves go first in each place, the sets are nested, a walk shows each leaf once, counts of
 * children are right, nodes come from a pool and all go back. LRU: its order. S3-FIFO: what is used
 * once leaves through the small queue, what is used twice or comes back goes to main.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "ghosts.h"
#include "policy_history.h"
#include "policy_nodes.h"
#include "policy_rig.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 200,
    STEPS = 250,
    ROUNDS = 1200, /* With 100 copies each more than one chunk of nodes. */
};

static int
setup_lru(void **state)
{
    return (*state = policy_rig_open(&policy_lru_ops)) == NULL ? -1 : 0;
}

static int
setup_s3fifo(void **state)
{
    return (*state = policy_rig_open(&policy_s3fifo_ops)) == NULL ? -1 : 0;
}

static int
setup_default(void **state)
{
    return (*state = policy_rig_open(&policy_default_ops)) == NULL ? -1 : 0;
}

static int
teardown(void **state)
{
    policy_rig_close(*state);
    return 0;
}

static void
expect_victim(struct policy_rig *rig, enum policy_place place, uint32_t wanted)
{
    assert_int_equal(policy_rig_victim(rig, place, ENTRY_NONE), wanted);
}

/* The first victim is this one, and there is no other. */
static void
expect_only_victim(struct policy_rig *rig, enum policy_place place, uint32_t wanted)
{
    expect_victim(rig, place, wanted);
    if (wanted != ENTRY_NONE)
        assert_int_equal(policy_rig_victim(rig, place, wanted), ENTRY_NONE);
}

/* --- All policies ----------------------------------------------------------------------------- */

static void
an_empty_place_has_no_victim(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t block = policy_rig_block(rig, ENTRY_NONE);

    for (unsigned place = 0; place < POLICY_NVME; place++) {
        expect_victim(rig, place, ENTRY_NONE);
        policy_rig_add(rig, place, block);
        expect_only_victim(rig, place, block);
        expect_victim(rig, (place + 1) % POLICY_NVME, ENTRY_NONE);
        policy_rig_remove(rig, place, block);
        expect_victim(rig, place, ENTRY_NONE);
    }
    policy_rig_drop(rig, block);
}

static void
a_chain_goes_from_its_end_in_every_place(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t chain[5];

    for (uint32_t i = 0; i < 5; i++)
        chain[i] = policy_rig_block(rig, i == 0 ? ENTRY_NONE : chain[i - 1]);
    for (unsigned place = 0; place < POLICY_NVME; place++) {
        for (uint32_t i = 0; i < 5; i++)
            policy_rig_add(rig, place, chain[i]);
        for (uint32_t i = 5; i > 0; i--) {
            expect_only_victim(rig, place, chain[i - 1]);
            policy_rig_remove(rig, place, chain[i - 1]);
        }
    }
}

static void
a_parent_stays_in_hbm_while_a_child_is_there(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, parent);

    policy_rig_add(rig, POLICY_HBM, parent);
    policy_rig_add(rig, POLICY_HOST, child);
    expect_only_victim(rig, POLICY_HBM, parent); /* A child in HOST only does not count there. */
    policy_rig_add(rig, POLICY_HBM + 3, child);
    expect_only_victim(rig, POLICY_HBM, ENTRY_NONE); /* On another device it does. */
    policy_rig_remove(rig, POLICY_HOST, child);
    expect_only_victim(rig, POLICY_HBM, ENTRY_NONE);
    policy_rig_remove(rig, POLICY_HBM + 3, child);
    expect_only_victim(rig, POLICY_HBM, parent);
}

static void
a_parent_in_host_alone_stays_while_a_child_is_in_memory(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, parent);

    policy_rig_add(rig, POLICY_HOST, parent);
    policy_rig_add(rig, POLICY_HBM + 7, child);
    expect_only_victim(rig, POLICY_HOST, ENTRY_NONE);
    policy_rig_add(rig, POLICY_HOST, child);
    expect_only_victim(rig, POLICY_HOST, child); /* HBM has it too: that copy can go. */
    policy_rig_remove(rig, POLICY_HBM + 7, child);
    expect_only_victim(rig, POLICY_HOST, child);
    policy_rig_remove(rig, POLICY_HOST, child);
    expect_only_victim(rig, POLICY_HOST, parent);
}

static void
a_host_copy_that_hbm_has_too_can_go_at_any_time(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, parent);

    policy_rig_add(rig, POLICY_HOST, parent);
    policy_rig_add(rig, POLICY_HBM, parent);
    policy_rig_add(rig, POLICY_HBM, child);
    expect_only_victim(rig, POLICY_HOST, parent);
    expect_only_victim(rig, POLICY_HBM, child);
    policy_rig_remove(rig, POLICY_HOST, parent);
    expect_only_victim(rig, POLICY_HBM, child);
}

static void
a_child_counts_for_a_parent_that_is_not_in_memory(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, parent);
    const struct entry_state *counts = entries_at(rig->entries, parent);

    for (uint32_t device = 0; device < 3; device++)
        policy_rig_add(rig, POLICY_HBM + device, child);
    policy_rig_add(rig, POLICY_HOST, child);
    assert_int_equal(counts->hbm_child_count, 1); /* Children, not copies. */
    assert_int_equal(counts->memory_child_count, 1);
    policy_rig_add(rig, POLICY_HOST, parent);
    expect_only_victim(rig, POLICY_HOST, child);
    for (uint32_t device = 0; device < 3; device++)
        policy_rig_remove(rig, POLICY_HBM + device, child);
    assert_int_equal(counts->hbm_child_count, 0);
    assert_int_equal(counts->memory_child_count, 1);
    policy_rig_remove(rig, POLICY_HOST, child);
    assert_int_equal(counts->memory_child_count, 0);
    assert_int_equal(counts->child_count, 1);
    expect_only_victim(rig, POLICY_HOST, parent);
}

static void
a_link_that_is_made_late_counts_as_one_made_early(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_block(rig, ENTRY_NONE);
    uint32_t other = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, ENTRY_NONE);

    policy_rig_add(rig, POLICY_HOST, parent);
    policy_rig_add(rig, POLICY_HOST, child);
    entries_link(rig->entries, child, other);
    entries_link(rig->entries, child, parent); /* It has one parent: the other has no child. */
    assert_int_equal(entries_at(rig->entries, other)->child_count, 0);
    assert_int_equal(entries_at(rig->entries, other)->memory_child_count, 0);
    assert_int_equal(entries_at(rig->entries, parent)->memory_child_count, 1);
    expect_only_victim(rig, POLICY_HOST, child);
    entries_unlink(rig->entries, child);
    assert_int_equal(entries_at(rig->entries, parent)->child_count, 0);
    assert_int_equal(entries_at(rig->entries, parent)->memory_child_count, 0);
}

static void
a_parent_that_left_is_nobodys_parent(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t child = policy_rig_copy(rig, parent);
    uint32_t early = policy_rig_copy(rig, parent);
    uint32_t successor;

    assert_int_equal(entries_parent(rig->entries, child), parent);
    policy_rig_drop(rig, parent);
    assert_int_equal(entries_parent(rig->entries, early), ENTRY_NONE);
    successor = policy_rig_copy(rig, ENTRY_NONE);
    /* The number is used again: for a block without children. */
    assert_int_equal(successor, parent);
    assert_int_equal(entries_parent(rig->entries, child), ENTRY_NONE);
    assert_int_equal(entries_at(rig->entries, successor)->child_count, 0);
    policy_rig_drop(rig, child);
    assert_int_equal(entries_at(rig->entries, successor)->child_count, 0);
    assert_int_equal(entries_at(rig->entries, successor)->memory_child_count, 0);
}

static void
what_was_prepared_and_did_not_come_leaves_nothing(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t block = policy_rig_block(rig, ENTRY_NONE);
    uint32_t child = policy_rig_block(rig, block);

    assert_int_equal(rig->policy->ops->prepare(rig->policy, block), KVT_OK);
    assert_int_equal(rig->policy->ops->prepare(rig->policy, block), KVT_OK); /* For two places. */
    rig->policy->ops->request(rig->policy, &block, 1, 1);
    expect_victim(rig, POLICY_HOST, ENTRY_NONE);
    rig->policy->ops->add(rig->policy, POLICY_HBM, block);
    rig->policy->ops->unprepare(rig->policy, block);
    expect_only_victim(rig, POLICY_HBM, block);
    rig->policy->ops->remove(rig->policy, POLICY_HBM, block);
    assert_int_equal(policy_nodes_count(rig->policy->nodes), 0);
    assert_int_equal(rig->policy->ops->prepare(rig->policy, child), KVT_OK);
    assert_int_equal(entries_at(rig->entries, block)->memory_child_count, 0);
    rig->policy->ops->unprepare(rig->policy, child);
    assert_int_equal(policy_nodes_count(rig->policy->nodes), 0);
}

/* The first mapping of nodes is a page shorter than the others. */
static void
nodes_stay_within_their_mappings(void **state)
{
    struct policy_rig *rig = *state;
    const struct policy_nodes *nodes = rig->policy->nodes;
    uint32_t block = policy_rig_block(rig, ENTRY_NONE);
    const size_t first_bytes = (2 << 20) - PAGE_BYTES;
    const uint8_t *first = NULL;
    uint32_t count = 3 * (uint32_t)(first_bytes / sizeof(struct policy_node));

    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *node;

        assert_int_equal(rig->policy->ops->prepare(rig->policy, block), KVT_OK);
        node = (const uint8_t *)node_at(nodes, entries_at(rig->entries, block)->node);
        if (first == NULL)
            first = node - sizeof(struct policy_node); /* No node is number 0. */
        assert_true(node < first || node >= first + (2 << 20) ||
                    node + sizeof(struct policy_node) <= first + first_bytes);
    }
    for (uint32_t i = 0; i < count; i++)
        rig->policy->ops->unprepare(rig->policy, block);
    assert_int_equal(policy_nodes_count(nodes), 0);
}

static void
without_memory_nothing_is_prepared_and_nothing_breaks(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t block = policy_rig_block(rig, ENTRY_NONE);
    struct policy *none;

    rig->memory.is_short = true;
    assert_int_equal(rig->policy->ops->prepare(rig->policy, block), KVT_E_NOMEM);
    assert_int_equal(rig->policy->ops->open(&rig->env, rig->entries, &none), KVT_E_NOMEM);
    assert_null(none);
    assert_int_equal(entries_at(rig->entries, block)->node, 0);
    rig->memory.is_short = false;
    policy_rig_add(rig, POLICY_HOST, block);
    expect_only_victim(rig, POLICY_HOST, block);
}

static void
no_memory_is_taken_while_copies_come_and_go(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t blocks[100];
    uint64_t taken_count = 0;

    for (uint32_t i = 0; i < 100; i++)
        blocks[i] = policy_rig_block(rig, i % 10 == 0 ? ENTRY_NONE : blocks[i - 1]);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 100; i++)
            policy_rig_add(rig, i % POLICY_NVME, blocks[i]);
        rig->policy->ops->request(rig->policy, blocks, 100, round);
        for (uint32_t i = 0; i < 100; i++) {
            (void)policy_rig_victim(rig, i % POLICY_NVME, ENTRY_NONE);
            policy_rig_remove(rig, i % POLICY_NVME, blocks[i]);
        }
        if (round == 0)
            taken_count = rig->memory.taken_count;
    }
    assert_int_equal(rig->memory.taken_count, taken_count);
    assert_int_equal(policy_nodes_count(rig->policy->nodes), 0);
}

/* Random trees in random places: counts, sets and, for LRU, the order are those of a list that is
 * searched from end to end. */
static void
random_histories_agree_with_a_naive_list(void **state)
{
    struct policy_rig *rig = *state;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        policy_history_run(rig, seed, STEPS);
        assert_int_equal(policy_nodes_count(rig->policy->nodes), 0);
    }
}

/* --- LRU -------------------------------------------------------------------------------------- */

static void
blocks_without_relations_go_in_order_of_their_last_use(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t a = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t b = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t c = policy_rig_copy(rig, ENTRY_NONE);

    policy_rig_use(rig, a);
    expect_victim(rig, POLICY_HOST, b);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, b), c);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, c), a);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, a), ENTRY_NONE);
}

/* A block that arrives stands behind its parent, not in front of what was used since. */
static void
a_block_is_as_old_as_the_parent_it_joins(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t other = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t child = policy_rig_copy(rig, parent);

    expect_victim(rig, POLICY_HOST, child);
    policy_rig_use(rig, child);
    policy_rig_use(rig, parent);
    expect_victim(rig, POLICY_HOST, other);
}

static void
a_parent_that_was_used_without_its_child_is_passed_over(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t parent = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t child = policy_rig_copy(rig, parent);

    policy_rig_use(rig, child); /* The parent is older now. */
    expect_victim(rig, POLICY_HOST, child);
    policy_rig_remove(rig, POLICY_HOST, child); /* The block itself is still there. */
    expect_victim(rig, POLICY_HOST, parent);
    policy_rig_add(rig, POLICY_HOST, child);
    expect_victim(rig, POLICY_HOST, child);
}

static void
a_request_is_used_deepest_first_in_every_place(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t a = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t b = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t c = policy_rig_copy(rig, ENTRY_NONE);
    const uint32_t request[] = {c, ENTRY_NONE, a};

    policy_rig_add(rig, POLICY_HBM + 1, b);
    policy_rig_add(rig, POLICY_HBM + 1, a);
    policy_rig_add(rig, POLICY_HBM + 1, c);
    rig->policy->ops->request(rig->policy, request, 3, 7);
    for (unsigned place = POLICY_HOST; place <= POLICY_HBM + 1; place += POLICY_HBM + 1) {
        expect_victim(rig, place, b);
        assert_int_equal(policy_rig_victim(rig, place, b), a);
        assert_int_equal(policy_rig_victim(rig, place, a), c);
    }
}

static void
importance_is_the_last_use(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t block = policy_rig_block(rig, ENTRY_NONE);

    entries_at(rig->entries, block)->last_use = 12345;
    assert_int_equal(rig->policy->ops->importance(rig->policy, block), 12345);
    assert_true(rig->policy->ops->admits(rig->policy, block));
    rig->policy->ops->costs_set(rig->policy, &(struct policy_costs){.nvme_load_ns = 1});
    assert_int_equal(rig->policy->ops->importance(rig->policy, block), 12345);
}

/* --- S3-FIFO ---------------------------------------------------------------------------------- */

enum {
    CACHE_BLOCKS = 100,
};

/* Blocks that are used once, as many as `count`, in a place that holds CACHE_BLOCKS. */
static void
scan(struct policy_rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)policy_rig_copy(rig, ENTRY_NONE);
        policy_rig_trim(rig, CACHE_BLOCKS);
    }
}

static bool
is_there(struct policy_rig *rig, uint64_t key)
{
    return policy_rig_find(rig, key) != ENTRY_NONE;
}

static void
what_is_used_twice_survives_a_scan_and_what_is_used_once_does_not(void **state)
{
    struct policy_rig *rig = *state;
    uint64_t twice[20], once[20];

    for (uint32_t i = 0; i < 20; i++) {
        uint32_t a = policy_rig_copy(rig, ENTRY_NONE);
        uint32_t b;

        twice[i] = rig->key_count;
        b = policy_rig_copy(rig, ENTRY_NONE);
        once[i] = rig->key_count;
        policy_rig_use(rig, a);
        policy_rig_use(rig, a);
        policy_rig_use(rig, b);
    }
    scan(rig, 3 * CACHE_BLOCKS);
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(is_there(rig, twice[i]));
        assert_false(is_there(rig, once[i]));
    }
}

/* While main fills its nine tenths, the small queue is all that scans pass through. */
static void
one_hit_wonders_leave_through_the_small_queue(void **state)
{
    struct policy_rig *rig = *state;
    uint64_t first_key = rig->key_count + 1;

    for (uint32_t i = 0; i < CACHE_BLOCKS - 10; i++) {
        uint32_t block = policy_rig_copy(rig, ENTRY_NONE);

        policy_rig_use(rig, block);
        policy_rig_use(rig, block);
    }
    scan(rig, 20 * CACHE_BLOCKS);
    for (uint32_t i = 0; i < CACHE_BLOCKS - 10; i++)
        assert_true(is_there(rig, first_key + i));
    for (uint32_t i = 0; i < 9; i++)
        assert_true(is_there(rig, rig->key_count - i)); /* They leave in their own order. */
    assert_false(is_there(rig, rig->key_count - 11));
}

static void
a_ghost_returns_to_main(void **state)
{
    struct policy_rig *rig = *state;
    uint64_t evicted, deleted, used;
    uint32_t shown;

    scan(rig, CACHE_BLOCKS);
    shown = policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE);
    evicted = policy_rig_key(rig, shown);
    shown = policy_rig_victim(rig, POLICY_HOST, shown);
    used = policy_rig_key(rig, shown);
    policy_rig_use(rig, shown); /* It was shown, stayed, and is deleted later. */
    policy_rig_drop(rig, shown);
    scan(rig, 2);
    deleted = rig->key_count - 5; /* No walk has shown it yet. */
    policy_rig_drop(rig, policy_rig_find(rig, deleted));
    assert_false(is_there(rig, evicted));
    (void)policy_rig_copy_of(rig, evicted, ENTRY_NONE);
    (void)policy_rig_copy_of(rig, deleted, ENTRY_NONE);
    (void)policy_rig_copy_of(rig, used, ENTRY_NONE);
    policy_rig_trim(rig, CACHE_BLOCKS);
    scan(rig, 3 * CACHE_BLOCKS);
    assert_true(is_there(rig, evicted));
    assert_false(is_there(rig, deleted) || is_there(rig, used));
}

static void
a_ghost_is_forgotten_after_as_many_as_main_holds(void **state)
{
    struct policy_rig *rig = *state;
    uint64_t old, young;

    scan(rig, 2 * CACHE_BLOCKS);
    /* The last that left is CACHE_BLOCKS behind the last that came. */
    old = rig->key_count - 2 * CACHE_BLOCKS + 5;
    young = rig->key_count - CACHE_BLOCKS - 80;
    assert_false(is_there(rig, old) || is_there(rig, young));
    (void)policy_rig_copy_of(rig, young, ENTRY_NONE);
    (void)policy_rig_copy_of(rig, old, ENTRY_NONE);
    policy_rig_trim(rig, CACHE_BLOCKS);
    scan(rig, 3 * CACHE_BLOCKS);
    assert_true(is_there(rig, young));
    assert_false(is_there(rig, old));
}

/* Three of 33 in small are no more than its share: main comes first. */
static void
what_small_has_comes_behind_what_main_has(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t shown = ENTRY_NONE;
    uint32_t blocks[33];
    bool was_shown[33] = {false};

    for (uint32_t i = 0; i < 33; i++) {
        blocks[i] = policy_rig_copy(rig, ENTRY_NONE);
        policy_rig_use(rig, blocks[i]);
        policy_rig_use(rig, blocks[i]);
        if (i == 29)
            expect_victim(rig, POLICY_HOST, blocks[0]); /* All of them are in main now. */
    }
    for (uint32_t i = 0; i < 33; i++) {
        shown = policy_rig_victim(rig, POLICY_HOST, shown);
        for (uint32_t j = 0; j < 33; j++) {
            assert_true(blocks[j] != shown || !was_shown[j]);
            was_shown[j] = was_shown[j] || blocks[j] == shown;
        }
        assert_true(was_shown[i]);
    }
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, shown), ENTRY_NONE);
}

/* It may have been pinned: the next walk finds it where it was. */
static void
a_victim_that_was_shown_and_stays_keeps_its_place(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t a = policy_rig_copy(rig, ENTRY_NONE);
    uint32_t b = policy_rig_copy(rig, ENTRY_NONE);

    for (uint32_t i = 0; i < 10; i++) {
        expect_victim(rig, POLICY_HOST, a);
        assert_int_equal(policy_rig_victim(rig, POLICY_HOST, a), b);
        assert_int_equal(policy_rig_victim(rig, POLICY_HOST, b), ENTRY_NONE);
    }
    policy_rig_remove(rig, POLICY_HOST, b);
    expect_only_victim(rig, POLICY_HOST, a);
}

static void
a_counter_stays_at_three(void **state)
{
    struct policy_rig *rig = *state;
    uint32_t blocks[3];

    for (uint32_t i = 0; i < 3; i++) {
        blocks[i] = policy_rig_copy(rig, ENTRY_NONE);
        policy_rig_use(rig, blocks[i]);
        policy_rig_use(rig, blocks[i]);
    }
    (void)policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE); /* All are in main. */
    for (uint32_t i = 0; i < 1000; i++)
        policy_rig_use(rig, blocks[0]);
    for (uint32_t i = 0; i < 3; i++)
        policy_rig_use(rig, blocks[1]);
    expect_victim(rig, POLICY_HOST, blocks[2]);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, blocks[2]), blocks[0]);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, blocks[0]), blocks[1]);
    assert_int_equal(policy_rig_victim(rig, POLICY_HOST, blocks[1]), ENTRY_NONE);
}

/* --- Ghosts ----------------------------------------------------------------------------------- */

static uint64_t
fingerprint(uint64_t i)
{
    struct rng rng = {.state = i};

    return rng_next(&rng);
}

static void
ghosts_take_a_bounded_table(void **state)
{
    struct policy_rig *rig = *state;
    struct ghosts ghosts = {.buckets = NULL};
    uint32_t found_count = 0;
    size_t bytes;

    assert_false(ghosts_take(&ghosts, fingerprint(1), UINT32_MAX));
    ghosts_add(&ghosts, fingerprint(1)); /* Without a table: nothing. */
    ghosts_reserve(&ghosts, &rig->env, 10000);
    bytes = ghosts_bytes(&ghosts);
    assert_in_range(bytes, 10000 * 16, 4 * 10000 * 8);
    for (uint64_t i = 0; i < 1000000; i++) {
        ghosts_add(&ghosts, fingerprint(i));
        ghosts_reserve(&ghosts, &rig->env, 10000);
    }
    assert_int_equal(ghosts_bytes(&ghosts), bytes);
    for (uint64_t i = 1000000 - 10001; i-- > 0;)
        assert_false(ghosts_take(&ghosts, fingerprint(i), 10000));
    for (uint64_t i = 1000000 - 10000; i < 1000000; i++)
        found_count += ghosts_take(&ghosts, fingerprint(i), 10000);
    assert_in_range(found_count, 9700, 10000);                      /* Some buckets were full. */
    assert_false(ghosts_take(&ghosts, fingerprint(999999), 10000)); /* Taken. */
    ghosts_close(&ghosts, &rig->env);
}

static struct CMUnitTest
case_of(const char *name, CMUnitTestFunction test, CMFixtureFunction setup)
{
    return (struct CMUnitTest){
        .name = name, .test_func = test, .setup_func = setup, .teardown_func = teardown};
}

#define OF_LRU(test) case_of(#test "_lru", test, setup_lru)
#define OF_S3FIFO(test) case_of(#test "_s3fifo", test, setup_s3fifo)
#define OF_DEFAULT(test) case_of(#test "_default", test, setup_default)
#define OF_BOTH(test) OF_LRU(test), OF_S3FIFO(test)
#define OF_ALL(test) OF_BOTH(test), OF_DEFAULT(test)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        OF_ALL(an_empty_place_has_no_victim),
        OF_ALL(a_chain_goes_from_its_end_in_every_place),
        OF_ALL(a_parent_stays_in_hbm_while_a_child_is_there),
        OF_ALL(a_parent_in_host_alone_stays_while_a_child_is_in_memory),
        OF_ALL(a_host_copy_that_hbm_has_too_can_go_at_any_time),
        OF_ALL(a_child_counts_for_a_parent_that_is_not_in_memory),
        OF_ALL(a_link_that_is_made_late_counts_as_one_made_early),
        OF_ALL(a_parent_that_left_is_nobodys_parent),
        OF_ALL(what_was_prepared_and_did_not_come_leaves_nothing),
        OF_ALL(nodes_stay_within_their_mappings),
        OF_ALL(without_memory_nothing_is_prepared_and_nothing_breaks),
        OF_ALL(no_memory_is_taken_while_copies_come_and_go),
        OF_ALL(random_histories_agree_with_a_naive_list),
        OF_BOTH(importance_is_the_last_use),
        OF_LRU(blocks_without_relations_go_in_order_of_their_last_use),
        OF_LRU(a_block_is_as_old_as_the_parent_it_joins),
        OF_LRU(a_parent_that_was_used_without_its_child_is_passed_over),
        OF_LRU(a_request_is_used_deepest_first_in_every_place),
        OF_S3FIFO(what_is_used_twice_survives_a_scan_and_what_is_used_once_does_not),
        OF_S3FIFO(one_hit_wonders_leave_through_the_small_queue),
        OF_S3FIFO(a_ghost_returns_to_main),
        OF_S3FIFO(a_ghost_is_forgotten_after_as_many_as_main_holds),
        OF_S3FIFO(a_victim_that_was_shown_and_stays_keeps_its_place),
        OF_S3FIFO(what_small_has_comes_behind_what_main_has),
        OF_S3FIFO(a_counter_stays_at_three),
        OF_S3FIFO(ghosts_take_a_bounded_table),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
