/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_audit.h - holds what a store counts against what there is, while nothing is under way: a
 * slot that leaks, a child that was counted twice or a pin that stays serves right answers for
 * hours.
 *
 *   blocks      as many, and as long, as their namespaces count, and of as many bytes in each tier
 *               where one has a share; each copy has its policy place
 *   policy      a node for each copy in memory, and that in its list; of GHI in the right one, of
 *               LRU where a walk over victims finds it
 *   chains      children, those in memory and those in HBM, as their parent counts them
 *   NVMe        bytes and holds of each segment; uses and copies of the store
 *   HOST, HBM   slots taken are those of copies; no block is pinned   (when nothing is held)
 *   headers     disk_audit.h                                          (when they can be trusted)
 */
#ifndef KVT_TESTS_STORE_AUDIT_H
#define KVT_TESTS_STORE_AUDIT_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

enum {
    STORE_AUDIT_TEXT = 240,
};

struct store_audit {
    bool is_unused;                 /* In: the caller holds nothing. */
    bool looks_at_headers;          /* In. */
    char failure[STORE_AUDIT_TEXT]; /* Empty: all is well. */
};

/* store_audit - on the store's loop. False: something is under way, or not all headers could be
 * read: nothing was judged. */
bool store_audit(kvt_store *store, struct store_audit *audit);

#endif /* KVT_TESTS_STORE_AUDIT_H */
