/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.c - the blocks of a closed store straight from the pages of its index, from the first one
 * on: nothing is loaded, and LMDB is not asked.
 *
 * Only of a store that was closed in order: of any other a recovery decides what is there.
 */
#include "listing.h"
#include "array.h"
#include "lmdb_check.h"
#include "store_internal.h"

/* Which generation of a segment has blocks; 0: none. */
struct segment_life {
    uint32_t number;
    uint32_t generation;
};

struct listing {
    struct kvt_env env;
    struct fs_dir *dir, *meta;
    struct fs_file *lock;
    struct fs_file *index;
    struct names_file names;
    struct segment_life *lives; /* In order of their numbers. */
    uint32_t life_count, life_capacity;
    uint32_t namespace_id; /* 0: all. */
    int (*visit)(void *context, const struct kvt_scan_entry *entry, const char *namespace_name);
    void *context;
    bool has_shown;
    enum kvt_status status;
};

static bool
segment_take(void *visitor, const struct index_segment *facts)
{
    struct listing *listing = visitor;

    if (facts->state != SEGMENT_SEALED && facts->state != SEGMENT_ACTIVE)
        return true;
    if (listing->life_count == listing->life_capacity) {
        struct segment_life *lives =
            array_grow(&listing->env, listing->lives, &listing->life_capacity, sizeof(*lives));

        if (lives == NULL) {
            listing->status = failure_set(KVT_E_NOMEM, 0, "no memory to list a store");
            return false;
        }
        listing->lives = lives;
    }
    listing->lives[listing->life_count++] = (struct segment_life){facts->number, facts->generation};
    return true;
}

static bool
generation_is_current(const struct listing *listing, const struct extent *extent)
{
    uint32_t low = 0;
    uint32_t high = listing->life_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (listing->lives[middle].number < extent->segment)
            low = middle + 1;
        else
            high = middle;
    }
    return low < listing->life_count && listing->lives[low].number == extent->segment &&
           listing->lives[low].generation == extent->generation;
}

/* A record that recovery would refuse is passed over, as it would. */
static bool
block_take(void *visitor, const struct index_block *block)
{
    struct listing *listing = visitor;
    struct kvt_scan_entry show = {.tiers = KVT_TIER_NVME};
    const struct name_entry *name;
    struct block_record record;

    if (block_record_decode(&record, block->segment, block->page, block->bytes, block->size) !=
        KVT_OK)
        return true;
    name = names_find_id(&listing->names, record.key.namespace_id);
    if (name == NULL || name->epoch != record.namespace_epoch ||
        !generation_is_current(listing, &record.extent) ||
        (listing->namespace_id != 0 && listing->namespace_id != name->id))
        return true;
    show.ns.id = name->id;
    show.component = record.key.component;
    show.is_hashed = record.key.form == KEY_HASHED;
    show.key_length = record.key.length;
    memcpy(show.key, record.key.bytes, record.key.length);
    show.length = record.length;
    show.sequence = record.sequence;
    show.segment = record.extent.segment;
    show.page = record.extent.page;
    show.stored_length = record.stored_length;
    show.part_count = record.part_count;
    show.is_encoded = record.codec == RECORD_PARTS &&
                      record.stored_length != record_raw_bytes(record.length, record.part_count);
    listing->has_shown = true;
    return listing->visit(listing->context, &show, name->name) == 0;
}

static void
listing_close(struct listing *listing)
{
    const struct fs_ops *fs = listing->env.fs;

    env_put(&listing->env, listing->lives, listing->life_capacity * sizeof(*listing->lives));
    names_deinit(&listing->names);
    fs->close(listing->index);
    fs->close(listing->lock);
    fs->dir_close(listing->meta);
    fs->dir_close(listing->dir);
}

static enum kvt_status
not_ready(const char *path)
{
    return failure_set(KVT_NOT_READY, 0, "%s was not closed in order, or is damaged", path);
}

static enum kvt_status
listing_open(struct listing *listing, const char *path)
{
    const struct fs_ops *fs = listing->env.fs;
    struct store_file file;
    bool is_unwritable;
    enum kvt_status status;

    KVT_TRY(fs->dir_open(listing->env.fs_context, path, 0, &listing->dir));
    KVT_TRY(store_file_read(&listing->env, listing->dir, &file, &is_unwritable));
    KVT_TRY(store_lock(&listing->env, listing->dir, true, &listing->lock));
    /* Again: it may have been open until now. */
    KVT_TRY(store_file_read(&listing->env, listing->dir, &file, &is_unwritable));
    names_init(&listing->names, &listing->env, file.uuid);
    status = fs->dir_open_at(listing->dir, "meta", 0, &listing->meta);
    if (status == KVT_OK)
        status = names_read(&listing->names, listing->dir);
    if (status == KVT_OK)
        status = fs->open(listing->meta, "data.mdb", FS_READ_ONLY, &listing->index);
    return status == KVT_MISS || status == KVT_E_CORRUPT ? not_ready(path) : status;
}

static enum kvt_status
listing_run(struct listing *listing, const char *path, const char *namespace_name)
{
    const struct lmdb_lister lister = {
        .visit_segment = segment_take, .visit_block = block_take, .visitor = listing};
    enum kvt_status status;

    if (namespace_name != NULL) {
        const struct name_entry *name = names_find(&listing->names, namespace_name);

        if (name == NULL)
            return failure_set(KVT_E_INVAL, 0, "there is no namespace %s", namespace_name);
        listing->namespace_id = name->id;
    }
    status = lmdb_list(&listing->env, listing->index, &lister);
    if (!listing->has_shown && (status == KVT_NOT_READY || status == KVT_E_CORRUPT))
        return not_ready(path);
    return status_keep(listing->status, status);
}

enum kvt_status
list_in(const struct kvt_env *env, const char *path, const char *namespace_name,
    const struct list_visitor *visitor)
{
    struct listing listing = {
        .visit = visitor->visit, .context = visitor->context, .status = KVT_OK, .env = *env};
    enum kvt_status status = listing_open(&listing, path);

    if (status == KVT_OK)
        status = listing_run(&listing, path, namespace_name);
    listing_close(&listing);
    return status;
}

enum kvt_status
kvt_list(const char *path, const char *namespace_name,
    int (*visit)(void *context, const struct kvt_scan_entry *entry, const char *name),
    void *context)
{
    const struct list_visitor visitor = {.visit = visit, .context = context};
    struct kvt_env env;

    if (path == NULL || path[0] == '\0' || visit == NULL)
        return failure_set(KVT_E_INVAL, 0, "path is NULL or empty, or visit is NULL");
    env_host(&env);
    return list_in(&env, path, namespace_name, &visitor);
}
