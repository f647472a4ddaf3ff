/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_fetch.c - rows that plans name, from tables to memory: on files of this machine with
 * both io engines, and on a simulated disk with damage, failures, deadlines and aborts.
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
#include "rng.h"
#include "scratch_dir.h"
#include "sim_store.h"
#include "stop_on_proof.h"

enum {
    TOKENS = 300,
    COLUMNS = 4,
    FILLER = 0xEE,
};

static const struct kvt_options small_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10};

/* Two tables, and a plan of both. */
struct fixture {
    struct engram_rig rig;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *tables[2];
    uint32_t tokens[TOKENS];
    uint8_t *rows[2]; /* Destinations, with a row more than they need. */
    uint8_t *states[2];
};

static void
fixture_open(struct fixture *fixture, kvt_store *store, uint32_t row_bytes, uint32_t rows_a_column)
{
    struct rng rng = {.state = 17};

    memset(fixture, 0, sizeof(*fixture));
    engram_rig_init(&fixture->rig, "t", row_bytes, rows_a_column);
    assert_int_equal(engram_rig_import(&fixture->rig, store, "zero", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&fixture->rig, store, "one", 1), KVT_OK);
    assert_int_equal(
        kvt_engram_hasher_open(&fixture->rig.profile, NULL, 0, &fixture->hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture->hasher, TOKENS, &fixture->plan), KVT_OK);
    assert_int_equal(kvt_engram_open(store, "zero", &fixture->tables[0]), KVT_OK);
    assert_int_equal(kvt_engram_open(store, "one", &fixture->tables[1]), KVT_OK);
    for (uint32_t i = 0; i < TOKENS; i++)
        fixture->tokens[i] = rng_below(&rng, RIG_CLASSES);
    for (uint32_t i = 0; i < 2; i++) {
        fixture->rows[i] = malloc((size_t)(TOKENS * COLUMNS + 1) * row_bytes);
        fixture->states[i] = malloc(TOKENS * COLUMNS + 1);
        assert_non_null(fixture->rows[i]);
        assert_non_null(fixture->states[i]);
    }
}

static void
fixture_free(struct fixture *fixture)
{
    for (uint32_t i = 0; i < 2; i++) {
        free(fixture->rows[i]);
        free(fixture->states[i]);
    }
    kvt_engram_plan_destroy(fixture->plan);
    kvt_engram_hasher_close(fixture->hasher);
}

static void
fixture_close(struct fixture *fixture)
{
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(kvt_engram_close(fixture->tables[i]), KVT_OK);
    fixture_free(fixture);
}

