/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_lane.c - the actor that drives one io queue for the transfers of one device.
 *
 * Owns      the io queue, the queues of transfers that have not started.
 * Not here  operations and their numbers (lane_operation.c, lane_table.c), how many bytes fly
 *           (lane_budget.c).
 * Threads   lane_push(), lane_stats_get() any; the rest by the actor's.
 *
 * A round (lane_step): reap completions and answer transfers; take what was pushed; start what the
 * budget allows; submit; wake the tasks whose inboxes got answers. The io queue makes one system
 * call out of the submission and the wait that follows.
 *
 * Invariants
 *   (1) A transfer is in exactly one of: the inbox, a queue (urgent, bulk, syncs), parts of
 *       operations that are not FREE, the inbox it named; or in one queue and in parts at once
 *       while it has started and not all of it has.
 *   (2) No operation starts that brings the bytes in flight over the limit of its class.
 *
 * Who must be woken by a push (`attention`): a parked lane by any push, unless transfers already
 * wait for room, because whatever makes room wakes the lane as well; when only bulk ones wait, an
 * urgent one may still find room, so its push wakes. A sync needs no room: its push always wakes.
 * (L1) Both sides use read-modify-writes on `attention`: the lane sets it, then looks into the
 * inbox; a pusher fills the inbox, then reads `attention`. Whoever comes second in the order of
 * that word sees what the first did before, so either the lane finds the transfer or the pusher
 * finds that it must wake.
 */
#include "io_lane.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "lane_budget.h"
#include "lane_table.h"
#include "lane_transfer.h"
#include "try.h"

enum {
    NAME_BYTES = 16,
    REAP_COUNT = LANE_DEPTH,
    WAKE_COUNT = 16,
    BULK_SLOTS_KEPT = 32, /* Operations that bulk transfers leave for urgent ones. */
    KICK_BYTES = 256 << 10,
    RESUBMIT_NS = 1000 * 1000,
    SHARED_NS = 10 * 1000 * 1000,
    BULK_SHARED_BYTES = 2 << 20, /* Of bulk ones, within SHARED_NS of an urgent transfer. */
};

enum attention {
    ATTENTION_AWAKE,  /* The lane runs and looks into the inbox before it parks. */
    ATTENTION_ANY,    /* Parked: every push must wake it. */
    ATTENTION_URGENT, /* Parked with bulk transfers waiting for room. */
    ATTENTION_NONE,   /* Parked with urgent transfers waiting for room. */
};

/* Written by the actor only, read by any thread; a stale value is an old statistic. */
struct lane_counters {
    _Atomic uint64_t bytes[2]; /* By io_kind: IO_READ, IO_WRITE. */
    _Atomic uint64_t count[3]; /* By io_kind. */
    _Atomic uint64_t short_count, retry_count, error_count;
    _Atomic uint64_t bytes_in_flight, operations_in_flight, budget_bytes;
};

struct lane {
    struct kvt_env env; /* Set at open, then constant; so are the next three. */
    char name[NAME_BYTES];
    struct io_queue *queue;
    struct task *task;
    struct inbox inbox;    /* Any thread pushes. */
    _Atomic int attention; /* enum attention; see (L1). */
    struct lane_counters counters;
    _Atomic bool is_closing; /* Set by lane_close()... */
    _Atomic bool is_drained; /* ...and nothing is in flight any more. */
    struct gate gate;        /* Posted with is_drained. */
    /* The actor's, all that follows. */
    uint64_t now_ns;                 /* Of this round. */
    struct transfer_queue queues[2]; /* By lane_class: transfers with bytes that did not start. */
    uint64_t bulk_credit;            /* Bytes that bulk ones may start before urgent ones. */
    uint64_t urgent_ns;              /* When the last urgent transfer came; 0: never. */
    struct transfer_queue syncs;     /* Waiting for room in the table. */
    struct lane_budget budget;
    uint64_t round_bytes; /* Moved in this round. */
    bool is_full;         /* Something waits for room in the budget or in the table. */
    bool is_measured;     /* Full, and the budget is the reason. */
    struct task *const *wakes[WAKE_COUNT];
    uint32_t wake_count;
    struct io_done done[REAP_COUNT];
    struct lane_table table;
};

