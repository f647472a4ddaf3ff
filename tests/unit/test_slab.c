/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slab.c - the slab against a plain list of what was taken; classes, generations, misuse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "rng.h"
#include "slab.h"
#include "stop_on_proof.h"

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

struct fixture {
    struct kvt_env env;
    uint8_t *arena;
    size_t size;
    struct slab *slab;
};

static void
fixture_open(struct fixture *fixture, size_t size, size_t superblock_bytes, size_t slot_bytes_max)
{
    env_host(&fixture->env);
    fixture->size = size;
    fixture->arena = env_map(&fixture->env, round_up(size, 2 * MIB));
    assert_non_null(fixture->arena);
    assert_int_equal(slab_open(&fixture->env, fixture->arena, size, superblock_bytes,
                         slot_bytes_max, &fixture->slab),
        KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    slab_check(fixture->slab);
    slab_close(fixture->slab);
    env_unmap(&fixture->env, fixture->arena, round_up(fixture->size, 2 * MIB));
}

static struct slot
take(struct fixture *fixture, size_t size)
{
    struct slot slot = {0};

    assert_int_equal(slab_take(fixture->slab, size, &slot), KVT_OK);
    assert_int_not_equal(slot.generation, 0);
    assert_true(slab_slot_bytes(fixture->slab, slot) >= size);
    return slot;
}

/* Of the fixtures below, which have superblocks of 256 KiB. */
static uint32_t
superblock_of(const struct fixture *fixture, struct slot slot)
{
    const uint8_t *address = slab_address(fixture->slab, slot);

    return (uint32_t)((size_t)(address - fixture->arena) / (256 * KIB));
}

/* --- Against a model -------------------------------------------------------------------------- */

enum {
    MODEL_SLOTS_MAX = 4096,
    MODEL_STEPS = 60000,
    MODEL_SIZES = 40, /* More than there are classes. */
};

struct model {
    struct fixture fixture;
    struct rng rng;
    size_t sizes[MODEL_SIZES];
    struct slot slots[MODEL_SLOTS_MAX];
    size_t slot_bytes[MODEL_SLOTS_MAX];
    uint32_t count;
    uint64_t used;
    uint16_t owner[16 * 1024 * 1024 / 4096]; /* Of each page of the arena: slot + 1, 0: nobody. */
};

static void
model_owner_set(struct model *model, uint32_t index, uint16_t from, uint16_t to)
{
    const uint8_t *address = slab_address(model->fixture.slab, model->slots[index]);
    size_t first = (size_t)(address - model->fixture.arena) / PAGE_BYTES;

    assert_true(first + model->slot_bytes[index] / PAGE_BYTES <= model->fixture.size / PAGE_BYTES);
    for (size_t i = 0; i < model->slot_bytes[index] / PAGE_BYTES; i++) {
        assert_int_equal(model->owner[first + i], from);
        model->owner[first + i] = to;
    }
}

static void
model_put(struct model *model)
{
    uint32_t index = rng_below(&model->rng, model->count);
    struct slot slot = model->slots[index];

    assert_true(slab_is_current(model->fixture.slab, slot));
    model_owner_set(model, index, (uint16_t)(index + 1), 0);
    assert_true(slab_put(model->fixture.slab, slot));
    assert_false(slab_is_current(model->fixture.slab, slot));
    assert_false(slab_put(model->fixture.slab, slot));
    model->used -= model->slot_bytes[index];
    model->count--;
    if (index != model->count) {
        uint16_t last = (uint16_t)(model->count + 1);

        model->slots[index] = model->slots[model->count];
        model->slot_bytes[index] = model->slot_bytes[model->count];
        model_owner_set(model, index, last, (uint16_t)(index + 1));
    }
}

static void
model_take(struct model *model)
{
    size_t size = model->sizes[rng_below(&model->rng, MODEL_SIZES)];
    uint32_t index = model->count;
    enum kvt_status status;

    if (index == MODEL_SLOTS_MAX)
        return;
    status = slab_take(model->fixture.slab, size, &model->slots[index]);
    if (status == KVT_E_NOSPC) {
        /* Never while a superblock is free. */
        assert_true(slab_committed(model->fixture.slab) == slab_capacity(model->fixture.slab));
        return;
    }
    assert_int_equal(status, KVT_OK);
    model->slot_bytes[index] = slab_slot_bytes(model->fixture.slab, model->slots[index]);
    assert_true(model->slot_bytes[index] >= size);
    model_owner_set(model, index, 0, (uint16_t)(index + 1));
    model->used += model->slot_bytes[index];
    model->count++;
}

/* `size_max`: of a slot that is asked for. */
static void
model_run(size_t superblock_bytes, uint32_t size_max)
{
    static struct model model;

    memset(&model, 0, sizeof(model));
    model.rng.state = size_max;
    fixture_open(&model.fixture, 16 * MIB, superblock_bytes, size_max);
    for (uint32_t i = 0; i < MODEL_SIZES; i++)
        model.sizes[i] = 1 + rng_below(&model.rng, size_max);
    for (uint32_t i = 0; i < MODEL_STEPS; i++) {
        /* Phases of filling and of emptying, so that superblocks change their class. */
        bool fills = i / 3000 % 2 == 0;

        if (model.count == 0 || rng_below(&model.rng, 100) < (fills ? 70u : 30u))
            model_take(&model);
        else
            model_put(&model);
        assert_int_equal(slab_used(model.fixture.slab), model.used);
        if (i % 97 == 0)
            slab_check(model.fixture.slab);
    }
    while (model.count > 0)
        model_put(&model);
    assert_int_equal(slab_used(model.fixture.slab), 0);
    assert_int_equal(slab_committed(model.fixture.slab), 0);
    fixture_close(&model.fixture);
}

static void
slots_never_overlap_and_counts_agree_with_a_list(void **state)
{
    (void)state;
    model_run(256 * KIB, 128 * 1024);
    model_run(2 * MIB, 9000); /* Bitmaps of several words. */
}

/* --- Classes ---------------------------------------------------------------------------------- */

static void
a_size_gets_slots_of_exactly_its_pages(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, 16 * MIB, 0, 2 * MIB);
    for (size_t pages = 1; pages <= 31; pages += 2) {
        struct slot slot = take(&fixture, pages * PAGE_BYTES - 17);

        assert_int_equal(slab_slot_bytes(fixture.slab, slot), pages * PAGE_BYTES);
        assert_true(slab_put(fixture.slab, slot));
    }
    fixture_close(&fixture);
}

