/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_open_refused.c - what keeps a store from being opened: each cause has its status and its
 * sentence, leaves no handle, and does no harm to what is there.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 20000,
    DESCRIPTORS_MAX = 80, /* More than an open and all its threads take. */
};

/* --- 1. In a simulated world ------------------------------------------------------------------ */

static struct sim_store sim;

/* A closed store with one block. */
static void
sim_begin(const struct kvt_options *options)
{
    kvt_namespace ns;

    sim_store_open(&sim, options);
    assert_int_equal(kvt_namespace_open(sim.store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(sim.store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
}

static void
sim_open_is_refused(enum kvt_status wanted, const char *word)
{
    char leaks[200];

    sim.store = (kvt_store *)(uintptr_t)1;
    refused(store_open_in(&sim.store_world, "/store", &sim.options, &sim.store), wanted, word);
    assert_null(sim.store);
    if (sim_leaks(sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("the open left behind: %s", leaks);
}

/* With nothing in its way any more the store is as it was. */
static void
sim_end(void)
{
    kvt_namespace ns;
    uint64_t version;

    sim_rules_clear(sim.world);
    sim_memory_fail(sim.world, 0, false);
    sim.device.fail_call = 0;
    sim_store_reopen(&sim);
    assert_int_equal(kvt_namespace_open(sim.store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(sim.store, ns, 1, &version), KVT_OK);
    sim_store_close(&sim);
}

static void
a_data_file_that_cannot_grow_is_named_and_let_go(void **state)
{
    static const struct sim_rule rule = {.ops = SIM_ALLOCATE, .effect = SIM_EIO, .nth = 1};
    const struct kvt_options options = kit_options();

    (void)state;
    sim_begin(&options);
    sim.options.nvme_capacity_bytes = 2 * options.nvme_capacity_bytes;
    sim_rule_add(sim.world, &rule);
    sim_open_is_refused(KVT_E_IO, "data.00");
    sim_end();
}

static void
files_that_fail_are_named(void **state)
{
    static const struct {
        struct sim_rule rule;
        enum kvt_status wanted;
        const char *word;
    } cases[] = {
        {{.ops = SIM_WRITE, .effect = SIM_EIO, .file = "STORE", .nth = 1, .sticky = true}, KVT_E_IO,
            "STORE"},
        {{.ops = SIM_SYNC, .effect = SIM_EIO, .file = "STORE", .nth = 1, .sticky = true}, KVT_E_IO,
            "STORE"},
        {{.ops = SIM_OPEN, .effect = SIM_EIO, .file = "data", .nth = 1, .sticky = true}, KVT_E_IO,
            "data"},
        {{.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true}, KVT_E_META, "index"},
    };
    struct kvt_options options = kit_options();

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_begin(&options);
        sim_rule_add(sim.world, &cases[i].rule);
        sim_open_is_refused(cases[i].wanted, cases[i].word);
        sim_end();
    }
}

static void
a_device_that_fails_or_is_not_there_is_named(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 1 << 20;
    sim_begin(&options);
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    sim.device.fail_status = KVT_E_GPU;
    sim_open_is_refused(KVT_E_GPU, "device");
    sim.device.fail_call = 0;
    sim.options.device_mask = 1u << 5;
    sim_open_is_refused(KVT_E_UNSUPPORTED, "device");
    sim.options.device_mask = 0;
    sim_end();
}

static void
an_open_without_memory_says_so(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_begin(&options);
    sim_memory_fail(sim.world, 1, true);
    sim_open_is_refused(KVT_E_NOMEM, "memory");
    sim_memory_fail(sim.world, 12, true);
    sim_open_is_refused(KVT_E_NOMEM, "memory");
    sim_end();
}

/* --- 2. On this machine ----------------------------------------------------------------------- */

static struct {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    struct kvt_env env;
    struct fs_ops fs; /* The machine's, but for what follows. */
    enum kvt_status (*open)(
        struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out);
    bool is_read_only; /* The file system. */
} real;

static enum kvt_status
open_on_read_only(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if (real.is_read_only && (flags & FS_READ_ONLY) == 0)
        return failure_errno(EROFS, "open", name);
    return real.open(dir, name, flags, file_out);
}

static kvt_store *
real_open(void)
{
    kvt_store *store;

    assert_int_equal(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_OK);
    return store;
}

static int
setup(void **state)
{
    kvt_namespace ns;
    kvt_store *store;

    (void)state;
    kit_dir_make(real.dir);
    (void)snprintf(real.path, sizeof(real.path), "%s/store", real.dir);
    real.options = kit_options();
    kvt_env_host(&real.env);
    real.fs = *real.env.fs;
    real.open = real.fs.open;
    real.fs.open = open_on_read_only;
    real.env.fs = &real.fs;
    real.is_read_only = false;
    store = real_open();
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kit_dir_remove(real.dir);
    return 0;
}

static void
real_is_whole(void)
{
    kvt_store *store = real_open();
    kvt_namespace ns;
    uint64_t version;

    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
a_file_system_that_takes_no_writes_is_named(void **state)
{
    kvt_store *store = NULL;
    kvt_namespace ns;

    (void)state;
    real.is_read_only = true;
    refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_READONLY, "LOCK");
    assert_null(store);
    real.is_read_only = false;
    store = real_open();
    real.is_read_only = true;
    refused(kvt_namespace_open(store, "new", "", 0, &ns), KVT_E_READONLY, "NAMES");
    assert_int_equal(ns.id, 0);
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    refused(kvt_namespace_clear(store, ns), KVT_E_READONLY, "NAMES");
    real.is_read_only = false;
    kvt_abort(store);
    real_is_whole();
}

static const char *
network_of_all(const struct fs_dir *dir)
{
    (void)dir;
    return "nfs";
}

static void
a_store_on_a_network_file_system_is_refused(void **state)
{
    kvt_store *store = NULL;
    struct kvt_env env;

    (void)state;
    kvt_env_host(&env);
    real.fs.dir_network = network_of_all;
    refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_UNSUPPORTED, "nfs");
    assert_null(store);
    real.fs.dir_network = env.fs->dir_network;
    real_is_whole();
}

/* The index's file cannot be read, until another takes its place. */
static struct {
    const struct fs_file *file; /* As it is open now. */
    enum kvt_status (*read_at)(
        struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out);
    bool is_bad;
} index_file;

static enum kvt_status
open_and_note(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    enum kvt_status status = real.open(dir, name, flags, file_out);

    if (status != KVT_OK)
        return status;
    if (strcmp(name, "data.mdb.new") == 0)
        index_file.is_bad = false;
    if (strcmp(name, "data.mdb") == 0)
        index_file.file = *file_out;
    else if (index_file.file == *file_out)
        index_file.file = NULL; /* It was closed, and this is another in its place. */
    return KVT_OK;
}

static enum kvt_status
read_but_index(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (index_file.is_bad && file == index_file.file)
        return failure_errno(EIO, "read", "data.mdb");
    return index_file.read_at(file, target, size, offset, read_out);
}

static char index_line[200]; /* What the log says of the index. */

static void
index_line_keep(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    (void)module;
    if (strstr(line, "event=index_damaged") != NULL)
        snprintf(index_line, sizeof(index_line), "%s", line);
}

/* Its blocks are had from the headers, when that is asked for. */
static void
an_index_that_cannot_be_read_is_rebuilt_by_who_asks(void **state)
{
    kvt_store *store = NULL;

    (void)state;
    index_file.read_at = real.fs.read_at;
    real.fs.read_at = read_but_index;
    real.fs.open = open_and_note;
    index_file.is_bad = true;
    refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_IO, "data.mdb");
    real.options.flags = KVT_OPEN_REBUILD | KVT_OPEN_READ_ONLY;
    refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_IO, "data.mdb");
    assert_null(store);
    real.options.flags = KVT_OPEN_REBUILD;
    real.options.log = index_line_keep;
    real.options.log_level = KVT_LOG_WARN;
    assert_true(index_file.is_bad);
    assert_int_equal(kvt_close(real_open()), KVT_OK);
    assert_false(index_file.is_bad);
    assert_non_null(strstr(index_line, "read"));
    assert_null(strstr(index_line, "missing"));
    real.options.flags = 0;
    real.options.log = NULL;
    real_is_whole();
}

static const char *starved; /* There is no descriptor for this file, once. */

static enum kvt_status
open_starved(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if (starved == NULL || strcmp(name, starved) != 0)
        return real.open(dir, name, flags, file_out);
    *file_out = NULL;
    starved = NULL;
    return failure_errno(EMFILE, "Cannot open", name);
}

/* Nothing is known of the file: it is not damaged, no older copy counts, and nothing is rebuilt. */
static void
a_file_without_a_descriptor_is_not_damaged(void **state)
{
    static const char *const names[] = {
        "LOCK", "STORE.a", "STORE.b", "NAMES.a", "NAMES.b", "data.mdb", "data.00"};
    kvt_store *store = NULL;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
        starved = names[i / 2];
        real.options.flags = i % 2 == 0 ? 0 : KVT_OPEN_REBUILD;
        real.fs.open = open_starved;
        refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_IO, names[i / 2]);
        assert_null(store);
        real.fs.open = open_on_read_only;
        real.options.flags = 0;
        real_is_whole();
    }
}

