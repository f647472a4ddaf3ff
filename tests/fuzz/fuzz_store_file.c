/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_store_file.c - the two copies of STORE. Input: a byte that says which copies there are, then
 * one copy of 4,096 bytes, then the other.
 */
#include "store_file.h"

#include <string.h>

#include "failure.h"
#include "fuzz_world.h"

enum {
    COPY_BYTES = 4096,
};

static void
found_count(void *context, const char *name, const char *reason)
{
    FUZZ_REQUIRE(strncmp(name, "STORE.", 6) == 0 && strlen(reason) > 5);
    ++*(int *)context;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_world *world = fuzz_world();
    struct fuzz_input input = {bytes, size};
    uint64_t which = fuzz_number(&input, 1);
    size_t first = input.left < COPY_BYTES ? input.left : COPY_BYTES;
    struct store_file file;
    enum kvt_status status;
    bool is_unwritable = false;
    int found = 0;

    if ((which & 1) == 0)
        world->files[0] = (struct fuzz_file){"STORE.a", input.at, first};
    if ((which & 2) == 0)
        world->files[1] = (struct fuzz_file){"STORE.b", input.at + first, input.left - first};
    status = store_file_read(&world->env, world->dir, &file, &is_unwritable);
    FUZZ_REQUIRE(store_file_examine(&world->env, world->dir, found_count, &found) == KVT_OK);
    FUZZ_REQUIRE(world->open_count == 0);
    FUZZ_REQUIRE((status == KVT_MISS) == ((which & 3) == 3));
    if (status != KVT_OK) {
        FUZZ_REQUIRE(status == KVT_MISS || status == KVT_E_CORRUPT || status == KVT_E_FORMAT);
        FUZZ_REQUIRE(status != KVT_E_CORRUPT || found == 2);
        return 0;
    }
    FUZZ_REQUIRE(found < 2);
    FUZZ_REQUIRE(file.version_major == STORE_VERSION_MAJOR && file.features_needed == 0);
    FUZZ_REQUIRE(file.open_epoch >= 1 && file.open_epoch < 1u << 24);
    FUZZ_REQUIRE(file.root_count >= 1 && file.root_count <= STORE_ROOTS_MAX);
    for (size_t i = 0; i < STORE_ROOTS_MAX; i++)
        FUZZ_REQUIRE(memchr(file.root_paths[i], 0, STORE_PATH_BYTES) != NULL);
    FUZZ_REQUIRE((file.segment_pages & (file.segment_pages - 1)) == 0);
    return 0;
}
