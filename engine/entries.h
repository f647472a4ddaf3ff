/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.h - what the engine remembers of each entry beside the map: its description, its parent,
 * which places in memory hold a copy of it, and how many children it has where.
 *
 * Owns      one struct entry_state for each entry number; the counts of children in it.
 * Not here  the order in which copies go (policy.h); copies themselves.
 * Threads   the loop only.
 *
 * Invariants, for an entry whose link to its parent is good (entries_parent):
 *   (1) child_count is the number of its children in the map;
 *   (2) memory_child_count is the number of its children with a copy in HBM or HOST;
 *   (3) hbm_child_count is the number of its children with a copy in HBM, on any device;
 *   whether the parent itself has a copy in memory or not;
 *   (4) the way up from it ends: links never form a ring. A ring would have no leaf, so that none
 *   of its copies could go, and a walk up would not end. Callers may name any parents.
 * Links and copies may come and go in any order: each changes the counts by what it adds.
 *
 * The generation of an entry comes round after 2^24 uses of its number: before that every link to
 * it has been looked at, and one that is not good is gone. So a link never names a stranger.
 */
#ifndef KVT_ENGINE_ENTRIES_H
#define KVT_ENGINE_ENTRIES_H

#include "env.h"
#include "residency.h"

struct flight;

enum {
    POLICY_DEVICES_MAX = 8,
};

/* Where copies are that a policy orders: one place is full independently of the others. The store
 * reclaims NVMe by whole segments: only the simulator has the policy order it block by block. */
enum policy_place {
    POLICY_HOST = 0,
    POLICY_HBM = 1, /* + the device's ordinal */
    POLICY_NVME = POLICY_HBM + POLICY_DEVICES_MAX,
    POLICY_PLACE_COUNT,
};

/* Bits of entry_state.places. */
#define PLACES_HOST 1u
#define PLACES_HBM (((1u << POLICY_DEVICES_MAX) - 1u) << POLICY_HBM)
#define PLACES_MEMORY (PLACES_HOST | PLACES_HBM)
#define PLACES_NVME (1u << POLICY_NVME)
#define PLACES_ALL ((1u << POLICY_PLACE_COUNT) - 1u)

/* The memory promise: 64 bytes an entry, whatever the policy. */
struct entry_state {
    struct flight *flight;           /* What is under way for this entry; NULL: nothing. */
    uint32_t parent;                 /* Entry, or ENTRY_NONE; good only while its generation ... */
    uint32_t parent_generation : 24; /* ... is this: entries_parent() looks. */
    uint32_t hint : 2;
    uint32_t turn : 2; /* This and the next, use_count and gap: the policy's own. */
    uint32_t segment : 2;
    uint32_t is_listed : 1;      /* Of the request that is being told (entry_request), or of what a
                                  * wait gives up (phase.c): each block once. */
    uint32_t is_hiding : 1;      /* copies.c: it has had a copy in HBM that was hidden. */
    uint32_t node;               /* The policy's first node for it; 0: none. */
    uint32_t hbm_child_count;    /* Children with a copy in HBM. */
    uint32_t memory_child_count; /* Children with a copy in HBM or HOST. */
    uint32_t child_count;        /* Children in the map, wherever their copies are. */
    uint32_t last_use;           /* In ticks of the policy's time; 0: not since the open. GHI: or
                                  * when it came to memory for a use that is told later. */
    uint32_t depth;
    uint32_t token_start;
    uint32_t token_count;
    uint32_t recompute_us;
    uint32_t importance;
    uint32_t record_crc; /* Of the durable record. */
    uint32_t class_id : 16;
    uint32_t places : 10; /* 1 << enum policy_place: which of them hold a copy. */
    uint32_t use_count : 4;
    uint32_t gap : 2;
};

_Static_assert(sizeof(struct entry_state) == 64, "64 bytes an entry are promised");
_Static_assert(POLICY_PLACE_COUNT == 10, "a bit of entry_state.places for each");

enum {
    USE_TICK_SHIFT = 26, /* A tick is 2^26 ns: 67 ms, and 9 years of uptime. */
};