/* One writer, so no read-modify-write is needed. */
static void
counter_add(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + value, memory_order_relaxed);
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void
wakes_flush(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->wake_count; i++) {
        if (*lane->wakes[i] != NULL)
            env_wake(&lane->env, *lane->wakes[i]);
    }
    lane->wake_count = 0;
}

/* Wake `task` when the round ends. */
static void
wake_note(struct lane *lane, struct task *const *task)
{
    for (uint32_t i = 0; i < lane->wake_count; i++) {
        if (lane->wakes[i] == task)
            return;
    }
    if (lane->wake_count == WAKE_COUNT)
        wakes_flush(lane);
    lane->wakes[lane->wake_count++] = task;
}

/* Give a transfer back; it must not be touched afterwards. */
static void
transfer_answer(struct lane *lane, struct transfer *transfer)
{
    struct task *const *task = transfer->done_task;

    /* It may have been pushed after this round read the clock. */
    transfer->done_ns = lane->now_ns > transfer->submit_ns ? lane->now_ns : transfer->submit_ns;
    if (inbox_push(transfer->done, &transfer->node))
        wake_note(lane, task);
}

static void
transfer_fail(struct transfer *transfer, enum kvt_status status, int error)
{
    if (transfer->status != KVT_OK)
        return;
    transfer->status = status;
    transfer->error = error;
}

/* Bytes of a transfer have their answer; the last ones complete it. */
static void
transfer_settle(struct lane *lane, struct transfer *transfer, uint64_t size)
{
    KVT_ASSERT(size <= transfer->lane.left);
    transfer->lane.left -= size;
    if (transfer->lane.left == 0)
        transfer_answer(lane, transfer);
}

/* --- New transfers ---------------------------------------------------------------------------- */

static void
transfer_accept(struct lane *lane, struct transfer *transfer)
{
    uint64_t size = 0;

    transfer->status = KVT_OK;
    transfer->error = 0;
    memset(&transfer->lane, 0, sizeof(transfer->lane));
    switch (transfer->kind) {
    case IO_SYNC:
        transfer_queue_push(&lane->syncs, transfer);
        return;
    case IO_READ:
    case IO_WRITE:
        if (transfer_measure(transfer, &size))
            break;
        transfer_fail(transfer, KVT_E_INVAL, EINVAL);
        transfer_answer(lane, transfer);
        return;
    }
    if (size == 0) {
        transfer_answer(lane, transfer);
        return;
    }
    transfer->lane.size = size;
    transfer->lane.left = size;
    if (transfer->class == LANE_URGENT)
        lane->urgent_ns = lane->now_ns;
    transfer_queue_push(
        &lane->queues[transfer->class == LANE_URGENT ? LANE_URGENT : LANE_BULK], transfer);
}

static void
lane_take_inbox(struct lane *lane)
{
    struct inbox_node *node = inbox_take(&lane->inbox);

    while (node != NULL) {
        struct inbox_node *next = node->next;

        transfer_accept(lane, CONTAINER_OF(node, struct transfer, node));
        node = next;
    }
}

/* --- Starting --------------------------------------------------------------------------------- */

static void
lane_start_syncs(struct lane *lane)
{
    while (lane->syncs.first != NULL && lane->table.free_count > 0) {
        struct transfer *sync = transfer_queue_pop(&lane->syncs);
        struct lane_operation *operation = table_take(&lane->table);

        operation_begin(operation, sync);
        operation_append_sync(operation, sync);
        table_queue(&lane->table, operation);
    }
}

/* Take transfers that failed already off the head of a queue: the rest of them never starts. */
static struct transfer *
queue_head(struct lane *lane, struct transfer_queue *queue)
{
    struct transfer *head = queue->first;

    while (head != NULL && head->status != KVT_OK) {
        uint64_t rest = head->lane.size - head->lane.started;

        (void)transfer_queue_pop(queue);
        head->lane.started = head->lane.size;
        transfer_settle(lane, head, rest);
        head = queue->first;
    }
    return head;
}

