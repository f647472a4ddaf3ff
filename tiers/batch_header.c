/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch_header.c - encoding, decoding and proof of the header of a write batch.
 *
 * Offsets are those of FORMAT.md section 3.3. The MAC is computed over the header with the MAC
 * field taken as zero, in three strokes, so that the bytes under proof are never changed.
 */
#include "batch_header.h"

#include <assert.h>
#include <sodium.h>

#include "bytes.h"
#include "failure.h"
#include "try.h"

#define HEADER_MAGIC 0x7E91F3B5u

enum {
    HEADER_VERSION = 1,
    FLAG_RECYCLE = 1,

    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_FLAGS = 6,
    AT_UUID = 8,
    AT_SEGMENT = 24,
    AT_GENERATION = 28,
    AT_PAGE = 32,
    AT_HEADER_PAGES = 36,
    AT_TOTAL_PAGES = 40,
    AT_BLOCK_COUNT = 44,
    AT_KILL_COUNT = 48,
    AT_RESERVED_0 = 52,
    AT_SEQUENCE = 56,
    AT_MAC = 64,
    AT_RESERVED_1 = 96,
    FIXED_BYTES = 128,

    ENTRY_HEAD_BYTES = 8, /* Of a block entry, before the record: size, page. */
    KILL_BYTES = 40,
    SEGMENT_PAGES_MAX = 262144,
};

static_assert(FIXED_BYTES + BATCH_BLOCKS_MAX * (ENTRY_HEAD_BYTES + BLOCK_RECORD_BYTES_MAX) +
                      BATCH_KILLS_MAX * KILL_BYTES <=
                  BATCH_HEADER_PAGES_MAX * PAGE_BYTES,
    "the largest header fits");
static_assert(AT_MAC + HASH_MAC_BYTES == AT_RESERVED_1, "the MAC fills its field");

/* --- Sizes and proof -------------------------------------------------------------------------- */

uint32_t
batch_header_pages(uint32_t block_count, uint32_t kill_count)
{
    uint64_t size = FIXED_BYTES;

    size += (uint64_t)block_count * (ENTRY_HEAD_BYTES + BLOCK_RECORD_BYTES_MAX);
    size = round_up(size, 8) + (uint64_t)kill_count * KILL_BYTES;
    return pages_of(size);
}

/* The smallest that a header with these counts can be. */
static uint32_t
pages_least(uint32_t block_count, uint32_t kill_count)
{
    uint64_t size = FIXED_BYTES;

    size += (uint64_t)block_count * (ENTRY_HEAD_BYTES + BLOCK_RECORD_BYTES_MIN);
    size = round_up(size, 8) + (uint64_t)kill_count * KILL_BYTES;
    return pages_of(size);
}

static void
mac_compute(uint8_t mac_out[HASH_MAC_BYTES], const uint8_t secret[HASH_SECRET_BYTES],
    const uint8_t *bytes, size_t size)
{
    static const uint8_t zeros[HASH_MAC_BYTES];
    crypto_generichash_state state;

    crypto_generichash_init(&state, secret, HASH_SECRET_BYTES, HASH_MAC_BYTES);
    crypto_generichash_update(&state, bytes, AT_MAC);
    crypto_generichash_update(&state, zeros, HASH_MAC_BYTES);
    crypto_generichash_update(&state, bytes + AT_RESERVED_1, size - AT_RESERVED_1);
    crypto_generichash_final(&state, mac_out, HASH_MAC_BYTES);
}

static bool
mac_differs(const uint8_t secret[HASH_SECRET_BYTES], const uint8_t *bytes, size_t size)
{
    uint8_t mac[HASH_MAC_BYTES];

    mac_compute(mac, secret, bytes, size);
    return checksum_differs(sodium_memcmp(mac, bytes + AT_MAC, sizeof(mac)) != 0);
}

/* --- Encoding --------------------------------------------------------------------------------- */

