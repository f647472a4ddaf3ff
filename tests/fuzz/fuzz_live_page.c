/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_live_page.c - the file in which an owner shows what it does, which anybody may have
 * written. Input: the file.
 */
#include "live_page.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "fuzz_world.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct kvt_live live;
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    enum kvt_status status;

    (void)fuzz_world();
    memcpy(exact, bytes, size);
    status = live_page_read(exact, size, UINT64_C(1) << 60, &live);
    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_CORRUPT || status == KVT_E_FORMAT);
    if (status == KVT_OK) {
        FUZZ_REQUIRE(live.lease_shown_count <= KVT_LIVE_LEASES_MAX);
        FUZZ_REQUIRE(memchr(live.program, 0, sizeof(live.program)) != NULL);
        FUZZ_REQUIRE(memchr(live.version, 0, sizeof(live.version)) != NULL);
    }
    free(exact);
    return 0;
}
