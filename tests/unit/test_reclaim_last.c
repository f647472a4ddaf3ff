/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reclaim_last.c - a root has something that can become FREE, whichever writes of a reclaim
 * find no space; and where it has not, since the store was closed in between, the next open finds
 * room for it. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commit_batch.h"
#include "full_faults.h"
#include "relocate.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    LASTING = 1000, /* No segment reaches that generation: a kill that names it is needed. */
    STAYS = 4,      /* Every so many-th block is not deleted. */
    WRITES = 5,     /* Of one reclaim, at least. */
    BLOCKS_MAX = 2000,
    STEPS_MAX = 200 * 1000,
    REST_STEPS = 20 * 1000, /* In a pause in which nobody asks for anything. */
};

#define PAUSE_NS (UINT64_C(40) * 1000000000) /* Longer than a disk without space is left alone. */

static bool was_there[BLOCKS_MAX];

static uint32_t
count_of(const struct full_store *full, enum segment_state state)
{
    return segment_count_in(full->store->segments, 0, state);
}

/* --- A root without room ---------------------------------------------------------------------- */

static struct tier_kill
lasting_kill(uint32_t i)
{
    return (struct tier_kill){.extent = {i % FULL_SEGMENTS, LASTING, 1},
        .fingerprint = {.low = i + 1, .high = LASTING},
        .sequence = 1};
}

static void
lasting_bury(struct full_store *full, uint32_t i)
{
    const struct tier_kill kill = lasting_kill(i);

    commit_bury(full->store,
        &(struct commit_kill){
            .extent = kill.extent, .fingerprint = kill.fingerprint, .sequence = kill.sequence});
}

/* Each segment has been filled, and has kills that are needed; most of the blocks are deleted. */
static struct full_store *
kills_fill(struct full_store *full)
{
    full_fill(full);
    for (uint32_t i = 0; i < 2 * FULL_SEGMENTS; i++) {
        /* One of them names another segment than the one that they go to. */
        lasting_bury(full, i);
        lasting_bury(full, i + 1);
        (void)full_leave(full);
        full_churn(full);
    }
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        if (key % STAYS != 0 && full_entry(full, key) != ENTRY_NONE)
            assert_int_equal(full_result(full_delete_submit(full, key)), KVT_OK);
    }
    (void)sim_run_for(full->world, PAUSE_NS);
    return full;
}

static struct full_store *
full_of_kills(uint64_t seed)
{
    return kills_fill(full_begin(seed, FULL_SEGMENTS));
}

static struct resident
resident_of(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);
    const struct entry *entry = residency_at(full->store->map, number);

    return (struct resident){
        .number = number, .extent = {entry->segment, entry->extent_generation, entry->page}};
}

/* The i-th block from the end is written to the segment that is being filled, with the kill of its
 * old copy. */
static void
block_move(struct full_store *full, uint32_t i)
{
    uint64_t key = (full->next_cold / STAYS - 1 - i) * STAYS;
    const struct resident resident = resident_of(full, key);

    assert_int_equal(relocate_start(full->store, &resident, 1, 0), 1);
    env_wake(&full->store->env, full->store->loop_task); /* It has a job for a worker. */
}

static void
kill_move(struct full_store *full, uint32_t i)
{
    const struct tier_kill kill = lasting_kill(i);

    relocate_kills(full->store, &kill, 1, 0);
}

static void
group_await(struct full_store *full)
{
    for (uint32_t n = 0; n < STEPS_MAX && !relocate_is_idle(full->store); n++)
        sim_run_steps(full->world, 1);
    assert_true(relocate_is_idle(full->store));
    assert_int_equal(relocate_status_take(full->store), KVT_OK);
}

/* More than one batch takes, also without those that name its own segment. */
static void
many_kills_move(struct full_store *full, uint32_t i)
{
    static struct tier_kill kills[COMMIT_KILLS_MAX];

    for (uint32_t n = 0; n < COMMIT_KILLS_MAX; n++)
        kills[n] = lasting_kill(i + n);
    relocate_kills(full->store, kills, COMMIT_KILLS_MAX, 0);
    group_await(full);
    relocate_kills(full->store, kills, COMMIT_KILLS_MAX, 0);
}

