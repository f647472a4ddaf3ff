/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_tables.c - opening, listing, dropping and verifying Engram tables, and reading rows of
 * them for tools.
 */
#include "engram_set.h"

/* --- Opening ---------------------------------------------------------------------------------- */

/* The file of a table that is there, and what its head says. */
static enum kvt_status
table_file_open(struct kvt_store *store, const char *name, struct kvt_engram *table)
{
    char file_name[ENGRAM_FILE_NAME_BYTES];
    struct fs_dir *dir = NULL;
    enum kvt_status status = engram_dir(store, false, &dir);

    engram_file_name(name, ENGRAM_ENDING, file_name);
    if (status == KVT_OK)
        status = engram_file_open(store, dir, file_name, FS_READ_ONLY, &table->file);
    if (status == KVT_MISS)
        return failure_set(KVT_MISS, 0, "%s: there is no table %s", store->path, name);
    KVT_TRY(status);
    status = engram_head_read(store, table->file, file_name, &table->head, NULL);
    if (status == KVT_OK && table->head.state != ENGRAM_FILE_WHOLE)
        status = failure_set(KVT_E_CORRUPT, 0,
            "%s: its import was not finished, and it has a table's name", file_name);
    if (status == KVT_OK && strcmp(table->head.name, name) != 0)
        status =
            failure_set(KVT_E_CORRUPT, 0, "%s: it is the table %s", file_name, table->head.name);
    if (status != KVT_OK)
        store->env.fs->close(table->file);
    return status;
}

enum kvt_status
engram_table_add(struct kvt_store *store, struct kvt_engram *table)
{
    struct engram_set *set = store->engrams;
    enum kvt_status status = KVT_OK;

    pthread_mutex_lock(&set->life_lock);
    if (set->reader == NULL)
        status = engram_reader_open(store, &set->reader);
    pthread_mutex_unlock(&set->life_lock);
    KVT_TRY(status);
    pthread_mutex_lock(&set->lock);
    table->next = set->tables;
    set->tables = table;
    set->table_count++;
    pthread_mutex_unlock(&set->lock);
    return KVT_OK;
}

