/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_host.c - opening the workload's stores in a simulated world or in a real directory.
 */
#include "store_host.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim_device.h"

static const uint64_t MIB = UINT64_C(1) << 20;

struct kvt_options
host_options_large(void)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.host_capacity_bytes = 24 * MIB;
    options.nvme_capacity_bytes = 96 * MIB;
    options.segment_bytes = MIB;
    options.worker_count = 2;
    options.relaxed_interval_ns = 2000000;
    options.request_count_max = 64;
    options.lease_count_max = 64;
    options.event_count_max = 4096;
    return options;
}

struct kvt_options
host_options_small(void)
{
    struct kvt_options options = host_options_large();

    options.host_capacity_bytes = 4 * MIB;
    options.nvme_capacity_bytes = 8 * MIB;
    return options;
}

void
host_options_add_hbm(struct kvt_options *options)
{
    options->hbm_capacity_bytes = options->host_capacity_bytes / 3;
    options->device_kind = KVT_DEVICE_EMULATION;
}

/* --- 1. The simulated world ------------------------------------------------------------------- */

static enum kvt_status
sim_host_open(void *context, uint32_t flags, kvt_store **store_out)
{
    struct sim_host *host = context;

    host->options.flags = flags;
    return store_open_in(&host->store_world, "/store", &host->options, store_out);
}

static void
sim_host_pass(void *context, struct rng *rng)
{
    struct sim_host *host = context;
    uint32_t choice = rng_below(rng, 8);

    if (choice < 4)
        sim_run_steps(host->world, 1 + rng_below(rng, 64));
    else if (choice < 7)
        (void)sim_run_for(host->world, 1 + rng_below(rng, 5 * 1000 * 1000));
    else
        (void)sim_run_for(host->world, UINT64_C(1500) * 1000 * 1000);
}

static bool
sim_host_crashed(void *context)
{
    const struct sim_host *host = context;

    return sim_crashed(host->world);
}

static bool
sim_host_lies(void *context)
{
    const struct sim_host *host = context;

    return sim_lies(host->world);
}

static void
sim_host_trace(void *context, uint64_t kind, uint64_t fact)
{
    struct sim_host *host = context;

    sim_trace(host->world, kind, fact);
}

void
sim_host_init(
    struct sim_host *host, const struct sim_options *world, const struct kvt_options *options)
{
    host->world = sim_world_create(world);
    host->options = *options;
    if (world->seed % 2 == 1)
        sim_board_enable(host->world);
    host->env = *sim_env(host->world);
    host->env.device = sim_device_ops();
    host->env.device_context = &host->device;
    host->device = (struct device_host_config){.seed = world->seed,
        .delay_ns_max = 60000,
        .memory_bytes = UINT64_C(64) << 20,
        .device_count = 2,
        .has_no_peers = world->seed % 8 == 1,
        .has_slow_peers = world->seed % 8 == 3};
    host->store_world = (struct store_world){
        .env = &host->env, .index_ops = &sim_index_ops, .index_context = host->world};
}

void
sim_host_vanish(struct sim_host *host)
{
    sim_device_forget(&host->device);
    sim_vanish(host->world);
}

void
sim_host_power_cut(struct sim_host *host, enum sim_cut kind)
{
    sim_device_forget(&host->device);
    sim_power_cut(host->world, kind);
}

void
sim_host_deinit(struct sim_host *host)
{
    sim_device_forget(&host->device);
    sim_world_destroy(host->world);
    host->world = NULL;
}

struct workload_host
sim_host_of(struct sim_host *host)
{
    return (struct workload_host){
        .context = host,
        .open = sim_host_open,
        .pass = sim_host_pass,
        .crashed = sim_host_crashed,
        .lies = sim_host_lies,
        .trace = sim_host_trace,
    };
}

/* --- 2. This machine -------------------------------------------------------------------------- */

static enum kvt_status
real_host_open(void *context, uint32_t flags, kvt_store **store_out)
{
    struct real_host *host = context;

    host->options.flags = flags;
    return kvt_open(host->path, &host->options, store_out);
}

static void
real_host_pass(void *context, struct rng *rng)
{
    struct timespec pause = {.tv_nsec = 1000 + rng_below(rng, 1000 * 1000)};

    (void)context;
    (void)nanosleep(&pause, NULL);
}

static const char *
real_host_path(void *context)
{
    const struct real_host *host = context;

    return host->path;
}

bool
real_host_init(struct real_host *host, const struct kvt_options *options)
{
    const char *root = getenv("KVT_TEST_TMP");
    char directory[HOST_PATH_BYTES - 8];

    snprintf(
        directory, sizeof(directory), "%s/kvtier-test-XXXXXX", root == NULL ? "/dev/shm" : root);
    host->options = *options;
    if (mkdtemp(directory) == NULL)
        return false;
    snprintf(host->path, sizeof(host->path), "%s/store", directory);
    return true;
}

static int
remove_one(const char *path, const struct stat *facts, int type, struct FTW *where)
{
    (void)facts;
    (void)type;
    (void)where;
    return remove(path);
}

void
real_host_deinit(struct real_host *host)
{
    *strrchr(host->path, '/') = '\0';
    (void)nftw(host->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct workload_host
real_host_of(struct real_host *host)
{
    return (struct workload_host){
        .context = host, .open = real_host_open, .path = real_host_path, .pass = real_host_pass};
}
