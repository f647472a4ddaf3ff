/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_plan.h - how a suite on file systems of its own begins: what it is told, whether it can run
 * here, and the folder in which it does.
 */
#ifndef KVT_TESTS_CRASH_PLAN_H
#define KVT_TESTS_CRASH_PLAN_H

#include <stdint.h>

struct workload;

enum {
    CRASH_SKIPPED = 77, /* The exit code of a suite that cannot run here. */
};

struct crash_plan {
    const char *name;   /* "crash_NAME" is the program. */
    const char *option; /* Of the count: "--cycles", say. Besides there is --seed. */
    uint64_t count;     /* In: the default. */
    uint64_t seed;
    char folder[200]; /* Not made yet. */
};

/*
 * crash_plan_begin - the command line into the plan; 0, or the exit code of a suite that cannot run
 * here, which has said why. A process that was started as writers of `workload` does not return,
 * nor does one with a bad command line.
 */
int crash_plan_begin(struct crash_plan *plan, int count, char **values, struct workload *workload);

#endif /* KVT_TESTS_CRASH_PLAN_H */
