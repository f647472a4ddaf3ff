/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_host.c - memory that other processes may map to read: a memfd, sealed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"
#include "try.h"

/* Since Linux 5.1; an older C library does not name it. */
#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
    SEALS_SIZE = F_SEAL_SHRINK | F_SEAL_GROW, /* Without them a reader may get SIGBUS. */
    SEALS_ALL = SEALS_SIZE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
};

static enum kvt_status
file_map(int descriptor, size_t size, int protection, void **memory_out)
{
    void *memory = mmap(NULL, size, protection, MAP_SHARED, descriptor, 0);

    if (memory == MAP_FAILED)
        return failure_errno(errno, "map", "shared memory");
    /* As other memory of a store: a forked child has none of it. */
    if (madvise(memory, size, MADV_DONTFORK) != 0) {
        int error = errno;

        (void)munmap(memory, size);
        return failure_errno(error, "keep from children", "shared memory");
    }
    *memory_out = memory;
    return KVT_OK;
}

/* Mapped first: the seal lets nobody map it to write after that. */
static enum kvt_status
file_prepare(int descriptor, size_t size, void **memory_out)
{
    if (ftruncate(descriptor, (off_t)size) != 0)
        return failure_errno(errno, "lengthen", "shared memory");
    KVT_TRY(file_map(descriptor, size, PROT_READ | PROT_WRITE, memory_out));
    if (fcntl(descriptor, F_ADD_SEALS, SEALS_ALL) != 0) {
        int error = errno;

        (void)munmap(*memory_out, size);
        return failure_set(
            KVT_E_UNSUPPORTED, error, "the kernel cannot seal memory against writes");
    }
    return KVT_OK;
}

enum kvt_status
share_host_make(void *context, size_t size, void **memory_out, int *descriptor_out)
{
    int descriptor;
    enum kvt_status status;

    (void)context;
    if (size == 0 || size % PAGE_BYTES != 0 || size > INT64_MAX)
        return failure_set(KVT_E_INVAL, 0, "%zu bytes of shared memory are no whole pages", size);
    descriptor = memfd_create("kvtier", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return failure_errno(errno, "make", "shared memory");
    status = file_prepare(descriptor, size, memory_out);
    if (status != KVT_OK)
        (void)close(descriptor);
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
    own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return failure_errno(errno, "duplicate", "the descriptor of shared memory");
    status = file_map(own, (size_t)about.st_size, PROT_READ, memory_out);
    if (status != KVT_OK) {
        (void)close(own);
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
    (void)munmap(memory, size);
    (void)close(descriptor);
}
