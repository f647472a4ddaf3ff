/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_plan.c - see crash_plan.h.
 */
#include "crash_plan.h"

#include <stdlib.h>
#include <unistd.h>

#include "crash_mount.h"
#include "crash_writers.h"

int
crash_plan_begin(struct crash_plan *plan, int count, char **values, struct workload *workload)
{
    const char *place = getenv("KVT_TEST_TMP");
    char reason[256];

    if (count == 4 && strcmp(values[1], WRITERS_MODE) == 0)
        writers_main(values, workload);
    for (int i = 1; i < count; i += 2) {
        uint64_t number = i + 1 < count ? strtoull(values[i + 1], NULL, 10) : 0;
        if (strcmp(values[i], plan->option) == 0 && number != 0)
            plan->count = number;
        else if (strcmp(values[i], "--seed") == 0 && i + 1 < count)
            plan->seed = number;
        else
            run_fail("usage: crash_%s [%s N] [--seed N]", plan->name, plan->option);
    }
    if (!crash_mount_alone(reason, sizeof(reason))) {
        printf("SKIPPED: %s\n", reason);
        return CRASH_SKIPPED;
    }
    snprintf(plan->folder, sizeof(plan->folder), "%s/kvt-%s-%d", place != NULL ? place : "/dev/shm",
        plan->name, (int)getpid());
    return 0;
}
