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
#include "nvme_internal.h"
#include "nvme_kit.h"
#include "stop_on_proof.h"

#define SECOND_NS (1000ull * 1000 * 1000)

/* --- Writes ----------------------------------------------------------------------------------- */

static void
a_failed_write_fails_the_whole_batch_and_closes_its_segment(void **state)
{
    static struct rig_batch first, second, third;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    nvme_kit_batch(&first, 3, 10);
    nvme_kit_put(&first, KVT_OK);
    segment = nvme_kit_segment(&first);
    assert_int_equal(segment->state, SEGMENT_ACTIVE);

    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    nvme_kit_batch(&second, 3, 20);
    nvme_kit_put(&second, KVT_E_IO);
    assert_int_equal(segment->state, SEGMENT_SEALED);
    assert_int_equal(segment->writer_count, 0);

    nvme_kit_batch(&third, 3, 30);
    nvme_kit_put(&third, KVT_OK);
    assert_ptr_not_equal(nvme_kit_segment(&third), segment);
    nvme_kit_get(&first);
    nvme_kit_get(&third);
    nvme_kit_close();
}

static void
a_write_without_room_reports_it(void **state)
{
    static struct rig_batch batch;

    (void)state;
    nvme_kit_open(1);
    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, ENOSPC);
    nvme_kit_batch(&batch, 1, 10);
    assert_int_equal(rig_put(&nvme_kit.rig, &batch), KVT_OK);
    assert_true(batch.batch.status < 0);
    assert_int_equal(batch.blocks[0].status, batch.batch.status);
    nvme_kit_close();
}

static void
a_short_write_is_finished(void **state)
{
    static struct rig_batch batch;
    struct lane_stats stats;

    (void)state;
    nvme_kit_open(1);
    io_puppet_shorten(nvme_kit.script, IO_WRITE, 5);
    nvme_kit_batch(&batch, 6, 10);
    nvme_kit_put(&batch, KVT_OK);
    io_puppet_shorten(nvme_kit.script, IO_READ, 3);
    nvme_kit_get(&batch);
    nvme_lane_stats(nvme_kit.rig.nvme, 0, &stats);
    assert_true(stats.short_count >= 6);
    nvme_kit_close();
}

/* --- No space --------------------------------------------------------------------------------- */

/* A batch of a block that finds no space: the next one is not taken. */
static void
put_in_vain(void)
{
    static struct rig_batch batch;

    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, ENOSPC);
    nvme_kit_batch(&batch, 1, 10);
    nvme_kit_put(&batch, KVT_E_NOSPC);
    assert_int_equal(rig_put(&nvme_kit.rig, &batch), KVT_E_BUSY);
}

/* Whether it lasts is what a caller gives up by: not while a try is under way, however often it has
 * been in vain before. */
static void
a_lack_lasts_from_the_third_try_but_not_while_one_is_under_way(void **state)
{
    static struct rig_batch batch;
    struct nvme_tier *nvme;
    struct nvme_lack lack;

    (void)state;
    nvme_kit_open(1);
    nvme = nvme_kit.rig.nvme;
    assert_false(nvme_lack(nvme, &lack));
    for (uint32_t i = 0; i < 3; i++) {
        put_in_vain();
        assert_true(nvme_lack(nvme, &lack));
        assert_int_equal(lack.status, KVT_E_NOSPC);
        assert_int_equal(lack.is_lasting, i == 2);
        assert_int_equal(lack.until_ns, nvme_kit.now_ns + (SECOND_NS << i));
        nvme_kit.now_ns = lack.until_ns - 1;
        assert_true(nvme_lack(nvme, &lack));
        nvme_kit.now_ns++;
        assert_false(nvme_lack(nvme, &lack));
    }

    io_puppet_hold(nvme_kit.script, IO_WRITE, NULL);
    nvme_kit_batch(&batch, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &batch.batch), KVT_OK);
    assert_true(nvme_lack(nvme, &lack));
    assert_int_equal(lack.until_ns, UINT64_MAX);
    assert_false(lack.is_lasting);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 1);
    rig_answers_clear(&nvme_kit.rig);
    assert_int_equal(batch.batch.status, KVT_OK);
    assert_false(nvme_lack(nvme, &lack));
    /* Success has made an end of it: the next one is a first one again. */
    put_in_vain();
    assert_true(nvme_lack(nvme, &lack));
    assert_false(lack.is_lasting);
    nvme_kit_close();
}

