/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_record.h - what the store remembers of one durable copy, and its bytes in a batch header
 * and in the index (the same bytes in both: tiers/FORMAT.md section 3.4).
 *
 * Owns the encoding. Here rather than in a tier or in the index because both carry it.
 */
#ifndef KVT_BASE_BLOCK_RECORD_H
#define KVT_BASE_BLOCK_RECORD_H

#include "hash.h"
#include "kvtier/status.h"

/*
 * Where an extent is. A segment number is root << 24 | index in the root. A page is 4 KiB,
 * counted from the start of the segment. A (segment, generation, page) is written at most once.
 */
struct extent {
    uint32_t segment;
    uint32_t generation;
    uint32_t page;
};

static inline bool
extent_equal(const struct extent *left, const struct extent *right)
{
    return left->segment == right->segment && left->generation == right->generation &&
           left->page == right->page;
}

/* extent_compare - below 0, 0 or above: by place, whatever the generations. */
static inline int
extent_compare(const struct extent *left, const struct extent *right)
{
    if (left->segment != right->segment)
        return left->segment < right->segment ? -1 : 1;
    return (left->page > right->page) - (left->page < right->page);
}

static inline uint32_t
segment_root(uint32_t segment)
{
    return segment >> 24;
}

static inline uint32_t
segment_index(uint32_t segment)
{
    return segment & 0xFFFFFFu;
}

/* How a block lies in its extent. Stored on disk: never renumbered. */
enum record_codec {
    RECORD_WHOLE = 0, /* As it was given. */
    RECORD_PARTS = 1, /* Its parts, each raw or encoded, then a trailer (FORMAT.md section 3.6). */
};

enum {
    RECORD_PARTS_MAX = 64,
    RECORD_NOTE_BYTES = 24, /* What a trailer says of a part. */
};

/* record_raw_bytes - the stored length of parts none of which is encoded. */
static inline uint32_t
record_raw_bytes(uint32_t length, uint32_t part_count)
{
    return length + part_count * RECORD_NOTE_BYTES;
}

struct block_record {
    struct block_key key;
    uint32_t namespace_epoch;
    struct extent extent;
    uint64_t sequence;       /* Open epoch << 40 | counter; rises with every record written. */
    uint32_t length;         /* Payload bytes as the caller gave them, 1..64 MiB. */
    uint32_t stored_length;  /* Bytes in the extent. Equal to length with RECORD_WHOLE. */
    uint8_t codec;           /* enum record_codec */
    uint8_t part_count;      /* 1..RECORD_PARTS_MAX equal parts; RECORD_WHOLE: 1. */
    uint8_t hint;            /* 0..3, the caller's. */
    uint16_t class_id;       /* The caller's. */
    struct hash128 checksum; /* hash_payload() of the stored bytes; RECORD_PARTS: of the trailer. */
    struct hash128 parent;   /* key_fingerprint() of the parent; zero: a root. */
    uint32_t depth;          /* Blocks above it in its chain. */
    uint32_t token_start;    /* First token that the block covers. */
    uint32_t token_count;
    uint32_t recompute_us; /* Microseconds to compute the block anew; 0: unknown. */
    uint32_t importance;   /* The caller's, 0..2^32-1; 0: none given. */
};

enum {
    BLOCK_RECORD_BYTES_MIN = 101, /* With a key of one byte. */
    BLOCK_RECORD_BYTES_MAX = 164,
};

/* block_record_encode - returns the number of bytes, BLOCK_RECORD_BYTES_MIN.._MAX. */
size_t block_record_encode(const struct block_record *record, uint8_t *target);

/*
 * block_record_prove - whether the bytes are what was written there: KVT_E_CORRUPT when their size
 * or their CRC says no. What was written may be of another version, which block_record_decode()
 * refuses.
 */
enum kvt_status block_record_prove(
    uint32_t segment, uint32_t page, const uint8_t *bytes, size_t size);

/*
 * block_record_decode - the reverse; segment and page come from where the bytes were found (the
 * record's CRC covers them), `size` is what stood there. KVT_E_CORRUPT when anything is off: the
 * CRC, a length, a form, a codec or part count of another version, non-zero reserved bytes.
 */
enum kvt_status block_record_decode(struct block_record *record_out, uint32_t segment,
    uint32_t page, const uint8_t *bytes, size_t size);

/* block_record_crc - the CRC inside encoded bytes, for the per-segment XOR. size >= MIN. */
uint32_t block_record_crc(const uint8_t *bytes);

#endif /* KVT_BASE_BLOCK_RECORD_H */
