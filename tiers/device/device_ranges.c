/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_ranges.c - a sorted table of address ranges.
 */
#include "device_ranges.h"

#include <inttypes.h>
#include <string.h>

#include "array.h"
#include "failure.h"

/* The number of ranges that start at or before `address`. */
static uint32_t
position_behind(const struct device_ranges *ranges, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = ranges->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (ranges->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct device_range *
device_ranges_find(const struct device_ranges *ranges, uint64_t start, uint64_t size)
{
    uint32_t position = position_behind(ranges, start);
    const struct device_range *range;

    if (position == 0)
        return NULL;
    range = &ranges->items[position - 1];
    if (start - range->start >= range->size || size > range->size - (start - range->start))
        return NULL;
    return range;
}

bool
device_ranges_in_slab(const struct device_ranges *ranges, const struct device_range *range)
{
    const struct device_range *found = device_ranges_find(ranges, range->start, range->size);

    return found != NULL && found->kind == DEVICE_RANGE_SLAB;
}

enum kvt_status
device_ranges_add(struct device_ranges *ranges, const struct device_range *range)
{
    uint32_t position = position_behind(ranges, range->start);
    const struct device_range *before = position == 0 ? NULL : &ranges->items[position - 1];

    if (range->size == 0 || range->start > UINT64_MAX - range->size) {
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at 0x%" PRIx64 " are no range of addresses.", range->size,
            range->start);
    }
    if ((before != NULL && range->start - before->start < before->size) ||
        (position < ranges->count && ranges->items[position].start - range->start < range->size)) {
        return failure_set(KVT_E_INVAL, 0,
            "Of %" PRIu64 " bytes at 0x%" PRIx64 " the device has some already.", range->size,
            range->start);
    }
    if (ranges->count == ranges->capacity) {
        struct device_range *grown =
            array_grow(ranges->env, ranges->items, &ranges->capacity, sizeof(*ranges->items));

        if (grown == NULL) {
            return failure_set(
                KVT_E_NOMEM, 0, "No memory for a table of %" PRIu32 " ranges.", ranges->count + 1);
        }
        ranges->items = grown;
    }
    memmove(&ranges->items[position + 1], &ranges->items[position],
        (ranges->count - position) * sizeof(*ranges->items));
    ranges->items[position] = *range;
    ranges->count++;
    return KVT_OK;
}

bool
device_ranges_remove(struct device_ranges *ranges, const struct device_range *range)
{
    uint32_t position = position_behind(ranges, range->start);
    const struct device_range *found = position == 0 ? NULL : &ranges->items[position - 1];

    if (found == NULL || found->start != range->start || found->size != range->size ||
        found->kind != range->kind)
        return false;
    memmove(&ranges->items[position - 1], &ranges->items[position],
        (ranges->count - position) * sizeof(*ranges->items));
    ranges->count--;
    return true;
}

void
device_ranges_deinit(struct device_ranges *ranges)
{
    env_put(ranges->env, ranges->items, ranges->capacity * sizeof(*ranges->items));
    ranges->items = NULL;
    ranges->count = 0;
    ranges->capacity = 0;
}
