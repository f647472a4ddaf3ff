/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_demotions.c - blocks that are put to be durable, and those that leave HOST, fill the rest of
 * a segment; the former are written first. What a batch does not take is not looked at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "batch_header.h"
#include "commit_internal.h"
#include "fenced_buffer.h"
#include "full_store.h"
#include "imaging.h"

enum {
    BYTES = 16384,
    PAGES = BYTES / PAGE_BYTES,
    HOST_BYTES = 16 << 20,
    AT_ONCE = 64,  /* Puts of a submission. */
    WRITTEN = 170, /* One by one: what is left of their segment holds some demotions, not all. */
    MANY = 13 * AT_ONCE, /* Demotions: more than are written at a time and fit into a batch. */
    MORE = 15 * AT_ONCE, /* More than a batch are left when as many as can be are written. */
    FEW = 3 * AT_ONCE,   /* Just more than HIGH_PERCENT of HOST. */
    HIGH_PERCENT = 15,
    SOME = 10,   /* Blocks. */
    VOIDS = 110, /* Entries: more than a page of them. */
    STEPS_MAX = 200000,
};

static struct full_store *
demoting_begin(uint64_t latency_ns_max)
{
    const struct sim_options world = {.seed = 3, .latency_ns_max = latency_ns_max};
    struct full_store *full = calloc(1, sizeof(*full));

    assert_non_null(full);
    full->options = kit_options();
    full->options.batch_delay_ns = UINT64_C(500) * 1000000;
    full->options.segment_bytes = 4 << 20;
    full->options.nvme_capacity_bytes = 64 << 20;
    full->options.host_capacity_bytes = HOST_BYTES;
    full->options.host_high_percent = HIGH_PERCENT;
    full->options.host_low_percent = 1;
    full->options.dirty_bytes_max = HOST_BYTES;
    full->options.relaxed_interval_ns = UINT64_C(3600) * 1000000000;
    full->options.policy = KVT_POLICY_GHI; /* It passes over blocks that are on their way. */
    full->world = sim_world_create(&world);
    full->reach = (struct store_world){
        .env = sim_env(full->world), .index_ops = &sim_index_ops, .index_context = full->world};
    full->bytes = calloc(1, FULL_BLOCK_BYTES);
    assert_non_null(full->bytes);
    full_open(full, 0);
    return full;
}

/* One submission of `count` blocks, AT_ONCE at most. */
static kvt_ticket *
blocks_submit(
    struct full_store *full, uint64_t first, uint32_t count, enum kvt_durability durability)
{
    struct payload_key names[AT_ONCE];
    struct kvt_put puts[AT_ONCE];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&names[i], first + i);
        puts[i] = (struct kvt_put){.key = names[i].key, .source = full->bytes, .length = BYTES};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, count, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
blocks_await(kvt_ticket *ticket, enum kvt_stage stage)
{
    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static bool
is_clean(void *context)
{
    const struct full_store *full = context;

    return full->store->dirty_bytes == 0;
}

/* The active segment, with room for some of AT_ONCE blocks, not for all. */
static const struct segment *
segment_fill(struct full_store *full)
{
    const struct segment *active;
    uint32_t left;

    for (uint32_t i = 0; i < WRITTEN; i++)
        assert_int_equal(kit_put(full->store, full->ns, i, 1, BYTES, KVT_SYNC), KVT_OK);
    active = segment_active(full->store->segments, 0);
    assert_non_null(active);
    left = segment_pages(full->store->segments) - active->fill_page;
    assert_true(left > PAGES && left < AT_ONCE * PAGES);
    return active;
}

/* A batch of all of them would have begun another segment, and left a hole in the first. */
static void
demotions_fill_the_rest_of_a_segment(void **state)
{
    struct full_store *full = demoting_begin(0);
    const struct segment *first = segment_fill(full);

    (void)state;
    for (uint32_t i = 0; i < MANY / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_MEMORY), KVT_STAGE_DONE);
    assert_int_equal(
        sim_run(full->world, is_clean, full, sim_now(full->world) + FULL_WAIT_NS), SIM_DONE);
    assert_int_equal(first->state, SEGMENT_SEALED);
    assert_true(segment_pages(full->store->segments) - first->fill_page < 2 * PAGES);
    full_end(full);
}

static void
puts_fill_the_rest_of_a_segment(void **state)
{
    struct full_store *full = demoting_begin(0);
    const struct segment *first = segment_fill(full);

    (void)state;
    blocks_await(blocks_submit(full, 1000, AT_ONCE, KVT_SYNC), KVT_STAGE_DURABLE);
    assert_int_equal(first->state, SEGMENT_SEALED);
    assert_true(segment_pages(full->store->segments) - first->fill_page < 2 * PAGES);
    full_end(full);
}

/* Two batches of demotions are still to be written when the puts come. */
static void
puts_go_before_demotions_that_wait(void **state)
{
    struct full_store *full = demoting_begin(UINT64_C(100) * 1000000);

    (void)state;
    for (uint32_t i = 0; i < MANY / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_MEMORY), KVT_STAGE_DONE);
    blocks_await(blocks_submit(full, 1, AT_ONCE, KVT_SYNC), KVT_STAGE_DURABLE);
    assert_true(full->store->dirty_bytes > 0);
    full_end(full);
}

