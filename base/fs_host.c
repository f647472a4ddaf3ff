/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_host.c - files and directories of Linux.
 *
 * Everything below a store's directory is reached by one name from an open directory, so that
 * nobody who renames a parent or plants a link leads us elsewhere. What is created belongs to the
 * user alone (0600, 0700), whatever the umask says.
 *
 * Not here  the owner's lock and fork (lock_host.c), maps (map_host.c).
 * Threads   any; one file or directory by several threads at once is fine except for close.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"
#include "growth_host.h"
#include "streams_host.h"
#include "try.h"

enum {
    MODE_FILE = 0600,
    MODE_DIR = 0700,
    OPEN_ATTEMPTS_MAX = 8,   /* A name that appears and vanishes as often is somebody's game. */
    ALIGN_UNKNOWN = 4096,    /* When the kernel does not tell: enough for every device we know. */
    ALIGN_MAX = 1024 * 1024, /* More than that is an answer that makes no sense. */
};

struct fs_dir {
    int descriptor;
    char path[]; /* For sentences. */
};

/* --- 1. Names and opening --------------------------------------------------------------------- */

static enum kvt_status
name_check(const struct fs_dir *dir, const char *name)
{
    size_t length = strnlen(name, NAME_MAX + 1);

    if (length == 0 || length > NAME_MAX || strchr(name, '/') != NULL || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0) {
        return failure_set(KVT_E_INVAL, 0, "'%.64s' in %s is not a plain name of 1 to %d bytes.",
            name, dir->path, NAME_MAX);
    }
    return KVT_OK;
}

/*
 * openat() that follows no link. openat2() says so for every kind of name; where a container
 * forbids it or the kernel is old, O_NOFOLLOW does the same for a name without '/'.
 */
