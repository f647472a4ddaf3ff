/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_dir.c - see store_dir.h.
 */
#include "store_dir.h"

#include "store_internal.h"

/* What may lie in a directory whose creation as a store was cut short. */
static bool
name_is_foreign(void *visitor, const char *name)
{
    static const char *const known[] = {
        "LOCK", "STORE.a", "STORE.b", "NAMES.a", "NAMES.b", "meta", "data", LIVE_NAME};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return true;
    }
    *(bool *)visitor = true;
    return false;
}

/* The part of them that is made before the first sync of STORE, or by who prepares a disk; and what
 * a creation leaves that was taken back. */
static bool
name_is_later(void *visitor, const char *name)
{
    static const char *const first[] = {
        "LOCK", "STORE.a", "STORE.b", "NAMES.a", "NAMES.b", "data", "meta"};

    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        if (strcmp(name, first[i]) == 0)
            return true;
    }
    *(bool *)visitor = true;
    return false;
}

/* A copy that cannot be opened counts: the other one may do. */
static bool
store_is_there(struct kvt_store *store)
{
    static const char *const names[] = {"STORE.a", "STORE.b"};
    const struct fs_ops *fs = store->env.fs;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct fs_file *file = NULL;
        enum kvt_status status = fs->open(store->dir, names[i], FS_READ_ONLY, &file);

        if (status == KVT_OK)
            fs->close(file);
        if (status != KVT_MISS)
            return true;
    }
    return false;
}

enum kvt_status
store_dir_open(struct kvt_store *store, bool may_create)
{
    const struct fs_ops *fs = store->env.fs;
    const char *network;
    bool is_foreign = false;
    enum kvt_status status =
        fs->dir_open(store->env.fs_context, store->path, may_create ? FS_CREATE : 0, &store->dir);

    if (status == KVT_MISS && may_create)
        return failure_set(
            KVT_E_INVAL, 0, "%s: the directory that it is to be made in is missing", store->path);
    if (status != KVT_OK)
        return status;
    network = fs->dir_network(store->dir);
    if (network != NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "%s is on a network file system (%s): neither the index, a memory map, nor the owner's "
            "lock is safe there; roots may be, the store's directory may not",
            store->path, network);
    KVT_TRY(fs->dir_list(store->dir, name_is_foreign, &is_foreign));
    /* More than a store's files: it must at least have a STORE. */
    if (is_foreign && !store_is_there(store))
        return failure_set(
            KVT_E_INVAL, 0, "%s: a directory with other things in it, and no store", store->path);
    return KVT_OK;
}

/* Two stores with one data file would write over each other's blocks. */
static enum kvt_status
root_is_free(struct kvt_store *store, const char *path)
{
    const struct fs_ops *fs = store->env.fs;
    struct fs_dir *dir = NULL;
    struct fs_file *file;
    enum kvt_status status = path[0] == '\0' ? fs->dir_open_at(store->dir, "data", 0, &dir)
                                             : fs->dir_open(store->env.fs_context, path, 0, &dir);

    if (status == KVT_OK)
        status = fs->open(dir, "data.00", FS_READ_ONLY, &file);
    if (status == KVT_OK) {
        fs->close(file);
        status = failure_set(KVT_E_INVAL, 0,
            "%s/data.00 is there already: it is another store's, or what is left of one that has "
            "no STORE any more: remove it first",
            fs->dir_path(dir));
    } else if (status == KVT_MISS) {
        status = KVT_OK;
    }
    fs->dir_close(dir);
    return status;
}

static bool
name_is_there(void *visitor, const char *name)
{
    (void)name;
    *(bool *)visitor = true;
    return false;
}

