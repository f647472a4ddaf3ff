/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_device.c - the workload's memory on devices: sources and destinations there, leased
 * copies in HBM, blocks that are moved between tiers.
 */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

enum {
    DEVICE_POISON_BYTE = 0xA5,
};

static uint64_t
pool_bytes(const struct workload *work)
{
    return round_up(FLIGHTS_MAX * BATCH_MAX * spread_area_bytes(work), PAGE_BYTES);
}

static enum kvt_status
pool_open(struct workload *work, uint32_t device)
{
    struct workload_pool *pool = &work->pools[device];
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .size = pool_bytes(work),
        .device = device};
    enum kvt_status status = kvt_device_alloc(work->store, device, pool_bytes(work), &pool->memory);

    if (!workload_expect(work, "kvt_device_alloc", status))
        return status;
    work->device_count++;
    about.address = pool->memory;
    status = kvt_region_register(work->store, &about, &pool->region);
    workload_expect(work, "kvt_region_register", status);
    return status;
}

static enum kvt_status
pinned_open(struct workload *work)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = pool_bytes(work)};
    enum kvt_status status;

    work->pinned_pool = aligned_alloc(PAGE_BYTES, (size_t)pool_bytes(work));
    if (work->pinned_pool == NULL)
        abort();
    about.address = work->pinned_pool;
    status = kvt_region_register(work->store, &about, &work->pinned);
    workload_expect(work, "kvt_region_register, host", status);
    return status;
}

enum kvt_status
device_open(struct workload *work)
{
    struct kvt_options options = {.struct_size = sizeof(options)};
    enum kvt_status status;

    status = kvt_options_get(work->store, &options);
    workload_expect(work, "kvt_options_get", status);
    work->has_hbm =
        options.hbm_capacity_bytes != 0 && options.hbm_capacity_bytes != KVT_CAPACITY_NONE;
    if (work->device_percent == 0)
        return status;
    for (uint32_t i = 0; i < WORKLOAD_DEVICES_MAX && status == KVT_OK; i++) {
        if ((options.device_mask >> i & 1) != 0)
            status = pool_open(work, i);
    }
    if (status == KVT_OK)
        late_open(work);
    return status != KVT_OK || work->spread_percent == 0 ? status : pinned_open(work);
}

void
device_close(struct workload *work)
{
    late_close(work);
    if (work->pinned.id != 0)
        workload_expect(
            work, "kvt_region_unregister", kvt_region_unregister(work->store, work->pinned));
    free(work->pinned_pool);
    work->pinned_pool = NULL;
    work->pinned.id = 0;
    while (work->device_count > 0) {
        struct workload_pool *pool = &work->pools[--work->device_count];

        if (pool->region.id != 0)
            workload_expect(
                work, "kvt_region_unregister", kvt_region_unregister(work->store, pool->region));
        kvt_device_free(work->store, work->device_count, pool->memory, pool_bytes(work));
        *pool = (struct workload_pool){.memory = NULL};
    }
}

uint32_t
device_pick(struct workload *work)
{
    return work->device_count < 2 ? 0 : rng_below(&work->rng, work->device_count);
}

void *
device_memory(const struct workload *work, const struct flight *flight, uint32_t i)
{
    uint64_t block = (uint64_t)(flight - work->flights) * BATCH_MAX + i;
    const struct workload_pool *pool = &work->pools[flight->devices[i]];

    if (flight->late_blocks[i] != NULL)
        return flight->late_blocks[i]->address;
    return (void *)((uintptr_t)pool->memory + block * spread_area_bytes(work));
}

kvt_region
device_region(const struct workload *work, const struct flight *flight, uint32_t i)
{
    return flight->late_blocks[i] != NULL ? work->late.region
                                          : work->pools[flight->devices[i]].region;
}

bool
device_is_chosen(struct workload *work, struct flight *flight, uint32_t i)
{
    if (work->device_count == 0 || rng_below(&work->rng, 100) >= work->device_percent)
        return false;
    flight->devices[i] = (uint8_t)device_pick(work);
    return true;
}

/* Copies of the test's own go through HOST, which may be full of leases. */
static bool
is_done(struct workload *work, const char *what, enum kvt_status status)
{
    if (status == KVT_E_NOSPC && work->evicts)
        return false;
    return workload_expect(work, what, status);
}

bool
device_fill(struct workload *work, const struct flight *flight, uint32_t i)
{
    enum kvt_status status = kvt_device_write(work->store, flight->devices[i],
        device_memory(work, flight, i), flight->memory[i], flight->sizes[i]);

    return is_done(work, "kvt_device_write", status);
}

bool
device_fetch(struct workload *work, const struct flight *flight, uint32_t i)
{
    enum kvt_status status = kvt_device_read(work->store, flight->devices[i], flight->memory[i],
        device_memory(work, flight, i), flight->sizes[i]);

    return is_done(work, "kvt_device_read", status);
}

/* --- Leases ----------------------------------------------------------------------------------- */

uint32_t
device_lease_version(
    struct workload *work, const struct held_lease *held, uint32_t i, bool is_fresh)
{
    struct kvt_locator locator;
    const void *address;
    uint64_t length;
    uint32_t version = held->hbm_versions[i];
    uint8_t *bytes;

