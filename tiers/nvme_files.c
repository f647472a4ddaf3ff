/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_files.c - the data file of a root: made, grown, opened and probed.
 *
 * A new file is made under a temporary name and renamed when all its space is there and durable, so
 * that data.00 is never a file that is too short because of a crash (FORMAT.md section 7).
 */
#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

#define FILE_NAME "data.00"
#define FILE_NAME_NEW "data.00.new"

enum {
    PROBE_COUNT = 3, /* Pages that are tried before a file is said not to answer. */
};

/* What all steps need to know of one root. */
struct file_plan {
    const struct kvt_env *env;
    const struct nvme_options *options;
    struct fs_dir *dir;
    uint64_t segment_bytes;
    uint64_t wanted_bytes; /* Whole segments. */
    bool *is_made;         /* NULL: nobody wants to know. */
};

static void
plan_warn(const struct file_plan *plan, const char *what, uint64_t bytes)
{
    if (plan->options->logger != NULL)
        log_line(plan->options->logger, LOG_WARN, "nvme",
            "event=%s path=%s/" FILE_NAME " wanted_bytes=%llu file_bytes=%llu", what,
            plan->env->fs->dir_path(plan->dir), (unsigned long long)plan->wanted_bytes,
            (unsigned long long)bytes);
}

/* The read of a page has just failed. */
static void
page_warn(const struct file_plan *plan, uint64_t offset)
{
    if (plan->options->logger != NULL)
        log_line(plan->options->logger, LOG_WARN, "nvme",
            "event=page_unreadable path=%s/" FILE_NAME " offset=%llu text=\"%s\"",
            plan->env->fs->dir_path(plan->dir), (unsigned long long)offset, failure_last()->text);
}

/* The disk has fewer than the `wanted` bytes that the file is to get. */
static enum kvt_status
space_refuse(const struct file_plan *plan, uint64_t wanted, uint64_t free_bytes)
{
    return failure_set(KVT_E_NOSPC, 0, "%s: %llu more bytes are wanted for %s, %llu are free",
        plan->env->fs->dir_path(plan->dir), (unsigned long long)wanted, FILE_NAME,
        (unsigned long long)free_bytes);
}

/* As if it had not been asked for. What an allocation got that failed would stay the file's: ext4
 * keeps it, all that was free on the disk. */
static void
space_give_back(const struct file_plan *plan, struct fs_file *file, uint64_t from)
{
    struct failure first = *failure_last();

    (void)plan->env->fs->truncate(file, from);
    failure_copy(&first);
}

/*
 * Space for the file from `from` to its wanted size; sparse where the file system cannot reserve.
 * What the disk cannot have is not begun: until an allocation gives up, nobody else can write.
 */
static enum kvt_status
space_allocate(const struct file_plan *plan, struct fs_file *file, uint64_t from)
{
    const struct fs_ops *fs = plan->env->fs;
    uint64_t wanted = plan->wanted_bytes - from;
    uint64_t free_bytes = 0;
    enum kvt_status status;

    if (fs->dir_space(plan->dir, &free_bytes) == KVT_OK && free_bytes < wanted)
        return space_refuse(plan, wanted, free_bytes);
    status = fs->allocate(file, from, wanted);
    if (status == KVT_E_UNSUPPORTED) {
        plan_warn(plan, "sparse_file", from);
        status = fs->truncate(file, plan->wanted_bytes);
    }
    if (status == KVT_OK)
        return fs->sync(file);
    space_give_back(plan, file, from);
    if (status != KVT_E_NOSPC)
        return status;
    if (fs->dir_space(plan->dir, &free_bytes) != KVT_OK)
        free_bytes = 0;
    return space_refuse(plan, wanted, free_bytes);
}

static enum kvt_status
file_create(const struct file_plan *plan)
{
    const struct fs_ops *fs = plan->env->fs;
    struct fs_file *file = NULL;
    enum kvt_status status;

    status = fs->unlink(plan->dir, FILE_NAME_NEW); /* Of a creation that a crash interrupted. */
    if (status != KVT_OK && status != KVT_MISS)
        return status;
    KVT_TRY(fs->open(plan->dir, FILE_NAME_NEW, FS_CREATE | FS_EXCLUSIVE, &file));
    status = space_allocate(plan, file, 0);
    fs->close(file);
    if (status == KVT_OK)
        status = fs->rename(plan->dir, FILE_NAME_NEW, FILE_NAME);
    if (status != KVT_OK) {
        struct failure first = *failure_last();

        (void)fs->unlink(plan->dir, FILE_NAME_NEW);
        failure_copy(&first);
        return status;
    }
    if (plan->is_made != NULL)
        *plan->is_made = true;
    return fs->dir_sync(plan->dir);
}

