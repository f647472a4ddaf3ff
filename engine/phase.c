/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phase.c - chains whose requests wait (phase.h): what goes down now, and when it comes back.
 *
 * What can fail comes first: a wait begins with both its tickets, so that the loop, when the time
 * has come, only sends one. They have room for what is remembered: the loop makes them when it
 * knows how much that is.
 *
 * Threads   the loop, but for kvt_phase_set() and what it calls.
 */
#include "hint.h"
#include "store_internal.h"

enum {
    DEVICE_NONE = UINT8_MAX,
    LOAD_MARGIN = 2, /* So many times what the load is thought to take. */
    LOAD_MARGIN_NS = 5000000,
    PARENT_REACH = 64, /* So far before a block its parent is looked for in the chain: components
                        * may stand between them. */
};

/* What one kvt_phase_set() is about. */
struct phase_call {
    struct hint hint;
    uint64_t *chains;      /* [i]: hash of the keys 0..i. */
    uint8_t *devices;      /* [i]: whose HBM block i shall come back to; DEVICE_NONE. */
    uint32_t *gone_counts; /* [i]: children of block i that leave HBM. */
    struct wait *wait;     /* KVT_PHASE_IO_WAIT: the new one, as long as it is the call's. */
    uint64_t duration_ns;  /* From the call on. */
    uint32_t namespace_epoch;
    bool is_ticketless; /* Too many tickets are out for it. */
};

/* --- 1. Waits --------------------------------------------------------------------------------- */

static void
phases_check(const struct kvt_store *store)
{
    const struct phases *phases = &store->phases;
    uint64_t look_ns = UINT64_MAX;
    uint32_t block_count = 0, wait_count = 0;

    for (const struct wait *wait = phases->first; wait != NULL; wait = wait->next) {
        KVT_ASSERT_SLOW(wait->up->stage == 0 && wait->up->count > 0);
        look_ns = wait->look_ns < look_ns ? wait->look_ns : look_ns;
        block_count += wait->up->count;
        wait_count++;
    }
    KVT_ASSERT(wait_count == phases->wait_count && block_count == phases->block_count);
    KVT_ASSERT(look_ns == phases->look_ns);
}

static void
wait_free(struct kvt_store *store, struct wait *wait)
{
    if (wait->down != NULL)
        ticket_drop(wait->down);
    if (wait->up != NULL)
        ticket_drop(wait->up);
    env_put(&store->env, wait, sizeof(*wait));
}

/* After every change of the list. */
static void
phases_settle(struct kvt_store *store)
{
    struct phases *phases = &store->phases;

    phases->look_ns = UINT64_MAX;
    for (const struct wait *wait = phases->first; wait != NULL; wait = wait->next)
        phases->look_ns = wait->look_ns < phases->look_ns ? wait->look_ns : phases->look_ns;
    phases_check(store);
}

/* The wait leaves the list that `link` is of. */
static struct wait *
wait_unlink(struct kvt_store *store, struct wait **link)
{
    struct wait *wait = *link;

    *link = wait->next;
    store->phases.wait_count--;
    store->phases.block_count -= wait->up->count;
    return wait;
}

static void
wait_drop(struct kvt_store *store, struct wait **link)
{
    wait_free(store, wait_unlink(store, link));
}

/* The ticket's operations are so many. */
static void
ticket_shrink(struct kvt_ticket *ticket, uint32_t count)
{
    ticket->count = count;
    ticket->block_count = count;
    ticket->left[0] = count;
}

/* What was cleared meanwhile does not come back under the same name. */
static void
cleared_leave(struct kvt_store *store, struct kvt_ticket *ticket)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < ticket->count; i++) {
        const struct op *op = &ticket->ops[i];
        const struct namespace_state *space = namespace_at(store, op->key.namespace_id);

        if (op->namespace_epoch == atomic_load_explicit(&space->epoch, memory_order_relaxed))
            ticket->ops[count++] = *op;
    }
    ticket_shrink(ticket, count);
}

