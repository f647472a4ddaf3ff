/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.c - walking all blocks by entry number.
 */
#include "store_internal.h"

enum {
    NUMBERS_MAX = 8192, /* Looked at in one step of the loop: some 100 us, when none is a block. */
};

struct scan {
    uint64_t cursor;
    struct kvt_scan_entry *entries;
    uint32_t count_max;
    uint32_t count;
    bool is_over;
};

static void
entry_show(struct kvt_store *store, uint32_t number, struct kvt_scan_entry *show)
{
    const struct entry *entry = residency_at(store->map, number);
    struct block_key key;

    memset(show, 0, sizeof(*show));
    residency_key(store->map, number, &key);
    show->ns.id = key.namespace_id;
    show->component = key.component;
    show->tiers = (uint8_t)entry_tiers(store, number);
    show->is_hashed = key.form == KEY_HASHED;
    show->key_length = key.length;
    memcpy(show->key, key.bytes, key.length);
    show->length = entry->length;
    show->part_count = (uint16_t)entry_parts(entry);
    if ((show->tiers & TIER_NVME) != 0) {
        show->sequence = entry->sequence;
        show->stored_length = entry->stored_length;
        show->is_encoded =
            entry->has_trailer != 0 &&
            entry->stored_length != record_raw_bytes(entry->length, entry_parts(entry));
        show->segment = entry->segment;
        show->page = entry->page;
    }
}

static bool
scan_run(struct kvt_store *store, void *context)
{
    struct scan *scan = context;
    uint64_t limit = residency_number_limit(store->map);
    uint64_t end = scan->cursor + NUMBERS_MAX < limit ? scan->cursor + NUMBERS_MAX : limit;

    while (scan->cursor < end && scan->count < scan->count_max) {
        uint32_t number = (uint32_t)scan->cursor++;
        uint64_t word =
            atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);

        /* In no tier: its device is lost, and somebody has it leased. */
        if (word_state(word) == ENTRY_RESIDENT && entry_tiers(store, number) != 0)
            entry_show(store, number, &scan->entries[scan->count++]);
    }
    scan->is_over = scan->cursor >= limit || scan->count == scan->count_max;
    return true;
}

enum kvt_status
kvt_scan(kvt_store *store, uint64_t *cursor, struct kvt_scan_entry *entries_out, uint32_t count_max,
    uint32_t *count_out)
{
    struct scan scan;

    if (cursor == NULL || entries_out == NULL || count_max == 0 || count_out == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "cursor, entries_out or count_out is NULL, or count_max is 0");
    KVT_TRY(store_enter(store));
    scan = (struct scan){.cursor = *cursor, .entries = entries_out, .count_max = count_max};
    while (!scan.is_over)
        loop_call(store, scan_run, &scan);
    *cursor = scan.cursor;
    *count_out = scan.count;
    return scan.count == 0 ? KVT_MISS : KVT_OK;
}
