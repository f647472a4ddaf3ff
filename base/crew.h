/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.h - a small pool of worker actors that run jobs: checksums, copies, reading of headers.
 *
 * A job runs once, on some worker, and then lies in the inbox that it named, whose task is woken:
 * at once, or, when the worker goes on with a short job, within some hundred microseconds.
 * Jobs of one submitter may finish out of order. Short ones may follow another: the same worker
 * runs them after it, and they come back with it, so that the handing over is paid once.
 *
 * Threads: crew_submit() and crew_submit_many() any. crew_open() and crew_close() by the owner;
 * close runs what was submitted first.
 */
#ifndef KVT_BASE_CREW_H
#define KVT_BASE_CREW_H

#include "env.h"
#include "inbox.h"

struct crew;

enum {
    CREW_FOLLOWERS_MAX = 7, /* Eight jobs of 64 KiB take a worker some 100 us. */
};

struct crew_job {
    struct inbox_node node;
    void (*run)(struct crew_job *job); /* Must not block on another job. */
    struct inbox *done;                /* Where the job goes afterwards. */
    struct task *const *done_task;     /* Woken afterwards; may point to NULL (nobody waits). */
    bool is_short; /* It takes some 20 us: the wake for what was finished before may wait for it. */
    uint8_t follower_count;
    /* Run after it in this order; they are done when it is, and lie in no inbox themselves. */
    struct crew_job *followers[CREW_FOLLOWERS_MAX];
};

/* crew_open - `worker_count` workers, 1..64, whose threads are called `name` (at most 15
 * characters). KVT_E_NOMEM. */
enum kvt_status crew_open(
    const struct kvt_env *env, const char *name, uint32_t worker_count, struct crew **crew_out);
void crew_close(struct crew *crew); /* NULL is fine. */
/* crew_submit - a job that nothing follows. */
void crew_submit(struct crew *crew, struct crew_job *job);
/* crew_submit_many - `count` jobs, linked by node.next from `first` to `last`, which has no
 * next. */
void crew_submit_many(
    struct crew *crew, struct inbox_node *first, struct inbox_node *last, uint32_t count);

#endif /* KVT_BASE_CREW_H */
