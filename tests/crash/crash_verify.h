/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_verify.h - judge a store that a crash left: it opens, keeps what it acknowledged, brings
 * nothing back that was deleted, never gives wrong bytes, and can be used.
 */
#ifndef KVT_TESTS_CRASH_VERIFY_H
#define KVT_TESTS_CRASH_VERIFY_H

#include "crash_oracle.h"
#include "crash_run.h"

struct verify_request {
    const struct workload *workload;
    struct oracle *oracle;
    const char *dir;  /* The recorded directory, as the crash left it. */
    bool is_rebuild;  /* The index was taken away. */
    const bool *left; /* ORACLE_KEYS: what may have left NVMe for want of room besides what the
                       * oracle was told of; NULL: nothing. */
    bool lives_on; /* The store is used after the judgement: nothing is deleted, and the oracle is
                       * told what was found. */
    uint64_t seed; /* Chooses what is tried besides. */
    bool was_audited; /* Set: store_audit() has judged it. */
};

/* crash_verify - true when all is well; otherwise a sentence in `problem`. */
bool crash_verify(struct verify_request *request, char *problem, size_t problem_size);

#endif /* KVT_TESTS_CRASH_VERIFY_H */
