/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak.h - what the two processes of a soak share: the owner of the store, which is killed again
 * and again, and the one that watches it, kills it and judges.
 *
 * The board lies in memory of a file, so that it outlives the owner: what is known of each key, and
 * counters that only grow.
 */
#ifndef KVT_TESTS_SOAK_H
#define KVT_TESTS_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SOAK_OWNER_MODE "--owner"

enum {
    SOAK_RECENT = 32, /* Of the last blocks that were acknowledged, to look for after a kill. */
    SOAK_BLOCK_LOW = 128 << 10,
    SOAK_BLOCK_SIZES = 4, /* Each twice the one before. */
    SOAK_BLOCK_MAX = SOAK_BLOCK_LOW << (SOAK_BLOCK_SIZES - 1),
    SOAK_BLOCK_MEAN = SOAK_BLOCK_LOW * 15 / 4,
    SOAK_DEPTH = 96,       /* Requests that move bytes at a time; half of them are gets. */
    SOAK_PROBE_DEPTH = 32, /* Of the raw probe: more gives no more. */
};

enum soak_state {
    SOAK_OPENING,
    SOAK_RUNNING,
    SOAK_PAUSED, /* For the probe. */
    SOAK_CLOSED,
};

/* What may be found of a key: no version below `sure`, none above `asked`. */
struct soak_key {
    _Atomic uint64_t sure;       /* The last that was acknowledged, or read after a kill. */
    _Atomic uint64_t asked;      /* The last that was put. */
    _Atomic uint32_t is_present; /* No get has missed it since. */
};

struct soak_recent {
    _Atomic uint64_t key;
    _Atomic uint64_t version;
};

struct soak_board {
    _Atomic uint32_t state; /* enum soak_state */
    _Atomic uint32_t probe_wanted;
    _Atomic uint32_t end_wanted;
    _Atomic uint32_t life;       /* Raised by the watcher before each owner. */
    _Atomic uint64_t last_ns;    /* When the last request was answered. */
    _Atomic uint64_t stall_ns;   /* Longest time between two answers; the watcher takes it. */
    _Atomic uint64_t running_ns; /* Time in SOAK_RUNNING. */
    _Atomic uint64_t get_bytes, put_bytes;
    _Atomic uint64_t moved_bytes; /* Rewritten by the store, to reclaim segments. */
    _Atomic uint64_t hit_count, miss_count, put_count;
    _Atomic uint64_t gone_count;   /* Blocks that were not there when their put was acknowledged. */
    _Atomic uint64_t wrong_count;  /* Bytes that are not the block's, or of an older version. */
    _Atomic uint64_t lost_count;   /* Recent acknowledged blocks that a kill has taken, */
    _Atomic uint64_t kept_count;   /* and that are there. */
    _Atomic uint64_t failed_count; /* Requests with an error; reads that the store calls damaged. */
    _Atomic uint64_t probe_count;
    _Atomic uint64_t probe_rate; /* Bytes a second, of the last one. */
    _Atomic uint64_t pin_bytes;
    _Atomic uint32_t health;
    char text[256]; /* The first thing that went wrong. */
    _Atomic uint64_t recent_count;
    struct soak_recent recent[SOAK_RECENT];
    struct soak_key keys[];
};

struct soak_plan {
    char dir[512];
    uint64_t nvme_bytes;
    uint64_t host_bytes;
    uint64_t key_count;
    uint64_t probe_ns;
    uint64_t seed;
    int board_fd;
};

uint64_t soak_now_ns(void);
uint64_t soak_board_bytes(const struct soak_plan *plan);
uint64_t soak_block_length(uint64_t key);

/* soak_complain - note the first thing that went wrong, and count it in `counter`. */
void soak_complain(struct soak_board *board, _Atomic uint64_t *counter, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* soak_own - the owner's process: opens the store and works until it is killed or told to end. */
int soak_own(const struct soak_plan *plan, struct soak_board *board);

/*
 * soak_probe - what the disk gives with nothing in between: reads and writes of the soak's sizes,
 * `write_share` (0..1) of the bytes written, SOAK_PROBE_DEPTH at a time, in a file of its own in
 * `dir`; bytes a second. 0: it cannot be measured here.
 */
uint64_t soak_probe(const char *dir, double write_share, uint64_t duration_ns);

#endif /* KVT_TESTS_SOAK_H */
