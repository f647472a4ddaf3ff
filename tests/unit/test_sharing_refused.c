/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sharing_refused.c - sharing of HBM: what makes no sense, what was damaged on its way, and
 * what cannot be had is refused with a sentence, and nothing comes of it.
 *
 * Owner and reader are one process here, which changes nothing for either.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "processes.h"
#include "stop_on_proof.h"
#include "store_internal.h"

static atomic_bool may_go; /* What stream_delay() and the lost device's stream wait for. */

/* The memory of all that a test opens; what a thread takes there fails while it says so. */
static struct memory_ops world;
static void *(*take_really)(void *context, size_t size);
static _Thread_local bool is_poor;

static struct {
    struct kvt_share share; /* Of HBM. */
    int descriptor;
    struct device_host_config config; /* Of the import's device. */
    struct kvt_env env;
    kvt_import *import;
    kvt_lease lease;
    struct kvt_locator locator;
    struct kvt_side owner, reader;
    struct kvt_share event_share;
    int event_descriptor;
    kvt_shared_event *made, *opened; /* One event. */
    void *stream, *other, *far;      /* The owner's two, the reader's one. */
} one;

static struct device *
own_device(void)
{
    return hbm_device(hbm.store->devices.tiers[0]);
}

static void *
take(void *context, size_t size)
{
    return is_poor ? NULL : take_really(context, size);
}

static int
setup(void **state)
{
    struct payload_key name;

    assert_int_equal(hbm_setup(state), 0);
    hbm_close();
    world = *hbm.env.memory;
    take_really = world.take;
    world.take = take;
    hbm.env.memory = &world;
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm_open_again();
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &one.lease), KVT_OK);
    assert_int_equal(kvt_lease_export(hbm.store, one.lease, 0, KVT_TIER_HBM, &one.locator), KVT_OK);
    assert_int_equal(kvt_hbm_export(hbm.store, 0, &one.share, &one.descriptor), KVT_OK);
    one.config = (struct device_host_config){0};
    one.env = hbm.env;
    one.env.device_context = &one.config;
    assert_int_equal(import_open_in(&one.env, &one.share, one.descriptor, &one.import), KVT_OK);
    one.owner = (struct kvt_side){.store = hbm.store};
    one.reader = (struct kvt_side){.import = one.import};
    assert_int_equal(
        kvt_shared_event_create(&one.owner, &one.event_share, &one.event_descriptor, &one.made),
        KVT_OK);
    assert_int_equal(
        kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &one.opened),
        KVT_OK);
    assert_int_equal(device_host_stream_create(own_device(), &one.stream), KVT_OK);
    assert_int_equal(device_host_stream_create(own_device(), &one.other), KVT_OK);
    assert_int_equal(device_host_stream_create(one.import->device, &one.far), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    atomic_store(&may_go, true); /* A device that was lost, or a test that failed, left it shut. */
    device_host_stream_destroy(one.import->device, one.far);
    device_host_stream_destroy(own_device(), one.stream);
    device_host_stream_destroy(own_device(), one.other);
    assert_int_equal(kvt_shared_event_close(one.opened), KVT_OK);
    assert_int_equal(kvt_shared_event_close(one.made), KVT_OK);
    assert_int_equal(kvt_import_close(one.import), KVT_OK);
    kvt_lease_release(hbm.store, one.lease);
    return hbm_teardown(state);
}

static void
stream_delay(void *stream)
{
    atomic_store(&may_go, false);
    hbm_stream_hold(own_device(), stream, hbm_pool_at(0), &may_go);
}

/* --- 1. Calls that make no sense -------------------------------------------------------------- */