/* Another root takes batches; when it lacks space as well, the next try is the earlier one. */
static void
a_tier_lacks_space_when_all_its_roots_do(void **state)
{
    static struct rig_batch batch;
    struct nvme_tier *nvme;
    struct nvme_lack lack;
    uint64_t first_ns;

    (void)state;
    nvme_kit_open(2);
    nvme = nvme_kit.rig.nvme;
    first_ns = nvme_kit.now_ns;
    for (uint32_t i = 0; i < 2; i++) {
        assert_false(nvme_lack(nvme, &lack));
        io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, ENOSPC);
        nvme_kit_batch(&batch, 1, 10 + i);
        nvme_kit_put(&batch, KVT_E_NOSPC);
        nvme_kit.now_ns += SECOND_NS / 4;
    }
    assert_true(nvme->roots[0].lack_count == 1 && nvme->roots[1].lack_count == 1);
    assert_true(nvme_lack(nvme, &lack));
    assert_int_equal(lack.until_ns, first_ns + SECOND_NS);
    assert_false(lack.is_lasting);
    nvme_kit.now_ns = first_ns + SECOND_NS;
    assert_false(nvme_lack(nvme, &lack));
    nvme_kit_close();
}

/* --- Syncs ------------------------------------------------------------------------------------ */

static void
a_failed_sync_fails_the_batch_and_is_never_retried(void **state)
{
    static struct rig_batch first, second;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
    nvme_kit_batch(&first, 2, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &first.batch), KVT_OK);
    segment = nvme_kit_segment(&first);
    rig_wait(&nvme_kit.rig, 1);
    rig_answers_clear(&nvme_kit.rig);
    assert_int_equal(first.batch.status, KVT_E_IO);
    assert_int_equal(first.blocks[1].status, KVT_E_IO);
    assert_int_equal(first.blocks[1].record.extent.generation, 0);
    assert_int_equal(io_puppet_count(nvme_kit.script, IO_SYNC), 1);
    assert_int_equal(segment->state, SEGMENT_SEALED);

    /* One failure does not close the root: the next batch goes to another segment. */
    nvme_kit_batch(&second, 2, 20);
    nvme_kit_put(&second, KVT_OK);
    assert_ptr_not_equal(nvme_kit_segment(&second), segment);
    nvme_kit_get(&second);
    nvme_kit_close();
}

static void
a_failed_sync_fails_every_write_that_was_in_flight(void **state)
{
    static struct rig_batch covered, in_flight, behind, after;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    io_puppet_hold(nvme_kit.script, IO_SYNC, NULL);
    nvme_kit_batch(&covered, 1, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &covered.batch), KVT_OK);
    segment = nvme_kit_segment(&covered);
    nvme_kit_held_wait(IO_SYNC, 1);
    io_puppet_hold(nvme_kit.script, IO_WRITE, NULL);
    nvme_kit_batch(&in_flight, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &in_flight.batch), KVT_OK);
    nvme_kit_held_wait(IO_WRITE, 1);

    io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 1);
    assert_ptr_equal(nvme_kit.rig.answers[0], &covered.batch);
    assert_int_equal(covered.batch.status, KVT_E_IO);
    assert_int_equal(segment->state, SEGMENT_SEALED);
    assert_int_equal(segment->writer_count, 1);

    /* Its write succeeds, and no sync could tell what became of its first half. What was put behind
     * it since then must not say that it is durable, either. */
    nvme_kit_batch(&behind, 1, 25);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &behind.batch), KVT_OK);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 3);
    assert_ptr_equal(nvme_kit.rig.answers[1], &in_flight.batch);
    assert_int_equal(in_flight.batch.status, KVT_E_IO);
    assert_ptr_equal(nvme_kit.rig.answers[2], &behind.batch);
    assert_int_equal(behind.batch.status, KVT_E_STATE);
    assert_int_equal(segment->writer_count, 0);
    assert_int_equal(io_puppet_count(nvme_kit.script, IO_SYNC), 1);

    rig_answers_clear(&nvme_kit.rig);
    nvme_kit_batch(&after, 1, 30);
    nvme_kit_put(&after, KVT_OK);
    nvme_kit_close();
}

