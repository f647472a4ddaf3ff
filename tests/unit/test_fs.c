/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fs.c - the host's files and directories, in a fresh directory for each test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bytes.h"
#include "call_refuse.h"
#include "env_host_internal.h"
#include "failure.h"
#include "scratch_dir.h"

struct world {
    struct kvt_env env;
    const struct fs_ops *fs;
    struct fs_dir *dir;
    struct scratch_dir scratch;
};

static const char *
path_in(const struct world *world, const char *name)
{
    return scratch_path(&world->scratch, name);
}

static int
world_open(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    if (world == NULL)
        return -1;
    env_host(&world->env);
    world->fs = world->env.fs;
    scratch_dir_make(&world->scratch);
    *state = world;
    return world->fs->dir_open(NULL, world->scratch.path, 0, &world->dir) == KVT_OK ? 0 : -1;
}

static int
world_close(void **state)
{
    struct world *world = *state;

    world->fs->dir_close(world->dir);
    scratch_dir_remove(&world->scratch);
    free(world);
    return 0;
}

static struct fs_file *
file_open(const struct world *world, const char *name, unsigned flags)
{
    struct fs_file *file = NULL;

    assert_int_equal(world->fs->open(world->dir, name, flags, &file), KVT_OK);
    assert_non_null(file);
    return file;
}

static unsigned
mode_of(const char *path)
{
    struct stat facts;

    assert_int_equal(lstat(path, &facts), 0);
    return facts.st_mode & 07777;
}

static void
assert_sentence_names(const char *word)
{
    if (strstr(failure_last()->text, word) == NULL)
        fail_msg("'%s' does not name '%s'", failure_last()->text, word);
}

/* --- 1. Modes and names ----------------------------------------------------------------------- */

static void
what_is_created_is_private_under_any_umask(void **state)
{
    static const mode_t masks[] = {0, 022, 077, 0777};
    struct world *world = *state;

    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        char name[16];
        mode_t before;
        struct fs_file *file;
        struct fs_dir *below = NULL;
        struct fs_dir *by_path = NULL;

        before = umask(masks[i]);
        (void)snprintf(name, sizeof(name), "file%zu", i);
        file = file_open(world, name, FS_CREATE);
        assert_int_equal(mode_of(path_in(world, name)), 0600);
        world->fs->close(file);
        (void)snprintf(name, sizeof(name), "below%zu", i);
        assert_int_equal(world->fs->dir_open_at(world->dir, name, FS_CREATE, &below), KVT_OK);
        assert_int_equal(mode_of(path_in(world, name)), 0700);
        (void)snprintf(name, sizeof(name), "path%zu", i);
        assert_int_equal(
            world->fs->dir_open(NULL, path_in(world, name), FS_CREATE, &by_path), KVT_OK);
        assert_int_equal(mode_of(path_in(world, name)), 0700);
        assert_string_equal(world->fs->dir_path(by_path), path_in(world, name));
        world->fs->dir_close(below);
        world->fs->dir_close(by_path);
        (void)umask(before);
    }
}

static void
mode_of_what_was_there_is_left_alone(void **state)
{
    struct world *world = *state;
    struct fs_dir *below = NULL;

    world->fs->close(file_open(world, "file", FS_CREATE));
    assert_int_equal(chmod(path_in(world, "file"), 0640), 0);
    world->fs->close(file_open(world, "file", FS_CREATE));
    assert_int_equal(mode_of(path_in(world, "file")), 0640);
    assert_int_equal(mkdir(path_in(world, "below"), 0750), 0);
    assert_int_equal(chmod(path_in(world, "below"), 0750), 0);
    assert_int_equal(world->fs->dir_open_at(world->dir, "below", FS_CREATE, &below), KVT_OK);
    assert_int_equal(mode_of(path_in(world, "below")), 0750);
    world->fs->dir_close(below);
}

