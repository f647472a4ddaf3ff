/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_counts.c - see workload_counts.h.
 */
#include "workload_counts.h"

/* But what is asked of stores that were closed: store_runs.c demands that. */
#define COUNTS(X)                                                              \
    X(hit_count, "reads that gave bytes")                                      \
    X(told_count, "completions of a queue")                                    \
    X(freed_count[0], "tickets freed before stage 1")                          \
    X(freed_count[1], "tickets freed before stage 2")                          \
    X(untold_count, "outcomes that only a flush tells")                        \
    X(late_count, "requests behind work of a stream")                          \
    X(late_lease_count, "leases that end behind work of a stream")             \
    X(spread_count[SPREAD_PLAIN], "spread blocks in plain memory")             \
    X(spread_count[SPREAD_PINNED], "spread blocks in pinned memory")           \
    X(spread_count[SPREAD_DEVICE], "spread blocks on a device")                \
    X(audit_count, "audits")                                                   \
    X(cancel_count, "requests that were cancelled")                            \
    X(pin_count, "pins")                                                       \
    X(direct_count, "blocks that were written where they lie")                 \
    X(phase_count, "phases")                                                   \
    X(chain_count, "requests of one name in flight together")                  \
    X(cleared_count, "gets and deletes that met a clear")                      \
    X(heal_count, "disks that were well again")                                \
    X(watch_count, "shares that were watched")                                 \
    X(shadow_count, "scans that were compared with events")                    \
    X(asked_count[ASKED_TOUCH], "touches")                                     \
    X(asked_count[ASKED_IMPORTANCE], "importances")                            \
    X(asked_count[ASKED_IMPORTANCE_MISS], "importances of what is not there")  \
    X(asked_count[ASKED_ESTIMATE], "estimates")                                \
    X(asked_count[ASKED_MATCH], "matches")                                     \
    X(asked_count[ASKED_MATCH_LONG], "matches of several components")          \
    X(asked_count[ASKED_HEALTH], "healths")                                    \
    X(asked_count[ASKED_ILL_HEALTH], "healths that were not well")             \
    X(asked_count[ASKED_NAMESPACES], "namespaces")                             \
    X(asked_count[ASKED_WHY], "answers of kvt_why()")                          \
    X(asked_count[ASKED_FATE], "blocks that had left, and it was said why")    \
    X(asked_count[ASKED_AHEAD], "lookups whose prefetch was waited for")       \
    X(asked_count[ASKED_PART], "parts that were waited for")                   \
    X(asked_count[ASKED_REFUSED], "calls that break a rule")                   \
    X(asked_count[ASKED_CLOSE], "closes of stores of which something was out") \
    X(asked_count[ASKED_PIN_LIMIT], "pins that were too many")                 \
    X(asked_count[ASKED_READ_ONLY], "lives that only read")

#define COUNT_NAME(member, name) name,
#define COUNT_ADD(member, name) totals[i++] += work->member;

static const char *const names[] = {COUNTS(COUNT_NAME)};

enum {
    NAMES = sizeof(names) / sizeof(names[0]),
};

_Static_assert(sizeof(names) / sizeof(names[0]) <= WORKLOAD_COUNTS_MAX, "each has its count");

void
workload_counts_add(const struct workload *work, uint64_t totals[WORKLOAD_COUNTS_MAX])
{
    uint32_t i = 0;

    COUNTS(COUNT_ADD)
}

const char *
workload_counts_lack(const uint64_t totals[WORKLOAD_COUNTS_MAX])
{
    for (uint32_t i = 0; i < NAMES; i++) {
        if (totals[i] == 0)
            return names[i];
    }
    return NULL;
}
