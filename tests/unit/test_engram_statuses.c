/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_statuses.c - statuses of calls about Engram tables that the other tests do not
 * provoke: failing disks, missing memory, calls at the wrong time.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "engram_rig.h"
#include "engram_set.h"
#include "hash.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

static const struct kvt_options small_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10};

/* A store with a table "t" of layer 0. */
struct fixture {
    struct sim_store sim;
    struct engram_rig rig;
    kvt_engram *table;
};

static void
fixture_open(struct fixture *fixture)
{
    memset(fixture, 0, sizeof(*fixture));
    sim_store_open(&fixture->sim, &small_options);
    engram_rig_init(&fixture->rig, "t", 264, 61);
    assert_int_equal(engram_rig_import(&fixture->rig, fixture->sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(fixture->sim.store, "t", &fixture->table), KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    assert_int_equal(kvt_engram_close(fixture->table), KVT_OK);
    sim_store_close(&fixture->sim);
}

/* From now on each of these operations fails. */
static void
fail_all(struct fixture *fixture, unsigned ops)
{
    const struct sim_rule rule = {.ops = ops, .effect = SIM_EIO, .nth = 1, .sticky = true};

    sim_rule_add(fixture->sim.world, &rule);
}

static int
table_visit(void *context, const struct kvt_engram_info *info)
{
    (void)context;
    (void)info;
    return 1;
}

static int
stop_at_once(void *context, uint64_t rows_done, uint64_t row_count)
{
    (void)context;
    (void)rows_done;
    (void)row_count;
    return 0;
}

/* --- Failing disks ---------------------------------------------------------------------------- */

static void
a_failing_disk_is_an_error_of_each_call(void **state)
{
    struct fixture fixture;
    kvt_engram *table;
    uint8_t row[264];

    (void)state;
    fixture_open(&fixture);
    fail_all(&fixture, SIM_READ);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &table), KVT_E_IO);
    assert_null(table);
    assert_int_equal(kvt_engram_read(fixture.table, 0, 1, row), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    fail_all(&fixture, SIM_LIST);
    assert_int_equal(kvt_engram_list(fixture.sim.store, table_visit, NULL), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    fail_all(&fixture, SIM_WRITE);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "u", 1), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(kvt_engram_close(fixture.table), KVT_OK);
    fail_all(&fixture, SIM_UNLINK);
    assert_int_equal(kvt_engram_drop(fixture.sim.store, "t"), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &fixture.table), KVT_OK);
    assert_true(engram_rig_has(&fixture.rig, fixture.table, 0));
    fixture_close(&fixture);
}

/* A plan of one token, and a fetch of its rows. */
static enum kvt_status
fetch_one(struct fixture *fixture, kvt_engram_plan *plan)
{
    static uint8_t rows[4 * 264];
    const struct kvt_engram_sequence sequence = {.tokens = (const uint32_t[]){7}, .token_count = 1};
    const struct kvt_engram_target target = {
        .table = fixture->table, .destination = rows, .capacity = sizeof(rows)};
    kvt_engram_fetch *fetch;
    enum kvt_status status;

    assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    status = kvt_engram_fetch_submit(plan, &target, 1, &fetch);
    if (status != KVT_OK) {
        assert_null(fetch);
        return status;
    }
    assert_int_equal(kvt_engram_fetch_wait(fetch, 1, 0, NULL), KVT_E_INVAL);
    status = kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL);
    kvt_engram_fetch_free(fetch);
    return status;
}

