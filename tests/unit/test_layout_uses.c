/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layout_uses.c - the table of layouts: what is refused, how long a layout and its regions are
 * held, in a simulated world: between two calls of a test nothing happens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    REGION_BYTES = 64 << 10,
    PIECE = 1000,
    COUNT_MAX = KVT_LAYOUTS_MAX - 1,
    FILLER = 0xEE,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t *pinned;
static void *device_memory[2];
static kvt_region host_region, device_regions[2];
static uint8_t plain[REGION_BYTES];
static const uint64_t key = 5;

static kvt_region
region_register(void *memory, uint32_t tier, uint32_t device)
{
    const struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = tier,
        .address = memory,
        .size = REGION_BYTES,
        .device = device};
    kvt_region region;

    assert_int_equal(kvt_region_register(store, &about, &region), KVT_OK);
    return region;
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.device_mask = 3;
    options.device_kind = KVT_DEVICE_EMULATION;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "uses", "", 0, &ns), KVT_OK);
    pinned = aligned_alloc(4096, REGION_BYTES);
    assert_non_null(pinned);
    host_region = region_register(pinned, KVT_TIER_HOST, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_device_alloc(store, i, REGION_BYTES, &device_memory[i]), KVT_OK);
        device_regions[i] = region_register(device_memory[i], KVT_TIER_HBM, i);
    }
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_region_unregister(store, device_regions[i]), KVT_OK);
        kvt_device_free(store, i, device_memory[i], REGION_BYTES);
    }
    assert_int_equal(kvt_region_unregister(store, host_region), KVT_OK);
    sim_store_close(&sim);
    free(pinned);
    return 0;
}

/* --- Registering ------------------------------------------------------------------------------ */

/* Two pages of K and V, eight slots. */
static struct kvt_run
run_at(void *memory, kvt_region region)
{
    return (struct kvt_run){.address = memory,
        .region = region,
        .piece_count = 2,
        .piece_bytes = PIECE,
        .piece_stride = 8 * PIECE,
        .slot_stride = PIECE};
}

static struct kvt_layout_options
options_of(const struct kvt_run *runs, uint32_t run_count)
{
    return (struct kvt_layout_options){.struct_size = sizeof(struct kvt_layout_options),
        .run_count = run_count,
        .runs = runs,
        .slot_count = 8};
}

static enum kvt_status
layout_try(const struct kvt_run *runs, uint32_t run_count)
{
    const struct kvt_layout_options options = options_of(runs, run_count);
    kvt_layout layout;
    enum kvt_status status = kvt_layout_register(store, &options, &layout);

    if (status != KVT_OK)
        assert_int_equal(layout.id, 0);
    else
        assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    return status;
}

static void
options_that_break_a_rule_are_refused(void **state)
{
    struct kvt_run run = run_at(plain, (kvt_region){0});
    struct kvt_layout_options options = options_of(&run, 1);
    kvt_layout layout;

    (void)state;
    refused(kvt_layout_register(NULL, &options, &layout), KVT_E_INVAL, "store");
    refused(kvt_layout_register(store, NULL, &layout), KVT_E_INVAL, "options");
    refused(kvt_layout_register(store, &options, NULL), KVT_E_INVAL, "layout_out");
    options.struct_size--;
    refused(kvt_layout_register(store, &options, &layout), KVT_E_INVAL, "struct_size");
    options = options_of(&run, 1);
    options.reserved0 = 1;
    refused(kvt_layout_register(store, &options, &layout), KVT_E_INVAL, "reserved0");
    options = options_of(&run, 1);
    options.slot_count = 0;
    refused(kvt_layout_register(store, &options, &layout), KVT_E_INVAL, "slot_count");
    options = options_of(NULL, 1);
    refused(kvt_layout_register(store, &options, &layout), KVT_E_INVAL, "runs");
    refused(layout_try(&run, 0), KVT_E_INVAL, "run_count");
    refused(layout_try(&run, KVT_RUNS_MAX + 1), KVT_E_INVAL, "run_count");
    assert_int_equal(layout_try(&run, 1), KVT_OK);
}

