/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_vain_kills.c - kills that do not count, in a batch that is void or beside a block that is
 * torn, are not passed on when their segment is reclaimed: what they name outlives the next
 * rebuild, too. In the simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

/* From now on no other segment than this one is reclaimed; NULL: none is. */
static void
segments_pass_over(struct full_store *full, const struct segment *victim)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    segment_changed(full->store->segments);
}

/* Put until that segment, and no other, has been reclaimed. */
static void
segment_reclaim(struct full_store *full, uint32_t number)
{
    const struct segment *victim = segment_at(full->store->segments, number);
    uint32_t generation = victim->generation;

    for (uint32_t i = 0; i < FULL_BLOCKS && victim->generation == generation; i++) {
        segments_pass_over(full, victim);
        full_put(full, full->next_cold++, 1);
    }
    assert_int_equal(victim->generation, generation + 1);
}

/* A block is replaced, by one that is torn, in another segment, which is returned. `rule` holds
 * while that is written, and costs one batch; or NULL. The index is lost: the old copy lives. */
static struct full_store *
torn_begin(const struct sim_rule *rule, uint32_t *segment_out)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    full->options.relaxed_interval_ns = FULL_WAIT_NS;
    full_put(full, FULL_COLD, 1);
    full->next_cold++;
    *segment_out = full_leave(full)->number;
    if (rule != NULL)
        sim_rule_add(full->world, rule);
    full_put(full, FULL_COLD, 2);
    sim_rules_clear(full->world);
    assert_int_equal(atomic_load(&full->store->counters.batch_failed_count), rule != NULL);
    assert_true(
        sim_file_corrupt(full->world, "store/data/data.00", full_copy_at(full, FULL_COLD), 1));
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 1);
    return full;
}

/* A block is replaced; the batch fails, and is on the disk all the same; what was written instead
 * is torn, and says that the other is void. So the old copy lives; and what the void batch killed
 * is not passed on when its segment is reclaimed. */
static void
a_kill_in_a_void_batch_stays_void(void **state)
{
    const struct sim_rule arrives = {
        .ops = SIM_WRITE, .effect = SIM_ARRIVES, .file = "data.", .nth = 1};
    uint32_t segment;
    struct full_store *full = torn_begin(&arrives, &segment);

    (void)state;
    segment_reclaim(full, segment);
    full_expect(full, FULL_COLD, 1);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

static void
a_kill_beside_a_torn_block_stays_vain(void **state)
{
    uint32_t segment;
    struct full_store *full = torn_begin(NULL, &segment);

    (void)state;
    segment_reclaim(full, segment);
    full_expect(full, FULL_COLD, 1);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

/* Its block is replaced once more, and that is not durable yet. */
static void
a_kill_of_a_copy_that_is_being_replaced_stays_vain(void **state)
{
    uint32_t number;
    struct full_store *full = torn_begin(NULL, &number);
    const struct segment *victim = segment_at(full->store->segments, number);
    uint32_t generation = victim->generation;
    kvt_ticket *ticket;

    (void)state;
    while (segment_count_in(full->store->segments, 0, SEGMENT_FREE) > 2) {
        segments_pass_over(full, NULL);
        full_put(full, full->next_cold++, 1);
    }
    ticket = full_put_submit(full, FULL_COLD, 3, KVT_RELAXED);
    segments_pass_over(full, victim);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    assert_int_equal(victim->generation, generation + 1);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0), KVT_LATE);
    kvt_ticket_free(ticket);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_in_a_void_batch_stays_void),
        cmocka_unit_test(a_kill_beside_a_torn_block_stays_vain),
        cmocka_unit_test(a_kill_of_a_copy_that_is_being_replaced_stays_vain),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
