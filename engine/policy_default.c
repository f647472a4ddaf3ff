/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_default.c - GHI: blocks that arrive, are used, leave, and are remembered as ghosts.
 *
 * Owns      what is tracked: the traits and the last use of each block in the map (entry_state:
 *           use_count, gap, segment, turn, last_use), those of ghosts, and the run of new blocks
 *           that is arriving.
 * Not here  hazard.h what is learned of them; policy_default_internal.h the other parts.
 *
 * Invariant: a block with use_count > 0 is in the cohort of its class and last use; so is each
 * ghost; nothing else is in one.
 *
 * The blocks that a request brings are a run, however many calls of arrive() say so, and however
 * long one waited for room: each is the child of the last, which nobody used since. A run's turn is
 * one more than that of the block before it. Its length is that of those that were never seen,
 * without ghosts; it is only known at the end, so they change their class when it passes 4, 8 and
 * 16.
 *
 * A block that an open found on NVMe is tracked from its first use on, as one that was used before,
 * long ago. Until then it has no age that says anything: when it leaves NVMe nothing is learned.
 */
#include "failure.h"
#include "policy_default_internal.h"

enum {
    GHOSTS_A_BLOCK = 4,
    GUARD_SECONDS = 5,
};

static const uint64_t seed = 0x6768692d6b767469; /* Any: the same choices in every run. */

/* --- Traits ----------------------------------------------------------------------------------- */

/* What `gap` says is known only of a block that was used more than once. */
struct hazard_traits
default_traits(const struct entry_state *state)
{
    return (struct hazard_traits){
        .use_count = state->use_count,
        .gap = state->use_count > 1 ? (uint8_t)(state->gap + 1u) : HAZARD_GAP_NONE,
        .segment = state->segment,
        .turn = (uint8_t)(state->turn + 1u),
        .hint = state->hint,
    };
}

static void
traits_note(struct entry_state *state, const struct hazard_traits *traits)
{
    state->use_count = traits->use_count & 15u;
    state->gap = (traits->gap == HAZARD_GAP_NONE ? 0 : traits->gap - 1u) & 3u;
    state->segment = traits->segment & 3u;
    state->turn = (traits->turn - 1u) & 3u;
}

static uint16_t
traits_pack(const struct hazard_traits *traits)
{
    uint32_t gap = traits->gap;
    uint32_t segment = traits->segment;
    uint32_t hint = traits->hint;

    return (uint16_t)(traits->use_count | gap << 4 | segment << 7 | (traits->turn - 1u) << 9 |
                      hint << 11);
}

static struct hazard_traits
traits_unpack(uint16_t packed)
{
    return (struct hazard_traits){
        .use_count = packed & 15u,
        .gap = packed >> 4 & 7u,
        .segment = packed >> 7 & 3u,
        .turn = (uint8_t)((packed >> 9 & 3u) + 1u),
        .hint = packed >> 11 & 3u,
    };
}

/* What is not known of a block that was not used since the open is as of one that was used once. */
static void
classes_set(struct default_policy *self)
{
    struct entry_state state = {0};

    for (uint32_t key = 0; key < DEFAULT_KEYS; key++) {
        struct hazard_traits traits;

        state.hint = key & 3u;
        state.turn = key >> 2 & 3u;
        state.segment = key >> 4 & 3u;
        state.use_count = key >> 6 & 15u;
        state.gap = key >> 10 & 3u;
        KVT_ASSERT(default_key(&state) == key);
        traits = default_traits(&state);
        if (traits.use_count == 0)
            traits.use_count = 1;
        if (traits.use_count <= HAZARD_USES_MAX)
            self->classes[key] = (uint16_t)hazard_class(&traits);
    }
}

/* --- Time ------------------------------------------------------------------------------------- */

static void
guards_step(struct default_policy *self)
{
    double passed = hazard_seconds(self->now - self->guard_tick);

    if (passed < GUARD_SECONDS)
        return;
    for (uint32_t set = 0; set < SET_COUNT; set++)
        guard_step(&self->guards[set], hazard_seconds(self->now), passed);
    self->guard_tick = self->now;
}

