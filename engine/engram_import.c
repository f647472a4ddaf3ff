/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_import.c - makes a table's file, so that a crash leaves no table or the whole one.
 *
 * Order     1. NAME.engram.new with all its space, and a head IMPORTING that names 0 durable pages.
 *           2. Pages, in order. Each step_bytes of them, and behind the last one: sync, then a head
 *              that names them, always the worse of the two (a torn one costs the other's progress
 *              only).
 *           3. All pages read back, sync, the worse head WHOLE, sync, the other one WHOLE, sync.
 *           4. Rename to NAME.engram, sync of the folder.
 *           What a crash cuts short before the rename is gone on with by the next import of the
 *           same rows, from the pages that the better head names. What a later version has left
 *           there is not touched.
 * Failures  A sync that failed is not repeated: the import ends, and what was written since the
 *           last mark is written again by the next one. A file that names no durable page when its
 *           import fails goes: one that found no space gives back what it took.
 */
#include "engram_set.h"

enum {
    STEP_PAGES_DEFAULT = 65536, /* 256 MiB */
};

struct importer {
    struct kvt_store *store;
    const struct kvt_engram_source *source;
    struct fs_dir *dir;
    struct fs_file *file;
    char file_name[ENGRAM_FILE_NAME_BYTES]; /* While it is imported. */
    struct engram_head head;
    uint32_t pages_written;
    uint64_t sum_written; /* Of their checksums. */
    uint64_t step_pages;  /* Between two marks. */
    bool is_second_next;  /* Head to be written: the worse one. */
    uint8_t *pages;       /* ENGRAM_CHUNK_BYTES, and then a page for heads. */
    uint8_t *rows;        /* As many as these pages have. */
};

/* --- Space ------------------------------------------------------------------------------------ */

struct usage {
    struct importer *importer;
    uint64_t bytes;
    enum kvt_status status;
};

/* Files of tables; what else lies there is not ours. */
static bool
usage_visit(void *visitor, const char *file_name)
{
    struct usage *usage = visitor;
    const struct fs_ops *fs = usage->importer->store->env.fs;
    struct fs_file *file = NULL;
    uint64_t size = 0;
    bool is_new;

    if (engram_name_length(file_name, &is_new) == 0 ||
        strcmp(file_name, usage->importer->file_name) == 0)
        return true;
    usage->status = fs->open(usage->importer->dir, file_name, FS_READ_ONLY, &file);
    if (usage->status == KVT_MISS || usage->status == KVT_E_INVAL) {
        usage->status = KVT_OK; /* Dropped since; or no regular file. */
        return true;
    }
    if (usage->status == KVT_OK) {
        usage->status = fs->size(file, &size);
        fs->close(file);
    }
    usage->bytes += size;
    return usage->status == KVT_OK;
}

static enum kvt_status
capacity_check(struct importer *importer)
{
    uint64_t capacity = importer->store->options.engram_capacity_bytes;
    uint64_t wanted = engram_file_bytes(&importer->head);
    struct usage usage = {.importer = importer};

    if (capacity == KVT_CAPACITY_NONE)
        return KVT_OK;
    KVT_TRY(importer->store->env.fs->dir_list(importer->dir, usage_visit, &usage));
    KVT_TRY(usage.status);
    if (usage.bytes <= capacity && wanted <= capacity - usage.bytes)
        return KVT_OK;
    return failure_set(KVT_E_NOSPC, 0,
        "the table %s takes %llu bytes, others %llu, engram_capacity_bytes is %llu",
        importer->head.name, (unsigned long long)wanted, (unsigned long long)usage.bytes,
        (unsigned long long)capacity);
}

static enum kvt_status
space_take(const struct importer *importer)
{
    const struct fs_ops *fs = importer->store->env.fs;
    uint64_t size = engram_file_bytes(&importer->head);
    enum kvt_status status = fs->allocate(importer->file, 0, size);

    if (status == KVT_E_UNSUPPORTED)
        status = fs->truncate(importer->file, size);
    if (status == KVT_E_NOSPC)
        return failure_set(KVT_E_NOSPC, 0, "%s: the table %s takes %llu bytes, the disk is full",
            fs->dir_path(importer->dir), importer->head.name, (unsigned long long)size);
    return status;
}

