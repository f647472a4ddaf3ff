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

#include "policy_default_internal.h"

static const double age_gain = 0.01; /* Of one block that leaves NVMe, on the mean age. */

static uint32_t
age_of(const struct default_policy *self, const struct entry_state *state)
{
    return self->now - state->last_use;
}

static float
importance_of(const struct default_policy *self, const struct entry_state *state)
{
    struct hazard_traits traits = default_traits(state);

    if (traits.use_count == 0)
        traits.use_count = 1; /* Not used since the open. */
    return hazard_importance(self->hazard, hazard_class(&traits), age_of(self, state)) *
           weights_factor(&self->weights, state->importance);
}

/* --- What moving costs ------------------------------------------------------------------------ */

/* Computing the block anew; 0: unknown. */
static double
recompute_ns(const struct default_policy *self, const struct entry_state *state)
{
    if (state->recompute_us != 0)
        return state->recompute_us * 1e3;
    return (double)self->costs.recompute_ns + (double)self->costs.recompute_depth_ns * state->depth;
}

/* What a copy of a tracked block on NVMe is expected to save. */
static double
nvme_worth_ns(const struct default_policy *self, const struct entry_state *state)
{
    struct hazard_traits traits = default_traits(state);

    return (double)hazard_reuse(self->hazard, hazard_class(&traits), age_of(self, state)) *
           (recompute_ns(self, state) - (double)self->costs.nvme_load_ns);
}

static bool
is_admissible(const struct default_policy *self, const struct entry_state *state)
{
    if (recompute_ns(self, state) <= 0 || state->use_count == 0 ||
        state->child_count > state->memory_child_count)
        return true;
    return nvme_worth_ns(self, state) >= self->price.price_ns;
}

/* What the next use costs more without the HOST copy. */
static float
host_value(const struct default_policy *self, const struct entry_state *state)
{
    double load = (double)self->costs.nvme_load_ns - (double)self->costs.host_load_ns;
    double value;

    if (self->costs.nvme_load_ns == 0)
        return 1;
    if ((state->places & PLACES_NVME) != 0)
        value = load;
    else if (is_admissible(self, state))
        value = load + self->price.price_ns;
    else
        value = recompute_ns(self, state) - (double)self->costs.host_load_ns;
    return value > 1 ? (float)value : 1;
}

/* --- Answers ---------------------------------------------------------------------------------- */

float
default_score(const struct default_policy *self, unsigned place, uint32_t number)
{
    const struct entry_state *state = entries_at(self->base.entries, number);
    enum default_set set = place == POLICY_HOST   ? SET_MEMORY
                           : place == POLICY_NVME ? SET_MAP
                                                  : SET_HBM;
    float importance;

    /* Where losing a block costs more or less hits are not all that counts. */
    if (self->guards[set].is_lru && (place != POLICY_HOST || self->costs.nvme_load_ns == 0))
        return 1 / (1 + (float)age_of(self, state)) *
               weights_factor(&self->weights, state->importance);
    importance = importance_of(self, state);

    return place == POLICY_HOST ? importance * host_value(self, state) : importance;
}

bool
default_admits(struct policy *policy, uint32_t number)
{
    struct default_policy *self = default_of(policy);
    bool is_admitted = is_admissible(self, entries_at(policy->entries, number));

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
        .worth_ns = state->use_count == 0 ? NAN : (float)nvme_worth_ns(self, state),
        .price_ns = (float)self->price.price_ns,
    };
}

void
default_costs_set(struct policy *policy, const struct policy_costs *costs)
{
    struct default_policy *self = default_of(policy);

    self->costs = *costs;
    write_price_set(&self->price, costs->nvme_write_price_ns, costs->nvme_writes_per_second_max);
}

void
default_nvme_left(struct default_policy *self, uint32_t number)
{
    double age = hazard_seconds(age_of(self, entries_at(self->base.entries, number)));

    self->nvme_age_seconds += (age - self->nvme_age_seconds) * age_gain;
    hazard_horizon_set(self->hazard, self->nvme_age_seconds);
}
