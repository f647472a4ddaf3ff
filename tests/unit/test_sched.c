/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sched.c - tasks, wakes, gates and signals of the host.
 *
 * Every wait has a limit far beyond what a slow machine needs, so that a lost wake is a failed test
 * and not a hang; no test depends on how long anything takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "env.h"
#include "inbox.h"

static const uint64_t WAIT_LIMIT_NS = UINT64_C(100000000000);

/* Wait until `*number` has reached `goal`; whoever raises it posts `gate`. False: it never came. */
static bool
number_await(const struct kvt_env *env, struct gate *gate, _Atomic uint32_t *number, uint32_t goal)
{
    uint64_t limit_ns = env_now(env) + WAIT_LIMIT_NS;

    while (env_now(env) < limit_ns) {
        uint32_t seen = atomic_load(&gate->value);

        if (atomic_load(number) >= goal)
            return true;
        gate_wait(env, gate, seen, limit_ns);
    }
    return false;
}

/* --- 1. Tasks --------------------------------------------------------------------------------- */

struct counter {
    struct kvt_env env;
    struct gate gate;
    _Atomic uint32_t step_count;
    uint64_t period_ns; /* 0: only after a wake. */
};

static bool
counter_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct counter *counter = context;

    *next_ns_out = counter->period_ns == 0 ? UINT64_MAX : now_ns + counter->period_ns;
    atomic_fetch_add(&counter->step_count, 1);
    gate_post(&counter->env, &counter->gate);
    return false;
}

static struct task *
task_start(const struct kvt_env *env, const struct actor *actor)
{
    struct task *task = NULL;

    assert_int_equal(env->sched->start(env->sched_context, actor, &task), KVT_OK);
    assert_non_null(task);
    return task;
}

static void
task_steps_at_start_and_once_more_after_each_wake(void **state)
{
    static struct counter counter;
    struct actor actor = {.name = "counter", .step = counter_step, .context = &counter};
    struct task *task;

    (void)state;
    env_host(&counter.env);
    task = task_start(&counter.env, &actor);
    /* The task keeps a copy of the actor. */
    memset(&actor, 0, sizeof(actor));
    for (uint32_t goal = 1; goal < 2000; goal++) {
        assert_true(number_await(&counter.env, &counter.gate, &counter.step_count, goal));
        env_wake(&counter.env, task);
    }
    counter.env.sched->stop(counter.env.sched_context, task);
}

static void
task_steps_by_itself_when_its_time_comes(void **state)
{
    static struct counter counter = {.period_ns = 1000};
    const struct actor actor = {.name = "counter", .step = counter_step, .context = &counter};
    struct task *task;

    (void)state;
    env_host(&counter.env);
    task = task_start(&counter.env, &actor);
    assert_true(number_await(&counter.env, &counter.gate, &counter.step_count, 50));
    counter.env.sched->stop(counter.env.sched_context, task);
}

/* An actor that has itself woken as soon as it runs. */
struct hasty {
    struct kvt_env env;
    struct gate gate;
    struct task *task; /* Where start() puts the handle. */
    _Atomic uint32_t step_count;
};

static bool
hasty_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct hasty *hasty = context;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    if (atomic_fetch_add(&hasty->step_count, 1) == 0)
        env_wake(&hasty->env, hasty->task);
    gate_post(&hasty->env, &hasty->gate);
    return false;
}

static void
task_can_be_woken_from_its_first_step_on(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        struct hasty hasty = {0};
        const struct actor actor = {.name = "hasty", .step = hasty_step, .context = &hasty};

        env_host(&hasty.env);
        assert_int_equal(
            hasty.env.sched->start(hasty.env.sched_context, &actor, &hasty.task), KVT_OK);
        assert_true(number_await(&hasty.env, &hasty.gate, &hasty.step_count, 2));
        hasty.env.sched->stop(hasty.env.sched_context, hasty.task);
    }
}

/* An actor that is in the middle of its first step until it is let go. */
struct slow {
    struct kvt_env env;
    struct gate gate;
    _Atomic uint32_t step_count;
    _Atomic uint32_t let_go;
};

