/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_history.c - steps of a random history, and the naive reference.
 */
#include "policy_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"

enum {
    BLOCKS_MAX = 40,
};

struct block {
    uint32_t number;
    uint32_t parent; /* Its number while that is there, else ENTRY_NONE. */
    bool has_copy[POLICY_PLACE_COUNT];
};

/* Copies of a place, the newest first. */
struct order {
    uint32_t numbers[BLOCKS_MAX];
    uint32_t count;
};

struct history {
    struct policy_rig *rig;
    struct rng rng;
    struct block blocks[BLOCKS_MAX];
    uint32_t count;
    struct order orders[POLICY_PLACE_COUNT];
};

/* --- The reference ---------------------------------------------------------------------------- */

static uint32_t
order_find(const struct order *order, uint32_t number)
{
    uint32_t i = 0;

    while (i < order->count && order->numbers[i] != number)
        i++;
    return i;
}

static void
order_insert(struct order *order, uint32_t at, uint32_t number)
{
    memmove(&order->numbers[at + 1], &order->numbers[at],
        (order->count - at) * sizeof(order->numbers[0]));
    order->numbers[at] = number;
    order->count++;
}

static void
order_remove(struct order *order, uint32_t number)
{
    uint32_t at = order_find(order, number);

    assert_in_range(at, 0, order->count - 1);
    order->count--;
    memmove(&order->numbers[at], &order->numbers[at + 1],
        (order->count - at) * sizeof(order->numbers[0]));
}

static bool
is_in_hbm(const struct block *block)
{
    for (uint32_t place = POLICY_HBM; place < POLICY_NVME; place++) {
        if (block->has_copy[place])
            return true;
    }
    return false;
}

static bool
is_in_memory(const struct block *block)
{
    return block->has_copy[POLICY_HOST] || is_in_hbm(block);
}

static bool
is_leaf(const struct history *history, const struct block *block, uint32_t place)
{
    if (place == POLICY_HOST && is_in_hbm(block))
        return true;
    if (place == POLICY_NVME && is_in_memory(block))
        return true;
    for (uint32_t i = 0; i < history->count; i++) {
        const struct block *child = &history->blocks[i];

        if (child->parent != block->number)
            continue;
        if (place == POLICY_NVME || (place == POLICY_HOST ? is_in_memory(child) : is_in_hbm(child)))
            return false;
    }
    return true;
}

static struct block *
block_of(struct history *history, uint32_t number)
{
    for (uint32_t i = 0; i < history->count; i++) {
        if (history->blocks[i].number == number)
            return &history->blocks[i];
    }
    fail_msg("there is no block %u", number);
    return NULL;
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* Few places, so that they fill. */
static uint32_t
place_choose(struct history *history)
{
    static const uint32_t places[] = {
        POLICY_HOST, POLICY_HOST, POLICY_HBM, POLICY_HBM + 7, POLICY_NVME};

    return places[rng_below(&history->rng, sizeof(places) / sizeof(places[0]))];
}

static void
copy_add(struct history *history, struct block *block, uint32_t place)
{
    struct order *order = &history->orders[place];
    uint32_t at = order_find(order, block->parent);

    if (block->has_copy[place])
        return;
    policy_rig_add(history->rig, place, block->number);
    order_insert(order, at == order->count ? 0 : at + 1, block->number);
    block->has_copy[place] = true;
}

static void
copy_remove(struct history *history, struct block *block, uint32_t place)
{
    policy_rig_remove(history->rig, place, block->number);
    order_remove(&history->orders[place], block->number);
    block->has_copy[place] = false;
}

static void
block_come(struct history *history)
{
    struct block *block = &history->blocks[history->count];
    uint32_t parent = ENTRY_NONE;

    if (history->count == BLOCKS_MAX)
        return;
    if (history->count > 0 && rng_below(&history->rng, 4) != 0)
        parent = history->blocks[rng_below(&history->rng, history->count)].number;
    *block = (struct block){.number = policy_rig_block(history->rig, parent), .parent = parent};
    history->count++;
    if (rng_below(&history->rng, 4) != 0)
        copy_add(history, block, place_choose(history));
}

/* A delete, which asks nobody: children may stay. */
static void
block_leave(struct history *history, struct block *block)
{
    uint32_t number = block->number;

    policy_rig_drop(history->rig, number);
    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++) {
        if (block->has_copy[place])
            order_remove(&history->orders[place], number);
    }
    *block = history->blocks[--history->count];
    for (uint32_t i = 0; i < history->count; i++) {
        if (history->blocks[i].parent == number)
            history->blocks[i].parent = ENTRY_NONE;
    }
}

