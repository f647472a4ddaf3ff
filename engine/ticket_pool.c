/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket_pool.c - free tickets by their size, and those that are out.
 */
#include "ticket_pool.h"

#include "store_internal.h"

enum {
    CLASS_COUNT = 18, /* 2^16 operations are KVT_BATCH_MAX; parts may lie behind them. */
};

struct ticket_pool {
    pthread_mutex_t mutex;
    struct kvt_ticket *free[CLASS_COUNT]; /* Linked by next; guarded by: mutex */
    size_t free_bytes;                    /* guarded by: mutex */
    struct kvt_ticket *out;               /* Linked by next and previous; guarded by: mutex */
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

static void
list_free(struct kvt_store *store, struct kvt_ticket *first)
{
    while (first != NULL) {
        struct kvt_ticket *ticket = first;

        first = ticket->next;
        env_put(&store->env, ticket, class_bytes(class_of(ticket->slot_count)));
    }
}

void
ticket_pool_close(struct kvt_store *store)
{
    struct ticket_pool *pool = store->ticket_pool;

    if (pool == NULL)
        return;
    for (uint32_t class = 0; class < CLASS_COUNT; class ++)
        list_free(store, pool->free[class]);
    list_free(store, pool->out); /* kvt_abort(): they are void. */
    pthread_mutex_destroy(&pool->mutex);
    env_put(&store->env, pool, sizeof(*pool));
    store->ticket_pool = NULL;
}

/* The mutex is held. */
static void
out_add(struct ticket_pool *pool, struct kvt_ticket *ticket)
{
    ticket->next = pool->out;
    ticket->previous = NULL;
    if (pool->out != NULL)
        pool->out->previous = ticket;
    pool->out = ticket;
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
        pool->free[class] = ticket->next;
        pool->free_bytes -= class_bytes(class);
        out_add(pool, ticket);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (ticket != NULL) {
        /* All but what links it with others, which they may write by now. */
        memset(ticket, 0, offsetof(struct kvt_ticket, next));
        memset(ticket->ops, 0, count * sizeof(struct op));
    } else {
        ticket = env_take(&store->env, class_bytes(class));
        if (ticket == NULL)
            return NULL;
        pthread_mutex_lock(&pool->mutex);
        out_add(pool, ticket);
        pthread_mutex_unlock(&pool->mutex);
    }
    ticket->slot_count = count;
    return ticket;
}

void
ticket_pool_put(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct ticket_pool *pool = store->ticket_pool;
    uint32_t class = class_of(ticket->slot_count);
    bool is_kept;

    pthread_mutex_lock(&pool->mutex);
    if (ticket->next != NULL)
        ticket->next->previous = ticket->previous;
    if (ticket->previous != NULL)
        ticket->previous->next = ticket->next;
    else
        pool->out = ticket->next;
    is_kept = pool->free_bytes + class_bytes(class) <= TICKET_POOL_BYTES;
    if (is_kept) {
        ticket->next = pool->free[class];
        pool->free[class] = ticket;
        pool->free_bytes += class_bytes(class);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (!is_kept)
        env_put(&store->env, ticket, class_bytes(class));
}
