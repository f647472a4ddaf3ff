/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_late.c - what of the workload waits for work of a stream: requests whose sources that
 * fills late, or whose destinations it still reads, and leases whose bytes it still reads.
 *
 * But for leases the memory belongs to the stream's work, and is used again when its event was
 * reached: a request may end before, cancelled or with its device.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "device_host.h"
#include "kvtier/kvtier_unstable.h"
#include "store_inside.h"
#include "workload_internal.h"

enum {
    LATE_EVERY = 5, /* Requests, on average, that wait for work. */
    IDLE_MAX = 3,   /* Pieces of work before it that do nothing. */
    RUBBISH = 0x3C,
};

static const uint8_t UNTOUCHED = 0xA5; /* As destinations are before a get. */

/* --- 1. The stream ---------------------------------------------------------------------------- */

static uint64_t
block_bytes(const struct workload *work)
{
    return round_up(model_length_max(&work->model), PAGE_BYTES);
}

static uint64_t
memory_bytes(const struct workload *work)
{
    return LATE_MAX * LATE_BLOCKS * block_bytes(work);
}

static void
blocks_place(struct workload *work)
{
    struct late_stream *late = &work->late;

    for (uint64_t i = 0; i < LATE_MAX * LATE_BLOCKS; i++) {
        struct late_block *block = &late->works[i / LATE_BLOCKS].blocks[i % LATE_BLOCKS];

        block->host = late->host + 2 * i * block_bytes(work);
        block->bytes = block->host + block_bytes(work);
        block->address = (void *)((uintptr_t)late->memory + i * block_bytes(work));
    }
}

static bool
is_made(struct workload *work, const char *what, enum kvt_status status)
{
    workload_note(work, 43, (uint64_t)status);
    return workload_expect(work, what, status);
}

/* False: something of it is missing. */
static bool
stream_make(struct workload *work)
{
    struct late_stream *late = &work->late;
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .size = memory_bytes(work),
        .device = late->number};

    if (!is_made(work, "kvt_device_alloc",
            kvt_device_alloc(work->store, late->number, memory_bytes(work), &late->memory)))
        return false;
    about.address = late->memory;
    if (!is_made(
            work, "kvt_region_register", kvt_region_register(work->store, &about, &late->region)) ||
        !is_made(work, "a stream", device_host_stream_create(late->device, &late->stream)))
        return false;
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        if (!is_made(work, "an event",
                late->device->ops->event_create(late->device, &late->works[i].event)))
            return false;
    }
    return true;
}

void
late_open(struct workload *work)
{
    struct late_stream *late = &work->late;
    uint32_t health = 0;

    memset(late, 0, sizeof(*late));
    if (kvt_health(work->store, &health) != KVT_OK || (health & KVT_HEALTH_DEVICE_EMULATED) == 0 ||
        work->device_count == 0)
        return;
    late->number = device_pick(work);
    late->device = store_device(work->store, late->number);
    late->host = aligned_alloc(PAGE_BYTES, (size_t)(2 * memory_bytes(work)));
    if (late->host == NULL)
        abort();
    if (stream_make(work))
        blocks_place(work);
    else
        late_close(work);
}

/* What the work has seen is judged when it is known to be over. */
static void
work_reap(struct workload *work, struct late_work *late)
{
    for (uint32_t i = 0; i < late->count; i++) {
        const struct late_block *block = &late->blocks[i];

        if (block->was_changed && (block->leased == NULL || !work->loses_devices))
            model_fail(&work->model, "a stream found %s",
                block->leased == NULL ? "a destination written before its event"
                                      : "leased bytes changed before it had passed");
    }
    late->is_out = false;
}

void
late_close(struct workload *work)
{
    struct late_stream *late = &work->late;

    if (late->device == NULL)
        return;
    device_host_stream_destroy(late->device, late->stream);
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        work_reap(work, &late->works[i]);
        late->device->ops->event_destroy(late->device, late->works[i].event);
    }
    if (late->region.id != 0)
        workload_expect(
            work, "kvt_region_unregister", kvt_region_unregister(work->store, late->region));
    if (late->memory != NULL)
        kvt_device_free(work->store, late->number, late->memory, memory_bytes(work));
    late_forget(work);
}

void
late_forget(struct workload *work)
{
    free(work->late.host);
    memset(&work->late, 0, sizeof(work->late));
}

/* --- 2. Its work ------------------------------------------------------------------------------ */

static bool
is_untouched(const uint8_t *bytes, uint64_t size)
{
    return bytes[0] == UNTOUCHED && memcmp(bytes, bytes + 1, (size_t)size - 1) == 0;
}

static void
block_run(void *context, void *memory)
{
    struct late_block *block = context;
    uint8_t *bytes = block->is_on_device ? memory : block->host;

    if (block->leased != NULL)
        block->was_changed = memcmp(block->is_on_device ? memory : block->leased, block->bytes,
                                 (size_t)block->size) != 0;
    else if (block->is_read)
        block->was_changed = !is_untouched(bytes, block->size);
    else
        memcpy(bytes, block->bytes, (size_t)block->size);
    atomic_fetch_add(&block->run_count, 1);
}

