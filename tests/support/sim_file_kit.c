/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_file_kit.c - small files in a simulated world, for the tests of the world itself.
 */
#include "sim_file_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"

struct sim_world *
world_of(uint64_t seed)
{
    struct sim_options options = {.seed = seed};

    return sim_world_create(&options);
}

struct fs_dir *
dir_of(struct sim_world *world)
{
    const struct kvt_env *env = sim_env(world);
    struct fs_dir *dir;

    assert_int_equal(env->fs->dir_open(env->fs_context, "/store", FS_CREATE, &dir), KVT_OK);
    return dir;
}

struct fs_file *
file_of(struct sim_world *world, struct fs_dir *dir, const char *name, unsigned flags)
{
    struct fs_file *file;

    assert_int_equal(sim_env(world)->fs->open(dir, name, flags, &file), KVT_OK);
    return file;
}

void
write_all(struct sim_world *world, struct fs_file *file, uint8_t value)
{
    static _Alignas(PAGE_BYTES) uint8_t bytes[FILE_BYTES];

    memset(bytes, value, sizeof(bytes));
    assert_int_equal(sim_env(world)->fs->write_at(file, bytes, sizeof(bytes), 0), KVT_OK);
}

uint32_t
count_sectors(struct sim_world *world, struct fs_file *file, uint8_t value)
{
    static _Alignas(PAGE_BYTES) uint8_t bytes[FILE_BYTES];
    uint32_t count = 0;
    size_t got;

    assert_int_equal(sim_env(world)->fs->read_at(file, bytes, sizeof(bytes), 0, &got), KVT_OK);
    for (size_t at = 0; at + 512 <= got; at += 512) {
        bool same = true;

        for (size_t i = 0; i < 512; i++)
            same = same && bytes[at + i] == value;
        count += same;
    }
    return count;
}
