/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full_store.h - a store whose NVMe is full all the time, in a simulated world, for tests of
 * reclaiming that look into it. Whatever goes wrong fails the running test.
 */
#ifndef KVT_TESTS_FULL_STORE_H
#define KVT_TESTS_FULL_STORE_H

#include "sim_world.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    FULL_SEGMENTS = 8,
    FULL_BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    FULL_BLOCKS = FULL_SEGMENTS * 16, /* More than NVMe holds. */
    FULL_HOT = 6,     /* Keys that are read all the time: their blocks are relocated. */
    FULL_COLD = 1000, /* The first key of the others. */
};

#define FULL_WAIT_NS (UINT64_C(600) * 1000000000)

/* Each sync of a data file takes 50 ms longer: batches are written meanwhile. */
extern const struct sim_rule full_late_syncs;

struct full_store {
    struct sim_world *world;
    struct store_world reach;
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    uint64_t next_cold;
    bool is_refusing; /* There was no room for some blocks. */
    uint8_t *bytes;   /* Of the put that is under way. */
};

/* full_begin - a new store with so many segments of 1 MiB. full_end - close it and its world. */
struct full_store *full_begin(uint64_t seed, uint32_t segment_count);
void full_end(struct full_store *full);

/* full_begin_two_roots - FULL_SEGMENTS on each of two disks. */
struct full_store *full_begin_two_roots(uint64_t seed);

/* full_begin_hasty, full_begin_two_roots_hasty - the same; every batch is closed at once, beside
 * others that are being written. */
struct full_store *full_begin_hasty(uint64_t seed);
struct full_store *full_begin_two_roots_hasty(uint64_t seed);

/* full_open - once more, after a kvt_close(). */
void full_open(struct full_store *full, uint32_t flags);

/* full_again - the power goes, what was not synced is lost, the store is opened again. */
void full_again(struct full_store *full, uint32_t flags);

void full_put(struct full_store *full, uint64_t key, uint64_t version); /* SYNC. */

/*
 * full_put_submit - a put with KVT_PUT_REPLACE, from full->bytes: they are its own until stage 1.
 * full_delete_submit - a delete. full_stage_result - waits for this stage of a ticket of one block,
 * frees it; what came of it. full_result - the status of stage 2, likewise.
 */
kvt_ticket *full_put_submit(
    struct full_store *full, uint64_t key, uint64_t version, enum kvt_durability durability);
kvt_ticket *full_delete_submit(struct full_store *full, uint64_t key);
struct kvt_result full_stage_result(kvt_ticket *ticket, uint32_t stage);
enum kvt_status full_result(kvt_ticket *ticket);

/* full_writing_meet - step until a batch with the block of that key is being written. */
void full_writing_meet(struct full_store *full, uint64_t key);

/* full_expect_at_most - KVT_MISS, or KVT_OK with this version; whether it is there. */
bool full_expect_at_most(struct full_store *full, uint64_t key, uint64_t wanted);
void full_expect(struct full_store *full, uint64_t key, uint64_t wanted);

/* full_fingerprint, full_entry - of a key; ENTRY_NONE. */
struct hash128 full_fingerprint(const struct full_store *full, uint64_t key);
uint32_t full_entry(const struct full_store *full, uint64_t key);

/* full_copy_at - where in its data file the block has its copy on NVMe: bytes. */
uint64_t full_copy_at(const struct full_store *full, uint64_t key);

/* full_copies_check - the copies of the key are as disk_audit() wants them. Returns how many dead
 * ones there are. */
uint32_t full_copies_check(struct full_store *full, uint64_t key);

/* full_active - the segment of root 0 that takes runs: there is one. full_leave - blocks are put
 * until it is another one, which is returned. */
struct segment *full_active(const struct full_store *full);
struct segment *full_leave(struct full_store *full);

/* full_churn - one more block that nobody will read; the hot ones are read. full_fill - the hot
 * blocks, and so many others that NVMe is full. */
void full_churn(struct full_store *full);
void full_fill(struct full_store *full);

#endif /* KVT_TESTS_FULL_STORE_H */
