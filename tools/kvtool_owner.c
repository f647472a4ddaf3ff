/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_owner.c - who has a store open, and what that process shows of itself.
 *
 * The lock on DIR/LOCK says whether anybody has it: it is asked for, never taken. The lock does not
 * say who; the page that an owner writes does, and where there is none (it is open for reading
 * only), the descriptors that /proc shows.
 */
#include "kvtool_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"

enum {
    FDINFO_BYTES = 4096
};

/* --- The lock --------------------------------------------------------------------------------- */

/* Reads a small file of /proc whole; "" when it cannot be. */
static void
proc_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t length = 0;

    if (file != NULL) {
        length = fread(text, 1, size - 1, file);
        fclose(file);
    }
    text[length] = '\0';
}

/* Whether DIR/LOCK is locked; its identity goes to *facts_out. Not known: false, and why. */
static bool
lock_is_held(const char *path, struct stat *facts_out, int *error_out)
{
    char lock_path[PATH_MAX];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool is_held = false;
    int descriptor = -1;

    if (snprintf(lock_path, sizeof(lock_path), "%s/LOCK", path) >= (int)sizeof(lock_path)) {
        *error_out = ENAMETOOLONG;
        return false;
    }
    descriptor = open(lock_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) {
        *error_out = errno == ENOENT ? 0 : errno;
        return false;
    }
    is_held = fstat(descriptor, facts_out) == 0 && S_ISREG(facts_out->st_mode) &&
              fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(descriptor);
    return is_held;
}

/* --- /proc ------------------------------------------------------------------------------------ */

/* Whether the descriptor `name` of the process holds a lock on that file. */
static bool
descriptor_has_lock(const char *pid, const char *name, const struct stat *wanted)
{
    char path[NAME_MAX * 2 + 32];
    char text[FDINFO_BYTES];
    struct stat facts;

    snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, name);
    if (stat(path, &facts) != 0 || facts.st_ino != wanted->st_ino || facts.st_dev != wanted->st_dev)
        return false;
    snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, name);
    proc_read(path, text, sizeof(text));
    return strstr(text, "\nlock:") != NULL;
}

static bool
process_has_lock(const char *pid, const struct stat *wanted)
{
    char path[NAME_MAX + 32];
    const struct dirent *entry = NULL;
    bool has_lock = false;
    DIR *folder = NULL;

    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    folder = opendir(path);
    if (folder == NULL)
        return false;
    while (!has_lock && (entry = readdir(folder)) != NULL)
        has_lock = entry->d_name[0] != '.' && descriptor_has_lock(pid, entry->d_name, wanted);
    closedir(folder);
    return has_lock;
}

/* The process that holds the lock on that file; 0: none that we may look into. */
static uint32_t
process_find(const struct stat *wanted)
{
    const struct dirent *entry = NULL;
    uint32_t pid = 0;
    DIR *folder = opendir("/proc");

    if (folder == NULL)
        return 0;
    while (pid == 0 && (entry = readdir(folder)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && process_has_lock(entry->d_name, wanted))
            pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
    }
    closedir(folder);
    return pid;
}

/* --- Both ------------------------------------------------------------------------------------- */

void
owner_find(const char *path, struct owner *owner_out)
{
    struct stat lock;

    memset(owner_out, 0, sizeof(*owner_out));
    if (!lock_is_held(path, &lock, &owner_out->error))
        return;
    owner_out->is_open = true;
    owner_out->live.struct_size = sizeof(owner_out->live);
    owner_out->has_live = kvt_live_read(path, &owner_out->live) == KVT_OK;
    if (owner_out->has_live && owner_out->live.is_stale) {
        /* Left by a process that is gone, or written by one that we cannot see. */
        owner_out->pid = process_find(&lock);
        owner_out->has_live = owner_out->pid == 0;
        owner_out->is_distant = owner_out->has_live;
    } else if (owner_out->has_live) {
        owner_out->pid = owner_out->live.pid;
    } else {
        owner_out->pid = process_find(&lock);
    }
    if (owner_out->has_live) {
        memcpy(owner_out->program, owner_out->live.program, sizeof(owner_out->program));
    } else if (owner_out->pid != 0) {
        char comm[64];

        snprintf(comm, sizeof(comm), "/proc/%u/comm", owner_out->pid);
        proc_read(comm, owner_out->program, sizeof(owner_out->program));
        owner_out->program[strcspn(owner_out->program, "\n")] = '\0';
    }
}

const char *
owner_text(const struct owner *owner, char *text, int size)
{
    if (owner->is_distant)
        snprintf(text, (size_t)size, "process %u (%s) of another container or machine",
            owner->live.pid, owner->program);
    else if (owner->pid != 0)
        snprintf(text, (size_t)size, "process %u (%s)", owner->pid, owner->program);
    else
        snprintf(text, (size_t)size, "a process that cannot be seen from here");
    return text;
}

void
owner_complain(const char *path)
{
    struct owner *owner = malloc(sizeof(*owner));
    char text[160];

    if (owner == NULL) {
        complain("%s is open in another process", path);
        return;
    }
    owner_find(path, owner);
    if (!owner->is_open)
        complain_status(KVT_E_LOCKED, "cannot open %s", path);
    else
        complain("%s is open: %s has it%s", path, owner_text(owner, text, sizeof(text)),
            owner->has_live ? "; stat, leases, options and top show what it does" : "");
    free(owner);
}

bool
owner_must_show(const char *path, struct owner *owner_out)
{
    char text[160];

    owner_find(path, owner_out);
    if (owner_out->has_live)
        return true;
    if (owner_out->error != 0) {
        complain("cannot see whether a process has %s open: %s", path, strerror(owner_out->error));
    } else if (!owner_out->is_open) {
        if (access(path, F_OK) != 0)
            complain("there is no store in %s", path);
        else
            complain("no process has %s open", path);
    } else {
        complain("%s has %s open and shows nothing: it is opening it still, or has it for "
                 "reading only",
            owner_text(owner_out, text, sizeof(text)), path);
    }
    return false;
}