static bool
slow_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct slow *slow = context;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    atomic_fetch_add(&slow->step_count, 1);
    gate_post(&slow->env, &slow->gate);
    return !number_await(&slow->env, &slow->gate, &slow->let_go, 1);
}

static void
wake_during_a_step_causes_another_step(void **state)
{
    static struct slow slow;
    const struct actor actor = {.name = "slow", .step = slow_step, .context = &slow};
    struct task *task;

    (void)state;
    env_host(&slow.env);
    task = task_start(&slow.env, &actor);
    assert_true(number_await(&slow.env, &slow.gate, &slow.step_count, 1));
    env_wake(&slow.env, task);
    atomic_store(&slow.let_go, 1);
    gate_post(&slow.env, &slow.gate);
    assert_true(number_await(&slow.env, &slow.gate, &slow.step_count, 2));
    slow.env.sched->stop(slow.env.sched_context, task);
}

static bool
busy_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct counter *counter = context;

    (void)now_ns;
    (void)next_ns_out;
    atomic_fetch_add(&counter->step_count, 1);
    return true;
}

static void
busy_task_stops_and_steps_no_more(void **state)
{
    static struct counter counter;
    const struct actor actor = {.name = "busy", .step = busy_step, .context = &counter};
    uint32_t count;

    (void)state;
    env_host(&counter.env);
    for (int i = 0; i < 200; i++) {
        struct task *task = task_start(&counter.env, &actor);

        counter.env.sched->stop(counter.env.sched_context, task);
        count = atomic_load(&counter.step_count);
        (void)usleep(i % 50 == 0 ? 1000 : 0);
        assert_int_equal(atomic_load(&counter.step_count), count);
    }
    counter.env.sched->stop(counter.env.sched_context, NULL);
}

/* An actor that waits for something else than the task's gate. */
struct parker {
    struct kvt_env env;
    struct gate own;
    struct gate gate;
    _Atomic uint32_t step_count;
    _Atomic uint32_t park_count;
    _Atomic uint32_t wake_count;
    uint32_t seen;
    _Atomic bool is_time_wrong;
};

static bool
parker_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct parker *parker = context;

    parker->seen = atomic_load(&parker->own.value);
    *next_ns_out = now_ns + WAIT_LIMIT_NS;
    atomic_fetch_add(&parker->step_count, 1);
    gate_post(&parker->env, &parker->gate);
    return false;
}

static void
parker_park(void *context, uint64_t now_ns, uint64_t until_ns)
{
    struct parker *parker = context;

    atomic_fetch_add(&parker->park_count, 1);
    if (until_ns > now_ns + WAIT_LIMIT_NS || until_ns < now_ns)
        atomic_store(&parker->is_time_wrong, true);
    gate_wait(&parker->env, &parker->own, parker->seen, until_ns);
}

static void
parker_wake(void *context)
{
    struct parker *parker = context;

    atomic_fetch_add(&parker->wake_count, 1);
    gate_post(&parker->env, &parker->own);
}

static void
actor_with_its_own_park_is_parked_and_woken_through_it(void **state)
{
    static struct parker parker;
    const struct actor actor = {.name = "parker",
        .step = parker_step,
        .park = parker_park,
        .wake = parker_wake,
        .context = &parker};
    struct task *task;

    (void)state;
    env_host(&parker.env);
    task = task_start(&parker.env, &actor);
    for (uint32_t goal = 1; goal < 500; goal++) {
        assert_true(number_await(&parker.env, &parker.gate, &parker.step_count, goal));
        env_wake(&parker.env, task);
    }
    parker.env.sched->stop(parker.env.sched_context, task);
    assert_int_equal(parker.wake_count, 500);
    assert_true(parker.park_count > 0);
    assert_false(parker.is_time_wrong);
}

struct facts {
    struct kvt_env env;
    struct gate gate;
    _Atomic uint32_t is_known;
    char name[16];
    sigset_t mask;
};

