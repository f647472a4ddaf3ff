/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lazy_file.c - small files that may be lost: written beside the old one, renamed over it.
 */
#include "lazy_file.h"

#include "bytes.h"
#include "hash.h"
#include "store_internal.h"

static const uint64_t interval_ns = UINT64_C(60000000000);

enum {
    AT_MAGIC = 0,
    AT_CRC = 4, /* Of all behind it. */
    AT_SIZE = 8,
    HEAD_BYTES = 12,
};

struct lazy_file {
    struct kvt_store *store;
    const struct lazy_file_kind *kind;
    struct crew_job job;
    struct inbox done;
    struct task *nobody; /* NULL: whom the job wakes. */
    uint64_t written_ns;
    uint8_t *bytes; /* NULL: nothing is being written. */
    size_t size;    /* Of what is in `bytes`. */
    bool is_read_only;
};

static size_t
bytes_size_max(const struct lazy_file_kind *kind)
{
    return (size_t)HEAD_BYTES + kind->bytes_max;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void
bytes_give(struct lazy_file *file)
{
    env_put(&file->store->env, file->bytes, bytes_size_max(file->kind));
    file->bytes = NULL;
}

/* Whether there is memory to write it. */
static bool
bytes_take(struct lazy_file *file)
{
    file->bytes = env_take(&file->store->env, bytes_size_max(file->kind));
    return file->bytes != NULL;
}

/* Whether there is anything to keep. */
static bool
bytes_fill(struct lazy_file *file)
{
    size_t size = file->kind->fill(file->store, file->bytes + HEAD_BYTES);

    if (size == 0)
        return false;
    put_u32(file->bytes + AT_MAGIC, file->kind->magic);
    put_u32(file->bytes + AT_SIZE, (uint32_t)size);
    file->size = HEAD_BYTES + size;
    put_u32(file->bytes + AT_CRC, crc32c(0, file->bytes + AT_SIZE, file->size - AT_SIZE));
    return true;
}

static enum kvt_status
bytes_write(struct lazy_file *file)
{
    const struct fs_ops *fs = file->store->env.fs;
    struct fs_dir *dir = file->store->dir;
    struct fs_file *target;
    enum kvt_status status;

    KVT_TRY(fs->open(dir, file->kind->new_name, FS_CREATE, &target));
    status = fs->truncate(target, 0);
    if (status == KVT_OK)
        status = fs->write_at(target, file->bytes, file->size, 0);
    fs->close(target);
    KVT_TRY(status);
    return fs->rename(dir, file->kind->new_name, file->kind->name);
}

static void
job_run(struct crew_job *job)
{
    struct lazy_file *file = CONTAINER_OF(job, struct lazy_file, job);

    if (!file->kind->is_filled_apart || bytes_fill(file))
        (void)bytes_write(file); /* The next one may succeed. */
}

void
lazy_file_step(struct lazy_file *file)
{
    if (file == NULL || file->is_read_only)
        return;
    if (file->bytes != NULL && inbox_take(&file->done) != NULL)
        bytes_give(file);
    if (file->bytes != NULL || file->store->now_ns - file->written_ns < interval_ns)
        return;
    file->written_ns = file->store->now_ns;
    if (!bytes_take(file))
        return;
    if (!file->kind->is_filled_apart && !bytes_fill(file)) {
        bytes_give(file);
        return;
    }
    crew_submit(file->store->crew, &file->job);
}

void
lazy_file_write(struct lazy_file *file)
{
    if (file == NULL || (file->bytes == NULL && !bytes_take(file)))
        return;
    if (bytes_fill(file))
        (void)bytes_write(file);
}

void
lazy_file_close(struct lazy_file *file)
{
    if (file == NULL)
        return;
    bytes_give(file);
    env_put(&file->store->env, file, sizeof(*file));
}

/* --- Reading ---------------------------------------------------------------------------------- */

static bool
bytes_are_whole(const struct lazy_file_kind *kind, const uint8_t *bytes, size_t size)
{
    return size > HEAD_BYTES && get_u32(bytes + AT_MAGIC) == kind->magic &&
           get_u32(bytes + AT_SIZE) == size - HEAD_BYTES &&
           get_u32(bytes + AT_CRC) == crc32c(0, bytes + AT_SIZE, size - AT_SIZE);
}

enum kvt_status
lazy_file_read(const struct kvt_env *env, struct fs_dir *dir, const struct lazy_file_kind *kind,
    struct lazy_bytes *bytes_out)
{
    struct fs_file *file;
    size_t size = 0;
    enum kvt_status status;

    *bytes_out = (struct lazy_bytes){.memory = NULL};
    KVT_TRY(env->fs->open(dir, kind->name, FS_READ_ONLY, &file));
    bytes_out->memory = env_take(env, bytes_size_max(kind));
    if (bytes_out->memory == NULL)
        status = failure_set(KVT_E_NOMEM, 0, "no memory to read %s", kind->name);
    else
        status = env->fs->read_at(file, bytes_out->memory, bytes_size_max(kind), 0, &size);
    env->fs->close(file);
    if (status == KVT_OK && !bytes_are_whole(kind, bytes_out->memory, size))
        status = failure_set(KVT_E_CORRUPT, 0, "%s is damaged", kind->name);
    if (status != KVT_OK) {
        lazy_file_put(env, kind, bytes_out);
        return status;
    }
    bytes_out->source = bytes_out->memory + HEAD_BYTES;
    bytes_out->size = size - HEAD_BYTES;
    return KVT_OK;
}

void
lazy_file_put(
    const struct kvt_env *env, const struct lazy_file_kind *kind, struct lazy_bytes *bytes)
{
    env_put(env, bytes->memory, bytes_size_max(kind));
    *bytes = (struct lazy_bytes){.memory = NULL};
}

struct lazy_file *
lazy_file_open(struct kvt_store *store, const struct lazy_file_kind *kind)
{
    struct lazy_file *file = env_take(&store->env, sizeof(*file));
    struct lazy_bytes bytes;

    if (file == NULL)
        return NULL;
    file->store = store;
    file->kind = kind;
    file->job.run = job_run;
    file->job.done = &file->done;
    file->job.done_task = &file->nobody;
    file->is_read_only = store->is_read_only;
    file->written_ns = env_now(&store->env);
    if (lazy_file_read(&store->env, store->dir, kind, &bytes) == KVT_OK) {
        if (!kind->take(store, bytes.source, bytes.size))
            log_line(&store->logger, LOG_INFO, "lazy_file", "event=not_taken file=%s", kind->name);
        lazy_file_put(&store->env, kind, &bytes);
    }
    return file;
}
