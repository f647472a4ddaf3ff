/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_sweep.c - deletes the parts of files that no manifest names any more.
 *
 * Which parts there are only a walk over the whole store tells. They are deleted when it is over.
 */
#include "kvtool_sweep.h"

#include <stdlib.h>

#include "kvtool_block.h"
#include "kvtool_manifest.h"

enum {
    SCAN_COUNT = 256
};

/* A key of which parts are to go. */
struct swept {
    struct file_id id;             /* Its `file` is 0: all files of the key are meant. */
    const struct listed_key *item; /* Where `keep` is asked for; NULL: it is known. */
    uint64_t keep;
    bool is_left; /* What the key has now cannot be read: all stay. */
};

struct sweep {
    kvt_store *store;
    struct swept *keys; /* In the order of their ids. */
    size_t count;
    struct key_list doomed;
};

/* The file that the key has now. */
static enum kvt_status
keep_find(kvt_store *store, struct swept *swept)
{
    const struct kvt_key key = listed_key_get(swept->item);
    struct block block = {0};
    struct manifest manifest;
    enum kvt_status status = block_get(store, swept->item->ns, &key, &block);

    if (status == KVT_OK && manifest_read(&manifest, block.bytes, block.result.length))
        swept->keep = manifest.file;
    block_free(&block);
    swept->is_left = status != KVT_OK;
    swept->item = NULL;
    return status < 0 ? status : KVT_OK;
}

static enum kvt_status
entry_sweep(struct sweep *sweep, const struct kvt_scan_entry *entry)
{
    const struct kvt_key key = {
        .bytes = entry->key, .length = entry->key_length, .component = entry->component};
    struct part_name part;
    struct file_id id = {.space = entry->ns.id, .component = entry->component};
    struct swept *swept = NULL;
    enum kvt_status status = KVT_OK;

    if (!part_key_is(entry, &part))
        return KVT_OK;
    id.key_hash = part.key_hash;
    swept = bsearch(&id, sweep->keys, sweep->count, sizeof(*swept), file_id_compare);
    if (swept == NULL)
        return KVT_OK;
    if (swept->item != NULL)
        status = keep_find(sweep->store, swept);
    if (status != KVT_OK || swept->is_left || part.file == swept->keep)
        return status;
    return key_list_add(&sweep->doomed, entry->ns, &key) ? KVT_OK : KVT_E_NOMEM;
}

static enum kvt_status
sweep_run(struct sweep *sweep)
{
    struct kvt_scan_entry entries[SCAN_COUNT];
    uint64_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    qsort(sweep->keys, sweep->count, sizeof(*sweep->keys), file_id_compare);
    while (status == KVT_OK &&
           (status = kvt_scan(sweep->store, &cursor, entries, SCAN_COUNT, &count)) == KVT_OK) {
        for (uint32_t i = 0; status == KVT_OK && i < count; i++)
            status = entry_sweep(sweep, &entries[i]);
    }
    if (status == KVT_MISS)
        status = key_list_delete(&sweep->doomed, sweep->store);
    key_list_free(&sweep->doomed);
    return status;
}

enum kvt_status
parts_sweep(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t keep)
{
    struct swept swept = {
        .id = {.key_hash = key_hash(key), .space = ns.id, .component = key->component},
        .keep = keep,
    };
    struct sweep sweep = {.store = store, .keys = &swept, .count = 1};

    return sweep_run(&sweep);
}

static struct swept
swept_make(const struct listed_key *item)
{
    const struct kvt_key key = listed_key_get(item);

    return (struct swept){
        .id = {.key_hash = key_hash(&key), .space = item->ns.id, .component = item->component},
        .item = item};
}

enum kvt_status
parts_sweep_all(kvt_store *store, const struct key_list *const *lists, size_t list_count)
{
    struct sweep sweep = {.store = store};
    size_t count = 0;
    enum kvt_status status;

    for (size_t i = 0; i < list_count; i++)
        count += lists[i]->count;
    sweep.keys = calloc(count + 1, sizeof(*sweep.keys));
    if (sweep.keys == NULL)
        return KVT_E_NOMEM;
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < lists[i]->count; j++)
            sweep.keys[sweep.count++] = swept_make(&lists[i]->items[j]);
    }
    status = sweep_run(&sweep);
    free(sweep.keys);
    return status;
}