static void
fixed_encode(const struct batch_header *header, uint8_t *target)
{
    put_u32(target + AT_MAGIC, HEADER_MAGIC);
    put_u16(target + AT_VERSION, HEADER_VERSION);
    put_u16(target + AT_FLAGS, header->is_recycle ? FLAG_RECYCLE : 0);
    memcpy(target + AT_UUID, header->store_uuid, sizeof(header->store_uuid));
    put_u32(target + AT_SEGMENT, header->extent.segment);
    put_u32(target + AT_GENERATION, header->extent.generation);
    put_u32(target + AT_PAGE, header->extent.page);
    put_u32(target + AT_HEADER_PAGES, header->header_pages);
    put_u32(target + AT_TOTAL_PAGES, header->total_pages);
    put_u32(target + AT_BLOCK_COUNT, header->block_count);
    put_u32(target + AT_KILL_COUNT, header->kill_count);
    put_u64(target + AT_SEQUENCE, header->sequence);
}

static void
kill_encode(const struct tier_kill *kill, uint8_t *target)
{
    put_u32(target, kill->extent.segment);
    put_u32(target + 4, kill->extent.generation);
    put_u32(target + 8, kill->extent.page);
    put_u64(target + 16, kill->fingerprint.high);
    put_u64(target + 24, kill->fingerprint.low);
    put_u64(target + 32, kill->sequence);
}

void
batch_header_encode(const struct batch_header *header, const struct tier_block *blocks,
    const struct tier_kill *kills, const uint8_t secret[HASH_SECRET_BYTES], uint8_t *target)
{
    size_t size = (size_t)header->header_pages * PAGE_BYTES;
    size_t at = FIXED_BYTES;
    uint8_t mac[HASH_MAC_BYTES];

    KVT_ASSERT(header->header_pages >= batch_header_pages(header->block_count, header->kill_count));
    KVT_ASSERT(header->header_pages <= BATCH_HEADER_PAGES_MAX);
    KVT_ASSERT(header->total_pages >= header->header_pages);
    memset(target, 0, size);
    fixed_encode(header, target);
    for (uint32_t i = 0; i < header->block_count; i++) {
        size_t record_size = block_record_encode(&blocks[i].record, target + at + ENTRY_HEAD_BYTES);

        put_u32(target + at, (uint32_t)record_size);
        put_u32(target + at + 4, blocks[i].record.extent.page);
        at += ENTRY_HEAD_BYTES + record_size;
    }
    at = round_up(at, 8);
    for (uint32_t i = 0; i < header->kill_count; i++) {
        kill_encode(&kills[i], target + at);
        at += KILL_BYTES;
    }
    KVT_ASSERT(at <= size);
    mac_compute(mac, secret, target, size);
    memcpy(target + AT_MAC, mac, sizeof(mac));
}

void
batch_header_copy(
    const struct batch_header *header, const uint8_t secret[HASH_SECRET_BYTES], uint8_t *page_out)
{
    struct batch_header copy = *header;

    KVT_ASSERT(header->is_recycle && header->kill_count == 0 && header->header_pages == 1);
    copy.extent.page = 1;
    batch_header_encode(&copy, NULL, NULL, secret, page_out);
}

/* --- Decoding --------------------------------------------------------------------------------- */

static enum kvt_status
fixed_check(const struct batch_header *header, uint16_t flags)
{
    if (flags > FLAG_RECYCLE)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: unknown flags 0x%x", flags);
    if (header->extent.generation == 0)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: generation 0");
    if (header->block_count > BATCH_BLOCKS_MAX || header->kill_count > BATCH_KILLS_MAX)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %u blocks and %u kills",
            header->block_count, header->kill_count);
    if (header->is_recycle && (header->block_count != 0 || header->extent.page > 1 ||
                                  (header->extent.page == 1 && header->kill_count != 0)))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: a recycle header with blocks or page");
    if (header->header_pages > BATCH_HEADER_PAGES_MAX ||
        header->header_pages < pages_least(header->block_count, header->kill_count))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %u pages for %u blocks and %u kills",
            header->header_pages, header->block_count, header->kill_count);
    if (header->extent.page >= SEGMENT_PAGES_MAX || header->total_pages > SEGMENT_PAGES_MAX ||
        header->total_pages < header->header_pages)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %u pages at page %u, header of %u",
            header->total_pages, header->extent.page, header->header_pages);
    return KVT_OK;
}

