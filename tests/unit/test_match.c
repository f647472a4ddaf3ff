/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_match.c - kvt_match() beside the plainest reading of its comment, and what it refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "scratch_dir.h"
#include "seeds.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    CHAIN_MAX = 200, /* More than three times LOOKUP_KEYS. */
    COMPONENTS_MAX = 4,
    SEEDS = 150,
    LEASES = 4,
};

struct chain {
    struct payload_key names[CHAIN_MAX];
    struct kvt_key keys[CHAIN_MAX];
    uint32_t count;
    struct kvt_match_component components[COMPONENTS_MAX];
    uint32_t component_count;
    bool is_there[COMPONENTS_MAX][CHAIN_MAX];
};

static struct chain chain;
static struct scratch_dir scratch;
static kvt_store *store;
static kvt_namespace ns;

static int
store_setup(void **state)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    (void)state;
    scratch_dir_make(&scratch);
    options.host_capacity_bytes = UINT64_C(1) << 30;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.lease_count_max = LEASES;
    assert_int_equal(kvt_open(scratch_path(&scratch, "store"), &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "match", "", 0, &ns), KVT_OK);
    return 0;
}

static int
store_teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_close(store), KVT_OK);
    scratch_dir_remove(&scratch);
    return 0;
}

static void
block_put(uint32_t c, uint32_t i)
{
    static const uint8_t bytes[64] = {1};
    struct kvt_put put = {.key = chain.keys[i], .source = bytes, .length = sizeof(bytes)};
    kvt_ticket *ticket = NULL;

    put.key.component = chain.components[c].component;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    chain.is_there[c][i] = true;
}

/* Chains with few holes, so that all lengths come up. */
static void
chain_make(uint64_t seed)
{
    struct rng rng = {seed + 1};
    uint32_t holes = 1 + rng_below(&rng, 40);

    memset(&chain, 0, sizeof(chain));
    chain.count = 1 + rng_below(&rng, CHAIN_MAX);
    chain.component_count = 1 + rng_below(&rng, COMPONENTS_MAX);
    for (uint32_t i = 0; i < chain.count; i++) {
        payload_key_make(&chain.names[i], seed * 1000 + i);
        chain.keys[i] = chain.names[i].key;
    }
    for (uint32_t c = 0; c < chain.component_count; c++) {
        bool is_trailing = rng_below(&rng, 2) == 0;
        uint32_t end = rng_below(&rng, 3) == 0 ? rng_below(&rng, chain.count + 1) : chain.count;

        chain.components[c] = (struct kvt_match_component){
            .component = (uint16_t)(rng_below(&rng, 1000) * COMPONENTS_MAX + c),
            .policy = is_trailing ? KVT_MATCH_TRAILING : KVT_MATCH_ALL,
            .trailing_count = is_trailing ? 1 + rng_below(&rng, 20) : 0};
        for (uint32_t i = 0; i < end; i++) {
            if (!is_trailing || rng_below(&rng, holes) != 0 || holes == 1)
                block_put(c, i);
        }
    }
}

/* The first block of component `c` that a prefix of `length` blocks needs. */
static uint32_t
needed_from(uint32_t c, uint32_t length)
{
    uint32_t trailing = chain.components[c].trailing_count;

    return chain.components[c].policy == KVT_MATCH_TRAILING && trailing < length ? length - trailing
                                                                                 : 0;
}

static bool
is_usable(uint32_t length)
{
    for (uint32_t c = 0; c < chain.component_count; c++) {
        for (uint32_t i = needed_from(c, length); i < length; i++) {
            if (!chain.is_there[c][i])
                return false;
        }
    }
    return true;
}

static uint32_t
pinned_count(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < residency_number_limit(store->map); i++)
        count += word_pins(atomic_load(&residency_at(store->map, i)->word)) != 0;
    return count;
}

static void
lease_check(kvt_lease lease, uint32_t usable)
{
    uint32_t needed_count = 0;

    for (uint32_t c = 0; c < chain.component_count; c++) {
        for (uint32_t i = 0; i < chain.count; i++) {
            bool is_needed = i < usable && i >= needed_from(c, usable);
            const void *address;
            uint64_t length;

            needed_count += is_needed;
            if (usable > 0)
                assert_int_equal(kvt_lease_address(store, lease, c * chain.count + i, KVT_TIER_HOST,
                                     &address, &length),
                    is_needed ? KVT_OK : KVT_MISS);
        }
    }
    assert_int_equal(lease.id != 0, needed_count > 0);
    assert_int_equal(pinned_count(), needed_count);
}

