/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.c - opening devices, sending copies to them, losing them.
 */
#include "devices.h"

#include "device_kinds.h"
#include "store_internal.h"

enum {
    REMAINS_AT_ONCE = 1024, /* Entries at which one step looks for copies of lost devices. */
};

/* --- Opening and closing ---------------------------------------------------------------------- */

static enum kvt_status
kind_choose(struct kvt_store *store)
{
    static const enum device_choice choices[] = {
        [KVT_DEVICE_AUTO] = DEVICE_ANY,
        [KVT_DEVICE_CUDA] = DEVICE_CUDA,
        [KVT_DEVICE_EMULATION] = DEVICE_EMULATED,
    };

    if (store->env.device == NULL)
        KVT_TRY(device_choose(choices[store->options.device_kind], &store->env.device));
    store->options.device_kind =
        strcmp(store->env.device->name, "cuda") == 0 ? KVT_DEVICE_CUDA : KVT_DEVICE_EMULATION;
    if (store->options.device_kind == KVT_DEVICE_EMULATION)
        store_health_set(store, KVT_HEALTH_DEVICE_EMULATED);
    return KVT_OK;
}

/* Without it copies go by way of HOST. */
static enum kvt_status
peer_open(struct kvt_store *store, uint32_t device, uint32_t other)
{
    struct devices *devices = &store->devices;
    bool is_near = false;
    enum kvt_status status = hbm_peer_open(devices->tiers[device], devices->tiers[other], &is_near);

    if (status == KVT_E_NOMEM)
        log_line(&store->logger, LOG_WARN, "devices",
            "event=peer_left_out device=%u peer=%u text=\"%s\"", device, other,
            failure_last()->text);
    if (status == KVT_E_NOMEM || status == KVT_E_UNSUPPORTED) {
        failure_clear();
        return KVT_OK;
    }
    if (status == KVT_OK)
        devices->peers[device] |= 1u << other;
    if (status == KVT_OK && is_near)
        devices->near_peers[device] |= 1u << other;
    return status;
}

/* What each device can read of the others. */
static enum kvt_status
peers_open(struct kvt_store *store)
{
    uint32_t mask = store->devices.mask;

    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        for (uint32_t other = 0; other < POLICY_DEVICES_MAX; other++) {
            if (other != i && (mask >> i & mask >> other & 1) != 0)
                KVT_TRY(peer_open(store, i, other));
        }
    }
    return KVT_OK;
}

enum kvt_status
devices_open(struct kvt_store *store)
{
    struct devices *devices = &store->devices;
    struct hbm_options options = {
        .capacity_bytes = store->options.hbm_capacity_bytes == KVT_CAPACITY_NONE
                              ? 0
                              : store->options.hbm_capacity_bytes,
        .slot_bytes_max = (size_t)round_up(store->options.block_bytes_max, PAGE_BYTES),
        .is_engines_only = (store->options.flags & KVT_OPEN_COPY_ENGINES) != 0,
        .is_shared = (store->options.flags & KVT_OPEN_SHARE_HBM) != 0,
    };

    if (store->options.device_mask == 0)
        return KVT_OK;
    KVT_TRY(kind_choose(store));
    options.ops = store->env.device;
    options.context = store->env.device_context;
    options.arena = host_arena(store->host, &options.arena_size);
    options.is_arena_kept = &devices->is_arena_kept;
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        if ((store->options.device_mask >> i & 1) == 0)
            continue;
        options.ordinal = i;
        KVT_TRY(hbm_open(&store->env, &options, &devices->tiers[i]));
        devices->mask |= 1u << i;
    }
    return peers_open(store);
}

static void
peers_close(struct devices *devices)
{
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        for (uint32_t other = 0; other < POLICY_DEVICES_MAX; other++) {
            if ((devices->peers[i] >> other & 1) != 0)
                hbm_peer_close(devices->tiers[i], devices->tiers[other]);
        }
        devices->peers[i] = devices->near_peers[i] = 0;
    }
}