/* Whether `meta` has anything. */
static enum kvt_status
meta_is_used(struct kvt_store *store, bool *is_used_out)
{
    const struct fs_ops *fs = store->env.fs;
    struct fs_dir *dir = NULL;
    enum kvt_status status = fs->dir_open_at(store->dir, "meta", 0, &dir);

    if (status == KVT_MISS)
        return KVT_OK;
    if (status == KVT_OK)
        status = fs->dir_list(dir, name_is_there, is_used_out);
    fs->dir_close(dir);
    return status;
}

static enum kvt_status
root_path_take(struct store_file *file, uint32_t i, const char *path)
{
    if (path == NULL || strlen(path) >= STORE_PATH_BYTES || path[0] == '\0')
        return failure_set(KVT_E_INVAL, 0, "roots[%u] is NULL, empty, or longer than %d bytes", i,
            STORE_PATH_BYTES - 1);
    /* It would be another folder for who opens the store from elsewhere. */
    if (path[0] != '/')
        return failure_set(KVT_E_INVAL, 0,
            "roots[%u], %s, does not begin with '/': the store keeps it, and is opened from other "
            "folders, too",
            i, path);
    memcpy(file->root_paths[i], path, strlen(path) + 1);
    return KVT_OK;
}

/* A new store: NAMES before STORE, so that whoever finds STORE finds NAMES. */
static enum kvt_status
files_create(struct kvt_store *store)
{
    struct store_file *file = &store->file;
    const struct kvt_options *options = &store->options;
    uint64_t capacity = options->nvme_capacity_bytes;

    memset(file, 0, sizeof(*file));
    store->env.random->fill(store->env.random_context, file->uuid, sizeof(file->uuid));
    store->env.random->fill(store->env.random_context, file->secret, sizeof(file->secret));
    file->version_major = STORE_VERSION_MAJOR;
    file->version_minor = STORE_VERSION_MINOR;
    file->created_ns = store->env.clock->wall_ns(store->env.clock_context);
    file->features_to_write = STORE_FEATURE_PARTS;
    file->open_epoch = 1;
    file->segment_pages = (uint32_t)(options->segment_bytes / PAGE_BYTES);
    file->block_bytes_max = options->block_bytes_max;
    file->map_bytes = options->index_map_bytes;
    file->root_count = options->root_count == 0 ? 1 : options->root_count;
    for (uint32_t i = 0; i < file->root_count; i++) {
        file->root_bytes[i] =
            capacity == KVT_CAPACITY_NONE
                ? 0
                : capacity / file->root_count / options->segment_bytes * options->segment_bytes;
        if (options->root_count > 0)
            KVT_TRY(root_path_take(file, i, options->roots[i]));
    }
    for (uint32_t i = 0; i < file->root_count; i++) {
        if (file->root_bytes[i] > 0)
            KVT_TRY(root_is_free(store, file->root_paths[i]));
    }
    names_init(&store->names, &store->env, file->uuid);
    /* Also where the directory was found: who made it may have been killed before its name was
     * sure. Where there is a STORE it is, so that no other open has to see to it. */
    KVT_TRY(store->env.fs->dir_sync_parent(store->dir));
    store->is_being_made = true;
    KVT_TRY(names_write(&store->names, store->dir));
    return store_file_write(&store->env, store->dir, file);
}

/* --- Taking it back --------------------------------------------------------------------------- */

static enum kvt_status
file_remove(struct kvt_store *store, struct fs_dir *dir, const char *name)
{
    enum kvt_status status = store->env.fs->unlink(dir, name);

    return status == KVT_MISS ? KVT_OK : status;
}

static enum kvt_status
pair_remove(struct kvt_store *store, const char *one, const char *other)
{
    KVT_TRY(file_remove(store, store->dir, one));
    KVT_TRY(file_remove(store, store->dir, other));
    return store->env.fs->dir_sync(store->dir);
}

