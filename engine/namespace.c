/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace.c - namespaces: made, found again, cleared, counted.
 *
 * Owns      NAMES and the table of namespace states. States never move; an id is its place + 1.
 * Threads   any; names_lock orders those that change NAMES. Counts belong to the loop.
 */
#include "store_internal.h"

struct namespace_state *
namespace_at(struct kvt_store *store, uint32_t id)
{
    /* (N1) acquire: pairs with the release in state_add(). */
    if (id == 0 || id > atomic_load_explicit(&store->namespace_count, memory_order_acquire))
        return NULL;
    return store->namespaces[id - 1].name == NULL ? NULL : &store->namespaces[id - 1];
}

static enum kvt_status
state_add(struct kvt_store *store, const struct name_entry *name)
{
    struct namespace_state *state;
    size_t size = (size_t)name->name_length + 1;
    uint32_t count = atomic_load_explicit(&store->namespace_count, memory_order_relaxed);

    KVT_ASSERT(name->id <= NAMES_COUNT_MAX);
    state = &store->namespaces[name->id - 1];
    state->name = env_take(&store->env, size);
    if (state->name == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a namespace");
    memcpy(state->name, name->name, size - 1);
    state->id = name->id;
    atomic_store_explicit(&state->epoch, name->epoch, memory_order_relaxed);
    if (name->id > count)
        atomic_store_explicit(&store->namespace_count, name->id, memory_order_release);
    return KVT_OK;
}

enum kvt_status
namespaces_open(struct kvt_store *store)
{
    store->namespaces = env_take(&store->env, NAMES_COUNT_MAX * sizeof(*store->namespaces));
    if (store->namespaces == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the table of namespaces");
    for (uint32_t i = 0; i < store->names.count; i++)
        KVT_TRY(state_add(store, &store->names.entries[i]));
    return KVT_OK;
}

void
namespaces_close(struct kvt_store *store)
{
    uint32_t count = atomic_load_explicit(&store->namespace_count, memory_order_relaxed);

    for (uint32_t i = 0; i < count; i++) {
        char *name = store->namespaces[i].name;

        if (name != NULL)
            env_put(&store->env, name, strlen(name) + 1);
    }
    env_put(&store->env, store->namespaces, NAMES_COUNT_MAX * sizeof(*store->namespaces));
    store->namespaces = NULL;
    names_deinit(&store->names);
}

/* --- A refused change of NAMES ---------------------------------------------------------------- */

/* The loop: from here on nothing more is promised. */
static bool
unsure_run(struct kvt_store *store, void *context)
{
    (void)context;
    store_health_set(store, KVT_HEALTH_META_READONLY);
    return true;
}

/*
 * A write of NAMES failed with `status`, and what it left may count at the next open. Of a clear
 * that would be the death of every block of the namespace, those put and acknowledged after the
 * refusal too; a new name would be there, with this description. So the names as they are go over
 * it. If that fails as well, nothing more is acknowledged in this life.
 */
static void
names_undo(struct kvt_store *store, enum kvt_status status)
{
    struct failure cause = *failure_last();

    /* Without memory, or a descriptor, nothing was written, or a name of which nothing depends. */
    if (status == KVT_E_NOMEM || failure_lacks_descriptor())
        return;
    if (names_write(&store->names, store->dir) != KVT_OK) {
        log_line(&store->logger, LOG_ERROR, "namespace", "event=names_unsure text=\"%s\"",
            failure_last()->text);
        loop_call(store, unsure_run, NULL);
    }
    failure_copy(&cause);
}

/* --- Open ------------------------------------------------------------------------------------- */

/* With names_lock held: find the name or make it. */
static enum kvt_status
name_open(struct kvt_store *store, const char *name, const void *description, size_t size,
    uint32_t *id_out)
{
    struct name_entry *entry = names_find(&store->names, name);
    enum kvt_status status;

    if (entry != NULL) {
        if (entry->description_length != size ||
            (size > 0 && memcmp(entry->description, description, size) != 0))
            return failure_set(KVT_E_INVAL, 0,
                "namespace \"%s\" exists with another description of %u bytes", name,
                entry->description_length);
        *id_out = entry->id;
        return KVT_OK;
    }
    if (store->is_read_only)
        return failure_set(
            KVT_MISS, 0, "namespace \"%s\" is not there, and the store is read-only", name);
    KVT_TRY(names_add(&store->names, name, description, size, &entry));
    *id_out = entry->id;
    status = names_write(&store->names, store->dir);
    if (status == KVT_OK)
        status = state_add(store, entry);
    if (status != KVT_OK) {
        store->names.count--;
        names_undo(store, status);
    }
    return status;
}

enum kvt_status
kvt_namespace_open(kvt_store *store, const char *name, const void *description,
    size_t description_bytes, kvt_namespace *namespace_out)
{
    enum kvt_status status;
    size_t length;

    if (namespace_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace_out is NULL");
    namespace_out->id = 0;
    if (name == NULL)
        return failure_set(KVT_E_INVAL, 0, "name is NULL");
    KVT_TRY(store_enter(store));
    length = strnlen(name, NAME_BYTES_MAX + 1);
    if (length == 0 || length > NAME_BYTES_MAX)
        return failure_set(
            KVT_E_INVAL, 0, "the name of a namespace has 1..%d bytes", NAME_BYTES_MAX);
    if (description_bytes > DESCRIPTION_BYTES_MAX || (description_bytes > 0 && description == NULL))
        return failure_set(
            KVT_E_INVAL, 0, "description is NULL, or longer than %d bytes", DESCRIPTION_BYTES_MAX);
    pthread_mutex_lock(&store->names_lock);
    status = name_open(store, name, description, description_bytes, &namespace_out->id);
    pthread_mutex_unlock(&store->names_lock);
    if (status != KVT_OK)
        namespace_out->id = 0;
    return status;
}

/* --- Configure -------------------------------------------------------------------------------- */

_Static_assert((int)KVT_CODEC_NONE == (int)CODEC_RAW && (int)KVT_CODEC_BF16 == (int)CODEC_BF16 &&
                   (int)KVT_CODEC_FP16 == (int)CODEC_FP16,
    "the caller's codecs are those of the format");

enum kvt_status
kvt_namespace_configure(
    kvt_store *store, kvt_namespace ns, const struct kvt_namespace_options *options)
{
    struct namespace_state *space;

    if (options == NULL)
        return failure_set(KVT_E_INVAL, 0, "options is NULL");
    if (options->struct_size != sizeof(*options))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_namespace_options has %zu",
            options->struct_size, sizeof(*options));
    KVT_TRY(store_enter(store));
    space = namespace_at(store, ns.id);
    if (space == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    if (options->codec > KVT_CODEC_FP16)
        return failure_set(KVT_E_INVAL, 0, "codec %u is not one of enum kvt_codec", options->codec);
    if (options->reserved0 != 0 || options->reserved1 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved fields are not zero");
    atomic_store_explicit(&space->codec, options->codec, memory_order_relaxed);
    return KVT_OK;
}

/* --- Clear ------------------------------------------------------------------------------------ */

struct clear {
    struct namespace_state *space;
    uint32_t epoch;
};

/* The loop: everything of the namespace leaves the map. NAMES has the new epoch already, so that no
 * kills are needed. */
static bool
clear_run(struct kvt_store *store, void *context)
{
    struct clear *clear = context;
    uint32_t limit = residency_number_limit(store->map);

    atomic_store_explicit(&clear->space->epoch, clear->epoch, memory_order_release);
    for (uint32_t number = 0; number < limit; number++) {
        uint64_t word =
            atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);
        struct flight *flight;

        if (word_state(word) != ENTRY_RESIDENT || entry_namespace(store, number) != clear->space)
            continue;
        flight = entries_at(store->entries, number)->flight;
        /* Out of the map before operations that waited for the flight start again: a demote would
         * find a block that could not be written. */
        (void)entry_drop(store, number, true, KVT_REASON_CLEARED);
        if (flight != NULL && flight_is_commit(flight))
            (void)commit_cancel(store, flight, KVT_MISS, NULL);
    }
    return true;
}

enum kvt_status
kvt_namespace_clear(kvt_store *store, kvt_namespace ns)
{
    struct clear clear = {0};
    struct name_entry *entry;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    clear.space = namespace_at(store, ns.id);
    if (clear.space == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    if (store->is_read_only)
        return failure_set(KVT_E_READONLY, 0, "the store was opened for reading only");
    pthread_mutex_lock(&store->names_lock);
    entry = names_find_id(&store->names, ns.id);
    if (entry->epoch == UINT32_MAX) {
        status = failure_set(KVT_E_NOSPC, 0, "namespace %u was cleared 2^32 - 2 times", ns.id);
    } else {
        entry->epoch++;
        status = names_write(&store->names, store->dir);
        if (status != KVT_OK) {
            entry->epoch--;
            names_undo(store, status);
        }
    }
    clear.epoch = entry->epoch;
    if (status == KVT_OK)
        loop_call(store, clear_run, &clear);
    pthread_mutex_unlock(&store->names_lock);
    return status;
}

/* --- Walking ---------------------------------------------------------------------------------- */

static bool
info_run(struct kvt_store *store, void *context)
{
    struct kvt_namespace_info *info = context;
    const struct namespace_state *space = namespace_at(store, info->ns.id);

    info->name = space->name;
    info->block_count = space->block_count;
    info->block_bytes = space->block_bytes;
    return true;
}

enum kvt_status
kvt_namespace_next(kvt_store *store, uint32_t *cursor, struct kvt_namespace_info *info_out)
{
    if (cursor == NULL || info_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "cursor or info_out is NULL");
    KVT_TRY(store_enter(store));
    while (*cursor < atomic_load_explicit(&store->namespace_count, memory_order_acquire)) {
        (*cursor)++;
        if (namespace_at(store, *cursor) == NULL)
            continue;
        info_out->ns.id = *cursor;
        loop_call(store, info_run, info_out);
        return KVT_OK;
    }
    return KVT_MISS;
}
