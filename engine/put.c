/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - one block from the caller's memory into HOST, and on to durability.
 *
 * Threads   the loop; the copy and the checksum run on a worker.
 */
#include "store_internal.h"

/* A worker's copy of the source into the slot. */
struct fill {
    struct job job;
    struct op *op;
    struct flight *flight;
    struct slot slot;
    void *target;
    struct hash128 checksum;
};

static void
fill_run(struct crew_job *crew_job)
{
    struct fill *fill = CONTAINER_OF(crew_job, struct fill, job.crew);
    uint64_t length = fill->op->length;
    uint64_t padded = round_up(length, PAGE_BYTES);

    memcpy(fill->target, fill->op->source, length);
    memset((char *)fill->target + length, 0, padded - length);
    fill->checksum = hash_payload(fill->target, length);
}

/* The block is there already: what the put still has to wait for. */
static void
put_join_durable(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = entries_at(store->entries, number);
    struct flight *flight = state->flight;
    uint64_t due_ns = store->now_ns;

    if ((word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed)) & TIER_NVME) != 0) {
        op_reach(store, op, 2, KVT_EXISTS);
        return;
    }
    if (op->ticket->durability == KVT_RELAXED)
        due_ns += store->options.relaxed_interval_ns;
    if (flight == NULL) {
        flight = flight_create(store, number, FLIGHT_QUEUED);
        if (flight == NULL) {
            op_reach(store, op, 2, KVT_E_NOMEM);
            return;
        }
        op_list_add(&flight->durable_waiters, op);
        commit_queue(store, flight, due_ns);
        return;
    }
    flight->is_demotion = false;
    op_list_add(&flight->durable_waiters, op);
    commit_hurry(store, flight, due_ns);
}

static void
put_exists(struct kvt_store *store, struct op *op, uint32_t number)
{
    bool has_stage_2 = op->ticket->last_stage == 2;

    COUNT(store, put_exists_count, 1);
    /* Found without children of its own being used: a put counts as a use. */
    entry_touch(store, number);
    /* The answer of the last stage gives the ticket back to the caller, who may free it. */
    op_reach(store, op, 1, KVT_EXISTS);
    if (has_stage_2)
        put_join_durable(store, op, number);
}

/* Everything the entry and its policy state take from the put. */
static void
entry_describe(struct kvt_store *store, uint32_t number, const struct op *op, struct slot slot)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = entries_at(store->entries, number);

    entry->length = (uint32_t)op->length;
    entry->stored_length = (uint32_t)op->length;
    entry->host_slot = slot.number;
    entry->host_generation = slot.generation;
    entry->sequence = 0;
    state->depth = op->depth;
    state->token_start = op->token_start;
    state->token_count = op->token_count;
    state->recompute_us = op->recompute_us;
    state->importance = op->importance;
    state->class_id = op->class_id;
    state->hint = op->hint & 3u;
    if (!hash128_is_zero(op->parent))
        entries_link(store->entries, number, residency_find_fingerprint(store->map, op->parent));
}

/* Operations that waited for a fill or a read start again. */
static void
waiters_restart(struct kvt_store *store, struct op_list *waiters)
{
    struct op *op;

    while ((op = op_list_take(waiters)) != NULL)
        op_begin(store, op);
}

static void
put_visible(struct kvt_store *store, struct fill *fill)
{
    struct op *op = fill->op;
    struct flight *flight = fill->flight;
    uint32_t number = flight->entry;
    struct namespace_state *space = namespace_at(store, op->key.namespace_id);

    residency_at(store->map, number)->checksum = fill->checksum;
    residency_publish(store->map, number, TIER_HOST);
    entry_host_add(store, number);
    space->block_count++;
    space->block_bytes += op->length;
    COUNT(store, put_count, 1);
    COUNT(store, put_bytes, op->length);
    histogram_add(&store->latencies.put_visible_ns, store->now_ns - op->ticket->submit_ns);
    if (op->ticket->last_stage == 2) {
        uint64_t due_ns = store->now_ns;

        if (op->ticket->durability == KVT_RELAXED)
            due_ns += store->options.relaxed_interval_ns;
        op_list_add(&flight->durable_waiters, op);
        commit_queue(store, flight, due_ns);
    } else {
        /* Nothing promises that it will be durable: until it is, a crash may leave neither. */
        commit_replace_end(store, flight);
        flight_destroy(store, flight);
    }
    op_reach(store, op, 1, KVT_OK);
}

