/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_default_places.c - copies that may go: an array of leaves for each place, a list of
 * doubles, and walks over both.
 *
 * A double is a copy of a block that a better tier holds too. It costs nothing to give it up now,
 * but the block must be copied down anew when it leaves the better tier; so doubles go last, apart
 * from those of the last request that was told: their blocks are the youngest of the better tier.
 *
 * Order of a walk: doubles in HOST of the last request; then leaves, each time the one with the
 * least score of 32 drawn at random (of all, when they are no more), of equals the deepest; then
 * the other doubles, from the newest on: the older ones' blocks will leave the better tier sooner.
 * What was shown is swapped behind `open`, and not drawn again in that walk.
 *
 * A leaf with a flight cannot go, and does not count as one until its flight has ended: with many
 * puts on their way to NVMe that is most of HOST, and to score one takes a microsecond.
 *
 * When the leaf that was shown last has gone, its parent is next, if it has become a leaf and
 * scores no higher: chains go from their end, one after the other.
 */
#include "array.h"
#include "failure.h"
#include "policy_default_internal.h"
#include "try.h"

/* --- Leaves ----------------------------------------------------------------------------------- */

static struct policy_node *
node_of(struct default_policy *self, unsigned place, uint32_t number)
{
    uint32_t node = node_find(self->base.nodes, (enum policy_place)place, number);

    return node == NODE_NONE ? NULL : node_at(self->base.nodes, node);
}

static void
leaf_put(struct default_policy *self, unsigned place, uint32_t at, uint32_t number)
{
    self->places[place].leaves[at] = number;
    node_of(self, place, number)->newer = at;
}

/* Among those that were not shown yet. */
static void
leaf_join(struct default_policy *self, unsigned place, uint32_t number)
{
    struct default_place *here = &self->places[place];

    KVT_ASSERT(here->count < here->capacity);
    if (here->open < here->count)
        leaf_put(self, place, here->count, here->leaves[here->open]);
    leaf_put(self, place, here->open, number);
    here->count++;
    here->open++;
}

static void
leaf_quit(struct default_policy *self, unsigned place, uint32_t at)
{
    struct default_place *here = &self->places[place];

    if (at < here->open) {
        here->open--;
        if (at < here->open)
            leaf_put(self, place, at, here->leaves[here->open]);
        at = here->open;
    }
    here->count--;
    if (at < here->count)
        leaf_put(self, place, at, here->leaves[here->count]);
}

/* The leaf at that index was shown. */
static void
leaf_show(struct default_policy *self, unsigned place, uint32_t at)
{
    struct default_place *here = &self->places[place];
    uint32_t shown = here->leaves[at];

    here->open--;
    if (at == here->open)
        return;
    leaf_put(self, place, at, here->leaves[here->open]);
    leaf_put(self, place, here->open, shown);
}

/* --- What a copy counts as -------------------------------------------------------------------- */

static enum default_queue
queue_of(struct default_policy *self, unsigned place, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    unsigned places = state->places;

    if ((place == POLICY_HOST && (places & PLACES_HBM) != 0) ||
        (place == POLICY_NVME && (places & PLACES_MEMORY) != 0))
        return QUEUE_DOUBLES;
    if (state->flight != NULL)
        return QUEUE_NONE;
    return entries_is_leaf(self->base.entries, (enum policy_place)place, number) ? QUEUE_LEAVES
                                                                                 : QUEUE_NONE;
}

static void
node_quit(struct default_policy *self, uint32_t node)
{
    struct policy_node *copy = node_at(self->base.nodes, node);
    struct default_place *here = &self->places[copy->place];

    if (copy->queue == QUEUE_LEAVES) {
        leaf_quit(self, copy->place, copy->newer);
        copy->newer = NODE_NONE;
    } else if (copy->queue == QUEUE_DOUBLES) {
        if (here->double_next == node)
            here->double_next = copy->older;
        node_list_remove(self->base.nodes, &here->doubles, node);
    }
    copy->queue = QUEUE_NONE;
}

static void
node_move(struct default_policy *self, uint32_t node, enum default_queue queue)
{
    struct policy_node *copy = node_at(self->base.nodes, node);

    if (copy->queue == queue)
        return;
    node_quit(self, node);
    copy->queue = (uint8_t)queue;
    if (queue == QUEUE_LEAVES)
        leaf_join(self, copy->place, copy->entry);
    else if (queue == QUEUE_DOUBLES)
        node_list_insert(self->base.nodes, &self->places[copy->place].doubles, node, NODE_NONE);
}

void
default_refresh(struct default_policy *self, uint32_t number)
{
    uint32_t node = entries_at(self->base.entries, number)->node;

    for (; node != NODE_NONE; node = node_at(self->base.nodes, node)->next) {
        unsigned place = node_at(self->base.nodes, node)->place;

        if (place != NODE_PLACE_NONE)
            node_move(self, node, queue_of(self, place, number));
    }
}

