/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge_buffer.c - memory on huge pages where the system gives them, touched.
 */
#include "huge_buffer.h"

#include <string.h>
#include <sys/mman.h>

static const size_t huge_page_bytes = (size_t)2 << 20;

bool
huge_buffer_take(struct huge_buffer *buffer_out, size_t size)
{
    size_t mapped = 0;
    size_t ahead = 0;
    uint8_t *bytes = NULL;

    memset(buffer_out, 0, sizeof(*buffer_out));
    if (size == 0 || size > SIZE_MAX / 2)
        return false;
    size = (size + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    mapped = size + huge_page_bytes;
    bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return false;
    ahead = (huge_page_bytes - (uintptr_t)bytes % huge_page_bytes) % huge_page_bytes;
    if (ahead > 0)
        munmap(bytes, ahead);
    munmap(bytes + ahead + size, huge_page_bytes - ahead);
    buffer_out->bytes = bytes + ahead;
    buffer_out->size = size;
    madvise(buffer_out->bytes, size, MADV_HUGEPAGE); /* Refused: slower, not wrong. */
    memset(buffer_out->bytes, 1, size);
    return true;
}

void
huge_buffer_put(struct huge_buffer *buffer)
{
    if (buffer->bytes != NULL)
        munmap(buffer->bytes, buffer->size);
    memset(buffer, 0, sizeof(*buffer));
}