/* Its blocks come back: the wait is over. */
static void
wait_send(struct kvt_store *store, struct wait **link, bool is_bulk)
{
    struct wait *wait = wait_unlink(store, link);

    cleared_leave(store, wait->up);
    wait->up->is_bulk = is_bulk;
    if (wait->up->count > 0) {
        /* What is still going down need not. */
        (void)kvt_ticket_cancel(wait->down);
        ticket_send(wait->up);
    }
    wait_free(store, wait);
}

/* Whether the wait's keys are the first ones of the call's. */
static bool
wait_is_of(const struct wait *wait, const struct phase_call *call)
{
    return wait->key_count <= call->hint.count && call->chains[wait->key_count - 1] == wait->chain;
}

static void
waits_resume(struct kvt_store *store, const struct phase_call *call)
{
    struct wait **link = &store->phases.first;

    while (*link != NULL) {
        if (wait_is_of(*link, call))
            wait_send(store, link, false);
        else
            link = &(*link)->next;
    }
    phases_settle(store);
}

void
phases_open(struct kvt_store *store)
{
    store->phases.look_ns = UINT64_MAX;
}

void
phases_end(struct kvt_store *store)
{
    while (store->phases.first != NULL)
        wait_drop(store, &store->phases.first);
    phases_settle(store);
}

/* --- 2. When it is time ----------------------------------------------------------------------- */

/* At the rate that was seen, or a byte a nanosecond. */
static uint64_t
load_at_most_ns(const struct load_meter *meter, uint64_t bytes)
{
    uint64_t known_ns = load_meter_ns(meter, bytes);

    return known_ns > 0 ? known_ns : bytes;
}

/* How long before its end a wait has to end for its blocks to be there. `is_worst`: wherever they
 * will have sunk by then. */
static uint64_t
wait_load_ns(struct kvt_store *store, const struct kvt_ticket *up, bool is_worst)
{
    uint64_t host_bytes = 0, nvme_bytes = 0;

    for (uint32_t i = 0; i < up->count; i++) {
        const struct op *op = &up->ops[i];
        uint32_t number = residency_find(store->map, op->fingerprint, &op->key);
        uint64_t length = number == ENTRY_NONE ? 0 : residency_at(store->map, number)->length;

        /* What lies on NVMe only comes by way of HOST. */
        host_bytes += length;
        if (length > 0 && store->nvme != NULL &&
            (is_worst || (entry_tiers(store, number) & (TIER_HOST | TIER_NVME)) == TIER_NVME))
            nvme_bytes += length;
    }
    return LOAD_MARGIN * (load_at_most_ns(&store->host_meter, host_bytes) +
                             load_at_most_ns(&store->nvme_meter, nvme_bytes)) +
           LOAD_MARGIN_NS;
}

/* True: it is time. Else the wait is looked at again when it may be. */
static bool
wait_look(struct kvt_store *store, struct wait *wait)
{
    uint64_t need_ns;

    if (wait->look_ns > store->now_ns)
        return false;
    need_ns = wait_load_ns(store, wait->up, false);
    if (wait->resume_ns <= store->now_ns || wait->resume_ns - store->now_ns <= need_ns)
        return true;
    wait->look_ns = wait->resume_ns - need_ns;
    return false;
}

bool
phases_step(struct kvt_store *store)
{
    struct wait **link = &store->phases.first;
    bool was_busy = false;

    if (store->phases.look_ns > store->now_ns)
        return false;
    while (*link != NULL) {
        if (wait_look(store, *link)) {
            wait_send(store, link, true);
            was_busy = true;
        } else {
            link = &(*link)->next;
        }
    }
    phases_settle(store);
    return was_busy;
}

/* --- 3. The beginning of a wait --------------------------------------------------------------- */

