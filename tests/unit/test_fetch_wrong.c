/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fetch_wrong.c - gets and prefetches whose read from NVMe brings wrong bytes, or none: what
 * they are told, and what of the block stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ill_device.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 61000, /* No whole number of pages. */
    PARTS = 4,
    PART_BYTES = BLOCK_BYTES / PARTS,
    HOST_SLOTS_MAX = 80, /* More than HOST has. */
    GETS = 16,           /* Of one block at a time. */
};

#define A_WHILE_NS (UINT64_C(2) * 1000 * 1000)
#define STALL_NS (UINT64_C(50) * 1000 * 1000)

static const struct sim_rule failing_reads = {.ops = SIM_READ,
    .effect = SIM_EIO,
    .file = "data.",
    .nth = 1,
    .sticky = true,
    .stall_ns = STALL_NS};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static _Alignas(4096) uint8_t bytes[KIT_BLOCK_BYTES_MAX];

/* The world's scheduler, with an eye on when a get is answered. */
static const struct sched_ops *sched_below;
static struct sched_ops sched_watched;
static kvt_ticket *watched; /* NULL: none is. */
static uint32_t told_count, early_count;

static void watched_gate_post(void *context, struct gate *gate);

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    ill_device_init();
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.env.device = &ill.ops;
    sched_below = sim.env.sched;
    sched_watched = *sched_below;
    sched_watched.gate_post = watched_gate_post;
    sim.env.sched = &sched_watched;
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "wrong", "", 0, &ns), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* --- One block -------------------------------------------------------------------------------- */

static unsigned
tiers_of(uint64_t key)
{
    uint32_t number = kit_entry(store, ns, key);

    return number == ENTRY_NONE ? 0
                                : word_tiers(atomic_load(&residency_at(store->map, number)->word));
}

/* A block that is on NVMe alone. */
static void
put_on_nvme(uint64_t key, uint16_t part_count)
{
    struct payload_key name;
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES, .part_count = part_count};
    kvt_ticket *ticket;

    payload_key_make(&name, key);
    payload_fill(bytes, BLOCK_BYTES, key, 1);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_flush(store), KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, key), KVT_REASON_EVICTED));
    assert_int_equal(tiers_of(key), TIER_NVME);
}

static kvt_ticket *
get_begun(uint64_t key, struct kvt_get get)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, key);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

static enum kvt_status
prefetch(uint64_t key, uint32_t tier)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = tier};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, key);
    assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

/* The copy on NVMe differs in a byte of its first part from now on. */
static void
copy_damage(uint64_t key)
{
    const struct entry *entry = residency_at(store->map, kit_entry(store, ns, key));
    uint64_t page =
        (uint64_t)segment_index(entry->segment) * store->file.segment_pages + entry->page;

    assert_true((tiers_of(key) & TIER_NVME) != 0);
    assert_true(sim_file_corrupt(sim.world, "store/data/data.00", page * PAGE_BYTES + 100, 1));
}

static uint64_t
corrupt_count(void)
{
    return atomic_load(&store->counters.corrupt_count);
}

static void
block_is_right(uint64_t key)
{
    uint64_t version = 0;

    assert_int_equal(kit_get(store, ns, key, &version), KVT_OK);
    assert_int_equal(version, 1);
}

/* --- Another tier has the block --------------------------------------------------------------- */

/* The first get's read is late; a second brings the block to HOST; then the disk's copy decays. */
static void
host_has_it_by_then(uint16_t part_count)
{
    const struct sim_rule late = {
        .ops = SIM_READ, .effect = SIM_STALL, .file = "data.", .nth = 1, .stall_ns = STALL_NS};
    static _Alignas(4096) uint8_t target[KIT_BLOCK_BYTES_MAX];
    struct kvt_get get = {.destination = target, .capacity = sizeof(target)};
    uint64_t key = 10u + part_count;
    kvt_ticket *ticket;

    put_on_nvme(key, part_count);
    if (part_count == 1)
        get.flags = KVT_GET_TRANSIENT;
    else
        get.part_count = 1;
    sim_rule_add(sim.world, &late);
    ticket = get_begun(key, get);
    sim_store_pass(&sim, A_WHILE_NS);
    sim_rules_clear(sim.world);
    block_is_right(key);
    assert_int_equal(tiers_of(key), TIER_HOST | TIER_NVME);
    copy_damage(key);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    payload_fill(bytes, BLOCK_BYTES, key, 1);
    assert_memory_equal(target, bytes, part_count == 1 ? BLOCK_BYTES : PART_BYTES);
    assert_int_equal(corrupt_count(), 1);
    block_is_right(key);
    /* It is written again, and the bad copy is dead: also for who loses the index. */
    sim_store_pass(&sim, STALL_NS);
    assert_true(commit_is_idle(store));
    assert_int_equal(tiers_of(key), TIER_HOST | TIER_NVME);
    for (uint32_t life = 0; life < 2; life++) {
        assert_int_equal(kvt_close(store), KVT_OK);
        sim.options.flags = life == 0 ? 0 : KVT_OPEN_REBUILD;
        sim_store_reopen(&sim);
        store = sim.store;
        assert_int_equal(kvt_namespace_open(store, "wrong", "", 0, &ns), KVT_OK);
        block_is_right(key);
    }
    sim.options.flags = 0;
}