enum kvt_status
batch_header_peek(const uint8_t *page, struct batch_header *header_out)
{
    struct batch_header header = {0};
    uint16_t flags = get_u16(page + AT_FLAGS);

    if (get_u32(page + AT_MAGIC) != HEADER_MAGIC)
        return KVT_MISS;
    if (get_u16(page + AT_VERSION) != HEADER_VERSION)
        return failure_set(
            KVT_E_CORRUPT, 0, "batch header: version %u", get_u16(page + AT_VERSION));
    if (get_u32(page + AT_RESERVED_0) != 0 ||
        !bytes_are_zero(page + AT_RESERVED_1, FIXED_BYTES - AT_RESERVED_1))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: reserved bytes are not zero");
    memcpy(header.store_uuid, page + AT_UUID, sizeof(header.store_uuid));
    header.extent.segment = get_u32(page + AT_SEGMENT);
    header.extent.generation = get_u32(page + AT_GENERATION);
    header.extent.page = get_u32(page + AT_PAGE);
    header.header_pages = get_u32(page + AT_HEADER_PAGES);
    header.total_pages = get_u32(page + AT_TOTAL_PAGES);
    header.sequence = get_u64(page + AT_SEQUENCE);
    header.block_count = get_u32(page + AT_BLOCK_COUNT);
    header.kill_count = get_u32(page + AT_KILL_COUNT);
    header.is_recycle = (flags & FLAG_RECYCLE) != 0;
    KVT_TRY(fixed_check(&header, flags));
    *header_out = header;
    return KVT_OK;
}

bool
batch_header_is_of(uint8_t *bytes, uint32_t header_pages, const uint8_t store_uuid[16],
    const uint8_t secret[HASH_SECRET_BYTES])
{
    memcpy(bytes + AT_UUID, store_uuid, 16);
    return !mac_differs(secret, bytes, (size_t)header_pages * PAGE_BYTES);
}

/*
 * The entry of one block: of what a later version wrote, which proves whole, nothing is known but
 * where it begins. *page_next moves behind what is known of its payload.
 */
static enum kvt_status
entry_decode(struct batch_header *header, uint32_t page, const uint8_t *bytes, uint32_t size,
    struct block_record *record, uint32_t *page_next)
{
    uint32_t run_end = header->extent.page + header->total_pages;
    uint32_t pages = 1;

    KVT_TRY(block_record_prove(header->extent.segment, page, bytes, size));
    if (block_record_decode(record, header->extent.segment, page, bytes, size) == KVT_OK) {
        if (record->extent.generation != header->extent.generation)
            return failure_set(KVT_E_CORRUPT, 0,
                "batch header: the record of page %u has generation %u, its header %u", page,
                record->extent.generation, header->extent.generation);
        pages = pages_of(record->stored_length);
        header->block_count++;
    } else {
        header->later_count++;
    }
    if (page < *page_next || page > run_end || pages > run_end - page)
        return failure_set(KVT_E_CORRUPT, 0,
            "batch header: a block at page %u (%u pages) is outside its run", page, pages);
    *page_next = page + pages;
    return KVT_OK;
}

/* Block entries: *at moves behind the last one. */
static enum kvt_status
blocks_decode(
    struct batch_header *header, const uint8_t *bytes, size_t *at, struct block_record *records)
{
    size_t size = (size_t)header->header_pages * PAGE_BYTES;
    uint32_t page_next = header->extent.page + header->header_pages;
    uint32_t entry_count = header->block_count;

