/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_facts.c - encode and decode a segment's facts.
 *
 * Format    SCHEMA.md, "Value of `segment`".
 */
#include "segment_facts.h"

#include "bytes.h"
#include "failure.h"
#include "hash.h"

/* Offsets of the fields. */
enum {
    AT_GENERATION = 0,
    AT_STATE = 4,
    AT_RESERVED_5 = 5,
    AT_RECORD_COUNT = 8,
    AT_CRC_XOR = 12,
    AT_LIVE_BYTES = 16,
    AT_BATCH_NUMBER = 24,
    AT_RESERVED_32 = 32,
    AT_CRC = 36,
};

enum {
    STATE_MAX = 3,
};

static uint32_t
facts_crc(const uint8_t *bytes, uint32_t number)
{
    uint8_t key[SEGMENT_KEY_BYTES];

    put_u32_big(key, number);
    return crc32c(crc32c(0, bytes, AT_CRC), key, sizeof(key));
}

void
segment_facts_encode(const struct index_segment *segment, uint8_t target[SEGMENT_FACTS_BYTES])
{
    KVT_ASSERT(segment->state <= STATE_MAX);
    memset(target, 0, SEGMENT_FACTS_BYTES);
    put_u32(target + AT_GENERATION, segment->generation);
    target[AT_STATE] = (uint8_t)segment->state;
    put_u32(target + AT_RECORD_COUNT, segment->record_count);
    put_u32(target + AT_CRC_XOR, segment->crc_xor);
    put_u64(target + AT_LIVE_BYTES, segment->live_bytes);
    put_u64(target + AT_BATCH_NUMBER, segment->batch_number);
    put_u32(target + AT_CRC, facts_crc(target, segment->number));
}

enum kvt_status
segment_facts_decode(
    struct index_segment *segment_out, uint32_t number, const uint8_t *bytes, size_t size)
{
    const char *fault = NULL;

    if (size != SEGMENT_FACTS_BYTES)
        fault = "its size is not 40 bytes";
    else if (checksum_differs(get_u32(bytes + AT_CRC) != facts_crc(bytes, number)))
        fault = "its CRC differs";
    else if (bytes[AT_STATE] > STATE_MAX)
        fault = "its state is unknown";
    else if (!bytes_are_zero(bytes + AT_RESERVED_5, 3) ||
             !bytes_are_zero(bytes + AT_RESERVED_32, 4))
        fault = "reserved bytes are not zero";
    if (fault != NULL) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index's value for segment %u (%zu bytes) is damaged: %s.", (unsigned)number, size,
            fault);
    }
    segment_out->number = number;
    segment_out->generation = get_u32(bytes + AT_GENERATION);
    segment_out->state = bytes[AT_STATE];
    segment_out->record_count = get_u32(bytes + AT_RECORD_COUNT);
    segment_out->crc_xor = get_u32(bytes + AT_CRC_XOR);
    segment_out->live_bytes = get_u64(bytes + AT_LIVE_BYTES);
    segment_out->batch_number = get_u64(bytes + AT_BATCH_NUMBER);
    return KVT_OK;
}