/* --- Heads ------------------------------------------------------------------------------------ */

static enum kvt_status
head_write(struct importer *importer)
{
    uint8_t *page = importer->pages + ENGRAM_CHUNK_BYTES;
    uint64_t offset = importer->is_second_next ? engram_page_offset(importer->head.page_count) : 0;

    importer->is_second_next = !importer->is_second_next;
    engram_head_encode(&importer->head, page);
    return importer->store->env.fs->write_at(importer->file, page, PAGE_BYTES, offset);
}

/* What was written is durable, the head before among it, and the next head says so. */
static enum kvt_status
mark_write(struct importer *importer)
{
    KVT_TRY(importer->store->env.fs->sync(importer->file));
    importer->head.pages_done = importer->pages_written;
    importer->head.content_sum = importer->sum_written;
    return head_write(importer);
}

/* --- The file --------------------------------------------------------------------------------- */

static enum kvt_status
file_create(struct importer *importer)
{
    struct kvt_store *store = importer->store;
    const struct fs_ops *fs = store->env.fs;
    enum kvt_status status = engram_unlink(store, importer->dir, importer->file_name);

    if (status != KVT_OK && status != KVT_MISS)
        return status;
    status = engram_file_open(
        store, importer->dir, importer->file_name, FS_CREATE | FS_EXCLUSIVE, &importer->file);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        /* It may have been made before that. */
        (void)engram_unlink(store, importer->dir, importer->file_name);
        failure_copy(&failure);
        return status;
    }
    engram_names_changed(store);
    store->env.random->fill(
        store->env.random_context, importer->head.uuid, sizeof(importer->head.uuid));
    importer->head.created_ns = store->env.clock->wall_ns(store->env.clock_context);
    KVT_TRY(space_take(importer));
    KVT_TRY(head_write(importer));
    KVT_TRY(fs->sync(importer->file));
    return engram_names_sync(store, importer->dir);
}

/* Whether what lies there is the beginning of what is to be imported. */
static bool
head_continues(const struct engram_head *wanted, const struct engram_head *there)
{
    return memcmp(&there->profile, &wanted->profile, sizeof(wanted->profile)) == 0 &&
           memcmp(there->source, wanted->source, sizeof(wanted->source)) == 0 &&
           strcmp(there->name, wanted->name) == 0;
}

/* What was read failed, and may fail each time: the sentence says what ends that. */
static enum kvt_status
drop_advise(const struct importer *importer, enum kvt_status status, const struct failure *failure)
{
    return failure_set(status, failure->foreign_code,
        "%s (kvt_engram_drop() gives up what an import has left of %s)", failure->text,
        importer->head.name);
}

/* The heads that an import left cannot be judged. Not ours to forget (file_forget()): it may have
 * pages to go on from, for us or a later version. Whoever knows better drops it. */
static enum kvt_status
heads_refuse(struct importer *importer, enum kvt_status status)
{
    struct failure failure = *failure_last();

    importer->store->env.fs->close(importer->file);
    importer->file = NULL;
    return drop_advise(importer, status, &failure);
}

/* What an import left, if it can be gone on with; else anew. */
static enum kvt_status
file_open(struct importer *importer)
{
    struct kvt_store *store = importer->store;
    struct engram_head there = {0};
    bool is_second = false;
    enum kvt_status status =
        engram_file_open(store, importer->dir, importer->file_name, 0, &importer->file);

    if (status == KVT_MISS)
        return file_create(importer);
    KVT_TRY(status);
    status = engram_head_read(store, importer->file, importer->file_name, &there, &is_second);
    if (status != KVT_OK && status != KVT_E_CORRUPT)
        return heads_refuse(importer, status);
    if (status != KVT_OK || !head_continues(&importer->head, &there)) {
        store->env.fs->close(importer->file);
        importer->file = NULL;
        return file_create(importer);
    }
    importer->head = there;
    importer->head.state = ENGRAM_FILE_IMPORTING;
    importer->pages_written = there.pages_done;
    importer->sum_written = there.content_sum;
    importer->is_second_next = !is_second;
    /* Whoever made it may have died before this. */
    return engram_names_sync(store, importer->dir);
}