/* On another root, and synced there: it says that all before it are durable. */
static void
a_failed_sync_fails_what_was_put_behind_it_elsewhere(void **state)
{
    static struct rig_batch failing, finished;
    struct nvme_tier *nvme;

    (void)state;
    nvme_kit_open(2);
    nvme = nvme_kit.rig.nvme;
    io_puppet_hold(nvme_kit.script, IO_SYNC, nvme->roots[0].file);
    nvme_kit_batch(&failing, 1, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &failing.batch), KVT_OK);
    assert_int_equal(segment_root(failing.batch.header.segment), 0);
    nvme_kit_held_wait(IO_SYNC, 1);
    nvme_kit_batch(&finished, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &finished.batch), KVT_OK);
    assert_int_equal(segment_root(finished.batch.header.segment), 1);
    while (nvme->put_first->next->state != PUT_SYNCED)
        rig_turn(&nvme_kit.rig);
    io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 2);
    assert_int_equal(failing.batch.status, KVT_E_IO);
    assert_int_equal(finished.batch.status, KVT_E_STATE);
    rig_answers_clear(&nvme_kit.rig);
    nvme_kit_close();
}

static void
a_second_failed_sync_within_a_minute_closes_the_root(void **state)
{
    static struct rig_batch batch, kept;
    struct nvme_caps caps;
    struct tier_usage usage;

    (void)state;
    nvme_kit_open(1);
    nvme_kit_batch(&kept, 2, 5);
    nvme_kit_put(&kept, KVT_OK);
    io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 2, EIO);
    nvme_kit_batch(&batch, 1, 10);
    nvme_kit_put(&batch, KVT_E_IO);
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    nvme_kit.now_ns += 59 * SECOND_NS;
    nvme_kit_batch(&batch, 1, 20);
    nvme_kit_put(&batch, KVT_E_IO);
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    assert_true(caps.is_read_only[0]);

    nvme_kit_batch(&batch, 1, 30);
    assert_int_equal(rig_put(&nvme_kit.rig, &batch), KVT_E_READONLY);
    nvme_kit.rig.tier->ops->usage(nvme_kit.rig.tier, &usage);
    assert_int_equal(usage.free_bytes, 0);
    nvme_kit_get(&kept);
    nvme_kit_close();
}

static void
a_second_failed_sync_later_does_not(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;

    (void)state;
    nvme_kit_open(1);
    for (uint32_t i = 0; i < 3; i++) {
        io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
        nvme_kit_batch(&batch, 1, 10);
        nvme_kit_put(&batch, KVT_E_IO);
        nvme_kit.now_ns += 61 * SECOND_NS;
    }
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    nvme_kit_batch(&batch, 1, 20);
    nvme_kit_put(&batch, KVT_OK);
    nvme_kit_close();
}

static void
six_failed_writes_in_a_row_close_the_root(void **state)
{
    static struct rig_batch batch, kept;
    struct nvme_caps caps;

    (void)state;
    nvme_kit_open(1);
    nvme_kit_batch(&kept, 2, 5);
    nvme_kit_put(&kept, KVT_OK);
    for (uint32_t i = 0; i < 6; i++) {
        nvme_caps_get(nvme_kit.rig.nvme, &caps);
        assert_false(caps.is_read_only[0]);
        io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
        nvme_kit_batch(&batch, 1, 10);
        nvme_kit_put(&batch, KVT_E_IO);
    }
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    assert_true(caps.is_read_only[0]);
    nvme_kit_batch(&batch, 1, 30);
    assert_int_equal(rig_put(&nvme_kit.rig, &batch), KVT_E_READONLY);
    nvme_kit_get(&kept);
    nvme_kit_close();
}

