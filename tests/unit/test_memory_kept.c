/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory_kept.c - host memory that a lost device does not let go of stays mapped, whosever it
 * is, and its owner says so.
 *
 * The emulated device is lost and keeps all host memory that is registered (keeps_host). What is
 * then unmapped would be taken, by a GPU, for what is mapped at its address next.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_set.h"
#include "failure.h"
#include "kvtier/direct.h"
#include "kvtier/kvtier_unstable.h"
#include "pinned_kit.h"
#include "processes.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    KEPT_MAX = 32,
    REGION_BYTES = 8192,
};

/* --- 1. Who keeps what, and what is unmapped -------------------------------------------------- */

static struct {
    const uint8_t *memory;
    size_t size;
} kept[KEPT_MAX];
static uint32_t kept_count;
static uint32_t told_count;  /* Lines of the log. */
static uint32_t early_count; /* Pieces that were kept, and unmapped. */

static bool
is_kept(const void *memory, size_t size)
{
    for (uint32_t i = 0; i < kept_count; i++) {
        if ((const uint8_t *)memory < kept[i].memory + kept[i].size &&
            kept[i].memory < (const uint8_t *)memory + size)
            return true;
    }
    return false;
}

static struct kvt_device_ops ops;

static enum kvt_status
unregister_noted(struct device *device, void *memory, uint64_t size)
{
    enum kvt_status status = device_host_ops.host_unregister(device, memory, size);

    if (status != KVT_OK) {
        assert_int_equal(status, KVT_E_GPU);
        assert_in_range(kept_count, 0, KEPT_MAX - 1);
        kept[kept_count].memory = memory;
        kept[kept_count++].size = size;
    }
    return status;
}

static enum kvt_status
open_noted(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &ops;
    return status;
}

static struct memory_ops world;
static struct memory_ops really;
static uint32_t ended_count; /* Pages of events. */

static void
unmap_noted(void *context, void *memory, size_t size)
{
    if (memory != NULL && is_kept(memory, size))
        early_count++;
    else
        really.unmap(context, memory, size);
}

static void
share_end_noted(void *context, void *memory, size_t size, int descriptor)
{
    if (is_kept(memory, size))
        early_count++;
    else
        really.share_end(context, memory, size, descriptor);
}

static void
page_end_noted(void *context, struct shared_page *page)
{
    ended_count++;
    if (page->memory != NULL && is_kept(page->memory, PAGE_BYTES)) {
        early_count++;
        page->memory = NULL;
    }
    really.page_end(context, page);
}

static void
told_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)module;
    if (level == KVT_LOG_ERROR && strstr(line, "event=memory_kept") != NULL)
        told_count++;
}

/* --- 2. One of each owner --------------------------------------------------------------------- */

static struct {
    struct kvt_env env; /* Of the import. */
    struct device_host_config config;
    kvt_import *import;
    kvt_shared_event *event;
    int hbm_descriptor, event_descriptor;
    kvt_engram *table;
    uint8_t *memory;
    kvt_region region;
} one;

static int
setup(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = REGION_BYTES};
    struct kvt_side owner;
    struct kvt_share share;

    assert_int_equal(hbm_setup(state), 0);
    hbm_close();
    kept_count = told_count = early_count = ended_count = 0;
    really = world = *hbm.env.memory;
    world.unmap = unmap_noted;
    world.share_end = share_end_noted;
    world.page_end = page_end_noted;
    ops = device_host_ops;
    ops.open = open_noted;
    ops.host_unregister = unregister_noted;
    hbm.env.memory = &world;
    hbm.env.device = &ops;
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm.options.log = told_note;
    hbm.options.log_level = KVT_LOG_ERROR;
    hbm_open_again();
    one.config = (struct device_host_config){0};
    one.env = hbm.env;
    one.env.device_context = &one.config;
    assert_int_equal(kvt_hbm_export(hbm.store, 0, &share, &one.hbm_descriptor), KVT_OK);
    assert_int_equal(import_open_in(&one.env, &share, one.hbm_descriptor, &one.import), KVT_OK);
    owner = (struct kvt_side){.store = hbm.store};
    assert_int_equal(
        kvt_shared_event_create(&owner, &share, &one.event_descriptor, &one.event), KVT_OK);
    pinned_rig_make(&pinned.rig);
    assert_int_equal(engram_rig_import(&pinned.rig, hbm.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(hbm.store, "t", &one.table), KVT_OK);
    one.memory = env_map(&hbm.env, REGION_BYTES);
    assert_non_null(one.memory);
    about.address = one.memory;
    assert_int_equal(kvt_region_register(hbm.store, &about, &one.region), KVT_OK);
    return 0;
}

