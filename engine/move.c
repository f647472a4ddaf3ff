/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - copies of blocks between HBM and HOST.
 */
#include "move.h"

#include "store_internal.h"

/* One block under way. */
struct move {
    struct device_job device_job;
    struct job job; /* Down: the checksum. */
    uint32_t entry;
    struct flight *flight;
    enum policy_place place; /* Of the slot. */
    struct slot slot;
    uint32_t asker;  /* Namespace for whose sake it is moved; 0: nobody's. */
    uint8_t turn;    /* Down: patience.h */
    uint8_t *memory; /* Down: the slot's. */
    uint64_t length;
    struct hash128 checksum;
};

/* Take what a move needs: the memory of the policy, a pin, a slot (unless the caller has one), and
 * last a flight. A walk over victims may ask for many moves that find no slot: they leave no trace,
 * so that the walk ends and is not begun anew for the sake of a pin that only the attempt had. */
static enum kvt_status
move_create(struct kvt_store *store, uint32_t number, enum flight_state state,
    struct room_want want, const struct slot *slot, struct move **move_out)
{
    struct move *move = pool_take(&store->move_pool);
    enum kvt_status status;

    if (move == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to move a block");
    KVT_TRY_GOTO(entry_prepare(store, number), put_back);
    move->entry = number;
    move->place = want.place;
    move->asker = want.namespace_id;
    move->length = residency_at(store->map, number)->length;
    want.size = round_up(move->length, PAGE_BYTES);
    residency_pin(store->map, number);
    KVT_ASSERT(slot == NULL || slab_slot_bytes(place_slab(store, want.place), *slot) >= want.size);
    if (slot != NULL)
        move->slot = *slot;
    else
        KVT_TRY_GOTO(room_take(store, &want, &move->slot), unpin);
    move->flight = flight_create(store, number, state);
    if (move->flight == NULL) {
        if (slot == NULL)
            room_put(store, want.place, move->slot);
        status = failure_set(KVT_E_NOMEM, 0, "no memory to move a block");
        goto unpin;
    }
    *move_out = move;
    return KVT_OK;

unpin:
    entry_unprepare(store, number);
    lease_unpin(store, number);
put_back:
    pool_put(&store->move_pool, move);
    return status;
}

/* The slot is a copy now, or goes back; who waited starts again. */
static void
move_end(struct kvt_store *store, struct move *move, enum kvt_status status)
{
    const struct entry *entry = residency_at(store->map, move->entry);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    struct op_list waiters = move->flight->waiters;
    bool is_demotion = move->flight->is_demotion;
    bool is_copied = status == KVT_OK;

    move->flight->waiters = (struct op_list){NULL, NULL};
    flight_destroy(store, move->flight);
    if (move->place == POLICY_HOST)
        store->room_hands[place_of_device(move->device_job.device)].leaving_bytes -= move->length;
    if (is_copied && word_state(word) == ENTRY_RESIDENT) {
        entry_copy_add(store, move->entry, move->place, move->slot,
            move->place == POLICY_HOST ? KVT_REASON_DEMOTED : KVT_REASON_RAISED);
    } else {
        entry_unprepare(store, move->entry);
        copy_slot_put(store, move->place, move->slot, &move->device_job.move);
    }
    if (is_demotion && !is_copied && status != KVT_E_CORRUPT)
        room_refused(store, place_of_device(move->device_job.device), status);
    entry_unpin(store, move->entry);
    if (is_copied && is_demotion && (entry_tiers(store, move->entry) & TIER_HOST) != 0)
        room_lowered(store, place_of_device(move->device_job.device), move->entry, move->asker);
    pool_put(&store->move_pool, move);
    ops_restart(store, &waiters, status);
}

/* --- Down ------------------------------------------------------------------------------------- */

static void
sum_run(struct crew_job *crew_job)
{
    struct move *move = CONTAINER_OF(crew_job, struct move, job.crew);

    memset(move->memory + move->length, 0, round_up(move->length, PAGE_BYTES) - move->length);
    move->checksum = hash_payload(move->memory, move->length);
}

/* Somebody has written over the copy in HBM: it goes alone where NVMe has the block, too, and
 * whoever asked is given that. While somebody has the block pinned, be it a lease or a read of our
 * own, the copy stays for them alone. */
static void
source_condemn(struct kvt_store *store, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);
    bool is_gone = false;

    if (word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_NVME) != 0) {
        entry_unpin(store, number); /* The move's own pin is not to be in the way. */
        is_gone =
            entry_hbm_release(store, number, KVT_REASON_CORRUPT) || entry_hbm_hide(store, number);
        residency_pin(store->map, number);
    }
    entry_corrupt_note(store, number, TIER_HBM, NULL);
    if (!is_gone)
        entry_quarantine(store, number);
}

