/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - the table of regions.
 *
 * An id is {generation 20, index + 1 12}; the generation is odd while the region is registered.
 */
#include "region.h"

#include "store_internal.h"
#include "use_word.h"

enum {
    INDEX_BITS = 12,
    GENERATION_MASK = (1 << 20) - 1,
};

/* What devices register in one call: no copy may cross from one registration to the next. */
#define HOST_BYTES_MAX (UINT64_C(1) << 30)

struct region {
    struct use_word use; /* (R3) */
    /* Written while nobody can see it. */
    uint8_t *address;
    uint64_t size;
    uint32_t device;
    bool is_device;
};

struct region_table {
    pthread_mutex_t mutex; /* Registering and unregistering. */
    uint32_t next;         /* Where a free place is sought first: an id comes back late. */
    struct region regions[KVT_REGIONS_MAX - 1];
};

enum {
    REGION_COUNT = KVT_REGIONS_MAX - 1, /* Index + 1 fits INDEX_BITS. */
};

enum kvt_status
regions_open(struct kvt_store *store)
{
    struct region_table *table = env_take(&store->env, sizeof(*table));

    store->regions = table;
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for regions");
    pthread_mutex_init(&table->mutex, NULL);
    return KVT_OK;
}

/* --- Host memory and the devices -------------------------------------------------------------- */

/* Of all devices below `device_count`. KVT_E_GPU: one did not let go of it. */
static enum kvt_status
host_unregister(struct kvt_store *store, const struct region *region, uint32_t device_count)
{
    bool is_kept = false;

    for (uint32_t i = 0; i < device_count; i++) {
        struct device *device;

        if (!device_is_open(store, i))
            continue;
        device = hbm_device(store->devices.tiers[i]);
        if (device->ops->host_unregister(device, region->address, region->size) != KVT_OK)
            is_kept = true;
    }
    if (!is_kept)
        return KVT_OK;
    devices_kept_log(store, region->address, region->size);
    return failure_set(KVT_E_GPU, 0,
        "a device may still use the %llu bytes at %p: they must be neither freed nor unmapped "
        "before the process ends",
        (unsigned long long)region->size, (void *)region->address);
}

/* With every device, or with none. */
static enum kvt_status
host_register(struct kvt_store *store, const struct region *region)
{
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        struct device *device;
        enum kvt_status status;

        if (!device_is_open(store, i))
            continue;
        device = hbm_device(store->devices.tiers[i]);
        status = device_answer(
            store, i, device->ops->host_register(device, region->address, region->size));
        if (status != KVT_OK) {
            struct failure failure = *failure_last();

            KVT_TRY(host_unregister(store, region, i));
            failure_copy(&failure);
            return status;
        }
    }
    return KVT_OK;
}

static enum kvt_status
memory_register(struct kvt_store *store, const struct region *region)
{
    struct device *device = hbm_device(store->devices.tiers[region->device]);

    return device_answer(
        store, region->device, device->ops->memory_register(device, region->address, region->size));
}

/* KVT_E_GPU: a device may still use it. The region is none any more all the same. */
static enum kvt_status
region_forget(struct kvt_store *store, const struct region *region)
{
    struct device *device;

    if (!region->is_device)
        return host_unregister(store, region, POLICY_DEVICES_MAX);
    device = hbm_device(store->devices.tiers[region->device]);
    device->ops->memory_unregister(device, region->address, region->size);
    return KVT_OK;
}

void
regions_close(struct kvt_store *store)
{
    struct region_table *table = store->regions;

    if (table == NULL)
        return;
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        if (use_word_is_open(&table->regions[i].use))
            (void)region_forget(store, &table->regions[i]); /* The log says what is kept. */
    }
    pthread_mutex_destroy(&table->mutex);
    env_put(&store->env, table, sizeof(*table));
    store->regions = NULL;
}

/* --- The public calls ------------------------------------------------------------------------- */

static enum kvt_status
options_check(struct kvt_store *store, const struct kvt_region_options *options)
{
    if (options->struct_size != sizeof(*options))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_region_options has %zu",
            options->struct_size, sizeof(*options));
    if (options->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved0 is not zero");
    if (options->address == NULL || options->size == 0 ||
        options->size > UINTPTR_MAX - (uintptr_t)options->address)
        return failure_set(KVT_E_INVAL, 0, "the region is NULL, empty, or wraps around");
    if (options->tier == KVT_TIER_HBM) {
        if (!device_is_open(store, options->device))
            return failure_set(KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)",
                options->device);
        return KVT_OK;
    }
    if (options->tier != KVT_TIER_HOST)
        return failure_set(
            KVT_E_INVAL, 0, "tier %u is neither KVT_TIER_HBM nor KVT_TIER_HOST", options->tier);
    if ((uintptr_t)options->address % PAGE_BYTES != 0 || options->size % PAGE_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0, "host memory is registered in whole pages of 4096");
    if (options->size > HOST_BYTES_MAX)
        return failure_set(KVT_E_INVAL, 0,
            "size %llu: a region of host memory has at most 1 GiB, which devices register at once",
            (unsigned long long)options->size);
    if (store->devices.mask == 0)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "the store has no device (device_mask): host memory needs no region");
    return KVT_OK;
}

