/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queues.h - where completions of submissions are delivered. Part of kvtier.h, whose rules hold.
 */
#ifndef KVTIER_QUEUES_H
#define KVTIER_QUEUES_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * kvt_queue_create - where completions are delivered.
 *
 * KVT_E_NOMEM. KVT_E_IO: the process has no descriptor left for it.
 * Threads: any (one queue: poll and drain serial). Ownership: gives *queue_out. Blocks: never.
 *
 * kvt_queue_destroy - the end of a queue. NULL does nothing.
 *
 * KVT_E_STATE: a completion of it was not collected, or is still to come.
 * Threads: serial for one queue. Ownership: takes `queue` when KVT_OK. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_queue_create(kvt_store *store, kvt_queue **queue_out);
KVT_CHECKED enum kvt_status kvt_queue_destroy(kvt_queue *queue);

/*
 * kvt_queue_fd - an eventfd that is readable while completions may be waiting; kvt_queue_poll()
 * resets it. The caller polls it, and neither reads nor closes it. -1: in a simulation; in a forked
 * child; NULL.
 * Threads: any. Ownership: the queue's. Blocks: never.
 */
KVT_API int kvt_queue_fd(kvt_queue *queue);

struct kvt_completion {
    kvt_ticket *ticket;
    void *user;             /* As submitted. */
    uint32_t stage;         /* enum kvt_stage */
    enum kvt_status status; /* KVT_OK, or the first of kvt_ticket_results() that is below zero. */
};

/*
 * kvt_queue_poll - collect up to `count_max` completions, waiting for the first one until
 * `timeout_ns` from now (0: do not wait). *count_out 0 with KVT_LATE: none came. KVT_E_INVAL: NULL,
 * count_max 0.
 * Threads: serial for one queue. Ownership: borrows. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_queue_poll(kvt_queue *queue, struct kvt_completion *done,
    uint32_t count_max, uint64_t timeout_ns, uint32_t *count_out);

/*
 * kvt_queue_drain - wait, at most `timeout_ns`, until every submission that named the queue has
 * delivered its last completion into it. They lie there to be polled: nothing is collected or given
 * up. It hurries nothing: a RELAXED put is waited for as long as it takes (kvt_flush() is faster).
 *
 * KVT_OK: nothing more will come, unless something is submitted. KVT_LATE: not yet. KVT_E_INVAL.
 * Threads: serial for one queue. Ownership: borrows. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_queue_drain(kvt_queue *queue, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_QUEUES_H */