void
devices_close(struct devices *devices)
{
    peers_close(devices);
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        if (devices->tiers[i] != NULL)
            hbm_as_tier(devices->tiers[i])->ops->close(hbm_as_tier(devices->tiers[i]));
        devices->tiers[i] = NULL;
    }
}

bool
device_is_open(const struct kvt_store *store, uint32_t device)
{
    return device < POLICY_DEVICES_MAX && (store->devices.mask >> device & 1) != 0;
}

bool
device_reads_peer(const struct kvt_store *store, uint32_t device, uint32_t other, bool has_host)
{
    const struct devices *devices = &store->devices;
    uint32_t mask = has_host ? devices->near_peers[device] : devices->peers[device];

    return (mask >> other & 1) != 0;
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* What devices register in one call. */
#define SHARE_BYTES_MAX (UINT64_C(1) << 30)

enum {
    /* In the mask of those that share it: a device did not let go of the memory. */
    MEMORY_KEPT = 1 << POLICY_DEVICES_MAX,
};

/* All of it, or what a device did not let go of is MEMORY_KEPT. */
static uint32_t
memory_unregister(struct device *device, uint8_t *memory, uint64_t size)
{
    uint32_t kept = 0;

    for (uint64_t at = 0; at < size; at += SHARE_BYTES_MAX) {
        if (device->ops->host_unregister(device, memory + at,
                size - at < SHARE_BYTES_MAX ? size - at : SHARE_BYTES_MAX) != KVT_OK)
            kept = MEMORY_KEPT;
    }
    return kept;
}

static enum kvt_status
memory_register(struct device *device, uint8_t *memory, uint64_t size, uint32_t *mask)
{
    for (uint64_t at = 0; at < size; at += SHARE_BYTES_MAX) {
        enum kvt_status status = device->ops->host_register(
            device, memory + at, size - at < SHARE_BYTES_MAX ? size - at : SHARE_BYTES_MAX);

        if (status != KVT_OK) {
            struct failure failure = *failure_last();

            *mask |= memory_unregister(device, memory, at);
            failure_copy(&failure);
            return status;
        }
    }
    return KVT_OK;
}

void
devices_kept_log(struct kvt_store *store, const void *memory, uint64_t size)
{
    log_line(&store->logger, LOG_ERROR, "devices",
        "event=memory_kept address=%p bytes=%llu text=\"a device may still use it\"", memory,
        (unsigned long long)size);
}

static uint32_t
devices_unregister(struct kvt_store *store, void *memory, uint64_t size, uint32_t mask)
{
    uint32_t kept = mask & MEMORY_KEPT;

    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        if ((mask >> i & 1) != 0)
            kept |= memory_unregister(hbm_device(store->devices.tiers[i]), memory, size);
    }
    return kept;
}

bool
devices_memory_unshare(struct kvt_store *store, void *memory, uint64_t size, uint32_t mask)
{
    if (devices_unregister(store, memory, size, mask) == 0)
        return true;
    devices_kept_log(store, memory, size);
    return false;
}

enum kvt_status
devices_memory_share(struct kvt_store *store, void *memory, uint64_t size, uint32_t *mask_out)
{
    *mask_out = 0;
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        enum kvt_status status;

        if (!device_is_open(store, i))
            continue;
        status = device_answer(
            store, i, memory_register(hbm_device(store->devices.tiers[i]), memory, size, mask_out));
        if (status == KVT_OK) {
            *mask_out |= 1u << i;
        } else if (status != KVT_E_GPU) { /* A lost device copies nothing any more. */
            struct failure failure = *failure_last();

            *mask_out = devices_unregister(store, memory, size, *mask_out);
            failure_copy(&failure);
            return status;
        }
    }
    return KVT_OK;
}

/* --- Streams of callers ----------------------------------------------------------------------- */