static void
memory_that_makes_no_sense_is_refused(void **state)
{
    static uint8_t bytes[HBM_BLOCK_BYTES];
    struct kvt_locator bad;
    struct kvt_share share;
    const void *address;
    kvt_import *import;
    uint32_t device;
    int descriptor;

    (void)state;
    refused(kvt_hbm_export(NULL, 0, &share, &descriptor), KVT_E_INVAL, "store");
    refused(kvt_hbm_export(hbm.store, 0, NULL, &descriptor), KVT_E_INVAL, "share_out");
    refused(kvt_hbm_export(hbm.store, 0, &share, NULL), KVT_E_INVAL, "descriptor_out");
    refused(kvt_hbm_export(hbm.store, 1, &share, &descriptor), KVT_E_INVAL, "device 1");
    refused(kvt_hbm_export(hbm.store, 99, &share, &descriptor), KVT_E_INVAL, "device 99");
    refused(kvt_import_open(&one.share, one.descriptor, NULL), KVT_E_INVAL, "import_out");
    refused(kvt_import_open(NULL, one.descriptor, &import), KVT_E_INVAL, "share");
    refused(kvt_import_device(NULL, &device), KVT_E_INVAL, "import");
    refused(kvt_import_device(one.import, NULL), KVT_E_INVAL, "device_out");
    assert_int_equal(kvt_import_device(one.import, &device), KVT_OK);
    assert_int_equal(device, 0);
    refused(kvt_import_address(NULL, &one.locator, &address), KVT_E_INVAL, "import");
    refused(kvt_import_address(one.import, NULL, &address), KVT_E_INVAL, "locator");
    refused(kvt_import_address(one.import, &one.locator, NULL), KVT_E_INVAL, "address_out");
    refused(kvt_import_read(one.import, &one.locator, NULL, 1), KVT_E_INVAL, "target");
    refused(kvt_import_read(one.import, &one.locator, bytes, sizeof(bytes) - 1), KVT_E_INVAL,
        "20000 bytes");
    bad = one.locator;
    bad.store[7] ^= 1;
    refused(kvt_import_address(one.import, &bad, &address), KVT_E_INVAL, "another store");
    refused(kvt_import_read(one.import, &bad, bytes, sizeof(bytes)), KVT_E_INVAL, "another store");
    bad = one.locator;
    bad.tier = KVT_TIER_HOST;
    refused(kvt_import_address(one.import, &bad, &address), KVT_E_INVAL, "tier 2");
    bad = one.locator;
    bad.device = 1;
    refused(kvt_import_address(one.import, &bad, &address), KVT_E_INVAL, "device 1");
    bad = one.locator;
    bad.offset = one.share.bytes - bad.length + 1;
    refused(kvt_import_address(one.import, &bad, &address), KVT_E_INVAL, "end behind");
    bad.offset = UINT64_MAX;
    refused(kvt_import_address(one.import, &bad, &address), KVT_E_INVAL, "end behind");
    bad.offset = one.share.bytes - bad.length;
    assert_int_equal(kvt_import_address(one.import, &bad, &address), KVT_OK);
    refused(kvt_import_close(one.import), KVT_E_STATE, "1 events");
    assert_int_equal(kvt_import_close(NULL), KVT_OK);
}

