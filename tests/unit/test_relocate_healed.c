/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_relocate_healed.c - blocks whose copy on NVMe is bad when their segment is reclaimed, while
 * HOST or HBM has them, too: only that copy is given up, and HOST's is written again. Whatever
 * meets that, no crash brings back what was deleted or replaced, and none costs another block.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_host.h"
#include "full_store.h"
#include "payload.h"
#include "stop_on_proof.h"

enum {
#if defined(__SANITIZE_ADDRESS__)
    MOMENTS = 8,
#else
    MOMENTS = 20,
#endif
    STEPS_MAX = 200000,
    PARTS = 4,
    PART_BYTES = FULL_BLOCK_BYTES / PARTS,
    BAD_OFFSETS = 5,
    BAD = 2, /* The hot key whose copy on NVMe is bad. */
};

/* Where the copy is bad: in a part, or in the trailer. */
static const uint64_t bad_offsets[BAD_OFFSETS] = {
    100, PART_BYTES, 3 * PART_BYTES - 1, FULL_BLOCK_BYTES - 1, FULL_BLOCK_BYTES + 8};

/* --- A store with a copy that is bad ---------------------------------------------------------- */

static unsigned
tiers_of(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);

    return number == ENTRY_NONE
               ? 0
               : word_tiers(atomic_load(&residency_at(full->store->map, number)->word));
}

static void
parts_put(struct full_store *full, uint64_t key, uint64_t version)
{
    struct payload_key name;
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, key);
    payload_fill(full->bytes, FULL_BLOCK_BYTES, key, version);
    const struct kvt_put put = {.key = name.key,
        .source = full->bytes,
        .length = FULL_BLOCK_BYTES,
        .flags = KVT_PUT_REPLACE,
        .part_count = PARTS};
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(full_result(ticket), KVT_OK);
}

/* NVMe is full, and the hot blocks are made of parts. */
static struct full_store *
parts_begin(uint64_t seed)
{
    struct full_store *full = full_begin(seed, FULL_SEGMENTS);

    for (uint64_t key = 0; key < FULL_HOT; key++)
        parts_put(full, key, 1);
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_churn(full);
    return full;
}

/* From now on the copy of BAD on NVMe differs there. */
static void
copy_damage(struct full_store *full, uint64_t offset)
{
    const struct entry *entry = residency_at(full->store->map, full_entry(full, BAD));
    uint64_t page =
        (uint64_t)segment_index(entry->segment) * full->store->file.segment_pages + entry->page;

    assert_true((tiers_of(full, BAD) & TIER_NVME) != 0);
    assert_true(sim_file_corrupt(full->world, "store/data/data.00", page * PAGE_BYTES + offset, 1));
}

static uint64_t
bad_count(const struct full_store *full)
{
    return atomic_load(&full->store->counters.corrupt_count) +
           atomic_load(&full->store->counters.read_failed_count);
}

/* Churn until a relocation has met the bad copy. The put that made it is left in flight.
 * `leaves_host`: HOST has no copy of that block then. */