static void
a_size_beyond_the_last_class_takes_the_smallest_that_holds_it(void **state)
{
    struct fixture fixture;
    struct slot slots[SLAB_CLASS_MAX];
    struct slot slot;

    (void)state;
    fixture_open(&fixture, 64 * MIB, 512 * KIB, 512 * KIB);
    /* Classes of 2, 4, ... 62 pages; with that of 128 pages there are 32. */
    for (uint32_t i = 1; i < SLAB_CLASS_MAX; i++)
        slots[i] = take(&fixture, (size_t)i * 2 * PAGE_BYTES);
    slot = take(&fixture, 7 * PAGE_BYTES);
    assert_int_equal(slab_slot_bytes(fixture.slab, slot), 8 * PAGE_BYTES);
    assert_true(slab_put(fixture.slab, slot));
    slot = take(&fixture, 63 * PAGE_BYTES);
    assert_int_equal(slab_slot_bytes(fixture.slab, slot), 128 * PAGE_BYTES);
    assert_true(slab_put(fixture.slab, slot));

    /* A class that lost its last superblock serves the next new size. */
    assert_true(slab_put(fixture.slab, slots[5]));
    slot = take(&fixture, 7 * PAGE_BYTES);
    assert_int_equal(slab_slot_bytes(fixture.slab, slot), 7 * PAGE_BYTES);
    fixture_close(&fixture);
}

static void
a_superblock_changes_class_only_when_it_is_empty(void **state)
{
    struct fixture fixture;
    struct slot small[16];
    struct slot large;

    (void)state;
    /* One superblock of 16 pages. */
    fixture_open(&fixture, 16 * PAGE_BYTES, 16 * PAGE_BYTES, 16 * PAGE_BYTES);
    for (uint32_t i = 0; i < 16; i++)
        small[i] = take(&fixture, PAGE_BYTES);
    assert_int_equal(slab_take(fixture.slab, PAGE_BYTES, &large), KVT_E_NOSPC);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(slab_take(fixture.slab, 16 * PAGE_BYTES, &large), KVT_E_NOSPC);
        assert_true(slab_put(fixture.slab, small[i]));
    }
    large = take(&fixture, 16 * PAGE_BYTES);
    assert_int_equal(slab_used(fixture.slab), 16 * PAGE_BYTES);
    /* References from the other class are stale, although some of those pages are in use. */
    for (uint32_t i = 0; i < 16; i++) {
        assert_false(slab_is_current(fixture.slab, small[i]));
        assert_false(slab_put(fixture.slab, small[i]));
    }
    assert_true(slab_is_current(fixture.slab, large));
    fixture_close(&fixture);
}

static void
no_slot_crosses_a_superblock(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, 8 * MIB, 256 * KIB, 256 * KIB);
    for (;;) {
        struct slot slot;
        size_t offset;

        if (slab_take(fixture.slab, 20 * KIB, &slot) != KVT_OK)
            break;
        offset = (size_t)((uint8_t *)slab_address(fixture.slab, slot) - fixture.arena);
        assert_int_equal(offset / (256 * KIB), (offset + 20 * KIB - 1) / (256 * KIB));
    }
    /* 12 slots of 20 KiB in each of 32 superblocks. */
    assert_int_equal(slab_used(fixture.slab), 32 * 12 * 20 * KIB);
    fixture_close(&fixture);
}