static void
idle_run(void *context, void *memory)
{
    (void)context;
    (void)memory;
}

/* Work that nobody uses, if chance is for it. */
static struct late_work *
work_take(struct workload *work)
{
    struct late_stream *late = &work->late;

    if (late->device == NULL || work->is_verifying || rng_below(&work->rng, LATE_EVERY) != 0)
        return NULL;
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        struct late_work *own = &late->works[i];

        if (own->is_flown)
            continue;
        if (own->is_out && late->device->ops->event_query(late->device, own->event) != KVT_OK)
            continue;
        work_reap(work, own);
        own->count = 0;
        return own;
    }
    return NULL;
}

static struct late_block *
block_add(struct late_work *own, bool is_read, bool is_on_device, uint64_t size)
{
    struct late_block *block = &own->blocks[own->count++];

    block->size = size;
    block->is_read = is_read;
    block->is_on_device = is_on_device;
    block->was_changed = false;
    block->leased = NULL;
    atomic_store(&block->run_count, 0);
    return block;
}

/* What does not lie on the device is not told to it. */
static void *
launch_address(const struct late_block *block)
{
    return block->leased != NULL && block->is_on_device ? (void *)(uintptr_t)block->leased
                                                        : block->address;
}

/* The work is the stream's from here on, whether or not all of it could be queued. False: no
 * request can wait for it. */
static bool
work_launch(struct workload *work, struct late_work *own)
{
    struct late_stream *late = &work->late;
    uint32_t idle_count = rng_below(&work->rng, IDLE_MAX + 1);
    enum kvt_status status = KVT_OK;

    own->is_out = true;
    for (uint32_t i = 0; i < idle_count && status == KVT_OK; i++)
        status =
            device_host_launch(late->device, late->stream, idle_run, NULL, own->blocks[0].address);
    for (uint32_t i = 0; i < own->count && status == KVT_OK; i++)
        status = device_host_launch(late->device, late->stream, block_run, &own->blocks[i],
            launch_address(&own->blocks[i]));
    /* Behind one that failed, too: it says when the memory can be used again. */
    if (late->device->ops->event_record(late->device, own->event, late->stream) == KVT_OK)
        return status == KVT_OK;
    own->is_flown = true; /* Nobody knows when: not before the stream ends. */
    return false;
}

static void
flight_attach(struct workload *work, struct flight *flight, struct late_work *own)
{
    own->is_flown = true;
    flight->late = own;
    flight->submit.wait_event = own->event;
    flight->submit.wait_device = work->late.number;
    work->late_count++;
}

/* --- 3. Requests ------------------------------------------------------------------------------ */

static bool
may_lie_there(const struct workload *work, const struct flight *flight, uint32_t i)
{
    return flight->spreads[i].kind == SPREAD_NONE &&
           (!flight->is_on_device[i] || flight->devices[i] == work->late.number);
}

/* The block's memory is the work's from here on: its address. NULL: it is as it was. */
static void *
block_attach(const struct workload *work, struct flight *flight, uint32_t i,
    struct late_block *block, kvt_region *region_out)
{
    flight->late_blocks[i] = block;
    if (block == NULL)
        return NULL;
    if (block->is_on_device)
        *region_out = work->late.region;
    return block->is_on_device ? block->address : block->host;
}

void
late_alone(struct workload *work, struct flight *flight)
{
    struct late_work *own = work_take(work);

    if (own == NULL)
        return;
    (void)block_add(own, false, false, 0);
    if (work_launch(work, own))
        flight_attach(work, flight, own);
}

void
late_puts(struct workload *work, struct flight *flight, struct kvt_put *puts)
{
    struct late_block *blocks[BATCH_MAX] = {NULL};
    struct late_work *own = work_take(work);

    if (own == NULL)
        return;
    for (uint32_t i = 0; i < flight->count && own->count < LATE_BLOCKS; i++) {
        if (!may_lie_there(work, flight, i))
            continue;
        blocks[i] = block_add(own, false, flight->is_on_device[i], flight->sizes[i]);
        memcpy(blocks[i]->bytes, flight->memory[i], (size_t)flight->sizes[i]);
        memset(blocks[i]->host, RUBBISH, (size_t)flight->sizes[i]);
    }
    if (own->count == 0)
        (void)block_add(own, false, false, 0);
    if (!work_launch(work, own))
        return;
    flight_attach(work, flight, own);
    for (uint32_t i = 0; i < flight->count; i++) {
        void *address = block_attach(work, flight, i, blocks[i], &puts[i].region);

        puts[i].source = address != NULL ? address : puts[i].source;
    }
}

