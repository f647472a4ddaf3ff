/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload.c - the course of a store's life: open, random operations, verify, close or perish.
 */
#include "workload.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "store_audit.h"
#include "workload_internal.h"

enum {
    AHEAD_RUN = 4,                /* Lookups in a row whose prefetches nobody waits for. */
    WATCH_EVERY = 16,             /* Steps, on average, where namespaces have shares. */
    REPEAT_EVERY = 8,             /* Calls, on average, that name a key twice. */
    LONG_US = 1000 * 1000 * 1000, /* Longer than any read. */
    POLL_EVERY = 8,               /* Steps, on average, between looks into queues. */
};

void
workload_init(struct workload *work, const struct workload_host *host, uint64_t seed,
    uint32_t key_count, uint32_t length_shift)
{
    memset(work, 0, sizeof(*work));
    work->host = *host;
    work->rng.state = seed;
    work->has_codecs = rng_below(&work->rng, 2) == 0;
    work->has_shares = rng_below(&work->rng, 4) == 0;
    model_init(&work->model, seed ^ 0x5851F42D4C957F2Du, key_count, length_shift);
}

/* --- 1. Common ground ------------------------------------------------------------------------- */

bool
workload_tolerates(const struct workload *work)
{
    return work->is_faulty ||
           (work->host.crashed != NULL && work->host.crashed(work->host.context));
}

void
workload_mood(struct workload *work)
{
    bool is_crashed = work->host.crashed != NULL && work->host.crashed(work->host.context);

    work->model.may_miss = work->evicts || workload_tolerates(work);
    work->model.may_be_gone = work->model.may_miss && (!work->keeps || is_crashed || work->evicts);
}

bool
workload_expect(struct workload *work, const char *what, enum kvt_status status)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return true;
    if (workload_tolerates(work) && status != KVT_E_POISONED && status != KVT_E_INVAL)
        return false;
    kvt_last_error(&error);
    model_fail(&work->model, "%s: %s (last error: %s, %s)", what, kvt_status_name(status),
        kvt_status_name(error.status), error.text);
    return false;
}

bool
workload_expect_told(struct workload *work, const char *what, enum kvt_status status)
{
    uint32_t count = work->volatile_count;

    work->volatile_count = 0;
    if (count == 0)
        return workload_expect(work, what, status);
    if (status == KVT_OK || (status != KVT_E_IO && !workload_tolerates(work)))
        model_fail(&work->model, "%s: %s, and %u puts or deletes could not be made durable", what,
            kvt_status_name(status), count);
    return false;
}

void
workload_note(struct workload *work, uint64_t kind, uint64_t fact)
{
    if (work->host.trace != NULL)
        work->host.trace(work->host.context, kind, fact);
}

/* Three keys have the same bytes, and a component each. The bytes of every seventh three are longer
 * than the store keeps; those of the others are 12. */
bool
workload_key_is_long(struct model_name name)
{
    return name.key / KEY_COMPONENTS % 7 == 2;
}

struct kvt_key
workload_key(struct model_name name, uint8_t bytes[WORKLOAD_KEY_BYTES])
{
    uint32_t unit = name.key / KEY_COMPONENTS;
    struct kvt_key key = {.bytes = bytes, .component = (uint16_t)(name.key % KEY_COMPONENTS)};

    memset(bytes, (int)unit, WORKLOAD_KEY_BYTES);
    put_u32(bytes, name.space);
    put_u32(bytes + 4, unit);
    put_u32(bytes + 8, ~unit);
    key.length = workload_key_is_long(name) ? WORKLOAD_KEY_BYTES : 12;
    return key;
}

bool
workload_key_parse(
    const uint8_t *bytes, uint32_t length, uint16_t component, struct model_name *name_out)
{
    if (length != 12 || get_u32(bytes + 4) != ~get_u32(bytes + 8))
        return false;
    name_out->space = get_u32(bytes);
    name_out->key = get_u32(bytes + 4) * KEY_COMPONENTS + component;
    return name_out->space < MODEL_SPACES && name_out->key < MODEL_KEYS_MAX &&
           component < KEY_COMPONENTS;
}

