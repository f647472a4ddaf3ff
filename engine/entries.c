/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.c - the table of entry states, links to parents, and counts of children.
 */
#include "entries.h"

#include "failure.h"

enum {
    CHUNK_COUNT_MAX = 1 << 16,
    LOOK_GENERATIONS = 1 << 22, /* Of a number, behind which a round of looks is due. */
    LOOK_USES = 5 << 20,        /* Uses of numbers that a round takes. */
};

/*
 * A link to a generation of a number was made while the number had that one. So it was there when
 * the number next had a generation that makes a round due, and is looked at in the round that
 * begins then, or behind the one that is under way. Uses of the number until that has ended:
 */
_Static_assert(LOOK_GENERATIONS + 2 * LOOK_USES < 1 << 24, "before a generation comes round");

enum kvt_status
entries_open(const struct kvt_env *env, struct residency *map, struct entries **entries_out)
{
    struct entries *entries = env_take(env, sizeof(*entries));

    *entries_out = NULL;
    if (entries == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the states of blocks");
    entries->env = *env;
    entries->map = map;
    entries->chunks = env_take(env, CHUNK_COUNT_MAX * sizeof(*entries->chunks));
    if (entries->chunks == NULL) {
        env_put(env, entries, sizeof(*entries));
        return failure_set(KVT_E_NOMEM, 0, "no memory for the table of blocks' states");
    }
    *entries_out = entries;
    return KVT_OK;
}

void
entries_close(struct entries *entries)
{
    struct kvt_env env;

    if (entries == NULL)
        return;
    env = entries->env;
    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && entries->chunks[i] != NULL; i++)
        env_unmap(&env, entries->chunks[i], ENTRIES_PER_CHUNK * sizeof(struct entry_state));
    env_put(&env, entries->chunks, CHUNK_COUNT_MAX * sizeof(*entries->chunks));
    env_put(&env, entries, sizeof(*entries));
}

struct residency *
entries_map(const struct entries *entries)
{
    return entries->map;
}

/* The number is used. In a round one link after the other is looked at, as many as keep it in its
 * time: with a million entries one in five uses. A number that was used seldom begins none, so that
 * an open, or a store that uses all of them in turn, looks at nothing. */
static void
links_look(struct entries *entries, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(entries->map, number)->word, memory_order_relaxed);

    if (word_generation(word) % LOOK_GENERATIONS == LOOK_GENERATIONS - 1)
        entries->is_look_due = true;
    if (entries->look_next == entries->look_end) {
        if (!entries->is_look_due)
            return;
        entries->is_look_due = false;
        entries->look_next = 0;
        entries->look_end = entries->used_count;
    }
    entries->look_credit += entries->look_end;
    for (; entries->look_credit >= LOOK_USES; entries->look_credit -= LOOK_USES)
        (void)entries_parent(entries, entries->look_next++);
}

