/* SPDX-License-Identifier: Apache-2.0 */
/*
 * growth_host.h - system calls that may make a file longer, on threads of the host's.
 *
 * What would end beyond the process's limit (RLIMIT_FSIZE) fails with EFBIG, and the kernel sends
 * SIGXFSZ besides, which kills whoever does not expect it. Here there is the error alone.
 *
 * Threads   any.
 */
#ifndef KVT_BASE_GROWTH_HOST_H
#define KVT_BASE_GROWTH_HOST_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct growth_signal {
    sigset_t before;
    bool was_pending;
};

/*
 * growth_signal_hold - no SIGXFSZ reaches this thread until growth_signal_drop(), which takes the
 * one that came since and leaves the mask as it was. errno stays. For calls of another library's.
 */
void growth_signal_hold(struct growth_signal *held_out);
void growth_signal_drop(const struct growth_signal *held);

/* growth_write, growth_truncate - pwrite() and ftruncate(). */
ssize_t growth_write(int descriptor, const void *source, size_t size, off_t offset);
int growth_truncate(int descriptor, off_t size);

/* growth_allocate - fallocate() of all of it, however often signals come. When it fails, some of
 * it may be there. */
int growth_allocate(int descriptor, off_t offset, off_t size);

#endif /* KVT_BASE_GROWTH_HOST_H */
