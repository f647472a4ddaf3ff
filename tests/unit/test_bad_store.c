/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bad_store.c - stores whose files or directories are not as they should be: a status and a
 * sentence, never wrong bytes, never a crash, and what is still whole is kept.
 */
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "names_file.h"
#include "store_kit.h"

enum {
    BLOCKS = 20,
    NOBODY = 65534,
};

/* A store that was closed in order, and the copy of it that a test may damage. */
struct fixture {
    char dir[KIT_PATH_BYTES];
    char whole[KIT_PATH_BYTES + 16];
    char path[KIT_PATH_BYTES + 16];
};

static enum kvt_status
open_at(const char *path, uint32_t flags, kvt_store **store_out)
{
    struct kvt_options options = kit_options();

    options.flags = flags;
    *store_out = NULL;
    return kvt_open(path, &options, store_out);
}

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    kvt_store *store;
    kvt_namespace ns;

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->whole, sizeof(fixture->whole), "%s/whole", fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/damaged", fixture->dir);
    assert_int_equal(open_at(fixture->whole, 0, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t key = 0; key < BLOCKS; key++)
        assert_int_equal(kit_put(store, ns, key, 1, 3000 + key * 911, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

static void
fresh_copy(const struct fixture *fixture)
{
    kit_dir_remove(fixture->path);
    kit_dir_copy(fixture->whole, fixture->path);
}

/* Open, judge every block, put another one, close. Returns how many blocks are still there. */
static uint32_t
use_store(const char *path)
{
    kvt_store *store;
    kvt_namespace ns;
    uint64_t version = 0;
    uint32_t hits = 0;

    if (open_at(path, 0, &store) != KVT_OK) {
        struct kvt_error error;
        kvt_last_error(&error);
        fail_msg("the open gave %s: %s", kvt_status_name(error.status), error.text);
    }
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t key = 0; key < BLOCKS; key++) {
        enum kvt_status status = kit_get(store, ns, key, &version);
        assert_true(status == KVT_OK || status == KVT_MISS);
        hits += status == KVT_OK;
    }
    assert_int_equal(kit_put(store, ns, 100, 7, 20000, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_get(store, ns, 100, &version), KVT_OK);
    assert_int_equal(version, 7);
    assert_int_equal(kvt_close(store), KVT_OK);
    return hits;
}

static int
open_file(const struct fixture *fixture, const char *name)
{
    char path[KIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", fixture->path, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fail_msg("there is no %s", path);
    return fd;
}

static void
overwrite(const struct fixture *fixture, const char *name, off_t offset, size_t size)
{
    int fd = open_file(fixture, name);
    uint8_t *bytes = malloc(size);
    struct rng rng = {(uint64_t)offset + size};

    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
    assert_int_equal(pwrite(fd, bytes, size, offset), size);
    free(bytes);
    close(fd);
}

static void
cut(const struct fixture *fixture, const char *name, off_t size)
{
    int fd = open_file(fixture, name);

    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

static void
take_away(const struct fixture *fixture, const char *name)
{
    char path[KIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", fixture->path, name);
    assert_int_equal(unlink(path), 0);
}

/* --- Places that are no store ----------------------------------------------------------------- */

static void
a_place_that_is_no_store_is_refused(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;
    char path[KIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/file", fixture->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "text", 4), 4);
    close(fd);
    refused(open_at(path, 0, &store), KVT_E_INVAL, path);
    snprintf(path, sizeof(path), "%s/file/below", fixture->dir);
    refused(open_at(path, 0, &store), KVT_E_INVAL, path);
    refused(open_at(fixture->dir, 0, &store), KVT_E_INVAL, fixture->dir);
    snprintf(path, sizeof(path), "%s/gone/store", fixture->dir);
    refused(open_at(path, 0, &store), KVT_E_INVAL, path);
    snprintf(path, sizeof(path), "%s/empty", fixture->dir);
    refused(open_at(path, KVT_OPEN_EXISTING, &store), KVT_MISS, path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(open_at(path, KVT_OPEN_READ_ONLY, &store), KVT_MISS, path);
    assert_int_equal(open_at(path, 0, &store), KVT_OK); /* An empty directory may become one. */
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
a_link_in_place_of_a_file_is_not_followed(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;
    char from[KIT_PATH_BYTES + 64], to[KIT_PATH_BYTES + 64];

    fresh_copy(fixture);
    snprintf(from, sizeof(from), "%s/data/data.00", fixture->path);
    snprintf(to, sizeof(to), "%s/elsewhere", fixture->dir);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(symlink(to, from), 0);
    enum kvt_status status = open_at(fixture->path, 0, &store);
    assert_true(status < 0);
    struct kvt_error error;
    kvt_last_error(&error);
    assert_non_null(strstr(error.text, "data.00"));
}

/* --- STORE and NAMES -------------------------------------------------------------------------- */

static void
one_damaged_copy_of_store_or_names_is_enough_to_open(void **state)
{
    const char *const names[] = {"STORE.a", "STORE.b", "NAMES.a", "NAMES.b"};

    for (size_t i = 0; i < 4; i++) {
        fresh_copy(*state);
        overwrite(*state, names[i], 0, 40);
        assert_int_equal(use_store((*(struct fixture **)state)->path), BLOCKS);
        fresh_copy(*state);
        cut(*state, names[i], 7);
        assert_int_equal(use_store((*(struct fixture **)state)->path), BLOCKS);
    }
}

static void
a_store_without_a_good_store_file_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;

    fresh_copy(fixture);
    overwrite(fixture, "STORE.a", 100, 8);
    overwrite(fixture, "STORE.b", 4000, 8);
    refused(open_at(fixture->path, 0, &store), KVT_E_CORRUPT, "STORE");
    fresh_copy(fixture);
    cut(fixture, "STORE.a", 0);
    cut(fixture, "STORE.b", 100);
    refused(open_at(fixture->path, 0, &store), KVT_E_CORRUPT, "STORE");
    /* Over the index of before, namespaces of a new one would have the blocks of others. */
    fresh_copy(fixture);
    take_away(fixture, "STORE.a");
    take_away(fixture, "STORE.b");
    refused(open_at(fixture->path, 0, &store), KVT_E_CORRUPT, "STORE.b are missing");
    refused(open_at(fixture->path, KVT_OPEN_EXISTING, &store), KVT_E_CORRUPT, "missing");
    /* Nothing was made in its place: with its files back it is whole. */
    kit_dir_remove(fixture->path);
    kit_dir_copy(fixture->whole, fixture->path);
    assert_int_equal(use_store(fixture->path), BLOCKS);
}

static void
a_store_without_good_names_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;

    fresh_copy(fixture);
    overwrite(fixture, "NAMES.a", 9, 8);
    overwrite(fixture, "NAMES.b", 9, 8);
    refused(open_at(fixture->path, 0, &store), KVT_E_CORRUPT, "NAMES");
}

/* NAMES says something else, and both copies are intact. */
static void
names_change(const struct fixture *fixture, void (*change)(struct names_file *names))
{
    struct names_file names;
    struct kvt_env env;
    struct fs_dir *dir;
    uint8_t uuid[16];
    int fd = open_file(fixture, "NAMES.a");

    assert_int_equal(pread(fd, uuid, sizeof(uuid), 16), sizeof(uuid));
    close(fd);
    env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, fixture->path, 0, &dir), KVT_OK);
    names_init(&names, &env, uuid);
    assert_int_equal(names_read(&names, dir), KVT_OK);
    change(&names);
    assert_int_equal(names_write(&names, dir), KVT_OK);
    names_deinit(&names);
    env.fs->dir_close(dir);
}

static void
last_id_give(struct names_file *names)
{
    struct name_entry *entry;

    assert_int_equal(names_add(names, "last", NULL, 0, &entry), KVT_OK);
    entry->id = NAMES_COUNT_MAX;
}

static void
last_name_drop(struct names_file *names)
{
    names->count--;
}

static void
a_gap_in_the_ids_of_names_costs_no_namespace(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;
    kvt_namespace ns;

    fresh_copy(fixture);
    names_change(fixture, last_id_give);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(open_at(fixture->path, 0, &store), KVT_OK);
        assert_int_equal(kvt_namespace_open(store, "last", NULL, 0, &ns), KVT_OK);
        assert_int_equal(ns.id, NAMES_COUNT_MAX);
        assert_int_equal(kit_put(store, ns, i, 1, 3000, KVT_SYNC), KVT_OK);
        refused(kvt_namespace_open(store, "new", NULL, 0, &ns), KVT_E_NOSPC, "4096");
        assert_int_equal(kvt_close(store), KVT_OK);
    }
    assert_int_equal(use_store(fixture->path), BLOCKS);
}

/* Its blocks are in the index, and would be the next namespace's. */
static void
the_id_of_a_lost_name_is_not_given_to_another(void **state)
{
    struct fixture *fixture = *state;
    kvt_namespace lost, ns;
    kvt_store *store;
    uint64_t version;

    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rebuild = i == 0 ? 0 : KVT_OPEN_REBUILD;

        fresh_copy(fixture);
        assert_int_equal(open_at(fixture->path, 0, &store), KVT_OK);
        assert_int_equal(kvt_namespace_open(store, "lost", NULL, 0, &lost), KVT_OK);
        assert_int_equal(kit_put(store, lost, 500, 3, 3000, KVT_SYNC), KVT_OK);
        assert_int_equal(kvt_close(store), KVT_OK);
        names_change(fixture, last_name_drop);
        assert_int_equal(open_at(fixture->path, rebuild, &store), KVT_OK);
        assert_int_equal(kvt_namespace_open(store, "new", NULL, 0, &ns), KVT_OK);
        assert_int_not_equal(ns.id, lost.id);
        assert_int_equal(kvt_close(store), KVT_OK);
        assert_int_equal(open_at(fixture->path, rebuild, &store), KVT_OK);
        assert_int_equal(kvt_namespace_open(store, "new", NULL, 0, &ns), KVT_OK);
        assert_int_equal(kit_get(store, ns, 500, &version), KVT_MISS);
        assert_int_equal(kvt_close(store), KVT_OK);
        assert_int_equal(use_store(fixture->path), BLOCKS);
    }
}

/* --- The index and the data ------------------------------------------------------------------- */

static void
a_damaged_index_is_rebuilt_without_a_loss(void **state)
{
    struct fixture *fixture = *state;
    const off_t sizes[] = {0, 1, 4096, 8192, 20000, 100000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        fresh_copy(fixture);
        cut(fixture, "meta/data.mdb", sizes[i]);
        assert_int_equal(use_store(fixture->path), BLOCKS);
    }
    fresh_copy(fixture);
    overwrite(fixture, "meta/data.mdb", 0, 200000);
    assert_int_equal(use_store(fixture->path), BLOCKS);
    fresh_copy(fixture);
    overwrite(fixture, "meta/data.mdb", 0, 8192);
    assert_int_equal(use_store(fixture->path), BLOCKS);
    fresh_copy(fixture);
    take_away(fixture, "meta/data.mdb");
    assert_int_equal(use_store(fixture->path), BLOCKS);
}

static void
damaged_data_is_a_miss_and_never_wrong(void **state)
{
    struct fixture *fixture = *state;

    fresh_copy(fixture);
    overwrite(fixture, "data/data.00", 0, 1 << 20);
    assert_int_equal(use_store(fixture->path), 0);
    fresh_copy(fixture);
    overwrite(fixture, "data/data.00", 5000, 1);
    assert_true(use_store(fixture->path) >= BLOCKS - 1);
    fresh_copy(fixture);
    cut(fixture, "data/data.00", 30000);
    assert_true(use_store(fixture->path) < BLOCKS);
    fresh_copy(fixture);
    cut(fixture, "data/data.00", 0);
    assert_int_equal(use_store(fixture->path), 0);
}

/* Its disk may be away: with a new one in its place that one's blocks would be given up. */
static void
a_data_file_that_is_missing_is_asked_for(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_error error;
    kvt_store *store = NULL;

    fresh_copy(fixture);
    take_away(fixture, "data/data.00");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_at(fixture->path, 0, &store), KVT_E_IO);
        kvt_last_error(&error);
        assert_non_null(strstr(error.text, "data/data.00 is missing"));
    }
    refused(open_at(fixture->path, KVT_OPEN_READ_ONLY, &store), KVT_E_IO,
        "data/data.00 is missing: is its disk mounted?");
    assert_int_equal(open_at(fixture->path, KVT_OPEN_REBUILD, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(use_store(fixture->path), 0);
    /* Without an index it may be a store that is being made: a crash came between. */
    fresh_copy(fixture);
    take_away(fixture, "data/data.00");
    take_away(fixture, "meta/data.mdb");
    assert_int_equal(use_store(fixture->path), 0);
}

static void
finding_note(void *context, const struct kvt_finding *finding)
{
    char *kinds = context;

    if (strstr(kinds, finding->kind) == NULL)
        (void)snprintf(kinds + strlen(kinds), 64 - strlen(kinds), "%s ", finding->kind);
}

static void
a_check_of_a_store_without_its_data_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_check_report report = {0};
    char kinds[64] = "";
    const struct kvt_examiner examiner = {.found = finding_note, .context = kinds};

    fresh_copy(fixture);
    take_away(fixture, "data/data.00");
    assert_int_equal(kvt_check(fixture->path, &examiner, &report), KVT_OK);
    assert_non_null(strstr(kinds, "file"));
    assert_int_equal(report.damaged_count, BLOCKS);
}

/* --- The operating system says no ------------------------------------------------------------- */

/* Runs in a child as user nobody; its exit code is 0 when the open was refused as it should be. */
static int
open_as_nobody(const char *path, enum kvt_status wanted)
{
    pid_t child = fork();
    int result = -1;

    if (child == 0) {
        kvt_store *store;
        struct kvt_error error;
        if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(2);
        enum kvt_status status = open_at(path, 0, &store);
        kvt_last_error(&error);
        if (status != wanted || strstr(error.text, path) == NULL)
            fprintf(stderr, "as nobody: %s: %s\n", kvt_status_name(status), error.text);
        _exit(status == wanted && strstr(error.text, path) != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    return result;
}

static void
a_store_of_somebody_else_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char path[KIT_PATH_BYTES + 64];

    if (geteuid() != 0) {
        print_message("[  SKIPPED ] only root can become somebody else\n");
        skip();
    }
    assert_int_equal(chmod(fixture->dir, 0755), 0);
    assert_int_equal(open_as_nobody(fixture->whole, KVT_E_PERMISSION), 0);
    snprintf(path, sizeof(path), "%s/not-allowed", fixture->dir);
    assert_int_equal(open_as_nobody(path, KVT_E_PERMISSION), 0);
    assert_int_equal(use_store(fixture->whole), BLOCKS);
}

static void
a_full_disk_refuses_a_new_store_and_leaves_an_old_one_alone(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_options options = kit_options();
    char disk[KIT_PATH_BYTES + 64], path[KIT_PATH_BYTES + 128], filler[KIT_PATH_BYTES + 128];
    kvt_store *store = NULL;

    snprintf(disk, sizeof(disk), "%s/disk", fixture->dir);
    assert_int_equal(mkdir(disk, 0700), 0);
    if (geteuid() != 0 || mount("tmpfs", disk, "tmpfs", 0, "size=16m") != 0) {
        print_message("[  SKIPPED ] a small file system needs a mount, and that is denied\n");
        skip();
    }
    options.nvme_capacity_bytes = 64 << 20;
    snprintf(path, sizeof(path), "%s/large", disk);
    refused(kvt_open(path, &options, &store), KVT_E_NOSPC, path);
    kit_dir_remove(path);
    snprintf(path, sizeof(path), "%s/small", disk);
    kit_dir_copy(fixture->whole, path);
    snprintf(filler, sizeof(filler), "%s/filler", disk);
    int fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    static const uint8_t zeros[65536];
    while (write(fd, zeros, sizeof(zeros)) > 0)
        continue;
    close(fd);
    /* All files have their full size: the store works on a full disk. */
    assert_int_equal(use_store(path), BLOCKS);
    assert_int_equal(umount(disk), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_that_is_no_store_is_refused),
        cmocka_unit_test(a_link_in_place_of_a_file_is_not_followed),
        cmocka_unit_test(one_damaged_copy_of_store_or_names_is_enough_to_open),
        cmocka_unit_test(a_store_without_a_good_store_file_is_refused_by_name),
        cmocka_unit_test(a_store_without_good_names_is_refused_by_name),
        cmocka_unit_test(a_gap_in_the_ids_of_names_costs_no_namespace),
        cmocka_unit_test(the_id_of_a_lost_name_is_not_given_to_another),
        cmocka_unit_test(a_damaged_index_is_rebuilt_without_a_loss),
        cmocka_unit_test(damaged_data_is_a_miss_and_never_wrong),
        cmocka_unit_test(a_data_file_that_is_missing_is_asked_for),
        cmocka_unit_test(a_check_of_a_store_without_its_data_says_so),
        cmocka_unit_test(a_store_of_somebody_else_is_refused),
        cmocka_unit_test(a_full_disk_refuses_a_new_store_and_leaves_an_old_one_alone),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
