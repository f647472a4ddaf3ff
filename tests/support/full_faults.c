/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full_faults.c - see full_faults.h.
 */
#include "full_faults.h"

#include "failure.h"

struct full_faults full_faults;

static struct {
    struct kvt_env env;
    struct fs_ops fs;
    const struct fs_ops *below;
} layer;

static bool
is_data(struct fs_file *file)
{
    uint64_t bytes = 0;

    /* It fails when the power is off. */
    return layer.below->size(file, &bytes) == KVT_OK && bytes == (uint64_t)FULL_SEGMENTS << 20;
}

static bool
has_page(struct fs_file *file, size_t size, uint64_t offset)
{
    return full_faults.page != FULL_PAGE_NONE && offset <= full_faults.page * PAGE_BYTES &&
           full_faults.page * PAGE_BYTES < offset + size && is_data(file);
}

static enum kvt_status
read_around(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (has_page(file, size, offset))
        return failure_set(KVT_E_IO, 5, "a page cannot be read on purpose");
    return layer.below->read_at(file, target, size, offset, read_out);
}

static enum kvt_status
write_around(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    if (is_data(file)) {
        full_faults.write_count++;
        if (full_faults.write_status != KVT_OK)
            return failure_set(full_faults.write_status, 5, "a write fails on purpose");
    }
    if (full_faults.is_mending && has_page(file, size, offset))
        full_faults.page = FULL_PAGE_NONE;
    return layer.below->write_at(file, source, size, offset);
}

static enum kvt_status
sync_around(struct fs_file *file)
{
    if (full_faults.sync_status != KVT_OK && is_data(file))
        return failure_set(full_faults.sync_status, 5, "a sync fails on purpose");
    return layer.below->sync(file);
}

struct full_store *
full_begin_faulty(uint64_t seed)
{
    struct full_store *full = full_begin_hasty(seed);

    full_faults = (struct full_faults){.page = FULL_PAGE_NONE};
    layer.env = *full->reach.env;
    layer.below = layer.env.fs;
    layer.fs = *layer.below;
    layer.fs.read_at = read_around;
    layer.fs.write_at = write_around;
    layer.fs.sync = sync_around;
    layer.env.fs = &layer.fs;
    full->reach.env = &layer.env;
    return full;
}
