/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket_parts.c - readiness of parts: counting them, and waiting for them; of which put they are.
 *
 * Threads   ticket_part_*() the loop; kvt_ticket_*() any.
 */
#include "ticket_parts.h"

#include "store_internal.h"

static struct ticket_part *
part_of(const struct op *op)
{
    const struct kvt_ticket *ticket = op->ticket;

    return &ticket->parts[(uint32_t)(op - ticket->ops) / ticket->block_count];
}

size_t
ticket_parts_bytes(uint32_t block_count, uint32_t part_total)
{
    return block_count * sizeof(struct entry_use) + part_total * sizeof(struct ticket_part);
}

void
ticket_parts_init(struct kvt_ticket *ticket, int mark_device)
{
    if (ticket->part_total == 1) {
        ticket->parts = &ticket->whole;
    } else {
        ticket->uses = (struct entry_use *)(void *)&ticket->ops[ticket->count];
        ticket->parts = (struct ticket_part *)(void *)&ticket->uses[ticket->block_count];
    }
    ticket->mark_device = (int8_t)mark_device;
    for (uint32_t i = 0; i < ticket->part_total; i++) {
        ticket->parts[i].operation_count = ticket->block_count;
        ticket->parts[i].left = ticket->block_count;
    }
}

void
ticket_part_reach(struct kvt_store *store, struct op *op, enum kvt_status status)
{
    struct ticket_part *part = part_of(op);

    if (status != KVT_OK && atomic_load_explicit(&part->status, memory_order_relaxed) == KVT_OK)
        atomic_store_explicit(&part->status, status, memory_order_relaxed);
    /* (D3) release, both: who sees the count sees the status, and what was copied to the host. */
    if (!op->is_queued)
        atomic_fetch_add_explicit(&part->settled_count, 1, memory_order_release);
    if (--part->left > 0)
        return;
    atomic_store_explicit(&part->is_there, 1, memory_order_release);
    if (op->ticket->is_by_part)
        gate_post(&store->env, &op->ticket->gate);
}

/* Of the operation's block; NULL: it has one part. */
static struct entry_use *
use_of(const struct op *op)
{
    const struct kvt_ticket *ticket = op->ticket;

    return ticket->uses == NULL ? NULL
                                : &ticket->uses[(uint32_t)(op - ticket->ops) % ticket->block_count];
}

void
ticket_part_begin(const struct kvt_store *store, const struct op *op, uint32_t number)
{
    struct entry_use *use = use_of(op);

    if (use != NULL)
        *use = residency_use(store->map, number);
}

bool
ticket_part_is_strange(const struct kvt_store *store, const struct op *op, uint32_t number)
{
    const struct entry_use *use = use_of(op);

    return use != NULL && use->number_more != 0 && !residency_is_use(store->map, number, use);
}

struct device_mark *
ticket_part_mark(const struct op *op, uint32_t device)
{
    const struct kvt_ticket *ticket = op->ticket;

    return ticket->parts != NULL && ticket->mark_device == (int)device ? &part_of(op)->mark : NULL;
}

/* The part that callers call so, or NULL. */
static struct ticket_part *
part_find(const struct kvt_ticket *ticket, uint32_t number)
{
    uint32_t i = number - ticket->part_first;

    if (ticket->parts == NULL)
        return NULL;
    if (number == KVT_PART_ALL && !ticket->is_by_part)
        return ticket->parts;
    return ticket->is_by_part && number >= ticket->part_first && i < ticket->part_total
               ? &ticket->parts[i]
               : NULL;
}

/* The first that a block got, with a sentence when it is an error. */
static enum kvt_status
part_answer(const struct ticket_part *part)
{
    enum kvt_status status =
        (enum kvt_status)atomic_load_explicit(&part->status, memory_order_relaxed);

    if (status >= KVT_OK)
        return status;
    return failure_set(status, 0, "a block of the ticket got %s: kvt_ticket_results() says which",
        kvt_status_name(status));
}

enum kvt_status
kvt_ticket_part_wait(kvt_ticket *ticket, uint32_t number, uint64_t timeout_ns)
{
    const struct ticket_part *part = NULL;

    if (ticket == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket is NULL");
    KVT_TRY(store_enter(ticket->store));
    if (ticket->is_by_part)
        part = part_find(ticket, number);
    if (part == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "part %u: the ticket does not bring it by itself", number);
    KVT_TRY(ticket_await(ticket, &part->is_there, 1, timeout_ns));
    return part_answer(part);
}

/* Whether nothing of these parts is still to be queued. */
static bool
part_is_queued(const struct ticket_part *part)
{
    /* (D2), (D3): acquire, both. */
    uint32_t settled = atomic_load_explicit(&part->settled_count, memory_order_acquire);

    return settled + atomic_load_explicit(&part->mark.queued_count, memory_order_acquire) ==
           part->operation_count;
}

static bool
has_memory_of(const struct kvt_ticket *ticket, uint32_t device)
{
    return device < KVT_DEVICES_MAX && (ticket->device_mask >> device & 1) != 0;
}

/* For a stream of `device`. Of another device than that whose copies are marked: when all are over,
 * and nothing is left to wait for. */
static bool
part_is_ready(const struct kvt_ticket *ticket, const struct ticket_part *part, uint32_t device)
{
    if (ticket->mark_device == (int)device)
        return part_is_queued(part);
    return atomic_load_explicit(&part->is_there, memory_order_acquire) != 0;
}

enum kvt_status
kvt_ticket_stream_wait(kvt_ticket *ticket, uint32_t number, uint32_t device, void *stream)
{
    const struct ticket_part *part;
    struct device_mover *mover;

    if (ticket == NULL || stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket or stream is NULL");
    KVT_TRY(store_enter(ticket->store));
    part = part_find(ticket, number);
    if (part == NULL)
        return failure_set(KVT_E_INVAL, 0,
            "part %u: the ticket has no such part, or no memory of "
            "a device",
            number);
    if (!has_memory_of(ticket, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u: no destination of the ticket is its memory", device);
    if (!part_is_ready(ticket, part, device))
        return KVT_NOT_READY;
    mover = hbm_mover(ticket->store->devices.tiers[device]);
    if (device_mover_is_lost(mover))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    if (ticket->mark_device == (int)device)
        KVT_TRY(
            device_answer(ticket->store, device, device_mover_wait(mover, &part->mark, stream)));
    return part_answer(part);
}
