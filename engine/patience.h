/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h - how long whoever found no room waits for what is in flight.
 *
 * When it ends, pins go and slots come back. In a store that is in use something always is in
 * flight; so nobody waits for all of it, but for what was when the first search found nothing, and
 * for what follows from that. Then one more search decides.
 *
 * Whatever is begun is counted by the turn in which that was, and the next turn comes when nothing
 * of the one before the present is left. So two turns later all has ended that was in flight at a
 * time. That is a round. What ends may have a successor that has the same block: a copy down is
 * followed by a write, a read by a copy up. There are as many rounds as steps in such a chain.
 *
 * All who wait have the rounds in common: who comes in the middle of one waits for the whole ones
 * that follow. So a queue of them is told as soon as its last one, and not one after another.
 *
 * Room may have come that others were given, who were faster: then the rounds begin anew, but not
 * for ever. They also do whenever a search lets something go.
 *
 * Owns      the counts, and how far each of those that wait has come.
 * Not here  the lists of those that wait, and the searches (room.c, map_room.c, reclaim.c).
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_PATIENCE_H
#define KVT_ENGINE_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "policy.h"

struct kvt_store;

enum {
    PATIENCE_MAP = POLICY_PLACE_COUNT, /* As a place: room for one more entry. */
};

struct turns {
    uint64_t now;
    uint32_t counts[2]; /* Of the present turn, and of those before: by a turn's lowest bit. */
};

/* turns_begin - something is in flight from now on: what is returned is told to turns_end(). */
static inline uint8_t
turns_begin(struct turns *turns)
{
    turns->counts[turns->now & 1]++;
    return turns->now & 1;
}

static inline void
turns_end(struct turns *turns, uint8_t turn)
{
    KVT_ASSERT(turns->counts[turn] > 0);
    turns->counts[turn]--;
}

static inline bool
turns_are_idle(const struct turns *turns)
{
    return turns->counts[0] + turns->counts[1] == 0;
}

/* The rounds of all who wait for the same things. They go on as far as somebody waits for. */
struct rounds {
    uint64_t now, wanted;
    uint64_t work_until, flights_until; /* The present one is over when both turns have come. */
};

/* Of one who waits; all zero: it does not yet. */
struct patience {
    uint64_t until;       /* That round. */
    uint32_t given_count; /* What was given in the place before. */
    uint8_t place;        /* enum policy_place, PATIENCE_MAP */
    bool is_begun;
    uint8_t again_count; /* How often it began anew, because something was given. */
};

/* search_begin - the round in which one is begun now. */
uint64_t search_begin(struct kvt_store *store, uint32_t place);

/* patience_join - who comes to wait behind `ahead`, for the same place: from now on, unless it does
 * already, or `ahead` does not yet. */
void patience_join(
    struct kvt_store *store, struct patience *patience, const struct patience *ahead);

/* patience_is_last - the search that is begun now decides (NULL: none does). */
bool patience_is_last(struct kvt_store *store, const struct patience *patience, uint32_t place);

/* patience_ends - a search that was begun in that round has found nothing. True: it was the last
 * one, there is no room. False: wait (NULL: as long as anything is in flight). */
bool patience_ends(
    struct kvt_store *store, struct patience *patience, uint32_t place, uint64_t begin);

/* Who waits for room on NVMe: the queue of what shall be durable. A search there reads the headers
 * of all segments; so it is not begun again before the rounds are over, but each second: what was
 * leased may have been given back. */
struct nvme_wait {
    struct patience patience;
    struct rounds rounds;
    uint64_t begin; /* Of the search that was begun again last. */
    bool is_waiting;
    bool is_lacking; /* A batch found no room, and none has had any since. */
    bool is_whole;   /* is_lacking: what is passed over is so for what was found since then. */
    uint64_t again_ns;
};

/* nvme_room_lacks - a batch found no room. nvme_room_found: it was answered, or nobody waits any
 * more. */
void nvme_room_lacks(struct kvt_store *store);
void nvme_room_found(struct kvt_store *store);

/* nvme_room_waits - nothing can be reclaimed, and all segments were looked at. False: nothing that
 * is in flight will change that; none is passed over any more. nvme_room_again: but some had been
 * before the batch found no room, for what may be long over (no memory, a pin): it is refused only
 * when they have had another turn. Once in a wait. */
bool nvme_room_waits(struct kvt_store *store);
bool nvme_room_again(struct kvt_store *store);

/* nvme_room_step - whether those that wait are to be tried now; a search begins if need be.
 * nvme_room_next_ns: when that is to be asked, whatever happens. */
bool nvme_room_step(struct kvt_store *store);
uint64_t nvme_room_next_ns(const struct kvt_store *store);

#endif /* KVT_ENGINE_PATIENCE_H */