/* GHI gives up what is computed anew sooner than NVMe reads it. */
uint32_t
workload_recompute_us(const struct workload *work, struct model_name name, uint32_t version)
{
    uint32_t us = (version * 1237 + name.key * 331 + name.space * 97) % 5000;

    return us % 16 == 0 ? 0 : us + (work->evicts ? 0 : LONG_US);
}

void
workload_remember(struct workload *work, uint64_t (*evicted)(const kvt_store *store))
{
    static struct kvt_scan_entry entries[MODEL_SPACES * MODEL_KEYS_MAX];
    uint64_t before = evicted(work->store);
    struct model_name name;
    uint64_t cursor = 0;
    uint32_t count = 0;

    work->evicted = evicted;
    memset(work->must_stay, 0, sizeof(work->must_stay));
    if (workload_tolerates(work) ||
        kvt_scan(work->store, &cursor, entries, MODEL_SPACES * MODEL_KEYS_MAX, &count) != KVT_OK ||
        evicted(work->store) != before)
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (!entries[i].is_hashed && (entries[i].tiers & KVT_TIER_NVME) != 0 &&
            workload_key_parse(entries[i].key, entries[i].key_length, entries[i].component, &name))
            work->must_stay[name.space][name.key] = true;
    }
}

void
stay_missed(struct workload *work, struct model_name name)
{
    /* A rebuild writes kills, for which the new life may reclaim a segment. */
    if (work->is_verifying && work->must_stay[name.space][name.key] && !workload_tolerates(work) &&
        work->evicted(work->store) == 0)
        model_fail(&work->model, "space %u key %u: on NVMe at the end of a life, and gone",
            name.space, name.key);
}

/* What the next life may find without it was changed by what was not acknowledged. */
static void
stays_settle(struct workload *work)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < MODEL_KEYS_MAX; key++) {
            struct model_name name = {.space = space, .key = key};

            if (model_may_be_gone(&work->model, name))
                work->must_stay[space][key] = false;
        }
    }
}

/* --- 2. Opening and verifying ----------------------------------------------------------------- */

const char *
workload_space_name(uint32_t space)
{
    static const char *const names[MODEL_SPACES] = {"llama", "mixtral", "deepseek"};

    return names[space];
}

static enum kvt_status
spaces_open(struct workload *work)
{
    for (uint32_t i = 0; i < MODEL_SPACES; i++) {
        const char *name = workload_space_name(i);
        enum kvt_status status =
            kvt_namespace_open(work->store, name, name, strlen(name), &work->spaces[i]);
        struct kvt_namespace_options options = {
            .struct_size = sizeof(options), .codec = rng_below(&work->rng, KVT_CODEC_FP16 + 1)};

        if (!workload_expect(work, "kvt_namespace_open", status))
            return status;
        if (work->has_shares && work->evicts)
            shares_choose(work, i);
        if (!work->has_codecs)
            continue;
        status = kvt_namespace_configure(work->store, work->spaces[i], &options);
        if (!workload_expect(work, "kvt_namespace_configure", status))
            return status;
    }
    return KVT_OK;
}

void
workload_verify(struct workload *work)
{
    work->is_verifying = true;
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        struct model_name names[BATCH_MAX];
        uint32_t count = 0;

        for (uint32_t key = 0; key < work->model.key_count; key++) {
            struct model_name name = {.space = space, .key = key};

            if (!name_is_busy(work, name))
                names[count++] = name;
            if (count == BATCH_MAX || (count > 0 && key + 1 == work->model.key_count)) {
                workload_get(work, names, count, KVT_GET_TRANSIENT * rng_below(&work->rng, 2));
                count = 0;
            }
        }
    }
    work->is_verifying = false;
}

/* Read everything; the model knows what there is. */
static void
work_settle(struct workload *work)
{
    workload_verify(work);
    /* With faults about, a miss proves nothing. */
    if (!workload_tolerates(work))
        model_settled(
            &work->model, work->host.lies == NULL || !work->host.lies(work->host.context));
}

