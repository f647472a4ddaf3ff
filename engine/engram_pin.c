/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_pin.c - pinning rows of a table, sharing them with other processes, and tables of rows
 * that others share.
 */
#include "engram_pin.h"

#include "engram_set.h"

enum {
    NOT_SHARED = -1,
};

static void
memory_put(const struct kvt_env *env, const struct engram_pin *pin)
{
    if (pin->descriptor == NOT_SHARED)
        env_unmap(env, pin->memory, pin->memory_bytes);
    else
        env->memory->share_end(
            env->memory_context, pin->memory, pin->memory_bytes, pin->descriptor);
}

void
engram_pin_drop(struct kvt_engram *table)
{
    struct engram_pin *pin = &table->pin;

    if (pin->memory == NULL)
        return;
    /* What a device keeps stays mapped, and the descriptor that stands for it open. */
    if (devices_memory_unshare(table->store, pin->memory, pin->memory_bytes, pin->device_mask))
        memory_put(&table->store->env, pin);
    pin->memory = NULL;
    pin->memory_bytes = 0;
    pin->descriptor = 0;
    pin->device_mask = 0;
    pin->row_count = 0;
    /* (F3) Relaxed: of a pin that failed the reader, which may look now, finds the 0 of before. */
    atomic_store_explicit(&pin->page_count, 0, memory_order_relaxed);
}

/* The memory is whole: devices, then everybody may read it. */
static enum kvt_status
pin_publish(struct kvt_engram *table, uint32_t page_count, bool is_own)
{
    struct engram_pin *pin = &table->pin;
    uint64_t rows = (uint64_t)page_count * table->head.rows_per_page;
    enum kvt_status status =
        devices_memory_share(table->store, pin->memory, pin->memory_bytes, &pin->device_mask);

    /* Not every device takes memory that it may only read. */
    if (status != KVT_OK && is_own)
        return status;
    pin->row_count =
        rows < engram_row_count(&table->head) ? (uint32_t)rows : engram_row_count(&table->head);
    /* (F3) release */
    atomic_store_explicit(&pin->page_count, page_count, memory_order_release);
    return KVT_OK;
}

/* --- 1. Pinning ------------------------------------------------------------------------------- */

static enum kvt_status
memory_take(struct kvt_engram *table, uint64_t size, uint32_t flags)
{
    const struct kvt_env *env = &table->store->env;
    struct engram_pin *pin = &table->pin;
    void *memory = NULL;
    int descriptor = NOT_SHARED;

    if ((flags & KVT_ENGRAM_PIN_SHARED) == 0) {
        memory = env_map(env, size);
        if (memory == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory to pin %llu bytes of the table %s",
                (unsigned long long)size, table->head.name);
    } else if (env->memory->share == NULL) {
        return failure_set(KVT_E_UNSUPPORTED, 0, "there is no memory here that others may map");
    } else {
        KVT_TRY(env->memory->share(env->memory_context, size, &memory, &descriptor));
    }
    pin->memory = memory;
    pin->memory_bytes = size;
    pin->descriptor = descriptor;
    return KVT_OK;
}

static enum kvt_status
pages_load(struct kvt_engram *table, uint32_t page_count)
{
    struct engram_pin *pin = &table->pin;
    uint32_t count;

    engram_head_encode(&table->head, pin->memory);
    for (uint32_t page = 0; page < page_count; page += count) {
        uint8_t *pages = pin->memory + ((uint64_t)page + 1) * PAGE_BYTES;

        count = page_count - page < ENGRAM_CHUNK_PAGES ? page_count - page : ENGRAM_CHUNK_PAGES;
        KVT_TRY(engram_pages_read(table->store, table->file, page, count, pages));
        for (uint32_t i = 0; i < count; i++) {
            if (!engram_page_is_intact(&table->head, page + i, pages + (size_t)i * PAGE_BYTES))
                return failure_set(KVT_E_CORRUPT, 0, "page %u of the table %s is damaged", page + i,
                    table->head.name);
        }
    }
    return KVT_OK;
}

/* What was taken so far is given back, with the sentence kept. */
static enum kvt_status
pin_undo(struct kvt_engram *table, enum kvt_status status)
{
    struct failure failure = *failure_last();

    engram_pin_drop(table);
    failure_copy(&failure);
    return status;
}

