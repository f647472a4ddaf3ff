/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_relocate_wrong.c - blocks whose bytes are wrong, or cannot be read, when their segment is
 * reclaimed: they leave the store, are counted, and never come back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "full_store.h"
#include "payload.h"
#include "stop_on_proof.h"

enum {
    STEPS_MAX = 200000
};

/* NVMe alone has the hot blocks. */
static void
hot_leave_host(struct full_store *full)
{
    for (uint64_t key = 0; key < FULL_HOT; key++) {
        struct payload_key name;
        kvt_ticket *ticket;

        payload_key_make(&name, key);
        assert_int_equal(
            kvt_demote_submit(full->store, full->ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket),
            KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        kvt_ticket_free(ticket);
    }
}

/* Churn, with the rule for each read of data, until a relocation has met it. */
static void
relocation_meets_rule(
    struct full_store *full, const struct sim_rule *rule, const _Atomic uint64_t *met_count)
{
    for (uint32_t i = 0; i < 3 * FULL_BLOCKS && atomic_load(met_count) == 0; i++) {
        kvt_ticket *ticket;

        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        hot_leave_host(full);
        ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        sim_rule_add(full->world, rule);
        assert_int_equal(full_result(ticket), KVT_OK);
        for (uint32_t n = 0; n < STEPS_MAX && !relocate_is_idle(full->store); n++)
            sim_run_steps(full->world, 1);
        sim_rules_clear(full->world);
    }
    assert_int_not_equal(atomic_load(met_count), 0);
}

static void
a_block_that_is_wrong_when_it_is_moved_leaves_for_good(void **state)
{
    static const enum sim_effect effects[] = {SIM_FLIP, SIM_MISDIRECT, SIM_EIO};

    (void)state;
    for (uint32_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = effects[i], .file = "data.", .nth = 1, .sticky = true};
        struct full_store *full = full_begin(800 + i, FULL_SEGMENTS);
        const _Atomic uint64_t *met_count = effects[i] == SIM_EIO
                                                ? &full->store->counters.read_failed_count
                                                : &full->store->counters.corrupt_count;
        bool has_left[FULL_HOT];
        uint64_t left_count = 0;

        full_fill(full);
        relocation_meets_rule(full, &rule, met_count);
        for (uint64_t key = 0; key < FULL_HOT; key++) {
            has_left[key] = full_entry(full, key) == ENTRY_NONE;
            left_count += has_left[key];
        }
        assert_int_equal(left_count, atomic_load(met_count));
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        for (uint32_t life = 0; life < 3; life++) {
            for (uint64_t key = 0; key < FULL_HOT; key++)
                assert_int_equal(
                    full_expect_at_most(full, key, has_left[key] ? 0 : 1), !has_left[key]);
            if (life < 2)
                full_again(full, life == 0 ? 0 : KVT_OPEN_REBUILD);
        }
        full_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_is_wrong_when_it_is_moved_leaves_for_good),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