static enum kvt_status
missing_refuse(const struct file_plan *plan)
{
    return failure_set(KVT_E_IO, 0,
        "%s/" FILE_NAME " is missing: is its disk mounted? A rebuild of the index that is "
        "asked for makes it anew, and gives its blocks up",
        plan->env->fs->dir_path(plan->dir));
}

/* There is none. In the place of one whose disk is not mounted a new one would take blocks that go
 * when that is back, and the blocks of that one would be given up. */
static enum kvt_status
file_make(const struct file_plan *plan, bool was_made)
{
    if (was_made && !plan->options->may_remake)
        return missing_refuse(plan);
    if (was_made)
        plan_warn(plan, "made_anew", 0);
    return file_create(plan);
}

/* The page that lies in memory of two, as direct reads want it. */
static uint8_t *
page_in(uint8_t *memory)
{
    return memory + (round_up((uintptr_t)memory, PAGE_BYTES) - (uintptr_t)memory);
}

/* The pages of a file that tell whether it answers: the first, a middle one and the last. */
static enum kvt_status
probe_places(const struct file_plan *plan, struct fs_file *file, uint64_t offsets_out[PROBE_COUNT])
{
    uint64_t size = 0;
    uint64_t last_page;

    KVT_TRY(plan->env->fs->size(file, &size));
    last_page = size == 0 ? 0 : (size - 1) / PAGE_BYTES;
    offsets_out[0] = 0;
    offsets_out[1] = last_page / 2 * PAGE_BYTES;
    offsets_out[2] = last_page * PAGE_BYTES;
    return KVT_OK;
}

/*
 * Read a page as transfers will: a file system may promise direct access and refuse it. A page that
 * the disk cannot read costs what stands there, not the store; a file of which none of several can
 * be read is on a disk that does not answer, and would be taken for an empty one.
 */
static enum kvt_status
file_probe(const struct file_plan *plan, struct fs_file *file)
{
    size_t size = 2 * PAGE_BYTES;
    uint64_t offsets[PROBE_COUNT];
    uint8_t *memory;
    enum kvt_status status = KVT_E_IO;

    KVT_TRY(probe_places(plan, file, offsets));
    memory = env_take(plan->env, size);
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %zu bytes", size);
    for (uint32_t i = 0; i < PROBE_COUNT && status == KVT_E_IO; i++) {
        uint8_t *page = page_in(memory);
        size_t read_size = 0;

        status = plan->env->fs->read_at(file, page, PAGE_BYTES, offsets[i], &read_size);
        if (status == KVT_E_IO)
            page_warn(plan, offsets[i]);
    }
    env_put(plan->env, memory, size);
    return status;
}

/* Whether a batch of another store begins at that page. One that cannot be read says nothing. */
static bool
page_is_of_another(
    const struct file_plan *plan, struct fs_file *file, uint64_t offset, uint8_t page[PAGE_BYTES])
{
    struct batch_header header;
    size_t size = 0;

    return plan->env->fs->read_at(file, page, PAGE_BYTES, offset, &size) == KVT_OK &&
           size == PAGE_BYTES && batch_header_peek(page, &header) == KVT_OK &&
           memcmp(header.store_uuid, plan->options->store_uuid, sizeof(header.store_uuid)) != 0;
}

/*
 * The file is there, and this store is not known to have made it: two stores with one file would
 * write over each other's blocks. What was ever written has a header at a segment's begin, or
 * behind the room of a recycle header. Another store's file without one cannot be told from what a
 * creation left that was cut short.
 */
static enum kvt_status
file_claim(const struct file_plan *plan, struct fs_file *file)
{
    size_t memory_size = 2 * PAGE_BYTES;
    uint8_t *memory = env_take(plan->env, memory_size);
    bool is_of_another = false;
    uint64_t size = 0;
    uint8_t *page;
    enum kvt_status status = plan->env->fs->size(file, &size);

    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %zu bytes", memory_size);
    page = page_in(memory);
    for (uint64_t at = 0; status == KVT_OK && at < size && !is_of_another;
         at += plan->segment_bytes)
        is_of_another =
            page_is_of_another(plan, file, at, page) ||
            page_is_of_another(plan, file, at + SEGMENT_HEAD_PAGES_MAX * PAGE_BYTES, page);
    env_put(plan->env, memory, memory_size);
    if (is_of_another)
        return failure_set(KVT_E_INVAL, 0,
            "%s/" FILE_NAME " is there already, and has blocks of another store",
            plan->env->fs->dir_path(plan->dir));
    return status;
}