static kvt_ticket *
relocation_meet(struct full_store *full, const struct sim_rule *rule, bool leaves_host)
{
    uint64_t before_count = bad_count(full);

    for (uint32_t i = 0; i < 3 * FULL_BLOCKS; i++) {
        kvt_ticket *ticket;

        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        full_expect(full, BAD, 1); /* The last of them: it goes last. */
        if (leaves_host && (tiers_of(full, BAD) & TIER_HOST) != 0)
            assert_true(entry_host_release(full->store, full_entry(full, BAD), KVT_REASON_EVICTED));
        ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        for (uint32_t n = 0; n < 2000 && reclaim_is_idle(full->store); n++)
            sim_run_steps(full->world, 1);
        for (uint32_t n = 0;
             n < STEPS_MAX && !reclaim_is_idle(full->store) && relocate_is_idle(full->store); n++)
            sim_run_steps(full->world, 1);
        if (rule != NULL)
            sim_rule_add(full->world, rule);
        for (uint32_t n = 0; n < STEPS_MAX && !reclaim_is_idle(full->store); n++) {
            if (bad_count(full) > before_count) {
                sim_rules_clear(full->world);
                return ticket;
            }
            sim_run_steps(full->world, 1);
        }
        sim_rules_clear(full->world);
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    fail_msg("no relocation has met the bad copy");
    return NULL;
}

/* Until all that the store does by itself is done. */
static void
rest(struct full_store *full)
{
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    assert_true(commit_is_idle(full->store));
}

/* Which of the hot blocks are on NVMe: others have left it with a segment. */
static void
durable_note(const struct full_store *full, bool is_durable[FULL_HOT])
{
    for (uint64_t key = 0; key < FULL_HOT; key++)
        is_durable[key] = (tiers_of(full, key) & TIER_NVME) != 0;
}

static void
durable_expect(struct full_store *full, const bool is_durable[FULL_HOT])
{
    for (uint64_t key = 0; key < FULL_HOT; key++) {
        if (is_durable[key])
            full_expect(full, key, 1);
    }
}

/* BAD is on NVMe, and it and others are there after a power cut, and one with the index lost. */
static void
hot_are_durable(struct full_store *full)
{
    bool is_durable[FULL_HOT];

    durable_note(full, is_durable);
    assert_true(is_durable[BAD]);
    for (uint32_t life = 0; life < 2; life++) {
        full_again(full, life == 0 ? 0 : KVT_OPEN_REBUILD);
        durable_expect(full, is_durable);
    }
}

/* --- HOST has it ------------------------------------------------------------------------------ */

static void
a_block_of_parts_that_host_has_is_written_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BAD_OFFSETS; i++) {
        struct full_store *full = parts_begin(100 + i);
        uint32_t number = full_entry(full, BAD);
        kvt_ticket *ticket;

        copy_damage(full, bad_offsets[i]);
        ticket = relocation_meet(full, NULL, false);
        assert_int_equal(full_entry(full, BAD), number);
        full_expect(full, BAD, 1);
        assert_int_equal(full_result(ticket), KVT_OK);
        rest(full);
        assert_int_equal(tiers_of(full, BAD), TIER_HOST | TIER_NVME);
        assert_int_equal(bad_count(full), 1);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            (void)full_copies_check(full, key);
        hot_are_durable(full);
        full_end(full);
    }
}

/* Whatever goes wrong with a read. The blocks are all bad then. */
static void
blocks_of_parts_that_cannot_be_read_are_written_again(void **state)
{
    static const enum sim_effect effects[] = {SIM_FLIP, SIM_MISDIRECT, SIM_EIO};

    (void)state;
    for (uint32_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = effects[i], .file = "data.", .nth = 1, .sticky = true};
        struct full_store *full = parts_begin(200 + i);
        kvt_ticket *ticket = relocation_meet(full, &rule, false);

        assert_int_equal(full_result(ticket), KVT_OK);
        rest(full);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            full_expect(full, key, 1);
        hot_are_durable(full);
        full_end(full);
    }
}

/* The power goes at each moment: the bad copy's block may be gone, and no other. */
static void
a_crash_while_a_block_is_written_again_costs_no_other(void **state)
{
    uint32_t kept_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < 2 * MOMENTS; moment++) {
        struct full_store *full = parts_begin(300 + moment);
        bool is_durable[FULL_HOT];
        bool is_there;

        copy_damage(full, bad_offsets[moment % BAD_OFFSETS]);
        (void)relocation_meet(full, NULL, false);
        sim_run_steps(full->world, moment * 2);
        durable_note(full, is_durable);
        sim_power_cut(full->world, moment % 2 == 0 ? SIM_CUT_NOTHING_KEPT : SIM_CUT_SEEDED);
        full_open(full, moment % 4 < 2 ? 0 : KVT_OPEN_REBUILD);
        /* What is found damaged is killed; with that, others may make room. */
        durable_expect(full, is_durable);
        is_there = full_expect_at_most(full, BAD, 1);
        kept_count += is_there;
        rest(full);
        full_again(full, KVT_OPEN_REBUILD);
        assert_true(!full_expect_at_most(full, BAD, 1) || is_there);
        full_end(full);
    }
    assert_in_range(kept_count, 1, 2 * MOMENTS - 1);
}

/* --- What meets it ---------------------------------------------------------------------------- */