static void
request(struct history *history)
{
    uint32_t numbers[8];
    uint32_t count = 1 + rng_below(&history->rng, 8);

    for (uint32_t i = 0; i < count; i++) {
        bool is_none = history->count == 0 || rng_below(&history->rng, 5) == 0;

        numbers[i] =
            is_none ? ENTRY_NONE : history->blocks[rng_below(&history->rng, history->count)].number;
    }
    history->rig->now_ns += (uint64_t)rng_below(&history->rng, 8) << 29; /* Up to 4 s. */
    history->rig->policy->ops->request(history->rig->policy, numbers, count, history->rig->now_ns);
    for (uint32_t i = count; i-- > 0;) {
        for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++) {
            struct order *order = &history->orders[place];

            if (order_find(order, numbers[i]) == order->count)
                continue;
            order_remove(order, numbers[i]);
            order_insert(order, 0, numbers[i]);
        }
    }
}

/* A walk, as the engine's: some of what is shown goes (the next is asked for first), some is in use
 * and stays. Nothing is shown twice. */
static void
evict(struct history *history)
{
    uint32_t place = place_choose(history);
    uint32_t victim = policy_rig_victim(history->rig, place, ENTRY_NONE);
    bool was_shown[4 * BLOCKS_MAX] = {false};

    for (uint32_t i = 0; i < 6 && victim != ENTRY_NONE; i++) {
        uint32_t next = policy_rig_victim(history->rig, place, victim);

        assert_in_range(victim, 0, 4 * BLOCKS_MAX - 1);
        assert_false(was_shown[victim]);
        was_shown[victim] = true;
        assert_true(is_leaf(history, block_of(history, victim), place));
        if (rng_below(&history->rng, 2) == 0)
            copy_remove(history, block_of(history, victim), place);
        victim = next;
    }
}

static void
step(struct history *history)
{
    uint32_t choice = rng_below(&history->rng, 12);
    struct block *block =
        history->count == 0 ? NULL : &history->blocks[rng_below(&history->rng, history->count)];
    uint32_t place = place_choose(history);

    if (choice < 4 || block == NULL) {
        block_come(history);
    } else if (choice < 6) {
        copy_add(history, block, place);
    } else if (choice < 7) {
        if (block->has_copy[place])
            copy_remove(history, block, place);
    } else if (choice < 8) {
        block_leave(history, block);
    } else if (choice < 10) {
        request(history);
    } else {
        evict(history);
    }
}

/* --- Checks ----------------------------------------------------------------------------------- */

static void
counts_check(struct history *history)
{
    for (uint32_t i = 0; i < history->count; i++) {
        const struct block *block = &history->blocks[i];
        const struct entry_state *state = entries_at(history->rig->entries, block->number);
        uint32_t children = 0, in_memory = 0, in_hbm = 0;

        for (uint32_t j = 0; j < history->count; j++) {
            if (history->blocks[j].parent != block->number)
                continue;
            children++;
            in_memory += is_in_memory(&history->blocks[j]);
            in_hbm += is_in_hbm(&history->blocks[j]);
        }
        assert_int_equal(state->child_count, children);
        assert_int_equal(state->memory_child_count, in_memory);
        assert_int_equal(state->hbm_child_count, in_hbm);
        assert_int_equal(entries_parent(history->rig->entries, block->number), block->parent);
    }
}

/* A walk of which nothing is removed shows each leaf once, and nothing else. */
static void
walk_check(struct history *history, uint32_t place)
{
    const struct order *order = &history->orders[place];
    bool is_lru = history->rig->policy->ops == &policy_lru_ops;
    bool was_shown[BLOCKS_MAX] = {false};
    uint32_t shown = ENTRY_NONE;
    uint32_t leaf_count = 0;

    for (uint32_t i = order->count; i-- > 0;)
        leaf_count += is_leaf(history, block_of(history, order->numbers[i]), place);
    for (uint32_t i = order->count; leaf_count > 0; leaf_count--) {
        uint32_t at;

        shown = policy_rig_victim(history->rig, place, shown);
        at = order_find(order, shown);
        assert_in_range(at, 0, order->count - 1);
        assert_false(was_shown[at]);
        was_shown[at] = true;
        assert_true(is_leaf(history, block_of(history, shown), place));
        if (is_lru) /* The next leaf of the reference. */
            assert_true(at < i);
        for (uint32_t passed = at + 1; is_lru && passed < i; passed++)
            assert_false(is_leaf(history, block_of(history, order->numbers[passed]), place));
        i = at;
    }
    if (order->count > 0 || shown == ENTRY_NONE)
        assert_int_equal(policy_rig_victim(history->rig, place, shown), ENTRY_NONE);
}

void
policy_history_run(struct policy_rig *rig, uint64_t seed, uint32_t step_count)
{
    struct history history = {.rig = rig, .rng = {.state = seed}};

    for (uint32_t i = 0; i < step_count; i++) {
        step(&history);
        counts_check(&history);
        walk_check(&history, place_choose(&history));
    }
    while (history.count > 0)
        block_leave(&history, &history.blocks[rng_below(&history.rng, history.count)]);
    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++)
        assert_int_equal(policy_rig_victim(rig, place, ENTRY_NONE), ENTRY_NONE);
}
