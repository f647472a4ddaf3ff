/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the one thread that owns the store's state: what it looks at, in which order.
 *
 * Nothing called from here blocks. See engine/ARCHITECTURE.md for the threads around it.
 */
#include "copy_run.h"
#include "store_internal.h"

void
loop_send(struct kvt_store *store, struct message *message)
{
    if (inbox_push(&store->messages, &message->node))
        env_wake(&store->env, store->loop_task);
}

static bool
messages_take(struct kvt_store *store)
{
    struct inbox_node *node = inbox_take(&store->messages);
    bool was_busy = node != NULL;

    while (node != NULL) {
        struct message *message = CONTAINER_OF(node, struct message, node);

        node = node->next;
        message->deliver(store, message);
    }
    return was_busy;
}

void
loop_job_on(struct kvt_store *store, struct crew *crew, struct job *job)
{
    job->crew.done = &store->jobs_done;
    job->crew.done_task = &store->loop_task;
    crew_submit(crew, &job->crew);
}

/* How many of `count` jobs one worker is given: all workers shall have some. */
static uint32_t
run_length(const struct kvt_store *store, uint32_t count)
{
    uint32_t workers = store->options.worker_count;
    uint32_t length = (count + workers - 1) / workers;

    return length > CREW_FOLLOWERS_MAX + 1 ? CREW_FOLLOWERS_MAX + 1 : length;
}

static void
jobs_flush(struct kvt_store *store)
{
    struct job_batch *ready = &store->jobs_ready;
    uint32_t length = run_length(store, ready->count);
    struct crew_job *first = NULL, *leader = NULL;
    uint32_t leader_count = 0;

    for (uint32_t i = 0; i < ready->count; i++) {
        struct crew_job *job = &ready->jobs[i]->crew;

        if (leader != NULL && leader->is_short && job->is_short &&
            leader->follower_count + 1u < length) {
            leader->followers[leader->follower_count++] = job;
            continue;
        }
        if (leader == NULL)
            first = job;
        else
            leader->node.next = &job->node;
        job->node.next = NULL;
        job->follower_count = 0;
        leader = job;
        leader_count++;
    }
    if (first != NULL)
        crew_submit_many(store->crew, &first->node, &leader->node, leader_count);
    ready->count = 0;
}

void
loop_job(struct kvt_store *store, struct job *job)
{
    struct job_batch *ready = &store->jobs_ready;

    job->crew.done = &store->jobs_done;
    job->crew.done_task = &store->loop_task;
    ready->jobs[ready->count++] = job;
    if (ready->count == JOBS_AT_ONCE)
        jobs_flush(store);
}

/* A job and those that followed it. */
static void
run_finish(struct kvt_store *store, struct job *leader)
{
    struct job *jobs[CREW_FOLLOWERS_MAX + 1] = {leader};
    uint32_t count = 1;

    for (uint32_t i = 0; i < leader->crew.follower_count; i++)
        jobs[count++] = CONTAINER_OF(leader->crew.followers[i], struct job, crew);
    /* A worker had them last. */
    for (uint32_t i = 1; i < count; i++) {
        __builtin_prefetch(&jobs[i]->finish);
        __builtin_prefetch(jobs[i] + 1);
    }
    for (uint32_t i = 0; i < count; i++)
        jobs[i]->finish(store, jobs[i]);
}

static bool
jobs_take(struct kvt_store *store)
{
    struct inbox_node *node = inbox_take(&store->jobs_done);
    bool was_busy = node != NULL;

    while (node != NULL) {
        struct job *leader = CONTAINER_OF(node, struct job, crew.node);

        node = node->next;
        run_finish(store, leader);
    }
    return was_busy;
}

/* What failed may have been the last root that took writes: health says so before anybody is told
 * of the failure. */
static void
roots_look(struct kvt_store *store)
{
    for (uint32_t root = 0; root < store->file.root_count; root++) {
        if (nvme_root_is_writable(store->nvme, root))
            return;
    }
    if (!store->is_read_only)
        store_health_set(store, KVT_HEALTH_ROOT_READONLY);
}

static bool
batches_take(struct kvt_store *store)
{
    struct inbox_node *node;
    bool was_busy = false;

    if (store->nvme != NULL && nvme_step(store->nvme)) {
        roots_look(store);
        was_busy = true;
    }
    node = inbox_take(&store->batches_done);
    was_busy = was_busy || node != NULL;
    while (node != NULL) {
        struct tier_batch *batch = CONTAINER_OF(node, struct tier_batch, node);
        struct batch_owner *owner = batch->user;

        node = node->next;
        owner->finish(store, batch);
    }
    return was_busy;
}

/* --- Calls ------------------------------------------------------------------------------------ */

static void
call_deliver(struct kvt_store *store, struct message *message)
{
    struct loop_call *call = CONTAINER_OF(message, struct loop_call, message);

    call->next = store->calls;
    store->calls = call;
}

/* Run what callers wait for, again and again until it says that it is done. */
static void
calls_run(struct kvt_store *store)
{
    struct loop_call **link = &store->calls;

    while (*link != NULL) {
        struct loop_call *call = *link;

        if (!call->run(store, call->context)) {
            link = &call->next;
            continue;
        }
        *link = call->next;
        if (call->is_last)
            atomic_store_explicit(&store->rest, REST_ASKED, memory_order_relaxed);
        /* (P1) release: pairs with the acquire in loop_call(). The call is gone afterwards. */
        atomic_store_explicit(&call->is_done, 1, memory_order_release);
        gate_post(&store->env, &store->call_gate);
    }
}