void
workload_audit(struct workload *work, bool is_unused)
{
    /* What a crash left is taken away by who may write. */
    struct store_audit audit = {.is_unused = is_unused,
        .looks_at_headers = !work->headers_may_lie && !work->finds_damage && !work->is_read_only};

    if (workload_tolerates(work) || !store_audit(work->store, &audit))
        return;
    work->audit_count++;
    if (audit.failure[0] != '\0')
        model_fail(&work->model, "%s", audit.failure);
}

void
workload_calm(struct workload *work)
{
    work->is_faulty = work->keeps = false;
    work->calmed_count = 1;
    work_settle(work);
    workload_audit(work, false);
}

/* Nobody took the index away: all of it was good. */
static void
index_judge(struct workload *work)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (workload_tolerates(work) || work->finds_damage ||
        !workload_expect(work, "kvt_stats_get", kvt_stats_get(work->store, &stats)))
        return;
    if (stats.recover_rebuilt_count != 0 || stats.recover_dropped_count != 0)
        model_fail(&work->model, "an index that was there: rebuilt %llu, %llu records refused",
            (unsigned long long)stats.recover_rebuilt_count,
            (unsigned long long)stats.recover_dropped_count);
}

/* Nothing is known of the new life yet. */
static void
life_begin(struct workload *work, bool is_rebuilt)
{
    for (uint32_t i = 0; i < MODEL_SPACES; i++)
        pin_forget_all(work, i);
    work->volatile_count = 0;
    work->calmed_count = 0;
    work->stale_lease.id = work->stale_count = 0;
    events_reset(work);
    fate_open(work);
    model_reopened(&work->model, is_rebuilt);
}

enum kvt_status
workload_open(struct workload *work, uint32_t flags, bool is_rebuilt)
{
    enum kvt_status status = work->host.open(work->host.context, flags, &work->store);

    workload_note(work, 1, (uint64_t)status);
    if (!workload_expect(work, "kvt_open", status)) {
        work->store = NULL;
        return status;
    }
    work->is_read_only = (flags & KVT_OPEN_READ_ONLY) != 0;
    life_begin(work, is_rebuilt || (flags & KVT_OPEN_REBUILD) != 0);
    stays_settle(work);
    status = spaces_open(work);
    if (status == KVT_OK)
        status = device_open(work);
    if (status != KVT_OK)
        return status;
    delivery_open(work);
    work_settle(work);
    memset(work->must_stay, 0, sizeof(work->must_stay));
    if (work->is_made && !is_rebuilt && (flags & KVT_OPEN_REBUILD) == 0)
        index_judge(work);
    work->is_made = true;
    workload_audit(work, false);
    return KVT_OK;
}

/* --- 3. Closing ------------------------------------------------------------------------------- */

void
workload_settle(struct workload *work)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (work->flights[i].kind != FLIGHT_FREE && !freed_is_untold(&work->flights[i]))
            flight_finish(work, &work->flights[i]);
    }
}

void
workload_memory_close(struct workload *work)
{
    workload_settle(work);
    device_close(work);
    work->device_percent = work->spread_percent = 0;
}

enum kvt_status
workload_close(struct workload *work)
{
    enum kvt_status status;

    if (work->store == NULL)
        return KVT_OK;
    delivery_end(work);
    workload_settle(work);
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        lease_give_back(work, &work->leases[i]);
    device_close(work);
    if (!workload_tolerates(work)) {
        workload_flush(work);
        workload_audit(work, true);
    }
    delivery_close(work);
    freed_flushed(work, KVT_NOT_READY);
    status = kvt_close(work->store);
    workload_note(work, 2, (uint64_t)status);
    if (status == KVT_E_STATE)
        model_fail(&work->model, "kvt_close refuses although everything was given back");
    work->store = NULL;
    if (workload_expect_told(work, "kvt_close", status) && !workload_tolerates(work))
        model_ack_all(&work->model);
    return status;
}

static void
flight_forget(struct flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        free(flight->memory[i]);
        spread_forget(flight, i);
    }
    memset(flight, 0, sizeof(*flight));
}

void
workload_abandon(struct workload *work)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        flight_forget(&work->flights[i]);
    memset(&work->chain, 0, sizeof(work->chain));
    work->queue_count = 0;
    memset(work->leases, 0, sizeof(work->leases));
    memset(work->pools, 0, sizeof(work->pools));
    work->device_count = 0;
    late_forget(work);
    free(work->pinned_pool);
    work->pinned_pool = NULL;
    work->pinned.id = 0;
    work->store = NULL;
}

