/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_lmdb.c - the index in an LMDB file: its life from inspection to close.
 *
 * Owns      the LMDB environment, and a descriptor of the file. Nothing else opens it while the
 *           index is open.
 * Not here  transactions (lmdb_transaction.c), the pages that they read (lmdb_touch.c), the file's
 *           size (lmdb_file.c), proofs that the file may be mapped at all (lmdb_check.c).
 * Format    SCHEMA.md, version 1.
 * Threads   one at a time. The directory must outlive the index.
 *
 * Invariants
 *   (1) The file is at least as long as the map, and what lies behind LMDB's last page was written
 *       as zeros and synced: no commit extends the file.
 *   (2) Every transaction is synced in full, but the meta page of a deferred one, which the sync of
 *       the next transaction's pages, or lmdb_sync(), brings to the disk. After one failed, none is
 *       begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bytes.h"
#include "failure.h"
#include "fork_descriptor.h"
#include "growth_host.h"
#include "index_lmdb_internal.h"
#include "lmdb_check.h"
#include "streams_host.h"
#include "try.h"

enum {
    PATH_BYTES_MAX = 4096,
    FILE_MODE = 0600,
    MAP_BYTES_MIN = 64 * PAGE_BYTES,
    GROWTH_UNIT = 1 << 20,
    GROWTH_MIN = 4 << 20, /* Where the disk has no room for twice the map. */
    DATABASE_COUNT = 3,
};

static const unsigned ENVIRONMENT_FLAGS = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOTLS;

/* --- 1. Inspection ---------------------------------------------------------------------------- */

static enum kvt_status
file_condition(const struct kvt_env *env, struct fs_file *file, enum index_condition *condition_out)
{
    struct lmdb_report report = {0};
    enum kvt_status status = lmdb_check(env, file, &report);

    if (status == KVT_E_CORRUPT)
        *condition_out = INDEX_DAMAGED;
    else if (status != KVT_OK)
        return status;
    else
        *condition_out = report.is_clean ? INDEX_CLEAN : INDEX_UNCLEAN;
    return KVT_OK;
}

static enum kvt_status
lmdb_inspect(void *context, const struct kvt_env *env, struct fs_dir *dir,
    enum index_condition *condition_out)
{
    struct fs_file *file;
    enum kvt_status status = env->fs->open(dir, LMDB_FILE_NAME, FS_READ_ONLY, &file);

    (void)context;
    if (status == KVT_MISS) {
        *condition_out = INDEX_ABSENT;
        return KVT_OK;
    }
    if (status != KVT_OK)
        return status;
    status = file_condition(env, file, condition_out);
    env->fs->close(file);
    return status;
}

/* --- 2. The environment ----------------------------------------------------------------------- */

static bool
is_own_file(const struct index_lmdb *lmdb, const struct stat *facts)
{
    struct stat own;

    return fstat(lmdb->file->descriptor, &own) == 0 && own.st_dev == facts->st_dev &&
           own.st_ino == facts->st_ino;
}

/* Another store's index could be there, and its owner writes to it. */
static enum kvt_status
other_file_refuse(const struct index_lmdb *lmdb)
{
    return failure_set(KVT_E_BUSY, 0, "The path %.200s came to mean another directory meanwhile.",
        lmdb->env.fs->dir_path(lmdb->dir));
}

/* What LMDB, which only takes a path, opens the file by: through the descriptor it cannot mean
 * another one. Without /proc it is the directory's, if that still leads there. */
static enum kvt_status
path_make(const struct index_lmdb *lmdb, char *path_out)
{
    const char *dir_path = lmdb->env.fs->dir_path(lmdb->dir);
    struct stat facts;
    int length;

    (void)snprintf(path_out, PATH_BYTES_MAX, "/proc/self/fd/%d", lmdb->file->descriptor);
    if (stat(path_out, &facts) == 0 && is_own_file(lmdb, &facts))
        return KVT_OK;
    length = snprintf(path_out, PATH_BYTES_MAX, "%s/%s", dir_path, lmdb->file_name);
    if (length < 0 || length >= PATH_BYTES_MAX) {
        return failure_set(
            KVT_E_INVAL, 0, "The path of the index below %.200s is too long.", dir_path);
    }
    if (stat(path_out, &facts) == 0 && is_own_file(lmdb, &facts))
        return KVT_OK;
    return other_file_refuse(lmdb);
}

static void
environment_close(struct index_lmdb *lmdb)
{
    lmdb_touch_close(lmdb);
    if (lmdb->lmdb != NULL)
        mdb_env_close(lmdb->lmdb);
    lmdb->lmdb = NULL;
}

