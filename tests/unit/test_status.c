/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_status.c - the number and the name of each status: both are promises to callers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/status.h"
#include "try.h"

struct row {
    enum kvt_status status;
    int number;
    const char *name;
};

static const struct row rows[] = {
    {KVT_OK, 0, "KVT_OK"},
    {KVT_MISS, 1, "KVT_MISS"},
    {KVT_LATE, 2, "KVT_LATE"},
    {KVT_EXISTS, 3, "KVT_EXISTS"},
    {KVT_NOT_READY, 4, "KVT_NOT_READY"},
    {KVT_CANCELLED, 5, "KVT_CANCELLED"},
    {KVT_OVERRUN, 6, "KVT_OVERRUN"},
    {KVT_E_INVAL, -100, "KVT_E_INVAL"},
    {KVT_E_UNSUPPORTED, -101, "KVT_E_UNSUPPORTED"},
    {KVT_E_STATE, -102, "KVT_E_STATE"},
    {KVT_E_LOCKED, -103, "KVT_E_LOCKED"},
    {KVT_E_PERMISSION, -104, "KVT_E_PERMISSION"},
    {KVT_E_NOMEM, -200, "KVT_E_NOMEM"},
    {KVT_E_NOSPC, -201, "KVT_E_NOSPC"},
    {KVT_E_BUSY, -202, "KVT_E_BUSY"},
    {KVT_E_IO, -300, "KVT_E_IO"},
    {KVT_E_GPU, -301, "KVT_E_GPU"},
    {KVT_E_META, -302, "KVT_E_META"},
    {KVT_E_READONLY, -303, "KVT_E_READONLY"},
    {KVT_E_CORRUPT, -400, "KVT_E_CORRUPT"},
    {KVT_E_FORMAT, -401, "KVT_E_FORMAT"},
    {KVT_E_POISONED, -900, "KVT_E_POISONED"},
};

enum {
    ROW_COUNT = sizeof(rows) / sizeof(rows[0]),
};

static void
each_status_has_its_number_and_its_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        assert_int_equal(rows[i].status, rows[i].number);
        assert_string_equal(kvt_status_name(rows[i].status), rows[i].name);
    }
}

static void
no_other_number_has_a_name(void **state)
{
    size_t named_count = 0;

    (void)state;
    for (int number = -1000; number <= 1000; number++) {
        if (strcmp(kvt_status_name((enum kvt_status)number), "KVT_?") != 0)
            named_count++;
    }
    assert_int_equal(named_count, ROW_COUNT);
}

static void
first_error_is_kept_unless_the_clean_up_was_poisoned(void **state)
{
    (void)state;
    assert_int_equal(status_keep(KVT_OK, KVT_OK), KVT_OK);
    assert_int_equal(status_keep(KVT_OK, KVT_E_IO), KVT_E_IO);
    assert_int_equal(status_keep(KVT_E_NOSPC, KVT_E_IO), KVT_E_NOSPC);
    assert_int_equal(status_keep(KVT_E_NOSPC, KVT_OK), KVT_E_NOSPC);
    assert_int_equal(status_keep(KVT_E_NOSPC, KVT_E_POISONED), KVT_E_POISONED);
    assert_int_equal(status_keep(KVT_E_POISONED, KVT_E_IO), KVT_E_POISONED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_has_its_number_and_its_name),
        cmocka_unit_test(no_other_number_has_a_name),
        cmocka_unit_test(first_error_is_kept_unless_the_clean_up_was_poisoned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
