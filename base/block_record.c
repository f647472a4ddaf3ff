/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_record.c - the bytes of a block record.
 *
 * Format    tiers/FORMAT.md section 3.4, version 1.
 * Threads   any.
 *
 * The CRC covers the fixed fields, the key, and the place (segment and page) that is not part of
 * the bytes: a record that was copied to another place is refused there.
 */
#include "block_record.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "try.h"

/* Offsets of the fields. */
enum {
    AT_VERSION = 0,
    AT_KEY_FORM = 1,
    AT_KEY_LENGTH = 2,
    AT_CODEC = 3,
    AT_COMPONENT = 4,
    AT_PART_COUNT = 6,
    AT_HINT = 7,
    AT_NAMESPACE_ID = 8,
    AT_NAMESPACE_EPOCH = 12,
    AT_SEQUENCE = 16,
    AT_GENERATION = 24,
    AT_CLASS_ID = 28,
    AT_RESERVED_30 = 30,
    AT_LENGTH = 32,
    AT_STORED_LENGTH = 36,
    AT_CHECKSUM = 40,
    AT_PARENT = 56,
    AT_DEPTH = 72,
    AT_TOKEN_START = 76,
    AT_TOKEN_COUNT = 80,
    AT_RECOMPUTE_US = 84,
    AT_IMPORTANCE = 88,
    AT_RESERVED_92 = 92,
    AT_CRC = 96,
    AT_KEY = 100,
};

enum {
    RECORD_VERSION = 1,
    HINT_MAX = 3,
    BLOCK_BYTES_MAX = 64 * 1024 * 1024,
};

_Static_assert(AT_KEY + 1 == BLOCK_RECORD_BYTES_MIN, "a key has at least one byte");
_Static_assert(AT_KEY + KEY_BYTES_MAX == BLOCK_RECORD_BYTES_MAX, "and at most these");

static void
put_hash128(uint8_t *target, struct hash128 hash)
{
    put_u64(target, hash.high);
    put_u64(target + 8, hash.low);
}

static struct hash128
get_hash128(const uint8_t *source)
{
    return (struct hash128){.high = get_u64(source), .low = get_u64(source + 8)};
}

static uint32_t
record_crc(const uint8_t *bytes, size_t key_length, uint32_t segment, uint32_t page)
{
    uint8_t place[8];
    uint32_t crc;

    put_u32_big(place, segment);
    put_u32_big(place + 4, page);
    crc = crc32c(0, bytes, AT_CRC);
    crc = crc32c(crc, bytes + AT_KEY, key_length);
    return crc32c(crc, place, sizeof(place));
}

size_t
block_record_encode(const struct block_record *record, uint8_t *target)
{
    /* Within the target's bounds even when the proof below is false. */
    size_t key_length = record->key.length <= KEY_BYTES_MAX ? record->key.length : KEY_BYTES_MAX;

    KVT_ASSERT(record->key.length >= 1 && record->key.length == key_length);
    KVT_ASSERT(record->codec == RECORD_PARTS ||
               (record->codec == RECORD_WHOLE && record->part_count == 1));
    memset(target, 0, AT_KEY);
    target[AT_VERSION] = RECORD_VERSION;
    target[AT_KEY_FORM] = record->key.form;
    target[AT_KEY_LENGTH] = record->key.length;
    target[AT_CODEC] = record->codec;
    put_u16(target + AT_COMPONENT, record->key.component);
    target[AT_PART_COUNT] = record->part_count;
    target[AT_HINT] = record->hint;
    put_u32(target + AT_NAMESPACE_ID, record->key.namespace_id);
    put_u32(target + AT_NAMESPACE_EPOCH, record->namespace_epoch);
    put_u64(target + AT_SEQUENCE, record->sequence);
    put_u32(target + AT_GENERATION, record->extent.generation);
    put_u16(target + AT_CLASS_ID, record->class_id);
    put_u32(target + AT_LENGTH, record->length);
    put_u32(target + AT_STORED_LENGTH, record->stored_length);
    put_hash128(target + AT_CHECKSUM, record->checksum);
    put_hash128(target + AT_PARENT, record->parent);
    put_u32(target + AT_DEPTH, record->depth);
    put_u32(target + AT_TOKEN_START, record->token_start);
    put_u32(target + AT_TOKEN_COUNT, record->token_count);
    put_u32(target + AT_RECOMPUTE_US, record->recompute_us);
    put_u32(target + AT_IMPORTANCE, record->importance);
    memcpy(target + AT_KEY, record->key.bytes, key_length);
    put_u32(target + AT_CRC,
        record_crc(target, key_length, record->extent.segment, record->extent.page));
    return AT_KEY + key_length;
}