static void
failed_writes_with_a_good_one_between_do_not(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;

    (void)state;
    nvme_kit_open(1);
    for (uint32_t i = 0; i < 6; i++) {
        io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
        nvme_kit_batch(&batch, 1, 10);
        nvme_kit_put(&batch, KVT_E_IO);
        if (i == 3) {
            nvme_kit_batch(&batch, 1, 20);
            nvme_kit_put(&batch, KVT_OK);
        }
    }
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    assert_false(caps.is_read_only[0]);
    nvme_kit_close();
}

static void
a_closed_root_leaves_the_work_to_the_others(void **state)
{
    static struct rig_batch batch;
    struct nvme_caps caps;
    uint32_t failed_count = 0;

    (void)state;
    nvme_kit_open(2);
    /* The first to go down is whichever had most room: both until one is closed. */
    nvme_caps_get(nvme_kit.rig.nvme, &caps);
    while (!caps.is_read_only[0] && !caps.is_read_only[1]) {
        io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
        nvme_kit_batch(&batch, 1, 10);
        nvme_kit_put(&batch, KVT_E_IO);
        nvme_caps_get(nvme_kit.rig.nvme, &caps);
        failed_count++;
    }
    assert_in_range(failed_count, 2, 3);
    for (uint32_t i = 0; i < 4; i++) {
        nvme_kit_batch(&batch, 1, 20);
        nvme_kit_put(&batch, KVT_OK);
        assert_int_equal(
            segment_root(batch.blocks[0].record.extent.segment), caps.is_read_only[0] ? 1 : 0);
    }
    nvme_kit_close();
}

static void
one_sync_serves_all_that_wait(void **state)
{
    enum {
        COUNT = 12
    };
    static struct rig_batch batches[COUNT];

    (void)state;
    nvme_kit_open(1);
    io_puppet_hold(nvme_kit.script, IO_SYNC, NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        nvme_kit_batch(&batches[i], 1, i);
        assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &batches[i].batch), KVT_OK);
        if (i == 0)
            nvme_kit_held_wait(IO_SYNC, 1);
    }
    /* All are written; none may be answered before its sync. */
    for (uint32_t i = 0; i < 200; i++)
        rig_turn(&nvme_kit.rig);
    assert_int_equal(nvme_kit.rig.answer_count, 0);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(nvme_kit.rig.answers[i], &batches[i].batch);
        assert_int_equal(batches[i].batch.status, KVT_OK);
    }
    /* One for the first, one for the rest; at most one more when they were not all written then. */
    assert_in_range(io_puppet_count(nvme_kit.script, IO_SYNC), 2, 3);
    nvme_kit_close();
}

static void
a_sync_does_not_wait_for_the_writes_of_other_batches(void **state)
{
    static struct rig_batch written, in_flight;

    (void)state;
    nvme_kit_open(1);
    /* Both are on their way before the tier takes an answer and starts a sync. */
    nvme_kit_batch(&written, 1, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &written.batch), KVT_OK);
    while (io_puppet_count(nvme_kit.script, IO_WRITE) == 0)
        (void)usleep(20);
    io_puppet_hold(nvme_kit.script, IO_WRITE, NULL);
    nvme_kit_batch(&in_flight, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &in_flight.batch), KVT_OK);
    while (io_puppet_held(nvme_kit.script, IO_WRITE) == 0)
        (void)usleep(20);

    rig_wait(&nvme_kit.rig, 1);
    assert_ptr_equal(nvme_kit.rig.answers[0], &written.batch);
    assert_int_equal(written.batch.status, KVT_OK);
    assert_int_equal(io_puppet_count(nvme_kit.script, IO_SYNC), 1);
    /* That sync is not the other's. */
    io_puppet_hold(nvme_kit.script, IO_SYNC, NULL);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    nvme_kit_held_wait(IO_SYNC, 1);
    assert_int_equal(nvme_kit.rig.answer_count, 1);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 2);
    assert_int_equal(in_flight.batch.status, KVT_OK);
    nvme_kit_close();
}

static void
no_batch_is_answered_before_its_sync(void **state)
{
    static struct rig_batch batch;

    (void)state;
    nvme_kit_open(1);
    io_puppet_hold(nvme_kit.script, IO_SYNC, NULL);
    nvme_kit_batch(&batch, 4, 1);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &batch.batch), KVT_OK);
    nvme_kit_held_wait(IO_SYNC, 1);
    for (uint32_t i = 0; i < 200; i++)
        rig_turn(&nvme_kit.rig);
    assert_int_equal(nvme_kit.rig.answer_count, 0);
    assert_int_equal(nvme_kit_segment(&batch)->writer_count, 1);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 1);
    assert_int_equal(batch.batch.status, KVT_OK);
    nvme_kit_close();
}

