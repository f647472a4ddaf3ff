/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_tags.h - which rows of a table lie in which places of a cache, and which goes next.
 *
 * Owns      numbers of rows, a mark of each and a hand of each set; the memory is given.
 * How       Sets of eight places; of a set the next goes that was not asked for since the hand
 *           passed it. A row that comes is the first to go: rows that are asked for once pass
 *           through.
 * Threads   serial.
 */
#ifndef KVT_ENGINE_ENGRAM_TAGS_H
#define KVT_ENGINE_ENGRAM_TAGS_H

#include <stddef.h>
#include <stdint.h>

enum {
    CACHE_WAYS = 8,
    CACHE_TAG_BYTES = 6, /* Of a place, its share of the hand rounded up. */
};

struct engram_tags {
    uint32_t *rows;   /* CACHE_WAYS a set; row + 1, 0: nothing. */
    uint8_t *is_used; /* Asked for since the hand passed. */
    uint8_t *hands;   /* A set's. */
    uint32_t set_count;
};

static inline uint64_t
engram_tags_hash(uint32_t row)
{
    uint64_t hash = row * UINT64_C(0x9E3779B97F4A7C15);

    return hash ^ hash >> 29;
}

/* engram_tags_bytes - the memory that so many sets need. engram_tags_place: it is there, all zero;
 * what follows it. */
size_t engram_tags_bytes(uint32_t set_count);
uint8_t *engram_tags_place(struct engram_tags *tags, uint32_t set_count, uint8_t *memory);

/* engram_tags_look - where the row is, or SIZE_MAX. engram_tags_find: the same, and it was asked
 * for. */
size_t engram_tags_look(const struct engram_tags *tags, uint32_t row);
size_t engram_tags_find(struct engram_tags *tags, uint32_t row);

/* engram_tags_take - a place for a row that is not there. `uses` (NULL: all 0) has a number for
 * each place; one above 0 keeps what it has. SIZE_MAX: all of the set do. */
size_t engram_tags_take(struct engram_tags *tags, uint32_t row, const uint16_t *uses);
/* engram_tags_drop - nothing is there any more. */
void engram_tags_drop(struct engram_tags *tags, size_t place);

#endif /* KVT_ENGINE_ENGRAM_TAGS_H */
