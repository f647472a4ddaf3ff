/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_fetch.c - kvt_engram_fetch_submit() and what callers do with a fetch. The reader
 * (engram_reader.h) does the work.
 *
 * Threads   any.
 */
#include "engram_reader.h"

/* --- 1. Submitting ---------------------------------------------------------------------------- */

/* Whether the plan's layer hashes to the rows of this table. */
static enum kvt_status
layer_check(const struct kvt_engram_hasher *hasher, uint32_t index, const struct engram_head *head)
{
    const struct engram_layer *layer = &hasher->layers[index];
    const struct kvt_engram_profile *profile = &head->profile;
    bool is_same =
        layer->number == profile->layers[0].number && hasher->order_max == profile->order_max &&
        hasher->head_count == profile->head_count && hasher->class_count == profile->class_count &&
        hasher->pad_class == profile->pad_class;

    for (uint32_t s = 0; is_same && s < hasher->order_max; s++)
        is_same = layer->multipliers[s] == profile->layers[0].multipliers[s];
    for (uint32_t i = 0; is_same && i < hasher->column_count; i++)
        is_same = layer->buckets[i].prime == profile->layers[0].primes[i];
    if (!is_same)
        return failure_set(KVT_E_INVAL, 0,
            "the plan's layer %u and the table %s are not of one profile", layer->number,
            head->name);
    if (!bytes_are_zero(hasher->class_map_sha256, sizeof(hasher->class_map_sha256)) &&
        !bytes_are_zero(profile->class_map_sha256, sizeof(profile->class_map_sha256)) &&
        memcmp(hasher->class_map_sha256, profile->class_map_sha256,
            sizeof(profile->class_map_sha256)) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "the table %s was made for another class map", head->name);
    return KVT_OK;
}

/* Where its rows go: to the host, or to a device whose region is held from now on. */
static enum kvt_status
destination_take(
    struct kvt_store *store, const struct kvt_engram_target *from, struct fetch_target *target)
{
    uint64_t rows = target->is_once ? target->rows.row_count : target->rows.slot_count;
    uint32_t row_bytes = from->table->head.profile.row_bytes;
    int device;

    if (rows > 0 && (from->destination == NULL || from->capacity / row_bytes < rows))
        return failure_set(KVT_E_INVAL, 0,
            "%llu rows of %u bytes do not fit a destination of %llu bytes",
            (unsigned long long)rows, row_bytes, (unsigned long long)from->capacity);
    target->destination = from->destination;
    target->device = MEMORY_PLAIN;
    if (from->region.id == 0 || rows == 0)
        return KVT_OK;
    KVT_TRY(region_hold(store, from->region,
        &(struct iovec){.iov_base = from->destination, .iov_len = rows * row_bytes}, &device));
    target->region = from->region;
    target->device = device;
    return KVT_OK;
}