static void
a_block_that_came_to_host_outlives_its_bad_copy(void **state)
{
    (void)state;
    host_has_it_by_then(1);
}

static void
a_block_of_parts_that_came_to_host_outlives_its_bad_copy(void **state)
{
    (void)state;
    host_has_it_by_then(PARTS);
}

/* HBM cannot be asked for it: so NVMe is. */
static void
a_block_that_hbm_has_outlives_its_bad_copy(void **state)
{
    uint64_t version;

    (void)state;
    put_on_nvme(1, 1);
    assert_int_equal(prefetch(1, KVT_TIER_HBM), KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, 1), KVT_REASON_EVICTED));
    assert_int_equal(tiers_of(1), TIER_HBM | TIER_NVME);
    copy_damage(1);
    atomic_store(&ill.copy_status, KVT_E_NOMEM);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(corrupt_count(), 1);
    assert_int_equal(tiers_of(1), TIER_HBM);
    block_is_right(1);
}

/* Who has it pinned may be reading the bad copy: that stays, and is found by the next. */
static void
a_leased_block_that_came_to_host_stays_as_it_is(void **state)
{
    const struct sim_rule late = {
        .ops = SIM_READ, .effect = SIM_STALL, .file = "data.", .nth = 1, .stall_ns = STALL_NS};
    struct kvt_get get = {
        .destination = bytes, .capacity = sizeof(bytes), .flags = KVT_GET_TRANSIENT};
    struct payload_key name;
    kvt_ticket *ticket;
    kvt_lease lease;

    (void)state;
    put_on_nvme(2, 1);
    sim_rule_add(sim.world, &late);
    ticket = get_begun(2, get);
    sim_store_pass(&sim, A_WHILE_NS);
    sim_rules_clear(sim.world);
    block_is_right(2);
    copy_damage(2);
    payload_key_make(&name, 2);
    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_of(2), TIER_HOST | TIER_NVME);
    block_is_right(2);
    kvt_lease_release(store, lease);
}

/* --- Read straight into memory that its owner writes ------------------------------------------ */

/* The get's bytes are there, and not looked at yet: its owner writes one of them. */
static kvt_ticket *
get_meddled_with(uint64_t key, uint8_t *target, uint64_t capacity)
{
    struct kvt_get get = {.destination = target, .capacity = capacity, .flags = KVT_GET_TRANSIENT};
    kvt_ticket *ticket;

    payload_fill(bytes, BLOCK_BYTES, key, 1);
    memset(target, bytes[100] ^ 0xff, BLOCK_BYTES);
    ticket = get_begun(key, get);
    while (target[100] != bytes[100])
        sim_run_steps(sim.world, 1);
    target[100] ^= 1;
    return ticket;
}

static void
a_destination_that_was_written_meanwhile_costs_no_block(void **state)
{
    static _Alignas(4096) uint8_t target[KIT_BLOCK_BYTES_MAX];

    (void)state;
    for (uint64_t key = 0; key < 4; key++) {
        struct kvt_result result;

        put_on_nvme(key, 1);
        result =
            kit_result(get_meddled_with(key, target, key % 2 == 0 ? sizeof(target) : BLOCK_BYTES),
                KVT_STAGE_DONE);
        assert_int_equal(result.status, KVT_OK);
        assert_int_equal(result.length, BLOCK_BYTES);
        assert_int_equal(result.tier, KVT_TIER_NVME);
        assert_memory_equal(target, bytes, BLOCK_BYTES);
        assert_int_equal(corrupt_count(), 0);
        assert_int_equal(tiers_of(key), TIER_NVME);
        block_is_right(key);
    }
}