/* --- Emptying superblocks --------------------------------------------------------------------- */

static void
a_class_with_a_superblocks_worth_of_free_slots_can_empty_one(void **state)
{
    struct slot slots[16];
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, 8 * 256 * KIB, 256 * KIB, 256 * KIB);
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 0), UINT32_MAX);
    for (uint32_t i = 0; i < 16; i++)
        slots[i] = take(&fixture, 64 * KIB);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 0), UINT32_MAX);
        assert_true(slab_put(fixture.slab, slots[4 * i]));
    }
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 0), 0);
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 2), 2);
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 4), 0);
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 9), 1); /* Of eight it is the second. */
    assert_int_equal(slab_emptiable(fixture.slab, 64 * KIB, 0), UINT32_MAX);
    /* Of one superblock nothing can go to another. */
    for (uint32_t i = 4; i < 16; i++) {
        if (i % 4 != 0)
            assert_true(slab_put(fixture.slab, slots[i]));
    }
    assert_int_equal(slab_emptiable(fixture.slab, 4 * KIB, 0), UINT32_MAX);
    fixture_close(&fixture);
}

static void
a_superblock_is_emptied_slot_by_slot(void **state)
{
    struct slot slots[16], slot, beside;
    uint32_t cursor = 0, count = 0, owner;
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, 4 * 256 * KIB, 256 * KIB, 256 * KIB);
    for (uint32_t i = 0; i < 16; i++) {
        slots[i] = take(&fixture, 64 * KIB);
        if (i != 7)
            slab_own(fixture.slab, slots[i], 100 + i);
    }
    assert_false(slab_take_beside(fixture.slab, slots[5], &beside));
    for (uint32_t i = 0; i < 4; i++)
        assert_true(slab_put(fixture.slab, slots[4 * i]));
    while (slab_taken_next(fixture.slab, 1, &cursor, &slot, &owner)) {
        uint32_t i = 5 + count++;

        assert_memory_equal(&slot, &slots[i], sizeof(slot));
        assert_int_equal(owner, i == 7 ? UINT32_MAX : 100 + i);
        assert_true(slab_take_beside(fixture.slab, slot, &beside));
        assert_int_not_equal(superblock_of(&fixture, beside), 1);
        assert_int_equal(slab_slot_bytes(fixture.slab, beside), 64 * KIB);
        slab_own(fixture.slab, beside, owner);
        assert_true(slab_put(fixture.slab, slot));
        slab_check(fixture.slab);
    }
    assert_int_equal(count, 3);
    slot = take(&fixture, 4 * KIB);
    assert_int_equal(superblock_of(&fixture, slot), 1);
    cursor = 0;
    /* Nobody owns what was taken anew. */
    assert_true(slab_taken_next(fixture.slab, 1, &cursor, &slot, &owner));
    assert_int_equal(owner, UINT32_MAX);
    assert_false(slab_taken_next(fixture.slab, 1, &cursor, &slot, &owner));
    fixture_close(&fixture);
}

/* --- Generations and misuse ------------------------------------------------------------------- */

static void
a_slot_that_was_put_is_stale_for_ever(void **state)
{
    struct fixture fixture;
    struct slot first;

    (void)state;
    fixture_open(&fixture, 2 * MIB, 256 * KIB, 64 * KIB);
    first = take(&fixture, 64 * KIB);
    assert_true(slab_put(fixture.slab, first));
    for (uint32_t i = 0; i < 100; i++) {
        struct slot again = take(&fixture, 64 * KIB);

        assert_int_equal(again.number, first.number);
        assert_true(again.generation > first.generation);
        assert_false(slab_is_current(fixture.slab, first));
        assert_false(slab_put(fixture.slab, first));
        assert_true(slab_is_current(fixture.slab, again));
        assert_true(slab_put(fixture.slab, again));
    }
    fixture_close(&fixture);
}

