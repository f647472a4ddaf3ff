/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.c - reading every durable block, verified, at the speed of the device.
 *
 * Blocks are read in the order in which they lie, in batches of some megabytes of which several are
 * under way. Reads go the way of every get, so that what a caller would be answered is what is
 * found.
 *
 * A store that is open for reading only takes puts into memory, which take the place of a block
 * that was listed, or its entry: it is no concern of the scrub any more. Those whose copy was found
 * damaged leave, too, whoever has found it: so the loop notes each of them where it is listed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "inspect.h"
#include "store_internal.h"

enum {
    BATCH_COUNT = 256,          /* Blocks in a batch. */
    BATCH_BYTES = 4 << 20,      /* And bytes, but at least one block. */
    LANE_COUNT = 8,             /* Batches under way. */
    HOST_BYTES_MAX = 256 << 20, /* Four of the longest blocks that a store may have. */
    SCAN_COUNT = 4096,          /* Blocks looked at in one step of the loop. */
    TEXT_BYTES = 256,
    NUMBER_BITS = 31,
};

/* One block, small: a store may have millions. */
struct target {
    uint64_t place;                /* segment << 32 | page */
    uint32_t number : NUMBER_BITS; /* The loop's, from the listing on, as the next one. */
    uint32_t is_damaged : 1;       /* Its bytes were found wrong. */
    uint32_t length;
};

_Static_assert(RESIDENCY_COUNT_MAX <= UINT64_C(1) << NUMBER_BITS, "every number has its place");

/* What came of one. */
enum verdict {
    VERDICT_SOUND,
    VERDICT_DAMAGED,
    VERDICT_LEFT, /* For another reason: it is not the scrub's any more. */
};

struct scrub_lane {
    uint8_t *memory;
    struct kvt_ticket *ticket; /* NULL: idle. */
    uint64_t first;            /* Of targets. */
    uint32_t count;
    enum verdict verdicts[BATCH_COUNT];
};

struct scrub {
    struct scrub *next;        /* Of those that were left to the end of a poisoned store. */
    struct scrub *next_listed; /* Of those that have their targets; the loop's. */
    struct kvt_store *store;
    struct examination *examination;
    uint32_t namespace_id; /* 0: all. */
    struct target *targets;
    uint64_t count, capacity;
    uint64_t total_bytes;
    uint8_t *memory; /* Of all lanes. */
    uint64_t lane_bytes;
    struct scrub_lane lanes[LANE_COUNT];
    struct kvt_result results[BATCH_COUNT];
    uint32_t number_next; /* While they are gathered. */
    bool is_short_of_memory;
};

/* --- Gathering -------------------------------------------------------------------------------- */

static bool
target_add(struct scrub *scrub, uint32_t number)
{
    const struct entry *entry = residency_at(scrub->store->map, number);

    if (scrub->count == scrub->capacity) {
        uint64_t capacity = scrub->capacity == 0 ? SCAN_COUNT : scrub->capacity * 2;
        struct target *targets = env_take(&scrub->store->env, capacity * sizeof(*targets));

        if (targets == NULL)
            return false;
        if (scrub->count > 0)
            memcpy(targets, scrub->targets, scrub->count * sizeof(*targets));
        env_put(&scrub->store->env, scrub->targets, scrub->capacity * sizeof(*targets));
        scrub->targets = targets;
        scrub->capacity = capacity;
    }
    scrub->targets[scrub->count++] = (struct target){
        .place = (uint64_t)entry->segment << 32 | entry->page,
        .number = number & ((1u << NUMBER_BITS) - 1),
        .length = entry->length,
    };
    scrub->total_bytes += entry->length;
    return true;
}

