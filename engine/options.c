/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - from the caller's options to the ones in force.
 */
#include "store_internal.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MAP_BYTES_MAX (UINT64_C(1) << 44)
#define LARGE_PAGE_BYTES (2 * MIB) /* What the capacities of HOST and HBM are rounded up to. */

enum {
    OPTIONS_SIZE_V1 = sizeof(struct kvt_options), /* The first published size; never changes. */
    OPTIONS_SIZE_MAX = 4096,
    SEGMENTS_MIN = 8,
    SEGMENTS_WANTED = 64,
};

enum kvt_status
options_import(struct kvt_options *target, const struct kvt_options *source)
{
    size_t size = source->struct_size;

    if (size < OPTIONS_SIZE_V1 || size > OPTIONS_SIZE_MAX)
        return failure_set(KVT_E_INVAL, 0, "struct_size %zu is not in %d..%d", size,
            (int)OPTIONS_SIZE_V1, OPTIONS_SIZE_MAX);
    if (!bytes_are_zero((const char *)source + sizeof(*target), size - sizeof(*target)))
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "struct_size %zu: an option that this version does not know is set", size);
    memcpy(target, source, sizeof(*target));
    target->struct_size = sizeof(*target);
    if ((target->flags & ~(uint32_t)(KVT_OPEN_EXISTING | KVT_OPEN_READ_ONLY | KVT_OPEN_REBUILD |
                                     KVT_OPEN_COPY_ENGINES | KVT_OPEN_SHARE_HBM)) != 0)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "flags 0x%x: not all of them are known to this version", target->flags);
    return KVT_OK;
}

/* A bound: zero becomes the default. */
static enum kvt_status
bound64(const char *name, uint64_t *value, uint64_t fallback, uint64_t min, uint64_t max)
{
    if (*value == 0)
        *value = fallback;
    if (*value >= min && *value <= max)
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0, "%s %llu is not in %llu..%llu", name,
        (unsigned long long)*value, (unsigned long long)min, (unsigned long long)max);
}

static enum kvt_status
bound32(const char *name, uint32_t *value, uint32_t fallback, uint32_t min, uint32_t max)
{
    uint64_t wide = *value;

    KVT_TRY(bound64(name, &wide, fallback, min, max));
    *value = (uint32_t)wide;
    return KVT_OK;
}

/* The largest power of two that is not above `value` (at least 1). */
static uint64_t
power_below(uint64_t value)
{
    uint64_t power = 1;

    while (power <= value / 2)
        power *= 2;
    return power;
}

/* The smallest power of two that is not below `value` (1..2^31). */
static uint32_t
power_above(uint32_t value)
{
    return (uint32_t)power_below(2 * (uint64_t)value - 1);
}

/* Without an NVMe tier nothing lies in segments, but the largest block is measured by them: they
 * are as those of a tier of HOST's size. */
static uint64_t
segment_default(const struct kvt_options *options, uint32_t roots)
{
    uint64_t host = options->host_capacity_bytes == 0 ? GIB : options->host_capacity_bytes;
    uint64_t capacity =
        options->nvme_capacity_bytes == KVT_CAPACITY_NONE ? host : options->nvme_capacity_bytes;
    uint64_t segment = power_below(capacity / roots / SEGMENTS_WANTED);

    segment = segment < MIB ? MIB : segment > 256 * MIB ? 256 * MIB : segment;
    if (options->block_bytes_max != 0 && options->block_bytes_max <= KVT_BLOCK_BYTES_MAX) {
        while (segment < 4 * options->block_bytes_max)
            segment *= 2;
    }
    return segment;
}

static enum kvt_status
geometry_resolve(struct kvt_options *options)
{
    uint64_t capacity = options->nvme_capacity_bytes;
    uint64_t segment;
    uint32_t roots = options->root_count == 0 ? 1 : options->root_count;

    if (capacity == 0)
        capacity = options->nvme_capacity_bytes = 8 * GIB;
    KVT_TRY(bound64(
        "segment_bytes", &options->segment_bytes, segment_default(options, roots), MIB, GIB));
    if ((options->segment_bytes & (options->segment_bytes - 1)) != 0)
        return failure_set(KVT_E_INVAL, 0, "segment_bytes %llu is not a power of two",
            (unsigned long long)options->segment_bytes);
    segment = options->segment_bytes / 4;
    if (segment > KVT_BLOCK_BYTES_MAX)
        segment = KVT_BLOCK_BYTES_MAX;
    /* HBM holds one block at least. */
    while (segment > PAGE_BYTES && options->hbm_capacity_bytes > 0 &&
           options->hbm_capacity_bytes < segment)
        segment /= 2;
    KVT_TRY(bound64(
        "block_bytes_max", &options->block_bytes_max, segment, PAGE_BYTES, KVT_BLOCK_BYTES_MAX));
    if (options->block_bytes_max > options->segment_bytes / 4)
        return failure_set(KVT_E_INVAL, 0,
            "block_bytes_max %llu is above a quarter of segment_bytes",
            (unsigned long long)options->block_bytes_max);
    if (capacity != KVT_CAPACITY_NONE &&
        (capacity / roots / options->segment_bytes < SEGMENTS_MIN ||
            capacity / roots / options->segment_bytes > (1u << 24)))
        return failure_set(KVT_E_INVAL, 0,
            "nvme_capacity_bytes %llu is not %d..2^24 segments of %llu bytes in each root",
            (unsigned long long)capacity, SEGMENTS_MIN, (unsigned long long)options->segment_bytes);
    return KVT_OK;
}