static void
memory_of_another_process_is_only_read(void **state)
{
    static uint8_t page[2 * PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
    struct device *device = one.import->device;
    struct device_piece piece = {.source = page, .size = PAGE_BYTES};
    const void *address;

    (void)state;
    assert_int_equal(device->ops->host_register(device, page, sizeof(page)), KVT_OK);
    assert_int_equal(kvt_import_address(one.import, &one.locator, &address), KVT_OK);
    piece.target = (void *)(uintptr_t)address;
    refused(device->ops->copy(device, one.far, &piece, 1), KVT_E_INVAL, "to be read only");
    device->ops->host_unregister(device, page, sizeof(page));
}

static void
events_that_make_no_sense_are_refused(void **state)
{
    const struct kvt_side both = {.store = hbm.store, .import = one.import};
    const struct kvt_side numbered = {.import = one.import, .device = 1};
    const struct kvt_side absent = {.store = hbm.store, .device = 1};
    const struct kvt_side *const bad[] = {NULL, &(struct kvt_side){0}, &both, &numbered, &absent};
    kvt_shared_event *event;
    struct kvt_share share;
    int descriptor;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        event = one.made;
        refused(kvt_shared_event_create(bad[i], &share, &descriptor, &event), KVT_E_INVAL,
            i < 3 ? "a side is" : "device");
        assert_null(event);
        event = one.made;
        refused(kvt_shared_event_open(bad[i], &one.event_share, one.event_descriptor, &event),
            KVT_E_INVAL, i < 3 ? "a side is" : "device");
        assert_null(event);
    }
    refused(kvt_shared_event_create(&one.owner, NULL, &descriptor, &event), KVT_E_INVAL, "share");
    refused(kvt_shared_event_create(&one.owner, &share, NULL, &event), KVT_E_INVAL, "descriptor");
    refused(
        kvt_shared_event_create(&one.owner, &share, &descriptor, NULL), KVT_E_INVAL, "event_out");
    refused(kvt_shared_event_open(&one.owner, NULL, one.event_descriptor, &event), KVT_E_INVAL,
        "share");
    refused(kvt_shared_event_open(&one.owner, &one.event_share, one.event_descriptor, NULL),
        KVT_E_INVAL, "event_out");
    refused(kvt_shared_event_record(NULL, one.stream), KVT_E_INVAL, "event");
    refused(kvt_shared_event_record(one.made, NULL), KVT_E_INVAL, "default stream");
    refused(kvt_shared_event_record(one.made, (void *)1), KVT_E_INVAL, "default stream");
    refused(kvt_shared_event_record(one.made, (void *)2), KVT_E_INVAL, "cudaStreamPerThread");
    refused(kvt_shared_event_record(one.opened, one.far), KVT_E_INVAL, "made it");
    refused(kvt_shared_event_stream_wait(NULL, one.far), KVT_E_INVAL, "event");
    refused(kvt_shared_event_stream_wait(one.opened, NULL), KVT_E_INVAL, "default stream");
    refused(kvt_shared_event_wait(NULL, 0), KVT_E_INVAL, "event");
    assert_int_equal(kvt_shared_event_close(NULL), KVT_OK);
    kvt_lease_release(hbm.store, one.lease); /* Nothing else is out then. */
    one.lease = (kvt_lease){0};
    refused(kvt_close(hbm.store), KVT_E_STATE, "1 shared events");
    stream_delay(one.stream);
    assert_int_equal(kvt_shared_event_record(one.made, one.stream), KVT_OK);
    refused(kvt_shared_event_close(one.made), KVT_E_STATE, "has not been reached");
    refused(kvt_shared_event_record(one.made, one.other), KVT_E_STATE, "another stream");
    assert_int_equal(kvt_shared_event_record(one.made, one.stream), KVT_OK);
    refused(kvt_shared_event_wait(one.opened, 1000 * 1000), KVT_LATE, "in time");
    /* A stream that its device does not know. */
    refused(kvt_shared_event_stream_wait(one.opened, one.stream), KVT_E_INVAL, "no stream");
    atomic_store(&may_go, true);
    assert_int_equal(kvt_shared_event_wait(one.opened, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_shared_event_record(one.made, one.other), KVT_OK);
    assert_int_equal(kvt_shared_event_wait(one.made, KVT_FOREVER), KVT_OK);
}

static void
a_maker_that_closes_its_event_ends_it(void **state)
{
    kvt_shared_event *made, *opened;
    struct kvt_share share;
    int descriptor;

    (void)state;
    assert_int_equal(kvt_shared_event_create(&one.reader, &share, &descriptor, &made), KVT_OK);
    assert_int_equal(kvt_shared_event_open(&one.owner, &share, descriptor, &opened), KVT_OK);
    assert_int_equal(kvt_shared_event_record(made, one.far), KVT_OK);
    assert_int_equal(kvt_shared_event_wait(opened, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_shared_event_close(made), KVT_OK);
    /* What was reached stays so. */
    assert_int_equal(kvt_shared_event_wait(opened, 0), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(opened, one.stream), KVT_OK);
    assert_int_equal(kvt_shared_event_close(opened), KVT_OK);
}

static void
sharing_must_be_asked_for_and_needs_an_hbm_tier(void **state)
{
    struct kvt_share share;
    kvt_store *store;
    char path[KIT_PATH_BYTES];
    struct kvt_options options = hbm.options;
    struct memory_ops lone = *hbm.env.memory;
    struct kvt_env env = hbm.env;
    int descriptor;

    (void)state;
    kit_dir_make(path);
    options.hbm_capacity_bytes = 0;
    refused(kvt_open(path, &options, &store), KVT_E_INVAL, "KVT_OPEN_SHARE_HBM");
    options.hbm_capacity_bytes = hbm.options.hbm_capacity_bytes;
    lone.share = NULL;
    env.memory = &lone;
    refused(
        kvt_open_env(path, &options, &env, &store), KVT_E_UNSUPPORTED, "other processes may map");
    options.flags = 0;
    assert_int_equal(kvt_open_env(path, &options, &env, &store), KVT_OK);
    refused(kvt_hbm_export(store, 0, &share, &descriptor), KVT_E_STATE, "KVT_OPEN_SHARE_HBM");
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
}

/* --- 2. What was damaged on its way ----------------------------------------------------------- */

static void
import_refused(const struct kvt_share *share, int descriptor, enum kvt_status status)
{
    kvt_import *import = one.import;

    assert_int_equal(import_open_in(&one.env, share, descriptor, &import), status);
    assert_null(import);
    assert_string_not_equal(failure_last()->text, "");
}

static void
event_refused(const struct kvt_share *share, int descriptor, enum kvt_status status)
{
    kvt_shared_event *event = one.made;

    assert_int_equal(kvt_shared_event_open(&one.reader, share, descriptor, &event), status);
    assert_null(event);
    assert_string_not_equal(failure_last()->text, "");
}

static void
no_byte_of_a_share_can_be_changed(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof(one.share); at++) {
        struct kvt_share share = one.share, event = one.event_share;

        ((uint8_t *)&share)[at] ^= 0x10;
        ((uint8_t *)&event)[at] ^= 0x10;
        import_refused(&share, one.descriptor, KVT_E_FORMAT);
        event_refused(&event, one.event_descriptor, KVT_E_FORMAT);
    }
    /* The other kind, whole. */
    import_refused(&one.event_share, one.event_descriptor, KVT_E_INVAL);
    event_refused(&one.share, one.descriptor, KVT_E_INVAL);
}

static void
what_a_whole_share_says_must_be_so(void **state)
{
    struct kvt_share share = one.share;
    kvt_import *import;
    enum kvt_status status;

    (void)state;
    share.device_id[15] = 7;
    share_seal(&share);
    import_refused(&share, one.descriptor, KVT_E_INVAL);
    share = one.share;
    share.bytes += PAGE_BYTES;
    share_seal(&share);
    import_refused(&share, one.descriptor, KVT_E_INVAL);
    share.bytes = PAGE_BYTES;
    share_seal(&share);
    import_refused(&share, one.descriptor, KVT_E_INVAL);
    share.bytes = 5;
    share_seal(&share);
    import_refused(&share, one.descriptor, KVT_E_INVAL);
    share = one.share;
    share.device_kind = 9;
    share_seal(&share);
    import_refused(&share, one.descriptor, KVT_E_FORMAT);
    /* Of a GPU, where there is none; or there is, but another one. */
    share.device_kind = KVT_DEVICE_CUDA;
    share_seal(&share);
    status = kvt_import_open(&share, one.descriptor, &import);
    assert_true(status == KVT_E_UNSUPPORTED || status == KVT_E_INVAL);
    assert_null(import);
    share = one.event_share;
    share.number++;
    share_seal(&share);
    event_refused(&share, one.event_descriptor, KVT_E_INVAL);
}

static int
memory_make(size_t size, int seals)
{
    int descriptor = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, (off_t)size), 0);
    assert_int_equal(fcntl(descriptor, F_ADD_SEALS, seals), 0);
    return descriptor;
}

