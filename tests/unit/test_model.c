/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model.c - the model calls every wrong answer wrong, and no right one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model_kit.h"

static const struct model_name name = {.space = 1, .key = 3};

static uint64_t
put(struct model *model, bool replaces, bool is_lasting)
{
    uint64_t op = model_put(model, name, replaces, is_lasting);

    model_put_visible(model, name, op);
    return op;
}

static void
right(struct model *model)
{
    assert_string_equal(model->failure, "");
}

static void
wrong(struct model *model)
{
    assert_string_not_equal(model->failure, "");
}

static void
version_that_was_put_is_right_and_a_miss_is_wrong(void **state)
{
    struct model *model = *state;

    model_read_version(model, name, 0);
    put(model, false, true);
    model_read_version(model, name, 1);
    right(model);
    model_read_version(model, name, 0);
    wrong(model);
}

static void
one_wrong_bit_is_wrong(void **state)
{
    struct model *model = *state;
    static uint8_t bytes[8 * 4096];
    uint64_t length = model_length(model, name, 1);

    put(model, false, true);
    model_fill(model, name, 1, bytes);
    model_read(model, name, bytes, length);
    right(model);
    bytes[length - 1] ^= 0x80;
    model_read(model, name, bytes, length);
    wrong(model);
}

/* The bytes of the sectors `one` and `other`, wherever they stand. */
static void
sectors_swap(uint8_t *bytes, size_t one, size_t other)
{
    uint8_t sector[512];

    memcpy(sector, bytes + one * 512, 512);
    memmove(bytes + one * 512, bytes + other * 512, 512);
    memcpy(bytes + other * 512, sector, 512);
}

static void
bytes_of_another_place_version_or_name_are_wrong(void **state)
{
    struct model *model = *state;
    const struct model_name other = {.space = 1, .key = 4};
    static uint8_t bytes[8 * 4096], others[8 * 4096];
    uint64_t length = model_length(model, name, 1);

    assert_true(length > 2 * 512);
    for (size_t sector = 1; sector < length / 512; sector++) {
        model_fill(model, name, 1, bytes);
        assert_true(model_is(model, name, 1, bytes, length));
        sectors_swap(bytes, 0, sector);
        assert_false(model_is(model, name, 1, bytes, length));
        sectors_swap(bytes, 0, sector);
        assert_true(model_is(model, name, 1, bytes, length));
        for (uint32_t version = 2; version < 12; version++) {
            model_fill(model, version % 2 == 0 ? name : other, version, others);
            assert_memory_not_equal(bytes + sector * 512, others + sector * 512, 512);
        }
    }
    model_fill(model, name, 1, bytes);
    memmove(bytes, bytes + 8, length - 8);
    assert_false(model_is(model, name, 1, bytes, length));
}

static void
replaced_version_that_comes_back_is_wrong(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    put(model, true, true);
    model_read_version(model, name, 2);
    right(model);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
deleted_block_that_is_found_is_wrong(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    model_deleted(model, name, model_delete(model, name), true);
    model_found(model, name, false);
    right(model);
    model_found(model, name, true);
    wrong(model);
}

static void
acknowledged_block_must_survive(void **state)
{
    struct model *model = *state;

    model_ack(model, name, put(model, false, true));
    model_reopened(model, false);
    model_read_version(model, name, 1);
    right(model);
    model_reopened(model, false);
    model_read_version(model, name, 0);
    wrong(model);
}

static void
block_nobody_acknowledged_may_survive_or_not(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    model_reopened(model, false);
    model_read_version(model, name, 1);
    model_reopened(model, false);
    model_read_version(model, name, 0);
    right(model);
}

static void
acknowledged_delete_lasts_and_another_may_be_undone(void **state)
{
    struct model *model = *state;
    uint64_t op;

    model_ack(model, name, put(model, false, true));
    op = model_delete(model, name);
    model_deleted(model, name, op, true);
    model_reopened(model, false);
    model_read_version(model, name, 1);
    right(model);
    model_reopened(model, false);
    op = model_delete(model, name);
    model_deleted(model, name, op, true);
    model_ack(model, name, op);
    model_reopened(model, true);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
flush_covers_lasting_puts_only(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    put(model, true, false); /* In memory only: it, the old one, or nothing. */
    model_ack_all(model);
    for (uint32_t version = 0; version <= 2; version++) {
        model_reopened(model, false);
        model_read_version(model, name, version);
    }
    right(model);
    put(model, true, true);
    model_ack_all(model);
    model_reopened(model, false);
    model_read_version(model, name, 2);
    wrong(model);
}

static void
what_an_open_found_stays_but_a_rebuild_may_know_more(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    model_reopened(model, false);
    model_read_version(model, name, 0);
    model_settled(model, true);
    model_reopened(model, true);
    model_read_version(model, name, 1);
    right(model);
    model_reopened(model, false);
    model_read_version(model, name, 1);
    wrong(model);
}

/* A rebuild may know more than an open that found nothing, unless somebody was told that nothing
 * comes back. A flush tells nobody. */
static void
delete_of_nothing_lasts_when_it_was_acknowledged(void **state)
{
    struct model *model = *state;
    uint64_t op;

    put(model, false, true);
    for (uint32_t is_told = 0; is_told < 2; is_told++) {
        model_reopened(model, false);
        model_read_version(model, name, 0);
        model_settled(model, true);
        op = model_delete(model, name);
        model_deleted(model, name, op, false);
        if (is_told == 1)
            model_ack(model, name, op);
        else
            model_ack_all(model);
        model_reopened(model, true);
        right(model);
        model_read_version(model, name, 1);
    }
    wrong(model);
}

static void
cleared_namespace_is_empty_for_good(void **state)
{
    struct model *model = *state;

    put(model, false, true);
    model_clear_begin(model, name.space);
    model_clear_end(model, name.space, true);
    model_read_version(model, name, 0);
    model_reopened(model, true);
    model_read_version(model, name, 0);
    right(model);
    model_reopened(model, true);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
put_that_found_its_key_proves_that_it_is_there(void **state)
{
    struct model *model = *state;
    uint64_t op;

    put(model, false, false);
    op = model_put(model, name, false, true);
    model_put_exists(model, name, op);
    model_ack_present(model, name, op);
    model_reopened(model, false);
    model_read_version(model, name, 1);
    right(model);
    model_reopened(model, false);
    model_read_version(model, name, 0);
    wrong(model);
}

static void
evicted_blocks_may_be_missed_but_not_replaced(void **state)
{
    struct model *model = *state;

    model->may_miss = model->may_be_gone = true;
    put(model, false, true);
    put(model, true, true);
    model_read_version(model, name, 0);
    model_read_version(model, name, 2);
    right(model);
    model_read_version(model, name, 1);
    wrong(model);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            version_that_was_put_is_right_and_a_miss_is_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(one_wrong_bit_is_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            bytes_of_another_place_version_or_name_are_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            replaced_version_that_comes_back_is_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            deleted_block_that_is_found_is_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            acknowledged_block_must_survive, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            block_nobody_acknowledged_may_survive_or_not, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            acknowledged_delete_lasts_and_another_may_be_undone, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            flush_covers_lasting_puts_only, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            what_an_open_found_stays_but_a_rebuild_may_know_more, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            delete_of_nothing_lasts_when_it_was_acknowledged, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            cleared_namespace_is_empty_for_good, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            put_that_found_its_key_proves_that_it_is_there, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            evicted_blocks_may_be_missed_but_not_replaced, model_setup, model_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