/* Whether somebody waited for bytes a moment ago, and may soon wait again. */
static bool
lane_is_shared(const struct lane *lane)
{
    return lane->urgent_ns != 0 && lane->now_ns - lane->urgent_ns < SHARED_NS;
}

static uint64_t
next_bytes(const struct transfer *head)
{
    return smaller(head->lane.size - head->lane.started, LANE_OP_BYTES);
}

/* Bytes of bulk operations that may be in flight. A device works in order: an urgent read waits for
 * all that was given to it before. Of many urgent ones in flight they are their share. */
static uint64_t
bulk_limit(const struct lane *lane)
{
    uint64_t share = lane->table.bytes_in_flight[LANE_URGENT] / LANE_URGENT_SHARE;

    if (!lane_is_shared(lane))
        return lane->budget.bytes;
    return share > BULK_SHARED_BYTES ? share : BULK_SHARED_BYTES;
}

/* `bytes` of the class were started. */
static void
bulk_credit_count(struct lane *lane, enum lane_class class, uint64_t bytes)
{
    if (class == LANE_URGENT)
        lane->bulk_credit = smaller(lane->bulk_credit + bytes / LANE_URGENT_SHARE, LANE_OP_BYTES);
    else
        lane->bulk_credit -= smaller(lane->bulk_credit, bytes);
}

/* Whether the class may have one more operation. Bulk ones leave slots for urgent ones: as long as
 * none of these waits some stay free, and in their turns bulk ones never hold those too. */
static bool
lane_has_slot(const struct lane *lane, enum lane_class class)
{
    const struct lane_table *table = &lane->table;

    if (class == LANE_BULK && lane->queues[LANE_URGENT].first == NULL)
        return table->free_count > BULK_SLOTS_KEPT;
    if (class == LANE_BULK && table->bulk_count >= LANE_DEPTH - BULK_SLOTS_KEPT)
        return false;
    return table->free_count > 0;
}

/*
 * Bytes that the class may start now; 0 when there is no room for its next operation. Whole pages
 * when it ends inside of a transfer, so that direct transfers stay aligned.
 */
static uint64_t
lane_room(const struct lane *lane, enum lane_class class, const struct transfer *head)
{
    uint64_t wanted = next_bytes(head);
    uint64_t limit = class == LANE_URGENT ? LANE_URGENT_BYTES : bulk_limit(lane);
    uint64_t flying =
        class == LANE_URGENT ? table_bytes(&lane->table) : lane->table.bytes_in_flight[LANE_BULK];
    uint64_t room = flying < limit ? limit - flying : 0;

    if (room < wanted || !lane_has_slot(lane, class))
        return 0;
    room = smaller(room, LANE_OP_BYTES) & ~(uint64_t)(PAGE_BYTES - 1);
    return room > wanted ? room : wanted;
}

/* Whether the next operation is a bulk one though urgent ones wait. One that may not be started yet
 * does not hold these up. */
static bool
bulk_has_turn(const struct lane *lane, const struct transfer *bulk)
{
    return lane->bulk_credit >= next_bytes(bulk) && lane_room(lane, LANE_BULK, bulk) > 0;
}

/* Build one operation from the head of a queue and the neighbours that continue it. */
static void
lane_start(struct lane *lane, struct transfer_queue *queue, uint64_t room)
{
    struct lane_operation *operation = table_take(&lane->table);

    operation_begin(operation, queue->first);
    do {
        struct transfer *head = queue->first;

        if (operation_append(operation, head, room - operation->charged) == 0)
            break;
        if (head->lane.started < head->lane.size)
            break;
        (void)transfer_queue_pop(queue);
    } while (operation->charged < room && queue_head(lane, queue) != NULL &&
             operation_continues(operation, queue->first));
    table_charge(&lane->table, operation);
    table_queue(&lane->table, operation);
}

/* Hand the kernel what was started; a reap of nothing makes the io queue do so. */
static void
lane_flush(struct lane *lane)
{
    table_submit(&lane->table, lane->env.io, lane->queue);
    (void)lane->env.io->reap(lane->queue, lane->done, 0);
}

/*
 * Start what the budget and the turns allow. A device that has nothing to do gets the first
 * operations at once, and works while the others are made.
 */
