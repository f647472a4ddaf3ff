/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_chain.c - operations of one name that were in flight at the same time: the orders in which
 * they may have come, by what they answered.
 *
 * An order is a way through the sets of links, from the empty one to the whole. For each set there
 * are the states in which the name may be when just these have come; a link goes on from those that
 * explain its answer. So 64 sets stand for 720 orders.
 */
#include "model_internal.h"

enum {
    SETS = 1 << MODEL_LINKS,
    NO_LINK = MODEL_LINKS,
};

/* A question: which orders count. All of them when `last` is NO_LINK. */
struct question {
    uint32_t last;   /* This link comes ... */
    uint32_t behind; /* ... behind all of these. */
};

static const struct question any_order = {.last = NO_LINK};

/* --- 1. Orders -------------------------------------------------------------------------------- */

/* The states behind a link, of those before it that explain its answer. */
static uint64_t
link_next(const struct model_link *link, uint64_t states)
{
    bool is_delete = link->act == MODEL_DELETE;
    bool is_replace = link->act == MODEL_REPLACE;

    switch (link->outcome) {
    case MODEL_UNTOLD:
        return states;
    case MODEL_PRESENT:
        return states & ~NOTHING & link->state;
    case MODEL_REFUSED:
        return states | (is_replace ? NOTHING : 0);
    case MODEL_ABSENT:
        return states & NOTHING;
    case MODEL_DONE:
        break;
    }
    if (link->act == MODEL_READ)
        return states & link->state;
    if (is_delete)
        return (states & ~NOTHING) != 0 ? NOTHING : 0;
    return is_replace || (states & NOTHING) != 0 ? link->state : 0;
}

/* The states behind the last link, in all orders that the question means; 0: there is none. */
static uint64_t
chain_run(const struct model_chain *chain, struct question question)
{
    uint64_t states[SETS] = {chain->start};
    uint32_t all = (1u << chain->count) - 1;

    for (uint32_t set = 0; set < all; set++) {
        if (states[set] != 0 && chain->may_be_gone)
            states[set] |= NOTHING;
        for (uint32_t i = 0; i < chain->count && states[set] != 0; i++) {
            uint32_t before = chain->links[i].before | (i == question.last ? question.behind : 0);

            if ((set & 1u << i) == 0 && (before & ~set) == 0)
                states[set | 1u << i] |= link_next(&chain->links[i], states[set]);
        }
    }
    return (states[all] | (states[all] != 0 && chain->may_be_gone ? NOTHING : 0)) & chain->end;
}

static bool
chain_counts(const struct model_key *key)
{
    return key->chain.op_end > key->op_first;
}

static struct model_link *
link_of(struct model_key *key, uint64_t op)
{
    struct model_chain *chain = &key->chain;

    for (uint32_t i = 0; i < chain->count; i++) {
        if (chain->links[i].act != MODEL_READ && chain->links[i].op == op)
            return &chain->links[i];
    }
    return NULL;
}

/* --- 2. Its course ---------------------------------------------------------------------------- */

void
model_chain_begin(struct model *model, struct model_name name)
{
    struct model_key *key = &model->keys[name.space][name.key];
    uint64_t next = key->op_first + key->op_count;

    chain_forget(key);
    key->chain = (struct model_chain){
        .is_open = true, .op_first = next, .op_end = next, .start = key->live, .end = ~UINT64_C(0)};
}

uint32_t
model_chain_add(
    struct model *model, struct model_name name, enum model_act act, uint64_t op, uint32_t before)
{
    struct model_key *key = &model->keys[name.space][name.key];
    struct model_chain *chain = &key->chain;
    const struct model_op *entry = act == MODEL_READ ? NULL : op_of(key, op);

    if (chain->count == MODEL_LINKS) {
        model_fail(model, "the test's chain is too long");
        return 0;
    }
    chain->links[chain->count] = (struct model_link){
        .act = act, .before = before, .op = op, .state = entry == NULL ? 0 : entry->settled};
    if (entry != NULL)
        chain->op_end = op + 1;
    return chain->count++;
}

void
model_chain_hear(struct model *model, struct model_name name, uint32_t link)
{
    model->keys[name.space][name.key].chain.reader = link;
}