/* All that is left. */
static void
end(void)
{
    assert_int_equal(kvt_import_close(one.import), KVT_OK);
    hbm_close();
}

static int
teardown(void **state)
{
    return hbm_teardown(state);
}

static void
lose_both(bool keeps_host)
{
    uint8_t bytes[64];
    struct device_info info;

    hbm.config.keeps_host = one.config.keeps_host = keeps_host;
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    assert_int_equal(kvt_device_read(hbm.store, 0, bytes, hbm.pool, sizeof(bytes)), KVT_E_GPU);
    one.config.fail_call = atomic_load(&one.config.call_count) + 1;
    assert_int_equal(one.import->device->ops->info(one.import->device, &info), KVT_E_GPU);
}

/* --- 3. The tests ----------------------------------------------------------------------------- */

static void
what_a_lost_device_lets_go_of_is_given_back(void **state)
{
    (void)state;
    assert_int_equal(kvt_engram_pin(one.table, KVT_ENGRAM_ROWS_ALL, 0), KVT_OK);
    lose_both(false);
    assert_int_equal(kvt_region_unregister(hbm.store, one.region), KVT_OK);
    assert_int_equal(kvt_engram_close(one.table), KVT_OK);
    assert_int_equal(kvt_shared_event_close(one.event), KVT_OK);
    end();
    assert_int_equal(kept_count, 0);
    assert_int_equal(told_count, 0);
}

static void
the_caller_is_told_of_its_region(void **state)
{
    (void)state;
    lose_both(true);
    assert_int_equal(kvt_region_unregister(hbm.store, one.region), KVT_E_GPU);
    assert_non_null(strstr(failure_last()->text, "neither freed nor unmapped"));
    assert_true(is_kept(one.memory, REGION_BYTES));
    assert_int_equal(told_count, 1);
    /* It is none any more. */
    assert_int_equal(kvt_region_unregister(hbm.store, one.region), KVT_E_INVAL);
    assert_int_equal(kvt_engram_close(one.table), KVT_OK);
    assert_int_equal(kvt_shared_event_close(one.event), KVT_OK);
    end();
    assert_int_equal(early_count, 0);
}

static void
kept_by_every_owner(uint32_t pin_flags)
{
    const uint8_t *arena, *rows, *stage = one.import->stage;
    size_t size;

    assert_int_equal(kvt_engram_pin(one.table, KVT_ENGRAM_ROWS_ALL, pin_flags), KVT_OK);
    arena = host_arena(hbm.store->host, &size);
    rows = one.table->pin.memory;
    lose_both(true);
    assert_int_equal(kvt_engram_close(one.table), KVT_OK);
    assert_int_equal(kvt_shared_event_close(one.event), KVT_OK);
    end();
    assert_true(is_kept(arena, 1));
    assert_true(is_kept(rows, 1));
    assert_true(is_kept(stage, 1));
    assert_true(is_kept(one.memory, 1));
    /* Who imports the event learns that it has ended, although its page stays. */
    assert_int_equal(ended_count, 1);
    /* And of the event, the holds, the fetches of tables. */
    assert_int_equal(kept_count, 7);
    assert_int_equal(told_count, 6); /* An import has no log. */
    assert_int_equal(early_count, 0);
    /* The next life has other memory. */
    hbm.config.fail_call = 0;
    hbm_open_again();
    assert_false(is_kept(host_arena(hbm.store->host, &size), 1));
}

static void
nothing_that_is_kept_is_unmapped(void **state)
{
    (void)state;
    kept_by_every_owner(0);
}

static void
nor_are_rows_that_others_may_map(void **state)
{
    (void)state;
    kept_by_every_owner(KVT_ENGRAM_PIN_SHARED);
}

#define KEPT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(what_a_lost_device_lets_go_of_is_given_back),
        KEPT(the_caller_is_told_of_its_region),
        KEPT(nothing_that_is_kept_is_unmapped),
        KEPT(nor_are_rows_that_others_may_map),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
