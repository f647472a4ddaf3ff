/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_sharing.c - each allocation and each call of the device that sharing HBM makes fails once:
 * it is said, nothing is left behind, and afterwards it works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "failure.h"
#include "hbm_kit.h"
#include "processes.h"
#include "stop_on_proof.h"

static struct memory_ops world; /* As the host's, but for what is to fail. */
static void *(*take_really)(void *context, size_t size);
static _Thread_local uint32_t fail_take; /* The n-th from now on; 0: none. */
static _Thread_local uint32_t take_count;
static struct kvt_share share;
static int descriptor;

static void *
take(void *context, size_t size)
{
    return ++take_count == fail_take ? NULL : take_really(context, size);
}

static int
setup(void **state)
{
    assert_int_equal(hbm_setup(state), 0);
    hbm_close();
    world = *hbm.env.memory;
    take_really = world.take;
    world.take = take;
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm_open_again();
    assert_int_equal(kvt_hbm_export(hbm.store, 0, &share, &descriptor), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    fail_take = 0;
    return hbm_teardown(state);
}

/* What was queued has been done, or the device is lost. */
static void
streams_finish(struct device *device)
{
    struct device_info info;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        if (device->ops->info(device, &info) == KVT_OK)
            hbm_stream_finish(device, device->ops->stream(device, (enum device_lane)i));
    }
}

/* An import, and an event of it that the same import opens. */
static enum kvt_status
life_run(struct device_host_config *config)
{
    kvt_shared_event *made = NULL, *opened = NULL;
    struct kvt_env env = hbm.env;
    struct kvt_share event_share;
    struct kvt_side side = {0};
    kvt_import *import;
    uint8_t bytes[64];
    int event_descriptor;
    enum kvt_status status;
    struct kvt_locator locator = {.tier = KVT_TIER_HBM, .length = sizeof(bytes)};

    env.memory = &world;
    env.device_context = config;
    take_count = 0;
    failure_clear();
    memcpy(locator.store, share.store, sizeof(locator.store));
    status = import_open_in(&env, &share, descriptor, &import);
    if (status != KVT_OK) {
        assert_null(import);
        return status;
    }
    side.import = import;
    status = kvt_shared_event_create(&side, &event_share, &event_descriptor, &made);
    if (status == KVT_OK)
        status = kvt_shared_event_open(&side, &event_share, event_descriptor, &opened);
    if (status == KVT_OK)
        status =
            kvt_shared_event_record(made, import->device->ops->stream(import->device, DEVICE_IN));
    if (status == KVT_OK)
        status = kvt_shared_event_stream_wait(
            opened, import->device->ops->stream(import->device, DEVICE_OUT));
    if (status == KVT_OK)
        status = kvt_import_read(import, &locator, bytes, sizeof(bytes));
    if (status == KVT_OK)
        status = kvt_shared_event_wait(opened, KVT_FOREVER);
    fail_take = 0;
    config->fail_call = 0;
    streams_finish(import->device);
    assert_int_equal(kvt_shared_event_close(opened), KVT_OK);
    assert_int_equal(kvt_shared_event_close(made), KVT_OK);
    /* What a lost device still had to do finds no word there. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(kvt_import_close(import), KVT_OK);
    return status;
}

static void
each_allocation_may_fail(void **state)
{
    enum kvt_status status = KVT_E_NOMEM;

    (void)state;
    for (uint32_t n = 1; status != KVT_OK; n++) {
        struct device_host_config config = {0};

        fail_take = n;
        status = life_run(&config);
        if (status != KVT_OK) {
            assert_int_equal(status, KVT_E_NOMEM);
            assert_true(failure_last()->text[0] != '\0');
        } else {
            assert_true(n > 8);
        }
    }
}

static void
each_call_of_the_device_may_fail(void **state)
{
    static const enum kvt_status errors[] = {KVT_E_NOMEM, KVT_E_INVAL, KVT_E_GPU};

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        enum kvt_status status = errors[i];

        for (uint32_t n = 1; status != KVT_OK; n++) {
            struct device_host_config config = {.fail_call = n, .fail_status = errors[i]};

            status = life_run(&config);
            if (status != KVT_OK)
                assert_int_equal(status, errors[i]);
            else
                assert_true(n > 8);
        }
    }
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HBM(each_allocation_may_fail),
        HBM(each_call_of_the_device_may_fail),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