/* Where a rename replaces what has the name, another store's file can have it by now. */
static enum kvt_status
data_remove(struct kvt_store *store, uint32_t root)
{
    const struct fs_ops *fs = store->env.fs;
    struct fs_file *named = NULL;
    bool is_others;

    is_others = fs->open(store->root_dirs[root], "data.00", FS_READ_ONLY, &named) == KVT_OK &&
                !fs->is_same(named, store->made_files[root]);
    fs->close(named);
    return is_others ? KVT_OK : file_remove(store, store->root_dirs[root], "data.00");
}

/*
 * The index first: STORE with an index, and without a data file, is a store whose disk is away;
 * without an index it is one whose creation was cut short, which the next open completes. NAMES
 * last: whoever finds STORE finds NAMES. The data files are still locked: who waits for them finds
 * that they are gone.
 */
static enum kvt_status
files_remove(struct kvt_store *store)
{
    const struct store_world *world = &store->world;

    if (store->meta_dir != NULL)
        KVT_TRY(world->index_ops->remove(world->index_context, &store->env, store->meta_dir));
    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++) {
        if (store->made_files[i] == NULL)
            continue;
        KVT_TRY(data_remove(store, i));
        KVT_TRY(store->env.fs->dir_sync(store->root_dirs[i]));
    }
    KVT_TRY(pair_remove(store, "STORE.a", "STORE.b"));
    return pair_remove(store, "NAMES.a", "NAMES.b");
}

void
store_dir_unmake(struct kvt_store *store)
{
    if (!store->is_being_made || store_is_poisoned(store))
        return;
    if (files_remove(store) != KVT_OK)
        log_line(&store->logger, LOG_WARN, "store", "event=creation_stays text=\"%s\"",
            failure_last()->text);
}

/* --- Opening it ------------------------------------------------------------------------------- */

/* Whether more is there than a creation has that was cut short before the first sync of STORE. */
static enum kvt_status
store_was_made(struct kvt_store *store, bool *was_made_out)
{
    struct failure cause = *failure_last();
    enum kvt_status status;

    *was_made_out = false;
    KVT_TRY(store->env.fs->dir_list(store->dir, name_is_later, was_made_out));
    KVT_TRY(meta_is_used(store, was_made_out));
    status = root_is_free(store, "");
    if (status != KVT_OK && status != KVT_E_INVAL)
        return status;
    *was_made_out = *was_made_out || status == KVT_E_INVAL;
    failure_copy(&cause); /* What is wrong with STORE. */
    return KVT_OK;
}

/* The numbers of a life are above all that were committed before it. */
static void
store_numbers_begin(struct kvt_store *store)
{
    store->sequence = (uint64_t)store->file.open_epoch << EPOCH_SHIFT;
    store->batch_sequence = store->sequence;
}

enum kvt_status
store_identity_open(struct kvt_store *store, bool *is_new_out)
{
    bool is_unwritable = false;
    bool has_more = false;
    enum kvt_status status = store_file_read(&store->env, store->dir, &store->file, &is_unwritable);

    /* A creation that was cut short before the first sync of STORE has nothing else yet, and a
     * STORE that is torn, not one that cannot be read. Where an index is, or data, a STORE was: its
     * blocks must not be taken for those of a new one. */
    if (status == KVT_E_CORRUPT || status == KVT_MISS) {
        KVT_TRY(store_was_made(store, &has_more));
        if (has_more && status == KVT_MISS)
            return failure_set(KVT_E_CORRUPT, 0,
                "%s: STORE.a and STORE.b are missing, and more of a store is there: without them "
                "its blocks cannot be told apart from others'",
                store->path);
        if (!has_more && (store->options.flags & (KVT_OPEN_EXISTING | KVT_OPEN_READ_ONLY)) == 0)
            status = KVT_MISS;
    }
    *is_new_out = status == KVT_MISS;
    if (status == KVT_MISS) {
        if ((store->options.flags & (KVT_OPEN_EXISTING | KVT_OPEN_READ_ONLY)) != 0)
            return failure_set(KVT_MISS, 0, "%s: there is no store", store->path);
        KVT_TRY(options_resolve(&store->options, NULL));
        KVT_TRY(files_create(store));
    } else {
        KVT_TRY(status);
        if (is_unwritable && !store->is_read_only)
            return failure_set(KVT_E_FORMAT, 0,
                "%s: STORE names a feature that a writer must know, and this version does not: it "
                "may only be read",
                store->path);
        if (store->world.host_bytes != NULL)
            store->options.host_capacity_bytes =
                store->world.host_bytes(store->file.block_bytes_max);
        KVT_TRY(options_resolve(&store->options, &store->file));
        names_init(&store->names, &store->env, store->file.uuid);
        if (!store->is_read_only) {
            store->file.open_epoch++;
            /* Before the first block of parts: who does not know them must not write any more. */
            store->file.features_to_write |= STORE_FEATURE_PARTS;
            KVT_TRY(store_file_write(&store->env, store->dir, &store->file));
        }
    }
    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++)
        store->roots[i] = store->file.root_paths[i];
    store->options.roots = store->file.root_paths[0][0] == '\0' ? NULL : store->roots;
    store_numbers_begin(store);
    store->fingerprint_seed = fingerprint_seed(store->file.secret);
    store->env.random->fill(store->env.random_context, store->life, sizeof(store->life));
    return KVT_OK;
}