static int
open_beneath(int directory, const char *name, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    int descriptor;

    for (int i = 0; i < OPEN_ATTEMPTS_MAX; i++) {
        descriptor = (int)syscall(SYS_openat2, directory, name, &how, sizeof(how));
        /* EAGAIN: a rename elsewhere made the kernel unsure about ".."; it asks us to retry. */
        if (descriptor >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    if (descriptor < 0 && (errno == ENOSYS || errno == EPERM)) {
        do {
            descriptor = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW, mode);
        } while (descriptor < 0 && errno == EINTR);
    }
    return streams_pass(descriptor);
}

static enum kvt_status
failure_at(int error, const char *what, const char *directory, const char *name)
{
    char path[FAILURE_TEXT_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return failure_errno(error, what, path);
}

/* --- 2. Directories --------------------------------------------------------------------------- */

static struct fs_dir *
dir_create(const char *parent, const char *name)
{
    size_t parent_length = parent == NULL ? 0 : strlen(parent) + 1;
    size_t name_length = strlen(name);
    struct fs_dir *dir = calloc(1, sizeof(*dir) + parent_length + name_length + 1);

    if (dir == NULL) {
        (void)failure_set(KVT_E_NOMEM, ENOMEM, "No memory to open the directory %.200s.", name);
        return NULL;
    }
    dir->descriptor = -1;
    if (parent != NULL) {
        memcpy(dir->path, parent, parent_length - 1);
        dir->path[parent_length - 1] = '/';
    }
    memcpy(dir->path + parent_length, name, name_length);
    return dir;
}

static void
host_dir_close(struct fs_dir *dir)
{
    if (dir == NULL)
        return;
    if (dir->descriptor >= 0)
        (void)close(dir->descriptor);
    free(dir);
}

static enum kvt_status
sync_descriptor(int descriptor, const char *what, const char *path)
{
    /* Never retried but for a signal: after an error the kernel forgets what it could not write. */
    while (fsync(descriptor) != 0) {
        if (errno != EINTR)
            return failure_errno(errno, what, path);
    }
    return KVT_OK;
}

static enum kvt_status
host_dir_sync(struct fs_dir *dir)
{
    return sync_descriptor(dir->descriptor, "Cannot sync", dir->path);
}

static enum kvt_status
host_dir_sync_parent(struct fs_dir *dir)
{
    int parent = openat(dir->descriptor, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum kvt_status status;

    if (parent < 0) {
        /* A parent that we may write but not read: sync all of the file system. */
        if (syncfs(dir->descriptor) != 0)
            return failure_errno(errno, "Cannot sync the file system of", dir->path);
        return KVT_OK;
    }
    status = sync_descriptor(parent, "Cannot sync the parent of", dir->path);
    /* A file system that syncs no directories (autofs, squashfs): the name was not made there. */
    if (status == KVT_E_INVAL)
        status = KVT_OK;
    (void)close(parent);
    return status;
}

/*
 * Before a new directory is opened: a umask that takes the owner's own rights (0777) would keep us
 * out. Its success is not needed (glibc goes through /proc) and not trusted: fchmod() follows.
 */
static void
dir_admit_owner(int parent, const char *name)
{
    if (fchmodat(parent, name, MODE_DIR, AT_SYMLINK_NOFOLLOW) != 0)
        return;
}

/* The path is the user's own and may lead through links; only what is below it may not. */
static enum kvt_status
host_dir_open(void *context, const char *path, unsigned flags, struct fs_dir **dir_out)
{
    enum kvt_status status = KVT_OK;
    bool is_new = false;
    struct fs_dir *dir;

    (void)context;
    *dir_out = NULL;
    if ((flags & FS_CREATE) != 0) {
        if (mkdir(path, MODE_DIR) == 0)
            is_new = true;
        else if (errno != EEXIST || (flags & FS_EXCLUSIVE) != 0)
            return failure_errno(errno, "Cannot create the directory", path);
    }
    dir = dir_create(NULL, path);
    if (dir == NULL)
        return KVT_E_NOMEM;
    if (is_new)
        dir_admit_owner(AT_FDCWD, path);
    /* O_PATH: it suffices that we may pass. */
    dir->descriptor = streams_pass(
        open(path, ((flags & FS_FOLLOW) != 0 ? O_PATH : O_RDONLY) | O_DIRECTORY | O_CLOEXEC));
    if (dir->descriptor < 0)
        status = failure_errno(errno, "Cannot open the directory", path);
    else if (is_new && fchmod(dir->descriptor, MODE_DIR) != 0)
        status = failure_errno(errno, "Cannot set the mode of", dir->path);
    if (status != KVT_OK) {
        host_dir_close(dir);
        return status;
    }
    *dir_out = dir;
    return KVT_OK;
}

static enum kvt_status
host_dir_open_at(struct fs_dir *parent, const char *name, unsigned flags, struct fs_dir **dir_out)
{
    enum kvt_status status = KVT_OK;
    bool is_new = false;
    struct fs_dir *dir;

    *dir_out = NULL;
    KVT_TRY(name_check(parent, name));
    dir = dir_create(parent->path, name);
    if (dir == NULL)
        return KVT_E_NOMEM;
    if ((flags & FS_CREATE) != 0) {
        if (mkdirat(parent->descriptor, name, MODE_DIR) == 0)
            is_new = true;
        else if (errno != EEXIST || (flags & FS_EXCLUSIVE) != 0)
            status = failure_errno(errno, "Cannot create the directory", dir->path);
    }
    if (is_new)
        dir_admit_owner(parent->descriptor, name);
    if (status == KVT_OK) {
        dir->descriptor = open_beneath(parent->descriptor, name, O_RDONLY | O_DIRECTORY, 0);
        if (dir->descriptor < 0)
            status = failure_errno(errno, "Cannot open the directory", dir->path);
        else if (is_new && fchmod(dir->descriptor, MODE_DIR) != 0)
            status = failure_errno(errno, "Cannot set the mode of", dir->path);
    }
    if (status != KVT_OK) {
        host_dir_close(dir);
        return status;
    }
    *dir_out = dir;
    return KVT_OK;
}

static const char *
host_dir_path(const struct fs_dir *dir)
{
    return dir->path;
}

static enum kvt_status
host_dir_list(struct fs_dir *dir, bool (*visit)(void *visitor, const char *name), void *visitor)
{
    /* Opened anew: a duplicate would share its position with every other listing. */
    int descriptor = openat(dir->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct dirent *entry;
    DIR *stream;
    int error;

    if (descriptor < 0)
        return failure_errno(errno, "Cannot list the directory", dir->path);
    stream = fdopendir(descriptor);
    if (stream == NULL) {
        error = errno;
        (void)close(descriptor);
        return failure_errno(error, "Cannot list the directory", dir->path);
    }
    for (;;) {
        errno = 0;
        entry = readdir(stream);
        error = errno;
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        error = 0;
        if (!visit(visitor, entry->d_name))
            break;
    }
    (void)closedir(stream);
    if (error != 0)
        return failure_errno(error, "Cannot list the directory", dir->path);
    return KVT_OK;
}

static bool
host_dir_has_locks(const struct fs_dir *dir)
{
    enum {
        FUSE_MAGIC = 0x65735546 /* Of linux/magic.h. */
    };
    struct statfs facts;

    return fstatfs(dir->descriptor, &facts) == 0 && (uint32_t)facts.f_type != FUSE_MAGIC &&
           fs_network_name((uint32_t)facts.f_type) == NULL;
}

static const char *
host_dir_network(const struct fs_dir *dir)
{
    struct statfs facts;

    return fstatfs(dir->descriptor, &facts) == 0 ? fs_network_name((uint32_t)facts.f_type) : NULL;
}

uint64_t
fs_space_bytes(uint64_t block_count, uint64_t free_count, uint64_t block_bytes)
{
    uint64_t bytes;

    /* A tmpfs without a bound, and what does not say (some of FUSE), have no blocks at all. */
    if (block_count == 0 || __builtin_mul_overflow(free_count, block_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

static enum kvt_status
host_dir_space(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    struct statvfs facts;

    if (fstatvfs(dir->descriptor, &facts) != 0)
        return failure_errno(errno, "Cannot ask for the free space of", dir->path);
    *free_bytes_out = fs_space_bytes(facts.f_blocks, facts.f_bavail, facts.f_frsize);
    return KVT_OK;
}

static enum kvt_status
host_rename(struct fs_dir *dir, const char *from, const char *to)
{
    KVT_TRY(name_check(dir, from));
    KVT_TRY(name_check(dir, to));
    if (renameat(dir->descriptor, from, dir->descriptor, to) != 0)
        return failure_at(errno, "Cannot rename", dir->path, from);
    return KVT_OK;
}

static enum kvt_status
host_rename_new(struct fs_dir *dir, const char *from, const char *to)
{
    KVT_TRY(name_check(dir, from));
    KVT_TRY(name_check(dir, to));
    if (renameat2(dir->descriptor, from, dir->descriptor, to, RENAME_NOREPLACE) == 0)
        return KVT_OK;
    /* The file system cannot do that, or seccomp knows no renameat2(). */
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM)
        return host_rename(dir, from, to);
    return failure_at(errno, "Cannot rename", dir->path, from);
}

static enum kvt_status
host_unlink(struct fs_dir *dir, const char *name)
{
    KVT_TRY(name_check(dir, name));
    if (unlinkat(dir->descriptor, name, 0) != 0)
        return failure_at(errno, "Cannot remove", dir->path, name);
    return KVT_OK;
}

/* --- 3. Opening files ------------------------------------------------------------------------- */

static struct fs_host_file *
file_of(struct fs_file *file)
{
    return (struct fs_host_file *)(void *)file;
}

static const struct fs_host_file *
file_of_const(const struct fs_file *file)
{
    return (const struct fs_host_file *)(const void *)file;
}

static void
host_close(struct fs_file *file)
{
    if (file == NULL)
        return;
    lock_close(file_of(file));
    free(file_of(file));
}

/* A file of somebody else's, wherever its name leads. */
static int
open_anywhere(int directory, const char *name, int flags)
{
    int descriptor;

    do
        descriptor = streams_pass(openat(directory, name, flags | O_CLOEXEC));
    while (descriptor < 0 && errno == EINTR);
    return descriptor >= 0 ? descriptor : -errno;
}

/* Open or create; *is_new_out tells which. Returns minus an errno value on failure. */
static int
open_or_create(const struct fs_dir *dir, const char *name, unsigned flags, bool *is_new_out)
{
    /* O_NONBLOCK: a pipe in the place of a file must not hold us; host_open() refuses it. */
    int access = ((flags & FS_READ_ONLY) != 0 ? O_RDONLY : O_RDWR) | O_NONBLOCK | O_NOCTTY;
    int descriptor = -1;

    *is_new_out = false;
    if ((flags & FS_FOLLOW) != 0)
        return open_anywhere(dir->descriptor, name, access);
    for (int i = 0; i < OPEN_ATTEMPTS_MAX; i++) {
        if ((flags & FS_CREATE) != 0) {
            /* Exclusive, to know whether the file is ours to set the mode of. */
            descriptor = open_beneath(dir->descriptor, name, access | O_CREAT | O_EXCL, MODE_FILE);
            if (descriptor >= 0) {
                *is_new_out = true;
                return descriptor;
            }
            if (errno != EEXIST || (flags & FS_EXCLUSIVE) != 0)
                return -errno;
        }
        descriptor = open_beneath(dir->descriptor, name, access, 0);
        /* Gone between the two: create it after all. */
        if (descriptor >= 0 || errno != ENOENT || (flags & FS_CREATE) == 0)
            break;
    }
    return descriptor >= 0 ? descriptor : -errno;
}

/* The alignment of direct transfers; 0 when the file does not do them. */
static uint32_t
direct_align(int descriptor)
{
    struct statx facts = {0};
    uint32_t align;

    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) != 0 ||
        (facts.stx_mask & STATX_DIOALIGN) == 0)
        return ALIGN_UNKNOWN;
    align = facts.stx_dio_mem_align > facts.stx_dio_offset_align ? facts.stx_dio_mem_align
                                                                 : facts.stx_dio_offset_align;
    if (facts.stx_dio_mem_align == 0 || facts.stx_dio_offset_align == 0 || align > ALIGN_MAX ||
        (align & (align - 1)) != 0)
        return 0;
    return align;
}

/*
 * Set the flags that last: O_DIRECT when it is asked for and possible. Set on the open file and not
 * when opening, because a file system that refuses the latter may have created the file already.
 */
static enum kvt_status
file_set_flags(struct fs_host_file *file, unsigned flags)
{
    int descriptor = file->file.descriptor;
    int plain = fcntl(descriptor, F_GETFL);

    if (plain < 0)
        return failure_errno(errno, "Cannot read the flags of", file->path);
    /* Off again: io_uring answers EAGAIN for files that have it. */
    plain &= ~O_NONBLOCK;
    file->align = 1;
    if ((flags & FS_DIRECT) != 0 && fcntl(descriptor, F_SETFL, plain | O_DIRECT) == 0) {
        file->align = direct_align(descriptor);
        file->is_direct = file->align != 0;
        if (file->is_direct)
            return KVT_OK;
        file->align = 1;
    }
    if (fcntl(descriptor, F_SETFL, plain) != 0)
        return failure_errno(errno, "Cannot set the flags of", file->path);
    return KVT_OK;
}

static enum kvt_status
kind_refuse(const struct fs_host_file *file)
{
    return failure_set(KVT_E_INVAL, 0, "%s is not a regular file.", file->path);
}

static enum kvt_status
file_finish(struct fs_host_file *file, unsigned flags, bool is_new)
{
    struct stat facts;

    if (fstat(file->file.descriptor, &facts) != 0)
        return failure_errno(errno, "Cannot examine", file->path);
    if (!S_ISREG(facts.st_mode))
        return kind_refuse(file);
    if (is_new && fchmod(file->file.descriptor, MODE_FILE) != 0)
        return failure_errno(errno, "Cannot set the mode of", file->path);
    return file_set_flags(file, flags);
}

static enum kvt_status
host_open(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    size_t dir_length = strlen(dir->path);
    enum kvt_status status;
    struct fs_host_file *file;
    bool is_new;
    int descriptor;

    *file_out = NULL;
    KVT_TRY(name_check(dir, name));
    file = calloc(1, sizeof(*file) + dir_length + strlen(name) + 2);
    if (file == NULL) {
        return failure_set(KVT_E_NOMEM, ENOMEM, "No memory to open %.128s/%.64s.", dir->path, name);
    }
    memcpy(file->path, dir->path, dir_length);
    file->path[dir_length] = '/';
    memcpy(file->path + dir_length + 1, name, strlen(name));
    file->fork_count = lock_fork_count();
    descriptor = open_or_create(dir, name, flags, &is_new);
    file->file.descriptor = descriptor < 0 ? -1 : descriptor;
    if (descriptor == -ENXIO) /* A socket, or a node whose device is not there. */
        status = kind_refuse(file);
    else if (descriptor < 0)
        status = failure_errno(-descriptor, "Cannot open", file->path);
    else
        status = file_finish(file, flags, is_new);
    if (status != KVT_OK) {
        host_close(&file->file);
        return status;
    }
    *file_out = &file->file;
    return KVT_OK;
}

static bool
host_is_same(const struct fs_file *one, const struct fs_file *other)
{
    struct stat facts[2];

    return fstat(one->descriptor, &facts[0]) == 0 && fstat(other->descriptor, &facts[1]) == 0 &&
           facts[0].st_dev == facts[1].st_dev && facts[0].st_ino == facts[1].st_ino;
}

/* --- 4. Bytes of files ------------------------------------------------------------------------ */

/* Offsets of the kernel are signed. */
static enum kvt_status
range_check(const struct fs_host_file *file, uint64_t offset, uint64_t size)
{
    uint64_t end;

    if (__builtin_add_overflow(offset, size, &end) || end > INT64_MAX) {
        return failure_set(KVT_E_INVAL, 0, "%s: %llu bytes at %llu are beyond every file.",
            file->path, (unsigned long long)size, (unsigned long long)offset);
    }
    return KVT_OK;
}

static enum kvt_status
host_read_at(struct fs_file *handle, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    struct fs_host_file *file = file_of(handle);
    uint8_t *to = target;
    size_t done = 0;

    *read_out = 0;
    KVT_TRY(range_check(file, offset, size));
    while (done < size) {
        ssize_t count = pread(handle->descriptor, to + done, size - done, (off_t)(offset + done));

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return failure_errno(errno, "Cannot read", file->path);
        done += (size_t)count;
        /* A direct read that ends off the grid met the end of the file: the rest of the request
         * would not be aligned. */
        if (count == 0 || (size_t)count % file->align != 0)
            break;
    }
    *read_out = done;
    return KVT_OK;
}

static enum kvt_status
host_write_at(struct fs_file *handle, const void *source, size_t size, uint64_t offset)
{
    struct fs_host_file *file = file_of(handle);
    const uint8_t *from = source;
    size_t done = 0;

    KVT_TRY(range_check(file, offset, size));
    while (done < size) {
        ssize_t count =
            growth_write(handle->descriptor, from + done, size - done, (off_t)(offset + done));

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return failure_errno(errno, "Cannot write", file->path);
        if (count == 0)
            return failure_errno(EIO, "The device takes no bytes of", file->path);
        done += (size_t)count;
    }
    return KVT_OK;
}

static enum kvt_status
host_sync(struct fs_file *file)
{
    return sync_descriptor(file->descriptor, "Cannot sync", file_of(file)->path);
}

static enum kvt_status
host_size(struct fs_file *file, uint64_t *size_out)
{
    struct stat facts;

    if (fstat(file->descriptor, &facts) != 0)
        return failure_errno(errno, "Cannot examine", file_of(file)->path);
    *size_out = (uint64_t)facts.st_size;
    return KVT_OK;
}

static enum kvt_status
host_allocate(struct fs_file *file, uint64_t offset, uint64_t size)
{
    KVT_TRY(range_check(file_of(file), offset, size));
    if (size == 0)
        return KVT_OK;
    if (growth_allocate(file->descriptor, (off_t)offset, (off_t)size) != 0)
        return failure_errno(errno, "Cannot allocate the space of", file_of(file)->path);
    return KVT_OK;
}

static enum kvt_status
host_truncate(struct fs_file *file, uint64_t size)
{
    KVT_TRY(range_check(file_of(file), 0, size));
    while (growth_truncate(file->descriptor, (off_t)size) != 0) {
        if (errno != EINTR)
            return failure_errno(errno, "Cannot set the size of", file_of(file)->path);
    }
    return KVT_OK;
}

static enum kvt_status
host_lock(struct fs_file *file, uint64_t timeout_ns)
{
    return lock_take(file_of(file), timeout_ns);
}

static bool
host_is_direct(const struct fs_file *file)
{
    return file_of_const(file)->is_direct;
}

static uint32_t
host_align(const struct fs_file *file)
{
    return file_of_const(file)->align;
}

const struct fs_ops fs_host_ops = {
    .dir_open = host_dir_open,
    .dir_open_at = host_dir_open_at,
    .dir_close = host_dir_close,
    .dir_sync = host_dir_sync,
    .dir_sync_parent = host_dir_sync_parent,
    .dir_path = host_dir_path,
    .dir_list = host_dir_list,
    .dir_network = host_dir_network,
    .dir_has_locks = host_dir_has_locks,
    .dir_space = host_dir_space,
    .rename = host_rename,
    .rename_new = host_rename_new,
    .unlink = host_unlink,
    .open = host_open,
    .close = host_close,
    .is_same = host_is_same,
    .read_at = host_read_at,
    .write_at = host_write_at,
    .sync = host_sync,
    .size = host_size,
    .allocate = host_allocate,
    .truncate = host_truncate,
    .lock = host_lock,
    .is_direct = host_is_direct,
    .align = host_align,
    .map = map_host_make,
    .unmap = map_host_end,
    .map_prove = map_host_prove,
};
