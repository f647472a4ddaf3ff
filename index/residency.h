/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency.h - the map in memory: key -> entry, and which tiers hold a copy of it.
 *
 * Owns      the entries, their 64-bit words, the hash table, the keys' bytes.
 * Not here  slots and extents themselves (tiers/), the engine's state (engine/entries.h keeps its
 *           own array beside the entries, by the same numbers).
 * Memory    at most 96 bytes an entry with its share of the table; key bytes apart. Entries live in
 *           chunks that never move and are never returned while the map is open; big arrays are
 *           on huge pages (env map).
 *
 * Threads   One writer (the loop) calls everything; residency_find_pin(), residency_unpin() and
 *           reading an entry that is pinned may happen on any thread at once. The table is split
 *           by hash into small sub-tables that grow by doubling; old arrays are freed only when no
 *           reader that could have seen them is still inside residency_find_pin().
 *
 * The word of an entry: {generation 24, state 3, tiers 5, pins 32} in one atomic 64-bit.
 *
 *   state       entry_insert()       residency_publish()            residency_doom()
 *     FREE ------------------> FILLING ---------------------> RESIDENT -----------------> DOOMED
 *      ^                          |                                                        |
 *      |      residency_discard() |                         residency_release() (no pins)  |
 *      +--------------------------+--------------------------------------------------------+
 *
 *   FREE      In no table. The generation is the one the next use will have.
 *   FILLING   Found by the writer only: a put is under way. Readers see a miss.
 *   RESIDENT  Readers may pin it. The tier bits say which copies exist; each copy's field is valid
 *             while its bit is set and the entry is pinned, or on the writer's thread.
 *   DOOMED    Out of the table. Existing pins stay valid; none is added. Freed at zero pins.
 *
 * Memory order
 *   (R1) publish and tier_set release; find_pin's compare-and-swap acquires: a reader that sees a
 *        tier bit sees the field behind it.
 *   (R2) unpin releases; the writer's successful compare-and-swap from zero pins, and its load that
 *        finds zero, acquires: the slot's last readers are done before it is reused.
 *   (R3) The writer may write host_slot anew (release), for the same bytes elsewhere, before a
 *        residency_settle(), which releases, too. Who pins the entry behind that finds the new
 *        place; who had it pinned may find either, and loads it acquiring.
 *   (R4) The unpin that was the last of a DOOMED entry releases `released`; the writer's take
 *        acquires: residency_release() then sees no pin of that entry. Both exchange: a take that
 *        finds the note of one sees what went before those that this one stands in place of.
 */
#ifndef KVT_INDEX_RESIDENCY_H
#define KVT_INDEX_RESIDENCY_H

#include <stdatomic.h>

#include "env.h"
#include "hash.h"

enum residency_state {
    ENTRY_FREE = 0,
    ENTRY_FILLING = 1,
    ENTRY_RESIDENT = 2,
    ENTRY_DOOMED = 3,
};

enum residency_tier {
    TIER_HBM = 1,
    TIER_HOST = 2,
    TIER_NVME = 4, /* Committed. */
};

#define ENTRY_NONE UINT32_MAX /* The number of no entry. */
#define RESIDENCY_COUNT_MAX (UINT64_C(1) << 31)

enum {
    ENTRY_PAGE_BITS = 18, /* Segments have up to 2^18 pages. */
};

struct entry {
    /* A lookup needs the first 16 bytes only: they lie in one cache line. */
    _Atomic uint64_t word;
    uint32_t key_reference; /* The map's own: where the key's bytes are. */
    uint32_t length;        /* Payload bytes. */
    struct hash128 fingerprint;
    struct hash128 checksum; /* Of the stored bytes; has_trailer: of the trailer. Zero: it was not
                              * summed up yet (never with TIER_NVME). */
    uint64_t sequence;       /* Of the durable record; 0 before one was written. */
    uint32_t stored_length;  /* In the extent; without one: length. */
    _Atomic uint32_t
        host_slot;     /* Slot number, valid with TIER_HOST: the entry owns the slot. (R3) */
    uint32_t hbm_slot; /* The same, with TIER_HBM: {device 3, slot number 29}. */
    uint32_t segment;  /* Extent, valid with TIER_NVME. */
    uint32_t extent_generation;
    uint32_t page : ENTRY_PAGE_BITS;
    uint32_t parts_less : 6;  /* Equal parts of the block, less one: entry_parts(). */
    uint32_t has_trailer : 1; /* The copy on NVMe is one of parts (block_record.h RECORD_PARTS). */
    /* 80 bytes; nothing else fits the memory promise. */
};

static inline uint32_t
entry_parts(const struct entry *entry)
{
    return entry->parts_less + 1u;
}

/* One use of an entry's number, from its insert to its release. All zero: none. */
struct entry_use {
    uint32_t number_more; /* The number + 1. */
    uint32_t generation;
    uint64_t recycle_count; /* Of the map, when it was looked at. */
};

struct residency;

/* residency_open - `entry_count_max` bounds the map (1..RESIDENCY_COUNT_MAX). KVT_E_NOMEM. */
enum kvt_status residency_open(
    const struct kvt_env *env, uint64_t entry_count_max, struct residency **map_out);
void residency_close(struct residency *map);

struct entry *residency_at(const struct residency *map, uint32_t number); /* Never NULL. */
uint64_t residency_count(const struct residency *map);        /* Entries that are not FREE. */
uint32_t residency_number_limit(const struct residency *map); /* Every number is below it. */
void residency_key(const struct residency *map, uint32_t number, struct block_key *key_out);