/* Whoever is told that there is no block finds none, and the damage counted. */
static void
watched_gate_post(void *context, struct gate *gate)
{
    if (watched != NULL && kvt_ticket_wait(watched, KVT_STAGE_DONE, 0) == KVT_OK) {
        told_count++;
        early_count += corrupt_count() == 0 || kit_entry(store, ns, 1) != ENTRY_NONE;
    }
    sched_below->gate_post(context, gate);
}

static void
wrong_in_memory_of_the_store(uint32_t flags)
{
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes), .flags = flags};
    kvt_ticket *ticket;

    put_on_nvme(1, 1);
    copy_damage(1);
    told_count = early_count = 0;
    watched = ticket = get_begun(1, get);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    watched = NULL;
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_MISS);
    assert_true(told_count > 0);
    assert_int_equal(early_count, 0);
    assert_int_equal(corrupt_count(), 1);
    assert_int_equal(kit_entry(store, ns, 1), ENTRY_NONE);
}

static void
a_block_that_is_wrong_in_memory_of_the_store_is_gone(void **state)
{
    (void)state;
    wrong_in_memory_of_the_store(0);
}

static void
a_block_that_was_wrong_in_memory_of_others_too_is_gone(void **state)
{
    (void)state;
    wrong_in_memory_of_the_store(KVT_GET_TRANSIENT);
}

/* Leases hold all of HOST then; how many. */
static uint32_t
host_lease(kvt_lease leases[HOST_SLOTS_MAX])
{
    uint32_t count = 0;

    while (kit_put(store, ns, 100 + count, 1, BLOCK_BYTES, KVT_MEMORY) == KVT_OK) {
        struct payload_key name;

        assert_true(count < HOST_SLOTS_MAX);
        payload_key_make(&name, 100 + count);
        assert_int_equal(kvt_lookup(store, ns, &name.key, 1, NULL, NULL, &leases[count++]), KVT_OK);
    }
    return count;
}

static void
a_block_that_cannot_be_read_again_stays(void **state)
{
    static _Alignas(4096) uint8_t target[KIT_BLOCK_BYTES_MAX];
    kvt_lease leases[HOST_SLOTS_MAX];
    uint32_t count;

    (void)state;
    put_on_nvme(1, 1);
    count = host_lease(leases);
    assert_int_equal(
        kit_result(get_meddled_with(1, target, sizeof(target)), KVT_STAGE_DONE).status, KVT_MISS);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(store, leases[i]);
    assert_int_equal(corrupt_count(), 0);
    assert_int_equal(tiers_of(1), TIER_NVME);
    block_is_right(1);
}

/* A part, and the trailer far behind it, are read at once: one of the two cannot be read, once. */
static void
a_part_of_which_not_all_can_be_read_costs_no_block(void **state)
{
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes), .part_count = 1};

    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        put_on_nvme(nth, PARTS);
        sim_rule_add(sim.world,
            &(struct sim_rule){.ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth});
        assert_int_equal(kit_result(get_begun(nth, get), KVT_STAGE_DONE).status, KVT_MISS);
        sim_rules_clear(sim.world);
        assert_int_equal(sim_fault_count(sim.world), nth);
        assert_int_equal(corrupt_count(), 0);
        assert_int_equal(tiers_of(nth), TIER_NVME);
        block_is_right(nth);
    }
}

/* Each by a read of its own, one behind the other, would wait for the disk as often as there are
 * gets before it. The block stays, and the next get reads it. */
static void
who_joined_a_read_that_fails_shares_its_failure(void **state)
{
    static const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    static uint8_t targets[GETS][BLOCK_BYTES];
    struct payload_key name;
    kvt_ticket *tickets[GETS + 1];

    (void)state;
    put_on_nvme(1, 1);
    payload_key_make(&name, 1);
    sim_rule_add(sim.world, &failing_reads);
    for (uint32_t i = 0; i < GETS; i++)
        tickets[i] =
            get_begun(1, (struct kvt_get){.destination = targets[i], .capacity = BLOCK_BYTES});
    assert_int_equal(
        kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &tickets[GETS]), KVT_OK);
    for (uint32_t i = 0; i <= GETS; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_MISS);
    sim_rules_clear(sim.world);
    assert_int_equal(atomic_load(&store->counters.read_failed_count), 1);
    assert_int_equal(tiers_of(1), TIER_NVME);
    block_is_right(1);
}