/* What the work will look at. False: it could not be written there. */
static bool
destination_fill(
    struct workload *work, const struct flight *flight, uint32_t i, const struct late_block *block)
{
    enum kvt_status status;

    if (!block->is_on_device) {
        memset(block->host, UNTOUCHED, (size_t)block->size);
        return true;
    }
    status = kvt_device_write(
        work->store, work->late.number, block->address, flight->memory[i], block->size);
    return (status == KVT_E_NOSPC && work->evicts) ? false
                                                   : is_made(work, "kvt_device_write", status);
}

void
late_gets(struct workload *work, struct flight *flight, struct kvt_get *gets)
{
    struct late_block *blocks[BATCH_MAX] = {NULL};
    struct late_work *own = work_take(work);

    if (own == NULL)
        return;
    for (uint32_t i = 0; i < flight->count && own->count < LATE_BLOCKS; i++) {
        if (!may_lie_there(work, flight, i))
            continue;
        blocks[i] = block_add(own, true, flight->is_on_device[i], flight->sizes[i]);
        if (destination_fill(work, flight, i, blocks[i]))
            continue;
        blocks[i] = NULL;
        own->count--;
    }
    if (own->count == 0)
        (void)block_add(own, false, false, 0);
    if (!work_launch(work, own))
        return;
    flight_attach(work, flight, own);
    for (uint32_t i = 0; i < flight->count; i++) {
        void *address = block_attach(work, flight, i, blocks[i], &gets[i].region);

        gets[i].destination = address != NULL ? address : gets[i].destination;
    }
}

void
late_landed(struct workload *work, struct flight *flight, bool has_begun)
{
    struct late_work *own = flight->late;

    if (own == NULL)
        return;
    for (uint32_t i = 0; i < own->count && has_begun; i++) {
        if (atomic_load(&own->blocks[i].run_count) != 1 || own->blocks[i].was_changed)
            model_fail(&work->model, "a request has begun before the event that it waits for");
    }
    for (uint32_t i = 0; i < flight->count && flight->kind == FLIGHT_GET; i++) {
        const struct late_block *block = flight->late_blocks[i];

        if (block != NULL && !block->is_on_device)
            memcpy(flight->memory[i], block->host, (size_t)block->size);
    }
}

bool
late_scribble(const struct flight *flight, uint32_t i, uint8_t filler)
{
    const struct late_block *block = flight->late_blocks[i];

    if (block == NULL)
        return true;
    if (atomic_load(&block->run_count) == 0)
        return false;
    memset(block->host, filler, (size_t)block->size);
    return true;
}

void
late_release(struct flight *flight)
{
    if (flight->late != NULL)
        flight->late->is_flown = false;
    flight->late = NULL;
    memset(flight->late_blocks, 0, sizeof(flight->late_blocks));
}

/* --- 4. Leases -------------------------------------------------------------------------------- */

/* Of a copy that can be looked at from the stream, and is known. */
static void
lease_add(struct workload *work, struct late_work *own, const struct held_lease *held, uint32_t i)
{
    bool is_on_device =
        held->hbm_versions[i] != 0 && (held->versions[i] == 0 || rng_below(&work->rng, 2) == 0);
    uint32_t version = is_on_device ? held->hbm_versions[i] : held->versions[i];
    uint32_t tier = is_on_device ? KVT_TIER_HBM : KVT_TIER_HOST;
    struct kvt_locator locator;
    struct late_block *block;
    const void *address;
    uint64_t length;

    if (version == 0 ||
        kvt_lease_address(work->store, held->lease, i, tier, &address, &length) != KVT_OK ||
        kvt_lease_export(work->store, held->lease, i, tier, &locator) != KVT_OK ||
        (is_on_device && locator.device != work->late.number))
        return;
    block = block_add(own, true, is_on_device, model_length(&work->model, held->names[i], version));
    model_fill(&work->model, held->names[i], version, block->bytes);
    block->leased = address;
}

bool
late_lease_end(struct workload *work, const struct held_lease *held)
{
    struct late_stream *late = &work->late;
    struct late_work *own = held->lease.id == 0 ? NULL : work_take(work);
    enum kvt_status status;

    if (own == NULL)
        return false;
    for (uint32_t i = 0; i < held->count && own->count < LATE_BLOCKS; i++)
        lease_add(work, own, held, i);
    if (own->count == 0)
        return false;
    (void)work_launch(work, own);
    status = kvt_lease_release_after(work->store, held->lease, late->number, NULL);
    if (status != KVT_E_INVAL)
        model_fail(&work->model, "kvt_lease_release_after of the default stream: %s",
            kvt_status_name(status));
    status = kvt_lease_release_after(work->store, held->lease, late->number, late->stream);
    if (is_made(work, "kvt_lease_release_after", status)) {
        work->late_lease_count++;
        return true;
    }
    own->count = 0; /* Nothing is promised to the work. */
    return status == KVT_E_GPU;
}