static void
now_set(struct default_policy *self, uint64_t now_ns)
{
    uint32_t now = (uint32_t)(now_ns >> USE_TICK_SHIFT);

    if (now <= self->now)
        return; /* Time never falls. */
    self->now = now;
    guards_step(self);
    hazard_step(self->hazard, now);
    write_price_step(&self->price, (double)now_ns / 1e9);
}

/* --- Guards ----------------------------------------------------------------------------------- */

/* A block that was used last at `last` is used: what the sets had of it, and LRU would have had.
 * Those above it in its chain were used after it. */
static void
guards_note(struct default_policy *self, uint32_t last, uint32_t depth, const bool *was_there)
{
    uint64_t hbm_count = 0;
    uint64_t capacities[SET_COUNT];
    struct default_rank *rank = &self->rank;
    uint64_t others;

    if (last == self->now)
        return;
    if (rank->tick != last || rank->now != self->now) {
        *rank = (struct default_rank){.tick = last, .now = self->now};
        rank->since = hazard_since(self->hazard, last, self->now, &rank->in_span);
    }
    others = rank->since == COHORT_NONE
                 ? UINT64_MAX
                 : (uint64_t)rank->since + (depth < rank->in_span ? depth : rank->in_span);
    for (uint32_t place = POLICY_HBM; place < POLICY_NVME; place++)
        hbm_count += self->places[place].copy_count;
    capacities[SET_HBM] = hbm_count;
    capacities[SET_MEMORY] =
        hbm_count + self->places[POLICY_HOST].copy_count - self->places[POLICY_HOST].doubles.count;
    capacities[SET_MAP] = self->tracked_count;
    for (uint32_t set = 0; set < SET_COUNT; set++)
        guard_note(&self->guards[set], was_there[set], others, capacities[set]);
}

/* --- Tracking --------------------------------------------------------------------------------- */

static void
track(struct default_policy *self, uint32_t number, const struct hazard_traits *traits)
{
    struct entry_state *state = entries_at(self->base.entries, number);

    traits_note(state, traits);
    state->last_use = self->now;
    self->tracked_count++;
    if (self->tracked_count > self->tracked_highest)
        self->tracked_highest = self->tracked_count;
}

/* The turn of a block in the chain of its parent. */
static uint8_t
turn_after(struct default_policy *self, uint32_t number)
{
    uint32_t parent = entries_parent(self->base.entries, number);
    const struct entry_state *state;

    if (parent == ENTRY_NONE)
        return 1;
    state = entries_at(self->base.entries, parent);
    if (state->use_count == 0)
        return 1;
    return (uint8_t)(state->turn + 2u < HAZARD_TURNS_MAX ? state->turn + 2u : HAZARD_TURNS_MAX);
}

/* A block that an open found, from now on. */
static void
found_track(struct default_policy *self, uint32_t number)
{
    struct hazard_traits traits = {.use_count = 2, .gap = 4, .turn = turn_after(self, number)};

    traits.hint = entries_at(self->base.entries, number)->hint;
    track(self, number, &traits);
    hazard_arrive(self->hazard, hazard_class(&traits), self->now);
}

static void
block_use(struct default_policy *self, uint32_t number)
{
    struct entry_state *state = entries_at(self->base.entries, number);
    struct hazard_traits traits;
    uint32_t from;

    if (number == self->run.last)
        self->run.last = ENTRY_NONE; /* What comes behind it is another request's. */
    if (state->use_count == 0) {
        found_track(self, number);
        return;
    }
    guards_note(self, state->last_use, state->depth,
        (const bool[SET_COUNT]){
            (state->places & PLACES_HBM) != 0, (state->places & PLACES_MEMORY) != 0, true});
    traits = default_traits(state);
    from = hazard_class(&traits);
    hazard_traits_use(&traits, self->now - state->last_use);
    hazard_use(self->hazard, from, hazard_class(&traits), state->last_use, self->now);
    traits_note(state, &traits);
    state->last_use = self->now;
}

static void
default_request(struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns)
{
    struct default_policy *self = default_of(policy);

    now_set(self, now_ns);
    self->requested = self->now;
    for (uint32_t i = count; i-- > 0;) {
        if (numbers[i] == ENTRY_NONE)
            continue;
        block_use(self, numbers[i]);
        default_double_touch(self, numbers[i]);
    }
}