static void
lane_start_transfers(struct lane *lane)
{
    for (;;) {
        struct transfer *urgent = queue_head(lane, &lane->queues[LANE_URGENT]);
        struct transfer *bulk = queue_head(lane, &lane->queues[LANE_BULK]);
        bool is_bulk = urgent == NULL || (bulk != NULL && bulk_has_turn(lane, bulk));
        enum lane_class class = is_bulk ? LANE_BULK : LANE_URGENT;
        struct transfer *head = is_bulk ? bulk : urgent;
        uint64_t room, before;

        lane->is_full = head != NULL;
        lane->is_measured = head != NULL && !(is_bulk && lane_is_shared(lane));
        if (head == NULL)
            return;
        room = lane_room(lane, class, head);
        if (room == 0)
            return;
        before = table_bytes(&lane->table);
        lane_start(lane, &lane->queues[class], room);
        if (lane->table.flying_count == 0 && table_bytes(&lane->table) >= KICK_BYTES)
            lane_flush(lane);
        if (urgent != NULL && bulk != NULL)
            bulk_credit_count(lane, class, table_bytes(&lane->table) - before);
    }
}

/* --- Completions ------------------------------------------------------------------------------ */

/* Answer the parts of the attempt that lie wholly in what it moved. */
static void
operation_settle_moved(struct lane *lane, struct lane_operation *operation)
{
    uint64_t moved = operation->attempt_done;

    while (operation->part_first < operation->part_end &&
           operation->parts[operation->part_first].size <= moved) {
        const struct lane_part *part = &operation->parts[operation->part_first++];

        moved -= part->size;
        transfer_settle(lane, part->transfer, part->size);
    }
}

/* After an attempt: the next part alone, or the end. */
static void
operation_go_on(struct lane *lane, struct lane_operation *operation)
{
    if (operation->part_first == operation->part_count) {
        table_put(&lane->table, operation);
        return;
    }
    operation_alone(operation);
    table_queue(&lane->table, operation);
}

/* The attempt ends with an error; 0 is a read at the end of the file, or no progress. */
static void
operation_fail(struct lane *lane, struct lane_operation *operation, int error)
{
    bool is_joined = operation->part_end - operation->part_first > 1;

    operation_settle_moved(lane, operation);
    if (is_joined && operation->op.kind == IO_READ) {
        operation_go_on(lane, operation);
        return;
    }
    counter_add(&lane->counters.error_count, 1);
    while (operation->part_first < operation->part_end) {
        const struct lane_part *part = &operation->parts[operation->part_first++];

        transfer_fail(part->transfer, operation_status(operation, error), error);
        transfer_settle(lane, part->transfer, part->size);
    }
    operation_go_on(lane, operation);
}

static void
sync_complete(struct lane *lane, struct lane_operation *operation, int64_t result)
{
    struct transfer *sync = operation->parts[0].transfer;

    if (result < 0) {
        counter_add(&lane->counters.error_count, 1);
        transfer_fail(sync, KVT_E_IO, (int)-result);
    }
    table_put(&lane->table, operation);
    transfer_answer(lane, sync);
}

static void
transfer_complete(struct lane *lane, struct lane_operation *operation, int64_t result)
{
    bool is_interrupted = result == -EINTR || result == -EAGAIN;

    if (is_interrupted && operation->retry_count < LANE_RETRY_MAX) {
        operation->retry_count++;
        counter_add(&lane->counters.retry_count, 1);
        table_queue(&lane->table, operation);
        return;
    }
    if (result <= 0 || (uint64_t)result > operation->attempt_left) {
        /* More bytes than were asked for: nothing that this queue says can be believed. */
        operation_fail(lane, operation, result > 0 ? EIO : (int)-result);
        return;
    }
    counter_add(&lane->counters.bytes[operation->op.kind], (uint64_t)result);
    lane->round_bytes += (uint64_t)result;
    operation_advance(operation, (uint64_t)result);
    if (operation->attempt_left > 0) {
        counter_add(&lane->counters.short_count, 1);
        table_queue(&lane->table, operation);
        return;
    }
    operation_settle_moved(lane, operation);
    operation_go_on(lane, operation);
}