/* A store grows and never shrinks: what stands in the segments behind a smaller end would be gone,
 * and what is deleted meanwhile would be back when it grows again. */
static enum kvt_status
capacity_adopt(struct kvt_options *options, uint64_t capacity)
{
    if (options->nvme_capacity_bytes == KVT_CAPACITY_NONE && capacity > 0)
        return failure_set(KVT_E_INVAL, 0,
            "nvme_capacity_bytes is KVT_CAPACITY_NONE: the store has an NVMe tier of %llu bytes",
            (unsigned long long)capacity);
    if (options->nvme_capacity_bytes == 0)
        options->nvme_capacity_bytes = capacity == 0 ? KVT_CAPACITY_NONE : capacity;
    if (options->nvme_capacity_bytes < capacity)
        return failure_set(KVT_E_INVAL, 0,
            "nvme_capacity_bytes %llu: the store has %llu and cannot become smaller; export what "
            "shall stay into a new one",
            (unsigned long long)options->nvme_capacity_bytes, (unsigned long long)capacity);
    return KVT_OK;
}

/* What the store was made with wins over silence, and refuses contradiction. */
static enum kvt_status
geometry_adopt(struct kvt_options *options, const struct store_file *file)
{
    uint64_t segment_bytes = (uint64_t)file->segment_pages * PAGE_BYTES;

    if (options->segment_bytes != 0 && options->segment_bytes != segment_bytes)
        return failure_set(KVT_E_INVAL, 0, "segment_bytes %llu: the store was made with %llu",
            (unsigned long long)options->segment_bytes, (unsigned long long)segment_bytes);
    if (options->block_bytes_max != 0 && options->block_bytes_max != file->block_bytes_max)
        return failure_set(KVT_E_INVAL, 0, "block_bytes_max %llu: the store was made with %llu",
            (unsigned long long)options->block_bytes_max,
            (unsigned long long)file->block_bytes_max);
    if (options->root_count != 0 && options->root_count != file->root_count)
        return failure_set(KVT_E_INVAL, 0, "root_count %u: the store was made with %u",
            options->root_count, file->root_count);
    options->segment_bytes = segment_bytes;
    options->block_bytes_max = file->block_bytes_max;
    options->root_count = file->root_count;
    return capacity_adopt(options, store_file_capacity(file));
}

static uint64_t
map_bytes_default(const struct kvt_options *options)
{
    uint64_t capacity = options->nvme_capacity_bytes;

    /* About 300 bytes of LMDB for each block of 64 KiB, its reserve included; it grows by
     * itself. */
    if (capacity == KVT_CAPACITY_NONE)
        return MIB;
    capacity = round_up(16 * MIB + capacity / 65536 * 300, MIB);
    return capacity < MAP_BYTES_MAX ? capacity : MAP_BYTES_MAX;
}

/* HOST, and HBM of each device, take whole large pages, cut into superblocks that hold a block. */
static enum kvt_status
memory_check(const char *name, uint64_t capacity, uint64_t block_bytes)
{
    uint64_t least = slab_bytes_min((size_t)block_bytes);

    if (round_up(capacity, LARGE_PAGE_BYTES) >= least)
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0,
        "%s %llu does not hold one block of block_bytes_max %llu, which takes %llu", name,
        (unsigned long long)capacity, (unsigned long long)block_bytes, (unsigned long long)least);
}

static enum kvt_status
devices_resolve(struct kvt_options *options)
{
    KVT_TRY(
        bound32("device_kind", &options->device_kind, KVT_DEVICE_AUTO, 0, KVT_DEVICE_EMULATION));
    KVT_TRY(bound32("device_mask", &options->device_mask, 0, 0, (1u << KVT_DEVICES_MAX) - 1));
    if (options->hbm_capacity_bytes == 0)
        options->hbm_capacity_bytes = KVT_CAPACITY_NONE;
    if (options->hbm_capacity_bytes == KVT_CAPACITY_NONE) {
        if ((options->flags & KVT_OPEN_SHARE_HBM) != 0)
            return failure_set(
                KVT_E_INVAL, 0, "KVT_OPEN_SHARE_HBM: there is no HBM tier (hbm_capacity_bytes)");
        return KVT_OK;
    }
    if (options->device_mask == 0)
        options->device_mask = 1;
    KVT_TRY(bound64("hbm_capacity_bytes", &options->hbm_capacity_bytes, PAGE_BYTES, PAGE_BYTES,
        UINT64_C(1) << 41));
    return memory_check(
        "hbm_capacity_bytes", options->hbm_capacity_bytes, options->block_bytes_max);
}

