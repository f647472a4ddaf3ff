/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile_store.c - a store whose file system is read-only, or full and then not, whose clock
 * jumps, whose user may have no thread more, that several processes want at once, and whose owner
 * forks.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "env.h"
#include "io_engines.h"
#include "kvtier/kvtier_unstable.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCKS = 20,
    RIVALS = 6,
    RIVAL_ROUNDS = 5,
    DESCRIPTION_BYTES = 4096,
    PATH_BYTES = KIT_PATH_BYTES + 32,
    NOBODY = 65534,
};

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[PATH_BYTES];
    bool is_mounted;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    (void)snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->is_mounted)
        (void)umount2(fixture->dir, MNT_DETACH);
    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

/* A file system of its own, or the test is skipped. */
static void
disk_mount(struct fixture *fixture, const char *options)
{
    if (geteuid() != 0 || mount("tmpfs", fixture->dir, "tmpfs", 0, options) != 0) {
        print_message("[  SKIPPED ] a file system of its own needs a mount, and that is denied\n");
        skip();
    }
    fixture->is_mounted = true;
}

static enum kvt_status
store_open(const struct fixture *fixture, uint32_t flags, kvt_store **store_out)
{
    struct kvt_options options = kit_options();

    options.flags = flags;
    *store_out = NULL;
    return kvt_open(fixture->path, &options, store_out);
}

static kvt_namespace
blocks_put(kvt_store *store, uint64_t version)
{
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t key = 0; key < BLOCKS; key++)
        assert_int_equal(kit_put(store, ns, key, version, 3000 + key * 700, KVT_SYNC), KVT_OK);
    return ns;
}

static void
blocks_require(kvt_store *store, uint64_t version)
{
    uint64_t found = 0;
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t key = 0; key < BLOCKS; key++) {
        assert_int_equal(kit_get(store, ns, key, &found), KVT_OK);
        assert_int_equal(found, version);
    }
}

/* --- File systems ----------------------------------------------------------------------------- */

