/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_evicted.c - deletes of blocks whose copy left NVMe with its segment: whatever stops the
 * reclaim of that segment, and whenever, no crash brings back what was acknowledged as gone.
 *
 * Until the segment is FREE again its records stand in the index, or its headers on the disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

enum {
#if defined(__SANITIZE_ADDRESS__)
    MOMENTS = 4,
#else
    MOMENTS = 12,
#endif
    STEPS_MAX = 200000,
    KEYS_MAX = 4 * FULL_BLOCKS,
    LEASES_MAX = FULL_SEGMENTS,
};

struct evicting {
    struct full_store *full;
    kvt_ticket *ticket;         /* Of the put that wanted room. */
    bool was_there[KEYS_MAX];   /* Cold keys with a copy on NVMe. */
    uint64_t evicted[KEYS_MAX]; /* Those that have lost it since. */
    uint32_t evicted_count;
    kvt_lease leases[LEASES_MAX];
    uint32_t lease_count;
    bool is_gone[KEYS_MAX]; /* evicted[]: the delete was acknowledged. */
    uint32_t gone_count, refused_count;
};

static bool
is_on_nvme(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);

    return number != ENTRY_NONE &&
           (word_tiers(atomic_load(&residency_at(full->store->map, number)->word)) & TIER_NVME) !=
               0;
}

static void
put_finish(struct evicting *evicting)
{
    assert_int_equal(kvt_ticket_wait(evicting->ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    kvt_ticket_free(evicting->ticket);
    evicting->ticket = NULL;
}

/* The cold keys that stood on NVMe at the beginning of the reclaim and do so no more. */
static void
evicted_note(struct evicting *evicting)
{
    const struct full_store *full = evicting->full;

    evicting->evicted_count = 0;
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        if (evicting->was_there[key - FULL_COLD] && !is_on_nvme(full, key))
            evicting->evicted[evicting->evicted_count++] = key;
    }
}

static void
start_note(struct evicting *evicting)
{
    const struct full_store *full = evicting->full;

    assert_true(full->next_cold - FULL_COLD <= KEYS_MAX);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        evicting->was_there[key - FULL_COLD] = is_on_nvme(full, key);
}

/* Each segment gets a pinned block, unless it has only hot ones. */
static void
lease_one_a_segment(struct evicting *evicting)
{
    struct full_store *full = evicting->full;
    bool is_leased[FULL_SEGMENTS] = {false};

    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        struct payload_key name;
        uint8_t tiers = 0;
        uint32_t segment;

        if (!is_on_nvme(full, key))
            continue;
        segment = segment_index(residency_at(full->store->map, full_entry(full, key))->segment);
        assert_true(segment < FULL_SEGMENTS);
        if (is_leased[segment])
            continue;
        payload_key_make(&name, key);
        assert_int_equal(kvt_lookup(full->store, full->ns, &name.key, 1, &tiers, NULL,
                             &evicting->leases[evicting->lease_count]),
            KVT_OK);
        evicting->lease_count++;
        is_leased[segment] = true;
    }
}

/* On to the moment when blocks of a victim have left NVMe, with a put in flight. `is_leased`: one
 * block a segment has a lease since the survivors were chosen, so that the victim is not empty yet.
 */
static void
evicting_next(struct evicting *evicting, bool is_leased)
{
    struct full_store *full = evicting->full;

    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t hot = 0; hot < FULL_HOT; hot++)
            (void)full_expect_at_most(full, hot, 1);
        start_note(evicting);
        evicting->ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        for (uint32_t k = 0; k < 2000 && reclaim_is_idle(full->store); k++)
            sim_run_steps(full->world, 1);
        for (uint32_t k = 0; k < STEPS_MAX && !reclaim_is_idle(full->store); k++) {
            if (is_leased && evicting->lease_count == 0 && !relocate_is_idle(full->store))
                lease_one_a_segment(evicting);
            evicted_note(evicting);
            if (evicting->evicted_count > 0 && (!is_leased || evicting->lease_count > 0))
                return;
            sim_run_steps(full->world, 1);
        }
        put_finish(evicting);
    }
    fail_msg("no victim was emptied");
}

/* A full store, and then evicting_next(). HOST keeps a copy of each of the blocks that leave NVMe,
 * or (`is_host_small`) of few. */
