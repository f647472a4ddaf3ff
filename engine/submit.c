/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - the calls that start work: they check every argument, copy what they need, and send a
 * ticket to the loop. A refused call has changed nothing.
 *
 * Threads   any.
 */
#include "submit.h"

#include <stdlib.h>

#include "lookup.h"
#include "store_internal.h"

enum {
    SPANS_ON_STACK = 256, /* A larger batch asks for memory to check its destinations. */
};

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
        return failure_set(KVT_E_READONLY, 0,
            "nothing becomes durable any more: a commit of the index failed, or 2^40 "
            "records were written since the open");
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

/* Copies can be kept in the memory of that device. */
static enum kvt_status
hbm_check(struct kvt_store *store, uint32_t device)
{
    if (store->options.hbm_capacity_bytes == KVT_CAPACITY_NONE)
        return failure_set(KVT_E_UNSUPPORTED, 0, "the store has no HBM tier");
    if (!device_is_open(store, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device);
    return KVT_OK;
}

/* Where the source lies. */
static enum kvt_status
op_import_source(struct kvt_store *store, struct op *op, const struct kvt_put *put, uint32_t index)
{
    const struct layout_name name = {index, put->layout, put->slot, put->runs, put->run_count};
    const struct iovec memory = {(void *)(uintptr_t)put->source, (size_t)put->length};

    if (put->reserved1 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: reserved1 is not zero", index);
    if (!layout_is_named(&name)) {
        if (put->source == NULL)
            return failure_set(KVT_E_INVAL, 0, "block %u: source is NULL", index);
        op->source = put->source;
        return put->region.id == 0 ? KVT_OK : region_use(store, op, put->region, &memory);
    }
    if (put->source != NULL || put->region.id != 0)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: source or region beside a layout or runs: one of the two", index);
    KVT_TRY(layout_use(store, op, &name));
    if (put->length != op->layout->block_bytes)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: length %llu: the block of its layout has %llu", index,
            (unsigned long long)put->length, (unsigned long long)op->layout->block_bytes);
    return KVT_OK;
}

/* Where the block is kept first, and from where it comes. */
static enum kvt_status
op_import_tier(struct kvt_store *store, struct op *op, const struct kvt_put *put, uint32_t index)
{
    if (put->tier != 0 && put->tier != KVT_TIER_HOST && put->tier != KVT_TIER_HBM)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: tier %u is neither KVT_TIER_HBM nor KVT_TIER_HOST", index, put->tier);
    op->target = put->tier == 0 ? KVT_TIER_HOST : put->tier;
    op->device = (uint8_t)put->device;
    if (op->target == KVT_TIER_HBM)
        KVT_TRY(hbm_check(store, put->device));
    KVT_TRY(op_import_source(store, op, put, index));
    if (op->target == KVT_TIER_HBM && op->memory_device == MEMORY_PLAIN)
        return failure_set(
            KVT_E_INVAL, 0, "block %u: what goes to HBM comes from memory in a region", index);
    if (op->target == KVT_TIER_HBM && op->memory_device >= 0 &&
        (uint32_t)op->memory_device != put->device)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "block %u: from device %d to device %u: only through HOST", index, op->memory_device,
            put->device);
    return KVT_OK;
}