static void
put_filled(struct kvt_store *store, struct job *job)
{
    struct fill *fill = CONTAINER_OF(job, struct fill, job);
    struct op *op = fill->op;
    struct flight *flight = fill->flight;
    struct op_list waiters = flight->waiters;
    struct namespace_state *space = namespace_at(store, op->key.namespace_id);

    store->fills_in_flight--;
    flight->waiters = (struct op_list){NULL, NULL};
    if (atomic_load_explicit(&space->epoch, memory_order_relaxed) != op->namespace_epoch) {
        /* The namespace was cleared meanwhile: the put leaves nothing. */
        uint32_t number = flight->entry;

        commit_replace_end(store, flight);
        flight_destroy(store, flight);
        store->policy->ops->unprepare(store->policy, number);
        entries_unlink(store->entries, number);
        residency_discard(store->map, number);
        room_put(store, fill->slot);
        op_finish(store, op, KVT_MISS);
    } else {
        put_visible(store, fill);
    }
    env_put(&store->env, fill, sizeof(*fill));
    waiters_restart(store, &waiters);
    store->room_changed = true;
}

/* Start the copy into a slot that was taken. `replaced` (may be NULL) is the kill of the block
 * whose place it takes. */
static enum kvt_status
put_fill(
    struct kvt_store *store, struct op *op, struct slot slot, const struct commit_kill *replaced)
{
    struct fill *fill = env_take(&store->env, sizeof(*fill));
    uint32_t number;
    enum kvt_status status = KVT_E_NOMEM;

    if (fill == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a put");
    KVT_TRY_GOTO(residency_insert(store->map, op->fingerprint, &op->key, &number), put_back_fill);
    KVT_TRY_GOTO(entries_reserve(store->entries, number), discard);
    KVT_TRY_GOTO(store->policy->ops->prepare(store->policy, number), discard);
    fill->flight = flight_create(store, number, FLIGHT_FILLING);
    if (fill->flight == NULL) {
        status = KVT_E_NOMEM;
        goto unprepare;
    }
    entry_describe(store, number, op, slot);
    if (replaced != NULL)
        commit_replace(store, fill->flight, replaced);
    fill->op = op;
    fill->slot = slot;
    fill->target = slab_address(store->slab, slot);
    fill->job.crew.run = fill_run;
    fill->job.finish = put_filled;
    store->fills_in_flight++;
    loop_job(store, &fill->job);
    return KVT_OK;

unprepare:
    store->policy->ops->unprepare(store->policy, number);
discard:
    residency_discard(store->map, number);
put_back_fill:
    env_put(&store->env, fill, sizeof(*fill));
    return status;
}

/* Into the place of the block that is there (ENTRY_NONE: none). */
static enum kvt_status
put_place(struct kvt_store *store, struct op *op, uint32_t number, struct slot slot)
{
    struct commit_kill kill;
    bool has_kill = false;
    enum kvt_status status;

    if (number != ENTRY_NONE)
        KVT_TRY(entry_replace(store, number, &kill, &has_kill));
    status = put_fill(store, op, slot, has_kill ? &kill : NULL);
    if (status != KVT_OK && has_kill)
        (void)commit_kill(store, &kill); /* Room was reserved. */
    return status;
}

/* For the flight's end: until a copy is filled, and, to replace one, until it is known where it
 * stands. After a write that failed, those who waited for that have their turn first. */
static bool
put_must_wait(const struct flight *flight, bool is_replace)
{
    return flight->state == FLIGHT_FILLING || (is_replace && flight->state == FLIGHT_WRITING) ||
           (is_replace && flight->state == FLIGHT_QUEUED && flight->waiters.first != NULL);
}

void
put_begin(struct kvt_store *store, struct op *op)
{
    struct namespace_state *space = namespace_at(store, op->key.namespace_id);
    uint32_t number = residency_find(store->map, op->fingerprint, &op->key);
    struct slot slot;
    enum kvt_status status;

    if (atomic_load_explicit(&space->epoch, memory_order_relaxed) != op->namespace_epoch) {
        op_finish(store, op, KVT_MISS);
        return;
    }
    if (number != ENTRY_NONE) {
        struct flight *flight = entries_at(store->entries, number)->flight;

        bool is_replace = (op->flags & KVT_PUT_REPLACE) != 0;

        if (flight != NULL && put_must_wait(flight, is_replace)) {
            op_list_add(&flight->waiters, op);
            return;
        }
        if (!is_replace) {
            put_exists(store, op, number);
            return;
        }
        if (relocate_wait(store, number, op))
            return;
    }
    status = room_take(store, round_up(op->length, PAGE_BYTES), &slot);
    if (status == KVT_NOT_READY) {
        room_wait(store, op);
        return;
    }
    /* Making room may have dropped the block that is to be replaced. */
    number = residency_find(store->map, op->fingerprint, &op->key);
    if (status == KVT_OK) {
        status = put_place(store, op, number, slot);
        if (status != KVT_OK)
            room_put(store, slot);
    }
    if (status != KVT_OK) {
        COUNT(store, put_refused_count, 1);
        op_finish(store, op, status);
    }
}