static void
descriptors_of_something_else_are_refused(void **state)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int others[8], pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    others[0] = pipes[0];
    others[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
    others[2] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    others[3] = memory_make(one.share.bytes, F_SEAL_SEAL); /* It could be cut under us. */
    others[4] = memory_make(one.share.bytes - PAGE_BYTES, seals | F_SEAL_WRITE);
    others[5] = memory_make(0, seals);
    others[6] = memory_make(PAGE_BYTES, seals); /* All zero. */
    others[7] = pipes[1];
    for (size_t i = 0; i < 8; i++) {
        import_refused(&one.share, others[i], KVT_E_INVAL);
        event_refused(&one.event_share, others[i], KVT_E_INVAL);
        assert_int_equal(close(others[i]), 0);
        import_refused(&one.share, others[i], KVT_E_INVAL);
        event_refused(&one.event_share, others[i], KVT_E_INVAL);
    }
    import_refused(&one.share, one.event_descriptor, KVT_E_INVAL);
    event_refused(&one.event_share, one.descriptor, KVT_E_INVAL);
    import_refused(&one.share, -1, KVT_E_INVAL);
    event_refused(&one.event_share, -1, KVT_E_INVAL);
}

static void
an_event_of_another_version_is_refused(void **state)
{
    struct shared_page page;

    (void)state;
    assert_int_equal(
        hbm.env.memory->page_adopt(hbm.env.memory_context, one.event_descriptor, &page), KVT_OK);
    ((struct process_words *)page.memory)->version++;
    event_refused(&one.event_share, one.event_descriptor, KVT_E_FORMAT);
    hbm.env.memory->page_end(hbm.env.memory_context, &page);
}