static void
down_summed(struct kvt_store *store, struct job *job)
{
    struct move *move = CONTAINER_OF(job, struct move, job);
    struct entry *entry = residency_at(store->map, move->entry);
    bool is_right = true;

    work_end(store, &store->copies_in_flight, move->turn);
    /* The sum of a trailer says nothing of what came from HBM; parts have no other. */
    if (entry->has_trailer || entry_parts(entry) > 1) {
        is_right = true;
    } else if (hash128_is_zero(entry->checksum)) {
        entry->checksum = move->checksum;
    } else if (!hash128_equal(entry->checksum, move->checksum)) {
        is_right = false;
        source_condemn(store, move->entry);
    }
    if (is_right) {
        COUNT(store, hbm_lower_count, 1);
        COUNT(store, hbm_lower_bytes, move->length);
    }
    move_end(store, move, is_right ? KVT_OK : KVT_E_CORRUPT);
}

static void
down_copied(struct kvt_store *store, struct device_job *device_job)
{
    struct move *move = CONTAINER_OF(device_job, struct move, device_job);

    if (device_job->move.status != KVT_OK) {
        move_end(store, move, device_job->move.status);
        return;
    }
    move->turn = work_begin(store, &store->copies_in_flight);
    move->job.crew.run = sum_run;
    move->job.finish = down_summed;
    loop_job(store, &move->job);
}

static enum kvt_status
down_begin(struct kvt_store *store, uint32_t number, struct room_want want)
{
    const struct entry *entry = residency_at(store->map, number);
    uint32_t device = entry_device(entry);
    struct move *move;

    if (device_is_lost(store, device))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    KVT_TRY(move_create(store, number, FLIGHT_LOWERING, want, NULL, &move));
    move->memory = slab_address(store->slab, move->slot);
    move->device_job.device = device;
    move->device_job.finish = down_copied;
    store->room_hands[place_of_device(device)].leaving_bytes += move->length;
    device_job_copy(store, &move->device_job, DEVICE_OUT,
        &(struct device_piece){.target = move->memory,
            .source = entry_hbm_address(store, entry),
            .size = move->length});
    return KVT_OK;
}

enum kvt_status
move_down(struct kvt_store *store, uint32_t number, struct patience *patience)
{
    return down_begin(store, number,
        (struct room_want){.place = POLICY_HOST,
            .namespace_id = entry_namespace(store, number)->id,
            .patience = patience,
            .is_in_line = true});
}

enum kvt_status
move_down_within(struct kvt_store *store, uint32_t number, uint32_t asker, bool is_last)
{
    return down_begin(store, number,
        (struct room_want){
            .place = POLICY_HOST, .namespace_id = asker, .is_within = true, .is_last = is_last});
}

/* --- Up --------------------------------------------------------------------------------------- */

static void
up_copied(struct kvt_store *store, struct device_job *device_job)
{
    struct move *move = CONTAINER_OF(device_job, struct move, device_job);

    host_load_end(store, device_job->move.status == KVT_OK ? move->length : 0);
    if (device_job->move.status == KVT_OK) {
        COUNT(store, hbm_raise_count, 1);
        COUNT(store, hbm_raise_bytes, move->length);
    }
    move_end(store, move, device_job->move.status);
}

/* A lost device may still have a copy of the block, which nobody sees (entry_tiers()); and a block
 * is in HBM of one device. */
static enum kvt_status
remains_leave(struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);

    if (entry_is_hiding(store, number))
        return failure_set(KVT_E_NOSPC, 0, "a bad copy of the block in HBM is pinned");
    if ((word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed)) & TIER_HBM) == 0)
        return KVT_OK;
    if (!entry_hbm_release(store, number, KVT_REASON_DEVICE_LOST))
        return failure_set(KVT_E_GPU, 0, "device %u is lost, and its copy of the block is pinned",
            entry_device(entry));
    COUNT(store, hbm_drop_count, 1);
    return KVT_OK;
}

enum kvt_status
move_up(struct kvt_store *store, uint32_t number, uint32_t device, struct slot slot)
{
    const struct entry *entry = residency_at(store->map, number);
    enum policy_place place = (enum policy_place)(POLICY_HBM + device);
    struct move *move;

    if (device_is_lost(store, device))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    KVT_TRY(remains_leave(store, number));
    KVT_TRY(move_create(
        store, number, FLIGHT_RAISING, (struct room_want){.place = place}, &slot, &move));
    move->device_job.device = device;
    move->device_job.finish = up_copied;
    host_load_begin(store);
    device_job_copy(store, &move->device_job, DEVICE_IN,
        &(struct device_piece){.target = slab_address(place_slab(store, place), move->slot),
            .source = entry_host_address(store, entry),
            .size = move->length});
    return KVT_OK;
}

void
move_pool_open(struct kvt_store *store)
{
    pool_init(&store->move_pool, &store->env, sizeof(struct move), WORK_KEEP_MAX);
}