/* Of the FREE segments so many are left; the others are closed with something in them that is
 * needed, and so is the one that was being filled. Returns the last one. */
static struct segment *
reserve_lose(
    struct full_store *full, uint32_t left_count, void (*move)(struct full_store *, uint32_t))
{
    struct segment_table *table = full->store->segments;
    struct segment *last;

    for (uint32_t i = 0; count_of(full, SEGMENT_FREE) > left_count; i++) {
        if (segment_active(table, 0) != NULL)
            segment_seal(table, full_active(full));
        move(full, i);
        group_await(full);
    }
    last = full_active(full);
    segment_seal(table, last);
    assert_int_equal(count_of(full, SEGMENT_SEALED), FULL_SEGMENTS - left_count);
    return last;
}

static void
blocks_note(const struct full_store *full)
{
    assert_in_range(full->next_cold, FULL_COLD, FULL_COLD + BLOCKS_MAX);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        uint32_t number = full_entry(full, key);

        was_there[key - FULL_COLD] =
            number != ENTRY_NONE && (entry_tiers(full->store, number) & TIER_NVME) != 0;
    }
}

static void
blocks_expect(struct full_store *full)
{
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        if (was_there[key - FULL_COLD])
            full_expect(full, key, 1);
        else
            assert_int_equal(full_entry(full, key), ENTRY_NONE);
    }
}

static enum kvt_status
one_put(struct full_store *full)
{
    kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, PAUSE_NS), KVT_OK);
    return full_result(ticket);
}

static void
puts_go_on(struct full_store *full)
{
    for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
        assert_int_equal(one_put(full), KVT_OK);
}

/* --- In a life -------------------------------------------------------------------------------- */

/* The n-th write of the reclaims that follow finds no space. */
static void
write_fails(struct full_store *full, uint32_t nth)
{
    const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_ENOSPC, .file = "data.", .nth = nth};

    sim_rule_add(full->world, &fails);
}

/* The first write of a reclaim, or the next one, and so on: of blocks, kills, a recycle header. */
static void
a_write_that_fails_leaves_room_for_the_kills_of_a_victim(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth <= WRITES; nth++) {
        struct full_store *full = full_of_kills(nth);

        (void)reserve_lose(full, 1, block_move);
        write_fails(full, nth);
        puts_go_on(full);
        full_end(full);
    }
}

/* The last FREE segment is not for the first of two batches of kills: it would be lost when the
 * second one fails. */
static void
a_victim_of_many_kills_waits_for_more_room(void **state)
{
    struct full_store *full = full_of_kills(26);

    (void)state;
    (void)reserve_lose(full, 1, many_kills_move);
    write_fails(full, 2);
    puts_go_on(full);
    full_end(full);
}

/* Where the block's copy on NVMe lies; FULL_SEGMENTS: there is none. */
static uint32_t
segment_of(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);

    if (number == ENTRY_NONE || (entry_tiers(full->store, number) & TIER_NVME) == 0)
        return FULL_SEGMENTS;
    return residency_at(full->store->map, number)->segment;
}

/* A block of each segment is kept: none can be emptied without room. Returns how many that are. */
static uint32_t
each_pin(struct full_store *full)
{
    bool is_pinned[FULL_SEGMENTS + 1] = {[FULL_SEGMENTS] = true};
    uint32_t count = 0;

    for (uint64_t key = 0; key < full->next_cold; key = key + 1 == FULL_HOT ? FULL_COLD : key + 1) {
        uint32_t segment = segment_of(full, key);
        struct payload_key name;

        if (is_pinned[segment])
            continue;
        payload_key_make(&name, key);
        assert_int_equal(kvt_pin(full->store, full->ns, &name.key, 1, KVT_FOREVER), KVT_OK);
        is_pinned[segment] = true;
        count++;
    }
    return count;
}

/* The last FREE segment is for one of them, when none can go without. */
static void
what_is_pinned_in_each_segment_keeps_no_root_from_reclaiming(void **state)
{
    struct full_store *full = full_of_kills(27);

    (void)state;
    (void)reserve_lose(full, 1, block_move);
    assert_int_equal(each_pin(full), FULL_SEGMENTS - 1);
    puts_go_on(full);
    full_end(full);
}

