/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reclaim.c - a full store keeps its accounts, its pinned blocks and its kills while segment
 * after segment is reclaimed, and says so when there is no room.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "batch_header.h"
#include "full_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

#define SOON_NS (UINT64_C(10) * 1000000000)

static uint64_t
counter(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}

/* --- Accounts --------------------------------------------------------------------------------- */

/* Nothing is under way. */
static void
accounts_check(const struct full_store *full)
{
    struct segment *segment;
    uint64_t record_count = 0;
    uint32_t cursor = 0;

    kit_audit(full->store);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        record_count += segment->record_count;
    assert_int_equal(record_count, full->store->nvme_copy_count);
}

static void
a_store_filled_twenty_times_keeps_its_accounts(void **state)
{
    struct full_store *full = full_begin(3, FULL_SEGMENTS);
    struct rng rng = {.state = 3};
    uint64_t written_bytes = 0, version;

    (void)state;
    for (uint32_t i = 0; written_bytes < UINT64_C(20) * FULL_SEGMENTS << 20; i++) {
        uint64_t key = rng_below(&rng, 300);
        enum kvt_durability durability = rng_below(&rng, 3) == 0 ? KVT_MEMORY : KVT_SYNC;
        uint64_t length = payload_length(key, i, PAYLOAD_BYTES_MIN, FULL_BLOCK_BYTES);

        if (rng_below(&rng, 8) == 0)
            assert_true(kit_delete(full->store, full->ns, key) >= 0);
        assert_true(
            kit_get(full->store, full->ns, rng_below(&rng, 300), &version) >= 0); /* Used. */
        assert_int_equal(kit_put(full->store, full->ns, key, i, length, durability), KVT_OK);
        written_bytes += length;
        if (i % 500 == 0) {
            assert_int_equal(kvt_flush(full->store), KVT_OK);
            (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
            accounts_check(full);
        }
    }
    assert_true(
        counter(&full->store->counters.segment_recycle_count) >= UINT64_C(15) * FULL_SEGMENTS);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    accounts_check(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_open(full, 0);
    accounts_check(full);
    assert_int_equal(counter(&full->store->counters.recover_dropped_count), 0);
    assert_int_equal(counter(&full->store->counters.recover_rebuilt_count), 0);
    full_end(full);
}

/* The default policy begins with a block that an open has found when its copy comes to HOST: for it
 * that is a use. */
static void
a_block_that_was_found_and_comes_to_host_keeps_the_accounts(void **state)
{
    struct full_store *full = full_begin(4, FULL_SEGMENTS);
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    struct payload_key name;
    kvt_ticket *ticket;

    (void)state;
    full_put(full, 1, 1);
    full_put(full, 2, 1);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.policy = KVT_POLICY_DEFAULT;
    full_open(full, 0);
    (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000 * 1000);
    full_expect(full, 2, 1); /* So the policy knows what time it is. */
    payload_key_make(&name, 1);
    assert_int_equal(
        kvt_prefetch_submit(full->store, full->ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    accounts_check(full);
    full_end(full);
}

/* --- Pinned blocks ---------------------------------------------------------------------------- */

static kvt_lease
lease_of(struct full_store *full, uint64_t key)
{
    struct payload_key name;
    kvt_lease lease = {0};
    uint8_t tiers = 0;

    payload_key_make(&name, key);
    assert_int_equal(kvt_lookup(full->store, full->ns, &name.key, 1, &tiers, NULL, &lease), KVT_OK);
    assert_true((tiers & KVT_TIER_NVME) != 0);
    return lease;
}

/* `is_in_host`: the pinned block has a copy in HOST, too. */
static void
pinned_block_run(uint64_t seed, bool is_in_host)
{
    struct full_store *full = full_begin(seed, FULL_SEGMENTS);
    struct entry *entry;
    struct entry before;
    kvt_lease lease;

    full_put(full, 0, 1);
    if (!is_in_host) {
        assert_true(entry_host_release(full->store, full_entry(full, 0), KVT_REASON_EVICTED));
        full->store->room_changed = false;
    }
    lease = lease_of(full, 0);
    entry = residency_at(full->store->map, full_entry(full, 0));
    before = *entry;
    for (uint32_t i = 0; i < 3 * FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    assert_true(counter(&full->store->counters.nvme_relocate_count) > 0);
    assert_true(entry->sequence > before.sequence); /* Written again. */
    assert_int_equal(
        word_tiers(atomic_load(&entry->word)), is_in_host ? TIER_HOST | TIER_NVME : TIER_NVME);
    kvt_lease_release(full->store, lease);
    full_expect(full, 0, 1);
    full_again(full, 0); /* From NVMe, where it was moved to. */
    full_expect(full, 0, 1);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, 0, 1);
    full_end(full);
}

static void
a_pinned_block_survives_its_segment(void **state)
{
    (void)state;
    pinned_block_run(11, true);
    pinned_block_run(12, false);
}

/* --- No room ---------------------------------------------------------------------------------- */

enum {
    LEASED = 8,  /* In each segment: half of it. */
    BATCH = 15,  /* Blocks of a segment, and of a submission. */
    ROUNDS = 40, /* Submissions behind them. */
};

static void
a_store_in_which_everything_is_pinned_refuses_and_recovers(void **state)
{
    struct full_store *full = full_begin(21, FULL_SEGMENTS);
    kvt_lease leases[FULL_BLOCKS];
    uint64_t keys[FULL_BLOCKS];
    uint32_t lease_count = 0, cursor = 0;
    enum kvt_status status = KVT_OK;
    struct segment *segment;
    kvt_ticket *ticket;

    (void)state;
    /* Each block is pinned where it stands on NVMe, and leaves HOST. */
    for (uint32_t i = 0; i < FULL_BLOCKS && status == KVT_OK; i++) {
        status = kit_put(full->store, full->ns, i, 1, FULL_BLOCK_BYTES, KVT_SYNC);
        if (status != KVT_OK)
            break;
        (void)entry_host_release(full->store, full_entry(full, i), KVT_REASON_EVICTED);
        leases[lease_count] = lease_of(full, i);
        keys[lease_count++] = i;
    }
    assert_int_equal(status, KVT_E_NOSPC);
    full->is_refusing = true;
    assert_true(lease_count > 3 * 14 && lease_count < FULL_BLOCKS);
    /* Visible all the same; and another one is refused, too. */
    full_expect(full, lease_count, 1);
    assert_int_equal(
        kit_put(full->store, full->ns, FULL_BLOCKS, 1, FULL_BLOCK_BYTES, KVT_SYNC), KVT_E_NOSPC);
    assert_int_equal(
        kit_put(full->store, full->ns, FULL_BLOCKS + 1, 1, FULL_BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    /* Nor does it wait for ever for segments of which something could not be read. */
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->was_unreadable = true;
    ticket = full_put_submit(full, FULL_BLOCKS + 2, 1, KVT_SYNC);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, SOON_NS), KVT_OK);
    assert_int_equal(full_result(ticket), KVT_E_NOSPC);
    for (uint32_t i = 0; i < lease_count; i++) {
        full_expect(full, keys[i], 1);
        kvt_lease_release(full->store, leases[i]);
    }
    for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    assert_true(counter(&full->store->counters.segment_recycle_count) > FULL_SEGMENTS);
    full_end(full);
}

/* Every block is replaced at once: each segment has copies that stay until what replaces them is
 * durable, and there is no room for that before one of them is reclaimed. */
static void
a_full_store_in_which_every_block_is_replaced_goes_on(void **state)
{
    struct full_store *full = full_begin(22, FULL_SEGMENTS);
    struct payload_key names[FULL_BLOCKS];
    struct kvt_put puts[FULL_BLOCKS];
    struct kvt_result results[FULL_BLOCKS];
    uint64_t keys[FULL_BLOCKS];
    kvt_ticket *ticket = NULL;
    uint8_t *memory = malloc((size_t)FULL_BLOCKS * FULL_BLOCK_BYTES);
    uint32_t count = 0;

    (void)state;
    assert_non_null(memory);
    full_fill(full);
    memset(puts, 0, sizeof(puts));
    /* Some of each segment, again and again: none is free of them before the last. */
    for (uint64_t first = 0; first < BATCH; first++) {
        for (uint64_t key = FULL_COLD + first; key < full->next_cold; key += BATCH) {
            if (full_entry(full, key) == ENTRY_NONE)
                continue;
            keys[count] = key;
            payload_key_make(&names[count], key);
            payload_fill(memory + (size_t)count * FULL_BLOCK_BYTES, FULL_BLOCK_BYTES, key, 2);
            puts[count].key = names[count].key;
            puts[count].source = memory + (size_t)count * FULL_BLOCK_BYTES;
            puts[count].length = FULL_BLOCK_BYTES;
            puts[count].flags = KVT_PUT_REPLACE;
            count++;
        }
    }
    assert_true(count > 40);
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, count, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < count; i++)
        (void)full_expect_at_most(full, keys[i], 2);
    free(memory);
    full_end(full);
}

/* --- Leased blocks all over ------------------------------------------------------------------- */

/* One submission of BATCH blocks; the status of the first that was not committed. */
static enum kvt_status
batch_put(struct full_store *full)
{
    struct payload_key names[BATCH];
    struct kvt_put puts[BATCH] = {0};
    struct kvt_result results[BATCH];
    uint8_t *memory = malloc((size_t)BATCH * FULL_BLOCK_BYTES);
    enum kvt_status status = KVT_OK;
    kvt_ticket *ticket = NULL;

    assert_non_null(memory);
    for (uint32_t i = 0; i < BATCH; i++) {
        payload_key_make(&names[i], full->next_cold);
        payload_fill(memory + (size_t)i * FULL_BLOCK_BYTES, FULL_BLOCK_BYTES, full->next_cold++, 1);
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = memory + (size_t)i * FULL_BLOCK_BYTES,
            .length = FULL_BLOCK_BYTES};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, BATCH, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, BATCH), KVT_OK);
    for (uint32_t i = 0; i < BATCH && status == KVT_OK; i++)
        status = results[i].status;
    kvt_ticket_free(ticket);
    free(memory);
    return status;
}

/* Half of each segment has leases, and they have been used longest ago: again and again they are
 * moved, in groups of half a segment and a header. Two of these make more than one segment, and the
 * submissions behind them need a whole one. */
static void
leased_halves_of_segments_leave_room_for_batches(void **state)
{
    struct full_store *full = full_begin(23, FULL_SEGMENTS);
    kvt_lease leases[FULL_BLOCKS];
    uint64_t keys[FULL_BLOCKS];
    uint32_t count = 0;

    (void)state;
    for (uint64_t key = 0; key < 5 * BATCH; key++) {
        full_put(full, key, 1);
        if (key % BATCH >= LEASED)
            continue;
        keys[count] = key;
        leases[count++] = lease_of(full, key);
    }
    for (uint32_t i = 0; i < ROUNDS; i++)
        assert_int_equal(batch_put(full), KVT_OK);
    for (uint32_t i = 0; i < count; i++) {
        full_expect(full, keys[i], 1);
        kvt_lease_release(full->store, leases[i]);
    }
    full_end(full);
}

/* --- Kills ------------------------------------------------------------------------------------ */

enum {
    TINY_COUNT = 5000, /* More than BATCH_KILLS_MAX. */
    TINY_BATCH = 500,
    TINY_SEGMENTS = 48,
};

static_assert((int)TINY_COUNT > (int)BATCH_KILLS_MAX, "the recycle header must not hold all");

/* Put, or delete, many small blocks with the numbers 0..TINY_COUNT. */
static void
tiny_run(struct full_store *full, bool is_delete)
{
    static struct payload_key names[TINY_BATCH];
    static struct kvt_put puts[TINY_BATCH];
    static struct kvt_key keys[TINY_BATCH];
    static uint8_t bytes[TINY_BATCH][PAYLOAD_BYTES_MIN];
    static struct kvt_result results[TINY_BATCH];

    for (uint64_t first = 0; first < TINY_COUNT; first += TINY_BATCH) {
        kvt_ticket *ticket = NULL;

        for (uint32_t i = 0; i < TINY_BATCH; i++) {
            payload_key_make(&names[i], first + i);
            payload_fill(bytes[i], PAYLOAD_BYTES_MIN, first + i, 1);
            keys[i] = names[i].key;
            puts[i] =
                (struct kvt_put){.key = keys[i], .source = bytes[i], .length = PAYLOAD_BYTES_MIN};
        }
        assert_int_equal(
            is_delete
                ? kvt_delete_submit(full->store, full->ns, keys, TINY_BATCH, NULL, &ticket)
                : kvt_put_submit(full->store, full->ns, puts, TINY_BATCH, KVT_SYNC, NULL, &ticket),
            KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        assert_int_equal(
            kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, TINY_BATCH), KVT_OK);
        for (uint32_t i = 0; i < TINY_BATCH; i++)
            assert_int_equal(results[i].status, KVT_OK);
        kvt_ticket_free(ticket);
    }
}

static void
no_kill_is_lost_when_a_segment_has_more_than_a_header_takes(void **state)
{
    struct full_store *full = full_begin(31, TINY_SEGMENTS);
    struct segment *victim, *segment;
    uint32_t generation, cursor = 0;
    uint64_t others;

    (void)state;
    full->next_cold = UINT64_C(100000);
    tiny_run(full, false);
    victim = full_leave(full);
    generation = victim->generation;
    tiny_run(full, true);
    assert_ptr_equal(segment_active(full->store->segments, 0), victim); /* It has all kills. */
    (void)full_leave(full);
    others = full->next_cold;
    for (uint32_t i = 0; i < 10; i++)
        full_put(full, full->next_cold++, 1);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    assert_true(reclaim_want(full->store));
    (void)sim_run_for(full->world, UINT64_C(60) * 1000 * 1000 * 1000);
    assert_int_equal(victim->state, SEGMENT_SEALED); /* Its headers were read, no more: */
    full_put(full, full->next_cold++, 1);            /* only while something is written. */
    (void)sim_run_for(full->world, UINT64_C(60) * 1000 * 1000 * 1000);
    assert_true(reclaim_is_idle(full->store));
    assert_int_equal(victim->state, SEGMENT_FREE);
    assert_int_equal(victim->generation, generation + 1);
    full_again(full, KVT_OPEN_REBUILD);
    for (uint64_t key = 0; key < TINY_COUNT; key++)
        assert_int_equal(full_entry(full, key), ENTRY_NONE);
    for (uint64_t key = others; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* --- Segments full of kills ------------------------------------------------------------------- */

enum {
    MANY_SEGMENTS = 48,
    DATA_SEGMENTS = 8,
    KILLS = 20 * 24000, /* They fill so many segments. */
};

/* Kills of copies in segments that have blocks. */
static void
kills_pile_up(struct full_store *full)
{
    struct segment *segment;
    uint32_t cursor = 0, count = 0;
    uint32_t numbers[MANY_SEGMENTS];
    uint32_t left = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_SEALED)
            numbers[count++] = segment->number;
    }
    assert_true(count >= DATA_SEGMENTS - 1);
    for (uint32_t i = 0; i < KILLS; i++) {
        const struct segment *named = segment_at(full->store->segments, numbers[i % count]);

        commit_bury(full->store,
            &(struct commit_kill){.extent = {named->number, named->generation, 1 + i % 200},
                .fingerprint = {.low = i + 1, .high = UINT64_C(77)},
                .sequence = 1});
    }
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    assert_int_equal(atomic_load(&full->store->counters.kill_lost_count), 0);
    for (cursor = 0; (segment = segment_next(full->store->segments, &cursor)) != NULL;)
        left += segment_kills_left(full->store->segments, segment);
    assert_true(left >= KILLS);
}

/* As many blocks at once as fill most of a segment. */
static void
segment_put(struct full_store *full)
{
    kvt_ticket *tickets[12];

    for (uint32_t i = 0; i < 12; i++) {
        tickets[i] = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, SOON_NS), KVT_OK);
    }
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DURABLE, SOON_NS), KVT_OK);
        assert_int_equal(full_result(tickets[i]), KVT_OK);
    }
}