/* --- 4. Random steps -------------------------------------------------------------------------- */

uint32_t
names_pick_in(struct workload *work, uint32_t space, struct model_name *names, bool for_change)
{
    uint32_t wanted = 1 + rng_below(&work->rng, BATCH_MAX);
    uint32_t start = rng_below(&work->rng, work->model.key_count);
    uint32_t count = 0;

    for (uint32_t i = 0; i < work->model.key_count && count < wanted; i++) {
        struct model_name name = {.space = space, .key = (start + i) % work->model.key_count};

        if (rng_below(&work->rng, 3) == 0 || name_is_busy(work, name))
            continue;
        if (for_change && !model_has_room(&work->model, name, 1))
            continue;
        names[count++] = name;
    }
    return count;
}

/* Now and then one of them stands there twice, anywhere. */
static uint32_t
names_repeat(struct workload *work, struct model_name *names, uint32_t count, bool for_change)
{
    uint32_t from, at;

    if (count == 0 || rng_below(&work->rng, REPEAT_EVERY) != 0)
        return count;
    from = rng_below(&work->rng, count);
    at = rng_below(&work->rng, count);
    if (for_change && !model_has_room(&work->model, names[from], 2))
        return count;
    if (count < BATCH_MAX)
        names[count++] = names[at];
    names[at] = names[from];
    return count;
}

static uint32_t
names_pick(struct workload *work, struct model_name *names, bool for_change)
{
    uint32_t count = names_pick_in(work, rng_below(&work->rng, MODEL_SPACES), names, for_change);

    return names_repeat(work, names, count, for_change);
}

static void
step_put(struct workload *work)
{
    static const enum kvt_durability durabilities[4] = {
        KVT_MEMORY, KVT_RELAXED, KVT_SYNC, KVT_SYNC};
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick(work, names, true);
    enum kvt_durability durability = durabilities[rng_below(&work->rng, 4)];
    uint32_t flags = rng_below(&work->rng, 3) == 0 ? KVT_PUT_REPLACE : 0;

    if (count > 0)
        workload_put(work, names, count, durability, flags);
}

/* Now and then somebody else deletes the same, whose answer may not come before the first one's is
 * durable. */
static void
step_delete(struct workload *work, const struct model_name *names, uint32_t count)
{
    workload_delete(work, names, count);
    if (rng_below(&work->rng, 3) == 0 && !name_is_busy(work, names[0]) &&
        model_has_room(&work->model, names[0], 1))
        workload_delete(work, names, 1);
}

static void
step_change(struct workload *work, uint32_t choice)
{
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick(work, names, true);

    if (choice < 40)
        step_put(work);
    else if (choice < 47 && count > 0)
        step_delete(work, names, count < 3 ? count : 3);
    else if (choice == 47)
        workload_clear(work, rng_below(&work->rng, MODEL_SPACES));
    else if (choice == 48)
        workload_flush(work);
    else if (choice == 49 && work->has_shares && work->evicts)
        shares_choose(work, rng_below(&work->rng, MODEL_SPACES));
}

static void
step_move(struct workload *work, const struct model_name *names, uint32_t count)
{
    bool is_up = rng_below(&work->rng, 2) == 0;
    uint32_t up = work->has_hbm && rng_below(&work->rng, 2) == 0 ? KVT_TIER_HBM : KVT_TIER_HOST;
    uint32_t down = rng_below(&work->rng, 2) == 0 ? KVT_TIER_NVME : KVT_TIER_HOST;

    workload_move(work, names, count, is_up ? up : down, is_up);
    for (uint32_t i = 0; is_up && up == KVT_TIER_HOST && i < AHEAD_RUN; i++) {
        struct model_name others[BATCH_MAX];
        uint32_t other_count = names_pick(work, others, false);

        if (other_count > 0)
            workload_ahead(work, others, other_count, up, false);
    }
}

