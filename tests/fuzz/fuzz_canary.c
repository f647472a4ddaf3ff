/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_canary.c - a target that fails on purpose, on a word that a working fuzzer finds within a
 * second: a job that does not notice it is broken.
 */
#include "fuzz_world.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    (void)fuzz_world();
    if (size >= 4 && bytes[0] == 'b' && bytes[1] == 'i' && bytes[2] == 'r' && bytes[3] == 'd')
        FUZZ_REQUIRE(bytes == NULL);
    return 0;
}