/* --- Arriving --------------------------------------------------------------------------------- */

static uint64_t
fingerprint_of(struct default_policy *self, uint32_t number)
{
    return residency_at(entries_map(self->base.entries), number)->fingerprint.low;
}

/* The block is the next of the run, or begins another. Returns its turn. */
static uint8_t
run_join(struct default_policy *self, uint32_t number, bool is_new)
{
    struct default_run *run = &self->run;
    uint32_t parent = entries_parent(self->base.entries, number);
    bool is_going_on = parent != ENTRY_NONE && parent == run->last;

    if (!is_going_on) {
        run->length = 0;
        run->begin = self->now;
    }
    run->length += is_new;
    run->last = number;
    return is_going_on ? (uint8_t)(entries_at(self->base.entries, parent)->turn + 1u)
                       : turn_after(self, number);
}

/* The run has become longer: its new blocks, from the last up, are of another class. */
static void
run_reclass(struct default_policy *self, uint32_t number)
{
    uint8_t segment = hazard_segment_bucket(self->run.length);
    uint32_t left = self->run.length;

    while (left > 0 && number != ENTRY_NONE) {
        struct entry_state *state = entries_at(self->base.entries, number);

        if (state->use_count == 0 || state->last_use < self->run.begin)
            return; /* Some of them left, or were used, in the meantime. */
        if (state->use_count == 1) {
            uint32_t from = default_class(self, state);

            state->segment = segment & 3u;
            hazard_reclass(self->hazard, from, default_class(self, state), state->last_use);
            left--;
        }
        number = entries_parent(self->base.entries, number);
    }
}

/* A ghost comes back: that is a use. */
static void
ghost_return(struct default_policy *self, uint32_t number, const struct ghost_facts *facts)
{
    struct hazard_traits traits = traits_unpack(facts->traits);
    uint32_t from = hazard_class(&traits);

    guards_note(self, facts->last_use, entries_at(self->base.entries, number)->depth,
        (const bool[SET_COUNT]){false});
    hazard_traits_use(&traits, self->now - facts->last_use);
    traits.turn = run_join(self, number, false);
    traits.hint = entries_at(self->base.entries, number)->hint;
    track(self, number, &traits);
    hazard_use(self->hazard, from, hazard_class(&traits), facts->last_use, self->now);
}

/* A block that was never seen, or is forgotten. */
static void
block_begin(struct default_policy *self, uint32_t number)
{
    struct hazard_traits traits = {.use_count = 1, .turn = run_join(self, number, true)};

    traits.segment = hazard_segment_bucket(self->run.length);
    traits.hint = entries_at(self->base.entries, number)->hint;
    track(self, number, &traits);
    hazard_arrive(self->hazard, hazard_class(&traits), self->now);
    if (traits.segment != hazard_segment_bucket(self->run.length - 1))
        run_reclass(self, number);
}

static void
default_arrive(struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns)
{
    struct default_policy *self = default_of(policy);

    now_set(self, now_ns);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t parent = entries_parent(policy->entries, numbers[i]);
        struct ghost_facts facts;

        weights_add(&self->weights, entries_at(policy->entries, numbers[i])->importance);
        if (ghost_table_take(&self->ghosts, fingerprint_of(self, numbers[i]), &facts))
            ghost_return(self, numbers[i], &facts);
        else
            block_begin(self, numbers[i]);
        if (parent != ENTRY_NONE)
            default_refresh(self, parent);
    }
}

/* --- Leaving ---------------------------------------------------------------------------------- */

static void
ghost_make(struct default_policy *self, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    struct hazard_traits traits = default_traits(state);
    struct ghost_facts facts = {state->last_use, traits_pack(&traits)};
    struct ghost_facts forgotten;

    ghost_table_reserve(&self->ghosts, &self->env, GHOSTS_A_BLOCK * self->tracked_highest);
    if (!ghost_table_add(&self->ghosts, fingerprint_of(self, number), &facts, &forgotten))
        return;
    traits = traits_unpack(forgotten.traits);
    hazard_forget(self->hazard, hazard_class(&traits), forgotten.last_use, self->now);
}

