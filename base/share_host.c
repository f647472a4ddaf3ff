/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_host.c - memory that other processes may map to read: a memfd, sealed. A forked child has
 * neither the memory nor the descriptor: it would keep all of it, however long it lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"
#include "fork_descriptor.h"
#include "growth_host.h"
#include "streams_host.h"
#include "try.h"

enum {
    SEALS_SIZE = F_SEAL_SHRINK | F_SEAL_GROW, /* Without them a reader may get SIGBUS. */
    SEALS_ALL = SEALS_SIZE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
    ALIGN_BYTES = 2 << 20, /* Of what is as long, as of other memory. */
    STAT_BLOCK_BYTES = 512,
};

/* --- 1. Descriptors --------------------------------------------------------------------------- */

/* Of a new file, or (`of` not negative) another one of a file that is there. */
static enum kvt_status
descriptor_open(int of, int *descriptor_out)
{
    struct fork_descriptor *item = calloc(1, sizeof(*item));
    enum kvt_status status;

    if (item == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a descriptor");
    status = fork_hold();
    if (status == KVT_OK) {
        int opened = of < 0 ? memfd_create("kvtier", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                            : fcntl(of, F_DUPFD_CLOEXEC, 0);
        int descriptor = streams_pass(opened);

        if (descriptor >= 0)
            fork_descriptor_add(item, descriptor);
        else
            status = failure_errno(errno, "make a descriptor of", "shared memory");
        fork_release();
        *descriptor_out = descriptor;
    }
    if (status != KVT_OK)
        free(item);
    return status;
}

enum kvt_status
share_host_duplicate(int descriptor, int *descriptor_out)
{
    return descriptor_open(descriptor, descriptor_out);
}

void
share_host_close(int descriptor)
{
    struct fork_descriptor *item;

    (void)fork_hold(); /* As when it was made. */
    item = fork_descriptor_find(descriptor);
    if (item != NULL) { /* In a forked child the number may be of something else. */
        fork_descriptor_remove(item);
        (void)close(descriptor);
    }
    fork_release();
    free(item);
}

/* --- 2. Memory -------------------------------------------------------------------------------- */

/* Addresses for a mapping that must be aligned: NULL when the kernel may choose, MAP_FAILED when
 * there are none. */
static uint8_t *
addresses_reserve(size_t size)
{
    uint8_t *start, *aligned;
    size_t before;

    if (size < ALIGN_BYTES)
        return NULL;
    start = mmap(
        NULL, size + ALIGN_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return start;
    aligned = start + (round_up((uintptr_t)start, ALIGN_BYTES) - (uintptr_t)start);
    before = (size_t)(aligned - start);
    if (before > 0)
        (void)munmap(start, before);
    (void)munmap(aligned + size, ALIGN_BYTES - before);
    return aligned;
}

enum kvt_status
share_host_map(int descriptor, size_t size, int protection, void **memory_out)
{
    void *place = addresses_reserve(size);
    void *memory = place == MAP_FAILED
                       ? MAP_FAILED
                       : mmap(place, size, protection, MAP_SHARED | (place != NULL ? MAP_FIXED : 0),
                             descriptor, 0);

    if (memory == MAP_FAILED) {
        int error = errno;

        if (place != NULL && place != MAP_FAILED)
            (void)munmap(place, size);
        return failure_errno(error, "map", "shared memory");
    }
    /* As other memory of a store: a forked child has none of it. */
    if (madvise(memory, size, MADV_DONTFORK) != 0) {
        int error = errno;

        (void)munmap(memory, size);
        return failure_errno(error, "keep from children", "shared memory");
    }
    *memory_out = memory;
    return KVT_OK;
}

/* The file gets its length, and all its pages: to touch one that the kernel has no memory for is
 * SIGBUS. */
static enum kvt_status
pages_reserve(int descriptor, size_t size)
{
    if (growth_allocate(descriptor, 0, (off_t)size) == 0)
        return KVT_OK;
    if (errno == ENOSPC || errno == ENOMEM)
        return failure_set(
            KVT_E_NOMEM, errno, "there are no %zu bytes of memory to be shared", size);
    return failure_errno(errno, "reserve", "shared memory");
}

bool
share_host_is_whole(const struct stat *about)
{
    return about->st_blocks >= about->st_size / STAT_BLOCK_BYTES;
}

enum kvt_status
share_host_file(size_t size, int *descriptor_out)
{
    enum kvt_status status;
    int descriptor;

    if (size == 0 || size % PAGE_BYTES != 0 || size > INT64_MAX)
        return failure_set(KVT_E_INVAL, 0, "%zu bytes of shared memory are no whole pages", size);
    KVT_TRY(descriptor_open(-1, &descriptor));
    status = pages_reserve(descriptor, size);
    if (status != KVT_OK)
        share_host_close(descriptor);
    else
        *descriptor_out = descriptor;
    return status;
}

enum kvt_status
share_host_seal(int descriptor, int seals)
{
    if (fcntl(descriptor, F_ADD_SEALS, seals) == 0)
        return KVT_OK;
    return failure_set(KVT_E_UNSUPPORTED, errno, "the kernel cannot seal shared memory");
}

enum kvt_status
share_host_make(void *context, size_t size, void **memory_out, int *descriptor_out)
{
    enum kvt_status status;
    int descriptor;

    (void)context;
    KVT_TRY(share_host_file(size, &descriptor));
    /* Mapped first: the seal lets nobody map it to write after that. */
    status = share_host_map(descriptor, size, PROT_READ | PROT_WRITE, memory_out);
    if (status == KVT_OK) {
        status = share_host_seal(descriptor, SEALS_ALL);
        if (status != KVT_OK)
            (void)munmap(*memory_out, size);
    }
    if (status != KVT_OK)
        share_host_close(descriptor);
    else
        *descriptor_out = descriptor;
    return status;
}

enum kvt_status
share_host_adopt(
    void *context, int descriptor, void **memory_out, size_t *size_out, int *descriptor_out)
{
    int seals = fcntl(descriptor, F_GET_SEALS);
    struct stat about;
    enum kvt_status status;
    int own;

    (void)context;
    if (seals < 0 || (seals & SEALS_SIZE) != SEALS_SIZE ||
        (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0)
        return failure_set(KVT_E_INVAL, seals < 0 ? errno : 0,
            "descriptor %d is of no memory that is sealed against cuts and writes", descriptor);
    if (fstat(descriptor, &about) != 0)
        return failure_errno(errno, "look at", "shared memory");
    if (about.st_size <= 0 || about.st_size % PAGE_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0, "descriptor %d is of no whole pages", descriptor);
    if (!share_host_is_whole(&about))
        return failure_set(
            KVT_E_INVAL, 0, "descriptor %d is of memory that has not all its pages", descriptor);
    KVT_TRY(share_host_duplicate(descriptor, &own));
    status = share_host_map(own, (size_t)about.st_size, PROT_READ, memory_out);
    if (status != KVT_OK) {
        share_host_close(own);
        return status;
    }
    *size_out = (size_t)about.st_size;
    *descriptor_out = own;
    return KVT_OK;
}

void
share_host_end(void *context, void *memory, size_t size, int descriptor)
{
    (void)context;
    /* In this order: what frees the memory, which may take long, holds no lock. */
    share_host_close(descriptor);
    (void)munmap(memory, size);
}
