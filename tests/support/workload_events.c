/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_events.c - what the store tells of copies that come and go, held against a scan: whoever
 * knows the one must know the other.
 */
#include <string.h>

#include "workload_internal.h"

enum {
    EVENTS_AT_ONCE = 64,
};

/* A scan hides what a lost device has as soon as that is lost, the events tell of one block after
 * the other. */
static unsigned
tiers_compared(const struct workload *work)
{
    return work->loses_devices ? KVT_TIER_HOST | KVT_TIER_NVME
                               : KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME;
}

static void
event_apply(struct workload *work, const struct kvt_event *event)
{
    struct model_name name;
    uint8_t *tiers;

    if (event->is_hashed || !work->knows_copies || (event->tier & tiers_compared(work)) == 0)
        return;
    if (!workload_key_parse(event->key, event->key_length, event->component, &name)) {
        model_fail(&work->model, "an event of a key that nobody put");
        return;
    }
    tiers = &work->shadow[name.space][name.key];
    if (((*tiers & event->tier) != 0) == (event->kind == KVT_EVENT_STORED))
        model_fail(&work->model, "space %u key %u in tiers %u: event %u of tier %u, reason %u",
            name.space, name.key, *tiers, event->kind, event->tier, event->reason);
    *tiers =
        (uint8_t)(event->kind == KVT_EVENT_STORED ? *tiers | event->tier : *tiers & ~event->tier);
}

/* Until nothing is new. False: some were lost, or there are none in this store. */
static bool
events_take(struct workload *work)
{
    struct kvt_event events[EVENTS_AT_ONCE];
    enum kvt_status status;
    uint32_t count;

    do {
        status = kvt_events_read(work->store, &work->event_cursor, events, EVENTS_AT_ONCE, &count);
        for (uint32_t i = 0; status == KVT_OK && i < count; i++)
            event_apply(work, &events[i]);
    } while (status == KVT_OK);
    if (status != KVT_MISS && status != KVT_OVERRUN && status != KVT_E_UNSUPPORTED)
        workload_expect(work, "kvt_events_read", status);
    return status == KVT_MISS;
}

static bool
scan_take(struct workload *work, uint8_t found[MODEL_SPACES][MODEL_KEYS_MAX])
{
    struct kvt_scan_entry entries[16];
    struct model_name name;
    uint64_t cursor = 0;
    uint32_t count;
    enum kvt_status status;

    memset(found, 0, MODEL_SPACES * sizeof(found[0]));
    while ((status = kvt_scan(work->store, &cursor, entries, 16, &count)) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (!entries[i].is_hashed && workload_key_parse(entries[i].key, entries[i].key_length,
                                             entries[i].component, &name))
                found[name.space][name.key] = (uint8_t)(entries[i].tiers & tiers_compared(work));
        }
    }
    return status == KVT_MISS;
}

void
events_reset(struct workload *work)
{
    work->event_cursor = 0;
    work->knows_copies = false;
    memset(work->shadow, 0, sizeof(work->shadow));
}

void
workload_events(struct workload *work)
{
    uint8_t found[MODEL_SPACES][MODEL_KEYS_MAX];
    bool is_whole = events_take(work);
    uint64_t before = work->event_cursor;
    struct kvt_event event;
    uint32_t count;

    if (!scan_take(work, found))
        return;
    /* A change between the two proves nothing. */
    work->knows_copies = work->knows_copies && is_whole;
    if (work->knows_copies) {
        if (!events_take(work) || work->event_cursor != before)
            return;
        work->shadow_count++;
        for (uint32_t space = 0; space < MODEL_SPACES; space++) {
            for (uint32_t key = 0; key < work->model.key_count; key++) {
                if (work->shadow[space][key] != found[space][key])
                    model_fail(&work->model,
                        "space %u key %u: in tiers %u by the events, in %u by the scan", space, key,
                        work->shadow[space][key], found[space][key]);
            }
        }
        return;
    }
    /* As a reader begins, or goes on after it was too slow: a scan with nothing in between. */
    memcpy(work->shadow, found, sizeof(found));
    work->knows_copies = kvt_events_read(work->store, &before, &event, 1, &count) == KVT_MISS;
}
