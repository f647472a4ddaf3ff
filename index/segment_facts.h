/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_facts.h - the bytes of a segment's facts in the database `segment` (SCHEMA.md).
 */
#ifndef KVT_INDEX_SEGMENT_FACTS_H
#define KVT_INDEX_SEGMENT_FACTS_H

#include "index.h"

enum {
    SEGMENT_FACTS_BYTES = 40,
    SEGMENT_KEY_BYTES = 4,
    BLOCK_KEY_BYTES = 8,
};

void segment_facts_encode(const struct index_segment *segment, uint8_t target[SEGMENT_FACTS_BYTES]);

/* segment_facts_decode - KVT_E_CORRUPT when the CRC or anything else is off. */
enum kvt_status segment_facts_decode(
    struct index_segment *segment_out, uint32_t number, const uint8_t *bytes, size_t size);

#endif /* KVT_INDEX_SEGMENT_FACTS_H */
