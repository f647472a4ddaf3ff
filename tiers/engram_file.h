/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_file.h - the bytes of an Engram table's file (FORMAT.md section 3.9): its head, which it
 * has twice, and its pages of rows.
 *
 * Not here  reading and writing the file, and whether the manifest makes sense (engine/).
 * Threads   any.
 */
#ifndef KVT_TIERS_ENGRAM_FILE_H
#define KVT_TIERS_ENGRAM_FILE_H

#include <stdbool.h>

#include "bytes.h"
#include "kvtier/engram.h"

enum {
    ENGRAM_NAME_BYTES_MAX = 64,
    ENGRAM_PAGE_ROOM = PAGE_BYTES - 8, /* For rows; the checksum is behind it. */
};

enum engram_file_state {
    ENGRAM_FILE_IMPORTING = 1,
    ENGRAM_FILE_WHOLE = 2,
};

/* What a head says. */
struct engram_head {
    enum engram_file_state state;
    uint32_t rows_per_page;
    uint32_t page_count;
    uint32_t pages_done;  /* Durable, with the sum below; WHOLE: page_count. */
    uint64_t content_sum; /* Of the checksums of these pages, modulo 2^64. */
    uint64_t created_ns;
    uint8_t uuid[16];
    uint8_t source[32]; /* The importer's mark of what the rows come from. */
    char name[ENGRAM_NAME_BYTES_MAX + 1];
    struct kvt_engram_profile profile; /* Of one layer: the table's. */
};

static inline uint32_t
engram_row_count(const struct engram_head *head)
{
    return head->profile.layers[0].row_count;
}

/* Where a page of rows lies; page_count: where the second head does. */
static inline uint64_t
engram_page_offset(uint32_t page)
{
    return ((uint64_t)page + 1) * PAGE_BYTES;
}

static inline uint64_t
engram_file_bytes(const struct engram_head *head)
{
    return engram_page_offset(head->page_count) + PAGE_BYTES;
}

/* engram_head_shape - rows_per_page and page_count from the profile's row_bytes (1 ..
 * ENGRAM_PAGE_ROOM) and row_count (1 ..). */
void engram_head_shape(struct engram_head *head);

void engram_head_encode(const struct engram_head *head, uint8_t page[PAGE_BYTES]);

/* engram_head_decode - NULL, or what is wrong with the bytes. *is_foreign_out: it is an intact
 * head of a version that this one does not read. */
const char *engram_head_decode(
    const uint8_t page[PAGE_BYTES], struct engram_head *head_out, bool *is_foreign_out);

/* engram_name_is_fine - 1..64 of A-Z a-z 0-9 . _ -, and no dot first. */
bool engram_name_is_fine(const char *name);

/* engram_page_seal - zeros behind the rows, then the checksum, which is returned. */
uint64_t engram_page_seal(
    const struct engram_head *head, uint32_t number, uint32_t row_count, uint8_t page[PAGE_BYTES]);

/* engram_page_is_intact - is it that page of that table? */
bool engram_page_is_intact(
    const struct engram_head *head, uint32_t number, const uint8_t page[PAGE_BYTES]);

/* engram_page_sum - the checksum that it carries. */
uint64_t engram_page_sum(const uint8_t page[PAGE_BYTES]);

#endif /* KVT_TIERS_ENGRAM_FILE_H */
