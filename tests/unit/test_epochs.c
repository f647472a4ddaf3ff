/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_epochs.c - no two lives of a store share an open epoch, of which the numbers of batches and
 * records are made, whichever copy of STORE is lost or cannot be read when one begins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    LIVES = 200,
    COPIES = 2,
};

static const char *const copies[COPIES] = {"STORE.a", "STORE.b"};

static struct sim_store sim;

static void
copy_remove(const char *name)
{
    const struct fs_ops *fs = sim.env.fs;
    struct fs_dir *dir;

    assert_int_equal(fs->dir_open(sim.env.fs_context, "/store", 0, &dir), KVT_OK);
    assert_int_equal(fs->unlink(dir, name), KVT_OK);
    fs->dir_close(dir);
}

/* Each read of the copy fails, until the rules are cleared. */
static void
copy_withhold(const char *name)
{
    const struct sim_rule fails = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = name, .nth = 1, .sticky = true};

    sim_rule_add(sim.world, &fails);
}

/* The epoch of a life that ends with a crash. */
static uint32_t
epoch_of_a_life(void)
{
    uint32_t epoch;

    sim_store_reopen(&sim);
    epoch = sim.store->file.open_epoch;
    sim_rules_clear(sim.world);
    kvt_abort(sim.store);
    sim_power_cut(sim.world, SIM_CUT_SEEDED);
    return epoch;
}

static void
each_life_has_an_epoch_of_its_own(void **state)
{
    const struct kvt_options options = kit_options();
    struct rng rng = {.state = 1};
    uint32_t last;

    (void)state;
    sim_store_open(&sim, &options);
    last = sim.store->file.open_epoch;
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    for (uint32_t i = 0; i < LIVES; i++) {
        const char *name = copies[rng_below(&rng, COPIES)];
        uint32_t choice = rng_below(&rng, 4);
        uint32_t epoch;

        if (choice == 0)
            copy_remove(name);
        else if (choice < 3)
            copy_withhold(name);
        epoch = epoch_of_a_life();
        assert_true(epoch > last);
        last = epoch;
    }
    sim_store_reopen(&sim);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_life_has_an_epoch_of_its_own),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
