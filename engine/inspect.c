/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.c - kvt_check(): every structure and every payload of a closed store.
 *
 * The store is opened for reading only, by the recovery that any owner goes through: what that
 * refuses, it says in the log, and each such line becomes a finding; what the log held back is one
 * more.
 */
#include "inspect.h"

#include <inttypes.h>
#include <stdio.h>

#include "batch_header.h"
#include "store_internal.h"

enum {
    LINE_BYTES = 1024,
    CHECK_WORKERS = 8, /* A checksum must not be what a fast device waits for. */
};

enum kvt_status
inspect_open(const char *path,
    void (*log)(void *context, int level, const char *module, const char *line), void *context,
    kvt_store **store_out)
{
    struct kvt_env env;
    const struct store_world world = {.env = &env,
        .index_ops = &index_lmdb_ops,
        .may_lack_data = true,
        .host_bytes = scrub_host_bytes};
    struct kvt_options options = KVT_OPTIONS_INIT;

    env_host(&env);
    options.flags = KVT_OPEN_READ_ONLY;
    options.worker_count = CHECK_WORKERS;
    options.log = log;
    options.log_context = context;
    options.log_level = KVT_LOG_WARN;
    return store_open_in(&world, path, &options, store_out);
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
    uint64_t record_count; /* Refused ones that the log has named. */
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
        check->record_count++;
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
    } else if (strcmp(module, "store") == 0 && strncmp(line, "event=store_file_old ", 21) == 0) {
        (void)snprintf(text, sizeof(text),
            "STORE was put back from an older copy (%s): the next open for writing writes it anew",
            line + 21);
        finding_add(check, "store", text);
    }
}

/* Of many the log names only some: LOG_RATE_PER_S. */
static void
records_rest_add(struct check *check, kvt_store *store)
{
    uint64_t rest =
        atomic_load_explicit(&store->counters.recover_dropped_count, memory_order_relaxed) -
        check->record_count;
    char text[LINE_BYTES];

    if (rest == 0)
        return;
    check->examination.report.damaged_count += rest;
    (void)snprintf(text, sizeof(text),
        "%" PRIu64 " more records of the index are refused: their blocks are misses; kvtool check "
        "--rebuild looks for them in the segments",
        rest);
    finding_add(check, "record", text);
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

/* --- Data files ------------------------------------------------------------------------------- */

/* Reads behind the end of a file find nothing: those blocks are reported, too, one by one. */
static enum kvt_status
files_check(struct check *check, kvt_store *store)
{
    const struct fs_ops *fs = store->env.fs;

    for (uint32_t i = 0; store->nvme != NULL && i < store->file.root_count; i++) {
        char text[LINE_BYTES];
        uint64_t wanted = store->file.root_bytes[i];
        struct fs_file *file;
        uint64_t size = 0;
        enum kvt_status status = fs->open(store->root_dirs[i], "data.00", FS_READ_ONLY, &file);

        /* One that is gone is as good as one without a byte. */
        if (status == KVT_OK) {
            status = fs->size(file, &size);
            fs->close(file);
        }
        if (status != KVT_MISS)
            KVT_TRY(status);
        if (size >= wanted)
            continue;
        (void)snprintf(text, sizeof(text),
            "%s/data.00 has %llu of %llu bytes: the blocks behind its end are misses; %s",
            fs->dir_path(store->root_dirs[i]), (unsigned long long)size, (unsigned long long)wanted,
            status == KVT_MISS ? "it is missing: mount its disk, or give them up with kvtool check "
                                 "--rebuild, which makes it anew"
                               : "the next open for writing makes it whole again");
        finding_add(check, "file", text);
    }
    return KVT_OK;
}

/* --- Headers and index ------------------------------------------------------------------------ */

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
 * index should be lost as well. They, and the pages of the index, are read by a worker while the
 * payloads are: the device has room for both.
 */
struct damaged_segment {
    uint32_t number;
    uint32_t generation;       /* In the index. */
    uint32_t generation_found; /* In its headers. */
    uint64_t damaged_pages;
};

enum {
    SEGMENTS_NAMED_MAX = 250, /* Damaged ones, by each walk; the rest is counted by nobody. */
    WALK_COUNT = 4,           /* Each waits for one header at a time. */
};

struct walk {
    struct crew_job job;
    struct kvt_store *store;
    uint32_t ordinal; /* Of the walks: each looks at every fourth segment; the first also at the
                       * index. */
    struct inbox done;
    struct task *nobody; /* NULL: whom the job wakes. */
    struct gate gate;
    _Atomic uint32_t is_over;
    enum kvt_status status;
    enum index_condition condition;
    struct failure failure; /* Of the worker: status, or what is wrong with the index. */
    uint32_t count;
    struct damaged_segment segments[SEGMENTS_NAMED_MAX];
};

static enum kvt_status
headers_walk(struct walk *walk)
{
    struct kvt_store *store = walk->store;
    struct segment *segment;
    uint32_t cursor = 0;

    if (store->nvme == NULL)
        return KVT_OK;
    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        struct damaged_segment *damaged = &walk->segments[walk->count];
        struct nvme_scan_result result;

        if (cursor % WALK_COUNT != walk->ordinal)
            continue;
        if ((segment->state != SEGMENT_SEALED && segment->state != SEGMENT_ACTIVE) ||
            walk->count == SEGMENTS_NAMED_MAX)
            continue;
        KVT_TRY(nvme_scan(store->nvme, segment->number, batch_pass, NULL, &result));
        if (result.damaged_pages == 0 &&
            (result.generation == segment->generation || segment->record_count == 0))
            continue;
        *damaged = (struct damaged_segment){
            segment->number, segment->generation, result.generation, result.damaged_pages};
        walk->count++;
    }
    return KVT_OK;
}