static struct evicting
evicting_begin(uint64_t seed, bool is_host_small, bool is_leased)
{
    struct evicting evicting = {.full = full_begin(seed, FULL_SEGMENTS)};
    struct full_store *full = evicting.full;

    if (!is_host_small) {
        assert_int_equal(kvt_close(full->store), KVT_OK);
        full->options.host_capacity_bytes = 64 << 20;
        full_open(full, 0);
    }
    full_fill(full);
    evicting_next(&evicting, is_leased);
    return evicting;
}

/* Whoever deletes is told the truth, at once or when it is known. */
static void
evicted_delete(struct evicting *evicting)
{
    struct full_store *full = evicting->full;

    evicted_note(evicting);
    for (uint32_t i = 0; i < evicting->evicted_count; i++) {
        enum kvt_status status = kit_delete(full->store, full->ns, evicting->evicted[i]);

        evicting->is_gone[i] = status == KVT_OK || status == KVT_MISS;
        evicting->gone_count += evicting->is_gone[i];
        evicting->refused_count += status < 0;
    }
}

static void
leases_release(struct evicting *evicting)
{
    for (uint32_t i = 0; i < evicting->lease_count; i++)
        kvt_lease_release(evicting->full->store, evicting->leases[i]);
    evicting->lease_count = 0;
}

/* What was acknowledged stays away through two crashes, the second with the index lost. */
static void
evicted_stay_away(struct evicting *evicting, uint32_t flags)
{
    for (uint32_t life = 0; life < 2; life++) {
        full_again(evicting->full, life == 0 ? flags : KVT_OPEN_REBUILD);
        for (uint32_t i = 0; i < evicting->evicted_count; i++) {
            if (evicting->is_gone[i])
                assert_false(full_expect_at_most(evicting->full, evicting->evicted[i], 0));
        }
    }
}

/* Of a block in HOST. */
static bool
has_dropped(const struct full_store *full, uint64_t key)
{
    return reclaim_has_dropped(
        full->store, residency_at(full->store->map, full_entry(full, key))->fingerprint);
}

/* Of one victim after another, until it is FREE. */
static void
it_is_known_what_has_left_nvme_with_a_victim(void **state)
{
    struct evicting evicting = evicting_begin(99, false, false);
    struct full_store *full = evicting.full;

    (void)state;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        uint32_t dropped_count = 0;

        for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
            dropped_count += full_entry(full, key) != ENTRY_NONE && has_dropped(full, key);
        assert_true(dropped_count > 1);
        assert_int_equal(dropped_count, evicting.evicted_count);
        for (uint32_t k = 0; k < evicting.evicted_count; k++)
            assert_true(has_dropped(full, evicting.evicted[k]));
        put_finish(&evicting);
        while (!reclaim_is_idle(full->store))
            sim_run_steps(full->world, 1);
        for (uint32_t k = 0; k < evicting.evicted_count; k++)
            assert_false(has_dropped(full, evicting.evicted[k]));
        evicting_next(&evicting, false);
    }
    put_finish(&evicting);
    full_end(full);
}

/* A crash, behind each moment of the reclaim. */
static void
a_block_in_host_whose_copy_just_left_nvme_is_deleted_for_good(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct evicting evicting = evicting_begin(100 + moment, false, false);

        sim_run_steps(evicting.full->world, moment / 2);
        evicted_delete(&evicting);
        assert_int_equal(evicting.refused_count, 0);
        assert_true(evicting.gone_count > 0);
        evicted_stay_away(&evicting, moment % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
        full_end(evicting.full);
    }
}

/* The older copy must not come back behind the delete of a newer one. */
static void
a_block_that_was_put_again_is_deleted_with_the_copy_that_left(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule slow = {
            .ops = SIM_COMMIT, .effect = SIM_STALL, .nth = 1, .stall_ns = UINT64_C(50) * 1000000};
        struct evicting evicting = evicting_begin(200 + moment, moment % 2 == 0, true);
        struct full_store *full = evicting.full;
        uint64_t key = evicting.evicted[0];
        enum kvt_status status;

        sim_rule_add(full->world, &slow);
        assert_true(kit_put(full->store, full->ns, key, 2, 1000,
                        moment % 4 < 2 ? KVT_SYNC : KVT_MEMORY) >= 0);
        status = kit_delete(full->store, full->ns, key);
        assert_true(status == KVT_OK || status == KVT_MISS);
        sim_rules_clear(full->world);
        full_again(full, 0);
        assert_false(full_expect_at_most(full, key, 0));
        full_end(full);
    }
}