/* A relocation finds BAD's copy bad; at odd moments only once: it could come back. */
static kvt_ticket *
copy_meet(struct full_store *full, uint32_t moment, bool leaves_host)
{
    const struct sim_rule rule = {.ops = SIM_READ,
        .effect = moment % 4 == 1 ? SIM_FLIP : SIM_EIO,
        .file = "data.",
        .nth = 1,
        .sticky = true};

    if (moment % 2 == 0)
        copy_damage(full, bad_offsets[moment % BAD_OFFSETS]);
    return relocation_meet(full, moment % 2 == 0 ? NULL : &rule, leaves_host);
}

static void
a_block_that_is_deleted_while_it_is_written_again_stays_away(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = parts_begin(400 + moment);
        kvt_ticket *ticket;

        ticket = copy_meet(full, moment, false);
        sim_run_steps(full->world, moment * 2);
        assert_int_equal(kit_delete(full->store, full->ns, BAD), KVT_OK);
        assert_false(full_expect_at_most(full, BAD, 0));
        if (moment % 3 == 0) {
            assert_int_equal(full_result(ticket), KVT_OK);
            rest(full);
            (void)full_copies_check(full, BAD);
            for (uint32_t i = 0; i < 40; i++)
                full_churn(full);
        }
        for (uint32_t life = 0; life < 2; life++) {
            full_again(full, (moment / 4 + life) % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
            assert_false(full_expect_at_most(full, BAD, 0));
        }
        full_end(full);
    }
}

static void
a_block_that_is_replaced_while_it_is_written_again_stays_replaced(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = parts_begin(500 + moment);

        (void)copy_meet(full, moment, false);
        sim_run_steps(full->world, moment * 2);
        if (moment % 4 < 2)
            parts_put(full, BAD, 2);
        else
            full_put(full, BAD, 2);
        full_expect(full, BAD, 2);
        for (uint32_t life = 0; life < 2; life++) {
            full_again(full, (moment / 4 + life) % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
            full_expect(full, BAD, 2);
        }
        full_end(full);
    }
}

/* A write that fails: the block waits for another, or stays in HOST. */
static void
a_block_whose_second_write_fails_stays_in_host(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule rule = {.ops = moment % 2 == 0 ? SIM_WRITE : SIM_SYNC,
            .effect = SIM_EIO,
            .nth = 1 + moment / 2 % 3,
            .file = "data."};
        struct full_store *full = parts_begin(600 + moment);

        copy_damage(full, bad_offsets[moment % BAD_OFFSETS]);
        (void)relocation_meet(full, NULL, false);
        sim_rule_add(full->world, &rule);
        (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
        sim_rules_clear(full->world);
        for (uint32_t i = 0; i < 20; i++)
            full_churn(full);
        assert_true((tiers_of(full, BAD) & TIER_HOST) != 0);
        rest(full);
        hot_are_durable(full);
        full_end(full);
    }
}

