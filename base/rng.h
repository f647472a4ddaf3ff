/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rng.h - seeded random numbers for choices that must be repeatable (SplitMix64, Steele, Lea and
 * Flood 2014, "Fast splittable pseudorandom number generators"). Not for secrets.
 */
#ifndef KVT_BASE_RNG_H
#define KVT_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t
rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* rng_below - uniform in 0..limit-1 to within 2^-32 (limit < 2^32); limit 0 gives 0. */
static inline uint32_t
rng_below(struct rng *rng, uint32_t limit)
{
    return (uint32_t)(((rng_next(rng) >> 32) * limit) >> 32);
}

#endif /* KVT_BASE_RNG_H */
