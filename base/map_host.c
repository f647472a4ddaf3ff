/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_host.c - maps of files, to prove that their pages can be touched.
 *
 * Why       The kernel satisfies a read when the blocks that it wants are up to date. A fault needs
 *           all of the folio, which on some file systems is many blocks: it reads that again, and
 *           one bad block anywhere in it is a SIGBUS. madvise() makes the same fault and answers
 *           with an error.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "env_host_internal.h"
#include "failure.h"

/* Since Linux 5.14; an older C library does not name it. */
#ifndef MADV_POPULATE_READ
#    define MADV_POPULATE_READ 22
#endif

enum {
    PEEK_PIECES = 64, /* Pages in one call. */
};

enum kvt_status
map_host_make(struct fs_file *file, uint64_t size, void **map_out)
{
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->descriptor, 0);

    *map_out = NULL;
    if (map == MAP_FAILED) {
        return failure_set(KVT_E_NOMEM, errno, "No address space for a map of %llu bytes of %s.",
            (unsigned long long)size, ((const struct fs_host_file *)(const void *)file)->path);
    }
    (void)madvise(map, size, MADV_DONTFORK); /* Refused: a child has it, and does not use it. */
    *map_out = map;
    return KVT_OK;
}

void
map_host_end(void *map, uint64_t size)
{
    if (map != NULL)
        (void)munmap(map, size);
}

int
map_host_peek(void *map, uint64_t size)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t bytes[PEEK_PIECES];
    struct iovec pieces[PEEK_PIECES];
    uint64_t offset = 0;

    while (offset < size) {
        struct iovec target = {.iov_base = bytes};
        ssize_t count;

        for (uint64_t at = offset; at < size && target.iov_len < PEEK_PIECES; at += page_bytes)
            pieces[target.iov_len++] =
                (struct iovec){.iov_base = (uint8_t *)map + at, .iov_len = 1};
        count = process_vm_readv(getpid(), &target, 1, pieces, target.iov_len, 0);
        if (count > 0)
            offset += (uint64_t)count * page_bytes;
        else if (errno != EINTR)
            return errno == EFAULT ? EFAULT : 0; /* Refused: it cannot be asked. */
    }
    return 0;
}

enum kvt_status
map_host_prove(struct fs_file *file, void *map, uint64_t offset, uint64_t size)
{
    uint64_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *start = (uint8_t *)map + (offset - before);
    int error;

    do
        error = madvise(start, size + before, MADV_POPULATE_READ) == 0 ? 0 : errno;
    while (error == EINTR);
    if (error == EINVAL) /* A kernel that does not know it. */
        error = map_host_peek(start, size + before);
    if (error == 0)
        return KVT_OK;
    return failure_errno(error == EFAULT ? EIO : error, "A map cannot read",
        ((const struct fs_host_file *)(const void *)file)->path);
}
