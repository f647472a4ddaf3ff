/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_set.c - the folder `engram` of a store: who uses which table, and opening its files.
 */
#include "engram_set.h"

#include <stdio.h>

#define FOLDER "engram"

enum kvt_status
engrams_open(struct kvt_store *store)
{
    store->engrams = env_take(&store->env, sizeof(*store->engrams));
    if (store->engrams == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for Engram tables");
    pthread_mutex_init(&store->engrams->space_lock, NULL);
    pthread_mutex_init(&store->engrams->life_lock, NULL);
    pthread_mutex_init(&store->engrams->lock, NULL);
    store->engrams->names_changed = 1;
    return KVT_OK;
}

void
engrams_close(struct kvt_store *store)
{
    struct engram_set *set = store->engrams;

    if (set == NULL)
        return;
    engram_reader_close(set->reader);
    while (set->fetches != NULL)
        engram_fetch_destroy(set->fetches);
    while (set->tables != NULL) {
        struct kvt_engram *table = set->tables;

        set->tables = table->next;
        engram_pin_drop(table);
        engram_caches_end(table);
        store->env.fs->close(table->file);
        env_put(&store->env, table, sizeof(*table));
    }
    store->env.fs->dir_close(set->dir);
    set->dir = NULL;
}

void
engrams_free(struct kvt_store *store)
{
    struct engram_set *set = store->engrams;

    if (set == NULL)
        return;
    engram_reader_free(set->reader);
    pthread_mutex_destroy(&set->lock);
    pthread_mutex_destroy(&set->life_lock);
    pthread_mutex_destroy(&set->space_lock);
    env_put(&store->env, set, sizeof(*set));
    store->engrams = NULL;
}

uint32_t
engrams_open_count(struct kvt_store *store)
{
    uint32_t count;

    pthread_mutex_lock(&store->engrams->lock);
    count = store->engrams->table_count;
    pthread_mutex_unlock(&store->engrams->lock);
    return count;
}

uint64_t
engrams_pinned_bytes(struct kvt_store *store)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&store->engrams->lock);
    for (const struct kvt_engram *table = store->engrams->tables; table != NULL;
         table = table->next) {
        uint32_t pages = engram_pin_pages(&table->pin);

        sum += pages > 0 ? ((uint64_t)pages + 1) * PAGE_BYTES : 0;
    }
    pthread_mutex_unlock(&store->engrams->lock);
    return sum;
}

/* --- Uses ------------------------------------------------------------------------------------- */

enum kvt_status
engram_use_begin(struct kvt_store *store, const char *name, bool is_alone, struct engram_use *use)
{
    struct engram_set *set = store->engrams;
    const struct engram_use *other;

    if (name == NULL || !engram_name_is_fine(name))
        return failure_set(KVT_E_INVAL, 0,
            "the name of a table has 1..%d of A-Z a-z 0-9 . _ - and no dot first",
            ENGRAM_NAME_BYTES_MAX);
    memset(use, 0, sizeof(*use));
    memcpy(use->name, name, strlen(name));
    use->is_alone = is_alone;
    pthread_mutex_lock(&set->lock);
    other = set->uses;
    while (other != NULL && (strcmp(other->name, name) != 0 || (!is_alone && !other->is_alone)))
        other = other->next;
    if (other == NULL) {
        use->next = set->uses;
        set->uses = use;
    }
    pthread_mutex_unlock(&set->lock);
    if (other == NULL)
        return KVT_OK;
    return failure_set(
        KVT_E_STATE, 0, "the table %s is open, being imported or being dropped", use->name);
}

void
engram_use_end(struct kvt_store *store, struct engram_use *use)
{
    struct engram_use **link = &store->engrams->uses;

    pthread_mutex_lock(&store->engrams->lock);
    while (*link != use)
        link = &(*link)->next;
    *link = use->next;
    pthread_mutex_unlock(&store->engrams->lock);
}

bool
engram_use_is_alone(struct kvt_store *store, const char *name, size_t length)
{
    const struct engram_use *use;

    pthread_mutex_lock(&store->engrams->lock);
    use = store->engrams->uses;
    while (use != NULL &&
           (!use->is_alone || strlen(use->name) != length || memcmp(use->name, name, length) != 0))
        use = use->next;
    pthread_mutex_unlock(&store->engrams->lock);
    return use != NULL;
}

