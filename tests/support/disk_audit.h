/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_audit.h - holds the batch headers on NVMe against the map: a rebuild, now or later, finds
 * what is there, and nothing else.
 *
 * Each block on NVMe has a header that names its copy. Each copy that counts is the block's, and
 * then no kill takes it; or it is of a namespace that was cleared since, or torn, or a kill names
 * it, or a void entry its batch. That some kill of its key has a later sequence is not enough: a
 * kill goes when the generation that it names has passed. What is wrong with a store shows here at
 * once, else only behind a delete of the key, other reclaims and the loss of the index.
 */
#ifndef KVT_TESTS_DISK_AUDIT_H
#define KVT_TESTS_DISK_AUDIT_H

#include <stdbool.h>

#include "hash.h"
#include "kvtier/kvtier.h"

enum {
    DISK_AUDIT_TEXT = 200,
};

struct disk_audit {
    uint32_t copy_count;           /* That headers name ... */
    uint32_t dead_count;           /* ... and that are not the block's. */
    char failure[DISK_AUDIT_TEXT]; /* Empty: all is well. */
};

/* disk_audit - of one key, or (NULL) of all, in a world that stands still, or on the loop. False:
 * not all could be read. */
bool disk_audit(kvt_store *store, const struct hash128 *only, struct disk_audit *audit_out);

#endif /* KVT_TESTS_DISK_AUDIT_H */
