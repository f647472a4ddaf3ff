/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_mover.c - the actor that queues copies on one device's own streams and answers them.
 *
 * Owns      the events of its calls, and the lists of moves that have not been answered.
 * Threads   the interface but open and close any; the rest the actor's.
 *
 * A round (mover_step): see which calls the device has done and answer their moves; take what was
 * pushed; ask some of the events that moves wait for (device_held.h); queue calls; wake the tasks
 * whose inboxes got answers. Nothing tells a thread that an event was reached, so while anything is
 * in flight or held the actor asks again every POLL_NS; otherwise it sleeps until it is woken.
 *
 * Where a move is, and the function that makes each move:
 *
 *   push()   mover_take()          mover_look()        call_begin()            lane_land()
 *   -----> INBOX ------> HELD ------------------> READY ------------> CALLED -----------> answered
 *            |            event reached             ^  |              (without pieces: answered)
 *            +--------------------------------------+  +-> (its copy is refused) CALLED with the
 *                      has no event                        calls before it, or answered
 *
 * Invariants
 *   (1) A move is in exactly one list: the inbox, `held`, a ready queue, the moves of one call, the
 *       inbox it named. One whose pieces are partly queued is the head of its ready queue.
 *   (2) The calls of a lane are a ring in the order of its stream, so they are done in that order.
 *       Each but the last has its event recorded behind it; the last one has unless
 *       `is_unrecorded`, and then no call is queued.
 *   (3) Calls are numbered from 1 as they are recorded; number n lies in place (n - 1) modulo
 *       DEVICE_MOVER_CALLS_MAX. Events are recorded, and looked for, under `event_mutex`: an event
 *       is that of the call whose number stands beside it, and stays so while it is used.
 *   (4) A move lies with a call that was queued behind all its pieces (or with the last before its
 *       copy was refused). So when that call is done, nothing of the move is in flight.
 */
#include "device_mover.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "device_call_plan.h"
#include "device_held.h"
#include "failure.h"
#include "try.h"

enum {
    NAME_BYTES = 16,
    WAKE_COUNT = 16,
};

/* About what one call of a MiB takes over a fast link: asked more often, the device has no news;
 * less often, and a block that somebody waits for lies ready unseen. */
static const uint64_t POLL_NS = 15 * 1000;

/* An event of the device. Streams are made to wait for it without a lock, since that blocks while a
 * stream is full; meanwhile it is not recorded anew, and its place gets another one. */
struct mover_event {
    void *event;
    uint32_t user_count; /* Of such calls. */
    bool is_left;        /* By its place: the last of its users destroys it. */
};

/* A place for one call in flight. */
struct mover_call {
    struct mover_event *event; /* Guarded by event_mutex, but for the actor. */
    uint64_t number;           /* What it was recorded for; guarded by: event_mutex */
    struct move_queue moves; /* To be answered with it; none when it holds a part of a long move. */
    uint64_t bytes;
};

enum ready_class {
    READY_BULK,
    READY_URGENT,
    READY_CLASS_COUNT,
};

struct mover_lane {
    enum device_lane lane;
    void *stream;
    struct move_queue ready[READY_CLASS_COUNT];
    uint32_t urgent_run;                             /* Urgent calls since others had a turn. */
    struct mover_call calls[DEVICE_MOVER_CALLS_MAX]; /* A ring. */
    uint32_t call_first;
    uint32_t call_count;
    uint64_t recorded_count; /* Calls since the beginning. */
    bool is_unrecorded;      /* The last call has no event behind it yet. */
    bool is_troubled;        /* Its own events fail... */
    uint64_t trouble_ns;     /* ...since then. */
};

/* Written by the actor only, read by any thread; a stale value is an old statistic. */
struct mover_counters {
    _Atomic uint64_t call_count[DEVICE_LANE_COUNT];
    _Atomic uint64_t move_count[DEVICE_LANE_COUNT];
    _Atomic uint64_t bytes[DEVICE_LANE_COUNT];
    _Atomic uint64_t error_count;
};

