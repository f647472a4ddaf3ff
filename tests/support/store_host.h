/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_host.h - where the workload's stores live: in a simulated world, or in a directory of this
 * machine.
 */
#ifndef KVT_TESTS_STORE_HOST_H
#define KVT_TESTS_STORE_HOST_H

#include "device_host.h"
#include "sim_world.h"
#include "store.h"
#include "workload.h"

enum {
    HOST_PATH_BYTES = 256,
    LARGE_KEYS = 32, /* In each namespace, for tiers in which everything stays. */
    SMALL_KEYS = 60, /* For tiers that cannot hold all. */
    LARGE_SHIFT = 0,
    SMALL_SHIFT = 2,
    SMALL_MAP = 20, /* Entries of a map that cannot hold all. */
};

/* Options of a store in which nothing is ever evicted, and of one that is always short of room. */
struct kvt_options host_options_large(void);
struct kvt_options host_options_small(void);
/* With an HBM tier of a third of HOST, on an emulated device. */
void host_options_add_hbm(struct kvt_options *options);

struct sim_host {
    struct sim_world *world;
    struct kvt_env env; /* The world's, with an emulated device. */
    struct device_host_config device;
    struct store_world store_world;
    struct kvt_options options;
};

void sim_host_init(
    struct sim_host *host, const struct sim_options *world, const struct kvt_options *options);
void sim_host_deinit(struct sim_host *host);
/* sim_host_vanish, sim_host_power_cut - sim_vanish() and sim_power_cut() of a world whose store may
 * have devices. */
void sim_host_vanish(struct sim_host *host);
void sim_host_power_cut(struct sim_host *host, enum sim_cut kind);
struct workload_host sim_host_of(struct sim_host *host);

struct real_host {
    char path[HOST_PATH_BYTES]; /* Of the store, in a directory of its own below /dev/shm, or
                                 * below KVT_TEST_TMP. */
    struct kvt_options options;
};

/* False when no temporary directory could be made. */
bool real_host_init(struct real_host *host, const struct kvt_options *options);
void real_host_deinit(struct real_host *host);
struct workload_host real_host_of(struct real_host *host);

#endif /* KVT_TESTS_STORE_HOST_H */
