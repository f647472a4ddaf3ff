/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt_dead.c - what is dead stays so in later rebuilds, also when what made it so has
 * gone; what a crash has torn hides nothing; and an index that was made anew names nothing that the
 * disk does not have. What lives in a batch does so beside what does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

enum {
    LAST_BATCHES = 14, /* Of a life, of which a rebuild proves the payloads (rebuild_choose.c). */
    OTHER = 2000,      /* Keys of other blocks. */
    SMALL_BYTES = 100,
    MANY = 1200, /* Blocks: more than a transaction of a rebuild has (rebuild.c). */
    MANY_AT_ONCE = 100,
};

/* --- The end of a life ------------------------------------------------------------------------ */

/* A process is killed whose last block was written, and not synced: who names it, syncs it, also
 * when nothing can be written into free segments, which is synced, too. */
static void
a_rebuilt_index_names_what_the_disk_has(void **state)
{
    const struct sim_rule no_sync = {.ops = SIM_SYNC,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .sticky = true,
        .stall_ns = FULL_WAIT_NS};
    const struct sim_rule no_write = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    sim_rule_add(full->world, &no_sync);
    (void)full_put_submit(full, FULL_COLD, 1, KVT_SYNC);
    (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
    sim_rules_clear(full->world);
    sim_vanish(full->world);
    sim_rule_add(full->world, &no_write);
    full_open(full, KVT_OPEN_REBUILD);
    sim_rules_clear(full->world);
    assert_int_not_equal(full_entry(full, FULL_COLD), ENTRY_NONE);
    full_again(full, 0);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

/* In each life; batches that have no blocks, behind them, are none of these. */
static void
no_torn_copy_of_the_last_batches_hides_an_older_one(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    for (uint64_t i = 0; i < LAST_BATCHES; i++) {
        full_put(full, FULL_COLD + i, 1);
        full_put(full, OTHER + i, 1);
    }
    for (uint64_t key = FULL_COLD; key < FULL_COLD + LAST_BATCHES; key++) {
        full_put(full, key, 2);
        assert_true(
            sim_file_corrupt(full->world, "store/data/data.00", full_copy_at(full, key), 1));
    }
    for (uint64_t i = 0; i < LAST_BATCHES; i++)
        assert_int_equal(kit_delete(full->store, full->ns, OTHER + i), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    for (uint64_t key = FULL_COLD; key < FULL_COLD + LAST_BATCHES; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* --- Copies that are dead --------------------------------------------------------------------- */

/* Only a kill of another copy, in another segment, hides it: it has one when the open returns. */
static void
a_dead_copy_that_no_kill_names_gets_one(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    struct commit_kill kill = {.extent = {.segment = FULL_SEGMENTS - 1, .generation = 1}};

    (void)state;
    full_put(full, FULL_COLD, 1);
    full_put(full, FULL_COLD + 1, 1);
    kill.fingerprint = full_fingerprint(full, FULL_COLD);
    assert_int_equal(commit_kill(full->store, &kill), KVT_OK);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FULL_COLD, 0));
    full_again(full, 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 1);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FULL_COLD, 0));
    full_expect(full, FULL_COLD + 1, 1);
    full_end(full);
}

/* A block that was replaced, with an acknowledgement, and is the last that was written. */
static struct full_store *
replaced_begin(void)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    full_put(full, FULL_COLD, 1);
    full_put(full, FULL_COLD, 2);
    return full;
}

/* Its kill stands beside the block that has taken its place. */
static void
a_dead_copy_that_a_kill_names_gets_no_other(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(atomic_load(&full->store->counters.batch_count), 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 1);
    full_end(full);
}

/* A kill of it would be one of every older copy: it gets it when none lives any more. */
static void
a_torn_copy_gets_a_kill_when_a_newer_one_lives(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    assert_true(
        sim_file_corrupt(full->world, "store/data/data.00", full_copy_at(full, FULL_COLD), 1));
    for (uint32_t i = 0; i < 2; i++) {
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FULL_COLD, 1);
    }
    full_put(full, FULL_COLD, 3);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 3);
    full_again(full, 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 2);
    full_expect(full, FULL_COLD, 3);
    full_end(full);
}

