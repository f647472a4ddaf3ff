/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_policy_nodes.c - in a store each HOST copy has a node of the policy, and nothing else has
 * one: whatever was prepared and did not come gave its node back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "full_store.h"
#include "payload.h"
#include "policy_nodes.h"
#include "stop_on_proof.h"

enum {
    BLOCKS = 16,
};

/* Nothing is under way any more. */
static void
nodes_check(const struct full_store *full)
{
    const kvt_store *store = full->store;
    uint32_t copy_count = 0;

    for (uint32_t i = 0; i < residency_number_limit(store->map); i++) {
        uint64_t word = atomic_load(&residency_at(store->map, i)->word);
        bool is_copy = word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_HOST) != 0;

        assert_int_equal(entries_has_copy(store->entries, POLICY_HOST, i), is_copy);
        assert_int_equal(entries_at(store->entries, i)->node != 0, is_copy);
        copy_count += is_copy;
    }
    assert_int_equal(policy_nodes_count(store->policy->nodes), copy_count);
}

static void
a_read_that_fails_leaves_no_node(void **state)
{
    static const enum sim_effect effects[] = {SIM_EIO, SIM_FLIP};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct full_store *full = full_begin(i + 1, FULL_SEGMENTS);
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = effects[i], .file = "data.", .nth = 1, .sticky = true};
        uint64_t version;

        full_put(full, 1, 1);
        assert_true(entry_host_release(full->store, full_entry(full, 1), KVT_REASON_EVICTED));
        nodes_check(full);
        sim_rule_add(full->world, &rule);
        assert_int_equal(kit_get(full->store, full->ns, 1, &version), KVT_MISS);
        assert_true(sim_fault_count(full->world) > 0);
        sim_rules_clear(full->world);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        nodes_check(full);
        assert_int_equal(full_expect_at_most(full, 1, 1), effects[i] == SIM_EIO);
        nodes_check(full);
        full_end(full);
    }
}

/* The clear comes while the workers fill. */
static void
a_put_that_a_clear_overtakes_leaves_no_node(void **state)
{
    struct full_store *full = full_begin(3, FULL_SEGMENTS);
    kvt_ticket *tickets[BLOCKS];
    uint32_t overtaken_count = 0;

    (void)state;
    for (uint64_t i = 0; i < BLOCKS; i++) {
        struct payload_key key;

        payload_key_make(&key, i);
        const struct kvt_put put = {.key = key.key, .source = full->bytes, .length = 4096};
        assert_int_equal(
            kvt_put_submit(full->store, full->ns, &put, 1, KVT_MEMORY, NULL, &tickets[i]), KVT_OK);
    }
    assert_int_equal(kvt_namespace_clear(full->store, full->ns), KVT_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct kvt_result result = {0};

        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        assert_int_equal(kvt_ticket_results(tickets[i], KVT_STAGE_DONE, &result, 1), KVT_OK);
        overtaken_count += result.status == KVT_MISS;
        kvt_ticket_free(tickets[i]);
    }
    assert_true(overtaken_count > 0);
    nodes_check(full);
    full_end(full);
}

static void
a_store_that_evicts_and_deletes_keeps_a_node_for_each_copy(void **state)
{
    struct full_store *full = full_begin(4, FULL_SEGMENTS);

    (void)state;
    full_fill(full);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        full_churn(full);
        (void)kit_put(full->store, full->ns, i, 1, 5000, KVT_MEMORY);
        (void)kit_delete(full->store, full->ns, i / 2);
    }
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    nodes_check(full);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_that_fails_leaves_no_node),
        cmocka_unit_test(a_put_that_a_clear_overtakes_leaves_no_node),
        cmocka_unit_test(a_store_that_evicts_and_deletes_keeps_a_node_for_each_copy),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
