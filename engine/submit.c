/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - the calls that start work: they check every argument, copy what they need, and send a
 * ticket to the loop. A refused call has changed nothing.
 *
 * Threads   any.
 */
#include <stdlib.h>

#include "store_internal.h"

enum kvt_status
key_import(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *source, uint32_t index,
    struct block_key *key_out)
{
    if (source->bytes == NULL)
        return failure_set(KVT_E_INVAL, 0, "block %u: key.bytes is NULL", index);
    if (source->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: key.reserved0 is not zero", index);
    if (source->length > KVT_KEY_BYTES_MAX || !key_init(key_out, store->file.secret, ns.id,
                                                  source->component, source->bytes, source->length))
        return failure_set(KVT_E_INVAL, 0, "block %u: key.length %u is not in 1..%u", index,
            source->length, KVT_KEY_BYTES_MAX);
    return KVT_OK;
}

/* What all submissions check: the store, the namespace, the batch. */
static enum kvt_status
submission_check(struct kvt_store *store, kvt_namespace ns, const void *blocks, uint32_t count,
    kvt_ticket **ticket_out)
{
    if (ticket_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket_out is NULL");
    *ticket_out = NULL;
    KVT_TRY(store_enter(store));
    if (blocks == NULL)
        return failure_set(KVT_E_INVAL, 0, "puts, gets or keys is NULL");
    if (count == 0 || count > KVT_BATCH_MAX)
        return failure_set(KVT_E_INVAL, 0, "count %u is not in 1..%u", count, KVT_BATCH_MAX);
    if (namespace_at(store, ns.id) == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    return KVT_OK;
}

/* Durable work needs a tier that takes commits. */
static enum kvt_status
commits_check(struct kvt_store *store)
{
    uint32_t health = atomic_load_explicit(&store->health, memory_order_relaxed);

    if (store->nvme == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0, "the store has no NVME tier: only MEMORY puts");
    if ((health & KVT_HEALTH_READ_ONLY) != 0)
        return failure_set(KVT_E_READONLY, 0, "the store was opened for reading only");
    if ((health & KVT_HEALTH_META_READONLY) != 0)
        return failure_set(KVT_E_READONLY, 0, "a commit of the index failed: no more are tried");
    return KVT_OK;
}

static enum kvt_status
op_import_key(struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_key *key,
    uint32_t index)
{
    KVT_TRY(key_import(store, ns, key, index, &op->key));
    op->fingerprint = key_fingerprint(store->fingerprint_seed, &op->key);
    op->namespace_epoch =
        atomic_load_explicit(&namespace_at(store, ns.id)->epoch, memory_order_acquire);
    return KVT_OK;
}

static enum kvt_status
op_import_put(struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_put *put,
    uint32_t index)
{
    struct block_key parent;

    KVT_TRY(op_import_key(store, op, ns, &put->key, index));
    if (put->source == NULL)
        return failure_set(KVT_E_INVAL, 0, "block %u: source is NULL", index);
    if (put->length == 0 || put->length > store->options.block_bytes_max)
        return failure_set(KVT_E_INVAL, 0, "block %u: length %llu is not in 1..%llu", index,
            (unsigned long long)put->length, (unsigned long long)store->options.block_bytes_max);
    if ((put->flags & ~(uint32_t)KVT_PUT_REPLACE) != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: flags 0x%x: only KVT_PUT_REPLACE is known",
            index, put->flags);
    if (put->hint > 3)
        return failure_set(KVT_E_INVAL, 0, "block %u: hint %u is not in 0..3", index, put->hint);
    if (put->reserved0 != 0 || put->reserved1 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: a reserved field is not zero", index);
    if (put->parent != NULL) {
        if (put->parent->bytes == NULL || put->parent->length == 0 ||
            put->parent->length > KVT_KEY_BYTES_MAX || put->parent->reserved0 != 0)
            return failure_set(KVT_E_INVAL, 0,
                "block %u: parent.bytes is NULL, parent.length %u is not in 1..%u, or reserved0 is "
                "not 0",
                index, put->parent->length, KVT_KEY_BYTES_MAX);
        KVT_TRY(key_import(store, ns, put->parent, index, &parent));
        op->parent = key_fingerprint(store->fingerprint_seed, &parent);
    }
    op->source = put->source;
    op->length = put->length;
    op->flags = put->flags;
    op->depth = put->depth;
    op->token_start = put->token_start;
    op->token_count = put->token_count;
    op->recompute_us = put->recompute_us;
    op->importance = put->importance;
    op->class_id = put->class_id;
    op->hint = put->hint;
    return KVT_OK;
}

/* A ticket that was never sent. */
static enum kvt_status
ticket_refuse(struct kvt_ticket *ticket, enum kvt_status status)
{
    kvt_ticket_free(ticket);
    return status;
}

enum kvt_status
kvt_put_submit(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts, uint32_t count,
    enum kvt_durability durability, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(submission_check(store, ns, puts, count, ticket_out));
    if (durability != KVT_MEMORY && durability != KVT_RELAXED && durability != KVT_SYNC)
        return failure_set(
            KVT_E_INVAL, 0, "durability %d is not one of enum kvt_durability", (int)durability);
    if (durability != KVT_MEMORY)
        KVT_TRY(commits_check(store));
    KVT_TRY(ticket_create(store, TICKET_PUT, count, submit, &ticket));
    ticket->durability = durability;
    ticket->last_stage = durability == KVT_MEMORY ? 1 : 2;
    for (uint32_t i = 0; i < count; i++) {
        status = op_import_put(store, &ticket->ops[i], ns, &puts[i], i);
        if (status != KVT_OK)
            return ticket_refuse(ticket, status);
    }
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}

static enum kvt_status
op_import_get(struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_get *get,
    uint32_t index)
{
    KVT_TRY(op_import_key(store, op, ns, &get->key, index));
    if (get->destination == NULL)
        return failure_set(KVT_E_INVAL, 0, "block %u: destination is NULL", index);
    if (get->capacity == 0 || get->capacity > INT64_MAX ||
        get->capacity > UINTPTR_MAX - (uintptr_t)get->destination)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: capacity %llu is 0, or more than can lie behind the destination", index,
            (unsigned long long)get->capacity);
    if ((get->flags & ~(uint32_t)KVT_GET_TRANSIENT) != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: flags 0x%x: only KVT_GET_TRANSIENT is known",
            index, get->flags);
    if (get->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: reserved0 is not zero", index);
    op->destination = get->destination;
    op->length = get->capacity;
    op->flags = get->flags;
    return KVT_OK;
}

static int
span_compare(const void *a, const void *b)
{
    const struct iovec *left = a;
    const struct iovec *right = b;

    return left->iov_base < right->iov_base ? -1 : left->iov_base > right->iov_base;
}

/* Two destinations that overlap could not both be right. */
static enum kvt_status
destinations_check(struct kvt_store *store, const struct kvt_get *gets, uint32_t count)
{
    struct iovec *spans;
    bool is_overlapping = false;

    if (count == 1)
        return KVT_OK;
    spans = env_take(&store->env, count * sizeof(*spans));
    if (spans == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to check %u destinations", count);
    for (uint32_t i = 0; i < count; i++)
        spans[i] = (struct iovec){gets[i].destination, (size_t)gets[i].capacity};
    qsort(spans, count, sizeof(*spans), span_compare);
    for (uint32_t i = 1; i < count && !is_overlapping; i++)
        is_overlapping =
            (uintptr_t)spans[i - 1].iov_base + spans[i - 1].iov_len > (uintptr_t)spans[i].iov_base;
    env_put(&store->env, spans, count * sizeof(*spans));
    if (is_overlapping)
        return failure_set(KVT_E_INVAL, 0, "two destinations of the batch overlap");
    return KVT_OK;
}

enum kvt_status
kvt_get_submit(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets, uint32_t count,
    const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status = KVT_OK;

    KVT_TRY(submission_check(store, ns, gets, count, ticket_out));
    KVT_TRY(ticket_create(store, TICKET_GET, count, submit, &ticket));
    for (uint32_t i = 0; i < count && status == KVT_OK; i++)
        status = op_import_get(store, &ticket->ops[i], ns, &gets[i], i);
    if (status == KVT_OK)
        status = destinations_check(store, gets, count);
    if (status != KVT_OK)
        return ticket_refuse(ticket, status);
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}

enum kvt_status
kvt_delete_submit(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(submission_check(store, ns, keys, count, ticket_out));
    if (store->nvme != NULL)
        KVT_TRY(commits_check(store));
    KVT_TRY(ticket_create(store, TICKET_DELETE, count, submit, &ticket));
    ticket->last_stage = 2;
    for (uint32_t i = 0; i < count; i++) {
        status = op_import_key(store, &ticket->ops[i], ns, &keys[i], i);
        if (status != KVT_OK)
            return ticket_refuse(ticket, status);
    }
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}
