/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_key_list.h - keys of stored blocks, kept to delete these later, or to look for them.
 */
#ifndef KVTOOL_KEY_LIST_H
#define KVTOOL_KEY_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

enum {
    LISTED_KEY_MAX = 64
};

struct listed_key {
    kvt_namespace ns;
    uint32_t length;
    uint16_t component;
    uint8_t bytes[LISTED_KEY_MAX];
};

struct key_list {
    struct listed_key *items;
    size_t count, capacity;
};

/* key_list_add - a key of at most LISTED_KEY_MAX bytes. False, with a sentence: no memory. */
bool key_list_add(struct key_list *list, kvt_namespace ns, const struct kvt_key *key);

/* listed_key_get - the key of an item. */
struct kvt_key listed_key_get(const struct listed_key *item);

/* key_list_delete - all blocks of the list, durably. KVT_OK also when some were not there. */
enum kvt_status key_list_delete(const struct key_list *list, kvt_store *store);

/* key_list_is_there - as blocks_are_there(). */
enum kvt_status key_list_is_there(const struct key_list *list, kvt_store *store);

void key_list_free(struct key_list *list);

#endif /* KVTOOL_KEY_LIST_H */
