/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory.c - the host's memory, clock and random bytes, and what a forked child sees.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "env.h"

enum {
    HUGE = 2 << 20,
};

static void
taken_memory_is_zeroed_and_put_takes_null(void **state)
{
    struct kvt_env env;
    uint8_t *memory;

    (void)state;
    env_host(&env);
    memory = env_take(&env, 12345);
    assert_non_null(memory);
    assert_true(bytes_are_zero(memory, 12345));
    env_put(&env, memory, 12345);
    env_put(&env, NULL, 12345);
}

static void
map_is_aligned_zeroed_and_as_long_as_asked(void **state)
{
    static const size_t sizes[] = {
        1, PAGE_BYTES, PAGE_BYTES + 1, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE};
    struct kvt_env env;

    (void)state;
    env_host(&env);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t *memory = env_map(&env, sizes[i]);

        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % (sizes[i] < HUGE ? PAGE_BYTES : HUGE), 0);
        assert_true(bytes_are_zero(memory, sizes[i]));
        memset(memory, 0xA5, sizes[i]);
        env_unmap(&env, memory, sizes[i]);
    }
    env_unmap(&env, NULL, HUGE);
    assert_null(env_map(&env, 0));
    assert_null(env_map(&env, SIZE_MAX));
    assert_null(env_map(&env, SIZE_MAX / 4));
}

/* The byte there as the kernel reads it; -1: nothing is there. A fault is an answer, no signal. */
static int
byte_at(const void *memory)
{
    int ends[2];
    uint8_t byte = 0;
    int result = -1;

    if (pipe(ends) != 0)
        return -2;
    if (write(ends[1], memory, 1) == 1 && read(ends[0], &byte, 1) == 1)
        result = byte;
    else if (errno != EFAULT)
        result = -2;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return result;
}

static void
unmap_gives_back_exactly_what_was_mapped(void **state)
{
    struct kvt_env env;
    uint8_t *memory;
    uint8_t *page;

    (void)state;
    env_host(&env);
    memory = env_map(&env, HUGE - PAGE_BYTES);
    assert_non_null(memory);
    assert_int_equal(byte_at(memory + HUGE - PAGE_BYTES - 1), 0);
    env_unmap(&env, memory, HUGE - PAGE_BYTES);
    assert_int_equal(byte_at(memory), -1);
    assert_int_equal(byte_at(memory + HUGE - PAGE_BYTES - 1), -1);
    memory = env_map(&env, HUGE + 1);
    assert_non_null(memory);
    assert_int_equal(byte_at(memory + 2 * HUGE - 1), 0);
    env_unmap(&env, memory, HUGE + 1);
    assert_int_equal(byte_at(memory), -1);
    assert_int_equal(byte_at(memory + 2 * HUGE - 1), -1);
    page = env.memory->fork_page(env.memory_context);
    assert_non_null(page);
    env_unmap(&env, page, PAGE_BYTES);
    assert_int_equal(byte_at(page), -1);
}

static void
child_has_no_map_and_reads_zero_in_the_fork_page(void **state)
{
    struct kvt_env env;
    uint8_t *memory;
    uint8_t *page;
    int status = 0;
    pid_t child;

    (void)state;
    env_host(&env);
    memory = env_map(&env, HUGE);
    page = env.memory->fork_page(env.memory_context);
    assert_non_null(memory);
    assert_non_null(page);
    memory[0] = 0xA5;
    memset(page, 0xFF, PAGE_BYTES);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* Not "nothing is there": a sanitizer may have put something of its own into the gap. */
        _exit((byte_at(memory) == 0xA5 ? 1 : 0) | (bytes_are_zero(page, PAGE_BYTES) ? 0 : 2));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(memory[0], 0xA5);
    assert_int_equal(page[PAGE_BYTES - 1], 0xFF);
    env_unmap(&env, memory, HUGE);
    env_unmap(&env, page, PAGE_BYTES);
}

static void
clock_is_that_of_the_system_and_does_not_go_back(void **state)
{
    struct kvt_env env;
    struct timespec time;
    uint64_t last;
    uint64_t wall;

    (void)state;
    env_host(&env);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    last = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    for (int i = 0; i < 1000; i++) {
        uint64_t now = env_now(&env);

        assert_true(now >= last);
        last = now;
    }
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    assert_true(last <= (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec);
    wall = env.clock->wall_ns(env.clock_context);
    assert_true(wall / 1000000000 >= (uint64_t)1600000000);
}

static void
random_bytes_fill_all_of_the_target_and_differ(void **state)
{
    static uint8_t bytes[2][100000];
    struct kvt_env env;
    uint32_t counts[256] = {0};

    (void)state;
    env_host(&env);
    for (size_t i = 0; i < 2; i++)
        env.random->fill(env.random_context, bytes[i], sizeof(bytes[i]));
    assert_memory_not_equal(bytes[0], bytes[1], sizeof(bytes[0]));
    /* 391 expected of each value, deviation 20: outside ten deviations is broken. */
    for (size_t i = 0; i < sizeof(bytes[0]); i++)
        counts[bytes[0][i]]++;
    for (size_t i = 0; i < 256; i++)
        assert_in_range(counts[i], 190, 590);
    assert_false(bytes_are_zero(bytes[0] + sizeof(bytes[0]) - 16, 16));
    env.random->fill(env.random_context, bytes[0], 0);
}

static void
signal_ignore(int signal)
{
    (void)signal;
}

static void
random_bytes_fill_all_although_signals_cut_the_call_short(void **state)
{
    const struct sigaction action = {.sa_handler = signal_ignore};
    const struct itimerval often = {{.tv_usec = 500}, {.tv_usec = 500}};
    const struct itimerval never = {{0}, {0}};
    const size_t size = (size_t)32 << 20;
    struct kvt_env env;
    uint8_t *memory;

    (void)state;
    env_host(&env);
    memory = env_map(&env, size);
    assert_non_null(memory);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    env.random->fill(env.random_context, memory, size);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    for (size_t at = 0; at < size; at += 64)
        assert_false(bytes_are_zero(memory + at, 64));
    env_unmap(&env, memory, size);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_memory_is_zeroed_and_put_takes_null),
        cmocka_unit_test(map_is_aligned_zeroed_and_as_long_as_asked),
        cmocka_unit_test(unmap_gives_back_exactly_what_was_mapped),
        cmocka_unit_test(child_has_no_map_and_reads_zero_in_the_fork_page),
        cmocka_unit_test(clock_is_that_of_the_system_and_does_not_go_back),
        cmocka_unit_test(random_bytes_fill_all_of_the_target_and_differ),
        cmocka_unit_test(random_bytes_fill_all_although_signals_cut_the_call_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