/* --- 3. What cannot be had -------------------------------------------------------------------- */

static void
without_memory_there_is_nothing(void **state)
{
    uint8_t bytes[HBM_BLOCK_BYTES];
    kvt_shared_event *event;
    struct kvt_share share;
    kvt_import *import;
    int descriptor;

    (void)state;
    stream_delay(one.stream);
    assert_int_equal(kvt_shared_event_record(one.made, one.stream), KVT_OK);
    is_poor = true;
    refused(import_open_in(&one.env, &one.share, one.descriptor, &import), KVT_E_NOMEM, "memory");
    refused(kvt_shared_event_create(&one.owner, &share, &descriptor, &event), KVT_E_NOMEM, "event");
    refused(kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &event),
        KVT_E_NOMEM, "event");
    refused(kvt_shared_event_record(one.made, one.stream), KVT_E_NOMEM, "work");
    refused(kvt_shared_event_stream_wait(one.opened, one.far), KVT_E_NOMEM, "");
    refused(kvt_import_read(one.import, &one.locator, bytes, sizeof(bytes)), KVT_E_NOMEM, "copy");
    is_poor = false;
    assert_int_equal(kvt_import_read(one.import, &one.locator, bytes, sizeof(bytes)), KVT_OK);
    atomic_store(&may_go, true);
    assert_int_equal(kvt_shared_event_wait(one.opened, KVT_FOREVER), KVT_OK);
}

static void
without_descriptors_there_is_nothing(void **state)
{
    struct rlimit limit, none = {0};
    kvt_shared_event *event;
    struct kvt_share share;
    kvt_import *import;
    int descriptor;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_cur = 1;
    none.rlim_max = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(import_open_in(&one.env, &one.share, one.descriptor, &import), KVT_E_IO);
    assert_int_equal(kvt_shared_event_create(&one.owner, &share, &descriptor, &event), KVT_E_IO);
    assert_int_equal(
        kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &event),
        KVT_E_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void
where_nothing_can_be_shared_it_is_said(void **state)
{
    const struct memory_ops whole = world;
    kvt_shared_event *event;
    struct kvt_share share;
    kvt_import *import;
    int descriptor;

    (void)state;
    world.share = NULL;
    world.page_make = NULL;
    refused(import_open_in(&one.env, &one.share, one.descriptor, &import), KVT_E_UNSUPPORTED,
        "may map");
    refused(kvt_shared_event_create(&one.owner, &share, &descriptor, &event), KVT_E_UNSUPPORTED,
        "may map");
    refused(kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &event),
        KVT_E_UNSUPPORTED, "may map");
    world.share = whole.share;
    world.page_make = whole.page_make;
}

/* The next call of the device loses it. */
static void
lose_next(struct device_host_config *config)
{
    config->fail_call = atomic_load(&config->call_count) + 1;
}

