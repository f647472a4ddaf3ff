/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_writers.h - a process whose four threads put, replace and delete until it is killed, and
 * what it tells its parent through a pipe: what it is about to do, and what was acknowledged.
 *
 * The program that uses it starts itself again for the process: main() hands its arguments to
 * writers_main() when values[1] is WRITERS_MODE.
 */
#ifndef KVT_TESTS_CRASH_WRITERS_H
#define KVT_TESTS_CRASH_WRITERS_H

#include <sys/types.h>

#include "crash_oracle.h"
#include "crash_run.h"

#define WRITERS_MODE "--write"

enum {
    WRITERS = 4,
    WRITERS_KEYS = 48,     /* Of each. */
    WRITERS_FAILURES = 12, /* Requests of a thread that fail; then it stops. */
    WRITERS_BYTES_LOW = 1000,
    WRITERS_BYTES_HIGH = 40000,
};

enum writers_verb {
    WRITERS_PUT,
    WRITERS_PUT_OK,
    WRITERS_DELETE,
    WRITERS_DELETE_OK,
    WRITERS_LEFT, /* And what follows: WRITERS_LEFT + enum departure. */
    WRITERS_EARLY,
    WRITERS_BACK,
    WRITERS_OPENED, /* The store is open. */
    WRITERS_FAILED, /* A call or a block was answered with an error. */
};

struct writers_note {
    uint32_t verb; /* enum writers_verb */
    uint32_t key;
    uint64_t version;
    uint64_t stamp;   /* What *plan.stamp_fd's first word said then; when a block left: before. */
    uint64_t time_ns; /* WRITERS_FAILED, and what a block did. */
    /* WRITERS_FAILED: */
    int32_t status;
    uint32_t health;
    char text[192];
};

struct writers_plan {
    const struct workload *workload;
    const char *dir;
    uint64_t seed;         /* None twice on one store: versions follow from it. */
    bool may_fail;         /* An error is told and not the end; each thread stops after some. */
    bool has_relaxed;      /* Some puts are RELAXED. */
    bool may_lose;         /* A replace that fails may leave nothing of its key. */
    int stamp_fd;          /* A file whose first eight bytes go into each note; -1: none. */
    uint64_t action_count; /* Each thread stops after so many submissions; 0: never. */
};

/* writers_open - open the workload's store, and its namespaces. */
kvt_store *writers_open(
    const struct workload *workload, const char *dir, kvt_namespace *namespaces_out);

/* writers_start - start the process in a mode of the program's own (or WRITERS_MODE). */
pid_t writers_start(const char *mode, const struct writers_plan *plan, int *pipe_out);

/* writers_plan_read - what writers_start() gave the process; `workload` is filled in. */
void writers_plan_read(
    char **values, struct workload *workload, struct writers_plan *plan_out, int *pipe_out);

/* writers_main - the process: it ends only by a signal. */
void writers_main(char **values, struct workload *workload) __attribute__((noreturn));

/* writers_listen - call `hear` for each note until `until_ms` of the monotonic clock (UINT64_MAX:
 * until the end of the pipe), the end, or false. Returns how many there were. */
typedef bool (*writers_hear)(void *context, const struct writers_note *note);
uint64_t writers_listen(int pipe, uint64_t until_ms, writers_hear hear, void *context);

/* writers_mark - tell an oracle. */
void writers_mark(struct oracle *oracle, const struct writers_note *note);

/* writers_kill - SIGKILL; the process must have died of it and of nothing else. */
void writers_kill(pid_t child);

uint64_t writers_now_ns(void);
uint64_t writers_now_ms(void);
void writers_sleep_us(uint64_t microseconds);

#endif /* KVT_TESTS_CRASH_WRITERS_H */
