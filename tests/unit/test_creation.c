/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_creation.c - an open that was to make a store, and could not, leaves nothing that the next
 * one must agree with: wherever it failed, wherever the power went while it was taken back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "sim_world.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

enum {
#ifdef NDEBUG
    STOPS_AT_PROOFS = false,
#else
    STOPS_AT_PROOFS = true, /* A debug build stops where a proof is false. */
#endif
    CALLS_MAX = 400, /* More than a creation makes of any kind. */
#if defined(__SANITIZE_THREAD__)
    CALL_STEP = 8, /* One thread is no work for it. */
#else
    CALL_STEP = 1,
#endif
    BLOCK_BYTES = 20000,
};

/* --- In a simulated world --------------------------------------------------------------------- */

static const char *const roots[] = {"/first", "/second"};

static struct {
    struct sim_world *world;
    struct kvt_env env;
    struct fs_ops fs; /* The world's, some functions replaced. */
    struct store_world reach;
    struct kvt_options options;
    kvt_store *store;
} sim;

/* A world in which nothing was made yet. */
static void
sim_begin(uint64_t seed)
{
    const struct sim_options world = {.seed = seed};

    memset(&sim, 0, sizeof(sim));
    sim.world = sim_world_create(&world);
    sim.env = *sim_env(sim.world);
    sim.fs = *sim.env.fs;
    sim.env.fs = &sim.fs;
    sim.reach = (struct store_world){
        .env = &sim.env, .index_ops = &sim_index_ops, .index_context = sim.world};
    sim.options = kit_options();
    sim.options.nvme_capacity_bytes = 32 * MIB;
    sim.options.roots = roots;
    sim.options.root_count = 2;
}

static void
sim_end(void)
{
    char leaks[200];

    if (sim_leaks(sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("left behind: %s", leaks);
    sim_world_destroy(sim.world);
}

static enum kvt_status
sim_open(void)
{
    return store_open_in(&sim.reach, "/store", &sim.options, &sim.store);
}

/* The store is open: it works, and is closed. */
static void
store_is_good(kvt_store *store)
{
    uint64_t version = 0;
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* There is none, and one of other sizes can be made. */
static void
nothing_was_made(void)
{
    sim.options.flags = KVT_OPEN_EXISTING;
    assert_int_equal(sim_open(), KVT_MISS);
    sim.options.flags = 0;
    sim.options.nvme_capacity_bytes = 40 * MIB;
    sim.options.segment_bytes = 2 * MIB;
    sim.options.block_bytes_max /= 2;
    sim.options.root_count = 1;
    assert_int_equal(sim_open(), KVT_OK);
    assert_int_equal(sim.store->options.nvme_capacity_bytes, 40 * MIB);
    store_is_good(sim.store);
}

static void
a_creation_without_memory_leaves_no_store(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += n < 100 ? CALL_STEP : 7 * CALL_STEP) {
        enum kvt_status status;

        sim_begin(n);
        sim_memory_fail(sim.world, n, false);
        status = sim_open();
        sim_memory_fail(sim.world, 0, false);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        if (status == KVT_OK) {
            store_is_good(sim.store);
        } else {
            refused_count++;
            nothing_was_made();
        }
        sim_end();
    }
    assert_true(refused_count > 40 / CALL_STEP);
}

/* Returns whether the creation failed. */
static bool
creation_with_a_failed_call(unsigned ops, uint32_t n)
{
    const struct sim_rule rule = {.ops = ops, .effect = SIM_EIO, .nth = n};
    enum kvt_status status;

    sim_begin(n);
    sim_rule_add(sim.world, &rule);
    status = sim_open();
    sim_rules_clear(sim.world);
    if (status == KVT_OK)
        store_is_good(sim.store);
    else
        nothing_was_made();
    sim_end();
    return status != KVT_OK;
}

static void
a_creation_of_which_a_call_fails_leaves_no_store(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX / 4; n += CALL_STEP) {
        refused_count += creation_with_a_failed_call(SIM_ALL, n);
        refused_count += n < 8 && creation_with_a_failed_call(SIM_COMMIT, n);
    }
    assert_true(refused_count > 40 / CALL_STEP);
}

/* A store in memory alone: its index is all that follows STORE. */
static void
a_creation_without_nvme_leaves_no_store(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    sim_begin(1);
    sim.options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    sim.options.root_count = 0;
    sim_rule_add(sim.world, &fails);
    assert_int_not_equal(sim_open(), KVT_OK);
    sim_rules_clear(sim.world);
    nothing_was_made();
    sim_end();
}

static void
a_creation_with_a_root_that_cannot_be_made_leaves_no_store(void **state)
{
    static const char *const gone[] = {"/first", "/gone/second"};

    (void)state;
    sim_begin(1);
    sim.options.roots = gone;
    refused(sim_open(), KVT_E_IO, "root 1, /gone/second, is missing");
    sim.options.roots = roots;
    nothing_was_made();
    sim_end();
}

/* The power goes at the n-th call of a creation that fails. Whatever that leaves can be opened: as
 * the store that it was to be (*is_made_out), or as none. False: it has fewer calls. */
static bool
creation_cut(uint32_t n, enum sim_cut cut, bool *is_made_out)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3};
    bool has_crashed;

    sim_begin(n);
    sim_rule_add(sim.world, &fails);
    sim_crash_after(sim.world, n);
    assert_int_not_equal(sim_open(), KVT_OK);
    has_crashed = sim_crashed(sim.world);
    sim_rules_clear(sim.world);
    sim_power_cut(sim.world, cut);
    sim.options.nvme_capacity_bytes = 48 * MIB; /* What is left of one may grow. */
    sim.options.flags = KVT_OPEN_EXISTING;
    *is_made_out = sim_open() == KVT_OK;
    sim.options.flags = 0;
    if (!*is_made_out && sim_open() != KVT_OK)
        fail_msg("cut at call %u: %s", (unsigned)n, failure_last()->text);
    store_is_good(sim.store);
    sim_end();
    return has_crashed;
}