enum kvt_status
entries_reserve(struct entries *entries, uint32_t number)
{
    struct entry_state *state;

    /* Numbers are given out from below, so chunks fill in order. */
    for (uint32_t i = 0; i <= number / ENTRIES_PER_CHUNK; i++) {
        if (entries->chunks[number / ENTRIES_PER_CHUNK] != NULL)
            break;
        if (entries->chunks[i] != NULL)
            continue;
        entries->chunks[i] = env_map(&entries->env, ENTRIES_PER_CHUNK * sizeof(struct entry_state));
        if (entries->chunks[i] == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the state of block %u", number);
    }
    state = entries_at(entries, number);
    KVT_ASSERT(state->node == 0 && state->places == 0);
    *state = (struct entry_state){.parent = ENTRY_NONE};
    if (entries->used_count <= number)
        entries->used_count = number + 1;
    links_look(entries, number);
    return KVT_OK;
}

static struct entry_state *
at(const struct entries *entries, uint32_t number)
{
    struct entry_state *state = entries_at(entries, number);

    KVT_ASSERT(state != NULL);
    return state;
}

/* --- Copies ----------------------------------------------------------------------------------- */

/* Count a child with copies in `places` in (or out) at its parent: those that it has come, or
 * go, and `others` stay. */
static void
child_count(struct entry_state *parent, unsigned places, unsigned others, bool is_coming)
{
    bool is_new = (places & PLACES_MEMORY) != 0 && (others & PLACES_MEMORY) == 0;
    bool is_new_in_hbm = (places & PLACES_HBM) != 0 && (others & PLACES_HBM) == 0;

    if (is_coming) {
        parent->memory_child_count += is_new;
        parent->hbm_child_count += is_new_in_hbm;
        return;
    }
    KVT_ASSERT(parent->memory_child_count >= is_new && parent->hbm_child_count >= is_new_in_hbm);
    parent->memory_child_count -= is_new;
    parent->hbm_child_count -= is_new_in_hbm;
}

void
entries_copy_add(struct entries *entries, enum policy_place place, uint32_t number)
{
    struct entry_state *state = at(entries, number);
    uint32_t parent = entries_parent(entries, number);
    unsigned bit = 1u << place;

    KVT_ASSERT((state->places & bit) == 0);
    if (parent != ENTRY_NONE)
        child_count(at(entries, parent), bit, state->places, true);
    state->places = (state->places | bit) & PLACES_ALL;
}

void
entries_copy_remove(struct entries *entries, enum policy_place place, uint32_t number)
{
    struct entry_state *state = at(entries, number);
    uint32_t parent = entries_parent(entries, number);
    unsigned bit = 1u << place;

    KVT_ASSERT((state->places & bit) != 0);
    state->places = state->places & ~bit & PLACES_ALL;
    if (parent != ENTRY_NONE)
        child_count(at(entries, parent), bit, state->places, false);
}

bool
entries_has_copy(const struct entries *entries, enum policy_place place, uint32_t number)
{
    return (at(entries, number)->places & 1u << place) != 0;
}

bool
entries_is_leaf(const struct entries *entries, enum policy_place place, uint32_t number)
{
    const struct entry_state *state = at(entries, number);

    if (place == POLICY_NVME)
        return state->child_count == 0 || (state->places & PLACES_MEMORY) != 0;
    if (place != POLICY_HOST)
        return state->hbm_child_count == 0;
    return state->memory_child_count == 0 || (state->places & PLACES_HBM) != 0;
}

bool
entries_is_kept(const struct entries *entries, uint32_t number)
{
    const struct entry_state *state = entries_at(entries, number);

    return state != NULL && (state->places & PLACES_MEMORY) == PLACES_HOST &&
           state->hbm_child_count > 0 && state->memory_child_count == state->hbm_child_count;
}

/* --- Parents ---------------------------------------------------------------------------------- */

uint32_t
entries_parent(struct entries *entries, uint32_t number)
{
    struct entry_state *state = at(entries, number);
    uint64_t word;

    if (state->parent == ENTRY_NONE)
        return ENTRY_NONE;
    word = atomic_load_explicit(
        &residency_at(entries->map, state->parent)->word, memory_order_relaxed);
    if (word_generation(word) != state->parent_generation ||
        (word_state(word) != ENTRY_RESIDENT && word_state(word) != ENTRY_FILLING)) {
        state->parent = ENTRY_NONE;
        return ENTRY_NONE;
    }
    return state->parent;
}

void
entries_unlink(struct entries *entries, uint32_t number)
{
    struct entry_state *state = at(entries, number);
    uint32_t parent = entries_parent(entries, number);

    if (parent == ENTRY_NONE)
        return;
    KVT_ASSERT(at(entries, parent)->child_count > 0);
    at(entries, parent)->child_count--;
    if (state->places != 0)
        child_count(at(entries, parent), state->places, 0, false);
    state->parent = ENTRY_NONE;
}

/* False: the entry is neither `other`, nor one of those above it. */
static bool
may_be_at_or_above(struct entries *entries, uint32_t number, uint32_t other)
{
    for (; other != ENTRY_NONE && other != number; other = entries_parent(entries, other)) {
        if (entries->climb_count == LINK_CLIMB_MAX)
            return true;
        entries->climb_count++;
    }
    return other == number;
}

void
entries_link(struct entries *entries, uint32_t number, uint32_t parent)
{
    struct entry_state *state = at(entries, number);
    uint64_t word;

    entries_unlink(entries, number);
    if (parent == ENTRY_NONE || parent == number)
        return;
    if (state->child_count > 0 && may_be_at_or_above(entries, number, parent))
        return; /* (4) */
    word = atomic_load_explicit(&residency_at(entries->map, parent)->word, memory_order_relaxed);
    state->parent = parent;
    state->parent_generation = word_generation(word) & 0xFFFFFFu;
    at(entries, parent)->child_count++;
    if (state->places != 0)
        child_count(at(entries, parent), state->places, 0, true);
}

void
entries_turn(struct entries *entries)
{
    entries->climb_count = 0;
}