static enum kvt_status
target_make(
    const kvt_engram_plan *plan, const struct kvt_engram_target *from, struct fetch_target *target)
{
    if (from->layer_index >= plan->hasher->layer_count)
        return failure_set(KVT_E_INVAL, 0, "the plan has no layer %u", from->layer_index);
    if ((from->flags & ~(uint32_t)KVT_ENGRAM_ONCE) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "flags 0x%x: only KVT_ENGRAM_ONCE is known", from->flags);
    if (from->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved0 is not zero");
    KVT_TRY(layer_check(plan->hasher, from->layer_index, &from->table->head));
    KVT_TRY(kvt_engram_plan_rows(plan, from->layer_index, &target->rows));
    if (from->table->file == NULL && target->rows.row_count > 0 &&
        target->rows.rows[target->rows.row_count - 1] >= from->table->pin.row_count)
        return failure_set(KVT_E_INVAL, 0, "row %u: only %u rows of the table %s are shared",
            target->rows.rows[target->rows.row_count - 1], from->table->pin.row_count,
            from->table->head.name);
    target->is_once = (from->flags & KVT_ENGRAM_ONCE) != 0;
    target->table = from->table;
    target->states = from->states;
    target->deadline_ns = from->deadline_ns == 0 ? UINT64_MAX : from->deadline_ns;
    return destination_take(from->table->store, from, target);
}

static enum kvt_status
submit_check(const kvt_engram_plan *plan, const struct kvt_engram_target *targets, uint32_t count)
{
    if (plan == NULL || targets == NULL || count == 0 || count > KVT_ENGRAM_LAYERS_MAX)
        return failure_set(KVT_E_INVAL, 0, "plan or targets is NULL, or %u targets are not 1..%u",
            count, KVT_ENGRAM_LAYERS_MAX);
    if (!plan->is_unique)
        return failure_set(KVT_E_INVAL, 0, "the plan was filled without KVT_ENGRAM_UNIQUE");
    for (uint32_t i = 0; i < count; i++) {
        if (targets[i].table == NULL)
            return failure_set(KVT_E_INVAL, 0, "targets[%u].table is NULL", i);
        if (targets[i].table->store != targets[0].table->store)
            return failure_set(KVT_E_INVAL, 0, "targets[%u].table is of another store", i);
    }
    return store_enter(targets[0].table->store);
}

/* Slots whose rows are another rank's: nobody else writes their states. */
static void
elsewhere_note(const kvt_engram_plan *plan, const struct fetch_target *target)
{
    if (!plan->is_part || target->is_once || target->states == NULL)
        return;
    for (uint32_t i = 0; i < target->rows.slot_count; i++) {
        if (target->rows.inverse[i] == KVT_ENGRAM_ELSEWHERE)
            target->states[i] = KVT_ENGRAM_ROW_ELSEWHERE;
    }
}

/* From here on the store and the tables know of it. */
static void
fetch_start(struct kvt_engram_fetch *fetch)
{
    struct engram_set *set = fetch->store->engrams;
    uint32_t count = fetch->count; /* The last target may be settled before this returns. */

    pthread_mutex_lock(&set->lock);
    fetch->next = set->fetches;
    if (fetch->next != NULL)
        fetch->next->previous = fetch;
    set->fetches = fetch;
    pthread_mutex_unlock(&set->lock);
    for (uint32_t i = 0; i < count; i++)
        atomic_fetch_add_explicit(&fetch->targets[i].table->fetch_count, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (inbox_push(&set->reader->targets, &fetch->targets[i].node))
            env_wake(&fetch->store->env, set->reader->task);
    }
}

enum kvt_status
kvt_engram_fetch_submit(const kvt_engram_plan *plan, const struct kvt_engram_target *targets,
    uint32_t count, kvt_engram_fetch **fetch_out)
{
    struct kvt_engram_fetch *fetch;
    enum kvt_status status = KVT_OK;

    if (fetch_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "fetch_out is NULL");
    *fetch_out = NULL;
    KVT_TRY(submit_check(plan, targets, count));
    fetch = env_take(&targets[0].table->store->env, sizeof(*fetch));
    if (fetch == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a fetch");
    fetch->store = targets[0].table->store;
    fetch->count = count;
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        fetch->targets[i].fetch = fetch;
        status = target_make(plan, &targets[i], &fetch->targets[i]);
    }
    if (status != KVT_OK) {
        for (uint32_t i = 0; i < count; i++)
            region_let_go(fetch->store, fetch->targets[i].region);
        env_put(&fetch->store->env, fetch, sizeof(*fetch));
        return status;
    }
    for (uint32_t i = 0; i < count; i++)
        elsewhere_note(plan, &fetch->targets[i]);
    *fetch_out = fetch;
    fetch_start(fetch);
    return KVT_OK;
}

/* --- 2. Waiting ------------------------------------------------------------------------------- */

/* KVT_OK: it is settled. KVT_LATE. KVT_E_POISONED. */
static enum kvt_status
target_wait(struct kvt_engram_fetch *fetch, const struct fetch_target *target, uint64_t until_ns)
{
    struct kvt_store *store = fetch->store;
    struct gate *gate = &store->engrams->reader->gate;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&gate->value, memory_order_acquire);

        /* (F1) acquire: pairs with the release in target_settle(). */
        if (atomic_load_explicit(&target->is_settled, memory_order_acquire) != 0)
            return KVT_OK;
        KVT_TRY(store_enter(store));
        if (until_ns != UINT64_MAX && env_now(&store->env) >= until_ns)
            return KVT_LATE;
        store_gate_wait(store, gate, seen, until_ns);
    }
}

