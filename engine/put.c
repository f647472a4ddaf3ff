/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - one block from the caller's memory into HBM or HOST, and on to durability.
 *
 * Threads   the loop; copies run on workers and devices, checksums on workers.
 */
#include "store_internal.h"

/* The slots that a put fills: one of HOST, of HBM, or of both. */
struct put_slots {
    bool has_host, has_hbm;
    struct slot host, hbm;
};

/*
 * A put whose bytes are on their way into slots.
 *
 *   memory of a device, or in a region  --copies of the device-->  HBM slot, HOST slot
 *   other memory                        --worker-->                HOST slot
 *   (direct.c: the caller has written it)                          HOST slot
 *
 * then, with a HOST slot, a worker's checksum over it.
 */
struct fill {
    struct job job;
    struct op *op;
    struct flight *flight;
    struct hash128 checksum;
    uint8_t *host_memory;   /* Of the HOST slot; NULL: none. */
    enum kvt_status status; /* Of the copies. */
    uint8_t turn;           /* patience.h */
    bool is_copied;         /* HOST's, by the device or the caller: only the checksum is left. */
    struct put_slots slots;
    struct fill_copies *copies; /* NULL: no device has to do with it. */
};

/* The copies that a device makes for a fill: to HBM, to HOST. */
struct fill_copies {
    struct device_job hbm, host;
    struct fill *fill;
    uint32_t left;
};

static void
fill_destroy(struct kvt_store *store, struct fill *fill)
{
    pool_put(&store->fill_copies_pool, fill->copies);
    pool_put(&store->fill_pool, fill);
}

/* NULL: no memory. */
static struct fill *
fill_create(struct kvt_store *store, bool has_copies)
{
    struct fill *fill = pool_take(&store->fill_pool);

    if (fill == NULL || !has_copies)
        return fill;
    fill->copies = pool_take(&store->fill_copies_pool);
    if (fill->copies != NULL)
        return fill;
    fill_destroy(store, fill);
    return NULL;
}

/* The block's bytes, of host memory. */
static void
source_load(const struct op *op, uint8_t *target)
{
    struct spread spread;

    if (op->layout == NULL) {
        memcpy(target, op->source, op->length);
        return;
    }
    spread = op_spread(op, 0, op->length, target);
    spread_gather(&spread);
}

static void
fill_run(struct crew_job *crew_job)
{
    struct fill *fill = CONTAINER_OF(crew_job, struct fill, job.crew);
    uint64_t length = fill->op->length;
    uint64_t padded = round_up(length, PAGE_BYTES);

    if (!fill->is_copied)
        source_load(fill->op, fill->host_memory);
    memset(fill->host_memory + length, 0, padded - length);
    /* The parts of others are summed up one by one, for their trailer (imaging.c). */
    if (fill->op->part_count == 1)
        fill->checksum = hash_payload(fill->host_memory, length);
}