/* One field set to a value that it must not have. */
#define refused_run(field, value)                                                               \
    do {                                                                                        \
        struct kvt_run runs_[2] = {                                                             \
            run_at(plain, (kvt_region){0}), run_at(plain + REGION_BYTES / 2, (kvt_region){0})}; \
        runs_[1].field = (value);                                                               \
        refused(layout_try(runs_, 2), KVT_E_INVAL, "runs[1]." #field);                          \
    } while (0)

static void
runs_that_break_a_rule_are_refused_by_name(void **state)
{
    (void)state;
    refused_run(address, NULL);
    refused_run(address, (void *)(UINTPTR_MAX - 100));
    refused_run(piece_count, 0);
    refused_run(piece_count, KVT_PIECES_MAX + 1);
    refused_run(piece_bytes, 0);
    refused_run(piece_bytes, KIT_BLOCK_BYTES_MAX + 1);
    refused_run(piece_bytes, UINT64_MAX);
    refused_run(piece_stride, 0);
    refused_run(piece_stride, PIECE - 1);
    refused_run(slot_stride, 0);
    refused_run(slot_stride, PIECE - 1);
    refused_run(region, (kvt_region){77});
    refused_run(region, (kvt_region){host_region.id + (1u << 13)}); /* Of another life. */
    refused_run(region, host_region);                               /* It does not lie there. */
}

/* Strides whose products do not fit. */
static void
runs_that_reach_behind_all_memory_are_refused(void **state)
{
    struct kvt_run run = run_at(plain, (kvt_region){0});

    (void)state;
    run.piece_stride = UINT64_MAX;
    refused(layout_try(&run, 1), KVT_E_INVAL, "address space");
    run = run_at(plain, (kvt_region){0});
    run.slot_stride = UINT64_MAX / 4;
    refused(layout_try(&run, 1), KVT_E_INVAL, "address space");
    run.slot_stride = (UINT64_MAX - 8 * PIECE) / 7;
    run.piece_stride = 9 * PIECE;
    refused(layout_try(&run, 1), KVT_E_INVAL, "address space");
}

static void
a_block_has_its_bounds(void **state)
{
    enum {
        RUNS = 5
    };
    struct kvt_run runs[RUNS];

    (void)state;
    for (uint32_t i = 0; i < RUNS; i++) {
        runs[i] = run_at(plain + i * 13000, (kvt_region){0});
        runs[i].piece_count = 4096;
        runs[i].piece_bytes = runs[i].slot_stride = 1;
        runs[i].piece_stride = 2;
    }
    refused(layout_try(runs, RUNS), KVT_E_INVAL, "pieces");
    runs[0].piece_count = 3;
    runs[0].piece_bytes = runs[0].slot_stride = runs[0].piece_stride = KIT_BLOCK_BYTES_MAX / 2;
    refused(layout_try(runs, 1), KVT_E_INVAL, "block_bytes_max");
    runs[0].piece_count = 2;
    assert_int_equal(layout_try(runs, 1), KVT_OK);
}

static void
pieces_that_overlap_are_refused(void **state)
{
    struct kvt_run runs[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        runs[i] = run_at(plain + (2 - i) * 16 * PIECE, (kvt_region){0});
    assert_int_equal(layout_try(runs, 3), KVT_OK);
    runs[0].address = (uint8_t *)runs[2].address + PIECE - 1; /* Slots 0 of both: one byte. */
    refused(layout_try(runs, 3), KVT_E_INVAL, "overlap");
    runs[0].address = (uint8_t *)runs[2].address + PIECE; /* Another slot's place. */
    assert_int_equal(layout_try(runs, 3), KVT_OK);
    runs[0].address = (uint8_t *)runs[2].address + 9 * PIECE - 1; /* The second piece's end. */
    refused(layout_try(runs, 3), KVT_E_INVAL, "overlap");
    /* Slot 0 is free of it, slot 1 is not. */
    runs[0].address = (uint8_t *)runs[2].address + 2 * PIECE;
    runs[0].slot_stride = 2 * PIECE;
    refused(layout_try(runs, 3), KVT_E_INVAL, "slot_stride");
    runs[0].address = plain + 40 * PIECE;
    runs[0].piece_stride = 3 * PIECE;
    assert_int_equal(layout_try(runs, 1), KVT_OK);
}

/* The last byte of the last piece of the last slot decides. */
static void
all_slots_lie_in_their_region(void **state)
{
    struct kvt_run run = run_at(device_memory[0], device_regions[0]);
    struct kvt_layout_options options = options_of(&run, 1);
    kvt_layout layout;

    (void)state;
    run.piece_stride = PIECE;
    run.slot_stride = 2 * PIECE;
    options.slot_count = REGION_BYTES / (2 * PIECE);
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    run.address = (void *)((uintptr_t)device_memory[0] + REGION_BYTES % (2 * PIECE));
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    run.address = (void *)((uintptr_t)run.address + 1);
    refused(kvt_layout_register(store, &options, &layout), KVT_E_INVAL, "region");
}

static void
runs_lie_in_memory_of_one_kind(void **state)
{
    struct kvt_run runs[2] = {
        run_at(device_memory[0], device_regions[0]), run_at(device_memory[1], device_regions[1])};

    (void)state;
    refused(layout_try(runs, 2), KVT_E_UNSUPPORTED, "another device");
    runs[1] = run_at(pinned, host_region);
    refused(layout_try(runs, 2), KVT_E_UNSUPPORTED, "another device");
    runs[0] = run_at(plain, (kvt_region){0});
    assert_int_equal(layout_try(runs, 2), KVT_OK);
    runs[1] = run_at(device_memory[0], device_regions[0]);
    refused(layout_try(runs, 2), KVT_E_UNSUPPORTED, "another device");
}

static void
so_many_layouts_and_no_more(void **state)
{
    static kvt_layout layouts[COUNT_MAX];
    const struct kvt_run run = run_at(pinned, host_region);
    const struct kvt_layout_options options = options_of(&run, 1);
    kvt_layout layout, stale;

    (void)state;
    for (uint32_t i = 0; i < COUNT_MAX; i++)
        assert_int_equal(kvt_layout_register(store, &options, &layouts[i]), KVT_OK);
    refused(kvt_layout_register(store, &options, &layout), KVT_E_NOSPC, "1023");
    assert_int_equal(layout.id, 0);
    stale = layouts[500];
    assert_int_equal(kvt_layout_unregister(store, stale), KVT_OK);
    refused(kvt_layout_unregister(store, stale), KVT_E_INVAL, "stale");
    assert_int_equal(kvt_layout_register(store, &options, &layouts[500]), KVT_OK);
    assert_int_not_equal(layouts[500].id, stale.id);
    refused(kvt_layout_unregister(store, stale), KVT_E_INVAL, "stale");
    assert_int_equal(kvt_layout_unregister(store, (kvt_layout){0}), KVT_OK);
    refused(kvt_layout_unregister(store, (kvt_layout){1u << 20}), KVT_E_INVAL, "none");
    refused(kvt_layout_unregister(NULL, stale), KVT_E_INVAL, "store");
    for (uint32_t i = 0; i < COUNT_MAX; i++)
        assert_int_equal(kvt_layout_unregister(store, layouts[i]), KVT_OK);
}

/* An id comes back when all places have had all generations: one in use is passed over. */
static void
a_place_is_given_again_when_all_others_were(void **state)
{
    const struct kvt_run run = run_at(pinned, host_region);
    const struct kvt_layout_options options = options_of(&run, 1);
    kvt_layout used, first, next;

    (void)state;
    assert_int_equal(kvt_layout_register(store, &options, &used), KVT_OK);
    assert_int_equal(kvt_layout_register(store, &options, &first), KVT_OK);
    assert_int_equal(kvt_layout_unregister(store, first), KVT_OK);
    for (uint32_t i = 1; i < COUNT_MAX - 1; i++) {
        assert_int_equal(kvt_layout_register(store, &options, &next), KVT_OK);
        assert_int_not_equal(next.id % KVT_LAYOUTS_MAX, first.id % KVT_LAYOUTS_MAX);
        assert_int_equal(kvt_layout_unregister(store, next), KVT_OK);
    }
    assert_int_equal(kvt_layout_register(store, &options, &next), KVT_OK);
    assert_int_equal(next.id % KVT_LAYOUTS_MAX, first.id % KVT_LAYOUTS_MAX);
    assert_int_not_equal(next.id, first.id);
    assert_int_equal(kvt_layout_unregister(store, next), KVT_OK);
    assert_int_equal(kvt_layout_unregister(store, used), KVT_OK);
    first.id = 7;
    refused(kvt_layout_register(store, NULL, &first), KVT_E_INVAL, "options");
    assert_int_equal(first.id, 0);
}

/* Likewise of regions; two others are in use. */
static void
a_place_of_a_region_is_given_again_when_all_others_were(void **state)
{
    kvt_region first = device_regions[0];
    kvt_region *next = &device_regions[0];

    (void)state;
    for (uint32_t i = 0; i < KVT_REGIONS_MAX - 1 - 2; i++) {
        assert_int_equal(kvt_region_unregister(store, *next), KVT_OK);
        if (i > 0)
            assert_int_not_equal(next->id % KVT_REGIONS_MAX, first.id % KVT_REGIONS_MAX);
        *next = region_register(device_memory[0], KVT_TIER_HBM, 0);
    }
    assert_int_equal(next->id % KVT_REGIONS_MAX, first.id % KVT_REGIONS_MAX);
    assert_int_not_equal(next->id, first.id);
    first.id = 7;
    refused(kvt_region_register(store, NULL, &first), KVT_E_INVAL, "options");
    assert_int_equal(first.id, 0);
}

/* --- Holding ---------------------------------------------------------------------------------- */

static void
a_layout_holds_its_regions(void **state)
{
    struct kvt_run runs[2] = {run_at(pinned, host_region), run_at(plain, (kvt_region){0})};
    const struct kvt_layout_options options = options_of(runs, 2);
    kvt_layout layout;

    (void)state;
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    refused(kvt_region_unregister(store, host_region), KVT_E_STATE, "layout");
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    assert_int_equal(kvt_region_unregister(store, host_region), KVT_OK);
    /* What is joined is held once, what was refused not at all. */
    host_region = region_register(pinned, KVT_TIER_HOST, 0);
    runs[0] = (struct kvt_run){.address = pinned,
        .region = host_region,
        .piece_count = 1,
        .piece_bytes = PIECE,
        .slot_stride = 2 * PIECE};
    runs[1] = runs[0];
    runs[1].address = pinned + PIECE;
    assert_int_equal(layout_try(runs, 2), KVT_OK);
    runs[1].address = pinned + PIECE - 1;
    refused(layout_try(runs, 2), KVT_E_INVAL, "overlap");
    assert_int_equal(kvt_region_unregister(store, host_region), KVT_OK);
    host_region = region_register(pinned, KVT_TIER_HOST, 0);
}

static kvt_ticket *
put_send(const struct kvt_put *about)
{
    struct kvt_put put = *about;
    kvt_ticket *ticket;

    put.key = (struct kvt_key){.bytes = &key, .length = sizeof(key)};
    put.length = 2 * PIECE;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

static kvt_ticket *
get_send(const struct kvt_get *about)
{
    struct kvt_get get = *about;
    kvt_ticket *ticket;

    get.key = (struct kvt_key){.bytes = &key, .length = sizeof(key)};
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
a_layout_is_kept_until_stage_1(void **state)
{
    struct kvt_run run = run_at(pinned, host_region);
    const struct kvt_layout_options options = options_of(&run, 1);
    kvt_ticket *ticket;
    kvt_layout layout;

    (void)state;
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    ticket = put_send(&(struct kvt_put){.layout = layout, .slot = 7});
    refused(kvt_layout_unregister(store, layout), KVT_E_STATE, "under way");
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    ticket = get_send(&(struct kvt_get){.layout = layout, .slot = 6});
    refused(kvt_layout_unregister(store, layout), KVT_E_STATE, "under way");
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_memory_equal(pinned + 6 * PIECE, pinned + 7 * PIECE, PIECE);
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    /* Runs of its own hold their regions as long. */
    ticket = get_send(&(struct kvt_get){.runs = &run, .run_count = 1});
    refused(kvt_region_unregister(store, host_region), KVT_E_STATE, "under way");
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_region_unregister(store, host_region), KVT_OK);
    host_region = region_register(pinned, KVT_TIER_HOST, 0);
}

static void
what_was_cancelled_has_written_nothing_and_holds_nothing(void **state)
{
    struct kvt_run run = run_at(pinned, host_region);
    const struct kvt_layout_options options = options_of(&run, 1);
    kvt_ticket *ticket;
    kvt_layout layout;

    (void)state;
    assert_int_equal(
        kit_result(put_send(&(struct kvt_put){.runs = &run, .run_count = 1}), KVT_STAGE_DONE)
            .status,
        KVT_OK);
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    memset(pinned, FILLER, REGION_BYTES);
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_get get = {.slot = 3};

        if (i == 0) {
            get.layout = layout;
        } else {
            get.slot = 0;
            get.runs = &run;
            get.run_count = 1;
        }
        ticket = get_send(&get);
        assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_CANCELLED);
    }
    for (uint32_t i = 0; i < REGION_BYTES; i++)
        assert_int_equal(pinned[i], FILLER);
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
    assert_int_equal(kvt_region_unregister(store, host_region), KVT_OK);
    host_region = region_register(pinned, KVT_TIER_HOST, 0);
}

static void
a_close_forgets_layouts_and_regions(void **state)
{
    struct kvt_run run = run_at(pinned, host_region);
    const struct kvt_layout_options options = options_of(&run, 1);
    char leaks[200];
    kvt_layout layout;

    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    assert_int_equal(
        kit_result(put_send(&(struct kvt_put){.layout = layout}), KVT_STAGE_DONE).status, KVT_OK);
    for (uint32_t i = 0; i < 2; i++)
        kvt_device_free(store, i, device_memory[i], REGION_BYTES);
    assert_int_equal(kvt_close(store), KVT_OK);
    if (sim_leaks(sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("left behind: %s", leaks);
    sim_world_destroy(sim.world);
    free(pinned);
    setup(state);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* One put and one get to a layout, with the n-th allocation failing. False: there were fewer. */
static bool
life_short_of_memory(uint64_t n, void *memory, kvt_region region)
{
    /* The second run makes the pieces out of order: they are sorted. */
    const struct kvt_run runs[2] = {
        run_at((void *)((uintptr_t)memory + 32 * PIECE), region), run_at(memory, region)};
    const struct kvt_layout_options options = options_of(runs, 2);
    struct kvt_put put = {.key = {.bytes = &key, .length = sizeof(key)},
        .length = 4 * PIECE,
        .slot = 2,
        .flags = KVT_PUT_REPLACE};
    struct kvt_get get = {.key = put.key, .runs = runs, .run_count = 2};
    kvt_ticket *ticket;
    enum kvt_status status;
    uint64_t asked = sim_memory_asked(sim.world);
    bool has_fired;

    sim_memory_fail(sim.world, n, false);
    status = kvt_layout_register(store, &options, &put.layout);
    assert_true(status == KVT_OK || status == KVT_E_NOMEM);
    if (status == KVT_OK)
        status = kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket);
    if (status == KVT_OK)
        status = kit_result(ticket, KVT_STAGE_DONE).status;
    assert_true(status == KVT_OK || status == KVT_E_NOMEM);
    if (status == KVT_OK)
        status = kvt_get_submit(store, ns, &get, 1, NULL, &ticket);
    if (status == KVT_OK)
        status = kit_result(ticket, KVT_STAGE_DONE).status;
    assert_true(status == KVT_OK || status == KVT_E_NOMEM);
    has_fired = sim_memory_asked(sim.world) - asked >= n;
    sim_memory_fail(sim.world, 0, false);
    assert_int_equal(kvt_layout_unregister(store, put.layout), KVT_OK);
    return has_fired;
}

static void
without_memory_the_block_says_so_and_nothing_is_held(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 3; kind++) {
        void *memory = kind == 0 ? plain : kind == 1 ? pinned : device_memory[0];
        kvt_region region = kind == 0   ? (kvt_region){0}
                            : kind == 1 ? host_region
                                        : device_regions[0];
        uint64_t n = 1;

        while (life_short_of_memory(n, memory, region))
            n++;
        /* Layout, its check, ticket; runs, their check; the device's pieces, there and back. */
        assert_true(n > (kind == 2 ? 6 : 4));
    }
}

/* --- Puts and gets ---------------------------------------------------------------------------- */

static enum kvt_status
put_try(const struct kvt_put *about)
{
    struct kvt_put puts[2] = {
        {.key = {.bytes = &key, .length = sizeof(key)}, .source = plain, .length = 10}, *about};
    kvt_ticket *ticket;
    enum kvt_status status;

    puts[1].key = puts[0].key;
    status = kvt_put_submit(store, ns, puts, 2, KVT_MEMORY, NULL, &ticket);
    assert_int_not_equal(status, KVT_OK);
    assert_null(ticket);
    return status;
}

static enum kvt_status
get_try(const struct kvt_get *about)
{
    struct kvt_get gets[2] = {
        {.key = {.bytes = &key, .length = sizeof(key)}, .destination = plain, .capacity = 10},
        *about};
    kvt_ticket *ticket;
    enum kvt_status status;

    gets[1].key = gets[0].key;
    status = kvt_get_submit(store, ns, gets, 2, NULL, &ticket);
    assert_int_not_equal(status, KVT_OK);
    assert_null(ticket);
    return status;
}

#define PUT(...) put_try(&(struct kvt_put){.length = 2 * PIECE, __VA_ARGS__})
#define GET(...) get_try(&(struct kvt_get){__VA_ARGS__})

static void
puts_and_gets_that_break_a_rule_are_refused_by_name(void **state)
{
    struct kvt_run run = run_at(plain + 100, (kvt_region){0});
    const struct kvt_run two[2] = {
        run_at(device_memory[0], device_regions[0]), run_at(device_memory[1], device_regions[1])};
    const struct kvt_layout_options options = options_of(&run, 1);
    kvt_layout layout;

    (void)state;
    assert_int_equal(kvt_layout_register(store, &options, &layout), KVT_OK);
    refused(PUT(.layout = layout, .source = plain), KVT_E_INVAL, "block 1: source");
    refused(PUT(.layout = layout, .region = host_region), KVT_E_INVAL, "region");
    refused(PUT(.layout = layout, .runs = &run, .run_count = 1), KVT_E_INVAL, "block 1: runs");
    refused(PUT(.layout = layout, .run_count = 1), KVT_E_INVAL, "run_count");
    refused(PUT(.layout = layout, .slot = 8), KVT_E_INVAL, "block 1: slot 8");
    refused(PUT(.layout = {77}), KVT_E_INVAL, "layout 77");
    refused(PUT(.layout = {layout.id + (1u << 11)}), KVT_E_INVAL, "stale");
    refused(PUT(.runs = &run), KVT_E_INVAL, "block 1: run_count 0");
    refused(PUT(.runs = &run, .run_count = KVT_RUNS_MAX + 1), KVT_E_INVAL, "run_count");
    refused(PUT(.run_count = 1), KVT_E_INVAL, "block 1: runs");
    refused(PUT(.runs = &run, .run_count = 1, .slot = 1), KVT_E_INVAL, "block 1: slot");
    refused(PUT(.source = plain, .slot = 1), KVT_E_INVAL, "source");
    refused(PUT(.source = plain, .reserved1 = 1), KVT_E_INVAL, "reserved1");
    refused(put_try(&(struct kvt_put){.layout = layout, .length = 2 * PIECE - 1}), KVT_E_INVAL,
        "block 1: length");
    refused(PUT(.layout = layout, .tier = KVT_TIER_HBM), KVT_E_INVAL, "region");
    refused(GET(.layout = layout, .destination = plain), KVT_E_INVAL, "block 1: destination");
    refused(GET(.layout = layout, .capacity = 5), KVT_E_INVAL, "capacity");
    refused(GET(.layout = layout, .region = host_region), KVT_E_INVAL, "region");
    refused(GET(.layout = layout, .slot = 8), KVT_E_INVAL, "block 1: slot 8");
    refused(GET(.layout = layout, .reserved1 = 8), KVT_E_INVAL, "block 1: reserved1");
    refused(GET(.layout = layout, .part_first = 1), KVT_E_INVAL, "part_first");
    refused(GET(.runs = &run), KVT_E_INVAL, "run_count");
    refused(GET(.runs = two, .run_count = 2), KVT_E_UNSUPPORTED, "block 1: runs[1].region");
    refused(PUT(.runs = two, .run_count = 2), KVT_E_UNSUPPORTED, "block 1: runs[1].region");
    run.piece_stride = 1;
    refused(GET(.runs = &run, .run_count = 1), KVT_E_INVAL, "block 1: runs[0].piece_stride");
    refused(PUT(.runs = &run, .run_count = 1), KVT_E_INVAL, "block 1: runs[0].piece_stride");
    assert_int_equal(kvt_layout_unregister(store, layout), KVT_OK);
}

static void
two_gets_of_one_slot_are_refused(void **state)
{
    struct kvt_run run = run_at(plain, (kvt_region){0});
    const struct kvt_layout_options options = options_of(&run, 1);
    struct kvt_get gets[3] = {{.key = {.bytes = &key, .length = sizeof(key)}}};
    kvt_layout layouts[2];
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(kvt_layout_register(store, &options, &layouts[0]), KVT_OK);
    run.address = plain + REGION_BYTES / 2;
    assert_int_equal(kvt_layout_register(store, &options, &layouts[1]), KVT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        gets[i] = gets[0];
        gets[i].layout = layouts[i / 2];
        gets[i].slot = i % 2 * 3;
    }
    assert_int_equal(kvt_get_submit(store, ns, gets, 3, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    gets[2].layout = layouts[0];
    refused(kvt_get_submit(store, ns, gets, 3, NULL, &ticket), KVT_E_INVAL, "slot");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(kvt_layout_unregister(store, layouts[i]), KVT_OK);
}

static void
a_reservation_has_no_layout(void **state)
{
    struct kvt_run run = run_at(plain, (kvt_region){0});
    struct kvt_put put = {.key = {.bytes = &key, .length = sizeof(key)}, .length = 2 * PIECE};
    kvt_reservation *reservation;
    void *address;

    (void)state;
    put.runs = &run;
    refused(kvt_reserve(store, ns, &put, &address, &reservation), KVT_E_INVAL, "runs");
    put.runs = NULL;
    put.layout.id = 1;
    refused(kvt_reserve(store, ns, &put, &address, &reservation), KVT_E_INVAL, "layout");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(options_that_break_a_rule_are_refused),
        TEST(runs_that_break_a_rule_are_refused_by_name),
        TEST(runs_that_reach_behind_all_memory_are_refused),
        TEST(a_block_has_its_bounds),
        TEST(pieces_that_overlap_are_refused),
        TEST(all_slots_lie_in_their_region),
        TEST(runs_lie_in_memory_of_one_kind),
        TEST(so_many_layouts_and_no_more),
        TEST(a_place_is_given_again_when_all_others_were),
        TEST(a_place_of_a_region_is_given_again_when_all_others_were),
        TEST(a_layout_holds_its_regions),
        TEST(a_layout_is_kept_until_stage_1),
        TEST(what_was_cancelled_has_written_nothing_and_holds_nothing),
        TEST(a_close_forgets_layouts_and_regions),
        TEST(without_memory_the_block_says_so_and_nothing_is_held),
        TEST(puts_and_gets_that_break_a_rule_are_refused_by_name),
        TEST(two_gets_of_one_slot_are_refused),
        TEST(a_reservation_has_no_layout),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
