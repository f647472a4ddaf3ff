/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - tickets and their stages.
 *
 * Owns      a ticket's references; when a stage counts as reached.
 * Not here  what an operation does (put.c, get.c, delete.c), queues (queue.c).
 * Threads   op_*() the loop; ticket_*() and kvt_ticket_*() any.
 *
 * Where an operation is before its stage 1 is reached: in its ticket, which waits for an event; in
 * one op_list; or at work, and then it never waits again. So one look at the lists finds all that
 * can be cancelled.
 */
#include "copy_run.h"
#include "queue_internal.h"
#include "quota.h"
#include "store_internal.h"
#include "ticket_pool.h"

enum {
    OPS_AHEAD = 8, /* At most between the steps in which memory is asked for ahead. */
};

static enum kvt_status
submit_check(struct kvt_store *store, const struct kvt_submit *submit)
{
    if (submit->queue != NULL && !queue_is_of(submit->queue, store))
        return failure_set(KVT_E_INVAL, 0, "submit.queue was made for another store");
    if (submit->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "submit.reserved0 is not zero");
    if (submit->wait_event != NULL && !device_is_open(store, submit->wait_device))
        return failure_set(KVT_E_INVAL, 0,
            "submit.wait_device %u is not one of the store's (device_mask)", submit->wait_device);
    return KVT_OK;
}

/* Room for `extra` more operations lies behind the `count` that there are. */
static enum kvt_status
ticket_make(struct kvt_store *store, uint32_t count, uint32_t extra,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;

    if (submit != NULL)
        KVT_TRY(submit_check(store, submit));
    if (!quota_take(&store->ticket_admitted_count, store->options.request_count_max))
        return failure_set(KVT_E_BUSY, 0, "%u tickets are out already (request_count_max)",
            store->options.request_count_max);
    ticket = ticket_pool_take(store, count + extra);
    if (ticket == NULL) {
        atomic_fetch_sub_explicit(&store->ticket_admitted_count, 1, memory_order_relaxed);
        return failure_set(KVT_E_NOMEM, 0, "no memory for a ticket of %u blocks", count);
    }
    ticket->store = store;
    ticket->count = count;
    ticket->block_count = count;
    ticket->part_total = 1;
    ticket->last_stage = 1;
    ticket->left[0] = count;
    ticket->left[1] = count;
    if (submit != NULL) {
        ticket->queue = submit->queue;
        ticket->user = submit->user;
        ticket->wait_event = submit->wait_event;
        ticket->wait_job.device = submit->wait_device;
    }
    for (uint32_t i = 0; i < count; i++) {
        ticket->ops[i].ticket = ticket;
        ticket->ops[i].memory_device = MEMORY_PLAIN;
    }
    atomic_store_explicit(&ticket->reference_count, 1, memory_order_relaxed);
    atomic_store_explicit(&ticket->claim_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->ticket_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->ticket_held_count, 1, memory_order_relaxed);
    *ticket_out = ticket;
    return KVT_OK;
}

enum kvt_status
ticket_create(struct kvt_store *store, enum ticket_kind kind, uint32_t count,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out)
{
    KVT_TRY(ticket_make(store, count, 0, submit, ticket_out));
    (*ticket_out)->kind = kind;
    return KVT_OK;
}

enum kvt_status
ticket_create_by_part(struct kvt_store *store, uint32_t count, uint16_t part_total,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out)
{
    size_t parts_bytes = ticket_parts_bytes(count, part_total);
    uint32_t extra = (uint32_t)((parts_bytes + sizeof(struct op) - 1) / sizeof(struct op));

    KVT_TRY(ticket_make(store, count * part_total, extra, submit, ticket_out));
    (*ticket_out)->kind = TICKET_GET;
    (*ticket_out)->block_count = count;
    (*ticket_out)->part_total = part_total;
    (*ticket_out)->is_by_part = true;
    return KVT_OK;
}

void
ticket_release(struct kvt_ticket *ticket)
{
    struct kvt_store *store = ticket->store;

    /* (Q1) acq_rel: whoever frees the ticket sees what the others wrote into it. */
    if (atomic_fetch_sub_explicit(&ticket->reference_count, 1, memory_order_acq_rel) != 1)
        return;
    ticket_pool_put(store, ticket);
    atomic_fetch_sub_explicit(&store->ticket_count, 1, memory_order_release);
}

void
ticket_unclaim(struct kvt_ticket *ticket)
{
    if (atomic_fetch_sub_explicit(&ticket->claim_count, 1, memory_order_relaxed) == 1)
        atomic_fetch_sub_explicit(&ticket->store->ticket_admitted_count, 1, memory_order_relaxed);
}