static void
on_a_read_only_file_system_a_store_is_read(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;

    disk_mount(fixture, "size=64m");
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    (void)blocks_put(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(mount(NULL, fixture->dir, NULL, MS_REMOUNT | MS_RDONLY, "size=64m"), 0);
    refused(store_open(fixture, 0, &store), KVT_E_READONLY, fixture->path);
    assert_int_equal(store_open(fixture, KVT_OPEN_READ_ONLY, &store), KVT_OK);
    blocks_require(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(mount(NULL, fixture->dir, NULL, MS_REMOUNT, "size=64m"), 0);
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    blocks_require(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
disk_fill(const struct fixture *fixture)
{
    static const uint8_t zeros[4096];
    char filler[PATH_BYTES];
    int fd;

    (void)snprintf(filler, sizeof(filler), "%s/filler", fixture->dir);
    fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof(zeros)) > 0)
        continue;
    close(fd);
}

static void
disk_clear(const struct fixture *fixture)
{
    char filler[PATH_BYTES];

    (void)snprintf(filler, sizeof(filler), "%s/filler", fixture->dir);
    assert_int_equal(unlink(filler), 0);
}

/* What grows is refused while there is no room, and is taken when there is; all else goes on. */
static void
a_disk_that_is_full_and_then_not_costs_only_what_grows(void **state)
{
    static const uint8_t description[DESCRIPTION_BYTES];
    struct fixture *fixture = *state;
    kvt_namespace ns;
    kvt_store *store;

    disk_mount(fixture, "size=24m");
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    (void)blocks_put(store, 1);
    disk_fill(fixture);
    refused(kvt_namespace_open(store, "large", description, sizeof(description), &ns), KVT_E_NOSPC,
        "NAMES");
    (void)blocks_put(store, 2);
    blocks_require(store, 2);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    blocks_require(store, 2);
    disk_clear(fixture);
    assert_int_equal(
        kvt_namespace_open(store, "large", description, sizeof(description), &ns), KVT_OK);
    assert_int_equal(kit_put(store, ns, 1, 3, 9000, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(store_open(fixture, KVT_OPEN_REBUILD, &store), KVT_OK);
    blocks_require(store, 2);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* A rebuild writes the index anew, beside the old one: without room it is refused, and harmless. */
static void
a_rebuild_without_room_is_refused_and_can_be_repeated(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;

    disk_mount(fixture, "size=24m");
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    (void)blocks_put(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
    disk_fill(fixture);
    refused(store_open(fixture, KVT_OPEN_REBUILD, &store), KVT_E_NOSPC, "space");
    disk_clear(fixture);
    assert_int_equal(store_open(fixture, KVT_OPEN_REBUILD, &store), KVT_OK);
    blocks_require(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* --- The clock -------------------------------------------------------------------------------- */

static struct rng jump_rng = {5};

/* Any time since 1970, another one whenever somebody asks. */
static uint64_t
wall_jumping(void *context)
{
    (void)context;
    return rng_next(&jump_rng) >> rng_below(&jump_rng, 64);
}

static void
a_wall_clock_that_jumps_harms_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_options options = kit_options();
    struct clock_ops clock;
    struct kvt_env env;
    kvt_store *store;

    env_host(&env);
    clock = *env.clock;
    clock.wall_ns = wall_jumping;
    env.clock = &clock;
    for (uint64_t life = 1; life <= 3; life++) {
        assert_int_equal(kvt_open_env(fixture->path, &options, &env, &store), KVT_OK);
        if (life > 1)
            blocks_require(store, life - 1);
        (void)blocks_put(store, life);
        blocks_require(store, life);
        assert_int_equal(kvt_close(store), KVT_OK);
    }
}

/* --- io_uring --------------------------------------------------------------------------------- */

/* From here on this process gets small rings only, as where little memory may be locked. */
static bool
large_rings_deny(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Its exit code: 0, or what was not so. */
static int
small_rings_run(const struct fixture *fixture)
{
    struct kvt_options options = kit_options();
    uint32_t health = 0;
    kvt_store *store = NULL;
    uint64_t found = 0;
    kvt_namespace ns;

    if (!large_rings_deny())
        return 1;
    options.io_engine = KVT_IO_URING;
    if (kvt_open(fixture->path, &options, &store) >= 0)
        return 2;
    options.io_engine = KVT_IO_AUTO;
    if (kvt_open(fixture->path, &options, &store) != KVT_OK)
        return 3;
    if (kvt_health(store, &health) != KVT_OK || (health & KVT_HEALTH_IO_THREADS) == 0)
        return 4;
    if (kvt_namespace_open(store, "space", "model", 5, &ns) != KVT_OK ||
        kit_put(store, ns, 1, 1, 5000, KVT_SYNC) != KVT_OK ||
        kit_get(store, ns, 1, &found) != KVT_OK || found != 1)
        return 5;
    return kvt_close(store) == KVT_OK ? 0 : 6;
}

static void
where_only_small_rings_are_given_threads_do_the_work(void **state)
{
    int result = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(small_rings_run(*state));
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/*
 * 0: writes go on where the system gives this user no thread any more, not even to the kernel's own
 * work, and did so from behind the open on.
 */
static int
without_threads_run(const struct fixture *fixture)
{
    const struct rlimit none = {0, 0};
    struct kvt_options options = kit_options();
    uint32_t health = 0;
    kvt_store *store = NULL;
    uint64_t found = 0;
    kvt_namespace ns;

    options.io_engine = KVT_IO_URING;
    if (chown(fixture->dir, NOBODY, NOBODY) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 1;
    if (kvt_open(fixture->path, &options, &store) != KVT_OK ||
        kvt_namespace_open(store, "space", "model", 5, &ns) != KVT_OK)
        return 2;
    if (setrlimit(RLIMIT_NPROC, &none) != 0)
        return 3;
    for (uint64_t key = 1; key <= BLOCKS; key++) {
        if (kit_put(store, ns, key, 1, 5000, KVT_SYNC) != KVT_OK ||
            kit_get(store, ns, key, &found) != KVT_OK || found != 1)
            return 4;
    }
    if (kvt_health(store, &health) != KVT_OK || health != 0)
        return 5;
    return kvt_close(store) == KVT_OK ? 0 : 6;
}

/* Root has no such limit, so that it takes another user. */
static void
where_no_thread_is_given_any_more_writes_go_on(void **state)
{
    int result = -1;
    pid_t child;

    if (geteuid() != 0 || io_uring_probe() != KVT_OK)
        skip();
    child = fork();
    if (child == 0)
        _exit(without_threads_run(*state));
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* --- Other processes -------------------------------------------------------------------------- */

/* A process that opens, writes and closes; its exit code says how often it was the owner. */
static int
rival_run(const struct fixture *fixture, uint64_t rival)
{
    int owned = 0;

    for (int round = 0; round < RIVAL_ROUNDS; round++) {
        kvt_store *store;
        kvt_namespace ns;
        uint64_t found = 0;
        enum kvt_status status = store_open(fixture, 0, &store);

        if (status == KVT_E_LOCKED) {
            usleep(3000);
            continue;
        }
        if (status != KVT_OK || kvt_namespace_open(store, "space", "model", 5, &ns) != KVT_OK)
            return 100;
        if (kit_put(store, ns, rival, 1, 5000, KVT_SYNC) != KVT_OK ||
            kit_get(store, ns, rival, &found) != KVT_OK || found != 1)
            return 101;
        if (kvt_close(store) != KVT_OK)
            return 102;
        owned++;
    }
    return owned;
}

static void
of_several_processes_one_at_a_time_is_the_owner(void **state)
{
    struct fixture *fixture = *state;
    pid_t rivals[RIVALS];
    uint64_t found = 0;
    int owned[RIVALS];
    kvt_store *store;
    kvt_namespace ns;

    for (uint64_t i = 0; i < RIVALS; i++) {
        rivals[i] = fork();
        if (rivals[i] == 0)
            _exit(rival_run(fixture, i));
        assert_true(rivals[i] > 0);
    }
    for (int i = 0; i < RIVALS; i++) {
        int result = -1;

        assert_int_equal(waitpid(rivals[i], &result, 0), rivals[i]);
        assert_true(WIFEXITED(result));
        owned[i] = WEXITSTATUS(result);
        assert_in_range(owned[i], 0, RIVAL_ROUNDS);
    }
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t i = 0; i < RIVALS; i++)
        assert_int_equal(kit_get(store, ns, i, &found), owned[i] > 0 ? KVT_OK : KVT_MISS);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* What a forked child may do with its parent's store: nothing, and that at once. */
static int
child_run(kvt_store *store, kvt_namespace ns)
{
    uint64_t found = 0;
    kvt_namespace again;

    if (kit_get(store, ns, 1, &found) != KVT_E_STATE)
        return 1;
    if (kit_put(store, ns, 1, 9, 3000, KVT_SYNC) != KVT_E_STATE)
        return 2;
    if (kvt_namespace_open(store, "space", "model", 5, &again) != KVT_E_STATE)
        return 3;
    if (kvt_namespace_clear(store, ns) != KVT_E_STATE)
        return 4;
    return kvt_close(store) == KVT_OK ? 0 : 5; /* It only forgets it. */
}

static void
a_forked_child_cannot_harm_the_store_of_its_parent(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store;
    kvt_namespace ns;

    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    ns = blocks_put(store, 1);
    for (int i = 0; i < 3; i++) {
        int result = -1;
        pid_t child = fork();

        if (child == 0)
            _exit(child_run(store, ns));
        assert_int_equal(kit_put(store, ns, 100, (uint64_t)i, 3000, KVT_SYNC), KVT_OK);
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), 0);
    }
    blocks_require(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(store_open(fixture, 0, &store), KVT_OK);
    blocks_require(store, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

#define HOSTILE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTILE_TEST(on_a_read_only_file_system_a_store_is_read),
        HOSTILE_TEST(a_disk_that_is_full_and_then_not_costs_only_what_grows),
        HOSTILE_TEST(a_rebuild_without_room_is_refused_and_can_be_repeated),
        HOSTILE_TEST(a_wall_clock_that_jumps_harms_nothing),
        HOSTILE_TEST(where_only_small_rings_are_given_threads_do_the_work),
        HOSTILE_TEST(where_no_thread_is_given_any_more_writes_go_on),
        HOSTILE_TEST(of_several_processes_one_at_a_time_is_the_owner),
        HOSTILE_TEST(a_forked_child_cannot_harm_the_store_of_its_parent),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