bool
chain_hears(struct model_key *key, uint64_t op, enum model_outcome outcome)
{
    struct model_link *link = link_of(key, op);

    if (!key->chain.is_open)
        return false;
    if (link == NULL)
        return true; /* What was not submitted did nothing. */
    link->outcome = outcome;
    if (outcome == MODEL_PRESENT)
        link->state = ~NOTHING;
    return true;
}

void
chain_saw(struct model_key *key, uint64_t states)
{
    struct model_link *link = &key->chain.links[key->chain.reader];

    link->outcome = MODEL_DONE;
    link->state = states;
}

void
model_chain_end(struct model *model, struct model_name name)
{
    struct model_key *key = &model->keys[name.space][name.key];
    struct model_chain *chain = &key->chain;
    uint64_t live;

    chain->is_open = false;
    chain->may_be_gone = model->may_be_gone;
    if (!chain_counts(key))
        return; /* It changed nothing; or a clear came behind it, and has told what there is. */
    live = chain_run(chain, any_order);
    if (live == 0)
        model_fail(model, "space %u key %u: no order of %u operations explains what they answered",
            name.space, name.key, chain->count);
    else
        key->live = live;
}

void
chain_narrow(struct model_key *key)
{
    if (chain_counts(key) && key->chain.op_end == key->op_first + key->op_count)
        key->chain.end &= key->live;
}

/* --- 3. What is durable ----------------------------------------------------------------------- */

bool
chain_has(const struct model_key *key, uint64_t op)
{
    return chain_counts(key) && op >= key->chain.op_first && op < key->chain.op_end;
}

/* What an operation leaves that is durable, or may be. */
static uint64_t
link_leaves(struct model_key *key, const struct model_link *link)
{
    const struct model_op *entry = op_of(key, link->op);

    if (link->is_acked)
        return link->act == MODEL_DELETE ? NOTHING : link->state;
    return entry == NULL ? 0 : entry->pending;
}

/* What an open may find of the chain: of all orders the state that the last acknowledged operation
 * left, or any that one behind it may have left. Without one the states before it are left, too. */
static uint64_t
chain_leaves(struct model_key *key)
{
    const struct model_chain *chain = &key->chain;
    uint32_t acked = 0;
    uint64_t states = 0;

    for (uint32_t i = 0; i < chain->count; i++)
        acked |= (uint32_t)chain->links[i].is_acked << i;
    for (uint32_t i = 0; i < chain->count; i++) {
        struct question question = {.last = i, .behind = acked & ~(1u << i)};

        if (chain->links[i].act == MODEL_READ || (acked != 0 && chain_run(chain, question) == 0))
            continue;
        states |= link_leaves(key, &chain->links[i]);
    }
    return states;
}

bool
chain_ack(struct model_key *key, uint64_t op)
{
    struct model_link *link = link_of(key, op);

    if (!chain_has(key, op) || link == NULL)
        return false;
    link->is_acked = true;
    /* What was before the chain is over. */
    key->kept = key->rebuilt = 0;
    if (key->chain.op_first > key->op_first)
        ops_drop(key, key->chain.op_first);
    return true;
}

bool
chain_ack_present(struct model_key *key, uint64_t op)
{
    struct model_link *link = link_of(key, op);
    uint64_t seen = 0;

    if (!chain_has(key, op) || link == NULL)
        return false;
    for (uint32_t state = 1; state <= MODEL_VERSIONS; state++) {
        link->state = UINT64_C(1) << state;
        if (chain_run(&key->chain, any_order) != 0)
            seen |= link->state;
    }
    link->state = seen;
    return chain_ack(key, op);
}

void
chain_forget(struct model_key *key)
{
    struct model_chain *chain = &key->chain;
    struct model_op one = {0};

    if (!chain_counts(key))
        return;
    one.pending = one.settled = chain_leaves(key);
    if (chain->is_open)
        key->live |= one.pending; /* Its end will say nothing. */
    for (uint64_t op = chain->op_first; op < chain->op_end; op++) {
        struct model_op *entry = op_of(key, op);

        if (entry == NULL)
            continue;
        *entry = one;
        one = (struct model_op){0};
    }
    chain->op_end = 0;
}
