/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_host_tier.c - opening the HOST tier's arena: sizes, touching with and without actors,
 * failures. What puts and gets do is in conform_tier.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failure.h"
#include "host_tier.h"
#include "stop_on_proof.h"

#define MIB ((uint64_t)1 << 20)

static struct kvt_env env;
static struct memory_ops memory_ops;
static struct sched_ops sched_ops;
static const struct memory_ops *host_memory;
static const struct sched_ops *host_sched;
static uint32_t started_count;
static uint32_t takes_left;

static void *
map_refused(void *context, size_t size)
{
    (void)context;
    (void)size;
    return NULL;
}

static void *
take_limited(void *context, size_t size)
{
    if (takes_left == 0)
        return NULL;
    takes_left--;
    return host_memory->take(context, size);
}

static enum kvt_status
start_counted(void *context, const struct actor *actor, struct task **task_out)
{
    started_count++;
    return host_sched->start(context, actor, task_out);
}

static enum kvt_status
start_refused(void *context, const struct actor *actor, struct task **task_out)
{
    (void)context;
    (void)actor;
    *task_out = NULL;
    started_count++;
    return failure_set(KVT_E_NOMEM, 0, "no more threads, on purpose");
}

static void
env_prepare(void)
{
    env_host(&env);
    host_memory = env.memory;
    memory_ops = *host_memory;
    env.memory = &memory_ops;
    host_sched = env.sched;
    sched_ops = *host_sched;
    sched_ops.start = start_counted;
    env.sched = &sched_ops;
    started_count = 0;
}

static void
arena_verify(struct host_tier *host, uint64_t wanted)
{
    size_t size;
    const uint8_t *arena = host_arena(host, &size);

    assert_int_equal(size, wanted);
    assert_int_equal((uintptr_t)arena % (2 * MIB), 0);
    for (size_t at = 0; at < size; at += 65521)
        assert_int_equal(arena[at], 0);
}

static void
the_capacity_is_rounded_up_to_huge_pages(void **state)
{
    struct host_tier *host;

    (void)state;
    env_prepare();
    assert_int_equal(host_open(&env, 5 * MIB + 1, 65536, &host), KVT_OK);
    arena_verify(host, 6 * MIB);
    assert_int_equal(started_count, 0);
    assert_int_equal(slab_capacity(host_slab(host)), 6 * MIB);
    slab_check(host_slab(host));
    host_as_tier(host)->ops->close(NULL); /* Does nothing. */
    host_as_tier(host)->ops->close(host_as_tier(host));
}

static void
a_large_arena_is_touched_by_several_actors(void **state)
{
    struct host_tier *host;

    (void)state;
    env_prepare();
    assert_int_equal(host_open(&env, 300 * MIB, 1 << 20, &host), KVT_OK);
    assert_int_equal(started_count, 16);
    arena_verify(host, 300 * MIB);
    host_as_tier(host)->ops->close(host_as_tier(host));

    /* Without threads it only takes longer. */
    sched_ops.start = start_refused;
    assert_int_equal(host_open(&env, 300 * MIB, 1 << 20, &host), KVT_OK);
    assert_int_equal(started_count, 32);
    arena_verify(host, 300 * MIB);
    host_as_tier(host)->ops->close(host_as_tier(host));
}

static void
what_cannot_be_had_is_named(void **state)
{
    struct host_tier *host;

    (void)state;
    env_prepare();
    assert_int_equal(host_open(&env, 0, 65536, &host), KVT_E_INVAL);
    assert_int_equal(host_open(&env, UINT64_MAX, 65536, &host), KVT_E_INVAL);
    assert_int_equal(host_open(&env, 4 * MIB, 0, &host), KVT_E_INVAL);
    memory_ops.map = map_refused;
    assert_int_equal(host_open(&env, 5 * MIB, 65536, &host), KVT_E_NOMEM);
    assert_null(host);
    assert_non_null(strstr(failure_last()->text, "6291456"));
}

static void
each_allocation_may_fail(void **state)
{
    struct host_tier *host;
    uint32_t count = 0;

    (void)state;
    env_prepare();
    memory_ops.take = take_limited;
    for (;; count++) {
        takes_left = count;
        if (host_open(&env, 4 * MIB, 65536, &host) == KVT_OK)
            break;
        assert_int_equal(failure_last()->status, KVT_E_NOMEM);
        assert_null(host);
    }
    assert_true(count >= 4);
    host_as_tier(host)->ops->close(host_as_tier(host));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_capacity_is_rounded_up_to_huge_pages),
        cmocka_unit_test(a_large_arena_is_touched_by_several_actors),
        cmocka_unit_test(what_cannot_be_had_is_named),
        cmocka_unit_test(each_allocation_may_fail),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
