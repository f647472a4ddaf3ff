/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_failures.c - the NVME tier's rules on failure, over an io engine that fails as
 * scripted: failed writes, short writes, failed syncs, failed reads, and what is answered in which
 * order.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io_lane.h"
#include "io_puppet.h"
#include "stop_on_proof.h"
#include "tier_rig.h"

enum {
    SEGMENTS = 8,
};

#define SECOND_NS (1000ull * 1000 * 1000)

static struct tier_rig rig;
static struct io_puppet *script;
static struct clock_ops clock_ops;
static const struct clock_ops *host_clock;
static _Atomic uint64_t clock_offset_ns;

static uint64_t
clock_now(void *context)
{
    return host_clock->now_ns(context) +
           atomic_load_explicit(&clock_offset_ns, memory_order_relaxed);
}

static void
fixture_open(uint32_t root_count)
{
    script = io_puppet_create();
    rig_init(&rig, TIER_KIND_NVME_OTHER, root_count, SEGMENTS);
    rig.env.io = &io_puppet_ops;
    rig.env.io_context = script;
    host_clock = rig.env.clock;
    clock_ops = *host_clock;
    clock_ops.now_ns = clock_now;
    rig.env.clock = &clock_ops;
    rig.options.reserve_count = 1;
    assert_int_equal(rig_open(&rig), KVT_OK);
}

static void
fixture_close(void)
{
    rig_deinit(&rig);
    io_puppet_destroy(script);
}

static void
batch_make(struct rig_batch *batch, uint32_t block_count, uint64_t seed)
{
    rig_batch_init(&rig, batch);
    for (uint32_t i = 0; i < block_count; i++)
        rig_batch_add(&rig, batch, 9000 + i, seed + i);
}

static void
put_expect(struct rig_batch *batch, enum kvt_status status)
{
    assert_int_equal(rig_put(&rig, batch), KVT_OK);
    assert_int_equal(batch->batch.status, status);
    for (uint32_t i = 0; i < batch->batch.block_count; i++) {
        assert_int_equal(batch->blocks[i].status, status);
        assert_int_equal(batch->blocks[i].record.extent.generation != 0, status == KVT_OK);
    }
}

