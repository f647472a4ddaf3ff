/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_load_open.c - kvt_file_load(), and what a load needs: files, staging memory, memory of a
 * device, and how all of it is given back.
 *
 * Threads   any.
 */
#include "file_load.h"

enum {
    OPEN_ATTEMPTS_MAX = 16,
};

_Static_assert(KVT_LOADS_MAX < 1 << LOAD_INDEX_BITS, "index + 1 fits its bits");
_Static_assert(LOAD_STAGE_BYTES_MAX % PAGE_BYTES == 0, "stages are of whole pages");

/* --- 1. The set ------------------------------------------------------------------------------- */

enum kvt_status
loads_open(struct kvt_store *store)
{
    struct load_set *set = env_take(&store->env, sizeof(*set));

    store->loads = set;
    if (set == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for loads");
    pthread_mutex_init(&set->life_lock, NULL);
    pthread_mutex_init(&set->lock, NULL);
    return KVT_OK;
}

uint32_t
loads_open_count(struct kvt_store *store)
{
    uint32_t count;

    pthread_mutex_lock(&store->loads->lock);
    count = store->loads->open_count;
    pthread_mutex_unlock(&store->loads->lock);
    return count;
}

uint64_t
loads_device_bytes(const struct kvt_store *store)
{
    return atomic_load_explicit(&store->loads->device_bytes, memory_order_relaxed);
}

/* --- 2. Staging memory ------------------------------------------------------------------------ */

/* Slots that the loop takes for loads. */
struct stage_room {
    uint64_t size;
    uint32_t count_max, count;
    struct slot slots[LOAD_STAGES_MAX];
    struct patience patience;
    enum kvt_status status;
};

/* Two let a read and a copy go on at once: with these it begins, when there are no more. */
static bool
stages_take_run(struct kvt_store *store, void *context)
{
    struct stage_room *room = context;
    const struct room_want want = {
        .place = POLICY_HOST, .size = room->size, .patience = &room->patience};

    if (store_is_poisoned(store))
        return true;
    while (room->count < room->count_max) {
        room->status = room_take(store, &want, &room->slots[room->count]);
        if (room->status != KVT_OK)
            break;
        room->count++;
    }
    return room->status != KVT_NOT_READY || room->count >= 2;
}

static bool
stages_put_run(struct kvt_store *store, void *context)
{
    struct load_set *set = context;

    for (uint32_t i = 0; i < set->stage_count; i++)
        room_put(store, POLICY_HOST, set->parts[i].slot);
    return true;
}

/* Under life_lock, with the first load that is open. */
static enum kvt_status
stages_take(struct kvt_store *store)
{
    struct load_set *set = store->loads;
    uint64_t share = slab_capacity(store->slab) / LOAD_HOST_SHARE;
    uint64_t size = round_up(store->options.block_bytes_max, PAGE_BYTES);
    struct stage_room room = {.status = KVT_OK};

    if (set->stage_count > 0)
        return KVT_OK;
    if (size > share / 2)
        size = share / 2 / PAGE_BYTES * PAGE_BYTES;
    room.size = size < LOAD_STAGE_BYTES_MAX ? size : LOAD_STAGE_BYTES_MAX;
    room.count_max =
        share / room.size < LOAD_STAGES_MAX ? (uint32_t)(share / room.size) : LOAD_STAGES_MAX;
    loop_call(store, stages_take_run, &room);
    KVT_TRY(store_enter(store));
    if (room.count == 0)
        return failure_set(room.status, 0,
            "no slot of HOST came free: leases and requests hold all of it; files are read by way "
            "of it");
    pthread_mutex_lock(&set->lock);
    set->stage_bytes = room.size;
    set->stage_count = room.count;
    for (uint32_t i = 0; i < room.count; i++) {
        struct load_part *part = &set->parts[i];

        part->slot = room.slots[i];
        part->memory = slab_address(store->slab, part->slot);
        part->next_free = set->free;
        set->free = part;
    }
    pthread_mutex_unlock(&set->lock);
    return KVT_OK;
}

void
load_stages_put(struct kvt_store *store)
{
    struct load_set *set = store->loads;

    if (loads_open_count(store) > 0 || set->stage_count == 0)
        return;
    loop_call(store, stages_put_run, set);
    set->stage_count = 0;
    set->free = NULL; /* No load is open: the actor does not look. */
}

/* --- 3. Opening ------------------------------------------------------------------------------- */

static enum kvt_status
options_check(struct kvt_store *store, const struct kvt_file_load_options *options)
{
    if (options->struct_size != sizeof(*options))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_file_load_options has %zu",
            options->struct_size, sizeof(*options));
    if (options->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved0 is not zero");
    if (!device_is_open(store, options->device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", options->device);
    if (options->chunk_bytes % PAGE_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0, "chunk_bytes %llu: chunks are of whole pages of 4096",
            (unsigned long long)options->chunk_bytes);
    if (options->destination == NULL && options->region.id != 0)
        return failure_set(KVT_E_INVAL, 0, "a region is named, and no destination in it");
    return KVT_OK;
}

/* One file twice. Who replaces it in between could have half of each loaded. */
static enum kvt_status
file_open_twice(struct load *load, struct fs_dir *dir, const char *name)
{
    const struct fs_ops *fs = load->store->env.fs;

    for (uint32_t i = 0; i < OPEN_ATTEMPTS_MAX; i++) {
        KVT_TRY(fs->open(dir, name, FS_READ_ONLY | FS_FOLLOW, &load->plain));
        KVT_TRY(fs->open(dir, name, FS_READ_ONLY | FS_FOLLOW | FS_DIRECT, &load->direct));
        if (fs->is_same(load->plain, load->direct))
            return KVT_OK;
        fs->close(load->direct);
        fs->close(load->plain);
        load->direct = NULL;
        load->plain = NULL;
    }
    return failure_set(
        KVT_E_IO, 0, "%s was replaced %d times while it was opened", name, OPEN_ATTEMPTS_MAX);
}

/* Direct, when that works with whole pages, and plain. */
static enum kvt_status
files_open(struct load *load, struct fs_dir *dir, const char *name)
{
    const struct fs_ops *fs = load->store->env.fs;

    KVT_TRY(file_open_twice(load, dir, name));
    KVT_TRY(fs->size(load->plain, &load->file_bytes));
    if (PAGE_BYTES % fs->align(load->direct) != 0) {
        fs->close(load->direct);
        load->direct = NULL;
    }
    return KVT_OK;
}

static enum kvt_status
path_open(struct load *load, const char *path)
{
    const struct kvt_env *env = &load->store->env;
    size_t size = strlen(path) + 1;
    char *folder = env_take(env, size);
    struct fs_dir *dir;
    const char *name;
    char *slash;
    enum kvt_status status;

    if (folder == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a path of %zu bytes", size);
    memcpy(folder, path, size);
    slash = strrchr(folder, '/');
    name = slash == NULL ? path : path + (slash - folder) + 1;
    if (slash != NULL)
        slash[slash == folder ? 1 : 0] = '\0';
    status = env->fs->dir_open(env->fs_context, slash == NULL ? "." : folder, FS_FOLLOW, &dir);
    if (status == KVT_OK) {
        status = files_open(load, dir, name);
        env->fs->dir_close(dir);
    }
    env_put(env, folder, size);
    return status;
}

/* What to load, in which chunks. */
static enum kvt_status
range_set(struct load *load, const struct kvt_file_load_options *options)
{
    uint64_t left, count;

    load->offset = options->offset;
    load->length = options->length;
    if (load->offset > load->file_bytes)
        return failure_set(KVT_E_INVAL, 0, "offset %llu: the file has %llu bytes",
            (unsigned long long)load->offset, (unsigned long long)load->file_bytes);
    left = load->file_bytes - load->offset;
    if (load->length == KVT_LOAD_TO_END)
        load->length = left;
    if (load->length > left)
        return failure_set(KVT_E_INVAL, 0, "%llu bytes from %llu on: the file has %llu bytes",
            (unsigned long long)load->length, (unsigned long long)load->offset,
            (unsigned long long)load->file_bytes);
    load->chunk_bytes = options->chunk_bytes == 0 ? KVT_LOAD_CHUNK_DEFAULT : options->chunk_bytes;
    count = load->length / load->chunk_bytes + (load->length % load->chunk_bytes != 0);
    if (count > KVT_LOAD_CHUNKS_MAX)
        return failure_set(KVT_E_INVAL, 0, "%llu chunks of %llu bytes: there may be %u",
            (unsigned long long)count, (unsigned long long)load->chunk_bytes, KVT_LOAD_CHUNKS_MAX);
    load->chunk_count = (uint32_t)count;
    return KVT_OK;
}

/* How many chunks have a place at a time. */
static enum kvt_status
places_count(struct load *load, const struct kvt_file_load_options *options)
{
    uint64_t capacity = options->capacity;
    uint64_t first_size = load->length < load->chunk_bytes ? load->length : load->chunk_bytes;

    if (load->chunk_count == 0)
        return KVT_OK;
    if ((capacity == 0 && options->destination == NULL) || capacity >= load->length) {
        load->place_count = load->chunk_count;
        return KVT_OK;
    }
    load->place_count = (uint32_t)(capacity / load->chunk_bytes);
    if (load->place_count == 0)
        return failure_set(KVT_E_INVAL, 0,
            "capacity %llu: it does not hold one chunk of %llu bytes", (unsigned long long)capacity,
            (unsigned long long)first_size);
    return KVT_OK;
}

static enum kvt_status
tables_take(struct load *load)
{
    const struct kvt_env *env = &load->store->env;

    if (load->chunk_count == 0)
        return KVT_OK;
    load->chunks = env_take(env, load->chunk_count * sizeof(*load->chunks));
    load->places = env_take(env, load->place_count * sizeof(*load->places));
    if (load->chunks == NULL || load->places == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u chunks", load->chunk_count);
    for (uint32_t i = 0; i < load->place_count; i++)
        load->places[i] = i;
    load->place_free = load->place_count;
    return KVT_OK;
}

/* The parts of each chunk: their borders are multiples of stage_bytes in the file. */
static void
chunks_init(struct load *load, uint64_t stage_bytes)
{
    for (uint32_t i = 0; i < load->chunk_count; i++) {
        uint64_t first = load_chunk_offset(load, i);
        uint64_t last = first + load_chunk_size(load, i) - 1;

        load->chunks[i].place = LOAD_PLACE_NONE;
        load->chunks[i].part_count = (uint32_t)(last / stage_bytes - first / stage_bytes + 1);
    }
}

static enum kvt_status
own_memory_take(struct load *load)
{
    struct kvt_store *store = load->store;
    struct device *device = hbm_device(store->devices.tiers[load->device]);
    uint64_t size = load->place_count * load->chunk_bytes;
    void *memory;

    if (size > load->length)
        size = round_up(load->length, PAGE_BYTES);
    KVT_TRY(device_answer(store, load->device, device->ops->slab_take(device, size, &memory)));
    load->memory = memory;
    load->own_bytes = size;
    atomic_fetch_add_explicit(&store->loads->device_bytes, size, memory_order_relaxed);
    return KVT_OK;
}

static enum kvt_status
caller_memory_use(struct load *load, const struct kvt_file_load_options *options)
{
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .address = options->destination,
        .size = options->capacity,
        .device = load->device};
    uint64_t used = load->place_count * load->chunk_bytes;
    struct iovec memory = {.iov_base = options->destination,
        .iov_len = (size_t)(used < load->length ? used : load->length)};
    int memory_device;

    load->memory = options->destination;
    load->region = options->region;
    if (options->region.id == 0) {
        KVT_TRY(kvt_region_register(load->store, &about, &load->region));
        load->is_region_own = true;
    }
    KVT_TRY(region_hold(load->store, load->region, &memory, &memory_device));
    if (memory_device == (int)load->device)
        return KVT_OK;
    region_let_go(load->store, load->region);
    return failure_set(KVT_E_INVAL, 0, "the region is no memory of device %u", load->device);
}

static void
own_region_forget(struct load *load)
{
    enum kvt_status status = KVT_OK;

    if (load->is_region_own)
        status = kvt_region_unregister(load->store, load->region);
    (void)status; /* A store that was poisoned refuses it, and forgets all regions when it ends. */
    load->is_region_own = false;
}

static enum kvt_status
memory_take(struct load *load, const struct kvt_file_load_options *options)
{
    enum kvt_status status;

    if (load->chunk_count == 0)
        return KVT_OK;
    if (options->destination == NULL)
        return own_memory_take(load);
    status = caller_memory_use(load, options);
    if (status == KVT_OK)
        return KVT_OK;
    own_region_forget(load);
    load->region.id = 0;
    return status;
}

void
load_memory_put(struct kvt_store *store, uint32_t device, void *memory, uint64_t size)
{
    struct device *handle = hbm_device(store->devices.tiers[device]);

    handle->ops->slab_put(handle, memory, size);
    atomic_fetch_sub_explicit(&store->loads->device_bytes, size, memory_order_relaxed);
}

void
load_free(struct load *load)
{
    struct kvt_store *store = load->store;
    const struct kvt_env *env = &store->env;

    if (load->own_bytes > 0)
        load_memory_put(store, load->device, load->memory, load->own_bytes);
    region_let_go(store, load->region);
    own_region_forget(load);
    env->fs->close(load->direct);
    env->fs->close(load->plain);
    if (load->chunks != NULL)
        env_put(env, load->chunks, load->chunk_count * sizeof(*load->chunks));
    if (load->places != NULL)
        env_put(env, load->places, load->place_count * sizeof(*load->places));
    env_put(env, load, sizeof(*load));
}

/* From here on it is found, and read. Under the set's lock. */
static enum kvt_status
load_enlist(struct load *load, kvt_load *load_out)
{
    struct load_set *set = load->store->loads;
    struct load **link = &set->loads;
    uint32_t index = 0;

    while (index < KVT_LOADS_MAX && set->slots[index] != NULL)
        index++;
    if (index == KVT_LOADS_MAX)
        return failure_set(KVT_E_NOSPC, 0, "%u loads are open", KVT_LOADS_MAX);
    chunks_init(load, set->stage_bytes);
    set->slots[index] = load;
    set->open_count++;
    while (*link != NULL)
        link = &(*link)->next;
    *link = load;
    load_out->id = set->generations[index] << LOAD_INDEX_BITS | (index + 1);
    return KVT_OK;
}

static enum kvt_status
load_start(struct load *load, kvt_load *load_out)
{
    struct load_set *set = load->store->loads;
    enum kvt_status status = KVT_OK;

    pthread_mutex_lock(&set->life_lock);
    if (set->reader == NULL)
        status = load_reader_open(load->store, &set->reader);
    if (status == KVT_OK)
        status = stages_take(load->store);
    if (status == KVT_OK) {
        pthread_mutex_lock(&set->lock);
        status = load_enlist(load, load_out);
        pthread_mutex_unlock(&set->lock);
        load_reader_wake(set->reader);
    }
    pthread_mutex_unlock(&set->life_lock);
    return status;
}

enum kvt_status
kvt_file_load(kvt_store *store, const char *path, const struct kvt_file_load_options *options,
    kvt_load *load_out)
{
    struct load *load;
    enum kvt_status status;

    if (load_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "load_out is NULL");
    load_out->id = 0;
    if (path == NULL || options == NULL)
        return failure_set(KVT_E_INVAL, 0, "path or options is NULL");
    KVT_TRY(store_enter(store));
    KVT_TRY(options_check(store, options));
    load = env_take(&store->env, sizeof(*load));
    if (load == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a load");
    load->store = store;
    load->device = options->device;
    status = path_open(load, path);
    if (status == KVT_OK)
        status = range_set(load, options);
    if (status == KVT_OK)
        status = places_count(load, options);
    if (status == KVT_OK)
        status = tables_take(load);
    if (status == KVT_OK)
        status = memory_take(load, options);
    if (status == KVT_OK)
        status = load_start(load, load_out);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        load_free(load);
        failure_copy(&failure);
    }
    return status;
}

/* --- 4. The end of the store ------------------------------------------------------------------ */

void
loads_stop(struct kvt_store *store)
{
    struct load_set *set = store->loads;

    if (set == NULL)
        return;
    load_reader_stop(set->reader);
    /* Nothing is in flight, but the actor still looks what there is, when a mover wakes it. */
    for (;;) {
        struct load *load;

        pthread_mutex_lock(&set->lock);
        load = set->loads;
        if (load != NULL)
            set->loads = load->next;
        pthread_mutex_unlock(&set->lock);
        if (load == NULL)
            return;
        load_free(load);
    }
}

void
loads_close(struct kvt_store *store)
{
    struct load_set *set = store->loads;

    if (set == NULL)
        return;
    load_reader_close(set->reader);
    pthread_mutex_destroy(&set->lock);
    pthread_mutex_destroy(&set->life_lock);
    env_put(&store->env, set, sizeof(*set));
    store->loads = NULL;
}