enum kvt_status
device_stream_keep_check(const void *stream)
{
    switch ((uintptr_t)stream) {
    case 0:
    case DEVICE_STREAM_LEGACY:
        return failure_set(
            KVT_E_INVAL, 0, "stream is NULL, or cudaStreamLegacy: the default stream is refused");
    case DEVICE_STREAM_PER_THREAD:
        return failure_set(KVT_E_INVAL, 0,
            "stream is cudaStreamPerThread, which is another one in each thread: one that is kept "
            "must have a handle");
    default:
        return KVT_OK;
    }
}

/* --- Losing ----------------------------------------------------------------------------------- */

bool
device_is_lost(const struct kvt_store *store, uint32_t device)
{
    return (atomic_load_explicit(&store->devices.lost, memory_order_relaxed) >> device & 1) != 0;
}

enum kvt_status
device_answer(struct kvt_store *store, uint32_t device, enum kvt_status status)
{
    uint32_t bit = 1u << device;

    if (status != KVT_E_GPU ||
        (atomic_fetch_or_explicit(&store->devices.lost, bit, memory_order_relaxed) & bit) != 0)
        return status;
    store_health_set(store, KVT_HEALTH_GPU_LOST);
    COUNT(store, gpu_lost_count, 1);
    log_line(&store->logger, LOG_ERROR, "device", "event=lost device=%u", device);
    /* The loop gives up what it held. */
    env_wake(&store->env, store->loop_task);
    return status;
}

/* The copy that a lost device holds is given up; what is pinned stays until a later round. */
static void
remains_look(struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    if (word_state(word) != ENTRY_RESIDENT || (word_tiers(word) & TIER_HBM) == 0 ||
        !device_is_lost(store, entry_device(entry)))
        return;
    if (word_tiers(word) != TIER_HBM ? entry_hbm_release(store, number, KVT_REASON_DEVICE_LOST)
                                     : entry_drop(store, number, false, KVT_REASON_DEVICE_LOST))
        COUNT(store, hbm_drop_count, 1);
    else
        store->devices.has_remains = true;
}

/* A round is in flight: whoever waits for room waits for it. */
static void
remains_round_begin(struct kvt_store *store)
{
    struct devices *devices = &store->devices;

    devices->is_sweeping = true;
    devices->is_sweep_due = devices->has_remains = false;
    devices->sweep_next = 0;
    devices->sweep_turn = turns_begin(&store->work);
}

static void
remains_round_end(struct kvt_store *store)
{
    store->devices.is_sweeping = false;
    turns_end(&store->work, store->devices.sweep_turn);
    store->room_changed = true;
}

/* Goes on with the round, or begins one when room has changed: pins may have gone. True: there is
 * one. */
static bool
remains_step(struct kvt_store *store)
{
    struct devices *devices = &store->devices;
    uint32_t limit = residency_number_limit(store->map);

    if (devices->is_sweeping)
        devices->is_sweep_due = devices->is_sweep_due || store->room_changed;
    else if (devices->has_remains && (store->room_changed || devices->is_sweep_due))
        remains_round_begin(store);
    else
        return false;
    for (uint32_t i = 0; i < REMAINS_AT_ONCE && devices->sweep_next < limit; i++)
        remains_look(store, devices->sweep_next++);
    if (devices->sweep_next >= limit)
        remains_round_end(store);
    return true;
}

/* --- Copies ----------------------------------------------------------------------------------- */

static void
job_begin(struct kvt_store *store, struct device_job *job)
{
    store->devices.in_flight++;
    if (!job->is_before)
        job->turn = turns_begin(&store->work);
}

static void
job_end(struct kvt_store *store, const struct device_job *job)
{
    store->devices.in_flight--;
    if (!job->is_before)
        turns_end(&store->work, job->turn);
}

static void
job_send(struct kvt_store *store, struct device_job *job)
{
    struct device_move *move = &job->move;

    move->done = &store->devices.done;
    move->done_task = &store->loop_task;
    job_begin(store, job);
    device_mover_push(hbm_mover(store->devices.tiers[job->device]), &move, 1);
}