static void
get_expect(const struct rig_batch *put)
{
    static struct rig_batch get;

    rig_get_init(&rig, &get, put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    for (uint32_t i = 0; i < get.batch.block_count; i++) {
        assert_int_equal(get.blocks[i].status, KVT_OK);
        assert_true(payload_matches(
            get.blocks[i].memory, get.blocks[i].record.stored_length, get.seeds[i]));
    }
}

static struct segment *
segment_of(const struct rig_batch *put)
{
    return segment_at(nvme_segments(rig.nvme), put->blocks[0].record.extent.segment);
}

/* Turn the loop until at least `count` operations of a kind are kept back. */
static void
held_wait(enum io_kind kind, uint32_t count)
{
    for (uint32_t i = 0; i < 1000000; i++) {
        if (io_puppet_held(script, kind) >= count)
            return;
        rig_turn(&rig);
    }
    fail_msg("%u operations were never held", count);
}

/* --- Writes ----------------------------------------------------------------------------------- */

static void
a_failed_write_fails_the_whole_batch_and_closes_its_segment(void **state)
{
    static struct rig_batch first, second, third;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    batch_make(&first, 3, 10);
    put_expect(&first, KVT_OK);
    segment = segment_of(&first);
    assert_int_equal(segment->state, SEGMENT_ACTIVE);

    io_puppet_fail(script, IO_WRITE, 0, 1, EIO);
    batch_make(&second, 3, 20);
    put_expect(&second, KVT_E_IO);
    assert_int_equal(segment->state, SEGMENT_SEALED);
    assert_int_equal(segment->writer_count, 0);

    batch_make(&third, 3, 30);
    put_expect(&third, KVT_OK);
    assert_ptr_not_equal(segment_of(&third), segment);
    get_expect(&first);
    get_expect(&third);
    fixture_close();
}

static void
a_write_without_room_reports_it(void **state)
{
    static struct rig_batch batch;

    (void)state;
    fixture_open(1);
    io_puppet_fail(script, IO_WRITE, 0, 1, ENOSPC);
    batch_make(&batch, 1, 10);
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    assert_true(batch.batch.status < 0);
    assert_int_equal(batch.blocks[0].status, batch.batch.status);
    fixture_close();
}

static void
a_short_write_is_finished(void **state)
{
    static struct rig_batch batch;
    struct lane_stats stats;

    (void)state;
    fixture_open(1);
    io_puppet_shorten(script, IO_WRITE, 5);
    batch_make(&batch, 6, 10);
    put_expect(&batch, KVT_OK);
    io_puppet_shorten(script, IO_READ, 3);
    get_expect(&batch);
    nvme_lane_stats(rig.nvme, 0, &stats);
    assert_true(stats.short_count >= 6);
    fixture_close();
}

/* Success says that all before it are durable. */
static void
a_failed_write_fails_what_was_put_behind_it(void **state)
{
    static struct rig_batch before, failing, behind;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    batch_make(&before, 1, 5);
    put_expect(&before, KVT_OK);
    segment = segment_of(&before);
    io_puppet_hold(script, IO_WRITE, NULL);
    batch_make(&failing, 1, 10);
    assert_int_equal(rig.tier->ops->put(rig.tier, &failing.batch), KVT_OK);
    batch_make(&behind, 1, 20);
    assert_int_equal(rig.tier->ops->put(rig.tier, &behind.batch), KVT_OK);
    assert_ptr_equal(segment_of(&behind), segment);
    held_wait(IO_WRITE, 1); /* Whether the other has gone out as well is the lane's to decide. */
    io_puppet_fail(script, IO_WRITE, 0, 1, EIO);
    io_puppet_release(script, IO_WRITE);
    rig_wait(&rig, 2);
    assert_ptr_equal(rig.answers[0], &failing.batch);
    assert_int_equal(failing.batch.status, KVT_E_IO);
    /* Its own error, when the lane has made one operation of both: they are neighbours. */
    assert_true(behind.batch.status == KVT_E_STATE || behind.batch.status == KVT_E_IO);
    assert_int_equal(behind.blocks[0].record.extent.generation, 0);
    assert_int_equal(segment->writer_count, 0);
    rig_answers_clear(&rig);
    get_expect(&before);
    fixture_close();
}

/* --- Syncs ------------------------------------------------------------------------------------ */

static void
a_failed_sync_fails_the_batch_and_is_never_retried(void **state)
{
    static struct rig_batch first, second;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    io_puppet_fail(script, IO_SYNC, 0, 1, EIO);
    batch_make(&first, 2, 10);
    assert_int_equal(rig.tier->ops->put(rig.tier, &first.batch), KVT_OK);
    segment = segment_of(&first);
    rig_wait(&rig, 1);
    rig_answers_clear(&rig);
    assert_int_equal(first.batch.status, KVT_E_IO);
    assert_int_equal(first.blocks[1].status, KVT_E_IO);
    assert_int_equal(first.blocks[1].record.extent.generation, 0);
    assert_int_equal(io_puppet_count(script, IO_SYNC), 1);
    assert_int_equal(segment->state, SEGMENT_SEALED);

    /* One failure does not close the root: the next batch goes to another segment. */
    batch_make(&second, 2, 20);
    put_expect(&second, KVT_OK);
    assert_ptr_not_equal(segment_of(&second), segment);
    get_expect(&second);
    fixture_close();
}

static void
a_failed_sync_fails_every_write_that_was_in_flight(void **state)
{
    static struct rig_batch covered, in_flight, behind, after;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    io_puppet_hold(script, IO_SYNC, NULL);
    batch_make(&covered, 1, 10);
    assert_int_equal(rig.tier->ops->put(rig.tier, &covered.batch), KVT_OK);
    segment = segment_of(&covered);
    held_wait(IO_SYNC, 1);
    io_puppet_hold(script, IO_WRITE, NULL);
    batch_make(&in_flight, 1, 20);
    assert_int_equal(rig.tier->ops->put(rig.tier, &in_flight.batch), KVT_OK);
    held_wait(IO_WRITE, 1);

    io_puppet_fail(script, IO_SYNC, 0, 1, EIO);
    io_puppet_release(script, IO_SYNC);
    rig_wait(&rig, 1);
    assert_ptr_equal(rig.answers[0], &covered.batch);
    assert_int_equal(covered.batch.status, KVT_E_IO);
    assert_int_equal(segment->state, SEGMENT_SEALED);
    assert_int_equal(segment->writer_count, 1);

    /* Its write succeeds, and no sync could tell what became of its first half. What was put behind
     * it since then must not say that it is durable, either. */
    batch_make(&behind, 1, 25);
    assert_int_equal(rig.tier->ops->put(rig.tier, &behind.batch), KVT_OK);
    io_puppet_release(script, IO_WRITE);
    rig_wait(&rig, 3);
    assert_ptr_equal(rig.answers[1], &in_flight.batch);
    assert_int_equal(in_flight.batch.status, KVT_E_IO);
    assert_ptr_equal(rig.answers[2], &behind.batch);
    assert_int_equal(behind.batch.status, KVT_E_STATE);
    assert_int_equal(segment->writer_count, 0);
    assert_int_equal(io_puppet_count(script, IO_SYNC), 1);

    rig_answers_clear(&rig);
    batch_make(&after, 1, 30);
    put_expect(&after, KVT_OK);
    fixture_close();
}

static void
a_second_failed_sync_within_a_minute_closes_the_root(void **state)
{
    static struct rig_batch batch, kept;
    struct nvme_caps caps;
    struct tier_usage usage;

    (void)state;
    fixture_open(1);
    batch_make(&kept, 2, 5);
    put_expect(&kept, KVT_OK);
    io_puppet_fail(script, IO_SYNC, 0, 2, EIO);
    batch_make(&batch, 1, 10);
    put_expect(&batch, KVT_E_IO);
    nvme_caps_get(rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    clock_offset_ns += 59 * SECOND_NS;
    batch_make(&batch, 1, 20);
    put_expect(&batch, KVT_E_IO);
    nvme_caps_get(rig.nvme, &caps);
    assert_true(caps.is_read_only[0]);

    batch_make(&batch, 1, 30);
    assert_int_equal(rig_put(&rig, &batch), KVT_E_READONLY);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.free_bytes, 0);
    get_expect(&kept);
    fixture_close();
}

static void
a_second_failed_sync_later_does_not(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;

    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 3; i++) {
        io_puppet_fail(script, IO_SYNC, 0, 1, EIO);
        batch_make(&batch, 1, 10);
        put_expect(&batch, KVT_E_IO);
        clock_offset_ns += 61 * SECOND_NS;
    }
    nvme_caps_get(rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    batch_make(&batch, 1, 20);
    put_expect(&batch, KVT_OK);
    fixture_close();
}

static void
six_failed_writes_in_a_row_close_the_root(void **state)
{
    static struct rig_batch batch, kept;
    struct nvme_caps caps;

    (void)state;
    fixture_open(1);
    batch_make(&kept, 2, 5);
    put_expect(&kept, KVT_OK);
    for (uint32_t i = 0; i < 6; i++) {
        nvme_caps_get(rig.nvme, &caps);
        assert_false(caps.is_read_only[0]);
        io_puppet_fail(script, IO_WRITE, 0, 1, EIO);
        batch_make(&batch, 1, 10);
        put_expect(&batch, KVT_E_IO);
    }
    nvme_caps_get(rig.nvme, &caps);
    assert_true(caps.is_read_only[0]);
    batch_make(&batch, 1, 30);
    assert_int_equal(rig_put(&rig, &batch), KVT_E_READONLY);
    get_expect(&kept);
    fixture_close();
}

static void
failed_writes_with_a_good_one_between_do_not(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;

    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 6; i++) {
        io_puppet_fail(script, IO_WRITE, 0, 1, EIO);
        batch_make(&batch, 1, 10);
        put_expect(&batch, KVT_E_IO);
        if (i == 3) {
            batch_make(&batch, 1, 20);
            put_expect(&batch, KVT_OK);
        }
    }
    nvme_caps_get(rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    fixture_close();
}

static void
a_closed_root_leaves_the_work_to_the_others(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;
    uint32_t failed_count = 0;

    (void)state;
    fixture_open(2);
    /* The first to go down is whichever had most room: both until one is closed. */
    nvme_caps_get(rig.nvme, &caps);
    while (!caps.is_read_only[0] && !caps.is_read_only[1]) {
        io_puppet_fail(script, IO_SYNC, 0, 1, EIO);
        batch_make(&batch, 1, 10);
        put_expect(&batch, KVT_E_IO);
        nvme_caps_get(rig.nvme, &caps);
        failed_count++;
    }
    assert_in_range(failed_count, 2, 3);
    for (uint32_t i = 0; i < 4; i++) {
        batch_make(&batch, 1, 20);
        put_expect(&batch, KVT_OK);
        assert_int_equal(
            segment_root(batch.blocks[0].record.extent.segment), caps.is_read_only[0] ? 1 : 0);
    }
    fixture_close();
}

static void
one_sync_serves_all_that_wait(void **state)
{
    enum {
        COUNT = 12
    };
    static struct rig_batch batches[COUNT];

    (void)state;
    fixture_open(1);
    io_puppet_hold(script, IO_SYNC, NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        batch_make(&batches[i], 1, i);
        assert_int_equal(rig.tier->ops->put(rig.tier, &batches[i].batch), KVT_OK);
        if (i == 0)
            held_wait(IO_SYNC, 1);
    }
    /* All are written; none may be answered before its sync. */
    for (uint32_t i = 0; i < 200; i++)
        rig_turn(&rig);
    assert_int_equal(rig.answer_count, 0);
    io_puppet_release(script, IO_SYNC);
    rig_wait(&rig, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(rig.answers[i], &batches[i].batch);
        assert_int_equal(batches[i].batch.status, KVT_OK);
    }
    /* One for the first, one for the rest; at most one more when they were not all written then. */
    assert_in_range(io_puppet_count(script, IO_SYNC), 2, 3);
    fixture_close();
}

static void
a_sync_does_not_wait_for_the_writes_of_other_batches(void **state)
{
    static struct rig_batch written, in_flight;

    (void)state;
    fixture_open(1);
    /* Both are on their way before the tier takes an answer and starts a sync. */
    batch_make(&written, 1, 10);
    assert_int_equal(rig.tier->ops->put(rig.tier, &written.batch), KVT_OK);
    while (io_puppet_count(script, IO_WRITE) == 0)
        (void)usleep(20);
    io_puppet_hold(script, IO_WRITE, NULL);
    batch_make(&in_flight, 1, 20);
    assert_int_equal(rig.tier->ops->put(rig.tier, &in_flight.batch), KVT_OK);
    while (io_puppet_held(script, IO_WRITE) == 0)
        (void)usleep(20);

    rig_wait(&rig, 1);
    assert_ptr_equal(rig.answers[0], &written.batch);
    assert_int_equal(written.batch.status, KVT_OK);
    assert_int_equal(io_puppet_count(script, IO_SYNC), 1);
    /* That sync is not the other's. */
    io_puppet_hold(script, IO_SYNC, NULL);
    io_puppet_release(script, IO_WRITE);
    held_wait(IO_SYNC, 1);
    assert_int_equal(rig.answer_count, 1);
    io_puppet_release(script, IO_SYNC);
    rig_wait(&rig, 2);
    assert_int_equal(in_flight.batch.status, KVT_OK);
    fixture_close();
}

static void
no_batch_is_answered_before_its_sync(void **state)
{
    static struct rig_batch batch;

    (void)state;
    fixture_open(1);
    io_puppet_hold(script, IO_SYNC, NULL);
    batch_make(&batch, 4, 1);
    assert_int_equal(rig.tier->ops->put(rig.tier, &batch.batch), KVT_OK);
    held_wait(IO_SYNC, 1);
    for (uint32_t i = 0; i < 200; i++)
        rig_turn(&rig);
    assert_int_equal(rig.answer_count, 0);
    assert_int_equal(segment_of(&batch)->writer_count, 1);
    io_puppet_release(script, IO_SYNC);
    rig_wait(&rig, 1);
    assert_int_equal(batch.batch.status, KVT_OK);
    fixture_close();
}

static void
answers_keep_the_order_of_puts_across_roots(void **state)
{
    static struct rig_batch first, second;

    (void)state;
    fixture_open(2);
    io_puppet_hold(script, IO_WRITE, NULL);
    batch_make(&first, 2, 10);
    assert_int_equal(rig.tier->ops->put(rig.tier, &first.batch), KVT_OK);
    batch_make(&second, 1, 20);
    assert_int_equal(rig.tier->ops->put(rig.tier, &second.batch), KVT_OK);
    /* The two roots share the work. */
    assert_int_not_equal(segment_root(first.blocks[0].record.extent.segment),
        segment_root(second.blocks[0].record.extent.segment));
    held_wait(IO_WRITE, 2);
    io_puppet_release(script, IO_WRITE);
    rig_wait(&rig, 2);
    assert_ptr_equal(rig.answers[0], &first.batch);
    assert_ptr_equal(rig.answers[1], &second.batch);
    rig_answers_clear(&rig);

    /* Now with the first root slower, so that the second batch is done first: the order stays. */
    batch_make(&first, 2, 30);
    io_puppet_hold(script, IO_SYNC, NULL);
    assert_int_equal(rig.tier->ops->put(rig.tier, &first.batch), KVT_OK);
    held_wait(IO_SYNC, 1);
    io_puppet_fail(script, IO_WRITE, 0, 1, EIO);
    batch_make(&second, 1, 40);
    assert_int_equal(rig.tier->ops->put(rig.tier, &second.batch), KVT_OK);
    for (uint32_t i = 0; i < 300; i++)
        rig_turn(&rig);
    assert_int_equal(rig.answer_count, 0); /* The second has failed and waits for its turn. */
    io_puppet_release(script, IO_SYNC);
    rig_wait(&rig, 2);
    assert_ptr_equal(rig.answers[0], &first.batch);
    assert_int_equal(first.batch.status, KVT_OK);
    assert_ptr_equal(rig.answers[1], &second.batch);
    assert_int_equal(second.batch.status, KVT_E_IO);
    fixture_close();
}

/* --- Reads ------------------------------------------------------------------------------------ */

static void
a_failed_read_fails_its_block_only(void **state)
{
    static struct rig_batch put, get;
    uint32_t failed_count = 0;

    (void)state;
    fixture_open(1);
    batch_make(&put, 8, 10);
    put_expect(&put, KVT_OK);
    rig_get_init(&rig, &get, &put);
    /* The blocks are apart on the device, so that the lane does not join them. */
    for (uint32_t i = 0; i < 4; i++) {
        get.blocks[i] = get.blocks[2 * i];
        get.seeds[i] = get.seeds[2 * i];
    }
    get.batch.block_count = 4;
    io_puppet_fail(script, IO_READ, 1, 1, EIO);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        if (get.blocks[i].status == KVT_OK)
            assert_true(payload_matches(
                get.blocks[i].memory, get.blocks[i].record.stored_length, get.seeds[i]));
        else
            failed_count += get.blocks[i].status == KVT_E_IO;
    }
    assert_int_equal(failed_count, 1);
    assert_int_equal(segment_of(&put)->reader_count, 0);
    get_expect(&put);
    fixture_close();
}

