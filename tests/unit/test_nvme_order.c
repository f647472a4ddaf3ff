/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_order.c - puts of the NVME tier behind one whose write failed, in its segment or on
 * another root, before it is answered: none of them succeeds. (A sync that failed, and what is
 * answered in which order without failures: test_nvme_failures.c.)
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

/* Success says that all before it are durable. */
static void
a_failed_write_fails_what_was_put_behind_it(void **state)
{
    static struct rig_batch before, failing, behind;
    struct segment *segment;

    (void)state;
    nvme_kit_open(1);
    nvme_kit_batch(&before, 1, 5);
    nvme_kit_put(&before, KVT_OK);
    segment = nvme_kit_segment(&before);
    io_puppet_hold(nvme_kit.script, IO_WRITE, NULL);
    nvme_kit_batch(&failing, 1, 10);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &failing.batch), KVT_OK);
    nvme_kit_batch(&behind, 1, 20);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &behind.batch), KVT_OK);
    assert_ptr_equal(nvme_kit_segment(&behind), segment);
    nvme_kit_held_wait(
        IO_WRITE, 1); /* Whether the other has gone out as well is the lane's to decide. */
    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 2);
    assert_ptr_equal(nvme_kit.rig.answers[0], &failing.batch);
    assert_int_equal(failing.batch.status, KVT_E_IO);
    /* Its own error, when the lane has made one operation of both: they are neighbours. */
    assert_true(behind.batch.status == KVT_E_STATE || behind.batch.status == KVT_E_IO);
    assert_int_equal(behind.blocks[0].record.extent.generation, 0);
    assert_int_equal(segment->writer_count, 0);
    rig_answers_clear(&nvme_kit.rig);
    nvme_kit_get(&before);
    nvme_kit_close();
}

/* A block is put, on that root; nobody waits for it. */
static void
put_begin(struct rig_batch *batch, uint64_t seed, uint32_t root)
{
    nvme_kit_batch(batch, 1, seed);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &batch->batch), KVT_OK);
    assert_int_equal(segment_root(batch->batch.header.segment), root);
}

/* A tier of two roots, and a put whose write is held back. */
static struct nvme_tier *
late_one_begin(struct rig_batch *batch)
{
    nvme_kit_open(2);
    io_puppet_hold(nvme_kit.script, IO_WRITE, nvme_kit.rig.nvme->roots[0].file);
    put_begin(batch, 10, 0);
    nvme_kit_held_wait(IO_WRITE, 1);
    return nvme_kit.rig.nvme;
}

/* Of another root, and finished: it waits for its turn to be answered. No void entry says yet that
 * it does not count, and what is committed behind it in its segment would make it count. */
static void
nothing_is_written_behind_what_failed_with_another(void **state)
{
    static struct rig_batch failing, finished, after[2];
    const struct nvme_tier *nvme = late_one_begin(&failing);
    const struct segment *segment;

    (void)state;
    put_begin(&finished, 20, 1);
    segment = nvme_kit_segment(&finished);
    while (nvme->put_first->next->state != PUT_SYNCED)
        rig_turn(&nvme_kit.rig);
    assert_int_equal(segment->state, SEGMENT_ACTIVE);

    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 2);
    assert_int_equal(failing.batch.status, KVT_E_IO);
    assert_int_equal(finished.batch.status, KVT_E_STATE);
    rig_answers_clear(&nvme_kit.rig);
    for (uint32_t i = 0; i < 2; i++) {
        nvme_kit_batch(&after[i], 1, 30 + i);
        nvme_kit_put(&after[i], KVT_OK);
        assert_ptr_not_equal(nvme_kit_segment(&after[i]), segment);
    }
    assert_int_equal(segment->state, SEGMENT_SEALED);
    nvme_kit_close();
}

/* One that has failed waits for the answer of another before it: what is put until then must not
 * succeed before anybody knows. */
static void
nothing_succeeds_behind_what_has_failed_and_is_not_answered(void **state)
{
    static struct rig_batch before, failing, behind;
    const struct nvme_tier *nvme = late_one_begin(&before);

    (void)state;
    assert_false(nvme_is_doomed(nvme));
    io_puppet_fail(nvme_kit.script, IO_WRITE, 0, 1, EIO);
    put_begin(&failing, 20, 1);
    while (nvme->put_first->next->state != PUT_FAILED)
        rig_turn(&nvme_kit.rig);
    assert_true(nvme_is_doomed(nvme));

    nvme_kit_batch(&behind, 1, 30);
    assert_int_equal(nvme_kit.rig.tier->ops->put(nvme_kit.rig.tier, &behind.batch), KVT_OK);
    assert_int_equal(nvme_kit_segment(&behind)->state, SEGMENT_SEALED);
    io_puppet_release(nvme_kit.script, IO_WRITE);
    rig_wait(&nvme_kit.rig, 3);
    assert_int_equal(before.batch.status, KVT_OK);
    assert_int_equal(failing.batch.status, KVT_E_IO);
    assert_int_equal(behind.batch.status, KVT_E_STATE);
    assert_false(nvme_is_doomed(nvme));
    rig_answers_clear(&nvme_kit.rig);
    nvme_kit_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_write_fails_what_was_put_behind_it),
        cmocka_unit_test(nothing_is_written_behind_what_failed_with_another),
        cmocka_unit_test(nothing_succeeds_behind_what_has_failed_and_is_not_answered),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
