/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_namespace_count.c - as many namespaces as a store can have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim_store.h"
#include "store_kit.h"

enum {
    NAMESPACES_MAX = 4096,
};

static void
namespaces_are_bounded(void **state)
{
    struct kvt_options options = kit_options();
    struct sim_store sim;
    char name[32];
    kvt_namespace ns, last = {0};

    (void)state;
    sim_store_open(&sim, &options);
    for (uint32_t i = 1; i <= NAMESPACES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "space %u", i);
        assert_int_equal(kvt_namespace_open(sim.store, name, "", 0, &last), KVT_OK);
    }
    refused(kvt_namespace_open(sim.store, "one more", "", 0, &ns), KVT_E_NOSPC, "4096");
    assert_int_equal(ns.id, 0);
    assert_int_equal(kvt_namespace_open(sim.store, name, "", 0, &ns), KVT_OK);
    assert_int_equal(ns.id, last.id);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(namespaces_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
