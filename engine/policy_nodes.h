/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_nodes.h - what the implementations of policy.h share: a node for each copy in memory,
 * lists of nodes, and the operations that are the same for all. Private to policy_*.c and tests.
 *
 * Owns      the nodes, in chunks that never move; the chain of each entry's nodes, one a copy.
 * Not here  which list a node is in, and where: each policy's own.
 * Threads   the loop only.
 *
 * States of a node, and the function that makes each move:
 *
 *            policy_prepare()            node_settle()
 *     FREE ------------------> PREPARED ---------------> COPY
 *      ^                          |                       |
 *      | policy_unprepare()       |                       | node_drop()
 *      +--------------------------+-----------------------+
 *
 *   FREE      In the list of free nodes: a node that was used is used again, and no memory is asked
 *             for while copies come and go.
 *   PREPARED  In its entry's chain, place is NODE_PLACE_NONE.
 *   COPY      In its entry's chain, place has the copy's bit in entry_state.places.
 */
#ifndef KVT_ENGINE_POLICY_NODES_H
#define KVT_ENGINE_POLICY_NODES_H

#include "policy.h"

#define NODE_NONE 0u /* The number of no node. */

enum {
    NODE_PLACE_NONE = UINT8_MAX,
};

struct policy_node {
    uint32_t entry;
    uint32_t next;         /* In the entry's chain, or of the free ones. */
    uint32_t newer, older; /* In a list; NODE_NONE at the ends. */
    uint8_t place;         /* enum policy_place, or NODE_PLACE_NONE. */
    uint8_t queue;         /* The policy's own, like the two below. */
    uint8_t use_count;
    uint8_t is_shown;
};

_Static_assert(sizeof(struct policy_node) == 20, "20 bytes a copy in memory");

struct node_list {
    uint32_t newest, oldest;
    uint32_t count;
};

enum kvt_status policy_nodes_open(
    const struct kvt_env *env, struct entries *entries, struct policy_nodes **nodes_out);
void policy_nodes_close(struct policy_nodes *nodes);           /* NULL is fine. */
uint32_t policy_nodes_count(const struct policy_nodes *nodes); /* That are not FREE. */

/* --- One node --------------------------------------------------------------------------------- */

struct policy_node *node_at(const struct policy_nodes *nodes, uint32_t node);

/* node_find - of the entry's copy in `place`; NODE_NONE: it has none there. */
uint32_t node_find(const struct policy_nodes *nodes, enum policy_place place, uint32_t number);

/* node_settle - an entry's prepared node becomes that of its copy in `place`, which counts from now
 * on (entries_copy_add). */
uint32_t node_settle(struct policy_nodes *nodes, enum policy_place place, uint32_t number);

/* node_drop - the copy is gone (entries_copy_remove). The node is in no list any more. */
void node_drop(struct policy_nodes *nodes, uint32_t node);

/* --- Lists ------------------------------------------------------------------------------------ */

/* node_list_insert - next to `newer` on its older side; NODE_NONE: at the newest end. */
void node_list_insert(
    struct policy_nodes *nodes, struct node_list *list, uint32_t node, uint32_t newer);
void node_list_remove(struct policy_nodes *nodes, struct node_list *list, uint32_t node);

/* --- Operations that are the same for all ----------------------------------------------------- */

enum kvt_status policy_prepare(struct policy *policy, uint32_t number);
void policy_unprepare(struct policy *policy, uint32_t number);
/* policy_admits_all - every block is worth a place on NVMe. */
bool policy_admits_all(struct policy *policy, uint32_t number);
/* policy_last_use - importance is the last use, in ticks. */
uint64_t policy_last_use(struct policy *policy, uint32_t number);
/* policy_score_nothing, policy_worth_nothing - it orders by time only. */
float policy_score_nothing(struct policy *policy, enum policy_place place, uint32_t number);
void policy_worth_nothing(struct policy *policy, uint32_t number, struct policy_worth *worth_out);
/* policy_use - note when the block was used last. */
void policy_use(struct policy *policy, uint32_t number, uint64_t now_ns);
/* policy_arrive_ignore, policy_leave_ignore - blocks count when they have copies: of one that
 * arrives only the time is noted. */
void policy_arrive_ignore(
    struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns);
void policy_leave_ignore(struct policy *policy, uint32_t number, bool is_evicted);
/* policy_recheck_ignore - whether a copy can go is looked at when it is its turn. */
void policy_recheck_ignore(struct policy *policy, uint32_t number);
/* policy_costs_ignore - what moving costs makes no difference. */
void policy_costs_ignore(struct policy *policy, const struct policy_costs *costs);
/* policy_save_nothing, policy_restore_nothing - it learns nothing. */
size_t policy_save_nothing(struct policy *policy, uint8_t *target);
bool policy_restore_nothing(struct policy *policy, const uint8_t *source, size_t size);

#endif /* KVT_ENGINE_POLICY_NODES_H */
