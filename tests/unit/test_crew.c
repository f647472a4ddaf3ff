/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_crew.c - every job runs once, and its receiver hears of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "crew.h"
#include "failure.h"

static const uint64_t WAIT_LIMIT_NS = UINT64_C(100000000000);

enum {
    JOB_COUNT = 5000,
};

struct job {
    struct crew_job job; /* First. */
    uint32_t run_count;
};

struct receiver {
    struct kvt_env env;
    struct inbox inbox;
    struct task *task;
    struct gate gate;
    _Atomic uint32_t received;
    _Atomic bool is_wrong;
};

static void
job_count(struct crew_job *job)
{
    CONTAINER_OF(job, struct job, job)->run_count++;
}

/* Takes what is done: each job exactly once, after it ran. */
static uint32_t
receiver_take(struct receiver *receiver)
{
    struct inbox_node *node = inbox_take(&receiver->inbox);
    uint32_t count = 0;

    while (node != NULL) {
        struct crew_job *crew_job = CONTAINER_OF(node, struct crew_job, node);
        struct job *job = CONTAINER_OF(crew_job, struct job, job);

        node = node->next;
        if (job->run_count != 1)
            atomic_store(&receiver->is_wrong, true);
        /* The job is the receiver's: whoever reads it after this trips over it. */
        memset(job, 0xEE, sizeof(*job));
        count++;
    }
    return count;
}

static bool
receiver_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct receiver *receiver = context;
    uint32_t count = receiver_take(receiver);

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    if (count == 0)
        return false;
    atomic_fetch_add(&receiver->received, count);
    gate_post(&receiver->env, &receiver->gate);
    return true;
}

static void
job_init(struct job *job, struct receiver *receiver, void (*run)(struct crew_job *))
{
    *job =
        (struct job){.job = {.run = run, .done = &receiver->inbox, .done_task = &receiver->task}};
}

static bool
receiver_await(struct receiver *receiver, uint32_t goal)
{
    uint64_t limit_ns = env_now(&receiver->env) + WAIT_LIMIT_NS;

    while (env_now(&receiver->env) < limit_ns) {
        uint32_t seen = atomic_load(&receiver->gate.value);

        if (atomic_load(&receiver->received) >= goal)
            return true;
        gate_wait(&receiver->env, &receiver->gate, seen, limit_ns);
    }
    return false;
}

static void
each_job_runs_once_and_its_receiver_is_woken(void **state)
{
    static struct job jobs[JOB_COUNT];

    (void)state;
    for (uint32_t worker_count = 1; worker_count <= 64; worker_count *= 4) {
        static struct receiver receiver;
        const struct actor actor = {
            .name = "receiver", .step = receiver_step, .context = &receiver};
        struct crew *crew = NULL;

        memset(&receiver, 0, sizeof(receiver));
        env_host(&receiver.env);
        assert_int_equal(receiver.env.sched->start(NULL, &actor, &receiver.task), KVT_OK);
        assert_int_equal(crew_open(&receiver.env, "worker", worker_count, &crew), KVT_OK);
        for (uint32_t i = 0; i < JOB_COUNT; i++) {
            job_init(&jobs[i], &receiver, job_count);
            crew_submit(crew, &jobs[i].job);
            /* Let the crew fall idle now and then: a lost wake shows there. */
            if (i % 97 == 0)
                assert_true(receiver_await(&receiver, i + 1));
        }
        assert_true(receiver_await(&receiver, JOB_COUNT));
        crew_close(crew);
        receiver.env.sched->stop(NULL, receiver.task);
        assert_int_equal(receiver.received, JOB_COUNT);
        assert_false(receiver.is_wrong);
    }
}

static void
close_runs_what_was_submitted_first(void **state)
{
    static struct job jobs[JOB_COUNT];
    static struct receiver receiver;
    struct crew *crew = NULL;

    (void)state;
    env_host(&receiver.env);
    /* No task: nobody is woken. */
    assert_int_equal(crew_open(&receiver.env, "worker", 2, &crew), KVT_OK);
    for (uint32_t i = 0; i < JOB_COUNT; i++) {
        job_init(&jobs[i], &receiver, job_count);
        crew_submit(crew, &jobs[i].job);
    }
    crew_close(crew);
    assert_int_equal(receiver_take(&receiver), JOB_COUNT);
    assert_false(receiver.is_wrong);
    crew_close(NULL);
}

/* --- Jobs that follow another ----------------------------------------------------------------- */

struct in_order {
    struct job job; /* First. */
    uint32_t *turn;
    uint32_t ran_at;
};

static void
job_note(struct crew_job *job)
{
    struct in_order *self = CONTAINER_OF(CONTAINER_OF(job, struct job, job), struct in_order, job);

    job_count(job);
    self->ran_at = ++*self->turn;
}

