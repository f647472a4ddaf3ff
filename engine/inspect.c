/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.c - looking into a store: checking every payload, printing what is inside.
 *
 * Both open the store for reading only, and use the same recovery, reads and checksums as any
 * owner.
 */
#include <inttypes.h>
#include <stdio.h>

#include "batch_header.h"
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

enum {
    CHECK_ENTRIES = 256,
    LINE_BYTES = 1024,
    CHECK_HOST_BYTES = 256 << 20, /* More than any block. */
};

static enum kvt_status
inspect_open(const char *path, kvt_store **store_out)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.flags = KVT_OPEN_READ_ONLY;
    options.host_capacity_bytes = CHECK_HOST_BYTES;
    return kvt_open(path, &options, store_out);
}

/* --- Check ------------------------------------------------------------------------------------ */

struct check {
    void (*found)(void *context, const struct kvt_finding *finding);
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    struct kvt_check_report report;
    uint64_t total_bytes;
};

static void
finding_report(
    struct check *check, const char *kind, const char *text, uint32_t segment, uint32_t page)
{
    const struct kvt_finding finding = {
        .kind = kind, .text = text, .segment = segment, .page = page};

    check->report.finding_count++;
    if (check->found != NULL)
        check->found(check->context, &finding);
}

/* Read one block the way a get does; the key is the stored one, also when it is a hash. */
static enum kvt_status
block_read(kvt_store *store, const struct kvt_scan_entry *entry, void *memory, uint64_t capacity)
{
    struct kvt_ticket *ticket = NULL;
    struct op *op;
    struct kvt_result result;
    enum kvt_status status;

    KVT_TRY(ticket_create(store, TICKET_GET, 1, NULL, &ticket));
    op = &ticket->ops[0];
    op->key = (struct block_key){.namespace_id = entry->ns.id,
        .component = entry->component,
        .form = entry->is_hashed ? KEY_HASHED : KEY_RAW,
        .length = (uint8_t)entry->key_length};
    memcpy(op->key.bytes, entry->key, entry->key_length);
    op->fingerprint = key_fingerprint(store->fingerprint_seed, &op->key);
    op->destination = memory;
    op->length = capacity;
    op->flags = KVT_GET_TRANSIENT;
    ticket_send(ticket);
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1);
    kvt_ticket_free(ticket);
    return status == KVT_OK ? result.status : status;
}

static enum kvt_status
block_check(struct check *check, kvt_store *store, const struct kvt_scan_entry *entry, void *memory,
    uint64_t capacity)
{
    enum kvt_status status = block_read(store, entry, memory, capacity);
    char text[LINE_BYTES];

    check->report.block_count++;
    check->report.block_bytes += entry->length;
    if (check->progress != NULL)
        check->progress(check->context, check->report.block_bytes, check->total_bytes);
    if (status == KVT_OK)
        return KVT_OK;
    if (status != KVT_MISS)
        return status;
    check->report.damaged_count++;
    (void)snprintf(text, sizeof(text),
        "the payload of %" PRIu64
        " bytes at segment %u page %u cannot be read, or differs from its checksum: the block is "
        "answered as a miss; its owner writes it anew",
        entry->length, entry->segment, entry->page);
    finding_report(check, "payload", text, entry->segment, entry->page);
    return KVT_OK;
}

static enum kvt_status
blocks_check(struct check *check, kvt_store *store, void *memory, uint64_t capacity)
{
    struct kvt_scan_entry *entries =
        env_take(&store->env, CHECK_ENTRIES * sizeof(struct kvt_scan_entry));
    uint64_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    if (entries == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to check blocks");
    while (status == KVT_OK && kvt_scan(store, &cursor, entries, CHECK_ENTRIES, &count) == KVT_OK) {
        for (uint32_t i = 0; i < count && status == KVT_OK; i++)
            status = block_check(check, store, &entries[i], memory, capacity);
    }
    env_put(&store->env, entries, CHECK_ENTRIES * sizeof(struct kvt_scan_entry));
    return status;
}

static enum kvt_status
store_check(struct check *check, kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct kvt_options options = {.struct_size = sizeof(options)};
    enum index_condition condition;
    void *memory;
    enum kvt_status status;

    KVT_TRY(kvt_stats_get(store, &stats));
    KVT_TRY(kvt_options_get(store, &options));
    if (stats.recover_dropped_count > 0) {
        check->report.damaged_count += stats.recover_dropped_count;
        finding_report(check, "record",
            "records of the index were refused (the log of an open at level warn has each): their "
            "blocks are misses; an open with KVT_OPEN_REBUILD looks for them in the segments",
            UINT32_MAX, UINT32_MAX);
    }
    KVT_TRY(store->world.index_ops->inspect(
        store->world.index_context, &store->env, store->meta_dir, true, &condition));
    if (condition == INDEX_DAMAGED)
        finding_report(check, "index", failure_last()->text, UINT32_MAX, UINT32_MAX);
    struct kvt_namespace_info info;
    uint32_t cursor = 0;
    while (kvt_namespace_next(store, &cursor, &info) == KVT_OK)
        check->total_bytes += info.block_bytes;
    memory = env_map(&store->env, round_up(options.block_bytes_max, 2 << 20));
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to check blocks");
    status = blocks_check(check, store, memory, round_up(options.block_bytes_max, PAGE_BYTES));
    env_unmap(&store->env, memory, round_up(options.block_bytes_max, 2 << 20));
    return status;
}

enum kvt_status
kvt_check(const char *path, void (*found)(void *context, const struct kvt_finding *finding),
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes), void *context,
    struct kvt_check_report *report_out)
{
    struct check check = {.found = found, .progress = progress, .context = context};
    kvt_store *store;
    enum kvt_status status;

