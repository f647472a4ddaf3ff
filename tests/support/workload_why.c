/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_why.c - what kvt_why() says of blocks: where they are, or which of the things that this
 * life has done to them it was.
 *
 * For each name there is a set of fates that the next answer may give. That nothing is remembered
 * is one of them, but where no block ever leaves for room: there all that was deleted or cleared in
 * this life is known.
 */
#include <math.h>
#include <string.h>

#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

enum {
    FATES_ALL = (1 << (KVT_FATE_CLOSED + 1)) - 1,
    FATES_ROOM = 1 << KVT_FATE_EVICTED | 1 << KVT_FATE_RECLAIMED | 1 << KVT_FATE_REFUSED,
    FATES_TROUBLE =
        FATES_ROOM | 1 << KVT_FATE_DAMAGED | 1 << KVT_FATE_DEVICE_LOST | 1 << KVT_FATE_PUT_FAILED,
    UNSURE = 1 << 14,    /* It may have been there: that nothing is remembered is no wonder. */
    WAS_THERE = 1 << 15, /* What becomes of it without being asked is to come. */
};

/* --- 1. What was done ------------------------------------------------------------------------- */

static uint16_t *
fates_of(struct workload *work, struct model_name name)
{
    return &work->fates[name.space][name.key];
}

/* Whoever was in flight with it may have come behind it. */
static void
fate_set(struct workload *work, const struct flight *flight, uint32_t i, unsigned fates)
{
    uint16_t *known = fates_of(work, flight->names[i]);
    bool is_last = !flight->is_cleared && !chain_names(work, flight->names[i]);

    *known = (uint16_t)(is_last ? fates : *known | fates);
}

void
fate_put(struct workload *work, const struct flight *flight, uint32_t i, enum kvt_status status)
{
    unsigned fates = *fates_of(work, flight->names[i]);

    if (status == KVT_OK)
        fates = WAS_THERE;
    else if (status == KVT_EXISTS)
        fates |= WAS_THERE;
    else if (status == KVT_MISS)
        fates |= 1 << KVT_FATE_CLEARED | UNSURE;
    else
        fates |= 1 << KVT_FATE_PUT_FAILED;
    fate_set(work, flight, i, fates);
}

void
fate_delete(struct workload *work, const struct flight *flight, uint32_t i, enum kvt_status status)
{
    unsigned untold = status == KVT_NOT_READY ? *fates_of(work, flight->names[i]) : 0;

    if (status != KVT_MISS)
        fate_set(work, flight, i, untold | 1 << KVT_FATE_DELETED);
}

void
fate_clear(struct workload *work, struct model_name name)
{
    uint16_t *known = fates_of(work, name);

    if (!name_is_busy(work, name) && model_is_certain(&work->model, name))
        *known = 1 << KVT_FATE_CLEARED;
    else if (name_is_busy(work, name) || model_states(&work->model, name) != MODEL_NOTHING)
        *known |= 1 << KVT_FATE_CLEARED | UNSURE;
}

void
fate_open(struct workload *work)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < MODEL_KEYS_MAX; key++) {
            bool was_put = work->model.keys[space][key].version_last > 0;

            work->fates[space][key] = was_put ? FATES_ALL : 0;
        }
    }
}

/* Trouble is over; what has become of a block in its course is said for as long as it is known. */
void
fate_heal(struct workload *work)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < MODEL_KEYS_MAX; key++) {
            if ((work->fates[space][key] & WAS_THERE) != 0)
                work->fates[space][key] |= FATES_TROUBLE;
        }
    }
}

/* --- 2. What is said -------------------------------------------------------------------------- */

static bool
fate_is_possible(struct workload *work, struct model_name name, unsigned fate)
{
    unsigned known = *fates_of(work, name);
    bool is_troubled = workload_tolerates(work) || work->loses_devices || work->finds_damage ||
                       work->headers_may_lie;
    unsigned unasked = (work->evicts ? FATES_ROOM : 0) | (is_troubled ? FATES_TROUBLE : 0);

    if ((known & WAS_THERE) != 0)
        known |= unasked;
    if (fate != KVT_FATE_NONE)
        return fate <= KVT_FATE_CLOSED && (known & 1u << fate) != 0;
    /* Nothing has taken its place in the table. */
    return work->evicts || is_troubled ||
           (known != 1 << KVT_FATE_DELETED && known != 1 << KVT_FATE_CLEARED);
}

static void
why_judge(struct workload *work, struct model_name name, const struct kvt_explanation *why,
    uint8_t tiers, bool is_foreign)
{
    unsigned fate = why->fate;
    bool is_room = fate <= KVT_FATE_CLOSED && (FATES_ROOM & 1 << fate) != 0;

    work->asked_count[ASKED_WHY]++;
    work->asked_count[ASKED_FATE] += fate != KVT_FATE_NONE;
    if (why->tiers != (is_foreign ? 0 : tiers))
        model_fail(&work->model, "space %u key %u: in tiers %u by the lookup, in %u by kvt_why",
            name.space, name.key, tiers, why->tiers);
    if (why->other.id != (is_foreign && tiers != 0 ? work->spaces[name.space].id : 0))
        model_fail(&work->model, "space %u key %u in tiers %u: kvt_why finds it in namespace %u",
            name.space, name.key, tiers, why->other.id);
    if ((why->tiers != 0 || is_foreign) ? fate != KVT_FATE_NONE
                                        : !fate_is_possible(work, name, fate))
        model_fail(&work->model, "space %u key %u in tiers %u: fate %u; it may be one of %#x",
            name.space, name.key, tiers, fate, *fates_of(work, name));
    if ((fate != KVT_FATE_NONE) != (why->when_seconds != 0) ||
        (!is_room && (!isnan(why->score) || !isnan(why->cut))))
        model_fail(&work->model, "space %u key %u: fate %u at %llu, score %f, cut %f", name.space,
            name.key, fate, (unsigned long long)why->when_seconds, why->score, why->cut);
}

void
workload_why(struct workload *work, struct model_name name)
{
    bool is_foreign = rng_below(&work->rng, 4) == 0;
    kvt_namespace other = work->spaces[(name.space + 1) % MODEL_SPACES];
    kvt_namespace own = work->spaces[name.space];
    struct kvt_explanation why = {.struct_size = sizeof(why)};
    uint8_t bytes[WORKLOAD_KEY_BYTES];
    struct kvt_key key = workload_key(name, bytes);
    uint8_t before, behind;
    enum kvt_status status = kvt_lookup(work->store, own, &key, 1, &before, NULL, NULL);

    if (!workload_expect(work, "kvt_lookup", status))
        return;
    status = kvt_why(work->store, is_foreign ? other : own, &key, &why);
    workload_note(work, 37, why.fate);
    if (!workload_expect(work, "kvt_why", status) ||
        kvt_lookup(work->store, own, &key, 1, &behind, NULL, NULL) != KVT_OK)
        return;
    workload_mood(work);
    model_found(&work->model, name, behind != 0);
    if (before == behind)
        why_judge(work, name, &why, before, is_foreign);
}
