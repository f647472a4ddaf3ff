/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.h - a small pool of worker actors that run jobs: checksums, copies, reading of headers.
 *
 * A job runs once, on some worker, and then lies in the inbox that it named, whose task is woken.
 * Jobs of one submitter may finish out of order.
 *
 * Threads: crew_submit() any. crew_open() and crew_close() by the owner; close runs what was
 * submitted first.
 */
#ifndef KVT_BASE_CREW_H
#define KVT_BASE_CREW_H

#include "env.h"
#include "inbox.h"

struct crew;

struct crew_job {
    struct inbox_node node;
    void (*run)(struct crew_job *job); /* Must not block on another job. */
    struct inbox *done;                /* Where the job goes afterwards. */
    struct task *const *done_task;     /* Woken afterwards; may point to NULL (nobody waits). */
};

/* crew_open - `worker_count` workers, 1..64, whose threads are called `name` (at most 15
 * characters). KVT_E_NOMEM. */
enum kvt_status crew_open(
    const struct kvt_env *env, const char *name, uint32_t worker_count, struct crew **crew_out);
void crew_close(struct crew *crew); /* NULL is fine. */
void crew_submit(struct crew *crew, struct crew_job *job);

#endif /* KVT_BASE_CREW_H */