void
default_double_touch(struct default_policy *self, uint32_t number)
{
    uint32_t node = entries_at(self->base.entries, number)->node;

    for (; node != NODE_NONE; node = node_at(self->base.nodes, node)->next) {
        if (node_at(self->base.nodes, node)->queue != QUEUE_DOUBLES)
            continue;
        node_quit(self, node);
        node_move(self, node, QUEUE_DOUBLES);
    }
}

void
default_child_leaves(struct default_policy *self, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    uint32_t node = node_find(self->base.nodes, POLICY_NVME, number);

    if (node != NODE_NONE && state->child_count == 1 && (state->places & PLACES_MEMORY) == 0)
        node_move(self, node, QUEUE_LEAVES);
}

/* --- Copies ----------------------------------------------------------------------------------- */

/* Wherever the copies come that are prepared now: there is room for them. */
enum kvt_status
default_prepare(struct policy *policy, uint32_t number)
{
    struct default_policy *self = default_of(policy);

    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++) {
        struct default_place *here = &self->places[place];
        uint32_t *leaves;

        /* Each copy that is there may become a leaf. */
        if (here->copy_count + self->prepared_count < here->capacity)
            continue;
        leaves = array_grow(&self->env, here->leaves, &here->capacity, sizeof(*leaves));
        if (leaves == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the policy's leaves");
        here->leaves = leaves;
    }
    KVT_TRY(policy_prepare(policy, number));
    self->prepared_count++;
    return KVT_OK;
}

void
default_unprepare(struct policy *policy, uint32_t number)
{
    policy_unprepare(policy, number);
    default_of(policy)->prepared_count--;
}

/* The copies of an entry have changed: what it and its parent count as. */
static void
refresh_around(struct default_policy *self, uint32_t number)
{
    uint32_t parent = entries_parent(self->base.entries, number);

    default_refresh(self, number);
    if (parent != ENTRY_NONE)
        default_refresh(self, parent);
}

void
default_add(struct policy *policy, enum policy_place place, uint32_t number)
{
    struct default_policy *self = default_of(policy);

    (void)node_settle(policy->nodes, place, number);
    self->prepared_count--;
    self->places[place].copy_count++;
    if (entries_at(policy->entries, number)->use_count == 0)
        entries_at(policy->entries, number)->last_use = self->now; /* Its use is told apart. */
    refresh_around(self, number);
}

void
default_recheck(struct policy *policy, uint32_t number)
{
    default_refresh(default_of(policy), number);
}

void
default_places_close(struct default_policy *self)
{
    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++) {
        struct default_place *here = &self->places[place];

        env_put(&self->env, here->leaves, here->capacity * sizeof(*here->leaves));
    }
}

/* --- Walks ------------------------------------------------------------------------------------ */

static bool
goes_before(struct default_policy *self, uint32_t a, uint32_t b)
{
    return entries_at(self->base.entries, a)->depth > entries_at(self->base.entries, b)->depth;
}

static uint32_t
share_of(uint32_t share, uint32_t count)
{
    return (uint32_t)((uint64_t)share * count >> 32);
}

/* Where a draw points; draws that were made when there were more leaves point to others now. */
static uint32_t
draw_at(const struct default_place *here, uint32_t i)
{
    uint32_t at = here->draws[i];

    return at < here->open ? at : at % here->open;
}

/*
 * Draw for the next choice, and for the one after it: what a choice reads comes from memory while
 * something else is done. Leaves are fetched two choices ahead, their blocks one, because the
 * numbers have to be there first. Blocks are read, all at once: prefetches of so many are dropped.
 */
static void
draw_renew(struct default_place *here, uint32_t i, uint32_t share)
{
    here->draws[i] = share_of(here->shares[i], here->open);
    here->shares[i] = share;
    __builtin_prefetch(&here->leaves[share_of(share, here->open)]);
}

static void
draws_renew(struct default_policy *self, struct default_place *here)
{
    for (uint32_t i = 0; i < DEFAULT_DRAWS; i += 2) {
        uint64_t two = rng_next(&self->rng);

        draw_renew(here, i, (uint32_t)(two >> 32));
        draw_renew(here, i + 1, (uint32_t)two);
    }
    for (uint32_t i = 0; i < DEFAULT_DRAWS; i++) {
        const struct entry_state *state =
            entries_at(self->base.entries, here->leaves[here->draws[i]]);

        (void)*(const volatile uint32_t *)&state->depth;
    }
    here->drawn_from = here->open;
}

/* Many have come or gone since the draws were made: these would be of a part of the leaves only. */
static bool
draws_are_stale(const struct default_place *here)
{
    uint32_t most = here->drawn_from + here->drawn_from / 8;

    return here->open > most || here->open < here->drawn_from - here->drawn_from / 8;
}

static void
choice_add(const struct default_place *here, struct default_choice *choice, uint32_t at)
{
    choice->places[choice->count] = at;
    choice->numbers[choice->count++] = here->leaves[at];
}

static void
choice_draw(struct default_policy *self, unsigned place, struct default_choice *choice)
{
    struct default_place *here = &self->places[place];

    if (draws_are_stale(here))
        draws_renew(self, here);
    for (uint32_t i = 0; i < DEFAULT_DRAWS; i++)
        choice_add(here, choice, draw_at(here, i));
    here->drawn_from = 0;
}