/* What shall be durable is written from HOST. */
static void
put_lower(struct kvt_store *store, struct op *op, uint32_t number)
{
    enum kvt_status status =
        op->is_lowered ? op_moved_status(op, KVT_E_GPU) : move_down(store, number, &op->patience);

    if (status == KVT_OK) {
        op->is_lowered = true;
        op_await(store, op, number);
    } else if (status == KVT_NOT_READY) {
        room_wait(store, POLICY_HOST, op);
    } else {
        op_reach(store, op, 2, status);
    }
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
    /* FILLING: another block of the key, put since; it has no bytes yet that could be durable. */
    if (flight != NULL && (flight->state == FLIGHT_LOWERING || flight->state == FLIGHT_RAISING ||
                              flight->state == FLIGHT_FILLING)) {
        op_await(store, op, number);
        return;
    }
    if (flight == NULL && (entry_tiers(store, number) & TIER_HOST) == 0) {
        put_lower(store, op, number);
        return;
    }
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

/* The put found its block there, and waited until that may have come to HOST. */
static void
put_join_again(struct kvt_store *store, struct op *op, uint32_t number)
{
    if (number != ENTRY_NONE)
        op_look(store, op, number);
    if (number == ENTRY_NONE || op_is_outrun(op))
        op_reach(store, op, 2, KVT_MISS);
    else
        put_join_durable(store, op, number);
}

static void
parent_link(struct kvt_store *store, uint32_t number, const struct op *op)
{
    if (!hash128_is_zero(op->parent))
        entries_link(store->entries, number, residency_find_fingerprint(store->map, op->parent));
}

/* Its parent left, and is back: without the link that would be the end of its chain. Where it is
 * not made (entries_link), the next put tries again. */
static void
parent_relink(struct kvt_store *store, uint32_t number, const struct op *op)
{
    uint32_t parent;

    if (entries_parent(store->entries, number) != ENTRY_NONE)
        return;
    parent_link(store, number, op);
    parent = entries_parent(store->entries, number);
    if (parent != ENTRY_NONE)
        store->policy->ops->recheck(store->policy, parent);
}

static void
put_exists(struct kvt_store *store, struct op *op, uint32_t number)
{
    bool has_stage_2 = op->ticket->last_stage == 2;

    COUNT(store, put_exists_count, 1);
    parent_relink(store, number, op);
    /* Found without children of its own being used: a put counts as a use. */
    entry_touch(store, number);
    /* The answer of the last stage gives the ticket back to the caller, who may free it. */
    op_reach(store, op, 1, KVT_EXISTS);
    if (has_stage_2)
        put_join_durable(store, op, number);
}

/* Everything the entry and its policy state take from the put. */
static void
entry_describe(struct kvt_store *store, uint32_t number, const struct op *op)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = entries_at(store->entries, number);

    entry->length = (uint32_t)op->length;
    entry->stored_length = (uint32_t)op->length;
    entry->parts_less = (op->part_count - 1u) & (RECORD_PARTS_MAX - 1u);
    entry->has_trailer = 0;
    entry->sequence = 0;
    state->depth = op->depth;
    state->token_start = op->token_start;
    state->token_count = op->token_count;
    state->recompute_us = op->recompute_us;
    state->importance = op->importance;
    state->class_id = op->class_id;
    state->hint = op->hint & 3u;
    parent_link(store, number, op);
}

static void
copies_unprepare(struct kvt_store *store, uint32_t number, const struct put_slots *slots)
{
    if (slots->has_hbm)
        entry_unprepare(store, number);
    if (slots->has_host)
        entry_unprepare(store, number);
}

/* The policy can take what the put will bring. */
static enum kvt_status
copies_prepare(struct kvt_store *store, uint32_t number, const struct put_slots *slots)
{
    enum kvt_status status = entry_prepare(store, number);

    if (status == KVT_OK && slots->has_hbm && slots->has_host) {
        status = entry_prepare(store, number);
        if (status != KVT_OK)
            entry_unprepare(store, number);
    }
    return status;
}

/* Nothing was copied into them. */
static void
slots_put(struct kvt_store *store, uint32_t device, const struct put_slots *slots)
{
    if (slots->has_host)
        room_put(store, POLICY_HOST, slots->host);
    if (slots->has_hbm)
        room_put(store, place_of_device(device), slots->hbm);
}