static void
a_fetch_from_a_failing_disk_says_so(void **state)
{
    struct fixture fixture;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(kvt_engram_hasher_open(&fixture.rig.profile, NULL, 0, &hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(hasher, 1, &plan), KVT_OK);
    fail_all(&fixture, SIM_READ);
    assert_int_equal(fetch_one(&fixture, plan), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    sim_memory_fail(fixture.sim.world, 1, false);
    assert_int_equal(fetch_one(&fixture, plan), KVT_E_NOMEM);
    assert_int_equal(fetch_one(&fixture, plan), KVT_OK);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
    fixture_close(&fixture);
}

/* --- No memory -------------------------------------------------------------------------------- */

static void
calls_without_memory_say_so_and_work_later(void **state)
{
    const uint32_t map[] = {0, 1, 2};
    struct kvt_engram_findings findings;
    struct fixture fixture;
    const struct kvt_env *env;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    uint8_t row[264], sha256[32];

    (void)state;
    fixture_open(&fixture);
    env = sim_env(fixture.sim.world);
    for (int sick = 1; sick >= 0; sick--) {
        enum kvt_status wanted = sick ? KVT_E_NOMEM : KVT_OK;

#define SICK(call)                                                 \
    do {                                                           \
        sim_memory_fail(fixture.sim.world, (uint64_t)sick, false); \
        assert_int_equal(call, wanted);                            \
    } while (0)
        SICK(engram_map_hash_in(env, map, 3, sha256));
        SICK(engram_hasher_open_in(env, &fixture.rig.profile, NULL, 0, &hasher));
        SICK(kvt_engram_read(fixture.table, 0, 1, row));
        SICK(kvt_engram_verify(fixture.table, NULL, NULL, &findings));
        SICK(kvt_engram_list(fixture.sim.store, table_visit, NULL));
#undef SICK
    }
    sim_memory_fail(fixture.sim.world, 1, false);
    assert_int_equal(kvt_engram_plan_create(hasher, 10, &plan), KVT_E_NOMEM);
    sim_memory_fail(fixture.sim.world, 2, false);
    assert_int_equal(kvt_engram_plan_create(hasher, 10, &plan), KVT_E_NOMEM);
    assert_null(plan);
    assert_int_equal(kvt_engram_plan_create(hasher, 10, &plan), KVT_OK);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
    assert_int_equal(kvt_engram_map_hash(NULL, 3, sha256), KVT_E_INVAL);
    assert_int_equal(kvt_engram_map_hash(map, 0, sha256), KVT_E_INVAL);
    assert_int_equal(kvt_engram_map_hash(map, 3, NULL), KVT_E_INVAL);
    fixture_close(&fixture);
}

/* --- The wrong time --------------------------------------------------------------------------- */

/* While a table is imported nobody else may use its name. */
static enum kvt_status
read_and_interfere(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    struct fixture *fixture = context;
    kvt_engram *table;

    (void)row_first;
    memset(rows_out, 1, (size_t)row_count * 264);
    assert_int_equal(kvt_engram_open(fixture->sim.store, "u", &table), KVT_E_STATE);
    assert_int_equal(kvt_engram_drop(fixture->sim.store, "u"), KVT_E_STATE);
    assert_int_equal(kvt_engram_import(fixture->sim.store, &fixture->rig.source), KVT_E_STATE);
    return KVT_OK;
}

static void
a_name_is_one_import_s_alone(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    fixture.rig.source.read = read_and_interfere;
    fixture.rig.source.progress = NULL;
    fixture.rig.source.context = &fixture;
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "u", 1), KVT_OK);
    assert_int_equal(kvt_engram_drop(fixture.sim.store, "u"), KVT_OK);
    fixture_close(&fixture);
}

static void
a_verification_can_be_stopped(void **state)
{
    struct kvt_engram_findings findings;
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(
        kvt_engram_verify(fixture.table, stop_at_once, NULL, &findings), KVT_CANCELLED);
    assert_int_equal(kvt_engram_verify(fixture.table, NULL, NULL, &findings), KVT_OK);
    fixture_close(&fixture);
}

/* The loop takes the set's lock: it must not wait there for a disk. */
static const struct fs_ops *fs_below;
static struct kvt_store *watched;
static uint32_t call_count;

static void
lock_is_free(void)
{
    assert_int_equal(pthread_mutex_trylock(&watched->engrams->lock), 0);
    (void)pthread_mutex_unlock(&watched->engrams->lock);
    call_count++;
}

static enum kvt_status
watched_dir_open_at(
    struct fs_dir *parent, const char *name, unsigned flags, struct fs_dir **dir_out)
{
    lock_is_free();
    return fs_below->dir_open_at(parent, name, flags, dir_out);
}

static enum kvt_status
watched_dir_sync(struct fs_dir *dir)
{
    lock_is_free();
    return fs_below->dir_sync(dir);
}

static enum kvt_status
watched_open(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    lock_is_free();
    return fs_below->open(dir, name, flags, file_out);
}

static enum kvt_status
watched_sync(struct fs_file *file)
{
    lock_is_free();
    return fs_below->sync(file);
}

