/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_planes.h - 16-bit numbers as two planes of bytes: a skewed one (exponents) and a rest.
 *
 * Nothing here allocates or fails. `count` numbers are 2 * count bytes, at any alignment.
 */
#ifndef KVT_TIERS_CODEC_PLANES_H
#define KVT_TIERS_CODEC_PLANES_H

#include <stddef.h>
#include <stdint.h>

#include "codec.h"

/* planes_split - `count` bytes to each plane. `id`: CODEC_BF16 or CODEC_FP16. */
void planes_split(
    enum codec_id id, const uint8_t *source, size_t count, uint8_t *skewed, uint8_t *rests);

/* planes_join - the reverse. */
void planes_join(
    enum codec_id id, uint8_t *target, size_t count, const uint8_t *skewed, const uint8_t *rests);

#endif /* KVT_TIERS_CODEC_PLANES_H */