/* --- Files ------------------------------------------------------------------------------------ */

/* Under life_lock. */
static enum kvt_status
dir_find(struct kvt_store *store, bool is_to_write)
{
    const struct fs_ops *fs = store->env.fs;
    struct engram_set *set = store->engrams;

    if (set->dir == NULL)
        KVT_TRY(fs->dir_open_at(store->dir, FOLDER, is_to_write ? FS_CREATE : 0, &set->dir));
    /* Also when it was found: whoever made it may have died before this. */
    if (is_to_write && !set->is_dir_sure) {
        KVT_TRY(fs->dir_sync(store->dir));
        set->is_dir_sure = true;
    }
    return KVT_OK;
}

enum kvt_status
engram_dir(struct kvt_store *store, bool is_to_write, struct fs_dir **dir_out)
{
    struct engram_set *set = store->engrams;
    enum kvt_status status;

    pthread_mutex_lock(&set->life_lock);
    status = dir_find(store, is_to_write);
    *dir_out = set->dir;
    pthread_mutex_unlock(&set->life_lock);
    return status;
}

void
engram_names_changed(struct kvt_store *store)
{
    pthread_mutex_lock(&store->engrams->lock);
    store->engrams->names_changed++;
    pthread_mutex_unlock(&store->engrams->lock);
}

enum kvt_status
engram_names_sync(struct kvt_store *store, struct fs_dir *dir)
{
    struct engram_set *set = store->engrams;
    uint64_t changed;
    bool is_durable;

    pthread_mutex_lock(&set->lock);
    changed = set->names_changed;
    is_durable = set->names_synced == changed;
    pthread_mutex_unlock(&set->lock);
    if (is_durable)
        return KVT_OK;
    KVT_TRY(store->env.fs->dir_sync(dir));
    pthread_mutex_lock(&set->lock);
    if (set->names_synced < changed)
        set->names_synced = changed;
    pthread_mutex_unlock(&set->lock);
    return KVT_OK;
}

enum kvt_status
engram_unlink(struct kvt_store *store, struct fs_dir *dir, const char *file_name)
{
    enum kvt_status status = store->env.fs->unlink(dir, file_name);

    if (status != KVT_MISS) /* Also when it failed: it may be gone all the same. */
        engram_names_changed(store);
    return status;
}

void
engram_file_name(const char *name, const char *ending, char file_name[ENGRAM_FILE_NAME_BYTES])
{
    (void)snprintf(
        file_name, ENGRAM_FILE_NAME_BYTES, "%.*s%s", ENGRAM_NAME_BYTES_MAX, name, ending);
}

static size_t
length_before(const char *file_name, const char *ending)
{
    size_t length = strlen(file_name);
    size_t ending_length = strlen(ending);

    if (length <= ending_length || length - ending_length > ENGRAM_NAME_BYTES_MAX ||
        strcmp(file_name + length - ending_length, ending) != 0)
        return 0;
    return length - ending_length;
}

size_t
engram_name_length(const char *file_name, bool *is_new_out)
{
    size_t length = length_before(file_name, ENGRAM_ENDING);

    *is_new_out = length == 0;
    return *is_new_out ? length_before(file_name, ENGRAM_ENDING_NEW) : length;
}

void *
engram_buffer(struct kvt_store *store, size_t size)
{
    void *buffer = env_map(&store->env, size);

    if (buffer == NULL)
        (void)failure_set(KVT_E_NOMEM, 0, "engram: no memory for %zu bytes", size);
    return buffer;
}

/* A file system may promise direct access and refuse it. */
static enum kvt_status
file_probe(struct kvt_store *store, struct fs_file *file)
{
    void *page = engram_buffer(store, PAGE_BYTES);
    size_t read_size = 0;
    enum kvt_status status;

    if (page == NULL)
        return KVT_E_NOMEM;
    status = store->env.fs->read_at(file, page, PAGE_BYTES, 0, &read_size);
    env_unmap(&store->env, page, PAGE_BYTES);
    /* What else is wrong with its first page is for who looks at the head. */
    return status == KVT_E_INVAL ? status : KVT_OK;
}

