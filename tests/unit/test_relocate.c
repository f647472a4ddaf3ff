/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_relocate.c - blocks that are deleted, replaced, evicted or cannot be written while their
 * segment is reclaimed: in the simulated world, step by step, so that each operation can meet each
 * moment of a relocation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

enum {
#if defined(__SANITIZE_ADDRESS__)
    MOMENTS = 12,
#else
    MOMENTS = 24,
#endif
    STEPS_MAX = 200000,
    CHURNS = 16,
};

static uint64_t
counter(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}

static uint64_t
word_of(const struct full_store *full, uint32_t number)
{
    return atomic_load(&residency_at(full->store->map, number)->word);
}

/* --- Operations that meet a relocation -------------------------------------------------------- */

/* Step until a hot block is on its way. Its key, or FULL_HOT when there is none any more. */
static uint64_t
moving_key(struct full_store *full)
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        for (uint64_t key = 0; key < FULL_HOT && !relocate_is_idle(full->store); key++) {
            uint32_t number = full_entry(full, key);

            if (number != ENTRY_NONE && word_pins(word_of(full, number)) > 0)
                return key;
        }
        if (reclaim_is_idle(full->store))
            return FULL_HOT;
        sim_run_steps(full->world, 1);
    }
    return FULL_HOT;
}

/* Churn until a hot block is being moved, with a put in flight. */
static uint64_t
relocation_meet(struct full_store *full, kvt_ticket **ticket_out)
{
    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        uint64_t key;

        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t hot = 0; hot < FULL_HOT; hot++)
            (void)full_expect_at_most(full, hot, 1);
        *ticket_out = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        for (uint32_t k = 0; k < 2000 && reclaim_is_idle(full->store); k++)
            sim_run_steps(full->world, 1);
        key = moving_key(full);
        if (key != FULL_HOT)
            return key;
        assert_int_equal(kvt_ticket_wait(*ticket_out, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        kvt_ticket_free(*ticket_out);
    }
    fail_msg("no hot block was ever moved");
    return FULL_HOT;
}

/* The copies of a dead key that still stand somewhere: all are dead on the disk. */
static uint32_t
dead_copies_check(struct full_store *full, uint64_t key)
{
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    assert_int_equal(full_entry(full, key), ENTRY_NONE);
    return full_copies_check(full, key);
}

/* --- Operations ------------------------------------------------------------------------------- */

static void
a_block_that_is_deleted_while_it_is_moved_stays_away(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin(100 + moment, FULL_SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key;

        full_fill(full);
        key = relocation_meet(full, &ticket);
        sim_run_steps(full->world, moment);
        assert_int_equal(kit_delete(full->store, full->ns, key), KVT_OK);
        assert_false(full_expect_at_most(full, key, 0));
        if (moment % 2 == 0) {
            assert_int_equal(full_result(ticket), KVT_OK);
            (void)dead_copies_check(full, key);
            for (uint32_t i = 0; i < 40; i++)
                full_churn(full);
            assert_false(full_expect_at_most(full, key, 0));
            (void)dead_copies_check(full, key);
        }
        full_again(full, 0);
        assert_false(full_expect_at_most(full, key, 0));
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

static void
a_block_that_is_replaced_while_it_is_moved_stays_replaced(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin(200 + moment, FULL_SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key;

        full_fill(full);
        key = relocation_meet(full, &ticket);
        sim_run_steps(full->world, moment);
        full_put(full, key, 2);
        full_expect(full, key, 2);
        if (moment % 2 == 0) {
            assert_int_equal(full_result(ticket), KVT_OK);
            for (uint32_t i = 0; i < 20; i++)
                full_put(full, full->next_cold++, 1);
            (void)full_expect_at_most(full, key, 2);
        }
        full_again(full, 0);
        (void)full_expect_at_most(full, key, 2);
        full_again(full, KVT_OPEN_REBUILD);
        assert_true(full_expect_at_most(full, key, 2) || moment % 2 == 0);
        full_end(full);
    }
}

static bool
group_is_writing(const struct full_store *full)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL) {
        if (relocate_is_writing(full->store, segment->number))
            return true;
    }
    return false;
}

/* Step until the group that is on its way was written, and is being synced. */
static void
sync_meet(struct full_store *full)
{
    uint64_t io_count = sim_io_count(full->world);

    for (uint32_t i = 0; i < STEPS_MAX && !group_is_writing(full); i++) {
        sim_run_steps(full->world, 1);
        io_count = sim_io_count(full->world);
    }
    while (group_is_writing(full) && sim_io_count(full->world) < io_count + 2)
        sim_run_steps(full->world, 1);
    assert_true(group_is_writing(full));
}