/* Readers keep what they have: the segment has its turn again, and others go first. */
static void
a_block_with_a_lease_stays_as_it_is_and_is_written_again_later(void **state)
{
    struct full_store *full = parts_begin(700);
    uint64_t recycle_count;
    struct payload_key name;
    kvt_ticket *ticket;
    kvt_lease lease;

    (void)state;
    copy_damage(full, bad_offsets[0]);
    payload_key_make(&name, BAD);
    assert_int_equal(kvt_lookup(full->store, full->ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    ticket = relocation_meet(full, NULL, false);
    assert_int_equal(full_result(ticket), KVT_OK);
    rest(full);
    recycle_count = atomic_load(&full->store->counters.segment_recycle_count);
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_churn(full);
    assert_true(atomic_load(&full->store->counters.segment_recycle_count) > recycle_count + 2);
    assert_int_equal(tiers_of(full, BAD), TIER_HOST | TIER_NVME);
    full_expect(full, BAD, 1);
    kvt_lease_release(full->store, lease);
    ticket = relocation_meet(full, NULL, false);
    assert_int_equal(full_result(ticket), KVT_OK);
    rest(full);
    assert_int_equal(tiers_of(full, BAD), TIER_HOST | TIER_NVME);
    hot_are_durable(full);
    full_end(full);
}

/* kvt_pin() keeps the block, not a copy that nobody can read. */
static void
a_block_that_is_pinned_by_its_caller_is_written_again(void **state)
{
    struct full_store *full = parts_begin(800);
    struct payload_key name;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, BAD);
    assert_int_equal(kvt_pin(full->store, full->ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    copy_damage(full, bad_offsets[0]);
    ticket = relocation_meet(full, NULL, false);
    assert_int_equal(full_result(ticket), KVT_OK);
    rest(full);
    assert_int_equal(bad_count(full), 1);
    assert_int_equal(tiers_of(full, BAD), TIER_HOST | TIER_NVME);
    hot_are_durable(full);
    full_end(full);
}

/* --- HBM alone has it ------------------------------------------------------------------------- */

/* A store with a device, which alone beside NVMe has BAD. */
static struct full_store *
hbm_begin(uint64_t seed, struct kvt_env *env, struct device_host_config *device, bool has_parts)
{
    struct full_store *full = has_parts ? parts_begin(seed) : full_begin(seed, FULL_SEGMENTS);
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    struct payload_key name;
    kvt_ticket *ticket = NULL;

    if (!has_parts)
        full_fill(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    *device = (struct device_host_config){.seed = seed,
        .delay_ns_max = 300000,
        .memory_bytes = UINT64_C(64) << 20,
        .device_count = 1};
    *env = *full->reach.env;
    env->device = &device_host_ops;
    env->device_context = device;
    full->reach.env = env;
    full->options.hbm_capacity_bytes = 2 << 20;
    full_open(full, 0);
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_churn(full); /* Some of what is admitted may be written again. */
    for (uint64_t key = 0; key < FULL_HOT; key++) {
        if (has_parts)
            parts_put(full, key, 1);
        else
            full_put(full, key, 1);
    }
    payload_key_make(&name, BAD);
    assert_int_equal(
        kvt_prefetch_submit(full->store, full->ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    return full;
}

/* It comes into HOST with each get, and leaves it before its segment is reclaimed. */
static void
a_block_that_hbm_has_stays_there(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * BAD_OFFSETS; i++) {
        struct device_host_config device;
        struct kvt_env env;
        struct full_store *full = hbm_begin(900 + i, &env, &device, i % 2 == 0);
        struct payload_key name;
        kvt_ticket *ticket;

        copy_damage(full, i % 2 == 0 ? bad_offsets[i / 2] : bad_offsets[0]);
        ticket = relocation_meet(full, NULL, true);
        assert_int_equal(tiers_of(full, BAD), TIER_HBM);
        assert_int_equal(full_result(ticket), KVT_OK);
        rest(full);
        assert_int_equal(tiers_of(full, BAD), TIER_HBM);
        (void)full_copies_check(full, BAD);
        full_expect(full, BAD, 1);
        payload_key_make(&name, BAD);
        assert_int_equal(
            kvt_demote_submit(full->store, full->ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket),
            KVT_OK);
        assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
        assert_int_equal(tiers_of(full, BAD), TIER_NVME);
        hot_are_durable(full);
        full_end(full);
    }
}

static void
a_block_that_only_hbm_has_left_is_deleted_for_good(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct device_host_config device;
        struct kvt_env env;
        struct full_store *full = hbm_begin(1000 + moment, &env, &device, moment % 2 == 0);

        (void)copy_meet(full, moment, true);
        sim_run_steps(full->world, moment * 2);
        assert_int_equal(kit_delete(full->store, full->ns, BAD), KVT_OK);
        for (uint32_t life = 0; life < 2; life++) {
            full_again(full, (moment / 4 + life) % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
            assert_false(full_expect_at_most(full, BAD, 0));
        }
        full_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_parts_that_host_has_is_written_again),
        cmocka_unit_test(blocks_of_parts_that_cannot_be_read_are_written_again),
        cmocka_unit_test(a_crash_while_a_block_is_written_again_costs_no_other),
        cmocka_unit_test(a_block_that_is_deleted_while_it_is_written_again_stays_away),
        cmocka_unit_test(a_block_that_is_replaced_while_it_is_written_again_stays_replaced),
        cmocka_unit_test(a_block_whose_second_write_fails_stays_in_host),
        cmocka_unit_test(a_block_with_a_lease_stays_as_it_is_and_is_written_again_later),
        cmocka_unit_test(a_block_that_is_pinned_by_its_caller_is_written_again),
        cmocka_unit_test(a_block_that_hbm_has_stays_there),
        cmocka_unit_test(a_block_that_only_hbm_has_left_is_deleted_for_good),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