/* They are needed until the segments that they name are free again: these have to have a turn. */
static void
segments_full_of_kills_leave_others_their_turn(void **state)
{
    struct full_store *full = full_begin(41, MANY_SEGMENTS);
    uint64_t keys = 0, recycles;

    (void)state;
    full->next_cold = 1;
    for (uint32_t i = 0; i < DATA_SEGMENTS; i++)
        (void)full_leave(full);
    keys = full->next_cold;
    for (uint64_t key = 1; key < keys; key++) {
        kvt_ticket *ticket;

        if (key % 16 == 0)
            continue;
        ticket = full_delete_submit(full, key);
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    kills_pile_up(full);
    for (int life = 0; life < 2; life++) {
        recycles = counter(&full->store->counters.segment_recycle_count);
        for (uint32_t i = 0; i < MANY_SEGMENTS; i++)
            segment_put(full);
        assert_in_range(counter(&full->store->counters.segment_recycle_count) - recycles, 1,
            UINT64_C(3) * MANY_SEGMENTS);
        full_again(full, 0);
    }
    for (uint64_t key = 1; key < keys; key++)
        assert_true(key % 16 == 0 || full_entry(full, key) == ENTRY_NONE);
    full_end(full);
}

/* --- What is newest in a segment may be unknown ----------------------------------------------- */

/* A rebuild could not read it: the kill names a generation above what it found. */
static void
a_kill_of_a_higher_generation_is_needed(void **state)
{
    struct full_store *full = full_begin(43, FULL_SEGMENTS);
    struct segment *victim, *segment;
    const struct entry *entry;
    uint32_t cursor = 0;

    (void)state;
    full_put(full, 1, 1);
    entry = residency_at(full->store->map, full_entry(full, 1));
    victim = full_leave(full);
    commit_bury(full->store, &(struct commit_kill){.extent = {entry->segment,
                                                       entry->extent_generation + 3u, entry->page},
                                 .fingerprint = entry->fingerprint,
                                 .sequence = entry->sequence});
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    (void)full_leave(full);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    assert_true(reclaim_want(full->store));
    (void)sim_run_for(full->world, SOON_NS);
    full_put(full, full->next_cold++, 1);
    (void)sim_run_for(full->world, SOON_NS);
    assert_int_equal(victim->state, SEGMENT_FREE);
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(full_entry(full, 1), ENTRY_NONE);
    full_end(full);
}

/* --- Disks without space ---------------------------------------------------------------------- */

static uint32_t
passed_over_count(struct full_store *full)
{
    struct segment *segment;
    uint32_t cursor = 0, count = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        count += segment->is_passed_over;
    return count;
}

/* Nothing can be written elsewhere: victims have their turn when that is over. */
static void
no_victim_is_begun_while_the_disks_have_no_space(void **state)
{
    static const struct sim_rule full_disk = {
        .ops = SIM_WRITE, .effect = SIM_ENOSPC, .file = "data.", .nth = 1, .sticky = true};
    struct full_store *full = full_begin(44, FULL_SEGMENTS);

    (void)state;
    for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    sim_rule_add(full->world, &full_disk);
    full->is_refusing = true;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(
            full_result(full_put_submit(full, full->next_cold++, 1, KVT_SYNC)), KVT_E_NOSPC);
        (void)sim_run_for(full->world, SOON_NS / 10);
        assert_in_range(passed_over_count(full), 0, 2);
    }
    sim_rules_clear(full->world);
    (void)sim_run_for(full->world, 5 * SOON_NS);
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    (void)sim_run_for(full->world, SOON_NS);
    accounts_check(full);
    full_end(full);
}

