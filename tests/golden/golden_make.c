/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_make.c - make the store that make-golden.sh packs: blocks in two lives of a store, some
 * replaced, some deleted, and a namespace that was cleared.
 */
#include <stdlib.h>

#include "golden_blocks.h"

static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "%s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

int
main(int count, char **values)
{
    struct kvt_options options = kit_options();
    kvt_store *store;
    kvt_namespace ns, cleared;

    if (count != 2) {
        fprintf(stderr, "usage: golden_make DIR\n");
        return 2;
    }
    options.index_map_bytes = 256 << 10;
    must(kvt_open(values[1], &options, &store), "open");
    must(kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, 12, &ns), "namespace");
    must(kvt_namespace_open(store, GOLDEN_CLEARED, "", 0, &cleared), "namespace");
    for (uint64_t key = 0; key < GOLDEN_BLOCKS; key++) {
        must(kit_put(store, ns, key, 1, golden_length(key, 1), KVT_SYNC), "put");
        must(kit_put(store, cleared, key, 1, golden_length(key, 1), KVT_SYNC), "put");
    }
    must(kvt_namespace_clear(store, cleared), "clear");
    must(kvt_close(store), "close");

    must(kvt_open(values[1], &options, &store), "open again");
    must(kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, 12, &ns), "namespace");
    for (uint64_t key = 0; key < GOLDEN_REPLACED; key++)
        must(kit_put(store, ns, key, 2, golden_length(key, 2), KVT_SYNC), "replace");
    for (uint64_t key = GOLDEN_DELETED; key < GOLDEN_BLOCKS; key++)
        must(kit_delete(store, ns, key), "delete");
    must(kvt_close(store), "close");
    return 0;
}
