/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - blocks that stay where they are until a time: kvt_pin().
 *
 * Owns      the table of pins: one for each entry that has one, found by its number, ordered by its
 *           end. Nothing of it is in struct entry_state: few blocks are pinned.
 * Not here  pins of readers (residency.h): those keep an address; these keep a block.
 * Threads   the loop.
 *
 * Invariants
 *   (1) An entry that is pinned is RESIDENT: entry_drop() ends its pin.
 *   (2) A pin that is over holds nothing, whether pins_step() has taken it out or not.
 *   (3) The bytes of all pins in the table are at most options.pin_bytes_max, but for those that
 *       were added since the last pins_are_within().
 */
#ifndef KVT_ENGINE_PINS_H
#define KVT_ENGINE_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/status.h"

struct kvt_store;
struct pins;

enum kvt_status pins_open(struct kvt_store *store);
void pins_close(struct kvt_store *store);

/* pins_hold - no copy of the entry may be given up for room. */
bool pins_hold(const struct kvt_store *store, uint32_t number);

/* pins_has - the entry has a pin, over or not. */
bool pins_has(const struct kvt_store *store, uint32_t number);

/* pins_reserve - the next `count` pins_set() will not fail. KVT_E_NOMEM. */
enum kvt_status pins_reserve(struct kvt_store *store, uint32_t count);

/* pins_set - the entry is pinned until then. pins_drop: not any more, if it was. */
void pins_set(struct kvt_store *store, uint32_t number, uint64_t until_ns);
void pins_drop(struct kvt_store *store, uint32_t number);

/* pins_are_within - what is pinned now does not pass pin_bytes_max. */
bool pins_are_within(struct kvt_store *store);

/* pins_step - take out what is over; true when there was any. pins_next_ns: when to call it. */
bool pins_step(struct kvt_store *store);
uint64_t pins_next_ns(const struct kvt_store *store);

/* pins_count, pins_bytes - for the statistics. */
uint64_t pins_count(const struct kvt_store *store);
uint64_t pins_bytes(const struct kvt_store *store);

#endif /* KVT_ENGINE_PINS_H */