/* What failed says nothing of the block that took the place of the one that was read. */
static void
who_joined_a_read_that_fails_has_the_block_that_was_put_since(void **state)
{
    static uint8_t targets[2][BLOCK_BYTES];
    struct payload_key name;
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    kvt_ticket *tickets[2], *put_ticket;
    uint64_t version = 0;

    (void)state;
    put_on_nvme(1, 1);
    payload_key_make(&name, 1);
    put.key = name.key;
    sim_rule_add(sim.world, &failing_reads);
    for (uint32_t i = 0; i < 2; i++)
        tickets[i] =
            get_begun(1, (struct kvt_get){.destination = targets[i], .capacity = BLOCK_BYTES});
    sim_store_loop(&sim);
    payload_fill(bytes, BLOCK_BYTES, 1, 2);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &put_ticket), KVT_OK);
    assert_int_equal(kit_result(put_ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, 1), KVT_REASON_EVICTED));
    assert_int_equal(tiers_of(1), TIER_NVME);
    assert_int_equal(kit_result(tickets[0], KVT_STAGE_DONE).status, KVT_MISS);
    sim_rules_clear(sim.world);
    assert_int_equal(kit_result(tickets[1], KVT_STAGE_DONE).status, KVT_OK);
    assert_true(payload_is_right(targets[1], BLOCK_BYTES, 1, &version));
    assert_int_equal(version, 2);
}

/* scanning.h: the sequence is that of the durable record; 0: there is none. */
static void
a_block_without_a_durable_copy_shows_no_sequence(void **state)
{
    struct kvt_scan_entry shown;
    uint64_t cursor = 0;
    uint32_t count;

    (void)state;
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_true(entry_nvme_release(store, kit_entry(store, ns, 1)));
    assert_int_equal(tiers_of(1), TIER_HOST);
    assert_int_equal(kvt_scan(store, &cursor, &shown, 1, &count), KVT_OK);
    assert_int_equal(shown.tiers, KVT_TIER_HOST);
    assert_int_equal(shown.stored_length, 0);
    assert_int_equal(shown.sequence, 0);
}

/* A page that only the whole block has cannot be read: parts that lie elsewhere can. */
static void
who_wants_a_part_does_not_share_the_failure_of_the_whole(void **state)
{
    static uint8_t targets[2][BLOCK_BYTES];
    kvt_ticket *whole, *part;

    (void)state;
    put_on_nvme(1, PARTS);
    sim_rule_add(sim.world,
        &(struct sim_rule){
            .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = 1, .stall_ns = STALL_NS});
    whole = get_begun(1, (struct kvt_get){.destination = targets[0], .capacity = BLOCK_BYTES});
    sim_store_loop(&sim);
    part = get_begun(
        1, (struct kvt_get){.destination = targets[1], .capacity = BLOCK_BYTES, .part_count = 1});
    assert_int_equal(kit_result(whole, KVT_STAGE_DONE).status, KVT_MISS);
    assert_int_equal(kit_result(part, KVT_STAGE_DONE).status, KVT_OK);
    assert_memory_equal(targets[1], bytes, PART_BYTES);
}

/* --- What is short is told -------------------------------------------------------------------- */

static uint64_t
bad_read_count(void)
{
    return atomic_load(&store->counters.read_failed_count) +
           atomic_load(&store->counters.miss_damaged_count);
}

static void
life_begin(void)
{
    assert_int_equal(kvt_close(store), KVT_OK);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "wrong", "", 0, &ns), KVT_OK);
}