/* --- A victim that a crash left --------------------------------------------------------------- */

enum {
    CUT_MOMENTS = 10, /* At which the power goes. */
    CUT_STEPS = 2,    /* Between them. */
    SHORTAGES = 6,    /* Beginning with so many allocations more. */
    STEPS_MAX = 200000,
};

/* A full store after a crash at that moment of a reclaim. What the crash left cannot be taken away,
 * so that no segment is filled further: there is no room before one is reclaimed. Whether it
 * left one RECYCLING: it may come too early, or too late. */
static bool
is_left_recycling(struct full_store *full, uint32_t moment)
{
    const struct sim_rule fails = {.ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .file = "data."};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    for (uint32_t i = 0;
         i < STEPS_MAX && segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) == 0; i++) {
        if (ticket != NULL && kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0) == KVT_OK) {
            kvt_ticket_free(ticket);
            ticket = NULL;
        }
        if (ticket == NULL)
            ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        sim_run_steps(full->world, 1);
    }
    sim_run_steps(full->world, moment * CUT_STEPS);
    sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
    sim_rule_add(full->world, &fails);
    full_open(full, 0);
    sim_rules_clear(full->world);
    return segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) > 0;
}

/* It cannot be reclaimed, nor can any other, while there is no memory: puts are told so. */
static void
a_victim_that_a_crash_left_is_tried_once_like_others(void **state)
{
    uint32_t left_count = 0;

    (void)state;
    for (uint32_t run = 0; run < CUT_MOMENTS * SHORTAGES; run++) {
        struct full_store *full = full_begin(40 + run, FULL_SEGMENTS);

        if (is_left_recycling(full, run % CUT_MOMENTS)) {
            kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

            left_count++;
            sim_memory_fail(full->world, 1 + run / CUT_MOMENTS, true);
            assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, SOON_NS), KVT_OK);
            kvt_ticket_free(ticket);
            sim_memory_fail(full->world, 0, false);
            full->is_refusing = true;
        }
        full_end(full);
    }
    assert_true(left_count > SHORTAGES);
}

