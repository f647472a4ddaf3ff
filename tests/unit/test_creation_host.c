/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_creation_host.c - an open that was to make a store on this machine's file system, and could
 * not, leaves nothing that the next one must agree with. (test_creation.c: wherever it fails.) And
 * what the sentences of its failures are of.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "call_refuse.h"
#include "kvtier/kvtier_unstable.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

static struct {
    const struct memory_ops *memory; /* Of this machine. */
} real;

static bool
is_there(const char *dir, const char *name)
{
    char path[KIT_PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static bool
has_a_store(const char *dir)
{
    static const char *const names[] = {"store/STORE.a", "store/STORE.b", "store/NAMES.a",
        "store/NAMES.b", "store/meta/data.mdb", "store/meta/data.mdb.new", "store/data/data.00",
        "store/data/data.00.new"};
    bool is_one = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        is_one = is_one || is_there(dir, names[i]);
    return is_one;
}

static void *
map_little(void *context, size_t size)
{
    return size > 4 * MIB ? NULL : real.memory->map(context, size);
}

static enum kvt_status
space_little(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    (void)dir;
    *free_bytes_out = 16 * MIB;
    return KVT_OK;
}

/* More of HOST, or of the disk, than there is; a device that is not there. */
static void
options_ask_too_much(int what, struct kvt_options *options)
{
    options->segment_bytes = 4 * MIB;
    options->nvme_capacity_bytes = 64 * MIB;
    if (what == 0)
        options->host_capacity_bytes = 64 * MIB;
    if (what == 2)
        return;
    options->hbm_capacity_bytes = 64 * MIB;
    options->device_kind = KVT_DEVICE_EMULATION;
    options->device_mask = 1u << 7;
}

/* The first open asked for too much; the second one is not held to its sizes. */
static void
an_open_that_asked_for_too_much_can_be_made_again_with_less(void **state)
{
    static const enum kvt_status wanted[] = {KVT_E_NOMEM, KVT_E_UNSUPPORTED, KVT_E_NOSPC};
    struct kvt_options good = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16];
    struct kvt_env env;
    struct memory_ops memory;
    struct fs_ops fs;
    kvt_store *store = NULL;

    (void)state;
    env_host(&env);
    real.memory = env.memory;
    memory = *env.memory;
    memory.map = map_little;
    env.memory = &memory;
    fs = *env.fs;
    fs.dir_space = space_little;
    env.fs = &fs;
    kit_dir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    for (int i = 0; i < 3; i++) {
        struct kvt_options options = good;

        options_ask_too_much(i, &options);
        assert_int_equal(kvt_open_env(path, &options, &env, &store), wanted[i]);
        assert_null(store);
        assert_false(has_a_store(dir));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvt_open(path, &good, &store), KVT_OK);
        kit_works(store);
    }
    kit_dir_remove(dir);
}

/* An index tells that a store was there: an empty folder for it does not. */
static void
a_store_that_lost_all_but_its_index_is_not_made_anew(void **state)
{
    struct kvt_options options = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16], name[KIT_PATH_BYTES + 32];
    kvt_store *store = NULL;

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    kit_dir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    for (char copy = 'a'; copy <= 'b'; copy++) {
        (void)snprintf(name, sizeof(name), "%s/STORE.%c", path, copy);
        assert_int_equal(unlink(name), 0);
    }
    refused(kvt_open(path, &options, &store), KVT_E_CORRUPT, "more of a store is there");
    (void)snprintf(name, sizeof(name), "%s/meta/data.mdb", path);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

/* Of what a new store has not yet. */
static void
an_open_that_is_well_leaves_no_failure(void **state)
{
    struct kvt_options options = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16];
    struct kvt_error error;
    kvt_store *store = NULL;

    (void)state;
    kit_dir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/store", dir);
    failure_clear();
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    kvt_last_error(&error);
    assert_int_equal(error.status, KVT_OK);
    assert_string_equal(error.text, "");
    refused(kvt_flush(NULL), KVT_E_INVAL, "store is NULL");
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    kvt_last_error(&error);
    assert_string_equal(error.text, "store is NULL"); /* Still the last failure. */
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