/* Room that one import has found is taken before another looks. */
static enum kvt_status
file_prepare(struct importer *importer)
{
    enum kvt_status status;

    pthread_mutex_lock(&importer->store->engrams->space_lock);
    status = capacity_check(importer);
    if (status == KVT_OK)
        status = file_open(importer);
    pthread_mutex_unlock(&importer->store->engrams->space_lock);
    return status;
}

/* --- Pages ------------------------------------------------------------------------------------ */

static bool
importer_goes_on(const struct importer *importer, uint64_t rows)
{
    const struct kvt_engram_source *source = importer->source;

    return source->progress == NULL ||
           source->progress(source->context, rows, engram_row_count(&importer->head)) != 0;
}

/* The next pages, at most a chunk. */
static enum kvt_status
chunk_write(struct importer *importer)
{
    const struct engram_head *head = &importer->head;
    uint32_t page = importer->pages_written;
    uint32_t left = head->page_count - page;
    uint32_t count = left < ENGRAM_CHUNK_PAGES ? left : ENGRAM_CHUNK_PAGES;
    uint64_t first = (uint64_t)page * head->rows_per_page;
    uint64_t end = first + (uint64_t)count * head->rows_per_page;
    const uint8_t *row = importer->rows;

    end = end < engram_row_count(head) ? end : engram_row_count(head);
    KVT_TRY(importer->source->read(importer->source->context, first, end - first, importer->rows));
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *bytes = importer->pages + (size_t)i * PAGE_BYTES;
        uint64_t rows = end - first < head->rows_per_page ? end - first : head->rows_per_page;
        size_t size = (size_t)rows * head->profile.row_bytes;

        memcpy(bytes, row, size);
        row += size;
        first += rows;
        importer->sum_written += engram_page_seal(head, page + i, (uint32_t)rows, bytes);
    }
    KVT_TRY(importer->store->env.fs->write_at(
        importer->file, importer->pages, (size_t)count * PAGE_BYTES, engram_page_offset(page)));
    importer->pages_written += count;
    return KVT_OK;
}

static enum kvt_status
pages_write(struct importer *importer)
{
    const struct engram_head *head = &importer->head;

    while (importer->pages_written < head->page_count) {
        uint64_t rows = (uint64_t)importer->pages_written * head->rows_per_page;
        enum kvt_status status = KVT_OK;
        uint64_t sum = importer->sum_written;

        if (!importer_goes_on(importer, rows))
            status = failure_set(KVT_CANCELLED, 0, "the import of %s was stopped", head->name);
        if (status == KVT_OK)
            status = chunk_write(importer);
        if (status != KVT_OK) {
            struct failure failure = *failure_last();

            importer->sum_written = sum;
            (void)mark_write(importer); /* For the next import; that it works is not promised. */
            failure_copy(&failure);
            return status;
        }
        if (importer->pages_written - head->pages_done >= importer->step_pages)
            KVT_TRY(mark_write(importer));
    }
    return importer_goes_on(importer, engram_row_count(head))
               ? KVT_OK
               : failure_set(KVT_CANCELLED, 0, "the import of %s was stopped", head->name);
}

/* Everything is what was written, on the disk as well. What is not goes; what cannot be read this
 * time may be, and stays for the next import. */
