/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_model_write.c - the chosen disk, as files of a folder (disk_model.h). The files of the disk
 * before are compared and mended, by way of mappings that stay: to map them anew for each disk took
 * a fifth of the time that a state takes.
 */
#include "disk_model_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    COMPARE_BYTES = 65536,
};

/* --- Folders ---------------------------------------------------------------------------------- */

static bool
remove_tree(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL)
        return false;
    for (struct dirent *found = readdir(list); found != NULL; found = readdir(list)) {
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0 &&
            !remove_tree(fd, found->d_name))
            break;
    }
    closedir(list);
    return unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/* --- Files ------------------------------------------------------------------------------------ */

void
node_forget_file(struct node *node)
{
    if (node->there != NULL)
        munmap((void *)(uintptr_t)node->there, node->there_size);
    node->there = NULL;
}

/* What lies in the file, which is as long as the node. */
static bool
there_map(struct node *node, int fd, ino_t inode)
{
    void *there;

    if (node->there != NULL && node->there_inode == inode && node->there_size == node->size)
        return true;
    node_forget_file(node);
    there = mmap(NULL, node->size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (there == MAP_FAILED)
        return false;
    node->there = there;
    node->there_inode = inode;
    node->there_size = node->size;
    return true;
}

static bool
write_file(struct node *node, int fd)
{
    struct stat facts;

    if (fstat(fd, &facts) != 0)
        return false;
    if ((uint64_t)facts.st_size != node->size && ftruncate(fd, (off_t)node->size) != 0)
        return false;
    if (node->size == 0)
        return true;
    if (!there_map(node, fd, facts.st_ino))
        return false;
    bool is_written = true;
    for (uint64_t from = 0; from < node->size && is_written; from += COMPARE_BYTES) {
        uint64_t size = node->size - from < COMPARE_BYTES ? node->size - from : COMPARE_BYTES;
        if (memcmp(node->there + from, node->image + from, size) != 0)
            is_written = pwrite(fd, node->image + from, size, (off_t)from) == (ssize_t)size;
    }
    return is_written;
}

static bool write_dir(struct disk *disk, uint32_t parent, int dir);

static bool
write_entry(struct disk *disk, const struct entry *entry, int dir)
{
    struct node *node = &disk->nodes[entry->node];
    struct stat facts;

    if (fstatat(dir, entry->name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(facts.st_mode) != node->is_dir && !remove_tree(dir, entry->name))
        return false;
    if (node->is_dir && mkdirat(dir, entry->name, 0700) != 0 && errno != EEXIST)
        return false;
    int flags = node->is_dir ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT;
    int fd = openat(dir, entry->name, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool is_written = node->is_dir ? write_dir(disk, entry->node, fd) : write_file(node, fd);
    close(fd);
    return is_written;
}

/* Everything in the open directory that the chosen disk does not have goes. */
static bool
remove_others(struct disk *disk, uint32_t parent, int dir)
{
    DIR *list = fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 0));
    bool is_clean = list != NULL;

    if (list == NULL)
        return false;
    rewinddir(list);
    for (struct dirent *found = readdir(list); found != NULL && is_clean; found = readdir(list)) {
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0 &&
            tree_find(&disk->sure, parent, found->d_name) == NOTHING)
            is_clean = remove_tree(dir, found->d_name);
    }
    closedir(list);
    return is_clean;
}

static bool
write_dir(struct disk *disk, uint32_t parent, int dir)
{
    if (!remove_others(disk, parent, dir))
        return false;
    for (uint32_t i = 0; i < disk->sure.count; i++) {
        if (disk->sure.entries[i].parent == parent &&
            !write_entry(disk, &disk->sure.entries[i], dir))
            return false;
    }
    return true;
}

bool
disk_write_out(struct disk *disk, const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return false;
    bool is_written = write_dir(disk, 0, dir);
    close(dir);
    return is_written;
}
