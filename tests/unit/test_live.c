/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_live.c - what an open store shows to other programs: true, whole, bounded, and gone with it.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "hash.h"
#include "kvtier/kvtier_unstable.h"
#include "live_page.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    AT_SIZE = 12,
    AT_CHECK = 16,
    AT_SEQUENCE = 24,
    AT_LEASES = 156,
    PATIENCE = 500, /* Times 10 ms: for what comes within a second or two. */
    BURST = 20000,  /* Leases: more than one page walks. */
};

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    char file[KIT_PATH_BYTES + 32];
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    struct kvt_live live;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    snprintf(fixture->file, sizeof(fixture->file), "%s/store/live", fixture->dir);
    fixture->options = kit_options();
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(fixture->store, "live", "", 0, &fixture->ns), KVT_OK);
    fixture->live.struct_size = sizeof(fixture->live);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

/* Reads until `holds` does: a page comes when its time has come. */
static void
wait_until(struct fixture *fixture, bool (*holds)(const struct kvt_live *live))
{
    enum kvt_status status = KVT_MISS;

    for (int i = 0; i < PATIENCE; i++) {
        status = kvt_live_read(fixture->path, &fixture->live);
        if (status == KVT_OK && holds(&fixture->live))
            return;
        usleep(10000);
    }
    fail_msg("it was never shown (status %d)", status);
}

static bool
is_shown(const struct kvt_live *live)
{
    return live->sequence > 0;
}

static bool
has_ten_puts(const struct kvt_live *live)
{
    return live->stats.put_count == 10;
}

static bool
has_a_lease(const struct kvt_live *live)
{
    return live->lease_count == 1;
}

static bool
has_no_lease(const struct kvt_live *live)
{
    return live->lease_count == 0;
}

static bool
has_a_lookup(const struct kvt_live *live)
{
    return live->stats.lookup_count > 0;
}

static void
an_open_store_shows_who_has_it_and_with_which_options(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct stat facts;

    wait_until(fixture, is_shown);
    assert_int_equal(kvt_options_get(fixture->store, &options), KVT_OK);
    assert_int_equal(fixture->live.pid, getpid());
    assert_true(fixture->live.program[0] != '\0');
    assert_string_equal(fixture->live.version, kvt_version());
    assert_int_equal(fixture->live.is_stale, 0);
    assert_int_equal(fixture->live.options.segment_bytes, options.segment_bytes);
    assert_int_equal(fixture->live.options.host_capacity_bytes, options.host_capacity_bytes);
    assert_null(fixture->live.options.roots);
    assert_int_equal(stat(fixture->file, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
}

static void
what_was_done_is_shown_soon(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(kit_put(fixture->store, fixture->ns, i, 1, 5000, KVT_SYNC), KVT_OK);
    wait_until(fixture, has_ten_puts);
    assert_int_equal(kvt_stats_get(fixture->store, &stats), KVT_OK);
    assert_int_equal(fixture->live.stats.put_bytes, stats.put_bytes);
    assert_int_equal(fixture->live.stats.entry_count_now, 10);
    assert_int_equal(fixture->live.stats.put_visible_ns.count, 10);
    assert_int_equal(fixture->live.stats.host_capacity_bytes_now, stats.host_capacity_bytes_now);
    assert_int_equal(fixture->live.stats.index_map_bytes_now, stats.index_map_bytes_now);
}

/* Lookups never reach the loop. */
static void
a_lookup_is_shown_although_nothing_else_is_done(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key name;

    wait_until(fixture, is_shown);
    payload_key_make(&name, 1);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &name.key, 1, NULL, NULL, NULL), KVT_OK);
    wait_until(fixture, has_a_lookup);
}

