/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pool.c - objects that come and go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "pool.h"
#include "sim_world.h"

enum {
    SIZE = 100,
    KEEP = 4,
};

static struct sim_world *world;
static struct pool pool;

static int
setup(void **state)
{
    const struct sim_options options = {.seed = 1};

    (void)state;
    world = sim_world_create(&options);
    pool_init(&pool, sim_env(world), SIZE, KEEP);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    pool_deinit(&pool);
    assert_int_equal(sim_leaks(world, NULL, 0), 0);
    sim_world_destroy(world);
    return 0;
}

static void
what_was_given_back_is_handed_out_again_as_new(void **state)
{
    uint64_t asked;
    char *first = pool_take(&pool);

    (void)state;
    assert_non_null(first);
    memset(first, 0xEE, SIZE);
    pool_put(&pool, first);
    asked = sim_memory_asked(world);
    for (int i = 0; i < 100; i++) {
        char *again = pool_take(&pool);

        assert_ptr_equal(again, first);
        assert_true(bytes_are_zero(again, SIZE));
        memset(again, 0xEE, SIZE);
        pool_put(&pool, again);
    }
    assert_int_equal(sim_memory_asked(world), asked);
}

static void
what_is_taken_as_it_is_was_left_so(void **state)
{
    char *first = pool_take_as_is(&pool);

    (void)state;
    assert_non_null(first);
    memset(first, 0xEE, SIZE);
    pool_put(&pool, first);
    assert_ptr_equal(pool_take_as_is(&pool), first);
    assert_int_equal(first[SIZE - 1], (char)0xEE);
    pool_put(&pool, first);
}

static void
no_more_is_kept_than_was_said(void **state)
{
    void *objects[KEEP + 3];

    (void)state;
    for (size_t i = 0; i < KEEP + 3; i++)
        objects[i] = pool_take(&pool);
    assert_int_equal(sim_leaks(world, NULL, 0), KEEP + 3);
    for (size_t i = 0; i < KEEP + 3; i++)
        pool_put(&pool, objects[i]);
    assert_int_equal(sim_leaks(world, NULL, 0), KEEP);
}

static void
want_of_memory_is_reported(void **state)
{
    (void)state;
    sim_memory_fail(world, 1, true);
    assert_null(pool_take(&pool));
    sim_memory_fail(world, 0, false);
    pool_put(&pool, NULL);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_was_given_back_is_handed_out_again_as_new),
        TEST(what_is_taken_as_it_is_was_left_so),
        TEST(no_more_is_kept_than_was_said),
        TEST(want_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
