/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - the bytes of a block that is stored part by part: raw or encoded parts, one behind the
 * other, then a trailer that has a note of each.
 *
 * Owns      the encoding (FORMAT.md section 3.6), and the proofs of what was read.
 * Not here  where an image lies, which codec is wanted; the bytes of an encoded part (codec.h).
 * Threads   any; a struct codec belongs to one at a time.
 *
 * The record's checksum is over the trailer, and the trailer has one of each part: so a part can be
 * proved without the others. What is proved is what was written; it is checked all the same, so
 * that nothing is read or written out of bounds whatever it says.
 */
#ifndef KVT_TIERS_IMAGE_H
#define KVT_TIERS_IMAGE_H

#include "block_record.h"
#include "codec.h"

enum {
    IMAGE_TRAILER_BYTES_MAX = RECORD_PARTS_MAX * RECORD_NOTE_BYTES,
};

/* What a record says of stored bytes. */
struct image_shape {
    uint32_t length; /* Of the block: a multiple of part_count. */
    uint32_t stored_length;
    uint32_t part_count;
    bool has_trailer; /* RECORD_PARTS; else the stored bytes are the block's. */
    struct hash128 checksum;
};

/* A part's note, and where the part is. */
struct image_part {
    struct hash128 checksum; /* Of its stored bytes. */
    uint32_t offset;         /* In the image. */
    uint32_t stored_length;
    uint8_t codec; /* enum codec_id */
};

static inline uint32_t
image_part_bytes(const struct image_shape *shape)
{
    return shape->length / shape->part_count;
}

static inline uint32_t
image_trailer_bytes(const struct image_shape *shape)
{
    return shape->has_trailer ? shape->part_count * RECORD_NOTE_BYTES : 0;
}

/* image_trailer_at - where the trailer begins, and the parts end. */
static inline uint32_t
image_trailer_at(const struct image_shape *shape)
{
    return shape->stored_length - image_trailer_bytes(shape);
}

/* image_is_encoded - some part is; else the image begins with the block's bytes. */
static inline bool
image_is_encoded(const struct image_shape *shape)
{
    return image_trailer_at(shape) != shape->length;
}

/* image_note_raw - the trailer of raw parts (part_count * RECORD_NOTE_BYTES bytes) for the payload
 * that the shape's length and part_count describe. Fills the rest of the shape. */
void image_note_raw(struct image_shape *shape, const void *payload, uint8_t *trailer_out);

/*
 * image_encode - the payload that the shape's length and part_count describe, as an image: to
 * `target`, whole pages, at least as long as the block. True: it takes fewer pages than with raw
 * parts, and the rest of the shape is filled. *raw_count_out: parts that were left raw. False: the
 * shape is as it was.
 */
bool image_encode(struct codec *codec, enum codec_id id, struct image_shape *shape,
    const void *payload, uint8_t *target, uint32_t *raw_count_out);

/* image_trailer_read - prove a trailer and read it: RECORD_PARTS_MAX parts. KVT_E_CORRUPT. */
enum kvt_status image_trailer_read(
    const struct image_shape *shape, const void *trailer, struct image_part *parts_out);

/* image_part_is_right - `bytes`, stored_length of them, are what the note says. */
bool image_part_is_right(const struct image_part *part, const void *bytes);

/* image_is_right - every stored byte is, of an image (or a plain block) that lies in one piece. */
bool image_is_right(const struct image_shape *shape, const void *bytes);

#endif /* KVT_TIERS_IMAGE_H */