/* What an older wait of the same chain remembers is not lost with it: its blocks are where that one
 * has sent them. Both are in the order of the chain. */
static void
devices_inherit(const struct phase_call *call, const struct wait *wait)
{
    uint32_t i = 0;

    for (uint32_t k = 0; k < wait->up->count; k++) {
        const struct op *op = &wait->up->ops[k];

        while (i < call->hint.count && !hash128_equal(call->hint.fingerprints[i], op->fingerprint))
            i++;
        if (i < call->hint.count && call->devices[i] == DEVICE_NONE)
            call->devices[i] = op->device;
    }
}

/* Where each block shall be when the wait is over; how many there are. */
static uint32_t
devices_find(struct kvt_store *store, const struct phase_call *call)
{
    const struct hint *hint = &call->hint;
    uint32_t count = 0;

    for (uint32_t i = 0; i < hint->count; i++) {
        uint32_t number = hint->numbers[i];

        call->devices[i] = DEVICE_NONE;
        if (number != ENTRY_NONE && (entry_tiers(store, number) & TIER_HBM) != 0)
            call->devices[i] = (uint8_t)entry_device(residency_at(store->map, number));
    }
    for (const struct wait *wait = store->phases.first; wait != NULL; wait = wait->next) {
        if (wait_is_of(wait, call))
            devices_inherit(call, wait);
    }
    for (uint32_t i = 0; i < hint->count; i++)
        count += call->devices[i] != DEVICE_NONE;
    return count;
}

/* Somebody else needs the copy in HBM: a pin, a lease, a child that stays there. */
static bool
copy_is_needed(struct kvt_store *store, const struct phase_call *call, uint32_t i)
{
    uint32_t number = call->hint.numbers[i];

    return pins_hold(store, number) || entry_is_held(store, number) ||
           entries_at(store->entries, number)->hbm_child_count > call->gone_counts[i];
}

static void
parent_note(struct kvt_store *store, const struct phase_call *call, uint32_t i)
{
    uint32_t parent = entries_parent(store->entries, call->hint.numbers[i]);

    for (uint32_t k = i; parent != ENTRY_NONE && k > 0 && i - k < PARENT_REACH; k--) {
        if (call->hint.numbers[k - 1] == parent) {
            call->gone_counts[k - 1]++;
            return;
        }
    }
}

/* The ticket's next operation is about block `i`. */
static struct op *
ticket_add(const struct phase_call *call, struct kvt_ticket *ticket, uint32_t *count, uint32_t i)
{
    struct op *op = &ticket->ops[(*count)++];

    op->key = call->hint.keys[i];
    op->fingerprint = call->hint.fingerprints[i];
    op->namespace_epoch = call->namespace_epoch;
    return op;
}

/* Last block first: a block goes after its children. One that the chain names twice goes once: it
 * is one child. */
static void
down_fill(struct kvt_store *store, const struct phase_call *call)
{
    const uint32_t *numbers = call->hint.numbers;
    struct kvt_ticket *down = call->wait->down;
    uint32_t count = 0;

    for (uint32_t i = call->hint.count; i > 0; i--) {
        uint32_t number = numbers[i - 1];

        if (number == ENTRY_NONE || (entry_tiers(store, number) & TIER_HBM) == 0 ||
            entries_at(store->entries, number)->is_listed || copy_is_needed(store, call, i - 1))
            continue;
        parent_note(store, call, i - 1);
        ticket_add(call, down, &count, i - 1)->target = KVT_TIER_HOST;
        entries_at(store->entries, number)->is_listed = true;
    }
    ticket_shrink(down, count);
    for (uint32_t i = 0; i < call->hint.count; i++) {
        if (numbers[i] != ENTRY_NONE)
            entries_at(store->entries, numbers[i])->is_listed = false;
    }
}

