/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_nodes.c - the pool of nodes, chains and lists of them, and what all policies do alike.
 */
#include "policy_nodes.h"

#include <math.h>

#include "bytes.h"
#include "failure.h"

enum {
    CHUNK_BYTES = 2 << 20, /* One huge page of nodes. */
    NODES_PER_CHUNK = CHUNK_BYTES / sizeof(struct policy_node),
    /* Of small pages (env_map): a small store touches few of them, and clears no more. */
    FIRST_CHUNK_BYTES = CHUNK_BYTES - PAGE_BYTES,
    FIRST_CHUNK_NODES = FIRST_CHUNK_BYTES / sizeof(struct policy_node),
    CHUNK_COUNT_MAX = 1 << 15, /* 3.4 thousand million nodes. */
};

struct policy_nodes {
    struct kvt_env env;
    struct entries *entries;
    struct policy_node **chunks; /* CHUNK_COUNT_MAX pointers, taken as they are touched. */
    uint32_t chunk_count;
    uint32_t first_unused; /* From here on none was ever used. */
    uint32_t free;         /* The first of those that were, and are free. */
    uint32_t count;        /* Not FREE. */
};

static size_t
chunk_bytes(uint32_t chunk)
{
    return chunk == 0 ? FIRST_CHUNK_BYTES : CHUNK_BYTES;
}

