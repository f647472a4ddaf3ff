/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_departures.h - which keys' blocks left NVMe for want of room, by the events of a store.
 *
 * A key whose copy was reclaimed may be missing from then on; so may one whose old copy was given
 * up early, before the put that replaces it is durable: which of those that waited then it was,
 * the store does not say.
 */
#ifndef KVT_TESTS_CRASH_DEPARTURES_H
#define KVT_TESTS_CRASH_DEPARTURES_H

#include "crash_oracle.h"
#include "kvtier/kvtier.h"

enum {
    DEPARTURES_EVENTS = 4096, /* event_count_max of a store that is asked. */
};

/* Of one life of a store; zero at its open. */
struct departures {
    uint64_t cursor;
    int64_t reclaimed_count;
    int64_t early_count;
    bool waits[ORACLE_KEYS];  /* A put replaces it, and is not committed. */
    bool waited[ORACLE_KEYS]; /* ... or was not when the events were read last. */
};

/* departures_read - call `left` for each key that left since the last time. Serial for one life; it
 * ends the program when events were overrun. */
typedef void (*departures_left)(void *context, uint32_t key, bool is_early);
void departures_read(struct departures *departures, kvt_store *store,
    const kvt_namespace namespaces[ORACLE_NAMESPACES], departures_left left, void *context);

#endif /* KVT_TESTS_CRASH_DEPARTURES_H */