    if (report_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "report_out is NULL");
    check.report.struct_size = sizeof(check.report);
    status = inspect_open(path, &store);
    if (status == KVT_E_CORRUPT)
        finding_report(&check, "store", failure_last()->text, UINT32_MAX, UINT32_MAX);
    if (status != KVT_OK)
        return status;
    status = store_check(&check, store);
    status = status_keep(status, kvt_close(store));
    if (status == KVT_OK)
        *report_out = check.report;
    return status;
}

/* --- Dump ------------------------------------------------------------------------------------- */

struct dump {
    int (*line)(void *context, const char *json);
    void *context;
    bool is_over;
};

static void
dump_line(struct dump *dump, const char *json)
{
    if (!dump->is_over && dump->line(dump->context, json) != 0)
        dump->is_over = true;
}

static void
segments_dump(struct dump *dump, kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;
    char text[LINE_BYTES];

    while (!dump->is_over && (segment = segment_next(store->segments, &cursor)) != NULL) {
        (void)snprintf(text, sizeof(text),
            "{\"segment\": %u, \"root\": %u, \"generation\": %u, \"state\": \"%s\", "
            "\"record_count\": %u, \"live_bytes\": %" PRIu64 "}",
            segment->number, segment_root(segment->number), segment->generation,
            segment_state_name(segment->state), segment->record_count, segment->live_bytes);
        dump_line(dump, text);
    }
}

static void
records_dump(struct dump *dump, kvt_store *store)
{
    struct kvt_scan_entry entry;
    uint64_t cursor = 0;
    uint32_t count;
    char text[LINE_BYTES];

    while (!dump->is_over && kvt_scan(store, &cursor, &entry, 1, &count) == KVT_OK) {
        char hex[2 * KEY_BYTES_MAX + 1] = "";

        for (uint32_t i = 0; i < entry.key_length; i++)
            (void)snprintf(hex + (size_t)2 * i, 3, "%02x", entry.key[i]);
        (void)snprintf(text, sizeof(text),
            "{\"namespace\": %u, \"component\": %u, \"key\": \"%s\", \"is_hashed\": %s, "
            "\"length_bytes\": %" PRIu64 ", \"segment\": %u, \"page\": %u, \"sequence\": %" PRIu64
            ", \"part_count\": %u, \"stored_bytes\": %" PRIu64 ", \"is_encoded\": %s}",
            entry.ns.id, entry.component, hex, entry.is_hashed ? "true" : "false", entry.length,
            entry.segment, entry.page, entry.sequence, entry.part_count, entry.stored_length,
            entry.is_encoded ? "true" : "false");
        dump_line(dump, text);
    }
}

static bool
batch_dump(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct dump *dump = visitor;
    char text[LINE_BYTES];

    (void)records;
    (void)kills;
    (void)snprintf(text, sizeof(text),
        "{\"segment\": %u, \"generation\": %u, \"page\": %u, \"header_pages\": %u, "
        "\"total_pages\": %u, \"sequence\": %" PRIu64
        ", \"block_count\": %u, \"kill_count\": %u, \"is_recycle\": %s}",
        header->extent.segment, header->extent.generation, header->extent.page,
        header->header_pages, header->total_pages, header->sequence, header->block_count,
        header->kill_count, header->is_recycle ? "true" : "false");
    dump_line(dump, text);
    return !dump->is_over;
}

static enum kvt_status
batches_dump(struct dump *dump, kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while (!dump->is_over && (segment = segment_next(store->segments, &cursor)) != NULL) {
        uint32_t generation;
        uint64_t damaged_pages;

        KVT_TRY(
            nvme_scan(store->nvme, segment->number, batch_dump, dump, &generation, &damaged_pages));
    }
    return KVT_OK;
}

enum kvt_status
kvt_dump(const char *path, enum kvt_dump_kind kind, int (*line)(void *context, const char *json),
    void *context)
{
    struct dump dump = {.line = line, .context = context};
    kvt_store *store;
    enum kvt_status status;

    if (path == NULL || line == NULL)
        return failure_set(KVT_E_INVAL, 0, "path or line is NULL");
    if (kind != KVT_DUMP_SEGMENTS && kind != KVT_DUMP_RECORDS && kind != KVT_DUMP_BATCHES)
        return failure_set(KVT_E_INVAL, 0, "kind %d is not one of enum kvt_dump_kind", (int)kind);
    KVT_TRY(inspect_open(path, &store));
    status = KVT_OK;
    /* The store is read-only: its loop changes nothing that is looked at here. */
    if (kind == KVT_DUMP_RECORDS)
        records_dump(&dump, store);
    else if (store->nvme != NULL && kind == KVT_DUMP_SEGMENTS)
        segments_dump(&dump, store);
    else if (store->nvme != NULL)
        status = batches_dump(&dump, store);
    return status_keep(status, kvt_close(store));
}

enum kvt_status
kvt_caps_json(kvt_store *store, char *target, size_t size)
{
    struct nvme_caps caps = {.io_engine = "none"};
    int length;

    if (target == NULL || size == 0)
        return failure_set(KVT_E_INVAL, 0, "target is NULL or size is 0");
    KVT_TRY(store_enter(store));
    if (store->nvme != NULL)
        nvme_caps_get(store->nvme, &caps);
    length = snprintf(target, size,
        "{\"io_engine\": \"%s\", \"is_direct\": %s, \"align_bytes\": %u, \"is_read_only\": %s}",
        caps.io_engine, caps.is_direct[0] ? "true" : "false", caps.align_bytes[0],
        store->is_read_only || caps.is_read_only[0] ? "true" : "false");
    if (length < 0 || (size_t)length >= size)
        return failure_set(KVT_E_INVAL, 0, "size %zu does not hold %d bytes", size, length + 1);
    return KVT_OK;
}
