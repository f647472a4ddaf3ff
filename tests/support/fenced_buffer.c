/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fenced_buffer.c - pages, and one behind them that may not be touched.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bytes.h"
#include "fenced_buffer.h"

void
fenced_open(struct fenced_buffer *buffer, size_t size_max)
{
    size_t open_bytes = round_up(size_max, PAGE_BYTES);

    buffer->size_max = size_max;
    buffer->mapped_bytes = open_bytes + PAGE_BYTES;
    buffer->memory = mmap(
        NULL, buffer->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->memory == MAP_FAILED ||
        mprotect(buffer->memory + open_bytes, PAGE_BYTES, PROT_NONE) != 0) {
        (void)fprintf(stderr, "no memory for a fenced buffer of %zu bytes\n", size_max);
        abort();
    }
}

void
fenced_close(struct fenced_buffer *buffer)
{
    munmap(buffer->memory, buffer->mapped_bytes);
}

uint8_t *
fenced_end(const struct fenced_buffer *buffer, size_t size)
{
    return buffer->memory + buffer->mapped_bytes - PAGE_BYTES - size;
}