enum {
    ENTRIES_PER_CHUNK = 32768, /* One huge page of states. */
    LINK_CLIMB_MAX = 65536,    /* Steps up, in a turn: a chain of a million tokens by 16. */
};

/* Here only for entries_at(), which a choice of a victim asks for each leaf that it looks at. */
struct entries {
    struct kvt_env env;
    struct residency *map;
    struct entry_state **chunks; /* Pointers, taken as they are touched. */
    uint32_t used_count;         /* One more than the highest number that was reserved. */
    uint32_t look_next;          /* Whose link is looked at next, ... */
    uint32_t look_end;           /* ... in this round of all below that one; the same: none is. */
    uint64_t look_credit;        /* For LOOK_USES the next one. */
    bool is_look_due;            /* Another round is to begin. */
    uint32_t climb_count;        /* Steps up in this turn, for links. */
};

enum kvt_status entries_open(
    const struct kvt_env *env, struct residency *map, struct entries **entries_out);
void entries_close(struct entries *entries); /* NULL is fine. */

/* entries_map - the map whose entries these are. */
struct residency *entries_map(const struct entries *entries);

/* entries_at - the state of an entry; NULL when there was no memory to grow (entries_reserve). */
static inline struct entry_state *
entries_at(const struct entries *entries, uint32_t number)
{
    struct entry_state *chunk = entries->chunks[number / ENTRIES_PER_CHUNK];

    return chunk == NULL ? NULL : &chunk[number % ENTRIES_PER_CHUNK];
}

/* entries_reserve - for each use of a number: make sure that entries_at(number) works; resets the
 * state, which must have no copy in memory. KVT_E_NOMEM. */
enum kvt_status entries_reserve(struct entries *entries, uint32_t number);

/* --- Parents ---------------------------------------------------------------------------------- */

/*
 * entries_link - the entry's parent is `parent` (ENTRY_NONE: none), and no other any more. When
 * that is the entry itself or is below it, the entry has no parent: it is the first of its chain.
 *
 * Takes a constant time for an entry without children, nothing can be below it; for another one it
 * walks up from `parent` to the first of the chain. All such walks in a turn of the loop have
 * LINK_CLIMB_MAX steps: an entry whose walk does not end within them has no parent either.
 *
 * entries_turn - a turn begins.
 */
void entries_link(struct entries *entries, uint32_t number, uint32_t parent);
void entries_turn(struct entries *entries);

/* entries_unlink - the entry leaves the map: its parent has a child less. Its own children find by
 * the generation that their parent is gone; those that nobody asks are looked at in time. */
void entries_unlink(struct entries *entries, uint32_t number);

/* entries_parent - the entry's parent if it is still in the map, else ENTRY_NONE. */
uint32_t entries_parent(struct entries *entries, uint32_t number);

/* --- Copies ----------------------------------------------------------------------------------- */

/* entries_copy_add, entries_copy_remove - a copy in `place` came, or goes. Whatever implements a
 * policy calls them through policy_nodes.c, and nobody else does; but the store itself notes its
 * copies on NVMe, which it has no policy order. */
void entries_copy_add(struct entries *entries, enum policy_place place, uint32_t number);
void entries_copy_remove(struct entries *entries, enum policy_place place, uint32_t number);

/* entries_has_copy - whether `place` holds a copy of the entry. */
bool entries_has_copy(const struct entries *entries, enum policy_place place, uint32_t number);

/* entries_is_leaf - whether no child of the entry needs its copy in `place`: the copy may be given
 * up. The sets are nested; policy.h says which children count. */
bool entries_is_leaf(const struct entries *entries, enum policy_place place, uint32_t number);

/* entries_is_kept - whether HOST holds a copy, no device does, and it has children in memory that
 * are all in HBM: then these alone keep it in HOST. Any number below the map's limit: for one that
 * was inserted there may have been no memory here (entries_reserve). */
bool entries_is_kept(const struct entries *entries, uint32_t number);

#endif /* KVT_ENGINE_ENTRIES_H */