static void
up_fill(const struct phase_call *call)
{
    struct kvt_ticket *up = call->wait->up;
    uint32_t count = 0;

    for (uint32_t i = 0; i < call->hint.count; i++) {
        struct op *op;

        if (call->devices[i] == DEVICE_NONE)
            continue;
        op = ticket_add(call, up, &count, i);
        op->device = call->devices[i];
        op->target = KVT_TIER_HBM;
    }
    KVT_ASSERT(count == up->count);
}

static enum kvt_status
wait_ticket_make(
    struct kvt_store *store, enum ticket_kind kind, uint32_t count, struct kvt_ticket **ticket_out)
{
    KVT_TRY(ticket_create(store, kind, count, NULL, ticket_out));
    ticket_disown(*ticket_out);
    (*ticket_out)->deadline_ns = KVT_FOREVER;
    return KVT_OK;
}

/* The call's wait knows its blocks, of which `count` are to come back. What goes down now is among
 * them. KVT_E_BUSY, KVT_E_NOMEM. */
static enum kvt_status
wait_fill(struct kvt_store *store, struct phase_call *call, uint32_t count)
{
    enum kvt_status status = wait_ticket_make(store, TICKET_DEMOTE, count, &call->wait->down);

    if (status == KVT_OK)
        status = wait_ticket_make(store, TICKET_PREFETCH, count, &call->wait->up);
    call->is_ticketless = status == KVT_E_BUSY;
    KVT_TRY(status);
    down_fill(store, call);
    up_fill(call);
    return KVT_OK;
}

/* One more wait of so many blocks, in place of those of the same chain. */
static enum kvt_status
phases_have_room(const struct kvt_store *store, const struct phase_call *call, uint32_t count)
{
    uint32_t wait_count = store->phases.wait_count;
    uint32_t block_count = store->phases.block_count;

    for (const struct wait *wait = store->phases.first; wait != NULL; wait = wait->next) {
        if (!wait_is_of(wait, call))
            continue;
        wait_count--;
        block_count -= wait->up->count;
    }
    if (wait_count >= store->options.request_count_max / PHASE_WAITS_SHARE)
        return KVT_E_BUSY;
    return block_count + count > KVT_PHASE_BLOCKS_MAX ? KVT_E_NOSPC : KVT_OK;
}

static enum kvt_status
wait_begin(struct kvt_store *store, struct phase_call *call)
{
    uint32_t count = devices_find(store, call);
    struct wait *wait = call->wait;
    struct wait **link = &store->phases.first;

    KVT_TRY(phases_have_room(store, call, count));
    if (count > 0)
        KVT_TRY(wait_fill(store, call, count));
    if (count == 0 || call->duration_ns <= wait_load_ns(store, wait->up, false)) {
        waits_resume(store, call);
        return KVT_OK;
    }
    while (*link != NULL) {
        if (wait_is_of(*link, call))
            wait_drop(store, link);
        else
            link = &(*link)->next;
    }
    wait->resume_ns = call->duration_ns > UINT64_MAX - store->now_ns
                          ? UINT64_MAX
                          : store->now_ns + call->duration_ns;
    wait->look_ns = UINT64_MAX;
    if (wait->resume_ns != UINT64_MAX) {
        uint64_t need_ns = wait_load_ns(store, wait->up, true);

        wait->look_ns =
            wait->resume_ns - store->now_ns > need_ns ? wait->resume_ns - need_ns : store->now_ns;
    }
    if (wait->down->count > 0)
        ticket_send(wait->down);
    wait->next = store->phases.first;
    store->phases.first = wait;
    store->phases.wait_count++;
    store->phases.block_count += count;
    call->wait = NULL;
    phases_settle(store);
    return KVT_OK;
}

static bool
phase_run(struct kvt_store *store, void *context)
{
    struct phase_call *call = context;

    hint_find(store, &call->hint);
    if (call->wait != NULL) {
        if (call->hint.found_count > 0)
            call->hint.status = wait_begin(store, call);
        return true;
    }
    waits_resume(store, call);
    if (call->hint.found_count > 0)
        entry_request(store, call->hint.numbers, call->hint.count);
    return true;
}

