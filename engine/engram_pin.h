/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_pin.h - rows of an open table in pinned memory.
 *
 * Owns      the memory: a head page as the table's file has it, then the first pages of that.
 * Threads   page_count and row_count any; the rest whoever opens, pins or closes the table.
 *
 * Memory order:
 *   (F3) page_count: released with the pages; acquired by who reads them. It never changes again.
 */
#ifndef KVT_ENGINE_ENGRAM_PIN_H
#define KVT_ENGINE_ENGRAM_PIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"

struct kvt_engram;

struct engram_pin {
    uint8_t *memory; /* NULL: nothing is pinned. */
    uint64_t memory_bytes;
    int descriptor;       /* Shared; below 0: it is not. */
    uint32_t device_mask; /* That know the memory. */
    uint32_t row_count;
    _Atomic uint32_t page_count; /* (F3) */
};

static inline const uint8_t *
engram_pin_page(const struct engram_pin *pin, uint32_t page)
{
    return pin->memory + ((uint64_t)page + 1) * PAGE_BYTES;
}

static inline uint32_t
engram_pin_pages(const struct engram_pin *pin)
{
    return atomic_load_explicit(&pin->page_count, memory_order_acquire); /* (F3) */
}

/* engram_pin_drop - nobody reads them any more. */
void engram_pin_drop(struct kvt_engram *table);

#endif /* KVT_ENGINE_ENGRAM_PIN_H */
