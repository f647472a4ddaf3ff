/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_disk.c - what is durable of a simulated index, and what a power cut does to it.
 *
 * Owns      the images, their blocks and facts, the changes. All of its memory comes from the env
 *           given to index_disk_create(), so it outlives every index that used it.
 * Not here  the index's vtable (index_mem.c).
 * Threads   one at a time.
 *
 * States of a change:
 *
 *            disk_stage()            disk_apply(): the oldest
 *     NONE ----------------> STAGED --------------> NONE, all of it is in the image
 *       ^                      |
 *       +----------------------+
 *             disk_drop(): the newest    nothing of it is in the image
 *
 *   NONE    the change owns no memory.
 *   STAGED  change.image is the image it will go to; containers and room for it, and for the one
 *           before it, are reserved there.
 */
#include "index_disk_internal.h"

#include <string.h>

#include "array.h"
#include "failure.h"
#include "try.h"

enum {
    SEGMENT_COST = 64, /* Bytes of the map that the facts of a segment take. */
};

/* --- 1. Arrays -------------------------------------------------------------------------------- */

static enum kvt_status
memory_missing(void)
{
    return failure_set(KVT_E_NOMEM, 0, "No memory for the disk of the in-memory index.");
}

/* A copy of an array; KVT_OK and NULL when it is empty. */
static enum kvt_status
array_copy(const struct kvt_env *env, const void *source, size_t size, void **copy_out)
{
    *copy_out = NULL;
    if (size == 0)
        return KVT_OK;
    *copy_out = env_take(env, size);
    if (*copy_out == NULL)
        return memory_missing();
    memcpy(*copy_out, source, size);
    return KVT_OK;
}

static void
array_free(const struct kvt_env *env, void *array, size_t size)
{
    if (array != NULL)
        env_put(env, array, size);
}

/* --- 2. Images -------------------------------------------------------------------------------- */

enum kvt_status
disk_image_create(struct index_disk *disk, uint64_t map_bytes, struct disk_image **image_out)
{
    struct disk_image *image = env_take(&disk->env, sizeof(*image));

    *image_out = image;
    if (image == NULL)
        return memory_missing();
    image->map_bytes = map_bytes;
    return KVT_OK;
}

static void
segment_destroy(struct index_disk *disk, struct disk_segment *segment)
{
    const struct kvt_env *env = &disk->env;

    for (uint32_t i = 0; i < segment->block_count; i++)
        env_put(env, segment->blocks[i].bytes, segment->blocks[i].size);
    array_free(env, segment->blocks, segment->block_capacity * sizeof(*segment->blocks));
    env_put(env, segment, sizeof(*segment));
}

void
disk_image_destroy(struct index_disk *disk, struct disk_image *image)
{
    if (image == NULL)
        return;
    if (disk->change_count > 0 && disk->changes[0].image == image)
        disk_drop_all(disk);
    for (uint32_t i = 0; i < image->segment_count; i++)
        segment_destroy(disk, image->segments[i]);
    array_free(&disk->env, image->segments, image->segment_capacity * sizeof(*image->segments));
    env_put(&disk->env, image, sizeof(*image));
}

