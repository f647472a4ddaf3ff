/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - how long a prefix of a chain can be used, when a block is only usable with all of its
 * components.
 */
#include "lease.h"
#include "lookup.h"
#include "store_internal.h"

/* Of a chain, as far as it was looked at. */
struct match {
    const struct kvt_match_component *components;
    uint32_t component_count;
    uint32_t count;                         /* Keys of the chain. */
    uint32_t run[KVT_MATCH_COMPONENTS_MAX]; /* Hits in a row up to the last block, by component. */
    uint32_t usable;                        /* The longest usable prefix so far. */
    bool is_broken;         /* An ALL component has a gap: nothing longer is usable. */
    uint32_t gap;           /* Where it is, ... */
    uint16_t gap_component; /* ... and whose. */
};

static enum kvt_status
components_check(const struct kvt_match_component *components, uint32_t component_count)
{
    if (components == NULL)
        return failure_set(KVT_E_INVAL, 0, "components is NULL");
    if (component_count == 0 || component_count > KVT_MATCH_COMPONENTS_MAX)
        return failure_set(KVT_E_INVAL, 0, "component_count %u is not in 1..%u", component_count,
            KVT_MATCH_COMPONENTS_MAX);
    for (uint32_t c = 0; c < component_count; c++) {
        const struct kvt_match_component *each = &components[c];
        bool is_trailing = each->policy == KVT_MATCH_TRAILING;

        if (each->policy != KVT_MATCH_ALL && !is_trailing)
            return failure_set(
                KVT_E_INVAL, 0, "components[%u]: there is no policy %u", c, (unsigned)each->policy);
        if (is_trailing != (each->trailing_count > 0))
            return failure_set(KVT_E_INVAL, 0,
                "components[%u]: trailing_count is %u; it is 1 or more for KVT_MATCH_TRAILING, "
                "else 0",
                c, each->trailing_count);
        for (uint32_t other = 0; other < c; other++) {
            if (components[other].component == each->component)
                return failure_set(KVT_E_INVAL, 0, "components[%u] and [%u] are both component %u",
                    other, c, (unsigned)each->component);
        }
    }
    return KVT_OK;
}

static enum kvt_status
match_check(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct match *match, const uint32_t *usable_out)
{
    KVT_TRY(lookup_check(store, ns, keys, count));
    KVT_TRY(components_check(match->components, match->component_count));
    if (usable_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "usable_out is NULL");
    if ((uint64_t)count * match->component_count > KVT_BATCH_MAX)
        return failure_set(KVT_E_INVAL, 0, "%u keys of %u components are more than %u blocks",
            count, match->component_count, KVT_BATCH_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].component != 0)
            return failure_set(KVT_E_INVAL, 0,
                "block %u: key.component is %u; `components` name them", i,
                (unsigned)keys[i].component);
    }
    return KVT_OK;
}

/* Blocks first.. of the chain were looked up: `numbers[c * stride + i]`. */
static void
match_chunk(struct match *match, uint32_t first, uint32_t chunk, const uint32_t *numbers,
    uint32_t stride, uint8_t *usable_lengths)
{
    for (uint32_t i = 0; i < chunk && !match->is_broken; i++) {
        bool is_usable = true;

        for (uint32_t c = 0; c < match->component_count; c++) {
            const struct kvt_match_component *each = &match->components[c];
            uint32_t length = first + i + 1;
            uint32_t wanted = length;

            if (each->policy == KVT_MATCH_TRAILING && each->trailing_count < length)
                wanted = each->trailing_count;
            match->run[c] = numbers[c * stride + i] != ENTRY_NONE ? match->run[c] + 1 : 0;
            if (match->run[c] >= wanted)
                continue;
            is_usable = false;
            if (match->is_broken || each->policy != KVT_MATCH_ALL)
                continue;
            match->is_broken = true;
            match->gap = first + i;
            match->gap_component = each->component;
        }
        if (is_usable)
            match->usable = first + i + 1;
        if (usable_lengths != NULL)
            usable_lengths[first + i] = is_usable;
    }
}

