/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_departures.c - blocks that leave for want of room, by name (crash_departures.h).
 */
#include "crash_departures.h"

#include <string.h>
#include <unistd.h>

#include "crash_run.h"
#include "store_audit.h"
#include "store_internal.h"

enum {
    EVENTS_AT_ONCE = 64,
    NO_KEY = ORACLE_KEYS,
    HASHED_FIRST = 8, /* payload_key_make() */
    HASHED_STEP = 9,
    SETTLE_TRIES = 10000, /* Of a millisecond: no time, but a store that never rests. */
};

static void
hashed_learn(
    struct departures *departures, const kvt_store *store, const kvt_namespace namespaces[])
{
    for (uint32_t number = HASHED_FIRST, i = 0; number < ORACLE_KEYS; number += HASHED_STEP, i++) {
        struct payload_key key;
        struct block_key kept;

        payload_key_make(&key, number);
        (void)key_init(&kept, store->file.secret, namespaces[number / ORACLE_NAMESPACE_KEYS].id, 0,
            key.key.bytes, key.key.length);
        memcpy(departures->hashed[i], kept.bytes, KEY_HASHED_BYTES);
    }
    departures->knows_hashed = true;
}

/* The number of a key that is kept as its MAC: the one among all long ones that has it. */
static uint32_t
hashed_key(struct departures *departures, const kvt_store *store, const kvt_namespace namespaces[],
    const struct kvt_event *event)
{
    if (!departures->knows_hashed)
        hashed_learn(departures, store, namespaces);
    for (uint32_t number = HASHED_FIRST, i = 0; number < ORACLE_KEYS; number += HASHED_STEP, i++) {
        if (namespaces[number / ORACLE_NAMESPACE_KEYS].id == event->ns.id &&
            memcmp(departures->hashed[i], event->key, KEY_HASHED_BYTES) == 0)
            return number;
    }
    return NO_KEY;
}

/* NO_KEY: no workload has it. */
static uint32_t
event_key(struct departures *departures, const kvt_store *store, const kvt_namespace namespaces[],
    const struct kvt_event *event)
{
    uint64_t number;

    if (event->is_hashed)
        return hashed_key(departures, store, namespaces, event);
    memcpy(&number, event->key, sizeof(number));
    return number < ORACLE_KEYS ? (uint32_t)number : NO_KEY;
}

static void
stored_take(struct departures *departures, uint32_t key, departures_tell tell, void *context)
{
    departures->waits[key] = false;
    if (departures->has_left[key])
        tell(context, key, DEPARTURE_BACK);
    departures->has_left[key] = false;
}

static void
removed_take(struct departures *departures, const struct kvt_event *event, uint32_t key,
    departures_tell tell, void *context)
{
    bool is_asked = event->reason == KVT_REASON_DELETED || event->reason == KVT_REASON_CLEARED;

    if (is_asked)
        departures->waits[key] = false; /* With what was to replace it. */
    if (event->tier != KVT_TIER_NVME)
        return;
    if (event->reason == KVT_REASON_REPLACED)
        departures->waits[key] = departures->waited[key] = true;
    if (event->reason != KVT_REASON_RECLAIMED && event->reason != KVT_REASON_EVICTED)
        return;
    departures->has_left[key] = true;
    tell(context, key, DEPARTURE_LEFT);
}

static void
event_take(struct departures *departures, const struct kvt_event *event, uint32_t key,
    departures_tell tell, void *context)
{
    bool is_stored = event->kind == KVT_EVENT_STORED;

    if (!is_stored && event->tier == KVT_TIER_NVME && event->reason == KVT_REASON_RECLAIMED)
        departures->reclaimed_count++;
    if (key == NO_KEY)
        return;
    if (is_stored)
        stored_take(departures, key, tell, context);
    else
        removed_take(departures, event, key, tell, context);
}

static int64_t
evicted_count(kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) != KVT_OK)
        run_fail("kvt_stats_get");
    return (int64_t)stats.nvme_evict_count;
}

static bool
events_take(struct departures *departures, kvt_store *store, const kvt_namespace namespaces[],
    departures_tell tell, void *context)
{
    struct kvt_event events[EVENTS_AT_ONCE];
    enum kvt_status status;
    uint32_t count;

    while ((status = kvt_events_read(store, &departures->cursor, events, EVENTS_AT_ONCE, &count)) ==
           KVT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (events[i].kind == KVT_EVENT_REMOVED || events[i].tier == KVT_TIER_NVME)
                event_take(departures, &events[i],
                    event_key(departures, store, namespaces, &events[i]), tell, context);
        }
    }
    return status == KVT_MISS;
}

bool
departures_read(struct departures *departures, kvt_store *store,
    const kvt_namespace namespaces[ORACLE_NAMESPACES], departures_tell tell, void *context)
{
    int64_t before, early;

    memcpy(departures->waited, departures->waits, sizeof(departures->waited));
    do {
        before = evicted_count(store);
        if (!events_take(departures, store, namespaces, tell, context))
            return false;
    } while (evicted_count(store) != before);
    /* What was counted and has no event of its own: the event came when the put began. */
    early = before - departures->reclaimed_count;
    if (early <= departures->early_count)
        return true;
    departures->early_count = early;
    for (uint32_t key = 0; key < ORACLE_KEYS; key++) {
        if (!departures->waited[key])
            continue;
        tell(context, key, DEPARTURE_EARLY);
        departures->has_left[key] = true;
        if (!departures->waits[key])
            stored_take(departures, key, tell, context);
    }
    return true;
}

bool
departures_settle(kvt_store *store)
{
    struct store_audit audit = {0};

    for (int i = 0; i < SETTLE_TRIES; i++) {
        if (store_audit(store, &audit))
            return true;
        usleep(1000);
    }
    return false;
}
