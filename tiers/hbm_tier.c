/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm_tier.c - a device's memory as a slab, and its slots behind the tier vtable.
 *
 * A put or get of the vtable is a job: one move (device_mover.h) for each block, so that a bad one
 * fails alone; the mover joins them. While a move is out it is a flight, found by its slot, and the
 * slot is not given back:
 *
 *            take          put's flight lands            drop
 *   (free) ------> FILLING -----------------> RESIDENT -------> (free)
 *                   |    |                       |
 *             fails |    | drop             drop | with gets in flight
 *                   v    v                       v
 *                (free)  +-------> DOOMED <------+
 *                                    |  the last flight lands
 *                                    +-----------------------> (free)
 *
 *   FILLING   one flight, a put. Gets miss.
 *   RESIDENT  any number of flights, all gets.
 *   DOOMED    one flight or more, all marked so. Gets miss, and a second drop changes nothing.
 */
#include "hbm_tier.h"

#include <inttypes.h>

#include "bytes.h"
#include "device_share.h"
#include "failure.h"
#include "try.h"

#define LARGE_PAGE_BYTES ((uint64_t)2 << 20)
/* At most what a device registers at once. A multiple of every superblock: no slot crosses it. */
#define REGISTER_RUN_BYTES ((size_t)1 << 30)

enum {
    FLIGHT_BUCKETS = 256, /* Chains stay short: a lane has at most some hundred pieces in flight. */
    PUSH_COUNT = 64,      /* Moves handed over at once. */
};

struct hbm_job;

/* One block of a job while its move is out. */
struct hbm_flight {
    struct device_move move;
    struct device_piece piece;
    struct hbm_job *job;
    struct tier_block *block;
    struct slot slot;
    struct hbm_flight *next; /* In its bucket. */
    bool is_put;
    bool is_doomed;
};

struct hbm_job {
    struct tier_batch *batch;
    uint32_t flight_count; /* That have not landed. */
    uint32_t size_count;   /* Of the array. */
    struct hbm_flight flights[];
};

struct hbm_tier {
    struct tier tier;
    const struct kvt_env *env;
    const struct kvt_device_ops *ops;
    struct device *device;
    void *memory; /* The device's: only its copies may use it. */
    uint64_t size;
    int descriptor; /* Of the memory, when others may map it; negative: they may not. */
    struct slab *slab;
    uint8_t *arena;
    size_t registered; /* Bytes of the arena, from its start. */
    bool *is_arena_kept;
    struct device_mover *mover;
    struct inbox done; /* Flights that have landed. */
    struct hbm_flight *buckets[FLIGHT_BUCKETS];
};

static struct hbm_tier *
hbm_of(struct tier *tier)
{
    return (struct hbm_tier *)(void *)tier;
}

static struct slot
slot_of(const struct extent *extent)
{
    return (struct slot){.number = extent->page, .generation = extent->generation};
}

static size_t
padded_bytes(const struct tier_block *block)
{
    return (size_t)pages_of(block->record.stored_length) * PAGE_BYTES;
}

/* --- 1. Flights ------------------------------------------------------------------------------- */

static struct hbm_flight **
bucket_of(struct hbm_tier *hbm, struct slot slot)
{
    /* The upper bits of the product: slots of one superblock, and equal ones of several, spread. */
    return &hbm->buckets[(slot.number * 0x9E3779B1u) >> 24];
}

/* The next flight of `slot` from `flight` on; NULL: there is none. */
static struct hbm_flight *
flight_find(struct hbm_flight *flight, struct slot slot)
{
    while (flight != NULL &&
           (flight->slot.number != slot.number || flight->slot.generation != slot.generation))
        flight = flight->next;
    return flight;
}

/* Mark what is in flight of a slot; false: nothing is. */
static bool
flights_doom(struct hbm_tier *hbm, struct slot slot)
{
    struct hbm_flight *first = flight_find(*bucket_of(hbm, slot), slot);

    for (struct hbm_flight *flight = first; flight != NULL;
         flight = flight_find(flight->next, slot))
        flight->is_doomed = true;
    return first != NULL;
}

/* What is in a slot may be read: it is taken, whole, and was not dropped. */
static bool
slot_is_resident(struct hbm_tier *hbm, struct slot slot)
{
    const struct hbm_flight *flight = flight_find(*bucket_of(hbm, slot), slot);

    return slab_is_current(hbm->slab, slot) &&
           (flight == NULL || (!flight->is_put && !flight->is_doomed));
}

static void
flight_remove(struct hbm_tier *hbm, struct hbm_flight *flight)
{
    struct hbm_flight **link = bucket_of(hbm, flight->slot);

    while (*link != NULL && *link != flight)
        link = &(*link)->next;
    KVT_ASSERT(*link == flight);
    if (*link == flight)
        *link = flight->next;
}