static void
plan_fill(struct fixture *fixture, uint32_t count)
{
    const struct kvt_engram_sequence sequence = {.tokens = fixture->tokens, .token_count = count};

    assert_int_equal(kvt_engram_plan_fill(fixture->plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
}

static struct kvt_engram_target
target_of(struct fixture *fixture, uint32_t index, uint32_t flags)
{
    size_t capacity = (size_t)(TOKENS * COLUMNS) * fixture->rig.profile.row_bytes;

    memset(fixture->rows[index], FILLER, capacity + fixture->rig.profile.row_bytes);
    memset(fixture->states[index], FILLER, TOKENS * COLUMNS + 1);
    return (struct kvt_engram_target){.table = fixture->tables[index],
        .layer_index = index,
        .flags = flags,
        .destination = fixture->rows[index],
        .capacity = capacity,
        .states = fixture->states[index]};
}

/* Every row of the destination is right, or was left alone and said to be lost; *lost_out. */
static void
assert_rows(const struct fixture *fixture, uint32_t index, uint32_t flags, uint64_t lost)
{
    uint32_t row_bytes = fixture->rig.profile.row_bytes;
    uint8_t wanted[RIG_ROW_BYTES_MAX], untouched[RIG_ROW_BYTES_MAX];
    struct kvt_engram_rows rows;
    uint64_t lost_count = 0;
    uint32_t count;

    memset(untouched, FILLER, sizeof(untouched));
    assert_int_equal(kvt_engram_plan_rows(fixture->plan, index, &rows), KVT_OK);
    count = flags == KVT_ENGRAM_ONCE ? rows.row_count : rows.slot_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = rows.rows[flags == KVT_ENGRAM_ONCE ? i : rows.inverse[i]];
        const uint8_t *at = fixture->rows[index] + (size_t)i * row_bytes;

        engram_rig_row(&fixture->rig, index, row, wanted);
        if (fixture->states[index][i] != KVT_ENGRAM_ROW_THERE)
            lost_count++;
        assert_memory_equal(
            at, fixture->states[index][i] == KVT_ENGRAM_ROW_THERE ? wanted : untouched, row_bytes);
    }
    assert_int_equal(lost_count, lost);
    assert_memory_equal(fixture->rows[index] + (size_t)count * row_bytes, untouched, row_bytes);
    assert_int_equal(fixture->states[index][count], FILLER);
}

/* Both tables at once. */
static void
fetch_both(struct fixture *fixture, uint32_t flags)
{
    struct kvt_engram_target targets[2] = {
        target_of(fixture, 0, flags), target_of(fixture, 1, flags)};
    kvt_engram_fetch *fetch;
    uint64_t lost = 99;

    assert_int_equal(kvt_engram_fetch_submit(fixture->plan, targets, 2, &fetch), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_engram_fetch_wait(fetch, i, KVT_FOREVER, &lost), KVT_OK);
        assert_int_equal(lost, 0);
        assert_rows(fixture, i, flags, 0);
    }
    kvt_engram_fetch_free(fetch);
}

/* --- This machine's files --------------------------------------------------------------------- */

static void
rows_come_with(uint32_t io_engine)
{
    static const uint32_t sizes[] = {264, 128, 4088, 2};
    struct kvt_options options = small_options;
    struct scratch_dir scratch;

    options.io_engine = io_engine;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fixture fixture;
        kvt_store *store;

        scratch_dir_make(&scratch);
        assert_int_equal(kvt_open(scratch_path(&scratch, "store"), &options, &store), KVT_OK);
        fixture_open(&fixture, store, sizes[i], 500);
        for (uint32_t count = 0; count <= TOKENS; count = count * 4 + 1) {
            plan_fill(&fixture, count);
            fetch_both(&fixture, 0);
            fetch_both(&fixture, KVT_ENGRAM_ONCE);
        }
        plan_fill(&fixture, TOKENS);
        fetch_both(&fixture, 0);
        fixture_close(&fixture);
        assert_int_equal(kvt_close(store), KVT_OK);
        scratch_dir_remove(&scratch);
    }
}

static void
every_row_comes_to_its_slots_with_the_thread_pool(void **state)
{
    (void)state;
    rows_come_with(KVT_IO_THREADS);
}

static void
every_row_comes_to_its_slots_with_the_best_engine(void **state)
{
    (void)state;
    rows_come_with(KVT_IO_AUTO);
}

static void
many_fetches_are_under_way_at_once(void **state)
{
    enum {
        FETCHES = 40
    };
    struct scratch_dir scratch;
    struct fixture fixture;
    kvt_store *store;
    kvt_engram_fetch *fetches[FETCHES];
    uint8_t *rows[FETCHES];
    size_t size;

    (void)state;
    scratch_dir_make(&scratch);
    assert_int_equal(kvt_open(scratch_path(&scratch, "store"), &small_options, &store), KVT_OK);
    fixture_open(&fixture, store, 264, 500);
    plan_fill(&fixture, TOKENS);
    fetch_both(&fixture, 0);
    size = (size_t)TOKENS * COLUMNS * 264;
    for (uint32_t i = 0; i < FETCHES; i++) {
        struct kvt_engram_target target = {.table = fixture.tables[1],
            .layer_index = 1,
            .capacity = size,
            .deadline_ns = i * 7 % 5};

        rows[i] = calloc(1, size);
        assert_non_null(rows[i]);
        target.destination = rows[i];
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetches[i]), KVT_OK);
    }
    assert_int_equal(kvt_engram_close(fixture.tables[1]), KVT_E_STATE);
    for (uint32_t i = 0; i < FETCHES; i++) {
        if (i % 2 == 0)
            assert_int_equal(kvt_engram_fetch_wait(fetches[i], 0, KVT_FOREVER, NULL), KVT_OK);
        kvt_engram_fetch_free(fetches[i]); /* Waits for itself. */
        assert_memory_equal(rows[i], fixture.rows[1], size);
        free(rows[i]);
    }
    fixture_close(&fixture);
    assert_int_equal(kvt_close(store), KVT_OK);
    scratch_dir_remove(&scratch);
}