static enum kvt_status
op_import_put(struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_put *put,
    uint32_t index)
{
    struct block_key parent;

    KVT_TRY(op_import_key(store, op, ns, &put->key, index));
    if (put->length == 0 || put->length > store->options.block_bytes_max)
        return failure_set(KVT_E_INVAL, 0, "block %u: length %llu is not in 1..%llu", index,
            (unsigned long long)put->length, (unsigned long long)store->options.block_bytes_max);
    if ((put->flags & ~(uint32_t)KVT_PUT_REPLACE) != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: flags 0x%x: only KVT_PUT_REPLACE is known",
            index, put->flags);
    if (put->part_count > KVT_PARTS_MAX ||
        (put->part_count > 1 && put->length % put->part_count != 0))
        return failure_set(KVT_E_INVAL, 0,
            "block %u: part_count %u is above %u, or does not divide length %llu", index,
            put->part_count, KVT_PARTS_MAX, (unsigned long long)put->length);
    if (put->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: reserved0 is not zero", index);
    if (put->hint > 3)
        return failure_set(KVT_E_INVAL, 0, "block %u: hint %u is not in 0..3", index, put->hint);
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
    KVT_TRY(op_import_tier(store, op, put, index));
    op->length = put->length;
    op->flags = put->flags;
    op->depth = put->depth;
    op->token_start = put->token_start;
    op->token_count = put->token_count;
    op->recompute_us = put->recompute_us;
    op->importance = put->importance;
    op->class_id = put->class_id;
    op->hint = put->hint;
    op->part_count = put->part_count == 0 ? 1 : put->part_count;
    return KVT_OK;
}

/* A ticket that was never sent. */
static enum kvt_status
ticket_refuse(struct kvt_ticket *ticket, enum kvt_status status)
{
    for (uint32_t i = 0; i < ticket->count; i++)
        op_memory_unuse(ticket->store, &ticket->ops[i]);
    kvt_ticket_free(ticket);
    return status;
}

enum kvt_status
put_import(struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_put *put)
{
    KVT_TRY(store_enter(store));
    if (put == NULL)
        return failure_set(KVT_E_INVAL, 0, "put is NULL");
    if (namespace_at(store, ns.id) == NULL)
        return failure_set(KVT_E_INVAL, 0, "namespace %u was not opened", ns.id);
    return op_import_put(store, op, ns, put, 0);
}

enum kvt_status
put_ticket_create(struct kvt_store *store, uint32_t count, enum kvt_durability durability,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out)
{
    if (durability != KVT_MEMORY && durability != KVT_RELAXED && durability != KVT_SYNC)
        return failure_set(
            KVT_E_INVAL, 0, "durability %d is not one of enum kvt_durability", (int)durability);
    if (durability != KVT_MEMORY)
        KVT_TRY(commits_check(store));
    KVT_TRY(ticket_create(store, TICKET_PUT, count, submit, ticket_out));
    (*ticket_out)->durability = durability;
    (*ticket_out)->last_stage = durability == KVT_MEMORY ? 1 : 2;
    return KVT_OK;
}

enum kvt_status
kvt_put_submit(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts, uint32_t count,
    enum kvt_durability durability, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(submission_check(store, ns, puts, count, ticket_out));
    KVT_TRY(put_ticket_create(store, count, durability, submit, &ticket));
    for (uint32_t i = 0; i < count; i++) {
        status = op_import_put(store, &ticket->ops[i], ns, &puts[i], i);
        if (status != KVT_OK)
            return ticket_refuse(ticket, status);
    }
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}

/* Where it goes. */
static enum kvt_status
op_import_destination(
    struct kvt_store *store, struct op *op, const struct kvt_get *get, uint32_t index)
{
    const struct layout_name name = {index, get->layout, get->slot, get->runs, get->run_count};
    const struct iovec memory = {get->destination, (size_t)get->capacity};

    if (get->reserved1 != 0)
        return failure_set(KVT_E_INVAL, 0, "block %u: reserved1 is not zero", index);
    if (layout_is_named(&name)) {
        if (get->destination != NULL || get->capacity != 0 || get->region.id != 0)
            return failure_set(KVT_E_INVAL, 0,
                "block %u: destination, capacity or region beside a layout or runs: one of the two",
                index);
        KVT_TRY(layout_use(store, op, &name));
        op->length = op->layout->block_bytes;
        return KVT_OK;
    }
    if (get->destination == NULL)
        return failure_set(KVT_E_INVAL, 0, "block %u: destination is NULL", index);
    if (get->capacity == 0 || get->capacity > INT64_MAX ||
        get->capacity > UINTPTR_MAX - (uintptr_t)get->destination)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: capacity %llu is 0, or more than can lie behind the destination", index,
            (unsigned long long)get->capacity);
    op->destination = get->destination;
    op->length = get->capacity;
    return get->region.id == 0 ? KVT_OK : region_use(store, op, get->region, &memory);
}

