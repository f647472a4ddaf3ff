/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_s3fifo.c - S3-FIFO, leaf-first: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you
 * need for cache eviction", SOSP 2023.
 *
 * Owns      for each place two queues of copies, small and main, and the ghosts of what left small.
 *
 * A copy comes to the newest end of small, or of main if its block is a ghost. While small has more
 * than a tenth of the place's copies victims come from small, else from main:
 *   small   from the oldest on; what was used more than once since it came goes to main, and its
 *           counter to 0; the next is the victim, and becomes a ghost when it is removed.
 *   main    from the oldest on; what was used since goes to the newest end, and its counter one
 *           down; the next is the victim.
 * The counter has two bits: it stays at 3. As many ghosts count as main has when the place is full:
 * nine tenths of the copies.
 *
 * What the queues of blocks that have children need beside that:
 *   - a copy with children in the same set is no victim. It goes to the newest end of its queue, as
 *     if it came now, so that no walk finds it in its way again before its children.
 *   - of blocks that come one after the other, each behind its parent, the last is the oldest in
 *     the queue: a chain goes from its end.
 *
 * Copies change their queue in walks, in victim(): both moves are the same whether the victims are
 * then removed or not. A copy that was shown stays where it is, and is shown again by the next walk
 * if it was not removed; only the removal of a copy that was shown, and not used since, makes a
 * ghost: a delete does not.
 */
#include "failure.h"
#include "ghosts.h"
#include "policy_nodes.h"

enum s3_queue {
    S3_SMALL,
    S3_MAIN,
    S3_QUEUE_COUNT,
};

enum {
    S3_SMALL_SHARE = 10, /* One in so many copies is in small. */
    S3_USES_MAX = 3,
    S3_USES_TO_MAIN = 2,
};

struct s3_place {
    struct node_list queues[S3_QUEUE_COUNT];
    uint32_t last_came[S3_QUEUE_COUNT]; /* Nodes, or NODE_NONE. */
    enum s3_queue walk_first;           /* Which queue the walk began in. */
    struct ghosts ghosts;
};

struct s3 {
    struct policy base;
    struct kvt_env env;
    struct s3_place places[POLICY_PLACE_COUNT];
};

static struct s3 *
s3_of(struct policy *policy)
{
    return (struct s3 *)policy;
}

static void
s3_close(struct policy *policy)
{
    struct kvt_env env;

    if (policy == NULL)
        return;
    env = s3_of(policy)->env;
    for (uint32_t i = 0; i < POLICY_PLACE_COUNT; i++)
        ghosts_close(&s3_of(policy)->places[i].ghosts, &env);
    policy_nodes_close(policy->nodes);
    env_put(&env, policy, sizeof(struct s3));
}

static enum kvt_status
s3_open(const struct kvt_env *env, struct entries *entries, struct policy **policy_out)
{
    struct s3 *s3 = env_take(env, sizeof(*s3));
    enum kvt_status status;

    *policy_out = NULL;
    if (s3 == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy");
    s3->base = (struct policy){.ops = &policy_s3fifo_ops, .entries = entries};
    s3->env = *env;
    status = policy_nodes_open(env, entries, &s3->base.nodes);
    if (status != KVT_OK) {
        s3_close(&s3->base);
        return status;
    }
    *policy_out = &s3->base;
    return KVT_OK;
}

/* --- Coming and going ------------------------------------------------------------------------- */

static uint32_t
copy_count(const struct s3_place *place)
{
    return place->queues[S3_SMALL].count + place->queues[S3_MAIN].count;
}

static uint64_t
fingerprint_of(struct policy *policy, uint32_t number)
{
    return residency_at(entries_map(policy->entries), number)->fingerprint.low;
}

static void
queue_remove(struct policy *policy, struct s3_place *place, uint32_t node)
{
    unsigned queue = node_at(policy->nodes, node)->queue;

    node_list_remove(policy->nodes, &place->queues[queue], node);
    if (place->last_came[queue] == node)
        place->last_came[queue] = NODE_NONE;
}

static void
queue_insert(struct policy *policy, struct s3_place *place, enum s3_queue queue, uint32_t node,
    uint32_t newer)
{
    node_at(policy->nodes, node)->queue = (uint8_t)queue;
    node_list_insert(policy->nodes, &place->queues[queue], node, newer);
}

/* A new copy: to the newest end, but behind its parent if that came just before. */
static void
queue_come(struct policy *policy, struct s3_place *place, enum s3_queue queue, uint32_t node)
{
    uint32_t parent = entries_parent(policy->entries, node_at(policy->nodes, node)->entry);
    uint32_t last = place->last_came[queue];
    bool is_behind = last != NODE_NONE && node_at(policy->nodes, last)->entry == parent;

    queue_insert(policy, place, queue, node, is_behind ? last : NODE_NONE);
    place->last_came[queue] = node;
}

static void
s3_add(struct policy *policy, enum policy_place place, uint32_t number)
{
    struct s3_place *here = &s3_of(policy)->places[place];
    uint32_t node = node_settle(policy->nodes, place, number);
    uint32_t count = copy_count(here);
    bool is_back;

    ghosts_reserve(&here->ghosts, &s3_of(policy)->env, count);
    is_back =
        ghosts_take(&here->ghosts, fingerprint_of(policy, number), count - count / S3_SMALL_SHARE);
    queue_come(policy, here, is_back ? S3_MAIN : S3_SMALL, node);
}

static void
s3_remove(struct policy *policy, enum policy_place place, uint32_t number)
{
    struct s3_place *here = &s3_of(policy)->places[place];
    uint32_t node = node_find(policy->nodes, place, number);
    const struct policy_node *gone;

    KVT_ASSERT(node != NODE_NONE);
    gone = node_at(policy->nodes, node);
    if (gone->queue == S3_SMALL && gone->is_shown)
        ghosts_add(&here->ghosts, fingerprint_of(policy, number));
    queue_remove(policy, here, node);
    node_drop(policy->nodes, node);
}

static void
s3_request(struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node;

        if (numbers[i] == ENTRY_NONE)
            continue;
        policy_use(policy, numbers[i], now_ns);
        node = entries_at(policy->entries, numbers[i])->node;
        for (; node != NODE_NONE; node = node_at(policy->nodes, node)->next) {
            struct policy_node *used = node_at(policy->nodes, node);

            if (used->use_count < S3_USES_MAX)
                used->use_count++;
            used->is_shown = 0;
        }
    }
}

