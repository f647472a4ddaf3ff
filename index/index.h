/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - durable metadata: which extents are live. A commit of the index is the store's only
 * commit point.
 *
 * Owns      what is durable: block records keyed by location {segment, page}, segment facts, the
 *           clean flag. Encoded block records are opaque here but for their CRC.
 * Not here  key -> location (residency.h), the meaning of a record (base/block_record.h).
 * Format    SCHEMA.md.
 * Threads   one thread at a time (the committer; before it the thread that opens). Calls block.
 *
 * Implementations: index_lmdb.c (production) and index_mem.c (simulation: its "disk" is an object
 * that outlives the index; a commit is atomic, and a power cut during one leaves either state).
 */
#ifndef KVT_INDEX_INDEX_H
#define KVT_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env.h"

struct index_block {
    uint32_t segment;
    uint32_t page;
    const uint8_t *bytes; /* Encoded record; ignored for deletions. */
    uint32_t size;
};

/* Segment facts as stored; `state` is enum segment_state's value. */
struct index_segment {
    uint32_t number;
    uint32_t generation;
    uint32_t state;
    uint32_t record_count;
    uint32_t crc_xor;
    uint64_t live_bytes;
    uint64_t batch_number; /* Of the last write batch in it that was committed; 0: none. */
};

/* One transaction: all of it or nothing. Segments are emptied first, then come deletions, then
 * additions. */
struct index_batch {
    const uint32_t *emptied; /* Segments: every record of theirs goes. */
    uint32_t emptied_count;
    const struct index_block *added; /* Sorted by (segment, page). */
    uint32_t added_count;
    const struct index_block *deleted; /* Sorted too. Missing ones are not an error. */
    uint32_t deleted_count;
    const struct index_segment *segments;
    uint32_t segment_count;
};

/* What an index looks like before it is opened. */
enum index_condition {
    INDEX_ABSENT,  /* No file. */
    INDEX_CLEAN,   /* Closed in order, and every reachable page is whole. */
    INDEX_UNCLEAN, /* Not closed in order, but every reachable page is whole. */
    INDEX_DAMAGED, /* Or not finished: to be rebuilt; the failure record says what is wrong. */
};

struct index_stats {
    uint64_t map_bytes;
    uint64_t used_bytes;
    uint64_t block_count;
    uint64_t commit_count;
};

struct index;

struct index_ops {
    const char *name;

    /* Look at the file, at every page of it, without opening it (LMDB: lmdb_check.h). Only I/O
     * errors make it fail. */
    enum kvt_status (*inspect)(void *context, const struct kvt_env *env, struct fs_dir *dir,
        enum index_condition *condition_out);

    /* Make a new, empty index of `map_bytes` beside the old one (name "data.mdb.new"), zero-filled
     * to its full size and synced. Blocks may be committed into it; index_install puts it in
     * the old one's place (close, fsync, rename, fsync of the directory, open). It is not finished
     * then: INDEX_DAMAGED, until it is marked for the first time. What was deferred before is
     * durable with it. */
    enum kvt_status (*create)(void *context, const struct kvt_env *env, struct fs_dir *dir,
        uint64_t map_bytes, struct index **index_out);
    enum kvt_status (*install)(struct index *index);

    /* For writing: what a crash left of an index that was not installed is taken away. */
    enum kvt_status (*open)(void *context, const struct kvt_env *env, struct fs_dir *dir,
        bool read_only, struct index **index_out);

    /* Take away the index in `dir`, and one that was just made, durably. None may be open. */
    enum kvt_status (*remove)(void *context, const struct kvt_env *env, struct fs_dir *dir);

    /* KVT_OK: durable. KVT_E_NOSPC: the map is full (nothing changed; grow or delete). KVT_E_META:
     * anything else; no further commit will be tried by the caller. */
    enum kvt_status (*commit)(struct index *index, const struct index_batch *batch);

    /* The same, but KVT_OK says no more than that it was done: it is durable when the next commit
     * (even one that changes nothing), or `sync`, has returned KVT_OK. A crash before that leaves
     * it, or the state before it; when that commit or sync fails nobody knows which. Nothing is
     * read in between. This saves one of two syncs when another commit follows at once. */
    enum kvt_status (*commit_deferred)(struct index *index, const struct index_batch *batch);
    /* KVT_OK: all commits are durable. KVT_E_META: no further commit will be tried. */
    enum kvt_status (*sync)(struct index *index);

    /* Double the map (at least to `map_bytes`), zero-filled and synced first; where the disk has no
     * room for that, or refuses it, by less. KVT_E_NOSPC: it has none at all, and nothing changed;
     * KVT_E_IO likewise, beyond a limit of the process's (RLIMIT_FSIZE); KVT_E_NOMEM: no address
     * space, and nothing changed, unless somebody else took it in the midst of the call: then no
     * further commit works. */
    enum kvt_status (*grow)(struct index *index, uint64_t map_bytes);

    /* The clean flag: `clean` false before the first write of a life (of a new index: when all is
     * durable that belongs to it), true as the last. Durable. */
    enum kvt_status (*mark)(struct index *index, bool clean);

    /* In order of (segment, page); until `visit` returns false. */
    enum kvt_status (*each_block)(struct index *index,
        bool (*visit)(void *visitor, const struct index_block *block), void *visitor);
    enum kvt_status (*each_segment)(struct index *index,
        bool (*visit)(void *visitor, const struct index_segment *segment), void *visitor);

    void (*stats)(struct index *index, struct index_stats *stats_out);
    /* One that was made and not installed goes. NULL is fine. The failure record stays. */
    void (*close)(struct index *index);
};

struct index {
    const struct index_ops *ops;
};

extern const struct index_ops index_lmdb_ops; /* Context: NULL. */

/* index_lmdb_version - what the library that was loaded says of itself. Static. */
const char *index_lmdb_version(void);

/* The in-memory index: `disk` holds what is durable and survives index_close and power cuts. */
struct index_disk;
enum kvt_status index_disk_create(const struct kvt_env *env, struct index_disk **disk_out);
void index_disk_destroy(struct index_disk *disk);
/* What a power cut leaves of the commits that are not durable: the first `kept_count`, whole. They
 * are two at most: one that was deferred, and one that was running, or failed, behind it. */
void index_disk_power_cut(struct index_disk *disk, uint32_t kept_count);
/* Make the n-th commit or sync from now (1: the next) fail, a commit with `status`; 0: none. */
void index_disk_fail(struct index_disk *disk, uint32_t n, enum kvt_status status);
extern const struct index_ops index_mem_ops; /* Context: struct index_disk *. */

#endif /* KVT_INDEX_INDEX_H */
