/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locator.c - leased copies as plain data: kvt_lease_export(), kvt_locator_check().
 *
 * A check reads nothing of the lease but its generation: the lease may be released, and its memory
 * used for another, while it runs. What the locator says is believed because of its proof, a MAC
 * under the store's secret over the locator and the life of the store that made it.
 *
 * Threads   any.
 */
#include "store_internal.h"

_Static_assert(sizeof(struct kvt_locator) == 64, "64 bytes are promised");

static uint64_t
locator_proof(const struct kvt_store *store, const struct kvt_locator *locator)
{
    struct {
        char what[16]; /* No other MAC under the secret is over such bytes. */
        uint8_t life[16];
        struct kvt_locator locator;
    } text = {.what = "kvt_locator", .locator = *locator};
    uint8_t mac[HASH_MAC_BYTES];

    memcpy(text.life, store->life, sizeof(text.life));
    text.locator.proof = 0;
    hash_mac(mac, store->file.secret, &text, sizeof(text));
    return get_u64(mac);
}

enum kvt_status
kvt_lease_export(kvt_store *store, kvt_lease lease, uint32_t index, uint32_t tier,
    struct kvt_locator *locator_out)
{
    const struct slab *slab;
    const struct lease *held;
    const void *address;
    uint64_t length;

    if (locator_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "locator_out is NULL");
    KVT_TRY(kvt_lease_address(store, lease, index, tier, &address, &length));
    held = lease_current(store, lease);
    if (held == NULL)
        return KVT_E_INVAL;
    memset(locator_out, 0, sizeof(*locator_out));
    if (tier == KVT_TIER_HBM)
        locator_out->device = entry_device(residency_at(store->map, held->numbers[index]));
    slab = place_slab(
        store, tier == KVT_TIER_HBM ? place_of_device(locator_out->device) : POLICY_HOST);
    memcpy(locator_out->store, store->file.uuid, sizeof(locator_out->store));
    locator_out->lease = lease.id;
    locator_out->offset = (uint64_t)((uintptr_t)address - (uintptr_t)slab_base(slab));
    locator_out->length = length;
    locator_out->tier = tier;
    locator_out->index = index;
    locator_out->proof = locator_proof(store, locator_out);
    return KVT_OK;
}

enum kvt_status
kvt_locator_check(kvt_store *store, const struct kvt_locator *locator)
{
    if (locator == NULL)
        return failure_set(KVT_E_INVAL, 0, "locator is NULL");
    KVT_TRY(store_enter(store));
    if (locator->proof != locator_proof(store, locator) ||
        lease_current(store, (kvt_lease){locator->lease}) == NULL ||
        (locator->tier == KVT_TIER_HBM && device_is_lost(store, locator->device)))
        return KVT_MISS;
    return KVT_OK;
}