/* --- Writes that fail ------------------------------------------------------------------------- */

/* Also those of recycle headers: each costs its segment a turn, and no more. */
static void
writes_that_fail_now_and_then_end_no_reclaiming(void **state)
{
    const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .per_mille = 100, .file = "data."};

    (void)state;
    for (uint64_t seed = 90; seed < 96; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);

        full_fill(full);
        sim_rule_add(full->world, &fails);
        for (uint32_t i = 0; i < FULL_BLOCKS; i++)
            (void)kit_put(full->store, full->ns, full->next_cold++, 1, FULL_BLOCK_BYTES, KVT_SYNC);
        sim_rules_clear(full->world);
        full->is_refusing = true;
        for (uint32_t i = 0; i < FULL_BLOCKS; i++)
            full_put(full, full->next_cold++, 1);
        full_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_filled_twenty_times_keeps_its_accounts),
        cmocka_unit_test(a_block_that_was_found_and_comes_to_host_keeps_the_accounts),
        cmocka_unit_test(a_pinned_block_survives_its_segment),
        cmocka_unit_test(a_store_in_which_everything_is_pinned_refuses_and_recovers),
        cmocka_unit_test(a_full_store_in_which_every_block_is_replaced_goes_on),
        cmocka_unit_test(leased_halves_of_segments_leave_room_for_batches),
        cmocka_unit_test(no_kill_is_lost_when_a_segment_has_more_than_a_header_takes),
        cmocka_unit_test(segments_full_of_kills_leave_others_their_turn),
        cmocka_unit_test(a_kill_of_a_higher_generation_is_needed),
        cmocka_unit_test(no_victim_is_begun_while_the_disks_have_no_space),
        cmocka_unit_test(a_victim_that_a_crash_left_is_tried_once_like_others),
        cmocka_unit_test(writes_that_fail_now_and_then_end_no_reclaiming),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
