/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - opening a store in a world that is not the real one: for the simulation and for tests.
 */
#ifndef KVT_ENGINE_STORE_H
#define KVT_ENGINE_STORE_H

#include "env.h"
#include "index.h"
#include "kvtier/kvtier.h"

/* The world and the index a store is opened with; borrowed for the life of the store. */
struct store_world {
    const struct kvt_env *env; /* env->io NULL: chosen by the options. */
    const struct index_ops *index_ops;
    void *index_context;
    bool may_lack_data; /* An open for reading only goes on without a data file that is missing. */
    /* HOST's size where the store has blocks of at most so many bytes; NULL: as the options say. */
    uint64_t (*host_bytes)(uint64_t block_bytes_max);
};

/* store_open_in - kvt_open() in `world`. */
enum kvt_status store_open_in(const struct store_world *world, const char *path,
    const struct kvt_options *options, kvt_store **store_out);

#endif /* KVT_ENGINE_STORE_H */
