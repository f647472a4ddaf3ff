/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_refused.c - the workload's calls that break a rule of the headers: each is refused with
 * the status that its header names, says so in a sentence, and changes nothing.
 *
 * What would be changed is seen by the calls that follow: a put that was half taken has bytes that
 * nobody put, a delete takes what must be there.
 */
#include <string.h>

#include "bytes.h"
#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

enum {
    BAD_ID = 0x7FFFFFF1,
    UNTOUCHED = 0x5A,
};

/* Memory of calls that never read it, or never should have. */
static _Alignas(PAGE_BYTES) uint8_t bait[BATCH_MAX][PAGE_BYTES];

/* A call that is made wrong in one way: blocks that are all right but for one. */
struct bad {
    struct model_name names[BATCH_MAX];
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    uint32_t count, at; /* Blocks, and the one that is wrong. */
    kvt_namespace ns;
    const char *what;
    enum kvt_status wanted;
};

static void
bad_make(struct workload *work, struct bad *bad)
{
    uint32_t space = rng_below(&work->rng, MODEL_SPACES);

    bad->count = names_pick_in(work, space, bad->names, false);
    for (uint32_t i = 0; i < bad->count; i++)
        bad->keys[i] = workload_key(bad->names[i], bad->bytes[i]);
    bad->at = bad->count > 0 ? rng_below(&work->rng, bad->count) : 0;
    bad->ns = work->spaces[space];
    bad->wanted = KVT_E_INVAL;
}

void
refused_judge(
    struct workload *work, const char *what, enum kvt_status wanted, enum kvt_status status)
{
    struct kvt_error error;

    kvt_last_error(&error);
    workload_note(work, 40, (uint64_t)status);
    work->asked_count[ASKED_REFUSED]++;
    /* Memory may run out, or commits be refused, before the rule is looked at. */
    if (workload_tolerates(work) && status < 0 && status != KVT_E_POISONED)
        return;
    if (status != wanted)
        model_fail(
            &work->model, "%s: %s, not %s", what, kvt_status_name(status), kvt_status_name(wanted));
    else if (error.status != status || error.text == NULL || error.text[0] == '\0')
        model_fail(&work->model, "%s: refused, and the last error is %s, \"%s\"", what,
            kvt_status_name(error.status), error.text == NULL ? "" : error.text);
}

static void
bad_judge(struct workload *work, const struct bad *bad, enum kvt_status status)
{
    refused_judge(work, bad->what, bad->wanted, status);
}

/* --- 1. Keys, counts, namespaces -------------------------------------------------------------- */

/* What is wrong with the keys of any call that takes them. */
static void
keys_break(struct workload *work, struct bad *bad)
{
    static const kvt_namespace none[2] = {{0}, {BAD_ID}};
    struct kvt_key *key = &bad->keys[bad->at];
    uint32_t choice = rng_below(&work->rng, 7);

    bad->what = "a bad key, count or namespace";
    if (choice == 0)
        key->length = 0;
    else if (choice == 1)
        key->length = KVT_KEY_BYTES_MAX + 1;
    else if (choice == 2)
        key->bytes = NULL;
    else if (choice == 3)
        key->reserved0 = 1;
    else if (choice == 4)
        bad->count = 0;
    else if (choice == 5)
        bad->count = KVT_BATCH_MAX + 1;
    else
        bad->ns = none[rng_below(&work->rng, 2)];
}

/* Nothing that the call would give was written. */
static void
lookup_refused(struct workload *work, struct bad *bad)
{
    uint8_t tiers[BATCH_MAX];
    uint32_t leading = BAD_ID;
    kvt_lease lease = {.id = BAD_ID};
    enum kvt_status status;

    memset(tiers, UNTOUCHED, sizeof(tiers));
    status = kvt_lookup(work->store, bad->ns, bad->keys, bad->count, tiers, &leading, &lease);
    bad_judge(work, bad, status);
    if (leading != BAD_ID || lease.id != 0 || tiers[0] != UNTOUCHED ||
        memcmp(tiers, tiers + 1, sizeof(tiers) - 1) != 0)
        model_fail(&work->model, "kvt_lookup was refused, and has answered");
}

