/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_shim.c - a preloaded library that logs what a program does to the files below a directory.
 *
 * Owns      the log file (crash_log.h). It watches the calls by which a program that does not use
 *           io_uring can change files: write, pwrite and their kin, truncate, fallocate, sync,
 *           open with O_CREAT or O_TRUNC, mkdir, rename, unlink, also through syscall().
 * Not here  what the records mean (disk_model.c).
 * Threads   any; one lock orders the records.
 */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crash_log.h"

#define SHIM_API __attribute__((visibility("default")))

static pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;
static int shim_log = -1;
static char shim_dir[PATH_MAX];
static size_t shim_dir_length;
static _Atomic uint64_t shim_sync_count;
static const char *_Atomic shim_full_part; /* NULL: there is room. */
static _Atomic uint64_t shim_asked_count;  /* Calls for room since it is full. */
static _Atomic uint64_t shim_full_skip, shim_full_count;
static _Atomic uint64_t shim_refused_count;

/* The next definition of a function: the C library's. dlsym() gives an object pointer, which ISO C
 * does not convert. */
typedef void (*any_fn)(void);

static any_fn
next_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    any_fn function;

    static_assert(sizeof(found) == sizeof(function), "POSIX promises it");
    memcpy(&function, &found, sizeof(function));
    return function;
}

#define NEXT(type, name) ((type)next_of(name))

__attribute__((constructor)) static void
shim_start(void)
{
    const char *dir = getenv(CRASH_DIR_VARIABLE);
    const char *log = getenv(CRASH_LOG_VARIABLE);

    if (dir == NULL || log == NULL || realpath(dir, shim_dir) == NULL)
        return;
    shim_dir_length = strlen(shim_dir);
    int low = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    shim_log = fcntl(low, F_DUPFD_CLOEXEC, 900);
    close(low);
}

/* The path relative to the recorded directory, or NULL when it is not in it. What the owner shows
 * to others is nothing that a crash could lose. */
static const char *
path_within(const char *path)
{
    if (shim_log < 0 || strncmp(path, shim_dir, shim_dir_length) != 0 ||
        strcmp(path + shim_dir_length, "/store/live") == 0)
        return NULL;
    if (path[shim_dir_length] == 0)
        return path + shim_dir_length;
    return path[shim_dir_length] == '/' ? path + shim_dir_length + 1 : NULL;
}

/* Where an open descriptor points to; NULL when that is outside. `buffer` has PATH_MAX bytes. */
static const char *
path_of(int fd, char *buffer)
{
    char link[64];

    if (shim_log < 0)
        return NULL;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    buffer[length] = 0;
    char *deleted = strstr(buffer, " (deleted)");
    if (deleted != NULL)
        *deleted = 0;
    return path_within(buffer);
}

/* The absolute path of `name` below the directory `fd`, its links resolved up to the last part. */
static const char *
path_at(int fd, const char *name, char *buffer)
{
    char joined[PATH_MAX], head[PATH_MAX];

    if (shim_log < 0)
        return NULL;
    if (name[0] == '/' || fd == AT_FDCWD) {
        snprintf(joined, sizeof(joined), "%s", name);
    } else {
        char link[64];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, joined, sizeof(joined) - 1);
        if (length <= 0)
            return NULL;
        snprintf(joined + length, sizeof(joined) - (size_t)length, "/%s", name);
    }
    char *slash = strrchr(joined, '/');
    if (slash == NULL || slash == joined)
        return NULL;
    *slash = 0;
    if (realpath(joined, head) == NULL)
        return NULL;
    if (snprintf(buffer, PATH_MAX, "%s/%s", head, slash + 1) >= PATH_MAX)
        return NULL;
    return path_within(buffer);
}

static void
emit_locked(struct crash_record *record, const char *path, const struct iovec *data, int count)
{
    struct iovec pieces[2 + 64];
    uint64_t left = record->data_length;
    int used = 2;

    pieces[0] = (struct iovec){record, sizeof(*record)};
    pieces[1] = (struct iovec){(void *)(uintptr_t)path, record->path_length};
    for (int i = 0; i < count && left > 0; i++) {
        size_t size = data[i].iov_len < left ? data[i].iov_len : (size_t)left;
        pieces[used++] = (struct iovec){data[i].iov_base, size};
        left -= size;
    }
    ssize_t total = 0;
    for (int i = 0; i < used; i++)
        total += (ssize_t)pieces[i].iov_len;
    if (NEXT(ssize_t(*)(int, const struct iovec *, int), "writev")(shim_log, pieces, used) != total)
        abort();
}