static void
call_await(struct kvt_store *store, struct loop_call *call)
{
    call->message.deliver = call_deliver;
    loop_send(store, &call->message);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&store->call_gate.value, memory_order_acquire);

        if (atomic_load_explicit(&call->is_done, memory_order_acquire) != 0)
            return;
        gate_wait(&store->env, &store->call_gate, seen, UINT64_MAX);
    }
}

void
loop_call(struct kvt_store *store, bool (*run)(struct kvt_store *, void *), void *context)
{
    call_await(store, &(struct loop_call){.run = run, .context = context});
}

void
loop_end(struct kvt_store *store, bool (*run)(struct kvt_store *, void *), void *context)
{
    call_await(store, &(struct loop_call){.run = run, .context = context, .is_last = true});
}

void
loop_rest(struct kvt_store *store)
{
    atomic_store_explicit(&store->rest, REST_ASKED, memory_order_relaxed);
    env_wake(&store->env, store->loop_task);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&store->call_gate.value, memory_order_acquire);

        /* (P2) acquire: pairs with the release in rest_step(). */
        if (atomic_load_explicit(&store->rest, memory_order_acquire) == REST_REACHED)
            return;
        gate_wait(&store->env, &store->call_gate, seen, UINT64_MAX);
    }
}

/* True: the loop does nothing any more. */
static bool
rest_step(struct kvt_store *store)
{
    uint32_t rest = atomic_load_explicit(&store->rest, memory_order_relaxed);

    if (rest == REST_ASKED) {
        atomic_store_explicit(&store->rest, REST_REACHED, memory_order_release); /* (P2) */
        gate_post(&store->env, &store->call_gate);
    }
    return rest != REST_NONE;
}

/* --- Operations ------------------------------------------------------------------------------- */

void
op_begin(struct kvt_store *store, struct op *op)
{
    if (store->is_draining) {
        op_cancel(store, op);
        return;
    }
    switch (op->ticket->kind) {
    case TICKET_PUT:
        put_begin(store, op);
        break;
    case TICKET_GET:
        get_begin(store, op);
        break;
    case TICKET_DELETE:
        delete_begin(store, op);
        break;
    case TICKET_PREFETCH:
        prefetch_begin(store, op);
        break;
    case TICKET_DEMOTE:
        demote_begin(store, op);
        break;
    }
}

void
op_note(const struct kvt_store *store, struct op *op, uint32_t number)
{
    op->moved = residency_use(store->map, number);
}

void
op_await(struct kvt_store *store, struct op *op, uint32_t number)
{
    op_note(store, op, number);
    op_list_add(&entries_at(store->entries, number)->flight->waiters, op);
}

void
op_look(struct kvt_store *store, struct op *op, uint32_t number)
{
    if (op->moved.number_more == 0 || residency_is_use(store->map, number, &op->moved))
        return;
    op->moved.number_more = 0;
    op->is_brought = op->is_lowered = op->is_raised = op->is_written = false;
    op->moved_status = KVT_OK;
    op_slot_put(store, op);
    op->loss_count++;
}

void
ops_restart(struct kvt_store *store, struct op_list *waiters, enum kvt_status status)
{
    struct op *op;

    while ((op = op_list_take(waiters)) != NULL) {
        op->moved_status = status;
        op_begin(store, op);
    }
}

/* What was on its way when the last step ended was so until now. */
static void
meters_step(struct kvt_store *store)
{
    uint64_t passed_ns = store->now_ns - store->metered_ns;

    if (store->reads_in_flight > 0)
        store->nvme_meter.busy_ns += passed_ns;
    if (store->host_loads_in_flight > 0)
        store->host_meter.busy_ns += passed_ns;
    load_meter_age(&store->nvme_meter);
    load_meter_age(&store->host_meter);
    store->metered_ns = store->now_ns;
}

bool
loop_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct kvt_store *store = context;
    bool was_busy;

    *next_ns_out = UINT64_MAX;
    if (rest_step(store))
        return false;
    store->now_ns = now_ns;
    if (store->seeks_strays) {
        (void)messages_take(store);
        calls_run(store);
        return !store->seeks_strays;
    }
    store->turn++;
    entries_turn(store->entries);
    meters_step(store);
    costs_step(store);
    was_busy = messages_take(store);
    was_busy = jobs_take(store) || was_busy;
    was_busy = batches_take(store) || was_busy;
    was_busy = devices_step(store) || was_busy;
    was_busy = entry_doomed_step(store) || was_busy;
    was_busy = hidden_copies_step(store) || was_busy;
    was_busy = pins_step(store) || was_busy;
    was_busy = phases_step(store) || was_busy;
    was_busy = holds_step(store) || was_busy;
    was_busy = room_step(store) || was_busy;
    was_busy = commit_step(store) || was_busy;
    was_busy = reclaim_step(store) || was_busy;
    copy_run_send(store);
    calls_run(store);
    jobs_flush(store);
    if (was_busy)
        residency_collect(store->map);
    *next_ns_out = commit_next_ns(store);
    if (pins_next_ns(store) < *next_ns_out)
        *next_ns_out = pins_next_ns(store);
    if (store->phases.look_ns < *next_ns_out)
        *next_ns_out = store->phases.look_ns;
    if (store->holds.look_ns < *next_ns_out)
        *next_ns_out = store->holds.look_ns;
    if (hidden_copies_next_ns(store) < *next_ns_out)
        *next_ns_out = hidden_copies_next_ns(store);
    if (nvme_room_next_ns(store) < *next_ns_out)
        *next_ns_out = nvme_room_next_ns(store);
    live_step(store, was_busy, next_ns_out);
    lazy_file_step(store->learned);
    lazy_file_step(store->fates_file);
    return was_busy;
}
