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
    FILL_BYTES = 1 << 16, /* Zeros in one write. */
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
space_check(const struct index_lmdb *lmdb, uint64_t wanted)
{
    const struct fs_ops *fs = lmdb->env.fs;
    uint64_t free_bytes = 0;

    if (fs->dir_space(lmdb->dir, &free_bytes) != KVT_OK || free_bytes >= wanted)
        return KVT_OK;
    return failure_set(KVT_E_NOSPC, 0, "%s/%s: %llu more bytes are wanted, %llu are free",
        fs->dir_path(lmdb->dir), lmdb->file_name, (unsigned long long)wanted,
        (unsigned long long)free_bytes);
}

/* Zeros from `offset` to `size`. They are nobody's memory: a growth takes none, and no descriptor,
 * as a lack of either would end all commits. */
static enum kvt_status
zeros_write(const struct index_lmdb *lmdb, uint64_t offset, uint64_t size)
{
    static const uint8_t zeros[FILL_BYTES];
    enum kvt_status status = KVT_OK;

    while (status == KVT_OK && offset < size) {
        uint64_t count = size - offset < FILL_BYTES ? size - offset : FILL_BYTES;

        status = lmdb->env.fs->write_at(lmdb->file, zeros, (size_t)count, offset);
        offset += count;
    }
    return status;
}

enum kvt_status
lmdb_file_fill(const struct index_lmdb *lmdb, uint64_t size)
{
    const struct fs_ops *fs = lmdb->env.fs;
    enum kvt_status status = KVT_OK;
    struct failure first;
    uint64_t old_size;

    KVT_TRY(fs->size(lmdb->file, &old_size));
    if (old_size < size) {
        KVT_TRY(space_check(lmdb, size - old_size));
        status = zeros_write(lmdb, old_size, size);
    }
    if (status == KVT_OK)
        status = fs->sync(lmdb->file);
    if (status != KVT_OK && old_size < size) {
        /* Give the space back, and keep the sentence about the cause. */
        first = *failure_last();
        (void)fs->truncate(lmdb->file, old_size);
        failure_copy(&first);
    }
    return status;
}