static void
emit(enum crash_kind kind, const char *path, size_t path_length, uint64_t inode, uint64_t offset,
    uint64_t length)
{
    struct crash_record record = {.kind = kind,
        .path_length = (uint32_t)path_length,
        .inode = inode,
        .offset = offset,
        .length = length};

    pthread_mutex_lock(&shim_lock);
    emit_locked(&record, path, NULL, 0);
    pthread_mutex_unlock(&shim_lock);
}

static void
emit_path(enum crash_kind kind, const char *path, const char *absolute)
{
    struct stat facts = {0};

    if (kind != CRASH_UNLINK && lstat(absolute, &facts) != 0)
        return;
    emit(kind, path, strlen(path), facts.st_ino, 0, 0);
}

static void
emit_write(int fd, off_t offset, const struct iovec *data, int count, ssize_t result)
{
    char buffer[PATH_MAX];
    const char *path = result > 0 ? path_of(fd, buffer) : NULL;
    struct stat facts;

    if (path == NULL || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return;
    struct crash_record record = {.kind = CRASH_WRITE,
        .path_length = (uint32_t)strlen(path),
        .inode = facts.st_ino,
        .offset = (uint64_t)offset,
        .length = (uint64_t)result,
        .data_length = (uint64_t)result};
    struct crash_record durable = {.kind = CRASH_DURABLE, .inode = facts.st_ino};

    pthread_mutex_lock(&shim_lock);
    emit_locked(&record, path, data, count);
    if ((fcntl(fd, F_GETFL) & O_DSYNC) != 0)
        emit_locked(&durable, "", NULL, 0);
    pthread_mutex_unlock(&shim_lock);
}

SHIM_API void crash_mark(const char *line);

void
crash_mark(const char *line)
{
    struct crash_record record = {.kind = CRASH_MARK, .data_length = strlen(line)};
    struct iovec data = {(void *)(uintptr_t)line, strlen(line)};

    if (shim_log < 0)
        return;
    pthread_mutex_lock(&shim_lock);
    emit_locked(&record, "", &data, 1);
    pthread_mutex_unlock(&shim_lock);
}

SHIM_API uint64_t crash_full(const char *part, uint64_t skip, uint64_t count);

uint64_t
crash_full(const char *part, uint64_t skip, uint64_t count)
{
    atomic_store(&shim_full_part, NULL);
    atomic_store(&shim_asked_count, 0);
    atomic_store(&shim_full_skip, skip);
    atomic_store(&shim_full_count, count);
    atomic_store(&shim_full_part, part);
    return atomic_exchange(&shim_refused_count, 0);
}

/* A call that may take room of the disk for that path asks. True: errno says that there is none. */
static bool
path_has_no_room(const char *path)
{
    const char *part = atomic_load(&shim_full_part);

    if (part == NULL || path == NULL || strstr(path, part) == NULL)
        return false;
    uint64_t number = atomic_fetch_add(&shim_asked_count, 1);
    uint64_t skip = atomic_load(&shim_full_skip);
    if (number < skip || number - skip >= atomic_load(&shim_full_count))
        return false;
    atomic_fetch_add(&shim_refused_count, 1);
    errno = ENOSPC;
    return true;
}

static bool
has_no_room(int fd)
{
    char buffer[PATH_MAX];

    return atomic_load(&shim_full_part) != NULL && path_has_no_room(path_of(fd, buffer));
}

static bool
has_no_room_to_grow(int fd, off_t length)
{
    struct stat facts;

    return fstat(fd, &facts) == 0 && length > facts.st_size && has_no_room(fd);
}

/* --- Writes ----------------------------------------------------------------------------------- */

SHIM_API ssize_t
pwrite(int fd, const void *source, size_t size, off_t offset)
{
    struct iovec data = {(void *)(uintptr_t)source, size};
    if (has_no_room(fd))
        return -1;
    ssize_t result =
        NEXT(ssize_t(*)(int, const void *, size_t, off_t), "pwrite")(fd, source, size, offset);

    emit_write(fd, offset, &data, 1, result);
    return result;
}

SHIM_API ssize_t pwrite64(int fd, const void *source, size_t size, off_t offset)
    __attribute__((alias("pwrite")));

SHIM_API ssize_t
pwritev(int fd, const struct iovec *data, int count, off_t offset)
{
    if (has_no_room(fd))
        return -1;
    ssize_t result =
        NEXT(ssize_t(*)(int, const struct iovec *, int, off_t), "pwritev")(fd, data, count, offset);

    emit_write(fd, offset, data, count, result);
    return result;
}

SHIM_API ssize_t pwritev64(int fd, const struct iovec *data, int count, off_t offset)
    __attribute__((alias("pwritev")));

SHIM_API ssize_t
pwritev2(int fd, const struct iovec *data, int count, off_t offset, int flags)
{
    if (has_no_room(fd))
        return -1;
    ssize_t result = NEXT(ssize_t(*)(int, const struct iovec *, int, off_t, int), "pwritev2")(
        fd, data, count, offset, flags);

    emit_write(fd, offset, data, count, result);
    return result;
}

SHIM_API ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off_t offset, int flags)
    __attribute__((alias("pwritev2")));

