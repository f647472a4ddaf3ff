/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned_kit.c - see pinned_kit.h.
 */
#include "pinned_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "rng.h"
#include "store_internal.h"

struct pinned_kit pinned;

void
pinned_rig_make(struct engram_rig *made)
{
    engram_rig_init(made, "t", ROW_BYTES, ROWS_A_COLUMN);
    made->profile.encoding = KVT_ENGRAM_E4M3_E8M0;
    made->profile.value_count = VALUES;
    made->profile.scale_count = 8;
}

uint32_t
pinned_row_count(const struct engram_rig *from)
{
    return from->profile.layers[0].row_count;
}

void
pinned_ids_make(uint32_t *ids_out, uint32_t below)
{
    struct rng rng = {.state = 5};

    for (uint32_t i = 0; i < COUNT; i++)
        ids_out[i] = rng_below(&rng, below);
    ids_out[0] = 0;
    ids_out[1] = below - 1;
}

/* What a gather of these ids gives. */
void
pinned_wanted_make(
    const struct engram_rig *from, const uint32_t *numbers, bool is_values, uint8_t *out)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t row[ROW_BYTES];

        engram_rig_row(from, 0, numbers[i], row);
        if (!is_values)
            memcpy(out + (size_t)i * ROW_BYTES, row, ROW_BYTES);
        else
            assert_int_equal(kvt_engram_dequantise(&from->profile, row, 1,
                                 (uint16_t *)(void *)(out + (size_t)i * VALUES * 2)),
                KVT_OK);
    }
}

int
pinned_setup(void **state)
{
    (void)hbm_setup(state);
    pinned_rig_make(&pinned.rig);
    assert_int_equal(engram_rig_import(&pinned.rig, hbm.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(hbm.store, "t", &pinned.table), KVT_OK);
    return 0;
}

int
pinned_teardown(void **state)
{
    assert_int_equal(kvt_engram_close(pinned.table), KVT_OK);
    return hbm_teardown(state);
}

struct kvt_engram_selection
pinned_host_gather(bool is_values)
{
    memset(pinned.got, FILLER, sizeof(pinned.got));
    return (struct kvt_engram_selection){.table = pinned.table,
        .ids = pinned.ids,
        .count = COUNT,
        .destination = pinned.got,
        .capacity = (uint64_t)COUNT * (is_values ? VALUES * 2 : ROW_BYTES),
        .flags = is_values ? KVT_ENGRAM_VALUES : 0};
}

void
pinned_assert_untouched(size_t from)
{
    for (size_t i = from; i < sizeof(pinned.got); i++)
        assert_int_equal(pinned.got[i], FILLER);
}

/* Where things lie on the device. */
uint32_t *
pinned_device_ids(void)
{
    return (uint32_t *)(void *)hbm.pool;
}

uint64_t *
pinned_device_verdict(void)
{
    return (uint64_t *)((uintptr_t)hbm.pool + 8192);
}

uint8_t *
pinned_device_target(void)
{
    return (uint8_t *)((uintptr_t)hbm.pool + 16384);
}

struct kvt_engram_selection
pinned_device_gather(bool is_values, void *stream)
{
    const uint64_t verdict = 77;

    memset(pinned.got, FILLER, sizeof(pinned.got));
    assert_int_equal(
        kvt_device_write(hbm.store, 0, pinned_device_target(), pinned.got, sizeof(pinned.got)),
        KVT_OK);
    assert_int_equal(
        kvt_device_write(hbm.store, 0, pinned_device_ids(), pinned.ids, sizeof(pinned.ids)),
        KVT_OK);
    assert_int_equal(kvt_device_write(hbm.store, 0, pinned_device_verdict(), &verdict, 8), KVT_OK);
    return (struct kvt_engram_selection){.table = pinned.table,
        .ids = pinned_device_ids(),
        .count = COUNT,
        .destination = pinned_device_target(),
        .capacity = (uint64_t)COUNT * (is_values ? VALUES * 2 : ROW_BYTES),
        .region = hbm.region,
        .ids_region = hbm.region,
        .stream = stream,
        .verdict = pinned_device_verdict(),
        .flags = is_values ? KVT_ENGRAM_VALUES : 0};
}

/* pinned.got: the target; returns the verdict. */
uint64_t
pinned_device_look(void)
{
    uint64_t verdict;

    assert_int_equal(
        kvt_device_read(hbm.store, 0, pinned.got, pinned_device_target(), sizeof(pinned.got)),
        KVT_OK);
    assert_int_equal(kvt_device_read(hbm.store, 0, &verdict, pinned_device_verdict(), 8), KVT_OK);
    return verdict;
}