static bool
facts_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct facts *facts = context;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    (void)pthread_getname_np(pthread_self(), facts->name, sizeof(facts->name));
    (void)pthread_sigmask(SIG_BLOCK, NULL, &facts->mask);
    atomic_store(&facts->is_known, 1);
    gate_post(&facts->env, &facts->gate);
    return false;
}

static void
thread_has_the_actors_name_and_leaves_signals_to_the_host(void **state)
{
    static const int host_signals[] = {
        SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGPROF, SIGALRM, SIGPIPE};
    static struct facts facts;
    const struct actor actor = {.name = "kvt-fifteen-len", .step = facts_step, .context = &facts};
    struct task *task;
    sigset_t before;
    sigset_t after;

    (void)state;
    env_host(&facts.env);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    task = task_start(&facts.env, &actor);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    assert_true(number_await(&facts.env, &facts.gate, &facts.is_known, 1));
    facts.env.sched->stop(facts.env.sched_context, task);
    assert_string_equal(facts.name, "kvt-fifteen-len");
    for (size_t i = 0; i < sizeof(host_signals) / sizeof(host_signals[0]); i++) {
        assert_int_equal(sigismember(&facts.mask, host_signals[i]), 1);
        assert_int_equal(
            sigismember(&before, host_signals[i]), sigismember(&after, host_signals[i]));
    }
    assert_int_equal(sigismember(&facts.mask, SIGSEGV), 0);
    assert_int_equal(sigismember(&facts.mask, SIGBUS), 0);
}

/* --- 2. The pattern that the store is built on: inbox and wake -------------------------------- */

enum {
    PRODUCER_COUNT = 4,
    NODE_COUNT = 5000,
};

struct post {
    struct kvt_env env;
    struct inbox inbox;
    struct task *task;
    struct gate gate;
    _Atomic uint32_t taken;
};

struct producer {
    struct post *post;
    struct inbox_node nodes[NODE_COUNT];
};

static bool
consumer_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct post *post = context;
    struct inbox_node *node = inbox_take(&post->inbox);
    uint32_t count = 0;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    for (; node != NULL; node = node->next)
        count++;
    if (count == 0)
        return false;
    atomic_fetch_add(&post->taken, count);
    gate_post(&post->env, &post->gate);
    return true;
}

static void *
producer_main(void *argument)
{
    struct producer *producer = argument;

    for (uint32_t i = 0; i < NODE_COUNT; i++) {
        if (inbox_push(&producer->post->inbox, &producer->nodes[i]))
            env_wake(&producer->post->env, producer->post->task);
    }
    return NULL;
}

static void
wake_only_on_the_first_push_loses_nothing(void **state)
{
    static struct post post;
    static struct producer producers[PRODUCER_COUNT];
    const struct actor actor = {.name = "consumer", .step = consumer_step, .context = &post};
    pthread_t threads[PRODUCER_COUNT];

    (void)state;
    env_host(&post.env);
    post.task = task_start(&post.env, &actor);
    for (size_t i = 0; i < PRODUCER_COUNT; i++) {
        producers[i].post = &post;
        assert_int_equal(pthread_create(&threads[i], NULL, producer_main, &producers[i]), 0);
    }
    assert_true(number_await(&post.env, &post.gate, &post.taken, PRODUCER_COUNT * NODE_COUNT));
    for (size_t i = 0; i < PRODUCER_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    post.env.sched->stop(post.env.sched_context, post.task);
}

/* --- 3. Gates --------------------------------------------------------------------------------- */

static void
wait_returns_when_the_value_has_changed_or_the_time_is_over(void **state)
{
    struct kvt_env env;
    struct gate gate = {0};

    (void)state;
    env_host(&env);
    gate_post(&env, &gate);
    assert_int_equal(gate.value, 1);
    gate_wait(&env, &gate, 0, UINT64_MAX);
    gate_wait(&env, &gate, 1, 0);
    gate_wait(&env, &gate, 1, env_now(&env) + 1000000);
    assert_int_equal(gate.value, 1);
    assert_int_equal(gate.waiters, 0);
}

enum {
    ROUND_COUNT = 20000,
};

struct table {
    struct kvt_env env;
    struct gate gates[2];
    _Atomic uint32_t turns[2];
};

static bool
table_play(struct table *table, size_t mine, size_t other)
{
    for (uint32_t round = 1; round <= ROUND_COUNT; round++) {
        if (mine == 0) {
            atomic_store(&table->turns[other], round);
            gate_post(&table->env, &table->gates[other]);
        }
        if (!number_await(&table->env, &table->gates[mine], &table->turns[mine], round))
            return false;
        if (mine == 1) {
            atomic_store(&table->turns[other], round);
            gate_post(&table->env, &table->gates[other]);
        }
    }
    return true;
}

static void *
table_second(void *argument)
{
    return table_play(argument, 1, 0) ? argument : NULL;
}

static void
two_threads_that_wake_each_other_never_miss_a_post(void **state)
{
    static struct table table;
    pthread_t thread;
    void *result;

    (void)state;
    env_host(&table.env);
    assert_int_equal(pthread_create(&thread, NULL, table_second, &table), 0);
    assert_true(table_play(&table, 0, 1));
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &table);
}

