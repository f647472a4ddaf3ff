/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_default_worth.c - what copies are worth: importance, times what losing this one costs.
 *
 * HBM, NVMe   importance
 * HOST        importance x what the next use costs more when the copy is gone: a load from NVMe
 *             instead of HOST; that and the price of writing, if it must be written there first; or
 *             computing it anew, if it is not worth that.
 *
 * A block is written to NVMe when the time that this saves, times the chance that it is used before
 * it would leave NVMe again, is worth the price; and always when NVMe holds a child of it.
 *
 * Importance is the index of the block's class at its age, times what the caller's weight says.
 */
#include <math.h>
#include <string.h>

#include "failure.h"
#include "policy_default_internal.h"

static const double age_gain = 0.01; /* Of one block that leaves NVMe, on the mean age. */

static uint32_t
age_of(const struct default_policy *self, const struct entry_state *state)
{
    return self->now - state->last_use;
}

static struct hazard_point
outlook_of(const struct default_policy *self, const struct entry_state *state)
{
    return hazard_at(self->tables, default_class(self, state), age_of(self, state));
}

static float
importance_of(const struct default_policy *self, const struct entry_state *state)
{
    return outlook_of(self, state).index * weights_factor(&self->weights, state->importance);
}

/* --- What moving costs ------------------------------------------------------------------------ */

/* Computing the block anew; 0: unknown. */
static inline float
recompute_ns(const struct default_policy *self, const struct entry_state *state)
{
    if (state->recompute_us != 0)
        return (float)state->recompute_us * 1e3f;
    return self->costs.recompute_ns + self->costs.recompute_depth_ns * (float)state->depth;
}

/* What a copy on NVMe is expected to save, of a tracked block with this chance of a reuse. */
static inline float
nvme_worth_ns(const struct default_policy *self, const struct entry_state *state, float chance)
{
    return chance * (recompute_ns(self, state) - self->costs.nvme_load_ns);
}

static inline bool
is_admissible(const struct default_policy *self, const struct entry_state *state, float chance)
{
    unsigned must_be = (unsigned)(recompute_ns(self, state) <= 0) |
                       (unsigned)(state->use_count == 0) |
                       (unsigned)(state->child_count > state->memory_child_count);

    return must_be | (unsigned)(nvme_worth_ns(self, state, chance) >= (float)self->price.price_ns);
}

/* What the next use costs more without the HOST copy, when costs are known. Without branches: of
 * the leaves of one choice some are written first and some are not. */
static inline float
host_value(const struct default_policy *self, const struct entry_state *state, float chance)
{
    const float load = self->costs.nvme_load_ns - self->costs.host_load_ns;
    const float dropped = recompute_ns(self, state) - self->costs.host_load_ns;
    const float written = load + (float)self->price.price_ns;
    const float values[4] = {dropped, written, load, load};
    unsigned is_there = (state->places & PLACES_NVME) != 0;
    float value = values[is_there << 1 | (unsigned)is_admissible(self, state, chance)];

    return value > 1 ? value : 1;
}

/* --- Answers ---------------------------------------------------------------------------------- */

/* Whether LRU is obeyed. Where losing a block costs more or less hits are not all that counts. */
static bool
is_lru(const struct default_policy *self, unsigned place)
{
    enum default_set set = place == POLICY_HOST   ? SET_MEMORY
                           : place == POLICY_NVME ? SET_MAP
                                                  : SET_HBM;

    return self->guards[set].is_lru && (place != POLICY_HOST || self->costs.nvme_load_ns <= 0);
}

/* What scores in one place at one time have in common. */
struct scale {
    bool by_time, by_value;
};

static struct scale
scale_of(const struct default_policy *self, unsigned place)
{
    return (struct scale){
        .by_time = is_lru(self, place),
        .by_value = place == POLICY_HOST && self->costs.nvme_load_ns > 0,
    };
}

static inline float
score_of(const struct default_policy *self, struct scale scale, const struct entry_state *state,
    uint32_t class_index)
{
    uint32_t age = age_of(self, state);
    struct hazard_point outlook = hazard_at(self->tables, class_index, age);
    float score = scale.by_time ? 1 / (1 + (float)age) : outlook.index;

    if (scale.by_value)
        score *= host_value(self, state, outlook.chance);
    return score * weights_factor(&self->weights, state->importance);
}

/* In two passes: blocks that are not in the caches are waited for together. */
void
default_scores(const struct default_policy *self, unsigned place, struct default_choice *choice)
{
    const struct entry_state *states[DEFAULT_DRAWS];
    uint32_t classes[DEFAULT_DRAWS];
    struct scale scale = scale_of(self, place);

    KVT_ASSERT(choice->count <= DEFAULT_DRAWS);
    for (uint32_t i = 0; i < choice->count; i++) {
        states[i] = entries_at(self->base.entries, choice->numbers[i]);
        classes[i] = default_class(self, states[i]);
    }
    for (uint32_t i = 0; i < choice->count; i++)
        choice->scores[i] = score_of(self, scale, states[i], classes[i]);
}

float
default_score(const struct default_policy *self, unsigned place, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    struct scale scale = scale_of(self, place);

    return score_of(self, scale, state, default_class(self, state));
}

bool
default_admits(struct policy *policy, uint32_t number)
{
    struct default_policy *self = default_of(policy);
    const struct entry_state *state = entries_at(policy->entries, number);
    bool is_admitted = is_admissible(self, state, outlook_of(self, state).chance);

    self->price.write_count += is_admitted;
    return is_admitted;
}

/* Of floats that are not negative the bits have the order of the numbers. */
uint64_t
default_importance(struct policy *policy, uint32_t number)
{
    float importance = importance_of(default_of(policy), entries_at(policy->entries, number));
    uint32_t bits;

    memcpy(&bits, &importance, sizeof(bits));
    return bits;
}

float
default_score_told(struct policy *policy, enum policy_place place, uint32_t number)
{
    const struct default_policy *self = default_of(policy);

    return place == POLICY_NVME ? importance_of(self, entries_at(policy->entries, number))
                                : default_score(self, place, number);
}

void
default_worth(struct policy *policy, uint32_t number, struct policy_worth *worth_out)
{
    const struct default_policy *self = default_of(policy);
    const struct entry_state *state = entries_at(policy->entries, number);

    *worth_out = (struct policy_worth){
        .worth_ns = state->use_count == 0
                        ? NAN
                        : nvme_worth_ns(self, state, outlook_of(self, state).chance),
        .price_ns = (float)self->price.price_ns,
    };
}

void
default_costs_set(struct policy *policy, const struct policy_costs *costs)
{
    struct default_policy *self = default_of(policy);

    self->costs = (struct default_costs){
        .host_load_ns = (float)costs->host_load_ns,
        .nvme_load_ns = (float)costs->nvme_load_ns,
        .recompute_ns = (float)costs->recompute_ns,
        .recompute_depth_ns = (float)costs->recompute_depth_ns,
    };
    write_price_set(&self->price, costs->nvme_write_price_ns, costs->nvme_writes_per_second_max);
}

void
default_nvme_left(struct default_policy *self, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    double age = hazard_seconds(age_of(self, state));

    if (state->use_count == 0)
        return; /* An open found it: when it was used last is not known. */
    self->nvme_age_seconds += (age - self->nvme_age_seconds) * age_gain;
    hazard_horizon_set(self->hazard, self->nvme_age_seconds);
}
