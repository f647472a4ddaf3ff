/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_relocate_wrong.c - blocks whose bytes are wrong, or cannot be read twice, when their segment
 * is reclaimed: they leave the store, are counted, and never come back. Those that cannot be read
 * once stay, and those for the reads of which there is no memory, however often. None is moved
 * behind a write that fails. Those whose copy in HOST alone is wrong are moved from NVMe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "full_store.h"
#include "io_lane.h"
#include "payload.h"
#include "stop_on_proof.h"

enum {
    STEPS_MAX = 200000,
    SEEDS = 4,
    GROUP = 3, /* Blocks that are read together. */
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

static uint32_t
hot_count(const struct full_store *full)
{
    uint32_t count = 0;

    for (uint64_t key = 0; key < FULL_HOT; key++)
        count += full_entry(full, key) != ENTRY_NONE;
    return count;
}

/* Churn, with a rule for reads of data, until a relocation has met it, and (`is_fatal`) a hot block
 * has left. A rule that is not sticky is there twice: what was read together is read once more,
 * block after block, from the second read on, of which the one with the number `again` fails. */
static void
relocation_meets_rule(struct full_store *full, const struct sim_rule *rule, uint64_t again,
    const _Atomic uint64_t *met_count, bool is_fatal)
{
    struct sim_rule second = *rule;

    second.nth = again;
    for (uint32_t i = 0; i < 3 * FULL_BLOCKS; i++) {
        kvt_ticket *ticket;

        if (is_fatal ? hot_count(full) < FULL_HOT : atomic_load(met_count) > 0)
            break;
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        hot_leave_host(full);
        ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        sim_rule_add(full->world, rule);
        if (!rule->sticky)
            sim_rule_add(full->world, &second);
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
        const struct sim_rule rule = {.ops = SIM_READ,
            .effect = effects[i],
            .path = "/store/data/data.00", /* Blocks, no headers. */
            .nth = 1,
            .sticky = true};
        struct full_store *full = full_begin(800 + i, FULL_SEGMENTS);
        const _Atomic uint64_t *met_count = effects[i] == SIM_EIO
                                                ? &full->store->counters.read_failed_count
                                                : &full->store->counters.corrupt_count;
        bool has_left[FULL_HOT];
        uint64_t left_count;

        full_fill(full);
        relocation_meets_rule(full, &rule, 0, met_count, true);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            has_left[key] = full_entry(full, key) == ENTRY_NONE;
        left_count = FULL_HOT - hot_count(full);
        assert_int_not_equal(left_count, 0);
        /* What cannot be read had another turn. */
        if (effects[i] == SIM_EIO)
            assert_true(atomic_load(met_count) > left_count);
        else
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

/* The error passes: the segment has another turn, and nothing is lost. */
static void
a_block_that_cannot_be_read_once_when_it_is_moved_stays(void **state)
{
    (void)state;
    for (uint64_t seed = 810; seed < 810 + SEEDS; seed++) {
        const struct sim_rule once = {
            .ops = SIM_READ, .effect = SIM_EIO, .path = "/store/data/data.00", .nth = 1};
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        uint64_t moved_count;

        full_fill(full);
        relocation_meets_rule(full, &once, 2, &full->store->counters.read_failed_count, false);
        assert_int_equal(hot_count(full), FULL_HOT);
        moved_count = atomic_load(&full->store->counters.nvme_relocate_count);
        for (uint32_t i = 0; i < FULL_BLOCKS; i++)
            full_churn(full);
        assert_true(atomic_load(&full->store->counters.nvme_relocate_count) > moved_count);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
}

/* Of a group one block cannot be read, once, whichever that is: each is judged by its own read. */
static void
a_block_that_cannot_be_read_beside_some_that_can_stays(void **state)
{
    const struct sim_rule first = {
        .ops = SIM_READ, .effect = SIM_EIO, .path = "/store/data/data.00", .nth = 1};

    (void)state;
    for (uint64_t again = 2; again < 2 + GROUP; again++) {
        struct full_store *full = full_begin(830, FULL_SEGMENTS);
        const struct counters *counters = &full->store->counters;

        full_fill(full);
        relocation_meets_rule(full, &first, again, &counters->read_failed_count, false);
        assert_int_equal(atomic_load(&counters->read_failed_count), 1);
        assert_int_equal(atomic_load(&counters->corrupt_count), 0);
        assert_int_equal(hot_count(full), FULL_HOT);
        full_end(full);
    }
}

/* A segment with hot blocks, which NVMe alone has, is all that can be reclaimed. */
static struct segment *
only_victim(struct full_store *full)
{
    struct segment *victim, *segment;
    uint32_t cursor = 0;

    full_fill(full);
    for (uint64_t key = 0; key < FULL_HOT; key++)
        full_expect(full, key, 1);
    hot_leave_host(full);
    victim = segment_at(
        full->store->segments, residency_at(full->store->map, full_entry(full, 0))->segment);
    while (segment_active(full->store->segments, 0) == victim)
        full_put(full, full->next_cold++, 1);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    return victim;
}

/* What only_victim() has passed over is being reclaimed, as it seems, or not any more. */
static void
others_claim(const struct full_store *full, bool is_claimed)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL) {
        segment->is_claimed = is_claimed && segment->is_passed_over;
        segment->is_passed_over = false;
    }
}

/* There is nothing else to reclaim: its second turn comes at once. */
static void
a_block_that_cannot_be_read_keeps_no_put_from_its_room(void **state)
{
    static const struct sim_rule no_read = {.ops = SIM_READ,
        .effect = SIM_EIO,
        .path = "/store/data/data.00",
        .nth = 1,
        .sticky = true,
        .stall_ns = UINT64_C(60) * 1000 * 1000};

    (void)state;
    for (uint64_t seed = 820; seed < 820 + SEEDS; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        const struct segment *victim = only_victim(full);
        uint32_t generation = victim->generation;

        /* Nothing was passed over when a put finds no room: it waits for the first turn. */
        others_claim(full, true);
        sim_rule_add(full->world, &no_read);
        for (uint32_t i = 0; i < FULL_BLOCKS && victim->generation == generation; i++)
            full_put(full, full->next_cold++, 1);
        sim_rules_clear(full->world);
        assert_int_equal(victim->generation, generation + 1);
        assert_false(victim->was_unreadable);
        assert_int_equal(full_entry(full, 0), ENTRY_NONE);
        others_claim(full, false);
        full_end(full);
    }
}

static void
hot_pin(struct full_store *full)
{
    for (uint64_t key = 0; key < FULL_HOT; key++) {
        struct payload_key name;

        payload_key_make(&name, key);
        assert_int_equal(kvt_pin(full->store, full->ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
}

/* That says nothing of the block: it stays, its segment has a turn now and then, not at once, and
 * is emptied when there is memory. */
static void
a_block_for_which_the_kernel_has_no_memory_stays(void **state)
{
    static const enum sim_effect effects[] = {SIM_ENOMEM, SIM_EAGAIN};
    static const uint64_t answers[] = {1, LANE_RETRY_MAX + 1}; /* To an operation. */

    (void)state;
    for (uint32_t i = 0; i < 2 * SEEDS; i++) {
        const struct sim_rule no_memory = {.ops = SIM_READ,
            .effect = effects[i % 2],
            .path = "/store/data/data.00",
            .nth = 1,
            .sticky = true};
        struct full_store *full = full_begin(840 + i, FULL_SEGMENTS);
        struct segment *victim = only_victim(full);
        uint32_t generation = victim->generation;
        uint64_t faults_before = sim_fault_count(full->world);

        hot_pin(full);
        victim->was_unreadable = i % 4 < 2; /* The disk failed before. */
        sim_rule_add(full->world, &no_memory);
        for (uint32_t j = 0; j < FULL_BLOCKS; j++) {
            kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

            full->is_refusing = full_result(ticket) != KVT_OK || full->is_refusing;
        }
        assert_false(victim->was_unreadable);
        assert_in_range(
            sim_fault_count(full->world) - faults_before, 1, 2 * FULL_BLOCKS * answers[i % 2]);
        sim_rules_clear(full->world);
        assert_int_equal(victim->generation, generation);
        assert_int_equal(hot_count(full), FULL_HOT);
        assert_int_equal(atomic_load(&full->store->counters.read_failed_count), 0);
        for (uint32_t j = 0; j < 2 * FULL_BLOCKS && victim->generation == generation; j++)
            full_churn(full);
        assert_int_equal(victim->generation, generation + 1);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
}

/* All that was passed over while there was none has another turn before a put is refused. */
static void
a_put_that_finds_no_room_behind_a_lack_of_memory_is_not_refused(void **state)
{
    static const struct sim_rule no_memory = {.ops = SIM_READ,
        .effect = SIM_ENOMEM,
        .path = "/store/data/data.00",
        .nth = 1,
        .sticky = true};

    (void)state;
    for (uint64_t seed = 860; seed < 860 + SEEDS; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        struct segment *victim = only_victim(full);
        uint64_t recycled = kit_stats(full->store).segment_recycle_count;

        hot_pin(full);
        sim_rule_add(full->world, &no_memory);
        while (!victim->is_passed_over)
            full_put(full, full->next_cold++, 1);
        sim_rules_clear(full->world);
        for (uint32_t i = 0; i < FULL_BLOCKS; i++)
            full_put(full, full->next_cold++, 1);
        assert_true(kit_stats(full->store).segment_recycle_count > recycled);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
}

/* So many steps; a put may fail in them. No group is begun in one before and behind which a put is
 * to fail. Returns in how many of them a segment was being reclaimed. */
static uint32_t
doomed_steps(struct full_store *full, uint32_t step_count)
{
    uint32_t count = 0;

    for (uint32_t n = 0; n < step_count; n++) {
        bool is_met = nvme_is_doomed(full->store->nvme) && relocate_is_idle(full->store);

        sim_run_steps(full->world, 1);
        if (!is_met || !nvme_is_doomed(full->store->nvme))
            continue;
        assert_true(relocate_is_idle(full->store));
        count += !reclaim_is_idle(full->store);
    }
    return count;
}

/* It would fail with that. */
static void
no_group_is_begun_behind_a_put_that_fails(void **state)
{
    const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .per_mille = 200, .file = "data."};
    uint32_t count = 0;

    (void)state;
    for (uint64_t seed = 870; seed < 870 + 4 * SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        full_fill(full);
        sim_rule_add(full->world, &fails);
        for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
            kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

            (void)full_expect_at_most(full, i % FULL_HOT, 1);
            count += doomed_steps(full, i % 4 == 0 ? 300 : 10);
            assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
            kvt_ticket_free(ticket);
        }
        sim_rules_clear(full->world);
        full->is_refusing = true;
        full_end(full);
    }
    assert_int_not_equal(count, 0);
}

/* --- Somebody has written over HOST's copy ---------------------------------------------------- */

enum hold {
    HOLD_NONE,
    HOLD_LEASE,
    HOLD_PIN,
    HOLD_COUNT,
};

static kvt_lease
hot_lease(struct full_store *full)
{
    struct payload_key names[FULL_HOT];
    struct kvt_key keys[FULL_HOT];
    kvt_lease lease;

    for (uint64_t key = 0; key < FULL_HOT; key++) {
        full_expect(full, key, 1);
        payload_key_make(&names[key], key);
        keys[key] = names[key].key;
    }
    assert_int_equal(kvt_lookup(full->store, full->ns, keys, FULL_HOT, NULL, NULL, &lease), KVT_OK);
    return lease;
}

static unsigned
tiers_of(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);

    return number == ENTRY_NONE ? 0 : entry_tiers(full->store, number);
}

/* A hot block differs in HOST, or, the second time, does not any more. Odd ones are not there. */
static void
hot_flip(struct full_store *full)
{
    for (uint64_t key = 0; key < FULL_HOT; key++) {
        uint32_t number = full_entry(full, key);
        uint8_t *memory;

        if ((tiers_of(full, key) & TIER_HOST) == 0)
            continue;
        if (key % 2 == 0) {
            memory = entry_host_address(full->store, residency_at(full->store->map, number));
            memory[100 * (key + 1)] ^= 1;
        } else if (tiers_of(full, key) != TIER_HOST) {
            (void)entry_host_release(full->store, number, KVT_REASON_EVICTED);
        }
    }
}

/* Churn until a relocation has met a block that differs in HOST, and rest. From here on nothing
 * is read. */
static void
relocation_meets_flips(struct full_store *full)
{
    const _Atomic uint64_t *count = &full->store->counters.corrupt_count;

    for (uint32_t i = 0; i < 3 * FULL_BLOCKS && atomic_load(count) == 0; i++) {
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        hot_flip(full);
        full_put(full, full->next_cold++, 1);
        for (uint32_t n = 0; n < STEPS_MAX && !reclaim_is_idle(full->store); n++)
            sim_run_steps(full->world, 1);
        if (atomic_load(count) == 0)
            hot_flip(full);
    }
    assert_int_not_equal(atomic_load(count), 0);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
}

/* Those that were not met are right again; of the others the copy in HOST has gone, but not while
 * somebody may read it. */
static void
flips_end(struct full_store *full, bool is_held)
{
    uint64_t wrong_count = atomic_load(&full->store->counters.corrupt_count);
    uint64_t gone_count = 0;

    for (uint64_t key = 0; key < FULL_HOT; key += 2)
        gone_count += (tiers_of(full, key) & TIER_HOST) == 0;
    if (is_held)
        assert_int_equal(gone_count, 0);
    else
        assert_true(gone_count >= wrong_count);
    hot_flip(full);
}

static void
hot_expect(struct full_store *full, const bool is_durable[FULL_HOT])
{
    for (uint64_t key = 0; key < FULL_HOT; key++)
        assert_true(full_expect_at_most(full, key, 1) || !is_durable[key]);
}

static void
a_block_that_differs_in_host_is_moved_as_nvme_has_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SEEDS * HOLD_COUNT; i++) {
        struct full_store *full = full_begin(900 + i, FULL_SEGMENTS);
        enum hold hold = (enum hold)(i % HOLD_COUNT);
        bool is_durable[FULL_HOT];
        kvt_lease lease = {0};

        full_fill(full);
        if (hold == HOLD_LEASE)
            lease = hot_lease(full);
        else if (hold == HOLD_PIN)
            hot_pin(full);
        relocation_meets_flips(full);
        flips_end(full, hold == HOLD_LEASE);
        if (hold == HOLD_LEASE)
            kvt_lease_release(full->store, lease);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            is_durable[key] = (tiers_of(full, key) & TIER_NVME) != 0;
        hot_expect(full, is_durable);
        full_again(full, 0);
        hot_expect(full, is_durable);
        full_again(full, KVT_OPEN_REBUILD);
        hot_expect(full, is_durable);
        full_end(full);
    }
}

/* HOST's copy and that on NVMe differ, and somebody reads the block: nothing takes its place. */
static void
a_block_that_is_wrong_in_both_tiers_leaves(void **state)
{
    struct full_store *full = full_begin(950, FULL_SEGMENTS);
    struct resident resident;
    const struct entry *entry;
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    full_put(full, 0, 1);
    resident.number = full_entry(full, 0);
    entry = residency_at(full->store->map, resident.number);
    resident.extent = (struct extent){entry->segment, entry->extent_generation, entry->page};
    payload_key_make(&name, 0);
    assert_int_equal(kvt_lookup(full->store, full->ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(tiers_of(full, 0), TIER_HOST | TIER_NVME);
    *(uint8_t *)entry_host_address(full->store, entry) ^= 1;
    assert_true(sim_file_corrupt(
        full->world, "/store/data/data.00", full_copy_at(full, 0), FULL_BLOCK_BYTES));
    assert_int_equal(relocate_start(full->store, &resident, 1, NVME_ROOT_NONE), 1);
    (void)sim_run_for(full->world, FULL_WAIT_NS);
    env_wake(&full->store->env, full->store->loop_task);
    (void)sim_run_for(full->world, FULL_WAIT_NS);
    assert_true(relocate_is_idle(full->store));
    assert_int_equal(atomic_load(&full->store->counters.corrupt_count), 2);
    kvt_lease_release(full->store, lease);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    assert_int_equal(full_entry(full, 0), ENTRY_NONE);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, 0, 1));
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_is_wrong_when_it_is_moved_leaves_for_good),
        cmocka_unit_test(a_block_that_cannot_be_read_once_when_it_is_moved_stays),
        cmocka_unit_test(a_block_that_cannot_be_read_beside_some_that_can_stays),
        cmocka_unit_test(a_block_that_cannot_be_read_keeps_no_put_from_its_room),
        cmocka_unit_test(a_block_for_which_the_kernel_has_no_memory_stays),
        cmocka_unit_test(a_put_that_finds_no_room_behind_a_lack_of_memory_is_not_refused),
        cmocka_unit_test(no_group_is_begun_behind_a_put_that_fails),
        cmocka_unit_test(a_block_that_differs_in_host_is_moved_as_nvme_has_it),
        cmocka_unit_test(a_block_that_is_wrong_in_both_tiers_leaves),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
