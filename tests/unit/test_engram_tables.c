/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_tables.c - Engram tables on a simulated disk: imports, names, rows, damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engram_file.h"
#include "engram_rig.h"
#include "failure.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"

#define SMALL_OPTIONS                                                                           \
    {                                                                                           \
        .struct_size = sizeof(struct kvt_options), .host_capacity_bytes = 2 << 20,              \
        .nvme_capacity_bytes = 16 << 20, .segment_bytes = 1 << 20, .block_bytes_max = 64 << 10, \
    }

enum {
    ROW_BYTES = 264,
    ROWS_A_PAGE = 15,
};

static const struct kvt_options small_options = SMALL_OPTIONS;

static kvt_engram *
opened(kvt_store *store, const char *name)
{
    kvt_engram *table;

    assert_int_equal(kvt_engram_open(store, name, &table), KVT_OK);
    return table;
}

/* --- Rows ------------------------------------------------------------------------------------- */

static void
rows_are_read_back_as_they_were_imported(void **state)
{
    static const uint32_t sizes[] = {264, 128, 1, 160, 2044, 2045, 4088};
    static uint8_t rows[40 * 4088], wanted[4088];
    struct rng rng = {.state = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t per_page = 4088 / sizes[i];
        struct engram_rig rig;
        struct sim_store sim;
        struct kvt_engram_info info;
        kvt_engram *table;

        sim_store_open(&sim, &small_options);
        engram_rig_init(&rig, "t", sizes[i], 61);
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 1), KVT_OK);
        table = opened(sim.store, "t");
        assert_int_equal(kvt_engram_info_get(table, &info), KVT_OK);
        assert_int_equal(info.rows_per_page, per_page);
        assert_int_equal(info.row_count, rig.profile.layers[1].row_count);
        assert_int_equal(info.layer, 7);
        assert_true(engram_rig_has(&rig, table, 1));
        for (uint32_t round = 0; round < 60; round++) {
            uint64_t first = rng_below(&rng, (uint32_t)info.row_count);
            uint64_t count = 1 + rng_below(&rng, 40);

            if (round < 6) /* The first, the last, and those beside a page's edge. */
                first = (uint64_t[]){0, info.row_count - 1, per_page, per_page - 1,
                            2 * (uint64_t)per_page, 0}[round] %
                        info.row_count;
            count = count > info.row_count - first ? info.row_count - first : count;
            memset(rows, 0xEE, sizeof(rows));
            assert_int_equal(kvt_engram_read(table, first, count, rows), KVT_OK);
            for (uint64_t j = 0; j < count; j++) {
                engram_rig_row(&rig, 1, first + j, wanted);
                assert_memory_equal(rows + j * sizes[i], wanted, sizes[i]);
            }
            if (count * sizes[i] < sizeof(rows))
                assert_int_equal(rows[count * sizes[i]], 0xEE);
        }
        assert_int_equal(kvt_engram_read(table, info.row_count, 0, NULL), KVT_OK);
        assert_int_equal(kvt_engram_read(table, info.row_count, 1, rows), KVT_E_INVAL);
        assert_int_equal(kvt_engram_read(table, 1, UINT64_MAX, rows), KVT_E_INVAL);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        sim_store_close(&sim);
    }
}

static void
a_table_has_its_manifest(void **state)
{
    struct kvt_engram_profile profile;
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    rig.profile.encoding = KVT_ENGRAM_E4M3_E8M0;
    rig.profile.value_count = 256;
    rig.profile.scale_count = 8;
    rig.profile.token_count = 77;
    rig.profile.pad_token = 5;
    memset(rig.profile.class_map_sha256, 0x5A, 32);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 1), KVT_OK);
    table = opened(sim.store, "t");
    assert_int_equal(kvt_engram_profile_of(table, &profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_OK);
    assert_int_equal(profile.layer_count, 1);
    assert_memory_equal(&profile.layers[0], &rig.profile.layers[1], sizeof(profile.layers[0]));
    rig.profile.layer_count = 1;
    memcpy(&rig.profile.layers[0], &profile.layers[0], sizeof(profile.layers[0]));
    memset(&rig.profile.layers[1], 0, sizeof(profile.layers[0]));
    assert_memory_equal(&profile, &rig.profile, sizeof(profile));
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    sim_store_close(&sim);
}

