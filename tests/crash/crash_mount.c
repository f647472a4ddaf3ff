/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_mount.c - images, loop devices and mounts (crash_mount.h).
 */
#include "crash_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_run.h"
#include "crash_writers.h"

#define SHUTDOWN_REQUEST _IOR('X', 125, uint32_t)

enum {
    SHUTDOWN_NO_LOG_FLUSH = 2,
    WAIT_STEPS = 20000, /* Of a millisecond, for the last user of a file system. */
};

bool
crash_mount_run(const char *const *words)
{
    int result = -1;
    pid_t child = fork();

    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child > 0 && waitpid(child, &result, 0) == child && result == 0;
}

bool
crash_mount_alone(char *reason, uint64_t reason_size)
{
    if (geteuid() != 0) {
        snprintf(reason, reason_size, "mounting takes root");
        return false;
    }
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) {
        snprintf(reason, reason_size, "no loop devices: %s", strerror(errno));
        return false;
    }
    close(control);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        snprintf(reason, reason_size, "no mount namespace: %s", strerror(errno));
        return false;
    }
    return true;
}

bool
crash_mount_format(const char *image, const char *type)
{
    const char *const ext4[] = {"mkfs.ext4", "-q", "-F", "-b", "4096", "-E",
        "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image, NULL};
    const char *const xfs[] = {"mkfs.xfs", "-q", "-f", "-K", image, NULL};

    return crash_mount_run(strcmp(type, "xfs") == 0 ? xfs : ext4);
}

void
crash_mount_attach(struct crash_mount *mount, int image, const char *type, const char *point)
{
    struct loop_config config = {.fd = (uint32_t)image, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};

    *mount = (struct crash_mount){.type = type, .loop = -1};
    snprintf(mount->point, sizeof(mount->point), "%s", point);
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    /* Somebody else may take the free one first. */
    for (int i = 0; i < 64; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        snprintf(mount->device, sizeof(mount->device), "/dev/loop%d", number);
        mount->loop = open(mount->device, O_RDWR | O_CLOEXEC);
        if (mount->loop >= 0 && ioctl(mount->loop, LOOP_CONFIGURE, &config) == 0)
            break;
        if (mount->loop >= 0)
            close(mount->loop);
        mount->loop = -1;
        writers_sleep_us(2000);
    }
    close(control);
    if (mount->loop < 0)
        run_fail("no loop device: %s", strerror(errno));
}

void
crash_mount_detach(struct crash_mount *mount)
{
    close(mount->loop);
    mount->loop = -1;
}

bool
crash_mount_up(const struct crash_mount *m)
{
    return mount(m->device, m->point, m->type, MS_NOATIME, NULL) == 0;
}

void
crash_mount_down(const struct crash_mount *mount)
{
    /* The rings of a process that was killed are taken down behind its back. */
    for (int i = 0; umount2(mount->point, UMOUNT_NOFOLLOW) != 0; i++) {
        if (errno != EBUSY || i == WAIT_STEPS)
            run_fail("cannot unmount %s: %s", mount->point, strerror(errno));
        writers_sleep_us(1000);
    }
    if (mount->loop >= 0 && ioctl(mount->loop, BLKFLSBUF, 0) != 0)
        run_fail("cannot empty the cache of %s: %s", mount->device, strerror(errno));
}

void
crash_mount_cut(const struct crash_mount *mount)
{
    uint32_t how = SHUTDOWN_NO_LOG_FLUSH;
    int place = open(mount->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (place < 0 || ioctl(place, SHUTDOWN_REQUEST, &how) != 0)
        run_fail("cannot shut down %s: %s", mount->point, strerror(errno));
    close(place);
}

void
crash_mount_keep(const struct crash_mount *mount, const char *folder)
{
    char store[300], kept[300];
    const char *const copy[] = {"cp", "-a", store, kept, NULL};

    snprintf(store, sizeof(store), "%s/store", mount->point);
    snprintf(kept, sizeof(kept), "%s-store", folder);
    if (crash_mount_run(copy))
        printf("the store is kept in %s\n", kept);
}