static void
names_that_lead_elsewhere_are_refused(void **state)
{
    static const char *const names[] = {"", ".", "..", "a/b", "/etc/passwd", "../x", "a/"};
    struct world *world = *state;
    char long_name[NAME_MAX + 2];
    struct fs_file *file;
    struct fs_dir *below;

    world->fs->close(file_open(world, "a", FS_CREATE));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        file = (struct fs_file *)(uintptr_t)1;
        assert_int_equal(world->fs->open(world->dir, names[i], FS_CREATE, &file), KVT_E_INVAL);
        assert_null(file);
        assert_sentence_names(world->scratch.path);
        assert_int_equal(
            world->fs->dir_open_at(world->dir, names[i], FS_CREATE, &below), KVT_E_INVAL);
        assert_int_equal(world->fs->unlink(world->dir, names[i]), KVT_E_INVAL);
        assert_int_equal(world->fs->rename(world->dir, names[i], "b"), KVT_E_INVAL);
        assert_int_equal(world->fs->rename(world->dir, "a", names[i]), KVT_E_INVAL);
    }
    memset(long_name, 'n', sizeof(long_name));
    long_name[NAME_MAX + 1] = '\0';
    assert_int_equal(world->fs->open(world->dir, long_name, FS_CREATE, &file), KVT_E_INVAL);
    long_name[NAME_MAX] = '\0';
    world->fs->close(file_open(world, long_name, FS_CREATE));
}

static void
links_assert_refused(const struct world *world)
{
    static const char *const links[] = {"to_file", "to_dir", "to_nothing", "to_outside"};
    struct fs_file *file;
    struct fs_dir *below;

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        assert_int_equal(world->fs->open(world->dir, links[i], 0, &file), KVT_E_INVAL);
        assert_null(file);
        assert_sentence_names(links[i]);
        assert_int_equal(world->fs->open(world->dir, links[i], FS_CREATE, &file), KVT_E_INVAL);
        assert_int_equal(world->fs->open(world->dir, links[i], FS_READ_ONLY, &file), KVT_E_INVAL);
        assert_int_equal(world->fs->dir_open_at(world->dir, links[i], 0, &below), KVT_E_INVAL);
        assert_null(below);
    }
    /* Nothing was created through the dangling one. */
    assert_int_equal(world->fs->open(world->dir, "nothing", 0, &file), KVT_MISS);
}

static void
links_make(const struct world *world)
{
    world->fs->close(file_open(world, "file", FS_CREATE));
    assert_int_equal(mkdir(path_in(world, "below"), 0700), 0);
    assert_int_equal(symlink("file", path_in(world, "to_file")), 0);
    assert_int_equal(symlink("below", path_in(world, "to_dir")), 0);
    assert_int_equal(symlink("nothing", path_in(world, "to_nothing")), 0);
    assert_int_equal(symlink("/etc", path_in(world, "to_outside")), 0);
}

static void
links_are_not_followed(void **state)
{
    struct world *world = *state;

    links_make(world);
    links_assert_refused(world);
    /* Removing one removes the link. */
    assert_int_equal(world->fs->unlink(world->dir, "to_file"), KVT_OK);
    world->fs->close(file_open(world, "file", 0));
}

/* Run in a child: a filter stays for the life of a process. 0: all held; 1: not; 2: no filters. */
static int
without_openat2(const struct world *world, unsigned error)
{
    static const char *const links[] = {"to_file", "to_dir", "to_nothing", "to_outside"};
    struct fs_file *file;
    struct fs_dir *below;

    if (!call_refuse(SYS_openat2, error))
        return 2;
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (world->fs->open(world->dir, links[i], 0, &file) != KVT_E_INVAL ||
            world->fs->open(world->dir, links[i], FS_CREATE, &file) != KVT_E_INVAL ||
            world->fs->dir_open_at(world->dir, links[i], 0, &below) != KVT_E_INVAL)
            return 1;
    }
    if (world->fs->open(world->dir, "new", FS_CREATE, &file) != KVT_OK)
        return 1;
    world->fs->close(file);
    if (world->fs->open(world->dir, "new", FS_CREATE | FS_EXCLUSIVE, &file) != KVT_EXISTS ||
        world->fs->open(world->dir, "nothing", 0, &file) != KVT_MISS ||
        world->fs->dir_open_at(world->dir, "below", 0, &below) != KVT_OK)
        return 1;
    world->fs->dir_close(below);
    return world->fs->unlink(world->dir, "new") == KVT_OK ? 0 : 1;
}