enum kvt_status
engram_file_open(struct kvt_store *store, struct fs_dir *dir, const char *file_name, unsigned flags,
    struct fs_file **file_out)
{
    const struct fs_ops *fs = store->env.fs;
    struct fs_file *file = NULL;
    enum kvt_status status;

    KVT_TRY(fs->open(dir, file_name, flags | FS_DIRECT, &file));
    status = KVT_OK;
    if (fs->is_direct(file)) {
        status = fs->align(file) > PAGE_BYTES ? KVT_E_INVAL : file_probe(store, file);
        if (status != KVT_OK)
            fs->close(file);
        if (status == KVT_E_INVAL)
            status = fs->open(dir, file_name, flags & ~(unsigned)FS_EXCLUSIVE, &file);
    }
    if (status == KVT_OK)
        *file_out = file;
    return status;
}

/* One head. *reason: NULL, or what is wrong with it. */
static enum kvt_status
head_read_at(struct kvt_store *store, struct fs_file *file, uint64_t offset, uint8_t *page,
    struct engram_head *head_out, const char **reason, bool *is_foreign)
{
    bool is_strange = false;
    size_t read_size = 0;
    enum kvt_status status;

    status = store->env.fs->read_at(file, page, PAGE_BYTES, offset, &read_size);
    if (status != KVT_OK || read_size < PAGE_BYTES) {
        *reason = status != KVT_OK ? "it cannot be read" : "the file ends before it";
        return status;
    }
    *reason = engram_head_decode(page, head_out, &is_strange);
    *is_foreign = *is_foreign || is_strange;
    if (*reason == NULL && kvt_engram_profile_check(&head_out->profile) != KVT_OK)
        *reason = "its manifest is impossible";
    return KVT_OK;
}

enum kvt_status
engram_head_read(struct kvt_store *store, struct fs_file *file, const char *file_name,
    struct engram_head *head_out, bool *is_second_out)
{
    uint8_t *page = engram_buffer(store, PAGE_BYTES);
    struct engram_head heads[2] = {0};
    const char *reasons[2] = {NULL, "the file has no second one"};
    enum kvt_status statuses[2];
    bool is_foreign = false;
    uint64_t size = 0;

    if (page == NULL)
        return KVT_E_NOMEM;
    statuses[0] = head_read_at(store, file, 0, page, &heads[0], &reasons[0], &is_foreign);
    statuses[1] = store->env.fs->size(file, &size);
    if (statuses[1] == KVT_OK && size >= (uint64_t)2 * PAGE_BYTES)
        statuses[1] = head_read_at(store, file, size / PAGE_BYTES * PAGE_BYTES - PAGE_BYTES, page,
            &heads[1], &reasons[1], &is_foreign);
    env_unmap(&store->env, page, PAGE_BYTES);
    for (uint32_t i = 0; i < 2; i++) {
        if (reasons[i] == NULL && engram_file_bytes(&heads[i]) != size)
            reasons[i] = "the file has another length than it says";
    }
    if (reasons[0] == NULL || reasons[1] == NULL) {
        bool is_second =
            reasons[0] != NULL || (reasons[1] == NULL && heads[1].pages_done > heads[0].pages_done);
        enum kvt_status other_status = statuses[is_second ? 0 : 1];

        /* The other one may name more pages, unless these are all. */
        if (other_status != KVT_OK && heads[is_second].state != ENGRAM_FILE_WHOLE)
            return other_status;
        *head_out = heads[is_second];
        if (is_second_out != NULL)
            *is_second_out = is_second;
        return KVT_OK;
    }
    if (is_foreign)
        return failure_set(KVT_E_FORMAT, 0, "%s: a table of a later version", file_name);
    for (uint32_t i = 0; i < 2; i++) {
        if (statuses[i] != KVT_OK)
            return statuses[i]; /* That may pass: what could not be read may be good. */
    }
    return failure_set(KVT_E_CORRUPT, 0,
        "%s: both heads are damaged: of the first, %s; of the "
        "second, %s",
        file_name, reasons[0], reasons[1]);
}