static enum kvt_status
lost_say(const struct fetch_target *target, enum kvt_status status, uint64_t lost_count)
{
    return failure_set(status, 0, "%llu rows of the table %s %s", (unsigned long long)lost_count,
        target->table->head.name,
        status == KVT_E_CORRUPT ? "lie in damaged pages, or could not be read"
        : status == KVT_E_IO    ? "could not be read"
        : status == KVT_E_NOMEM ? "were not read, or not copied: there was no memory"
        : status == KVT_E_GPU   ? "were not copied: the device is lost"
                                : "were not read, or not copied, any more");
}

enum kvt_status
kvt_engram_fetch_wait(
    kvt_engram_fetch *fetch, uint32_t index, uint64_t timeout_ns, uint64_t *lost_out)
{
    const struct fetch_target *target;

    if (fetch == NULL || index >= fetch->count)
        return failure_set(KVT_E_INVAL, 0, "fetch is NULL, or has no target %u", index);
    KVT_TRY(store_enter(fetch->store));
    target = &fetch->targets[index];
    KVT_TRY(target_wait(fetch, target, env_until(&fetch->store->env, timeout_ns)));
    if (lost_out != NULL)
        *lost_out = target->lost_count;
    return target->status == KVT_OK ? KVT_OK : lost_say(target, target->status, target->lost_count);
}

/* Whether each copy of the target was queued on a stream of the device. */
static bool
target_is_queued(const struct fetch_target *target)
{
    /* (F2) acquire: pairs with the release in engram_target_look(). */
    uint32_t sent = atomic_load_explicit(&target->moves_sent, memory_order_acquire);

    return sent != MOVES_UNSENT &&
           atomic_load_explicit(&target->mark.queued_count, memory_order_acquire) == sent - 1;
}

enum kvt_status
kvt_engram_fetch_stream_wait(kvt_engram_fetch *fetch, uint32_t index, void *stream)
{
    const struct fetch_target *target;
    struct device_mover *mover;
    uint32_t device;

    if (fetch == NULL || index >= fetch->count || stream == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "fetch or stream is NULL, or there is no target %u", index);
    KVT_TRY(store_enter(fetch->store));
    target = &fetch->targets[index];
    if (target->rows.row_count == 0)
        return KVT_OK; /* Nothing is copied. */
    if (target->device < 0)
        return failure_set(
            KVT_E_INVAL, 0, "target %u: its destination is no memory of a device", index);
    device = (uint32_t)target->device;
    /* (F1) */
    if (atomic_load_explicit(&target->is_settled, memory_order_acquire) != 0)
        return target->status == KVT_OK ? KVT_OK
                                        : lost_say(target, target->status, target->lost_count);
    if (!target_is_queued(target))
        return KVT_NOT_READY;
    mover = hbm_mover(fetch->store->devices.tiers[device]);
    if (device_mover_is_lost(mover))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    KVT_TRY(device_answer(fetch->store, device, device_mover_wait(mover, &target->mark, stream)));
    if (target->queued_status == KVT_OK)
        return KVT_OK;
    return failure_set(target->queued_status, 0, "some rows of the table %s could not be read",
        target->table->head.name);
}

/* --- 3. Its end ------------------------------------------------------------------------------- */

/* Every target is settled. */
void
engram_fetch_destroy(struct kvt_engram_fetch *fetch)
{
    struct engram_set *set = fetch->store->engrams;

    pthread_mutex_lock(&set->lock);
    if (fetch->next != NULL)
        fetch->next->previous = fetch->previous;
    if (fetch->previous != NULL)
        fetch->previous->next = fetch->next;
    else
        set->fetches = fetch->next;
    pthread_mutex_unlock(&set->lock);
    for (uint32_t i = 0; i < fetch->count; i++)
        atomic_fetch_sub_explicit(&fetch->targets[i].table->fetch_count, 1, memory_order_release);
    env_put(&fetch->store->env, fetch, sizeof(*fetch));
}

void
kvt_engram_fetch_free(kvt_engram_fetch *fetch)
{
    if (fetch == NULL || store_enter(fetch->store) == KVT_E_STATE)
        return;
    /* One that a poisoned store has not settled ends with that. */
    for (uint32_t i = 0; i < fetch->count; i++) {
        if (target_wait(fetch, &fetch->targets[i], UINT64_MAX) != KVT_OK)
            return;
    }
    engram_fetch_destroy(fetch);
}