/* Add a flight to a job; it is pushed with the others. */
static void
flight_add(struct hbm_tier *hbm, struct hbm_job *job, struct tier_block *block, bool is_put)
{
    struct hbm_flight *flight = &job->flights[job->flight_count++];
    struct hbm_flight **bucket;

    flight->job = job;
    flight->block = block;
    flight->is_put = is_put;
    flight->slot = slot_of(&block->record.extent);
    flight->piece.size = padded_bytes(block);
    flight->piece.source = is_put ? block->memory : slab_address(hbm->slab, flight->slot);
    flight->piece.target = is_put ? slab_address(hbm->slab, flight->slot) : block->memory;
    flight->move.lane = is_put ? DEVICE_IN : DEVICE_OUT;
    flight->move.is_urgent = !is_put && job->batch->urgent != 0;
    flight->move.pieces = &flight->piece;
    flight->move.piece_count = 1;
    flight->move.done = &hbm->done;
    flight->move.done_task = job->batch->done_task;
    bucket = bucket_of(hbm, flight->slot);
    flight->next = *bucket;
    *bucket = flight;
}

static void
flight_land(struct hbm_tier *hbm, struct hbm_flight *flight)
{
    struct tier_block *block = flight->block;
    bool is_failed_put = flight->is_put && flight->move.status != KVT_OK;

    flight_remove(hbm, flight);
    block->status = flight->move.status;
    if (is_failed_put)
        block->record.extent = (struct extent){0};
    if ((is_failed_put || flight->is_doomed) &&
        flight_find(*bucket_of(hbm, flight->slot), flight->slot) == NULL) {
        bool is_put_back = slab_put(hbm->slab, flight->slot);

        KVT_ASSERT(is_put_back);
    }
}

/* --- 2. Jobs ---------------------------------------------------------------------------------- */

static size_t
job_bytes(uint32_t flight_count)
{
    return sizeof(struct hbm_job) + flight_count * sizeof(struct hbm_flight);
}

static enum kvt_status
job_take(struct hbm_tier *hbm, struct tier_batch *batch, struct hbm_job **job_out)
{
    struct hbm_job *job = env_take(hbm->env, job_bytes(batch->block_count));

    *job_out = job;
    if (job == NULL)
        return failure_set(
            KVT_E_NOMEM, 0, "hbm tier: no memory for a batch of %" PRIu32 ".", batch->block_count);
    job->batch = batch;
    job->size_count = batch->block_count;
    return KVT_OK;
}

static void
job_put(struct hbm_tier *hbm, struct hbm_job *job)
{
    env_put(hbm->env, job, job_bytes(job->size_count));
}

static void
job_answer(struct hbm_tier *hbm, struct hbm_job *job)
{
    struct tier_batch *batch = job->batch;

    job_put(hbm, job);
    batch->status = KVT_OK;
    tier_answer(hbm->env, batch);
}

/* Hand all flights over, or answer at once when there are none. */
static void
job_start(struct hbm_tier *hbm, struct hbm_job *job)
{
    struct device_move *moves[PUSH_COUNT];
    uint32_t count = 0;

    if (job->flight_count == 0) {
        job_answer(hbm, job);
        return;
    }
    /* None lands before hbm_step(), so the job stays as it is. */
    for (uint32_t i = 0; i < job->flight_count; i++) {
        moves[count++] = &job->flights[i].move;
        if (count == PUSH_COUNT || i + 1 == job->flight_count) {
            device_mover_push(hbm->mover, moves, count);
            count = 0;
        }
    }
}

bool
hbm_step(struct hbm_tier *hbm)
{
    struct inbox_node *node = inbox_take(&hbm->done);
    bool is_any = node != NULL;

    while (node != NULL) {
        struct device_move *move = CONTAINER_OF(node, struct device_move, node);
        struct hbm_flight *flight = CONTAINER_OF(move, struct hbm_flight, move);
        struct hbm_job *job = flight->job;

        node = node->next;
        flight_land(hbm, flight);
        if (--job->flight_count == 0)
            job_answer(hbm, job);
    }
    return is_any;
}

/* --- 3. The vtable ---------------------------------------------------------------------------- */

static void
slots_return(struct hbm_tier *hbm, struct tier_batch *batch, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)slab_put(hbm->slab, slot_of(&batch->blocks[i].record.extent));
        batch->blocks[i].record.extent = (struct extent){0};
    }
}