enum kvt_status
kvt_engram_pin(kvt_engram *table, uint64_t row_count, uint32_t flags)
{
    uint32_t all, page_count;
    enum kvt_status status;

    if (table == NULL)
        return failure_set(KVT_E_INVAL, 0, "table is NULL");
    KVT_TRY(store_enter(table->store));
    all = engram_row_count(&table->head);
    if ((flags & ~(uint32_t)KVT_ENGRAM_PIN_SHARED) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "flags 0x%x: only KVT_ENGRAM_PIN_SHARED is known", flags);
    if (row_count == 0 || (row_count > all && row_count != KVT_ENGRAM_ROWS_ALL))
        return failure_set(KVT_E_INVAL, 0, "%llu rows: the table %s has %u",
            (unsigned long long)row_count, table->head.name, all);
    if (table->pin.memory != NULL)
        return failure_set(
            KVT_E_STATE, 0, "rows of the table %s are pinned already", table->head.name);
    if (row_count > all)
        row_count = all;
    page_count = (uint32_t)((row_count - 1) / table->head.rows_per_page) + 1;
    KVT_TRY(memory_take(table, ((uint64_t)page_count + 1) * PAGE_BYTES, flags));
    status = pages_load(table, page_count);
    if (status == KVT_OK)
        status = pin_publish(table, page_count, true);
    return status == KVT_OK ? KVT_OK : pin_undo(table, status);
}

/* --- 2. Sharing ------------------------------------------------------------------------------- */

enum kvt_status
kvt_engram_share(kvt_engram *table, int *descriptor_out)
{
    if (table == NULL || descriptor_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table or descriptor_out is NULL");
    KVT_TRY(store_enter(table->store));
    if (table->pin.memory == NULL || table->pin.descriptor == NOT_SHARED)
        return failure_set(
            KVT_E_STATE, 0, "no rows of the table %s are pinned to be shared", table->head.name);
    *descriptor_out = table->pin.descriptor;
    return KVT_OK;
}

/* What the memory says that it is. It came from another process: nothing of it is believed. */
static enum kvt_status
head_adopt(struct kvt_engram *table)
{
    uint64_t pages = table->pin.memory_bytes / PAGE_BYTES - 1;
    bool is_foreign = false;
    const char *reason = engram_head_decode(table->pin.memory, &table->head, &is_foreign);

    if (is_foreign)
        return failure_set(KVT_E_FORMAT, 0, "the shared table is of a later version");
    if (reason == NULL && kvt_engram_profile_check(&table->head.profile) != KVT_OK)
        reason = "its manifest is impossible";
    if (reason == NULL && table->head.state != ENGRAM_FILE_WHOLE)
        reason = "its import was not finished";
    if (reason == NULL && (pages == 0 || pages > table->head.page_count))
        reason = "it has another number of pages than it can have";
    if (reason != NULL)
        return failure_set(KVT_E_CORRUPT, 0, "the shared table: %s", reason);
    for (uint32_t page = 0; page < pages; page++) {
        if (!engram_page_is_intact(&table->head, page, engram_pin_page(&table->pin, page)))
            return failure_set(KVT_E_CORRUPT, 0, "page %u of the shared table %s is damaged", page,
                table->head.name);
    }
    return pin_publish(table, (uint32_t)pages, false);
}

enum kvt_status
kvt_engram_open_shared(kvt_store *store, int descriptor, kvt_engram **table_out)
{
    struct kvt_engram *table;
    void *memory = NULL;
    size_t size = 0;
    enum kvt_status status;

    if (table_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "table_out is NULL");
    *table_out = NULL;
    KVT_TRY(store_enter(store));
    if (store->env.memory->share_adopt == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0, "there is no memory here that others may map");
    table = env_take(&store->env, sizeof(*table));
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a table");
    table->store = store;
    status = store->env.memory->share_adopt(
        store->env.memory_context, descriptor, &memory, &size, &table->pin.descriptor);
    if (status == KVT_OK) {
        table->pin.memory = memory;
        table->pin.memory_bytes = size;
        status = head_adopt(table);
        if (status == KVT_OK)
            status = engram_table_add(store, table);
        if (status != KVT_OK)
            status = pin_undo(table, status);
    }
    if (status != KVT_OK)
        env_put(&store->env, table, sizeof(*table));
    else
        *table_out = table;
    return status;
}