static void
no_file_is_waited_for_under_the_lock_of_the_loop(void **state)
{
    struct fs_ops watching;
    struct sim_store sim;
    struct engram_rig rig;
    kvt_engram *table;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 264, 61);
    watched = sim.store;
    fs_below = sim.store->env.fs;
    watching = *fs_below;
    watching.dir_open_at = watched_dir_open_at;
    watching.dir_sync = watched_dir_sync;
    watching.open = watched_open;
    watching.sync = watched_sync;
    sim.store->env.fs = &watching;
    call_count = 0;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_OK);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    assert_in_range(call_count, 8, 100);
    sim.store->env.fs = fs_below;
    sim_store_close(&sim);
}

/* Another import must not find the same room: one lock from looking for it to having it. */
static void
space_is_locked(void)
{
    assert_int_equal(pthread_mutex_trylock(&watched->engrams->space_lock), EBUSY);
    call_count++;
}

static enum kvt_status
watched_dir_list(struct fs_dir *dir, bool (*visit)(void *visitor, const char *name), void *visitor)
{
    space_is_locked();
    return fs_below->dir_list(dir, visit, visitor);
}

static enum kvt_status
watched_unlink(struct fs_dir *dir, const char *name)
{
    space_is_locked();
    return fs_below->unlink(dir, name);
}

static enum kvt_status
watched_allocate(struct fs_file *file, uint64_t offset, uint64_t size)
{
    space_is_locked();
    return fs_below->allocate(file, offset, size);
}

static enum kvt_status
watched_rename(struct fs_dir *dir, const char *from, const char *to)
{
    space_is_locked();
    return fs_below->rename(dir, from, to);
}

/* Nor must it miss a table, which has another name by the time that it is opened to be counted. */
static void
room_that_an_import_finds_is_its_own_before_another_looks(void **state)
{
    struct kvt_options options = small_options;
    struct fs_ops watching;
    struct sim_store sim;
    struct engram_rig rig;

    (void)state;
    options.engram_capacity_bytes = 1 << 20;
    sim_store_open(&sim, &options);
    engram_rig_init(&rig, "t", 264, 61);
    watched = sim.store;
    fs_below = sim.store->env.fs;
    watching = *fs_below;
    watching.dir_list = watched_dir_list;
    watching.unlink = watched_unlink;
    watching.allocate = watched_allocate;
    watching.rename = watched_rename;
    sim.store->env.fs = &watching;
    call_count = 0;
    assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
    assert_int_equal(call_count, 4);
    sim.store->env.fs = fs_below;
    sim_store_close(&sim);
}

static void
a_name_that_a_table_does_not_get_keeps_no_other_import_waiting(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    fail_all(&fixture, SIM_RENAME);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "u", 1), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(pthread_mutex_trylock(&fixture.sim.store->engrams->space_lock), 0);
    (void)pthread_mutex_unlock(&fixture.sim.store->engrams->space_lock);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "u", 1), KVT_OK);
    assert_int_equal(fixture.rig.first_asked, UINT64_MAX);
    fixture_close(&fixture);
}

/* Both heads say this of the table, with right checksums. */
static void
heads_write(
    struct fixture *fixture, const char *name, uint32_t at, const uint8_t *bytes, size_t size)
{
    const struct fs_ops *fs = fixture->sim.env.fs;
    struct fs_dir *dir;
    struct fs_file *file;
    uint64_t file_size = 0;

    assert_int_equal(fs->dir_open(fixture->sim.env.fs_context, "/store/engram", 0, &dir), KVT_OK);
    assert_int_equal(fs->open(dir, name, 0, &file), KVT_OK);
    assert_int_equal(fs->size(file, &file_size), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t offset = i == 0 ? 0 : file_size - PAGE_BYTES;
        uint8_t page[PAGE_BYTES];
        size_t read_size;

        assert_int_equal(fs->read_at(file, page, PAGE_BYTES, offset, &read_size), KVT_OK);
        memcpy(page + at, bytes, size);
        put_u32(page + 4, crc32c(0, page + 8, PAGE_BYTES - 8));
        assert_int_equal(fs->write_at(file, page, PAGE_BYTES, offset), KVT_OK);
    }
    fs->close(file);
    fs->dir_close(dir);
}

static int
state_visit(void *context, const struct kvt_engram_info *info)
{
    *(uint32_t *)context = info->state;
    return 1;
}

/* As the list of tables has it; there is one. */
static uint32_t
state_of_the_table(struct fixture *fixture)
{
    uint32_t state = 0;

    assert_int_equal(kvt_engram_list(fixture->sim.store, state_visit, &state), KVT_OK);
    return state;
}

