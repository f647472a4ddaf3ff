/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c - leaf-first LRU over the copies in HOST.
 */
#include "policy.h"

#include "failure.h"

enum {
    STATES_PER_CHUNK = 32768, /* One huge page of states. */
    CHUNK_COUNT_MAX = 1 << 16,
};

struct policy {
    struct kvt_env env;
    struct residency *map;
    struct entry_state **chunks; /* CHUNK_COUNT_MAX pointers, taken as they are touched. */
    uint32_t newest, oldest;
};

enum kvt_status
policy_open(const struct kvt_env *env, struct residency *map, struct policy **out)
{
    struct policy *policy = env_take(env, sizeof(*policy));

    *out = NULL;
    if (policy == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy");
    policy->env = *env;
    policy->map = map;
    policy->newest = policy->oldest = ENTRY_NONE;
    policy->chunks = env_take(env, CHUNK_COUNT_MAX * sizeof(*policy->chunks));
    if (policy->chunks == NULL) {
        env_put(env, policy, sizeof(*policy));
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy's table");
    }
    *out = policy;
    return KVT_OK;
}

void
policy_close(struct policy *policy)
{
    struct kvt_env env;

    if (policy == NULL)
        return;
    env = policy->env;
    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && policy->chunks[i] != NULL; i++)
        env_unmap(&env, policy->chunks[i], STATES_PER_CHUNK * sizeof(struct entry_state));
    env_put(&env, policy->chunks, CHUNK_COUNT_MAX * sizeof(*policy->chunks));
    env_put(&env, policy, sizeof(*policy));
}

struct entry_state *
policy_at(struct policy *policy, uint32_t number)
{
    struct entry_state *chunk = policy->chunks[number / STATES_PER_CHUNK];

    return chunk == NULL ? NULL : &chunk[number % STATES_PER_CHUNK];
}

enum kvt_status
policy_reserve(struct policy *policy, uint32_t number)
{
    struct entry_state *state;

    /* Numbers are given out from below, so chunks fill in order. */
    for (uint32_t i = 0; i <= number / STATES_PER_CHUNK; i++) {
        if (policy->chunks[number / STATES_PER_CHUNK] != NULL)
            break;
        if (policy->chunks[i] != NULL)
            continue;
        policy->chunks[i] = env_map(&policy->env, STATES_PER_CHUNK * sizeof(struct entry_state));
        if (policy->chunks[i] == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the state of block %u", number);
    }
    state = policy_at(policy, number);
    *state = (struct entry_state){.parent = ENTRY_NONE, .newer = ENTRY_NONE, .older = ENTRY_NONE};
    return KVT_OK;
}

static struct entry_state *
at(struct policy *policy, uint32_t number)
{
    struct entry_state *state = policy_at(policy, number);

    KVT_ASSERT(state != NULL);
    return state;
}

uint32_t
policy_parent(struct policy *policy, uint32_t number)
{
    struct entry_state *state = at(policy, number);
    uint64_t word;

    if (state->parent == ENTRY_NONE)
        return ENTRY_NONE;
    word =
        atomic_load_explicit(&residency_at(policy->map, state->parent)->word, memory_order_relaxed);
    if (word_generation(word) != state->parent_generation ||
        (word_state(word) != ENTRY_RESIDENT && word_state(word) != ENTRY_FILLING)) {
        state->parent = ENTRY_NONE;
        return ENTRY_NONE;
    }
    return state->parent;
}

void
policy_link(struct policy *policy, uint32_t number, uint32_t parent)
{
    struct entry_state *state = at(policy, number);

    if (parent == ENTRY_NONE || parent == number)
        return;
    state->parent = parent;
    state->parent_generation = word_generation(
        atomic_load_explicit(&residency_at(policy->map, parent)->word, memory_order_relaxed));
    at(policy, parent)->child_count++;
    if ((state->flags & ENTRY_IN_HOST_LIST) != 0)
        at(policy, parent)->host_child_count++;
}

void
policy_unlink(struct policy *policy, uint32_t number)
{
    uint32_t parent = policy_parent(policy, number);

    if (parent == ENTRY_NONE)
        return;
    KVT_ASSERT(at(policy, parent)->child_count > 0);
    at(policy, parent)->child_count--;
    at(policy, number)->parent = ENTRY_NONE;
}

/* Put the entry next to `newer` on its older side; ENTRY_NONE: at the newest end. */
static void
list_insert(struct policy *policy, uint32_t number, uint32_t newer)
{
    struct entry_state *state = at(policy, number);
    uint32_t older = newer == ENTRY_NONE ? policy->newest : at(policy, newer)->older;

    state->newer = newer;
    state->older = older;
    if (newer == ENTRY_NONE)
        policy->newest = number;
    else
        at(policy, newer)->older = number;
    if (older == ENTRY_NONE)
        policy->oldest = number;
    else
        at(policy, older)->newer = number;
}

static void
list_remove(struct policy *policy, uint32_t number)
{
    struct entry_state *state = at(policy, number);

    if (state->newer == ENTRY_NONE)
        policy->newest = state->older;
    else
        at(policy, state->newer)->older = state->older;
    if (state->older == ENTRY_NONE)
        policy->oldest = state->newer;
    else
        at(policy, state->older)->newer = state->newer;
    state->newer = state->older = ENTRY_NONE;
}

void
policy_host_add(struct policy *policy, uint32_t number)
{
    struct entry_state *state = at(policy, number);
    uint32_t parent = policy_parent(policy, number);
    uint32_t newer = ENTRY_NONE;

    KVT_ASSERT((state->flags & ENTRY_IN_HOST_LIST) == 0);
    if (parent != ENTRY_NONE) {
        at(policy, parent)->host_child_count++;
        if ((at(policy, parent)->flags & ENTRY_IN_HOST_LIST) != 0)
            newer = parent;
    }
    list_insert(policy, number, newer);
    state->flags |= ENTRY_IN_HOST_LIST;
}

void
policy_host_remove(struct policy *policy, uint32_t number)
{
    struct entry_state *state = at(policy, number);
    uint32_t parent;

    if ((state->flags & ENTRY_IN_HOST_LIST) == 0)
        return;
    list_remove(policy, number);
    state->flags &= (uint8_t)~ENTRY_IN_HOST_LIST;
    parent = policy_parent(policy, number);
    if (parent != ENTRY_NONE) {
        KVT_ASSERT(at(policy, parent)->host_child_count > 0);
        at(policy, parent)->host_child_count--;
    }
}

void
policy_touch(struct policy *policy, uint32_t number)
{
    struct entry_state *state = at(policy, number);

    if ((state->flags & ENTRY_IN_HOST_LIST) == 0 || policy->newest == number)
        return;
    list_remove(policy, number);
    list_insert(policy, number, ENTRY_NONE);
}

uint32_t
policy_victim(struct policy *policy, uint32_t cursor)
{
    uint32_t number = cursor == ENTRY_NONE ? policy->oldest : at(policy, cursor)->newer;

    while (number != ENTRY_NONE && at(policy, number)->host_child_count > 0)
        number = at(policy, number)->newer;
    return number;
}