/* --- 4. The call (any) ------------------------------------------------------------------------ */

static enum kvt_status
wait_make(struct kvt_store *store, struct phase_call *call)
{
    const struct hint *hint = &call->hint;
    struct wait *wait = env_take(&store->env, sizeof(*wait));

    call->wait = wait;
    if (wait == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a wait");
    wait->chain = call->chains[hint->count - 1];
    wait->key_count = hint->count;
    return KVT_OK;
}

static enum kvt_status
phase_call_make(struct kvt_store *store, kvt_namespace ns, bool is_wait, struct phase_call *call)
{
    const struct hint *hint = &call->hint;
    uint64_t chain = 0;

    call->namespace_epoch =
        atomic_load_explicit(&namespace_at(store, ns.id)->epoch, memory_order_acquire);
    call->chains = env_take(&store->env, hint->count * sizeof(*call->chains));
    call->devices = env_take(&store->env, hint->count * sizeof(*call->devices));
    call->gone_counts = env_take(&store->env, hint->count * sizeof(*call->gone_counts));
    if (call->chains == NULL || call->devices == NULL || call->gone_counts == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u keys", hint->count);
    for (uint32_t i = 0; i < hint->count; i++) {
        chain = (chain ^ hint->fingerprints[i].low) * UINT64_C(0x9E3779B97F4A7C15);
        chain ^= chain >> 29;
        call->chains[i] = chain;
    }
    return is_wait ? wait_make(store, call) : KVT_OK;
}

static void
phase_call_free(struct kvt_store *store, struct phase_call *call)
{
    const struct hint *hint = &call->hint;

    env_put(&store->env, call->chains, hint->count * sizeof(*call->chains));
    env_put(&store->env, call->devices, hint->count * sizeof(*call->devices));
    env_put(&store->env, call->gone_counts, hint->count * sizeof(*call->gone_counts));
    if (call->wait != NULL)
        wait_free(store, call->wait);
    hint_free(store, &call->hint);
}

/* The loop's sentence is not the caller's. */
static enum kvt_status
phase_refused(const struct kvt_store *store, const struct phase_call *call)
{
    enum kvt_status status = call->hint.status;

    if (call->is_ticketless)
        return failure_set(status, 0, "%u tickets are out already (request_count_max)",
            store->options.request_count_max);
    if (status == KVT_E_BUSY)
        return failure_set(status, 0, "%u chains wait already (a quarter of request_count_max)",
            store->options.request_count_max / PHASE_WAITS_SHARE);
    if (status == KVT_E_NOSPC)
        return failure_set(
            status, 0, "more than %u blocks of chains that wait", KVT_PHASE_BLOCKS_MAX);
    if (status == KVT_E_NOMEM)
        return failure_set(status, 0, "no memory for what a wait remembers");
    return status;
}

enum kvt_status
kvt_phase_set(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    enum kvt_phase phase, uint64_t resume_ns)
{
    struct phase_call call = {.duration_ns = resume_ns};
    bool is_wait = phase == KVT_PHASE_IO_WAIT;
    enum kvt_status status;

    if (!is_wait && phase != KVT_PHASE_PREFILL && phase != KVT_PHASE_DECODE)
        return failure_set(KVT_E_INVAL, 0, "phase %d is not one of enum kvt_phase", (int)phase);
    if (!is_wait && resume_ns != 0)
        return failure_set(KVT_E_INVAL, 0, "resume_ns is for KVT_PHASE_IO_WAIT");
    KVT_TRY(hint_make(store, ns, keys, count, &call.hint));
    status = phase_call_make(store, ns, is_wait, &call);
    if (status == KVT_OK) {
        loop_call(store, phase_run, &call);
        status = phase_refused(store, &call);
    }
    phase_call_free(store, &call);
    return status;
}