/* --- Walks ------------------------------------------------------------------------------------ */

static bool
small_is_full(const struct s3_place *place)
{
    return place->queues[S3_SMALL].count > copy_count(place) / S3_SMALL_SHARE;
}

/* What becomes of the oldest of a queue: it is a victim (true), or has moved. */
static bool
node_judge(struct policy *policy, struct s3_place *place, uint32_t node)
{
    struct policy_node *judged = node_at(policy->nodes, node);
    enum s3_queue queue = (enum s3_queue)judged->queue;
    enum s3_queue target = queue;

    /* When main has no victim small gives what it has: what moved to main would not be shown. */
    if (queue == S3_SMALL && place->walk_first == S3_SMALL &&
        judged->use_count >= S3_USES_TO_MAIN) {
        judged->use_count = 0;
        target = S3_MAIN;
    } else if (queue == S3_MAIN && judged->use_count > 0) {
        judged->use_count--;
    } else if (entries_is_leaf(policy->entries, (enum policy_place)judged->place, judged->entry)) {
        return true;
    }
    queue_remove(policy, place, node);
    queue_insert(policy, place, target, node, NODE_NONE);
    return false;
}

/*
 * The first victim from `node` on, towards the newer ones; NODE_NONE: there is none. What moves
 * within the queue is met again, until a whole turn has changed no counter.
 */
static uint32_t
queue_walk(struct policy *policy, struct s3_place *place, enum s3_queue queue, uint32_t node)
{
    uint32_t turn = place->queues[queue].count;

    for (uint32_t looks_left = turn; node != NODE_NONE && looks_left > 0; looks_left--) {
        uint32_t next = node_at(policy->nodes, node)->newer;
        uint8_t use_count = node_at(policy->nodes, node)->use_count;

        if (node_judge(policy, place, node))
            return node;
        if (node_at(policy->nodes, node)->use_count != use_count)
            looks_left = turn + 1;
        if (next == NODE_NONE && node_at(policy->nodes, node)->queue == queue)
            next = node; /* It was the newest, and is. */
        node = next;
    }
    return NODE_NONE;
}

static uint32_t
s3_victim(struct policy *policy, enum policy_place place, uint32_t cursor)
{
    struct s3_place *here = &s3_of(policy)->places[place];
    uint32_t node;
    enum s3_queue queue;

    if (cursor == ENTRY_NONE) {
        queue = here->walk_first = small_is_full(here) ? S3_SMALL : S3_MAIN;
        node = here->queues[queue].oldest;
    } else {
        node = node_find(policy->nodes, place, cursor);
        if (node == NODE_NONE)
            return ENTRY_NONE;
        queue = (enum s3_queue)node_at(policy->nodes, node)->queue;
        node = node_at(policy->nodes, node)->newer;
    }
    node = queue_walk(policy, here, queue, node);
    if (node == NODE_NONE && queue == here->walk_first) {
        queue = queue == S3_SMALL ? S3_MAIN : S3_SMALL;
        node = queue_walk(policy, here, queue, here->queues[queue].oldest);
    }
    if (node == NODE_NONE)
        return ENTRY_NONE;
    node_at(policy->nodes, node)->is_shown = 1;
    return node_at(policy->nodes, node)->entry;
}

const struct policy_ops policy_s3fifo_ops = {
    .name = "s3fifo",
    .open = s3_open,
    .close = s3_close,
    .arrive = policy_arrive_ignore,
    .leave = policy_leave_ignore,
    .prepare = policy_prepare,
    .unprepare = policy_unprepare,
    .add = s3_add,
    .remove = s3_remove,
    .recheck = policy_recheck_ignore,
    .request = s3_request,
    .victim = s3_victim,
    .admits = policy_admits_all,
    .importance = policy_last_use,
    .score = policy_score_nothing,
    .worth = policy_worth_nothing,
    .costs_set = policy_costs_ignore,
    .save = policy_save_nothing,
    .restore = policy_restore_nothing,
};