static enum kvt_status
pages_prove(struct importer *importer)
{
    struct engram_survey survey = {.store = importer->store,
        .file = importer->file,
        .head = &importer->head,
        .progress = importer->source->progress,
        .context = importer->source->context};
    enum kvt_status status;

    if ((importer->source->flags & KVT_ENGRAM_IMPORT_UNREAD) != 0)
        return KVT_OK;
    status = engram_survey_run(&survey);
    if (status == KVT_CANCELLED)
        return failure_set(KVT_CANCELLED, 0, "the import of %s was stopped", importer->head.name);
    KVT_TRY(status);
    if (survey.findings.damaged_count == 0 && survey.findings.is_sum_wrong == 0)
        return KVT_OK;
    if (survey.unread_count > 0 && survey.unread_count == survey.findings.damaged_count) {
        if (survey.unread_status == KVT_E_IO)
            return drop_advise(importer, KVT_E_IO, &survey.unread_failure);
        failure_copy(&survey.unread_failure);
        return survey.unread_status;
    }
    (void)engram_unlink(importer->store, importer->dir, importer->file_name);
    return failure_set(KVT_E_CORRUPT, 0,
        "%s: %llu of %llu pages could not be read back as they were written", importer->file_name,
        (unsigned long long)survey.findings.damaged_count,
        (unsigned long long)survey.findings.page_count);
}

static enum kvt_status
file_finish(struct importer *importer)
{
    const struct fs_ops *fs = importer->store->env.fs;
    char file_name[ENGRAM_FILE_NAME_BYTES];
    enum kvt_status status;

    KVT_TRY(mark_write(importer));
    KVT_TRY(pages_prove(importer));
    importer->head.state = ENGRAM_FILE_WHOLE;
    KVT_TRY(mark_write(importer));
    KVT_TRY(mark_write(importer));
    KVT_TRY(fs->sync(importer->file));
    engram_file_name(importer->head.name, ENGRAM_ENDING, file_name);
    /* Not while another adds up what tables take: it would look for this one under its old name. */
    pthread_mutex_lock(&importer->store->engrams->space_lock);
    status = fs->rename(importer->dir, importer->file_name, file_name);
    pthread_mutex_unlock(&importer->store->engrams->space_lock);
    engram_names_changed(importer->store);
    KVT_TRY(status);
    return engram_names_sync(importer->store, importer->dir);
}

/* Behind a failure: a file without a page to go on from would only take space. */
static void
file_forget(struct importer *importer)
{
    struct failure failure = *failure_last();

    if (importer->file == NULL || importer->head.pages_done > 0)
        return;
    (void)engram_unlink(importer->store, importer->dir, importer->file_name);
    failure_copy(&failure);
}

/* --- The call --------------------------------------------------------------------------------- */

static enum kvt_status
import_check(const struct kvt_engram_source *source, struct engram_head *head)
{
    struct kvt_engram_profile profile;

    if (source == NULL || source->profile == NULL || source->read == NULL)
        return failure_set(KVT_E_INVAL, 0, "source, its profile or read is NULL");
    if (source->struct_size != sizeof(*source))
        return failure_set(source->struct_size > sizeof(*source) ? KVT_E_UNSUPPORTED : KVT_E_INVAL,
            0, "struct_size %u is not %zu", source->struct_size, sizeof(*source));
    if ((source->flags & ~(uint32_t)KVT_ENGRAM_IMPORT_UNREAD) != 0 || source->reserved0 != 0)
        return failure_set(
            KVT_E_INVAL, 0, "flags 0x%x, reserved0 %u", source->flags, source->reserved0);
    KVT_TRY(engram_profile_import(&profile, source->profile));
    if (source->layer_index >= profile.layer_count)
        return failure_set(KVT_E_INVAL, 0, "layer_index %u: the profile has %u layers",
            source->layer_index, profile.layer_count);
    if (profile.row_bytes > ENGRAM_PAGE_ROOM)
        return failure_set(
            KVT_E_INVAL, 0, "row_bytes %u is above %d", profile.row_bytes, ENGRAM_PAGE_ROOM);
    memset(head, 0, sizeof(*head));
    head->profile = profile;
    head->profile.layer_count = 1;
    memset(head->profile.layers, 0, sizeof(head->profile.layers));
    head->profile.layers[0].number = profile.layers[source->layer_index].number;
    head->profile.layers[0].row_count = profile.layers[source->layer_index].row_count;
    for (uint32_t s = 0; s < profile.order_max; s++)
        head->profile.layers[0].multipliers[s] = profile.layers[source->layer_index].multipliers[s];
    for (uint32_t i = 0; i < (profile.order_max - 1) * profile.head_count; i++) {
        head->profile.layers[0].primes[i] = profile.layers[source->layer_index].primes[i];
        head->profile.layers[0].offsets[i] = profile.layers[source->layer_index].offsets[i];
    }
    memcpy(head->source, source->mark, sizeof(head->source));
    head->state = ENGRAM_FILE_IMPORTING;
    engram_head_shape(head);
    return KVT_OK;
}