    header->block_count = 0;
    for (uint32_t i = 0; i < entry_count; i++) {
        uint32_t record_size, page;

        if (size - *at < ENTRY_HEAD_BYTES + BLOCK_RECORD_BYTES_MIN)
            return failure_set(KVT_E_CORRUPT, 0, "batch header: entry %u is outside", i);
        record_size = get_u32(bytes + *at);
        page = get_u32(bytes + *at + 4);
        *at += ENTRY_HEAD_BYTES;
        if (record_size < BLOCK_RECORD_BYTES_MIN || record_size > BLOCK_RECORD_BYTES_MAX ||
            record_size > size - *at)
            return failure_set(
                KVT_E_CORRUPT, 0, "batch header: record %u has %u bytes", i, record_size);
        KVT_TRY(entry_decode(
            header, page, bytes + *at, record_size, &records[header->block_count], &page_next));
        *at += record_size;
    }
    return KVT_OK;
}

static enum kvt_status
kills_decode(
    const struct batch_header *header, const uint8_t *bytes, size_t at, struct tier_kill *kills)
{
    size_t size = (size_t)header->header_pages * PAGE_BYTES;

    if (at > size || (size - at) / KILL_BYTES < header->kill_count)
        return failure_set(
            KVT_E_CORRUPT, 0, "batch header: %u kills are outside", header->kill_count);
    for (uint32_t i = 0; i < header->kill_count; i++) {
        const uint8_t *from = bytes + at;

        kills[i].extent.segment = get_u32(from);
        kills[i].extent.generation = get_u32(from + 4);
        kills[i].extent.page = get_u32(from + 8);
        if (get_u32(from + 12) != 0)
            return failure_set(KVT_E_CORRUPT, 0, "batch header: kill %u has reserved bytes", i);
        kills[i].fingerprint.high = get_u64(from + 16);
        kills[i].fingerprint.low = get_u64(from + 24);
        kills[i].sequence = get_u64(from + 32);
        at += KILL_BYTES;
    }
    if (!bytes_are_zero(bytes + at, size - at))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: bytes behind the last entry");
    return KVT_OK;
}

/* What the header says of itself against where it was read. */
static enum kvt_status
place_check(const struct batch_header *header, const uint8_t store_uuid[16], struct extent place,
    uint32_t segment_pages)
{
    if (memcmp(header->store_uuid, store_uuid, sizeof(header->store_uuid)) != 0)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: of another store");
    if (header->extent.segment != place.segment || header->extent.page != place.page)
        return failure_set(KVT_E_CORRUPT, 0,
            "batch header: of segment 0x%x page %u, read from segment 0x%x page %u",
            header->extent.segment, header->extent.page, place.segment, place.page);
    if (header->extent.page > segment_pages ||
        header->total_pages > segment_pages - header->extent.page)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %u pages at page %u in a segment of %u",
            header->total_pages, header->extent.page, segment_pages);
    return KVT_OK;
}

enum kvt_status
batch_header_decode(const uint8_t *bytes, size_t size, const uint8_t store_uuid[16],
    const uint8_t secret[HASH_SECRET_BYTES], uint32_t segment, uint32_t page,
    uint32_t segment_pages, struct batch_header *header_out, struct block_record *records,
    struct tier_kill *kills)
{
    struct batch_header header;
    struct extent place = {.segment = segment, .page = page};
    size_t at = FIXED_BYTES;

    if (size < PAGE_BYTES)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %zu bytes are no page", size);
    KVT_TRY(batch_header_peek(bytes, &header));
    KVT_TRY(place_check(&header, store_uuid, place, segment_pages));
    if (size / PAGE_BYTES < header.header_pages)
        return failure_set(KVT_E_CORRUPT, 0, "batch header: %u pages, %zu bytes were read",
            header.header_pages, size);
    if (mac_differs(secret, bytes, (size_t)header.header_pages * PAGE_BYTES))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: the MAC differs");
    KVT_TRY(blocks_decode(&header, bytes, &at, records));
    if (!bytes_are_zero(bytes + at, round_up(at, 8) - at))
        return failure_set(KVT_E_CORRUPT, 0, "batch header: padding is not zero");
    KVT_TRY(kills_decode(&header, bytes, round_up(at, 8), kills));
    *header_out = header;
    return KVT_OK;
}