/* More RELAXED puts wait than a batch takes, and one that is due at once comes behind them. */
static void
a_put_that_is_due_does_not_wait_for_those_before_it(void **state)
{
    struct full_store *full = demoting_begin(UINT64_C(100) * 1000000);
    uint64_t begin_ns;

    (void)state;
    for (uint32_t i = 0; i < MORE / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_RELAXED), KVT_STAGE_DONE);
    begin_ns = sim_now(full->world);
    blocks_await(blocks_submit(full, 1, 1, KVT_SYNC), KVT_STAGE_DURABLE);
    assert_true(sim_now(full->world) - begin_ns < UINT64_C(10) * 1000000000);
    full_end(full);
}

static bool
has_demotion(void *context)
{
    const struct full_store *full = context;
    const struct flight *oldest = full->store->commit->oldest;

    return oldest != NULL && oldest->is_demotion;
}

/* A put that finds its block there, on its way out of HOST, and is told that it did not become
 * durable: the block stays where it is, and the flush tells the same. */
static void
a_put_that_joins_a_demotion_keeps_its_block_when_that_fails(void **state)
{
    const struct sim_rule fails = {
        .ops = SIM_WRITE | SIM_SYNC, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    struct full_store *full = demoting_begin(UINT64_C(100) * 1000000);
    uint64_t key = 1000;
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t i = 0; i < FEW / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_MEMORY), KVT_STAGE_DONE);
    assert_int_equal(
        sim_run(full->world, has_demotion, full, sim_now(full->world) + FULL_WAIT_NS), SIM_DONE);
    while (full_entry(full, key) != full->store->commit->oldest->entry)
        key++;
    sim_rule_add(full->world, &fails);
    ticket = blocks_submit(full, key, 1, KVT_SYNC);
    assert_int_equal(full_result(ticket), KVT_E_IO);
    sim_rules_clear(full->world);
    assert_int_not_equal(full_entry(full, key), ENTRY_NONE);
    assert_int_equal(entry_tiers(full->store, full_entry(full, key)), TIER_HOST);
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    full_end(full);
}

static bool
is_demotion_written(void *context)
{
    const struct full_store *full = context;
    const struct flight *oldest = full->store->commit->oldest;

    return oldest != NULL && oldest->is_demotion && oldest->state == FLIGHT_WRITING;
}

/* What was written of it cannot be committed; there is no block that could be given up for that. */
static void
a_block_is_deleted_while_its_demotion_fails(void **state)
{
    const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true};
    struct full_store *full = demoting_begin(UINT64_C(100) * 1000000);
    kvt_ticket *tickets[MANY];
    uint32_t health;

    (void)state;
    sim_rule_add(full->world, &fails);
    for (uint32_t i = 0; i < MANY / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_MEMORY), KVT_STAGE_DONE);
    assert_int_equal(
        sim_run(full->world, is_demotion_written, full, sim_now(full->world) + FULL_WAIT_NS),
        SIM_DONE);
    for (uint32_t i = 0; i < MANY; i++)
        tickets[i] = full_delete_submit(full, 1000 + i);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        kvt_ticket_free(tickets[i]);
    }
    assert_int_equal(kvt_health(full->store, &health), KVT_OK);
    assert_int_equal(
        health & (KVT_HEALTH_POISONED | KVT_HEALTH_META_READONLY), KVT_HEALTH_META_READONLY);
    sim_rules_clear(full->world);
    full_again(full, 0);
    full_end(full);
}

/* All that the batch has taken waits again. Returns how many there were. */
static uint32_t
taken_return(struct full_store *full, struct batch *batch)
{
    struct commit *commit = full->store->commit;
    uint32_t count = batch->count;

    for (uint32_t i = 0; i < count; i++) {
        batch->flights[i]->state = FLIGHT_QUEUED;
        commit->queued_count++;
        commit->queued_bytes += imaging_bytes(full->store, batch->flights[i]);
    }
    batch->count = 0;
    return count;
}

/* The batch that is made of what waits now has so many of them, and behind `last` not even a look
 * was taken: nothing is there that could be looked at. Then all of it waits again. */
static void
take_looks_no_further(struct full_store *full, struct flight *last, uint32_t wanted_count)
{
    struct commit *commit = full->store->commit;
    struct batch *batch = &commit->batches[0];
    struct flight *newer = last->newer;
    struct fenced_buffer fence;

    assert_int_equal(batch->state, BATCH_IDLE);
    fenced_open(&fence, PAGE_BYTES);
    last->newer = (struct flight *)(void *)fenced_end(&fence, 0);
    commit_batch_take(full->store, batch, SEGMENT_NONE);
    last->newer = newer;
    fenced_close(&fence);
    assert_int_equal(taken_return(full, batch), wanted_count);
}