/* A slot for every block, or for none. */
static enum kvt_status
slots_take(struct hbm_tier *hbm, struct tier_batch *batch)
{
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct block_record *record = &batch->blocks[i].record;
        struct slot slot;
        enum kvt_status status = slab_take(hbm->slab, record->stored_length, &slot);

        if (status != KVT_OK) {
            slots_return(hbm, batch, i);
            return status;
        }
        record->extent = (struct extent){.generation = slot.generation, .page = slot.number};
    }
    return KVT_OK;
}

static enum kvt_status
hbm_put(struct tier *tier, struct tier_batch *batch)
{
    struct hbm_tier *hbm = hbm_of(tier);
    struct hbm_job *job;
    enum kvt_status status;

    if (device_mover_is_lost(hbm->mover))
        return failure_set(KVT_E_GPU, 0, "hbm tier: the device is lost.");
    KVT_TRY(job_take(hbm, batch, &job));
    status = slots_take(hbm, batch);
    if (status != KVT_OK) {
        job_put(hbm, job);
        return status;
    }
    for (uint32_t i = 0; i < batch->block_count; i++)
        flight_add(hbm, job, &batch->blocks[i], true);
    job_start(hbm, job);
    return KVT_OK;
}

static enum kvt_status
hbm_get(struct tier *tier, struct tier_batch *batch)
{
    struct hbm_tier *hbm = hbm_of(tier);
    struct hbm_job *job;

    KVT_TRY(job_take(hbm, batch, &job));
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        struct slot slot = slot_of(&block->record.extent);

        block->status = KVT_MISS;
        if (block->record.extent.segment != 0 || !slot_is_resident(hbm, slot))
            continue;
        if (block->record.stored_length == 0 ||
            padded_bytes(block) > slab_slot_bytes(hbm->slab, slot))
            continue;
        flight_add(hbm, job, block, false);
    }
    job_start(hbm, job);
    return KVT_OK;
}

static void
hbm_drop(struct tier *tier, const struct tier_place *place)
{
    struct hbm_tier *hbm = hbm_of(tier);
    struct slot slot = slot_of(&place->extent);

    /* A place that has passed names nothing any more: dropping it again is harmless. */
    if (place->extent.segment == 0 && !flights_doom(hbm, slot))
        (void)slab_put(hbm->slab, slot);
}

static void
hbm_usage(struct tier *tier, struct tier_usage *usage_out)
{
    const struct slab *slab = hbm_of(tier)->slab;

    usage_out->capacity_bytes = slab_capacity(slab);
    usage_out->used_bytes = slab_used(slab);
    usage_out->free_bytes = slab_capacity(slab) - slab_used(slab);
}

static size_t
run_bytes(size_t rest)
{
    return rest < REGISTER_RUN_BYTES ? rest : REGISTER_RUN_BYTES;
}

/* The arena leaves the device in the runs in which it came. */
static void
arena_unregister(struct hbm_tier *hbm)
{
    for (size_t done = 0; done < hbm->registered; done += REGISTER_RUN_BYTES) {
        enum kvt_status status = hbm->ops->host_unregister(
            hbm->device, hbm->arena + done, run_bytes(hbm->registered - done));

        if (status != KVT_OK && hbm->is_arena_kept != NULL)
            *hbm->is_arena_kept = true;
    }
    hbm->registered = 0;
}

static void
hbm_close(struct tier *tier)
{
    struct hbm_tier *hbm = hbm_of(tier);

    if (hbm == NULL)
        return;
    for (uint32_t i = 0; i < FLIGHT_BUCKETS; i++)
        KVT_ASSERT(hbm->buckets[i] == NULL);
    device_mover_close(hbm->mover);
    slab_close(hbm->slab);
    if (hbm->device != NULL) {
        arena_unregister(hbm);
        if (hbm->memory != NULL)
            hbm->ops->slab_put(hbm->device, hbm->memory, hbm->size);
        hbm->ops->close(hbm->device);
    }
    env_put(hbm->env, hbm, sizeof(*hbm));
}

static const struct tier_ops hbm_ops = {
    .name = "hbm",
    .put = hbm_put,
    .get = hbm_get,
    .drop = hbm_drop,
    .usage = hbm_usage,
    .close = hbm_close,
};

/* --- 4. Opening ------------------------------------------------------------------------------- */

static enum kvt_status
options_check(const struct hbm_options *options)
{
    uint32_t count = 0;

    if (options->capacity_bytes > INT64_MAX)
        return failure_set(KVT_E_INVAL, 0,
            "hbm tier: a capacity of %" PRIu64 " bytes is impossible", options->capacity_bytes);
    KVT_TRY(options->ops->count(options->context, &count));
    if (options->ordinal >= count)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "hbm tier: there is no device %" PRIu32 ": they are numbered below %" PRIu32,
            options->ordinal, count);
    return KVT_OK;
}

