/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_options.c - the options of kvt_open(), for a new store and for one that was made with other
 * ones. Input: which of the two (1 byte), then struct kvt_options.
 */
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "fuzz_world.h"
#include "store_internal.h"

static void
resolved_require(const struct kvt_options *options)
{
    uint64_t roots = options->root_count == 0 ? 1 : options->root_count;
    uint64_t segment = options->segment_bytes;

    FUZZ_REQUIRE(roots <= STORE_ROOTS_MAX);
    FUZZ_REQUIRE(segment >= 1 << 20 && (segment & (segment - 1)) == 0);
    FUZZ_REQUIRE(options->block_bytes_max >= 1 && options->block_bytes_max <= segment / 4);
    FUZZ_REQUIRE(options->block_bytes_max <= options->host_capacity_bytes);
    FUZZ_REQUIRE(options->nvme_capacity_bytes == KVT_CAPACITY_NONE ||
                 options->nvme_capacity_bytes / roots / segment >= 8);
    FUZZ_REQUIRE(options->worker_count >= 1 && options->worker_count <= 64);
    FUZZ_REQUIRE(options->host_low_percent <= options->host_high_percent);
    FUZZ_REQUIRE(options->dirty_bytes_max <= options->host_capacity_bytes);
    FUZZ_REQUIRE(options->pin_bytes_max <= options->host_capacity_bytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const struct store_file made = {.segment_pages = 4096,
        .block_bytes_max = 1 << 20,
        .root_count = 1,
        .root_bytes = {1 << 30}};
    static const char *const roots[STORE_ROOTS_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    struct fuzz_input input = {bytes, size};
    bool is_there = (fuzz_number(&input, 1) & 1) != 0;
    struct kvt_options *given;
    struct kvt_options options;
    enum kvt_status status;
    size_t claimed;

    (void)fuzz_world();
    if (input.left < sizeof(*given))
        return 0;
    given = malloc(input.left);
    memcpy(given, input.at, input.left);
    claimed = given->struct_size;
    if (claimed > input.left && claimed <= 4096) /* The caller's own lie. */
        given->struct_size = (uint32_t)input.left;
    if (given->roots != NULL)
        given->roots = roots;
    status = options_import(&options, given);
    if (status == KVT_OK)
        status = options_resolve(&options, is_there ? &made : NULL);
    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_INVAL || status == KVT_E_UNSUPPORTED);
    if (status == KVT_OK)
        resolved_require(&options);
    else
        FUZZ_REQUIRE(failure_last()->status == status && strlen(failure_last()->text) > 10);
    free(given);
    return 0;
}