static void
hint_refused(struct workload *work, struct bad *bad)
{
    struct kvt_cost cost = {.struct_size = sizeof(cost), .load_ns = BAD_ID};
    const struct kvt_match_component all = {.policy = KVT_MATCH_ALL};
    uint32_t choice = rng_below(&work->rng, 6);
    uint32_t usable = BAD_ID;

    for (uint32_t i = 0; choice == 5 && i < BATCH_MAX; i++)
        bad->keys[i].component = 0;
    if (choice == 0)
        bad_judge(work, bad, kvt_touch(work->store, bad->ns, bad->keys, bad->count));
    else if (choice == 1)
        bad_judge(work, bad, kvt_importance_set(work->store, bad->ns, bad->keys, bad->count, 1));
    else if (choice == 2)
        bad_judge(work, bad, kvt_pin(work->store, bad->ns, bad->keys, bad->count, KVT_FOREVER));
    else if (choice == 3)
        bad_judge(work, bad,
            kvt_phase_set(
                work->store, bad->ns, bad->keys, bad->count, KVT_PHASE_IO_WAIT, KVT_FOREVER));
    else if (choice == 4)
        bad_judge(work, bad, kvt_estimate(work->store, bad->ns, bad->keys, bad->count, &cost));
    else
        bad_judge(work, bad,
            kvt_match(work->store, bad->ns, bad->keys, bad->count, &all, 1, &usable, NULL, NULL));
    if (cost.load_ns != BAD_ID || usable != BAD_ID)
        model_fail(&work->model, "kvt_estimate or kvt_match was refused, and has answered");
}

/* --- 2. Submissions --------------------------------------------------------------------------- */

static void
ticket_judge(
    struct workload *work, struct bad *bad, enum kvt_status status, kvt_ticket *const *ticket)
{
    bad_judge(work, bad, status);
    if (*ticket != NULL)
        model_fail(&work->model, "%s: refused, and there is a ticket", bad->what);
}

/* The ticket of a call that is refused is NULL, whatever it was. */
static kvt_ticket *
ticket_bait(void)
{
    return (kvt_ticket *)(void *)bait;
}

static void
put_break(struct workload *work, struct bad *bad, struct kvt_put *put)
{
    struct kvt_options options = {.struct_size = sizeof(options)};
    uint32_t choice = rng_below(&work->rng, 11);

    bad->what = "a put that breaks a rule";
    if (choice == 0)
        put->length = 0;
    else if (choice == 1 && kvt_options_get(work->store, &options) == KVT_OK)
        put->length = options.block_bytes_max + 1;
    else if (choice == 2)
        put->source = NULL;
    else if (choice == 3)
        put->flags |= 0x80;
    else if (choice == 4)
        put->part_count = KVT_PARTS_MAX + 1;
    else if (choice == 5)
        put->part_count = 3; /* Of a page. */
    else if (choice == 6)
        put->hint = 4;
    else if (choice == 7)
        put->tier = KVT_TIER_NVME;
    else if (choice == 8)
        put->region.id = BAD_ID;
    else if (choice == 9)
        put->layout.id = BAD_ID;
    else
        put->reserved1 = 1;
}

static void
put_refused(struct workload *work, struct bad *bad, bool breaks_key)
{
    enum kvt_durability durability = KVT_MEMORY;
    kvt_ticket *ticket = ticket_bait();
    struct kvt_put puts[BATCH_MAX];

    for (uint32_t i = 0; i < BATCH_MAX && i < bad->count; i++)
        puts[i] =
            (struct kvt_put){.source = bait[i], .length = PAGE_BYTES, .flags = KVT_PUT_REPLACE};
    if (breaks_key)
        keys_break(work, bad);
    else if (rng_below(&work->rng, 12) == 0)
        durability = (enum kvt_durability)(KVT_SYNC + 1);
    else
        put_break(work, bad, &puts[bad->at]);
    if (durability > KVT_SYNC)
        bad->what = "a put of no durability";
    for (uint32_t i = 0; i < BATCH_MAX && i < bad->count; i++)
        puts[i].key = bad->keys[i];
    ticket_judge(work, bad,
        kvt_put_submit(work->store, bad->ns, puts, bad->count, durability, NULL, &ticket), &ticket);
}