/* In a child: a filter stays for the life of a process. 2: this system has none. */
static int
sync_parent_of_a_bad_disk(const struct kvt_env *env, struct fs_dir *dir)
{
    if (!call_refuse(SYS_fsync, EIO))
        return 2;
    if (env->fs->dir_sync_parent(dir) != KVT_E_IO ||
        strstr(failure_last()->text, "the parent of /") == NULL)
        return 1;
    return env->fs->dir_sync(dir) == KVT_E_IO &&
                   strstr(failure_last()->text, "Cannot sync /") != NULL
               ? 0
               : 1;
}

static void
a_folder_is_not_blamed_for_its_parent(void **state)
{
    char path[KIT_PATH_BYTES];
    struct kvt_env env;
    struct fs_dir *dir;
    int result;
    pid_t child;

    (void)state;
    env_host(&env);
    kit_dir_make(path);
    assert_int_equal(env.fs->dir_open(env.fs_context, path, 0, &dir), KVT_OK);
    child = fork();
    if (child == 0)
        _exit(sync_parent_of_a_bad_disk(&env, dir));
    assert_int_equal(waitpid(child, &result, 0), child);
    env.fs->dir_close(dir);
    kit_dir_remove(path);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 2) {
        print_message("[  SKIPPED ] this system has no seccomp filters\n");
        skip();
    }
    assert_int_equal(result, 0);
}

/* --- What others leave ------------------------------------------------------------------------ */

/* A file that was there under the temporary name may be anybody's, and open to anybody. */
static void
a_data_file_is_none_that_was_there(void **state)
{
    const struct kvt_options options = kit_options();
    char dir[KIT_PATH_BYTES], text[KIT_PATH_BYTES + 64];
    struct stat planted, made;
    kvt_store *store;
    int descriptor;

    (void)state;
    kit_dir_make(dir);
    (void)snprintf(text, sizeof(text), "%s/data", dir);
    assert_int_equal(mkdir(text, 0755), 0);
    (void)snprintf(text, sizeof(text), "%s/data/data.00.new", dir);
    descriptor = open(text, O_CREAT | O_RDWR, 0600);
    assert_true(descriptor >= 0);
    assert_int_equal(fchmod(descriptor, 0666), 0);
    assert_int_equal(fstat(descriptor, &planted), 0);
    assert_int_equal(kvt_open(dir, &options, &store), KVT_OK);
    (void)snprintf(text, sizeof(text), "%s/data/data.00", dir);
    assert_int_equal(stat(text, &made), 0);
    assert_true(made.st_ino != planted.st_ino);
    assert_int_equal(made.st_mode & 0777, 0600);
    close(descriptor);
    kit_works(store);
    kit_dir_remove(dir);
}

/* What is no file goes as what a crash left does. */
static void
a_data_file_is_made_in_the_place_of_what_is_none(void **state)
{
    static const mode_t kinds[] = {S_IFSOCK, S_IFIFO, S_IFLNK};
    const struct kvt_options options = kit_options();
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 64];
    kvt_store *store;

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        kit_dir_make(dir);
        (void)snprintf(path, sizeof(path), "%s/data", dir);
        assert_int_equal(mkdir(path, 0755), 0);
        (void)snprintf(path, sizeof(path), "%s/data/data.00.new", dir);
        if (kinds[i] == S_IFLNK)
            assert_int_equal(symlink("elsewhere", path), 0);
        else
            assert_int_equal(mknod(path, kinds[i] | 0600, 0), 0);
        assert_int_equal(kvt_open(dir, &options, &store), KVT_OK);
        assert_false(is_there(dir, "data/data.00.new"));
        assert_false(is_there(dir, "data/elsewhere"));
        kit_works(store);
        kit_dir_remove(dir);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_that_asked_for_too_much_can_be_made_again_with_less),
        cmocka_unit_test(a_store_that_lost_all_but_its_index_is_not_made_anew),
        cmocka_unit_test(an_open_that_is_well_leaves_no_failure),
        cmocka_unit_test(a_folder_is_not_blamed_for_its_parent),
        cmocka_unit_test(a_data_file_is_none_that_was_there),
        cmocka_unit_test(a_data_file_is_made_in_the_place_of_what_is_none),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
