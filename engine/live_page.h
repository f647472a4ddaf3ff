/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_page.h - the bytes of the file in which an owner shows what it does: written, and read
 * without trust.
 *
 * Format    tiers/FORMAT.md section 3.7. Not durable, no part of a store's version.
 * Not here  what is shown (live.c), finding and judging the file (live_read.c).
 */
#ifndef KVT_ENGINE_LIVE_PAGE_H
#define KVT_ENGINE_LIVE_PAGE_H

#include "kvtier/kvtier_unstable.h"

#define LIVE_NAME "live"

enum {
    LIVE_PAGE_BYTES_MAX = 64 << 10, /* A larger one is refused. */
};

/* live_page_write - `live` as bytes; ages become times before `now_ns`. Returns how many. */
size_t live_page_write(
    uint8_t page_out[LIVE_PAGE_BYTES_MAX], const struct kvt_live *live, uint64_t now_ns);

/*
 * live_page_read - all of *live_out but is_stale, or a sentence: KVT_E_CORRUPT (or torn: it was
 * being written), KVT_E_FORMAT.
 */
enum kvt_status live_page_read(
    const uint8_t *page, size_t size, uint64_t now_ns, struct kvt_live *live_out);

#endif /* KVT_ENGINE_LIVE_PAGE_H */