/* --- No new store over an old one ------------------------------------------------------------- */

static const char *unreadable; /* Files whose names begin so cannot be opened. */

static enum kvt_status
open_but_unreadable(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if (unreadable == NULL || strncmp(name, unreadable, strlen(unreadable)) != 0)
        return real.open(dir, name, flags, file_out);
    *file_out = NULL;
    return failure_errno(EIO, "open", name);
}

static void
index_remove(void)
{
    static const char *const names[] = {"data.mdb", "lock.mdb"};
    char path[KIT_PATH_BYTES + 32];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/meta/%s", real.path, names[i]);
        assert_true(unlink(path) == 0 || errno == ENOENT);
    }
    (void)snprintf(path, sizeof(path), "%s/meta", real.path);
    assert_int_equal(rmdir(path), 0);
}

/* Without an index it looks like one whose creation was cut short, but for its status. */
static void
a_store_that_cannot_be_read_for_once_is_no_new_one(void **state)
{
    static const char *const names[] = {"STORE", "NAMES"};
    kvt_store *store = NULL;

    (void)state;
    real.fs.open = open_but_unreadable;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        index_remove();
        unreadable = names[i];
        refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_IO, names[i]);
        assert_null(store);
        unreadable = NULL;
        real_is_whole();
    }
}

