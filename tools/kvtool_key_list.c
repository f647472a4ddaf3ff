/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_key_list.c - keys of stored blocks, kept to delete these later, or to look for them.
 */
#include "kvtool_key_list.h"

#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "kvtool_block.h"

enum {
    KEYS_AT_ONCE = 256
};

bool
key_list_add(struct key_list *list, kvt_namespace ns, const struct kvt_key *key)
{
    struct listed_key *item;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : list->capacity * 2;
        struct listed_key *items = realloc(list->items, capacity * sizeof(*items));

        if (items == NULL) {
            complain("there is no memory for the keys of %zu blocks", capacity);
            return false;
        }
        list->items = items;
        list->capacity = capacity;
    }
    item = &list->items[list->count++];
    item->ns = ns;
    item->length = key->length;
    item->component = key->component;
    memcpy(item->bytes, key->bytes, key->length);
    return true;
}

struct kvt_key
listed_key_get(const struct listed_key *item)
{
    return (struct kvt_key){
        .bytes = item->bytes, .length = item->length, .component = item->component};
}

/* From the item `at` on, keys of its namespace; how many. */
static uint32_t
keys_take(const struct key_list *list, size_t at, struct kvt_key keys_out[KEYS_AT_ONCE])
{
    const struct listed_key *item = &list->items[at];
    uint32_t count = 0;

    for (; count < KEYS_AT_ONCE && at + count < list->count && item[count].ns.id == item->ns.id;
         count++)
        keys_out[count] = listed_key_get(&item[count]);
    return count;
}

enum kvt_status
key_list_delete(const struct key_list *list, kvt_store *store)
{
    struct kvt_key keys[KEYS_AT_ONCE];
    uint32_t count;

    for (size_t at = 0; at < list->count; at += count) {
        enum kvt_status status;

        count = keys_take(list, at, keys);
        status = blocks_delete(store, list->items[at].ns, keys, count);
        if (status < 0)
            return status;
    }
    return KVT_OK;
}

enum kvt_status
key_list_is_there(const struct key_list *list, kvt_store *store)
{
    struct kvt_key keys[KEYS_AT_ONCE];
    enum kvt_status status = KVT_OK;
    uint32_t count;

    for (size_t at = 0; at < list->count && status == KVT_OK; at += count) {
        count = keys_take(list, at, keys);
        status = blocks_are_there(store, list->items[at].ns, keys, count);
    }
    return status;
}

void
key_list_free(struct key_list *list)
{
    free(list->items);
    *list = (struct key_list){0};
}