/* The loop: some numbers at a time, so that an owner's work goes on. */
static bool
targets_run(struct kvt_store *store, void *context)
{
    struct scrub *scrub = context;
    uint32_t limit = residency_number_limit(store->map);
    uint32_t end =
        limit - scrub->number_next < SCAN_COUNT ? limit : scrub->number_next + SCAN_COUNT;

    for (; scrub->number_next < end; scrub->number_next++) {
        uint64_t word = atomic_load_explicit(
            &residency_at(store->map, scrub->number_next)->word, memory_order_relaxed);
        struct block_key key;

        if (word_state(word) != ENTRY_RESIDENT || (word_tiers(word) & TIER_NVME) == 0)
            continue;
        if (scrub->namespace_id != 0) {
            residency_key(store->map, scrub->number_next, &key);
            if (key.namespace_id != scrub->namespace_id)
                continue;
        }
        if (!target_add(scrub, scrub->number_next))
            scrub->is_short_of_memory = true;
    }
    return true;
}

static int
target_compare(const void *a, const void *b)
{
    const struct target *left = a;
    const struct target *right = b;

    return left->place < right->place ? -1 : left->place > right->place;
}

static bool
list_run(struct kvt_store *store, void *context)
{
    struct scrub *scrub = context;

    scrub->next_listed = store->scrubs;
    store->scrubs = scrub;
    return true;
}

static bool
unlist_run(struct kvt_store *store, void *context)
{
    struct scrub *scrub = context;
    struct scrub **link = &store->scrubs;

    while (*link != NULL && *link != scrub)
        link = &(*link)->next_listed;
    if (*link != NULL)
        *link = scrub->next_listed;
    return true;
}

void
scrubs_note(struct kvt_store *store, const struct extent *extent)
{
    const struct target wanted = {.place = (uint64_t)extent->segment << 32 | extent->page};

    for (struct scrub *scrub = store->scrubs; scrub != NULL; scrub = scrub->next_listed) {
        struct target *target = scrub->count == 0
                                    ? NULL
                                    : bsearch(&wanted, scrub->targets, (size_t)scrub->count,
                                          sizeof(*scrub->targets), target_compare);

        if (target != NULL)
            target->is_damaged = 1;
    }
}