/* The index refuses the transaction that takes the victim's records away. */
static void
no_delete_is_acknowledged_behind_a_commit_that_failed(void **state)
{
    const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true};
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct evicting evicting = evicting_begin(300 + moment, moment % 2 == 0, false);

        sim_rule_add(evicting.full->world, &fails);
        if (moment % 4 < 2)
            (void)sim_run_for(evicting.full->world, UINT64_C(100) * 1000 * 1000);
        evicted_delete(&evicting);
        refused_count += evicting.refused_count;
        sim_rules_clear(evicting.full->world);
        evicted_stay_away(&evicting, 0);
        full_end(evicting.full);
    }
    assert_true(refused_count > 0);
}

/* A victim that is not empty yet, whose last block cannot be written elsewhere, is let go. */
static void
a_victim_that_is_let_go_half_empty_buries_what_has_left_it(void **state)
{
    uint32_t gone_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule fails = {
            .ops = moment % 4 < 2 ? SIM_WRITE : SIM_SYNC, .effect = SIM_EIO, .nth = 1};
        struct evicting evicting = evicting_begin(400 + moment, moment % 2 == 0, true);

        sim_rule_add(evicting.full->world, &fails);
        if (moment % 8 < 4)
            (void)sim_run_for(evicting.full->world, UINT64_C(100) * 1000 * 1000);
        evicted_delete(&evicting);
        gone_count += evicting.gone_count;
        sim_rules_clear(evicting.full->world);
        evicted_stay_away(&evicting, 0);
        full_end(evicting.full);
    }
    assert_true(gone_count > 0);
}

/* On until the victim is empty. */
static void
recycling_meet(const struct full_store *full)
{
    for (uint32_t i = 0;
         i < STEPS_MAX && segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) == 0; i++)
        sim_run_steps(full->world, 1);
}

/* The recycle header cannot be written: the victim's headers stand as they were. */
static void
a_victim_without_a_recycle_header_brings_nothing_back(void **state)
{
    uint32_t gone_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule fails = {
            .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .file = "data."};
        struct evicting evicting = evicting_begin(500 + moment, moment % 2 == 0, false);
        struct full_store *full = evicting.full;

        recycling_meet(full);
        sim_rule_add(full->world, &fails);
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        evicted_delete(&evicting);
        gone_count += evicting.gone_count;
        sim_rules_clear(full->world);
        /* It has its turn again, and others have theirs; or the power goes first. */
        for (uint32_t i = 0; moment % 3 > 0 && i < 2 * FULL_BLOCKS; i++)
            assert_int_equal(
                full_result(full_put_submit(full, full->next_cold++, 1, KVT_SYNC)), KVT_OK);
        evicted_stay_away(&evicting, KVT_OPEN_REBUILD);
        full_end(full);
    }
    assert_true(gone_count > 0);
}

/* A crash leaves a victim RECYCLING: its headers void nothing before the next write. */
static void
a_victim_that_a_crash_left_recycling_brings_nothing_back(void **state)
{
    uint32_t gone_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct evicting evicting = evicting_begin(600 + moment, true, false);
        struct full_store *full = evicting.full;

        sim_run_steps(full->world, moment);
        evicted_note(&evicting);
        full_again(full, 0);
        for (uint32_t i = 0; i < evicting.evicted_count; i++) {
            enum kvt_status status = kit_delete(full->store, full->ns, evicting.evicted[i]);

            assert_true(status == KVT_OK || status == KVT_MISS);
            evicting.is_gone[i] = true;
            gone_count += status == KVT_MISS;
        }
        evicted_stay_away(&evicting, KVT_OPEN_REBUILD);
        full_end(full);
    }
    assert_true(gone_count > 0);
}