static void
a_power_cut_while_a_creation_is_taken_back_leaves_a_store_or_none(void **state)
{
    (void)state;
    for (enum sim_cut cut = SIM_CUT_NOTHING_KEPT; cut <= SIM_CUT_TORN; cut++) {
        uint32_t made_count = 0, n = 1;
        bool is_made = false;

        while (n < CALLS_MAX && creation_cut(n, cut, &is_made)) {
            made_count += is_made;
            n += CALL_STEP;
        }
        assert_in_range(made_count, 10 / CALL_STEP, n - 10);
        assert_false(is_made); /* It was taken back in full. */
    }
}

/* What cannot be taken back can be opened. */
static void
a_creation_that_cannot_be_taken_back_is_completed_by_the_next_open(void **state)
{
    static const struct sim_rule rules[] = {
        {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3, .sticky = true},
        {.ops = SIM_UNLINK, .effect = SIM_EIO, .file = "data.00", .nth = 3, .sticky = true},
        {.ops = SIM_UNLINK, .effect = SIM_EIO, .file = "STORE.b", .nth = 1},
    };
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        sim_begin(i);
        sim_rule_add(sim.world, &rules[i]);
        sim_rule_add(sim.world, &fails);
        assert_int_not_equal(sim_open(), KVT_OK);
        sim_rules_clear(sim.world);
        sim.options.flags = KVT_OPEN_EXISTING;
        assert_int_equal(sim_open(), KVT_OK);
        store_is_good(sim.store);
        sim_end();
    }
}

/* --- What is not of this open ----------------------------------------------------------------- */

/* Somebody else makes a data file there when the creation has looked for one. */
static enum kvt_status
dir_open_and_use(void *context, const char *path, unsigned flags, struct fs_dir **dir_out)
{
    enum kvt_status status = sim_env(sim.world)->fs->dir_open(context, path, flags, dir_out);
    struct fs_file *file;

    if (status != KVT_OK || (flags & FS_CREATE) == 0 || strcmp(path, roots[1]) != 0)
        return status;
    assert_int_equal(sim.fs.open(*dir_out, "data.00", FS_CREATE, &file), KVT_OK);
    assert_int_equal(sim.fs.allocate(file, 0, 16 * MIB), KVT_OK);
    sim.fs.close(file);
    return KVT_OK;
}

static void
a_data_file_that_somebody_else_made_stays(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    sim_begin(1);
    sim.fs.dir_open = dir_open_and_use;
    sim_rule_add(sim.world, &fails);
    assert_int_not_equal(sim_open(), KVT_OK);
    assert_true(sim_file_exists(sim.world, "second/data.00"));
    assert_false(sim_file_exists(sim.world, "first/data.00"));
    assert_false(sim_file_exists(sim.world, "store/STORE.a"));
    sim_end();
}

/* One that was there is as it was, though this open was allowed to make one. */
static void
a_store_that_was_there_is_never_taken_back(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += 5 * CALL_STEP) {
        const struct sim_rule rule = {.ops = SIM_ALL, .effect = SIM_EIO, .nth = n};
        uint64_t version = 0;
        kvt_namespace ns;

        sim_begin(n);
        assert_int_equal(sim_open(), KVT_OK);
        store_is_good(sim.store);
        sim_rule_add(sim.world, &rule);
        if (sim_open() == KVT_OK)
            kvt_abort(sim.store);
        sim_rules_clear(sim.world);
        sim.options.flags = KVT_OPEN_EXISTING;
        assert_int_equal(sim_open(), KVT_OK);
        assert_int_equal(kvt_namespace_open(sim.store, "here", "", 0, &ns), KVT_OK);
        assert_int_equal(kit_get(sim.store, ns, 1, &version), KVT_OK);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        sim_end();
    }
}