/* --- Names ------------------------------------------------------------------------------------ */

struct seen {
    uint32_t count;
    char names[8][80];
    uint32_t states[8];
    uint64_t rows_done[8];
    uint32_t stop_after;
};

static int
seen_add(void *context, const struct kvt_engram_info *info)
{
    struct seen *seen = context;

    assert_true(seen->count < 8);
    (void)snprintf(seen->names[seen->count], sizeof(seen->names[0]), "%s", info->name);
    seen->states[seen->count] = info->state;
    seen->rows_done[seen->count++] = info->rows_done;
    return seen->count != seen->stop_after;
}

static struct seen
list(kvt_store *store)
{
    struct seen seen = {0};

    assert_int_equal(kvt_engram_list(store, seen_add, &seen), KVT_OK);
    return seen;
}

static void
tables_are_listed_found_again_and_dropped(void **state)
{
    struct engram_rig rig;
    struct sim_store sim;
    struct seen seen;
    kvt_engram *table, *again;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    assert_int_equal(list(sim.store).count, 0);
    assert_int_equal(kvt_engram_open(sim.store, "one", &table), KVT_MISS);
    assert_null(table);
    assert_int_equal(kvt_engram_drop(sim.store, "one"), KVT_MISS);
    assert_int_equal(engram_rig_import(&rig, sim.store, "one", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "two", 1), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "two", 1), KVT_EXISTS);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_store_reopen(&sim);
    seen = list(sim.store);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.states[0], KVT_ENGRAM_WHOLE);
    seen = (struct seen){.stop_after = 1};
    assert_int_equal(kvt_engram_list(sim.store, seen_add, &seen), KVT_OK);
    assert_int_equal(seen.count, 1);
    table = opened(sim.store, "one");
    again = opened(sim.store, "one");
    assert_true(engram_rig_has(&rig, table, 0));
    assert_int_equal(kvt_engram_drop(sim.store, "one"), KVT_E_STATE);
    assert_int_equal(kvt_close(sim.store), KVT_E_STATE);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    assert_int_equal(kvt_engram_drop(sim.store, "one"), KVT_E_STATE);
    assert_int_equal(kvt_engram_close(again), KVT_OK);
    assert_int_equal(kvt_engram_close(NULL), KVT_OK);
    assert_int_equal(kvt_engram_drop(sim.store, "one"), KVT_OK);
    assert_int_equal(kvt_engram_open(sim.store, "one", &table), KVT_MISS);
    table = opened(sim.store, "two");
    assert_true(engram_rig_has(&rig, table, 1));
    kvt_abort(sim.store); /* The table is void. */
    assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
    sim_world_destroy(sim.world);
}