/* --- Batches of many blocks ------------------------------------------------------------------- */

/* Puts of small blocks with keys from `first` on, from memory of their own until their end. */
static kvt_ticket *
small_submit(struct full_store *full, kvt_namespace ns, uint64_t first, uint32_t count,
    uint64_t version, uint8_t (*sources)[SMALL_BYTES])
{
    static struct payload_key names[MANY_AT_ONCE];
    static struct kvt_put puts[MANY_AT_ONCE];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&names[i], first + i);
        payload_fill(sources[i], SMALL_BYTES, first + i, version);
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = sources[i],
            .length = SMALL_BYTES,
            .flags = KVT_PUT_REPLACE};
    }
    assert_int_equal(kvt_put_submit(full->store, ns, puts, count, KVT_SYNC, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
durable_await(kvt_ticket *ticket, uint32_t count)
{
    static struct kvt_result results[MANY_AT_ONCE];

    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
}

/* In one batch: a block that is cleared, one that is torn, one that is deleted, one that lives, and
 * another that is cleared. */
static void
what_lives_in_a_batch_is_found_beside_what_does_not(void **state)
{
    enum {
        TORN = OTHER,
        DELETED,
        ALIVE,
        CLEARED,
        CLEARED_TOO,
        COUNT = 5
    };
    static uint8_t sources[COUNT][SMALL_BYTES];
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    kvt_ticket *tickets[3];
    kvt_namespace cleared;
    uint64_t batch_count;

    (void)state;
    assert_int_equal(kvt_namespace_open(full->store, "cleared", "model", 5, &cleared), KVT_OK);
    durable_await(small_submit(full, full->ns, TORN, 1, 1, sources), 1);
    batch_count = atomic_load(&full->store->counters.batch_count);
    tickets[0] = small_submit(full, cleared, CLEARED, 1, 1, sources);
    tickets[1] = small_submit(full, full->ns, TORN, 3, 2, sources + 1);
    tickets[2] = small_submit(full, cleared, CLEARED_TOO, 1, 1, sources + 4);
    durable_await(tickets[0], 1);
    durable_await(tickets[1], 3);
    durable_await(tickets[2], 1);
    assert_int_equal(atomic_load(&full->store->counters.batch_count), batch_count + 1);
    assert_int_equal(kit_delete(full->store, full->ns, DELETED), KVT_OK);
    assert_int_equal(kvt_namespace_clear(full->store, cleared), KVT_OK);
    assert_true(sim_file_corrupt(full->world, "store/data/data.00", full_copy_at(full, TORN), 1));
    for (uint32_t i = 0; i < 2; i++) {
        full_again(full, KVT_OPEN_REBUILD);
        assert_int_equal(kit_stats(full->store).recover_block_count, 2);
        full_expect(full, TORN, 1);
        full_expect(full, ALIVE, 2);
    }
    full_end(full);
}

static void
more_blocks_live_than_a_transaction_has(void **state)
{
    static uint8_t sources[MANY_AT_ONCE][SMALL_BYTES];
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    for (uint64_t key = OTHER; key < OTHER + MANY; key += MANY_AT_ONCE)
        durable_await(small_submit(full, full->ns, key, MANY_AT_ONCE, 1, sources), MANY_AT_ONCE);
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(kit_stats(full->store).recover_block_count, MANY);
    full_again(full, 0);
    for (uint64_t key = OTHER; key < OTHER + MANY; key++)
        full_expect(full, key, 1);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rebuilt_index_names_what_the_disk_has),
        cmocka_unit_test(no_torn_copy_of_the_last_batches_hides_an_older_one),
        cmocka_unit_test(a_dead_copy_that_no_kill_names_gets_one),
        cmocka_unit_test(a_dead_copy_that_a_kill_names_gets_no_other),
        cmocka_unit_test(a_torn_copy_gets_a_kill_when_a_newer_one_lives),
        cmocka_unit_test(what_lives_in_a_batch_is_found_beside_what_does_not),
        cmocka_unit_test(more_blocks_live_than_a_transaction_has),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
