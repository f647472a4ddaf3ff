/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams_host.c - the numbers of the standard streams are left alone (streams_host.h).
 */
#include "streams_host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int
streams_pass(int descriptor)
{
    int moved;
    int error;

    if (descriptor < 0 || descriptor >= STREAM_COUNT)
        return descriptor;
    moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STREAM_COUNT);
    error = errno;
    (void)close(descriptor);
    errno = error;
    return moved;
}

void
streams_hold(struct streams_hold *hold_out)
{
    int error = errno;

    hold_out->count = 0;
    while (hold_out->count < STREAM_COUNT) {
        int descriptor = memfd_create("kvtier", MFD_CLOEXEC);
        struct stat facts;

        if (descriptor < 0 || descriptor >= STREAM_COUNT || fstat(descriptor, &facts) != 0) {
            if (descriptor >= 0)
                (void)close(descriptor);
            break;
        }
        hold_out->files[hold_out->count] = facts.st_ino;
        hold_out->descriptors[hold_out->count++] = descriptor;
    }
    errno = error;
}

void
streams_drop(const struct streams_hold *hold)
{
    int error = errno;

    for (int i = 0; i < hold->count; i++) {
        struct stat facts;

        if (fstat(hold->descriptors[i], &facts) == 0 && facts.st_ino == hold->files[i])
            (void)close(hold->descriptors[i]);
    }
    errno = error;
}
