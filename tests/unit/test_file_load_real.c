/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_load_real.c - files of this machine to memory of an emulated device: by both io
 * engines, by links, and by several threads at once.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "load_rig.h"
#include "scratch_dir.h"

enum {
    CHUNK = 256 << 10,
    FILE_BYTES = 3 * CHUNK + 4567,
    THREADS = 3,
    ROUNDS = 6,
    USER_NOBODY = 65534,
};

static struct scratch_dir scratch;
static char path[256];

static int
setup(void **state)
{
    uint8_t *bytes = malloc(FILE_BYTES);

    assert_non_null(bytes);
    load_rig_bytes(bytes, 0, FILE_BYTES);
    scratch_dir_make(&scratch);
    scratch_write(&scratch, "weights", bytes, FILE_BYTES);
    free(bytes);
    snprintf(path, sizeof(path), "%s", scratch_path(&scratch, "weights"));
    return hbm_setup(state);
}

static int
teardown(void **state)
{
    int outcome = hbm_teardown(state);

    scratch_dir_remove(&scratch);
    return outcome;
}

static void
load_whole(const char *from, uint64_t offset)
{
    struct kvt_file_load_options options = load_rig_options(offset, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    assert_int_equal(kvt_file_load(hbm.store, from, &options, &load), KVT_OK);
    load_rig_check(hbm.store, load, &options, FILE_BYTES - offset);
    assert_int_equal(kvt_load_close(hbm.store, load), KVT_OK);
}

static void
both_io_engines_bring_the_same(void **state)
{
    (void)state;
    for (uint32_t engine = KVT_IO_AUTO; engine <= KVT_IO_THREADS; engine += KVT_IO_THREADS) {
        hbm_close();
        hbm.options.io_engine = engine;
        hbm_open_again();
        load_whole(path, 0);
        load_whole(path, 12345);
    }
}

/* As in the cache of a hub, where snapshots are links to blobs. */
static void
links_are_followed(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    char link[256];
    kvt_load load;

    (void)state;
    snprintf(link, sizeof(link), "%s", scratch_path(&scratch, "link"));
    assert_int_equal(symlink("weights", link), 0);
    load_whole(link, 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("nowhere", link), 0);
    refused(kvt_file_load(hbm.store, link, &options, &load), KVT_MISS, "link");
    refused(kvt_file_load(hbm.store, "/dev/null", &options, &load), KVT_E_INVAL, "regular file");
}

/* A folder that one may pass and not list, by the right of others and by that of its owner. */
static void
a_file_in_a_folder_that_cannot_be_listed_is_loaded(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    enum kvt_status status;
    uid_t user = geteuid();
    kvt_load load = {0};
    int descriptor;

    (void)state;
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chmod(scratch.path, 0311), 0);
    if (user == 0) /* Who may do everything else. */
        assert_int_equal(seteuid(USER_NOBODY), 0);
    descriptor = open(scratch.path, O_RDONLY | O_DIRECTORY);
    status = kvt_file_load(hbm.store, path, &options, &load);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(scratch.path, 0700), 0);
    assert_int_equal(descriptor, -1);
    assert_int_equal(status, KVT_OK);
    load_rig_check(hbm.store, load, &options, FILE_BYTES);
    assert_int_equal(kvt_load_close(hbm.store, load), KVT_OK);
}

/* Loads that are whole, cancelled, or closed at once. Nothing in a thread may fail a test. */
static void *
loader_run(void *context)
{
    struct kvt_file_load_options options = load_rig_options(77, KVT_LOAD_TO_END, CHUNK);
    uint32_t *failures = context;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        enum kvt_status wanted = KVT_OK, status;
        kvt_load load;

        options.capacity = round % 3 == 2 ? CHUNK : 0;
        if (kvt_file_load(hbm.store, path, &options, &load) != KVT_OK)
            ++*failures;
        if (round % 3 == 1)
            *failures += kvt_load_cancel(hbm.store, load) != KVT_OK;
        for (uint32_t i = 0; i < 4 && round % 4 != 3; i++) {
            status = kvt_load_wait(hbm.store, load, i, KVT_FOREVER, NULL);
            if (round % 3 == 1 && status == KVT_CANCELLED)
                wanted = KVT_CANCELLED;
            *failures += status != wanted;
            *failures += kvt_load_release(hbm.store, load, &i, 1) != KVT_OK;
        }
        *failures += kvt_load_close(hbm.store, load) != KVT_OK;
    }
    return NULL;
}

static void
threads_load_at_once(void **state)
{
    uint32_t failures[THREADS] = {0};
    pthread_t threads[THREADS];
    uint64_t version = 0;

    (void)state;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, loader_run, &failures[i]), 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(kit_put(hbm.store, hbm.ns, i, 1, 30000, KVT_SYNC), KVT_OK);
        assert_int_equal(kit_get(hbm.store, hbm.ns, i, &version), KVT_OK);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(failures[i], 0);
    }
    load_whole(path, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_io_engines_bring_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_file_in_a_folder_that_cannot_be_listed_is_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_load_at_once, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
