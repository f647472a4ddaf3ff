/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nvme_scan.c - the search for batch headers in a segment, as a rebuild does it. Input: two
 * bytes, the state and generation that the table has, then the data file: two segments of 32 pages.
 */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "fuzz_world.h"
#include "nvme_internal.h"

enum {
    SEGMENT_PAGES = 32,
    SEGMENTS = 2,
};

struct scanned {
    uint32_t segment;
    uint32_t generation;
    uint64_t sequence;
    uint32_t count;
};

static bool
visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct scanned *scanned = visitor;

    (void)kills;
    FUZZ_REQUIRE(header->extent.segment == scanned->segment);
    FUZZ_REQUIRE(scanned->count == 0 || header->extent.generation == scanned->generation);
    FUZZ_REQUIRE(scanned->count == 0 || header->sequence >= scanned->sequence);
    FUZZ_REQUIRE(header->total_pages <= SEGMENT_PAGES - header->extent.page);
    for (uint32_t i = 0; i < header->block_count; i++) {
        FUZZ_REQUIRE(records[i].extent.page < SEGMENT_PAGES);
        FUZZ_REQUIRE(pages_of(records[i].stored_length) <= SEGMENT_PAGES - records[i].extent.page);
    }
    scanned->generation = header->extent.generation;
    scanned->sequence = header->sequence;
    scanned->count++;
    return true;
}

static void
segments_scan(struct nvme_tier *nvme)
{
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        struct scanned scanned = {.segment = i};
        struct nvme_scan_result result;

        FUZZ_REQUIRE(nvme_scan(nvme, i, visit, &scanned, &result) == KVT_OK);
        FUZZ_REQUIRE(scanned.count == 0 || scanned.generation == result.generation);
        FUZZ_REQUIRE(scanned.count <= SEGMENT_PAGES && result.damaged_pages <= 4 * SEGMENT_PAGES);
        FUZZ_REQUIRE(result.unreadable_end <= SEGMENT_PAGES);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_world *world = fuzz_world();
    struct fuzz_input input = {bytes, size};
    struct segment first = {.state = (enum segment_state)(fuzz_number(&input, 1) % 4),
        .generation = (uint32_t)fuzz_number(&input, 1)};
    struct nvme_tier *nvme = calloc(1, sizeof(*nvme));

    nvme->env = &world->env;
    nvme->root_count = 1;
    nvme->roots[0].segment_count = SEGMENTS;
    nvme->roots[0].file = fuzz_file_open(input.at, input.left);
    nvme->options.segment_pages = SEGMENT_PAGES;
    memcpy(nvme->options.store_uuid, fuzz_uuid, sizeof(fuzz_uuid));
    memcpy(nvme->options.secret, fuzz_secret, sizeof(fuzz_secret));
    FUZZ_REQUIRE(segment_table_open(&world->env, 1, &nvme->roots[0].segment_count, SEGMENT_PAGES,
                     &nvme->table) == KVT_OK);
    (void)segment_restore(nvme->table, &first);
    segments_scan(nvme);
    segment_table_close(nvme->table);
    world->env.fs->close(nvme->roots[0].file);
    free(nvme);
    return 0;
}
