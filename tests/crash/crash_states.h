/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_states.h - walk a recorded log, choose disks that a power cut at each place may leave, and
 * have each of them judged.
 *
 * After every record that changes what may be on the disk, and after every acknowledgement, the
 * candidates are: everything pending is there; nothing is; all but one; only one; random subsets;
 * random sectors. A budget says how many distinct disks are tried; when there are more candidates
 * they are sampled evenly over the whole log, with a seed.
 */
#ifndef KVT_TESTS_CRASH_STATES_H
#define KVT_TESTS_CRASH_STATES_H

#include "crash_run.h"

enum {
    STATE_NAME_BYTES = 96,
    STATE_PROBLEMS_MAX = 3,
    STATE_PROBLEM_BYTES = 640,
};

/* Lies in memory that the process which judges shares with the one that watches it. */
struct states_progress {
    volatile uint64_t heartbeat;
    uint64_t state_count;     /* Distinct contents of the disk. */
    uint64_t verified_count;  /* Contents x what was acknowledged by then, rebuilds included. */
    uint64_t rebuild_count;   /* Of these with the index taken away. */
    uint64_t audited_count;   /* Of them all, those that store_audit() judged. */
    uint64_t candidate_count; /* In the whole log. */
    uint32_t problem_count;
    char current[STATE_NAME_BYTES];
    char wrong[STATE_NAME_BYTES]; /* The first that was judged wrong. */
    char problems[STATE_PROBLEMS_MAX][STATE_PROBLEM_BYTES];
};

struct states_request {
    const struct workload *workload;
    const char *log_path;
    const char *dir; /* Where disks are written: the path that was recorded. */
    uint64_t budget; /* Distinct contents to try. */
    uint64_t seed;
    const char *only; /* The name of the one state to try; NULL: all. */
    struct states_progress *progress;
};

/* states_walk - false when a state was judged wrong (progress has the sentences), or the log cannot
 * be used. */
bool states_walk(const struct states_request *request);

/* states_log_dir - the directory that a log was recorded in. False when it is no log. */
bool states_log_dir(const char *log_path, char *dir_out, size_t size);

#endif /* KVT_TESTS_CRASH_STATES_H */