static void
step_get(struct workload *work, const struct model_name *names, uint32_t count)
{
    uint32_t flags = KVT_GET_TRANSIENT * rng_below(&work->rng, 2);

    work->gets_fly = rng_below(&work->rng, 4) == 0;
    workload_get(work, names, count, flags);
    work->gets_fly = false;
}

static void
step_look(struct workload *work, uint32_t choice)
{
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick(work, names, false);

    if (choice == 50)
        workload_race(work, rng_below(&work->rng, MODEL_SPACES));
    else if (choice < 70 && count > 0)
        step_get(work, names, count);
    else if (choice < 78 && count > 0)
        workload_lookup(work, names, count);
    else if (choice < 82 && count > 0)
        step_move(work, names, count);
    else if (choice < 86)
        lease_give_back(work, &work->leases[rng_below(&work->rng, LEASES_MAX)]);
    else if (choice == 86)
        workload_scan(work);
    else if (choice < 89)
        workload_stats(work);
    else if (choice < 94 && work->host.pass != NULL)
        work->host.pass(work->host.context, &work->rng);
    else if (choice < 100) {
        struct flight *flight = &work->flights[rng_below(&work->rng, FLIGHTS_MAX)];

        if (choice == 94)
            flight_cancel(work, flight);
        else if (choice == 95)
            freed_later(work, flight);
        else if (flight->kind != FLIGHT_FREE)
            flight_finish(work, flight);
    }
}

/* Half of the waits end by the time that they gave, or are made anew. */
static void
step_phase(struct workload *work, const struct model_name *names, uint32_t count)
{
    static const uint64_t times[4] = {KVT_FOREVER, 0, 8000000, 40000000};

    if (rng_below(&work->rng, 3) > 0)
        workload_phase(work, names, count, KVT_PHASE_IO_WAIT, times[rng_below(&work->rng, 4)]);
    else
        workload_phase(work, names, count,
            rng_below(&work->rng, 2) == 0 ? KVT_PHASE_PREFILL : KVT_PHASE_DECODE, 0);
}

static void
step_hold(struct workload *work)
{
    static const enum kvt_durability durabilities[3] = {KVT_MEMORY, KVT_RELAXED, KVT_SYNC};
    struct model_name names[BATCH_MAX];
    uint32_t choice = rng_below(&work->rng, 8);
    uint32_t count = names_pick(work, names, choice == 4 || choice == 5);
    enum kvt_durability durability = durabilities[rng_below(&work->rng, 3)];
    uint32_t flags = KVT_PUT_REPLACE * rng_below(&work->rng, 2);

    if (choice < 2)
        workload_events(work);
    if (choice < 2 || count == 0)
        return;
    if (choice == 2)
        workload_pin(work, names, count);
    else if (choice == 3)
        workload_map(work, names[0]);
    else if (choice > 5)
        step_phase(work, names, count);
    else
        workload_direct(work, names[0], durability, flags);
}

bool
workload_step(struct workload *work)
{
    uint32_t choice = rng_below(&work->rng, 140);

    work->operation_count++;
    workload_note(work, 3, choice);
    if (choice >= 136)
        workload_refused(work);
    else if (choice >= 126)
        workload_ask(work, rng_below(&work->rng, MODEL_SPACES));
    else if (choice >= 120)
        workload_chain(work, rng_below(&work->rng, MODEL_SPACES));
    else if (choice >= 100)
        step_hold(work);
    else if (choice < 50)
        step_change(work, choice);
    else
        step_look(work, choice);
    if (work->has_shares && work->evicts && rng_below(&work->rng, WATCH_EVERY) == 0)
        workload_shares(work, rng_below(&work->rng, MODEL_SPACES));
    if (rng_below(&work->rng, POLL_EVERY) == 0)
        delivery_look(work);
    return work->model.failure[0] == '\0';
}

bool
workload_step_delete(struct workload *work)
{
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick(work, names, true);

    work->operation_count++;
    workload_note(work, 3, count);
    if (count > 0)
        workload_delete(work, names, 1);
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (work->flights[i].kind == FLIGHT_DELETE)
            flight_finish(work, &work->flights[i]);
    }
    return work->model.failure[0] == '\0';
}
