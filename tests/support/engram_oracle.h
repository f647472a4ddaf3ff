/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_oracle.h - rows of Engram tables computed another way than the library does: token by
 * token, with divisions; and the numbers of profiles found as the models' makers found them.
 */
#ifndef KVT_TESTS_ENGRAM_ORACLE_H
#define KVT_TESTS_ENGRAM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

/* oracle_row - of one layer and column, for the token at place `at` of classes (or DEAD). */
uint32_t oracle_row(const struct kvt_engram_profile *profile, uint32_t layer,
    const uint32_t *classes, uint32_t at, uint32_t column);

/* oracle_primes - for every layer and order anew from `base` - 1 upwards the next primes that no
 * layer has yet, one for each head; primes_out[layer][column]. */
void oracle_primes(uint32_t base, uint32_t layer_count, uint32_t order_max, uint32_t head_count,
    uint32_t primes_out[KVT_ENGRAM_LAYERS_MAX][KVT_ENGRAM_COLUMNS_MAX]);

/* oracle_multipliers - 2 r + 1, with r from numpy's default_rng(seed).integers(0, bound), where
 * bound is half of (2^63 - 1) / class_count. */
void oracle_multipliers(
    uint32_t seed, uint32_t class_count, uint32_t count, uint64_t *multipliers_out);

#endif /* KVT_TESTS_ENGRAM_ORACLE_H */
