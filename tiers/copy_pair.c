/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_pair.c - reading, choosing and writing the two copies of a small file.
 */
#include "copy_pair.h"

#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "try.h"

enum {
    AT_MAGIC = 0,
    AT_CRC = 4,
    AT_SEQUENCE = 8,
    HEAD_BYTES = 16,
};

/* --- Reading ---------------------------------------------------------------------------------- */

static void
copy_drop(const struct kvt_env *env, struct copy *copy, enum copy_state state, const char *reason)
{
    if (copy->bytes != NULL)
        env_put(env, copy->bytes, copy->size);
    copy->bytes = NULL;
    copy->size = 0;
    copy->state = state;
    copy->reason = reason;
}

/* NULL, or what is wrong with the bytes. */
static const char *
bytes_verify(const struct copy_format *format, const uint8_t *bytes, size_t size)
{
    if (get_u32(bytes + AT_MAGIC) != format->magic)
        return "its magic is another";
    if (format->length_at != 0 && get_u32(bytes + format->length_at) != size)
        return "its length is another";
    if (checksum_differs(
            get_u32(bytes + AT_CRC) != crc32c(0, bytes + AT_SEQUENCE, size - AT_SEQUENCE)))
        return "its CRC differs";
    if (get_u64(bytes + AT_SEQUENCE) == 0 || get_u64(bytes + AT_SEQUENCE) == UINT64_MAX)
        return "its sequence is impossible";
    return NULL;
}

static enum kvt_status
copy_load(struct copy_pair *pair, struct fs_file *file, struct copy *copy)
{
    const struct kvt_env *env = pair->env;
    const struct copy_format *format = pair->format;
    uint64_t size = 0;
    size_t read_size = 0;
    const char *reason;

    if (env->fs->size(file, &size) != KVT_OK) {
        copy_drop(env, copy, COPY_UNREADABLE, "it cannot be read");
        return KVT_OK;
    }
    if (size < format->size_min || size > format->size_max) {
        copy_drop(env, copy, COPY_DAMAGED, "its size is impossible");
        return KVT_OK;
    }
    copy->bytes = env_take(env, (size_t)size);
    if (copy->bytes == NULL)
        return failure_set(KVT_E_NOMEM, 0, "%s or %s: no memory for %llu bytes", format->names[0],
            format->names[1], (unsigned long long)size);
    copy->size = (size_t)size;
    if (env->fs->read_at(file, copy->bytes, copy->size, 0, &read_size) != KVT_OK ||
        read_size != copy->size) {
        copy_drop(env, copy, COPY_UNREADABLE, "it cannot be read");
        return KVT_OK;
    }
    reason = bytes_verify(format, copy->bytes, copy->size);
    if (reason != NULL) {
        copy_drop(env, copy, COPY_DAMAGED, reason);
        return KVT_OK;
    }
    copy->state = COPY_INTACT;
    copy->sequence = get_u64(copy->bytes + AT_SEQUENCE);
    return KVT_OK;
}

static enum kvt_status
copy_read(struct copy_pair *pair, struct fs_dir *dir, uint32_t which)
{
    struct copy *copy = &pair->copies[which];
    struct fs_file *file = NULL;
    enum kvt_status status;

    status = pair->env->fs->open(dir, pair->format->names[which], FS_READ_ONLY, &file);
    if (status == KVT_MISS) {
        copy->state = COPY_ABSENT;
        copy->reason = "it is missing";
        return KVT_OK;
    }
    if ((status == KVT_E_IO && !failure_lacks_descriptor()) || status == KVT_E_INVAL) {
        copy_drop(pair->env, copy, status == KVT_E_IO ? COPY_UNREADABLE : COPY_DAMAGED,
            "it cannot be opened");
        return KVT_OK;
    }
    KVT_TRY(status);
    status = copy_load(pair, file, copy);
    pair->env->fs->close(file);
    return status;
}

enum kvt_status
copy_pair_read(const struct kvt_env *env, struct fs_dir *dir, const struct copy_format *format,
    struct copy_pair *pair_out)
{
    memset(pair_out, 0, sizeof(*pair_out));
    pair_out->env = env;
    pair_out->format = format;
    for (uint32_t i = 0; i < 2; i++) {
        enum kvt_status status = copy_read(pair_out, dir, i);

        if (status != KVT_OK) {
            copy_pair_deinit(pair_out);
            return status;
        }
    }
    return KVT_OK;
}

void
copy_pair_deinit(struct copy_pair *pair)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct copy *copy = &pair->copies[i];

        if (copy->bytes != NULL)
            env_put(pair->env, copy->bytes, copy->size);
        copy->bytes = NULL;
    }
}

/* --- Choosing --------------------------------------------------------------------------------- */

struct copy *
copy_pair_best(struct copy_pair *pair)
{
    struct copy *best = NULL;

    for (uint32_t i = 0; i < 2; i++) {
        struct copy *copy = &pair->copies[i];

        if (copy->state == COPY_INTACT && (best == NULL || copy->sequence > best->sequence))
            best = copy;
    }
    return best;
}