/* So many puts wait, and no batch takes any. */
static struct full_store *
waiting_begin(uint32_t count)
{
    struct full_store *full = demoting_begin(0);

    full->store->commit->lack_until_ns = UINT64_MAX;
    for (uint32_t i = 0; i < count / AT_ONCE; i++)
        blocks_await(blocks_submit(full, 1000 + i * AT_ONCE, AT_ONCE, KVT_RELAXED), KVT_STAGE_DONE);
    assert_int_equal(full->store->commit->queued_count, count);
    return full;
}

static void
waiting_end(struct full_store *full)
{
    full->store->commit->lack_until_ns = 0;
    full_end(full);
}

static void
a_full_batch_does_not_look_at_what_it_cannot_take(void **state)
{
    struct full_store *full = waiting_begin(MORE);
    uint32_t count = (uint32_t)(full->store->commit->batch_bytes_max / BYTES);
    struct flight *last = full->store->commit->oldest;

    (void)state;
    for (uint32_t i = 0; i < count; i++)
        last = last->newer;
    take_looks_no_further(full, last, count); /* The first that does not fit. */
    assert_true(full->store->commit->due_ns <= full->store->now_ns);
    waiting_end(full);
}

static void
a_batch_does_not_look_behind_the_last_that_can_be_written(void **state)
{
    struct full_store *full = waiting_begin(AT_ONCE);

    (void)state;
    take_looks_no_further(full, full->store->commit->newest, AT_ONCE);
    waiting_end(full);
}

/* What is left of the active segment holds just so many blocks, with a header that says nothing
 * else. */
static void
tail_cut(struct full_store *full, uint32_t count)
{
    full_active(full)->fill_page =
        segment_pages(full->store->segments) - count * PAGES - batch_header_pages(count, count);
}

/* So many of the first that were put are moved to what is left of the active segment. */
static uint32_t
group_count(struct full_store *full)
{
    struct resident residents[AT_ONCE] = {0};
    const struct segment *active = full_active(full);
    uint32_t count;

    for (uint32_t i = 0; i < AT_ONCE; i++) {
        const struct entry *entry;

        residents[i].number = full_entry(full, i);
        entry = residency_at(full->store->map, residents[i].number);
        residents[i].extent =
            (struct extent){entry->segment, entry->extent_generation, entry->page};
    }
    count = relocate_start(full->store, residents, AT_ONCE, NVME_ROOT_NONE);
    for (uint32_t n = 0; n < STEPS_MAX && !relocate_is_idle(full->store); n++)
        sim_run_steps(full->world, 1);
    assert_true(relocate_is_idle(full->store));
    assert_ptr_equal(full_active(full), active); /* No other was begun. */
    return count;
}

/* They take a page of the header, or two. */
static void
void_entries_that_are_said_again_count_in_the_rest_of_a_segment(void **state)
{
    struct full_store *full = demoting_begin(0);
    struct commit *commit = full->store->commit;
    struct batch *batch = &commit->batches[0], *failed = &commit->batches[1];

    (void)state;
    (void)segment_fill(full);
    commit->lack_until_ns = UINT64_MAX;
    blocks_await(blocks_submit(full, 1000, AT_ONCE, KVT_RELAXED), KVT_STAGE_DONE);
    tail_cut(full, SOME);
    commit_batch_take(full->store, batch, SEGMENT_NONE);
    assert_int_equal(taken_return(full, batch), SOME);

    failed->kill_count = VOIDS;
    failed->state = BATCH_WRITING;
    for (uint32_t i = 0; i < VOIDS; i++)
        failed->kills[i].order = 0;
    commit_batch_take(full->store, batch, SEGMENT_NONE);
    assert_int_equal(taken_return(full, batch), SOME - 1);
    assert_int_equal(group_count(full), SOME - 1);
    failed->kill_count = 0;
    failed->state = BATCH_IDLE;
    waiting_end(full);
}

/* Blocks that are as much as a batch takes do not wait until they are due. */
static void
a_batch_that_is_just_full_is_written(void **state)
{
    struct full_store *full = demoting_begin(0);
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(kit_put(full->store, full->ns, 1, 1, BYTES, KVT_SYNC), KVT_OK);
    full->store->commit->batch_bytes_max = (uint64_t)AT_ONCE * BYTES;
    ticket = blocks_submit(full, 1000, AT_ONCE, KVT_RELAXED);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    kvt_ticket_free(ticket);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demotions_fill_the_rest_of_a_segment),
        cmocka_unit_test(puts_fill_the_rest_of_a_segment),
        cmocka_unit_test(puts_go_before_demotions_that_wait),
        cmocka_unit_test(a_put_that_is_due_does_not_wait_for_those_before_it),
        cmocka_unit_test(a_put_that_joins_a_demotion_keeps_its_block_when_that_fails),
        cmocka_unit_test(a_block_is_deleted_while_its_demotion_fails),
        cmocka_unit_test(void_entries_that_are_said_again_count_in_the_rest_of_a_segment),
        cmocka_unit_test(a_batch_that_is_just_full_is_written),
        cmocka_unit_test(a_full_batch_does_not_look_at_what_it_cannot_take),
        cmocka_unit_test(a_batch_does_not_look_behind_the_last_that_can_be_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
