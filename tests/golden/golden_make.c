/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_make.c - make the store that make-golden.sh packs: blocks in two lives of a store, some
 * replaced, some deleted, and a namespace that was cleared.
 *
 * Every byte follows from this file and the library: the random bytes are seeded, the date is
 * fixed, and each block is waited for, so that each has a batch of its own.
 */
#include <stdlib.h>

#include "golden_blocks.h"
#include "store.h"

enum {
    SEED = 20240229,
};

/* --- A world without chance ------------------------------------------------------------------- */

static uint64_t
date_wall_ns(void *context)
{
    (void)context;
    return UINT64_C(1700000000123456789);
}

static void
seeded_fill(void *context, void *target, size_t size)
{
    struct rng *rng = context;
    uint8_t *to = target;

    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)rng_next(rng);
}

static const struct random_ops seeded_ops = {.fill = seeded_fill};

/* --- Making ----------------------------------------------------------------------------------- */

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

static void
first_life(const struct store_world *world, const char *path, const struct kvt_options *options)
{
    kvt_store *store;
    kvt_namespace ns, cleared;

    must(store_open_in(world, path, options, &store), "open");
    must(kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, GOLDEN_MODEL_BYTES, &ns), "name");
    must(kvt_namespace_open(store, GOLDEN_CLEARED, "", 0, &cleared), "name");
    for (uint64_t key = 0; key < GOLDEN_BLOCKS; key++) {
        must(kit_put(store, ns, key, 1, golden_length(key, 1), KVT_SYNC), "put");
        must(kit_put(store, cleared, key, 1, golden_length(key, 1), KVT_SYNC), "put");
    }
    must(kvt_namespace_clear(store, cleared), "clear");
    must(kvt_close(store), "close");
}

static void
second_life(const struct store_world *world, const char *path, const struct kvt_options *options)
{
    kvt_store *store;
    kvt_namespace ns;

    must(store_open_in(world, path, options, &store), "open again");
    must(kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, GOLDEN_MODEL_BYTES, &ns), "name");
    for (uint64_t key = 0; key < GOLDEN_REPLACED; key++)
        must(kit_put(store, ns, key, 2, golden_length(key, 2), KVT_SYNC), "replace");
    for (uint64_t key = GOLDEN_DELETED; key < GOLDEN_BLOCKS; key++)
        must(kit_delete(store, ns, key), "delete");
    must(kvt_close(store), "close");
}

int
main(int count, char **values)
{
    struct kvt_options options = kit_options();
    struct kvt_env env;
    struct clock_ops clock;
    struct rng rng = {SEED};
    const struct store_world world = {.env = &env, .index_ops = &index_lmdb_ops};

    if (count != 2) {
        fprintf(stderr, "usage: golden_make DIR\n");
        return 2;
    }
    env_host(&env);
    clock = *env.clock;
    clock.wall_ns = date_wall_ns;
    env.clock = &clock;
    env.random = &seeded_ops;
    env.random_context = &rng;
    options.io_engine = KVT_IO_THREADS;
    options.policy = KVT_POLICY_LRU; /* What the other one learns depends on the time. */
    first_life(&world, values[1], &options);
    second_life(&world, values[1], &options);
    return 0;
}