/* What is wrong with how a block of `length` bytes is stored; NULL: nothing. */
static const char *
stored_fault(const uint8_t *bytes, uint32_t length)
{
    uint32_t stored_length = get_u32(bytes + AT_STORED_LENGTH);
    uint32_t part_count = bytes[AT_PART_COUNT];
    uint32_t raw_bytes;

    if (bytes[AT_CODEC] == RECORD_WHOLE) {
        if (part_count != 1)
            return "it has other than one part though it has no trailer";
        return stored_length == length ? NULL : "its stored length differs though it is as given";
    }
    if (bytes[AT_CODEC] != RECORD_PARTS)
        return "its codec is unknown";
    if (part_count == 0 || part_count > RECORD_PARTS_MAX || length % part_count != 0)
        return "its parts are not 1 to 64 equal ones";
    raw_bytes = record_raw_bytes(length, part_count);
    if (stored_length <= part_count * RECORD_NOTE_BYTES || stored_length > raw_bytes)
        return "its stored length is not that of parts and a trailer";
    /* What is encoded saves a page at least: so it fits where the block itself does. */
    if (stored_length != raw_bytes && pages_of(stored_length) >= pages_of(raw_bytes))
        return "it is encoded though that saves no page";
    return NULL;
}

/* Why the bytes cannot be those that were written there; NULL: they are. */
static const char *
damage_of(const uint8_t *bytes, size_t size, uint32_t segment, uint32_t page)
{
    if (size < BLOCK_RECORD_BYTES_MIN || size > BLOCK_RECORD_BYTES_MAX)
        return "its size is out of bounds";
    if (size != AT_KEY + (size_t)bytes[AT_KEY_LENGTH])
        return "its size does not match the length of its key";
    if (checksum_differs(
            get_u32(bytes + AT_CRC) != record_crc(bytes, bytes[AT_KEY_LENGTH], segment, page)))
        return "its CRC differs";
    return NULL;
}

/* What this version cannot make of bytes that were written so; NULL: nothing. */
static const char *
record_fault(const uint8_t *bytes)
{
    uint32_t length = get_u32(bytes + AT_LENGTH);

    if (bytes[AT_VERSION] != RECORD_VERSION)
        return "it has another version";
    if (bytes[AT_KEY_FORM] != KEY_RAW && bytes[AT_KEY_FORM] != KEY_HASHED)
        return "the form of its key is unknown";
    if (bytes[AT_KEY_FORM] == KEY_HASHED && bytes[AT_KEY_LENGTH] != KEY_HASHED_BYTES)
        return "its hashed key has not the length of a hash";
    if (bytes[AT_HINT] > HINT_MAX)
        return "its hint is above 3";
    if (!bytes_are_zero(bytes + AT_RESERVED_30, 2) || !bytes_are_zero(bytes + AT_RESERVED_92, 4))
        return "reserved bytes are not zero";
    if (length == 0 || length > BLOCK_BYTES_MAX)
        return "its length is not 1 to 64 MiB";
    return stored_fault(bytes, length);
}

enum kvt_status
block_record_prove(uint32_t segment, uint32_t page, const uint8_t *bytes, size_t size)
{
    const char *damage = damage_of(bytes, size, segment, page);

    if (damage == NULL)
        return KVT_OK;
    return failure_set(KVT_E_CORRUPT, 0,
        "The block record of segment %u page %u (%zu bytes) is damaged: %s.", (unsigned)segment,
        (unsigned)page, size, damage);
}

enum kvt_status
block_record_decode(struct block_record *record_out, uint32_t segment, uint32_t page,
    const uint8_t *bytes, size_t size)
{
    struct block_record record = {0};
    const char *fault;

    KVT_TRY(block_record_prove(segment, page, bytes, size));
    fault = record_fault(bytes);
    if (fault != NULL) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The block record of segment %u page %u (%zu bytes) is not one of this version: %s.",
            (unsigned)segment, (unsigned)page, size, fault);
    }
    record.key.namespace_id = get_u32(bytes + AT_NAMESPACE_ID);
    record.key.component = get_u16(bytes + AT_COMPONENT);
    record.key.form = bytes[AT_KEY_FORM];
    record.key.length = bytes[AT_KEY_LENGTH];
    memcpy(record.key.bytes, bytes + AT_KEY, record.key.length);
    record.namespace_epoch = get_u32(bytes + AT_NAMESPACE_EPOCH);
    record.extent.segment = segment;
    record.extent.generation = get_u32(bytes + AT_GENERATION);
    record.extent.page = page;
    record.sequence = get_u64(bytes + AT_SEQUENCE);
    record.length = get_u32(bytes + AT_LENGTH);
    record.stored_length = get_u32(bytes + AT_STORED_LENGTH);
    record.codec = bytes[AT_CODEC];
    record.part_count = bytes[AT_PART_COUNT];
    record.hint = bytes[AT_HINT];
    record.class_id = get_u16(bytes + AT_CLASS_ID);
    record.checksum = get_hash128(bytes + AT_CHECKSUM);
    record.parent = get_hash128(bytes + AT_PARENT);
    record.depth = get_u32(bytes + AT_DEPTH);
    record.token_start = get_u32(bytes + AT_TOKEN_START);
    record.token_count = get_u32(bytes + AT_TOKEN_COUNT);
    record.recompute_us = get_u32(bytes + AT_RECOMPUTE_US);
    record.importance = get_u32(bytes + AT_IMPORTANCE);
    *record_out = record;
    return KVT_OK;
}

uint32_t
block_record_crc(const uint8_t *bytes)
{
    return get_u32(bytes + AT_CRC);
}