SHIM_API ssize_t
write(int fd, const void *source, size_t size)
{
    struct iovec data = {(void *)(uintptr_t)source, size};
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if (has_no_room(fd))
        return -1;
    ssize_t result = NEXT(ssize_t(*)(int, const void *, size_t), "write")(fd, source, size);

    if (offset >= 0)
        emit_write(fd, offset, &data, 1, result);
    return result;
}

SHIM_API ssize_t
writev(int fd, const struct iovec *data, int count)
{
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if (has_no_room(fd))
        return -1;
    ssize_t result = NEXT(ssize_t(*)(int, const struct iovec *, int), "writev")(fd, data, count);

    if (offset >= 0)
        emit_write(fd, offset, data, count, result);
    return result;
}

/* --- Sizes and syncs -------------------------------------------------------------------------- */

static void
emit_size(int fd, enum crash_kind kind, off_t offset, off_t length)
{
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);
    struct stat facts;

    if (path != NULL && fstat(fd, &facts) == 0)
        emit(kind, path, strlen(path), facts.st_ino, (uint64_t)offset, (uint64_t)length);
}

SHIM_API int
ftruncate(int fd, off_t length)
{
    if (has_no_room_to_grow(fd, length))
        return -1;
    int result = NEXT(int (*)(int, off_t), "ftruncate")(fd, length);

    if (result == 0)
        emit_size(fd, CRASH_TRUNCATE, 0, length);
    return result;
}

SHIM_API int ftruncate64(int fd, off_t length) __attribute__((alias("ftruncate")));

SHIM_API int
fallocate(int fd, int mode, off_t offset, off_t length)
{
    if (has_no_room(fd))
        return -1;
    int result = NEXT(int (*)(int, int, off_t, off_t), "fallocate")(fd, mode, offset, length);

    /* Modes that punch or collapse have no place in the model: a store has no use for them. */
    if (result == 0 && (mode & ~FALLOC_FL_KEEP_SIZE) != 0)
        abort();
    if (result == 0 && mode == 0)
        emit_size(fd, CRASH_ALLOCATE, offset, length);
    return result;
}

SHIM_API int fallocate64(int fd, int mode, off_t offset, off_t length)
    __attribute__((alias("fallocate")));

SHIM_API int
posix_fallocate(int fd, off_t offset, off_t length)
{
    if (has_no_room(fd))
        return ENOSPC;
    int result = NEXT(int (*)(int, off_t, off_t), "posix_fallocate")(fd, offset, length);

    if (result == 0)
        emit_size(fd, CRASH_ALLOCATE, offset, length);
    return result;
}

SHIM_API int posix_fallocate64(int fd, off_t offset, off_t length)
    __attribute__((alias("posix_fallocate")));

static int
sync_as(const char *name, int fd)
{
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);
    struct stat facts;

    if (path == NULL || fstat(fd, &facts) != 0)
        return NEXT(int (*)(int), name)(fd);
    uint64_t number = atomic_fetch_add_explicit(&shim_sync_count, 1, memory_order_relaxed);
    size_t length = strlen(path);
    emit(CRASH_SYNC_BEGIN, path, length, facts.st_ino, number, 0);
    int result = NEXT(int (*)(int), name)(fd);
    emit(CRASH_SYNC_END, path, length, facts.st_ino, number, result == 0);
    return result;
}

