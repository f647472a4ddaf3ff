/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_departures.c - blocks that leave for want of room, by name (crash_departures.h).
 */
#include "crash_departures.h"

#include <string.h>

#include "crash_run.h"
#include "hash.h"
#include "store_internal.h"

enum {
    EVENTS_AT_ONCE = 64,
    NO_KEY = ORACLE_KEYS,
    HASHED_FIRST = 8, /* payload_key_make(): each ninth key is long. */
    HASHED_STEP = 9,
};

/* The number of a key that is kept as its MAC: the one among all long ones that has it. */
static uint32_t
hashed_key(const kvt_store *store, const kvt_namespace namespaces[], const struct kvt_event *event)
{
    for (uint32_t number = HASHED_FIRST; number < ORACLE_KEYS; number += HASHED_STEP) {
        struct payload_key key;
        struct block_key kept;

        if (namespaces[number / ORACLE_NAMESPACE_KEYS].id != event->ns.id)
            continue;
        payload_key_make(&key, number);
        (void)key_init(&kept, store->file.secret, event->ns.id, event->component, key.key.bytes,
            key.key.length);
        if (kept.length == event->key_length && memcmp(kept.bytes, event->key, kept.length) == 0)
            return number;
    }
    return NO_KEY;
}

/* NO_KEY: no workload has it. */
static uint32_t
event_key(const kvt_store *store, const kvt_namespace namespaces[], const struct kvt_event *event)
{
    uint64_t number;

    if (event->is_hashed)
        return hashed_key(store, namespaces, event);
    memcpy(&number, event->key, sizeof(number));
    return number < ORACLE_KEYS ? (uint32_t)number : NO_KEY;
}

static void
event_take(struct departures *departures, const struct kvt_event *event, uint32_t key,
    departures_left left, void *context)
{
    bool is_reclaimed = event->kind == KVT_EVENT_REMOVED && event->reason == KVT_REASON_RECLAIMED;

    departures->reclaimed_count += is_reclaimed;
    if (key == NO_KEY)
        return;
    if (event->kind == KVT_EVENT_STORED)
        departures->waits[key] = false;
    else if (event->reason == KVT_REASON_REPLACED)
        departures->waits[key] = departures->waited[key] = true;
    else if (is_reclaimed || event->reason == KVT_REASON_EVICTED)
        left(context, key, false);
}

static int64_t
evicted_count(kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) != KVT_OK)
        run_fail("kvt_stats_get");
    return (int64_t)stats.nvme_evict_count;
}

void
departures_read(struct departures *departures, kvt_store *store,
    const kvt_namespace namespaces[ORACLE_NAMESPACES], departures_left left, void *context)
{
    struct kvt_event events[EVENTS_AT_ONCE];
    int64_t before, early;
    uint32_t count;

    memcpy(departures->waited, departures->waits, sizeof(departures->waited));
    do {
        enum kvt_status status;

        before = evicted_count(store);
        while ((status = kvt_events_read(
                    store, &departures->cursor, events, EVENTS_AT_ONCE, &count)) == KVT_OK) {
            for (uint32_t i = 0; i < count; i++) {
                if (events[i].tier == KVT_TIER_NVME)
                    event_take(departures, &events[i], event_key(store, namespaces, &events[i]),
                        left, context);
            }
        }
        if (status != KVT_MISS)
            run_fail("kvt_events_read gave %s", kvt_status_name(status));
    } while (evicted_count(store) != before);
    /* What was counted and has no event of its own: the event came when the put began. */
    early = before - departures->reclaimed_count;
    if (early <= departures->early_count)
        return;
    departures->early_count = early;
    for (uint32_t key = 0; key < ORACLE_KEYS; key++) {
        if (departures->waited[key])
            left(context, key, true);
    }
}
