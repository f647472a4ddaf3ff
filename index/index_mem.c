/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_mem.c - the index without a file, for simulations: what is durable is on an index_disk.
 *
 * Owns      nothing but its handle: the index may vanish in a simulated power cut.
 * Not here  the disk (index_disk.c).
 * Threads   one at a time.
 *
 * A commit that is made to fail with anything but KVT_E_NOSPC stays staged on the disk, as after an
 * error of the real index, and so does one that was deferred, until the next, or a sync, is good:
 * index_disk_power_cut() decides whether the next life finds them; without a power cut the next
 * open, or create, finds nothing of them.
 */
#include <string.h>

#include "failure.h"
#include "index_disk_internal.h"
#include "try.h"

enum {
    RESERVE_DIVISOR = 4, /* A quarter of the map is kept for deletions. */
};

struct index_mem {
    struct index index; /* First: the vtable's functions get a pointer to it. */
    struct kvt_env env;
    struct index_disk *disk;
    struct disk_image *image;
    uint64_t commit_count;
    bool is_read_only;
    bool is_failed;   /* A commit failed: no other is tried. */
    bool is_deferred; /* The oldest staged change was committed, and is not durable. */
};

static struct index_mem *
mem_of(struct index *index)
{
    return (struct index_mem *)(void *)index;
}

/* --- 1. Opening ------------------------------------------------------------------------------- */

static enum kvt_status
mem_inspect(void *context, const struct kvt_env *env, struct fs_dir *dir,
    enum index_condition *condition_out)
{
    const struct index_disk *disk = context;

    (void)env;
    (void)dir;
    if (disk->current == NULL) {
        *condition_out = INDEX_ABSENT;
    } else if (!disk->current->is_finished) {
        *condition_out = INDEX_DAMAGED;
        (void)failure_set(KVT_E_CORRUPT, 0, "The in-memory index was not finished.");
    } else {
        *condition_out = disk->current->is_clean ? INDEX_CLEAN : INDEX_UNCLEAN;
    }
    return KVT_OK;
}

static enum kvt_status
handle_create(const struct kvt_env *env, struct index_disk *disk, struct disk_image *image,
    struct index_mem **mem_out)
{
    struct index_mem *mem = env_take(env, sizeof(*mem));

    *mem_out = mem;
    if (mem == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for the handle of the in-memory index.");
    mem->index.ops = &index_mem_ops;
    mem->env = *env;
    mem->disk = disk;
    mem->image = image;
    return KVT_OK;
}

static void
fresh_remove(struct index_disk *disk)
{
    disk_image_destroy(disk, disk->fresh);
    disk->fresh = NULL;
}

static enum kvt_status
mem_create(void *context, const struct kvt_env *env, struct fs_dir *dir, uint64_t map_bytes,
    struct index **index_out)
{
    struct index_disk *disk = context;
    struct disk_image *image;
    struct index_mem *mem;
    enum kvt_status status;

    (void)dir;
    *index_out = NULL;
    disk_drop_all(disk);
    fresh_remove(disk);
    KVT_TRY(disk_image_create(disk, map_bytes, &image));
    status = handle_create(env, disk, image, &mem);
    if (status != KVT_OK) {
        disk_image_destroy(disk, image);
        return status;
    }
    disk->fresh = image;
    *index_out = &mem->index;
    return KVT_OK;
}

/* What was deferred is durable. */
static void
deferred_settle(struct index_mem *mem)
{
    if (mem->is_deferred)
        disk_apply(mem->disk);
    mem->is_deferred = false;
}

static enum kvt_status
mem_install(struct index *index)
{
    struct index_mem *mem = mem_of(index);
    struct index_disk *disk = mem->disk;

    if (mem->image != disk->fresh)
        return failure_set(KVT_E_STATE, 0, "Only an index that was just made can be installed.");
    deferred_settle(mem);
    disk_image_destroy(disk, disk->current);
    disk->current = disk->fresh;
    disk->fresh = NULL;
    return KVT_OK;
}

static enum kvt_status
mem_open(void *context, const struct kvt_env *env, struct fs_dir *dir, bool read_only,
    struct index **index_out)
{
    struct index_disk *disk = context;
    struct index_mem *mem;