/* The hot blocks in one submission: of some the copy in HOST is filled long before that of
 * others. */
static void
hot_replace(struct full_store *full, uint8_t *bytes)
{
    struct payload_key names[FULL_HOT];
    struct kvt_put puts[FULL_HOT] = {0};
    kvt_ticket *ticket = NULL;

    for (uint64_t key = 0; key < FULL_HOT; key++) {
        payload_key_make(&names[key], key);
        puts[key] = (struct kvt_put){.key = names[key].key,
            .source = bytes + key * FULL_BLOCK_BYTES,
            .length = FULL_BLOCK_BYTES,
            .flags = KVT_PUT_REPLACE};
        payload_fill(bytes + key * FULL_BLOCK_BYTES, FULL_BLOCK_BYTES, key, 2);
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, FULL_HOT, KVT_SYNC, NULL, &ticket), KVT_OK);
}

/* They are gone from the map, and what was written of them is alive nowhere. */
static void
a_namespace_that_is_cleared_while_its_blocks_are_moved_holds_no_room(void **state)
{
    (void)state;
    for (uint32_t seed = 900; seed < 900 + MOMENTS / 4; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        const struct segment *segment;
        uint32_t cursor = 0;
        kvt_ticket *ticket;

        full_fill(full);
        (void)relocation_meet(full, &ticket);
        sync_meet(full);
        assert_int_equal(kvt_namespace_clear(full->store, full->ns), KVT_OK);
        (void)full_result(ticket);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
        while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
            assert_int_equal(segment->live_bytes, 0);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            assert_false(full_expect_at_most(full, key, 0));
        full_again(full, 0);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

/* Until it is known where the copy stands that it is to take the place of. */
static void
a_put_that_replaces_a_block_waits_while_that_is_written(void **state)
{
    uint8_t *bytes = malloc((size_t)FULL_HOT * FULL_BLOCK_BYTES);
    struct full_store *full = full_begin(700, FULL_SEGMENTS);
    uint32_t number, looks = 0;
    kvt_ticket *ticket;
    uint64_t key;

    (void)state;
    assert_non_null(bytes);
    full_fill(full);
    key = relocation_meet(full, &ticket);
    sync_meet(full);
    number = full_entry(full, key);
    assert_true(word_pins(word_of(full, number)) > 0);
    hot_replace(full, bytes);
    for (; group_is_writing(full); looks++) {
        assert_int_equal(full_entry(full, key), number);
        assert_null(entries_at(full->store->entries, number)->flight);
        sim_run_steps(full->world, 1);
    }
    assert_true(looks > 1);
    assert_int_equal(full_result(ticket), KVT_OK);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    full_expect(full, key, 2);
    full_again(full, KVT_OPEN_REBUILD);
    (void)full_expect_at_most(full, key, 2);
    full_end(full);
    free(bytes);
}

/* A delete waits, too: its kill names the copy that is left. */
static void
a_delete_of_a_block_waits_while_that_is_written(void **state)
{
    (void)state;
    for (uint32_t seed = 800; seed < 800 + MOMENTS / 4; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        kvt_ticket *put, *ticket;
        uint32_t number, looks = 0;
        uint64_t key;

        full_fill(full);
        key = relocation_meet(full, &put);
        sync_meet(full);
        number = full_entry(full, key);
        ticket = full_delete_submit(full, key);
        for (; group_is_writing(full); looks++) {
            assert_int_equal(full_entry(full, key), number);
            sim_run_steps(full->world, 1);
        }
        assert_true(looks > 1);
        assert_int_equal(full_result(ticket), KVT_OK);
        assert_int_equal(full_result(put), KVT_OK);
        assert_int_equal(full_entry(full, key), ENTRY_NONE);
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

/* A block that is being written elsewhere, and whose old copy is found damaged; `ticket_out` as
 * relocation_meet(). */
static uint64_t
damage_meet(struct full_store *full, kvt_ticket **ticket_out)
{
    uint64_t key;

    full_fill(full);
    key = relocation_meet(full, ticket_out);
    sync_meet(full);
    entry_quarantine(full->store, full_entry(full, key));
    return key;
}

/* Its old copy was found damaged meanwhile: the new one stands in a batch that counts, and must not
 * come back when the victim, and the segment with the kill of the old one, are recycled. */
static void
a_block_that_is_found_damaged_while_it_is_moved_stays_away(void **state)
{
    (void)state;
    for (uint32_t seed = 950; seed < 950 + MOMENTS / 4; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key = damage_meet(full, &ticket);

        assert_true(kit_delete(full->store, full->ns, key) >= 0);
        assert_int_equal(full_result(ticket), KVT_OK);
        assert_true(dead_copies_check(full, key) > 0);
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

/* The same, and the power goes: the batch with the new copy may count by then, and its kill not. */
static void
a_copy_that_was_moved_in_vain_can_be_deleted_behind_a_crash(void **state)
{
    uint32_t dead_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin_hasty(1100 + moment);
        kvt_ticket *ticket;
        uint64_t key = damage_meet(full, &ticket);

        sim_run_steps(full->world, 2 * moment);
        full_again(full, 0);
        (void)full_expect_at_most(full, key, 1);
        assert_true(kit_delete(full->store, full->ns, key) >= 0);
        dead_count += dead_copies_check(full, key);
        full_end(full);
    }
    assert_true(dead_count > 0);
}

/* A delete that was told durable is that, also when the power goes before the kill of the new copy
 * has left by itself. */
static void
a_delete_of_what_was_found_damaged_while_it_is_moved_is_kept(void **state)
{
    (void)state;
    for (uint32_t seed = 950; seed < 950 + MOMENTS; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key = damage_meet(full, &ticket);

        assert_true(kit_delete(full->store, full->ns, key) >= 0);
        full_again(full, 0);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

/*
 * A crash right behind the commit of what was moved. When the block is deleted later, and the
 * segment of its new copy recycled, nothing else would name the old one.
 */
static void
an_old_copy_is_dead_with_the_commit_of_the_new_one(void **state)
{
    (void)state;
    for (uint32_t seed = 850; seed < 850 + MOMENTS / 2; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        uint64_t moved_count;
        kvt_ticket *ticket;

        full_fill(full);
        (void)relocation_meet(full, &ticket);
        moved_count = counter(&full->store->counters.nvme_relocate_count);
        for (uint32_t i = 0; i < STEPS_MAX && !group_is_writing(full); i++)
            sim_run_steps(full->world, 1);
        while (!relocate_is_idle(full->store))
            sim_run_steps(full->world, 1);
        assert_true(counter(&full->store->counters.nvme_relocate_count) > moved_count);
        full_again(full, 0);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            (void)full_copies_check(full, key);
        full_end(full);
    }
}

/*
 * The kill of a copy that was moved in vain must not be on disk before the block that takes the
 * place of both copies: a rebuild would find neither. Here that block's write takes long.
 */
static void
a_block_that_is_replaced_while_it_is_moved_is_never_gone(void **state)
{
    const struct sim_rule rule = {
        .ops = SIM_WRITE, .effect = SIM_STALL, .nth = 1, .stall_ns = UINT64_C(1000) * 1000 * 1000};
    uint8_t *bytes = malloc((size_t)FULL_HOT * FULL_BLOCK_BYTES);
    uint32_t durable_count = 0;

    (void)state;
    assert_non_null(bytes);
    for (uint32_t seed = 500; seed < 500 + MOMENTS / 2; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        bool is_durable[FULL_HOT];
        kvt_ticket *ticket;

        assert_int_equal(kvt_close(full->store), KVT_OK);
        full->options.batch_delay_ns = 1000; /* Batches are written side by side. */
        full_open(full, 0);
        full_fill(full);
        (void)relocation_meet(full, &ticket);
        sync_meet(full);
        for (uint64_t key = 0; key < FULL_HOT; key++) {
            uint32_t number = full_entry(full, key);

            is_durable[key] =
                number != ENTRY_NONE && (word_tiers(word_of(full, number)) & TIER_NVME) != 0;
            durable_count += is_durable[key];
        }
        hot_replace(full, bytes);
        sim_rule_add(full->world, &rule);
        (void)sim_run_for(full->world, UINT64_C(20) * 1000 * 1000);
        sim_rules_clear(full->world);
        sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
        full_open(full, KVT_OPEN_REBUILD);
        for (uint64_t key = 0; key < FULL_HOT; key++) {
            uint64_t version = 0;

            if (!is_durable[key])
                continue;
            assert_int_equal(kit_get(full->store, full->ns, key, &version), KVT_OK);
            assert_in_range(version, 1, 2);
        }
        full_end(full);
    }
    assert_true(durable_count > MOMENTS / 2);
    free(bytes);
}

static void
a_write_that_fails_while_blocks_are_moved_costs_no_more_than_them(void **state)
{
    uint64_t failed_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule rule = {
            .ops = moment % 2 == 0 ? SIM_WRITE : SIM_SYNC, .effect = SIM_EIO, .nth = 1};
        struct full_store *full = full_begin(300 + moment, FULL_SEGMENTS);
        kvt_ticket *ticket;
        bool is_deleted;

        full_fill(full);
        (void)relocation_meet(full, &ticket);
        sim_run_steps(full->world, moment / 2);
        sim_rule_add(full->world, &rule);
        for (uint32_t i = 0; i < STEPS_MAX && !relocate_is_idle(full->store); i++)
            sim_run_steps(full->world, 1);
        sim_rules_clear(full->world);
        (void)full_result(ticket); /* The put's own batch may be the one. */
        failed_count += counter(&full->store->counters.batch_failed_count);
        /* What may have reached the disk must not come back behind a delete. */
        is_deleted = moment % 2 == 1;
        for (uint64_t key = 0; key < FULL_HOT && is_deleted; key++)
            assert_true(kit_delete(full->store, full->ns, key) >= 0);
        for (uint64_t key = 0; key < FULL_HOT && is_deleted; key++)
            (void)dead_copies_check(full, key);
        for (uint32_t i = 0; i < 40 && !is_deleted; i++)
            full_churn(full); /* It goes on. */
        for (uint32_t life = 0; life < 3; life++) {
            for (uint64_t key = 0; key < FULL_HOT; key++)
                assert_true(!full_expect_at_most(full, key, 1) || !is_deleted);
            for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
                (void)full_expect_at_most(full, key, 1);
            if (life < 2)
                full_again(full, life == 0 ? 0 : KVT_OPEN_REBUILD);
        }
        full_end(full);
    }
    assert_true(failed_count > MOMENTS / 2);
}

/* The error that a write reports may be wrong: then the copies are on the disk all the same. */
static void
a_write_that_fails_and_arrives_leaves_no_copy_that_could_come_back(void **state)
{
    const struct sim_rule rule = {.ops = SIM_WRITE, .effect = SIM_ARRIVES, .nth = 1};
    uint32_t copy_count = 0;

    (void)state;
    for (uint32_t seed = 600; seed < 600 + MOMENTS / 2; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        uint64_t moved_count;
        kvt_ticket *ticket;

        full_fill(full);
        (void)relocation_meet(full, &ticket);
        for (uint32_t i = 0; i < STEPS_MAX && !group_is_writing(full); i++)
            sim_run_steps(full->world, 1);
        moved_count = counter(&full->store->counters.nvme_relocate_count);
        sim_rule_add(full->world, &rule);
        for (uint32_t i = 0; i < STEPS_MAX && group_is_writing(full); i++)
            sim_run_steps(full->world, 1);
        assert_true(counter(&full->store->counters.batch_failed_count) > 0);
        assert_int_equal(counter(&full->store->counters.nvme_relocate_count), moved_count);
        sim_rules_clear(full->world);
        assert_int_equal(full_result(ticket), KVT_OK);
        for (uint64_t key = 0; key < FULL_HOT; key++) {
            assert_true(kit_delete(full->store, full->ns, key) >= 0);
            copy_count += dead_copies_check(full, key);
        }
        for (uint32_t i = 0; i < FULL_BLOCKS / 2; i++)
            full_put(full, full->next_cold++, 1);
        full_again(full, KVT_OPEN_REBUILD);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
    assert_true(copy_count > MOMENTS / 2);
}

/* --- A group without a commit ----------------------------------------------------------------- */

/* A group is being written, behind the batch of a put, into one segment. */
static bool
group_is_behind_a_put(const struct full_store *full)
{
    const struct segment *active = segment_active(full->store->segments, 0);

    return active != NULL && commit_writes(full->store, active->number) &&
           relocate_is_writing(full->store, active->number);
}

/* Such a store, with the put that is in flight; every write takes a second. */
static struct full_store *
closing_begin(uint64_t seed, kvt_ticket **ticket_out)
{
    const struct sim_rule slow = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .nth = 1,
        .sticky = true,
        .file = "data.",
        .stall_ns = UINT64_C(1000) * 1000 * 1000};

    for (uint32_t more = 0; more < CHURNS; more++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS + 2);

        assert_int_equal(kvt_close(full->store), KVT_OK);
        full->options.nvme_high_percent = 40; /* One segment after the other is reclaimed. */
        full_open(full, 0);
        full_fill(full);
        for (uint32_t i = 0; i < more; i++)
            full_churn(full);
        sim_rule_add(full->world, &slow);
        (void)relocation_meet(full, ticket_out);
        for (uint32_t i = 0; i < STEPS_MAX && !group_is_writing(full); i++)
            sim_run_steps(full->world, 1);
        if (group_is_behind_a_put(full))
            return full;
        sim_rules_clear(full->world);
        assert_int_equal(full_result(*ticket_out), KVT_OK);
        full_end(full);
    }
    fail_msg("no group was ever written behind a put");
    return NULL;
}

/*
 * A batch of puts and a group that is moved are written into one segment, which is closed before
 * the batch is committed. The commit of the group does not come about, and the power goes.
 */
static void
a_group_in_a_closed_segment_that_was_not_committed_never_comes_to_life(void **state)
{
    const struct sim_rule second_commit_fails = {
        .ops = SIM_COMMIT, .effect = SIM_ENOSPC, .nth = 2, .sticky = true};
    uint32_t copy_count = 0;

    (void)state;
    for (uint32_t seed = 700; seed < 700 + MOMENTS / 2; seed++) {
        kvt_ticket *ticket;
        struct full_store *full = closing_begin(seed, &ticket);
        struct segment *segment = segment_active(full->store->segments, 0);

        segment_seal(full->store->segments, segment); /* As where the next batch has no room. */
        sim_rule_add(full->world, &second_commit_fails);
        assert_int_equal(full_result(ticket), KVT_OK);
        (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000);
        sim_rules_clear(full->world);
        full->options.nvme_high_percent = 0; /* Their segments are not reclaimed any more. */
        full_again(full, 0);
        for (uint64_t key = 0; key < FULL_HOT; key++) {
            assert_true(kit_delete(full->store, full->ns, key) >= 0);
            copy_count += dead_copies_check(full, key);
        }
        full_again(full, KVT_OPEN_REBUILD);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
    assert_true(copy_count >= MOMENTS / 2);
}

/* --- Evicted blocks --------------------------------------------------------------------------- */

/* Cold keys that have left the map since the last look, one of them; 0: none. */
static uint64_t
evicted_key(const struct full_store *full, bool *is_there)
{
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        if (is_there[key - FULL_COLD] && full_entry(full, key) == ENTRY_NONE)
            return key;
    }
    return 0;
}

static void
a_delete_of_what_was_just_evicted_is_safe_before_it_says_so(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < 8; moment++) {
        struct full_store *full = full_begin(400 + moment, FULL_SEGMENTS);
        bool is_there[2 * FULL_BLOCKS] = {false};
        kvt_ticket *ticket;
        uint64_t key = 0;

        full_fill(full);
        (void)relocation_meet(full, &ticket);
        for (key = FULL_COLD; key < full->next_cold; key++)
            is_there[key - FULL_COLD] = full_entry(full, key) != ENTRY_NONE;
        key = 0;
        for (uint32_t i = 0; i < STEPS_MAX && key == 0; i++) {
            sim_run_steps(full->world, 1);
            key = evicted_key(full, is_there);
        }
        assert_int_not_equal(key, 0);
        sim_run_steps(full->world, moment);
        assert_int_equal(kit_delete(full->store, full->ns, key), KVT_MISS);
        /* Nothing is finished that was under way. */
        full_again(full, moment % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, key, 0));
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_is_deleted_while_it_is_moved_stays_away),
        cmocka_unit_test(a_block_that_is_replaced_while_it_is_moved_stays_replaced),
        cmocka_unit_test(a_namespace_that_is_cleared_while_its_blocks_are_moved_holds_no_room),
        cmocka_unit_test(a_put_that_replaces_a_block_waits_while_that_is_written),
        cmocka_unit_test(a_delete_of_a_block_waits_while_that_is_written),
        cmocka_unit_test(a_block_that_is_found_damaged_while_it_is_moved_stays_away),
        cmocka_unit_test(a_copy_that_was_moved_in_vain_can_be_deleted_behind_a_crash),
        cmocka_unit_test(a_delete_of_what_was_found_damaged_while_it_is_moved_is_kept),
        cmocka_unit_test(an_old_copy_is_dead_with_the_commit_of_the_new_one),
        cmocka_unit_test(a_block_that_is_replaced_while_it_is_moved_is_never_gone),
        cmocka_unit_test(a_write_that_fails_while_blocks_are_moved_costs_no_more_than_them),
        cmocka_unit_test(a_write_that_fails_and_arrives_leaves_no_copy_that_could_come_back),
        cmocka_unit_test(a_group_in_a_closed_segment_that_was_not_committed_never_comes_to_life),
        cmocka_unit_test(a_delete_of_what_was_just_evicted_is_safe_before_it_says_so),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