enum kvt_status
policy_nodes_open(
    const struct kvt_env *env, struct entries *entries, struct policy_nodes **nodes_out)
{
    struct policy_nodes *nodes = env_take(env, sizeof(*nodes));

    *nodes_out = NULL;
    if (nodes == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy's nodes");
    nodes->env = *env;
    nodes->entries = entries;
    nodes->first_unused = NODE_NONE + 1;
    nodes->chunks = env_take(env, CHUNK_COUNT_MAX * sizeof(*nodes->chunks));
    if (nodes->chunks == NULL) {
        env_put(env, nodes, sizeof(*nodes));
        return failure_set(KVT_E_NOMEM, 0, "no memory for the table of the policy's nodes");
    }
    *nodes_out = nodes;
    return KVT_OK;
}

void
policy_nodes_close(struct policy_nodes *nodes)
{
    struct kvt_env env;

    if (nodes == NULL)
        return;
    env = nodes->env;
    for (uint32_t i = 0; i < nodes->chunk_count; i++)
        env_unmap(&env, nodes->chunks[i], chunk_bytes(i));
    env_put(&env, nodes->chunks, CHUNK_COUNT_MAX * sizeof(*nodes->chunks));
    env_put(&env, nodes, sizeof(*nodes));
}

uint32_t
policy_nodes_count(const struct policy_nodes *nodes)
{
    return nodes->count;
}

struct policy_node *
node_at(const struct policy_nodes *nodes, uint32_t node)
{
    KVT_ASSERT(node != NODE_NONE && node < nodes->first_unused);
    return &nodes->chunks[node / NODES_PER_CHUNK][node % NODES_PER_CHUNK];
}

/* --- The pool --------------------------------------------------------------------------------- */

/* A free node, or NODE_NONE: there is no memory for one. */
static uint32_t
node_take(struct policy_nodes *nodes)
{
    uint32_t node = nodes->free;

    if (node != NODE_NONE) {
        nodes->free = node_at(nodes, node)->next;
        nodes->count++;
        return node;
    }
    if (nodes->first_unused == FIRST_CHUNK_NODES)
        nodes->first_unused = NODES_PER_CHUNK;
    node = nodes->first_unused;
    if (node / NODES_PER_CHUNK == nodes->chunk_count) {
        if (nodes->chunk_count == CHUNK_COUNT_MAX)
            return NODE_NONE;
        nodes->chunks[nodes->chunk_count] = env_map(&nodes->env, chunk_bytes(nodes->chunk_count));
        if (nodes->chunks[nodes->chunk_count] == NULL)
            return NODE_NONE;
        nodes->chunk_count++;
    }
    nodes->first_unused++;
    nodes->count++;
    return node;
}

static void
node_give(struct policy_nodes *nodes, uint32_t node)
{
    *node_at(nodes, node) = (struct policy_node){.next = nodes->free};
    nodes->free = node;
    nodes->count--;
}

/* --- Chains ----------------------------------------------------------------------------------- */

/* The entry's node with that place, which may be NODE_PLACE_NONE; NODE_NONE: there is none. */
static uint32_t
chain_find(const struct policy_nodes *nodes, uint32_t number, unsigned place)
{
    uint32_t node = entries_at(nodes->entries, number)->node;

    while (node != NODE_NONE && node_at(nodes, node)->place != place)
        node = node_at(nodes, node)->next;
    return node;
}

static void
chain_remove(struct policy_nodes *nodes, uint32_t node)
{
    uint32_t *link = &entries_at(nodes->entries, node_at(nodes, node)->entry)->node;

    while (*link != node)
        link = &node_at(nodes, *link)->next;
    *link = node_at(nodes, node)->next;
}

uint32_t
node_find(const struct policy_nodes *nodes, enum policy_place place, uint32_t number)
{
    return chain_find(nodes, number, place);
}

uint32_t
node_settle(struct policy_nodes *nodes, enum policy_place place, uint32_t number)
{
    uint32_t node = chain_find(nodes, number, NODE_PLACE_NONE);

    KVT_ASSERT(node != NODE_NONE);
    entries_copy_add(nodes->entries, place, number);
    node_at(nodes, node)->place = (uint8_t)place;
    return node;
}

void
node_drop(struct policy_nodes *nodes, uint32_t node)
{
    const struct policy_node *gone = node_at(nodes, node);

    entries_copy_remove(nodes->entries, (enum policy_place)gone->place, gone->entry);
    chain_remove(nodes, node);
    node_give(nodes, node);
}

/* --- Lists ------------------------------------------------------------------------------------ */

void
node_list_insert(struct policy_nodes *nodes, struct node_list *list, uint32_t node, uint32_t newer)
{
    uint32_t older = newer == NODE_NONE ? list->newest : node_at(nodes, newer)->older;

    node_at(nodes, node)->newer = newer;
    node_at(nodes, node)->older = older;
    if (newer == NODE_NONE)
        list->newest = node;
    else
        node_at(nodes, newer)->older = node;
    if (older == NODE_NONE)
        list->oldest = node;
    else
        node_at(nodes, older)->newer = node;
    list->count++;
}

void
node_list_remove(struct policy_nodes *nodes, struct node_list *list, uint32_t node)
{
    struct policy_node *gone = node_at(nodes, node);

    if (gone->newer == NODE_NONE)
        list->newest = gone->older;
    else
        node_at(nodes, gone->newer)->older = gone->older;
    if (gone->older == NODE_NONE)
        list->oldest = gone->newer;
    else
        node_at(nodes, gone->older)->newer = gone->newer;
    gone->newer = gone->older = NODE_NONE;
    list->count--;
}

/* --- Operations that are the same for all ----------------------------------------------------- */

enum kvt_status
policy_prepare(struct policy *policy, uint32_t number)
{
    struct policy_nodes *nodes = policy->nodes;
    struct entry_state *state = entries_at(policy->entries, number);
    uint32_t node = node_take(nodes);

    if (node == NODE_NONE)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy's node of block %u", number);
    *node_at(nodes, node) =
        (struct policy_node){.entry = number, .next = state->node, .place = NODE_PLACE_NONE};
    state->node = node;
    return KVT_OK;
}

void
policy_unprepare(struct policy *policy, uint32_t number)
{
    uint32_t node = chain_find(policy->nodes, number, NODE_PLACE_NONE);

    KVT_ASSERT(node != NODE_NONE);
    chain_remove(policy->nodes, node);
    node_give(policy->nodes, node);
}

bool
policy_admits_all(struct policy *policy, uint32_t number)
{
    (void)policy;
    (void)number;
    return true;
}

uint64_t
policy_last_use(struct policy *policy, uint32_t number)
{
    return entries_at(policy->entries, number)->last_use;
}

float
policy_score_nothing(struct policy *policy, enum policy_place place, uint32_t number)
{
    (void)policy;
    (void)place;
    (void)number;
    return NAN;
}

void
policy_worth_nothing(struct policy *policy, uint32_t number, struct policy_worth *worth_out)
{
    (void)policy;
    (void)number;
    *worth_out = (struct policy_worth){.worth_ns = NAN, .price_ns = NAN};
}

void
policy_use(struct policy *policy, uint32_t number, uint64_t now_ns)
{
    entries_at(policy->entries, number)->last_use = (uint32_t)(now_ns >> USE_TICK_SHIFT);
}

void
policy_arrive_ignore(
    struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count; i++)
        policy_use(policy, numbers[i], now_ns);
}

void
policy_leave_ignore(struct policy *policy, uint32_t number, bool is_evicted)
{
    (void)policy;
    (void)number;
    (void)is_evicted;
}

void
policy_recheck_ignore(struct policy *policy, uint32_t number)
{
    (void)policy;
    (void)number;
}

void
policy_costs_ignore(struct policy *policy, const struct policy_costs *costs)
{
    (void)policy;
    (void)costs;
}

size_t
policy_save_nothing(struct policy *policy, uint8_t *target)
{
    (void)policy;
    (void)target;
    return 0;
}

bool
policy_restore_nothing(struct policy *policy, const uint8_t *source, size_t size)
{
    (void)policy;
    (void)source;
    (void)size;
    return false;
}
