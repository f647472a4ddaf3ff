/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_file.c - the bytes of STORE.a and STORE.b (FORMAT.md section 3.1), and the owner's lock.
 */
#include "store_file.h"

#include <assert.h>

#include "bytes.h"
#include "copy_pair.h"
#include "failure.h"
#include "try.h"

#define STORE_MAGIC 0xA4D3C1E7u
#define OPEN_EPOCH_MAX 0xFFFFFFu
#define BLOCK_BYTES_LIMIT ((uint64_t)64 << 20)

enum {
    STORE_BYTES = 4096,
    SEGMENT_PAGES_MIN = 256,
    SEGMENT_PAGES_MAX = 262144,

    AT_SEQUENCE = 8,
    AT_VERSION_MAJOR = 16,
    AT_VERSION_MINOR = 18,
    AT_RESERVED_0 = 20,
    AT_FEATURES_NEEDED = 24,
    AT_FEATURES_TO_WRITE = 32,
    AT_UUID = 40,
    AT_SECRET = 56,
    AT_CREATED = 88,
    AT_OPEN_EPOCH = 96,
    AT_SEGMENT_PAGES = 100,
    AT_BLOCK_BYTES_MAX = 104,
    AT_MAP_BYTES = 112,
    AT_ROOT_COUNT = 120,
    AT_RESERVED_1 = 124,
    AT_ROOT_BYTES = 128,
    AT_ROOT_PATHS = 192,
    AT_RESERVED_2 = 3392,
};

static_assert(AT_ROOT_BYTES + STORE_ROOTS_MAX * 8 == AT_ROOT_PATHS, "roots fill their table");
static_assert(AT_ROOT_PATHS + STORE_ROOTS_MAX * STORE_PATH_BYTES == AT_RESERVED_2, "and paths");

static const struct copy_format store_format = {
    .names = {"STORE.a", "STORE.b"},
    .magic = STORE_MAGIC,
    .size_min = STORE_BYTES,
    .size_max = STORE_BYTES,
};

/* --- Bytes ------------------------------------------------------------------------------------ */

/* NULL, or which field breaks its bound. Holds for files that are read and for ones to be
 * written. */
static const char *
bounds_verify(const struct store_file *file)
{
    uint32_t pages = file->segment_pages;

    if (file->open_epoch == 0 || file->open_epoch > OPEN_EPOCH_MAX)
        return "its open epoch is impossible";
    if (pages < SEGMENT_PAGES_MIN || pages > SEGMENT_PAGES_MAX || (pages & (pages - 1)) != 0)
        return "its segment size is impossible";
    if (file->block_bytes_max == 0 || file->block_bytes_max > BLOCK_BYTES_LIMIT)
        return "its block size is impossible";
    if (file->root_count == 0 || file->root_count > STORE_ROOTS_MAX)
        return "its number of roots is impossible";
    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++) {
        const char *path = file->root_paths[i];
        size_t length = strnlen(path, STORE_PATH_BYTES);

        if (length == STORE_PATH_BYTES || !bytes_are_zero(path + length, STORE_PATH_BYTES - length))
            return "a root's path is not padded with zeros";
        if (i >= file->root_count && (length != 0 || file->root_bytes[i] != 0))
            return "it names more roots than it has";
    }
    return NULL;
}

static void
file_encode(const struct store_file *file, uint8_t bytes[STORE_BYTES])
{
    memset(bytes, 0, STORE_BYTES);
    put_u16(bytes + AT_VERSION_MAJOR, STORE_VERSION_MAJOR);
    put_u16(bytes + AT_VERSION_MINOR, STORE_VERSION_MINOR);
    put_u64(bytes + AT_FEATURES_NEEDED, file->features_needed);
    put_u64(bytes + AT_FEATURES_TO_WRITE, file->features_to_write);
    memcpy(bytes + AT_UUID, file->uuid, sizeof(file->uuid));
    memcpy(bytes + AT_SECRET, file->secret, sizeof(file->secret));
    put_u64(bytes + AT_CREATED, file->created_ns);
    put_u32(bytes + AT_OPEN_EPOCH, file->open_epoch);
    put_u32(bytes + AT_SEGMENT_PAGES, file->segment_pages);
    put_u64(bytes + AT_BLOCK_BYTES_MAX, file->block_bytes_max);
    put_u64(bytes + AT_MAP_BYTES, file->map_bytes);
    put_u32(bytes + AT_ROOT_COUNT, file->root_count);
    for (size_t i = 0; i < STORE_ROOTS_MAX; i++)
        put_u64(bytes + AT_ROOT_BYTES + 8 * i, file->root_bytes[i]);
    memcpy(bytes + AT_ROOT_PATHS, file->root_paths, sizeof(file->root_paths));
}

