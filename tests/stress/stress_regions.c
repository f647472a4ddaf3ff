/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_regions.c - a region and a layout that are in use: one thread asks for their end, and is
 * refused, again and again; to another, which names them meanwhile, they are there all the time.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "stop_on_proof.h"
#include "store_internal.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    LAYOUTS = 5000,
    GETS = 1000,
};
#else
enum {
    LAYOUTS = 50000,
    GETS = 5000,
};
#endif

struct ender {
    enum kvt_status (*end)(const struct ender *ender);
    kvt_layout layout;
    atomic_bool has_begun, may_stop;
    uint32_t wrong_count;
    pthread_t thread;
};

static enum kvt_status
region_end(const struct ender *ender)
{
    (void)ender;
    return kvt_region_unregister(hbm.store, hbm.region);
}

static enum kvt_status
layout_end(const struct ender *ender)
{
    return kvt_layout_unregister(hbm.store, ender->layout);
}

static void *
ender_run(void *context)
{
    struct ender *ender = context;

    while (!atomic_load(&ender->may_stop)) {
        ender->wrong_count += ender->end(ender) != KVT_E_STATE;
        atomic_store(&ender->has_begun, true);
    }
    return NULL;
}

static void
ender_start(struct ender *ender)
{
    assert_int_equal(pthread_create(&ender->thread, NULL, ender_run, ender), 0);
    while (!atomic_load(&ender->has_begun)) {
    }
}

static void
ender_stop(struct ender *ender)
{
    atomic_store(&ender->may_stop, true);
    assert_int_equal(pthread_join(ender->thread, NULL), 0);
    assert_int_equal(ender->wrong_count, 0);
}

static enum kvt_status
layout_register(uint32_t slot_count, kvt_layout *layout_out)
{
    const struct kvt_run run = {.address = hbm_pool_at(0),
        .region = hbm.region,
        .piece_count = 1,
        .piece_bytes = HBM_BLOCK_BYTES,
        .piece_stride = HBM_BLOCK_BYTES,
        .slot_stride = HBM_BLOCK_BYTES};
    const struct kvt_layout_options about = {
        .struct_size = sizeof(about), .run_count = 1, .runs = &run, .slot_count = slot_count};

    return kvt_layout_register(hbm.store, &about, layout_out);
}

/* A layout lies in it. */
static void
a_region_that_cannot_go_is_there_for_all(void **state)
{
    struct ender ender = {.end = region_end};
    kvt_layout kept, layout;

    (void)state;
    assert_int_equal(layout_register(1, &kept), KVT_OK);
    ender_start(&ender);
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        assert_int_equal(layout_register(1, &layout), KVT_OK);
        assert_int_equal(kvt_layout_unregister(hbm.store, layout), KVT_OK);
    }
    ender_stop(&ender);
    assert_int_equal(kvt_layout_unregister(hbm.store, kept), KVT_OK);
}

/* A put from it waits for an event. */
static void
a_layout_that_cannot_go_is_there_for_all(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct ender ender = {.end = layout_end};
    struct kvt_submit submit = {0};
    struct kvt_put put = {0};
    struct kvt_get get = {.slot = 1};
    struct payload_key names[2];
    atomic_bool may_go = false;
    kvt_ticket *waiting, *ticket;
    void *stream;

    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        payload_key_make(&names[i], i);
    assert_int_equal(layout_register(2, &ender.layout), KVT_OK);
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(2), &may_go);
    assert_int_equal(device->ops->event_record(device, submit.wait_event, stream), KVT_OK);
    put.key = names[0].key;
    put.length = HBM_BLOCK_BYTES;
    put.layout = ender.layout;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &waiting), KVT_OK);
    get.key = names[1].key;
    get.layout = ender.layout;
    ender_start(&ender);
    for (uint32_t i = 0; i < GETS; i++) {
        assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_MISS);
    }
    ender_stop(&ender);
    atomic_store(&may_go, true);
    assert_int_equal(kit_result(waiting, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_layout_unregister(hbm.store, ender.layout), KVT_OK);
    device->ops->event_destroy(device, submit.wait_event);
    hbm_stream_finish(device, stream);
    device_host_stream_destroy(device, stream);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_region_that_cannot_go_is_there_for_all),
        TEST(a_layout_that_cannot_go_is_there_for_all),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