    (void)dir;
    *index_out = NULL;
    if (disk->current == NULL)
        return failure_set(KVT_MISS, 0, "There is no in-memory index on this disk.");
    disk_drop_all(disk);
    KVT_TRY(handle_create(env, disk, disk->current, &mem));
    mem->is_read_only = read_only;
    if (!read_only)
        fresh_remove(disk);
    *index_out = &mem->index;
    return KVT_OK;
}

static enum kvt_status
mem_remove(void *context, const struct kvt_env *env, struct fs_dir *dir)
{
    struct index_disk *disk = context;

    (void)env;
    (void)dir;
    fresh_remove(disk);
    disk_image_destroy(disk, disk->current);
    disk->current = NULL;
    return KVT_OK;
}

static void
mem_close(struct index *index)
{
    struct index_mem *mem;
    struct kvt_env env;

    if (index == NULL)
        return;
    mem = mem_of(index);
    env = mem->env;
    if (mem->image == mem->disk->fresh)
        fresh_remove(mem->disk);
    env_put(&env, mem, sizeof(*mem));
}

/* --- 2. Transactions -------------------------------------------------------------------------- */

static enum kvt_status
write_check(const struct index_mem *mem)
{
    if (mem->is_read_only)
        return failure_set(KVT_E_READONLY, 0, "The in-memory index was opened for reading.");
    if (mem->is_failed)
        return failure_set(KVT_E_META, 0, "A commit of the in-memory index failed before.");
    return KVT_OK;
}

/* Whether the test wants this commit, or sync, to fail. */
static bool
failure_is_due(struct index_disk *disk)
{
    bool is_due = disk->fail_countdown == 1;

    if (disk->fail_countdown > 0)
        disk->fail_countdown--;
    return is_due;
}

/* Make the staged change durable (deferred: only with the next), or fail as the test wants. */
static enum kvt_status
change_run(struct index_mem *mem, bool is_deferred)
{
    struct index_disk *disk = mem->disk;

    if (!failure_is_due(disk)) {
        deferred_settle(mem);
        mem->is_deferred = is_deferred;
        if (!is_deferred)
            disk_apply(disk);
        mem->commit_count++;
        return KVT_OK;
    }
    if (disk->fail_status == KVT_E_NOSPC)
        disk_drop(disk);
    else
        mem->is_failed = true;
    return failure_set(disk->fail_status, 0, "This commit was made to fail.");
}

static enum kvt_status
change_stage(struct index_mem *mem, const struct index_batch *batch, enum disk_mark mark)
{
    if (disk_stage(mem->disk, mem->image, batch, mark) == KVT_OK)
        return KVT_OK;
    mem->is_failed = true;
    return failure_set(KVT_E_META, 0, "No memory for a commit of the in-memory index.");
}

/* Bytes that the batch's deletions give back. */
static uint64_t
deleted_cost(const struct disk_image *image, const struct index_batch *batch)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < batch->emptied_count; i++) {
        const struct disk_segment *segment = disk_segment_find(image, batch->emptied[i]);

        for (uint32_t j = 0; segment != NULL && j < segment->block_count; j++)
            bytes += disk_block_cost(segment->blocks[j].size);
    }
    for (uint32_t i = 0; i < batch->deleted_count; i++) {
        const struct index_block *block = &batch->deleted[i];
        const struct disk_segment *segment = disk_segment_find(image, block->segment);
        uint32_t place = segment == NULL ? 0 : disk_block_place(segment, block->page);

        if (segment != NULL && place < segment->block_count &&
            segment->blocks[place].page == block->page)
            bytes += disk_block_cost(segment->blocks[place].size);
    }
    return bytes;
}

/* What is used of the map behind a batch, when `used` is before it. */
static uint64_t
used_behind(const struct disk_image *image, uint64_t used, const struct index_batch *batch)
{
    uint64_t freed = deleted_cost(image, batch);

    /* A place that is named twice counts twice: the sum may exceed what is there. */
    used -= freed < used ? freed : used;
    for (uint32_t i = 0; i < batch->added_count; i++)
        used += disk_block_cost(batch->added[i].size);
    return used;
}

/* Additions may not use the quarter of the map that is kept for deletions. */
static enum kvt_status
room_check(const struct index_mem *mem, const struct index_batch *batch)
{
    const struct disk_image *image = mem->image;
    const struct disk_change *deferred = &mem->disk->changes[0];
    uint64_t limit = image->map_bytes - image->map_bytes / RESERVE_DIVISOR;
    uint64_t used = image->used_bytes;

    if (batch->added_count == 0)
        return KVT_OK;
    if (mem->is_deferred)
        used = used_behind(image, used,
            &(struct index_batch){.emptied = deferred->emptied,
                .emptied_count = deferred->emptied_count,
                .deleted = deferred->deleted,
                .deleted_count = deferred->deleted_count,
                .added = deferred->added,
                .added_count = deferred->added_count});
    used = used_behind(image, used, batch);
    if (used <= limit)
        return KVT_OK;
    return failure_set(KVT_E_NOSPC, 0,
        "The in-memory index would have %llu bytes, of a map of %llu may be used %llu.",
        (unsigned long long)used, (unsigned long long)image->map_bytes, (unsigned long long)limit);
}