static void
answers_keep_the_order_of_puts_across_roots(void **state)
{
    static struct rig_batch first, second;

    (void)state;
    nvme_kit_open(2);
    io_puppet_hold(nvme_kit.script, IO_WRITE, NULL);
    nvme_kit_batch(&first, 2, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &first.batch), KVT_OK);
    nvme_kit_batch(&second, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &second.batch), KVT_OK);
    /* The two roots share the work. */
    assert_int_not_equal(segment_root(first.blocks[0].record.extent.segment),
        segment_root(second.blocks[0].record.extent.segment));
    nvme_kit_held_wait(IO_WRITE, 2);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 2);
    assert_ptr_equal(nvme_kit.rig.answers[0], &first.batch);
    assert_ptr_equal(nvme_kit.rig.answers[1], &second.batch);
    rig_answers_clear(&nvme_kit.rig);

    /* Now with the first root slower, so that the second batch is done first: the order stays. */
    nvme_kit_batch(&first, 2, 30);
    io_puppet_hold(nvme_kit.script, IO_SYNC, NULL);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &first.batch), KVT_OK);
    nvme_kit_held_wait(IO_SYNC, 1);
    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    nvme_kit_batch(&second, 1, 40);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &second.batch), KVT_OK);
    for (uint32_t i = 0; i < 300; i++)
        rig_turn(&nvme_kit.rig);
    assert_int_equal(
        nvme_kit.rig.answer_count, 0); /* The second has failed and waits for its turn. */
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 2);
    assert_ptr_equal(nvme_kit.rig.answers[0], &first.batch);
    assert_int_equal(first.batch.status, KVT_OK);
    assert_ptr_equal(nvme_kit.rig.answers[1], &second.batch);
    assert_int_equal(second.batch.status, KVT_E_IO);
    nvme_kit_close();
}

/* --- Reads ------------------------------------------------------------------------------------ */

static void
a_failed_read_fails_its_block_only(void **state)
{
    static struct rig_batch put, get;
    uint32_t failed_count = 0;

    (void)state;
    nvme_kit_open(1);
    nvme_kit_batch(&put, 8, 10);
    nvme_kit_put(&put, KVT_OK);
    rig_get_init(&nvme_kit.rig, &get, &put);
    /* The blocks are apart on the device, so that the lane does not join them. */
    for (uint32_t i = 0; i < 4; i++) {
        get.blocks[i] = get.blocks[2 * i];
        get.seeds[i] = get.seeds[2 * i];
    }
    get.batch.block_count = 4;
    io_puppet_fail(nvme_kit.script, IO_READ, 1, 1, EIO);
    assert_int_equal(rig_get(&nvme_kit.rig, &get), KVT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        if (get.blocks[i].status == KVT_OK)
            assert_true(payload_matches(
                get.blocks[i].memory, get.blocks[i].record.stored_length, get.seeds[i]));
        else
            failed_count += get.blocks[i].status == KVT_E_IO;
    }
    assert_int_equal(failed_count, 1);
    assert_int_equal(nvme_kit_segment(&put)->reader_count, 0);
    nvme_kit_get(&put);
    nvme_kit_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_write_fails_the_whole_batch_and_closes_its_segment),
        cmocka_unit_test(a_write_without_room_reports_it),
        cmocka_unit_test(a_short_write_is_finished),
        cmocka_unit_test(a_lack_lasts_from_the_third_try_but_not_while_one_is_under_way),
        cmocka_unit_test(a_tier_lacks_space_when_all_its_roots_do),
        cmocka_unit_test(a_failed_sync_fails_the_batch_and_is_never_retried),
        cmocka_unit_test(a_failed_sync_fails_every_write_that_was_in_flight),
        cmocka_unit_test(a_failed_sync_fails_what_was_put_behind_it_elsewhere),
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
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
