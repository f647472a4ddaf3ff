/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_damage.h - damage the bytes of a paged file as seeds say: bit flips, changed fields, zeroed,
 * duplicated, swapped and garbage pages, truncation.
 */
#ifndef KVT_TESTS_FILE_DAMAGE_H
#define KVT_TESTS_FILE_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "rng.h"

enum file_damage {
    DAMAGE_FLIP,
    DAMAGE_FIELD, /* A field of 2, 4 or 8 bytes becomes an extreme or a neighbouring value. */
    DAMAGE_ZERO,
    DAMAGE_DUPLICATE,
    DAMAGE_SWAP,
    DAMAGE_GARBAGE, /* A part of a page, or all of it. */
    DAMAGE_TRUNCATE,
    DAMAGE_KIND_COUNT,
};

struct damaged_file {
    uint8_t *bytes;
    size_t size;
    uint64_t page_used_count; /* Damage falls on these pages, with weight on the first two. */
    size_t page_bytes;
};

const char *file_damage_name(enum file_damage kind);

/* file_damage_apply - one piece of damage; returns what kind. Truncation changes `size`. */
enum file_damage file_damage_apply(struct damaged_file *file, struct rng *rng);

#endif /* KVT_TESTS_FILE_DAMAGE_H */
