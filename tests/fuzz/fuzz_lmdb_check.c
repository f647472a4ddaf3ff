/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_lmdb_check.c - the reader of LMDB files that proves one safe to map. Input: the file.
 */
#include "lmdb_check.h"

#include "failure.h"
#include "fuzz_world.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_world *world = fuzz_world();
    struct fs_file *file = fuzz_file_open(bytes, size);
    struct lmdb_report report;
    enum kvt_status status = lmdb_check(&world->env, file, &report);

    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_CORRUPT);
    /* No page is counted twice, so the walk ends. */
    FUZZ_REQUIRE(report.page_count <= size / 256 + 2);
    FUZZ_REQUIRE(status != KVT_OK || report.damaged_count == 0);
    world->env.fs->close(file);
    FUZZ_REQUIRE(world->open_count == 0);
    return 0;
}