struct device_mover {
    struct kvt_env env; /* Set at open, then constant; so are the next three. */
    char name[NAME_BYTES];
    struct device *device;
    struct task *task;
    struct inbox inbox;   /* Any thread pushes. */
    _Atomic bool is_lost; /* Relaxed: seeing it late is as if the device were lost later. */
    struct mover_counters counters;
    pthread_mutex_t event_mutex; /* For as long as it takes to record an event. */
    /* The actor's, all that follows. */
    uint64_t now_ns; /* Of this round. */
    struct held_moves held;
    struct mover_lane lanes[DEVICE_LANE_COUNT];
    struct task *const *wakes[WAKE_COUNT];
    uint32_t wake_count;
    struct call_plan plan; /* Of the call that is being made. */
};

/* One writer, so no read-modify-write is needed. */
static void
counter_add(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + value, memory_order_relaxed);
}

/* --- 1. Answers ------------------------------------------------------------------------------- */

static void
wakes_flush(struct device_mover *mover)
{
    for (uint32_t i = 0; i < mover->wake_count; i++) {
        if (*mover->wakes[i] != NULL)
            env_wake(&mover->env, *mover->wakes[i]);
    }
    mover->wake_count = 0;
}

/* Wake `task` when the round ends. */
static void
wake_note(struct device_mover *mover, struct task *const *task)
{
    if (task == NULL)
        return;
    for (uint32_t i = 0; i < mover->wake_count; i++) {
        if (mover->wakes[i] == task)
            return;
    }
    if (mover->wake_count == WAKE_COUNT)
        wakes_flush(mover);
    mover->wakes[mover->wake_count++] = task;
}

/* Give a move back; it must not be touched afterwards. */
static void
move_answer(struct device_mover *mover, struct device_move *move)
{
    struct task *const *task = move->done_task;

    /* Here, since it may sleep behind the driver's lock. Who takes the answer must not. */
    if (move->is_wait_owned)
        mover->device->ops->event_destroy(mover->device, move->wait);
    if (move->status == KVT_OK)
        counter_add(&mover->counters.move_count[move->lane], 1);
    else
        counter_add(&mover->counters.error_count, 1);
    if (inbox_push(move->done, &move->node))
        wake_note(mover, task);
}

static void
moves_answer(struct device_mover *mover, struct move_queue *queue)
{
    struct device_move *move;

    while ((move = move_queue_pop(queue)) != NULL)
        move_answer(mover, move);
}

/* --- 2. A device that is lost ----------------------------------------------------------------- */

bool
device_mover_is_lost(const struct device_mover *mover)
{
    return atomic_load_explicit(&mover->is_lost, memory_order_relaxed);
}

void
device_mover_lose(struct device_mover *mover)
{
    atomic_store_explicit(&mover->is_lost, true, memory_order_relaxed);
    env_wake(&mover->env, mover->task);
}

static void
moves_give_up(struct device_mover *mover, struct move_queue *queue)
{
    for (struct device_move *move = queue->first; move != NULL; move = move->mover.next)
        move->status = KVT_E_GPU;
    moves_answer(mover, queue);
}

/* Answer what is queued or ready: the device will not say any more what it did. */
static void
mover_give_up(struct device_mover *mover)
{
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        struct mover_lane *lane = &mover->lanes[i];

        for (; lane->call_count > 0; lane->call_count--) {
            moves_give_up(mover, &lane->calls[lane->call_first].moves);
            lane->call_first = (lane->call_first + 1) % DEVICE_MOVER_CALLS_MAX;
        }
        lane->is_unrecorded = false;
        moves_give_up(mover, &lane->ready[READY_URGENT]);
        moves_give_up(mover, &lane->ready[READY_BULK]);
    }
}

/* --- 3. Calls in flight ----------------------------------------------------------------------- */

static struct mover_call *
lane_call(struct mover_lane *lane, uint32_t index)
{
    return &lane->calls[(lane->call_first + index) % DEVICE_MOVER_CALLS_MAX];
}

