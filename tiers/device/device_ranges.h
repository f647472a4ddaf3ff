/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_ranges.h - which addresses a device may be asked to use: its slabs, other memory of the
 * device and of the host that was registered with it, slabs of its peers, and (in the emulation)
 * its events.
 *
 * Threads   serial: guarded by the device's mutex.
 */
#ifndef KVT_TIERS_DEVICE_RANGES_H
#define KVT_TIERS_DEVICE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "env.h"

enum device_range_kind {
    DEVICE_RANGE_SLAB,
    DEVICE_RANGE_ADOPTED, /* A slab of another process: only read. */
    DEVICE_RANGE_MEMORY,  /* Of the device, taken by somebody else. */
    DEVICE_RANGE_HOST,
    DEVICE_RANGE_PINNED, /* Of the host: somebody else has pinned it, and unpins it. */
    DEVICE_RANGE_PEER,   /* A slab of another device: to be read only. */
    DEVICE_RANGE_EVENT,
};

struct device_range {
    uint64_t start;
    uint64_t size; /* > 0; start + size does not overflow. */
    enum device_range_kind kind;
};

/* All zero but `env` is the empty table. */
struct device_ranges {
    const struct kvt_env *env;  /* Kept. */
    struct device_range *items; /* Sorted by start; none overlaps another. */
    uint32_t count;
    uint32_t capacity;
};

static inline uint64_t
address_of(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

/* Of the device itself, not the host's or a peer's. */
static inline bool
device_range_is_own(const struct device_range *range)
{
    return range->kind == DEVICE_RANGE_SLAB || range->kind == DEVICE_RANGE_MEMORY;
}

static inline bool
device_range_is_only_read(enum device_range_kind kind)
{
    return kind == DEVICE_RANGE_PEER || kind == DEVICE_RANGE_ADOPTED;
}

static inline bool
device_range_is_host(enum device_range_kind kind)
{
    return kind == DEVICE_RANGE_HOST || kind == DEVICE_RANGE_PINNED;
}

static inline bool
spans_overlap(uint64_t start, uint64_t size, uint64_t other_start, uint64_t other_size)
{
    return start < other_start + other_size && other_start < start + size;
}

/* KVT_E_INVAL: it overlaps one that is there, or the end of all addresses. */
enum kvt_status device_ranges_add(struct device_ranges *ranges, const struct device_range *range);

/* The range that holds all of [start, start + size); NULL: none. Valid until the next change. */
const struct device_range *device_ranges_find(
    const struct device_ranges *ranges, uint64_t start, uint64_t size);

/* Whether all of the range is memory of one slab. */
bool device_ranges_in_slab(const struct device_ranges *ranges, const struct device_range *range);

/* False: this range, exactly, is not there. */
bool device_ranges_remove(struct device_ranges *ranges, const struct device_range *range);

void device_ranges_deinit(struct device_ranges *ranges);

#endif /* KVT_TIERS_DEVICE_RANGES_H */