struct crowd {
    struct kvt_env env;
    struct gate gate;
    _Atomic uint32_t is_open;
};

static void *
crowd_wait(void *argument)
{
    struct crowd *crowd = argument;

    return number_await(&crowd->env, &crowd->gate, &crowd->is_open, 1) ? crowd : NULL;
}

static void
one_post_wakes_everybody_who_waits(void **state)
{
    static struct crowd crowd;
    pthread_t threads[6];

    (void)state;
    env_host(&crowd.env);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_wait, &crowd), 0);
    /* Let them fall asleep; if they have not, the test still holds, only weaker. */
    for (int i = 0; i < 1000 && atomic_load(&crowd.gate.waiters) < 6; i++)
        (void)usleep(1000);
    atomic_store(&crowd.is_open, 1);
    gate_post(&crowd.env, &crowd.gate);
    for (size_t i = 0; i < 6; i++) {
        void *result;

        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &crowd);
    }
}

/* --- 4. Signals ------------------------------------------------------------------------------- */

static bool
signal_is_up(int signal)
{
    struct pollfd entry = {.fd = signal, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

static void
signal_is_readable_from_post_to_clear(void **state)
{
    struct kvt_env env;
    int signal = -1;

    (void)state;
    env_host(&env);
    assert_int_equal(env.sched->signal_open(env.sched_context, &signal), KVT_OK);
    assert_true(signal >= 0);
    assert_int_equal(fcntl(signal, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_false(signal_is_up(signal));
    for (int i = 0; i < 3; i++)
        env.sched->signal_post(env.sched_context, signal);
    assert_true(signal_is_up(signal));
    env.sched->signal_clear(env.sched_context, signal);
    assert_false(signal_is_up(signal));
    /* Clear twice: must not block. */
    env.sched->signal_clear(env.sched_context, signal);
    env.sched->signal_post(env.sched_context, signal);
    assert_true(signal_is_up(signal));
    env.sched->signal_close(env.sched_context, signal);
    assert_int_equal(fcntl(signal, F_GETFD), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(task_steps_at_start_and_once_more_after_each_wake),
        cmocka_unit_test(task_steps_by_itself_when_its_time_comes),
        cmocka_unit_test(task_can_be_woken_from_its_first_step_on),
        cmocka_unit_test(wake_during_a_step_causes_another_step),
        cmocka_unit_test(busy_task_stops_and_steps_no_more),
        cmocka_unit_test(actor_with_its_own_park_is_parked_and_woken_through_it),
        cmocka_unit_test(thread_has_the_actors_name_and_leaves_signals_to_the_host),
        cmocka_unit_test(wake_only_on_the_first_push_loses_nothing),
        cmocka_unit_test(wait_returns_when_the_value_has_changed_or_the_time_is_over),
        cmocka_unit_test(two_threads_that_wake_each_other_never_miss_a_post),
        cmocka_unit_test(one_post_wakes_everybody_who_waits),
        cmocka_unit_test(signal_is_readable_from_post_to_clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