/* The process is killed when the recycle header of a victim is written and not synced. */
static struct evicting
unsynced_begin(uint32_t moment)
{
    const struct sim_rule late = {.ops = SIM_SYNC,
        .effect = SIM_STALL,
        .nth = 1,
        .sticky = true,
        .file = "data.",
        .stall_ns = UINT64_C(50) * 1000000};
    struct evicting evicting = evicting_begin(600 + moment, true, false);
    struct full_store *full = evicting.full;

    recycling_meet(full);
    sim_rule_add(full->world, &late);
    (void)sim_run_for(full->world, UINT64_C(10) * 1000000);
    evicted_note(&evicting);
    sim_rules_clear(full->world);
    sim_vanish(full->world);
    return evicting;
}

/* The next open sees it, and not the headers that it hides, but the power may go before any disk
 * has it. */
static void
a_recycle_header_that_was_not_synced_hides_nothing_for_good(void **state)
{
    uint32_t gone_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct evicting evicting = unsynced_begin(moment);

        full_open(evicting.full, 0);
        evicted_delete(&evicting);
        assert_int_equal(evicting.refused_count, 0);
        gone_count += evicting.gone_count;
        evicted_stay_away(&evicting, KVT_OPEN_REBUILD);
        full_end(evicting.full);
    }
    assert_true(gone_count > 0);
}

/* Nor does a rebuild promise what it hides, when that cannot be synced then, either. */
static void
a_rebuild_that_cannot_sync_a_recycle_header_promises_nothing_of_it(void **state)
{
    const struct sim_rule no_sync = {
        .ops = SIM_SYNC, .effect = SIM_EIO, .nth = 1, .sticky = true, .file = "data."};
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct evicting evicting = unsynced_begin(moment);

        sim_rule_add(evicting.full->world, &no_sync);
        full_open(evicting.full, KVT_OPEN_REBUILD);
        sim_rules_clear(evicting.full->world);
        evicted_delete(&evicting);
        refused_count += evicting.refused_count;
        evicted_stay_away(&evicting, KVT_OPEN_REBUILD);
        full_end(evicting.full);
    }
    assert_true(refused_count > 0);
}

/* A store in which each batch kills the copy of an earlier one, cut while a segment is RECYCLING.
 * False: not so; the segment was FREE again. */
static bool
recycling_begin(struct full_store *full, uint32_t moment)
{
    uint64_t version = 1;

    full_fill(full);
    for (uint32_t i = 0; i < FULL_BLOCKS / 2; i++) {
        full_put(full, i % FULL_HOT, ++version);
        full_put(full, full->next_cold++, 1);
    }
    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        kvt_ticket *ticket = full_put_submit(full, i % FULL_HOT, ++version, KVT_SYNC);

        for (uint32_t k = 0; k < 2000; k++) {
            if (segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) > 0) {
                sim_run_steps(full->world, moment);
                full_again(full, 0);
                return segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) > 0;
            }
            sim_run_steps(full->world, 1);
        }
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    fail_msg("no segment is reclaimed");
    return false;
}

/* Writes of data fail when the kills in it want room: whoever waits is answered all the same. */
static void
a_victim_that_a_crash_left_recycling_holds_nobody_up(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < 4 * MOMENTS; moment++) {
        struct sim_rule fails = {.ops = SIM_WRITE, .effect = SIM_EIO, .file = "data."};
        struct full_store *full = full_begin(700 + moment, FULL_SEGMENTS);

        met_count += recycling_begin(full, moment);
        for (fails.nth = 1; fails.nth <= 1 + moment % 6; fails.nth++)
            sim_rule_add(full->world, &fails);
        for (uint32_t i = 0; i < 4; i++)
            (void)full_result(full_put_submit(full, full->next_cold++, 1, KVT_SYNC));
        sim_rules_clear(full->world);
        full_again(full, 0);
        full_end(full);
    }
    assert_true(met_count > MOMENTS);
}