static void
file_decode(const uint8_t bytes[STORE_BYTES], struct store_file *file)
{
    memset(file, 0, sizeof(*file));
    file->sequence = get_u64(bytes + AT_SEQUENCE);
    file->version_major = get_u16(bytes + AT_VERSION_MAJOR);
    file->version_minor = get_u16(bytes + AT_VERSION_MINOR);
    file->features_needed = get_u64(bytes + AT_FEATURES_NEEDED);
    file->features_to_write = get_u64(bytes + AT_FEATURES_TO_WRITE);
    memcpy(file->uuid, bytes + AT_UUID, sizeof(file->uuid));
    memcpy(file->secret, bytes + AT_SECRET, sizeof(file->secret));
    file->created_ns = get_u64(bytes + AT_CREATED);
    file->open_epoch = get_u32(bytes + AT_OPEN_EPOCH);
    file->segment_pages = get_u32(bytes + AT_SEGMENT_PAGES);
    file->block_bytes_max = get_u64(bytes + AT_BLOCK_BYTES_MAX);
    file->map_bytes = get_u64(bytes + AT_MAP_BYTES);
    file->root_count = get_u32(bytes + AT_ROOT_COUNT);
    for (size_t i = 0; i < STORE_ROOTS_MAX; i++)
        file->root_bytes[i] = get_u64(bytes + AT_ROOT_BYTES + 8 * i);
    memcpy(file->root_paths, bytes + AT_ROOT_PATHS, sizeof(file->root_paths));
}

/* NULL, or what is wrong in a copy whose CRC is right. */
static const char *
bytes_verify(const uint8_t bytes[STORE_BYTES], const struct store_file *file)
{
    /* Another major version may mean anything by its bytes; the caller refuses it by name. */
    if (file->version_major != STORE_VERSION_MAJOR)
        return NULL;
    /* A higher minor version may use what is reserved here. */
    if (file->version_minor <= STORE_VERSION_MINOR &&
        (get_u32(bytes + AT_RESERVED_0) != 0 || get_u32(bytes + AT_RESERVED_1) != 0 ||
            !bytes_are_zero(bytes + AT_RESERVED_2, STORE_BYTES - AT_RESERVED_2)))
        return "its reserved bytes are not zero";
    return bounds_verify(file);
}

/* --- Reading and writing ---------------------------------------------------------------------- */

/* Both copies, those that make no sense rejected. */
static enum kvt_status
pair_load(const struct kvt_env *env, struct fs_dir *dir, struct copy_pair *pair)
{
    struct store_file file;

    KVT_TRY(copy_pair_read(env, dir, &store_format, pair));
    for (uint32_t i = 0; i < 2; i++) {
        struct copy *copy = &pair->copies[i];
        const char *reason;

        if (copy->state != COPY_INTACT)
            continue;
        file_decode(copy->bytes, &file);
        reason = bytes_verify(copy->bytes, &file);
        if (reason != NULL)
            copy_pair_reject(copy, reason);
    }
    return KVT_OK;
}

static enum kvt_status
version_check(const struct store_file *file, struct fs_dir *dir, const struct kvt_env *env)
{
    if (file->version_major != STORE_VERSION_MAJOR)
        return failure_set(KVT_E_FORMAT, 0, "%s: store of version %u.%u, this build reads %u.x",
            env->fs->dir_path(dir), file->version_major, file->version_minor, STORE_VERSION_MAJOR);
    if (file->features_needed != 0)
        return failure_set(KVT_E_FORMAT, 0, "%s: store with unknown features 0x%llx",
            env->fs->dir_path(dir), (unsigned long long)file->features_needed);
    return KVT_OK;
}

enum kvt_status
store_file_read(const struct kvt_env *env, struct fs_dir *dir, struct store_file *file_out,
    bool *unwritable_out)
{
    enum kvt_status status = KVT_OK;
    struct copy_pair pair;
    struct store_file file;
    struct copy *best;

    KVT_TRY(pair_load(env, dir, &pair));
    best = copy_pair_best(&pair);
    if (best == NULL) {
        status = copy_pair_failure(&pair, dir);
        goto deinit;
    }
    file_decode(best->bytes, &file);
    KVT_TRY_GOTO(version_check(&file, dir, env), deinit);
    for (uint32_t i = 0; i < 2; i++) {
        /* The one that cannot be read may have been the newer. */
        if (pair.copies[i].state != COPY_INTACT && file.open_epoch < OPEN_EPOCH_MAX)
            file.open_epoch++;
    }
    *file_out = file;
    *unwritable_out = (file.features_to_write & ~(uint64_t)STORE_FEATURE_PARTS) != 0;
deinit:
    copy_pair_deinit(&pair);
    return status;
}