/* LMDB opens all its descriptors with O_CLOEXEC but the one that it writes pages through: until
 * that has it, too, nobody forks. */
static int
descriptors_open(MDB_env *mdb, const char *path, unsigned flags)
{
    struct streams_hold streams;
    struct growth_signal held;
    int descriptor;
    int code;

    if (fork_hold() != KVT_OK)
        return ENOMEM;
    growth_signal_hold(&held);
    streams_hold(&streams);
    code = mdb_env_open(mdb, path, flags, FILE_MODE);
    streams_drop(&streams);
    growth_signal_drop(&held);
    if (code == 0)
        code = mdb_env_get_fd(mdb, &descriptor);
    if (code == 0)
        (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    fork_release();
    return code;
}

static enum kvt_status
descriptor_check(const struct index_lmdb *lmdb)
{
    struct stat facts;
    int descriptor;

    if (mdb_env_get_fd(lmdb->lmdb, &descriptor) == 0 && fstat(descriptor, &facts) == 0 &&
        is_own_file(lmdb, &facts))
        return KVT_OK;
    return other_file_refuse(lmdb);
}

/* Open LMDB on `file` with a map of `map_bytes`. */
static enum kvt_status
environment_open(struct index_lmdb *lmdb)
{
    unsigned flags = ENVIRONMENT_FLAGS | (lmdb->is_read_only ? MDB_RDONLY : 0u);
    char path[PATH_BYTES_MAX];
    enum kvt_status status;
    int code;

    KVT_TRY(path_make(lmdb, path));
    code = mdb_env_create(&lmdb->lmdb);
    if (code != 0) {
        lmdb->lmdb = NULL;
        return status_from_mdb(code, "LMDB cannot make an environment");
    }
    code = mdb_env_set_maxdbs(lmdb->lmdb, DATABASE_COUNT);
    if (code == 0)
        code = mdb_env_set_mapsize(lmdb->lmdb, (size_t)lmdb->map_bytes);
    if (code == 0)
        code = descriptors_open(lmdb->lmdb, path, flags);
    if (code != 0) {
        environment_close(lmdb);
        return status_from_mdb(code, "LMDB cannot open the index");
    }
    status = descriptor_check(lmdb);
    if (status == KVT_OK)
        status = lmdb_touch_open(lmdb);
    if (status != KVT_OK)
        environment_close(lmdb);
    return status;
}

/* Open LMDB on a file that has an index: the map is what it has room for. */
static enum kvt_status
existing_open(struct index_lmdb *lmdb)
{
    enum kvt_status status;
    uint64_t size;

    KVT_TRY(lmdb->env.fs->size(lmdb->file, &size));
    lmdb->map_bytes = size - size % PAGE_BYTES;
    if (lmdb->map_bytes < LMDB_META_PAGES * PAGE_BYTES || lmdb->map_bytes > INT64_MAX) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's file has %llu bytes, which cannot be.",
            (unsigned long long)size);
    }
    KVT_TRY(environment_open(lmdb));
    status = lmdb_touch_walk(lmdb);
    if (status == KVT_OK)
        status = lmdb_transaction_open(lmdb);
    if (status != KVT_OK)
        environment_close(lmdb);
    return status;
}

static enum kvt_status
handle_create(const struct kvt_env *env, struct fs_dir *dir, const char *file_name,
    struct index_lmdb **lmdb_out)
{
    struct index_lmdb *lmdb = env_take(env, sizeof(*lmdb));

