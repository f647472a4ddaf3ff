/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_departures.h - which keys' blocks left NVMe for want of room, by the events of a store.
 *
 * A key whose copy was reclaimed may be missing from then on, until a copy is committed again. So
 * may one whose old copy was given up early, before the put that replaces it is durable: which of
 * those that waited then it was, the store does not say.
 */
#ifndef KVT_TESTS_CRASH_DEPARTURES_H
#define KVT_TESTS_CRASH_DEPARTURES_H

#include "crash_oracle.h"
#include "hash.h"
#include "kvtier/kvtier.h"

enum {
    DEPARTURES_EVENTS = 1 << 15,             /* event_count_max of a store that is asked. */
    DEPARTURES_HASHED = ORACLE_KEYS / 9 + 1, /* payload_key_make(): each ninth key is long. */
};

/* Of one life of a store; zero at its open. */
struct departures {
    uint64_t cursor;
    int64_t reclaimed_count;
    int64_t early_count;
    bool has_left[ORACLE_KEYS];
    bool waits[ORACLE_KEYS];  /* A put replaces it, and is not committed. */
    bool waited[ORACLE_KEYS]; /* ... or was not when the events were read last. */
    bool knows_hashed;
    uint8_t hashed[DEPARTURES_HASHED][KEY_HASHED_BYTES]; /* Long keys as the store has them. */
};

/* departures_read - call `tell` for each key that left or came back since the last time. Serial for
 * one life. False: events were lost, nothing is known any more. */
typedef void (*departures_tell)(void *context, uint32_t key, enum departure what);
bool departures_read(struct departures *departures, kvt_store *store,
    const kvt_namespace namespaces[ORACLE_NAMESPACES], departures_tell tell, void *context);

/* departures_settle - wait until nothing is under way that could make a block leave: from then on
 * none does until something is asked for. False: it does not come to rest. */
bool departures_settle(kvt_store *store);

#endif /* KVT_TESTS_CRASH_DEPARTURES_H */