/* A worker. */
static void
walk_run(struct crew_job *job)
{
    struct walk *walk = CONTAINER_OF(job, struct walk, job);
    struct kvt_store *store = walk->store;

    walk->condition = INDEX_CLEAN;
    if (walk->ordinal == 0)
        walk->status = store->world.index_ops->inspect(
            store->world.index_context, &store->env, store->meta_dir, &walk->condition);
    if (walk->status == KVT_OK && walk->condition == INDEX_DAMAGED)
        walk->failure = *failure_last();
    if (walk->status == KVT_OK)
        walk->status = headers_walk(walk);
    if (walk->status != KVT_OK)
        walk->failure = *failure_last();
    /* (C1) release: pairs with the acquire in walk_end(). */
    atomic_store_explicit(&walk->is_over, 1, memory_order_release);
    gate_post(&store->env, &walk->gate);
}

static enum kvt_status
walk_end(struct check *check, struct walk *walk)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(&walk->gate.value, memory_order_acquire);

        if (atomic_load_explicit(&walk->is_over, memory_order_acquire) != 0)
            break;
        gate_wait(&walk->store->env, &walk->gate, seen, UINT64_MAX);
    }
    if (walk->status != KVT_OK)
        return failure_set(walk->status, walk->failure.foreign_code, "%s", walk->failure.text);
    if (walk->condition == INDEX_DAMAGED && !check->index_is_damaged)
        finding_add(check, "index", walk->failure.text);
    for (uint32_t i = 0; i < walk->count; i++) {
        const struct damaged_segment *damaged = &walk->segments[i];
        char text[LINE_BYTES];

        (void)snprintf(text, sizeof(text),
            "segment %u: %llu pages of batch headers are damaged, generation %u of %u was found: "
            "its blocks are read by the index, but a rebuild would lose some; export them, or let "
            "reclaiming move them",
            damaged->number, (unsigned long long)damaged->damaged_pages, damaged->generation_found,
            damaged->generation);
        examination_found(&check->examination, "header", text, damaged->number, SEGMENT_NONE);
    }
    return KVT_OK;
}

static enum kvt_status
store_check(struct check *check, kvt_store *store, struct walk walks[WALK_COUNT])
{
    enum kvt_status status;

    records_rest_add(check, store);
    KVT_TRY(store_file_examine(&store->env, store->dir, copy_take, check));
    KVT_TRY(names_examine(&store->names, store->dir, copy_take, check));
    KVT_TRY(files_check(check, store));
    for (uint32_t i = 0; i < WALK_COUNT; i++) {
        walks[i].store = store;
        walks[i].ordinal = i;
        walks[i].job.run = walk_run;
        walks[i].job.done = &walks[i].done;
        walks[i].job.done_task = &walks[i].nobody;
        crew_submit(store->crew, &walks[i].job);
    }
    status = scrub_run(store, 0, &check->examination);
    for (uint32_t i = 0; i < WALK_COUNT; i++)
        status = status_keep(status, walk_end(check, &walks[i]));
    return status;
}

enum kvt_status
kvt_check(
    const char *path, const struct kvt_examiner *examiner, struct kvt_check_report *report_out)
{
    struct check check = {0};
    struct walk *walks;
    struct kvt_env env;
    kvt_store *store;
    enum kvt_status status;

    KVT_TRY(examination_begin(&check.examination, examiner, report_out));
    status = inspect_open(path, line_take, &check, &store);
    if (status == KVT_E_CORRUPT && !check.index_is_damaged)
        finding_add(&check, "store", failure_last()->text);
    if (status == KVT_OK) {
        env = store->env;
        walks = env_take(&env, WALK_COUNT * sizeof(*walks));
        status = walks == NULL ? failure_set(KVT_E_NOMEM, 0, "no memory to check %s", path)
                               : store_check(&check, store, walks);
        /* The workers let go of the walks when they have ended. */
        status = status_keep(status, kvt_close(store));
        env_put(&env, walks, WALK_COUNT * sizeof(*walks));
    }
    if (status == KVT_OK || status == KVT_E_CORRUPT)
        *report_out = check.examination.report;
    return status;
}
