/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_gather.c - rows of pinned memory by their numbers: by the caller's thread, or by a kernel
 * of a device on the caller's stream.
 */
#include "engram_pin.h"
#include "engram_set.h"

static bool
is_values(const struct kvt_engram_selection *gather)
{
    return (gather->flags & KVT_ENGRAM_VALUES) != 0;
}

static uint64_t
target_row_bytes(const struct kvt_engram_selection *gather)
{
    const struct kvt_engram_profile *profile = &gather->table->head.profile;

    return is_values(gather) ? (uint64_t)profile->value_count * 2 : profile->row_bytes;
}

static enum kvt_status
gather_check(const struct kvt_engram_selection *gather)
{
    const struct engram_head *head = &gather->table->head;

    if ((gather->flags & ~(uint32_t)KVT_ENGRAM_VALUES) != 0 || gather->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0,
            "flags 0x%x: only KVT_ENGRAM_VALUES is known; or reserved0 is not zero", gather->flags);
    if (engram_pin_pages(&gather->table->pin) == 0)
        return failure_set(KVT_E_INVAL, 0, "no rows of the table %s are pinned", head->name);
    if (gather->count > 0 && (gather->ids == NULL || gather->destination == NULL))
        return failure_set(KVT_E_INVAL, 0, "ids or destination is NULL");
    if (is_values(gather) && (head->profile.encoding != KVT_ENGRAM_E4M3_E8M0 ||
                                 (uintptr_t)gather->destination % sizeof(uint16_t) != 0))
        return failure_set(KVT_E_INVAL, 0,
            "rows of the table %s are no E4M3 with E8M0, or the destination is at an odd address",
            head->name);
    if (gather->capacity / target_row_bytes(gather) < gather->count)
        return failure_set(KVT_E_INVAL, 0,
            "%llu rows of %llu bytes do not fit a destination of %llu bytes",
            (unsigned long long)gather->count, (unsigned long long)target_row_bytes(gather),
            (unsigned long long)gather->capacity);
    return KVT_OK;
}

/* --- 1. On the host --------------------------------------------------------------------------- */

static enum kvt_status
host_gather(const struct kvt_engram_selection *gather)
{
    const struct kvt_engram *table = gather->table;
    const struct kvt_engram_profile *profile = &table->head.profile;
    uint32_t rows_per_page = table->head.rows_per_page;
    uint64_t size = target_row_bytes(gather);
    uint8_t *target = gather->destination;

    if (gather->stream != NULL || gather->verdict != NULL || gather->ids_region.id != 0)
        return failure_set(KVT_E_INVAL, 0,
            "stream, verdict or ids_region are a device's, and the destination is the host's");
    for (uint64_t i = 0; i < gather->count; i++) {
        if (gather->ids[i] >= table->pin.row_count)
            return failure_set(KVT_E_INVAL, 0,
                "ids[%llu] is %u: %u rows of the table %s are pinned", (unsigned long long)i,
                gather->ids[i], table->pin.row_count, table->head.name);
    }
    for (uint64_t i = 0; i < gather->count; i++, target += size) {
        uint32_t id = gather->ids[i];
        const uint8_t *row = engram_pin_page(&table->pin, id / rows_per_page) +
                             (size_t)(id % rows_per_page) * profile->row_bytes;

        if (is_values(gather))
            KVT_TRY(kvt_engram_dequantise(profile, row, 1, (uint16_t *)(void *)target));
        else
            memcpy(target, row, size);
    }
    return KVT_OK;
}

/* --- 2. On a device --------------------------------------------------------------------------- */

/* Everything lies in its region; *device_out. The regions are held. */
static enum kvt_status
regions_check(const struct kvt_engram_selection *gather, int *device_out)
{
    struct kvt_store *store = gather->table->store;
    const struct iovec verdict = {.iov_base = gather->verdict, .iov_len = sizeof(*gather->verdict)};
    const struct iovec target = {
        .iov_base = gather->destination, .iov_len = gather->count * target_row_bytes(gather)};
    const struct iovec ids = {
        .iov_base = (void *)(uintptr_t)gather->ids, .iov_len = gather->count * sizeof(uint32_t)};
    int ids_device = MEMORY_PINNED;

    KVT_TRY(region_hold(store, gather->region, &verdict, device_out));
    region_let_go(store, gather->region);
    if (*device_out < 0)
        return failure_set(KVT_E_INVAL, 0, "the destination's region is no device's");
    KVT_TRY(region_hold(store, gather->region, &target, device_out));
    region_let_go(store, gather->region);
    KVT_TRY(region_hold(store, gather->ids_region, &ids, &ids_device));
    region_let_go(store, gather->ids_region);
    if (ids_device != MEMORY_PINNED && ids_device != *device_out)
        return failure_set(KVT_E_INVAL, 0, "the ids lie on another device than the destination");
    return KVT_OK;
}

static enum kvt_status
device_gather(const struct kvt_engram_selection *gather)
{
    const struct kvt_engram *table = gather->table;
    const struct kvt_engram_profile *profile = &table->head.profile;
    const struct device_gather work = {.ids = gather->ids,
        .count = gather->count,
        .pages = engram_pin_page(&table->pin, 0),
        .row_count = table->pin.row_count,
        .rows_per_page = table->head.rows_per_page,
        .row_bytes = profile->row_bytes,
        .value_count = is_values(gather) ? profile->value_count : 0,
        .scale_count = is_values(gather) ? profile->scale_count : 0,
        .target = gather->destination,
        .verdict = gather->verdict};
    struct device *device;
    int number = 0;

    if (gather->stream == NULL || (uintptr_t)gather->verdict % sizeof(uint64_t) != 0 ||
        gather->verdict == NULL || gather->count == 0)
        return failure_set(KVT_E_INVAL, 0,
            "stream or verdict is NULL, verdict is at no multiple of 8, or there are no ids");
    KVT_TRY(regions_check(gather, &number));
    if (device_is_lost(table->store, (uint32_t)number))
        return failure_set(KVT_E_GPU, 0, "device %d is lost", number);
    device = hbm_device(table->store->devices.tiers[number]);
    if (device->ops->gather == NULL || (table->pin.device_mask >> number & 1) == 0)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "device %d cannot read the pinned rows of the table %s", number, table->head.name);
    return device_answer(
        table->store, (uint32_t)number, device->ops->gather(device, gather->stream, &work));
}

enum kvt_status
kvt_engram_gather(const struct kvt_engram_selection *gather)
{
    if (gather == NULL || gather->table == NULL)
        return failure_set(KVT_E_INVAL, 0, "gather or its table is NULL");
    KVT_TRY(store_enter(gather->table->store));
    KVT_TRY(gather_check(gather));
    return gather->region.id == 0 ? host_gather(gather) : device_gather(gather);
}
