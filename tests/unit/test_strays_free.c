/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_strays_free.c - batches that were written and not committed when the power went, in segments
 * that the index has as FREE: the next open voids whatever stands there, whole, torn or behind what
 * is torn, with a header that it need not read anything for. In the simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "full_faults.h"
#include "stop_on_proof.h"

enum {
#if defined(__SANITIZE_ADDRESS__)
    SEEDS = 2,
#else
    SEEDS = 6,
#endif
    FILLER = 13, /* Blocks that leave room for two more in their segment. */
    CRASHES_MAX = 400,
    HIDDEN_END = FULL_COLD + FILLER + 2, /* Behind the keys whose blocks fill a segment. */
    FIRST = 100, /* Keys: of a batch that does not arrive, of one behind it, and of a later one. */
    SECOND,
    THIRD,
};

static const struct sim_rule late_syncs = {.ops = SIM_SYNC,
    .effect = SIM_STALL,
    .nth = 1,
    .sticky = true,
    .file = "data.",
    .stall_ns = UINT64_C(50) * 1000 * 1000};

/* The power goes while batches are being written; all that was written is there. */
static void
cut_while_writing(struct full_store *full)
{
    (void)sim_run_for(full->world, UINT64_C(20) * 1000 * 1000);
    sim_rules_clear(full->world);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
}

/*
 * Two batches are under way in a segment that the index has as FREE; the power goes, and the disk
 * has the second one, not the first: its first sector, at least, did not arrive. Nobody was told of
 * either. Returns the segment.
 */
static uint32_t
behind_gap_leave(struct full_store *full, bool second_is_delete)
{
    uint32_t number;

    /* In segment 0, which is sealed then. */
    for (uint32_t i = 0; second_is_delete && i < FILLER + 2; i++)
        full_put(full, i == 0 ? SECOND : full->next_cold++, 1);
    sim_rule_add(full->world, &late_syncs);
    (void)full_put_submit(full, FIRST, 1, KVT_SYNC);
    full_writing_meet(full, FIRST);
    number = full_active(full)->number;
    assert_true(segment_at(full->store->segments, number)->batch_number == 0);
    if (second_is_delete) {
        (void)full_delete_submit(full, SECOND);
    } else {
        (void)full_put_submit(full, SECOND, 1, KVT_SYNC);
        full_writing_meet(full, SECOND);
    }
    cut_while_writing(full);
    assert_true(sim_file_corrupt(full->world, "store/data/data.00", (uint64_t)number << 20, 512));
    return number;
}

/* A delete of a key that is not there is acknowledged, and stays true. */
static void
second_is_gone_for_good(struct full_store *full)
{
    assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, SECOND, 0));
}

/* --- Behind a batch that did not arrive ------------------------------------------------------- */

static void
what_is_deleted_stays_so_behind_a_torn_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        (void)behind_gap_leave(full, false);
        full_open(full, 0);
        second_is_gone_for_good(full);
        full_end(full);
    }
}

/* The delete was never acknowledged, and the crash undid it: the block is there, and put again. */
static void
what_is_found_stays_behind_a_torn_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        struct kvt_put put = {.length = FULL_BLOCK_BYTES};
        struct payload_key name;
        kvt_ticket *ticket = NULL;

        (void)behind_gap_leave(full, true);
        full_open(full, 0);
        full_expect(full, SECOND, 1);
        payload_key_make(&name, SECOND);
        payload_fill(full->bytes, FULL_BLOCK_BYTES, SECOND, 1);
        put.key = name.key;
        put.source = full->bytes;
        assert_int_equal(
            kvt_put_submit(full->store, full->ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
        assert_int_equal(full_result(ticket), KVT_EXISTS); /* It is durable, that says. */
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, SECOND, 1);
        full_end(full);
    }
}

/* --- What the header says --------------------------------------------------------------------- */

struct headers {
    struct batch_header last;
    uint32_t count;
};