static void
followers_run_after_their_job_and_come_back_with_it(void **state)
{
    static struct receiver receiver;
    static struct in_order jobs[CREW_FOLLOWERS_MAX + 1];
    struct crew *crew = NULL;
    struct inbox_node *node;
    uint32_t turn = 0;

    (void)state;
    env_host(&receiver.env);
    assert_int_equal(crew_open(&receiver.env, "worker", 4, &crew), KVT_OK);
    for (uint32_t i = 0; i <= CREW_FOLLOWERS_MAX; i++) {
        job_init(&jobs[i].job, &receiver, job_note);
        jobs[i].turn = &turn;
        if (i > 0)
            jobs[0].job.job.followers[i - 1] = &jobs[i].job.job;
    }
    jobs[0].job.job.follower_count = CREW_FOLLOWERS_MAX;
    crew_submit_many(crew, &jobs[0].job.job.node, &jobs[0].job.job.node, 1);
    crew_close(crew);
    node = inbox_take(&receiver.inbox);
    assert_ptr_equal(node, &jobs[0].job.job.node);
    assert_null(node->next);
    for (uint32_t i = 0; i <= CREW_FOLLOWERS_MAX; i++) {
        assert_int_equal(jobs[i].job.run_count, 1);
        assert_int_equal(jobs[i].ran_at, i + 1);
    }
    /* Submitted alone, it has no followers any more. */
    assert_int_equal(crew_open(&receiver.env, "worker", 1, &crew), KVT_OK);
    crew_submit(crew, &jobs[0].job.job);
    crew_close(crew);
    assert_int_equal(jobs[0].job.run_count, 2);
    assert_int_equal(jobs[1].job.run_count, 1);
}

struct meeting {
    struct receiver receiver;
    _Atomic uint32_t arrived;
    _Atomic uint32_t met;
    struct job jobs[2];
};

static void
job_meet(struct crew_job *job)
{
    /* Which of the two tells where the meeting is. */
    struct job *self = CONTAINER_OF(job, struct job, job);
    struct meeting *meeting = CONTAINER_OF(job->done, struct meeting, receiver.inbox);
    const struct kvt_env *env = &meeting->receiver.env;
    uint64_t limit_ns = env_now(env) + WAIT_LIMIT_NS;

    self->run_count++;
    atomic_fetch_add(&meeting->arrived, 1);
    gate_post(env, &meeting->receiver.gate);
    while (env_now(env) < limit_ns) {
        uint32_t seen = atomic_load(&meeting->receiver.gate.value);

        if (atomic_load(&meeting->arrived) == 2)
            break;
        gate_wait(env, &meeting->receiver.gate, seen, limit_ns);
    }
    if (atomic_load(&meeting->arrived) == 2)
        atomic_fetch_add(&meeting->met, 1);
}

static void
two_workers_run_two_jobs_at_once(void **state)
{
    static struct meeting meeting;
    struct crew *crew = NULL;

    (void)state;
    env_host(&meeting.receiver.env);
    assert_int_equal(crew_open(&meeting.receiver.env, "worker", 2, &crew), KVT_OK);
    for (size_t i = 0; i < 2; i++) {
        job_init(&meeting.jobs[i], &meeting.receiver, job_meet);
        crew_submit(crew, &meeting.jobs[i].job);
    }
    while (atomic_load(&meeting.arrived) < 2)
        gate_wait(&meeting.receiver.env, &meeting.receiver.gate,
            atomic_load(&meeting.receiver.gate.value), env_now(&meeting.receiver.env) + 1000000);
    crew_close(crew);
    assert_int_equal(meeting.met, 2);
    assert_int_equal(receiver_take(&meeting.receiver), 2);
}

static void
number_of_workers_has_bounds(void **state)
{
    struct kvt_env env;
    struct crew *crew = (struct crew *)(uintptr_t)1;

    (void)state;
    env_host(&env);
    assert_int_equal(crew_open(&env, "worker", 0, &crew), KVT_E_INVAL);
    assert_null(crew);
    assert_int_equal(crew_open(&env, "worker", 65, &crew), KVT_E_INVAL);
    assert_int_equal(crew_open(&env, "worker", 64, &crew), KVT_OK);
    crew_close(crew);
}

/* --- A world in which the n-th start fails, or memory is out ---------------------------------- */

struct poor {
    struct kvt_env real;
    uint32_t start_count_max;
    uint32_t start_count;
    uint32_t stop_count;
    uint32_t take_count;
    uint32_t put_count;
    bool has_no_memory;
};

static enum kvt_status
poor_start(void *context, const struct actor *actor, struct task **task_out)
{
    struct poor *poor = context;

    if (poor->start_count == poor->start_count_max)
        return failure_set(KVT_E_NOMEM, 11, "no more threads");
    poor->start_count++;
    return poor->real.sched->start(NULL, actor, task_out);
}

