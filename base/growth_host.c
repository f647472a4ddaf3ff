/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth_host.c - system calls that may make a file longer: their error, and not their signal.
 */
#include "growth_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 2 << 20, /* Of an allocation that signals disturb. */
};

static sigset_t
signal_set(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    return set;
}

void
growth_signal_hold(struct growth_signal *held_out)
{
    sigset_t set = signal_set(), pending;

    held_out->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &set, &held_out->before);
}

void
growth_signal_drop(const struct growth_signal *held)
{
    static const struct timespec at_once;
    int error = errno;
    sigset_t set = signal_set();

    /* One that was there before is the host's. */
    if (!held->was_pending) {
        while (sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    (void)pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    errno = error;
}

ssize_t
growth_write(int descriptor, const void *source, size_t size, off_t offset)
{
    struct growth_signal held;
    ssize_t count;

    growth_signal_hold(&held);
    count = pwrite(descriptor, source, size, offset);
    growth_signal_drop(&held);
    return count;
}

int
growth_truncate(int descriptor, off_t size)
{
    struct growth_signal held;
    int result;

    growth_signal_hold(&held);
    result = ftruncate(descriptor, size);
    growth_signal_drop(&held);
    return result;
}

/*
 * In one call, which lets a file system lay the file out best. On tmpfs a signal ends the call and
 * undoes it, so that under a timer it would never be done: then piece by piece, of which only the
 * one that was disturbed is made again.
 */
static int
range_allocate(int descriptor, off_t offset, off_t size)
{
    off_t at = 0, part = size;

    while (at < size) {
        if (part > size - at)
            part = size - at;
        if (fallocate(descriptor, 0, offset + at, part) == 0)
            at += part;
        else if (errno != EINTR)
            return -1;
        else if (part > PIECE_BYTES)
            part = PIECE_BYTES;
    }
    return 0;
}

int
growth_allocate(int descriptor, off_t offset, off_t size)
{
    struct growth_signal held;
    int result;

    growth_signal_hold(&held);
    result = range_allocate(descriptor, offset, size);
    growth_signal_drop(&held);
    return result;
}