void
ticket_drop(struct kvt_ticket *ticket)
{
    ticket_unclaim(ticket);
    ticket_release(ticket);
}

/* Start the operations. Each is preceded by requests for the memory that it will need, in three
 * steps: otherwise it waits for what it finds at the end of one thread after the other. */
static void
ops_begin(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct op *ops = ticket->ops;
    uint32_t count = ticket->count;
    uint32_t ahead = count < OPS_AHEAD ? count : OPS_AHEAD;

    for (uint32_t i = 0; i < count + 3 * ahead; i++) {
        if (i < count)
            residency_prefetch_bucket(store->map, ops[i].fingerprint);
        if (i >= ahead && i - ahead < count) {
            struct op *op = &ops[i - ahead];

            op->near = residency_prefetch_entry(store->map, op->fingerprint);
            if (op->near != ENTRY_NONE)
                __builtin_prefetch(entries_at(store->entries, op->near), 1);
        }
        if (i >= 2 * ahead && i - 2 * ahead < count)
            residency_prefetch_key(store->map, ops[i - 2 * ahead].near);
        if (i >= 3 * ahead)
            op_begin(store, &ops[i - 3 * ahead]);
    }
}

/* Start all operations; or, when what they were to wait for will never be, none. */
static void
ticket_begin(struct kvt_store *store, struct kvt_ticket *ticket, enum kvt_status status)
{
    uint32_t count = ticket->count;

    if (status == KVT_OK && atomic_load_explicit(&ticket->is_cancelled, memory_order_relaxed) != 0)
        status = KVT_CANCELLED;
    /* The loop's own reference keeps the ticket while its operations are started: the last of them
     * may finish at once. */
    atomic_fetch_add_explicit(&ticket->reference_count, 1, memory_order_relaxed);
    if (status == KVT_OK)
        ops_begin(store, ticket);
    for (uint32_t i = 0; i < count && status != KVT_OK; i++)
        op_finish(store, &ticket->ops[i], status);
    copy_run_send(store);
    ticket_release(ticket);
}

static void
ticket_waited(struct kvt_store *store, struct device_job *job)
{
    struct kvt_ticket *ticket = CONTAINER_OF(job, struct kvt_ticket, wait_job);

    ticket->is_waiting = false;
    ticket_begin(store, ticket, job->move.status);
}

static void
ticket_deliver(struct kvt_store *store, struct message *message)
{
    struct kvt_ticket *ticket = CONTAINER_OF(message, struct kvt_ticket, message);

    if (ticket->last_stage == 2)
        flush_expect(store, ticket);
    if (ticket->wait_event == NULL) {
        ticket_begin(store, ticket, KVT_OK);
        return;
    }
    ticket->is_waiting = true;
    ticket->wait_job.finish = ticket_waited;
    ticket->wait_job.is_before = true;
    device_job_wait(store, &ticket->wait_job, ticket->wait_event);
}

void
ticket_send(struct kvt_ticket *ticket)
{
    struct kvt_store *store = ticket->store;

    atomic_fetch_add_explicit(&ticket->reference_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ticket->claim_count, 1, memory_order_relaxed);
    if (ticket->queue != NULL)
        queue_expect(ticket->queue, ticket->last_stage);
    ticket->submit_ns = env_now(&store->env);
    ticket->message.deliver = ticket_deliver;
    loop_send(store, &ticket->message);
}

/* Everybody who waits for the ticket learns that `stage` was reached. */
static void
ticket_publish(struct kvt_store *store, struct kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_queue *queue = ticket->queue;

    if (ticket->hold_count > 0)
        holds_reach(store, ticket);
    if (queue == NULL && stage == ticket->last_stage)
        ticket_unclaim(ticket);
    /* (Q2) release: pairs with the acquire in kvt_ticket_results() and kvt_ticket_wait(). */
    atomic_store_explicit(&ticket->stage, stage, memory_order_release);
    if (queue != NULL) {
        struct completion *completion = &ticket->completions[stage - 1];

        completion->ticket = ticket;
        completion->stage = stage;
        atomic_fetch_add_explicit(&ticket->reference_count, 1, memory_order_relaxed);
        queue_deliver(queue, completion);
    } else {
        gate_post(&store->env, &ticket->gate);
    }
    if (stage < ticket->last_stage)
        return;
    if (stage == 2)
        flush_settle(store, ticket);
    ticket_release(ticket);
}

