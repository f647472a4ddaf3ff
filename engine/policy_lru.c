/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_lru.c - leaf-first LRU.
 *
 * Owns      a list for each place, from the most to the least recently used copy.
 *
 * Order: a block stands next to its parent on the older side when it arrives, and a request's
 * blocks are touched deepest first; so the end of a list is a leaf, whatever was used in between. A
 * block that has children in the set all the same (they were used without it) is passed over.
 */
#include "failure.h"
#include "policy_nodes.h"

struct lru {
    struct policy base;
    struct kvt_env env;
    struct node_list lists[POLICY_PLACE_COUNT];
};

static struct lru *
lru_of(struct policy *policy)
{
    return (struct lru *)policy;
}

static void
lru_close(struct policy *policy)
{
    struct kvt_env env;

    if (policy == NULL)
        return;
    env = lru_of(policy)->env;
    policy_nodes_close(policy->nodes);
    env_put(&env, policy, sizeof(struct lru));
}

static enum kvt_status
lru_open(const struct kvt_env *env, struct entries *entries, struct policy **policy_out)
{
    struct lru *lru = env_take(env, sizeof(*lru));
    enum kvt_status status;

    *policy_out = NULL;
    if (lru == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy");
    lru->base = (struct policy){.ops = &policy_lru_ops, .entries = entries};
    lru->env = *env;
    status = policy_nodes_open(env, entries, &lru->base.nodes);
    if (status != KVT_OK) {
        lru_close(&lru->base);
        return status;
    }
    *policy_out = &lru->base;
    return KVT_OK;
}

static void
lru_add(struct policy *policy, enum policy_place place, uint32_t number)
{
    uint32_t parent = entries_parent(policy->entries, number);
    uint32_t newer = NODE_NONE;

    if (parent != ENTRY_NONE)
        newer = node_find(policy->nodes, place, parent);
    node_list_insert(policy->nodes, &lru_of(policy)->lists[place],
        node_settle(policy->nodes, place, number), newer);
}

static void
lru_remove(struct policy *policy, enum policy_place place, uint32_t number)
{
    uint32_t node = node_find(policy->nodes, place, number);

    KVT_ASSERT(node != NODE_NONE);
    node_list_remove(policy->nodes, &lru_of(policy)->lists[place], node);
    node_drop(policy->nodes, node);
}

/* To the newest end, in each place that has a copy. */
static void
lru_touch(struct policy *policy, uint32_t number, uint64_t now_ns)
{
    uint32_t node = entries_at(policy->entries, number)->node;

    policy_use(policy, number, now_ns);
    for (; node != NODE_NONE; node = node_at(policy->nodes, node)->next) {
        unsigned place = node_at(policy->nodes, node)->place;
        struct node_list *list;

        if (place == NODE_PLACE_NONE)
            continue;
        list = &lru_of(policy)->lists[place];
        if (list->newest == node)
            continue;
        node_list_remove(policy->nodes, list, node);
        node_list_insert(policy->nodes, list, node, NODE_NONE);
    }
}

static void
lru_request(struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns)
{
    for (uint32_t i = count; i-- > 0;) {
        if (numbers[i] != ENTRY_NONE)
            lru_touch(policy, numbers[i], now_ns);
    }
}

static uint32_t
lru_victim(struct policy *policy, enum policy_place place, uint32_t cursor)
{
    uint32_t node = lru_of(policy)->lists[place].oldest;

    if (cursor != ENTRY_NONE) {
        node = node_find(policy->nodes, place, cursor);
        if (node != NODE_NONE)
            node = node_at(policy->nodes, node)->newer;
    }
    while (node != NODE_NONE) {
        const struct policy_node *shown = node_at(policy->nodes, node);

        if (entries_is_leaf(policy->entries, place, shown->entry))
            return shown->entry;
        node = shown->newer;
    }
    return ENTRY_NONE;
}

const struct policy_ops policy_lru_ops = {
    .name = "lru",
    .open = lru_open,
    .close = lru_close,
    .arrive = policy_arrive_ignore,
    .leave = policy_leave_ignore,
    .prepare = policy_prepare,
    .unprepare = policy_unprepare,
    .add = lru_add,
    .remove = lru_remove,
    .recheck = policy_recheck_ignore,
    .request = lru_request,
    .victim = lru_victim,
    .admits = policy_admits_all,
    .importance = policy_last_use,
    .score = policy_score_nothing,
    .worth = policy_worth_nothing,
    .costs_set = policy_costs_ignore,
    .save = policy_save_nothing,
    .restore = policy_restore_nothing,
};