/* Its kills were written, then somebody has pinned one of its blocks, and the write of that fails:
 * it is let go without needing room for them again. */
static void
kills_that_were_written_are_noted(void **state)
{
    struct full_store *full = full_of_kills(28);
    kvt_ticket *ticket;
    struct segment *segment;
    uint32_t cursor = 0, noted_count = 0;

    (void)state;
    (void)reserve_lose(full, 1, kill_move);
    sim_rule_add(full->world, &full_late_syncs);
    write_fails(full, 2);
    ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
    for (uint32_t n = 0; n < STEPS_MAX && relocate_is_idle(full->store); n++)
        sim_run_steps(full->world, 1);
    (void)each_pin(full);
    for (uint32_t n = 0; n < STEPS_MAX && noted_count == 0; n++) {
        sim_run_steps(full->world, 1);
        for (cursor = 0; (segment = segment_next(full->store->segments, &cursor)) != NULL;)
            noted_count += segment->is_passed_over && segment->are_kills_elsewhere;
    }
    assert_int_not_equal(noted_count, 0);
    sim_rules_clear(full->world);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, PAUSE_NS), KVT_OK);
    kvt_ticket_free(ticket);
    puts_go_on(full);
    full_end(full);
}

/* It is RECYCLING; or its kills were written in a turn in which it was let go. */
static void
a_segment_whose_kills_are_elsewhere_needs_no_room(void **state)
{
    (void)state;
    for (uint32_t run = 0; run < 2; run++) {
        struct full_store *full = full_of_kills(20 + run);
        struct segment *last = reserve_lose(full, 0, kill_move);

        assert_int_equal(last->record_count, 0);
        if (run == 0)
            segment_recycle_begin(full->store->segments, last);
        else
            last->are_kills_elsewhere = true;
        puts_go_on(full);
        full_end(full);
    }
}

/* --- Recycle headers that fail ---------------------------------------------------------------- */

struct header {
    struct batch_owner owner;
    struct tier_batch batch;
    bool is_done;
};

static void
header_finish(struct kvt_store *store, struct tier_batch *batch)
{
    struct header *header = CONTAINER_OF(batch->user, struct header, owner);

    (void)store;
    header->is_done = true;
}

/* One is written to that segment. */
static enum kvt_status
header_write(struct full_store *full, struct segment *segment)
{
    struct header header = {.owner.finish = header_finish,
        .batch = {.sequence = commit_batch_number(full->store),
            .done = &full->store->batches_done,
            .done_task = &full->store->loop_task}};

    header.batch.user = &header.owner;
    assert_int_equal(nvme_recycle(full->store->nvme, segment, &header.batch), KVT_OK);
    for (uint32_t n = 0; n < STEPS_MAX && !header.is_done; n++)
        sim_run_steps(full->world, 1);
    assert_true(header.is_done);
    return header.batch.status;
}

/* No batch was tried since. */
static void
a_root_that_recycle_headers_have_lost_is_told(void **state)
{
    static const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    struct full_store *full = full_of_kills(25);
    struct segment *last = reserve_lose(full, 1, kill_move);
    uint32_t flags;

    (void)state;
    segment_recycle_begin(full->store->segments, last);
    sim_rule_add(full->world, &fails);
    do {
        assert_int_equal(kvt_health(full->store, &flags), KVT_OK);
        assert_int_equal(flags & KVT_HEALTH_ROOT_READONLY, 0);
        assert_int_equal(header_write(full, last), KVT_E_IO);
    } while (nvme_root_is_writable(full->store->nvme, 0));
    assert_int_equal(kvt_health(full->store, &flags), KVT_OK);
    assert_int_equal(flags & KVT_HEALTH_ROOT_READONLY, KVT_HEALTH_ROOT_READONLY);
    full_end(full);
}

/* --- Kills alone that find no room ------------------------------------------------------------ */

/* The steps of a pause in which nobody asks for anything are few. */
struct rest {
    const struct sim_world *world;
    uint64_t step_limit;
};

