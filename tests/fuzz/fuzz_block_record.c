/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_block_record.c - a block record from a device. Input: segment, page, then its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "block_record.h"
#include "failure.h"
#include "fuzz_world.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_input input = {bytes, size};
    uint32_t segment = (uint32_t)fuzz_number(&input, 4);
    uint32_t page = (uint32_t)fuzz_number(&input, 4);
    uint8_t again[BLOCK_RECORD_BYTES_MAX];
    struct block_record record;
    uint8_t *exact = malloc(input.left == 0 ? 1 : input.left); /* So that its end is watched. */

    (void)fuzz_world();
    memcpy(exact, input.at, input.left);
    if (block_record_decode(&record, segment, page, exact, input.left) != KVT_OK) {
        FUZZ_REQUIRE(failure_last()->status == KVT_E_CORRUPT);
        free(exact);
        return 0;
    }
    /* What is accepted is what would be written, its CRC apart (bytes 96 to 99). */
    FUZZ_REQUIRE(record.extent.segment == segment && record.extent.page == page);
    FUZZ_REQUIRE(block_record_encode(&record, again) == input.left);
    FUZZ_REQUIRE(memcmp(again, exact, 96) == 0);
    FUZZ_REQUIRE(memcmp(again + 100, exact + 100, input.left - 100) == 0);
    free(exact);
    return 0;
}
