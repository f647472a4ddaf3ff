/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_recycle.c - recycle headers of the NVME tier beside reads of their segment, after
 * failures, and before batches that fail with the sync of theirs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nvme_internal.h"
#include "nvme_kit.h"
#include "stop_on_proof.h"

static void
a_segment_with_transfers_in_flight_is_not_recycled(void **state)
{
    static struct rig_batch put, get, recycle;
    struct segment_table *table;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    table = nvme_segments(nvme_kit.rig.nvme);
    nvme_kit_batch(&put, 1, 10);
    nvme_kit_put(&put, KVT_OK);
    segment = nvme_kit_segment(&put);
    rig_batch_init(&nvme_kit.rig, &recycle);
    assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segment, &recycle.batch), KVT_E_STATE);

    io_puppet_hold(nvme_kit.script, IO_READ, NULL);
    rig_get_init(&nvme_kit.rig, &get, &put);
    assert_int_equal(nvme_kit.rig.tier->ops->get(nvme_kit.rig.tier, &get.batch), KVT_OK);
    nvme_kit_held_wait(IO_READ, 1);
    segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segment, &recycle.batch), KVT_E_BUSY);
    io_puppet_release(nvme_kit.script, IO_READ);
    rig_wait(&nvme_kit.rig, 1);
    assert_int_equal(get.blocks[0].status, KVT_OK);
    rig_answers_clear(&nvme_kit.rig);

    /* New reads of it are misses already. */
    rig_get_init(&nvme_kit.rig, &get, &put);
    assert_int_equal(rig_get(&nvme_kit.rig, &get), KVT_OK);
    assert_int_equal(get.blocks[0].status, KVT_MISS);
    assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segment, &recycle.batch), KVT_OK);
    rig_wait(&nvme_kit.rig, 1);
    assert_int_equal(recycle.batch.status, KVT_OK);
    segment_free(table, segment);
    assert_int_equal(segment->generation, 2);
    assert_int_equal(segment->fill_page, 2);
    nvme_kit_close();
}

static void
a_recycle_header_that_failed_may_be_written_again(void **state)
{
    static struct rig_batch put, recycle;
    struct segment_table *table;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    table = nvme_segments(nvme_kit.rig.nvme);
    nvme_kit_batch(&put, 1, 10);
    nvme_kit_put(&put, KVT_OK);
    segment = nvme_kit_segment(&put);
    segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    for (uint32_t i = 0; i < 2; i++) {
        io_puppet_fail(nvme_kit.script, i == 0 ? IO_WRITE : IO_SYNC, 0, 1, EIO);
        rig_batch_init(&nvme_kit.rig, &recycle);
        assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segment, &recycle.batch), KVT_OK);
        rig_wait(&nvme_kit.rig, 1);
        rig_answers_clear(&nvme_kit.rig);
        assert_int_equal(recycle.batch.status, KVT_E_IO);
        assert_int_equal(segment->state, SEGMENT_RECYCLING);
        assert_int_equal(segment->fill_page, 0);
    }
    assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segment, &recycle.batch), KVT_OK);
    rig_wait(&nvme_kit.rig, 1);
    assert_int_equal(recycle.batch.status, KVT_OK);
    nvme_kit_close();
}

/* It has failed, and waits for the answer of what was put before it: nothing that is put behind it
 * suffers. */
