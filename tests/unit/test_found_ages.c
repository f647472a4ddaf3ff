/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_found_ages.c - blocks that an open found, and GHI: nobody knows when they were used last.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy_default_internal.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    BLOCKS = 150, /* NVMe holds fewer. */
};

static char path[KIT_PATH_BYTES];
static kvt_store *store;
static kvt_namespace ns;

static void
store_open(void)
{
    struct kvt_options options = kit_options();

    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
}

static int
setup(void **state)
{
    (void)state;
    kit_dir_make(path);
    store_open();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
    return 0;
}

static void
puts_of(uint64_t first, uint32_t count)
{
    for (uint64_t key = first; key < first + count; key++)
        assert_int_equal(kit_put(store, ns, key, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
}

/* On the loop, whose it is. */
static bool
age_run(struct kvt_store *looked, void *context)
{
    *(double *)context = default_of(looked->policy)->nvme_age_seconds;
    return true;
}

static double
age_mean(void)
{
    double seconds = 0;

    loop_call(store, age_run, &seconds);
    return seconds;
}

/* All of this machine's time since it started would be theirs. */
static void
blocks_that_an_open_found_have_no_age(void **state)
{
    (void)state;
    puts_of(0, BLOCKS);
    assert_true(age_mean() < HAZARD_HORIZON_FIRST);
    assert_int_equal(kvt_close(store), KVT_OK);
    store_open();
    puts_of(1000, BLOCKS);
    assert_true(kit_stats(store).nvme_evict_count > 0);
    assert_true(age_mean() <= HAZARD_HORIZON_FIRST);
}

struct look {
    struct block_key key;
    struct entry_state state;
    bool is_there;
};

static bool
look_run(struct kvt_store *looked, void *context)
{
    struct look *look = context;
    struct hash128 fingerprint = key_fingerprint(looked->fingerprint_seed, &look->key);
    uint32_t number = residency_find(looked->map, fingerprint, &look->key);

    look->is_there = number != ENTRY_NONE;
    if (look->is_there)
        look->state = *entries_at(looked->entries, number);
    return true;
}

static struct entry_state
state_of(uint64_t key)
{
    struct payload_key name;
    struct look look;

    payload_key_make(&name, key);
    assert_true(key_init(&look.key, store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    loop_call(store, look_run, &look);
    assert_true(look.is_there);
    return look.state;
}

/* By a get and by a prefetch: each is one, and as of a block that was used once, long ago. */
static void
the_first_use_of_a_found_block_is_one_use(void **state)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    struct payload_key name;
    kvt_ticket *ticket;
    uint64_t version;

    (void)state;
    puts_of(0, 2);
    assert_int_equal(kvt_close(store), KVT_OK);
    store_open();
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    for (uint64_t key = 0; key < 2; key++) {
        struct entry_state state_now = state_of(key);

        assert_int_equal(state_now.use_count, 2);
        assert_int_equal(state_now.gap, 3);
        assert_true(state_now.last_use > 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_use_of_a_found_block_is_one_use, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_that_an_open_found_have_no_age, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