static void
lane_complete(struct lane *lane, const struct io_done *done)
{
    struct lane_operation *operation = table_land(&lane->table, done->id);

    if (operation == NULL)
        return;
    counter_add(&lane->counters.count[operation->op.kind], 1);
    if (operation->op.kind == IO_SYNC)
        sync_complete(lane, operation, done->result);
    else
        transfer_complete(lane, operation, done->result);
}

static void
lane_reap(struct lane *lane)
{
    size_t count;

    do {
        count = lane->env.io->reap(lane->queue, lane->done, REAP_COUNT);
        for (size_t i = 0; i < count; i++)
            lane_complete(lane, &lane->done[i]);
    } while (count == REAP_COUNT);
}

/* --- The actor -------------------------------------------------------------------------------- */

static void
lane_publish(struct lane *lane)
{
    struct lane_counters *counters = &lane->counters;

    atomic_store_explicit(
        &counters->bytes_in_flight, table_bytes(&lane->table), memory_order_relaxed);
    atomic_store_explicit(
        &counters->operations_in_flight, LANE_DEPTH - lane->table.free_count, memory_order_relaxed);
    atomic_store_explicit(&counters->budget_bytes, lane->budget.bytes, memory_order_relaxed);
}

static enum attention
attention_when_parked(const struct lane *lane)
{
    if (!lane->is_full || lane->table.flying_count == 0)
        return ATTENTION_ANY;
    return lane->queues[LANE_URGENT].first == NULL ? ATTENTION_URGENT : ATTENTION_NONE;
}

/* Nothing is begun any more. */
static void
lane_drain(struct lane *lane)
{
    wakes_flush(lane);
    if (lane->table.flying_count > 0)
        return;
    atomic_store_explicit(&lane->is_drained, true, memory_order_release);
    gate_post(&lane->env, &lane->gate);
}

static bool
lane_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct lane *lane = context;

    /* (L1) acquire: what was pushed before a pusher read AWAKE is seen below. */
    (void)atomic_exchange_explicit(&lane->attention, ATTENTION_AWAKE, memory_order_acq_rel);
    lane->now_ns = now_ns;
    lane->round_bytes = 0;
    *next_ns_out = UINT64_MAX;
    lane_reap(lane);
    if (atomic_load_explicit(&lane->is_closing, memory_order_acquire)) {
        lane_drain(lane);
        return false;
    }
    lane_take_inbox(lane);
    lane_start_syncs(lane);
    lane_start_transfers(lane);
    table_submit(&lane->table, lane->env.io, lane->queue);
    KVT_ASSERT_SLOW((table_check(&lane->table), true));
    budget_note(&lane->budget, now_ns, lane->round_bytes, lane->is_full && !lane_is_shared(lane));
    lane_publish(lane);
    if (lane->wake_count > 0) {
        /* The device works while others are woken; without a wake the wait hands it over. */
        lane_flush(lane);
        wakes_flush(lane);
    }
    /* An operation that the io queue did not take, although nothing flies, must be tried again. */
    if (lane->table.queued_first != NULL)
        *next_ns_out = now_ns + RESUBMIT_NS;
    /* (L1) release and acquire: pairs with lane_push_many(). */
    (void)atomic_exchange_explicit(
        &lane->attention, attention_when_parked(lane), memory_order_acq_rel);
    return !inbox_is_empty(&lane->inbox);
}

static void
lane_park(void *context, uint64_t now_ns, uint64_t until_ns)
{
    struct lane *lane = context;

    lane->env.io->wait(lane->queue, now_ns, until_ns);
}

static void
lane_wake(void *context)
{
    struct lane *lane = context;

    lane->env.io->wake(lane->queue);
}

/* --- Interface -------------------------------------------------------------------------------- */

enum kvt_status
lane_open(const struct kvt_env *env, const char *name, void *arena, size_t arena_size,
    struct lane **lane_out)
{
    struct actor actor = {.step = lane_step, .park = lane_park, .wake = lane_wake};
    enum kvt_status status;
    struct lane *lane;

