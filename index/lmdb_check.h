/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_check.h - a bounds-checked reader of LMDB 0.9 data files: is this file safe to map?
 *
 * LMDB trusts its pages; a damaged file ends in SIGBUS or in wrong answers. This reader uses only
 * pread through the file vtable, believes nothing, and never loops: each page is counted once.
 *
 * What it proves: the file is at least as long as its last used page; both meta pages parse, have
 * the numbers of their transactions, and the newer one describes the trees; every page reachable
 * from it lies inside the file, has the right number, flags and bounds, sorted keys; overflow runs
 * are inside; the main, block, segment and system trees and the free list share no page; counts
 * agree; each block record's CRC holds (with its location) and each segment's record count and XOR
 * agree with its records. What a record says is not looked at: a later version's is no damage
 * (tiers/FORMAT.md section 9).
 */
#ifndef KVT_INDEX_LMDB_CHECK_H
#define KVT_INDEX_LMDB_CHECK_H

#include "env.h"
#include "index.h"

/* Values of the clean flag (SCHEMA.md): no flipped bit makes LMDB_UNCLEAN another. */
enum {
    LMDB_CLEAN = 1,
    LMDB_UNCLEAN = 0xFE,
    LMDB_UNCLEAN_OLD = 0, /* What earlier builds wrote. */
};

struct lmdb_report {
    uint64_t page_count;    /* Pages visited. */
    uint64_t block_count;   /* Records in `block`. */
    uint64_t damaged_count; /* Records whose size or CRC is wrong. */
    bool is_clean;          /* The clean flag in `system`. */
};

/*
 * lmdb_check - KVT_OK: safe to open. KVT_E_CORRUPT: not; the failure record says where and why.
 * It walks every page, whatever the clean flag says: LMDB itself believes its pages, and a bit that
 * flipped while the store was closed must not end the process. 0.2 s for a million records. Memory:
 * one bit a page.
 */
enum kvt_status lmdb_check(
    const struct kvt_env *env, struct fs_file *file, struct lmdb_report *report_out);

/* Who is shown what; false: no more. */
struct lmdb_lister {
    bool (*visit_segment)(void *visitor, const struct index_segment *segment);
    bool (*visit_block)(void *visitor, const struct index_block *block);
    void *visitor;
};

/*
 * lmdb_list - all segments, then all blocks, each in order, of an index that was closed in order.
 * LMDB is not asked: each page is proved as it is read, so that the first block comes at once.
 *
 * KVT_NOT_READY: it was not closed in order. KVT_E_CORRUPT: a page is damaged; what was shown
 * before lay in pages that are not. KVT_E_IO, KVT_E_NOMEM.
 */
enum kvt_status lmdb_list(
    const struct kvt_env *env, struct fs_file *file, const struct lmdb_lister *lister);

#endif /* KVT_INDEX_LMDB_CHECK_H */
