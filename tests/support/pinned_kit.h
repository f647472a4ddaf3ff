/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned_kit.h - a small Engram table of FP8 rows in a store with an emulated device (hbm_kit.h),
 * and gathers of it on the host and on that device.
 *
 * Whatever must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_PINNED_KIT_H
#define KVT_TESTS_PINNED_KIT_H

#include "engram_rig.h"
#include "hbm_kit.h"

enum {
    ROW_BYTES = 264,
    VALUES = 256,
    ROWS_A_PAGE = 15,
    ROWS_A_COLUMN = 500,
    COLUMNS = 4,
    COUNT = 300, /* Of a gather. */
    FILLER = 0x6B,
};

struct pinned_kit {
    struct engram_rig rig;
    kvt_engram *table;
    uint32_t ids[COUNT];
    uint8_t wanted[COUNT * VALUES * 2];
    uint8_t got[COUNT * VALUES * 2 + 64]; /* And what is behind it. */
};

extern struct pinned_kit pinned;

/* For cmocka: hbm_kit's store with the table "t", open; and its end. */
int pinned_setup(void **state);
int pinned_teardown(void **state);

void pinned_rig_make(struct engram_rig *made);
uint32_t pinned_row_count(const struct engram_rig *from);
/* pinned_ids_make - by chance; 0 and below - 1 are among them. */
void pinned_ids_make(uint32_t *ids_out, uint32_t below);
/* pinned_wanted_make - what a gather of these numbers gives. */
void pinned_wanted_make(
    const struct engram_rig *from, const uint32_t *numbers, bool is_values, uint8_t *out);

/* pinned_host_gather - of pinned.ids to pinned.got, which is filled with FILLER. */
struct kvt_engram_selection pinned_host_gather(bool is_values);
/* pinned_assert_untouched - pinned.got is FILLER from there on. */
void pinned_assert_untouched(size_t from);

/* Where things lie on the device. */
uint32_t *pinned_device_ids(void);
uint64_t *pinned_device_verdict(void);
uint8_t *pinned_device_target(void);
/* pinned_device_gather - the same there. pinned_device_look - after it: pinned.got is the target;
 * returns the verdict. */
struct kvt_engram_selection pinned_device_gather(bool is_values, void *stream);
uint64_t pinned_device_look(void);

#endif /* KVT_TESTS_PINNED_KIT_H */