static void
get_break(struct workload *work, struct bad *bad, struct kvt_get *gets)
{
    struct kvt_get *get = &gets[bad->at];
    uint32_t choice = rng_below(&work->rng, 9);

    bad->what = "a get that breaks a rule";
    if (choice == 0)
        get->capacity = 0;
    else if (choice == 1)
        get->destination = NULL;
    else if (choice == 2)
        get->flags = 0x80;
    else if (choice == 3)
        get->part_first = 1; /* Without a part_count. */
    else if (choice == 4)
        get->region.id = BAD_ID;
    else if (choice == 5)
        get->layout.id = BAD_ID;
    else if (choice == 6)
        get->flags = KVT_GET_BY_PART; /* Without parts. */
    else if (choice == 7 && bad->count > 1)
        gets[1].destination = bait[0] + PAGE_BYTES - 1; /* Where another one lies. */
    else
        get->reserved0 = 1;
}

static void
get_refused(struct workload *work, struct bad *bad, bool breaks_key)
{
    kvt_ticket *ticket = ticket_bait();
    struct kvt_get gets[BATCH_MAX];

    for (uint32_t i = 0; i < BATCH_MAX && i < bad->count; i++)
        gets[i] = (struct kvt_get){.destination = bait[i], .capacity = PAGE_BYTES};
    if (breaks_key)
        keys_break(work, bad);
    else
        get_break(work, bad, gets);
    for (uint32_t i = 0; i < BATCH_MAX && i < bad->count; i++)
        gets[i].key = bad->keys[i];
    ticket_judge(
        work, bad, kvt_get_submit(work->store, bad->ns, gets, bad->count, NULL, &ticket), &ticket);
}

static void
move_refused(struct workload *work, struct bad *bad)
{
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    kvt_ticket *ticket = ticket_bait();
    uint32_t choice = rng_below(&work->rng, 6);
    uint32_t down = KVT_TIER_HOST;
    enum kvt_status status;

    bad->what = "a move that breaks a rule";
    if (choice == 0)
        keys_break(work, bad);
    else if (choice == 1)
        how.tier = KVT_TIER_NVME;
    else if (choice == 2)
        how.flags = 0x80;
    else if (choice == 3)
        how.struct_size--;
    else
        down = KVT_TIER_HBM;
    if (choice == 4 && !work->has_hbm) {
        how.tier = KVT_TIER_HBM;
        bad->wanted = KVT_E_UNSUPPORTED;
    } else if (choice >= 4) {
        status =
            kvt_demote_submit(work->store, bad->ns, bad->keys, bad->count, down, NULL, &ticket);
        ticket_judge(work, bad, status, &ticket);
        return;
    }
    status = rng_below(&work->rng, 2) == 0 ? kvt_prefetch_submit(work->store, bad->ns, bad->keys,
                                                 bad->count, &how, NULL, &ticket)
                                           : kvt_lookup_prefetch(work->store, bad->ns, bad->keys,
                                                 bad->count, &how, NULL, NULL, NULL, &ticket);
    ticket_judge(work, bad, status, &ticket);
}

static void
delete_refused(struct workload *work, struct bad *bad)
{
    kvt_ticket *ticket = ticket_bait();

    keys_break(work, bad);
    ticket_judge(work, bad,
        kvt_delete_submit(work->store, bad->ns, bad->keys, bad->count, NULL, &ticket), &ticket);
}

/* --- 3. Handles ------------------------------------------------------------------------------- */

static void
lease_refused(struct workload *work, struct bad *bad)
{
    const struct held_lease *held = &work->leases[rng_below(&work->rng, LEASES_MAX)];
    kvt_lease lease = held->lease;
    uint32_t choice = rng_below(&work->rng, 3);
    uint32_t index = 0, tier = KVT_TIER_HOST;
    struct kvt_locator locator;
    const void *address = bait;
    uint64_t length;

    bad->what = "a stale lease, or an index or a tier that it has not";
    if (choice == 0 || lease.id == 0)
        lease = work->stale_lease;
    else if (choice == 1)
        index = held->count;
    else
        tier = KVT_TIER_NVME;
    if (rng_below(&work->rng, 2) == 0)
        bad_judge(work, bad, kvt_lease_export(work->store, lease, index, tier, &locator));
    else
        bad_judge(work, bad, kvt_lease_address(work->store, lease, index, tier, &address, &length));
    if (address != bait)
        model_fail(&work->model, "%s: refused, and there is an address", bad->what);
    if (lease.id != work->stale_lease.id || lease.id == 0)
        return;
    /* It is counted, and that is all. */
    kvt_lease_release(work->store, lease);
    work->stale_count++;
}

