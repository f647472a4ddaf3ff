/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_engram.c - threads that fetch rows of two tables, each with a plan of its own, while
 * another opens and closes them and imports and drops a third. Every row is compared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "engram_rig.h"
#include "rng.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    FETCHERS = 4,
    TOKENS = 40,
    COLUMNS = 4,
    ROW_BYTES = 264,
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    ROUNDS = 60,
#else
    ROUNDS = 300,
#endif
};

struct shared {
    struct engram_rig rig;
    kvt_store *store;
    kvt_engram_hasher *hasher;
    kvt_engram *tables[2];
};

struct fetcher {
    struct shared *shared;
    uint64_t seed;
    uint64_t wrong_count; /* Rows, or calls that failed. */
    uint8_t rows[2][TOKENS * COLUMNS * ROW_BYTES];
};

static uint64_t
rows_wrong(const struct fetcher *fetcher, const kvt_engram_plan *plan, uint32_t layer)
{
    struct kvt_engram_rows rows;
    uint8_t wanted[ROW_BYTES];
    uint64_t wrong = 0;

    if (kvt_engram_plan_rows(plan, layer, &rows) != KVT_OK)
        return 1;
    for (uint32_t i = 0; i < rows.slot_count; i++) {
        engram_rig_row(&fetcher->shared->rig, layer, rows.rows[rows.inverse[i]], wanted);
        wrong += memcmp(fetcher->rows[layer] + (size_t)i * ROW_BYTES, wanted, ROW_BYTES) != 0;
    }
    return wrong;
}

static void
fetch_once(struct fetcher *fetcher, kvt_engram_plan *plan, struct rng *rng)
{
    struct kvt_engram_target targets[2] = {0};
    uint32_t tokens[TOKENS];
    const struct kvt_engram_sequence sequence = {
        .tokens = tokens, .token_count = 1 + rng_below(rng, TOKENS)};
    kvt_engram_fetch *fetch = NULL;
    enum kvt_status status;

    for (uint32_t i = 0; i < sequence.token_count; i++)
        tokens[i] = rng_below(rng, RIG_CLASSES);
    for (uint32_t i = 0; i < 2; i++)
        targets[i] = (struct kvt_engram_target){.table = fetcher->shared->tables[i],
            .layer_index = i,
            .destination = fetcher->rows[i],
            .capacity = sizeof(fetcher->rows[i]),
            .deadline_ns = rng_below(rng, 3)};
    memset(fetcher->rows, 0xEE, sizeof(fetcher->rows));
    status = kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE);
    if (status == KVT_OK)
        status = kvt_engram_fetch_submit(plan, targets, 2, &fetch);
    for (uint32_t i = 0; i < 2 && status == KVT_OK; i++) {
        status = kvt_engram_fetch_wait(fetch, i, KVT_FOREVER, NULL);
        fetcher->wrong_count += rows_wrong(fetcher, plan, i);
    }
    fetcher->wrong_count += status != KVT_OK;
    kvt_engram_fetch_free(fetch);
}

static void *
fetcher_run(void *context)
{
    struct fetcher *fetcher = context;
    struct rng rng = {.state = fetcher->seed};
    kvt_engram_plan *plan = NULL;

    if (kvt_engram_plan_create(fetcher->shared->hasher, TOKENS, &plan) != KVT_OK) {
        fetcher->wrong_count = 1;
        return NULL;
    }
    for (uint32_t i = 0; i < ROUNDS; i++)
        fetch_once(fetcher, plan, &rng);
    kvt_engram_plan_destroy(plan);
    return NULL;
}

static int
count_tables(void *context, const struct kvt_engram_info *info)
{
    (void)info;
    ++*(uint32_t *)context;
    return 1;
}

/* On the test's own thread. */
static void
tables_come_and_go(struct shared *shared)
{
    struct engram_rig other;

    engram_rig_init(&other, "third", 128, 97);
    for (uint32_t i = 0; i < ROUNDS / 10; i++) {
        kvt_engram *table, *again;
        uint32_t count = 0;

        assert_int_equal(engram_rig_import(&other, shared->store, "third", i % 2), KVT_OK);
        assert_int_equal(kvt_engram_open(shared->store, "third", &table), KVT_OK);
        assert_int_equal(kvt_engram_open(shared->store, "zero", &again), KVT_OK);
        assert_true(engram_rig_has(&other, table, i % 2));
        assert_int_equal(kvt_engram_drop(shared->store, "third"), KVT_E_STATE);
        assert_int_equal(kvt_engram_list(shared->store, count_tables, &count), KVT_OK);
        assert_int_equal(count, 3);
        assert_int_equal(kvt_engram_close(again), KVT_OK);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        assert_int_equal(kvt_engram_drop(shared->store, "third"), KVT_OK);
    }
}

static void
many_threads_fetch_right_rows_while_tables_come_and_go(void **state)
{
    static const char *const names[] = {"zero", "one"};
    struct kvt_options options = KVT_OPTIONS_INIT;
    static struct fetcher fetchers[FETCHERS];
    pthread_t threads[FETCHERS];
    struct scratch_dir scratch;
    struct shared shared = {0};

    (void)state;
    options.host_capacity_bytes = 2 << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.block_bytes_max = 64 << 10;
    scratch_dir_make(&scratch);
    assert_int_equal(kvt_open(scratch_path(&scratch, "store"), &options, &shared.store), KVT_OK);
    engram_rig_init(&shared.rig, "t", ROW_BYTES, 3000);
    assert_int_equal(kvt_engram_hasher_open(&shared.rig.profile, NULL, 0, &shared.hasher), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(engram_rig_import(&shared.rig, shared.store, names[i], i), KVT_OK);
        assert_int_equal(kvt_engram_open(shared.store, names[i], &shared.tables[i]), KVT_OK);
    }
    for (uint32_t i = 0; i < FETCHERS; i++) {
        fetchers[i].shared = &shared;
        fetchers[i].seed = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, fetcher_run, &fetchers[i]), 0);
    }
    tables_come_and_go(&shared);
    for (uint32_t i = 0; i < FETCHERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(fetchers[i].wrong_count, 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(kvt_engram_close(shared.tables[i]), KVT_OK);
    kvt_engram_hasher_close(shared.hasher);
    assert_int_equal(kvt_close(shared.store), KVT_OK);
    scratch_dir_remove(&scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_fetch_right_rows_while_tables_come_and_go),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
