/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_file_kit.h - small files in a simulated world, filled with one byte value a time, for the
 * tests of the world itself.
 */
#ifndef KVT_TESTS_SIM_FILE_KIT_H
#define KVT_TESTS_SIM_FILE_KIT_H

#include "sim_world.h"

enum {
    FILE_BYTES = 64 * 1024,
    KIT_SEEDS = 64, /* As many as these tests try. */
};

struct sim_world *world_of(uint64_t seed);
struct fs_dir *dir_of(struct sim_world *world); /* "/store", made when missing. */
struct fs_file *file_of(
    struct sim_world *world, struct fs_dir *dir, const char *name, unsigned flags);

/* Write `value` all over the file's first FILE_BYTES. */
void write_all(struct sim_world *world, struct fs_file *file, uint8_t value);
/* How many sectors of the file's first FILE_BYTES are all `value`. */
uint32_t count_sectors(struct sim_world *world, struct fs_file *file, uint8_t value);

#endif /* KVT_TESTS_SIM_FILE_KIT_H */