static void
the_longest_prefix_with_all_that_it_needs_is_found(void **state)
{
    uint32_t whole_count = 0, partial_count = 0, none_count = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint8_t lengths[CHAIN_MAX + 1];
        uint32_t usable = 0, found = 0, leased = 0;
        kvt_lease lease = {7};

        chain_make(seed);
        memset(lengths, 0xEE, sizeof(lengths));
        assert_int_equal(kvt_match(store, ns, chain.keys, chain.count, chain.components,
                             chain.component_count, &found, lengths, NULL),
            KVT_OK);
        for (uint32_t length = 1; length <= chain.count; length++) {
            assert_int_equal(lengths[length - 1], is_usable(length));
            usable = is_usable(length) ? length : usable;
        }
        assert_int_equal(lengths[chain.count], 0xEE);
        assert_int_equal(found, usable);
        assert_int_equal(pinned_count(), 0);
        assert_int_equal(kvt_match(store, ns, chain.keys, chain.count, chain.components,
                             chain.component_count, &leased, NULL, &lease),
            KVT_OK);
        assert_int_equal(leased, usable);
        lease_check(lease, usable);
        kvt_lease_release(store, lease);
        assert_int_equal(pinned_count(), 0);
        whole_count += usable == chain.count;
        partial_count += usable > 0 && usable < chain.count;
        none_count += usable == 0;
    }
    assert_true(whole_count > 5 && partial_count > 20 && none_count > 0);
}

static void
one_component_of_all_blocks_is_a_lookup(void **state)
{
    uint32_t usable = 0, leading = 0;

    (void)state;
    for (uint64_t seed = 5000; seed < 5020; seed++) {
        chain_make(seed);
        chain.component_count = 1;
        chain.components[0].policy = KVT_MATCH_ALL;
        chain.components[0].trailing_count = 0;
        assert_int_equal(
            kvt_match(store, ns, chain.keys, chain.count, chain.components, 1, &usable, NULL, NULL),
            KVT_OK);
        for (uint32_t i = 0; i < chain.count; i++)
            chain.keys[i].component = chain.components[0].component;
        assert_int_equal(
            kvt_lookup(store, ns, chain.keys, chain.count, NULL, &leading, NULL), KVT_OK);
        assert_int_equal(usable, leading);
    }
}

static void
what_makes_no_sense_is_refused_by_name(void **state)
{
    const struct kvt_match_component good = {.component = 1, .policy = KVT_MATCH_ALL};
    struct kvt_match_component bad[17] = {good, good};
    struct kvt_key key;
    uint32_t usable = 77;
    kvt_lease leases[LEASES], lease = {9};

    (void)state;
    chain_make(9000);
    key = chain.keys[0];
    refused(kvt_match(NULL, ns, &key, 1, &good, 1, &usable, NULL, NULL), KVT_E_INVAL, "store");
    refused(kvt_match(store, ns, NULL, 1, &good, 1, &usable, NULL, NULL), KVT_E_INVAL, "keys");
    refused(kvt_match(store, ns, &key, 0, &good, 1, &usable, NULL, NULL), KVT_E_INVAL, "count");
    refused(kvt_match(store, ns, &key, 1, NULL, 1, &usable, NULL, NULL), KVT_E_INVAL, "components");
    refused(kvt_match(store, ns, &key, 1, bad, 0, &usable, NULL, NULL), KVT_E_INVAL, "1..16");
    refused(kvt_match(store, ns, &key, 1, bad, 17, &usable, NULL, NULL), KVT_E_INVAL, "1..16");
    refused(kvt_match(store, ns, &key, 1, bad, 2, &usable, NULL, NULL), KVT_E_INVAL, "both");
    refused(kvt_match(store, ns, &key, 1, &good, 1, NULL, NULL, NULL), KVT_E_INVAL, "usable_out");
    bad[0].policy = 3;
    refused(kvt_match(store, ns, &key, 1, bad, 1, &usable, NULL, NULL), KVT_E_INVAL, "policy 3");
    bad[0] = (struct kvt_match_component){.policy = KVT_MATCH_ALL, .trailing_count = 1};
    refused(kvt_match(store, ns, &key, 1, bad, 1, &usable, NULL, NULL), KVT_E_INVAL, "trailing");
    bad[0] = (struct kvt_match_component){.policy = KVT_MATCH_TRAILING};
    refused(kvt_match(store, ns, &key, 1, bad, 1, &usable, NULL, NULL), KVT_E_INVAL, "trailing");
    key.component = 1;
    refused(kvt_match(store, ns, &key, 1, &good, 1, &usable, NULL, NULL), KVT_E_INVAL, "component");
    key = chain.keys[0];
    assert_int_equal(usable, 77);
    bad[0] = (struct kvt_match_component){.component = chain.components[0].component,
        .policy = KVT_MATCH_TRAILING,
        .trailing_count = 1};
    block_put(0, 0);
    for (uint32_t i = 0; i < LEASES; i++)
        assert_int_equal(kvt_match(store, ns, &key, 1, bad, 1, &usable, NULL, &leases[i]), KVT_OK);
    assert_int_equal(usable, 1);
    refused(kvt_match(store, ns, &key, 1, bad, 1, &usable, NULL, &lease), KVT_E_NOSPC,
        "lease_count_max");
    assert_int_equal(lease.id, 0);
    for (uint32_t i = 0; i < LEASES; i++)
        kvt_lease_release(store, leases[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_prefix_with_all_that_it_needs_is_found),
        cmocka_unit_test(one_component_of_all_blocks_is_a_lookup),
        cmocka_unit_test(what_makes_no_sense_is_refused_by_name),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, store_setup, store_teardown);
}
