/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_long_searches.c - room is sought among more blocks that cannot go than one turn of the loop
 * looks at: the search comes to its end all the same, whoever wants the room. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/hints.h"
#include "kvtier/loading.h"
#include "load_rig.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    SMALL_BYTES = 4096,
    IN_HOST = 3584, /* Four turns of the loop. */
    STEPS_MAX = 2000, /* Of all actors, for one search. */
};

static const uint64_t second_ns = UINT64_C(1000) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.host_capacity_bytes = (uint64_t)IN_HOST * SMALL_BYTES;
    options.pin_bytes_max = options.host_capacity_bytes;
    options.device_mask = 1;
    options.device_kind = KVT_DEVICE_EMULATION;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.policy = KVT_POLICY_GHI; /* It has one walk a place. */
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* HOST is full of blocks that are pinned. */
static void
host_fill(void)
{
    enum kvt_status status = KVT_OK;
    uint64_t number = 0;

    for (; status == KVT_OK; number++) {
        struct payload_key name;

        payload_key_make(&name, number);
        status = kit_put(store, ns, number, 1, SMALL_BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_in_range(number, IN_HOST - IN_HOST / 8, IN_HOST + 1);
}

/* A call of the loop that takes room in HOST, as those of loads and of copies for tools do. */
struct taking {
    struct loop_call call;
    uint64_t pause_ns; /* Between two turns of the search. */
    enum kvt_status status;
    bool is_over;
};

static bool
taking_run(struct kvt_store *of, void *context)
{
    struct taking *taking = context;
    struct slot slot;

    taking->status =
        room_take(of, &(struct room_want){.place = POLICY_HOST, .size = SMALL_BYTES}, &slot);
    of->room_hands[POLICY_HOST].looked_ns -= taking->pause_ns;
    taking->is_over = taking->status != KVT_NOT_READY;
    return taking->is_over;
}

static void
taking_deliver(struct kvt_store *of, struct message *message)
{
    struct taking *taking = CONTAINER_OF(message, struct taking, call.message);

    taking->call.next = of->calls;
    of->calls = &taking->call;
}

static void
taking_check(uint64_t pause_ns)
{
    static struct taking taking;

    taking = (struct taking){.pause_ns = pause_ns};
    taking.call.run = taking_run;
    taking.call.context = &taking;
    taking.call.message.deliver = taking_deliver;
    loop_send(store, &taking.call.message);
    sim_run_steps(sim.world, STEPS_MAX);
    assert_true(taking.is_over);
    assert_int_equal(taking.status, KVT_E_NOSPC);
}

/* More of HOST is used than shall be: a share would be kept free if anything could go. */
static void
keeping_a_share_free_does_not_end_a_search(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, 4096);
    kvt_load load;

    (void)state;
    host_fill();
    taking_check(0);
    load_rig_file(&sim, "weights", LOAD_RIG_FILE_BYTES);
    refused(kvt_file_load(store, "/weights", &options, &load), KVT_E_NOSPC, "HOST");
}

static void
a_search_may_take_longer_than_a_second(void **state)
{
    (void)state;
    host_fill();
    taking_check(second_ns * 6 / 10);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(keeping_a_share_free_does_not_end_a_search),
        TEST(a_search_may_take_longer_than_a_second),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