/* All but the key and the memory. */
static enum kvt_status
op_import_get(struct op *op, const struct kvt_get *get, uint32_t index)
{
    if ((get->flags & ~(uint32_t)(KVT_GET_TRANSIENT | KVT_GET_BY_PART)) != 0)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: flags 0x%x: only KVT_GET_TRANSIENT and KVT_GET_BY_PART are known", index,
            get->flags);
    if ((get->part_count == 0 && get->part_first != 0) || get->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0,
            "block %u: part_first %u without a part_count, or reserved0 is not zero", index,
            get->part_first);
    op->flags = get->flags;
    op->part_first = get->part_first;
    op->part_count = get->part_count;
    return KVT_OK;
}

/* Bytes of memory, or slots of layouts as if they were memory. */
struct span {
    uint64_t begin, size;
};

static int
span_compare(const void *a, const void *b)
{
    const struct span *left = a;
    const struct span *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

static bool
spans_overlap(struct span *spans, uint32_t count)
{
    qsort(spans, count, sizeof(*spans), span_compare);
    for (uint32_t i = 1; i < count; i++) {
        if (spans[i - 1].begin + spans[i - 1].size > spans[i].begin)
            return true;
    }
    return false;
}

/* Two destinations that overlap could not both be right. Of layouts the slots are compared. */
static enum kvt_status
destinations_check(struct kvt_store *store, const struct kvt_get *gets, uint32_t count)
{
    struct span few[SPANS_ON_STACK];
    struct span *spans = few;
    uint32_t slot_count = 0;
    bool is_overlapping;

    if (count == 1)
        return KVT_OK;
    if (count > SPANS_ON_STACK)
        spans = env_take(&store->env, count * sizeof(*spans));
    if (spans == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to check %u destinations", count);
    for (uint32_t i = 0; i < count; i++) {
        spans[i] = (struct span){(uintptr_t)gets[i].destination, gets[i].capacity};
        slot_count += gets[i].layout.id != 0;
    }
    is_overlapping = spans_overlap(spans, count);
    if (slot_count > 1 && !is_overlapping) {
        slot_count = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (gets[i].layout.id != 0)
                spans[slot_count++] =
                    (struct span){(uint64_t)gets[i].layout.id << 32 | gets[i].slot, 1};
        }
        is_overlapping = spans_overlap(spans, slot_count);
    }
    if (spans != few)
        env_put(&store->env, spans, count * sizeof(*spans));
    if (is_overlapping)
        return failure_set(
            KVT_E_INVAL, 0, "two destinations of the batch overlap, or are one slot of a layout");
    return KVT_OK;
}

/* Either all gets come part by part, and the same parts, or none does. */
static enum kvt_status
by_part_check(const struct kvt_get *gets, uint32_t count)
{
    bool is_by_part = (gets[0].flags & KVT_GET_BY_PART) != 0;

    for (uint32_t i = 0; i < count; i++) {
        if (((gets[i].flags & KVT_GET_BY_PART) != 0) != is_by_part)
            return failure_set(KVT_E_INVAL, 0,
                "block %u: KVT_GET_BY_PART is for all gets of a submission or for none", i);
        if (is_by_part &&
            (gets[i].part_first != gets[0].part_first || gets[i].part_count != gets[0].part_count ||
                gets[i].part_count == 0 || gets[i].part_count > KVT_PARTS_MAX ||
                gets[i].capacity % gets[i].part_count != 0))
            return failure_set(KVT_E_INVAL, 0,
                "block %u: part by part: part_count %u is not in 1..%u, or does not divide "
                "capacity, or these are other parts than block 0's",
                i, gets[i].part_count, KVT_PARTS_MAX);
    }
    /* Behind these a number would begin anew at 0. */
    if (is_by_part && gets[0].part_first + gets[0].part_count > (int)KVT_PARTS_MAX)
        return failure_set(KVT_E_INVAL, 0, "%u parts from part %u on: a block has %u at most",
            gets[0].part_count, gets[0].part_first, KVT_PARTS_MAX);
    if (is_by_part && count > KVT_BATCH_MAX / gets[0].part_count)
        return failure_set(KVT_E_INVAL, 0, "%u blocks of %u parts: more than %u parts in all",
            count, gets[0].part_count, KVT_BATCH_MAX);
    return KVT_OK;
}

static enum kvt_status
op_import_whole(struct kvt_store *store, struct op *op, const struct kvt_get *get, uint32_t index)
{
    KVT_TRY(op_import_destination(store, op, get, index));
    return op_import_get(op, get, index);
}

/* One operation for each part of the block that is wanted. */
static enum kvt_status
ops_import_by_part(
    struct kvt_store *store, struct kvt_ticket *ticket, const struct kvt_get *get, uint32_t index)
{
    const struct op *first = &ticket->ops[index];
    struct kvt_get part = *get;

    part.capacity = get->capacity / get->part_count;
    part.part_count = 1;
    for (uint32_t i = 0; i < ticket->part_total; i++) {
        struct op *op = &ticket->ops[i * ticket->block_count + index];

        op->key = first->key;
        op->fingerprint = first->fingerprint;
        op->namespace_epoch = first->namespace_epoch;
        part.part_first = (uint16_t)(get->part_first + i);
        if (i > 0 && first->layout != NULL) {
            layout_share(op, first);
        } else {
            KVT_TRY(op_import_destination(store, op, &part, index));
            if (first->layout == NULL)
                part.destination = (uint8_t *)part.destination + part.capacity;
        }
        KVT_TRY(op_import_get(op, &part, index));
    }
    return KVT_OK;
}

static enum kvt_status
gets_import(struct kvt_ticket *ticket, kvt_namespace ns, const struct kvt_get *gets)
{
    struct kvt_store *store = ticket->store;
    int mark_device = -1;

    _Static_assert(KVT_DEVICES_MAX <= 8, "a bit of ticket->device_mask for each");
    for (uint32_t i = 0; i < ticket->block_count; i++) {
        KVT_TRY(op_import_key(store, &ticket->ops[i], ns, &gets[i].key, i));
        if (ticket->is_by_part)
            KVT_TRY(ops_import_by_part(store, ticket, &gets[i], i));
        else
            KVT_TRY(op_import_whole(store, &ticket->ops[i], &gets[i], i));
        if (ticket->ops[i].memory_device < 0)
            continue;
        ticket->device_mask |= (uint8_t)(1u << ticket->ops[i].memory_device);
        if (mark_device < 0)
            mark_device = ticket->ops[i].memory_device;
    }
    ticket->part_first = gets[0].part_first;
    if (ticket->is_by_part || mark_device >= 0)
        ticket_parts_init(ticket, mark_device);
    return destinations_check(store, gets, ticket->block_count);
}

enum kvt_status
kvt_get_submit(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets, uint32_t count,
    const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status = KVT_OK;

    KVT_TRY(submission_check(store, ns, gets, count, ticket_out));
    KVT_TRY(by_part_check(gets, count));
    if ((gets[0].flags & KVT_GET_BY_PART) != 0)
        KVT_TRY(ticket_create_by_part(store, count, gets[0].part_count, submit, &ticket));
    else
        KVT_TRY(ticket_create(store, TICKET_GET, count, submit, &ticket));
    status = gets_import(ticket, ns, gets);
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

static enum kvt_status
prefetch_check(struct kvt_store *store, const struct kvt_prefetch *how)
{
    if (how == NULL)
        return failure_set(KVT_E_INVAL, 0, "how is NULL");
    if (how->struct_size != sizeof(*how))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_prefetch has %zu",
            how->struct_size, sizeof(*how));
    if ((how->flags & ~(uint32_t)KVT_PREFETCH_BULK) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "flags 0x%x: only KVT_PREFETCH_BULK is known", how->flags);
    if (how->tier == KVT_TIER_HOST)
        return KVT_OK;
    if (how->tier != KVT_TIER_HBM)
        return failure_set(
            KVT_E_INVAL, 0, "tier %u is neither KVT_TIER_HBM nor KVT_TIER_HOST", how->tier);
    return hbm_check(store, how->device);
}

/* A ticket over keys only. */
static enum kvt_status
keys_import(struct kvt_ticket *ticket, kvt_namespace ns, const struct kvt_key *keys, uint32_t tier,
    uint32_t device)
{
    for (uint32_t i = 0; i < ticket->count; i++) {
        struct op *op = &ticket->ops[i];

        KVT_TRY(op_import_key(ticket->store, op, ns, &keys[i], i));
        op->target = (uint8_t)tier;
        op->device = (uint8_t)device;
    }
    return KVT_OK;
}

/* After the checks. */
static enum kvt_status
prefetch_send(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct kvt_prefetch *how, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(ticket_create(store, TICKET_PREFETCH, count, submit, &ticket));
    ticket->deadline_ns = how->deadline_ns == 0 ? KVT_FOREVER : how->deadline_ns;
    ticket->is_bulk = (how->flags & KVT_PREFETCH_BULK) != 0;
    status = keys_import(ticket, ns, keys, how->tier, how->device);
    if (status != KVT_OK)
        return ticket_refuse(ticket, status);
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}

enum kvt_status
kvt_prefetch_submit(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct kvt_prefetch *how, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    KVT_TRY(submission_check(store, ns, keys, count, ticket_out));
    KVT_TRY(prefetch_check(store, how));
    return prefetch_send(store, ns, keys, count, how, submit, ticket_out);
}

enum kvt_status
kvt_lookup_prefetch(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    const struct kvt_prefetch *how, uint8_t *tiers_out, uint32_t *leading_out, kvt_lease *lease_out,
    kvt_ticket **ticket_out)
{
    struct lookup_leading leading;
    kvt_ticket *ticket = NULL;

    if (lease_out != NULL)
        lease_out->id = 0;
    if (ticket_out != NULL)
        *ticket_out = NULL;
    KVT_TRY(store_enter(store));
    KVT_TRY(prefetch_check(store, how));
    KVT_TRY(lookup_chain(store, ns, keys, count, tiers_out, &leading, lease_out));
    if (leading_out != NULL)
        *leading_out = leading.count;
    if (leading.count == (how->tier == KVT_TIER_HBM ? leading.hbm_count : leading.memory_count))
        return KVT_OK;
    if (prefetch_send(store, ns, keys, leading.count, how, NULL, &ticket) != KVT_OK)
        COUNT(store, prefetch_skip_count, leading.count);
    if (ticket_out != NULL)
        *ticket_out = ticket;
    else
        kvt_ticket_free(ticket);
    return KVT_OK;
}

enum kvt_status
kvt_demote_submit(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint32_t tier, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(submission_check(store, ns, keys, count, ticket_out));
    if (tier != KVT_TIER_HOST && tier != KVT_TIER_NVME)
        return failure_set(
            KVT_E_INVAL, 0, "tier %u is neither KVT_TIER_HOST nor KVT_TIER_NVME", tier);
    if (tier == KVT_TIER_NVME)
        KVT_TRY(commits_check(store));
    KVT_TRY(ticket_create(store, TICKET_DEMOTE, count, submit, &ticket));
    status = keys_import(ticket, ns, keys, tier, 0);
    if (status != KVT_OK)
        return ticket_refuse(ticket, status);
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}