/* What came of recording or asking an event of our own. */
static void
lane_note(struct device_mover *mover, struct mover_lane *lane, enum kvt_status status)
{
    bool is_fine = status == KVT_OK || status == KVT_NOT_READY;

    if (!is_fine && !lane->is_troubled)
        lane->trouble_ns = mover->now_ns;
    lane->is_troubled = !is_fine;
    if (status == KVT_E_GPU ||
        (!is_fine && mover->now_ns - lane->trouble_ns >= DEVICE_MOVER_PATIENCE_NS))
        device_mover_lose(mover);
}

static enum kvt_status
event_make(struct device_mover *mover, struct mover_event **event_out)
{
    struct mover_event *made = env_take(&mover->env, sizeof(*made));
    enum kvt_status status;

    if (made == NULL)
        return failure_set(KVT_E_NOMEM, ENOMEM, "No memory for an event of %s.", mover->name);
    status = mover->device->ops->event_create(mover->device, &made->event);
    if (status == KVT_OK)
        *event_out = made;
    else
        env_put(&mover->env, made, sizeof(*made));
    return status;
}

static void
event_end(struct device_mover *mover, struct mover_event *event)
{
    mover->device->ops->event_destroy(mover->device, event->event);
    env_put(&mover->env, event, sizeof(*event));
}

/* The mutex is held. An event that may be recorded, in the place of one that is used. */
static enum kvt_status
event_renew(struct device_mover *mover, struct mover_call *call)
{
    struct mover_event *used = call->event;

    if (used->user_count == 0)
        return KVT_OK;
    KVT_TRY(event_make(mover, &call->event));
    used->is_left = true;
    return KVT_OK;
}

/* The last call of the lane, whose copies were queued. */
static void
lane_record(struct device_mover *mover, struct mover_lane *lane, struct mover_call *call)
{
    enum kvt_status status;

    pthread_mutex_lock(&mover->event_mutex);
    status = event_renew(mover, call);
    if (status == KVT_OK)
        status = mover->device->ops->event_record(mover->device, call->event->event, lane->stream);
    if (status == KVT_OK)
        call->number = ++lane->recorded_count;
    pthread_mutex_unlock(&mover->event_mutex);
    lane->is_unrecorded = status != KVT_OK;
    lane_note(mover, lane, status);
}

/* Whoever asks for the moves of a call that was recorded may wait for its event now. */
static void
call_mark(const struct mover_lane *lane, struct mover_call *call)
{
    for (struct device_move *move = call->moves.first; move != NULL; move = move->mover.next) {
        if (move->mark == NULL || move->is_marked)
            continue;
        move->is_marked = true;
        atomic_store_explicit(
            &move->mark->call[lane->lane], lane->recorded_count, memory_order_relaxed);
        /* (D1) release: who sees the count sees which call it was. */
        atomic_fetch_add_explicit(
            &move->mark->queued_count, move->mark_count, memory_order_release);
    }
}

static bool
call_is_done(struct device_mover *mover, struct mover_lane *lane, const struct mover_call *call)
{
    enum kvt_status status = mover->device->ops->event_query(mover->device, call->event->event);

    lane_note(mover, lane, status);
    return status == KVT_OK;
}

/* Answer the moves of calls that are done, oldest first. */
static void
lane_land(struct device_mover *mover, struct mover_lane *lane)
{
    /* An event that was not recorded for this call may say that an earlier one was reached. */
    while (lane->call_count > (lane->is_unrecorded ? 1 : 0)) {
        struct mover_call *call = lane_call(lane, 0);

        if (!call_is_done(mover, lane, call))
            return;
        counter_add(&mover->counters.bytes[lane->lane], call->bytes);
        moves_answer(mover, &call->moves);
        lane->call_first = (lane->call_first + 1) % DEVICE_MOVER_CALLS_MAX;
        lane->call_count--;
    }
}

/* --- 4. New moves ----------------------------------------------------------------------------- */

static void
move_ready(struct device_mover *mover, struct device_move *move)
{
    struct mover_lane *lane = &mover->lanes[move->lane];

    move_queue_push(&lane->ready[move->is_urgent ? READY_URGENT : READY_BULK], move);
}