static enum kvt_status
slab_memory_take(struct hbm_tier *hbm, bool is_shared)
{
    const struct device_share_ops *share = hbm->ops->share;

    if (!is_shared)
        return hbm->ops->slab_take(hbm->device, hbm->size, &hbm->memory);
    if (share == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "hbm tier: devices of the kind %s have no memory that is shared", hbm->ops->name);
    return share->slab_take(hbm->device, hbm->size, &hbm->memory, &hbm->descriptor);
}

static enum kvt_status
memory_take(struct hbm_tier *hbm, uint32_t ordinal, bool is_shared)
{
    enum kvt_status status = slab_memory_take(hbm, is_shared);
    struct failure cause = *failure_last();

    if (status != KVT_E_NOMEM)
        return status;
    return failure_set(status, cause.foreign_code,
        "hbm tier: device %" PRIu32 " does not have the %" PRIu64 " bytes that are asked for: %s",
        ordinal, hbm->size, cause.text);
}

static enum kvt_status
plan_choose(struct hbm_tier *hbm, bool is_engines_only)
{
    struct device_plan plan;

    if (hbm->ops->plan == NULL)
        return KVT_OK;
    return hbm->ops->plan(
        hbm->device, is_engines_only ? DEVICE_PLAN_ENGINES : DEVICE_PLAN_MEASURE, &plan);
}

static enum kvt_status
arena_register(struct hbm_tier *hbm, void *arena, size_t size)
{
    if (arena == NULL)
        return KVT_OK;
    hbm->arena = arena;
    while (hbm->registered < size) {
        size_t run = run_bytes(size - hbm->registered);

        KVT_TRY(hbm->ops->host_register(hbm->device, hbm->arena + hbm->registered, run));
        hbm->registered += run;
    }
    return KVT_OK;
}

enum kvt_status
hbm_open(const struct kvt_env *env, const struct hbm_options *options, struct hbm_tier **hbm_out)
{
    struct hbm_tier *hbm;
    enum kvt_status status;

    *hbm_out = NULL;
    KVT_TRY(options_check(options));
    hbm = env_take(env, sizeof(*hbm));
    if (hbm == NULL)
        return failure_set(KVT_E_NOMEM, 0, "hbm tier: no memory for %zu bytes", sizeof(*hbm));
    hbm->tier.ops = &hbm_ops;
    hbm->env = env;
    hbm->ops = options->ops;
    hbm->size = round_up(options->capacity_bytes, LARGE_PAGE_BYTES);
    hbm->descriptor = -1;
    hbm->is_arena_kept = options->is_arena_kept;
    KVT_TRY_GOTO(hbm->ops->open(options->context, env, options->ordinal, &hbm->device), close);
    KVT_TRY_GOTO(plan_choose(hbm, options->is_engines_only), close);
    if (hbm->size > 0) {
        KVT_TRY_GOTO(memory_take(hbm, options->ordinal, options->is_shared), close);
        KVT_TRY_GOTO(
            slab_open(env, hbm->memory, hbm->size, 0, options->slot_bytes_max, &hbm->slab), close);
    }
    KVT_TRY_GOTO(arena_register(hbm, options->arena, options->arena_size), close);
    KVT_TRY_GOTO(device_mover_open(env, hbm->device, "kvt-mover", &hbm->mover), close);
    *hbm_out = hbm;
    return KVT_OK;
close:
    hbm_close(&hbm->tier);
    return status;
}

enum kvt_status
hbm_peer_open(struct hbm_tier *hbm, struct hbm_tier *other, bool *is_faster_out)
{
    *is_faster_out = false;
    /* Access to memory that is shared is given for each device, and is the owner's alone. */
    if (other->memory == NULL || other->descriptor >= 0)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "hbm tier: the other device has no slots, or other processes may map them");
    return hbm->ops->peer_register(
        hbm->device, other->device, other->memory, other->size, is_faster_out);
}

void
hbm_peer_close(struct hbm_tier *hbm, struct hbm_tier *other)
{
    hbm->ops->peer_unregister(hbm->device, other->memory, other->size);
}

struct tier *
hbm_as_tier(struct hbm_tier *hbm)
{
    return &hbm->tier;
}

struct slab *
hbm_slab(struct hbm_tier *hbm)
{
    return hbm->slab;
}

struct device *
hbm_device(struct hbm_tier *hbm)
{
    return hbm->device;
}

struct device_mover *
hbm_mover(struct hbm_tier *hbm)
{
    return hbm->mover;
}

int
hbm_descriptor(const struct hbm_tier *hbm, uint64_t *size_out)
{
    *size_out = hbm->size;
    return hbm->descriptor;
}