/* Open data.00 for transfers: direct where that works. */
static enum kvt_status
file_open(const struct file_plan *plan, struct fs_file **file_out)
{
    const struct fs_ops *fs = plan->env->fs;
    unsigned flags = plan->options->read_only ? FS_READ_ONLY : 0;
    struct fs_file *file = NULL;
    enum kvt_status status;

    KVT_TRY(fs->open(plan->dir, FILE_NAME, flags | FS_DIRECT, &file));
    if (fs->is_direct(file) && fs->align(file) > PAGE_BYTES) {
        status = failure_set(KVT_E_UNSUPPORTED, 0,
            "%s: the file system wants transfers aligned to %u bytes, kvtier aligns to %d",
            fs->dir_path(plan->dir), fs->align(file), PAGE_BYTES);
        fs->close(file);
        return status;
    }
    status = file_probe(plan, file);
    if (status == KVT_E_INVAL && fs->is_direct(file)) {
        fs->close(file);
        KVT_TRY(fs->open(plan->dir, FILE_NAME, flags, &file));
        status = file_probe(plan, file);
    }
    if (status != KVT_OK) {
        fs->close(file);
        return status;
    }
    *file_out = file;
    return KVT_OK;
}

/* Grow a file that is shorter than wanted. *size_out: what can be used. */
static enum kvt_status
file_grow(const struct file_plan *plan, struct fs_file *file, uint64_t *size_out)
{
    uint64_t size = 0;
    enum kvt_status status;

    KVT_TRY(plan->env->fs->size(file, &size));
    if (size < plan->wanted_bytes && !plan->options->read_only) {
        status = space_allocate(plan, file, size);
        if (status == KVT_OK)
            size = plan->wanted_bytes;
        else if (status == KVT_E_NOSPC && size >= plan->segment_bytes)
            plan_warn(plan, "cannot_grow", size);
        else
            return status;
    }
    *size_out = size < plan->wanted_bytes ? size : plan->wanted_bytes;
    return KVT_OK;
}

static enum kvt_status
plan_make(const struct kvt_env *env, const struct nvme_options *options, uint32_t number,
    struct file_plan *plan)
{
    uint64_t count;

    plan->env = env;
    plan->options = options;
    plan->dir = options->roots[number];
    plan->is_made = options->is_made == NULL ? NULL : &options->is_made[number];
    plan->segment_bytes = (uint64_t)options->segment_pages * PAGE_BYTES;
    count = options->root_bytes[number] / plan->segment_bytes;
    if (count == 0 || count > 1u << 24)
        return failure_set(KVT_E_INVAL, 0,
            "%s: a capacity of %llu bytes is %llu segments of %llu bytes, allowed are 1..%u",
            env->fs->dir_path(plan->dir), (unsigned long long)options->root_bytes[number],
            (unsigned long long)count, (unsigned long long)plan->segment_bytes, 1u << 24);
    plan->wanted_bytes = count * plan->segment_bytes;
    return KVT_OK;
}

enum kvt_status
nvme_file_open(const struct kvt_env *env, const struct nvme_options *options, uint32_t number,
    struct nvme_root *root)
{
    struct fs_file *file = NULL;
    struct file_plan plan;
    uint64_t size = 0;
    enum kvt_status status;

    KVT_TRY(plan_make(env, options, number, &plan));
    status = file_open(&plan, &file);
    /* Without its blocks those of the other roots would look like all that there are. */
    if (status == KVT_MISS && options->read_only)
        return options->was_made[number] && !options->may_lack ? missing_refuse(&plan) : KVT_OK;
    if (status == KVT_MISS) {
        KVT_TRY(file_make(&plan, options->was_made[number]));
        KVT_TRY(file_open(&plan, &file));
    } else {
        KVT_TRY(status);
        if (!options->was_made[number])
            status = file_claim(&plan, file);
    }
    if (status == KVT_OK || status == KVT_MISS)
        status = file_grow(&plan, file, &size);
    if (status != KVT_OK) {
        env->fs->close(file);
        return status;
    }
    root->file = file;
    root->is_direct = env->fs->is_direct(file);
    root->align_bytes = env->fs->align(file);
    root->segment_count = (uint32_t)(size / plan.segment_bytes);
    return KVT_OK;
}