static void
mover_take(struct device_mover *mover)
{
    struct inbox_node *node = inbox_take(&mover->inbox);

    while (node != NULL) {
        struct device_move *move = CONTAINER_OF(node, struct device_move, node);

        node = node->next;
        move->status = KVT_OK;
        move->is_marked = move->is_begun = false;
        move->mover.piece_at = 0;
        /* Without pieces it would pass unseen in a call with others. */
        move->mover.is_alone = move->piece_count == 0;
        if ((uint32_t)move->lane >= DEVICE_LANE_COUNT) {
            move->status = KVT_E_INVAL;
            move_answer(mover, move);
        } else if (move->wait != NULL) {
            held_add(&mover->held, move);
        } else {
            move_ready(mover, move);
        }
    }
}

/* What its event says, if it still waits; moves that follow each other often wait for the same. Of
 * a lost device only firm ones are asked for: streams of callers may go on where copies fail. */
static enum kvt_status
move_ask(struct device_mover *mover, const struct device_move *move)
{
    if (!move->is_wait_firm && device_mover_is_lost(mover))
        return KVT_E_GPU;
    if (!move->is_wait_firm && atomic_load_explicit(&move->is_cancelled, memory_order_relaxed))
        return KVT_CANCELLED;
    if (move->wait != mover->held.asked) {
        mover->held.asked = move->wait;
        mover->held.answer = mover->device->ops->event_query(mover->device, move->wait);
        if (mover->held.answer == KVT_E_GPU)
            device_mover_lose(mover);
    }
    if (move->is_wait_firm && mover->held.answer != KVT_OK && mover->held.answer != KVT_E_GPU)
        return KVT_NOT_READY;
    return mover->held.answer;
}

static void
mover_look(struct device_mover *mover)
{
    struct device_move *move;

    held_round(&mover->held);
    while ((move = held_next(&mover->held)) != NULL) {
        enum kvt_status status = move_ask(mover, move);

        if (status == KVT_NOT_READY) {
            held_keep(&mover->held, move);
        } else if (status == KVT_OK && move->piece_count > 0) {
            move_ready(mover, move);
        } else {
            move->status = status;
            move_answer(mover, move);
        }
    }
}

/* --- 5. New calls ----------------------------------------------------------------------------- */

/* The copy was refused: its moves are tried one by one; a single one ends with that. */
static void
plan_refuse(struct device_mover *mover, struct mover_lane *lane, const struct call_plan *plan,
    struct move_queue *queue, enum kvt_status status)
{
    struct device_move *move = queue->first;

    if (plan->move_count > 1) {
        for (uint32_t i = 0; i < plan->move_count; i++, move = move->mover.next)
            move->mover.is_alone = true;
        return;
    }
    (void)move_queue_pop(queue);
    move->status = status;
    /* Invariant (4): earlier pieces of it may be in flight. It also keeps the order of answers. */
    if (lane->call_count > 0)
        move_queue_push(&lane_call(lane, lane->call_count - 1)->moves, move);
    else
        move_answer(mover, move);
}

static enum kvt_status
plan_queue(struct device_mover *mover, const struct mover_lane *lane, const struct call_plan *plan)
{
    const struct kvt_device_ops *ops = mover->device->ops;

    if (plan->piece_count == 0)
        return failure_set(KVT_E_INVAL, 0, "A move has one piece or more.");
    return ops->copy(mover->device, lane->stream, plan->pieces, plan->piece_count);
}

/* Make one call out of the head of a ready queue. */
static void
call_begin(struct device_mover *mover, struct mover_lane *lane, struct move_queue *queue)
{
    struct mover_call *call = lane_call(lane, lane->call_count);
    struct call_plan *plan = &mover->plan;
    enum kvt_status status;

    plan_make(plan, queue);
    status = plan_queue(mover, lane, plan);
    if (status == KVT_E_GPU) {
        device_mover_lose(mover);
        return;
    }
    if (status != KVT_OK) {
        plan_refuse(mover, lane, plan, queue, status);
        return;
    }
    lane_record(mover, lane, call);
    lane->call_count++;
    call->bytes = plan->bytes;
    plan_commit(plan, queue, &call->moves);
    if (!lane->is_unrecorded)
        call_mark(lane, call);
    counter_add(&mover->counters.call_count[lane->lane], 1);
}