static void
a_slot_that_was_never_taken_is_refused(void **state)
{
    struct fixture fixture;
    struct slot slot, other;
    uint32_t stride;

    (void)state;
    fixture_open(&fixture, 2 * MIB, 256 * KIB, 64 * KIB);
    slot = take(&fixture, 64 * KIB);
    for (uint32_t number = 0; number < 1u << 20; number += 4093) {
        struct slot forged = {.number = slot.number + number + 1, .generation = slot.generation};

        assert_false(slab_is_current(fixture.slab, forged));
        assert_false(slab_put(fixture.slab, forged));
    }
    /* The first of the superblock behind the last: the address sanitizer would see it looked up. */
    other = take(&fixture, 4 * KIB);
    stride = (other.number - slot.number) /
             (superblock_of(&fixture, other) - superblock_of(&fixture, slot));
    assert_false(slab_is_current(
        fixture.slab, (struct slot){.number = 2 * MIB / (256 * KIB) * stride, .generation = 1}));
    assert_true(slab_put(fixture.slab, other));
    assert_null(slab_address(fixture.slab, (struct slot){.number = UINT32_MAX}));
    assert_int_equal(slab_slot_bytes(fixture.slab, (struct slot){.number = UINT32_MAX}), 0);
    assert_int_equal(slab_used(fixture.slab), 64 * KIB);
    fixture_close(&fixture);
}

static void
impossible_sizes_are_refused(void **state)
{
    struct fixture fixture;
    struct slot slot;
    struct slab *slab;

    (void)state;
    fixture_open(&fixture, 2 * MIB, 256 * KIB, 64 * KIB);
    assert_int_equal(slab_take(fixture.slab, 0, &slot), KVT_E_INVAL);
    assert_int_equal(slab_take(fixture.slab, 64 * KIB + 1, &slot), KVT_E_INVAL);
    assert_int_equal(slab_take(fixture.slab, SIZE_MAX, &slot), KVT_E_INVAL);

#define REFUSED(size, superblock, slot_max) \
    assert_int_equal(                       \
        slab_open(&fixture.env, fixture.arena, size, superblock, slot_max, &slab), KVT_E_INVAL)
    REFUSED(2 * MIB, 256 * KIB, 0);
    REFUSED(2 * MIB, 256 * KIB, 257 * KIB);
    REFUSED(2 * MIB, 255 * KIB, 64 * KIB);
    REFUSED(2 * MIB, 4 * MIB, 64 * KIB);
    REFUSED(2 * MIB - 1, 256 * KIB, 64 * KIB);
    REFUSED(2 * MIB, 128 * MIB, 64 * KIB);
    REFUSED(2 * MIB, 0, 65 * MIB);
    REFUSED((size_t)1 << 50, 4 * KIB, 4 * KIB);
#undef REFUSED
    fixture_close(&fixture);
}

static void
the_superblock_is_chosen_from_the_size(void **state)
{
    struct fixture fixture;
    struct slot slot;

    (void)state;
    /* 1/64 of 16 MiB is 256 KiB; a slot of 3 MiB needs 4 MiB. */
    fixture_open(&fixture, 16 * MIB, 0, 64 * KIB);
    slot = take(&fixture, 4 * KIB);
    assert_int_equal(slab_committed(fixture.slab), 256 * KIB);
    assert_true(slab_put(fixture.slab, slot));
    fixture_close(&fixture);
    fixture_open(&fixture, 18 * MIB, 0, 3 * MIB);
    slot = take(&fixture, 4 * KIB);
    assert_int_equal(slab_committed(fixture.slab), 4 * MIB);
    assert_int_equal(slab_capacity(fixture.slab), 16 * MIB);
    fixture_close(&fixture);
}

/* So options can tell before anything is made. */
static void
the_smallest_arena_is_told_before(void **state)
{
    static const size_t slots[] = {1, 64 * KIB, 64 * KIB + 1, 5 * MIB, 8 * MIB, 64 * MIB};
    struct fixture fixture;
    struct slab *slab;

    (void)state;
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        size_t least = (size_t)slab_bytes_min(slots[i]);

        fixture_open(&fixture, least, 0, slots[i]);
        assert_int_equal(
            slab_open(&fixture.env, fixture.arena, least - PAGE_BYTES, 0, slots[i], &slab),
            KVT_E_INVAL);
        assert_int_equal(slab_open(&fixture.env, fixture.arena, SLAB_BYTES_END, 0, slots[i], &slab),
            KVT_E_INVAL);
        fixture_close(&fixture);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_never_overlap_and_counts_agree_with_a_list),
        cmocka_unit_test(a_size_gets_slots_of_exactly_its_pages),
        cmocka_unit_test(a_size_beyond_the_last_class_takes_the_smallest_that_holds_it),
        cmocka_unit_test(a_superblock_changes_class_only_when_it_is_empty),
        cmocka_unit_test(no_slot_crosses_a_superblock),
        cmocka_unit_test(a_class_with_a_superblocks_worth_of_free_slots_can_empty_one),
        cmocka_unit_test(a_superblock_is_emptied_slot_by_slot),
        cmocka_unit_test(a_slot_that_was_put_is_stale_for_ever),
        cmocka_unit_test(the_smallest_arena_is_told_before),
        cmocka_unit_test(a_slot_that_was_never_taken_is_refused),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(the_superblock_is_chosen_from_the_size),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