enum kvt_status
store_file_write(const struct kvt_env *env, struct fs_dir *dir, struct store_file *file)
{
    uint8_t bytes[STORE_BYTES];
    const char *reason = bounds_verify(file);
    struct copy_pair pair;
    enum kvt_status status;

    if (reason != NULL)
        return failure_set(
            KVT_E_INVAL, 0, "%s: STORE would be refused: %s", env->fs->dir_path(dir), reason);
    KVT_TRY(pair_load(env, dir, &pair));
    file_encode(file, bytes);
    status = copy_pair_write(&pair, dir, bytes, sizeof(bytes), &file->sequence);
    copy_pair_deinit(&pair);
    return status;
}

enum kvt_status
store_file_examine(const struct kvt_env *env, struct fs_dir *dir,
    void (*found)(void *context, const char *name, const char *reason), void *context)
{
    struct copy_pair pair;

    KVT_TRY(pair_load(env, dir, &pair));
    copy_pair_examine(&pair, found, context);
    copy_pair_deinit(&pair);
    return KVT_OK;
}

/* --- Capacity --------------------------------------------------------------------------------- */

uint64_t
store_file_capacity(const struct store_file *file)
{
    uint64_t capacity = 0;

    for (uint32_t i = 0; i < file->root_count; i++)
        capacity += file->root_bytes[i];
    return capacity;
}

uint64_t
store_file_grown(const struct store_file *file, uint64_t capacity, uint32_t root)
{
    uint64_t share = 0;
    uint64_t left = capacity;
    uint32_t sharing_count = file->root_count;
    bool is_larger[STORE_ROOTS_MAX] = {false};
    bool has_changed = true;

    KVT_ASSERT(capacity >= store_file_capacity(file));
    while (has_changed && sharing_count > 0) {
        share = left / sharing_count;
        has_changed = false;
        for (uint32_t i = 0; i < file->root_count; i++) {
            if (is_larger[i] || file->root_bytes[i] <= share)
                continue;
            is_larger[i] = has_changed = true;
            left -= file->root_bytes[i];
            sharing_count--;
        }
    }
    return is_larger[root] ? file->root_bytes[root] : share;
}

/* --- The owner's lock ------------------------------------------------------------------------- */

enum {
    LOCK_TRIES = 100,
};

/* Whatever is in it: only its name is looked for. */
static bool
store_is_there(const struct kvt_env *env, struct fs_dir *dir)
{
    enum kvt_status status = KVT_MISS;

    for (size_t i = 0; status == KVT_MISS && i < 2; i++) {
        struct fs_file *file;

        status = env->fs->open(dir, store_format.names[i], FS_READ_ONLY, &file);
        env->fs->close(file);
    }
    return status != KVT_MISS;
}

/* Who only reads makes nothing where no store is. One that was restored without LOCK gets it: else
 * an owner could come while it is read. */
static enum kvt_status
lock_open(const struct kvt_env *env, struct fs_dir *dir, bool only_reads, struct fs_file **file_out)
{
    enum kvt_status status = env->fs->open(dir, "LOCK", only_reads ? 0 : FS_CREATE, file_out);

    if (status == KVT_MISS && only_reads) {
        if (!store_is_there(env, dir))
            return failure_set(KVT_MISS, 0, "%s: there is no store", env->fs->dir_path(dir));
        status = env->fs->open(dir, "LOCK", FS_CREATE, file_out);
    }
    if (status == KVT_E_READONLY && only_reads)
        status = env->fs->open(dir, "LOCK", FS_READ_ONLY, file_out);
    return status;
}

static enum kvt_status
lock_try(const struct kvt_env *env, struct fs_dir *dir, bool only_reads, struct fs_file **lock_out)
{
    struct fs_file *file = NULL;
    enum kvt_status status;

    *lock_out = NULL;
    KVT_TRY(lock_open(env, dir, only_reads, &file));
    status = env->fs->lock(file, 0);
    if (status != KVT_OK) {
        env->fs->close(file);
        return status;
    }
    *lock_out = file;
    return KVT_OK;
}

enum kvt_status
store_lock(
    const struct kvt_env *env, struct fs_dir *dir, bool only_reads, struct fs_file **lock_out)
{
    enum kvt_status status = KVT_E_BUSY;

    /* The process forked between the two steps of a try. */
    for (int i = 0; i < LOCK_TRIES && status == KVT_E_BUSY; i++)
        status = lock_try(env, dir, only_reads, lock_out);
    return status;
}