/* Whose turn it is; NULL: nothing is ready. */
static struct move_queue *
lane_choose(struct mover_lane *lane)
{
    bool has_bulk = lane->ready[READY_BULK].first != NULL;
    bool has_urgent = lane->ready[READY_URGENT].first != NULL;
    bool is_bulk = has_bulk && (!has_urgent || lane->urgent_run >= DEVICE_MOVER_URGENT_RUN);

    if (!has_bulk && !has_urgent)
        return NULL;
    lane->urgent_run = is_bulk || !has_bulk ? 0 : lane->urgent_run + 1;
    return &lane->ready[is_bulk ? READY_BULK : READY_URGENT];
}

static void
lane_start(struct device_mover *mover, struct mover_lane *lane)
{
    if (lane->is_unrecorded) {
        lane_record(mover, lane, lane_call(lane, lane->call_count - 1));
        if (!lane->is_unrecorded)
            call_mark(lane, lane_call(lane, lane->call_count - 1));
    }
    while (!device_mover_is_lost(mover) && !lane->is_unrecorded &&
           lane->call_count < DEVICE_MOVER_CALLS_MAX) {
        struct move_queue *queue = lane_choose(lane);

        if (queue == NULL)
            return;
        call_begin(mover, lane, queue);
    }
}

/* --- 6. The actor ----------------------------------------------------------------------------- */

static bool
mover_is_idle(const struct device_mover *mover)
{
    bool is_idle = held_is_empty(&mover->held);

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        is_idle = is_idle && mover->lanes[i].call_count == 0;
    return is_idle;
}

static void
mover_check(const struct device_mover *mover)
{
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        const struct mover_lane *lane = &mover->lanes[i];
        bool is_ready =
            lane->ready[READY_BULK].first != NULL || lane->ready[READY_URGENT].first != NULL;

        KVT_ASSERT(lane->call_count <= DEVICE_MOVER_CALLS_MAX);
        KVT_ASSERT(!lane->is_unrecorded || lane->call_count > 0);
        /* Whatever is ready waits for something that makes the actor look again. */
        KVT_ASSERT(!is_ready || lane->call_count > 0);
    }
}

static bool
mover_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct device_mover *mover = context;

    mover->now_ns = now_ns;
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && !device_mover_is_lost(mover); i++)
        lane_land(mover, &mover->lanes[i]);
    mover_take(mover);
    mover_look(mover);
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && !device_mover_is_lost(mover); i++)
        lane_start(mover, &mover->lanes[i]);
    if (device_mover_is_lost(mover))
        mover_give_up(mover);
    mover_check(mover);
    wakes_flush(mover);
    *next_ns_out = mover_is_idle(mover) ? UINT64_MAX : now_ns + POLL_NS;
    return !inbox_is_empty(&mover->inbox) || held_is_in_turn(&mover->held);
}

/* --- 7. Interface ----------------------------------------------------------------------------- */

static enum kvt_status
mover_prepare(struct device_mover *mover)
{
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        struct mover_lane *lane = &mover->lanes[i];

        lane->lane = (enum device_lane)i;
        lane->stream = mover->device->ops->stream(mover->device, lane->lane);
        for (uint32_t k = 0; k < DEVICE_MOVER_CALLS_MAX; k++)
            KVT_TRY(event_make(mover, &lane->calls[k].event));
    }
    return KVT_OK;
}

static void
mover_free(struct device_mover *mover)
{
    const struct kvt_env env = mover->env;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        for (uint32_t k = 0; k < DEVICE_MOVER_CALLS_MAX; k++) {
            if (mover->lanes[i].calls[k].event != NULL)
                event_end(mover, mover->lanes[i].calls[k].event);
        }
    }
    pthread_mutex_destroy(&mover->event_mutex);
    env_put(&env, mover, sizeof(*mover));
}

