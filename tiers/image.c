/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c - parts and their trailer.
 *
 * Format    FORMAT.md section 3.6.
 */
#include "image.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

/* Offsets in a note. */
enum {
    AT_CHECKSUM = 0,
    AT_STORED_LENGTH = 16,
    AT_CODEC = 20,
    AT_RESERVED = 21,
};

/* --- Writing ---------------------------------------------------------------------------------- */

static void
note_write(uint8_t *note, const struct image_part *part)
{
    put_u64(note + AT_CHECKSUM, part->checksum.high);
    put_u64(note + AT_CHECKSUM + 8, part->checksum.low);
    put_u32(note + AT_STORED_LENGTH, part->stored_length);
    note[AT_CODEC] = part->codec;
    memset(note + AT_RESERVED, 0, RECORD_NOTE_BYTES - AT_RESERVED);
}

void
image_note_raw(struct image_shape *shape, const void *payload, uint8_t *trailer_out)
{
    const uint8_t *from = payload;
    uint32_t bytes = image_part_bytes(shape);

    for (uint32_t i = 0; i < shape->part_count; i++) {
        const struct image_part part = {
            .checksum = hash_payload(from + (size_t)i * bytes, bytes),
            .stored_length = bytes,
            .codec = CODEC_RAW,
        };

        note_write(trailer_out + (size_t)i * RECORD_NOTE_BYTES, &part);
    }
    shape->has_trailer = true;
    shape->stored_length = record_raw_bytes(shape->length, shape->part_count);
    shape->checksum = hash_payload(trailer_out, (size_t)shape->part_count * RECORD_NOTE_BYTES);
}

bool
image_encode(struct codec *codec, enum codec_id id, struct image_shape *shape, const void *payload,
    uint8_t *target, uint32_t *raw_count_out)
{
    const uint8_t *from = payload;
    uint8_t trailer[IMAGE_TRAILER_BYTES_MAX];
    uint32_t bytes = image_part_bytes(shape);
    uint32_t trailer_bytes = shape->part_count * RECORD_NOTE_BYTES;
    uint32_t offset = 0;

    *raw_count_out = 0;
    for (uint32_t i = 0; i < shape->part_count; i++) {
        struct image_part part = {0};
        uint64_t stored = 0;

        part.codec = (uint8_t)codec_encode(
            codec, id, from + (size_t)i * bytes, bytes, target + offset, &stored);
        part.stored_length = (uint32_t)stored;
        part.checksum = hash_payload(target + offset, part.stored_length);
        note_write(trailer + (size_t)i * RECORD_NOTE_BYTES, &part);
        *raw_count_out += part.codec == CODEC_RAW;
        offset += part.stored_length;
    }
    if (pages_of(offset + trailer_bytes) >=
        pages_of(record_raw_bytes(shape->length, shape->part_count)))
        return false;
    /* Without parts of its own a block that is not encoded has no trailer either. */
    if (shape->part_count == 1 && pages_of(offset + trailer_bytes) >= pages_of(shape->length))
        return false;
    memcpy(target + offset, trailer, trailer_bytes);
    shape->has_trailer = true;
    shape->stored_length = offset + trailer_bytes;
    shape->checksum = hash_payload(trailer, trailer_bytes);
    offset = shape->stored_length;
    memset(target + offset, 0, (size_t)pages_of(offset) * PAGE_BYTES - offset);
    return true;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static enum kvt_status
trailer_corrupt(const char *what)
{
    return failure_set(KVT_E_CORRUPT, 0, "trailer of a block: %s", what);
}

/* What the note says, if a part of `bytes` bytes can be stored so. */
static enum kvt_status
note_read(const uint8_t *note, uint32_t bytes, struct image_part *part_out)
{
    bool is_raw = note[AT_CODEC] == CODEC_RAW;

    part_out->checksum.high = get_u64(note + AT_CHECKSUM);
    part_out->checksum.low = get_u64(note + AT_CHECKSUM + 8);
    part_out->stored_length = get_u32(note + AT_STORED_LENGTH);
    part_out->codec = note[AT_CODEC];
    if (!is_raw && part_out->codec != CODEC_BF16 && part_out->codec != CODEC_FP16)
        return trailer_corrupt("a part of an unknown codec");
    if (!bytes_are_zero(note + AT_RESERVED, RECORD_NOTE_BYTES - AT_RESERVED))
        return trailer_corrupt("reserved bytes are not zero");
    if (is_raw ? part_out->stored_length != bytes
               : part_out->stored_length == 0 || part_out->stored_length >= bytes)
        return trailer_corrupt("a part of an impossible length");
    return KVT_OK;
}

enum kvt_status
image_trailer_read(
    const struct image_shape *shape, const void *trailer, struct image_part *parts_out)
{
    const uint8_t *notes = trailer;
    uint32_t offset = 0;

    if (!hash128_equal(hash_payload(notes, image_trailer_bytes(shape)), shape->checksum))
        return trailer_corrupt("its checksum differs");
    for (uint32_t i = 0; i < shape->part_count; i++) {
        KVT_TRY(note_read(
            notes + (size_t)i * RECORD_NOTE_BYTES, image_part_bytes(shape), &parts_out[i]));
        parts_out[i].offset = offset;
        /* At most 64 parts that are together as long as the block: no overflow. */
        offset += parts_out[i].stored_length;
    }
    if (offset != image_trailer_at(shape))
        return trailer_corrupt("its parts do not fill the extent");
    return KVT_OK;
}

bool
image_part_is_right(const struct image_part *part, const void *bytes)
{
    return hash128_equal(hash_payload(bytes, part->stored_length), part->checksum);
}

bool
image_is_right(const struct image_shape *shape, const void *bytes)
{
    const uint8_t *from = bytes;
    struct image_part parts[RECORD_PARTS_MAX];

    if (!shape->has_trailer)
        return hash128_equal(hash_payload(bytes, shape->stored_length), shape->checksum);
    if (image_trailer_read(shape, from + image_trailer_at(shape), parts) != KVT_OK)
        return false;
    for (uint32_t i = 0; i < shape->part_count; i++) {
        if (!image_part_is_right(&parts[i], from + parts[i].offset))
            return false;
    }
    return true;
}