static void
ticket_refused(struct workload *work, struct bad *bad, const struct flight *flight)
{
    struct kvt_result results[BATCH_MAX + 1];
    uint32_t choice = rng_below(&work->rng, 4);
    bool has_one_stage = flight->kind == FLIGHT_GET ||
                         (flight->kind == FLIGHT_PUT && flight->durability == KVT_MEMORY);
    uint32_t stage = has_one_stage ? KVT_STAGE_DURABLE : KVT_STAGE_DURABLE + 1;

    bad->what = "a stage, a count or a part that the ticket has not";
    if (choice == 0)
        bad_judge(work, bad, kvt_ticket_wait(flight->ticket, stage, KVT_FOREVER));
    else if (choice == 1)
        bad_judge(work, bad, kvt_ticket_results(flight->ticket, stage, results, flight->count));
    else if (choice == 2 && flight->is_visible)
        bad_judge(work, bad,
            kvt_ticket_results(flight->ticket, KVT_STAGE_DONE, results, flight->count + 1));
    else
        bad_judge(work, bad, kvt_ticket_part_wait(flight->ticket, 0, KVT_FOREVER));
}

/* Something is out: the store stays open. */
static void
close_refused(struct workload *work, struct bad *bad)
{
    bool is_out = work->queue_count > 0;

    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        is_out = is_out || work->flights[i].ticket != NULL;
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        is_out = is_out || work->leases[i].lease.id != 0;
    if (!is_out)
        return;
    bad->what = "kvt_close with queues, tickets or leases out";
    bad->wanted = KVT_E_STATE;
    bad_judge(work, bad, kvt_close(work->store));
    work->asked_count[ASKED_CLOSE]++;
}

/* --- 4. Namespaces ---------------------------------------------------------------------------- */

static void
space_refused(struct workload *work, struct bad *bad)
{
    static char long_name[257];
    uint32_t choice = rng_below(&work->rng, 7);
    const char *name = workload_space_name(0);
    const kvt_namespace none = {.id = BAD_ID};
    kvt_namespace ns = {.id = BAD_ID};
    char description[2];
    size_t length = BAD_ID;

    memset(long_name, 'n', sizeof(long_name) - 1);
    bad->what = "a call of a namespace that breaks a rule";
    if (choice == 0)
        bad_judge(work, bad, kvt_namespace_open(work->store, name, "other", 5, &ns));
    else if (choice == 1)
        bad_judge(work, bad, kvt_namespace_open(work->store, "", "", 0, &ns));
    else if (choice == 2)
        bad_judge(work, bad, kvt_namespace_open(work->store, long_name, "", 0, &ns));
    else if (choice == 3)
        bad_judge(work, bad, kvt_namespace_clear(work->store, none));
    else if (choice == 4)
        bad_judge(work, bad,
            kvt_namespace_description(
                work->store, work->spaces[0], description, sizeof(description), &length));
    else if (choice == 5)
        bad_judge(work, bad, kvt_namespace_share_set(work->store, none, KVT_TIER_HOST, 0));
    else
        bad_judge(work, bad, kvt_namespace_share_set(work->store, work->spaces[0], 3, 0));
    if (length != BAD_ID || ns.id != (choice < 3 ? 0 : BAD_ID))
        model_fail(&work->model, "%s: refused, and has answered", bad->what);
}

/* --- 5. Any of them --------------------------------------------------------------------------- */

void
workload_refused(struct workload *work)
{
    const struct flight *flight = &work->flights[rng_below(&work->rng, FLIGHTS_MAX)];
    uint32_t choice = rng_below(&work->rng, 10);
    bool breaks_key = rng_below(&work->rng, 3) == 0;
    struct bad bad;

    memset(&bad, 0, sizeof(bad));
    bad_make(work, &bad);
    if (choice == 0)
        lease_refused(work, &bad);
    else if (choice == 1)
        close_refused(work, &bad);
    else if (choice == 2)
        space_refused(work, &bad);
    else if (choice == 3 && flight->kind != FLIGHT_FREE)
        ticket_refused(work, &bad, flight);
    else if (bad.count == 0)
        return;
    else if (choice == 4)
        get_refused(work, &bad, breaks_key);
    else if (choice == 5)
        move_refused(work, &bad);
    else if (choice == 6)
        delete_refused(work, &bad);
    else if (choice < 9)
        put_refused(work, &bad, breaks_key);
    else {
        keys_break(work, &bad);
        if (rng_below(&work->rng, 3) == 0)
            lookup_refused(work, &bad);
        else
            hint_refused(work, &bad);
    }
}
