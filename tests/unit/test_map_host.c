/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_host.c - pages of a map that cannot be touched are an error, not a signal.
 *
 * Behind the end of its file a map is what it is where the disk cannot read: a SIGBUS.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    PAGES = 200,
    FILE_PAGES = 150,
};

static struct kvt_env env;
static struct scratch_dir scratch;
static struct fs_dir *dir;
static struct fs_file *file;
static uint64_t page_bytes;
static uint8_t *map;

static int
map_make(void **state)
{
    void *made;

    (void)state;
    env_host(&env);
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    scratch_dir_make(&scratch);
    assert_int_equal(env.fs->dir_open(NULL, scratch.path, 0, &dir), KVT_OK);
    assert_int_equal(env.fs->open(dir, "file", FS_CREATE, &file), KVT_OK);
    assert_int_equal(env.fs->truncate(file, PAGES * page_bytes), KVT_OK);
    assert_int_equal(env.fs->map(file, PAGES * page_bytes, &made), KVT_OK);
    map = made;
    assert_int_equal(env.fs->map_prove(file, map, 0, PAGES * page_bytes), KVT_OK);
    assert_int_equal(env.fs->truncate(file, FILE_PAGES * page_bytes), KVT_OK);
    return 0;
}

static int
map_end(void **state)
{
    (void)state;
    env.fs->unmap(map, PAGES * page_bytes);
    env.fs->unmap(NULL, 0);
    env.fs->close(file);
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}

static enum kvt_status
prove(uint64_t page, uint64_t count)
{
    return env.fs->map_prove(file, map, page * page_bytes, count * page_bytes);
}

static void
pages_that_cannot_be_touched_are_an_error(void **state)
{
    (void)state;
    assert_int_equal(prove(0, FILE_PAGES), KVT_OK);
    assert_int_equal(env.fs->map_prove(file, map, page_bytes + 512, page_bytes / 2), KVT_OK);
    assert_int_equal(prove(FILE_PAGES - 1, 2), KVT_E_IO);
    assert_int_equal(prove(PAGES - 1, 1), KVT_E_IO);
    assert_int_equal(failure_last()->foreign_code, EIO);
    assert_non_null(strstr(failure_last()->text, "A map cannot read"));
    assert_non_null(strstr(failure_last()->text, "/file: "));
}

static void
an_old_kernel_is_asked_in_another_way(void **state)
{
    (void)state;
    assert_int_equal(map_host_peek(map, FILE_PAGES * page_bytes), 0);
    assert_int_equal(map_host_peek(map, FILE_PAGES * page_bytes + 1), EFAULT);
    assert_int_equal(map_host_peek(map + 140 * page_bytes, 20 * page_bytes), EFAULT);
    assert_int_equal(map_host_peek(map + (PAGES - 1) * page_bytes, page_bytes), EFAULT);
}

static void
a_map_that_there_is_no_room_for_is_none(void **state)
{
    void *none = map;

    (void)state;
    assert_int_equal(env.fs->map(file, (uint64_t)1 << 60, &none), KVT_E_NOMEM);
    assert_null(none);
    assert_non_null(strstr(failure_last()->text, "No address space for a map of 1152921504606"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            pages_that_cannot_be_touched_are_an_error, map_make, map_end),
        cmocka_unit_test_setup_teardown(an_old_kernel_is_asked_in_another_way, map_make, map_end),
        cmocka_unit_test_setup_teardown(a_map_that_there_is_no_room_for_is_none, map_make, map_end),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
