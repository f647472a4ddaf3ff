/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_kept_in_host.c - HOST is full of blocks of whose chains the ends are in HBM, which keep them
 * there; whoever wants room in HOST has it all the same. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BYTES = 4096,
    CHAIN = 9, /* Blocks: the last one in HBM alone. */
    CHAINS = 256,
    IN_HOST = CHAINS * (CHAIN - 1),
    OTHERS = IN_HOST / 2,
    SPARE = 2,
    ROOTS = CHAIN - 2, /* In the superblock of the last chains. */
    FIRST = 8,         /* Chains. */
    OLDEST = 3,        /* One of them. */
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct kvt_region_options memory; /* Of the device. */
static kvt_region region;

static void
store_begin(uint64_t nvme_bytes, enum kvt_policy policy)
{
    struct kvt_options options = kit_options();

    options.host_capacity_bytes = (uint64_t)IN_HOST * BYTES;
    options.pin_bytes_max = options.host_capacity_bytes;
    options.host_high_percent = 100;
    options.hbm_capacity_bytes = 4 << 20;
    options.nvme_capacity_bytes = nvme_bytes;
    options.policy = policy;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    memory = (struct kvt_region_options){
        .struct_size = sizeof(memory), .tier = KVT_TIER_HBM, .size = BYTES};
    assert_int_equal(kvt_device_alloc(store, 0, memory.size, &memory.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &memory, &region), KVT_OK);
}

static void
store_end(void)
{
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, memory.address, memory.size);
    sim_store_close(&sim);
}

/* Block `at` of a chain, below the one before it. */
static enum kvt_status
link_put(uint64_t chain, uint64_t at, uint8_t tier, enum kvt_durability durability)
{
    uint64_t number = chain * CHAIN + at;
    struct payload_key name, parent;
    uint8_t bytes[BYTES];
    struct kvt_put put = {.source = bytes, .length = BYTES, .tier = tier};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    payload_fill(bytes, BYTES, number, 1);
    put.key = name.key;
    if (at > 0) {
        payload_key_make(&parent, number - 1);
        put.parent = &parent.key;
    }
    if (tier == KVT_TIER_HBM) {
        assert_int_equal(kvt_device_write(store, 0, memory.address, bytes, BYTES), KVT_OK);
        put.source = memory.address;
        put.region = region;
    }
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return kit_result(ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE).status;
}

static void
chains_put(uint64_t count, enum kvt_durability durability)
{
    for (uint64_t chain = 0; chain < count; chain++) {
        for (uint64_t at = 0; at + 1 < CHAIN; at++)
            assert_int_equal(link_put(chain, at, KVT_TIER_HOST, durability), KVT_OK);
        assert_int_equal(link_put(chain, CHAIN - 1, KVT_TIER_HBM, KVT_MEMORY), KVT_OK);
    }
}

static void
host_is_full(void)
{
    /* What is above host_high_percent, rounded down, was trimmed. */
    assert_in_range(slab_used(store->slab), slab_capacity(store->slab) - SPARE * BYTES, UINT64_MAX);
}

/* Slots of HOST that somebody takes. */
struct taking {
    uint64_t bytes;
    uint32_t wanted, count;
    struct patience patience;
    enum kvt_status status;
    struct slot slots[OTHERS];
};

static bool
taking_run(struct kvt_store *of, void *context)
{
    struct taking *taking = context;
    const struct room_want want = {
        .place = POLICY_HOST, .size = taking->bytes, .patience = &taking->patience};

    while (taking->count < taking->wanted) {
        taking->status = room_take(of, &want, &taking->slots[taking->count]);
        if (taking->status != KVT_OK)
            return taking->status != KVT_NOT_READY;
        taking->count++;
    }
    return true;
}

static bool
taken_put_run(struct kvt_store *of, void *context)
{
    struct taking *taking = context;

    while (taking->count > 0)
        room_put(of, POLICY_HOST, taking->slots[--taking->count]);
    return true;
}

/* Half of HOST is wanted for something else; how many of the chains' blocks are there then. */
static uint64_t
others_come(void)
{
    static struct taking taking;
    uint64_t count = 0, version = 0;

    taking = (struct taking){.bytes = BYTES, .wanted = OTHERS};
    loop_call(store, taking_run, &taking);
    assert_int_equal(taking.status, KVT_OK);
    assert_int_equal(taking.count, OTHERS);
    for (uint64_t number = 0; number < (uint64_t)CHAINS * CHAIN; number++)
        count += kit_get(store, ns, number, &version) == KVT_OK && version == 1;
    loop_call(store, taken_put_run, &taking);
    return count;
}

static void
copies_of_what_is_on_nvme_go(void **state)
{
    static const enum kvt_policy policies[] = {KVT_POLICY_GHI, KVT_POLICY_LRU, KVT_POLICY_S3FIFO};

    (void)state;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        store_begin(32 << 20, policies[i]);
        chains_put(CHAINS, KVT_SYNC);
        host_is_full();
        assert_int_equal(others_come(), CHAINS * CHAIN);
        store_end();
    }
}

