/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_text.h - token ids of real text, by a small table of byte pairs that is made of that text.
 *
 * Pass after pass the commonest pairs of neighbours become tokens of their own, 64 at a time, until
 * there are ENGRAM_TEXT_CLASSES of them or no pair comes often: the ids of bytes are the bytes.
 */
#ifndef BENCH_ENGRAM_TEXT_H
#define BENCH_ENGRAM_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    ENGRAM_TEXT_CLASSES = 4096,
    ENGRAM_TEXT_BYTES_MAX = 4 << 20, /* More is left out. */
};

struct engram_text {
    uint32_t *ids; /* NULL: nothing was read. */
    uint32_t count;
    uint32_t class_count;
    uint64_t byte_count; /* Of which they were made. */
};

/* engram_text_read - of files, their paths separated by commas. False: complained. */
bool engram_text_read(const char *paths, struct engram_text *text_out);
void engram_text_free(struct engram_text *text);

#endif /* BENCH_ENGRAM_TEXT_H */