/* --- the writer ------------------------------------------------------------------------------- */

/* residency_find - RESIDENT or FILLING entry of that key; ENTRY_NONE when there is none. */
uint32_t residency_find(
    const struct residency *map, struct hash128 fingerprint, const struct block_key *key);

/* A residency_find_near() is to follow soon; each step needs what the one before it asked for.
 * residency_prefetch_entry - the entry that it most likely is, or ENTRY_NONE.
 * residency_prefetch_key   - of that entry; ENTRY_NONE is fine. */
void residency_prefetch_bucket(const struct residency *map, struct hash128 fingerprint);
uint32_t residency_prefetch_entry(const struct residency *map, struct hash128 fingerprint);
void residency_prefetch_key(const struct residency *map, uint32_t near);
/* residency_find_near - residency_find() that looks at entry `near` first. Anything may have
 * happened to that meanwhile; ENTRY_NONE: none. */
uint32_t residency_find_near(const struct residency *map, uint32_t near, struct hash128 fingerprint,
    const struct block_key *key);

/* residency_find_fingerprint - the same without the key's proof: for parents only. */
uint32_t residency_find_fingerprint(const struct residency *map, struct hash128 fingerprint);

/* residency_insert - a new FILLING entry; its key must not be in the map, or the entry that has it
 * leaves before the writer looks for it again. KVT_E_NOMEM, KVT_E_NOSPC (entry_count_max). */
enum kvt_status residency_insert(struct residency *map, struct hash128 fingerprint,
    const struct block_key *key, uint32_t *number_out);

/* residency_use - that of an entry now; it is not FREE. residency_is_use - the entry's is that one
 * still. Never yes of another; perhaps no, when so many entries came and went since that its
 * generation may have come round. */
struct entry_use residency_use(const struct residency *map, uint32_t number);
bool residency_is_use(const struct residency *map, uint32_t number, const struct entry_use *use);

/* residency_publish - FILLING -> RESIDENT with these tier bits (at least one). */
void residency_publish(struct residency *map, uint32_t number, unsigned tiers);

/* residency_tier_set - add a copy; its fields were written before. RESIDENT only. */
void residency_tier_set(struct residency *map, uint32_t number, unsigned tier);

/*
 * residency_tier_clear - take a tier bit away; only at zero pins, or false and nothing changed.
 * The last bit is never cleared: doom the entry instead.
 */
bool residency_tier_clear(struct residency *map, uint32_t number, unsigned tier);
/*
 * residency_tier_hide - the same at any pins: who has pinned the entry may go on reading the copy,
 * and nobody else finds it. Its field and the copy stay as they are until the writer has found the
 * entry at zero pins once (acquire; R2).
 */
void residency_tier_hide(struct residency *map, uint32_t number, unsigned tier);

/* residency_settle - what the writer wrote of an entry counts for all who pin it from here on (R3).
 * True: nobody has it pinned, and who had is done with what it was before (R2). */
bool residency_settle(struct residency *map, uint32_t number);

/* residency_doom - RESIDENT (or FILLING) -> DOOMED, out of the table at once. */
void residency_doom(struct residency *map, uint32_t number);

/* residency_doom_unpinned - as residency_doom, but only at zero pins (eviction); else false. */
bool residency_doom_unpinned(struct residency *map, uint32_t number);

/* residency_release - DOOMED -> FREE at zero pins; false while pins are left. */
bool residency_release(struct residency *map, uint32_t number);

/* residency_has_released - the last pin of a DOOMED entry went since the last take. */
bool residency_has_released(const struct residency *map);
/* residency_take_released - the same, once: all that went before it can be released (R4). */
bool residency_take_released(struct residency *map);

/* residency_discard - FILLING -> FREE: a put that failed. */
void residency_discard(struct residency *map, uint32_t number);

/* residency_pin - the writer's own pin on a RESIDENT or DOOMED entry. */
void residency_pin(struct residency *map, uint32_t number);

/* residency_collect - free old table arrays no reader can see any more; call it now and then. */
void residency_collect(struct residency *map);

/* residency_check - every invariant, in proportion to the map (tests, debug builds). */
void residency_check(const struct residency *map);

/* --- any thread ------------------------------------------------------------------------------- */

/*
 * residency_find_pin - look `count` keys up at once and pin those that are RESIDENT.
 *
 * numbers_out[i] is ENTRY_NONE or the pinned entry; tiers_out[i] its tier bits at the moment of the
 * pin (0 for a miss); they stay true until the pin is released, except that bits may be added.
 * The pinned entry's key was compared. Costs a few cache misses in parallel for the whole batch.
 * Returns the number of leading hits.
 */
size_t residency_find_pin(struct residency *map, const struct hash128 *fingerprints,
    const struct block_key *keys, size_t count, uint32_t *numbers_out, uint8_t *tiers_out);

/* residency_unpin - true when this was the last pin of a DOOMED entry: wake the loop. */
bool residency_unpin(struct residency *map, uint32_t number);

static inline enum residency_state
word_state(uint64_t word)
{
    return (enum residency_state)((word >> 37) & 7u);
}

static inline unsigned
word_tiers(uint64_t word)
{
    return (unsigned)((word >> 32) & 31u);
}

static inline uint32_t
word_pins(uint64_t word)
{
    return (uint32_t)word;
}

static inline uint32_t
word_generation(uint64_t word)
{
    return (uint32_t)(word >> 40);
}

#endif /* KVT_INDEX_RESIDENCY_H */