/* --- A simulated disk ------------------------------------------------------------------------- */

static void
files_without_direct_access_give_the_same_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        const struct sim_options world = {.seed = 5,
            .direct_unsupported = i == 1,
            .short_per_mille = 100,
            .retry_per_mille = 100};
        struct fixture fixture;
        struct sim_store sim;

        sim_store_open_world(&sim, &small_options, &world);
        fixture_open(&fixture, sim.store, 264, 500);
        plan_fill(&fixture, TOKENS);
        fetch_both(&fixture, 0);
        fetch_both(&fixture, KVT_ENGRAM_ONCE);
        fixture_close(&fixture);
        sim_store_close(&sim);
    }
}

static void
rows_of_damaged_pages_are_lost_and_others_come(void **state)
{
    struct kvt_engram_target target;
    struct fixture fixture;
    struct sim_store sim;
    struct kvt_engram_rows rows;
    kvt_engram_fetch *fetch;

    (void)state;
    for (uint32_t flags = 0; flags <= KVT_ENGRAM_ONCE; flags++) {
        struct kvt_stats stats = {.struct_size = sizeof(stats)};
        uint64_t lost_wanted = 0, lost = 0;

        sim_store_open(&sim, &small_options);
        fixture_open(&fixture, sim.store, 264, 500);
        plan_fill(&fixture, TOKENS);
        assert_true(sim_file_corrupt(
            sim.world, "store/engram/zero.engram", engram_page_offset(30) + 100, 4));
        assert_true(sim_file_corrupt(
            sim.world, "store/engram/zero.engram", engram_page_offset(77) + 4090, 1));
        assert_int_equal(kvt_engram_plan_rows(fixture.plan, 0, &rows), KVT_OK);
        for (uint32_t i = 0; i < (flags == 0 ? rows.slot_count : rows.row_count); i++) {
            uint32_t page = rows.rows[flags == 0 ? rows.inverse[i] : i] / 15;

            lost_wanted += page == 30 || page == 77;
        }
        assert_true(lost_wanted > 0);
        target = target_of(&fixture, 0, flags);
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, &lost), KVT_E_CORRUPT);
        assert_int_equal(lost, lost_wanted);
        kvt_engram_fetch_free(fetch);
        assert_rows(&fixture, 0, flags, lost_wanted);
        assert_int_equal(kvt_stats_get(sim.store, &stats), KVT_OK);
        assert_int_equal(stats.engram_page_lost_count, 2);
        assert_in_range(stats.engram_page_count, 3, 200);
        fixture_close(&fixture);
        sim_store_close(&sim);
    }
}

static void
faults_of_the_disk_lose_rows_and_never_give_wrong_ones(void **state)
{
    static const enum sim_effect effects[] = {
        SIM_EIO, SIM_FLIP, SIM_MISDIRECT, SIM_STALE, SIM_SHORT, SIM_EINTR, SIM_EAGAIN};

    (void)state;
    for (size_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = effects[i], .file = "one", .per_mille = 150};
        struct kvt_engram_target target;
        struct fixture fixture;
        struct sim_store sim;
        kvt_engram_fetch *fetch;
        uint64_t lost = 0;
        enum kvt_status status;

        sim_store_open(&sim, &small_options);
        fixture_open(&fixture, sim.store, 264, 8000); /* So that few pages are neighbours. */
        plan_fill(&fixture, TOKENS);
        sim_rule_add(sim.world, &rule);
        target = target_of(&fixture, 1, 0);
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
        status = kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, &lost);
        assert_true(sim_fault_count(sim.world) > 0);
        if (i >= 4) /* These are repeated. */
            assert_int_equal(status, KVT_OK);
        else if (effects[i] != SIM_STALE)
            assert_true(status == KVT_E_IO || status == KVT_E_CORRUPT);
        assert_int_equal(lost > 0, status != KVT_OK);
        assert_rows(&fixture, 1, 0, lost);
        kvt_engram_fetch_free(fetch);
        sim_rules_clear(sim.world);
        fetch_both(&fixture, 0);
        fixture_close(&fixture);
        sim_store_close(&sim);
    }
}

