/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_file.c - the index's file before and beside LMDB: made, filled with zeros.
 *
 * Why       LMDB would let its file grow while it commits. Growth can be lost under an I/O error
 *           while the next commit is acknowledged; the later open then dies of SIGBUS. So the file
 *           has its full size, as written zeros and not as a hole, before a transaction needs it.
 */
#include "bytes.h"
#include "failure.h"
#include "index_lmdb_internal.h"
#include "try.h"

enum {
    FILL_BYTES = 1 << 20, /* Zeros in one write. */
};

enum kvt_status
lmdb_file_create(const struct kvt_env *env, struct fs_dir *dir, struct fs_file **file_out)
{
    enum kvt_status status = env->fs->unlink(dir, LMDB_FILE_NAME_NEW);

    if (status != KVT_OK && status != KVT_MISS)
        return status;
    status = env->fs->open(dir, LMDB_FILE_NAME_NEW, FS_CREATE | FS_EXCLUSIVE, file_out);
    if (status == KVT_EXISTS)
        return failure_set(KVT_E_BUSY, 0, "Somebody else made %s.", LMDB_FILE_NAME_NEW);
    return status;
}

/* What the disk does not have is not begun: until it is full, and again until all is given back,
 * nobody else could write to it. */
static enum kvt_status
space_check(const struct kvt_env *env, struct fs_dir *dir, const char *name, uint64_t wanted)
{
    uint64_t free_bytes = 0;

    if (env->fs->dir_space(dir, &free_bytes) != KVT_OK || free_bytes >= wanted)
        return KVT_OK;
    return failure_set(KVT_E_NOSPC, 0, "%s/%s: %llu more bytes are wanted, %llu are free",
        env->fs->dir_path(dir), name, (unsigned long long)wanted, (unsigned long long)free_bytes);
}

/* Zeros from `offset` to `size`. */
static enum kvt_status
zeros_write(const struct kvt_env *env, struct fs_file *file, uint64_t offset, uint64_t size)
{
    void *zeros = env_take(env, FILL_BYTES);
    enum kvt_status status = KVT_OK;

    if (zeros == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to extend the index's file.");
    while (status == KVT_OK && offset < size) {
        uint64_t count = size - offset < FILL_BYTES ? size - offset : FILL_BYTES;

        status = env->fs->write_at(file, zeros, (size_t)count, offset);
        offset += count;
    }
    env_put(env, zeros, FILL_BYTES);
    return status;
}

enum kvt_status
lmdb_file_fill(const struct kvt_env *env, struct fs_dir *dir, const char *name, uint64_t size)
{
    struct fs_file *file;
    struct failure first;
    uint64_t old_size;
    enum kvt_status status;

    KVT_TRY(env->fs->open(dir, name, 0, &file));
    KVT_TRY_GOTO(env->fs->size(file, &old_size), close_file);
    if (old_size < size)
        KVT_TRY_GOTO(space_check(env, dir, name, size - old_size), close_file);
    if (old_size < size)
        status = zeros_write(env, file, old_size, size);
    if (status == KVT_OK)
        status = env->fs->sync(file);
    if (status != KVT_OK && old_size < size) {
        /* Give the space back, and keep the sentence about the cause. */
        first = *failure_last();
        (void)env->fs->truncate(file, old_size);
        failure_copy(&first);
    }
close_file:
    env->fs->close(file);
    return status;
}