static void
a_recycle_header_that_failed_dooms_nothing(void **state)
{
    static struct rig_batch puts[2], before, recycle, behind;
    struct segment_table *table;
    struct nvme_tier *nvme;

    (void)state;
    nvme_kit_open(2);
    nvme = nvme_kit.rig.nvme;
    table = nvme_segments(nvme);
    for (uint32_t i = 0; i < 2; i++) {
        nvme_kit_batch(&puts[i], 1, 10);
        nvme_kit_put(&puts[i], KVT_OK);
    }
    segment_seal(table, nvme_kit_segment(&puts[1]));
    segment_recycle_begin(table, nvme_kit_segment(&puts[1]));
    io_puppet_hold(nvme_kit.script, IO_WRITE, nvme->roots[0].file);
    nvme_kit_batch(&before, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &before.batch), KVT_OK);
    nvme_kit_held_wait(IO_WRITE, 1);
    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    rig_batch_init(&nvme_kit.rig, &recycle);
    assert_int_equal(nvme_recycle(nvme, nvme_kit_segment(&puts[1]), &recycle.batch), KVT_OK);
    while (nvme->put_first->next->state != PUT_FAILED)
        rig_turn(&nvme_kit.rig);
    assert_false(nvme_is_doomed(nvme));

    nvme_kit_batch(&behind, 1, 30);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &behind.batch), KVT_OK);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 3);
    assert_int_equal(before.batch.status, KVT_OK);
    assert_int_equal(recycle.batch.status, KVT_E_IO);
    assert_int_equal(behind.batch.status, KVT_OK);
    rig_answers_clear(&nvme_kit.rig);
    nvme_kit_close();
}

/* The sync that fails was started by a recycle header: the batches of its root fail with it, and so
 * does what was put behind them on another. */
static void
a_failed_sync_of_a_recycle_header_fails_what_is_behind_batches_of_its_root(void **state)
{
    static struct rig_batch puts[2], recycle, before, behind;
    const struct nvme_root *roots;
    struct segment *segments[2];
    uint32_t sync_count;

    (void)state;
    nvme_kit_open(2);
    /* One on each root: both have as much room then, and take turns. */
    for (uint32_t i = 0; i < 2; i++) {
        nvme_kit_batch(&puts[i], 1, 10);
        nvme_kit_put(&puts[i], KVT_OK);
        segments[i] = nvme_kit_segment(&puts[i]);
        assert_int_equal(segment_root(segments[i]->number), i);
        segment_seal(nvme_segments(nvme_kit.rig.nvme), segments[i]);
    }
    segment_recycle_begin(nvme_segments(nvme_kit.rig.nvme), segments[0]);
    roots = nvme_kit.rig.nvme->roots;
    io_puppet_hold(nvme_kit.script, IO_SYNC, roots[0].file);
    rig_batch_init(&nvme_kit.rig, &recycle);
    assert_int_equal(nvme_recycle(nvme_kit.rig.nvme, segments[0], &recycle.batch), KVT_OK);
    nvme_kit_held_wait(IO_SYNC, 1);
    sync_count = io_puppet_count(nvme_kit.script, IO_SYNC);
    nvme_kit_batch(&before, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &before.batch), KVT_OK);
    assert_int_equal(segment_root(nvme_kit_segment(&before)->number), 0);
    nvme_kit_batch(&behind, 1, 30);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &behind.batch), KVT_OK);
    assert_int_equal(segment_root(nvme_kit_segment(&behind)->number), 1);
    /* The one behind is written and synced, and the other at least written. */
    while (io_puppet_count(nvme_kit.script, IO_SYNC) == sync_count)
        rig_turn(&nvme_kit.rig);
    for (uint32_t i = 0; i < 200; i++)
        rig_turn(&nvme_kit.rig);
    io_puppet_fail(nvme_kit.script, IO_SYNC, 0, 1, EIO);
    io_puppet_release(nvme_kit.script, IO_SYNC);
    rig_wait(&nvme_kit.rig, 3);
    assert_int_equal(recycle.batch.status, KVT_E_IO);
    assert_int_equal(before.batch.status, KVT_E_IO);
    assert_int_equal(behind.batch.status, KVT_E_STATE);
    nvme_kit_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_with_transfers_in_flight_is_not_recycled),
        cmocka_unit_test(a_recycle_header_that_failed_may_be_written_again),
        cmocka_unit_test(a_recycle_header_that_failed_dooms_nothing),
        cmocka_unit_test(
            a_failed_sync_of_a_recycle_header_fails_what_is_behind_batches_of_its_root),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
