/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_lane.h - one device's lane: an actor that turns transfers of any length into operations of an
 * io queue, keeps a bounded number of bytes in flight, and answers each transfer once.
 *
 * Owns      the io queue of one root, its table of operations in flight.
 * Not here  files (the tier opens them), checksums, what the bytes mean.
 *
 * What it does with a transfer
 *   - cuts it into operations of at most LANE_OP_BYTES and IO_PIECES_MAX pieces; joins it with its
 *     neighbours in the queue when they have the same kind, class and file and touch in the file;
 *     each transfer still gets its own answer, and when a joined read fails its parts are read
 *     again one by one, so that a bad extent does not fail its neighbours;
 *   - urgent transfers pass bulk ones that have not started; but while both wait, of every
 *     LANE_URGENT_SHARE + 1 bytes that are started one is a bulk transfer's, so that writes go on
 *     at a fifth of the device's rate under reads that never end;
 *   - matches every completion by its unique operation id and checks its length: a short one has
 *     its rest submitted again; -EINTR and -EAGAIN are submitted again (at most LANE_RETRY_MAX
 *     times); a read that ends at the end of the file, or makes no progress, is KVT_E_IO, and so is
 *     any error but those of a write that found no space (KVT_E_NOSPC), and of what the kernel had
 *     no memory for (KVT_E_NOMEM: ENOMEM, or EAGAIN to the last);
 *   - IO_SYNC is started at once, beside whatever is in flight; it covers the writes whose answers
 *     were taken before it was pushed, promises nothing about others, and is never retried. Syncs
 *     start in the order in which they were pushed;
 *   - a transfer's status is the first error of its parts; it completes when all parts have, and
 *     once one has failed the parts that have not started never do. A transfer whose pieces or
 *     offset make no sense is KVT_E_INVAL; one of no bytes is KVT_OK at once.
 *
 * Bytes in flight: bulk transfers have a budget that starts at 8 MiB; tuned at run time by doubling
 * (up to 16 MiB) until throughput gains less than 2 %. Urgent ones start up to LANE_URGENT_BYTES
 * with all that is in flight: they do not wait for room that bulk ones took, and many of them get
 * what the disk can give. For a moment after each urgent transfer bulk ones keep no more in flight
 * than 2 MiB, or their share beside many urgent ones, because a device works in order. LANE_DEPTH
 * bounds the operations; bulk ones leave 32 of them to urgent ones.
 *
 * Threads: lane_push() any; the rest belongs to the actor. A finished transfer lies in the inbox
 * that it named; that inbox's task is woken once a round of completions. The wake may come after
 * the answer was taken: the task and the pointer to it must outlive the lane.
 */
#ifndef KVT_TIERS_IO_LANE_H
#define KVT_TIERS_IO_LANE_H

#include "env.h"
#include "inbox.h"

enum {
    LANE_OP_BYTES = 1 << 20,
    /* Gets of 1 MiB beside raw reads, each kept at so many MiB in flight, in turns (H200's host):
     * 5: 0.83-0.86, 10: 0.87-0.96, 20: 0.93-0.95, 40: 0.92-0.95. */
    LANE_URGENT_BYTES = 20 << 20,
    LANE_URGENT_SHARE = 4, /* Bytes for one of bulk transfers, while both wait. */
    LANE_RETRY_MAX = 16,
    LANE_DEPTH = 256,
};

enum lane_class {
    LANE_URGENT, /* Somebody waits for these bytes now. */
    LANE_BULK,   /* Writes, prefetch, scrubbing. */
};

/* The caller's from creation to the answer it takes out of the inbox; the lane's in between. */
struct transfer {
    struct inbox_node node;
    enum io_kind kind;
    enum lane_class class;
    struct fs_file *file;
    uint64_t offset;
    const struct iovec *pieces; /* Lives until the answer; not changed. IO_SYNC: NULL. */
    uint32_t piece_count;
    struct inbox *done;
    struct task *const *done_task; /* May point to NULL. */
    /* The answer. */
    enum kvt_status status;
    int error;          /* errno value behind an error, 0 when there is none. */
    uint64_t submit_ns; /* When it was pushed. */
    uint64_t done_ns;
    void *user;
    /* The lane's own. */
    struct {
        uint64_t size;
        uint64_t started;      /* Bytes handed to operations so far; the cursor below is there. */
        uint64_t left;         /* Bytes not yet completed. */
        uint64_t piece_offset; /* Cursor: the next byte to hand out is this one ... */
        uint32_t piece_index;  /* ... of this piece. */
        struct transfer *next; /* In a queue of the lane. */
    } lane;
};

struct lane;

struct lane_stats {
    uint64_t read_bytes, write_bytes;
    uint64_t read_count, write_count, sync_count; /* Operations. */
    uint64_t short_count, retry_count, error_count;
    uint64_t bytes_in_flight_now, operations_in_flight_now, budget_bytes_now;
};

/*
 * lane_open - start the actor `name` over env->io. `arena` (may be NULL) is adopted by the queue.
 * KVT_E_NOMEM, KVT_E_UNSUPPORTED (the kernel denies the io engine).
 */
enum kvt_status lane_open(const struct kvt_env *env, const char *name, void *arena,
    size_t arena_size, struct lane **lane_out);

/*
 * lane_close - every transfer must have been answered; when not all are, because a proof was false,
 * what the kernel has is waited for, and nothing else begins. NULL is fine.
 */
void lane_close(struct lane *lane);

/*
 * lane_push - hand over transfers of one class, in this order, with at most one wake for all of
 * them; never fails, never blocks.
 */
void lane_push_many(struct lane *lane, struct transfer *const *transfers, uint32_t count);
void lane_push(struct lane *lane, struct transfer *transfer);

void lane_stats_get(struct lane *lane, struct lane_stats *stats_out);

#endif /* KVT_TIERS_IO_LANE_H */