static void
a_table_of_a_later_version_is_refused_by_name(void **state)
{
    struct fixture fixture;
    kvt_engram *table;

    (void)state;
    fixture_open(&fixture);
    heads_write(&fixture, "t.engram", 8, (const uint8_t[]){2, 0}, 2);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &table), KVT_E_FORMAT);
    assert_null(table);
    assert_int_equal(state_of_the_table(&fixture), KVT_ENGRAM_FOREIGN);
    fixture_close(&fixture);
}

/* A store, and a table of which an import will stop in the middle. */
static void
failing_begin(struct fixture *fixture)
{
    memset(fixture, 0, sizeof(*fixture));
    sim_store_open(&fixture->sim, &small_options);
    engram_rig_init(&fixture->rig, "t", 4088, 200);
    fixture->rig.fail_at = 700;
}

/* It may have pages to go on from, for who can read it. */
static void
an_unfinished_import_of_a_later_version_is_left_alone(void **state)
{
    struct fixture fixture;

    (void)state;
    failing_begin(&fixture);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_E_BUSY);
    heads_write(&fixture, "t.engram.new", 8, (const uint8_t[]){2, 0}, 2);
    fixture.rig.fail_at = 0;
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_E_FORMAT);
    assert_non_null(strstr(failure_last()->text, "later version"));
    assert_int_equal(state_of_the_table(&fixture), KVT_ENGRAM_FOREIGN);
    assert_int_equal(kvt_engram_drop(fixture.sim.store, "t"), KVT_OK);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    sim_store_close(&fixture.sim);
}

/* Rows of 264 bytes: 264 scales of no value. To gather values of them would divide by zero. */
static void
a_table_of_rows_without_values_is_refused(void **state)
{
    struct fixture fixture;
    kvt_engram *table;
    uint8_t counts[12] = {0};

    (void)state;
    fixture_open(&fixture);
    put_u32(counts, KVT_ENGRAM_E4M3_E8M0);
    put_u32(counts + 4, 0);
    put_u32(counts + 8, 264);
    heads_write(&fixture, "t.engram", 164, counts, sizeof(counts));
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &table), KVT_E_CORRUPT);
    assert_null(table);
    fixture_close(&fixture);
}

static int
done_visit(void *context, const struct kvt_engram_info *info)
{
    *(uint64_t *)context = info->rows_done;
    return 1;
}

/* What an earlier import has written stays when its head cannot be read this time. */
static void
a_head_that_cannot_be_read_costs_no_pages(void **state)
{
    struct fixture fixture;
    uint64_t before = 0, after = 0;

    (void)state;
    failing_begin(&fixture);
    assert_int_not_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_list(fixture.sim.store, done_visit, &before), KVT_OK);
    fail_all(&fixture, SIM_READ);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(kvt_engram_list(fixture.sim.store, done_visit, &after), KVT_OK);
    assert_true(before > 0);
    assert_int_equal(after, before);
    sim_store_close(&fixture.sim);
}

/* It may never be: the sentence says what ends that, and it does, without a read. */
static void
a_head_that_can_never_be_read_can_be_dropped(void **state)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = "t.engram.new", .nth = 1, .sticky = true};
    struct fixture fixture;

    (void)state;
    failing_begin(&fixture);
    assert_int_not_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    fixture.rig.fail_at = 0;
    sim_rule_add(fixture.sim.world, &rule);
    for (uint32_t i = 0; i < 2; i++)
        refused(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_E_IO,
            "kvt_engram_drop() gives up what an import has left of t");
    assert_int_equal(kvt_engram_drop(fixture.sim.store, "t"), KVT_OK);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    sim_store_close(&fixture.sim);
}

/* A crash tears one head, and the n-th read, which may be of the other one, fails: the pages that
 * this one names stay. Returns what the import is told. */
static enum kvt_status
import_behind_a_torn_head(uint64_t nth)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = "t.engram.new", .nth = nth};
    struct fixture fixture;
    uint64_t before = 0, after = 0;
    enum kvt_status status;

    failing_begin(&fixture);
    assert_int_not_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    assert_true(sim_file_corrupt(fixture.sim.world, "store/engram/t.engram.new", 300, 1));
    assert_int_equal(kvt_engram_list(fixture.sim.store, done_visit, &before), KVT_OK);
    assert_true(before > 0);
    sim_rule_add(fixture.sim.world, &rule);
    status = engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0);
    sim_rules_clear(fixture.sim.world);
    if (status != KVT_E_IO)
        assert_int_equal(fixture.rig.first_asked, before);
    assert_int_equal(kvt_engram_list(fixture.sim.store, done_visit, &after), KVT_OK);
    assert_int_equal(after, before);
    sim_store_close(&fixture.sim);
    return status;
}

