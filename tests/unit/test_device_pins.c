/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_pins.c - host memory that several devices of a process register: who pins it, who
 * unpins it, and what is kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device_pins.h"
#include "failure.h"

static struct {
    uint32_t pin_count, unpin_count;
    enum kvt_status answer; /* Of the next call. */
    void *last;             /* Which device made it. */
} seen;

static enum kvt_status
pin_answer(void *device, struct device_pin *pin)
{
    pin->context = device;
    seen.last = device;
    seen.pin_count++;
    return seen.answer;
}

static enum kvt_status
unpin_answer(void *device, const struct device_pin *pin)
{
    assert_non_null(pin->context);
    seen.last = device;
    seen.unpin_count++;
    return seen.answer;
}

static const struct device_pin_driver driver = {.pin = pin_answer, .unpin = unpin_answer};
static const struct device_pin_driver other_kind = {.pin = pin_answer, .unpin = unpin_answer};
static int first, second; /* Devices. */

static int
setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    return 0;
}

static void
first_pins_and_last_unpins(void **state)
{
    (void)state;
    assert_int_equal(device_pins_take(&driver, &first, 4096, 8192), KVT_OK);
    assert_int_equal(device_pins_take(&driver, &second, 4096, 8192), KVT_OK);
    assert_int_equal(seen.pin_count, 1);
    assert_ptr_equal(seen.last, &first);
    assert_int_equal(device_pins_put(&driver, &first, 4096, 8192), KVT_OK);
    assert_int_equal(seen.unpin_count, 0);
    assert_int_equal(device_pins_put(&driver, &second, 4096, 8192), KVT_OK);
    assert_int_equal(seen.unpin_count, 1);
    assert_ptr_equal(seen.last, &second);
}

static void
parts_are_refused_and_neighbours_are_not(void **state)
{
    static const uint64_t bad[][2] = {
        {4096, 4096}, {8192, 4096}, {8192, 8192}, {0, 8192}, {0, 65536}, {4096, 12288}};

    (void)state;
    assert_int_equal(device_pins_take(&driver, &first, 4096, 8192), KVT_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(device_pins_take(&driver, &second, bad[i][0], bad[i][1]), KVT_E_INVAL);
        assert_non_null(strstr(failure_last()->text, "not the same"));
    }
    assert_int_equal(device_pins_take(&driver, &second, 0, 4096), KVT_OK);
    assert_int_equal(device_pins_take(&driver, &second, 12288, 4096), KVT_OK);
    /* Devices of another kind pin for themselves. */
    assert_int_equal(device_pins_take(&other_kind, &second, 0, 65536), KVT_OK);
    assert_int_equal(seen.pin_count, 4);
    assert_int_equal(device_pins_put(&other_kind, &second, 0, 65536), KVT_OK);
    assert_int_equal(device_pins_put(&driver, &second, 12288, 4096), KVT_OK);
    assert_int_equal(device_pins_put(&driver, &second, 0, 4096), KVT_OK);
    assert_int_equal(device_pins_put(&driver, &first, 4096, 8192), KVT_OK);
    assert_int_equal(seen.unpin_count, 4);
}

static void
what_was_not_pinned_is_not_noted(void **state)
{
    (void)state;
    seen.answer = KVT_MISS;
    assert_int_equal(device_pins_take(&driver, &first, 4096, 4096), KVT_MISS);
    seen.answer = KVT_E_NOMEM;
    assert_int_equal(device_pins_take(&driver, &first, 0, 65536), KVT_E_NOMEM);
    seen.answer = KVT_OK;
    assert_int_equal(device_pins_take(&driver, &second, 8192, 4096), KVT_OK);
    assert_int_equal(device_pins_put(&driver, &second, 8192, 4096), KVT_OK);
}

static void
what_cannot_be_unpinned_is_kept(void **state)
{
    uint64_t address = UINT64_C(1) << 40;

    (void)state;
    assert_int_equal(device_pins_take(&driver, &first, address, 4096), KVT_OK);
    seen.answer = KVT_E_GPU;
    assert_int_equal(device_pins_put(&driver, &first, address, 4096), KVT_E_GPU);
    seen.answer = KVT_OK;
    assert_int_equal(device_pins_take(&driver, &second, address, 4096), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "kept"));
    /* Of two, one did not stop: nor can the other give it back. */
    address += 4096;
    assert_int_equal(device_pins_take(&driver, &first, address, 4096), KVT_OK);
    assert_int_equal(device_pins_take(&driver, &second, address, 4096), KVT_OK);
    device_pins_keep(&driver, address, 4096);
    seen.unpin_count = 0;
    assert_int_equal(device_pins_put(&driver, &second, address, 4096), KVT_E_GPU);
    assert_int_equal(seen.unpin_count, 0);
    assert_int_equal(device_pins_take(&driver, &first, address, 4096), KVT_E_INVAL);
}

static void
ranges_are_bounded(void **state)
{
    uint64_t base = UINT64_C(2) << 40;
    uint64_t count = 0;

    (void)state;
    while (device_pins_take(&driver, &first, base + count * 4096, 4096) == KVT_OK)
        count++;
    assert_int_equal(failure_last()->status, KVT_E_NOMEM);
    assert_in_range(count, DEVICE_PINS_MAX - 8, DEVICE_PINS_MAX); /* Others are kept. */
    while (count > 0)
        assert_int_equal(device_pins_put(&driver, &first, base + --count * 4096, 4096), KVT_OK);
}

/* It has none of the memory, and other memory where that was. */
static void
a_forked_child_begins_anew(void **state)
{
    uint64_t address = UINT64_C(3) << 40;
    int status = 1;
    pid_t child;

    (void)state;
    assert_int_equal(device_pins_take(&driver, &first, address, 8192), KVT_OK);
    child = fork();
    if (child == 0)
        _exit(device_pins_take(&driver, &second, address, 4096) == KVT_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(device_pins_put(&driver, &first, address, 8192), KVT_OK);
}

static pid_t forked;

static enum kvt_status
pin_and_fork(void *device, struct device_pin *pin)
{
    (void)device;
    (void)pin;
    forked = fork();
    if (forked == 0)
        _exit(device_pins_take(&driver, &second, UINT64_C(5) << 40, 4096) == KVT_OK ? 0 : 1);
    return KVT_OK;
}

/* While the table was being changed: nobody in the child would give its mutex back. */
static void
a_child_that_was_forked_meanwhile_begins_anew(void **state)
{
    static const struct device_pin_driver forking = {.pin = pin_and_fork};
    int status = 1;

    (void)state;
    assert_int_equal(device_pins_take(&forking, &first, UINT64_C(4) << 40, 8192), KVT_OK);
    assert_int_equal(waitpid(forked, &status, 0), forked);
    assert_int_equal(status, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(first_pins_and_last_unpins, setup),
        cmocka_unit_test_setup(parts_are_refused_and_neighbours_are_not, setup),
        cmocka_unit_test_setup(what_was_not_pinned_is_not_noted, setup),
        cmocka_unit_test_setup(what_cannot_be_unpinned_is_kept, setup),
        cmocka_unit_test_setup(ranges_are_bounded, setup),
        cmocka_unit_test_setup(a_forked_child_begins_anew, setup),
        cmocka_unit_test_setup(a_child_that_was_forked_meanwhile_begins_anew, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
