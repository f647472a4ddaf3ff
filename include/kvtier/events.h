/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - which copies of blocks came and went. Part of kvtier.h, whose rules hold.
 */
#ifndef KVTIER_EVENTS_H
#define KVTIER_EVENTS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvt_event_kind {
    KVT_EVENT_STORED = 1,  /* The tier has a copy from now on. On NVMe: it is committed. */
    KVT_EVENT_REMOVED = 2, /* It has none any more. */
};

enum kvt_event_reason {
    KVT_REASON_PUT = 1,       /* Stored: by a put. */
    KVT_REASON_DEMOTED = 2,   /* Stored: brought down for room above, or by kvt_demote_submit().
                               * Removed: given up by that. */
    KVT_REASON_RAISED = 3,    /* Stored: brought up by a prefetch, a map or a get. */
    KVT_REASON_EVICTED = 4,   /* Removed: for room. */
    KVT_REASON_RECLAIMED = 5, /* Removed: from NVMe, for room, with its segment. */
    KVT_REASON_DELETED = 6,
    KVT_REASON_CLEARED = 7,  /* With its namespace. */
    KVT_REASON_REPLACED = 8, /* By a put with KVT_PUT_REPLACE. */
    KVT_REASON_CORRUPT = 9,  /* Its bytes were wrong, or could not be read or written again. */
    KVT_REASON_DEVICE_LOST = 10,
};

/* One change of one copy. */
struct kvt_event {
    uint64_t sequence; /* 1, 2, 3 ... since the open. */
    kvt_namespace ns;
    uint8_t kind;      /* enum kvt_event_kind */
    uint8_t tier;      /* One of enum kvt_tiers. */
    uint8_t reason;    /* enum kvt_event_reason */
    uint8_t is_hashed; /* key holds the hash of a longer key. */
    uint16_t component;
    uint16_t reserved0;
    uint32_t key_length; /* 1..64 */
    uint8_t key[64];
    uint64_t length; /* Payload bytes. */
};

/*
 * kvt_events_read - up to `count_max` events behind the one whose sequence is *cursor (0: from the
 * first since the open), oldest first, none left out; *cursor becomes the sequence of the last one.
 * The last event_count_max events are kept. What was found by the open is no event.
 *
 * KVT_MISS       none yet; *count_out is 0.
 * KVT_OVERRUN    events behind *cursor are gone; *count_out is 0, *cursor is now that of the newest
 *                event. Call kvt_scan(), which shows everything that was there by then, and read
 *                on: an event says again what the scan has shown already, or what has changed.
 * KVT_E_UNSUPPORTED  the store was opened without event_count_max.
 * KVT_E_INVAL    a NULL, count_max 0, a *cursor ahead of the newest event.
 *
 * Threads: any; one cursor serial. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_events_read(kvt_store *store, uint64_t *cursor,
    struct kvt_event *events_out, uint32_t count_max, uint32_t *count_out);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_EVENTS_H */
