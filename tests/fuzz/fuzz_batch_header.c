/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_batch_header.c - the header of a write batch from a device. Input: the page where it was
 * read (4 bytes), then the header's own pages; it stands in segment 1 of 4,096 pages.
 */
#include "batch_header.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "fuzz_world.h"

enum {
    SEGMENT = 1,
    SEGMENT_PAGES = 4096,
};

static struct block_record records[BATCH_BLOCKS_MAX];
static struct tier_kill kills[BATCH_KILLS_MAX];
static struct tier_block blocks[BATCH_BLOCKS_MAX];
static struct block_record records_again[BATCH_BLOCKS_MAX];
static struct tier_kill kills_again[BATCH_KILLS_MAX];
static uint8_t encoded[BATCH_HEADER_PAGES_MAX * PAGE_BYTES];

/* Blocks stand in the run, in order, and do not overlap. */
static void
places_require(const struct batch_header *header)
{
    uint32_t next = header->extent.page + header->header_pages;

    FUZZ_REQUIRE(header->total_pages <= SEGMENT_PAGES - header->extent.page);
    for (uint32_t i = 0; i < header->block_count; i++) {
        FUZZ_REQUIRE(records[i].extent.segment == SEGMENT);
        FUZZ_REQUIRE(records[i].extent.generation == header->extent.generation);
        FUZZ_REQUIRE(records[i].extent.page >= next);
        next = records[i].extent.page + pages_of(records[i].stored_length);
    }
    FUZZ_REQUIRE(next <= header->extent.page + header->total_pages);
}

/* Written again it says the same. */
static void
again_require(const struct batch_header *header)
{
    struct batch_header again;

    if (header->header_pages < batch_header_pages(header->block_count, header->kill_count))
        return;
    for (uint32_t i = 0; i < header->block_count; i++)
        blocks[i].record = records[i];
    batch_header_encode(header, blocks, kills, fuzz_secret, encoded);
    FUZZ_REQUIRE(batch_header_decode(encoded, (size_t)header->header_pages * PAGE_BYTES, fuzz_uuid,
                     fuzz_secret, SEGMENT, header->extent.page, SEGMENT_PAGES, &again,
                     records_again, kills_again) == KVT_OK);
    FUZZ_REQUIRE(again.sequence == header->sequence && again.total_pages == header->total_pages);
    FUZZ_REQUIRE(again.block_count == header->block_count);
    FUZZ_REQUIRE(again.kill_count == header->kill_count);
    for (uint32_t i = 0; i < header->block_count; i++)
        FUZZ_REQUIRE(key_equal(&records[i].key, &records_again[i].key));
    for (uint32_t i = 0; i < header->kill_count; i++)
        FUZZ_REQUIRE(kills[i].sequence == kills_again[i].sequence);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_input input = {bytes, size};
    uint32_t page = (uint32_t)fuzz_number(&input, 4);
    struct batch_header header;
    size_t whole = round_up(input.left, PAGE_BYTES);
    uint8_t *exact = calloc(1, whole == 0 ? 1 : whole);

    (void)fuzz_world();
    memcpy(exact, input.at, input.left);
    if (batch_header_decode(exact, whole, fuzz_uuid, fuzz_secret, SEGMENT, page, SEGMENT_PAGES,
            &header, records, kills) == KVT_OK) {
        FUZZ_REQUIRE(header.extent.page == page && header.extent.segment == SEGMENT);
        places_require(&header);
        again_require(&header);
    }
    free(exact);
    return 0;
}
