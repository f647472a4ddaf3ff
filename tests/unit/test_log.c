/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_log.c - which lines reach the callback, and in what form.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "log.h"

struct sink {
    _Atomic uint64_t now_ns;
    _Atomic uint32_t count;
    _Atomic uint32_t told_count; /* Lines that others said were held back. */
    int level;
    char module[32];
    char line[LOG_LINE_BYTES + 1];
};

static uint64_t
sink_now(void *context)
{
    struct sink *sink = context;

    return sink->now_ns;
}

static const struct clock_ops sink_clock = {.now_ns = sink_now};

static void
sink_line(void *context, int level, const char *module, const char *line)
{
    struct sink *sink = context;

    sink->count++;
    sink->level = level;
    (void)snprintf(sink->module, sizeof(sink->module), "%s", module);
    (void)snprintf(sink->line, sizeof(sink->line), "%s", line);
}

/* From many threads. */
static void
sink_add_up(void *context, int level, const char *module, const char *line)
{
    static const char word[] = " held_back_count=";
    struct sink *sink = context;
    const char *told = strstr(line, word);

    (void)level;
    (void)module;
    sink->count++;
    if (told != NULL)
        sink->told_count += (uint32_t)strtoul(told + strlen(word), NULL, 10);
}

struct world {
    struct sink sink;
    struct kvt_env env;
    struct logger logger;
};

static void
world_init(struct world *world)
{
    memset(world, 0, sizeof(*world));
    world->sink.now_ns = 5000000000;
    world->env.clock = &sink_clock;
    world->env.clock_context = &world->sink;
    world->logger.callback = sink_line;
    world->logger.context = &world->sink;
    world->logger.level_max = LOG_INFO;
    world->logger.env = &world->env;
}

static void
line_arrives_with_its_level_and_module(void **state)
{
    static struct world world;

    (void)state;
    world_init(&world);
    log_line(&world.logger, LOG_WARN, "nvme", "segment=%d wait_ns=%d", 7, 900);
    assert_int_equal(world.sink.count, 1);
    assert_int_equal(world.sink.level, LOG_WARN);
    assert_string_equal(world.sink.module, "nvme");
    assert_string_equal(world.sink.line, "segment=7 wait_ns=900");
}

static void
level_above_the_limit_is_silent(void **state)
{
    static struct world world;

    (void)state;
    world_init(&world);
    log_line(&world.logger, LOG_DEBUG, "nvme", "a=1");
    assert_int_equal(world.sink.count, 0);
    world.logger.level_max = LOG_DEBUG;
    log_line(&world.logger, LOG_DEBUG, "nvme", "a=1");
    assert_int_equal(world.sink.count, 1);
}

static void
logger_without_callback_is_silent(void **state)
{
    static struct world world;

    (void)state;
    world_init(&world);
    world.logger.callback = NULL;
    log_line(&world.logger, LOG_ERROR, "nvme", "a=1");
    log_line(NULL, LOG_ERROR, "nvme", "a=1");
    assert_int_equal(world.sink.count, 0);
}

static void
fifty_lines_of_a_level_pass_in_a_second_and_the_next_tells_the_rest(void **state)
{
    static struct world world;

    (void)state;
    world_init(&world);
    for (uint32_t i = 0; i < LOG_RATE_PER_S + 7; i++)
        log_line(&world.logger, LOG_WARN, "nvme", "i=%u", i);
    assert_int_equal(world.sink.count, LOG_RATE_PER_S);
    assert_string_equal(world.sink.line, "i=49");
    /* Another level has its own budget. */
    log_line(&world.logger, LOG_ERROR, "nvme", "e=1");
    assert_int_equal(world.sink.count, LOG_RATE_PER_S + 1);
    /* Still the same second. */
    world.sink.now_ns = 5999999999;
    log_line(&world.logger, LOG_WARN, "nvme", "i=57");
    assert_int_equal(world.sink.count, LOG_RATE_PER_S + 1);
    world.sink.now_ns = 6000000000;
    log_line(&world.logger, LOG_WARN, "nvme", "i=58");
    assert_string_equal(world.sink.line, "i=58 held_back_count=8");
    log_line(&world.logger, LOG_WARN, "nvme", "i=59");
    assert_string_equal(world.sink.line, "i=59");
    for (uint32_t i = 0; i < 2 * LOG_RATE_PER_S; i++)
        log_line(&world.logger, LOG_WARN, "nvme", "i=%u", i);
    assert_int_equal(world.sink.count, 2 * LOG_RATE_PER_S + 1);
}

static void
line_stays_one_line_and_within_its_bound(void **state)
{
    static struct world world;
    char text[2 * LOG_LINE_BYTES];

    (void)state;
    world_init(&world);
    log_line(&world.logger, LOG_INFO, "fs", "path=%s", "a\nb\tc\x7f\x1b[0m");
    assert_string_equal(world.sink.line, "path=a?b?c??[0m");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (uint32_t i = 0; i < LOG_RATE_PER_S + 1; i++)
        log_line(&world.logger, LOG_INFO, "fs", "%s", text);
    world.sink.now_ns += 1000000000;
    log_line(&world.logger, LOG_INFO, "fs", "%s", text);
    /* The count is there even behind a line that was cut. */
    assert_non_null(strstr(world.sink.line, "xxx held_back_count=2"));
    assert_true(strlen(world.sink.line) < LOG_LINE_BYTES);
}

enum {
    THREAD_COUNT = 8,
    LINE_COUNT = 100,
    LINE_WIDTH = 200000,
};

static void *
log_often(void *argument)
{
    struct world *world = argument;

    /* A line that takes long to write, so that others are held back between the moment when it
     * passes and the one when it tells of them. */
    for (int i = 0; i < LINE_COUNT; i++)
        log_line(&world->logger, LOG_WARN, "nvme", "i=%*d", LINE_WIDTH, i);
    return NULL;
}

static void
limit_holds_when_threads_meet(void **state)
{
    static struct world world;
    pthread_t threads[THREAD_COUNT];

    (void)state;
    world_init(&world);
    world.logger.callback = sink_add_up;
    for (size_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_often, &world), 0);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(world.sink.count, LOG_RATE_PER_S);
    /* Each line that was held back was told of once, or will be. */
    assert_int_equal(world.sink.told_count + world.logger.held_count[LOG_WARN],
        THREAD_COUNT * LINE_COUNT - LOG_RATE_PER_S);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_arrives_with_its_level_and_module),
        cmocka_unit_test(level_above_the_limit_is_silent),
        cmocka_unit_test(logger_without_callback_is_silent),
        cmocka_unit_test(fifty_lines_of_a_level_pass_in_a_second_and_the_next_tells_the_rest),
        cmocka_unit_test(line_stays_one_line_and_within_its_bound),
        cmocka_unit_test(limit_holds_when_threads_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