SHIM_API int
fsync(int fd)
{
    return sync_as("fsync", fd);
}

SHIM_API int
fdatasync(int fd)
{
    return sync_as("fdatasync", fd);
}

/* --- Names ------------------------------------------------------------------------------------ */

/* An open makes a file: `was_there` was observed before the call. */
static bool
makes_without_room(int dir, const char *path, int flags, bool was_there)
{
    char buffer[PATH_MAX];

    return !was_there && (flags & O_CREAT) != 0 && atomic_load(&shim_full_part) != NULL &&
           path_has_no_room(path_at(dir, path, buffer));
}

/* What an open did to the tree. */
static void
emit_open(int fd, int flags, bool was_there)
{
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);

    if (path == NULL)
        return;
    if (!was_there && (flags & O_CREAT) != 0)
        emit_path(CRASH_CREATE, path, buffer);
    else if ((flags & O_TRUNC) != 0)
        emit_size(fd, CRASH_TRUNCATE, 0, 0);
}

SHIM_API int
openat(int dir, const char *path, int flags, ...)
{
    struct stat facts;
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);

    bool was_there = fstatat(dir, path, &facts, 0) == 0;
    if (makes_without_room(dir, path, flags, was_there))
        return -1;
    int fd = NEXT(int (*)(int, const char *, int, ...), "openat")(dir, path, flags, mode);
    if (fd >= 0)
        emit_open(fd, flags, was_there);
    return fd;
}

SHIM_API int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

SHIM_API int
open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);

    return openat(AT_FDCWD, path, flags, mode);
}

SHIM_API int open64(const char *path, int flags, ...) __attribute__((alias("open")));

SHIM_API int
mkdirat(int dir, const char *path, mode_t mode)
{
    char buffer[PATH_MAX];
    int result = NEXT(int (*)(int, const char *, mode_t), "mkdirat")(dir, path, mode);
    const char *within = result == 0 ? path_at(dir, path, buffer) : NULL;

    if (within != NULL)
        emit_path(CRASH_MKDIR, within, buffer);
    return result;
}

SHIM_API int
mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

SHIM_API int
renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    char from_buffer[PATH_MAX], to_buffer[PATH_MAX], both[2 * PATH_MAX];
    const char *from_path = path_at(from_dir, from, from_buffer);
    const char *to_path = path_at(to_dir, to, to_buffer);
    int result = NEXT(int (*)(int, const char *, int, const char *, unsigned), "renameat2")(
        from_dir, from, to_dir, to, flags);

    if (result == 0 && from_path != NULL && to_path != NULL) {
        size_t from_size = strlen(from_path) + 1, to_size = strlen(to_path);
        memcpy(both, from_path, from_size);
        memcpy(both + from_size, to_path, to_size);
        emit(CRASH_RENAME, both, from_size + to_size, 0, 0, 0);
    }
    return result;
}

SHIM_API int
renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat2(from_dir, from, to_dir, to, 0);
}

SHIM_API int
rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

SHIM_API int
unlinkat(int dir, const char *path, int flags)
{
    char buffer[PATH_MAX];
    const char *within = path_at(dir, path, buffer);
    int result = NEXT(int (*)(int, const char *, int), "unlinkat")(dir, path, flags);

    if (result == 0 && within != NULL)
        emit(CRASH_UNLINK, within, strlen(within), 0, 0, 0);
    return result;
}

SHIM_API int
unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

SHIM_API int
rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* openat2() has no wrapper in this C library, so programs reach it here. */
SHIM_API long
syscall(long number, ...)
{
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);

    long (*next)(long, ...) = NEXT(long (*)(long, ...), "syscall");
    if (number != SYS_openat2)
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const struct open_how *how = (const struct open_how *)(uintptr_t)a[2];
    struct stat facts;
    bool was_there = fstatat((int)a[0], (const char *)(uintptr_t)a[1], &facts, 0) == 0;
    if (makes_without_room((int)a[0], (const char *)(uintptr_t)a[1], (int)how->flags, was_there))
        return -1;
    long fd = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (fd >= 0)
        emit_open((int)fd, (int)how->flags, was_there);
    return fd;
}
