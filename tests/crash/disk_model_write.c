/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_model_write.c - the chosen disk, as files of a folder (disk_model.h). The files of the disk
 * before are compared and mended, by way of mappings that stay: to map them anew for each disk took
 * a fifth of the time that a state takes. Pages of zeros are holes: neither this nor who judges the
 * store reads them.
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

/* What makes a page of the file what it is to be. */
enum mend {
    MEND_NONE,
    MEND_WRITE,
    MEND_PUNCH, /* It becomes a hole. */
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
    there = mmap(NULL, node->size, PROT_READ, MAP_SHARED, fd, 0);
    if (there == MAP_FAILED)
        return false;
    node->there = there;
    node->there_inode = inode;
    node->there_size = node->size;
    return true;
}

static bool
pages_mend(const struct node *node, int fd, enum mend mend, uint64_t first, uint64_t end)
{
    uint64_t from = first * PAGE;
    uint64_t size = (end * PAGE < node->size ? end * PAGE : node->size) - from;

    if (mend == MEND_PUNCH &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)size) == 0)
        return true;
    return mend == MEND_NONE || pwrite(fd, node->image + from, size, (off_t)from) == (ssize_t)size;
}

/* A part of a file without holes; before it, from where it was looked for, is one. */
struct extent {
    uint64_t from;
    uint64_t end;
};

static struct extent
extent_find(int fd, uint64_t offset)
{
    off_t from = lseek(fd, (off_t)offset, SEEK_DATA);
    off_t end = from < 0 ? from : lseek(fd, from, SEEK_HOLE);

    if (end < 0) /* ENXIO: nothing behind it, either. */
        return (struct extent){.from = UINT64_MAX, .end = UINT64_MAX};
    return (struct extent){.from = (uint64_t)from, .end = (uint64_t)end};
}

static enum mend
page_compare(const struct node *node, int fd, uint64_t page, struct extent *data)
{
    uint64_t from = page * PAGE;
    uint64_t size = node->size - from < PAGE ? node->size - from : PAGE;
    bool is_zero = node->page_hash[page] == 0;

    if (from >= data->end)
        *data = extent_find(fd, from);
    if (data->from >= from + size)
        return is_zero ? MEND_NONE : MEND_WRITE;
    if (memcmp(node->there + from, node->image + from, size) == 0)
        return MEND_NONE;
    return is_zero ? MEND_PUNCH : MEND_WRITE;
}

static bool
write_file(struct node *node, int fd)
{
    uint64_t pages = (node->size + PAGE - 1) / PAGE;
    uint64_t first = 0;
    struct extent data = {.from = 0, .end = 0};
    enum mend mend = MEND_NONE;
    struct stat facts;

    if (fstat(fd, &facts) != 0)
        return false;
    if ((uint64_t)facts.st_size != node->size && ftruncate(fd, (off_t)node->size) != 0)
        return false;
    if (node->size == 0)
        return true;
    if (!there_map(node, fd, facts.st_ino))
        return false;
    for (uint64_t page = 0; page < pages; page++) {
        enum mend next = page_compare(node, fd, page, &data);

        if (next == mend)
            continue;
        if (!pages_mend(node, fd, mend, first, page))
            return false;
        mend = next;
        first = page;
    }
    return pages_mend(node, fd, mend, first, pages);
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