static void
wrong_calls_are_refused(void **state)
{
    static const char *const names[] = {"", ".a", "a/b", "..", "a b", "\xC3\xA4",
        "0123456789012345678901234567890123456789012345678901234567890123x"};
    struct kvt_engram_findings findings;
    struct kvt_engram_profile profile;
    struct kvt_engram_info info;
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;
    uint8_t row[ROW_BYTES];

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(engram_rig_import(&rig, sim.store, names[i], 0), KVT_E_INVAL);
        assert_int_equal(kvt_engram_open(sim.store, names[i], &table), KVT_E_INVAL);
        assert_int_equal(kvt_engram_drop(sim.store, names[i]), KVT_E_INVAL);
    }
    assert_int_equal(engram_rig_import(&rig, sim.store, NULL, 0), KVT_E_INVAL);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 2), KVT_E_INVAL);
    rig.source.flags = 2;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_INVAL);
    rig.source.flags = 0;
    rig.source.reserved0 = 1;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_INVAL);
    rig.source.reserved0 = 0;
    rig.source.struct_size--;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_INVAL);
    rig.source.struct_size += 8;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_UNSUPPORTED);
    rig.source.struct_size = sizeof(rig.source);
    rig.profile.row_bytes = 4089;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_INVAL);
    rig.profile.row_bytes = 0;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_import(sim.store, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_import(NULL, &rig.source), KVT_E_INVAL);
    assert_int_equal(kvt_engram_list(sim.store, NULL, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_open(sim.store, "t", NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_open(NULL, "t", &table), KVT_E_INVAL);
    assert_int_equal(kvt_engram_info_get(NULL, &info), KVT_E_INVAL);
    assert_int_equal(kvt_engram_profile_of(NULL, &profile), KVT_E_INVAL);
    assert_int_equal(kvt_engram_read(NULL, 0, 1, row), KVT_E_INVAL);
    assert_int_equal(kvt_engram_verify(NULL, NULL, NULL, &findings), KVT_E_INVAL);
    assert_int_equal(list(sim.store).count, 0);
    sim_store_close(&sim);
}

static void
a_store_that_is_only_read_has_its_tables(void **state)
{
    struct kvt_engram_findings findings;
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.flags = KVT_OPEN_READ_ONLY;
    sim_store_reopen(&sim);
    table = opened(sim.store, "t");
    assert_true(engram_rig_has(&rig, table, 0));
    assert_int_equal(kvt_engram_verify(table, NULL, NULL, &findings), KVT_OK);
    assert_int_equal(findings.damaged_count + findings.is_sum_wrong, 0);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_E_READONLY);
    assert_int_equal(engram_rig_import(&rig, sim.store, "u", 0), KVT_E_READONLY);
    sim_store_close(&sim);
}

/* --- Space ------------------------------------------------------------------------------------ */

static void
tables_stay_within_their_capacity_and_the_disk(void **state)
{
    struct kvt_options options = SMALL_OPTIONS;
    struct engram_rig rig;
    struct sim_store sim;
    uint64_t file_bytes;

    (void)state;
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    file_bytes = (2 + (rig.profile.layers[0].row_count + ROWS_A_PAGE - 1) / ROWS_A_PAGE) * 4096;
    options.engram_capacity_bytes = 2 * file_bytes;
    sim_store_open(&sim, &options);
    assert_int_equal(engram_rig_import(&rig, sim.store, "a", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "b", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "c", 0), KVT_E_NOSPC);
    assert_non_null(strstr(failure_last()->text, "engram_capacity_bytes"));
    assert_int_equal(kvt_engram_drop(sim.store, "a"), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "c", 0), KVT_OK);
    assert_int_equal(list(sim.store).count, 2);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.engram_capacity_bytes = 0;
    sim_store_reopen(&sim);
    sim_space_set(sim.world, 1);
    assert_int_equal(engram_rig_import(&rig, sim.store, "d", 0), KVT_E_NOSPC);
    assert_non_null(strstr(failure_last()->text, "the disk is full"));
    assert_int_equal(list(sim.store).count, 2); /* What it took is given back. */
    sim_space_set(sim.world, UINT64_C(1) << 40);
    assert_int_equal(engram_rig_import(&rig, sim.store, "d", 0), KVT_OK);
    sim_store_close(&sim);
}

/* --- Imports that end early ------------------------------------------------------------------- */

static void
an_import_that_was_cut_short_is_gone_on_with(void **state)
{
    struct engram_rig rig;
    struct sim_store sim;
    struct seen seen;
    kvt_engram *table;
    uint64_t rows, done;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 4088, 200); /* A row a page, 812 of them: four chunks. */
    rows = rig.profile.layers[0].row_count;
    rig.fail_at = 700;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_BUSY);
    assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_MISS);
    seen = list(sim.store);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.names[0], "t");
    assert_int_equal(seen.states[0], KVT_ENGRAM_IMPORTING);
    done = seen.rows_done[0];
    assert_int_equal(done, 512);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_store_reopen(&sim);
    rig.fail_at = 0;
    rig.stop_at = 600;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_CANCELLED);
    assert_int_equal(rig.first_asked, done);
    rig.stop_at = 0;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    assert_int_equal(rig.first_asked, 768);
    assert_int_equal(rig.asked_count, rows - 768);
    table = opened(sim.store, "t");
    assert_true(engram_rig_has(&rig, table, 0));
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    sim_store_close(&sim);
}

