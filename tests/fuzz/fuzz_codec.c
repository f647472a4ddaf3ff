/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_codec.c - an encoded part from a device, and what encoding any bytes gives. Input: which
 * codec (1 byte), the size of the part (2 bytes), then its stored bytes.
 */
#include "codec.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "fuzz_world.h"

enum {
    PART_BYTES_MAX = 65536,
};

static uint8_t encoded[PART_BYTES_MAX];
static uint8_t decoded[PART_BYTES_MAX];

/* What was encoded comes back. */
static void
round_trip(struct codec *codec, enum codec_id id, const uint8_t *bytes, uint64_t size)
{
    uint64_t stored = 0;
    enum codec_id as = codec_encode(codec, id, bytes, size, encoded, &stored);

    FUZZ_REQUIRE(as == id || as == CODEC_RAW);
    FUZZ_REQUIRE(stored <= codec_bound(size));
    FUZZ_REQUIRE(codec_decode(codec, as, encoded, stored, decoded, size) == KVT_OK);
    FUZZ_REQUIRE(memcmp(bytes, decoded, size) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct codec *codec;
    struct fuzz_world *world = fuzz_world();
    struct fuzz_input input = {bytes, size};
    uint32_t id = (uint32_t)fuzz_number(&input, 1);
    size_t part = (size_t)fuzz_number(&input, 2) + 1;
    uint8_t *target = malloc(part);
    uint8_t *exact = malloc(input.left == 0 ? 1 : input.left);
    enum kvt_status status;

    if (codec == NULL)
        FUZZ_REQUIRE(codec_open(&world->env, PART_BYTES_MAX, &codec) == KVT_OK);
    memcpy(exact, input.at, input.left);
    status = codec_decode(codec, id % 4, exact, input.left, target, part);
    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_CORRUPT || status == KVT_E_FORMAT);
    FUZZ_REQUIRE((status == KVT_E_FORMAT) == (id % 4 > CODEC_FP16));
    if (input.left > 0 && input.left <= PART_BYTES_MAX)
        round_trip(codec, (enum codec_id)(id % 3), exact, input.left);
    free(exact);
    free(target);
    return 0;
}