/* --- Recycling -------------------------------------------------------------------------------- */

static void
a_segment_with_transfers_in_flight_is_not_recycled(void **state)
{
    static struct rig_batch put, get, recycle;
    struct segment_table *table;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    table = nvme_segments(rig.nvme);
    batch_make(&put, 1, 10);
    put_expect(&put, KVT_OK);
    segment = segment_of(&put);
    rig_batch_init(&rig, &recycle);
    assert_int_equal(nvme_recycle(rig.nvme, segment, &recycle.batch), KVT_E_STATE);

    io_puppet_hold(script, IO_READ, NULL);
    rig_get_init(&rig, &get, &put);
    assert_int_equal(rig.tier->ops->get(rig.tier, &get.batch), KVT_OK);
    held_wait(IO_READ, 1);
    segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    assert_int_equal(nvme_recycle(rig.nvme, segment, &recycle.batch), KVT_E_BUSY);
    io_puppet_release(script, IO_READ);
    rig_wait(&rig, 1);
    assert_int_equal(get.blocks[0].status, KVT_OK);
    rig_answers_clear(&rig);

    /* New reads of it are misses already. */
    rig_get_init(&rig, &get, &put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    assert_int_equal(get.blocks[0].status, KVT_MISS);
    assert_int_equal(nvme_recycle(rig.nvme, segment, &recycle.batch), KVT_OK);
    rig_wait(&rig, 1);
    assert_int_equal(recycle.batch.status, KVT_OK);
    segment_free(table, segment);
    assert_int_equal(segment->generation, 2);
    assert_int_equal(segment->fill_page, 1);
    fixture_close();
}

static void
a_recycle_header_that_failed_may_be_written_again(void **state)
{
    static struct rig_batch put, recycle;
    struct segment_table *table;
    struct segment *segment;

    (void)state;
    fixture_open(1);
    table = nvme_segments(rig.nvme);
    batch_make(&put, 1, 10);
    put_expect(&put, KVT_OK);
    segment = segment_of(&put);
    segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    for (uint32_t i = 0; i < 2; i++) {
        io_puppet_fail(script, i == 0 ? IO_WRITE : IO_SYNC, 0, 1, EIO);
        rig_batch_init(&rig, &recycle);
        assert_int_equal(nvme_recycle(rig.nvme, segment, &recycle.batch), KVT_OK);
        rig_wait(&rig, 1);
        rig_answers_clear(&rig);
        assert_int_equal(recycle.batch.status, KVT_E_IO);
        assert_int_equal(segment->state, SEGMENT_RECYCLING);
        assert_int_equal(segment->fill_page, 0);
    }
    assert_int_equal(nvme_recycle(rig.nvme, segment, &recycle.batch), KVT_OK);
    rig_wait(&rig, 1);
    assert_int_equal(recycle.batch.status, KVT_OK);
    fixture_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_write_fails_the_whole_batch_and_closes_its_segment),
        cmocka_unit_test(a_write_without_room_reports_it),
        cmocka_unit_test(a_short_write_is_finished),
        cmocka_unit_test(a_failed_write_fails_what_was_put_behind_it),
        cmocka_unit_test(a_failed_sync_fails_the_batch_and_is_never_retried),
        cmocka_unit_test(a_failed_sync_fails_every_write_that_was_in_flight),
        cmocka_unit_test(a_second_failed_sync_within_a_minute_closes_the_root),
        cmocka_unit_test(a_second_failed_sync_later_does_not),
        cmocka_unit_test(six_failed_writes_in_a_row_close_the_root),
        cmocka_unit_test(failed_writes_with_a_good_one_between_do_not),
        cmocka_unit_test(a_closed_root_leaves_the_work_to_the_others),
        cmocka_unit_test(one_sync_serves_all_that_wait),
        cmocka_unit_test(a_sync_does_not_wait_for_the_writes_of_other_batches),
        cmocka_unit_test(no_batch_is_answered_before_its_sync),
        cmocka_unit_test(answers_keep_the_order_of_puts_across_roots),
        cmocka_unit_test(a_failed_read_fails_its_block_only),
        cmocka_unit_test(a_segment_with_transfers_in_flight_is_not_recycled),
        cmocka_unit_test(a_recycle_header_that_failed_may_be_written_again),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