/* The first place whose number is not below `number`. */
static uint32_t
segment_place(const struct disk_image *image, uint32_t number)
{
    uint32_t low = 0;
    uint32_t high = image->segment_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (image->segments[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct disk_segment *
disk_segment_find(const struct disk_image *image, uint32_t number)
{
    uint32_t place = segment_place(image, number);

    if (place == image->segment_count || image->segments[place]->number != number)
        return NULL;
    return image->segments[place];
}

uint32_t
disk_block_place(const struct disk_segment *segment, uint32_t page)
{
    uint32_t low = 0;
    uint32_t high = segment->block_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (segment->blocks[middle].page < page)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Make the segment's container when it is missing. An empty one is invisible. */
static enum kvt_status
segment_make(struct index_disk *disk, struct disk_image *image, uint32_t number)
{
    uint32_t place = segment_place(image, number);
    struct disk_segment *segment;

    if (place < image->segment_count && image->segments[place]->number == number)
        return KVT_OK;
    if (image->segment_count == image->segment_capacity) {
        struct disk_segment **grown = array_grow(
            &disk->env, image->segments, &image->segment_capacity, sizeof(struct disk_segment *));

        if (grown == NULL)
            return memory_missing();
        image->segments = grown;
    }
    segment = env_take(&disk->env, sizeof(*segment));
    if (segment == NULL)
        return memory_missing();
    segment->number = number;
    memmove(image->segments + place + 1, image->segments + place,
        (image->segment_count - place) * sizeof(struct disk_segment *));
    image->segments[place] = segment;
    image->segment_count++;
    return KVT_OK;
}

/* --- 3. Staging ------------------------------------------------------------------------------- */

static enum kvt_status
segment_reserve(struct index_disk *disk, struct disk_segment *segment)
{
    if (segment->block_count + segment->pending_count == segment->block_capacity) {
        struct disk_block *grown =
            array_grow(&disk->env, segment->blocks, &segment->block_capacity, sizeof(*grown));

        if (grown == NULL)
            return memory_missing();
        segment->blocks = grown;
    }
    segment->pending_count++;
    return KVT_OK;
}

/* Containers and room for everything that the staged changes add. */
static enum kvt_status
image_reserve(struct index_disk *disk, struct disk_image *image)
{
    const struct disk_change *newest = &disk->changes[disk->change_count - 1];

    for (uint32_t i = 0; i < newest->segment_count; i++)
        KVT_TRY(segment_make(disk, image, newest->segments[i].number));
    for (uint32_t i = 0; i < newest->added_count; i++)
        KVT_TRY(segment_make(disk, image, newest->added[i].segment));
    for (uint32_t i = 0; i < image->segment_count; i++)
        image->segments[i]->pending_count = 0;
    for (const struct disk_change *change = disk->changes; change <= newest; change++) {
        for (uint32_t i = 0; i < change->added_count; i++)
            KVT_TRY(segment_reserve(disk, disk_segment_find(image, change->added[i].segment)));
    }
    return KVT_OK;
}

static enum kvt_status
change_copy(const struct kvt_env *env, const struct index_batch *batch, struct disk_change *change)
{
    void *copy;

    KVT_TRY(array_copy(env, batch->emptied, batch->emptied_count * sizeof(*batch->emptied), &copy));
    change->emptied = copy;
    change->emptied_count = batch->emptied_count;
    KVT_TRY(array_copy(env, batch->deleted, batch->deleted_count * sizeof(*batch->deleted), &copy));
    change->deleted = copy;
    change->deleted_count = batch->deleted_count;
    KVT_TRY(
        array_copy(env, batch->segments, batch->segment_count * sizeof(*batch->segments), &copy));
    change->segments = copy;
    change->segment_count = batch->segment_count;
    KVT_TRY(array_copy(env, batch->added, batch->added_count * sizeof(*batch->added), &copy));
    change->added = copy;
    change->added_count = batch->added_count;
    /* Until each has its own copy, the bytes are the caller's: disk_drop() must not free them. */
    for (uint32_t i = 0; i < change->added_count; i++)
        change->added[i].bytes = NULL;
    for (uint32_t i = 0; i < change->added_count; i++) {
        KVT_TRY(array_copy(env, batch->added[i].bytes, batch->added[i].size, &copy));
        change->added[i].bytes = copy;
    }
    return KVT_OK;
}

enum kvt_status
disk_stage(struct index_disk *disk, struct disk_image *image, const struct index_batch *batch,
    enum disk_mark mark)
{
    struct disk_change *change = &disk->changes[disk->change_count];
    enum kvt_status status;

    KVT_ASSERT(disk->change_count < DISK_CHANGES_MAX);
    disk->change_count++;
    change->image = image;
    change->mark = mark;
    status = change_copy(&disk->env, batch, change);
    if (status == KVT_OK)
        status = image_reserve(disk, image);
    if (status != KVT_OK)
        disk_drop(disk);
    return status;
}

static void
change_destroy(const struct kvt_env *env, struct disk_change *change)
{
    for (uint32_t i = 0; i < change->added_count; i++)
        array_free(env, (void *)change->added[i].bytes, change->added[i].size);
    array_free(env, change->added, change->added_count * sizeof(*change->added));
    array_free(env, change->emptied, change->emptied_count * sizeof(*change->emptied));
    array_free(env, change->deleted, change->deleted_count * sizeof(*change->deleted));
    array_free(env, change->segments, change->segment_count * sizeof(*change->segments));
    *change = (struct disk_change){0};
}

void
disk_drop(struct index_disk *disk)
{
    if (disk->change_count > 0)
        change_destroy(&disk->env, &disk->changes[--disk->change_count]);
}

void
disk_drop_all(struct index_disk *disk)
{
    while (disk->change_count > 0)
        disk_drop(disk);
}

/* --- 4. Applying ------------------------------------------------------------------------------ */

static void
block_remove(struct index_disk *disk, struct disk_image *image, uint32_t number, uint32_t page)
{
    struct disk_segment *segment = disk_segment_find(image, number);
    uint32_t place;

    if (segment == NULL)
        return;
    place = disk_block_place(segment, page);
    if (place == segment->block_count || segment->blocks[place].page != page)
        return;
    image->used_bytes -= disk_block_cost(segment->blocks[place].size);
    env_put(&disk->env, segment->blocks[place].bytes, segment->blocks[place].size);
    segment->block_count--;
    memmove(segment->blocks + place, segment->blocks + place + 1,
        (segment->block_count - place) * sizeof(*segment->blocks));
    image->block_count--;
}

static void
segment_empty(struct index_disk *disk, struct disk_image *image, uint32_t number)
{
    struct disk_segment *segment = disk_segment_find(image, number);

    while (segment != NULL && segment->block_count > 0)
        block_remove(disk, image, number, segment->blocks[segment->block_count - 1].page);
}

/* `block`'s bytes become the image's. */
static void
block_insert(struct index_disk *disk, struct disk_image *image, const struct index_block *block)
{
    struct disk_segment *segment;
    uint32_t place;

    block_remove(disk, image, block->segment, block->page);
    segment = disk_segment_find(image, block->segment);
    KVT_ASSERT(segment != NULL && segment->block_count < segment->block_capacity);
    place = disk_block_place(segment, block->page);
    memmove(segment->blocks + place + 1, segment->blocks + place,
        (segment->block_count - place) * sizeof(*segment->blocks));
    segment->blocks[place].page = block->page;
    segment->blocks[place].size = block->size;
    segment->blocks[place].bytes = (uint8_t *)(uintptr_t)block->bytes;
    segment->block_count++;
    image->block_count++;
    image->used_bytes += disk_block_cost(block->size);
}

void
disk_apply(struct index_disk *disk)
{
    struct disk_change *change = &disk->changes[0];
    struct disk_image *image = change->image;

    if (disk->change_count == 0)
        return;
    for (uint32_t i = 0; i < change->emptied_count; i++)
        segment_empty(disk, image, change->emptied[i]);
    for (uint32_t i = 0; i < change->deleted_count; i++)
        block_remove(disk, image, change->deleted[i].segment, change->deleted[i].page);
    for (uint32_t i = 0; i < change->added_count; i++) {
        block_insert(disk, image, &change->added[i]);
        change->added[i].bytes = NULL;
    }
    for (uint32_t i = 0; i < change->segment_count; i++) {
        struct disk_segment *segment = disk_segment_find(image, change->segments[i].number);

        KVT_ASSERT(segment != NULL);
        if (!segment->has_facts)
            image->used_bytes += SEGMENT_COST;
        segment->has_facts = true;
        segment->segment = change->segments[i];
    }
    if (change->mark != DISK_MARK_KEEP) {
        image->is_clean = change->mark == DISK_MARK_CLEAN;
        image->is_finished = true;
    }
    change_destroy(&disk->env, change);
    disk->change_count--;
    for (uint32_t i = 0; i < disk->change_count; i++)
        disk->changes[i] = disk->changes[i + 1];
    disk->changes[disk->change_count] = (struct disk_change){0};
}

/* --- 5. The disk as tests see it -------------------------------------------------------------- */

enum kvt_status
index_disk_create(const struct kvt_env *env, struct index_disk **disk_out)
{
    struct index_disk *disk = env_take(env, sizeof(*disk));

    *disk_out = disk;
    if (disk == NULL)
        return memory_missing();
    disk->env = *env;
    return KVT_OK;
}

void
index_disk_destroy(struct index_disk *disk)
{
    struct kvt_env env;

    if (disk == NULL)
        return;
    disk_drop_all(disk);
    disk_image_destroy(disk, disk->current);
    disk_image_destroy(disk, disk->fresh);
    env = disk->env;
    env_put(&env, disk, sizeof(*disk));
}

void
index_disk_power_cut(struct index_disk *disk, uint32_t kept_count)
{
    for (uint32_t i = 0; i < kept_count; i++)
        disk_apply(disk);
    disk_drop_all(disk);
}

void
index_disk_fail(struct index_disk *disk, uint32_t n, enum kvt_status status)
{
    disk->fail_countdown = n;
    disk->fail_status = status;
}
