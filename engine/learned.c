/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learned.c - the file of what was learned: written beside the old one, renamed over it.
 */
#include "learned.h"

#include "bytes.h"
#include "hash.h"
#include "store_internal.h"

#define LEARNED_NAME "learned"
#define LEARNED_NEW_NAME "learned.new"
#define LEARNED_MAGIC UINT32_C(0x6C9E21D4)

static const uint64_t interval_ns = UINT64_C(60000000000);

enum {
    AT_MAGIC = 0,
    AT_CRC = 4, /* Of all behind it. */
    AT_SIZE = 8,
    HEAD_BYTES = 12,
};

struct learned {
    struct kvt_store *store;
    struct crew_job job;
    struct inbox done;
    struct task *nobody; /* NULL: whom the job wakes. */
    uint64_t written_ns;
    size_t size; /* Of what is in `bytes`. */
    bool is_writing;
    bool is_stopped;
    uint8_t bytes[HEAD_BYTES + POLICY_STATE_BYTES_MAX];
};

/* --- Writing ---------------------------------------------------------------------------------- */

/* Whether the policy has anything to keep. */
static bool
bytes_gather(struct learned *learned)
{
    struct policy *policy = learned->store->policy;
    size_t size = policy->ops->save(policy, learned->bytes + HEAD_BYTES);

    if (size == 0)
        return false;
    put_u32(learned->bytes + AT_MAGIC, LEARNED_MAGIC);
    put_u32(learned->bytes + AT_SIZE, (uint32_t)size);
    learned->size = HEAD_BYTES + size;
    put_u32(learned->bytes + AT_CRC, crc32c(0, learned->bytes + AT_SIZE, learned->size - AT_SIZE));
    return true;
}

static enum kvt_status
file_write(struct learned *learned)
{
    const struct fs_ops *fs = learned->store->env.fs;
    struct fs_dir *dir = learned->store->dir;
    struct fs_file *file;
    enum kvt_status status;

    KVT_TRY(fs->open(dir, LEARNED_NEW_NAME, FS_CREATE, &file));
    status = fs->truncate(file, 0);
    if (status == KVT_OK)
        status = fs->write_at(file, learned->bytes, learned->size, 0);
    fs->close(file);
    KVT_TRY(status);
    return fs->rename(dir, LEARNED_NEW_NAME, LEARNED_NAME);
}

static void
job_run(struct crew_job *job)
{
    struct learned *learned = CONTAINER_OF(job, struct learned, job);

    (void)file_write(learned); /* The next one may succeed. */
}

void
learned_step(struct kvt_store *store)
{
    struct learned *learned = store->learned;

    if (learned == NULL || learned->is_stopped)
        return;
    if (learned->is_writing && inbox_take(&learned->done) != NULL)
        learned->is_writing = false;
    if (learned->is_writing || store->now_ns - learned->written_ns < interval_ns)
        return;
    learned->written_ns = store->now_ns;
    if (!bytes_gather(learned))
        return;
    learned->is_writing = true;
    crew_submit(store->crew, &learned->job);
}

void
learned_stop(struct kvt_store *store)
{
    if (store->learned != NULL)
        store->learned->is_stopped = true;
}

void
learned_write(struct kvt_store *store)
{
    if (store->learned != NULL && bytes_gather(store->learned))
        (void)file_write(store->learned);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static bool
bytes_are_whole(const struct learned *learned)
{
    const uint8_t *bytes = learned->bytes;

    return learned->size > HEAD_BYTES && get_u32(bytes + AT_MAGIC) == LEARNED_MAGIC &&
           get_u32(bytes + AT_SIZE) == learned->size - HEAD_BYTES &&
           get_u32(bytes + AT_CRC) == crc32c(0, bytes + AT_SIZE, learned->size - AT_SIZE);
}

static bool
file_read(struct learned *learned)
{
    const struct fs_ops *fs = learned->store->env.fs;
    struct fs_file *file;
    enum kvt_status status;

    if (fs->open(learned->store->dir, LEARNED_NAME, FS_READ_ONLY, &file) != KVT_OK)
        return false;
    status = fs->read_at(file, learned->bytes, sizeof(learned->bytes), 0, &learned->size);
    fs->close(file);
    return status == KVT_OK && bytes_are_whole(learned);
}

void
learned_open(struct kvt_store *store)
{
    struct learned *learned = env_take(&store->env, sizeof(*learned));
    struct policy *policy = store->policy;

    if (learned == NULL)
        return;
    learned->store = store;
    learned->job.run = job_run;
    learned->job.done = &learned->done;
    learned->job.done_task = &learned->nobody;
    learned->is_stopped = store->is_read_only;
    learned->written_ns = env_now(&store->env);
    store->learned = learned;
    if (file_read(learned) &&
        !policy->ops->restore(policy, learned->bytes + HEAD_BYTES, learned->size - HEAD_BYTES))
        log_line(&store->logger, LOG_INFO, "learned", "event=not_taken");
}

void
learned_close(struct kvt_store *store)
{
    env_put(&store->env, store->learned, sizeof(*store->learned));
    store->learned = NULL;
}