/* An import that goes on writes the torn one anew: each read has a torn one of its own. */
static void
a_good_head_that_cannot_be_read_is_no_damage(void **state)
{
    uint32_t failed_count = 0;

    (void)state;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        enum kvt_status status = import_behind_a_torn_head(nth);

        if (status != KVT_E_IO)
            assert_int_equal(status, KVT_E_BUSY);
        failed_count += status == KVT_E_IO;
    }
    assert_in_range(failed_count, 1, 3);
}

/* All is written and named by a head: the next import has only to read it. */
static void
pages_that_cannot_be_read_back_stay_for_the_next_import(void **state)
{
    static const struct {
        enum sim_effect effect;
        enum kvt_status status;
        const char *text;
    } rows[] = {
        {SIM_EIO, KVT_E_IO, "kvt_engram_drop() gives up what an import has left of t"},
        {SIM_ENOMEM, KVT_E_NOMEM, "t.engram.new"},
    };

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        /* The first read is that of an open, which sees whether direct ones work. */
        const struct sim_rule rule = {.ops = SIM_READ,
            .effect = rows[i].effect,
            .file = "t.engram.new",
            .nth = 2,
            .sticky = true};
        struct sim_store sim;
        struct engram_rig rig;

        sim_store_open(&sim, &small_options);
        engram_rig_init(&rig, "t", 264, 61);
        sim_rule_add(sim.world, &rule);
        refused(engram_rig_import(&rig, sim.store, "t", 0), rows[i].status, rows[i].text);
        assert_int_equal(rig.first_asked, 0);
        sim_rules_clear(sim.world);
        assert_int_equal(engram_rig_import(&rig, sim.store, "t", 0), KVT_OK);
        assert_int_equal(rig.first_asked, UINT64_MAX);
        sim_store_close(&sim);
    }
}

/* Also when others could not be read: no later read makes it right. */
static void
a_page_that_is_read_back_wrong_costs_the_import(void **state)
{
    const struct sim_rule rules[] = {
        {.ops = SIM_READ, .effect = SIM_FLIP, .file = "t.engram.new", .nth = 2},
        {.ops = SIM_READ, .effect = SIM_EIO, .file = "t.engram.new", .nth = 3, .sticky = true},
    };
    uint32_t table_state = 0;
    struct sim_store sim;
    struct engram_rig rig;

    (void)state;
    sim_store_open(&sim, &small_options);
    engram_rig_init(&rig, "t", 4088, 200);
    for (uint32_t i = 0; i < 2; i++)
        sim_rule_add(sim.world, &rules[i]);
    refused(engram_rig_import(&rig, sim.store, "t", 0), KVT_E_CORRUPT, "t.engram.new");
    sim_rules_clear(sim.world);
    assert_int_equal(kvt_engram_list(sim.store, state_visit, &table_state), KVT_OK);
    assert_int_equal(table_state, 0);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_cannot_be_read_back_stay_for_the_next_import),
        cmocka_unit_test(a_page_that_is_read_back_wrong_costs_the_import),
        cmocka_unit_test(a_head_that_cannot_be_read_costs_no_pages),
        cmocka_unit_test(a_head_that_can_never_be_read_can_be_dropped),
        cmocka_unit_test(a_good_head_that_cannot_be_read_is_no_damage),
        cmocka_unit_test(a_failing_disk_is_an_error_of_each_call),
        cmocka_unit_test(a_fetch_from_a_failing_disk_says_so),
        cmocka_unit_test(calls_without_memory_say_so_and_work_later),
        cmocka_unit_test(a_name_is_one_import_s_alone),
        cmocka_unit_test(a_verification_can_be_stopped),
        cmocka_unit_test(no_file_is_waited_for_under_the_lock_of_the_loop),
        cmocka_unit_test(room_that_an_import_finds_is_its_own_before_another_looks),
        cmocka_unit_test(a_name_that_a_table_does_not_get_keeps_no_other_import_waiting),
        cmocka_unit_test(a_table_of_a_later_version_is_refused_by_name),
        cmocka_unit_test(an_unfinished_import_of_a_later_version_is_left_alone),
        cmocka_unit_test(a_table_of_rows_without_values_is_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
