/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_device.c - the one file of `tierbench engram` that sees the library's inside: it catches
 * the device that a store opens, for streams and kernels beside the store's.
 */
#include "engram_device.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "complain.h"
#include "compute_kernel.h"
#include "device_host.h"
#include "device_kinds.h"
#include "env.h"
#include "kvtier/kvtier_unstable.h"

/* The vtable has no place for a context of its own. */
static struct {
    const struct kvt_device_ops *real;
    struct kvt_device_ops ops; /* The real one's, but for open. */
    struct device_host_config config;
    struct device *device; /* NULL: there is none. */
    bool is_emulated;
    void *streams[ENGRAM_STREAM_COUNT];
    void *events[ENGRAM_STREAM_COUNT];
    uint64_t duration_ns; /* Of the emulation's computing. */
} opened;

/* --- 1. The device ---------------------------------------------------------------------------- */

static enum kvt_status
open_caught(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = opened.real->open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        opened.device = *device_out;
    return status;
}

/* Whether this machine, and this build, have what was asked for. False: complained. */
static bool
device_find(enum engram_device_choice choice, bool *is_there)
{
    enum kvt_status status;

    *is_there = false;
    if (choice == ENGRAM_DEVICE_NONE)
        return true;
    status = device_choose(
        choice == ENGRAM_DEVICE_EMULATION ? DEVICE_EMULATED : DEVICE_CUDA, &opened.real);
#ifndef KVT_WITH_KERNELS
    if (status == KVT_OK && choice != ENGRAM_DEVICE_EMULATION)
        status = KVT_E_UNSUPPORTED;
#endif
    if (status != KVT_OK && choice != ENGRAM_DEVICE_AUTO)
        complain_status(status, "there is no such device");
    *is_there = status == KVT_OK;
    return status == KVT_OK || choice == ENGRAM_DEVICE_AUTO;
}

static enum kvt_status
stream_open(uint32_t i)
{
    if (opened.is_emulated)
        return device_host_stream_create(opened.device, &opened.streams[i]);
#ifdef KVT_WITH_KERNELS
    return compute_stream_create(&opened.streams[i]) == 0 ? KVT_OK : KVT_E_GPU;
#else
    return KVT_E_UNSUPPORTED;
#endif
}

static void
stream_close(uint32_t i)
{
    opened.real->event_destroy(opened.device, opened.events[i]);
    if (opened.is_emulated)
        device_host_stream_destroy(opened.device, opened.streams[i]);
#ifdef KVT_WITH_KERNELS
    else
        compute_stream_destroy(opened.streams[i]);
#endif
}

void
engram_device_close(void)
{
    for (uint32_t i = 0; opened.device != NULL && i < ENGRAM_STREAM_COUNT; i++)
        stream_close(i);
    opened.device = NULL;
}

bool
engram_device_store_open(const char *path, struct kvt_options *options,
    enum engram_device_choice choice, kvt_store **store_out, bool *has_device_out)
{
    enum kvt_status status;
    struct kvt_env env;

    if (!device_find(choice, has_device_out))
        return false;
    kvt_env_host(&env);
    if (*has_device_out) {
        opened.ops = *opened.real;
        opened.ops.open = open_caught;
        opened.is_emulated = choice == ENGRAM_DEVICE_EMULATION;
        opened.config.memory_bytes = UINT64_C(64) << 30; /* As long as the host has it. */
        env.device = &opened.ops;
        env.device_context = opened.is_emulated ? &opened.config : NULL;
        options->device_mask = 1;
    }
    status = kvt_open_env(path, options, &env, store_out);
    for (uint32_t i = 0; i < ENGRAM_STREAM_COUNT && status == KVT_OK && *has_device_out; i++) {
        status = stream_open(i);
        if (status == KVT_OK)
            status = opened.real->event_create(opened.device, &opened.events[i]);
    }
    if (status != KVT_OK)
        complain_status(status, "cannot open %s", path);
    return status == KVT_OK;
}

void
engram_device_name(struct engram_device_facts *facts_out)
{
    struct device_info info;

    *facts_out = (struct engram_device_facts){.is_emulated = opened.is_emulated};
    if (opened.real->info(opened.device, &info) == KVT_OK)
        (void)snprintf(facts_out->name, sizeof(facts_out->name), "%s", info.name);
}

void *
engram_device_stream(enum engram_device_stream which)
{
    return opened.streams[which];
}

/* --- 2. Its work ------------------------------------------------------------------------------ */

static void
compute_emulated(void *context, void *memory)
{
    const uint64_t *duration_ns = context;
    const struct timespec duration = {.tv_sec = (time_t)(*duration_ns / 1000000000),
        .tv_nsec = (long)(*duration_ns % 1000000000)};

    (void)memory;
    (void)nanosleep(&duration, NULL);
}

bool
engram_device_compute(uint64_t duration_ns, void *memory)
{
    void *stream = opened.streams[ENGRAM_STREAM_COMPUTE];

    if (opened.is_emulated) {
        opened.duration_ns = duration_ns;
        return device_host_launch(
                   opened.device, stream, compute_emulated, &opened.duration_ns, memory) == KVT_OK;
    }
#ifdef KVT_WITH_KERNELS
    return compute_start(stream, duration_ns) == 0;
#else
    return false;
#endif
}

bool
engram_device_gather(const struct engram_device_gather *gather)
{
    const struct device_gather work = {.ids = gather->ids,
        .count = gather->count,
        .pages = gather->pages,
        .row_count = gather->row_count,
        .rows_per_page = gather->rows_per_page,
        .row_bytes = gather->row_bytes,
        .target = gather->target,
        .verdict = gather->verdict};

    return opened.real->gather(opened.device, opened.streams[ENGRAM_STREAM_ROWS], &work) == KVT_OK;
}

bool
engram_device_mark(enum engram_device_stream which)
{
    return opened.real->event_record(opened.device, opened.events[which], opened.streams[which]) ==
           KVT_OK;
}

bool
engram_device_wait(enum engram_device_stream which)
{
    enum kvt_status status;

    while (
        (status = opened.real->event_query(opened.device, opened.events[which])) == KVT_NOT_READY)
        (void)sched_yield();
    return status == KVT_OK;
}
