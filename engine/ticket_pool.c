/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket_pool.c - free tickets by their size.
 */
#include "ticket_pool.h"

#include "store_internal.h"

enum {
    CLASS_COUNT = 18, /* 2^16 operations are KVT_BATCH_MAX; parts may lie behind them. */
};

struct ticket_pool {
    pthread_mutex_t mutex;
    struct kvt_ticket *free[CLASS_COUNT]; /* Linked by next_free; guarded by: mutex */
    size_t free_bytes;                    /* guarded by: mutex */
};

static uint32_t
class_of(uint32_t count)
{
    uint32_t class = 0;

    while (((uint32_t)1 << class) < count)
        class ++;
    return class;
}

static size_t
class_bytes(uint32_t class)
{
    return sizeof(struct kvt_ticket) + ((size_t)1 << class) * sizeof(struct op);
}

enum kvt_status
ticket_pool_open(struct kvt_store *store)
{
    struct ticket_pool *pool = env_take(&store->env, sizeof(*pool));

    store->ticket_pool = pool;
    if (pool == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for tickets");
    pthread_mutex_init(&pool->mutex, NULL);
    return KVT_OK;
}

void
ticket_pool_close(struct kvt_store *store)
{
    struct ticket_pool *pool = store->ticket_pool;

    if (pool == NULL)
        return;
    for (uint32_t class = 0; class < CLASS_COUNT; class ++) {
        while (pool->free[class] != NULL) {
            struct kvt_ticket *ticket = pool->free[class];

            pool->free[class] = ticket->next_free;
            env_put(&store->env, ticket, class_bytes(class));
        }
    }
    pthread_mutex_destroy(&pool->mutex);
    env_put(&store->env, pool, sizeof(*pool));
    store->ticket_pool = NULL;
}

struct kvt_ticket *
ticket_pool_take(struct kvt_store *store, uint32_t count)
{
    struct ticket_pool *pool = store->ticket_pool;
    uint32_t class = class_of(count);
    struct kvt_ticket *ticket;

    pthread_mutex_lock(&pool->mutex);
    ticket = pool->free[class];
    if (ticket != NULL) {
        pool->free[class] = ticket->next_free;
        pool->free_bytes -= class_bytes(class);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (ticket == NULL)
        return env_take(&store->env, class_bytes(class));
    memset(ticket, 0, sizeof(*ticket) + count * sizeof(struct op));
    return ticket;
}

void
ticket_pool_put(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct ticket_pool *pool = store->ticket_pool;
    uint32_t class = class_of(ticket->slot_count);
    bool is_kept;

    pthread_mutex_lock(&pool->mutex);
    is_kept = pool->free_bytes + class_bytes(class) <= TICKET_POOL_BYTES;
    if (is_kept) {
        ticket->next_free = pool->free[class];
        pool->free[class] = ticket;
        pool->free_bytes += class_bytes(class);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (!is_kept)
        env_put(&store->env, ticket, class_bytes(class));
}
