/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_disk.c - the FUSE server with its one file (crash_disk.h).
 *
 * One thread serves: the log's order is the order in which the disk did its work.
 */
#define FUSE_USE_VERSION 31
#include "crash_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_run.h"
#include "crash_writers.h"

#define DISK_NAME "disk"

enum {
    UNDO_MAX = 1 << 14
};

/* What a write replaced. */
struct undo {
    uint8_t *bytes;
    uint64_t offset;
    uint64_t size;
};

/* --- The server ------------------------------------------------------------------------------- */

static struct crash_disk *
served(void)
{
    return fuse_get_context()->private_data;
}

/* Whether this one fails. */
static bool
takes_fault(struct crash_disk *disk, _Atomic uint32_t *count)
{
    uint32_t left = atomic_load(count);

    if (left == 0)
        return false;
    if (left != DISK_ALWAYS)
        atomic_store(count, left - 1);
    atomic_fetch_add(&disk->board->failed_count, 1);
    return true;
}

/* Keep one record; false when the log takes no more. */
static bool
log_append(
    struct crash_disk *disk, bool is_flush, const char *bytes, uint64_t offset, uint64_t size)
{
    struct disk_record record = {.is_flush = is_flush, .offset = offset, .size = size};

    if (atomic_load(&disk->board->is_logging) == 0)
        return true;
    if (write(disk->log, &record, sizeof(record)) != sizeof(record) ||
        write(disk->log, bytes, size) != (ssize_t)size)
        return false;
    atomic_fetch_add(&disk->board->position, 1);
    return true;
}

static struct undo undo_list[UNDO_MAX];
static uint32_t undo_count;

/* Keep what a write is about to replace, when no flush will save it. */
static void
undo_keep(struct crash_disk *disk, off_t offset, uint64_t size)
{
    if (atomic_load(&disk->board->fail_flushes) != DISK_ALWAYS || undo_count == UNDO_MAX)
        return;
    struct undo undo = {malloc(size), (uint64_t)offset, size};
    if (undo.bytes != NULL && pread(disk->image, undo.bytes, size, offset) == (ssize_t)size)
        undo_list[undo_count++] = undo;
    else
        free(undo.bytes);
}

/* The writes since the last flush are safe now, or lost. */
static void
undo_end(struct crash_disk *disk, bool is_lost)
{
    while (undo_count > 0) {
        struct undo *undo = &undo_list[--undo_count];
        if (is_lost && pwrite(disk->image, undo->bytes, undo->size, (off_t)undo->offset) < 0)
            _exit(1);
        free(undo->bytes);
    }
}

static int
disk_getattr(const char *path, struct stat *target, struct fuse_file_info *info)
{
    struct stat image;

    (void)info;
    memset(target, 0, sizeof(*target));
    target->st_nlink = 1;
    if (strcmp(path, "/") == 0) {
        target->st_mode = S_IFDIR | 0700;
        return 0;
    }
    if (strcmp(path, "/" DISK_NAME) != 0 || fstat(served()->image, &image) != 0)
        return -ENOENT;
    target->st_mode = S_IFREG | 0600;
    target->st_size = image.st_size;
    return 0;
}

static int
disk_open(const char *path, struct fuse_file_info *info)
{
    (void)path;
    info->direct_io = 1; /* Each write of the loop device comes here before it is answered. */
    return 0;
}

static int
disk_read(const char *path, char *target, size_t size, off_t offset, struct fuse_file_info *info)
{
    struct crash_disk *disk = served();

    (void)path;
    (void)info;
    if (takes_fault(disk, &disk->board->fail_reads))
        return -EIO;
    ssize_t done = pread(disk->image, target, size, offset);
    return done < 0 ? -errno : (int)done;
}

static int
disk_write(
    const char *path, const char *bytes, size_t size, off_t offset, struct fuse_file_info *info)
{
    struct crash_disk *disk = served();

    (void)path;
    (void)info;
    if (takes_fault(disk, &disk->board->fail_writes))
        return -EIO;
    undo_keep(disk, offset, size);
    if (pwrite(disk->image, bytes, size, offset) != (ssize_t)size ||
        !log_append(disk, false, bytes, (uint64_t)offset, size))
        return -EIO;
    return (int)size;
}

static int
disk_fsync(const char *path, int is_data, struct fuse_file_info *info)
{
    struct crash_disk *disk = served();

    (void)path;
    (void)is_data;
    (void)info;
    bool is_failed = takes_fault(disk, &disk->board->fail_flushes);
    undo_end(disk, is_failed);
    if (is_failed)
        return -EIO;
    return log_append(disk, true, "", 0, 0) ? 0 : -EIO;
}

static void
serve(struct crash_disk *disk)
{
    static const struct fuse_operations operations = {.getattr = disk_getattr,
        .open = disk_open,
        .read = disk_read,
        .write = disk_write,
        .fsync = disk_fsync};
    char *words[] = {(char[]){"crash_disk"}, NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(1, words);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The kernel must not wait for this process when it writes back memory of its own. */
    (void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    struct fuse *fuse = fuse_new(&arguments, &operations, sizeof(operations), disk);
    if (fuse == NULL || fuse_mount(fuse, disk->point) != 0)
        _exit(1);
    /* The last process of a mount namespace unmounts what is in it, and waits for the disk: that
     * must not be the one that serves the disk. */
    if (unshare(CLONE_NEWNS) != 0)
        _exit(1);
    _exit(fuse_loop(fuse) == 0 ? 0 : 1);
}

/* --- Its parent ------------------------------------------------------------------------------- */

/* Wait until the disk is there, or the server has given up. */
static bool
disk_appears(struct crash_disk *disk, const char *path)
{
    for (int i = 0; i < 5000; i++) {
        disk->file = open(path, O_RDWR | O_CLOEXEC);
        if (disk->file >= 0)
            return true;
        if (waitpid(disk->server, NULL, WNOHANG) != 0)
            return false;
        writers_sleep_us(1000);
    }
    return false;
}

bool
crash_disk_start(struct crash_disk *disk, int image, const char *place, const char *point,
    char *reason, uint64_t reason_size)
{
    char path[300];

    *disk = (struct crash_disk){.image = image, .file = -1};
    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        snprintf(reason, reason_size, "no /dev/fuse: %s", strerror(errno));
        return false;
    }
    snprintf(disk->point, sizeof(disk->point), "%s", point);
    snprintf(path, sizeof(path), "%s/log", place);
    disk->log = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    unlink(path);
    disk->board_fd = memfd_create("board", 0); /* The writers inherit it. */
    if (disk->log < 0 || disk->board_fd < 0 || ftruncate(disk->board_fd, 4096) != 0)
        run_fail("no log in %s", place);
    disk->board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, disk->board_fd, 0);
    if (disk->board == MAP_FAILED)
        run_fail("no shared memory");
    fflush(stdout);
    disk->server = fork();
    if (disk->server == 0)
        serve(disk);
    snprintf(path, sizeof(path), "%s/%s", point, DISK_NAME);
    if (!disk_appears(disk, path)) {
        snprintf(reason, reason_size, "FUSE does not serve");
        return false;
    }
    return true;
}

void
crash_disk_stop(struct crash_disk *disk)
{
    close(disk->file);
    if (umount2(disk->point, 0) != 0)
        run_fail("cannot unmount %s: %s", disk->point, strerror(errno));
    if (kill(disk->server, SIGKILL) != 0 || waitpid(disk->server, NULL, 0) != disk->server)
        run_fail("the server of the disk is gone");
}
