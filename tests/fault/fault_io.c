/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_io.c - the n-th io operation of a small life fails, for every n and in every way, once and
 * for good; and the power goes at every n, with everything that a cut may leave.
 *
 * Nothing crashes or hangs, bytes are right or there is a status, and what was acknowledged is
 * there in the next life without faults. Some of it again with an HBM tier, and on two disks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "seeds.h"
#include "small_life.h"

enum {
    SEED = 42,
    N_LIMIT = 20000, /* A life has far fewer operations. */
#if defined(__SANITIZE_ADDRESS__)
    N_STEP = 5, /* Slow: a share of the operations. Without sanitizers it is each of them. */
    HBM_STEP = 61,
    ROOTS_STEP = 31,
#else
    N_STEP = 1,
    HBM_STEP = 11, /* With HBM, and on two disks: always a share. */
    ROOTS_STEP = 7,
#endif
};

/* Of the lives of the test that runs. */
static enum small_life_kind kind;
static uint64_t n_step = N_STEP;

/* KVT_TEST_SEED: another small life. */
static struct seeds seeds = {.first = SEED, .count = 1};
static uint64_t run_count;

static void
life_init(struct small_life *life)
{
    small_life_init(life, kind, seeds.first);
    run_count++;
}

struct fault {
    const char *name;
    unsigned ops;
    enum sim_effect effect;
    const char *file;
};

static void
report(const char *what, bool sticky, uint64_t n, const char *failure)
{
    print_error("%s, %s, at operation %llu: %s\n", what, sticky ? "for good" : "once",
        (unsigned long long)n, failure);
    fail();
}

/* One life with the fault at n, one in peace. False: n is beyond the life's last operation. */
static bool
life_with_fault(const struct fault *fault, uint64_t n, bool sticky)
{
    struct sim_rule rule = {.ops = fault->ops,
        .effect = fault->effect,
        .file = fault->file,
        .nth = n,
        .sticky = sticky,
        .stall_ns = UINT64_C(3) * 1000 * 1000 * 1000};
    bool spoils =
        fault->effect == SIM_FLIP || fault->effect == SIM_MISDIRECT || fault->effect == SIM_STALE;
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    char leaks[200];
    bool fired;

    life_init(&life);
    sim_rule_add(life.host.world, &rule);
    life.work->is_faulty = true;
    (void)small_life_run(&life);
    fired = sim_fault_count(life.host.world) > 0;
    if (sim_leaks(life.host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&life.work->model, "left behind after close: %s", leaks);
    if (spoils)
        model_doubt_all(&life.work->model);
    sim_rules_clear(life.host.world);
    sim_host_vanish(&life.host);
    if (life.work->model.failure[0] == '\0')
        small_life_prove(&life, false);
    snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
    small_life_deinit(&life);
    if (failure[0] != '\0')
        report(fault->name, sticky, n, failure);
    return fired;
}

static void
every_operation_fails(const struct fault *fault)
{
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;

        while (n < N_LIMIT && life_with_fault(fault, n, sticky != 0))
            n += n_step;
        assert_in_range(n, 2, N_LIMIT - 1);
    }
}

static void
io_error_at_every_operation(void **state)
{
    static const struct fault fault = {"EIO", SIM_ALL, SIM_EIO, NULL};

    (void)state;
    every_operation_fails(&fault);
}

static void
full_disk_at_every_operation(void **state)
{
    static const struct fault fault = {
        "ENOSPC", SIM_WRITE | SIM_ALLOCATE | SIM_OPEN | SIM_COMMIT, SIM_ENOSPC, NULL};

    (void)state;
    every_operation_fails(&fault);
}

static void
short_transfer_at_every_operation(void **state)
{
    static const struct fault fault = {"short", SIM_READ | SIM_WRITE, SIM_SHORT, NULL};

    (void)state;
    every_operation_fails(&fault);
}

static void
torn_write_at_every_write(void **state)
{
    static const struct fault fault = {"torn", SIM_WRITE, SIM_TORN, NULL};

    (void)state;
    every_operation_fails(&fault);
}

static void
failed_sync_at_every_sync(void **state)
{
    static const struct fault fault = {"sync EIO", SIM_SYNC | SIM_DIR_SYNC, SIM_EIO, NULL};

    (void)state;
    every_operation_fails(&fault);
}

/* For good they would never end: once only. */
static void
interruption_at_every_transfer(void **state)
{
    static const struct fault faults[2] = {
        {"EINTR", SIM_READ | SIM_WRITE | SIM_SYNC, SIM_EINTR, NULL},
        {"EAGAIN", SIM_READ | SIM_WRITE | SIM_SYNC, SIM_EAGAIN, NULL}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = 1;

        while (n < N_LIMIT && life_with_fault(&faults[i], n, false))
            n += n_step;
        assert_in_range(n, 2, N_LIMIT - 1);
    }
}

static void
wrong_bytes_at_every_read_of_data(void **state)
{
    static const struct fault faults[3] = {{"flip", SIM_READ, SIM_FLIP, "data."},
        {"misdirect", SIM_READ, SIM_MISDIRECT, "data."}, {"stale", SIM_READ, SIM_STALE, "data."}};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        every_operation_fails(&faults[i]);
}

static void
stall_at_every_operation(void **state)
{
    static const struct fault fault = {"stall", SIM_ALL, SIM_STALL, NULL};
    uint64_t n = 1;

    (void)state;
    while (n < N_LIMIT && life_with_fault(&fault, n, false))
        n += n_step;
    assert_in_range(n, 2, N_LIMIT - 1);
}