/* What it left has pages to go on from; one that was stopped before its first page has none. */
static void
a_refused_import_leaves_what_can_be_gone_on_with(void **state)
{
    struct engram_rig rig;
    struct sim_store sim;
    struct seen seen;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 4088, 200);
    rig.fail_at = 1;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_BUSY);
    assert_int_equal(list(sim.store).count, 0);
    rig.fail_at = 700;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_BUSY);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.engram_capacity_bytes = 1 << 20;
    sim_store_reopen(&sim);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_NOSPC);
    seen = list(sim.store);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.rows_done[0], 512);
    sim_store_close(&sim);
}

static void
an_import_of_other_rows_begins_anew(void **state)
{
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        sim_store_open(&sim, &small_options);
        engram_rig_init(&rig, "t", 4088, 200);
        rig.fail_at = 700;
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_BUSY);
        rig.fail_at = 0;
        rig.seed = 2;
        if (i == 0)
            rig.source.mark[31] = 1;
        else if (i == 1)
            rig.profile.pad_class = 3;
        else if (i == 2)
            rig.profile.layers[0].multipliers[1] += 2;
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", i == 3), KVT_OK);
        assert_int_equal(rig.first_asked, 0);
        table = opened(sim.store, "t");
        assert_true(engram_rig_has(&rig, table, i == 3));
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        sim_store_close(&sim);
    }
}

static void
what_an_import_left_can_be_dropped(void **state)
{
    struct engram_rig rig;
    struct sim_store sim;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 4088, 200);
    rig.fail_at = 700;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_BUSY);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    assert_int_equal(list(sim.store).count, 0);
    sim_store_close(&sim);
}

static void
wrong_bytes_read_back_leave_no_table(void **state)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_FLIP, .file = "t.engram", .nth = 1, .sticky = true};
    struct engram_rig rig;
    struct sim_store sim;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    sim_rule_add(sim.world, &rule);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_CORRUPT);
    sim_rules_clear(sim.world);
    assert_int_equal(list(sim.store).count, 0);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    sim_store_close(&sim);
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void
rows_of_a_damaged_page_are_an_error_and_others_are_right(void **state)
{
    struct kvt_engram_findings findings;
    uint8_t row[ROW_BYTES], wanted[ROW_BYTES];
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    /* Page 3: one byte of a row that is not asked for alone; page 5: its checksum. */
    assert_true(
        sim_file_corrupt(sim.world, "store/engram/t.engram", engram_page_offset(3) + 1000, 1));
    assert_true(
        sim_file_corrupt(sim.world, "store/engram/t.engram", engram_page_offset(5) + 4095, 1));
    table = opened(sim.store, "t");
    for (uint32_t i = 0; i < rig.profile.layers[0].row_count; i++) {
        uint32_t page = i / ROWS_A_PAGE;
        enum kvt_status status = kvt_engram_read(table, i, 1, row);

        if (page == 3 || page == 5) {
            assert_int_equal(status, KVT_E_CORRUPT);
            continue;
        }
        assert_int_equal(status, KVT_OK);
        engram_rig_row(&rig, 0, i, wanted);
        assert_memory_equal(row, wanted, ROW_BYTES);
    }
    assert_int_equal(kvt_engram_verify(table, NULL, NULL, &findings), KVT_OK);
    assert_int_equal(findings.damaged_count, 2);
    assert_int_equal(findings.first_row, 3 * ROWS_A_PAGE);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    sim_store_close(&sim);
}

/* A page's bytes in the place of another's: intact, and wrong there. */
static void
a_page_is_only_good_at_its_place_and_in_its_table(void **state)
{
    struct engram_head head = {.uuid = {1, 2, 3}};
    uint8_t page[PAGE_BYTES];

    (void)state;
    head.profile.row_bytes = ROW_BYTES;
    memset(page, 0x77, sizeof(page));
    (void)engram_page_seal(&head, 4, ROWS_A_PAGE, page);
    assert_true(engram_page_is_intact(&head, 4, page));
    assert_false(engram_page_is_intact(&head, 5, page));
    head.uuid[0] = 2;
    assert_false(engram_page_is_intact(&head, 4, page));
}