/* With an older copy of STORE alone, blocks behind the end that it knows would not be there. */
enum kvt_status
store_capacity_note(struct kvt_store *store)
{
    struct store_file *file = &store->file;
    uint64_t capacity = 0;
    bool has_grown = false;

    for (uint32_t i = 0; i < file->root_count; i++) {
        uint64_t bytes = segment_total(store->segments, i) * store->options.segment_bytes;

        has_grown = has_grown || bytes > file->root_bytes[i];
        if (bytes > file->root_bytes[i])
            file->root_bytes[i] = bytes;
        capacity += bytes;
    }
    store->options.nvme_capacity_bytes = capacity;
    return has_grown && !store->is_read_only ? store_file_write(&store->env, store->dir, file)
                                             : KVT_OK;
}

enum kvt_status
store_epoch_pass(struct kvt_store *store, uint64_t number)
{
    struct store_file *file = &store->file;
    uint32_t found = (uint32_t)(number >> EPOCH_SHIFT);
    uint32_t last = store->is_read_only ? file->open_epoch : file->open_epoch - 1;
    enum {
        EMPTY_LIVES_MAX = 1000 /* In a row: of a host that restarts all the time. */
    };

    if (found <= last)
        return KVT_OK;
    log_line(&store->logger, LOG_WARN, "store",
        "event=store_file_old open_epoch=%u found_epoch=%u text=\"STORE is of an earlier life than "
        "what stands beside it\"",
        last, found);
    if (store->is_read_only)
        return KVT_OK;
    /* Lives that committed nothing have left their numbers in no index. */
    file->open_epoch = found + 1 + EMPTY_LIVES_MAX;
    KVT_TRY(store_file_write(&store->env, store->dir, file));
    store_numbers_begin(store);
    return KVT_OK;
}

enum kvt_status
store_dir_sync(struct kvt_store *store)
{
    const struct fs_ops *fs = store->env.fs;

    if (store->is_read_only)
        return KVT_OK;
    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++) {
        if (store->root_dirs[i] != NULL)
            KVT_TRY(fs->dir_sync(store->root_dirs[i]));
    }
    KVT_TRY(fs->dir_sync(store->meta_dir));
    return fs->dir_sync(store->dir);
}

void
store_dirs_close(struct kvt_store *store)
{
    const struct fs_ops *fs = store->env.fs;

    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++) {
        fs->close(store->made_files[i]);
        fs->dir_close(store->root_dirs[i]);
    }
    fs->dir_close(store->meta_dir);
    fs->close(store->lock);
    fs->dir_close(store->dir);
}
