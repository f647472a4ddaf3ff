/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_store.c - a store in a world of its own (sim_store.h).
 */
#include "sim_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "store_inside.h"
#include "store_internal.h"

void
sim_store_open(struct sim_store *sim, const struct kvt_options *options)
{
    sim_store_open_showing(sim, options, false);
}

static void
sim_store_make(struct sim_store *sim, const struct kvt_options *options,
    const struct sim_options *world_options, bool shows)
{
    memset(sim, 0, sizeof(*sim));
    sim->world = sim_world_create(world_options);
    if (shows)
        sim_board_enable(sim->world);
    sim->env = *sim_env(sim->world);
    sim->env.device = &device_host_ops;
    sim->env.device_context = &sim->device;
    sim->device.seed = world_options->seed;
    sim->device.delay_ns_max = 300000;
    sim->device.memory_bytes = UINT64_C(64) << 20;
    sim->device.device_count = 2;
    sim->store_world = (struct store_world){
        .env = &sim->env, .index_ops = &sim_index_ops, .index_context = sim->world};
    sim->options = *options;
    sim_store_reopen(sim);
}

void
sim_store_open_showing(struct sim_store *sim, const struct kvt_options *options, bool shows)
{
    const struct sim_options world_options = {.seed = 11, .align_bytes = 512};

    sim_store_make(sim, options, &world_options, shows);
}

void
sim_store_open_world(struct sim_store *sim, const struct kvt_options *options,
    const struct sim_options *world_options)
{
    sim_store_make(sim, options, world_options, false);
}

void
sim_store_reopen(struct sim_store *sim)
{
    assert_int_equal(
        store_open_in(&sim->store_world, "/store", &sim->options, &sim->store), KVT_OK);
}

void
sim_store_close(struct sim_store *sim)
{
    assert_int_equal(kvt_close(sim->store), KVT_OK);
    sim_world_destroy(sim->world);
}

void
sim_store_narrow(kvt_store *store)
{
    store->sends.bytes_max = 1;
}

struct device *
sim_store_device(kvt_store *store)
{
    return store_device(store, 0);
}

uint64_t
sim_store_evicted(const kvt_store *store)
{
    struct kvt_stats stats = {0};

    stats_counts(store, &stats);
    return stats.nvme_evict_count + stats.map_evict_count;
}

uint64_t
sim_store_kills_lost(const kvt_store *store)
{
    struct kvt_stats stats = {0};

    stats_counts(store, &stats);
    return stats.kill_lost_count;
}

void
sim_store_loop(struct sim_store *sim)
{
    while (!inbox_is_empty(&sim->store->messages))
        sim_run_steps(sim->world, 1);
}

void
sim_store_pass(struct sim_store *sim, uint64_t duration_ns)
{
    (void)sim_run_for(sim->world, duration_ns);
}
