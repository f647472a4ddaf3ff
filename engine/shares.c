/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.c - shares of namespaces in tiers.
 */
#include "shares.h"

#include "store_internal.h"

enum {
    /* What may be promised of a tier in memory. The rest is where everybody's new blocks go. */
    MEMORY_PERCENT_MAX = 90,
    /* Segments of a root that have no blocks, or are being written: the reserve, one to write into,
     * one that is being emptied. */
    SEGMENTS_BESIDE = 4,
};

void
shares_add(struct kvt_store *store, uint32_t number, enum share_tier tier, uint64_t bytes)
{
    entry_namespace(store, number)->used_bytes[tier] += bytes;
}

void
shares_remove(struct kvt_store *store, uint32_t number, enum share_tier tier, uint64_t bytes)
{
    struct namespace_state *space = entry_namespace(store, number);

    KVT_ASSERT(space->used_bytes[tier] >= bytes);
    space->used_bytes[tier] -= bytes;
}

bool
shares_hold(struct kvt_store *store, uint32_t number, enum share_tier tier, uint32_t asker)
{
    const struct namespace_state *space;

    if (!store->has_shares)
        return false;
    space = entry_namespace(store, number);
    return space->share_bytes[tier] > 0 && space->used_bytes[tier] <= space->share_bytes[tier] &&
           space->id != asker;
}

void
vain_note(const struct kvt_store *store, struct vain_askers *vain, uint32_t asker)
{
    if (vain->turn != store->turn)
        *vain = (struct vain_askers){.turn = store->turn};
    if (!vain_is_known(store, vain, asker))
        vain->ids[vain->count++] = asker;
}

bool
vain_is_known(const struct kvt_store *store, const struct vain_askers *vain, uint32_t asker)
{
    uint32_t i = 0;

    if (vain->turn != store->turn || vain->count == 0)
        return false;
    if (!store->has_shares || vain->count == VAIN_ASKERS_MAX)
        return true;
    while (i < vain->count && vain->ids[i] != asker)
        i++;
    return i < vain->count;
}

/* --- Setting one ------------------------------------------------------------------------------ */

struct share_call {
    struct namespace_state *space;
    enum share_tier tier;
    uint64_t bytes;
    uint64_t limit; /* Of all shares of the tier. */
    enum kvt_status status;
};

/* Count what is there: until now nobody did. */
static void
shares_begin(struct kvt_store *store)
{
    uint32_t limit = residency_number_limit(store->map);

    store->has_shares = true;
    for (uint32_t number = 0; number < limit; number++) {
        const struct entry *entry = residency_at(store->map, number);
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

        if (word_state(word) != ENTRY_RESIDENT)
            continue;
        for (uint32_t i = 0; i < POLICY_NVME; i++) {
            if (entries_has_copy(store->entries, (enum policy_place)i, number))
                shares_add(store, number, share_of_place((enum policy_place)i),
                    copy_bytes(store, (enum policy_place)i, number));
        }
        if ((word_tiers(word) & TIER_NVME) != 0)
            shares_add(
                store, number, SHARE_NVME, (uint64_t)pages_of(entry->stored_length) * PAGE_BYTES);
    }
}

static uint64_t
hbm_bytes(const struct kvt_store *store)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        const struct slab *slab = place_slab(store, place_of_device(i));

        bytes += slab == NULL ? 0 : slab_capacity(slab);
    }
    return bytes;
}

/*
 * A segment can be reclaimed when at most half of it is held (victim_survivors()). However that
 * lies, there is one while all that is held, by shares and by pins, is at most half of the segments
 * that have blocks. Of a namespace above its share a segment holds what it has of it less all that
 * is above the share: of all segments together that is no more than the share.
 */
static uint64_t
nvme_limit(const struct kvt_store *store)
{
    uint64_t segment_bytes = (uint64_t)store->file.segment_pages * PAGE_BYTES;
    uint64_t half = 0;

    for (uint32_t root = 0; root < store->file.root_count; root++) {
        uint64_t count = segment_total(store->segments, root);

        if (count > SEGMENTS_BESIDE)
            half += (count - SEGMENTS_BESIDE) * segment_bytes / 2;
    }
    return half > store->options.pin_bytes_max ? half - store->options.pin_bytes_max : 0;
}

/* What can be promised of the tier in all. */
static uint64_t
tier_limit(const struct kvt_store *store, enum share_tier tier)
{
    if (tier == SHARE_NVME)
        return nvme_limit(store);
    return (tier == SHARE_HOST ? slab_capacity(store->slab) : hbm_bytes(store)) / 100 *
           MEMORY_PERCENT_MAX;
}

static bool
tier_is_there(const struct kvt_store *store, enum share_tier tier)
{
    if (tier == SHARE_NVME)
        return store->nvme != NULL;
    return tier == SHARE_HOST || hbm_bytes(store) > 0;
}

static bool
share_run(struct kvt_store *store, void *context)
{
    struct share_call *call = context;
    uint32_t id_max = atomic_load_explicit(&store->namespace_count, memory_order_acquire);
    uint64_t promised = 0;

    /* Of some ids the namespace may be lost. */
    for (uint32_t id = 1; id <= id_max; id++) {
        const struct namespace_state *space = namespace_at(store, id);

        if (space != NULL && space != call->space)
            promised += space->share_bytes[call->tier];
    }
    call->status = KVT_OK;
    if (!tier_is_there(store, call->tier)) {
        call->status = KVT_E_UNSUPPORTED;
        return true;
    }
    call->limit = tier_limit(store, call->tier);
    if (promised > call->limit || call->bytes > call->limit - promised)
        call->status = KVT_E_NOSPC;
    if (call->status != KVT_OK)
        return true;
    if (!store->has_shares && call->bytes > 0)
        shares_begin(store);
    call->space->share_bytes[call->tier] = call->bytes;
    return true;
}

enum kvt_status
kvt_namespace_share_set(kvt_store *store, kvt_namespace ns, uint32_t tier, uint64_t bytes)
{
    struct share_call call = {.bytes = bytes};

    KVT_TRY(store_enter(store));
    call.space = namespace_at(store, ns.id);
    if (call.space == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    if (tier != KVT_TIER_HBM && tier != KVT_TIER_HOST && tier != KVT_TIER_NVME)
        return failure_set(KVT_E_INVAL, 0, "tier %u is not one of enum kvt_tiers", tier);
    call.tier = tier == KVT_TIER_HBM ? SHARE_HBM : tier == KVT_TIER_HOST ? SHARE_HOST : SHARE_NVME;
    loop_call(store, share_run, &call);
    if (call.status == KVT_E_UNSUPPORTED)
        return failure_set(KVT_E_UNSUPPORTED, 0, "the store does not have that tier");
    if (call.status == KVT_E_NOSPC)
        return failure_set(KVT_E_NOSPC, 0,
            "%llu bytes: with other namespaces' shares more than the %llu that can be promised of "
            "the tier",
            (unsigned long long)bytes, (unsigned long long)call.limit);
    return KVT_OK;
}
