/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_user.h - one user of a lane: random reads, writes and syncs in its own region of a real
 * file, with every byte that is read compared with what was written there last.
 *
 * A slot of the region is used by one transfer at a time. Its content follows from the region's
 * offset, the slot and the version of its last write. Neighbouring slots are often used by
 * neighbouring transfers, so that operations are joined and cut.
 *
 * Threads: one user, one thread; any number of users.
 */
#ifndef KVT_TESTS_LANE_USER_H
#define KVT_TESTS_LANE_USER_H

#include "io_lane.h"
#include "rng.h"

enum {
    USER_SLOT_BYTES = 32 * 1024,
    USER_SLOTS = 128,
    USER_REGION_BYTES = USER_SLOTS * USER_SLOT_BYTES,
    USER_JOBS = 12,
    USER_JOB_SLOTS = 40, /* More than one operation holds. */
    USER_PIECES = 8,
    /* Memory of a job: its slots, and a page of gap before each piece. */
    USER_JOB_BYTES = USER_JOB_SLOTS * USER_SLOT_BYTES + USER_PIECES * 4096,
    USER_MEMORY_BYTES = USER_JOBS * USER_JOB_BYTES,
};

struct user_job {
    struct transfer transfer;
    struct iovec pieces[USER_PIECES];
    uint8_t *memory;
    uint32_t first;
    uint32_t count;
    bool is_busy;
};

struct lane_user {
    const struct kvt_env *env;
    struct lane *lane;
    struct fs_file *file;
    uint64_t region_offset;
    struct rng rng;
    struct inbox inbox;
    struct task *task;
    struct gate gate;
    struct user_job jobs[USER_JOBS];
    uint64_t versions[USER_SLOTS]; /* 0: never written. */
    bool is_slot_busy[USER_SLOTS];
    uint32_t next_slot;
    uint32_t busy_count;
    uint64_t push_count;
    uint64_t read_slots; /* Slots that were compared. */
    const char *wrong;   /* The first thing that went wrong; NULL: nothing. */
};

/* `memory`: USER_MEMORY_BYTES, 4 KiB aligned. False: no task could be started. */
bool lane_user_open(struct lane_user *user, const struct kvt_env *env, uint64_t seed,
    struct fs_file *file, uint64_t region_offset, void *memory);
/* After the lane was closed: it may still be about to wake the user. */
void lane_user_close(struct lane_user *user);

/* lane_user_run - `count` transfers, all answered when it returns; user->wrong says how it went. */
void lane_user_run(struct lane_user *user, struct lane *lane, uint64_t count);

#endif /* KVT_TESTS_LANE_USER_H */