static void
put_visible(struct kvt_store *store, struct fill *fill)
{
    struct op *op = fill->op;
    struct flight *flight = fill->flight;
    uint32_t number = flight->entry;
    struct namespace_state *space = namespace_at(store, op->key.namespace_id);

    residency_at(store->map, number)->checksum = fill->checksum;
    entry_publish(store, number, fill->slots.has_hbm ? &fill->slots.hbm : NULL,
        fill->slots.has_host ? &fill->slots.host : NULL, op->device);
    space->block_count++;
    space->block_bytes += op->length;
    COUNT(store, put_count, 1);
    COUNT(store, put_bytes, op->length);
    histogram_add(&store->latencies.put_visible_ns, ticket_age_ns(store, op->ticket));
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

/* What the put would have filled. `job` (NULL: there is none) may still be under way. */
static void
fill_slot_put(struct kvt_store *store, enum policy_place place, struct slot slot,
    const struct device_job *job)
{
    if (job == NULL)
        room_put(store, place, slot);
    else
        copy_slot_put(store, place, slot, &job->move);
}

/* The put leaves nothing. */
static void
put_abandon(struct kvt_store *store, struct fill *fill, enum kvt_status status)
{
    struct flight *flight = fill->flight;
    uint32_t number = flight->entry;

    commit_replace_end(store, flight);
    flight_destroy(store, flight);
    copies_unprepare(store, number, &fill->slots);
    store->policy->ops->leave(store->policy, number, false);
    entries_unlink(store->entries, number);
    residency_discard(store->map, number);
    fates_note(
        store, fill->op->fingerprint, status == KVT_MISS ? KVT_FATE_CLEARED : KVT_FATE_PUT_FAILED);
    if (fill->slots.has_host)
        fill_slot_put(store, POLICY_HOST, fill->slots.host,
            fill->copies != NULL ? &fill->copies->host : NULL);
    if (fill->slots.has_hbm)
        fill_slot_put(
            store, place_of_device(fill->op->device), fill->slots.hbm, &fill->copies->hbm);
    op_finish(store, fill->op, status);
}

static void
put_filled(struct kvt_store *store, struct fill *fill)
{
    struct op_list waiters = fill->flight->waiters;
    struct namespace_state *space = namespace_at(store, fill->op->key.namespace_id);

    work_end(store, &store->fills_in_flight, fill->turn);
    fill->flight->waiters = (struct op_list){NULL, NULL};
    if (fill->status != KVT_OK)
        put_abandon(store, fill, fill->status);
    else if (atomic_load_explicit(&space->epoch, memory_order_relaxed) != fill->op->namespace_epoch)
        put_abandon(store, fill, KVT_MISS); /* The namespace was cleared meanwhile. */
    else
        put_visible(store, fill);
    fill_destroy(store, fill);
    ops_restart(store, &waiters, KVT_OK);
    store->room_changed = true;
}

static void
fill_summed(struct kvt_store *store, struct job *job)
{
    put_filled(store, CONTAINER_OF(job, struct fill, job));
}

/* One of the device's copies is there. */
static void
fill_copied(struct kvt_store *store, struct fill *fill, enum kvt_status status)
{
    fill->status = status_keep(fill->status, status);
    if (--fill->copies->left > 0)
        return;
    fill->is_copied = fill->op->memory_device >= 0;
    if (fill->status == KVT_OK && fill->slots.has_host)
        loop_job(store, &fill->job);
    else
        put_filled(store, fill);
}

static void
fill_hbm_copied(struct kvt_store *store, struct device_job *job)
{
    fill_copied(store, CONTAINER_OF(job, struct fill_copies, hbm)->fill, job->move.status);
}

static void
fill_host_copied(struct kvt_store *store, struct device_job *job)
{
    fill_copied(store, CONTAINER_OF(job, struct fill_copies, host)->fill, job->move.status);
}

/* Send one copy that the device makes. */
static void
source_copy(struct kvt_store *store, const struct op *op, struct device_job *job,
    enum device_lane lane, uint8_t *target)
{
    struct spread spread;

    if (op->layout == NULL) {
        device_job_copy(store, job, lane,
            &(struct device_piece){.target = target, .source = op->source, .size = op->length});
        return;
    }
    spread = op_spread(op, 0, op->length, target);
    device_job_spread(store, job, lane, &spread, true);
}

/* Send the copies that the device makes. */
static void
fill_copy(struct kvt_store *store, struct fill *fill)
{
    struct op *op = fill->op;
    struct fill_copies *copies = fill->copies;
    enum device_lane hbm_lane = op->memory_device >= 0 ? DEVICE_OUT : DEVICE_IN;
    uint32_t device = op->memory_device >= 0 ? (uint32_t)op->memory_device : op->device;
    bool is_host_copied = fill->slots.has_host && op->memory_device >= 0;

    *copies = (struct fill_copies){.hbm = {.device = device, .finish = fill_hbm_copied},
        .host = {.device = device, .finish = fill_host_copied},
        .fill = fill,
        .left = (uint32_t)fill->slots.has_hbm + (uint32_t)is_host_copied};
    if (fill->slots.has_hbm)
        source_copy(store, op, &copies->hbm, hbm_lane,
            slab_address(place_slab(store, place_of_device(device)), fill->slots.hbm));
    if (is_host_copied)
        source_copy(store, op, &copies->host, DEVICE_OUT, fill->host_memory);
}

/* Everything of a put that can fail, for slots that were taken: its entry, which nobody finds yet,
 * and its flight. */
static enum kvt_status
fill_prepare(
    struct kvt_store *store, struct op *op, const struct put_slots *slots, struct fill **fill_out)
{
    struct fill *fill = fill_create(store, slots->has_hbm || op->memory_device >= 0);
    uint32_t number;
    enum kvt_status status = KVT_E_NOMEM;

    *fill_out = NULL;
    if (fill == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a put");
    KVT_TRY_GOTO(residency_insert(store->map, op->fingerprint, &op->key, &number), put_back_fill);
    KVT_TRY_GOTO(entries_reserve(store->entries, number), discard);
    entry_describe(store, number, op);
    costs_note(store, op);
    store->policy->ops->arrive(store->policy, &number, 1, store->now_ns);
    KVT_TRY_GOTO(copies_prepare(store, number, slots), leave);
    fill->flight = flight_create(store, number, FLIGHT_FILLING);
    if (fill->flight == NULL) {
        status = KVT_E_NOMEM;
        goto unprepare;
    }
    fill->op = op;
    fill->slots = *slots;
    *fill_out = fill;
    return KVT_OK;

unprepare:
    copies_unprepare(store, number, slots);
leave:
    store->policy->ops->leave(store->policy, number, false);
    entries_unlink(store->entries, number);
discard:
    residency_discard(store->map, number);
put_back_fill:
    fill_destroy(store, fill);
    return status;
}

static void
fill_start(struct kvt_store *store, struct fill *fill)
{
    fill->job.crew.run = fill_run;
    fill->job.finish = fill_summed;
    fill->job.crew.is_short = fill->op->length <= SHORT_JOB_BYTES;
    fill->is_copied = fill->op->is_direct;
    if (fill->slots.has_host)
        fill->host_memory = slab_address(store->slab, fill->slots.host);
    fill->turn = work_begin(store, &store->fills_in_flight);
    if (fill->copies != NULL)
        fill_copy(store, fill);
    else
        loop_job(store, &fill->job);
}

/* The block that is there leaves; its kill goes with the one that takes its place. */
static void
fill_replace(struct kvt_store *store, struct fill *fill, uint32_t number)
{
    struct commit_kill kill;
    bool has_kill = false;
    enum kvt_status status = entry_replace(store, number, &kill, &has_kill);

    KVT_ASSERT(status == KVT_OK); /* Room was reserved. */
    (void)status;
    if (has_kill)
        commit_replace(store, fill->flight, &kill);
}

/* Into the place of the block that is there (ENTRY_NONE: none), which a refusal leaves there. */
static enum kvt_status
put_place(struct kvt_store *store, struct op *op, uint32_t number, const struct put_slots *slots)
{
    struct fill *fill;

    if (number != ENTRY_NONE)
        KVT_TRY(commit_kill_reserve(store));
    KVT_TRY(fill_prepare(store, op, slots, &fill));
    if (number != ENTRY_NONE)
        fill_replace(store, fill, number);
    fill_start(store, fill);
    return KVT_OK;
}

/* For the flight's end: until a copy is filled, and, to replace one, until it is known where it
 * stands. After a write that failed, those who waited for that have their turn first. */
static bool
put_must_wait(const struct flight *flight, bool is_replace)
{
    return flight->state == FLIGHT_FILLING || (is_replace && flight->state == FLIGHT_WRITING) ||
           (is_replace && flight_is_waiting(flight) && flight->waiters.first != NULL);
}

/* An entry for the put's block; `number` (ENTRY_NONE: none) is that of the block that it replaces,
 * whose own comes free with it unless somebody holds it. KVT_NOT_READY: the operation waits. */
static enum kvt_status
put_map_room(struct kvt_store *store, struct op *op, uint32_t number)
{
    enum kvt_status status;

    if (number != ENTRY_NONE && !entry_is_held(store, number))
        return KVT_OK;
    status = map_room_make(store, number, op->key.namespace_id, &op->patience);
    if (status == KVT_NOT_READY)
        room_wait(store, POLICY_HOST, op);
    return status;
}

/*
 * The slots that the put needs. What shall be durable is copied to HOST at once, even if it is kept
 * in HBM first: it is written from there. KVT_NOT_READY: the operation waits.
 */
static enum kvt_status
put_room(struct kvt_store *store, struct op *op, struct put_slots *slots_out)
{
    struct room_want want = {.namespace_id = op->key.namespace_id,
        .size = round_up(op->length, PAGE_BYTES),
        .patience = &op->patience,
        .is_in_line = true};
    enum policy_place hbm = place_of_device(op->device);
    enum kvt_status status = KVT_OK;

    *slots_out = (struct put_slots){
        .has_hbm = op->target == KVT_TIER_HBM,
        .has_host = op->target == KVT_TIER_HOST || op->ticket->last_stage == 2,
    };
    if (op->has_slot) {
        slots_out->host = slab_slot(store->slab, op->slot);
        op->has_slot = false;
        return KVT_OK;
    }
    if (slots_out->has_hbm) {
        want.place = hbm;
        status = room_take(store, &want, &slots_out->hbm);
        if (status == KVT_NOT_READY)
            room_wait(store, hbm, op);
        KVT_TRY(status);
    }
    if (slots_out->has_host) {
        want.place = POLICY_HOST;
        status = room_take(store, &want, &slots_out->host);
        if (status != KVT_OK && slots_out->has_hbm)
            room_untake(store, hbm, slots_out->hbm);
        if (status == KVT_NOT_READY)
            room_wait(store, POLICY_HOST, op);
    }
    return status;
}

/* The same beside the block that the put replaces (ENTRY_NONE: none): unless NVMe has that, its
 * copies are not what room is made of, as the put may still be refused. */
static enum kvt_status
put_room_beside(
    struct kvt_store *store, struct op *op, uint32_t number, struct put_slots *slots_out)
{
    bool is_kept = number != ENTRY_NONE && (entry_tiers(store, number) & TIER_NVME) == 0;
    uint64_t vain_until_ns = store->kept_hand.vain_until_ns;
    enum kvt_status status;

    if (is_kept)
        residency_pin(store->map, number);
    status = put_room(store, op, slots_out);
    if (is_kept) {
        lease_unpin(store, number);
        store->kept_hand.vain_until_ns = vain_until_ns; /* Others may have its room. */
    }
    return status;
}

/* The entry of the put's key. A block whose only copy was a lost device's gives way: nobody can
 * read it, but a lease may still hold it. */
static uint32_t
put_find(struct kvt_store *store, const struct op *op)
{
    uint32_t number = residency_find_near(store->map, op->near, op->fingerprint, &op->key);
    uint64_t word;

    if (number == ENTRY_NONE || entries_at(store->entries, number)->flight != NULL)
        return number;
    word = atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);
    if (word_state(word) != ENTRY_RESIDENT || entry_tiers(store, number) != 0)
        return number;
    (void)entry_drop(store, number, true, KVT_REASON_DEVICE_LOST);
    return ENTRY_NONE;
}

/* Blocks of one submission come in their order: a child that came before its parent would have no
 * link to it. */
static bool
put_waits_behind(struct kvt_store *store, struct op *op)
{
    for (uint32_t place = 0; place < POLICY_NVME; place++) {
        const struct op_list *waiters = &store->room_waiters[place];

        if (waiters->first != NULL && waiters->last->ticket == op->ticket) {
            room_wait(store, (enum policy_place)place, op);
            return true;
        }
    }
    return false;
}

void
put_begin(struct kvt_store *store, struct op *op)
{
    struct namespace_state *space = namespace_at(store, op->key.namespace_id);
    uint32_t number = put_find(store, op);
    struct put_slots slots;
    enum kvt_status status;

    if (op->is_reached[0]) {
        put_join_again(store, op, number);
        return;
    }
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
        if (relocate_wait(store, op))
            return;
    }
    if (put_waits_behind(store, op))
        return;
    status = put_map_room(store, op, number);
    if (status == KVT_OK)
        status = put_room_beside(store, op, number, &slots);
    if (status == KVT_NOT_READY)
        return;
    if (status == KVT_OK) {
        status = put_place(store, op, number, &slots);
        if (status != KVT_OK)
            slots_put(store, op->device, &slots);
    }
    if (status != KVT_OK) {
        COUNT(store, put_refused_count, 1);
        if (number == ENTRY_NONE)
            fates_note(store, op->fingerprint, KVT_FATE_PUT_FAILED);
        op_finish(store, op, status);
    }
}

void
fill_pool_open(struct kvt_store *store)
{
    pool_init(&store->fill_pool, &store->env, sizeof(struct fill), WORK_KEEP_MAX);
    pool_init(&store->fill_copies_pool, &store->env, sizeof(struct fill_copies), WORK_KEEP_MAX);
}
