/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_delivery.c - where the workload's requests report: to whoever waits for their ticket, or
 * to a queue, from which each stage of each comes once, in order, as it was submitted.
 */
#include "workload_internal.h"

enum {
    QUEUED_EVERY = 4, /* Requests, on average, that name a queue. */
    POLL_MAX = 4,     /* Completions of one poll. */
    RENEW_EVERY = 8,  /* Looks into a queue, on average, that try to end it. */
    REFUSED_EVERY = 4,
};

/* --- 1. Queues -------------------------------------------------------------------------------- */

static bool
queue_make(struct workload *work, kvt_queue **queue_out)
{
    enum kvt_status status = kvt_queue_create(work->store, queue_out);

    workload_note(work, 25, (uint64_t)status);
    return workload_expect(work, "kvt_queue_create", status);
}

void
delivery_open(struct workload *work)
{
    uint32_t wanted = 1 + rng_below(&work->rng, QUEUES_MAX);

    work->queue_count = 0;
    while (work->queue_count < wanted && queue_make(work, &work->queues[work->queue_count]))
        work->queue_count++;
}

/* Stages that it has not given yet. */
static uint32_t
queue_left(const struct workload *work, const kvt_queue *queue)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        const struct flight *flight = &work->flights[i];

        if (flight->kind != FLIGHT_FREE && flight->submit.queue == queue)
            left += 1 + flight_has_stage_2(flight) - flight->come;
    }
    return left;
}

/* It ends if nothing is left of it, and only then. True: it is gone. */
static bool
queue_end(struct workload *work, kvt_queue *queue)
{
    uint32_t left = queue_left(work, queue);
    enum kvt_status status = kvt_queue_destroy(queue);

    workload_note(work, 26, (uint64_t)status);
    if (status != (left == 0 ? KVT_OK : KVT_E_STATE))
        model_fail(&work->model, "kvt_queue_destroy: %s, and %u stages were not collected",
            kvt_status_name(status), left);
    return status == KVT_OK;
}

/* --- 2. Polling ------------------------------------------------------------------------------- */

static struct flight *
flight_of(struct workload *work, const kvt_queue *queue, const void *user)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *flight = &work->flights[i];

        if (flight->kind != FLIGHT_FREE && flight->submit.queue == queue &&
            flight->submit.user == user)
            return flight;
    }
    return NULL;
}

static void
completion_take(struct workload *work, const kvt_queue *queue, const struct kvt_completion *done)
{
    struct flight *flight = flight_of(work, queue, done->user);

    workload_note(work, 27, (uint64_t)done->status);
    if (flight == NULL) {
        model_fail(&work->model, "stage %u of no request of this queue", done->stage);
        return;
    }
    if (done->ticket != flight->ticket)
        model_fail(&work->model, "stage %u of a request comes with another ticket", done->stage);
    if (done->stage != flight->come + 1 || done->stage > 1u + flight_has_stage_2(flight)) {
        model_fail(
            &work->model, "stage %u comes behind %u of a request", done->stage, flight->come);
        return;
    }
    flight->told[flight->come++] = done->status;
    work->told_count++;
}