/* What leaves before this ends is as if it had never been there. */
static enum kvt_status
targets_gather(struct scrub *scrub)
{
    uint32_t before;

    do {
        before = scrub->number_next;
        loop_call(scrub->store, targets_run, scrub);
    } while (scrub->number_next != before && !scrub->is_short_of_memory);
    if (scrub->is_short_of_memory)
        return failure_set(
            KVT_E_NOMEM, 0, "no memory to list %llu blocks", (unsigned long long)scrub->count);
    if (scrub->count > 0)
        qsort(scrub->targets, (size_t)scrub->count, sizeof(*scrub->targets), target_compare);
    loop_call(scrub->store, list_run, scrub);
    return KVT_OK;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* A batch, on its way to the loop. */
struct naming {
    struct scrub *scrub;
    struct scrub_lane *lane;
};

static bool
target_is_there(const struct kvt_store *store, const struct target *target)
{
    const struct entry *entry = residency_at(store->map, target->number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    return word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_NVME) != 0 &&
           target->place == ((uint64_t)entry->segment << 32 | entry->page);
}

/* The loop: the keys of a batch, the stored ones, also when they are hashes. */
static bool
keys_run(struct kvt_store *store, void *context)
{
    const struct naming *naming = context;
    const struct scrub_lane *lane = naming->lane;

    for (uint32_t i = 0; i < lane->count; i++) {
        const struct target *target = &naming->scrub->targets[lane->first + i];
        struct op *op = &lane->ticket->ops[i];

        /* What left meanwhile has no key any more: the one of no block is missed, whatever for. */
        if (target_is_there(store, target))
            residency_key(store->map, target->number, &op->key);
        else
            op->key = (struct block_key){0};
        op->fingerprint = key_fingerprint(store->fingerprint_seed, &op->key);
    }
    return true;
}

static enum kvt_status
lane_begin(struct scrub *scrub, struct scrub_lane *lane, uint64_t *next)
{
    struct naming naming = {.scrub = scrub, .lane = lane};
    uint64_t bytes = 0;

    lane->first = *next;
    lane->count = 0;
    while (*next < scrub->count && lane->count < BATCH_COUNT) {
        uint64_t size = round_up(scrub->targets[*next].length, PAGE_BYTES);

        if (lane->count > 0 && bytes + size > scrub->lane_bytes)
            break;
        bytes += size;
        lane->count++;
        (*next)++;
    }
    KVT_TRY(ticket_create(scrub->store, TICKET_GET, lane->count, NULL, &lane->ticket));
    loop_call(scrub->store, keys_run, &naming);
    bytes = 0;
    for (uint32_t i = 0; i < lane->count; i++) {
        struct op *op = &lane->ticket->ops[i];
        uint64_t size = round_up(scrub->targets[lane->first + i].length, PAGE_BYTES);

        op->destination = lane->memory + bytes;
        op->length = size;
        op->flags = KVT_GET_TRANSIENT;
        bytes += size;
    }
    ticket_send(lane->ticket);
    return KVT_OK;
}

static void
damage_report(struct scrub *scrub, const struct target *target)
{
    char text[TEXT_BYTES];

    scrub->examination->report.damaged_count++;
    (void)snprintf(text, sizeof(text),
        "the payload of %" PRIu32 " bytes at segment %" PRIu32 " page %" PRIu32
        " cannot be read, or differs from its checksum: the block is answered as a miss; its "
        "owner writes it anew",
        target->length, (uint32_t)(target->place >> 32), (uint32_t)target->place);
    examination_found(scrub->examination, "payload", text, (uint32_t)(target->place >> 32),
        (uint32_t)target->place);
}

/* The loop: what came of a batch. A block that cannot be read, and stays, is damaged as well. */
static bool
verdicts_run(struct kvt_store *store, void *context)
{
    const struct naming *naming = context;
    struct scrub_lane *lane = naming->lane;

    for (uint32_t i = 0; i < lane->count; i++) {
        const struct target *target = &naming->scrub->targets[lane->first + i];
        bool is_there = target_is_there(store, target);
        bool is_missed = naming->scrub->results[i].status != KVT_OK;

        lane->verdicts[i] = VERDICT_SOUND;
        if (target->is_damaged || (is_there && is_missed))
            lane->verdicts[i] = VERDICT_DAMAGED;
        else if (!is_there)
            lane->verdicts[i] = VERDICT_LEFT;
    }
    return true;
}

static enum kvt_status
lane_judge(struct scrub *scrub, struct scrub_lane *lane)
{
    struct examination *examination = scrub->examination;
    struct naming naming = {.scrub = scrub, .lane = lane};

    loop_call(scrub->store, verdicts_run, &naming);
    for (uint32_t i = 0; i < lane->count; i++) {
        const struct target *target = &scrub->targets[lane->first + i];
        enum kvt_status status = scrub->results[i].status;
        bool has_left = lane->verdicts[i] == VERDICT_LEFT;

        /* KVT_E_INVAL: what has the key now is longer. */
        if (status != KVT_OK && status != KVT_MISS && !(status == KVT_E_INVAL && has_left))
            return failure_set(status, 0,
                "no memory, or no room, to read the payload at segment %" PRIu32 " page %" PRIu32,
                (uint32_t)(target->place >> 32), (uint32_t)target->place);
        if (has_left) {
            scrub->total_bytes -= target->length;
            continue;
        }
        examination->report.block_count++;
        examination->report.block_bytes += target->length;
        if (lane->verdicts[i] == VERDICT_DAMAGED)
            damage_report(scrub, target);
    }
    return KVT_OK;
}

static enum kvt_status
lane_end(struct scrub *scrub, struct scrub_lane *lane)
{
    struct examination *examination = scrub->examination;
    enum kvt_status status;

    if (lane->ticket == NULL)
        return KVT_OK;
    status = kvt_ticket_wait(lane->ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(lane->ticket, KVT_STAGE_DONE, scrub->results, lane->count);
    kvt_ticket_free(lane->ticket);
    lane->ticket = NULL;
    KVT_TRY(status);
    KVT_TRY(lane_judge(scrub, lane));
    if (examination->progress != NULL && !examination->progress(examination->context,
                                             examination->report.block_bytes, scrub->total_bytes))
        return failure_set(KVT_CANCELLED, 0, "the examination was given up");
    return KVT_OK;
}

static enum kvt_status
blocks_read(struct scrub *scrub)
{
    uint64_t next = 0;
    enum kvt_status status = KVT_OK;

    for (uint32_t turn = 0; status == KVT_OK && next < scrub->count; turn++) {
        struct scrub_lane *lane = &scrub->lanes[turn % LANE_COUNT];

        status = lane_end(scrub, lane);
        if (status == KVT_OK)
            status = lane_begin(scrub, lane, &next);
    }
    for (uint32_t i = 0; i < LANE_COUNT; i++)
        status = status_keep(status, lane_end(scrub, &scrub->lanes[i]));
    return status;
}

static void
scrub_free(struct scrub *scrub)
{
    const struct kvt_env *env = &scrub->store->env;

    env_unmap(env, scrub->memory, scrub->lane_bytes * LANE_COUNT);
    env_put(env, scrub->targets, scrub->capacity * sizeof(*scrub->targets));
    env_put(env, scrub, sizeof(*scrub));
}

/* Reads of a poisoned store may be under way until it is closed: so long they have this memory. */
static void
scrub_leave(struct scrub *scrub)
{
    struct kvt_store *store = scrub->store;

    scrub->next = atomic_load_explicit(&store->scrubs_left, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &store->scrubs_left, &scrub->next, scrub, memory_order_release, memory_order_relaxed))
        ;
}

void
scrubs_close(struct kvt_store *store)
{
    struct scrub *next = atomic_load_explicit(&store->scrubs_left, memory_order_acquire);

    while (next != NULL) {
        struct scrub *scrub = next;

        next = scrub->next;
        scrub_free(scrub);
    }
}

static uint64_t
lane_bytes_for(uint64_t block_bytes_max)
{
    uint64_t longest = round_up(block_bytes_max, PAGE_BYTES);

    return longest > BATCH_BYTES ? longest : BATCH_BYTES;
}

/* What all lanes read, and once more for what is stored encoded. */
uint64_t
scrub_host_bytes(uint64_t block_bytes_max)
{
    uint64_t bytes = lane_bytes_for(block_bytes_max) * LANE_COUNT * 2;

    return bytes < HOST_BYTES_MAX ? bytes : HOST_BYTES_MAX;
}

enum kvt_status
scrub_run(struct kvt_store *store, uint32_t namespace_id, struct examination *examination)
{
    struct scrub *scrub = env_take(&store->env, sizeof(*scrub));
    enum kvt_status status;

    if (scrub == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to read all blocks");
    scrub->store = store;
    scrub->namespace_id = namespace_id;
    scrub->examination = examination;
    scrub->lane_bytes = lane_bytes_for(store->options.block_bytes_max);
    scrub->memory = env_map(&store->env, scrub->lane_bytes * LANE_COUNT);
    status = scrub->memory == NULL ? failure_set(KVT_E_NOMEM, 0, "no memory to read all blocks")
                                   : targets_gather(scrub);
    for (uint32_t i = 0; status == KVT_OK && i < LANE_COUNT; i++)
        scrub->lanes[i].memory = scrub->memory + i * scrub->lane_bytes;
    if (status == KVT_OK)
        status = blocks_read(scrub);
    if (!store_is_poisoned(store))
        loop_call(store, unlist_run, scrub);
    if (store_is_poisoned(store))
        scrub_leave(scrub);
    else
        scrub_free(scrub);
    return status;
}

enum kvt_status
kvt_scrub(kvt_store *store, kvt_namespace only, const struct kvt_examiner *examiner,
    struct kvt_check_report *report_out)
{
    struct examination examination;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    if (!store->is_read_only)
        return failure_set(KVT_E_STATE, 0, "the store is not open for reading only");
    KVT_TRY(examination_begin(&examination, examiner, report_out));
    status = scrub_run(store, only.id, &examination);
    if (status == KVT_OK)
        *report_out = examination.report;
    return status;
}