void
op_memory_unuse(struct kvt_store *store, struct op *op)
{
    region_unuse(store, op);
    if (op->layout != NULL)
        layout_unuse(store, op);
}

void
op_slot_put(struct kvt_store *store, struct op *op)
{
    enum policy_place place =
        op->ticket->kind == TICKET_PUT ? POLICY_HOST : place_of_device(op->device);

    if (op->has_slot)
        room_put(store, place, slab_slot(place_slab(store, place), op->slot));
    op->has_slot = false;
}

void
op_reach(struct kvt_store *store, struct op *op, uint32_t stage, enum kvt_status status)
{
    struct kvt_ticket *ticket = op->ticket;
    uint32_t i = stage - 1;

    KVT_ASSERT(stage >= 1 && stage <= ticket->last_stage && !op->is_reached[i]);
    KVT_ASSERT(stage == 1 || op->is_reached[0]);
    op->is_reached[i] = true;
    op->status[i] = status;
    if (stage == 1)
        op_memory_unuse(store, op);
    if (stage == 1 && ticket->parts != NULL)
        ticket_part_reach(store, op, status);
    op_slot_put(store, op);
    /* What stage 1 refused is told there. */
    if (stage == 2 && status < 0 && op->status[0] >= 0)
        flush_fail(store);
    if (--ticket->left[i] > 0)
        return;
    ticket_publish(store, ticket, stage);
}

void
op_finish(struct kvt_store *store, struct op *op, enum kvt_status status)
{
    uint32_t last_stage = op->ticket->last_stage;
    bool is_first_open = !op->is_reached[0];

    COUNT(store, cancel_count, status == KVT_CANCELLED);
    /* It was the capacity. */
    if (op->ticket->kind == TICKET_GET)
        op->length = 0;
    /* With two stages the ticket outlives the first. */
    if (is_first_open)
        op_reach(store, op, 1, status);
    if (last_stage == 2 && !op->is_reached[1])
        op_reach(store, op, 2, status);
}

void
op_cancel(struct kvt_store *store, struct op *op)
{
    op_finish(store, op, KVT_CANCELLED);
}

void
op_list_add(struct op_list *list, struct op *op)
{
    op->next = NULL;
    op->previous = list->last;
    op->list = list;
    if (list->last == NULL)
        list->first = op;
    else
        list->last->next = op;
    list->last = op;
}

struct op *
op_list_take(struct op_list *list)
{
    struct op *op = list->first;

    if (op == NULL)
        return NULL;
    list->first = op->next;
    if (list->first == NULL)
        list->last = NULL;
    else
        list->first->previous = NULL;
    op->next = NULL;
    op->list = NULL;
    return op;
}

void
op_list_append(struct op_list *list, struct op_list *others)
{
    if (others->first == NULL)
        return;
    others->first->previous = list->last;
    if (list->last == NULL)
        list->first = others->first;
    else
        list->last->next = others->first;
    list->last = others->last;
    *others = (struct op_list){NULL, NULL};
}

/* --- Cancelling ------------------------------------------------------------------------------- */

static void
op_list_remove(struct op *op)
{
    struct op_list *list = op->list;

    if (op->previous == NULL)
        list->first = op->next;
    else
        op->previous->next = op->next;
    if (op->next == NULL)
        list->last = op->previous;
    else
        op->next->previous = op->previous;
    op->next = NULL;
    op->list = NULL;
}

/* Those that wait; many others may wait with them. */
static void
ops_cancel(struct kvt_store *store, struct kvt_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->count; i++) {
        struct op *op = &ticket->ops[i];

        if (op->list == NULL || op->is_reached[0])
            continue;
        op_list_remove(op);
        op_cancel(store, op);
    }
    /* Others may have waited behind them. */
    store->room_changed = true;
}

static void
cancel_deliver(struct kvt_store *store, struct message *message)
{
    struct kvt_ticket *ticket = CONTAINER_OF(message, struct kvt_ticket, cancel);

    if (ticket->is_waiting)
        device_move_cancel(&ticket->wait_job.move);
    else
        ops_cancel(store, ticket);
    ticket_release(ticket);
}

