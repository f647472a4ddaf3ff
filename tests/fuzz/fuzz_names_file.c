/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_names_file.c - the two copies of NAMES. Input: two bytes, the length of the first copy in
 * units of 8, then both.
 */
#include "names_file.h"

#include <string.h>

#include "failure.h"
#include "fuzz_world.h"

static void
found_count(void *context, const char *name, const char *reason)
{
    FUZZ_REQUIRE(strncmp(name, "NAMES.", 6) == 0 && strlen(reason) > 5);
    ++*(int *)context;
}

static void
entries_require(struct names_file *names)
{
    FUZZ_REQUIRE(names->count <= NAMES_COUNT_MAX);
    for (uint32_t i = 0; i < names->count; i++) {
        struct name_entry *entry = &names->entries[i];

        FUZZ_REQUIRE(strlen(entry->name) == entry->name_length && entry->name_length > 0);
        FUZZ_REQUIRE(entry->description_length <= DESCRIPTION_BYTES_MAX);
        FUZZ_REQUIRE(entry->id != 0 && entry->id <= NAMES_COUNT_MAX && entry->epoch != 0);
        FUZZ_REQUIRE(names_find(names, entry->name) == entry);
        FUZZ_REQUIRE(names_find_id(names, entry->id) == entry);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct fuzz_world *world = fuzz_world();
    struct fuzz_input input = {bytes, size};
    size_t first = (size_t)fuzz_number(&input, 2) * 8;
    struct names_file names;
    enum kvt_status status;
    int found = 0;

    first = first < input.left ? first : input.left;
    world->files[0] = (struct fuzz_file){"NAMES.a", input.at, first};
    world->files[1] = (struct fuzz_file){"NAMES.b", input.at + first, input.left - first};
    names_init(&names, &world->env, fuzz_uuid);
    status = names_read(&names, world->dir);
    FUZZ_REQUIRE(status == KVT_OK || status == KVT_E_CORRUPT);
    FUZZ_REQUIRE(status == KVT_OK || names.count == 0);
    FUZZ_REQUIRE(names_examine(&names, world->dir, found_count, &found) == KVT_OK);
    FUZZ_REQUIRE((status == KVT_OK) == (found < 2));
    FUZZ_REQUIRE(world->open_count == 0);
    entries_require(&names);
    names_deinit(&names);
    return 0;
}