/* False: the life ended before its n-th operation. */
static bool
life_with_crash(uint64_t n, enum sim_cut cut, bool loses_index)
{
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    bool crashed;

    life_init(&life);
    sim_crash_after(life.host.world, n);
    (void)small_life_run(&life);
    crashed = sim_crashed(life.host.world);
    sim_host_power_cut(&life.host, cut);
    workload_abandon(life.work);
    if (loses_index)
        sim_index_damage(life.host.world);
    if (life.work->model.failure[0] == '\0')
        small_life_prove(&life, loses_index);
    snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
    small_life_deinit(&life);
    if (failure[0] != '\0') {
        print_error("power cut (kind %d%s) at operation %llu: %s\n", (int)cut,
            loses_index ? ", index lost" : "", (unsigned long long)n, failure);
        fail();
    }
    return crashed;
}

static void
power_cut_at_every_operation(void **state)
{
    (void)state;
    for (int cut = SIM_CUT_NOTHING_KEPT; cut <= SIM_CUT_TORN; cut++) {
        uint64_t n = 1;

        while (n < N_LIMIT && life_with_crash(n, (enum sim_cut)cut, false))
            n += n_step;
        assert_in_range(n, 2, N_LIMIT - 1);
    }
}

static void
power_cut_at_every_operation_and_the_index_is_lost(void **state)
{
    (void)state;
    for (int cut = SIM_CUT_NOTHING_KEPT; cut <= SIM_CUT_TORN; cut++) {
        uint64_t n = 1;

        while (n < N_LIMIT && life_with_crash(n, (enum sim_cut)cut, true))
            n += n_step;
        assert_in_range(n, 2, N_LIMIT - 1);
    }
}

/* The second crash falls into the recovery of the first. */
static void
power_cut_at_every_operation_of_a_recovery(void **state)
{
    (void)state;
    for (int loses_index = 0; loses_index < 2; loses_index++) {
        bool crashed = true;

        for (uint64_t n = 1; n < N_LIMIT && crashed; n += n_step) {
            char failure[MODEL_FAILURE_BYTES];
            struct small_life life;

            life_init(&life);
            sim_crash_after(life.host.world, 90);
            (void)small_life_run(&life);
            sim_host_power_cut(&life.host, SIM_CUT_TORN);
            workload_abandon(life.work);
            if (loses_index != 0)
                sim_index_damage(life.host.world);
            sim_crash_after(life.host.world, n);
            (void)workload_open(life.work, 0, loses_index != 0);
            crashed = sim_crashed(life.host.world);
            sim_host_power_cut(&life.host, SIM_CUT_SEEDED);
            workload_abandon(life.work);
            if (life.work->model.failure[0] == '\0')
                small_life_prove(&life, loses_index != 0);
            snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
            small_life_deinit(&life);
            if (failure[0] != '\0')
                report(
                    loses_index ? "crash in a rebuild" : "crash in a recovery", false, n, failure);
        }
    }
}

/* Another small life, at every fourth operation: other lengths, and another order of work. */
static void
faults_and_power_cuts_in_another_life(void **state)
{
    seeds.first++;
    n_step = 4 * N_STEP;
    io_error_at_every_operation(state);
    full_disk_at_every_operation(state);
    torn_write_at_every_write(state);
    failed_sync_at_every_sync(state);
    wrong_bytes_at_every_read_of_data(state);
    power_cut_at_every_operation(state);
    power_cut_at_every_operation_and_the_index_is_lost(state);
    seeds.first--;
    n_step = N_STEP;
}

/* The same, with blocks that are born in HBM and moved between three tiers. */
static void
faults_and_power_cuts_with_an_hbm_tier(void **state)
{
    (void)state;
    kind = SMALL_LIFE_HBM;
    n_step = HBM_STEP;
    print_message("each %dth operation\n", HBM_STEP);
    io_error_at_every_operation(state);
    failed_sync_at_every_sync(state);
    wrong_bytes_at_every_read_of_data(state);
    power_cut_at_every_operation(state);
    kind = SMALL_LIFE_PLAIN;
    n_step = N_STEP;
}

/* The same on two disks: of a batch that is cut off one may have all, and the other nothing. */
static void
faults_and_power_cuts_on_two_disks(void **state)
{
    (void)state;
    kind = SMALL_LIFE_ROOTS;
    n_step = ROOTS_STEP;
    print_message("each %dth operation\n", ROOTS_STEP);
    io_error_at_every_operation(state);
    full_disk_at_every_operation(state);
    torn_write_at_every_write(state);
    failed_sync_at_every_sync(state);
    power_cut_at_every_operation(state);
    power_cut_at_every_operation_and_the_index_is_lost(state);
    power_cut_at_every_operation_of_a_recovery(state);
    kind = SMALL_LIFE_PLAIN;
    n_step = N_STEP;
}

int
main(int argc, char **argv)
{
    int failed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(io_error_at_every_operation),
        cmocka_unit_test(full_disk_at_every_operation),
        cmocka_unit_test(short_transfer_at_every_operation),
        cmocka_unit_test(torn_write_at_every_write),
        cmocka_unit_test(failed_sync_at_every_sync),
        cmocka_unit_test(interruption_at_every_transfer),
        cmocka_unit_test(wrong_bytes_at_every_read_of_data),
        cmocka_unit_test(stall_at_every_operation),
        cmocka_unit_test(power_cut_at_every_operation),
        cmocka_unit_test(power_cut_at_every_operation_and_the_index_is_lost),
        cmocka_unit_test(power_cut_at_every_operation_of_a_recovery),
        cmocka_unit_test(faults_and_power_cuts_in_another_life),
        cmocka_unit_test(faults_and_power_cuts_with_an_hbm_tier),
        cmocka_unit_test(faults_and_power_cuts_on_two_disks),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%llu lives with a fault or a cut\n", (unsigned long long)run_count);
    return failed;
}