/* The one of the least score; of equals the one that goes before. The score first, without
 * branches: which of 32 it is cannot be foreseen. */
static uint32_t
choice_least(struct default_policy *self, const struct default_choice *choice)
{
    float least = choice->scores[0];
    uint32_t best = 0;

    for (uint32_t i = 1; i < choice->count; i++)
        least = choice->scores[i] < least ? choice->scores[i] : least;
    for (uint32_t i = 1; i < choice->count; i++) {
        if (choice->scores[i] == least &&
            (choice->scores[best] != least ||
                goes_before(self, choice->numbers[i], choice->numbers[best])))
            best = i;
    }
    return best;
}

/* What showing the leaf would read comes from memory while something else is done. */
static void
leaf_fetch(struct default_policy *self, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);

    __builtin_prefetch(node_at(self->base.nodes, state->node));
    if (state->parent != ENTRY_NONE)
        __builtin_prefetch(residency_at(entries_map(self->base.entries), state->parent));
}

/* Where the leaf stands that has the least score of some. */
static uint32_t
leaf_choose(struct default_policy *self, unsigned place, float *score_out)
{
    struct default_place *here = &self->places[place];
    struct default_choice choice;
    uint32_t best;

    choice.count = 0;
    if (here->open > DEFAULT_DRAWS)
        choice_draw(self, place, &choice);
    for (uint32_t at = 0; here->open <= DEFAULT_DRAWS && at < here->open; at++)
        choice_add(here, &choice, at);
    default_scores(self, place, &choice);
    best = choice_least(self, &choice);
    leaf_fetch(self, choice.numbers[best]);
    *score_out = choice.scores[best];
    return choice.places[best];
}

/* Where the parent of the leaf that was shown last stands, if it is next. */
static bool
parent_is_next(struct default_policy *self, unsigned place, uint32_t *at_out)
{
    struct default_place *here = &self->places[place];
    uint32_t parent = here->shown_parent;
    const struct policy_node *node;

    if (here->shown == ENTRY_NONE || parent == ENTRY_NONE ||
        entries_has_copy(self->base.entries, (enum policy_place)place, here->shown))
        return false;
    node = node_of(self, place, parent);
    if (node == NULL || node->queue != QUEUE_LEAVES || node->newer >= here->open ||
        default_score(self, place, parent) > here->shown_score)
        return false;
    *at_out = node->newer;
    return true;
}

static uint32_t
leaf_next(struct default_policy *self, unsigned place)
{
    struct default_place *here = &self->places[place];

    while (here->open > 0) {
        uint32_t at, number;
        float score = here->shown_score;

        if (!parent_is_next(self, place, &at))
            at = leaf_choose(self, place, &score);
        number = here->leaves[at];
        if (queue_of(self, place, number) != QUEUE_LEAVES) {
            default_refresh(self, number); /* It was linked to a child when that was here. */
            continue;
        }
        leaf_show(self, place, at);
        here->shown = number;
        here->shown_parent = entries_parent(self->base.entries, number);
        here->shown_score = score;
        return number;
    }
    return ENTRY_NONE;
}

/* The next double towards the older ones; when only fresh ones are wanted it may be none. */
static uint32_t
double_show(struct default_policy *self, unsigned place, bool wants_fresh)
{
    struct default_place *here = &self->places[place];
    const struct policy_node *copy;

    if (here->double_next == NODE_NONE)
        return ENTRY_NONE;
    copy = node_at(self->base.nodes, here->double_next);
    if (wants_fresh &&
        (place != POLICY_HOST ||
            entries_at(self->base.entries, copy->entry)->last_use != self->requested))
        return ENTRY_NONE;
    here->double_next = copy->older;
    return copy->entry;
}

uint32_t
default_victim(struct policy *policy, enum policy_place place, uint32_t cursor)
{
    struct default_policy *self = default_of(policy);
    struct default_place *here = &self->places[place];
    uint32_t number;

    if (cursor == ENTRY_NONE) {
        here->open = here->count;
        here->double_next = here->doubles.newest;
        here->has_shown_fresh = false;
    }
    if (!here->has_shown_fresh) {
        number = double_show(self, place, true);
        if (number != ENTRY_NONE)
            return number;
        here->has_shown_fresh = true;
    }
    number = leaf_next(self, place);
    return number != ENTRY_NONE ? number : double_show(self, place, false);
}

void
default_remove(struct policy *policy, enum policy_place place, uint32_t number)
{
    struct default_policy *self = default_of(policy);
    struct default_place *here = &self->places[place];
    uint32_t node = node_find(policy->nodes, place, number);

    KVT_ASSERT(node != NODE_NONE);
    if (number == here->shown && here->drawn_from == 0 && here->open > DEFAULT_DRAWS)
        draws_renew(self, here); /* Beside the rest of the work of giving it up. */
    node_quit(self, node);
    node_drop(policy->nodes, node);
    here->copy_count--;
    if (place == POLICY_NVME)
        default_nvme_left(self, number);
    refresh_around(self, number);
}
