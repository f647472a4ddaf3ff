/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_names_lives.c - what an open found in NAMES is what each later one finds, whichever of its
 * copies that one can read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 4096,
    COPIES = 2,
    STEPS_MAX = 100, /* A change of NAMES has fewer io operations. */
};

static const char *const copies[COPIES] = {"NAMES.a", "NAMES.b"};

static struct sim_store sim;

static void
world_begin(void)
{
    const struct kvt_options options = kit_options();

    sim_store_open(&sim, &options);
}

/* How a life ends. */
enum life_end {
    LIFE_CUT,    /* The power goes: what was not synced is lost. */
    LIFE_KILLED, /* The process goes: it is lost in a later cut. */
};

static void
life_crash(enum life_end end)
{
    kvt_abort(sim.store);
    if (end == LIFE_CUT)
        sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    else
        sim_vanish(sim.world);
}

/* The next life cannot read this file while it is opened. */
static void
reopen_without(const char *name)
{
    const struct sim_rule fails = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = name, .nth = 1, .sticky = true};

    sim_rule_add(sim.world, &fails);
    sim_store_reopen(&sim);
    assert_true(sim_fault_count(sim.world) > 0);
    sim_rules_clear(sim.world);
}

static kvt_namespace
space_open(const char *name)
{
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(sim.store, name, NULL, 0, &ns), KVT_OK);
    return ns;
}

static void
put(kvt_namespace ns, uint64_t key, uint64_t version)
{
    assert_int_equal(kit_put(sim.store, ns, key, version, BLOCK_BYTES, KVT_SYNC), KVT_OK);
}

/* 0: it is not there. */
static uint64_t
version_of(kvt_namespace ns, uint64_t key)
{
    uint64_t version = 0;
    enum kvt_status status = kit_get(sim.store, ns, key, &version);

    assert_true(status == KVT_OK || status == KVT_MISS);
    return status == KVT_OK ? version : 0;
}

/* --- A clear ---------------------------------------------------------------------------------- */

/* The clear is cut short at an io operation; false: it has not so many. What the next life sees is
 * what those behind it see. */
static bool
clear_is_cut_at(uint64_t step, enum life_end end, const char *unreadable)
{
    bool is_cut, is_cleared;
    kvt_namespace ns;

    world_begin();
    ns = space_open("space");
    put(ns, 1, 1);
    put(ns, 2, 6);
    sim_crash_after(sim.world, step);
    assert_true(kvt_namespace_clear(sim.store, ns) == KVT_OK || sim_crashed(sim.world));
    is_cut = sim_crashed(sim.world);
    sim_crash_after(sim.world, 0);
    life_crash(end);

    sim_store_reopen(&sim);
    ns = space_open("space");
    is_cleared = version_of(ns, 1) == 0;
    assert_int_equal(version_of(ns, 2), is_cleared ? 0 : 6);
    assert_true(is_cut || is_cleared);
    (void)kit_delete(sim.store, ns, 1); /* KVT_MISS promises as much. */
    assert_true(kit_delete(sim.store, ns, 2) >= 0);
    put(ns, 2, 7);
    if (end == LIFE_KILLED)
        life_crash(LIFE_CUT);
    else
        assert_int_equal(kvt_close(sim.store), KVT_OK);

    reopen_without(unreadable);
    ns = space_open("space");
    assert_int_equal(version_of(ns, 1), 0);
    assert_int_equal(version_of(ns, 2), 7);
    sim_store_close(&sim);
    return is_cut;
}

static void
a_clear_that_was_cut_short_is_or_is_not_for_all_time(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COPIES; i++) {
        for (unsigned end = LIFE_CUT; end <= LIFE_KILLED; end++) {
            uint64_t step = 1;

            while (clear_is_cut_at(step, (enum life_end)end, copies[i]))
                step++;
            assert_in_range(step, 4, STEPS_MAX);
        }
    }
}