static enum kvt_status
batch_commit(struct index_mem *mem, const struct index_batch *batch, bool is_deferred)
{
    KVT_TRY(write_check(mem));
    KVT_TRY(room_check(mem, batch));
    KVT_TRY(change_stage(mem, batch, DISK_MARK_KEEP));
    return change_run(mem, is_deferred);
}

static enum kvt_status
mem_commit(struct index *index, const struct index_batch *batch)
{
    return batch_commit(mem_of(index), batch, false);
}

static enum kvt_status
mem_commit_deferred(struct index *index, const struct index_batch *batch)
{
    return batch_commit(mem_of(index), batch, true);
}

static enum kvt_status
mem_sync(struct index *index)
{
    struct index_mem *mem = mem_of(index);

    KVT_TRY(write_check(mem));
    mem->is_failed = failure_is_due(mem->disk);
    if (mem->is_failed)
        return failure_set(KVT_E_META, 0, "This sync was made to fail.");
    deferred_settle(mem);
    return KVT_OK;
}

static enum kvt_status
mem_grow(struct index *index, uint64_t map_bytes)
{
    struct index_mem *mem = mem_of(index);
    uint64_t doubled;

    KVT_TRY(write_check(mem));
    if (__builtin_mul_overflow(mem->image->map_bytes, 2u, &doubled))
        return failure_set(KVT_E_INVAL, 0, "The map of the in-memory index cannot double.");
    mem->image->map_bytes = doubled > map_bytes ? doubled : map_bytes;
    return KVT_OK;
}

static enum kvt_status
mem_mark(struct index *index, bool clean)
{
    struct index_mem *mem = mem_of(index);
    const struct index_batch nothing = {0};

    KVT_TRY(write_check(mem));
    KVT_TRY(change_stage(mem, &nothing, clean ? DISK_MARK_CLEAN : DISK_MARK_UNCLEAN));
    return change_run(mem, false);
}

/* --- 3. Reading ------------------------------------------------------------------------------- */

static enum kvt_status
mem_each_block(struct index *index, bool (*visit)(void *visitor, const struct index_block *block),
    void *visitor)
{
    const struct disk_image *image = mem_of(index)->image;

    for (uint32_t i = 0; i < image->segment_count; i++) {
        const struct disk_segment *segment = image->segments[i];

        for (uint32_t j = 0; j < segment->block_count; j++) {
            const struct index_block block = {
                .segment = segment->number,
                .page = segment->blocks[j].page,
                .bytes = segment->blocks[j].bytes,
                .size = segment->blocks[j].size,
            };

            if (!visit(visitor, &block))
                return KVT_OK;
        }
    }
    return KVT_OK;
}

static enum kvt_status
mem_each_segment(struct index *index,
    bool (*visit)(void *visitor, const struct index_segment *segment), void *visitor)
{
    const struct disk_image *image = mem_of(index)->image;

    for (uint32_t i = 0; i < image->segment_count; i++) {
        if (image->segments[i]->has_facts && !visit(visitor, &image->segments[i]->segment))
            return KVT_OK;
    }
    return KVT_OK;
}

static void
mem_stats(struct index *index, struct index_stats *stats_out)
{
    const struct index_mem *mem = mem_of(index);

    stats_out->map_bytes = mem->image->map_bytes;
    stats_out->used_bytes = mem->image->used_bytes;
    stats_out->block_count = mem->image->block_count;
    stats_out->commit_count = mem->commit_count;
}

const struct index_ops index_mem_ops = {
    .name = "mem",
    .inspect = mem_inspect,
    .create = mem_create,
    .install = mem_install,
    .open = mem_open,
    .remove = mem_remove,
    .commit = mem_commit,
    .commit_deferred = mem_commit_deferred,
    .sync = mem_sync,
    .grow = mem_grow,
    .mark = mem_mark,
    .each_block = mem_each_block,
    .each_segment = mem_each_segment,
    .stats = mem_stats,
    .close = mem_close,
};