static void
the_earlier_deadline_comes_first_under_load(void **state)
{
    struct kvt_engram_target targets[2];
    struct fixture fixture;
    struct sim_store sim;
    kvt_engram_fetch *fetch;

    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        sim_store_open(&sim, &small_options);
        fixture_open(&fixture, sim.store, 4088, 700); /* A page a row: more than are in flight. */
        plan_fill(&fixture, TOKENS);
        for (uint32_t i = 0; i < 2; i++) {
            targets[i] = target_of(&fixture, i, 0);
            targets[i].deadline_ns = i == first ? 1000 : first == 0 ? 2000 : 0;
        }
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, first, 0, NULL), KVT_LATE);
        assert_int_equal(kvt_engram_fetch_wait(fetch, first, KVT_FOREVER, NULL), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 1 - first, 0, NULL), KVT_LATE);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 1 - first, KVT_FOREVER, NULL), KVT_OK);
        assert_rows(&fixture, 0, 0, 0);
        assert_rows(&fixture, 1, 0, 0);
        kvt_engram_fetch_free(fetch);
        fixture_close(&fixture);
        sim_store_close(&sim);
    }
}

static void
an_abort_takes_fetches_and_tables_with_it(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 400; steps += 37) {
        struct kvt_engram_target targets[2];
        struct fixture fixture;
        struct sim_store sim;
        kvt_engram_fetch *fetches[3];

        sim_store_open(&sim, &small_options);
        fixture_open(&fixture, sim.store, 4088, 700);
        plan_fill(&fixture, TOKENS);
        for (uint32_t i = 0; i < 3; i++) {
            targets[0] = target_of(&fixture, 0, 0);
            targets[1] = target_of(&fixture, 1, 0);
            assert_int_equal(
                kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetches[i]), KVT_OK);
        }
        sim_run_steps(sim.world, steps);
        assert_int_equal(kvt_close(sim.store), KVT_E_STATE);
        kvt_abort(sim.store);
        assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
        sim_world_destroy(sim.world);
        fixture_free(&fixture);
    }
}

/* Fetches of all ranks into one destination fill it; each leaves the others' slots alone. */
static void
ranks_fetch_their_own_rows(void **state)
{
    enum {
        RANKS = 3
    };
    struct fixture fixture;
    struct sim_store sim;
    struct kvt_engram_rows rows;
    uint8_t wanted[RIG_ROW_BYTES_MAX];

    (void)state;
    sim_store_open(&sim, &small_options);
    fixture_open(&fixture, sim.store, 264, 500);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct kvt_engram_shard shard = {.rank = rank, .rank_count = RANKS};
        struct kvt_engram_target target = target_of(&fixture, 0, 0);
        kvt_engram_fetch *fetch;

        assert_int_equal(kvt_engram_plan_shard(fixture.plan, &shard), KVT_OK);
        plan_fill(&fixture, TOKENS);
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
        kvt_engram_fetch_free(fetch);
        assert_int_equal(kvt_engram_plan_rows(fixture.plan, 0, &rows), KVT_OK);
        for (uint32_t i = 0; i < rows.slot_count; i++) {
            const uint8_t *at = fixture.rows[0] + (size_t)i * 264;

            if (rows.inverse[i] == KVT_ENGRAM_ELSEWHERE) {
                assert_int_equal(fixture.states[0][i], KVT_ENGRAM_ROW_ELSEWHERE);
                assert_int_equal(at[0], FILLER);
                assert_memory_equal(at, at + 1, 263);
            } else {
                assert_int_equal(fixture.states[0][i], KVT_ENGRAM_ROW_THERE);
                engram_rig_row(&fixture.rig, 0, rows.rows[rows.inverse[i]], wanted);
                assert_memory_equal(at, wanted, 264);
            }
        }
    }
    fixture_close(&fixture);
    sim_store_close(&sim);
}

