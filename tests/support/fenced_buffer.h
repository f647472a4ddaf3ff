/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fenced_buffer.h - bytes that end where no memory is: reading or writing one more ends the test,
 * in every build, whoever does it (sanitizers do not look into libraries).
 */
#ifndef KVT_TESTS_FENCED_BUFFER_H
#define KVT_TESTS_FENCED_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct fenced_buffer {
    uint8_t *memory;
    size_t mapped_bytes;
    size_t size_max;
};

/* fenced_open - for up to `size_max` bytes. A test that gets no memory stops. */
void fenced_open(struct fenced_buffer *buffer, size_t size_max);
void fenced_close(struct fenced_buffer *buffer);

/* fenced_end - the last `size` bytes before the fence. */
uint8_t *fenced_end(const struct fenced_buffer *buffer, size_t size);

#endif /* KVT_TESTS_FENCED_BUFFER_H */