void
copy_pair_reject(struct copy *copy, const char *reason)
{
    KVT_ASSERT(copy->state == COPY_INTACT);
    copy->state = COPY_DAMAGED;
    copy->reason = reason;
}

void
copy_pair_examine(const struct copy_pair *pair,
    void (*found)(void *context, const char *name, const char *reason), void *context)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (pair->copies[i].state != COPY_INTACT)
            found(context, pair->format->names[i], pair->copies[i].reason);
    }
}

static bool
one_is_unreadable(const struct copy_pair *pair)
{
    return pair->copies[0].state == COPY_UNREADABLE || pair->copies[1].state == COPY_UNREADABLE;
}

enum kvt_status
copy_pair_failure(const struct copy_pair *pair, struct fs_dir *dir)
{
    const struct copy *copies = pair->copies;
    const char *const *names = pair->format->names;

    if (copies[0].state == COPY_ABSENT && copies[1].state == COPY_ABSENT)
        return KVT_MISS;
    return failure_set(one_is_unreadable(pair) ? KVT_E_IO : KVT_E_CORRUPT, 0,
        "%s: neither copy is whole: %s (%s), %s (%s)", pair->env->fs->dir_path(dir), names[0],
        copies[0].reason, names[1], copies[1].reason);
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* The copy to write: never the one that counts now, and preferably one that is worth least. */
static uint32_t
target_choose(const struct copy_pair *pair, uint64_t sequence)
{
    const struct copy *copies = pair->copies;

    for (uint32_t i = 0; i < 2; i++) {
        if (copies[i].state == COPY_INTACT && copies[i].sequence == sequence)
            return 1 - i;
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (copies[i].state != COPY_INTACT)
            return i;
    }
    return copies[0].sequence <= copies[1].sequence ? 0 : 1;
}

static enum kvt_status
io_failure(void)
{
    struct failure cause = *failure_last();

    return failure_set(KVT_E_IO, cause.foreign_code, "%s", cause.text);
}

/* KVT_E_NOMEM: nothing was written. Behind the open that is KVT_E_IO, as a folder that is gone (of
 * a pair KVT_MISS says that neither copy is there), or is not ours. */
static enum kvt_status
copy_write(const struct copy_pair *pair, struct fs_dir *dir, const char *name, const uint8_t *bytes,
    size_t size)
{
    const struct fs_ops *fs = pair->env->fs;
    struct fs_file *file = NULL;
    enum kvt_status status;

    status = fs->open(dir, name, FS_CREATE, &file);
    if (status == KVT_MISS || status == KVT_E_PERMISSION)
        return io_failure();
    KVT_TRY(status);
    KVT_TRY_GOTO(fs->write_at(file, bytes, size, 0), close);
    KVT_TRY_GOTO(fs->truncate(file, size), close);
    KVT_TRY_GOTO(fs->sync(file), close);
    status = fs->dir_sync(dir);
close:
    fs->close(file);
    return status == KVT_E_NOMEM ? io_failure() : status;
}

/* Beside the copy whose sequence is *sequence: there it is the new one. */
static enum kvt_status
next_write(
    struct copy_pair *pair, struct fs_dir *dir, uint8_t *bytes, size_t size, uint64_t *sequence)
{
    const struct copy_format *format = pair->format;
    uint32_t target = target_choose(pair, *sequence);
    uint64_t next = *sequence;

    /* A copy that was written but whose sync failed may count after a crash: pass it too. */
    for (uint32_t i = 0; i < 2; i++) {
        if (pair->copies[i].state == COPY_INTACT && pair->copies[i].sequence > next)
            next = pair->copies[i].sequence;
    }
    next++;
    put_u32(bytes + AT_MAGIC, format->magic);
    put_u64(bytes + AT_SEQUENCE, next);
    put_u32(bytes + AT_CRC, crc32c(0, bytes + AT_SEQUENCE, size - AT_SEQUENCE));
    KVT_TRY(copy_write(pair, dir, format->names[target], bytes, size));
    pair->copies[target].state = COPY_INTACT;
    pair->copies[target].sequence = next;
    *sequence = next;
    return KVT_OK;
}

enum kvt_status
copy_pair_write(
    struct copy_pair *pair, struct fs_dir *dir, uint8_t *bytes, size_t size, uint64_t *sequence)
{
    const struct copy_format *format = pair->format;
    char cause[FAILURE_TEXT_BYTES];

    KVT_ASSERT(size >= format->size_min && size <= format->size_max && size > HEAD_BYTES);
    /* It may be the one that counts: a write that is cut short would leave none. */
    if (*sequence != 0 && copy_pair_best(pair) == NULL && one_is_unreadable(pair))
        return copy_pair_failure(pair, dir);
    KVT_TRY(next_write(pair, dir, bytes, size, sequence));
    /* The same again into the other copy: who can read only one of them later finds it there. */
    if (next_write(pair, dir, bytes, size, sequence) == KVT_OK)
        return KVT_OK;
    memcpy(cause, failure_last()->text, sizeof(cause));
    return failure_set(KVT_E_IO, 0, "one copy of %s and %s was written, not the other: %s",
        format->names[0], format->names[1], cause);
}