enum kvt_status
kvt_engram_open(kvt_store *store, const char *name, kvt_engram **table_out)
{
    struct kvt_engram *table;
    enum kvt_status status;

    if (table_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table_out is NULL");
    *table_out = NULL;
    KVT_TRY(store_enter(store));
    table = env_take(&store->env, sizeof(*table));
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a table");
    table->store = store;
    status = engram_use_begin(store, name, false, &table->use);
    if (status != KVT_OK)
        goto free_table;
    status = table_file_open(store, name, table);
    if (status != KVT_OK)
        goto end_use;
    status = engram_table_add(store, table);
    if (status != KVT_OK)
        goto close_file;
    *table_out = table;
    return KVT_OK;

close_file:
    store->env.fs->close(table->file);
end_use:
    engram_use_end(store, &table->use);
free_table:
    env_put(&store->env, table, sizeof(*table));
    return status;
}

enum kvt_status
kvt_engram_close(kvt_engram *table)
{
    struct kvt_store *store;
    struct kvt_engram **link;
    uint32_t fetches;

    if (table == NULL)
        return KVT_OK;
    store = table->store;
    if (store_enter(store) == KVT_E_STATE)
        return KVT_E_STATE;
    fetches = atomic_load_explicit(&table->fetch_count, memory_order_acquire);
    if (fetches > 0)
        return failure_set(KVT_E_STATE, 0, "%u fetches from the table %s have not been freed",
            fetches, table->head.name);
    if (table->file != NULL)
        engram_use_end(store, &table->use);
    pthread_mutex_lock(&store->engrams->lock);
    link = &store->engrams->tables;
    while (*link != table)
        link = &(*link)->next;
    *link = table->next;
    store->engrams->table_count--;
    pthread_mutex_unlock(&store->engrams->lock);
    engram_pin_drop(table);
    engram_caches_end(table);
    store->env.fs->close(table->file);
    env_put(&store->env, table, sizeof(*table));
    return KVT_OK;
}

/* --- Facts ------------------------------------------------------------------------------------ */

static void
info_fill(const struct engram_head *head, uint32_t state, struct kvt_engram_info *info)
{
    uint64_t rows_done = (uint64_t)head->pages_done * head->rows_per_page;

    memset(info, 0, sizeof(*info));
    memcpy(info->name, head->name, strlen(head->name));
    info->state = state;
    info->layer = head->profile.layers[0].number;
    info->row_bytes = head->profile.row_bytes;
    info->rows_per_page = head->rows_per_page;
    info->row_count = engram_row_count(head);
    info->rows_done = rows_done < info->row_count ? rows_done : info->row_count;
    info->file_bytes = engram_file_bytes(head);
    info->created_ns = head->created_ns;
    memcpy(info->uuid, head->uuid, sizeof(info->uuid));
}

enum kvt_status
kvt_engram_info_get(kvt_engram *table, struct kvt_engram_info *info_out)
{
    if (table == NULL || info_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table or info_out is NULL");
    KVT_TRY(store_enter(table->store));
    info_fill(&table->head, KVT_ENGRAM_WHOLE, info_out);
    if (engram_pin_pages(&table->pin) > 0)
        info_out->rows_pinned = table->pin.row_count;
    return KVT_OK;
}

enum kvt_status
kvt_engram_profile_of(kvt_engram *table, struct kvt_engram_profile *profile_out)
{
    if (table == NULL || profile_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table or profile_out is NULL");
    KVT_TRY(store_enter(table->store));
    *profile_out = table->head.profile;
    return KVT_OK;
}

/* A table that was looked for under the name of its import, and had its last one by then. */
struct listing_late {
    struct listing_late *next;
    char file_name[ENGRAM_FILE_NAME_BYTES]; /* The last one. */
};

struct listing {
    struct kvt_store *store;
    struct fs_dir *dir;
    int (*visit)(void *context, const struct kvt_engram_info *info);
    void *context;
    enum kvt_status status; /* The first that is not KVT_OK, */
    struct failure failure; /* and its sentence. */
    struct listing_late *late;
    bool is_over; /* `visit` has said so. */
};

static enum kvt_status
listing_look(const struct listing *listing, const char *file_name, struct engram_head *head)
{
    struct fs_file *file = NULL;
    enum kvt_status status;

    KVT_TRY(engram_file_open(listing->store, listing->dir, file_name, FS_READ_ONLY, &file));
    status = engram_head_read(listing->store, file, file_name, head, NULL);
    listing->store->env.fs->close(file);
    return status;
}

/* Whether it is what an import or an open of a file of this name goes on with. */
static bool
head_fits(const struct engram_head *head, const char *file_name, size_t length, bool is_new)
{
    return strlen(head->name) == length && memcmp(head->name, file_name, length) == 0 &&
           (is_new || head->state == ENGRAM_FILE_WHOLE);
}

/* A table that cannot be looked at hides no other. */
static void
listing_note(struct listing *listing, enum kvt_status status)
{
    if (listing->status != KVT_OK)
        return;
    listing->status = status;
    listing->failure = *failure_last();
}

/* KVT_MISS: it was dropped, or renamed, since. */
static enum kvt_status
listing_show(struct listing *listing, const char *file_name, size_t length, bool is_new)
{
    struct engram_head head = {0};
    struct kvt_engram_info info = {.state = KVT_ENGRAM_DAMAGED};
    bool is_alone = engram_use_is_alone(listing->store, file_name, length);
    enum kvt_status status = listing_look(listing, file_name, &head);

    if (status == KVT_MISS || status == KVT_E_INVAL) /* It is no regular file. */
        return status;
    if (status != KVT_OK && status != KVT_E_FORMAT && status != KVT_E_CORRUPT) {
        listing_note(listing, status);
        return status;
    }
    if (status == KVT_OK && head_fits(&head, file_name, length, is_new))
        info_fill(&head, is_new ? KVT_ENGRAM_IMPORTING : KVT_ENGRAM_WHOLE, &info);
    else if (status == KVT_E_FORMAT)
        info.state = KVT_ENGRAM_FOREIGN;
    /* Its import, which may begin or end meanwhile, has not written a head; or it is dropped. */
    else if (is_new && (is_alone || engram_use_is_alone(listing->store, file_name, length)))
        info.state = KVT_ENGRAM_IMPORTING;
    memcpy(info.name, file_name, length);
    listing->is_over = listing->visit(listing->context, &info) == 0;
    return KVT_OK;
}

/* An import may have ended: the folder as we read it need not have the name that it gave. */
static void
listing_show_late(struct listing *listing, const char *new_name, size_t length)
{
    struct listing_late *late = env_take(&listing->store->env, sizeof(*late));

    if (late == NULL) {
        listing_note(listing, failure_set(KVT_E_NOMEM, 0, "no memory to list %s", new_name));
        return;
    }
    memcpy(late->file_name, new_name, length + strlen(ENGRAM_ENDING));
    if (listing_show(listing, late->file_name, length, false) == KVT_MISS) {
        env_put(&listing->store->env, late, sizeof(*late));
        return;
    }
    late->next = listing->late;
    listing->late = late;
}

static bool
listing_visit(void *visitor, const char *file_name)
{
    struct listing *listing = visitor;
    const struct listing_late *late = listing->late;
    bool is_new;
    size_t length = engram_name_length(file_name, &is_new);

    while (late != NULL && strcmp(late->file_name, file_name) != 0)
        late = late->next;
    if (length == 0 || late != NULL)
        return true;
    if (listing_show(listing, file_name, length, is_new) == KVT_MISS && is_new)
        listing_show_late(listing, file_name, length);
    return !listing->is_over;
}

enum kvt_status
kvt_engram_list(kvt_store *store, int (*visit)(void *context, const struct kvt_engram_info *info),
    void *context)
{
    struct listing listing = {.store = store, .visit = visit, .context = context};
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    if (visit == NULL)
        return failure_set(KVT_E_INVAL, 0, "visit is NULL");
    status = engram_dir(store, false, &listing.dir);
    if (status == KVT_MISS)
        return KVT_OK;
    KVT_TRY(status);
    status = store->env.fs->dir_list(listing.dir, listing_visit, &listing);
    while (listing.late != NULL) {
        struct listing_late *late = listing.late;

        listing.late = late->next;
        env_put(&store->env, late, sizeof(*late));
    }
    KVT_TRY(status);
    if (listing.status != KVT_OK)
        failure_copy(&listing.failure);
    return listing.status;
}

/* --- Dropping --------------------------------------------------------------------------------- */

static enum kvt_status
files_drop(struct kvt_store *store, const char *name)
{
    static const char *const endings[] = {ENGRAM_ENDING, ENGRAM_ENDING_NEW};
    struct fs_dir *dir = NULL;
    bool is_dropped = false;

    KVT_TRY(engram_dir(store, false, &dir));
    for (uint32_t i = 0; i < 2; i++) {
        char file_name[ENGRAM_FILE_NAME_BYTES];
        enum kvt_status status;

        engram_file_name(name, endings[i], file_name);
        status = engram_unlink(store, dir, file_name);
        is_dropped = is_dropped || status == KVT_OK;
        if (status != KVT_OK && status != KVT_MISS)
            return status;
    }
    /* Also what an earlier drop took away: it may have been cut short before this. */
    KVT_TRY(engram_names_sync(store, dir));
    return is_dropped ? KVT_OK : KVT_MISS;
}

enum kvt_status
kvt_engram_drop(kvt_store *store, const char *name)
{
    struct engram_use use;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    if (store->is_read_only)
        return failure_set(KVT_E_READONLY, 0, "the store was opened to be read");
    KVT_TRY(engram_use_begin(store, name, true, &use));
    status = files_drop(store, name);
    if (status == KVT_MISS)
        (void)failure_set(KVT_MISS, 0, "%s: there is no table %s", store->path, name);
    engram_use_end(store, &use);
    return status;
}

/* --- Reading in order ------------------------------------------------------------------------- */

/* How many rows a page has. */
static uint32_t
page_rows(const struct engram_head *head, uint32_t page)
{
    uint64_t before = (uint64_t)page * head->rows_per_page;
    uint64_t left = engram_row_count(head) - before;

    return left < head->rows_per_page ? (uint32_t)left : head->rows_per_page;
}

enum kvt_status
engram_pages_read(
    struct kvt_store *store, struct fs_file *file, uint32_t first, uint32_t count, uint8_t *buffer)
{
    size_t size = (size_t)count * PAGE_BYTES;
    size_t read_size = 0;

    KVT_TRY(store->env.fs->read_at(file, buffer, size, engram_page_offset(first), &read_size));
    if (read_size < size)
        return failure_set(KVT_E_IO, 0, "a table's file ends at page %u",
            first + (uint32_t)(read_size / PAGE_BYTES));
    return KVT_OK;
}

/* Rows of one page of the buffer that lie between `first` and `end`. */
static uint8_t *
page_copy(const struct engram_head *head, uint32_t page, const uint8_t *bytes, uint64_t first,
    uint64_t end, uint8_t *target)
{
    uint64_t base = (uint64_t)page * head->rows_per_page;
    uint64_t from = first > base ? first - base : 0;
    uint64_t until = end - base < page_rows(head, page) ? end - base : page_rows(head, page);
    size_t size = (size_t)(until - from) * head->profile.row_bytes;

    memcpy(target, bytes + from * head->profile.row_bytes, size);
    return target + size;
}

static enum kvt_status
rows_read(const kvt_engram *table, uint64_t first, uint64_t end, uint8_t *target, uint8_t *buffer)
{
    const struct engram_head *head = &table->head;
    uint32_t page = (uint32_t)(first / head->rows_per_page);
    uint32_t page_end = (uint32_t)((end - 1) / head->rows_per_page) + 1;

    while (page < page_end) {
        uint32_t count =
            page_end - page < ENGRAM_CHUNK_PAGES ? page_end - page : ENGRAM_CHUNK_PAGES;

        KVT_TRY(engram_pages_read(table->store, table->file, page, count, buffer));
        for (uint32_t i = 0; i < count; i++, page++) {
            const uint8_t *bytes = buffer + (size_t)i * PAGE_BYTES;

            if (!engram_page_is_intact(head, page, bytes))
                return failure_set(
                    KVT_E_CORRUPT, 0, "page %u of the table %s is damaged", page, head->name);
            target = page_copy(head, page, bytes, first, end, target);
        }
    }
    return KVT_OK;
}

/* Of pinned ones. */
static void
rows_take(const struct kvt_engram *table, uint64_t first, uint64_t end, uint8_t *target)
{
    uint32_t page = (uint32_t)(first / table->head.rows_per_page);

    for (; (uint64_t)page * table->head.rows_per_page < end; page++)
        target =
            page_copy(&table->head, page, engram_pin_page(&table->pin, page), first, end, target);
}

enum kvt_status
kvt_engram_read(kvt_engram *table, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    uint8_t *buffer;
    enum kvt_status status;

    if (table == NULL || (rows_out == NULL && row_count > 0))
        return failure_set(KVT_E_INVAL, 0, "table or rows_out is NULL");
    KVT_TRY(store_enter(table->store));
    if (row_first > engram_row_count(&table->head) ||
        row_count > engram_row_count(&table->head) - row_first)
        return failure_set(KVT_E_INVAL, 0, "%llu rows from %llu on: the table %s has %u",
            (unsigned long long)row_count, (unsigned long long)row_first, table->head.name,
            engram_row_count(&table->head));
    if (row_count == 0)
        return KVT_OK;
    if (engram_pin_pages(&table->pin) > 0 && row_first + row_count <= table->pin.row_count) {
        rows_take(table, row_first, row_first + row_count, rows_out);
        return KVT_OK;
    }
    if (table->file == NULL)
        return failure_set(KVT_E_INVAL, 0, "only %u rows of the table %s are shared",
            table->pin.row_count, table->head.name);
    buffer = engram_buffer(table->store, ENGRAM_CHUNK_BYTES);
    if (buffer == NULL)
        return KVT_E_NOMEM;
    status = rows_read(table, row_first, row_first + row_count, rows_out, buffer);
    env_unmap(&table->store->env, buffer, ENGRAM_CHUNK_BYTES);
    return status;
}

/* --- Surveys ---------------------------------------------------------------------------------- */

static void
survey_page(struct engram_survey *survey, uint32_t page, const uint8_t *bytes, uint64_t *sum)
{
    struct kvt_engram_findings *findings = &survey->findings;

    findings->page_count++;
    if (bytes != NULL && engram_page_is_intact(survey->head, page, bytes)) {
        *sum += engram_page_sum(bytes);
        return;
    }
    if (findings->damaged_count++ == 0)
        findings->first_row = (uint64_t)page * survey->head->rows_per_page;
}

/* One page of those that cannot be read together. False: nor alone. */
static bool
survey_read(struct engram_survey *survey, uint32_t page, uint8_t *buffer)
{
    enum kvt_status status = engram_pages_read(survey->store, survey->file, page, 1, buffer);

    if (status == KVT_OK)
        return true;
    if (survey->unread_count++ == 0) {
        survey->unread_status = status;
        survey->unread_failure = *failure_last();
    }
    return false;
}

/* Some pages; one by one when they cannot be read together. */
static void
survey_pages(
    struct engram_survey *survey, uint32_t first, uint32_t count, uint8_t *buffer, uint64_t *sum)
{
    bool is_read = engram_pages_read(survey->store, survey->file, first, count, buffer) == KVT_OK;

    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *bytes = buffer + (size_t)i * PAGE_BYTES;

        if (!is_read)
            bytes = survey_read(survey, first + i, buffer) ? buffer : NULL;
        survey_page(survey, first + i, bytes, sum);
    }
}

enum kvt_status
engram_survey_run(struct engram_survey *survey)
{
    const struct engram_head *head = survey->head;
    uint8_t *buffer = engram_buffer(survey->store, ENGRAM_CHUNK_BYTES);
    enum kvt_status status = KVT_OK;
    uint64_t sum = 0;

    if (buffer == NULL)
        return KVT_E_NOMEM;
    memset(&survey->findings, 0, sizeof(survey->findings));
    survey->unread_count = 0;
    for (uint32_t page = 0; page < head->page_count && status == KVT_OK;) {
        uint32_t left = head->page_count - page;
        uint32_t count = left < ENGRAM_CHUNK_PAGES ? left : ENGRAM_CHUNK_PAGES;
        uint64_t rows;

        survey_pages(survey, page, count, buffer, &sum);
        page += count;
        rows = (uint64_t)page * head->rows_per_page;
        rows = rows < engram_row_count(head) ? rows : engram_row_count(head);
        if (survey->progress != NULL &&
            survey->progress(survey->context, rows, engram_row_count(head)) == 0)
            status = KVT_CANCELLED;
    }
    env_unmap(&survey->store->env, buffer, ENGRAM_CHUNK_BYTES);
    survey->findings.is_sum_wrong =
        status == KVT_OK && survey->findings.damaged_count == 0 && sum != head->content_sum;
    return status;
}

enum kvt_status
kvt_engram_verify(kvt_engram *table,
    int (*progress)(void *context, uint64_t rows_done, uint64_t row_count), void *context,
    struct kvt_engram_findings *findings_out)
{
    struct engram_survey survey = {.progress = progress, .context = context};

    if (table == NULL || findings_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table or findings_out is NULL");
    KVT_TRY(store_enter(table->store));
    if (table->file == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "the table %s is another process's: it was verified when it was opened",
            table->head.name);
    survey.store = table->store;
    survey.file = table->file;
    survey.head = &table->head;
    KVT_TRY(engram_survey_run(&survey));
    *findings_out = survey.findings;
    return KVT_OK;
}
