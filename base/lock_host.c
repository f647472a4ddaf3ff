/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_host.c - the owner's lock of a file, and its end in a forked child; other descriptors that
 * end there (fork_descriptor.h).
 *
 * Owns      the lists of locked files and of such descriptors of this process.
 * Threads   any; one mutex guards everything.
 *
 * An open file description lock belongs to the description, and a forked child shares that: a
 * child that outlives a killed owner would keep the store locked. So the child closes the
 * descriptors of all locked files before fork() returns in it. That must reach files of which the
 * child has no handle, hence variables with static storage, of which the library has few: the lists
 * and their mutex. The mutex is held around every fork (pthread_atfork), so a fork sees a file
 * either locked and listed, or neither.
 *
 * A file that was opened, then inherited by a child, then locked, is on no list when the fork
 * happens. The count of forks shows it, and lock_take() refuses.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "env_host_internal.h"
#include "failure.h"
#include "fork_descriptor.h"

enum {
    PAUSE_NS = 10000000, /* Between two tries. */
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;
static struct fs_host_file *list_first; /* guarded by: list_mutex */
static struct fork_descriptor *others;  /* guarded by: list_mutex */
static uint64_t fork_count;             /* guarded by: list_mutex */
static int list_error;                  /* Of pthread_atfork(); set once by list_once. */

static void
fork_prepare(void)
{
    (void)pthread_mutex_lock(&list_mutex);
    fork_count++;
}

static void
fork_parent(void)
{
    (void)pthread_mutex_unlock(&list_mutex);
}

static void
fork_child(void)
{
    for (struct fs_host_file *file = list_first; file != NULL; file = file->locked_next) {
        (void)close(file->file.descriptor);
        file->file.descriptor = -1;
        file->is_locked = false;
    }
    list_first = NULL;
    for (struct fork_descriptor *item = others; item != NULL; item = item->next)
        (void)close(item->descriptor);
    others = NULL;
    (void)pthread_mutex_unlock(&list_mutex);
}

static void
list_prepare(void)
{
    list_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

uint64_t
lock_fork_count(void)
{
    uint64_t count;

    (void)pthread_once(&list_once, list_prepare);
    (void)pthread_mutex_lock(&list_mutex);
    count = fork_count;
    (void)pthread_mutex_unlock(&list_mutex);
    return count;
}

/* With `command`, F_OFD_SETLK or F_OFD_GETLK. */
static int
lock_ask(int descriptor, int command, struct flock *lock)
{
    int result;

    do
        result = fcntl(descriptor, command, lock);
    while (result != 0 && errno == EINTR);
    return result;
}

/* A security module may forbid locks (EACCES) that nobody else has. */
static bool
is_forbidden(int descriptor, struct flock lock)
{
    bool is_free = lock_ask(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;

    errno = EACCES;
    return is_free;
}

static enum kvt_status
lock_take_guarded(struct fs_host_file *file)
{
    int flags = fcntl(file->file.descriptor, F_GETFL);
    struct flock lock = {
        .l_type = (flags & O_ACCMODE) == O_RDONLY ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};

    if (list_error != 0)
        return failure_errno(list_error, "No memory for the fork handlers of", file->path);
    if (file->fork_count != fork_count) {
        return failure_set(KVT_E_BUSY, 0,
            "The process forked while %s was being opened, so a child holds it too: try again.",
            file->path);
    }
    if (lock_ask(file->file.descriptor, F_OFD_SETLK, &lock) != 0) {
        if (errno == EAGAIN || (errno == EACCES && !is_forbidden(file->file.descriptor, lock))) {
            return failure_set(KVT_E_LOCKED, errno,
                "%s is locked: another handle, of this or another process, is its owner.",
                file->path);
        }
        if (errno == ENOLCK) /* What NFS says without its lock daemon. */
            errno = EOPNOTSUPP;
        return failure_errno(errno, "Cannot lock", file->path);
    }
    if (file->is_locked)
        return KVT_OK;
    file->is_locked = true;
    file->locked_prior = NULL;
    file->locked_next = list_first;
    if (list_first != NULL)
        list_first->locked_prior = file;
    list_first = file;
    return KVT_OK;
}

/* F_OFD_SETLKW would block the thread, and with it the mutex and every fork. */
enum kvt_status
lock_take(struct fs_host_file *file, uint64_t timeout_ns)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t begin_ns = clock_read_ns(CLOCK_MONOTONIC);

    for (;;) {
        enum kvt_status status;

        (void)pthread_mutex_lock(&list_mutex);
        status = lock_take_guarded(file);
        (void)pthread_mutex_unlock(&list_mutex);
        if (status != KVT_E_LOCKED || clock_read_ns(CLOCK_MONOTONIC) - begin_ns >= timeout_ns)
            return status;
        (void)nanosleep(&pause, NULL);
    }
}

void
lock_close(struct fs_host_file *file)
{
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    (void)pthread_mutex_lock(&list_mutex);
    if (file->is_locked) {
        /* A child that has not got to fork_child() yet, or (vfork(), posix_spawn()) to its exec,
         * has the description, too: the lock would last as long. */
        (void)lock_ask(file->file.descriptor, F_OFD_SETLK, &none);
        if (file->locked_next != NULL)
            file->locked_next->locked_prior = file->locked_prior;
        if (file->locked_prior != NULL)
            file->locked_prior->locked_next = file->locked_next;
        else
            list_first = file->locked_next;
        file->is_locked = false;
    }
    /* Inside the mutex: no fork may inherit a locked descriptor that is on the list no more. */
    if (file->file.descriptor >= 0)
        (void)close(file->file.descriptor);
    file->file.descriptor = -1;
    (void)pthread_mutex_unlock(&list_mutex);
}

/* --- Other descriptors ------------------------------------------------------------------------ */

enum kvt_status
fork_hold(void)
{
    (void)pthread_once(&list_once, list_prepare);
    if (list_error != 0)
        return failure_errno(list_error, "No memory for the fork handlers", NULL);
    (void)pthread_mutex_lock(&list_mutex);
    return KVT_OK;
}

void
fork_release(void)
{
    (void)pthread_mutex_unlock(&list_mutex);
}

void
fork_descriptor_add(struct fork_descriptor *item, int descriptor)
{
    item->descriptor = descriptor;
    item->prior = NULL;
    item->next = others;
    if (others != NULL)
        others->prior = item;
    others = item;
}

void
fork_descriptor_remove(struct fork_descriptor *item)
{
    if (item->next != NULL)
        item->next->prior = item->prior;
    if (item->prior != NULL)
        item->prior->next = item->next;
    else
        others = item->next;
}

struct fork_descriptor *
fork_descriptor_find(int descriptor)
{
    struct fork_descriptor *item = others;

    while (item != NULL && item->descriptor != descriptor)
        item = item->next;
    return item;
}