static bool
is_restless(void *context)
{
    const struct rest *rest = context;

    return sim_step_count(rest->world) > rest->step_limit;
}

/* They are tried again each second. */
static void
kills_that_find_no_room_let_the_loop_rest(void **state)
{
    struct full_store *full = full_of_kills(21);
    struct rest rest = {.world = full->world};

    (void)state;
    (void)reserve_lose(full, 0, block_move);
    lasting_bury(full, 99);
    rest.step_limit = sim_step_count(full->world) + REST_STEPS;
    assert_int_not_equal(
        sim_run(full->world, is_restless, &rest, sim_now(full->world) + PAUSE_NS), SIM_DONE);
    assert_int_equal(one_put(full), KVT_E_NOSPC);
    full->is_refusing = true;
    full_end(full);
}

/* --- Behind it -------------------------------------------------------------------------------- */

/* Closed, or cut off. */
static void
an_open_finds_room_for_reclaiming(void **state)
{
    (void)state;
    for (uint32_t run = 0; run < 2 * RECLAIM_RESERVE; run++) {
        struct full_store *full = full_of_kills(30 + run);

        (void)reserve_lose(full, run / 2, block_move);
        blocks_note(full);
        if (run % 2 == 0)
            assert_int_equal(kvt_close(full->store), KVT_OK);
        else
            sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        full_open(full, 0);
        (void)full_active(full); /* There is one. */
        blocks_expect(full);
        puts_go_on(full);
        full_again(full, KVT_OPEN_REBUILD);
        full_end(full);
    }
}

/* Before it takes a batch: what a crash leaves there without a commit is looked for. */
static void
the_index_knows_of_the_segment_that_goes_on(void **state)
{
    struct full_store *full = full_of_kills(40);
    uint32_t number;

    (void)state;
    /* The index has the last one as ACTIVE; it is nearly full, and another goes on. */
    (void)reserve_lose(full, 1, block_move);
    for (uint32_t i = 0; i < 8; i++) {
        many_kills_move(full, i);
        group_await(full);
    }
    segment_seal(full->store->segments, full_active(full));
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_open(full, 0);
    number = full_active(full)->number;
    assert_false(segment_at(full->store->segments, number)->was_active);
    full_again(full, 0);
    assert_true(segment_at(full->store->segments, number)->was_active);
    full_end(full);
}

/* The segment that an open has go on. The last page of that one cannot be read. */
static uint32_t
gone_on_with(uint32_t unreadable)
{
    struct full_store *full = kills_fill(full_begin_faulty(50));
    uint64_t page = FULL_PAGE_NONE;
    uint32_t number;

    (void)reserve_lose(full, 0, block_move);
    if (unreadable < FULL_SEGMENTS)
        page = (unreadable + 1) * full->store->file.segment_pages - 1;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_faults.page = page;
    full_faults.is_mending = true;
    full_open(full, 0);
    number = full_active(full)->number;
    assert_int_equal(full_faults.page, page); /* Nothing was written over it. */
    full_end(full);
    return number;
}

/* A rebuild may not have been able to read it, either, and not know of what counts there. */
static void
what_cannot_be_read_is_not_written_over_for_room(void **state)
{
    uint32_t first = gone_on_with(FULL_SEGMENTS);

    (void)state;
    assert_int_not_equal(gone_on_with(first), first);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_that_fails_leaves_room_for_the_kills_of_a_victim),
        cmocka_unit_test(a_victim_of_many_kills_waits_for_more_room),
        cmocka_unit_test(what_is_pinned_in_each_segment_keeps_no_root_from_reclaiming),
        cmocka_unit_test(kills_that_were_written_are_noted),
        cmocka_unit_test(a_segment_whose_kills_are_elsewhere_needs_no_room),
        cmocka_unit_test(a_root_that_recycle_headers_have_lost_is_told),
        cmocka_unit_test(kills_that_find_no_room_let_the_loop_rest),
        cmocka_unit_test(an_open_finds_room_for_reclaiming),
        cmocka_unit_test(what_cannot_be_read_is_not_written_over_for_room),
        cmocka_unit_test(the_index_knows_of_the_segment_that_goes_on),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
