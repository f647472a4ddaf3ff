/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_reader.h - the actor that brings rows of Engram tables to where fetches want them.
 *
 * Owns      an io lane, PAGES_IN_FLIGHT pages of memory, the targets that wait.
 * Not here  fetches as callers see them (engram_fetch.c).
 *
 * A target is WAITING (rows left to ask for; in the actor's list), then ARRIVING (all asked for),
 * then settled. Memory order:
 *   (F1) is_settled: released with the target's answer and all rows, acquired by who waits. It is
 *        the actor's last touch of the fetch: it may be freed at once, hence the gate is the
 *        reader's.
 *   (F2) moves_sent: released with queued_status, when the last copy to a device was handed to its
 *        mover; acquired by who lets a stream wait.
 */
#ifndef KVT_ENGINE_ENGRAM_READER_H
#define KVT_ENGINE_ENGRAM_READER_H

#include "engram_set.h"

#include "io_lane.h"

enum {
    PAGES_IN_FLIGHT = 512, /* A 2 MiB page of memory. */
    PAGE_PIECES = 64,      /* Of a page, copied to a device at a time. */
    MOVES_UNSENT = 0,      /* In moves_sent; otherwise their number + 1. */
};

/* How rows come, those first that are furthest from their end. */
enum reader_way {
    WAY_FILE,   /* Pages that are read. */
    WAY_IN,     /* Rows that are copied from the host to a device. */
    WAY_WITHIN, /* Rows that are copied within a device. */
    WAY_COUNT,
};

/* What one of them takes when many are in flight. */
struct way_clock {
    uint32_t in_flight;           /* Pages, whatever is counted. */
    uint64_t busy_ns, busy_count; /* Since `each_ns` was last said. */
    uint64_t each_ns;             /* 0: not known yet. */
};

/* What a fetch wants of one table. */
struct fetch_target {
    struct inbox_node node;
    struct fetch_target *next; /* WAITING, the earliest deadline first. */
    struct kvt_engram_fetch *fetch;
    kvt_engram *table;
    struct kvt_engram_rows rows;
    uint8_t *destination, *states;
    uint64_t deadline_ns;
    kvt_region region; /* Held until it is settled. 0: none. */
    int device;        /* Whose memory the destination is; below 0: the host's. */
    bool is_once;
    /* The actor's until it is settled: */
    uint32_t asked; /* Rows for which pages were asked. */
    uint32_t pages_in_flight;
    uint32_t pages_unsent; /* Of these: copies to the device are still to be handed over. */
    uint32_t move_count;   /* Handed over. */
    uint64_t lost_count;   /* Rows of the destination. */
    enum kvt_status status;
    struct device_mark mark;       /* Of the moves. */
    enum kvt_status queued_status; /* (F2) */
    _Atomic uint32_t moves_sent;   /* (F2) */
    _Atomic uint32_t is_settled;   /* (F1) */
};

struct kvt_engram_fetch {
    struct kvt_store *store;
    struct kvt_engram_fetch *next, *previous; /* In the set's list. */
    uint32_t count;
    struct fetch_target targets[KVT_ENGRAM_LAYERS_MAX];
};

/* One page in flight. */
struct page_read {
    struct transfer transfer;
    struct iovec piece;
    struct fetch_target *target;
    uint32_t page;
    uint32_t row_first, row_end; /* In the plan's rows. */
    const uint8_t *bytes;        /* Of the page: in our memory, or pinned. */
    struct page_read *next_free;
    /* To a device: */
    struct engram_cache_device *cache; /* There. NULL: the table has none, or it has no part. */
    bool is_within;                    /* The cache has all rows. */
    bool is_kept;                      /* Some of them are copied to the cache, too. */
    struct device_move move;
    struct device_piece *pieces;   /* PAGE_PIECES; NULL: the store has no device. */
    uint32_t row_at, place_at;     /* What is copied next; place_at counts within the row, its place
                                    * in the cache last. */
    enum kvt_status copied_status; /* Of the moves that were answered. */
};

struct engram_reader {
    struct kvt_env env;
    struct kvt_store *store; /* Its counters, log and devices. */
    struct lane *lane;
    struct task *task;
    uint8_t *memory;
    struct device_piece *pieces; /* Of all pages; NULL: the store has no device. */
    uint32_t device_mask;        /* That know the memory. */
    bool is_memory_kept;         /* A device did not let go of it. */
    struct inbox targets;        /* any pushes */
    struct inbox done;           /* the lane pushes */
    struct inbox copied;         /* movers push */
    struct gate gate;            /* any waits: a target was settled. */
    struct page_read reads[PAGES_IN_FLIGHT];
    struct page_read *free;
    uint32_t in_flight;
    struct fetch_target *waiting;
    struct way_clock ways[WAY_COUNT];
    uint64_t step_ns;             /* Of the last step. */
    _Atomic uint32_t is_stopping; /* Cancel what waits. */
    _Atomic uint32_t is_idle;     /* ... and nothing is in flight any more. */
};

/* engram_target_settle - the last touch of a target. By the actor. */
void engram_target_settle(struct engram_reader *reader, struct fetch_target *target);

/* --- engram_copy.c (actor) -------------------------------------------------------------------- */

/* engram_rows_copy - the rows of a page to host memory. */
void engram_rows_copy(struct fetch_target *target, const struct page_read *read);
/* engram_rows_note - what became of the rows of a page, for the caller. */
void engram_rows_note(
    struct fetch_target *target, const struct page_read *read, enum kvt_engram_row_state state);
/* engram_rows_send - begin to copy the rows of a page to the target's device. The answers come to
 * reader->copied; after each, engram_rows_go_on(): true: that was the last. */
void engram_rows_send(struct engram_reader *reader, struct page_read *read);
bool engram_rows_go_on(struct engram_reader *reader, struct page_read *read);
/* engram_rows_keep - of rows that the device's cache does not have, some are copied to it, too,
 * when the page is sent. engram_rows_end - no copy of the page is in flight any more: the cache
 * hears of it. */
void engram_rows_keep(struct engram_reader *reader, struct page_read *read);
void engram_rows_end(const struct engram_reader *reader, struct page_read *read);
/* engram_target_look - whether all copies of a target were handed over. After each change. */
void engram_target_look(struct fetch_target *target);

#endif /* KVT_ENGINE_ENGRAM_READER_H */
