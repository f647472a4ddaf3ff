/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_store.h - one store in a simulated world, for tests that use the public interface and need to
 * know what happens between two of their calls: nothing, unless they let it.
 */
#ifndef KVT_TESTS_SIM_STORE_H
#define KVT_TESTS_SIM_STORE_H

#include "device_host.h"
#include "sim_world.h"
#include "store.h"

struct sim_store {
    struct sim_world *world;
    struct kvt_env env; /* The world's, with an emulated device. */
    struct device_host_config device;
    struct store_world store_world;
    struct kvt_options options;
    kvt_store *store;
};

/* sim_store_open - a world and a store in it. A failure fails the test. */
void sim_store_open(struct sim_store *sim, const struct kvt_options *options);
/* sim_store_open_showing - as above; `shows`: it shows what it does (sim_board()). */
void sim_store_open_showing(struct sim_store *sim, const struct kvt_options *options, bool shows);
/* sim_store_open_world - as the first, in such a world. */
void sim_store_open_world(struct sim_store *sim, const struct kvt_options *options,
    const struct sim_options *world_options);
/* sim_store_reopen - the same store again, after the test's own kvt_close() or kvt_abort(). */
void sim_store_reopen(struct sim_store *sim);
/* sim_store_close - kvt_close(), which must succeed, and the end of the world. */
void sim_store_close(struct sim_store *sim);

/* sim_store_narrow - TRANSIENT reads for devices come one at a time. */
void sim_store_narrow(kvt_store *store);

/* sim_store_device - the store's device 0, for a program of the test's own. */
struct device *sim_store_device(kvt_store *store);

/* sim_store_evicted - blocks that have left NVMe or the map for want of room. Lets nothing happen,
 * which kvt_stats_get() does. */
uint64_t sim_store_evicted(const kvt_store *store);

/* sim_store_kills_lost - marks of dead copies that it has lost. Likewise. */
uint64_t sim_store_kills_lost(const kvt_store *store);

/* sim_store_loop - the loop takes what was sent to it, and nobody else does anything after that. */
void sim_store_loop(struct sim_store *sim);
/* sim_store_pass - everybody works, and time passes. */
void sim_store_pass(struct sim_store *sim, uint64_t duration_ns);

#endif /* KVT_TESTS_SIM_STORE_H */