    if (kvt_lease_address(work->store, held->lease, i, KVT_TIER_HBM, &address, &length) != KVT_OK ||
        kvt_lease_export(work->store, held->lease, i, KVT_TIER_HBM, &locator) != KVT_OK)
        return 0;
    bytes = calloc(1, (size_t)length);
    if (bytes == NULL)
        abort();
    /* Where HOST has no room to look nothing new is known. Payloads of a byte or two are alike now
     * and then: it is what it was, if it can be. */
    if (is_done(work, "kvt_device_read",
            kvt_device_read(work->store, locator.device, bytes, address, length))) {
        if (is_fresh)
            model_read(&work->model, held->names[i], bytes, length);
        if (is_fresh || !model_is(&work->model, held->names[i], version, bytes, length))
            version = model_identify(&work->model, held->names[i], bytes, length);
    }
    free(bytes);
    return version;
}

/* --- Moves ------------------------------------------------------------------------------------ */

/* What a move says of a block. */
static void
move_judge(struct workload *work, struct model_name name, const struct kvt_result *result)
{
    if (result->status == KVT_OK || result->status == KVT_EXISTS)
        model_found(&work->model, name, true);
    else if (result->status == KVT_MISS) {
        pin_missed(work, name);
        model_read(&work->model, name, NULL, 0); /* It may have been read for that. */
    } else if (result->status < 0 && (!work->model.may_miss || result->status != KVT_E_NOSPC))
        workload_expect(work, "a move", result->status);
}

void
workload_move(struct workload *work, const struct model_name *names, uint32_t count, uint32_t tier,
    bool is_up)
{
    struct kvt_prefetch how = {.struct_size = sizeof(how),
        .tier = tier,
        .flags = KVT_PREFETCH_BULK * rng_below(&work->rng, 2)};
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    struct kvt_result results[BATCH_MAX];
    kvt_namespace ns = work->spaces[names[0].space];
    kvt_ticket *ticket;
    enum kvt_status status;

    how.device = device_pick(work);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    status = is_up ? kvt_prefetch_submit(work->store, ns, keys, count, &how, NULL, &ticket)
                   : kvt_demote_submit(work->store, ns, keys, count, tier, NULL, &ticket);
    workload_note(work, 14, (uint64_t)status);
    if (!workload_expect(work, is_up ? "kvt_prefetch_submit" : "kvt_demote_submit", status))
        return;
    if (rng_below(&work->rng, 8) == 0)
        workload_expect(work, "kvt_ticket_cancel", kvt_ticket_cancel(ticket));
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count);
    if (status != KVT_OK)
        model_fail(&work->model, "waiting for a move: %s", kvt_status_name(status));
    workload_mood(work);
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        workload_note(work, 15, (uint64_t)results[i].status);
        move_judge(work, names[i], &results[i]);
    }
    kvt_ticket_free(ticket);
}

/* What came of a prefetch of the leading blocks. A lease keeps all of them. */
static void
ahead_judge(struct workload *work, const struct model_name *names, uint32_t leading,
    kvt_ticket *ticket, bool is_leased)
{
    struct kvt_result results[BATCH_MAX];
    enum kvt_status status;
    bool is_cancelled = rng_below(&work->rng, 4) == 0;

    if (is_cancelled)
        workload_expect(work, "kvt_ticket_cancel", kvt_ticket_cancel(ticket));
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, results, leading);
    if (status != KVT_OK)
        model_fail(&work->model, "waiting for what was looked up: %s", kvt_status_name(status));
    workload_mood(work);
    for (uint32_t i = 0; i < leading && status == KVT_OK; i++) {
        workload_note(work, 38, (uint64_t)results[i].status);
        move_judge(work, names[i], &results[i]);
        work->asked_count[ASKED_AHEAD]++;
        if (results[i].status == KVT_LATE ||
            (results[i].status == KVT_CANCELLED && !is_cancelled) ||
            (results[i].status == KVT_MISS && is_leased && !workload_tolerates(work) &&
                !work->finds_damage))
            model_fail(&work->model, "space %u key %u: a prefetch of a lookup%s gives %s",
                names[i].space, names[i].key, is_leased ? " with a lease" : "",
                kvt_status_name(results[i].status));
    }
    kvt_ticket_free(ticket);
}

void
workload_ahead(struct workload *work, const struct model_name *names, uint32_t count, uint32_t tier,
    bool waits)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how),
        .tier = tier,
        .flags = waits ? KVT_PREFETCH_BULK * rng_below(&work->rng, 2) : KVT_PREFETCH_BULK};
    bool leases = waits && rng_below(&work->rng, 2) == 0;
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    uint8_t tiers[BATCH_MAX];
    kvt_ticket *ticket = NULL;
    kvt_lease lease = {.id = 0};
    uint32_t leading;
    enum kvt_status status;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    status = kvt_lookup_prefetch(work->store, work->spaces[names[0].space], keys, count, &how,
        tiers, &leading, leases ? &lease : NULL, waits ? &ticket : NULL);
    if (!workload_expect(work, "kvt_lookup_prefetch", status))
        return;
    lookup_heard(work, names, tiers, count, leading);
    if (ticket != NULL)
        ahead_judge(work, names, leading, ticket, lease.id != 0);
    kvt_lease_release(work->store, lease);
}