/* Its number would be 0 with the next one, which no open takes. */
static void
a_namespace_that_was_cleared_too_often_stays_as_it_is(void **state)
{
    kvt_namespace ns;

    (void)state;
    world_begin();
    ns = space_open("space");
    names_find_id(&sim.store->names, ns.id)->epoch = UINT32_MAX - 1;
    assert_int_equal(kvt_namespace_clear(sim.store, ns), KVT_OK);
    put(ns, 1, 1);
    assert_int_equal(kvt_namespace_clear(sim.store, ns), KVT_E_NOSPC);
    assert_int_equal(version_of(ns, 1), 1);
    assert_int_equal(kvt_close(sim.store), KVT_OK);

    sim_store_reopen(&sim);
    assert_int_equal(version_of(space_open("space"), 1), 1);
    sim_store_close(&sim);
}

/* --- A new name ------------------------------------------------------------------------------- */

/* The write of this copy fails, once or until the rules are cleared: the name is refused. */
static void
name_fails(const char *name, const char *unwritable, bool is_sticky)
{
    const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .file = unwritable, .nth = 1, .sticky = is_sticky};
    kvt_namespace ns;

    sim_rule_add(sim.world, &fails);
    assert_int_equal(kvt_namespace_open(sim.store, name, NULL, 0, &ns), KVT_E_IO);
    assert_int_equal(ns.id, 0);
}

static void
a_name_that_an_open_found_stays(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < (uint32_t)COPIES * COPIES; i++) {
        world_begin();
        name_fails("x", copies[i % COPIES], true);
        life_crash(LIFE_CUT);
        sim_rules_clear(sim.world);

        sim_store_reopen(&sim);
        put(space_open("x"), 1, 1);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        for (uint32_t life = 0; life < 2; life++) {
            reopen_without(copies[(i / COPIES + life) % COPIES]);
            assert_int_equal(version_of(space_open("x"), 1), 1);
            assert_int_equal(kvt_close(sim.store), KVT_OK);
        }
        sim_store_reopen(&sim);
        sim_store_close(&sim);
    }
}

/* A name is refused, the next one is cut short between its copies: the two are never one. */
static bool
second_name_is_cut_at(uint64_t step, const char *unwritable, const char *unreadable)
{
    kvt_namespace ns, x, y;
    bool is_cut;

    world_begin();
    name_fails("x", unwritable, true);
    sim_rules_clear(sim.world);
    sim_crash_after(sim.world, step);
    assert_true(
        kvt_namespace_open(sim.store, "y", NULL, 0, &ns) == KVT_OK || sim_crashed(sim.world));
    is_cut = sim_crashed(sim.world);
    sim_crash_after(sim.world, 0);
    life_crash(LIFE_CUT);

    sim_store_reopen(&sim);
    put(space_open("y"), 1, 1);
    assert_int_equal(kvt_close(sim.store), KVT_OK);

    reopen_without(unreadable);
    x = space_open("x");
    y = space_open("y");
    assert_int_equal(version_of(x, 1), 0);
    assert_int_equal(version_of(y, 1), 1);
    sim_store_close(&sim);
    return is_cut;
}

static void
a_refused_name_shares_its_id_with_no_other(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < (uint32_t)COPIES * COPIES; i++) {
        uint64_t step = 1;

        while (second_name_is_cut_at(step, copies[i % COPIES], copies[i / COPIES]))
            step++;
        assert_in_range(step, 4, STEPS_MAX);
    }
}

static void
a_refused_name_is_not_there(void **state)
{
    kvt_namespace ns;

    (void)state;
    for (uint32_t i = 0; i < COPIES; i++) {
        world_begin();
        name_fails("x", copies[i], false);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        sim_rules_clear(sim.world);
        sim_store_reopen(&sim);
        assert_int_equal(kvt_namespace_open(sim.store, "x", "another", 7, &ns), KVT_OK);
        sim_store_close(&sim);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clear_that_was_cut_short_is_or_is_not_for_all_time),
        cmocka_unit_test(a_namespace_that_was_cleared_too_often_stays_as_it_is),
        cmocka_unit_test(a_name_that_an_open_found_stays),
        cmocka_unit_test(a_refused_name_shares_its_id_with_no_other),
        cmocka_unit_test(a_refused_name_is_not_there),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
