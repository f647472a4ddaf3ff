/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c - completion queues with an eventfd.
 *
 * Owns      the inbox into which the loop puts completions, and what was taken out of it but not
 *           yet given to the caller.
 * Threads   the loop delivers; one caller at a time polls.
 */
#include "queue_internal.h"
#include "store_internal.h"

/* A delivery takes a few instructions and a write to an eventfd. */
static const uint64_t DELIVERY_POLL_NS = 20000;

struct kvt_queue {
    struct kvt_queue *next, *previous; /* guarded by: the store's queues_lock */
    struct kvt_store *store;
    struct inbox inbox;
    struct inbox_node *taken; /* poller only */
    struct gate gate;
    int signal;
    _Atomic uint64_t expected_count; /* Completions that will still be given to the caller. */
    _Atomic uint64_t coming_count;   /* Of them, those that are not in the inbox yet. */
    _Atomic uint32_t delivery_count; /* 1 while the loop is inside queue_deliver(). */
};

static void
queue_list(struct kvt_queue *queue)
{
    struct kvt_store *store = queue->store;

    pthread_mutex_lock(&store->queues_lock);
    queue->next = store->queues;
    if (queue->next != NULL)
        queue->next->previous = queue;
    store->queues = queue;
    pthread_mutex_unlock(&store->queues_lock);
}

static void
queue_delist(struct kvt_queue *queue)
{
    struct kvt_store *store = queue->store;

    pthread_mutex_lock(&store->queues_lock);
    if (queue->next != NULL)
        queue->next->previous = queue->previous;
    if (queue->previous != NULL)
        queue->previous->next = queue->next;
    else
        store->queues = queue->next;
    pthread_mutex_unlock(&store->queues_lock);
}

static void
queue_free(struct kvt_queue *queue)
{
    const struct kvt_env *env = &queue->store->env;

    env->sched->signal_close(env->sched_context, queue->signal);
    env_put(env, queue, sizeof(*queue));
}

void
queues_wake(struct kvt_store *store)
{
    const struct kvt_env *env = &store->env;

    pthread_mutex_lock(&store->queues_lock);
    for (const struct kvt_queue *queue = store->queues; queue != NULL; queue = queue->next)
        env->sched->signal_post(env->sched_context, queue->signal);
    pthread_mutex_unlock(&store->queues_lock);
}

void
queues_close(struct kvt_store *store)
{
    while (store->queues != NULL) {
        struct kvt_queue *queue = store->queues;

        store->queues = queue->next;
        queue_free(queue);
    }
}

