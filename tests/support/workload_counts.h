/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_counts.h - how often each kind of thing that a workload looks at was there to be looked
 * at: a check that no longer happens is noticed.
 */
#ifndef KVT_TESTS_WORKLOAD_COUNTS_H
#define KVT_TESTS_WORKLOAD_COUNTS_H

#include "workload.h"

enum {
    WORKLOAD_COUNTS_MAX = 64,
};

/* workload_counts_add - one count for each kind. workload_counts_lack - the name of a kind of which
 * there was none; NULL: there is no such. */
void workload_counts_add(const struct workload *work, uint64_t totals[WORKLOAD_COUNTS_MAX]);
const char *workload_counts_lack(const uint64_t totals[WORKLOAD_COUNTS_MAX]);

#endif /* KVT_TESTS_WORKLOAD_COUNTS_H */