enum kvt_status
kvt_ticket_cancel(kvt_ticket *ticket)
{
    struct kvt_store *store;

    if (ticket == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket is NULL");
    store = ticket->store;
    KVT_TRY(store_enter(store));
    if (atomic_load_explicit(&ticket->stage, memory_order_acquire) == ticket->last_stage ||
        atomic_exchange_explicit(&ticket->is_cancelled, 1, memory_order_relaxed) != 0)
        return KVT_OK;
    atomic_fetch_add_explicit(&ticket->reference_count, 1, memory_order_relaxed);
    ticket->cancel.deliver = cancel_deliver;
    loop_send(store, &ticket->cancel);
    return KVT_OK;
}

/* --- Waiting ---------------------------------------------------------------------------------- */

enum kvt_status
ticket_await(
    struct kvt_ticket *ticket, const _Atomic uint32_t *fact, uint32_t least, uint64_t timeout_ns)
{
    struct kvt_store *store = ticket->store;
    uint64_t until_ns = env_until(&store->env, timeout_ns);

    for (;;) {
        uint32_t seen = atomic_load_explicit(&ticket->gate.value, memory_order_acquire);

        if (atomic_load_explicit(fact, memory_order_acquire) >= least)
            return KVT_OK;
        KVT_TRY(store_enter(store));
        if (env_now(&store->env) >= until_ns)
            return KVT_LATE;
        store_gate_wait(store, &ticket->gate, seen, until_ns);
    }
}

enum kvt_status
kvt_ticket_wait(kvt_ticket *ticket, uint32_t stage, uint64_t timeout_ns)
{
    if (ticket == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket is NULL");
    KVT_TRY(store_enter(ticket->store));
    if (stage < 1 || stage > ticket->last_stage)
        return failure_set(KVT_E_INVAL, 0, "stage %u: this ticket has the stages 1..%u", stage,
            ticket->last_stage);
    if (ticket->queue != NULL)
        return failure_set(KVT_E_STATE, 0, "the ticket reports to a queue: poll that");
    return ticket_await(ticket, &ticket->stage, stage, timeout_ns);
}

const struct op *
ticket_block_op(const struct kvt_ticket *ticket, uint32_t stage, uint32_t i)
{
    const struct op *op = &ticket->ops[i];

    for (uint32_t at = i; at < ticket->count; at += ticket->block_count) {
        const struct op *part = &ticket->ops[at];
        enum kvt_status status = op->status[stage - 1];

        if (status == KVT_OK || (status > 0 && part->status[stage - 1] < 0))
            op = part;
    }
    return op;
}

static void
result_get(const struct kvt_ticket *ticket, uint32_t stage, uint32_t i, struct kvt_result *result)
{
    const struct op *op = ticket_block_op(ticket, stage, i);
    uint64_t length = 0;

    for (uint32_t at = i; at < ticket->count; at += ticket->block_count)
        length += ticket->ops[at].length;
    result->status = op->status[stage - 1];
    result->tier = op->tier;
    if (op->status[stage - 1] == KVT_OK)
        result->length = length;
    else if (ticket->is_by_part && op->destination == NULL)
        result->length = op->length; /* Spread: that of the whole block. */
    else
        result->length = op->length * ticket->part_total;
}

enum kvt_status
ticket_status(const struct kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_result result;

    for (uint32_t i = 0; i < ticket->block_count; i++) {
        result_get(ticket, stage, i, &result);
        if (result.status < 0)
            return result.status;
    }
    return KVT_OK;
}

enum kvt_status
kvt_ticket_results(
    kvt_ticket *ticket, uint32_t stage, struct kvt_result *results_out, uint32_t count)
{
    if (ticket == NULL || results_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket or results_out is NULL");
    KVT_TRY(store_enter(ticket->store));
    if (stage < 1 || stage > ticket->last_stage)
        return failure_set(KVT_E_INVAL, 0, "stage %u: this ticket has the stages 1..%u", stage,
            ticket->last_stage);
    if (count != ticket->block_count)
        return failure_set(
            KVT_E_INVAL, 0, "count %u: %u were submitted", count, ticket->block_count);
    if (atomic_load_explicit(&ticket->stage, memory_order_acquire) < stage)
        return KVT_NOT_READY;
    for (uint32_t i = 0; i < count; i++)
        result_get(ticket, stage, i, &results_out[i]);
    return KVT_OK;
}

void
ticket_disown(struct kvt_ticket *ticket)
{
    atomic_store_explicit(&ticket->is_freed, 1, memory_order_release);
    atomic_fetch_sub_explicit(&ticket->store->ticket_held_count, 1, memory_order_relaxed);
}

void
kvt_ticket_free(kvt_ticket *ticket)
{
    if (ticket == NULL || store_enter(ticket->store) == KVT_E_STATE)
        return;
    ticket_disown(ticket);
    ticket_drop(ticket);
}
