/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - what the engine remembers of each entry beside the map, and which HOST copy goes
 * first: leaf-first LRU.
 *
 * Owns      one struct entry_state for each entry number, the recency list of HOST, the counts of
 *           children.
 * Not here  copies themselves; when to evict (room.c), which segment to reclaim (reclaim.c).
 * Threads   the loop only.
 *
 * Order: the list runs from the most to the least recently used copy. A block stands next to its
 * parent on the older side when it arrives, and a request's blocks are touched deepest first; so
 * the end of the list is a leaf, whatever was used in between. A block that has children in HOST
 * all the same (they were used without it) is passed over.
 */
#ifndef KVT_ENGINE_POLICY_H
#define KVT_ENGINE_POLICY_H

#include "env.h"
#include "residency.h"

struct flight;

/* 64 bytes; the memory promise of the policy. */
struct entry_state {
    struct flight *flight;      /* What is under way for this entry; NULL: nothing. */
    uint32_t parent;            /* Entry, or ENTRY_NONE; good only while its generation is ... */
    uint32_t parent_generation; /* ... this: policy_parent() looks. */
    uint32_t newer, older;      /* HOST list; ENTRY_NONE at the ends. */
    uint32_t host_child_count;
    uint32_t child_count; /* Children in the map, wherever their copies are. */
    uint32_t last_use;    /* In ticks of the monotonic clock; 0: not since the store was opened. */
    uint32_t depth;
    uint32_t token_start;
    uint32_t token_count;
    uint32_t recompute_us;
    uint32_t importance;
    uint32_t record_crc; /* Of the durable record. */
    uint16_t class_id;
    uint8_t hint;
    uint8_t flags; /* enum entry_flags */
};

enum entry_flags {
    ENTRY_IN_HOST_LIST = 1,
};

enum {
    USE_TICK_SHIFT = 26, /* A tick is 2^26 ns: 67 ms, and 9 years of uptime. */
};

struct policy;

enum kvt_status policy_open(const struct kvt_env *env, struct residency *map, struct policy **out);
void policy_close(struct policy *policy);

/* policy_at - the state of an entry; NULL when there was no memory to grow (policy_reserve). */
struct entry_state *policy_at(struct policy *policy, uint32_t number);
/* policy_reserve - make sure that policy_at(number) works; resets the state. KVT_E_NOMEM. */
enum kvt_status policy_reserve(struct policy *policy, uint32_t number);

/* policy_link - the entry's parent is `parent` (ENTRY_NONE: none). */
void policy_link(struct policy *policy, uint32_t number, uint32_t parent);
/* policy_unlink - the entry leaves the map: its parent has a child less. Its own children find by
 * the generation that their parent is gone. */
void policy_unlink(struct policy *policy, uint32_t number);

/* policy_parent - the entry's parent if it is still in the map, else ENTRY_NONE. */
uint32_t policy_parent(struct policy *policy, uint32_t number);

void policy_host_add(struct policy *policy, uint32_t number);
void policy_host_remove(struct policy *policy, uint32_t number);
void policy_touch(struct policy *policy, uint32_t number); /* To the newest end. */

/*
 * policy_victim - the next copy to give up, starting behind `cursor` (ENTRY_NONE: at the end of the
 * list), towards the newer ones; ENTRY_NONE when there is none. Copies with children in HOST are
 * passed over.
 */
uint32_t policy_victim(struct policy *policy, uint32_t cursor);

#endif /* KVT_ENGINE_POLICY_H */
