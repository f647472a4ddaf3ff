/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_lmdb_check.c - the reader of LMDB files that proves one safe to map, and lists what is in
 * it. Input: the file.
 */
#include "lmdb_check.h"

#include "failure.h"
#include "fuzz_world.h"

static bool
segment_count(void *visitor, const struct index_segment *segment)
{
    (void)visitor;
    (void)segment;
    return true;
}

static bool
block_count(void *visitor, const struct index_block *block)
{
    uint64_t *count = visitor;

    (void)block;
    (*count)++;
    return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_world *world = fuzz_world();
    struct fs_file *file = fuzz_file_open(bytes, size);
    struct lmdb_report report;
    enum kvt_status status = lmdb_check(&world->env, file, &report);
    uint64_t listed_count = 0;
    const struct lmdb_lister lister = {segment_count, block_count, &listed_count};
    enum kvt_status listed = lmdb_list(&world->env, file, &lister);

    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_CORRUPT);
    /* No page is counted twice, so the walk ends. */
    FUZZ_REQUIRE(report.page_count <= size / 256 + 2);
    FUZZ_REQUIRE(status != KVT_OK || report.damaged_count == 0);
    FUZZ_REQUIRE(listed == KVT_OK || listed == KVT_E_CORRUPT || listed == KVT_NOT_READY);
    /* What is whole can be listed, and all of it is. */
    FUZZ_REQUIRE(
        status != KVT_OK || (report.is_clean ? listed == KVT_OK : listed == KVT_NOT_READY));
    FUZZ_REQUIRE(status != KVT_OK || listed != KVT_OK || listed_count == report.block_count);
    world->env.fs->close(file);
    FUZZ_REQUIRE(world->open_count == 0);
    return 0;
}
