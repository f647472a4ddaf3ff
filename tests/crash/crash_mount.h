/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_mount.h - a file system of the test's own: made in an image, mounted from a loop device.
 *
 * Mounts lie in a mount namespace that goes with the process (and its children), the loop device
 * detaches itself when the last file of it is closed, and the image has no name once it is
 * attached: whatever ends the test, only an empty directory is left.
 */
#ifndef KVT_TESTS_CRASH_MOUNT_H
#define KVT_TESTS_CRASH_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

struct crash_mount {
    const char *type; /* "ext4" or "xfs" */
    char point[256];  /* Where it is mounted. */
    char device[32];  /* Its loop device. */
    int loop;
};

/* crash_mount_alone - a mount namespace for this process. False, with a reason, where that, or loop
 * devices, are not to be had. */
bool crash_mount_alone(char *reason, uint64_t reason_size);

/* crash_mount_format - make a file system in the file `image`. It must have its size. */
bool crash_mount_format(const char *image, const char *type);

/* crash_mount_attach - a loop device for the open file `image`; nothing is mounted yet. `point` is
 * an empty directory. Ends the program when there is none. */
void crash_mount_attach(struct crash_mount *mount, int image, const char *type, const char *point);

/* crash_mount_detach - give the loop device back. Nothing is mounted. */
void crash_mount_detach(struct crash_mount *mount);

/* crash_mount_up - mount; a journal is replayed. False with errno. */
bool crash_mount_up(const struct crash_mount *mount);

/* crash_mount_down - unmount, and forget what the device has in memory; waits for those who still
 * use it. */
void crash_mount_down(const struct crash_mount *mount);

/* crash_mount_cut - the file system forgets what its journal does not have on disk, and takes
 * nothing more. */
void crash_mount_cut(const struct crash_mount *mount);

/* crash_mount_keep - copy the folder "store" in a mount to FOLDER-store, and say so. */
void crash_mount_keep(const struct crash_mount *mount, const char *folder);

/* crash_mount_run - run a program (a NULL ends the list) without its output; true: it gave 0. */
bool crash_mount_run(const char *const *words);

#endif /* KVT_TESTS_CRASH_MOUNT_H */