static void
a_lease_is_shown_until_it_is_released(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key names[2];
    struct kvt_key keys[2];
    kvt_lease lease;

    for (uint32_t i = 0; i < 2; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
    /* The first is not there. */
    assert_int_equal(kit_put(fixture->store, fixture->ns, 1, 1, 5000, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_lookup(fixture->store, fixture->ns, keys, 2, NULL, NULL, &lease), KVT_OK);
    wait_until(fixture, has_a_lease);
    assert_int_equal(fixture->live.lease_seen_count, 1);
    assert_int_equal(fixture->live.lease_shown_count, 1);
    assert_int_equal(fixture->live.leased_host_bytes, 5000);
    assert_int_equal(fixture->live.leased_nvme_bytes, 5000);
    assert_int_equal(fixture->live.leases[0].block_count, 1);
    assert_int_equal(fixture->live.leases[0].key_length, keys[1].length);
    assert_memory_equal(
        fixture->live.leases[0].key, keys[1].bytes, keys[1].length < 32 ? keys[1].length : 32);
    assert_string_equal(fixture->live.leases[0].namespace_name, "live");
    assert_true(fixture->live.leases[0].age_ns <= fixture->live.lease_oldest_ns);
    kvt_lease_release(fixture->store, lease);
    wait_until(fixture, has_no_lease);
    assert_int_equal(fixture->live.lease_shown_count, 0);
    assert_int_equal(fixture->live.leased_host_bytes, 0);
}

static bool
has_seen_another_count(const struct kvt_live *live)
{
    return live->lease_count == 1 && live->lease_seen_count != 1;
}

static bool
has_seen_a_lease(const struct kvt_live *live)
{
    return live->lease_count == 1 && live->lease_shown_count == 1 &&
           live->leases[0].block_count == 1;
}

/* A store that may have many leases out, and takes all of them, on one block. */
static void
burst_take(struct fixture *fixture, kvt_lease *leases)
{
    struct payload_key name;

    payload_key_make(&name, 1);
    for (uint32_t i = 0; i < BURST; i++)
        assert_int_equal(
            kvt_lookup(fixture->store, fixture->ns, &name.key, 1, NULL, NULL, &leases[i]), KVT_OK);
}

static void
burst_setup(struct fixture *fixture)
{
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    fixture->options.lease_count_max = BURST;
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(fixture->store, "live", "", 0, &fixture->ns), KVT_OK);
    assert_int_equal(kit_put(fixture->store, fixture->ns, 1, 1, 100, KVT_MEMORY), KVT_OK);
}

/* A burst took many; of these the last one is still out, and nothing else is done. A page walks so
 * many, the next ones go on until all were seen. */
static void
a_lease_behind_many_free_ones_is_shown_and_stays(void **state)
{
    static kvt_lease leases[BURST];
    struct fixture *fixture = *state;

    burst_setup(fixture);
    burst_take(fixture, leases);
    for (uint32_t i = 0; i < BURST - 1; i++)
        kvt_lease_release(fixture->store, leases[i]);
    wait_until(fixture, has_seen_another_count);
    wait_until(fixture, has_seen_a_lease);
    usleep(500000); /* Pages would come meanwhile. */
    assert_int_equal(kvt_live_read(fixture->path, &fixture->live), KVT_OK);
    assert_true(has_seen_a_lease(&fixture->live));
    kvt_lease_release(fixture->store, leases[BURST - 1]);
}

static bool
has_all(const struct kvt_live *live)
{
    return live->lease_count == BURST;
}

static bool
has_nothing_of_leases(const struct kvt_live *live)
{
    return live->lease_count == 0 && live->lease_seen_count == 0 && live->lease_shown_count == 0 &&
           live->leased_host_bytes == 0;
}

/* They go while pages walk over them. */
static void
leases_that_were_released_are_not_shown_for_long(void **state)
{
    static kvt_lease leases[BURST];
    struct fixture *fixture = *state;

    burst_setup(fixture);
    for (uint32_t try = 0; try < 4; try++) {
        burst_take(fixture, leases);
        wait_until(fixture, has_all);
        usleep(40000 * try);
        for (uint32_t i = 0; i < BURST; i++)
            kvt_lease_release(fixture->store, leases[i]);
        wait_until(fixture, has_nothing_of_leases);
    }
}

static void
a_closed_store_shows_nothing(void **state)
{
    struct fixture *fixture = *state;

    wait_until(fixture, is_shown);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(access(fixture->file, F_OK), -1);
    assert_int_equal(kvt_live_read(fixture->path, &fixture->live), KVT_MISS);
    fixture->options.flags = KVT_OPEN_READ_ONLY;
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    assert_int_equal(access(fixture->file, F_OK), -1);
}

static void
what_a_killed_process_left_is_stale_and_replaced(void **state)
{
    struct fixture *fixture = *state;
    pid_t child;
    int outcome;

    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    fixture->store = NULL;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kvt_store *store;

        if (kvt_open(fixture->path, &fixture->options, &store) != KVT_OK)
            _exit(1);
        for (int i = 0; i < PATIENCE && kvt_live_read(fixture->path, &fixture->live) != KVT_OK; i++)
            usleep(10000);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_true(WIFSIGNALED(outcome));
    assert_int_equal(kvt_live_read(fixture->path, &fixture->live), KVT_OK);
    assert_int_equal(fixture->live.pid, child);
    assert_int_equal(fixture->live.is_stale, 1);
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    wait_until(fixture, is_shown);
    assert_int_equal(fixture->live.pid, getpid());
    assert_int_equal(fixture->live.is_stale, 0);
}

/* Whatever stands in the file's place: the store opens, works, and closes. */
static void
a_hostile_file_in_its_place_harms_nobody(void **state)
{
    struct fixture *fixture = *state;

    wait_until(fixture, is_shown);
    assert_int_equal(truncate(fixture->file, 0), 0);
    assert_int_equal(kit_put(fixture->store, fixture->ns, 1, 1, 5000, KVT_SYNC), KVT_OK);
    wait_until(fixture, is_shown);
    assert_int_equal(unlink(fixture->file), 0);
    assert_int_equal(kit_put(fixture->store, fixture->ns, 2, 1, 5000, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    /* A folder cannot be replaced: the store shows nothing. */
    assert_int_equal(mkdir(fixture->file, 0700), 0);
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    assert_true(kvt_live_read(fixture->path, &fixture->live) < 0);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(rmdir(fixture->file), 0);
    /* Nor does a pipe hold a reader up; the next open replaces it. */
    assert_int_equal(mkfifo(fixture->file, 0600), 0);
    assert_true(kvt_live_read(fixture->path, &fixture->live) < 0);
    assert_int_equal(kvt_open(fixture->path, &fixture->options, &fixture->store), KVT_OK);
    wait_until(fixture, is_shown);
}

/* --- The bytes -------------------------------------------------------------------------------- */

static void
page_make(uint8_t *page, size_t *size_out)
{
    struct kvt_live *live = calloc(1, sizeof(*live));

    assert_non_null(live);
    memset(live, 0x5A, sizeof(*live));
    live->struct_size = sizeof(*live);
    live->lease_count = KVT_LIVE_LEASES_MAX + 7;
    live->lease_shown_count = KVT_LIVE_LEASES_MAX;
    *size_out = live_page_write(page, live, UINT64_MAX);
    free(live);
}

static void
a_page_comes_back_as_it_was_written(void **state)
{
    static uint8_t page[LIVE_PAGE_BYTES_MAX];
    struct fixture *fixture = *state;
    struct kvt_live *live = &fixture->live;
    size_t size;

    page_make(page, &size);
    assert_int_equal(live_page_read(page, size, UINT64_MAX, live), KVT_OK);
    assert_int_equal(live->stats.lookup_count, UINT64_C(0x5A5A5A5A5A5A5A5A));
    assert_int_equal(live->stats.decode_ns.max_ns, UINT64_C(0x5A5A5A5A5A5A5A5A));
    assert_int_equal(live->options.reserved0, 0x5A5A5A5A);
    assert_int_equal(live->lease_count, KVT_LIVE_LEASES_MAX + 7);
    assert_int_equal(live->leases[KVT_LIVE_LEASES_MAX - 1].age_ns, UINT64_C(0x5A5A5A5A5A5A5A5A));
    assert_int_equal(live->program[sizeof(live->program) - 1], '\0');
    assert_int_equal(strlen(live->leases[0].namespace_name), 95);
    /* Bytes behind the page are no part of it: one that was longer may have stood there. */
    assert_int_equal(live_page_read(page, LIVE_PAGE_BYTES_MAX, UINT64_MAX, live), KVT_OK);
}

static void
a_page_that_differs_in_any_bit_is_refused(void **state)
{
    static uint8_t page[LIVE_PAGE_BYTES_MAX];
    struct fixture *fixture = *state;
    size_t size;

    page_make(page, &size);
    for (size_t i = 0; i < size; i += i < 400 ? 1 : 97) {
        page[i] ^= (uint8_t)(1u << (i % 8));
        assert_true(live_page_read(page, size, 0, &fixture->live) < 0);
        page[i] ^= (uint8_t)(1u << (i % 8));
    }
    assert_int_equal(live_page_read(page, size, 0, &fixture->live), KVT_OK);
}

static void
a_page_that_was_cut_is_refused(void **state)
{
    static uint8_t page[LIVE_PAGE_BYTES_MAX];
    struct fixture *fixture = *state;
    size_t size;

    page_make(page, &size);
    for (size_t cut = 0; cut < size; cut += cut < 400 ? 1 : 97)
        refused(live_page_read(page, cut, 0, &fixture->live), KVT_E_CORRUPT, "live");
}

/* A page of somebody who can make checksums. */
static void
a_page_with_a_good_checksum_and_bad_lists_is_refused(void **state)
{
    static const uint32_t counts[] = {0, 1, 257, 1000, 0x01FFFFFF, 0x80000000, 0xFFFFFFFF};
    static uint8_t page[LIVE_PAGE_BYTES_MAX];
    struct fixture *fixture = *state;
    size_t size;

    page_make(page, &size);
    for (uint32_t list = 0; list < 4; list++) {
        uint8_t *field = page + AT_LEASES - 4 * (size_t)list;
        uint32_t right = get_u32(field);

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            put_u32(field, counts[i]);
            put_u64(page + AT_CHECK, hash_payload(page + AT_SEQUENCE, size - AT_SEQUENCE).low);
            assert_true(live_page_read(page, size, 0, &fixture->live) < 0 || counts[i] == right);
        }
        put_u32(field, right);
    }
    put_u32(page + AT_SIZE, (uint32_t)size + 1);
    refused(live_page_read(page, size, 0, &fixture->live), KVT_E_CORRUPT, "file of");
}

/* --- Read while it is written ----------------------------------------------------------------- */

struct writer {
    const struct board_ops *ops;
    struct board *board;
    uint8_t pages[2][LIVE_PAGE_BYTES_MAX];
    size_t sizes[2];
    _Atomic bool is_over;
};

static void *
writer_run(void *context)
{
    struct writer *writer = context;

    for (uint32_t i = 0; !atomic_load_explicit(&writer->is_over, memory_order_relaxed); i ^= 1)
        writer->ops->write(writer->board, writer->pages[i], writer->sizes[i]);
    return NULL;
}

static void
a_reader_never_sees_half_of_a_page(void **state)
{
    struct fixture *fixture = *state;
    struct writer *writer = calloc(1, sizeof(*writer));
    struct kvt_live *live = &fixture->live;
    struct kvt_env env;
    struct fs_dir *dir;
    pthread_t thread;
    uint32_t good_count = 0;

    env_host(&env);
    assert_non_null(writer);
    writer->ops = env.board;
    for (uint32_t i = 0; i < 2; i++) {
        memset(live, i == 0 ? 0x11 : 0x22, sizeof(*live));
        live->lease_shown_count = KVT_LIVE_LEASES_MAX;
        writer->sizes[i] = live_page_write(writer->pages[i], live, UINT64_MAX);
    }
    assert_int_equal(env.fs->dir_open(NULL, fixture->dir, 0, &dir), KVT_OK);
    assert_int_equal(env.board->open(NULL, dir, LIVE_NAME, &writer->board), KVT_OK);
    assert_int_equal(pthread_create(&thread, NULL, writer_run, writer), 0);
    live->struct_size = sizeof(*live);
    for (uint32_t i = 0; i < 200; i++) {
        if (kvt_live_read(fixture->dir, live) != KVT_OK)
            continue;
        good_count++;
        assert_true(live->stats.lookup_count == UINT64_C(0x1111111111111111) ||
                    live->stats.lookup_count == UINT64_C(0x2222222222222222));
        assert_int_equal(live->stats.decode_ns.max_ns, live->stats.lookup_count);
        assert_int_equal(
            live->leases[KVT_LIVE_LEASES_MAX - 1].block_count, (uint32_t)live->stats.lookup_count);
        assert_int_equal(live->is_stale, 1);
    }
    atomic_store_explicit(&writer->is_over, true, memory_order_relaxed);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(good_count > 0);
    env.board->close(writer->board);
    env.fs->dir_close(dir);
    free(writer);
}

/* --- In a simulated world --------------------------------------------------------------------- */

static uint64_t
shown_life(bool shows, size_t *shown_size_out)
{
    struct sim_store sim;
    struct kvt_options options = kit_options();
    uint64_t trace;
    const void *page;

    sim_store_open_showing(&sim, &options, shows);
    for (uint64_t i = 0; i < 20; i++) {
        kvt_namespace ns;

        assert_int_equal(kvt_namespace_open(sim.store, "n", "", 0, &ns), KVT_OK);
        assert_true(kit_put(sim.store, ns, i, 1, 9000, KVT_SYNC) >= 0);
        sim_store_pass(&sim, 50 * 1000 * 1000);
    }
    page = sim_board(sim.world, shown_size_out);
    assert_true(shows == (page != NULL));
    trace = sim_trace_hash(sim.world);
    sim_store_close(&sim);
    return trace;
}

static void
a_simulated_store_shows_the_same_each_time(void **state)
{
    size_t size = 0;
    uint64_t trace = shown_life(true, &size);

    (void)state;
    assert_true(size > 320);
    assert_true(trace == shown_life(true, &size));
    (void)shown_life(false, &size);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            an_open_store_shows_who_has_it_and_with_which_options, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_done_is_shown_soon, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_lookup_is_shown_although_nothing_else_is_done, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lease_is_shown_until_it_is_released, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_lease_behind_many_free_ones_is_shown_and_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(
            leases_that_were_released_are_not_shown_for_long, setup, teardown),
        cmocka_unit_test_setup_teardown(a_closed_store_shows_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_a_killed_process_left_is_stale_and_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_hostile_file_in_its_place_harms_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(a_page_comes_back_as_it_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_page_that_differs_in_any_bit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_page_that_was_cut_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_page_with_a_good_checksum_and_bad_lists_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_never_sees_half_of_a_page, setup, teardown),
        cmocka_unit_test(a_simulated_store_shows_the_same_each_time),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