static void
poor_stop(void *context, struct task *task)
{
    struct poor *poor = context;

    poor->stop_count++;
    poor->real.sched->stop(NULL, task);
}

static void *
poor_take(void *context, size_t size)
{
    struct poor *poor = context;

    if (poor->has_no_memory)
        return NULL;
    poor->take_count++;
    return env_take(&poor->real, size);
}

static void
poor_put(void *context, void *memory, size_t size)
{
    struct poor *poor = context;

    poor->put_count++;
    env_put(&poor->real, memory, size);
}

static const struct memory_ops poor_memory = {.take = poor_take, .put = poor_put};

static void
failed_open_leaves_no_thread_and_no_memory(void **state)
{
    (void)state;
    for (uint32_t max = 0; max < 4; max++) {
        struct poor poor = {.start_count_max = max};
        struct sched_ops sched;
        struct kvt_env env;
        struct crew *crew = NULL;

        env_host(&poor.real);
        sched = *poor.real.sched;
        sched.start = poor_start;
        sched.stop = poor_stop;
        env = poor.real;
        env.sched = &sched;
        env.sched_context = &poor;
        env.memory = &poor_memory;
        env.memory_context = &poor;
        poor.has_no_memory = true;
        assert_int_equal(crew_open(&env, "worker", 4, &crew), KVT_E_NOMEM);
        assert_int_equal(poor.start_count, 0);
        poor.has_no_memory = false;
        assert_int_equal(crew_open(&env, "worker", 4, &crew), KVT_E_NOMEM);
        assert_null(crew);
        assert_int_equal(poor.start_count, max);
        assert_int_equal(poor.stop_count, max);
        assert_int_equal(poor.take_count, 1);
        assert_int_equal(poor.put_count, 1);
        assert_string_equal(failure_last()->text, "no more threads");
    }
}

/* --- A world without threads, whose stop stands for the last step of a worker ----------------- */

struct still {
    struct kvt_env real;
    struct crew *crew;
    struct receiver receiver;
    struct job late; /* Submitted while the workers are being stopped. */
    struct actor actor;
    uint32_t wake_count;
};

static enum kvt_status
still_start(void *context, const struct actor *actor, struct task **task_out)
{
    struct still *still = context;

    still->actor = *actor;
    *task_out = (struct task *)(void *)still;
    return KVT_OK;
}

static void
still_wake(void *context, struct task *task)
{
    struct still *still = context;

    (void)task;
    still->wake_count++;
}

static void
still_stop(void *context, struct task *task)
{
    struct still *still = context;

    (void)task;
    crew_submit(still->crew, &still->late.job);
}

static void
idle_worker_is_woken_once_and_a_job_from_the_last_step_still_runs(void **state)
{
    static struct still still;
    const struct sched_ops sched = {.start = still_start, .wake = still_wake, .stop = still_stop};
    static struct job jobs[3];
    struct kvt_env env;
    uint64_t next_ns = 0;

    (void)state;
    env_host(&still.real);
    env = still.real;
    env.sched = &sched;
    env.sched_context = &still;
    assert_int_equal(crew_open(&env, "worker", 1, &still.crew), KVT_OK);
    for (size_t i = 0; i < 3; i++)
        job_init(&jobs[i], &still.receiver, job_count);
    job_init(&still.late, &still.receiver, job_count);
    /* Nobody is idle before its first step, which comes anyway. */
    crew_submit(still.crew, &jobs[0].job);
    assert_int_equal(still.wake_count, 0);
    assert_true(still.actor.step(still.actor.context, 0, &next_ns));
    assert_false(still.actor.step(still.actor.context, 0, &next_ns));
    assert_true(next_ns == UINT64_MAX);
    crew_submit(still.crew, &jobs[1].job);
    assert_int_equal(still.wake_count, 1);
    crew_submit(still.crew, &jobs[2].job);
    assert_int_equal(still.wake_count, 1);
    assert_true(still.actor.step(still.actor.context, 0, &next_ns));
    crew_close(still.crew);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(jobs[i].run_count, 1);
    assert_int_equal(still.late.run_count, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_runs_once_and_its_receiver_is_woken),
        cmocka_unit_test(close_runs_what_was_submitted_first),
        cmocka_unit_test(followers_run_after_their_job_and_come_back_with_it),
        cmocka_unit_test(two_workers_run_two_jobs_at_once),
        cmocka_unit_test(number_of_workers_has_bounds),
        cmocka_unit_test(idle_worker_is_woken_once_and_a_job_from_the_last_step_still_runs),
        cmocka_unit_test(failed_open_leaves_no_thread_and_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
