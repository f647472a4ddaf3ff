/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_load.h - files on their way to memory of devices: what a load is made of, and the actor that
 * reads and copies for all loads of a store.
 *
 * Owns      open files, staging memory (slots of HOST), an io lane, device memory that loads took.
 * Not here  streams and events (device_mover.h), memory of callers (region.h).
 * Threads   callers and the actor (kvt-load), under the set's lock; life_lock is taken before it,
 *           by who opens or closes a load, and never by the actor. The loop knows nothing of loads
 *           but slots that are taken.
 *
 * A chunk is read in parts, each of which is a piece of the file between two borders of
 * stage_bytes: so a read may begin and end anywhere within its stage, and direct reads are of whole
 * pages.
 *
 * States of a chunk, and the function that makes each move:
 *
 *             chunk_begin()              part_end()               kvt_load_release()
 *   WAITING ----------------> UNDER_WAY -----------------> SETTLED ----------------> RELEASED
 *      |                                                      ^
 *      +------------------------------------------------------+
 *                          load_give_up()
 *
 *   WAITING    It has no place. No part of it was asked for.
 *   UNDER_WAY  It has a place; a part is in flight, or was not asked for yet.
 *   SETTLED    status says how. It has its place, if it ever had one; nothing of it is in flight.
 *   RELEASED   It has no place.
 *
 * chunk_check() asserts these facts.
 */
#ifndef KVT_ENGINE_FILE_LOAD_H
#define KVT_ENGINE_FILE_LOAD_H

#include <pthread.h>

#include "device_mover.h"
#include "io_lane.h"
#include "store_internal.h"

enum {
    LOAD_STAGES_MAX = 16,
    LOAD_STAGE_BYTES_MAX = 2 << 20,
    LOAD_HOST_SHARE = 8, /* Staging takes at most one of so many parts of HOST. */
    LOAD_INDEX_BITS = 8, /* An id is {generation 56, index + 1 8}. */
};

#define LOAD_PLACE_NONE UINT32_MAX

enum load_chunk_state {
    LOAD_WAITING,
    LOAD_UNDER_WAY,
    LOAD_SETTLED,
    LOAD_RELEASED,
};

struct load_chunk {
    enum load_chunk_state state;
    enum kvt_status status;
    uint32_t place;
    uint32_t part_count;
    uint32_t asked; /* Parts that were asked for, or will not be. */
    uint32_t in_flight;
    uint64_t read_begin_ns, read_end_ns, copy_begin_ns, copy_end_ns;
    struct device_mark mark;
};

struct load {
    struct load *next; /* In the set's list, in the order in which they came. */
    struct kvt_store *store;
    struct fs_file *direct; /* Past the page cache, where the file system can. */
    struct fs_file *plain;  /* The same file, for what lies in its last page. */
    uint64_t file_bytes;    /* When it was opened. */
    uint64_t offset, length, chunk_bytes;
    uint32_t device, chunk_count;
    uint32_t chunk_at; /* The first that is WAITING, or has parts that were not asked for. */
    uint32_t settled_count, released_count, in_flight;
    bool is_direct_refused; /* A direct read was EINVAL: nothing more is read so. */
    bool is_given_up;
    bool is_closing; /* Nobody finds it any more. */
    uint8_t *memory;
    uint64_t own_bytes; /* Of the memory: the load took it. 0: it is the caller's. */
    kvt_region region;  /* Held. */
    bool is_region_own;
    /* Places that no chunk has, a ring: the one that came free first is taken first. */
    uint32_t *places;
    uint32_t place_count, place_first, place_free;
    struct load_chunk *chunks;
};

/* A stage, and the part of a chunk that goes through it. */
struct load_part {
    struct transfer transfer;
    struct iovec piece;
    struct device_move move;
    struct device_piece device_piece;
    struct load *load;
    struct load_chunk *chunk;
    struct load_part *next_free;
    struct slot slot;
    uint8_t *memory;
    uint32_t skip; /* Bytes of the stage before the part's first. */
};

struct load_reader;

struct load_set {
    pthread_mutex_t life_lock;
    /* Guarded by life_lock: */
    uint32_t stage_count;       /* 0: no load is open. */
    struct load_reader *reader; /* NULL: there was no load yet. */
    pthread_mutex_t lock;
    /* Guarded by lock: */
    struct load *loads;
    struct load *slots[KVT_LOADS_MAX];
    uint64_t generations[KVT_LOADS_MAX]; /* Each rises when a load with its index is closed. */
    uint32_t open_count;
    struct load_part *free;
    struct load_part parts[LOAD_STAGES_MAX];
    uint64_t stage_bytes;
    struct gate gate; /* any waits: a chunk was settled, or a load has nothing in flight. */
    _Atomic uint64_t device_bytes; /* Taken by loads; any. */
};

enum kvt_status loads_open(struct kvt_store *store);
/* loads_stop - loads that are open are void; before the devices are closed. loads_close: after. */
void loads_stop(struct kvt_store *store);
void loads_close(struct kvt_store *store);
uint32_t loads_open_count(struct kvt_store *store);
uint64_t loads_device_bytes(const struct kvt_store *store);

/* load_free - nothing of it is in flight, and nobody finds it. */
void load_free(struct load *load);
/* load_memory_put - memory that a load took; nothing is copied there any more. */
void load_memory_put(struct kvt_store *store, uint32_t device, void *memory, uint64_t size);
/* load_stages_put - under life_lock: HOST has its slots back when no load is open. */
void load_stages_put(struct kvt_store *store);

/* --- file_load_reader.c ----------------------------------------------------------------------- */

enum kvt_status load_reader_open(struct kvt_store *store, struct load_reader **reader_out);
/* load_reader_stop - nothing is begun any more; what is in flight is waited for. NULL is fine.
 * load_reader_close: the movers, which may still wake it, have ended. */
void load_reader_stop(struct load_reader *reader);
void load_reader_close(struct load_reader *reader);
void load_reader_wake(struct load_reader *reader);

/* Under the set's lock: */

void load_chunk_check(const struct load_chunk *chunk);
uint64_t load_chunk_offset(const struct load *load, uint32_t number); /* In the file. */
uint64_t load_chunk_size(const struct load *load, uint32_t number);
uint8_t *load_chunk_address(const struct load *load, const struct load_chunk *chunk);
/* load_give_up - chunks of which not all was asked for are CANCELLED; true: one was settled. */
bool load_give_up(struct load *load);

#endif /* KVT_ENGINE_FILE_LOAD_H */