/* Look the chain up, chunk by chunk, until nothing longer can be usable. Returns how many of its
 * blocks were looked up, all of which are pinned in the lease, or not at all. */
static uint32_t
match_run(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    struct match *match, struct lease *lease, uint8_t *usable_lengths)
{
    uint32_t own_numbers[KVT_MATCH_COMPONENTS_MAX * LOOKUP_KEYS];
    uint8_t own_tiers[KVT_MATCH_COMPONENTS_MAX * LOOKUP_KEYS];
    uint32_t first = 0;

    while (first < match->count && !match->is_broken) {
        uint32_t left = match->count - first;
        uint32_t chunk = left < LOOKUP_KEYS ? left : LOOKUP_KEYS;
        uint32_t stride = lease != NULL ? match->count : LOOKUP_KEYS;
        uint32_t *numbers = lease != NULL ? lease->numbers + first : own_numbers;
        uint8_t *tiers = lease != NULL ? lease->tiers + first : own_tiers;

        for (uint32_t c = 0; c < match->component_count; c++) {
            (void)lookup_find(store, ns, keys + first, chunk, &match->components[c].component,
                numbers + c * stride, tiers + c * stride);
            for (uint32_t i = 0; lease == NULL && i < chunk; i++) {
                if (numbers[c * stride + i] != ENTRY_NONE)
                    lease_unpin(store, numbers[c * stride + i]);
            }
        }
        match_chunk(match, first, chunk, numbers, stride, usable_lengths);
        first += chunk;
    }
    return first;
}

/* Keep what the longest usable prefix needs; of the chain the first `seen` blocks were pinned.
 * Returns how many blocks stay. */
static uint32_t
lease_trim(struct kvt_store *store, const struct match *match, struct lease *lease, uint32_t seen)
{
    uint32_t kept_count = 0;

    for (uint32_t c = 0; c < match->component_count; c++) {
        uint32_t *numbers = lease->numbers + c * match->count;
        uint32_t start = 0;

        if (match->components[c].policy == KVT_MATCH_TRAILING &&
            match->components[c].trailing_count < match->usable)
            start = match->usable - match->components[c].trailing_count;
        for (uint32_t i = 0; i < match->count; i++) {
            bool is_found = i < seen && numbers[i] != ENTRY_NONE;

            if (is_found && i >= start && i < match->usable) {
                kept_count++;
                continue;
            }
            if (is_found)
                lease_unpin(store, numbers[i]);
            numbers[i] = ENTRY_NONE;
        }
    }
    return kept_count;
}

enum kvt_status
kvt_match(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct kvt_match_component *components, uint32_t component_count, uint32_t *usable_out,
    uint8_t *usable_lengths_out, kvt_lease *lease_out)
{
    struct match match = {
        .components = components, .component_count = component_count, .count = count};
    struct lease *lease = NULL;
    uint64_t begin_ns;
    uint32_t seen;

    if (lease_out != NULL)
        lease_out->id = 0;
    KVT_TRY(match_check(store, ns, keys, count, &match, usable_out));
    begin_ns = env_now(&store->env);
    if (lease_out != NULL)
        KVT_TRY(lease_begin(store, count * component_count, &lease));
    if (usable_lengths_out != NULL)
        memset(usable_lengths_out, 0, count);
    seen = match_run(store, ns, keys, &match, lease, usable_lengths_out);
    *usable_out = match.usable;
    if (match.is_broken)
        fates_count_key(store, ns, &keys[match.gap], match.gap_component);
    if (lease != NULL && lease_trim(store, &match, lease, seen) > 0)
        *lease_out = lease_keep(store, lease, begin_ns);
    else if (lease != NULL)
        lease_cancel(store, lease);
    histogram_add(&store->latencies.lookup_ns, env_now(&store->env) - begin_ns);
    return KVT_OK;
}
