/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_internal.h - the NVME tier's own structures, shared by nvme_tier.c (life and vtable),
 * nvme_put.c, nvme_get.c, nvme_files.c and nvme_scan.c.
 *
 * States of a put, and the function that makes each move (all in nvme_put.c):
 *
 *   FREE --> WRITING ------------> WRITTEN ------------> SYNCED --> FREE
 *      put_start()  | nvme_put_written()  nvme_put_synced() |  puts_answer()
 *                   |                 |                     |
 *                   +---> FAILED <----+---------------------+
 *                            |   (its write failed, a sync of the root failed since put_start(), or
 *                            |   one that was put before it failed)
 *                            +--------------------------------> FREE
 *                                       puts_answer()
 *
 *   WRITING  Its write is with the lane. `doom`: it fails when that is answered.
 *   WRITTEN  The lane said that every byte was written.
 *   SYNCED   A sync that started after WRITTEN has succeeded; one that was out already, beside the
 *            write, does not count.
 *   FAILED   `status` says why; its run is never used again.
 */
#ifndef KVT_TIERS_NVME_INTERNAL_H
#define KVT_TIERS_NVME_INTERNAL_H

#include "batch_header.h"
#include "io_lane.h"
#include "nvme_tier.h"

enum nvme_op_kind {
    NVME_OP_WRITE,
    NVME_OP_SYNC,
    NVME_OP_READ,
};

/* A transfer, and what it is for. The first member of what nvme_step() gets back. */
struct nvme_op {
    struct transfer transfer;
    enum nvme_op_kind kind;
};

enum put_state {
    PUT_FREE,
    PUT_WRITING,
    PUT_WRITTEN,
    PUT_SYNCED,
    PUT_FAILED,
};

struct nvme_put {
    struct nvme_op op;
    struct nvme_put *next; /* In order of put, or in the pool. */
    struct tier_batch *batch;
    struct segment *segment;
    enum put_state state;
    enum kvt_status status; /* FAILED: why. */
    enum kvt_status doom;   /* WRITING: why it will fail; KVT_OK: it need not. */
    bool is_recycle;
    uint64_t sync_number; /* The sync of the root that covers it, since WRITTEN; 0: none yet. */
    uint32_t header_pages;
    uint32_t copy_pages;                           /* Of a recycle header, behind it. */
    uint8_t *header;                               /* BATCH_HEADER_PAGES_MAX pages, aligned. */
    uint8_t *header_memory;                        /* What `header` was cut from. */
    struct iovec pieces[1 + 2 * BATCH_BLOCKS_MAX]; /* Header, payloads and tails. */
};

struct nvme_read {
    struct nvme_op op;
    struct nvme_read *next; /* In the pool, or to be pushed. */
    struct tier_batch *batch;
    struct tier_block *block;
    struct segment *segment;
    struct iovec pieces[2]; /* Memory and tail. */
};

enum {
    NVME_READS_CHUNK = 256,
    NVME_PUTS_KEPT = 4, /* Made at open. More are made when more are in flight. */
};

struct nvme_read_chunk {
    struct nvme_read_chunk *next;
    struct nvme_read reads[NVME_READS_CHUNK];
};

struct nvme_root {
    struct fs_dir *dir;
    struct fs_file *file; /* NULL: a read-only open that found none. */
    struct lane *lane;    /* NULL with `file`. */
    uint32_t segment_count;
    uint32_t align_bytes;
    bool is_direct;
    bool is_read_only;
    struct nvme_op sync;
    bool sync_is_pending;
    uint64_t sync_number; /* Of the last sync that was started. */
    uint32_t sync_failure_count;
    uint64_t sync_failed_ns;      /* The last one. */
    uint32_t write_failure_count; /* Since a write last succeeded. */
    uint32_t lack_count;          /* Pauses since then: it had no space, or the kernel no memory. */
    enum kvt_status lack_status;  /* Which of them. */
    uint64_t lack_until_ns;       /* The end of the last pause. */
};

struct scan_memory;

struct nvme_tier {
    struct tier tier;
    const struct kvt_env *env;
    struct nvme_options options;
    struct segment_table *table;
    uint32_t root_count;
    struct nvme_root roots[NVME_ROOTS_MAX];
    struct task *nobody; /* NULL: woken when the options name no task. */
    struct inbox inbox;  /* Finished transfers; the lanes push, nvme_step() takes. */
    struct nvme_put *put_first, *put_last; /* In flight, in order of put. */
    struct nvme_put *put_pool;
    struct nvme_read *read_pool;
    uint32_t read_pool_count;
    struct nvme_read_chunk *read_chunks;
    /* NULL, or that of the last scan: for the next one, of any thread. */
    struct scan_memory *_Atomic scan_memory;
};

/* --- nvme_files.c: one data file -------------------------------------------------------------- */

/*
 * nvme_file_find - fills `file` of a root whose data file is there, and the root's; nothing is
 * changed yet. nvme_file_ready - makes one that is not there, and grows it: when all were found.
 * Fills segment_count, align_bytes and is_direct, too. nvme_file_close - but not the caller's, in
 * `options.made`.
 */
enum kvt_status nvme_file_find(struct nvme_tier *nvme, uint32_t number);
enum kvt_status nvme_file_ready(struct nvme_tier *nvme, uint32_t number);
void nvme_file_close(struct nvme_tier *nvme, uint32_t number);

/* --- nvme_put.c ------------------------------------------------------------------------------- */

enum kvt_status nvme_puts_init(struct nvme_tier *nvme);
void nvme_puts_deinit(struct nvme_tier *nvme);
enum kvt_status nvme_put_start(
    struct nvme_tier *nvme, struct tier_batch *batch, uint32_t reserve_count, uint32_t last_of);
void nvme_put_written(struct nvme_tier *nvme, struct nvme_put *put);
void nvme_put_synced(struct nvme_tier *nvme, struct nvme_root *root);
/* nvme_syncs_start - after the answers of a step: one sync for each root that wants one. */
void nvme_syncs_start(struct nvme_tier *nvme);
void nvme_puts_answer(struct nvme_tier *nvme);

/* --- nvme_get.c ------------------------------------------------------------------------------- */

enum kvt_status nvme_get_start(struct nvme_tier *nvme, struct tier_batch *batch);
void nvme_read_done(struct nvme_tier *nvme, struct nvme_read *read);
void nvme_reads_deinit(struct nvme_tier *nvme);

/* --- nvme_scan.c ------------------------------------------------------------------------------ */

void nvme_scan_deinit(struct nvme_tier *nvme);

/* --- Both ------------------------------------------------------------------------------------- */

/* nvme_block_check - memory and tail are there and aligned. KVT_E_INVAL; `index` is for people. */
enum kvt_status nvme_block_check(const struct tier_block *block, uint32_t index);

/* nvme_op_init - the fields of a transfer that every operation of the tier has alike. */
void nvme_op_init(
    struct nvme_tier *nvme, struct nvme_op *op, enum nvme_op_kind kind, struct nvme_root *root);

static inline uint64_t
nvme_offset(const struct nvme_tier *nvme, uint32_t segment, uint32_t page)
{
    return ((uint64_t)segment_index(segment) * nvme->options.segment_pages + page) * 4096;
}

#endif /* KVT_TIERS_NVME_INTERNAL_H */