static void
wrong_fetches_are_refused(void **state)
{
    const struct kvt_engram_sequence sequence = {.tokens = (const uint32_t[]){1}, .token_count = 1};
    struct kvt_engram_target good, bad;
    struct kvt_engram_profile other;
    struct fixture fixture;
    struct sim_store sim;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram_fetch *fetch;

#define REFUSED(change)                                                                        \
    do {                                                                                       \
        bad = good;                                                                            \
        change;                                                                                \
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &bad, 1, &fetch), KVT_E_INVAL); \
        assert_null(fetch);                                                                    \
    } while (0)

    (void)state;
    sim_store_open(&sim, &small_options);
    fixture_open(&fixture, sim.store, 264, 500);
    plan_fill(&fixture, 10);
    good = target_of(&fixture, 0, 0);
    REFUSED(bad.table = NULL);
    REFUSED(bad.table = fixture.tables[1]);
    REFUSED(bad.layer_index = 1);
    REFUSED(bad.layer_index = 2);
    REFUSED(bad.flags = 2);
    REFUSED(bad.destination = NULL);
    REFUSED(bad.capacity = 40 * 264 - 1);
    assert_int_equal(kvt_engram_fetch_submit(NULL, &good, 1, &fetch), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, NULL, 1, &fetch), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &good, 0, &fetch), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &good, 5, &fetch), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &good, 1, NULL), KVT_E_INVAL);
    /* A plan that is not sorted, and plans of other profiles. */
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, &sequence, 1, 0), KVT_OK);
    REFUSED((void)0);
    for (uint32_t i = 0; i < 5; i++) {
        other = fixture.rig.profile;
        if (i == 0)
            other.layers[0].multipliers[2] += 2;
        else if (i == 1)
            other.pad_class++;
        else if (i == 2)
            other.class_count++;
        else if (i == 3)
            other.layers[0].number++;
        else {
            other.layers[0].primes[3]--;
            other.layers[0].row_count--;
        }
        assert_int_equal(kvt_engram_hasher_open(&other, NULL, 0, &hasher), KVT_OK);
        assert_int_equal(kvt_engram_plan_create(hasher, 1, &plan), KVT_OK);
        assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
        assert_int_equal(kvt_engram_fetch_submit(plan, &good, 1, &fetch), KVT_E_INVAL);
        kvt_engram_plan_destroy(plan);
        kvt_engram_hasher_close(hasher);
    }
    assert_int_equal(kvt_engram_fetch_wait(NULL, 0, 0, NULL), KVT_E_INVAL);
    kvt_engram_fetch_free(NULL);
    fixture_close(&fixture);
    sim_store_close(&sim);
#undef REFUSED
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_comes_to_its_slots_with_the_thread_pool),
        cmocka_unit_test(every_row_comes_to_its_slots_with_the_best_engine),
        cmocka_unit_test(many_fetches_are_under_way_at_once),
        cmocka_unit_test(files_without_direct_access_give_the_same_rows),
        cmocka_unit_test(rows_of_damaged_pages_are_lost_and_others_come),
        cmocka_unit_test(faults_of_the_disk_lose_rows_and_never_give_wrong_ones),
        cmocka_unit_test(the_earlier_deadline_comes_first_under_load),
        cmocka_unit_test(an_abort_takes_fetches_and_tables_with_it),
        cmocka_unit_test(ranks_fetch_their_own_rows),
        cmocka_unit_test(wrong_fetches_are_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