static void
a_store_whose_data_is_there_is_no_new_one(void **state)
{
    static const char *const names[] = {"STORE.a", "STORE.b"};
    char paths[2][KIT_PATH_BYTES + 32];
    uint8_t bytes[2][8192];
    size_t sizes[2];
    kvt_store *store = NULL;

    (void)state;
    index_remove();
    for (int is_missing = 0; is_missing < 2; is_missing++) {
        for (int i = 0; i < 2; i++) {
            (void)snprintf(paths[i], sizeof(paths[i]), "%s/%s", real.path, names[i]);
            sizes[i] = kit_file_read(paths[i], bytes[i], sizeof(bytes[i]));
            kit_file_write(paths[i], "torn", 4);
            if (is_missing)
                assert_int_equal(unlink(paths[i]), 0);
        }
        refused(
            kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_CORRUPT, "STORE.a");
        assert_null(store);
        real.fs.open = open_but_unreadable;
        unreadable = "data.00";
        refused(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_E_IO, "data.00");
        unreadable = NULL;
        for (int i = 0; i < 2; i++)
            kit_file_write(paths[i], bytes[i], sizes[i]);
    }
    real_is_whole();
}

/* A folder that was made for the disk of the data, say. */
static void
a_folder_for_data_is_no_store(void **state)
{
    char path[KIT_PATH_BYTES + 32];
    kvt_store *store = NULL;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/other", real.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/other/data", real.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/other", real.dir);
    assert_int_equal(kvt_open(path, &real.options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* Each would write over the other's blocks. */
static void
a_root_that_is_named_twice_is_refused(void **state)
{
    char paths[2][KIT_PATH_BYTES + 32], other[KIT_PATH_BYTES + 32];
    const char *const roots[2] = {paths[0], paths[1]};
    struct kvt_options options = real.options;
    kvt_store *store = NULL;

    (void)state;
    (void)snprintf(other, sizeof(other), "%s/other", real.dir);
    (void)snprintf(paths[0], sizeof(paths[0]), "%s/disk", real.dir);
    (void)snprintf(paths[1], sizeof(paths[1]), "%s/./disk", real.dir);
    options.roots = roots;
    options.root_count = 2;
    options.nvme_capacity_bytes *= 2;
    for (int i = 0; i < 2; i++) {
        refused(kvt_open(other, &options, &store), KVT_E_INVAL, "one folder");
        assert_null(store);
    }
}

/* --- Descriptors ------------------------------------------------------------------------------ */

/* So many descriptors are left to the process. */
static void
descriptors_left(const struct rlimit *normal, rlim_t count)
{
    struct rlimit limit = *normal;
    int lowest = dup(0);

    assert_true(lowest >= 0);
    close(lowest);
    limit.rlim_cur = (rlim_t)lowest + count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Wherever they run out, files or LMDB or threads say so, and the next open is a good one. */
static void
open_with_few_descriptors(uint32_t flags)
{
    uint32_t io_count = 0, meta_count = 0;
    enum kvt_status status = KVT_E_IO;
    struct kvt_error error = {0};
    kvt_store *store = NULL;
    struct rlimit normal;
    rlim_t count = 0;

    real.options.flags = flags;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &normal), 0);
    real.options.io_engine = KVT_IO_THREADS; /* io_uring may be denied for another reason. */
    for (; status != KVT_OK && count < DESCRIPTORS_MAX; count++) {
        descriptors_left(&normal, count);
        status = kvt_open(real.path, &real.options, &store);
        kvt_last_error(&error);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &normal), 0);
        if (status == KVT_OK)
            break;
        assert_null(store);
        assert_int_equal(error.status, status);
        io_count += status == KVT_E_IO;
        meta_count += status == KVT_E_META;
        if (status != KVT_E_IO && status != KVT_E_META)
            fail_msg(
                "%u descriptors: %s: %s", (unsigned)count, kvt_status_name(status), error.text);
    }
    assert_int_equal(status, KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_true(io_count > 0 && meta_count > 0);
    real.options.flags = 0;
    real_is_whole();
}

static void
an_open_that_runs_out_of_descriptors_says_where(void **state)
{
    (void)state;
    open_with_few_descriptors(0);
    open_with_few_descriptors(KVT_OPEN_REBUILD);
}

/* Nothing was written either: the store goes on, and the clear can be asked for again. */
static void
a_clear_without_a_descriptor_changes_nothing(void **state)
{
    struct rlimit normal;
    kvt_store *store = NULL;
    kvt_namespace ns;
    uint64_t version;

    (void)state;
    assert_int_equal(kvt_open_env(real.path, &real.options, &real.env, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &normal), 0);
    descriptors_left(&normal, 0);
    refused(kvt_namespace_clear(store, ns), KVT_E_IO, "NAMES");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &normal), 0);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_OK);
    assert_int_equal(kit_put(store, ns, 2, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    real_is_whole();
}

/* --- The limit of a file's size --------------------------------------------------------------- */

/* A child's exit code: 0 when the open says so while no file may be longer than `size`. */
static int
open_limited(const char *path, uint32_t flags, rlim_t size, enum kvt_status wanted)
{
    const struct rlimit limit = {.rlim_cur = size, .rlim_max = size};
    struct kvt_error error = {0};
    kvt_store *store = NULL;
    enum kvt_status status;

    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    real.options.flags = flags;
    status = kvt_open(path, &real.options, &store);
    kvt_last_error(&error);
    if (status == wanted && store == NULL && error.status == wanted)
        return 0;
    (void)fprintf(
        stderr, "%llu: %s: %s\n", (unsigned long long)size, kvt_status_name(status), error.text);
    return 1;
}

/* The kernel sends a signal that kills, besides. */
static void
a_limit_of_the_size_of_files_is_an_error_and_kills_nobody(void **state)
{
    static const struct {
        const char *name;
        uint32_t flags;
        rlim_t size;
        enum kvt_status wanted;
    } limits[] = {
        {"new-0", 0, 100, KVT_E_IO},                 /* A write. */
        {"new-1", 0, 1 << 20, KVT_E_IO},             /* The space of the data. */
        {"store", 0, 4096, KVT_E_META},              /* The first commit. */
        {"store", KVT_OPEN_REBUILD, 8192, KVT_E_IO}, /* The space of the index. */
    };
    char path[KIT_PATH_BYTES + 32];
    int outcome = -1;

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        pid_t child = fork();

        assert_true(child >= 0);
        (void)snprintf(path, sizeof(path), "%s/%s", real.dir, limits[i].name);
        if (child == 0)
            _exit(open_limited(path, limits[i].flags, limits[i].size, limits[i].wanted));
        assert_int_equal(waitpid(child, &outcome, 0), child);
        assert_int_equal(outcome, 0);
    }
    real_is_whole();
}

int
main(void)
{
#define REAL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_fail_are_named),
        cmocka_unit_test(a_data_file_that_cannot_grow_is_named_and_let_go),
        cmocka_unit_test(a_device_that_fails_or_is_not_there_is_named),
        cmocka_unit_test(an_open_without_memory_says_so),
        REAL_TEST(a_file_system_that_takes_no_writes_is_named),
        REAL_TEST(a_store_on_a_network_file_system_is_refused),
        REAL_TEST(an_index_that_cannot_be_read_is_rebuilt_by_who_asks),
        REAL_TEST(a_file_without_a_descriptor_is_not_damaged),
        REAL_TEST(a_store_that_cannot_be_read_for_once_is_no_new_one),
        REAL_TEST(a_store_whose_data_is_there_is_no_new_one),
        REAL_TEST(a_folder_for_data_is_no_store),
        REAL_TEST(a_root_that_is_named_twice_is_refused),
        REAL_TEST(an_open_that_runs_out_of_descriptors_says_where),
        REAL_TEST(a_clear_without_a_descriptor_changes_nothing),
        REAL_TEST(a_limit_of_the_size_of_files_is_an_error_and_kills_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