    *lmdb_out = lmdb;
    if (lmdb == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for the index.");
    lmdb->index.ops = &index_lmdb_ops;
    lmdb->env = *env;
    lmdb->dir = dir;
    lmdb->file_name = file_name;
    return KVT_OK;
}

/* A new index that was not installed is nobody's, and has the space of a whole map. */
static void
left_remove(const struct index_lmdb *lmdb)
{
    struct failure first = *failure_last();

    (void)lmdb->env.fs->unlink(lmdb->dir, LMDB_FILE_NAME_NEW);
    failure_copy(&first);
}

static void
lmdb_close(struct index *index)
{
    struct index_lmdb *lmdb;
    struct kvt_env env;

    if (index == NULL)
        return;
    lmdb = lmdb_of(index);
    env = lmdb->env;
    environment_close(lmdb);
    env.fs->close(lmdb->file);
    if (strcmp(lmdb->file_name, LMDB_FILE_NAME_NEW) == 0)
        left_remove(lmdb);
    env_put(&env, lmdb, sizeof(*lmdb));
}

/* --- 3. Create, install, open, remove, grow --------------------------------------------------- */

/* LMDB takes an empty file for a new one and writes its meta pages; zeros follow behind them. */
static enum kvt_status
new_file_make(struct index_lmdb *lmdb)
{
    const struct kvt_env *env = &lmdb->env;

    KVT_TRY(lmdb_file_create(env, lmdb->dir, &lmdb->file));
    KVT_TRY(environment_open(lmdb));
    KVT_TRY(lmdb_file_fill(lmdb, lmdb->map_bytes));
    KVT_TRY(env->fs->dir_sync(lmdb->dir));
    KVT_TRY(lmdb_transaction_create(lmdb));
    return lmdb_transaction_open(lmdb);
}

static enum kvt_status
lmdb_create(void *context, const struct kvt_env *env, struct fs_dir *dir, uint64_t map_bytes,
    struct index **index_out)
{
    struct index_lmdb *lmdb;
    enum kvt_status status;

    (void)context;
    *index_out = NULL;
    if (map_bytes < MAP_BYTES_MIN || map_bytes > INT64_MAX - PAGE_BYTES) {
        return failure_set(KVT_E_INVAL, 0, "A map of %llu bytes; at least %llu are needed.",
            (unsigned long long)map_bytes, (unsigned long long)MAP_BYTES_MIN);
    }
    KVT_TRY(handle_create(env, dir, LMDB_FILE_NAME_NEW, &lmdb));
    lmdb->map_bytes = round_up(map_bytes, PAGE_BYTES);
    status = new_file_make(lmdb);
    if (status != KVT_OK) {
        lmdb_close(&lmdb->index);
        return status;
    }
    *index_out = &lmdb->index;
    return KVT_OK;
}

static enum kvt_status
lmdb_install(struct index *index)
{
    struct index_lmdb *lmdb = lmdb_of(index);
    const struct fs_ops *fs = lmdb->env.fs;

    if (lmdb->lmdb == NULL || strcmp(lmdb->file_name, LMDB_FILE_NAME_NEW) != 0)
        return failure_set(KVT_E_STATE, 0, "Only an index that was just made can be installed.");
    KVT_TRY(lmdb_transaction_check(lmdb));
    environment_close(lmdb);
    KVT_TRY(fs->sync(lmdb->file));
    KVT_TRY(fs->rename(lmdb->dir, LMDB_FILE_NAME_NEW, LMDB_FILE_NAME));
    lmdb->file_name = LMDB_FILE_NAME;
    KVT_TRY(fs->dir_sync(lmdb->dir));
    return existing_open(lmdb);
}

static enum kvt_status
lmdb_open(void *context, const struct kvt_env *env, struct fs_dir *dir, bool read_only,
    struct index **index_out)
{
    struct index_lmdb *lmdb;
    enum kvt_status status;

    (void)context;
    *index_out = NULL;
    KVT_TRY(handle_create(env, dir, LMDB_FILE_NAME, &lmdb));
    lmdb->is_read_only = read_only;
    status = env->fs->open(dir, LMDB_FILE_NAME, read_only ? FS_READ_ONLY : 0, &lmdb->file);
    if (status == KVT_OK)
        status = existing_open(lmdb);
    if (status != KVT_OK) {
        lmdb_close(&lmdb->index);
        return status;
    }
    if (!read_only)
        left_remove(lmdb); /* By who was killed while it made one. */
    *index_out = &lmdb->index;
    return KVT_OK;
}

static enum kvt_status
lmdb_remove(void *context, const struct kvt_env *env, struct fs_dir *dir)
{
    static const char *const names[] = {LMDB_FILE_NAME_NEW, LMDB_FILE_NAME};

    (void)context;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        enum kvt_status status = env->fs->unlink(dir, names[i]);

        if (status != KVT_OK && status != KVT_MISS)
            return status;
    }
    return env->fs->dir_sync(dir);
}

/* The next size of the map: `larger`, if the disk has room for that; else by half of what it has,
 * as there are other growths to come, and somebody else's files. */