/* True: something came. */
static bool
queue_poll(struct workload *work, kvt_queue *queue, uint64_t timeout_ns)
{
    uint32_t count_max = 1 + rng_below(&work->rng, POLL_MAX);
    struct kvt_completion done[POLL_MAX];
    uint32_t count = POLL_MAX + 1;
    enum kvt_status status = kvt_queue_poll(queue, done, count_max, timeout_ns, &count);
    bool is_empty = status == KVT_LATE && count == 0 && timeout_ns == 0;

    workload_note(work, 28, count);
    if (!is_empty && (status != KVT_OK || count == 0 || count > count_max)) {
        model_fail(&work->model, "kvt_queue_poll: %s, %u completions of %u",
            kvt_status_name(status), count, count_max);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        completion_take(work, queue, &done[i]);
    return count > 0;
}

void
delivery_look(struct workload *work)
{
    for (uint32_t i = 0; i < work->queue_count; i++) {
        (void)queue_poll(work, work->queues[i], 0);
        if (rng_below(&work->rng, RENEW_EVERY) != 0 || !queue_end(work, work->queues[i]) ||
            queue_make(work, &work->queues[i]))
            continue;
        /* There is no memory for a new one. */
        work->queues[i] = work->queues[--work->queue_count];
    }
}

/* --- 3. Requests ------------------------------------------------------------------------------ */

const struct kvt_submit *
delivery_choose(struct workload *work, struct flight *flight)
{
    if (work->queue_count == 0 || rng_below(&work->rng, QUEUED_EVERY) != 0)
        return flight->late != NULL ? &flight->submit : NULL;
    flight->submit.queue = work->queues[rng_below(&work->rng, work->queue_count)];
    flight->submit.user = (void *)(uintptr_t)++work->submit_count;
    return &flight->submit;
}

/* Who named a queue does not wait for the ticket. */
static void
wait_is_refused(struct workload *work, const struct flight *flight)
{
    uint32_t stage = 1 + rng_below(&work->rng, 2);
    bool has_stage = stage <= 1u + flight_has_stage_2(flight);
    enum kvt_status status = kvt_ticket_wait(flight->ticket, stage, KVT_FOREVER);

    if (status != (has_stage ? KVT_E_STATE : KVT_E_INVAL))
        model_fail(&work->model, "waiting for stage %u of a request with a queue: %s", stage,
            kvt_status_name(status));
}

static enum kvt_status
stage_await(struct workload *work, struct flight *flight, uint32_t stage)
{
    if (flight->submit.queue == NULL)
        return kvt_ticket_wait(flight->ticket, stage, KVT_FOREVER);
    if (flight->ticket != NULL && rng_below(&work->rng, REFUSED_EVERY) == 0)
        wait_is_refused(work, flight);
    while (flight->come < stage && work->model.failure[0] == '\0') {
        if (!queue_poll(work, flight->submit.queue, KVT_FOREVER))
            return KVT_LATE;
    }
    return KVT_OK;
}

/* A completion tells the first error of its batch. */
static void
told_check(struct workload *work, const struct flight *flight, uint32_t stage,
    const struct kvt_result *results)
{
    enum kvt_status told = flight->told[stage - 1];
    enum kvt_status first = KVT_OK;

    for (uint32_t i = 0; i < flight->count && first == KVT_OK; i++) {
        if (results[i].status < 0)
            first = results[i].status;
    }
    if (told != first)
        model_fail(&work->model, "stage %u of %u blocks: the queue says %s, the results %s", stage,
            flight->count, kvt_status_name(told), kvt_status_name(first));
}

bool
delivery_reach(struct workload *work, struct flight *flight, uint32_t stage)
{
    enum kvt_status status = stage_await(work, flight, stage);

    if (status != KVT_OK)
        model_fail(&work->model, "waiting for stage %u: %s", stage, kvt_status_name(status));
    return status == KVT_OK;
}

bool
delivery_await(
    struct workload *work, struct flight *flight, uint32_t stage, struct kvt_result *results)
{
    enum kvt_status status;

    if (!delivery_reach(work, flight, stage))
        return false;
    status = kvt_ticket_results(flight->ticket, stage, results, flight->count);
    if (status != KVT_OK) {
        model_fail(&work->model, "results of stage %u: %s", stage, kvt_status_name(status));
        return false;
    }
    if (flight->submit.queue != NULL)
        told_check(work, flight, stage, results);
    return true;
}

bool
delivery_is_late(const struct flight *flight)
{
    struct kvt_result results[BATCH_MAX];

    if (!flight_has_stage_2(flight) || flight->ticket == NULL)
        return false;
    if (flight->submit.queue == NULL)
        return kvt_ticket_wait(flight->ticket, KVT_STAGE_DURABLE, 0) == KVT_LATE;
    return kvt_ticket_results(flight->ticket, KVT_STAGE_DURABLE, results, flight->count) ==
           KVT_NOT_READY;
}

/* --- 4. The end ------------------------------------------------------------------------------- */

void
delivery_end(struct workload *work)
{
    for (uint32_t i = 0; i < work->queue_count; i++) {
        kvt_queue *queue = work->queues[i];
        enum kvt_status status = kvt_queue_drain(queue, 0);

        if (queue_left(work, queue) > 0)
            (void)queue_end(work, queue);
        if (status == KVT_LATE)
            status = kvt_queue_drain(queue, KVT_FOREVER);
        if (status != KVT_OK)
            model_fail(&work->model, "kvt_queue_drain: %s", kvt_status_name(status));
        while (queue_left(work, queue) > 0 && work->model.failure[0] == '\0') {
            if (!queue_poll(work, queue, 0))
                model_fail(&work->model, "a queue is drained, and %u stages are still to come",
                    queue_left(work, queue));
        }
    }
}

void
delivery_close(struct workload *work)
{
    enum kvt_status status;

    if (work->queue_count > 0 && rng_below(&work->rng, 4) == 0) {
        status = kvt_close(work->store);
        if (status != KVT_E_STATE) {
            model_fail(&work->model, "kvt_close with a queue out: %s", kvt_status_name(status));
            work->store = NULL;
            return;
        }
    }
    while (work->queue_count > 0) {
        kvt_queue *queue = work->queues[--work->queue_count];

        if (queue_poll(work, queue, 0))
            model_fail(&work->model, "a queue gives more than was asked of it");
        (void)queue_end(work, queue);
    }
}