/* Nothing was read in this life. Each allocation behind the submission fails once. */
static void
reading_starves(bool is_prefetch)
{
    struct kvt_get get = {
        .destination = bytes, .capacity = sizeof(bytes), .flags = KVT_GET_TRANSIENT};
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    uint32_t starved_count = 0;
    struct payload_key name;
    enum kvt_status status;

    put_on_nvme(1, 1);
    payload_key_make(&name, 1);
    for (uint64_t n = 1; n < 40; n++) {
        kvt_ticket *ticket;

        life_begin();
        if (is_prefetch)
            assert_int_equal(
                kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
        else
            ticket = get_begun(1, get);
        sim_memory_fail(sim.world, n, false);
        status = kit_result(ticket, KVT_STAGE_DONE).status;
        sim_memory_fail(sim.world, 0, false);
        starved_count += status == KVT_E_NOMEM;
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        assert_int_equal(bad_read_count(), 0);
    }
    assert_in_range(starved_count, 2, 39);
}

static void
a_get_that_has_no_memory_to_read_says_so(void **state)
{
    (void)state;
    reading_starves(false);
}

static void
a_prefetch_that_has_no_memory_to_read_says_so(void **state)
{
    (void)state;
    reading_starves(true);
}

static enum kvt_status
demote(uint64_t key, uint32_t tier)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, key);
    assert_int_equal(kvt_demote_submit(store, ns, &name.key, 1, tier, NULL, &ticket), KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

static void
a_device_without_memory_for_a_copy_is_not_taken_for_a_lost_one(void **state)
{
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    atomic_store(&ill.copy_status, KVT_E_NOMEM);
    assert_int_equal(prefetch(1, KVT_TIER_HBM), KVT_E_NOMEM);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(prefetch(1, KVT_TIER_HBM), KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, 1), KVT_REASON_EVICTED));
    atomic_store(&ill.copy_status, KVT_E_NOMEM);
    assert_int_equal(demote(1, KVT_TIER_HOST), KVT_E_NOMEM);
    assert_int_equal(prefetch(1, KVT_TIER_HOST), KVT_E_NOMEM);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_E_NOMEM);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(bad_read_count(), 0);
    block_is_right(1);
}

/* What cannot be brought down from HBM is read from NVMe. */
static void
a_block_that_hbm_cannot_give_comes_from_nvme(void **state)
{
    (void)state;
    put_on_nvme(1, 1);
    assert_int_equal(prefetch(1, KVT_TIER_HBM), KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, 1), KVT_REASON_EVICTED));
    atomic_store(&ill.copy_status, KVT_E_NOMEM);
    assert_int_equal(prefetch(1, KVT_TIER_HOST), KVT_OK);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(tiers_of(1), TIER_HBM | TIER_HOST | TIER_NVME);
}

/* Leases hold all of HOST: what goes straight to its destination needs none of it. */
static void
a_block_that_finds_no_room_to_come_down_comes_from_nvme(void **state)
{
    static _Alignas(4096) uint8_t target[KIT_BLOCK_BYTES_MAX];
    struct kvt_get get = {
        .destination = target, .capacity = sizeof(target), .flags = KVT_GET_TRANSIENT};
    kvt_lease leases[HOST_SLOTS_MAX];
    struct kvt_result result;
    uint32_t count;

    (void)state;
    put_on_nvme(1, 1);
    assert_int_equal(prefetch(1, KVT_TIER_HBM), KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, 1), KVT_REASON_EVICTED));
    count = host_lease(leases);
    result = kit_result(get_begun(1, get), KVT_STAGE_DONE);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(store, leases[i]);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(result.tier, KVT_TIER_NVME);
    payload_fill(bytes, BLOCK_BYTES, 1, 1);
    assert_memory_equal(target, bytes, BLOCK_BYTES);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_that_came_to_host_outlives_its_bad_copy),
        TEST(a_block_of_parts_that_came_to_host_outlives_its_bad_copy),
        TEST(a_block_that_hbm_has_outlives_its_bad_copy),
        TEST(a_leased_block_that_came_to_host_stays_as_it_is),
        TEST(a_destination_that_was_written_meanwhile_costs_no_block),
        TEST(a_block_that_is_wrong_in_memory_of_the_store_is_gone),
        TEST(a_block_that_was_wrong_in_memory_of_others_too_is_gone),
        TEST(a_block_that_cannot_be_read_again_stays),
        TEST(a_part_of_which_not_all_can_be_read_costs_no_block),
        TEST(who_joined_a_read_that_fails_shares_its_failure),
        TEST(who_joined_a_read_that_fails_has_the_block_that_was_put_since),
        TEST(a_block_without_a_durable_copy_shows_no_sequence),
        TEST(who_wants_a_part_does_not_share_the_failure_of_the_whole),
        TEST(a_get_that_has_no_memory_to_read_says_so),
        TEST(a_prefetch_that_has_no_memory_to_read_says_so),
        TEST(a_device_without_memory_for_a_copy_is_not_taken_for_a_lost_one),
        TEST(a_block_that_hbm_cannot_give_comes_from_nvme),
        TEST(a_block_that_finds_no_room_to_come_down_comes_from_nvme),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
