/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_heads.c - the two heads of a table's file: which one an import writes, and what one
 * that is torn, or cannot be read for once, costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engram_file.h"
#include "engram_rig.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    CHUNK_ROWS = 256, /* A row a page. */
};

static const struct kvt_options small_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10};

static struct sim_store sim;
static struct engram_rig rig;

static int
setup(void **state)
{
    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 4088, 200); /* 812 pages: four chunks. */
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static uint64_t
second_head_offset(void)
{
    return engram_page_offset(rig.profile.layers[0].row_count);
}

static int
done_visit(void *context, const struct kvt_engram_info *info)
{
    *(uint64_t *)context = info->rows_done;
    return 1;
}

static uint64_t
rows_done(void)
{
    uint64_t rows = 0;

    assert_int_equal(kvt_engram_list(sim.store, done_visit, &rows), KVT_OK);
    return rows;
}

static enum kvt_status
read_nothing(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    (void)context;
    (void)row_count;
    (void)rows_out;
    rig.first_asked = row_first;
    return KVT_E_BUSY;
}

/* An import that fails at once gives up what names no pages: here nothing may be. */
static void
the_better_head_that_cannot_be_read_costs_no_pages(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    rig.stop_at = CHUNK_ROWS; /* The second head names them, the first one none. */
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_CANCELLED);
    rig.stop_at = 0;
    rig.source.read = read_nothing;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "t.engram.new", .nth = nth};
        enum kvt_status status;

        sim_rule_add(sim.world, &rule);
        status = engram_rig_import(&rig, sim.store, "t", 0);
        sim_rules_clear(sim.world);
        assert_int_equal(rows_done(), CHUNK_ROWS);
        refused_count += status == KVT_E_IO;
        if (status != KVT_E_IO)
            assert_int_equal(rig.first_asked, CHUNK_ROWS);
    }
    assert_int_equal(refused_count, 2); /* Either head; not the look at how the file is read. */
}

/* Of a whole table either head suffices. */
static void
a_whole_table_opens_by_one_head(void **state)
{
    kvt_engram *table;

    (void)state;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "t.engram", .nth = nth};

        sim_rule_add(sim.world, &rule);
        assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_OK);
        assert_int_equal(sim_fault_count(sim.world), nth);
        sim_rules_clear(sim.world);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
    }
}

/* Two lives, one mark each. */
static void
a_torn_head_costs_the_progress_of_one_mark(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        rig.stop_at = CHUNK_ROWS;
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_CANCELLED);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        sim_store_reopen(&sim);
        rig.stop_at = 2 * CHUNK_ROWS;
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_CANCELLED);
        assert_int_equal(rig.first_asked, CHUNK_ROWS);
        assert_true(sim_file_corrupt(
            sim.world, "store/engram/t.engram.new", (i == 0 ? 0 : second_head_offset()) + 300, 1));
        rig.stop_at = 0;
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
        assert_int_equal(rig.first_asked, i == 0 ? CHUNK_ROWS : 2 * CHUNK_ROWS);
        assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    }
}

/* --- What is written when --------------------------------------------------------------------- */

static const struct fs_ops *fs_below;
static uint64_t last_offset;
static bool is_synced;
static uint32_t head_count;

static enum kvt_status
watched_write_at(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    if (offset == 0 || offset == second_head_offset()) {
        assert_int_not_equal(offset, last_offset);
        assert_true(is_synced);
        last_offset = offset;
        is_synced = false;
        head_count++;
    }
    return fs_below->write_at(file, source, size, offset);
}

static enum kvt_status
watched_sync(struct fs_file *file)
{
    is_synced = true;
    return fs_below->sync(file);
}

/* From the first to the last one of an import, also when it is made in several calls. */
static void
heads_are_written_in_turns_each_durable_before_the_next(void **state)
{
    struct fs_ops watching;

    (void)state;
    fs_below = sim.store->env.fs;
    watching = *fs_below;
    watching.write_at = watched_write_at;
    watching.sync = watched_sync;
    sim.store->env.fs = &watching;
    last_offset = UINT64_MAX;
    is_synced = true;
    head_count = 0;
    for (rig.stop_at = CHUNK_ROWS; rig.stop_at <= 3 * CHUNK_ROWS; rig.stop_at += CHUNK_ROWS)
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_CANCELLED);
    rig.stop_at = 0;
    rig.source.step_bytes = 1;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    sim.store->env.fs = fs_below;
    assert_true(is_synced);
    assert_int_equal(head_count, 1 + 3 + 1 + 3); /* Made; stopped; the last chunk; the end. */
}

int
main(void)
{
#define HEAD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        HEAD_TEST(the_better_head_that_cannot_be_read_costs_no_pages),
        HEAD_TEST(a_whole_table_opens_by_one_head),
        HEAD_TEST(a_torn_head_costs_the_progress_of_one_mark),
        HEAD_TEST(heads_are_written_in_turns_each_durable_before_the_next),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