static void
a_lost_device_is_said_and_its_events_can_be_closed(void **state)
{
    struct device_host_config config = {.fail_call = 5};
    struct kvt_env env = one.env;
    uint8_t bytes[HBM_BLOCK_BYTES];
    kvt_shared_event *event;
    struct kvt_share share;
    kvt_import *import;
    uint32_t health = 0;
    int descriptor;

    (void)state;
    env.device_context = &config;
    refused(import_open_in(&env, &one.share, one.descriptor, &import), KVT_E_GPU, "lost");
    stream_delay(one.stream);
    assert_int_equal(kvt_shared_event_record(one.made, one.stream), KVT_OK);
    lose_next(&one.config);
    refused(kvt_import_read(one.import, &one.locator, bytes, sizeof(bytes)), KVT_E_GPU, "lost");
    refused(kvt_shared_event_stream_wait(one.opened, one.far), KVT_E_GPU, "lost");
    refused(kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &event),
        KVT_E_GPU, "lost");
    refused(kvt_shared_event_create(&one.reader, &share, &descriptor, &event), KVT_E_GPU, "lost");
    lose_next(&hbm.config);
    refused(kvt_shared_event_record(one.made, one.stream), KVT_E_GPU, "lost");
    refused(kvt_hbm_export(hbm.store, 0, &share, &descriptor), KVT_E_GPU, "lost");
    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_GPU_LOST) != 0);
    /* teardown() closes both, reached or not. */
}