    *lane_out = NULL;
    lane = env_take(env, sizeof(*lane));
    if (lane == NULL)
        return failure_set(
            KVT_E_NOMEM, ENOMEM, "No memory for the lane %s (%zu bytes).", name, sizeof(*lane));
    lane->env = *env;
    strncpy(lane->name, name, sizeof(lane->name) - 1);
    budget_init(&lane->budget);
    table_init(&lane->table);
    atomic_init(&lane->attention, ATTENTION_AWAKE);
    KVT_TRY_GOTO(env->io->open(env->io_context, LANE_DEPTH, &lane->queue), put_lane);
    if (arena != NULL)
        env->io->adopt(lane->queue, arena, arena_size);
    actor.name = lane->name;
    actor.context = lane;
    KVT_TRY_GOTO(env->sched->start(env->sched_context, &actor, &lane->task), close_queue);
    *lane_out = lane;
    return KVT_OK;

close_queue:
    env->io->close(lane->queue);
put_lane:
    env_put(env, lane, sizeof(*lane));
    return status;
}

/* By the actor: there are rings whose completions no other thread can take. */
static void
lane_await(struct lane *lane)
{
    atomic_store_explicit(&lane->is_closing, true, memory_order_release);
    env_wake(&lane->env, lane->task);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&lane->gate.value, memory_order_acquire);

        if (atomic_load_explicit(&lane->is_drained, memory_order_acquire))
            return;
        gate_wait(&lane->env, &lane->gate, seen, UINT64_MAX);
    }
}

void
lane_close(struct lane *lane)
{
    struct kvt_env env;

    if (lane == NULL)
        return;
    env = lane->env;
    lane_await(lane);
    env.sched->stop(env.sched_context, lane->task);
    KVT_ASSERT(inbox_is_empty(&lane->inbox));
    KVT_ASSERT(lane->table.free_count == LANE_DEPTH && table_bytes(&lane->table) == 0);
    KVT_ASSERT(lane->queues[LANE_URGENT].first == NULL && lane->queues[LANE_BULK].first == NULL);
    KVT_ASSERT(lane->syncs.first == NULL);
    env.io->close(lane->queue);
    env_put(&env, lane, sizeof(*lane));
}

void
lane_push_many(struct lane *lane, struct transfer *const *transfers, uint32_t count)
{
    bool was_empty = false;
    bool is_urgent = false;
    bool has_sync = false;
    uint64_t now_ns = env_now(&lane->env);
    int attention;

    for (uint32_t i = 0; i < count; i++) {
        is_urgent = transfers[i]->class == LANE_URGENT;
        has_sync = has_sync || transfers[i]->kind == IO_SYNC;
        transfers[i]->submit_ns = now_ns;
        if (inbox_push(&lane->inbox, &transfers[i]->node))
            was_empty = true;
    }
    /* A bulk transfer behind another one leaves the wake to whoever found the inbox empty. */
    if (!was_empty && !is_urgent && !has_sync)
        return;
    /* (L1) A read-modify-write that changes nothing: pairs with the exchanges in lane_step(). */
    attention = atomic_fetch_add_explicit(&lane->attention, 0, memory_order_acq_rel);
    if (attention == ATTENTION_ANY || (attention == ATTENTION_URGENT && is_urgent) ||
        (attention != ATTENTION_AWAKE && has_sync))
        env_wake(&lane->env, lane->task);
}

void
lane_push(struct lane *lane, struct transfer *transfer)
{
    lane_push_many(lane, &transfer, 1);
}

void
lane_stats_get(struct lane *lane, struct lane_stats *stats_out)
{
    struct lane_counters *from = &lane->counters;

#define GET(field) atomic_load_explicit(&from->field, memory_order_relaxed)
    *stats_out = (struct lane_stats){
        .read_bytes = GET(bytes[IO_READ]),
        .write_bytes = GET(bytes[IO_WRITE]),
        .read_count = GET(count[IO_READ]),
        .write_count = GET(count[IO_WRITE]),
        .sync_count = GET(count[IO_SYNC]),
        .short_count = GET(short_count),
        .retry_count = GET(retry_count),
        .error_count = GET(error_count),
        .bytes_in_flight_now = GET(bytes_in_flight),
        .operations_in_flight_now = GET(operations_in_flight),
        .budget_bytes_now = GET(budget_bytes),
    };
#undef GET
}
