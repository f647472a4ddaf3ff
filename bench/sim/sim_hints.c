/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_hints.c - hints of a caller who knows, with some certainty, which blocks will be used again.
 *
 * What the caller knows is whether a conversation goes on: of all blocks of a request it is right,
 * or of all it is wrong. Hints that were wrong block by block would be worth little to anybody,
 * since a prefix is as long as the first block that was given up lets it be.
 */
#include <stdlib.h>

#include "complain.h"
#include "sim.h"

enum {
    HINT_LEAVES = 1,
    HINT_RETURNS = 2,
};

/* The next of a sequence of numbers in 0..1 that look random: the same in every run. */
static double
fraction_next(uint64_t *state)
{
    uint64_t mixed = (*state += UINT64_C(0x9E3779B97F4A7C15));

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((mixed ^ mixed >> 31) >> 11) / (double)(UINT64_C(1) << 53);
}

uint8_t *
sim_hints_create(const struct chains *chains, double accuracy)
{
    uint8_t *hints = malloc(chains->trace->id_count + 1);
    uint64_t state = 1;

    if (hints == NULL) {
        complain("there is no memory for hints");
        return NULL;
    }
    for (uint32_t request = 0; request < chains->request_count; request++) {
        struct chain chain = chains_at(chains, request);
        bool is_right = fraction_next(&state) < accuracy;

        for (uint32_t i = 0; i < chain.count; i++) {
            bool returns = chain.next_uses[i] != REQUEST_NONE;

            hints[chain.id_start + i] = returns == is_right ? HINT_RETURNS : HINT_LEAVES;
        }
    }
    return hints;
}
