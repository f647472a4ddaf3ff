/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_tags.c - see engram_tags.h.
 */
#include "engram_tags.h"

#include "bytes.h"

size_t
engram_tags_bytes(uint32_t set_count)
{
    return (size_t)round_up(
        (uint64_t)set_count * (CACHE_WAYS * (sizeof(uint32_t) + sizeof(uint8_t)) + 1), 64);
}

uint8_t *
engram_tags_place(struct engram_tags *tags, uint32_t set_count, uint8_t *memory)
{
    size_t ways = (size_t)set_count * CACHE_WAYS;

    tags->set_count = set_count;
    tags->rows = (uint32_t *)(void *)memory;
    tags->is_used = memory + ways * sizeof(uint32_t);
    tags->hands = tags->is_used + ways;
    return memory + engram_tags_bytes(set_count);
}

static size_t
set_of(const struct engram_tags *tags, uint32_t row)
{
    return (size_t)((engram_tags_hash(row) >> 32) % tags->set_count);
}

size_t
engram_tags_look(const struct engram_tags *tags, uint32_t row)
{
    size_t first = set_of(tags, row) * CACHE_WAYS;

    for (size_t i = first; i < first + CACHE_WAYS; i++) {
        if (tags->rows[i] == row + 1)
            return i;
    }
    return SIZE_MAX;
}

size_t
engram_tags_find(struct engram_tags *tags, uint32_t row)
{
    size_t at = engram_tags_look(tags, row);

    if (at != SIZE_MAX)
        tags->is_used[at] = 1;
    return at;
}

size_t
engram_tags_take(struct engram_tags *tags, uint32_t row, const uint16_t *uses)
{
    size_t set = set_of(tags, row);

    /* Each that the hand passes has one life less: two rounds find whatever may go. */
    for (uint32_t i = 0; i < 2 * CACHE_WAYS; i++) {
        size_t at = set * CACHE_WAYS + tags->hands[set];

        tags->hands[set] = (uint8_t)((tags->hands[set] + 1) % CACHE_WAYS);
        if (uses != NULL && uses[at] != 0)
            continue;
        if (tags->is_used[at] == 0) {
            tags->rows[at] = row + 1;
            return at;
        }
        tags->is_used[at] = 0;
    }
    return SIZE_MAX;
}

void
engram_tags_drop(struct engram_tags *tags, size_t place)
{
    tags->rows[place] = 0;
    tags->is_used[place] = 0;
}
