/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_file.h - STORE.a and STORE.b: what a store is. LOCK: who owns it.
 *
 * Owns      the encoding (FORMAT.md section 3.1) and the rule of the two copies: the one with the
 *           lower sequence (or the damaged one) is written and synced, and counts, and then the
 *           other; a reader takes the valid copy with the higher sequence.
 * Threads   the thread that opens or closes the store.
 */
#ifndef KVT_TIERS_STORE_FILE_H
#define KVT_TIERS_STORE_FILE_H

#include "env.h"
#include "hash.h"

enum {
    STORE_ROOTS_MAX = 8,
    STORE_PATH_BYTES = 400, /* Of a root's path, its zero included. */
    STORE_VERSION_MAJOR = 1,
    STORE_VERSION_MINOR = 1,
};

/* Bits of features_to_write. */
enum {
    STORE_FEATURE_PARTS = 1, /* Blocks made of parts (FORMAT.md section 3.6). */
};

struct store_file {
    uint64_t sequence; /* Of this copy. */
    uint8_t uuid[16];
    uint8_t secret[HASH_SECRET_BYTES];
    uint16_t version_major, version_minor;
    uint64_t features_needed;   /* Unknown bits: KVT_E_FORMAT. */
    uint64_t features_to_write; /* Unknown bits: may be read, not written. */
    uint64_t created_ns;        /* Wall clock. */
    uint32_t open_epoch;        /* 1.. 2^24-1; rises at each open that may write. */
    uint32_t segment_pages;
    uint64_t block_bytes_max;
    uint64_t map_bytes; /* Of the index, when it was made. */
    uint32_t root_count;
    uint64_t root_bytes[STORE_ROOTS_MAX];
    char root_paths[STORE_ROOTS_MAX][STORE_PATH_BYTES]; /* Empty: "data" in the store. */
};

/*
 * store_file_read - KVT_MISS: neither file is there (no store). KVT_E_CORRUPT: both are damaged;
 * the sentence names them. KVT_E_FORMAT: another major version or an unknown needed feature.
 * *unwritable_out: an unknown features_to_write bit is set.
 *
 * When the other copy is missing or damaged, open_epoch is reported one higher than the whole copy
 * says: builds that wrote one copy at each open may have left the newer one there.
 */
enum kvt_status store_file_read(const struct kvt_env *env, struct fs_dir *dir,
    struct store_file *file_out, bool *unwritable_out);

/* store_file_examine - calls `found` for each copy that is missing or damaged. */
enum kvt_status store_file_examine(const struct kvt_env *env, struct fs_dir *dir,
    void (*found)(void *context, const char *name, const char *reason), void *context);

/* store_file_capacity - of all roots together. */
uint64_t store_file_capacity(const struct store_file *file);

/* store_file_grown - what a root has when all together have `capacity` (no less than now): as much
 * as the others, but a root that has more already keeps it. Whole division: it may be less by a few
 * bytes. */
uint64_t store_file_grown(const struct store_file *file, uint64_t capacity, uint32_t root);

/*
 * store_file_write - both copies, one after the other, each synced with the directory: what a later
 * reader must know it finds in either, also while it cannot read one. file->sequence is that of the
 * copy that was written last. KVT_E_INVAL: a field breaks its bound (FORMAT.md section 3.1). On
 * failure the copy that file->sequence names is whole.
 */
enum kvt_status store_file_write(
    const struct kvt_env *env, struct fs_dir *dir, struct store_file *file);

/*
 * store_lock - create LOCK when missing and lock it. KVT_E_LOCKED: another owner. The lock lasts
 * until the file is closed. `only_reads`: LOCK is made only where STORE is (KVT_MISS: neither is
 * there); on a read-only file system it is taken as it is, and shared with others who only read (an
 * owner may be there by another mount).
 */
enum kvt_status store_lock(
    const struct kvt_env *env, struct fs_dir *dir, bool only_reads, struct fs_file **lock_out);

#endif /* KVT_TIERS_STORE_FILE_H */