static void
what_is_open_ends_with_an_abort(void **state)
{
    kvt_shared_event *made;
    struct kvt_share share;
    int descriptor;

    (void)state;
    assert_int_equal(kvt_shared_event_create(&one.owner, &share, &descriptor, &made), KVT_OK);
    device_host_stream_destroy(own_device(), one.stream);
    device_host_stream_destroy(own_device(), one.other);
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    device_host_memory_put(own_device(), hbm.pool, (uint64_t)HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
    kvt_abort(hbm.store);
    assert_int_equal(kvt_shared_event_wait(one.opened, 0), KVT_OK);
    hbm_open_again();
    one.owner.store = hbm.store;
    one.lease = (kvt_lease){0};
    assert_int_equal(device_host_stream_create(own_device(), &one.stream), KVT_OK);
    assert_int_equal(device_host_stream_create(own_device(), &one.other), KVT_OK);
    one.made = NULL;
}

/* --- 4. Forked -------------------------------------------------------------------------------- */

/* True: every call of an import and of its event is refused. Runs in the child. */
static bool
all_are_refused(void)
{
    kvt_shared_event *event;
    struct kvt_share share;
    const void *address;
    uint8_t bytes[8];
    uint32_t device;
    int descriptor;

    return kvt_import_device(one.import, &device) == KVT_E_STATE &&
           kvt_import_address(one.import, &one.locator, &address) == KVT_E_STATE &&
           kvt_import_read(one.import, &one.locator, bytes, sizeof(bytes)) == KVT_E_STATE &&
           kvt_import_close(one.import) == KVT_E_STATE &&
           kvt_shared_event_create(&one.reader, &share, &descriptor, &event) == KVT_E_STATE &&
           kvt_shared_event_create(&one.owner, &share, &descriptor, &event) == KVT_E_STATE &&
           kvt_shared_event_open(&one.reader, &one.event_share, one.event_descriptor, &event) ==
               KVT_E_STATE &&
           kvt_shared_event_record(one.made, one.stream) == KVT_E_STATE &&
           kvt_shared_event_stream_wait(one.opened, one.far) == KVT_E_STATE &&
           kvt_shared_event_wait(one.opened, 0) == KVT_E_STATE &&
           kvt_shared_event_close(one.opened) == KVT_E_STATE &&
           kvt_shared_event_close(one.made) == KVT_E_STATE;
}

static void
a_forked_child_has_none_of_it_and_keeps_nothing_alive(void **state)
{
    kvt_shared_event *made, *opened;
    struct kvt_share share;
    int descriptor, go[2], ready[2], status = 0;
    char byte = 0;
    pid_t child;

    (void)state;
    assert_int_equal(kvt_shared_event_create(&one.reader, &share, &descriptor, &made), KVT_OK);
    assert_int_equal(kvt_shared_event_open(&one.owner, &share, descriptor, &opened), KVT_OK);
    assert_int_equal(pipe(go) + pipe(ready), 0);
    child = fork();
    if (child == 0) {
        bool is_right = all_are_refused();

        (void)close(go[1]);
        if (write(ready[1], &byte, 1) != 1)
            _exit(2);
        /* It lives as long as the parent does. */
        while (read(go[0], &byte, 1) > 0)
            ;
        _exit(is_right ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(close(go[0]), 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(close(ready[0]) + close(ready[1]), 0);
    assert_true(hbm.env.memory->page_is_made(
        hbm.env.memory_context, &(struct shared_page){.descriptor = descriptor}));
    descriptor = dup(descriptor);
    assert_int_equal(kvt_shared_event_close(made), KVT_OK);
    /* The child does not hold what says that the maker is there. */
    assert_false(hbm.env.memory->page_is_made(
        hbm.env.memory_context, &(struct shared_page){.descriptor = descriptor}));
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(kvt_shared_event_close(opened), KVT_OK);
    assert_int_equal(close(go[1]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- 5. Statuses of waits that others' deaths end --------------------------------------------- */

static void
what_its_maker_leaves_unreached_is_cancelled(void **state)
{
    kvt_shared_event *opened;
    struct kvt_share share;
    struct kvt_env env = one.env;
    struct device_host_config config = {0};
    kvt_shared_event *made;
    kvt_import *import;
    struct kvt_side side;
    void *stream;
    int descriptor;

    (void)state;
    env.device_context = &config;
    assert_int_equal(import_open_in(&env, &one.share, one.descriptor, &import), KVT_OK);
    side = (struct kvt_side){.import = import};
    assert_int_equal(device_host_stream_create(import->device, &stream), KVT_OK);
    assert_int_equal(kvt_shared_event_create(&side, &share, &descriptor, &made), KVT_OK);
    assert_int_equal(kvt_shared_event_open(&one.owner, &share, descriptor, &opened), KVT_OK);
    stream_delay(one.stream);
    assert_int_equal(kvt_shared_event_record(one.made, one.stream), KVT_OK);
    /* It comes behind what is late, and its device is lost before. */
    assert_int_equal(kvt_shared_event_stream_wait(one.opened, one.far), KVT_OK);
    hbm_stream_hold(import->device, stream, import->memory, &may_go);
    assert_int_equal(kvt_shared_event_record(made, stream), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(opened, one.other), KVT_OK);
    lose_next(&config);
    /* The stream of the owner goes on when the maker gives the event up. */
    assert_int_equal(kvt_shared_event_close(made), KVT_OK);
    hbm_stream_finish(own_device(), one.other);
    refused(kvt_shared_event_wait(opened, KVT_FOREVER), KVT_CANCELLED, "never be reached");
    refused(kvt_shared_event_stream_wait(opened, one.other), KVT_CANCELLED, "never be reached");
    assert_int_equal(kvt_shared_event_close(opened), KVT_OK);
    atomic_store(&may_go, true);
    device_host_stream_destroy(import->device, stream);
    assert_int_equal(kvt_import_close(import), KVT_OK);
    assert_int_equal(kvt_shared_event_wait(one.opened, KVT_FOREVER), KVT_OK);
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HBM(memory_that_makes_no_sense_is_refused),
        HBM(memory_of_another_process_is_only_read),
        HBM(events_that_make_no_sense_are_refused),
        HBM(a_maker_that_closes_its_event_ends_it),
        HBM(sharing_must_be_asked_for_and_needs_an_hbm_tier),
        HBM(no_byte_of_a_share_can_be_changed),
        HBM(what_a_whole_share_says_must_be_so),
        HBM(descriptors_of_something_else_are_refused),
        HBM(an_event_of_another_version_is_refused),
        HBM(without_memory_there_is_nothing),
        HBM(without_descriptors_there_is_nothing),
        HBM(where_nothing_can_be_shared_it_is_said),
        HBM(a_lost_device_is_said_and_its_events_can_be_closed),
        HBM(what_is_open_ends_with_an_abort),
        HBM(a_forked_child_has_none_of_it_and_keeps_nothing_alive),
        HBM(what_its_maker_leaves_unreached_is_cancelled),
    };

    (void)alarm(60); /* A wait that never ends is not waited for. */
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