static bool
header_note(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct headers *headers = visitor;

    (void)records;
    (void)kills;
    headers->last = *header;
    headers->count++;
    return true;
}

/* In each FREE segment one header counts, which is what the table has of it. */
static uint32_t
free_segments_check(struct full_store *full)
{
    struct segment *segment;
    uint32_t cursor = 0, count = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL) {
        struct headers headers = {.count = 0};
        struct nvme_scan_result result;

        if (segment->state != SEGMENT_FREE)
            continue;
        assert_int_equal(
            nvme_scan(full->store->nvme, segment->number, header_note, &headers, &result), KVT_OK);
        assert_int_equal(headers.count, 1);
        assert_true(headers.last.is_recycle && headers.last.extent.page == 0);
        assert_int_equal(headers.last.extent.generation, segment->generation);
        assert_true(headers.last.sequence == segment->batch_number);
        assert_in_range(segment->fill_page, headers.last.total_pages, SEGMENT_HEAD_PAGES_MAX);
        count++;
    }
    return count;
}

/* Crash after crash, and what is put between them, into such segments too. */
static void
the_header_of_a_free_segment_agrees_with_the_index(void **state)
{
    struct full_store *full = full_begin_hasty(1);

    (void)state;
    for (uint64_t life = 1; life <= 12; life++) {
        for (uint32_t i = 0; i < FILLER; i++)
            full_put(full, full->next_cold++, 1);
        sim_rule_add(full->world, &late_syncs);
        (void)full_put_submit(full, FIRST, life, KVT_SYNC);
        full_writing_meet(full, FIRST);
        cut_while_writing(full);
        full_open(full, 0);
        assert_true(free_segments_check(full) > 0);
        assert_false(full_expect_at_most(full, FIRST, 0));
        for (uint64_t key = full->next_cold - FILLER; key < full->next_cold; key++)
            full_expect(full, key, 1);
    }
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FIRST, 0));
    for (uint64_t key = full->next_cold - FILLER; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* --- Crashes of the open ---------------------------------------------------------------------- */

/*
 * The power goes at each moment of the open that voids, and tears what is being written; a header
 * of which the index does not know, and a generation for which there is none, are both in order.
 * What the header that is written over had hidden stays hidden.
 */
static void
an_open_that_is_cut_leaves_it_to_the_next(void **state)
{
    bool has_ended = false;
    uint64_t n = 1;

    (void)state;
    for (; n < CRASHES_MAX && !has_ended; n++) {
        struct full_store *full = full_begin_hasty(n);

        (void)behind_gap_leave(full, false);
        sim_crash_after(full->world, n);
        full->options.flags = 0;
        (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
        has_ended = !sim_crashed(full->world);
        sim_power_cut(full->world, SIM_CUT_TORN);
        sim_crash_after(full->world, 0);
        full_open(full, 0);
        assert_true(free_segments_check(full) > 0);
        full_put(full, THIRD, 1);
        second_is_gone_for_good(full);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
    assert_true(has_ended);
    assert_true(n > 2 * FULL_SEGMENTS);
}

/* Most segments are FREE, with copies that were deleted and kills of them, none of which counts:
 * the headers hide them. */
static struct full_store *
hidden_begin(uint64_t seed)
{
    struct full_store *full = full_begin_hasty(seed);

    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.nvme_high_percent = 10; /* One segment after the other is reclaimed. */
    full_open(full, 0);
    while (full->next_cold < HIDDEN_END)
        full_put(full, full->next_cold++, 1);
    for (uint64_t key = FULL_COLD; key < HIDDEN_END; key++)
        assert_true(kit_delete(full->store, full->ns, key) >= 0);
    for (uint32_t i = 0; i < 2 * FILLER; i++) {
        full_put(full, THIRD, i);
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
    }
    return full;
}

static void
deleted_stay_away(struct full_store *full)
{
    for (uint64_t key = FULL_COLD; key < HIDDEN_END; key++)
        assert_false(full_expect_at_most(full, key, 0));
}

/* What was deleted in a segment that was recycled since has no kill any more: its header does it,
 * and the one that takes that one's place. */
static void
a_header_that_is_cut_hides_what_the_one_before_it_did(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 8 * FULL_SEGMENTS; n++) {
        struct full_store *full = hidden_begin(n);

        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        sim_crash_after(full->world, n);
        full->options.flags = 0;
        (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
        sim_power_cut(full->world, SIM_CUT_TORN);
        sim_crash_after(full->world, 0);
        full_open(full, KVT_OPEN_REBUILD);
        deleted_stay_away(full);
        full_end(full);
    }
}

/* --- A rebuild -------------------------------------------------------------------------------- */

static uint32_t
free_count(const struct full_store *full)
{
    return segment_count_in(full->store->segments, 0, SEGMENT_FREE);
}

/* As hidden_begin(), and the store has recovered from a crash: each FREE segment has a header. Its
 * segments are reclaimed for want of room only. */
static struct full_store *
voided_begin(uint64_t seed)
{
    struct full_store *full = hidden_begin(seed);

    full->options.nvme_high_percent = kit_options().nvme_high_percent;
    full_again(full, 0);
    assert_true(free_count(full) > FULL_SEGMENTS / 2);
    return full;
}

/* A put finds room at once, and nothing that was deleted comes back, in whichever life. */
static void
free_segments_are_free_behind_a_rebuild(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = voided_begin(seed);
        uint32_t count = free_count(full);

        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        sim_index_damage(full->world);
        full_open(full, 0);
        assert_int_equal(atomic_load(&full->store->counters.recover_rebuilt_count), 1);
        assert_int_equal(free_count(full), count);
        assert_int_equal(free_segments_check(full), count);
        full_put(full, FIRST, 1);
        assert_int_equal(atomic_load(&full->store->counters.segment_recycle_count), 0);
        assert_int_equal(segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING), 0);
        for (uint32_t life = 0; life < 3; life++) {
            deleted_stay_away(full);
            full_expect(full, FIRST, 1);
            full_again(full, life == 0 ? 0 : KVT_OPEN_REBUILD);
            assert_int_equal(free_segments_check(full), free_count(full));
        }
        full_end(full);
    }
}

/*
 * The power goes at each moment of an open that rebuilds, and tears what is being written. The next
 * one has no reason to rebuild, if the index is still the old one: what it fills counts all the
 * same.
 */
static void
rebuild_cut(bool was_closed, uint64_t n, bool *has_ended_out)
{
    struct full_store *full = voided_begin(n % SEEDS + 1);

    if (was_closed)
        assert_int_equal(kvt_close(full->store), KVT_OK);
    else
        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
    sim_crash_after(full->world, n);
    full->options.flags = KVT_OPEN_REBUILD;
    (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
    *has_ended_out = !sim_crashed(full->world);
    sim_power_cut(full->world, SIM_CUT_TORN);
    sim_crash_after(full->world, 0);
    full_open(full, 0);
    for (uint32_t i = 0; i < FILLER + 3; i++) /* Into a segment that was FREE. */
        full_put(full, FIRST + i, 1);
    for (uint32_t life = 0; life < 2; life++) {
        full_again(full, KVT_OPEN_REBUILD);
        deleted_stay_away(full);
        for (uint32_t i = 0; i < FILLER + 3; i++)
            full_expect(full, FIRST + i, 1);
    }
    full_end(full);
}

static void
an_open_that_rebuilds_and_is_cut_leaves_it_to_the_next(void **state)
{
    (void)state;
    for (uint32_t was_closed = 0; was_closed < 2; was_closed++) {
        bool has_ended = false;
        uint64_t n = 1;

        for (; n < CRASHES_MAX && !has_ended; n++)
            rebuild_cut(was_closed != 0, n, &has_ended);
        assert_true(has_ended);
        assert_true(n > FULL_SEGMENTS);
    }
}

/* --- What cannot be done ---------------------------------------------------------------------- */

/* The open succeeds, and promises nothing that it cannot know; it is tried again, also behind a
 * life that ends in order. */
static void
doubt_is_told(enum kvt_status write_status, enum kvt_status sync_status)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        (void)behind_gap_leave(full, false);
        full_faults.write_status = write_status;
        full_faults.sync_status = sync_status;
        full_open(full, 0);
        assert_int_equal(kit_delete(full->store, full->ns, SECOND),
            write_status != KVT_OK ? write_status : sync_status);
        full_faults.write_status = full_faults.sync_status = KVT_OK;
        full_put(full, THIRD, 1);
        if (seed % 2 == 0) {
            assert_int_equal(kvt_close(full->store), KVT_E_IO); /* Of the delete. */
            full_open(full, 0);
        } else {
            full_again(full, 0);
        }
        full_expect(full, THIRD, 1);
        second_is_gone_for_good(full);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

static void
a_header_that_cannot_be_written_makes_deletes_of_nothing_fail(void **state)
{
    (void)state;
    doubt_is_told(KVT_E_IO, KVT_OK);
    doubt_is_told(KVT_E_NOSPC, KVT_OK);
    doubt_is_told(KVT_E_NOMEM, KVT_OK);
}

static void
a_header_that_cannot_be_synced_makes_deletes_of_nothing_fail(void **state)
{
    (void)state;
    doubt_is_told(KVT_OK, KVT_E_IO);
}

/* Thousands of segments on a disk that takes seconds to give up. */
static void
a_disk_that_takes_no_header_is_not_asked_for_each(void **state)
{
    struct full_store *full = full_begin_faulty(1);

    (void)state;
    sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
    full_faults.write_status = KVT_E_IO;
    full_open(full, 0);
    assert_int_equal(full_faults.write_count, 1);
    full_faults.write_status = KVT_OK;
    full_again(full, 0);
    assert_int_equal(full_faults.write_count, 1 + FULL_SEGMENTS);
    full_end(full);
}

/* Nothing is read for it; and a store that is not behind a crash, or is only read, writes none. */
static void
a_page_that_cannot_be_read_is_in_nobodys_way(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);
        uint32_t number = behind_gap_leave(full, false);

        full_faults.page =
            (((uint64_t)number << 20) / PAGE_BYTES) + seed % 2 * SEGMENT_HEAD_PAGES_MAX;
        full->options.flags = KVT_OPEN_READ_ONLY;
        assert_int_equal(
            store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_OK);
        assert_int_equal(kvt_close(full->store), KVT_OK);
        assert_int_equal(full_faults.write_count, 0);
        full_open(full, 0);
        assert_int_equal(full_faults.write_count, FULL_SEGMENTS);
        assert_int_equal(kvt_close(full->store), KVT_OK);
        full_open(full, 0);
        assert_int_equal(full_faults.write_count, FULL_SEGMENTS);
        full_faults.page = FULL_PAGE_NONE;
        second_is_gone_for_good(full);
        full_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_deleted_stays_so_behind_a_torn_batch),
        cmocka_unit_test(what_is_found_stays_behind_a_torn_batch),
        cmocka_unit_test(the_header_of_a_free_segment_agrees_with_the_index),
        cmocka_unit_test(an_open_that_is_cut_leaves_it_to_the_next),
        cmocka_unit_test(a_header_that_is_cut_hides_what_the_one_before_it_did),
        cmocka_unit_test(free_segments_are_free_behind_a_rebuild),
        cmocka_unit_test(an_open_that_rebuilds_and_is_cut_leaves_it_to_the_next),
        cmocka_unit_test(a_header_that_cannot_be_written_makes_deletes_of_nothing_fail),
        cmocka_unit_test(a_header_that_cannot_be_synced_makes_deletes_of_nothing_fail),
        cmocka_unit_test(a_disk_that_takes_no_header_is_not_asked_for_each),
        cmocka_unit_test(a_page_that_cannot_be_read_is_in_nobodys_way),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