/* The kill of a copy that left its victim reaches no newer block of the key, also in a rebuild. */
static void
a_block_that_was_put_again_outlives_the_burial_of_its_old_copy(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule slow = {
            .ops = SIM_COMMIT, .effect = SIM_STALL, .nth = 1, .stall_ns = UINT64_C(50) * 1000000};
        const struct sim_rule fails = {
            .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .file = "data."};
        struct evicting evicting = evicting_begin(800 + moment, true, false);
        struct full_store *full = evicting.full;
        uint64_t key = evicting.evicted[0];
        kvt_ticket *again;

        recycling_meet(full);
        sim_rule_add(full->world, &slow); /* The recycle header comes behind it. */
        again = full_put_submit(full, key, 2, KVT_SYNC);
        full_writing_meet(full, key);
        (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000);
        sim_rule_add(full->world, &fails);
        (void)sim_run_for(full->world, UINT64_C(200) * 1000 * 1000);
        sim_rules_clear(full->world);
        assert_int_equal(full_result(again), KVT_OK);
        put_finish(&evicting);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        assert_true(is_on_nvme(full, key));
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, key, 2);
        full_end(full);
    }
}

/* Put again and given up once more, while the victim that its first copy has left still holds
 * another: a crash brings back neither. */
static void
what_left_a_victim_that_holds_others_yet_stays_away_behind_its_successor(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule slow = {
            .ops = SIM_READ, .effect = SIM_STALL, .nth = 1, .stall_ns = UINT64_C(9) * 1000000000};
        struct evicting evicting = evicting_begin(900 + moment, true, true);
        struct full_store *full = evicting.full;
        uint64_t key = evicting.evicted[0], version = 0;

        sim_rule_add(full->world, &slow); /* The last block of the victim comes late. */
        full_put(full, key, 2);
        assert_int_equal(
            full_stage_result(full_put_submit(full, key, 3, KVT_MEMORY), KVT_STAGE_DONE).status,
            KVT_OK);
        full_put(full, full->next_cold++, 1);
        met_count += !reclaim_is_idle(full->store);
        sim_rules_clear(full->world);
        kvt_ticket_free(evicting.ticket);
        full_again(full, 0);
        if (kit_get(full->store, full->ns, key, &version) == KVT_OK)
            assert_int_not_equal(version, 1);
        full_end(full);
    }
    assert_true(met_count > 0);
}

/* Records that are buried are taken out once: segments have as many as there are blocks. */
static void
a_victim_that_was_let_go_keeps_its_accounts(void **state)
{
    const struct sim_rule fails = {.ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1};
    struct evicting evicting = evicting_begin(700, false, true);
    struct full_store *full = evicting.full;
    const struct segment *segment;
    uint64_t record_count = 0;
    uint32_t cursor = 0;

    (void)state;
    sim_rule_add(full->world, &fails);
    (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
    sim_rules_clear(full->world);
    assert_int_equal(atomic_load(&full->store->counters.batch_failed_count), 1);
    put_finish(&evicting);
    evicted_note(&evicting);
    assert_true(evicting.evicted_count > 0);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        record_count += segment->record_count;
    assert_int_equal(record_count, full->store->nvme_copy_count);
    leases_release(&evicting);
    for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
        full_churn(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_open(full, 0);
    assert_int_equal(atomic_load(&full->store->counters.recover_rebuilt_count), 0);
    assert_int_equal(atomic_load(&full->store->counters.recover_dropped_count), 0);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_known_what_has_left_nvme_with_a_victim),
        cmocka_unit_test(a_block_in_host_whose_copy_just_left_nvme_is_deleted_for_good),
        cmocka_unit_test(a_block_that_was_put_again_is_deleted_with_the_copy_that_left),
        cmocka_unit_test(no_delete_is_acknowledged_behind_a_commit_that_failed),
        cmocka_unit_test(a_victim_that_is_let_go_half_empty_buries_what_has_left_it),
        cmocka_unit_test(a_victim_without_a_recycle_header_brings_nothing_back),
        cmocka_unit_test(a_victim_that_a_crash_left_recycling_brings_nothing_back),
        cmocka_unit_test(a_recycle_header_that_was_not_synced_hides_nothing_for_good),
        cmocka_unit_test(a_rebuild_that_cannot_sync_a_recycle_header_promises_nothing_of_it),
        cmocka_unit_test(a_victim_that_a_crash_left_recycling_holds_nobody_up),
        cmocka_unit_test(a_block_that_was_put_again_outlives_the_burial_of_its_old_copy),
        cmocka_unit_test(what_left_a_victim_that_holds_others_yet_stays_away_behind_its_successor),
        cmocka_unit_test(a_victim_that_was_let_go_keeps_its_accounts),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