static void
default_leave(struct policy *policy, uint32_t number, bool is_evicted)
{
    struct default_policy *self = default_of(policy);
    struct entry_state *state = entries_at(policy->entries, number);
    uint32_t parent = entries_parent(policy->entries, number);

    if (is_evicted && (state->places & PLACES_NVME) != 0)
        default_nvme_left(self, number);
    if (parent != ENTRY_NONE)
        default_child_leaves(self, parent);
    if (self->run.last == number)
        self->run.last = ENTRY_NONE;
    if (state->use_count == 0)
        return;
    if (is_evicted)
        ghost_make(self, number);
    else
        hazard_forget(self->hazard, default_class(self, state), state->last_use, self->now);
    state->use_count = 0;
    self->tracked_count--;
}

/* --- Keeping ---------------------------------------------------------------------------------- */

_Static_assert(
    (size_t)HAZARD_STATE_BYTES_MAX + WRITE_PRICE_STATE_BYTES <= (size_t)POLICY_STATE_BYTES_MAX,
    "what is learned fits");

static size_t
default_save(struct policy *policy, uint8_t *target)
{
    struct default_policy *self = default_of(policy);
    size_t size = hazard_save(self->hazard, target);

    return size == 0 ? 0 : size + write_price_save(&self->price, target + size);
}

static bool
default_restore(struct policy *policy, const uint8_t *source, size_t size)
{
    struct default_policy *self = default_of(policy);
    size_t hazard_size = size - WRITE_PRICE_STATE_BYTES;
    struct write_price price;

    if (hazard_restore(self->hazard, source, size))
        return true;
    if (size < WRITE_PRICE_STATE_BYTES || !write_price_restore(&price, source + hazard_size) ||
        !hazard_restore(self->hazard, source, hazard_size))
        return false;
    self->price = price;
    return true;
}

/* --- Life ------------------------------------------------------------------------------------- */

static void
default_close(struct policy *policy)
{
    struct default_policy *self = default_of(policy);
    struct kvt_env env;

    if (policy == NULL)
        return;
    env = self->env;
    default_places_close(self);
    ghost_table_close(&self->ghosts, &env);
    hazard_close(self->hazard);
    policy_nodes_close(policy->nodes);
    env_put(&env, self, sizeof(*self));
}

static enum kvt_status
default_open(const struct kvt_env *env, struct entries *entries, struct policy **policy_out)
{
    struct default_policy *self = env_take(env, sizeof(*self));
    enum kvt_status status;

    *policy_out = NULL;
    if (self == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the policy");
    self->base = (struct policy){.ops = &policy_default_ops, .entries = entries};
    self->env = *env;
    self->rng.state = seed;
    classes_set(self);
    self->run.last = ENTRY_NONE;
    self->nvme_age_seconds = HAZARD_HORIZON_FIRST;
    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++) {
        self->places[place].shown = ENTRY_NONE;
        for (uint32_t i = 0; i < DEFAULT_DRAWS; i++)
            self->places[place].shares[i] = (uint32_t)(rng_next(&self->rng) >> 32);
    }
    status = policy_nodes_open(env, entries, &self->base.nodes);
    if (status == KVT_OK)
        status = hazard_open(env, &self->hazard);
    if (status != KVT_OK) {
        default_close(&self->base);
        return status;
    }
    self->tables = hazard_tables(self->hazard);
    *policy_out = &self->base;
    return KVT_OK;
}

const struct policy_ops policy_default_ops = {
    .name = "ghi",
    .open = default_open,
    .close = default_close,
    .arrive = default_arrive,
    .leave = default_leave,
    .prepare = default_prepare,
    .unprepare = default_unprepare,
    .add = default_add,
    .remove = default_remove,
    .recheck = default_recheck,
    .request = default_request,
    .victim = default_victim,
    .admits = default_admits,
    .importance = default_importance,
    .score = default_score_told,
    .worth = default_worth,
    .costs_set = default_costs_set,
    .save = default_save,
    .restore = default_restore,
};
