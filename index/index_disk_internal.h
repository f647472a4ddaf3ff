/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_disk_internal.h - what index_mem.c sees of the disk that a simulated index lives on.
 *
 * An image is one index "file". A change is one transaction: disk_stage() copies it and reserves
 * all memory that it needs, so that disk_apply() cannot fail; between the two it is a commit that
 * is running, or was deferred, and a power cut may keep or lose it. A deferred one and the next may
 * be there at once; none is kept without the one before it.
 */
#ifndef KVT_INDEX_INDEX_DISK_INTERNAL_H
#define KVT_INDEX_INDEX_DISK_INTERNAL_H

#include "index.h"

enum {
    DISK_CHANGES_MAX = 2, /* A deferred commit, and the one behind it. */
};

struct disk_block {
    uint32_t page;
    uint32_t size;
    uint8_t *bytes;
};

struct disk_segment {
    uint32_t number;
    uint32_t block_count;
    uint32_t block_capacity;
    uint32_t pending_count;       /* Additions of the changes that are staged. */
    struct disk_block *blocks;    /* Sorted by page. */
    struct index_segment segment; /* Valid when has_facts. */
    bool has_facts;
};

struct disk_image {
    uint64_t map_bytes;
    uint64_t used_bytes;
    uint64_t block_count;
    struct disk_segment **segments; /* Sorted by number. */
    uint32_t segment_count;
    uint32_t segment_capacity;
    bool is_clean;
    bool is_finished; /* It was marked once. */
};

enum disk_mark {
    DISK_MARK_KEEP,
    DISK_MARK_CLEAN,
    DISK_MARK_UNCLEAN,
};

struct disk_change {
    struct disk_image *image;
    struct index_block *added; /* Their bytes are ours until they are applied. */
    struct index_block *deleted;
    struct index_segment *segments;
    uint32_t *emptied;
    uint32_t emptied_count;
    uint32_t added_count;
    uint32_t deleted_count;
    uint32_t segment_count;
    enum disk_mark mark;
};

struct index_disk {
    struct kvt_env env;
    struct disk_image *current;                   /* "data.mdb"; NULL: no file. */
    struct disk_image *fresh;                     /* "data.mdb.new"; NULL: no file. */
    struct disk_change changes[DISK_CHANGES_MAX]; /* Oldest first. */
    uint32_t change_count;
    uint32_t fail_countdown; /* 0: none will be failed. */
    enum kvt_status fail_status;
};

enum kvt_status disk_image_create(
    struct index_disk *disk, uint64_t map_bytes, struct disk_image **image_out);
void disk_image_destroy(struct index_disk *disk, struct disk_image *image); /* NULL is fine. */

/* The segment's container, or NULL. */
struct disk_segment *disk_segment_find(const struct disk_image *image, uint32_t number);

/* The first place in `segment` whose page is not below `page`; block_count when there is none. */
uint32_t disk_block_place(const struct disk_segment *segment, uint32_t page);

/* disk_stage - behind what is staged. KVT_E_NOMEM: nothing has changed.
 * disk_apply - the oldest, if any. disk_drop - the newest, if any. */
enum kvt_status disk_stage(struct index_disk *disk, struct disk_image *image,
    const struct index_batch *batch, enum disk_mark mark);
void disk_apply(struct index_disk *disk);
void disk_drop(struct index_disk *disk);
void disk_drop_all(struct index_disk *disk);

/* Bytes of the map that a block record with `size` bytes takes. */
static inline uint64_t
disk_block_cost(uint32_t size)
{
    return (uint64_t)size + 16;
}

#endif /* KVT_INDEX_INDEX_DISK_INTERNAL_H */