static void
what_is_in_host_alone_is_written(void **state)
{
    (void)state;
    store_begin(32 << 20, KVT_POLICY_LRU); /* Which lets all of them onto NVMe. */
    chains_put(CHAINS, KVT_MEMORY);
    host_is_full();
    assert_int_equal(others_come(), CHAINS * CHAIN);
    store_end();
}

static void
without_nvme_blocks_are_dropped(void **state)
{
    (void)state;
    store_begin(KVT_CAPACITY_NONE, KVT_POLICY_LRU);
    chains_put(CHAINS, KVT_MEMORY);
    host_is_full();
    /* And a chain that the trimming has cut. */
    assert_in_range(others_come(), CHAINS * CHAIN - OTHERS - CHAIN, CHAINS * CHAIN - OTHERS);
    store_end();
}

/* What goes first has other slots, and leaves no superblock free for a longer one. */
static void
what_can_go_makes_no_room(void **state)
{
    static struct taking taking;

    (void)state;
    store_begin(32 << 20, KVT_POLICY_LRU);
    chains_put(CHAINS - 1, KVT_SYNC);
    for (uint64_t i = 0; i < ROOTS; i++)
        assert_int_equal(link_put(CHAINS + i, 0, KVT_TIER_HOST, KVT_SYNC), KVT_OK);
    taking = (struct taking){.bytes = 2 * BYTES, .wanted = 1};
    loop_call(store, taking_run, &taking);
    assert_int_equal(taking.status, KVT_OK);
    assert_in_range(kit_stats(store).host_evict_count, ROOTS + 1, UINT64_MAX);
    loop_call(store, taken_put_run, &taking);
    store_end();
}

/* Of some that may go the one that was used longest ago does, when the chain that the trimming has
 * cut is gone; then those above it. */
static void
the_least_important_goes_first(void **state)
{
    static struct taking taking;

    (void)state;
    store_begin(32 << 20, KVT_POLICY_LRU);
    chains_put(CHAINS, KVT_SYNC);
    taking = (struct taking){.bytes = BYTES, .wanted = SPARE + CHAIN};
    for (uint64_t chain = 0; chain < CHAINS; chain++) {
        uint64_t version = 0;

        if (chain != OLDEST)
            assert_int_equal(kit_get(store, ns, chain * CHAIN + CHAIN - 2, &version), KVT_OK);
    }
    loop_call(store, taking_run, &taking);
    assert_int_equal(taking.status, KVT_OK);
    for (uint64_t chain = 0; chain < FIRST; chain++)
        assert_int_equal(
            (entry_tiers(store, kit_entry(store, ns, chain * CHAIN + CHAIN - 2)) & TIER_HOST) == 0,
            chain == OLDEST);
    loop_call(store, taken_put_run, &taking);
    store_end();
}

/* It was refused because its own block did not count as room: for others it does. */
static void
a_refused_replace_takes_no_room_from_others(void **state)
{
    static kvt_lease leases[IN_HOST];
    struct payload_key name;
    uint32_t count = 0;

    (void)state;
    store_begin(KVT_CAPACITY_NONE, KVT_POLICY_LRU);
    assert_int_equal(link_put(0, 0, KVT_TIER_HOST, KVT_MEMORY), KVT_OK);
    assert_int_equal(link_put(0, 1, KVT_TIER_HBM, KVT_MEMORY), KVT_OK);
    while (slab_used(store->slab) + BYTES <= slab_capacity(store->slab)) {
        uint32_t hit_count;

        assert_int_equal(link_put(count + 1, 0, KVT_TIER_HOST, KVT_MEMORY), KVT_OK);
        payload_key_make(&name, (count + 1) * CHAIN);
        assert_int_equal(
            kvt_lookup(store, ns, &name.key, 1, NULL, &hit_count, &leases[count]), KVT_OK);
        assert_int_equal(hit_count, 1);
        count++;
    }
    assert_int_equal(kit_put(store, ns, 0, 2, BYTES, KVT_MEMORY), KVT_E_NOSPC);
    assert_int_equal(link_put(count + 1, 0, KVT_TIER_HOST, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(store, leases[i]);
    store_end();
}

/* Of blocks that only others in HBM keep as many go as a superblock has, and what is left of it is
 * moved. */
static void
another_size_costs_a_superblock_of_kept_blocks(void **state)
{
    uint64_t used;

    (void)state;
    store_begin(64 << 20, KVT_POLICY_LRU);
    chains_put(CHAINS, KVT_RELAXED);
    assert_int_equal(kvt_flush(store), KVT_OK);
    host_is_full();
    used = slab_used(store->slab);
    assert_int_equal(kit_put(store, ns, OTHERS * CHAIN, 1, 2 * BYTES, KVT_MEMORY), KVT_OK);
    assert_in_range(used - slab_used(store->slab), 0, 2 * slab_superblock_bytes(store->slab));
    store_end();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_size_costs_a_superblock_of_kept_blocks),
        cmocka_unit_test(copies_of_what_is_on_nvme_go),
        cmocka_unit_test(what_is_in_host_alone_is_written),
        cmocka_unit_test(without_nvme_blocks_are_dropped),
        cmocka_unit_test(what_can_go_makes_no_room),
        cmocka_unit_test(the_least_important_goes_first),
        cmocka_unit_test(a_refused_replace_takes_no_room_from_others),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