/* A free place of a table that is locked, behind the one given last; NULL: there is none. */
static struct region *
place_find(struct region_table *table, uint32_t *index_out)
{
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        uint32_t index = (table->next + i) % REGION_COUNT;

        if (use_word_is_open(&table->regions[index].use))
            continue;
        *index_out = index;
        return &table->regions[index];
    }
    return NULL;
}

enum kvt_status
kvt_region_register(
    kvt_store *store, const struct kvt_region_options *options, kvt_region *region_out)
{
    struct region *region;
    uint32_t index;
    enum kvt_status status;

    if (region_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "region_out is NULL");
    region_out->id = 0;
    if (options == NULL)
        return failure_set(KVT_E_INVAL, 0, "options is NULL");
    KVT_TRY(store_enter(store));
    KVT_TRY(options_check(store, options));
    pthread_mutex_lock(&store->regions->mutex);
    region = place_find(store->regions, &index);
    if (region == NULL) {
        pthread_mutex_unlock(&store->regions->mutex);
        return failure_set(KVT_E_NOSPC, 0, "%d regions are registered", REGION_COUNT);
    }
    region->address = options->address;
    region->size = options->size;
    region->is_device = options->tier == KVT_TIER_HBM;
    region->device = options->device;
    status = region->is_device ? memory_register(store, region) : host_register(store, region);
    if (status == KVT_OK) {
        store->regions->next = index + 1;
        region_out->id = use_word_open(&region->use) << INDEX_BITS | (index + 1);
    }
    pthread_mutex_unlock(&store->regions->mutex);
    return status;
}

static struct region *
region_at(struct kvt_store *store, kvt_region id)
{
    uint32_t index = id.id & ((1u << INDEX_BITS) - 1);

    return index == 0 ? NULL : &store->regions->regions[index - 1];
}

static bool
region_is_current(struct region *region, kvt_region id)
{
    uint32_t generation = use_word_generation(&region->use);

    return (generation & 1) != 0 && (generation & GENERATION_MASK) == id.id >> INDEX_BITS;
}

enum kvt_status
kvt_region_unregister(kvt_store *store, kvt_region id)
{
    struct region *region;
    enum kvt_status status = KVT_OK;

    if (id.id == 0)
        return KVT_OK;
    KVT_TRY(store_enter(store));
    region = region_at(store, id);
    pthread_mutex_lock(&store->regions->mutex);
    if (region == NULL || !region_is_current(region, id)) {
        status = failure_set(KVT_E_INVAL, 0, "the region is stale, or none");
    } else if (use_word_close(&region->use)) {
        status = region_forget(store, region);
    } else {
        status = failure_set(KVT_E_STATE, 0,
            "operations that use the region are under way, or a "
            "layout lies in it");
    }
    pthread_mutex_unlock(&store->regions->mutex);
    return status;
}

/* --- Uses ------------------------------------------------------------------------------------- */

enum kvt_status
region_hold(
    struct kvt_store *store, kvt_region id, const struct iovec *memory, int *memory_device_out)
{
    struct region *region = region_at(store, id);
    uintptr_t address = (uintptr_t)memory->iov_base;
    uint64_t offset;

    if (region == NULL)
        return failure_set(KVT_E_INVAL, 0, "region %u is none", id.id);
    if (!use_word_take(&region->use, id.id >> INDEX_BITS, GENERATION_MASK))
        return failure_set(KVT_E_INVAL, 0, "region %u is stale", id.id);
    offset = (uint64_t)(address - (uintptr_t)region->address);
    if (address < (uintptr_t)region->address || offset > region->size ||
        memory->iov_len > region->size - offset) {
        use_word_put(&region->use);
        return failure_set(KVT_E_INVAL, 0, "%zu bytes at %p do not lie in region %u",
            memory->iov_len, memory->iov_base, id.id);
    }
    *memory_device_out = region->is_device ? (int)region->device : MEMORY_PINNED;
    return KVT_OK;
}

enum kvt_status
region_use(struct kvt_store *store, struct op *op, kvt_region id, const struct iovec *memory)
{
    int memory_device;

    KVT_TRY(region_hold(store, id, memory, &memory_device));
    op->region = id;
    op->memory_device = (int8_t)memory_device;
    return KVT_OK;
}

void
region_unuse(struct kvt_store *store, struct op *op)
{
    kvt_region id = op->region;

    op->region.id = 0;
    region_let_go(store, id);
}

kvt_region
region_hold_host(struct kvt_store *store, const void *memory, uint64_t size)
{
    struct region_table *table = store->regions;
    kvt_region found = {0};

    pthread_mutex_lock(&table->mutex);
    for (uint32_t i = 0; i < REGION_COUNT && found.id == 0; i++) {
        struct region *region = &table->regions[i];
        uint32_t generation = use_word_generation(&region->use);
        uint64_t offset = (uint64_t)((uintptr_t)memory - (uintptr_t)region->address);

        if ((generation & 1) == 0 || region->is_device ||
            (uintptr_t)memory < (uintptr_t)region->address || offset > region->size ||
            size > region->size - offset)
            continue;
        found.id = generation << INDEX_BITS | (i + 1);
        (void)use_word_take(&region->use, found.id >> INDEX_BITS, GENERATION_MASK);
    }
    pthread_mutex_unlock(&table->mutex);
    return found;
}

void
region_let_go(struct kvt_store *store, kvt_region id)
{
    struct region *region = region_at(store, id);

    if (region != NULL)
        use_word_put(&region->use);
}
