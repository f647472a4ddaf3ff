/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_facts.c - what a caller once said of its blocks and namespaces, for programs that move them
 * elsewhere.
 */
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

struct question {
    const struct kvt_scan_entry *entries;
    struct kvt_block_facts *facts;
    uint32_t count;
};

static void
parent_show(struct kvt_store *store, uint32_t parent, struct kvt_block_facts *show)
{
    struct block_key key;

    residency_key(store->map, parent, &key);
    show->has_parent = 1;
    show->parent_is_hashed = key.form == KEY_HASHED;
    show->parent_component = key.component;
    show->parent_length = key.length;
    memcpy(show->parent, key.bytes, key.length);
}

static bool
facts_show(
    struct kvt_store *store, const struct kvt_scan_entry *entry, struct kvt_block_facts *show)
{
    struct block_key key = {.namespace_id = entry->ns.id,
        .component = entry->component,
        .form = entry->is_hashed ? KEY_HASHED : KEY_RAW,
        .length = (uint8_t)entry->key_length};
    const struct entry_state *state;
    uint32_t number;

    memset(show, 0, sizeof(*show));
    if (entry->key_length == 0 || entry->key_length > KEY_BYTES_MAX)
        return false;
    memcpy(key.bytes, entry->key, entry->key_length);
    number = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
    if (number == ENTRY_NONE)
        return false;
    state = entries_at(store->entries, number);
    show->is_there = 1;
    show->depth = state->depth;
    show->token_start = state->token_start;
    show->token_count = state->token_count;
    show->recompute_us = state->recompute_us;
    show->importance = state->importance;
    show->class_id = state->class_id;
    show->hint = state->hint;
    if (entries_parent(store->entries, number) != ENTRY_NONE)
        parent_show(store, entries_parent(store->entries, number), show);
    return true;
}

static bool
facts_run(struct kvt_store *store, void *context)
{
    struct question *question = context;

    for (uint32_t i = 0; i < question->count; i++)
        (void)facts_show(store, &question->entries[i], &question->facts[i]);
    return true;
}

enum kvt_status
kvt_block_facts_get(kvt_store *store, const struct kvt_scan_entry *entries, uint32_t count,
    struct kvt_block_facts *facts_out)
{
    struct question question = {.entries = entries, .facts = facts_out, .count = count};

    if (entries == NULL || facts_out == NULL || count == 0 || count > KVT_BATCH_MAX)
        return failure_set(KVT_E_INVAL, 0,
            "entries or facts_out is NULL, or count %u is not in 1..%u", count, KVT_BATCH_MAX);
    KVT_TRY(store_enter(store));
    loop_call(store, facts_run, &question);
    return KVT_OK;
}

enum kvt_status
kvt_namespace_description(
    kvt_store *store, kvt_namespace ns, void *target, size_t size, size_t *length_out)
{
    const struct name_entry *entry;
    enum kvt_status status = KVT_OK;

    if (target == NULL || length_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "target or length_out is NULL");
    KVT_TRY(store_enter(store));
    pthread_mutex_lock(&store->names_lock);
    entry = names_find_id(&store->names, ns.id);
    if (entry == NULL) {
        status = failure_set(KVT_E_INVAL, 0, "there is no namespace %u", ns.id);
    } else if (entry->description_length > size) {
        status = failure_set(KVT_E_INVAL, 0, "size %zu does not hold a description of %u bytes",
            size, entry->description_length);
    } else {
        memcpy(target, entry->description, entry->description_length);
        *length_out = entry->description_length;
    }
    pthread_mutex_unlock(&store->names_lock);
    return status;
}
