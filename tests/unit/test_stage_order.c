/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stage_order.c - what a caller finds at the very moment at which it is told that a stage was
 * reached: the gate that wakes it looks the block up first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "env.h"
#include "store.h"
#include "store_kit.h"

enum {
    KEY = 5,
    TIERS_UNKNOWN = 255,
};

/* One store at a time; the loop writes tiers_seen once, before the caller is woken. */
struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_env env;
    struct sched_ops sched;
    kvt_store *store;
    kvt_namespace ns;
    _Atomic bool is_armed;
    uint8_t tiers_seen;
};

static struct fixture *watched;
static const struct sched_ops *sched_real;

static void
gate_post_and_look(void *context, struct gate *gate)
{
    if (atomic_exchange(&watched->is_armed, false)) {
        struct payload_key key;

        payload_key_make(&key, KEY);
        if (kvt_lookup(watched->store, watched->ns, &key.key, 1, &watched->tiers_seen, NULL,
                NULL) != KVT_OK)
            watched->tiers_seen = TIERS_UNKNOWN;
    }
    sched_real->gate_post(context, gate);
}

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const struct kvt_options options = kit_options();
    struct store_world world = {.index_ops = &index_lmdb_ops};

    if (fixture == NULL)
        return -1;
    watched = fixture;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    env_host(&fixture->env);
    sched_real = fixture->env.sched;
    fixture->sched = *sched_real;
    fixture->sched.gate_post = gate_post_and_look;
    fixture->env.sched = &fixture->sched;
    world.env = &fixture->env;
    assert_int_equal(store_open_in(&world, fixture->path, &options, &fixture->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(fixture->store, "space", "model", 5, &fixture->ns), KVT_OK);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

static void
arm(struct fixture *fixture)
{
    fixture->tiers_seen = TIERS_UNKNOWN;
    atomic_store(&fixture->is_armed, true);
}

static void
a_put_block_is_found_when_stage_1_is_reached(void **state)
{
    struct fixture *fixture = *state;

    arm(fixture);
    assert_int_equal(kit_put(fixture->store, fixture->ns, KEY, 1, 900, KVT_SYNC), KVT_OK);
    assert_int_equal(fixture->tiers_seen, KVT_TIER_HOST);
}

static void
a_deleted_block_is_not_found_when_stage_1_is_reached(void **state)
{
    struct fixture *fixture = *state;
    static const enum kvt_durability durabilities[] = {KVT_SYNC, KVT_MEMORY};

    for (size_t i = 0; i < sizeof(durabilities) / sizeof(durabilities[0]); i++) {
        struct payload_key key;
        struct kvt_ticket *ticket;

        payload_key_make(&key, KEY);
        assert_int_equal(
            kit_put(fixture->store, fixture->ns, KEY, 1, 900, durabilities[i]), KVT_OK);
        arm(fixture);
        assert_int_equal(
            kvt_delete_submit(fixture->store, fixture->ns, &key.key, 1, NULL, &ticket), KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
        kvt_ticket_free(ticket);
        assert_int_equal(fixture->tiers_seen, 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_put_block_is_found_when_stage_1_is_reached, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_deleted_block_is_not_found_when_stage_1_is_reached, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