void
device_job_copy(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct device_piece *piece)
{
    job->piece = *piece;
    device_job_pieces(store, job, lane, &job->piece, 1);
}

void
device_job_pieces(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct device_piece *pieces, uint32_t count)
{
    job->move = (struct device_move){.lane = lane,
        .is_urgent = job->is_urgent,
        .pieces = pieces,
        .piece_count = count,
        .mark = job->mark,
        .mark_count = count};
    job_send(store, job);
}

void
device_job_spread(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct spread *spread, bool is_gather)
{
    uint32_t count = spread_pieces(spread, is_gather, NULL);
    struct device_piece piece;

    if (count == 1) {
        (void)spread_pieces(spread, is_gather, &piece);
        device_job_copy(store, job, lane, &piece);
        return;
    }
    job->pieces = env_take(&store->env, count * sizeof(*job->pieces));
    if (job->pieces == NULL) {
        job->move = (struct device_move){
            .status = failure_set(KVT_E_NOMEM, 0, "no memory for %u pieces", count)};
        job_begin(store, job);
        if (inbox_push(&store->devices.done, &job->move.node))
            env_wake(&store->env, store->loop_task);
        return;
    }
    (void)spread_pieces(spread, is_gather, job->pieces);
    job->move = (struct device_move){.lane = lane,
        .is_urgent = job->is_urgent,
        .pieces = job->pieces,
        .piece_count = count,
        .mark = job->mark,
        .mark_count = 1};
    job_send(store, job);
}

void
device_job_wait(struct kvt_store *store, struct device_job *job, void *event)
{
    struct device_job **first = &store->devices.waits;

    job->move = (struct device_move){.lane = DEVICE_OUT,
        .wait = event,
        .is_wait_firm = job->is_firm,
        .is_wait_owned = job->owns_event};
    job->next_wait = *first;
    job->wait_link = first;
    if (*first != NULL)
        (*first)->wait_link = &job->next_wait;
    *first = job;
    job_send(store, job);
}

static void
wait_end(struct device_job *job)
{
    *job->wait_link = job->next_wait;
    if (job->next_wait != NULL)
        job->next_wait->wait_link = job->wait_link;
}

void
devices_waits_cancel(struct kvt_store *store)
{
    for (struct device_job *job = store->devices.waits; job != NULL; job = job->next_wait)
        device_move_cancel(&job->move);
}

/* Whoever said so: what waits for events of tickets ends with their device. */
static void
movers_lose(struct kvt_store *store, uint32_t mask)
{
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        if ((mask >> i & 1) != 0)
            device_mover_lose(hbm_mover(store->devices.tiers[i]));
    }
}

bool
devices_step(struct kvt_store *store)
{
    struct inbox_node *node = inbox_take(&store->devices.done);
    bool was_busy = node != NULL;
    uint32_t lost;

    while (node != NULL) {
        struct device_move *move = CONTAINER_OF(node, struct device_move, node);
        struct device_job *job = CONTAINER_OF(move, struct device_job, move);

        node = node->next;
        job_end(store, job);
        if (move->wait != NULL)
            wait_end(job);
        if (job->pieces != NULL) {
            env_put(&store->env, job->pieces, move->piece_count * sizeof(*job->pieces));
            job->pieces = NULL;
        }
        (void)device_answer(store, job->device, move->status);
        job->finish(store, job);
    }
    lost = atomic_load_explicit(&store->devices.lost, memory_order_relaxed);
    if (lost != store->devices.mourned) {
        movers_lose(store, lost & ~store->devices.mourned);
        store->devices.mourned = lost;
        store->devices.has_remains = was_busy = true;
    }
    /* Who waits for room may have waited for no more than these (room_will_come()). */
    if (was_busy)
        store->room_changed = true;
    return remains_step(store) || was_busy;
}