enum kvt_status
kvt_queue_create(kvt_store *store, kvt_queue **queue_out)
{
    struct kvt_queue *queue;
    enum kvt_status status;

    if (queue_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "queue_out is NULL");
    *queue_out = NULL;
    KVT_TRY(store_enter(store));
    queue = env_take(&store->env, sizeof(*queue));
    if (queue == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a queue");
    queue->store = store;
    status = store->env.sched->signal_open(store->env.sched_context, &queue->signal);
    if (status != KVT_OK) {
        env_put(&store->env, queue, sizeof(*queue));
        return status;
    }
    queue_list(queue);
    atomic_fetch_add_explicit(&store->queue_count, 1, memory_order_relaxed);
    *queue_out = queue;
    return KVT_OK;
}

enum kvt_status
kvt_queue_destroy(kvt_queue *queue)
{
    struct kvt_store *store;
    struct gate pause = {0};
    uint64_t expected_count;

    if (queue == NULL)
        return KVT_OK;
    store = queue->store;
    if (store_enter(store) == KVT_E_STATE)
        return KVT_E_STATE;
    expected_count = atomic_load_explicit(&queue->expected_count, memory_order_acquire);
    if (expected_count != 0)
        return failure_set(KVT_E_STATE, 0, "%llu completions of the queue were not collected",
            (unsigned long long)expected_count);
    /* (Q3) acquire: pairs with the end of queue_deliver(), which still touches the queue after its
     * completion can be collected. Asleep: the loop may wait for this core. */
    while (atomic_load_explicit(&queue->delivery_count, memory_order_acquire) != 0)
        gate_wait(&store->env, &pause, 0, env_now(&store->env) + DELIVERY_POLL_NS);
    queue_delist(queue);
    queue_free(queue);
    atomic_fetch_sub_explicit(&store->queue_count, 1, memory_order_relaxed);
    return KVT_OK;
}

int
kvt_queue_fd(kvt_queue *queue)
{
    return queue == NULL || store_enter(queue->store) == KVT_E_STATE ? -1 : queue->signal;
}

bool
queue_is_of(const struct kvt_queue *queue, const struct kvt_store *store)
{
    return queue->store == store;
}

void
queue_expect(struct kvt_queue *queue, uint32_t count)
{
    atomic_fetch_add_explicit(&queue->expected_count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->coming_count, count, memory_order_relaxed);
}

void
queue_deliver(struct kvt_queue *queue, struct completion *completion)
{
    struct kvt_store *store = queue->store;

    atomic_store_explicit(&queue->delivery_count, 1, memory_order_relaxed);
    if (inbox_push(&queue->inbox, &completion->node))
        store->env.sched->signal_post(store->env.sched_context, queue->signal);
    /* (Q4) release: whoever sees that nothing more comes finds all completions in the inbox. */
    atomic_fetch_sub_explicit(&queue->coming_count, 1, memory_order_release);
    gate_post(&store->env, &queue->gate);
    atomic_store_explicit(&queue->delivery_count, 0, memory_order_release);
}

/* Give what lies ready to the caller. */
static uint32_t
queue_collect(struct kvt_queue *queue, struct kvt_completion *done, uint32_t count_max)
{
    struct kvt_store *store = queue->store;
    uint32_t count = 0;

    while (count < count_max) {
        struct completion *completion;
        struct kvt_ticket *ticket;
        bool is_freed;

        if (queue->taken == NULL) {
            /* Cleared first: a completion that comes now posts the signal again. */
            store->env.sched->signal_clear(store->env.sched_context, queue->signal);
            queue->taken = inbox_take(&queue->inbox);
        }
        if (queue->taken == NULL)
            break;
        completion = CONTAINER_OF(queue->taken, struct completion, node);
        queue->taken = queue->taken->next;
        ticket = completion->ticket;
        is_freed = atomic_load_explicit(&ticket->is_freed, memory_order_acquire) != 0;
        done[count].ticket = is_freed ? NULL : ticket;
        done[count].user = ticket->user;
        done[count].stage = completion->stage;
        done[count].status = ticket_status(ticket, completion->stage);
        count++;
        if (completion->stage == ticket->last_stage)
            ticket_unclaim(ticket);
        ticket_release(ticket);
    }
    /* What is left in `taken` must still be seen by a caller that waits for the descriptor; so must
     * that the store broke, whose signal may have been cleared here. */
    if (queue->taken != NULL || store_is_poisoned(store))
        store->env.sched->signal_post(store->env.sched_context, queue->signal);
    atomic_fetch_sub_explicit(&queue->expected_count, count, memory_order_release);
    return count;
}

enum kvt_status
kvt_queue_poll(kvt_queue *queue, struct kvt_completion *done, uint32_t count_max,
    uint64_t timeout_ns, uint32_t *count_out)
{
    struct kvt_store *store;
    uint64_t until_ns;

    if (queue == NULL || done == NULL || count_max == 0 || count_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "queue, done or count_out is NULL, or count_max is 0");
    store = queue->store;
    KVT_TRY(store_enter(store));
    until_ns = env_until(&store->env, timeout_ns);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&queue->gate.value, memory_order_acquire);
        uint32_t count = queue_collect(queue, done, count_max);

        if (count > 0) {
            *count_out = count;
            return KVT_OK;
        }
        KVT_TRY(store_enter(store));
        if (env_now(&store->env) >= until_ns) {
            *count_out = 0;
            return KVT_LATE;
        }
        store_gate_wait(store, &queue->gate, seen, until_ns);
    }
}

enum kvt_status
kvt_queue_drain(kvt_queue *queue, uint64_t timeout_ns)
{
    struct kvt_store *store;
    uint64_t until_ns;

    if (queue == NULL)
        return failure_set(KVT_E_INVAL, 0, "queue is NULL");
    store = queue->store;
    KVT_TRY(store_enter(store));
    until_ns = env_until(&store->env, timeout_ns);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&queue->gate.value, memory_order_acquire);

        if (atomic_load_explicit(&queue->coming_count, memory_order_acquire) == 0)
            return KVT_OK;
        KVT_TRY(store_enter(store));
        if (env_now(&store->env) >= until_ns)
            return KVT_LATE;
        store_gate_wait(store, &queue->gate, seen, until_ns);
    }
}