static void
links_are_not_followed_either_where_openat2_is_forbidden(void **state)
{
    static const unsigned errors[] = {ENOSYS, EPERM};
    struct world *world = *state;

    links_make(world);
    for (size_t i = 0; i < 2; i++) {
        int status = 0;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0)
            _exit(without_openat2(world, errors[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 2) {
            print_message("skipped: this system has no seccomp filters\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void
what_is_no_regular_file_is_refused_without_waiting(void **state)
{
    struct world *world = *state;
    struct fs_file *file;

    assert_int_equal(mknod(path_in(world, "socket"), S_IFSOCK | 0600, 0), 0);
    assert_int_equal(world->fs->open(world->dir, "socket", FS_CREATE, &file), KVT_E_INVAL);
    assert_sentence_names("socket is not a regular file");
    assert_int_equal(mkfifo(path_in(world, "pipe"), 0600), 0);
    assert_int_equal(mkdir(path_in(world, "below"), 0700), 0);
    assert_int_equal(world->fs->open(world->dir, "pipe", FS_READ_ONLY, &file), KVT_E_INVAL);
    assert_sentence_names("pipe is not a regular file");
    assert_int_equal(world->fs->open(world->dir, "pipe", FS_CREATE, &file), KVT_E_INVAL);
    assert_int_equal(world->fs->open(world->dir, "below", FS_READ_ONLY, &file), KVT_E_INVAL);
}

static void
missing_and_existing_things_have_their_statuses(void **state)
{
    struct world *world = *state;
    struct fs_file *file;
    struct fs_dir *dir;

    assert_int_equal(world->fs->open(world->dir, "none", 0, &file), KVT_MISS);
    assert_sentence_names(path_in(world, "none"));
    assert_int_equal(world->fs->unlink(world->dir, "none"), KVT_MISS);
    assert_int_equal(world->fs->rename(world->dir, "none", "other"), KVT_MISS);
    assert_int_equal(world->fs->dir_open_at(world->dir, "none", 0, &dir), KVT_MISS);
    assert_int_equal(world->fs->dir_open(NULL, path_in(world, "none"), 0, &dir), KVT_MISS);
    assert_null(dir);
    assert_int_equal(world->fs->dir_open(NULL, path_in(world, "a/b"), FS_CREATE, &dir), KVT_MISS);
    world->fs->close(file_open(world, "file", FS_CREATE | FS_EXCLUSIVE));
    assert_int_equal(
        world->fs->open(world->dir, "file", FS_CREATE | FS_EXCLUSIVE, &file), KVT_EXISTS);
    assert_int_equal(world->fs->dir_open(NULL, path_in(world, "file"), 0, &dir), KVT_E_INVAL);
    assert_int_equal(
        world->fs->dir_open(NULL, path_in(world, "file"), FS_CREATE, &dir), KVT_E_INVAL);
    assert_int_equal(world->fs->dir_open_at(world->dir, "file", FS_CREATE, &dir), KVT_E_INVAL);
    world->fs->close(NULL);
    world->fs->dir_close(NULL);
}

static void
no_descriptor_survives_exec(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE | FS_DIRECT);

    assert_int_equal(fcntl(file->descriptor, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    /* io_uring would answer EAGAIN on such a file. */
    assert_int_equal(fcntl(file->descriptor, F_GETFL) & O_NONBLOCK, 0);
    world->fs->close(file);
}

/* --- 2. Bytes --------------------------------------------------------------------------------- */

static void
bytes_come_back_from_where_they_were_written(void **state)
{
    static uint8_t source[300000];
    static uint8_t target[300000];
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE);
    struct fs_dir *other;
    uint64_t size;
    size_t count;

    world->env.random->fill(NULL, source, sizeof(source));
    assert_int_equal(world->fs->write_at(file, source, sizeof(source), 12345), KVT_OK);
    assert_int_equal(world->fs->sync(file), KVT_OK);
    assert_int_equal(world->fs->dir_sync(world->dir), KVT_OK);
    assert_int_equal(world->fs->dir_sync_parent(world->dir), KVT_OK);
    /* A file system that syncs no directories has no name of ours. */
    assert_int_equal(world->fs->dir_open(NULL, "/proc/self", 0, &other), KVT_OK);
    assert_int_equal(world->fs->dir_sync(other), KVT_E_INVAL);
    assert_int_equal(world->fs->dir_sync_parent(other), KVT_OK);
    world->fs->dir_close(other);
    assert_int_equal(world->fs->size(file, &size), KVT_OK);
    assert_int_equal(size, 12345 + sizeof(source));
    assert_int_equal(world->fs->read_at(file, target, sizeof(target), 12345, &count), KVT_OK);
    assert_int_equal(count, sizeof(target));
    assert_memory_equal(source, target, sizeof(source));
    /* Up to the end, behind it, and the hole in front. */
    assert_int_equal(world->fs->read_at(file, target, sizeof(target), 12346, &count), KVT_OK);
    assert_int_equal(count, sizeof(target) - 1);
    assert_int_equal(world->fs->read_at(file, target, 10, UINT64_C(1) << 40, &count), KVT_OK);
    assert_int_equal(count, 0);
    assert_int_equal(world->fs->read_at(file, target, 12345, 0, &count), KVT_OK);
    assert_int_equal(count, 12345);
    assert_true(bytes_are_zero(target, 12345));
    world->fs->close(file);
}

static void
direct_file_tells_its_alignment_and_reads_to_an_end_off_the_grid(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE);
    struct fs_file *direct = file_open(world, "file", FS_DIRECT);
    uint32_t align = world->fs->align(direct);
    uint8_t *memory = aligned_alloc(65536, 65536);
    size_t count;

    assert_non_null(memory);
    assert_false(world->fs->is_direct(file));
    assert_int_equal(world->fs->align(file), 1);
    assert_true(align > 0 && (align & (align - 1)) == 0);
    assert_int_equal(
        world->fs->is_direct(direct), (fcntl(direct->descriptor, F_GETFL) & O_DIRECT) != 0);
    if (!world->fs->is_direct(direct)) {
        print_message("the file system of /tmp does no direct transfers\n");
        assert_int_equal(align, 1);
    } else {
        assert_true(align >= 512);
    }
    memset(memory, 0x11, 65536);
    assert_int_equal(world->fs->write_at(direct, memory, 8192, 0), KVT_OK);
    assert_int_equal(world->fs->write_at(file, "end", 3, 8192), KVT_OK);
    assert_int_equal(world->fs->sync(file), KVT_OK);
    memset(memory, 0, 65536);
    assert_int_equal(world->fs->read_at(direct, memory, 65536, 0, &count), KVT_OK);
    assert_int_equal(count, 8195);
    assert_int_equal(memory[8191], 0x11);
    assert_memory_equal(memory + 8192, "end", 3);
    free(memory);
    world->fs->close(direct);
    world->fs->close(file);
}

static void
size_is_set_and_space_is_allocated(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE);
    struct stat facts;
    uint64_t size;
    enum kvt_status status;

    assert_int_equal(world->fs->truncate(file, 100000), KVT_OK);
    assert_int_equal(world->fs->size(file, &size), KVT_OK);
    assert_int_equal(size, 100000);
    status = world->fs->allocate(file, 0, 1 << 20);
    if (status != KVT_E_UNSUPPORTED) {
        assert_int_equal(status, KVT_OK);
        assert_int_equal(world->fs->size(file, &size), KVT_OK);
        assert_int_equal(size, 1 << 20);
        assert_int_equal(fstat(file->descriptor, &facts), 0);
        assert_true((uint64_t)facts.st_blocks * 512 >= 1 << 20);
    }
    assert_int_equal(world->fs->allocate(file, 0, 0), KVT_OK);
    assert_int_equal(world->fs->truncate(file, 0), KVT_OK);
    assert_int_equal(world->fs->size(file, &size), KVT_OK);
    assert_int_equal(size, 0);
    world->fs->close(file);
}

static void
offsets_beyond_every_file_are_refused(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE);
    uint8_t byte = 0;
    size_t count;

    assert_int_equal(world->fs->read_at(file, &byte, 1, UINT64_MAX, &count), KVT_E_INVAL);
    assert_int_equal(world->fs->read_at(file, &byte, 1, INT64_MAX, &count), KVT_E_INVAL);
    assert_int_equal(world->fs->write_at(file, &byte, 1, UINT64_MAX), KVT_E_INVAL);
    assert_int_equal(world->fs->write_at(file, &byte, SIZE_MAX, 1), KVT_E_INVAL);
    assert_int_equal(world->fs->truncate(file, UINT64_MAX), KVT_E_INVAL);
    assert_int_equal(world->fs->allocate(file, INT64_MAX, 1), KVT_E_INVAL);
    assert_sentence_names("file");
    world->fs->close(file);
}

static void
write_that_the_system_cuts_short_is_an_error(void **state)
{
    static uint8_t source[100000];
    struct world *world = *state;
    struct fs_file *file = file_open(world, "file", FS_CREATE);
    struct rlimit before;
    struct rlimit limit;
    enum kvt_status status;
    uint64_t size;

    /* The kernel writes up to the limit, says how much, and refuses the rest. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 50000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    status = world->fs->write_at(file, source, sizeof(source), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, KVT_E_IO);
    assert_sentence_names(path_in(world, "file"));
    assert_int_equal(world->fs->size(file, &size), KVT_OK);
    assert_int_equal(size, 50000);
    world->fs->close(file);
}

static void
read_only_file_takes_no_bytes_and_says_its_path(void **state)
{
    struct world *world = *state;
    struct fs_file *file;

    world->fs->close(file_open(world, "file", FS_CREATE));
    file = file_open(world, "file", FS_READ_ONLY);
    assert_int_equal(world->fs->write_at(file, "x", 1, 0), KVT_E_IO);
    assert_sentence_names(path_in(world, "file"));
    world->fs->close(file);
}

/* --- 3. Directories --------------------------------------------------------------------------- */

static void
rename_replaces_the_target(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "new", FS_CREATE);
    char text[4] = {0};
    size_t count;

    assert_int_equal(world->fs->write_at(file, "new", 3, 0), KVT_OK);
    world->fs->close(file);
    world->fs->close(file_open(world, "old", FS_CREATE));
    assert_int_equal(world->fs->rename(world->dir, "new", "old"), KVT_OK);
    file = file_open(world, "old", FS_READ_ONLY);
    assert_int_equal(world->fs->read_at(file, text, 4, 0, &count), KVT_OK);
    assert_int_equal(count, 3);
    assert_string_equal(text, "new");
    world->fs->close(file);
    assert_int_equal(world->fs->open(world->dir, "new", 0, &file), KVT_MISS);
    assert_int_equal(world->fs->unlink(world->dir, "old"), KVT_OK);
    assert_int_equal(world->fs->open(world->dir, "old", 0, &file), KVT_MISS);
}

static void
rename_to_a_new_name_replaces_nothing(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "new", FS_CREATE);
    uint64_t size = 0;

    assert_int_equal(world->fs->write_at(file, "new", 3, 0), KVT_OK);
    world->fs->close(file);
    world->fs->close(file_open(world, "old", FS_CREATE));
    assert_int_equal(world->fs->rename_new(world->dir, "new", "old"), KVT_EXISTS);
    file = file_open(world, "old", FS_READ_ONLY);
    assert_int_equal(world->fs->size(file, &size), KVT_OK);
    assert_int_equal(size, 0);
    world->fs->close(file);
    assert_int_equal(world->fs->rename_new(world->dir, "new", "other"), KVT_OK);
    assert_int_equal(world->fs->rename_new(world->dir, "new", "../other"), KVT_E_INVAL);
    assert_int_equal(world->fs->rename_new(world->dir, "new", "none"), KVT_MISS);
}

static void
two_opens_of_a_name_are_one_file_until_it_is_replaced(void **state)
{
    struct world *world = *state;
    struct fs_file *first = file_open(world, "name", FS_CREATE);
    struct fs_file *second = file_open(world, "name", FS_READ_ONLY | FS_FOLLOW | FS_DIRECT);
    struct fs_file *linked;

    assert_int_equal(symlink("name", path_in(world, "link")), 0);
    linked = file_open(world, "link", FS_READ_ONLY | FS_FOLLOW);
    assert_true(world->fs->is_same(first, second));
    assert_true(world->fs->is_same(linked, first));
    world->fs->close(linked);
    world->fs->close(second);
    world->fs->close(file_open(world, "new", FS_CREATE));
    assert_int_equal(world->fs->rename(world->dir, "new", "name"), KVT_OK);
    second = file_open(world, "name", FS_READ_ONLY | FS_FOLLOW);
    assert_false(world->fs->is_same(first, second));
    world->fs->close(second);
    world->fs->close(first);
}

struct listing {
    uint32_t count;
    uint32_t count_max;
    uint32_t seen[8];
    bool is_wrong;
};

static bool
listing_visit(void *visitor, const char *name)
{
    struct listing *listing = visitor;

    if (strlen(name) == 2 && name[0] == 'f' && name[1] >= '0' && name[1] <= '7')
        listing->seen[name[1] - '0']++;
    else
        listing->is_wrong = true;
    listing->count++;
    return listing->count < listing->count_max;
}

static void
listing_shows_each_name_once_and_stops_on_request(void **state)
{
    struct world *world = *state;
    struct listing listing = {.count_max = 100};

    assert_int_equal(world->fs->dir_list(world->dir, listing_visit, &listing), KVT_OK);
    assert_int_equal(listing.count, 0);
    for (char digit = '0'; digit <= '7'; digit++) {
        char name[] = {'f', digit, '\0'};

        world->fs->close(file_open(world, name, FS_CREATE));
    }
    /* Twice: a listing starts from the beginning. */
    for (uint32_t round = 1; round <= 2; round++) {
        assert_int_equal(world->fs->dir_list(world->dir, listing_visit, &listing), KVT_OK);
        for (size_t i = 0; i < 8; i++)
            assert_int_equal(listing.seen[i], round);
    }
    assert_false(listing.is_wrong);
    listing = (struct listing){.count_max = 3};
    assert_int_equal(world->fs->dir_list(world->dir, listing_visit, &listing), KVT_OK);
    assert_int_equal(listing.count, 3);
}

static void
space_of_the_file_system_is_told(void **state)
{
    struct world *world = *state;
    uint64_t bytes = 0;

    assert_int_equal(world->fs->dir_space(world->dir, &bytes), KVT_OK);
    assert_true(bytes > 0 && bytes < UINT64_C(1) << 60);
}

/* A tmpfs without a bound says that it has no blocks, of which none is free. */
static void
a_file_system_without_a_bound_is_not_full(void **state)
{
    (void)state;
    assert_int_equal(fs_space_bytes(100, 3, 4096), 3 * 4096);
    assert_int_equal(fs_space_bytes(100, 0, 4096), 0);
    assert_int_equal(fs_space_bytes(0, 0, 4096), UINT64_MAX);
    assert_int_equal(fs_space_bytes(UINT64_MAX, UINT64_MAX / 2, 4096), UINT64_MAX);
}

static void
network_file_systems_are_known_by_their_numbers(void **state)
{
    struct world *world = *state;

    assert_string_equal(fs_network_name(NFS_SUPER_MAGIC), "nfs");
    assert_string_equal(fs_network_name(SMB2_SUPER_MAGIC), "smb2");
    assert_string_equal(fs_network_name(V9FS_MAGIC), "9p");
    assert_null(fs_network_name(EXT4_SUPER_MAGIC));
    assert_null(fs_network_name(TMPFS_MAGIC));
    assert_null(world->fs->dir_network(world->dir));
}

static void
open_directory_is_the_same_one_after_its_path_was_taken_over(void **state)
{
    struct world *world = *state;
    struct fs_dir *below = NULL;
    struct fs_file *file;
    char moved[160];

    assert_int_equal(world->fs->dir_open_at(world->dir, "below", FS_CREATE, &below), KVT_OK);
    (void)snprintf(moved, sizeof(moved), "%s", path_in(world, "moved"));
    assert_int_equal(rename(path_in(world, "below"), moved), 0);
    assert_int_equal(symlink("/nonexistent", path_in(world, "below")), 0);
    assert_int_equal(world->fs->open(below, "file", FS_CREATE, &file), KVT_OK);
    world->fs->close(file);
    assert_int_equal(access(path_in(world, "moved/file"), F_OK), 0);
    world->fs->dir_close(below);
}

#define FS_TEST(name) cmocka_unit_test_setup_teardown(name, world_open, world_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FS_TEST(what_is_created_is_private_under_any_umask),
        FS_TEST(mode_of_what_was_there_is_left_alone),
        FS_TEST(names_that_lead_elsewhere_are_refused),
        FS_TEST(links_are_not_followed),
        FS_TEST(links_are_not_followed_either_where_openat2_is_forbidden),
        FS_TEST(what_is_no_regular_file_is_refused_without_waiting),
        FS_TEST(missing_and_existing_things_have_their_statuses),
        FS_TEST(no_descriptor_survives_exec),
        FS_TEST(bytes_come_back_from_where_they_were_written),
        FS_TEST(direct_file_tells_its_alignment_and_reads_to_an_end_off_the_grid),
        FS_TEST(size_is_set_and_space_is_allocated),
        FS_TEST(offsets_beyond_every_file_are_refused),
        FS_TEST(write_that_the_system_cuts_short_is_an_error),
        FS_TEST(read_only_file_takes_no_bytes_and_says_its_path),
        FS_TEST(rename_replaces_the_target),
        FS_TEST(rename_to_a_new_name_replaces_nothing),
        FS_TEST(two_opens_of_a_name_are_one_file_until_it_is_replaced),
        FS_TEST(listing_shows_each_name_once_and_stops_on_request),
        FS_TEST(space_of_the_file_system_is_told),
        FS_TEST(a_file_system_without_a_bound_is_not_full),
        FS_TEST(network_file_systems_are_known_by_their_numbers),
        FS_TEST(open_directory_is_the_same_one_after_its_path_was_taken_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