static uint64_t
grown_size(const struct index_lmdb *lmdb, uint64_t larger, uint64_t least)
{
    uint64_t free_bytes = 0;
    uint64_t growth;

    if (lmdb->env.fs->dir_space(lmdb->dir, &free_bytes) != KVT_OK ||
        free_bytes >= larger - lmdb->map_bytes)
        return larger;
    growth = free_bytes / 2 - free_bytes / 2 % GROWTH_UNIT;
    growth = growth < GROWTH_MIN ? GROWTH_MIN : growth;
    if (growth < least - lmdb->map_bytes)
        growth = least - lmdb->map_bytes;
    return growth < larger - lmdb->map_bytes ? lmdb->map_bytes + growth : larger;
}

/* Whether the last failure says that the file cannot become so long: the disk is full, beyond what
 * it says it has, or somebody's quota is; or a limit of the process's (RLIMIT_FSIZE). */
static bool
file_is_too_long(enum kvt_status status)
{
    return status == KVT_E_NOSPC || (status == KVT_E_IO && failure_last()->foreign_code == EFBIG);
}

/* Zeros up to *size_inout, or to less: by half of that again and again, but never by less than
 * GROWTH_MIN, nor to less than `least`. */
static enum kvt_status
map_fill(const struct index_lmdb *lmdb, uint64_t least, uint64_t *size_inout)
{
    uint64_t growth = *size_inout - lmdb->map_bytes;
    uint64_t smallest = least - lmdb->map_bytes;

    smallest = smallest < GROWTH_MIN ? GROWTH_MIN : smallest;
    for (;;) {
        enum kvt_status status = lmdb_file_fill(lmdb, lmdb->map_bytes + growth);

        if (growth <= smallest || !file_is_too_long(status)) {
            *size_inout = lmdb->map_bytes + growth;
            return status;
        }
        growth = growth / 2 - growth / 2 % GROWTH_UNIT;
        growth = growth < smallest ? smallest : growth;
    }
}

static enum kvt_status
lmdb_grow(struct index *index, uint64_t map_bytes)
{
    struct index_lmdb *lmdb = lmdb_of(index);
    uint64_t larger = lmdb->map_bytes * 2; /* At most 2^63: see existing_open(). */
    int code;

    KVT_TRY(lmdb_transaction_check(lmdb));
    if (map_bytes > INT64_MAX - PAGE_BYTES || larger > INT64_MAX - PAGE_BYTES)
        return failure_set(KVT_E_INVAL, 0, "The index's map cannot grow beyond 2^63 bytes.");
    map_bytes = round_up(map_bytes, PAGE_BYTES);
    if (map_bytes < lmdb->map_bytes)
        map_bytes = lmdb->map_bytes;
    larger = grown_size(lmdb, larger < map_bytes ? map_bytes : larger, map_bytes);
    KVT_TRY(map_fill(lmdb, map_bytes, &larger));
    if (lmdb_touch_metas(lmdb) != KVT_OK) {
        lmdb->is_failed = true;
        return KVT_E_META;
    }
    KVT_TRY(lmdb_touch_map(lmdb, larger));
    code = mdb_env_set_mapsize(lmdb->lmdb, (size_t)larger);
    if (code != 0) {
        /* LMDB has given up the old map already. It is not refused for want of address space, if
         * nobody else takes that now: lmdb_touch_map() had its own beside both old ones. */
        environment_close(lmdb);
        lmdb->is_failed = true;
        (void)status_from_mdb(code, "LMDB cannot enlarge the index's map");
        return failure_last()->status == KVT_E_NOMEM ? KVT_E_NOMEM : KVT_E_META;
    }
    lmdb->map_bytes = larger;
    return KVT_OK;
}

static void
lmdb_stats(struct index *index, struct index_stats *stats_out)
{
    const struct index_lmdb *lmdb = lmdb_of(index);

    stats_out->map_bytes = lmdb->map_bytes;
    stats_out->used_bytes =
        (LMDB_META_PAGES + lmdb->tree_pages + lmdb->lost_pages) * lmdb->page_bytes;
    stats_out->block_count = lmdb->block_count;
    stats_out->commit_count = lmdb->commit_count;
}

const struct index_ops index_lmdb_ops = {
    .name = "lmdb",
    .inspect = lmdb_inspect,
    .create = lmdb_create,
    .install = lmdb_install,
    .open = lmdb_open,
    .remove = lmdb_remove,
    .commit = lmdb_commit,
    .commit_deferred = lmdb_commit_deferred,
    .sync = lmdb_sync,
    .grow = lmdb_grow,
    .mark = lmdb_mark,
    .each_block = lmdb_each_block,
    .each_segment = lmdb_each_segment,
    .stats = lmdb_stats,
    .close = lmdb_close,
};

const char *
index_lmdb_version(void)
{
    return mdb_version(NULL, NULL, NULL);
}
