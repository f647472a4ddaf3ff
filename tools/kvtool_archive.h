/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_archive.h - blocks of a store as a stream of bytes: tools/ARCHIVE.md has the format.
 *
 * A reader trusts nothing: each frame has checksums, each length a bound, and the last frame counts
 * and sums up everything before it.
 */
#ifndef KVTOOL_ARCHIVE_H
#define KVTOOL_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <xxhash.h>

#include "kvtier/kvtier.h"

enum {
    ARCHIVE_NAME_MAX = 255,
    ARCHIVE_DESCRIPTION_MAX = 4096,
    ARCHIVE_KEY_MAX = 64,
    ARCHIVE_NAMESPACES_MAX = 4096,
    ARCHIVE_HEAD_MAX = 8192
};

enum archive_kind {
    ARCHIVE_NAMESPACE = 1,
    ARCHIVE_BLOCK = 2,
    ARCHIVE_END = 3
};

struct archive_namespace {
    char name[ARCHIVE_NAME_MAX + 1];
    uint8_t description[ARCHIVE_DESCRIPTION_MAX];
    uint32_t description_length;
};

struct archive_block {
    uint32_t namespace_index; /* In the order in which the archive has them. */
    uint16_t component;
    uint16_t part_count;
    uint16_t class_id;
    uint8_t hint;
    uint32_t depth, token_start, token_count, recompute_us, importance;
    uint32_t key_length;
    uint32_t parent_length; /* 0: none. */
    uint16_t parent_component;
    uint8_t key[ARCHIVE_KEY_MAX];
    uint8_t parent[ARCHIVE_KEY_MAX];
};

/* What was written or read so far. */
struct archive_sums {
    uint64_t namespace_count;
    uint64_t block_count;
    uint64_t payload_bytes;
    uint64_t largest_bytes; /* Of a payload; only when reading, as stored_bytes. */
    uint64_t stored_bytes;  /* What a store needs for the blocks, at least. */
    uint64_t archive_bytes;
};

/* --- Writing ---------------------------------------------------------------------------------- */

struct archive_writer {
    bool (*sink)(void *context, const void *bytes, uint64_t size);
    void *context;
    XXH3_state_t *digest;
    struct archive_sums sums;
};

/* archive_begin - false: no memory, or the sink is full. archive_end writes the last frame;
 * archive_free is always due. */
bool archive_begin(struct archive_writer *writer,
    bool (*sink)(void *context, const void *bytes, uint64_t size), void *context);
bool archive_namespace_write(struct archive_writer *writer, const struct archive_namespace *space);
bool archive_block_write(struct archive_writer *writer, const struct archive_block *block,
    const void *payload, uint64_t length);
bool archive_end(struct archive_writer *writer);
void archive_free(struct archive_writer *writer);

/* --- Reading ---------------------------------------------------------------------------------- */

struct archive_reader {
    int descriptor;
    const char *name; /* For sentences. */
    XXH3_state_t *digest;
    struct archive_sums sums;
    enum archive_kind kind; /* Of the item read last. */
    uint64_t check;         /* Its frame's, which is over all of it. */
    struct archive_namespace space;
    struct archive_block block;
    uint8_t *payload;
    uint64_t payload_length;
    uint64_t payload_capacity;
    bool is_bad;
};

/* archive_open - reads the first bytes. False, with a sentence: this is no archive. */
bool archive_open(struct archive_reader *reader, int descriptor, const char *name);

/* archive_next - false at the end, or (is_bad, with a sentence) when something is wrong. */
bool archive_next(struct archive_reader *reader);
void archive_close(struct archive_reader *reader);

#endif /* KVTOOL_ARCHIVE_H */
