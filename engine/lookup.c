/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - which keys are there, and where: answered by the map, without asking the loop.
 */
#include "lookup.h"

#include "store_internal.h"

static void
lookup_count(struct kvt_store *store, const uint8_t *tiers, uint32_t count)
{
    uint32_t hbm_count = 0;
    uint32_t host_count = 0;
    uint32_t nvme_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        hbm_count += (tiers[i] & TIER_HBM) != 0;
        host_count += (tiers[i] & (TIER_HBM | TIER_HOST)) == TIER_HOST;
        nvme_count += tiers[i] == TIER_NVME;
    }
    COUNT(store, lookup_count, count);
    COUNT(store, lookup_hit_hbm_count, hbm_count);
    COUNT(store, lookup_hit_host_count, host_count);
    COUNT(store, lookup_hit_nvme_count, nvme_count);
    COUNT(store, lookup_miss_count, count - hbm_count - host_count - nvme_count);
}

/* Copies of lost devices do not count. Returns the leading hits. */
static size_t
lookup_hide_lost(struct kvt_store *store, uint32_t *numbers, uint8_t *tiers, uint32_t count)
{
    size_t leading = 0;

    for (uint32_t i = 0; i < count; i++) {
        if ((tiers[i] & TIER_HBM) != 0 &&
            device_is_lost(store, entry_device(residency_at(store->map, numbers[i]))))
            tiers[i] &= (uint8_t)~TIER_HBM;
        if (tiers[i] == 0 && numbers[i] != ENTRY_NONE) {
            lease_unpin(store, numbers[i]);
            numbers[i] = ENTRY_NONE;
        }
        leading += leading == i && numbers[i] != ENTRY_NONE;
    }
    return leading;
}

size_t
lookup_find(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const uint16_t *component, uint32_t *numbers, uint8_t *tiers)
{
    struct block_key block_keys[LOOKUP_KEYS];
    struct hash128 fingerprints[LOOKUP_KEYS];
    size_t leading;

    if (count == 0)
        return 0; /* No caller asks so; without it gcc sees arrays that nobody filled. */
    for (uint32_t i = 0; i < count; i++) {
        /* Checked before: it cannot fail. */
        (void)key_init(&block_keys[i], store->file.secret, ns.id,
            component != NULL ? *component : keys[i].component, keys[i].bytes, keys[i].length);
        fingerprints[i] = key_fingerprint(store->fingerprint_seed, &block_keys[i]);
    }
    leading = residency_find_pin(store->map, fingerprints, block_keys, count, numbers, tiers);
    if (atomic_load_explicit(&store->devices.lost, memory_order_relaxed) != 0)
        leading = lookup_hide_lost(store, numbers, tiers, count);
    lookup_count(store, tiers, count);
    return leading;
}

enum kvt_status
lookup_check(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count)
{
    KVT_TRY(store_enter(store));
    if (keys == NULL)
        return failure_set(KVT_E_INVAL, 0, "keys is NULL");
    if (count == 0 || count > KVT_BATCH_MAX)
        return failure_set(KVT_E_INVAL, 0, "count %u is not in 1..%u", count, KVT_BATCH_MAX);
    if (namespace_at(store, ns.id) == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].bytes == NULL || keys[i].length == 0 || keys[i].length > KVT_KEY_BYTES_MAX ||
            keys[i].reserved0 != 0)
            return failure_set(KVT_E_INVAL, 0,
                "block %u: key.bytes is NULL, key.length %u is not in 1..%u, or reserved0 is not 0",
                i, keys[i].length, KVT_KEY_BYTES_MAX);
    }
    return KVT_OK;
}

/* Of the next `count` blocks, all before the first miss. */
static void
leading_count(struct lookup_leading *leading, const uint8_t *tiers, uint32_t count)
{
    leading->count += count;
    for (uint32_t i = 0; i < count; i++) {
        leading->hbm_count += (tiers[i] & TIER_HBM) != 0;
        leading->memory_count += (tiers[i] & (TIER_HBM | TIER_HOST)) != 0;
    }
}

/* All keys, into the lease or, without one, unpinned again at once. */
static struct lookup_leading
lookup_run(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    struct lease *lease, uint8_t *tiers_out)
{
    struct lookup_leading leading = {.count = 0};
    uint32_t found_count = 0;
    uint32_t own_numbers[LOOKUP_KEYS];
    uint8_t own_tiers[LOOKUP_KEYS];

    for (uint32_t first = 0; first < count; first += LOOKUP_KEYS) {
        uint32_t chunk = count - first < LOOKUP_KEYS ? count - first : LOOKUP_KEYS;
        uint32_t *numbers = lease != NULL ? lease->numbers + first : own_numbers;
        uint8_t *tiers = lease != NULL ? lease->tiers + first : own_tiers;
        size_t hits = lookup_find(store, ns, keys + first, chunk, NULL, numbers, tiers);

        if (leading.count == first)
            leading_count(&leading, tiers, (uint32_t)hits);
        if (tiers_out != NULL)
            memcpy(tiers_out + first, tiers, chunk);
        for (uint32_t i = 0; i < chunk; i++) {
            found_count += numbers[i] != ENTRY_NONE;
            if (lease == NULL && numbers[i] != ENTRY_NONE)
                lease_unpin(store, numbers[i]);
        }
    }
    if (lease != NULL && found_count == 0)
        lease->count = 0;
    return leading;
}

enum kvt_status
lookup_chain(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint8_t *tiers_out, struct lookup_leading *leading_out, kvt_lease *lease_out)
{
    struct lease *lease = NULL;
    uint64_t begin_ns;

    if (lease_out != NULL)
        lease_out->id = 0;
    KVT_TRY(lookup_check(store, ns, keys, count));
    begin_ns = env_now(&store->env);
    if (lease_out != NULL)
        KVT_TRY(lease_begin(store, count, &lease));
    *leading_out = lookup_run(store, ns, keys, count, lease, tiers_out);
    if (leading_out->count < count)
        fates_count_key(store, ns, &keys[leading_out->count], keys[leading_out->count].component);
    if (lease != NULL && lease->count == 0)
        lease_cancel(store, lease);
    else if (lease != NULL)
        *lease_out = lease_keep(store, lease, begin_ns);
    histogram_add(&store->latencies.lookup_ns, env_now(&store->env) - begin_ns);
    return KVT_OK;
}

enum kvt_status
kvt_lookup(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint8_t *tiers_out, uint32_t *leading_out, kvt_lease *lease_out)
{
    struct lookup_leading leading;

    KVT_TRY(lookup_chain(store, ns, keys, count, tiers_out, &leading, lease_out));
    if (leading_out != NULL)
        *leading_out = leading.count;
    return KVT_OK;
}

enum kvt_status
kvt_touch(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count)
{
    kvt_lease lease;

    KVT_TRY(kvt_lookup(store, ns, keys, count, NULL, NULL, &lease));
    kvt_lease_release(store, lease);
    return KVT_OK;
}