static void
either_head_suffices_and_neither_is_an_error(void **state)
{
    const char *path = "store/engram/t.engram";
    struct engram_rig rig;
    struct sim_store sim;
    struct seen seen;
    kvt_engram *table;
    uint64_t last;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    last = (1 + (rig.profile.layers[0].row_count + ROWS_A_PAGE - 1) / ROWS_A_PAGE) * 4096;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
        if (i != 1)
            assert_true(sim_file_corrupt(sim.world, path, 300, 1));
        if (i != 0)
            assert_true(sim_file_corrupt(sim.world, path, last + 3000, 1));
        if (i < 2) {
            table = opened(sim.store, "t");
            assert_true(engram_rig_has(&rig, table, 0));
            assert_int_equal(kvt_engram_close(table), KVT_OK);
        } else {
            assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_E_CORRUPT);
            seen = list(sim.store);
            assert_int_equal(seen.states[0], KVT_ENGRAM_DAMAGED);
            assert_string_equal(seen.names[0], "t");
        }
        assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    }
    sim_store_close(&sim);
}

static void
heads_that_lie_are_refused(void **state)
{
    struct engram_head head = {.state = ENGRAM_FILE_WHOLE, .name = "t"}, again;
    uint8_t page[PAGE_BYTES];
    struct engram_rig rig;
    bool is_foreign;

#define LIE(change)                                                     \
    do {                                                                \
        struct engram_head good = head;                                 \
        change;                                                         \
        engram_head_encode(&head, page);                                \
        assert_non_null(engram_head_decode(page, &again, &is_foreign)); \
        assert_false(is_foreign);                                       \
        head = good;                                                    \
    } while (0)

    (void)state;
    engram_rig_init(&rig, "t", ROW_BYTES, 61);
    head.profile = rig.profile;
    engram_head_shape(&head);
    head.pages_done = head.page_count;
    engram_head_encode(&head, page);
    assert_null(engram_head_decode(page, &again, &is_foreign));
    LIE(head.pages_done--);
    LIE(head.pages_done++);
    LIE(head.page_count++);
    LIE(head.rows_per_page--);
    LIE(head.profile.row_bytes = 0);
    LIE(head.profile.row_bytes = 4089);
    LIE(head.profile.layers[0].row_count = 0);
    LIE(head.state = (enum engram_file_state)3);
    LIE(head.name[0] = '/');
    LIE(head.name[0] = 0);
    for (uint32_t i = 0; i < PAGE_BYTES; i++) { /* The checksum sees each byte. */
        engram_head_encode(&head, page);
        page[i] ^= 0x10;
        assert_non_null(engram_head_decode(page, &again, &is_foreign));
    }
#undef LIE
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_back_as_they_were_imported),
        cmocka_unit_test(a_table_has_its_manifest),
        cmocka_unit_test(tables_are_listed_found_again_and_dropped),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_store_that_is_only_read_has_its_tables),
        cmocka_unit_test(tables_stay_within_their_capacity_and_the_disk),
        cmocka_unit_test(an_import_that_was_cut_short_is_gone_on_with),
        cmocka_unit_test(a_refused_import_leaves_what_can_be_gone_on_with),
        cmocka_unit_test(an_import_of_other_rows_begins_anew),
        cmocka_unit_test(what_an_import_left_can_be_dropped),
        cmocka_unit_test(wrong_bytes_read_back_leave_no_table),
        cmocka_unit_test(rows_of_a_damaged_page_are_an_error_and_others_are_right),
        cmocka_unit_test(a_page_is_only_good_at_its_place_and_in_its_table),
        cmocka_unit_test(either_head_suffices_and_neither_is_an_error),
        cmocka_unit_test(heads_that_lie_are_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
