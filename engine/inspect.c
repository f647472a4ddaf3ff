/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.c - kvt_check(): every structure and every payload of a closed store.
 *
 * The store is opened for reading only, by the recovery that any owner goes through: what that
 * refuses, it says in the log, and each such line becomes a finding.
 */
#include "inspect.h"

#include <stdio.h>

#include "batch_header.h"
#include "store_internal.h"

enum {
    LINE_BYTES = 1024,
    CHECK_HOST_BYTES = 256 << 20, /* More than any block. */
    CHECK_WORKERS = 4,            /* A checksum must not be what a fast device waits for. */
};

enum kvt_status
inspect_open(const char *path,
    void (*log)(void *context, int level, const char *module, const char *line), void *context,
    kvt_store **store_out)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.flags = KVT_OPEN_READ_ONLY;
    options.host_capacity_bytes = CHECK_HOST_BYTES;
    options.worker_count = CHECK_WORKERS;
    options.log = log;
    options.log_context = context;
    options.log_level = KVT_LOG_WARN;
    return kvt_open(path, &options, store_out);
}

enum kvt_status
examination_begin(struct examination *examination, const struct kvt_examiner *examiner,
    const struct kvt_check_report *report_out)
{
    const struct kvt_examiner silent = {.found = NULL};

    if (report_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "report_out is NULL");
    if (examiner == NULL)
        examiner = &silent;
    *examination = (struct examination){
        .found = examiner->found,
        .progress = examiner->progress,
        .context = examiner->context,
        .report = {.struct_size = sizeof(examination->report)},
    };
    return KVT_OK;
}

void
examination_found(struct examination *examination, const char *kind, const char *text,
    uint32_t segment, uint32_t page)
{
    const struct kvt_finding finding = {
        .kind = kind, .text = text, .segment = segment, .page = page};

    examination->report.finding_count++;
    if (examination->found != NULL)
        examination->found(examination->context, &finding);
}

/* --- What recovery says ----------------------------------------------------------------------- */

struct check {
    struct examination examination;
    bool index_is_damaged;
};

static void
finding_add(struct check *check, const char *kind, const char *text)
{
    examination_found(&check->examination, kind, text, SEGMENT_NONE, SEGMENT_NONE);
}

/* From the thread that opens, before kvt_open() returns; later lines tell nothing new. */
static void
line_take(void *context, int level, const char *module, const char *line)
{
    struct check *check = context;
    char text[LINE_BYTES];

    (void)level;
    if (strcmp(module, "recover") == 0 && strncmp(line, "event=record_dropped ", 21) == 0) {
        check->examination.report.damaged_count++;
        (void)snprintf(text, sizeof(text),
            "a record of the index is refused (%s): its block is a miss; kvtool check --rebuild "
            "looks for it in the segments",
            line + 21);
        finding_add(check, "record", text);
    } else if (strcmp(module, "recover") == 0 && strncmp(line, "event=index_damaged ", 20) == 0) {
        check->index_is_damaged = true;
        (void)snprintf(text, sizeof(text),
            "the index cannot be used (%s): kvtool check --rebuild, or the next open for writing, "
            "makes it anew from the segments",
            line + 20);
        finding_add(check, "index", text);
    }
}

/* --- STORE and NAMES -------------------------------------------------------------------------- */

static void
copy_take(void *context, const char *name, const char *reason)
{
    char text[LINE_BYTES];

    (void)snprintf(text, sizeof(text),
        "%s: %s; the other copy is used, and the next open for writing writes this one anew", name,
        reason);
    finding_add(context, name[0] == 'S' ? "store" : "names", text);
}

/* --- Data files -------------------------------------------------------------------------------- */

/* Reads behind the end of a file find nothing: those blocks are reported, too, one by one. */
static enum kvt_status
files_check(struct check *check, kvt_store *store)
{
    const struct fs_ops *fs = store->env.fs;
    uint64_t wanted = store->options.nvme_capacity_bytes / store->file.root_count;

    for (uint32_t i = 0; store->nvme != NULL && i < store->file.root_count; i++) {
        char text[LINE_BYTES];
        struct fs_file *file;
        uint64_t size = 0;
        enum kvt_status status = fs->open(store->root_dirs[i], "data.00", FS_READ_ONLY, &file);

        KVT_TRY(status);
        status = fs->size(file, &size);
        fs->close(file);
        KVT_TRY(status);
        if (size >= wanted / store->options.segment_bytes * store->options.segment_bytes)
            continue;
        (void)snprintf(text, sizeof(text),
            "%s/data.00 has %llu of %llu bytes: the blocks behind its end are misses; the next "
            "open "
            "for writing makes it whole again",
            fs->dir_path(store->root_dirs[i]), (unsigned long long)size,
            (unsigned long long)wanted);
        finding_add(check, "file", text);
    }
    return KVT_OK;
}

/* --- Segments --------------------------------------------------------------------------------- */

static bool
batch_pass(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    (void)visitor;
    (void)header;
    (void)records;
    (void)kills;
    return true;
}

/*
 * Batch headers are read by a rebuild only: damage in one costs nothing now, and blocks if the
 * index should be lost as well.
 */
static enum kvt_status
headers_check(struct check *check, kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;

    if (store->nvme == NULL)
        return KVT_OK;
    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        char text[LINE_BYTES];
        uint32_t generation;
        uint64_t damaged_pages = 0;

        if (segment->state != SEGMENT_SEALED && segment->state != SEGMENT_ACTIVE)
            continue;
        KVT_TRY(
            nvme_scan(store->nvme, segment->number, batch_pass, NULL, &generation, &damaged_pages));
        if (damaged_pages == 0 && generation == segment->generation)
            continue;
        if (segment->record_count == 0 && damaged_pages == 0)
            continue;
        (void)snprintf(text, sizeof(text),
            "segment %u: %llu pages of batch headers are damaged, generation %u of %u is found: "
            "its "
            "blocks are read by the index, but a rebuild would lose some; export them, or let "
            "reclaiming move them",
            segment->number, (unsigned long long)damaged_pages, generation, segment->generation);
        examination_found(&check->examination, "header", text, segment->number, SEGMENT_NONE);
    }
    return KVT_OK;
}

static enum kvt_status
store_check(struct check *check, kvt_store *store)
{
    enum index_condition condition;

    KVT_TRY(store_file_examine(&store->env, store->dir, copy_take, check));
    KVT_TRY(names_examine(&store->names, store->dir, copy_take, check));
    KVT_TRY(store->world.index_ops->inspect(
        store->world.index_context, &store->env, store->meta_dir, true, &condition));
    if (condition == INDEX_DAMAGED && !check->index_is_damaged)
        finding_add(check, "index", failure_last()->text);
    KVT_TRY(files_check(check, store));
    KVT_TRY(headers_check(check, store));
    return scrub_run(store, 0, &check->examination);
}

enum kvt_status
kvt_check(
    const char *path, const struct kvt_examiner *examiner, struct kvt_check_report *report_out)
{
    struct check check = {0};
    kvt_store *store;
    enum kvt_status status;

    KVT_TRY(examination_begin(&check.examination, examiner, report_out));
    status = inspect_open(path, line_take, &check, &store);
    if (status == KVT_E_CORRUPT && !check.index_is_damaged)
        finding_add(&check, "store", failure_last()->text);
    if (status == KVT_OK) {
        status = store_check(&check, store);
        status = status_keep(status, kvt_close(store));
    }
    if (status == KVT_OK || status == KVT_E_CORRUPT)
        *report_out = check.examination.report;
    return status;
}
