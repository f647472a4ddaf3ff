/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_rename.c - a file that is replaced again and again (crash_rename.h).
 */
#include "crash_rename.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FILE_BYTES = 20000,
    ROUNDS = 6,
};

static void
must(bool is_good, const char *what)
{
    if (!is_good)
        run_fail("%s failed", what);
}

/* One replacement, by the calls that a store uses. */
static void
step(struct run *run, int dir, bool is_file_synced, bool is_dir_synced)
{
    static uint8_t bytes[FILE_BYTES];
    const struct open_how how = {.flags = O_RDWR | O_CREAT | O_CLOEXEC, .mode = 0600};
    char line[64];

    run->version++;
    payload_fill(bytes, sizeof(bytes), 0, run->version);
    snprintf(line, sizeof(line), "put 0 %" PRIu64, run->version);
    run->mark(line);
    int fd = (int)syscall(SYS_openat2, dir, "value.new", &how, sizeof(how));
    must(fd >= 0, "openat2");
    must(fallocate(fd, 0, 0, FILE_BYTES) == 0, "fallocate");
    must(pwrite(fd, bytes, 9000, 0) == 9000, "pwrite");
    must(pwrite(fd, bytes + 9000, FILE_BYTES - 9000, 9000) == FILE_BYTES - 9000, "pwrite");
    must(!is_file_synced || fdatasync(fd) == 0, "fdatasync");
    must(renameat(dir, "value.new", dir, "value") == 0, "renameat");
    must(!is_dir_synced || fsync(dir) == 0, "fsync");
    close(fd);
    snprintf(line, sizeof(line), "put_ok 0 %" PRIu64, run->version);
    run->mark(line);
}

static void
life(struct run *run, bool is_file_synced, bool is_dir_synced)
{
    int dir = open(run->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    must(dir >= 0, "open");
    for (int i = 0; i < ROUNDS; i++)
        step(run, dir, is_file_synced, is_dir_synced);
    close(dir);
}

void
rename_steps(struct run *run)
{
    life(run, true, true);
}

void
rename_steps_without_file_sync(struct run *run)
{
    life(run, false, true);
}

void
rename_steps_without_dir_sync(struct run *run)
{
    life(run, true, false);
}

bool
rename_verify(const char *path, const struct oracle *oracle, char *problem, size_t problem_size)
{
    static uint8_t bytes[FILE_BYTES + 1];
    char name[512];
    uint64_t version = 0;

    snprintf(name, sizeof(name), "%s/value", path);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t size = read(fd, bytes, sizeof(bytes));
        close(fd);
        if (size < 0 || !payload_is_right(bytes, (uint64_t)size, 0, &version)) {
            snprintf(problem, problem_size, "the file is torn");
            return false;
        }
    }
    if (!oracle_allows(oracle, 0, version))
        snprintf(problem, problem_size, "version %" PRIu64 " is not allowed", version);
    return oracle_allows(oracle, 0, version);
}