/* KVT_EXISTS: it is there, and stays after a crash. */
static enum kvt_status
table_is_missing(const struct importer *importer)
{
    const struct fs_ops *fs = importer->store->env.fs;
    char file_name[ENGRAM_FILE_NAME_BYTES];
    struct fs_file *file = NULL;
    enum kvt_status status;

    engram_file_name(importer->head.name, ENGRAM_ENDING, file_name);
    status = fs->open(importer->dir, file_name, FS_READ_ONLY, &file);
    if (status == KVT_MISS)
        return KVT_OK;
    KVT_TRY(status);
    fs->close(file);
    KVT_TRY(engram_names_sync(importer->store, importer->dir));
    return failure_set(KVT_EXISTS, 0, "there is a table %s", importer->head.name);
}

/* Its name is in use: by those who have it open, if it is there and nobody has it alone. */
static enum kvt_status
import_refuse(struct importer *importer)
{
    struct kvt_store *store = importer->store;
    struct engram_use use;
    enum kvt_status status;

    KVT_TRY(engram_use_begin(store, importer->head.name, false, &use));
    status = engram_dir(store, true, &importer->dir);
    if (status == KVT_OK)
        status = table_is_missing(importer);
    engram_use_end(store, &use);
    if (status == KVT_OK)
        return failure_set(KVT_E_STATE, 0, "the table %s is being looked for", use.name);
    return status;
}

static enum kvt_status
import_run(struct importer *importer)
{
    struct kvt_store *store = importer->store;
    size_t rows_bytes = (size_t)ENGRAM_CHUNK_PAGES * PAGE_BYTES;
    enum kvt_status status;

    KVT_TRY(engram_dir(store, true, &importer->dir));
    KVT_TRY(table_is_missing(importer));
    engram_file_name(importer->head.name, ENGRAM_ENDING_NEW, importer->file_name);
    importer->pages = engram_buffer(store, ENGRAM_CHUNK_BYTES + PAGE_BYTES);
    if (importer->pages == NULL)
        return KVT_E_NOMEM;
    importer->rows = engram_buffer(store, rows_bytes);
    status = importer->rows == NULL ? KVT_E_NOMEM : file_prepare(importer);
    if (status == KVT_OK)
        status = pages_write(importer);
    if (status == KVT_OK)
        status = file_finish(importer);
    if (status != KVT_OK)
        file_forget(importer);
    store->env.fs->close(importer->file);
    if (importer->rows != NULL)
        env_unmap(&store->env, importer->rows, rows_bytes);
    env_unmap(&store->env, importer->pages, ENGRAM_CHUNK_BYTES + PAGE_BYTES);
    return status;
}

enum kvt_status
kvt_engram_import(kvt_store *store, const struct kvt_engram_source *source)
{
    struct importer importer = {.store = store, .source = source};
    struct engram_use use;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    KVT_TRY(import_check(source, &importer.head));
    if (store->is_read_only)
        return failure_set(KVT_E_READONLY, 0, "the store was opened to be read");
    importer.step_pages = source->step_bytes == 0 ? (uint64_t)STEP_PAGES_DEFAULT
                                                  : (source->step_bytes - 1) / PAGE_BYTES + 1;
    status = engram_use_begin(store, source->name, true, &use);
    if (status != KVT_OK && status != KVT_E_STATE)
        return status;
    memcpy(importer.head.name, use.name, sizeof(importer.head.name));
    if (status == KVT_E_STATE)
        return import_refuse(&importer);
    status = import_run(&importer);
    engram_use_end(store, &use);
    return status;
}
