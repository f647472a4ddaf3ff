/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_default_internal.h - the parts of the policy that learns, GHI (a ghost-hazard index).
 *
 * It learns how likely blocks of each class and age are to be used again (hazard.h), from all that
 * are in the map and from ghosts (ghost_table.h), and gives up the leaf whose importance is least
 * of some drawn at random, then its parent while that has become a leaf and scores no higher.
 *
 *   policy_default.c         blocks and requests; the vtable
 *   policy_default_places.c  copies: leaves of each place, walks over victims
 *   policy_default_worth.c   scores, and what is admitted to NVMe
 */
#ifndef KVT_ENGINE_POLICY_DEFAULT_INTERNAL_H
#define KVT_ENGINE_POLICY_DEFAULT_INTERNAL_H

#include "ghost_table.h"
#include "guard.h"
#include "hazard.h"
#include "policy_nodes.h"
#include "rng.h"
#include "weights.h"
#include "write_price.h"

enum {
    DEFAULT_DRAWS = 32,     /* Leaves drawn for a choice; when there are no more all stand. */
    DEFAULT_KEYS = 1 << 12, /* Of default_key(). */
};

/* Where the node of a copy is: policy_node.queue. */
enum default_queue {
    QUEUE_NONE,   /* It has children in the same set, or a flight. */
    QUEUE_LEAVES, /* In the array; `newer` is where. */
    QUEUE_DOUBLES /* In the list: the block is in a better tier too. */
};

/*
 * What may go of one place. A walk shows leaves: those at `open` and behind have been shown.
 *
 *   leaves   [ ... not shown yet ... | ... shown ... ]
 *             0                       open            count
 */
struct default_place {
    uint32_t copy_count;
    uint32_t *leaves; /* Entries. */
    uint32_t count, capacity, open;
    struct node_list doubles;
    uint32_t double_next; /* Node that the walk looks at next. */
    bool has_shown_fresh; /* The walk is through with doubles of the last request. */
    uint32_t shown;       /* Entry that was shown last, ENTRY_NONE: none; its parent; its score. */
    uint32_t shown_parent;
    float shown_score;
    uint32_t draws[DEFAULT_DRAWS];  /* Of the next choice: indices of leaves, ... */
    uint32_t drawn_from;            /* ... when `open` was this; 0: they are to be drawn. */
    uint32_t shares[DEFAULT_DRAWS]; /* Of the choice after it, as shares of 2^32. */
};

/* The leaves of which one goes. */
struct default_choice {
    uint32_t count;
    uint32_t places[DEFAULT_DRAWS];  /* Indices of leaves, */
    uint32_t numbers[DEFAULT_DRAWS]; /* and their entries. */
    float scores[DEFAULT_DRAWS];
};

/* The run of blocks that one request brings. */
struct default_run {
    uint32_t begin;  /* Tick of its first block. */
    uint32_t last;   /* The block that came last; ENTRY_NONE: no run. */
    uint32_t length; /* Of those that were never seen. */
};

/* The nested sets, each with a guard of its own. */
enum default_set {
    SET_HBM,
    SET_MEMORY,
    SET_MAP,
    SET_COUNT,
};

/* How many blocks were used since a time: asked again and again for one request. */
struct default_rank {
    uint32_t tick, now; /* For which it was worked out; now 0: for none. */
    uint32_t since, in_span;
};

/* struct policy_costs, as scores need it; 0: unknown. */
struct default_costs {
    float host_load_ns, nvme_load_ns;
    float recompute_ns, recompute_depth_ns;
};

struct default_policy {
    struct policy base;
    struct kvt_env env;
    struct rng rng;
    struct hazard *hazard;
    const struct hazard_tables *tables; /* Of the same. */
    struct ghost_table ghosts;
    struct weights weights;
    struct write_price price;
    struct default_costs costs;
    struct default_run run;
    struct guard guards[SET_COUNT];
    uint32_t guard_tick; /* Of their last step. */
    struct default_rank rank;
    double nvme_age_seconds;  /* Mean age at which blocks leave NVMe. */
    uint64_t tracked_count;   /* Blocks in the map that are tracked, */
    uint64_t tracked_highest; /* and how many they were at most. */
    uint32_t now;             /* Ticks; of the last call that said it, */
    uint32_t requested;       /* and of the last request. */
    uint32_t prepared_count;
    struct default_place places[POLICY_PLACE_COUNT];
    uint16_t classes[DEFAULT_KEYS]; /* Of all traits that a block can have, to look up. */
};

static inline struct default_policy *
default_of(struct policy *policy)
{
    return (struct default_policy *)policy;
}

/* What of an entry says its class. */
static inline uint32_t
default_key(const struct entry_state *state)
{
    uint32_t use_count = state->use_count, gap = state->gap, hint = state->hint;
    uint32_t turn = state->turn, segment = state->segment;

    return hint | turn << 2 | segment << 4 | use_count << 6 | gap << 10;
}

static inline uint32_t
default_class(const struct default_policy *self, const struct entry_state *state)
{
    return self->classes[default_key(state)];
}

/* --- policy_default.c ------------------------------------------------------------------------- */

struct hazard_traits default_traits(const struct entry_state *state);

/* --- policy_default_places.c ------------------------------------------------------------------ */

void default_places_close(struct default_policy *self);
enum kvt_status default_prepare(struct policy *policy, uint32_t number);
void default_unprepare(struct policy *policy, uint32_t number);
void default_add(struct policy *policy, enum policy_place place, uint32_t number);
void default_remove(struct policy *policy, enum policy_place place, uint32_t number);
void default_recheck(struct policy *policy, uint32_t number);
uint32_t default_victim(struct policy *policy, enum policy_place place, uint32_t cursor);
/* default_refresh - what the entry's copies count as, after its children or copies changed. */
void default_refresh(struct default_policy *self, uint32_t number);
/* default_double_touch - those copies of the entry that are doubles were used now. */
void default_double_touch(struct default_policy *self, uint32_t number);
/* default_child_leaves - the entry loses a child that is in the map still. */
void default_child_leaves(struct default_policy *self, uint32_t number);

/* --- policy_default_worth.c ------------------------------------------------------------------- */

/* default_score - what keeping the entry's copy in `place` is worth. */
float default_score(const struct default_policy *self, unsigned place, uint32_t number);
/* default_scores - the scores of a choice. */
void default_scores(
    const struct default_policy *self, unsigned place, struct default_choice *choice);
bool default_admits(struct policy *policy, uint32_t number);
float default_score_told(struct policy *policy, enum policy_place place, uint32_t number);
void default_worth(struct policy *policy, uint32_t number, struct policy_worth *worth_out);
uint64_t default_importance(struct policy *policy, uint32_t number);
void default_costs_set(struct policy *policy, const struct policy_costs *costs);
/* default_nvme_left - a block left NVMe for want of room. */
void default_nvme_left(struct default_policy *self, uint32_t number);

#endif /* KVT_ENGINE_POLICY_DEFAULT_INTERNAL_H */