/* What is pinned on NVMe must leave reclaiming something to gain. */
static uint64_t
pin_bytes_default(const struct kvt_options *options)
{
    uint64_t nvme = options->nvme_capacity_bytes;
    uint64_t host = options->host_capacity_bytes;

    return (nvme < host ? nvme : host) / 4;
}

enum kvt_status
options_resolve(struct kvt_options *options, const struct store_file *file)
{
    if (file != NULL)
        KVT_TRY(geometry_adopt(options, file));
    if (options->root_count > STORE_ROOTS_MAX)
        return failure_set(
            KVT_E_INVAL, 0, "root_count %u is not in 0..%d", options->root_count, STORE_ROOTS_MAX);
    if (file == NULL && options->root_count > 0 && options->roots == NULL)
        return failure_set(KVT_E_INVAL, 0, "roots is NULL with root_count %u", options->root_count);
    KVT_TRY(geometry_resolve(options));
    KVT_TRY(bound64("host_capacity_bytes", &options->host_capacity_bytes, GIB, LARGE_PAGE_BYTES,
        SLAB_BYTES_END - LARGE_PAGE_BYTES));
    KVT_TRY(memory_check(
        "host_capacity_bytes", options->host_capacity_bytes, options->block_bytes_max));
    KVT_TRY(bound64("index_map_bytes", &options->index_map_bytes, map_bytes_default(options), MIB,
        MAP_BYTES_MAX));
    KVT_TRY(bound64(
        "entry_count_max", &options->entry_count_max, UINT64_C(1) << 27, 1, RESIDENCY_COUNT_MAX));
    KVT_TRY(bound32("io_engine", &options->io_engine, KVT_IO_AUTO, 0, KVT_IO_THREADS));
    KVT_TRY(bound32("worker_count", &options->worker_count, 2, 1, 64));
    KVT_TRY(bound32("request_count_max", &options->request_count_max, 4096, 16, 65536));
    KVT_TRY(bound32("lease_count_max", &options->lease_count_max, 4096, 1, 1u << 20));
    KVT_TRY(bound32("host_high_percent", &options->host_high_percent, 95, 1, 100));
    KVT_TRY(bound32("host_low_percent", &options->host_low_percent,
        options->host_high_percent > 5 ? options->host_high_percent - 5 : 1, 1,
        options->host_high_percent));
    KVT_TRY(bound32("nvme_high_percent", &options->nvme_high_percent, 97, 10, 100));
    KVT_TRY(bound64("dirty_bytes_max", &options->dirty_bytes_max, options->host_capacity_bytes / 2,
        1, options->host_capacity_bytes));
    KVT_TRY(bound64("relaxed_interval_ns", &options->relaxed_interval_ns, UINT64_C(1000000000), 1,
        UINT64_C(3600000000000)));
    KVT_TRY(bound64(
        "batch_delay_ns", &options->batch_delay_ns, UINT64_C(2000000), 1, UINT64_C(1000000000)));
    KVT_TRY(devices_resolve(options));
    KVT_TRY(bound64("pin_bytes_max", &options->pin_bytes_max, pin_bytes_default(options),
        PAGE_BYTES, options->host_capacity_bytes));
    if (options->event_count_max != 0) {
        KVT_TRY(bound32("event_count_max", &options->event_count_max, 64, 64, 1u << 20));
        options->event_count_max = power_above(options->event_count_max);
    }
    if (options->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved0 %u is not zero", options->reserved0);
    KVT_TRY(bound64("engram_capacity_bytes", &options->engram_capacity_bytes, KVT_CAPACITY_NONE, 1,
        KVT_CAPACITY_NONE));
    KVT_TRY(bound32("log_level", &options->log_level, KVT_LOG_ERROR, 0, KVT_LOG_DEBUG));
    return bound32("policy", &options->policy, KVT_POLICY_GHI, KVT_POLICY_LRU, KVT_POLICY_GHI);
}

const struct policy_ops *
options_policy(const struct kvt_options *options)
{
    static const struct policy_ops *const all[] = {
        [KVT_POLICY_LRU] = &policy_lru_ops,
        [KVT_POLICY_S3FIFO] = &policy_s3fifo_ops,
        [KVT_POLICY_GHI] = &policy_default_ops,
    };

    return all[options->policy]; /* options_resolve() has seen that it is one of them. */
}