enum kvt_status
device_mover_open(const struct kvt_env *env, struct device *device, const char *name,
    struct device_mover **mover_out)
{
    struct actor actor = {.step = mover_step};
    struct device_mover *mover;
    enum kvt_status status;

    *mover_out = NULL;
    mover = env_take(env, sizeof(*mover));
    if (mover == NULL)
        return failure_set(
            KVT_E_NOMEM, ENOMEM, "No memory for the mover %s (%zu bytes).", name, sizeof(*mover));
    pthread_mutex_init(&mover->event_mutex, NULL);
    mover->env = *env;
    mover->device = device;
    strncpy(mover->name, name, sizeof(mover->name) - 1);
    KVT_TRY_GOTO(mover_prepare(mover), free_mover);
    actor.name = mover->name;
    actor.context = mover;
    KVT_TRY_GOTO(env->sched->start(env->sched_context, &actor, &mover->task), free_mover);
    *mover_out = mover;
    return KVT_OK;

free_mover:
    mover_free(mover);
    return status;
}

void
device_mover_close(struct device_mover *mover)
{
    if (mover == NULL)
        return;
    mover->env.sched->stop(mover->env.sched_context, mover->task);
    KVT_ASSERT(inbox_is_empty(&mover->inbox));
    KVT_ASSERT(mover_is_idle(mover));
    mover_check(mover);
    mover_free(mover);
}

void
device_mover_push(struct device_mover *mover, struct device_move *const *moves, uint32_t count)
{
    bool was_empty = false;

    for (uint32_t i = 0; i < count; i++) {
        if (inbox_push(&mover->inbox, &moves[i]->node))
            was_empty = true;
    }
    /* Whoever found the inbox empty wakes: the actor looks into it before it sleeps. */
    if (was_empty)
        env_wake(&mover->env, mover->task);
}

/* The event of that call, for a while; NULL: it was done long ago. */
static struct mover_event *
event_use(struct device_mover *mover, const struct mover_lane *lane, uint64_t number)
{
    const struct mover_call *call = &lane->calls[(number - 1) % DEVICE_MOVER_CALLS_MAX];
    struct mover_event *event = NULL;

    pthread_mutex_lock(&mover->event_mutex);
    if (call->number == number) {
        event = call->event;
        event->user_count++;
    }
    pthread_mutex_unlock(&mover->event_mutex);
    return event;
}

static void
event_use_end(struct device_mover *mover, struct mover_event *event)
{
    bool is_last;

    pthread_mutex_lock(&mover->event_mutex);
    is_last = --event->user_count == 0 && event->is_left;
    pthread_mutex_unlock(&mover->event_mutex);
    if (is_last)
        event_end(mover, event);
}

enum kvt_status
device_mover_wait(struct device_mover *mover, const struct device_mark *mark, void *stream)
{
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && status == KVT_OK; i++) {
        uint64_t number = atomic_load_explicit(&mark->call[i], memory_order_relaxed);
        struct mover_event *event = number != 0 ? event_use(mover, &mover->lanes[i], number) : NULL;

        if (event == NULL)
            continue;
        status = mover->device->ops->stream_wait(mover->device, stream, event->event);
        event_use_end(mover, event);
    }
    return status;
}

void
device_move_cancel(struct device_move *move)
{
    /* Relaxed: it carries nothing, and the actor asks again every POLL_NS while a move is held. */
    atomic_store_explicit(&move->is_cancelled, true, memory_order_relaxed);
}

void
device_mover_stats_get(struct device_mover *mover, struct device_mover_stats *stats_out)
{
    const struct mover_counters *from = &mover->counters;

#define GET(field) atomic_load_explicit(&from->field, memory_order_relaxed)
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        stats_out->call_count[i] = GET(call_count[i]);
        stats_out->move_count[i] = GET(move_count[i]);
        stats_out->bytes[i] = GET(bytes[i]);
    }
    stats_out->error_count = GET(error_count);
#undef GET
}
