/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - kvt_dump(): the inside of a closed store, one JSON object a line.
 */
#include <inttypes.h>
#include <stdio.h>

#include "batch_header.h"
#include "inspect.h"
#include "store_internal.h"

enum {
    LINE_BYTES = 1024,
};

struct dump {
    struct kvt_store *store;
    uint32_t segment; /* UINT32_MAX: all. */
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

static bool
is_wanted(const struct dump *dump, uint32_t segment)
{
    return dump->segment == UINT32_MAX || dump->segment == segment;
}

static void
hex_write(char hex_out[2 * KEY_BYTES_MAX + 1], const uint8_t *bytes, uint32_t length)
{
    hex_out[0] = '\0';
    for (uint32_t i = 0; i < length; i++)
        (void)snprintf(hex_out + (size_t)2 * i, 3, "%02x", bytes[i]);
}

static void
segment_dump(struct dump *dump, const struct segment *segment)
{
    char text[LINE_BYTES];

    (void)snprintf(text, sizeof(text),
        "{\"segment\": %u, \"root\": %u, \"generation\": %u, \"state\": \"%s\", "
        "\"record_count\": %u, \"live_bytes\": %" PRIu64 "}",
        segment->number, segment_root(segment->number), segment->generation,
        segment_state_name(segment->state), segment->record_count, segment->live_bytes);
    dump_line(dump, text);
}

static enum kvt_status
records_dump(struct dump *dump)
{
    struct kvt_scan_entry entry;
    uint64_t cursor = 0;
    uint32_t count;
    char text[LINE_BYTES];

    while (!dump->is_over) {
        enum kvt_status status = kvt_scan(dump->store, &cursor, &entry, 1, &count);
        char hex[2 * KEY_BYTES_MAX + 1];

        if (status != KVT_OK)
            return status == KVT_MISS ? KVT_OK : status;
        if (!is_wanted(dump, entry.segment))
            continue;
        hex_write(hex, entry.key, entry.key_length);
        (void)snprintf(text, sizeof(text),
            "{\"namespace\": %u, \"component\": %u, \"key\": \"%s\", \"is_hashed\": %s, "
            "\"length_bytes\": %" PRIu64 ", \"segment\": %u, \"page\": %u, \"sequence\": %" PRIu64
            ", \"part_count\": %u, \"stored_bytes\": %" PRIu64 ", \"is_encoded\": %s}",
            entry.ns.id, entry.component, hex, entry.is_hashed ? "true" : "false", entry.length,
            entry.segment, entry.page, entry.sequence, entry.part_count, entry.stored_length,
            entry.is_encoded ? "true" : "false");
        dump_line(dump, text);
    }
    return KVT_OK;
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
        header->header_pages, header->total_pages, header->sequence,
        header->block_count + header->later_count, header->kill_count,
        header->is_recycle ? "true" : "false");
    dump_line(dump, text);
    return !dump->is_over;
}

/* Whether the map still says that the block lies there. */
static bool
record_is_live(const struct kvt_store *store, const struct block_record *record)
{
    uint32_t number = residency_find(
        store->map, key_fingerprint(store->fingerprint_seed, &record->key), &record->key);
    const struct entry *entry = number == ENTRY_NONE ? NULL : residency_at(store->map, number);

    return entry != NULL && entry->segment == record->extent.segment &&
           entry->extent_generation == record->extent.generation &&
           entry->page == record->extent.page;
}

/* A batch as the run of extents that it is: its header, then its blocks, dead or alive. */
static bool
extents_dump(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct dump *dump = visitor;
    char text[LINE_BYTES];

    (void)kills;
    (void)snprintf(text, sizeof(text),
        "{\"segment\": %u, \"generation\": %u, \"page\": %u, \"pages\": %u, \"what\": \"header\", "
        "\"sequence\": %" PRIu64 "}",
        header->extent.segment, header->extent.generation, header->extent.page,
        header->header_pages, header->sequence);
    dump_line(dump, text);
    for (uint32_t i = 0; i < header->block_count && !dump->is_over; i++) {
        const struct block_record *record = &records[i];
        char hex[2 * KEY_BYTES_MAX + 1];

        hex_write(hex, record->key.bytes, record->key.length);
        (void)snprintf(text, sizeof(text),
            "{\"segment\": %u, \"generation\": %u, \"page\": %u, \"pages\": %u, \"what\": \"%s\", "
            "\"sequence\": %" PRIu64
            ", \"namespace\": %u, \"component\": %u, \"key\": \"%s\", \"stored_bytes\": %u}",
            record->extent.segment, record->extent.generation, record->extent.page,
            pages_of(record->stored_length), record_is_live(dump->store, record) ? "live" : "dead",
            record->sequence, record->key.namespace_id, record->key.component, hex,
            record->stored_length);
        dump_line(dump, text);
    }
    return !dump->is_over;
}

static enum kvt_status
each_segment_dump(struct dump *dump, enum kvt_dump_kind kind)
{
    nvme_scan_fn visit = kind == KVT_DUMP_EXTENTS ? extents_dump : batch_dump;
    struct segment *segment;
    uint32_t cursor = 0;

    while (!dump->is_over && (segment = segment_next(dump->store->segments, &cursor)) != NULL) {
        struct nvme_scan_result result;

        if (!is_wanted(dump, segment->number))
            continue;
        if (kind == KVT_DUMP_SEGMENTS)
            segment_dump(dump, segment);
        else
            KVT_TRY(nvme_scan(dump->store->nvme, segment->number, visit, dump, &result));
    }
    return KVT_OK;
}

enum kvt_status
kvt_dump(const char *path, enum kvt_dump_kind kind, uint32_t segment,
    int (*line)(void *context, const char *json), void *context)
{
    struct dump dump = {.segment = segment, .line = line, .context = context};
    enum kvt_status status = KVT_OK;

    if (path == NULL || line == NULL)
        return failure_set(KVT_E_INVAL, 0, "path or line is NULL");
    if (kind != KVT_DUMP_SEGMENTS && kind != KVT_DUMP_RECORDS && kind != KVT_DUMP_BATCHES &&
        kind != KVT_DUMP_EXTENTS)
        return failure_set(KVT_E_INVAL, 0, "kind %d is not one of enum kvt_dump_kind", (int)kind);
    KVT_TRY(inspect_open(path, NULL, NULL, &dump.store));
    /* The store is read-only: its loop changes nothing that is looked at here. */
    if (segment != UINT32_MAX && segment_at(dump.store->segments, segment) == NULL)
        status = failure_set(KVT_E_INVAL, 0, "there is no segment %u", segment);
    else if (kind == KVT_DUMP_RECORDS)
        status = records_dump(&dump);
    else if (dump.store->nvme != NULL)
        status = each_segment_dump(&dump, kind);
    return status_keep(status, kvt_close(dump.store));
}