static enum kvt_status
allocate_with_a_false_proof(struct fs_file *file, uint64_t offset, uint64_t size)
{
    KVT_ASSERT(file == NULL);
    (void)offset;
    (void)size;
    return failure_set(KVT_E_IO, EIO, "no space, on purpose");
}

/* Nothing is known of one of which an invariant broke. */
static void
a_creation_that_was_poisoned_stays_as_it_is(void **state)
{
    (void)state;
    if (STOPS_AT_PROOFS)
        skip();
    sim_begin(1);
    sim.fs.allocate = allocate_with_a_false_proof;
    assert_int_equal(sim_open(), KVT_E_IO);
    assert_true(sim_file_exists(sim.world, "store/STORE.a"));
    sim_end();
}

/* --- On this machine -------------------------------------------------------------------------- */

static struct {
    const struct memory_ops *memory; /* Of this machine. */
} real;

static bool
is_there(const char *dir, const char *name)
{
    char path[KIT_PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static bool
has_a_store(const char *dir)
{
    static const char *const names[] = {"store/STORE.a", "store/STORE.b", "store/NAMES.a",
        "store/NAMES.b", "store/meta/data.mdb", "store/meta/data.mdb.new", "store/data/data.00",
        "store/data/data.00.new"};
    bool is_one = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        is_one = is_one || is_there(dir, names[i]);
    return is_one;
}

static void *
map_little(void *context, size_t size)
{
    return size > 4 * MIB ? NULL : real.memory->map(context, size);
}

static enum kvt_status
space_little(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    (void)dir;
    *free_bytes_out = 16 * MIB;
    return KVT_OK;
}

/* More of HOST, or of the disk, than there is; a device that is not there. */
static void
options_ask_too_much(int what, struct kvt_options *options)
{
    options->segment_bytes = 4 * MIB;
    options->nvme_capacity_bytes = 64 * MIB;
    if (what == 0)
        options->host_capacity_bytes = 64 * MIB;
    if (what == 2)
        return;
    options->hbm_capacity_bytes = 64 * MIB;
    options->device_kind = KVT_DEVICE_EMULATION;
    options->device_mask = 1u << 7;
}

/* The first open asked for too much; the second one is not held to its sizes. */
static void
an_open_that_asked_for_too_much_can_be_made_again_with_less(void **state)
{
    static const enum kvt_status wanted[] = {KVT_E_NOMEM, KVT_E_UNSUPPORTED, KVT_E_NOSPC};
    struct kvt_options good = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16];
    struct kvt_env env;
    struct memory_ops memory;
    struct fs_ops fs;
    kvt_store *store = NULL;

    (void)state;
    env_host(&env);
    real.memory = env.memory;
    memory = *env.memory;
    memory.map = map_little;
    env.memory = &memory;
    fs = *env.fs;
    fs.dir_space = space_little;
    env.fs = &fs;
    kit_dir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    for (int i = 0; i < 3; i++) {
        struct kvt_options options = good;

        options_ask_too_much(i, &options);
        assert_int_equal(kvt_open_env(path, &options, &env, &store), wanted[i]);
        assert_null(store);
        assert_false(has_a_store(dir));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvt_open(path, &good, &store), KVT_OK);
        store_is_good(store);
    }
    kit_dir_remove(dir);
}

/* An index tells that a store was there: an empty folder for it does not. */
static void
a_store_that_lost_all_but_its_index_is_not_made_anew(void **state)
{
    struct kvt_options options = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16], name[KIT_PATH_BYTES + 32];
    kvt_store *store = NULL;

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    kit_dir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    for (char copy = 'a'; copy <= 'b'; copy++) {
        (void)snprintf(name, sizeof(name), "%s/STORE.%c", path, copy);
        assert_int_equal(unlink(name), 0);
    }
    refused(kvt_open(path, &options, &store), KVT_E_CORRUPT, "more of a store is there");
    (void)snprintf(name, sizeof(name), "%s/meta/data.mdb", path);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_creation_without_memory_leaves_no_store),
        cmocka_unit_test(a_creation_of_which_a_call_fails_leaves_no_store),
        cmocka_unit_test(a_creation_without_nvme_leaves_no_store),
        cmocka_unit_test(a_creation_with_a_root_that_cannot_be_made_leaves_no_store),
        cmocka_unit_test(a_power_cut_while_a_creation_is_taken_back_leaves_a_store_or_none),
        cmocka_unit_test(a_creation_that_cannot_be_taken_back_is_completed_by_the_next_open),
        cmocka_unit_test(a_data_file_that_somebody_else_made_stays),
        cmocka_unit_test(a_store_that_was_there_is_never_taken_back),
        cmocka_unit_test(a_creation_that_was_poisoned_stays_as_it_is),
        cmocka_unit_test(an_open_that_asked_for_too_much_can_be_made_again_with_less),
        cmocka_unit_test(a_store_that_lost_all_but_its_index_is_not_made_anew),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
