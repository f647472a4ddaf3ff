/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_oracle.c - see engram_oracle.h. The generator is SeedSequence with a pool of four words,
 * PCG64 (XSL-RR, 128 bits of state) and Lemire's bounded numbers.
 */
#include "engram_oracle.h"

__extension__ typedef unsigned __int128 wide;

/* --- Rows ------------------------------------------------------------------------------------- */

/* The class `back` tokens before, if nothing on the way there blocks it. */
static uint64_t
class_back(
    const struct kvt_engram_profile *profile, const uint32_t *classes, uint32_t at, uint32_t back)
{
    for (uint32_t i = 0; i <= back; i++) {
        if (i > at || classes[at - i] == KVT_ENGRAM_DEAD)
            return profile->pad_class;
    }
    return classes[at - back];
}

uint32_t
oracle_row(const struct kvt_engram_profile *profile, uint32_t layer, const uint32_t *classes,
    uint32_t at, uint32_t column)
{
    const struct kvt_engram_layer *facts = &profile->layers[layer];
    uint32_t order = column / profile->head_count + 2;
    uint64_t hash = 0;
    uint64_t offset = 0;

    for (uint32_t s = 0; s < order; s++)
        hash ^= class_back(profile, classes, at, s) * facts->multipliers[s];
    for (uint32_t i = 0; i < column; i++)
        offset += facts->primes[i];
    return (uint32_t)(offset + hash % facts->primes[column]);
}

/* --- Primes ----------------------------------------------------------------------------------- */

static bool
is_prime(uint32_t number)
{
    if (number < 2)
        return false;
    for (uint64_t i = 2; i * i <= number; i++) {
        if (number % i == 0)
            return false;
    }
    return true;
}

void
oracle_primes(uint32_t base, uint32_t layer_count, uint32_t order_max, uint32_t head_count,
    uint32_t primes_out[KVT_ENGRAM_LAYERS_MAX][KVT_ENGRAM_COLUMNS_MAX])
{
    uint32_t used[KVT_ENGRAM_LAYERS_MAX * KVT_ENGRAM_COLUMNS_MAX];
    uint32_t used_count = 0;

    for (uint32_t layer = 0; layer < layer_count; layer++) {
        for (uint32_t order = 2; order <= order_max; order++) {
            uint32_t cursor = base - 1;

            for (uint32_t head = 0; head < head_count; head++) {
                bool is_used = true;

                while (is_used) {
                    cursor++;
                    while (!is_prime(cursor))
                        cursor++;
                    is_used = false;
                    for (uint32_t i = 0; i < used_count; i++)
                        is_used = is_used || used[i] == cursor;
                }
                used[used_count++] = cursor;
                primes_out[layer][(order - 2) * head_count + head] = cursor;
            }
        }
    }
}

/* --- Multipliers ------------------------------------------------------------------------------ */

static uint32_t
entropy_hash(uint32_t value, uint32_t *constant, uint32_t factor)
{
    value ^= *constant;
    *constant *= factor;
    value *= *constant;
    return value ^ value >> 16;
}

/* Eight words from a seed of 32 bits. */
static void
seed_words(uint32_t seed, uint32_t words_out[8])
{
    uint32_t pool[4];
    uint32_t constant = 0x43b0d7e5;

    for (uint32_t i = 0; i < 4; i++)
        pool[i] = entropy_hash(i == 0 ? seed : 0, &constant, 0x931e8875);
    for (uint32_t source = 0; source < 4; source++) {
        for (uint32_t target = 0; target < 4; target++) {
            if (source != target) {
                uint32_t mixed = 0xca01f9dd * pool[target] -
                                 0x4973f715 * entropy_hash(pool[source], &constant, 0x931e8875);

                pool[target] = mixed ^ mixed >> 16;
            }
        }
    }
    constant = 0x8b51f9dd;
    for (uint32_t i = 0; i < 8; i++)
        words_out[i] = entropy_hash(pool[i % 4], &constant, 0x58f38ded);
}

struct pcg {
    wide state, increment;
};

static void
pcg_advance(struct pcg *pcg)
{
    const wide factor = (wide)2549297995355413924u << 64 | 4865540595714422341u;

    pcg->state = pcg->state * factor + pcg->increment;
}

static uint64_t
pcg_next(struct pcg *pcg)
{
    unsigned turn;
    uint64_t mixed;

    pcg_advance(pcg);
    turn = (unsigned)(pcg->state >> 122);
    mixed = (uint64_t)(pcg->state >> 64) ^ (uint64_t)pcg->state;
    return mixed >> turn | mixed << (-turn & 63);
}

static uint64_t
word_pair(const uint32_t *words)
{
    return words[0] | (uint64_t)words[1] << 32;
}

void
oracle_multipliers(uint32_t seed, uint32_t class_count, uint32_t count, uint64_t *multipliers_out)
{
    uint64_t bound = (UINT64_MAX >> 1) / class_count / 2;
    uint32_t words[8];
    struct pcg pcg = {0};

    seed_words(seed, words);
    pcg.increment = ((wide)word_pair(words + 4) << 64 | word_pair(words + 6)) << 1 | 1;
    pcg_advance(&pcg);
    pcg.state += (wide)word_pair(words) << 64 | word_pair(words + 2);
    pcg_advance(&pcg);
    for (uint32_t i = 0; i < count; i++) {
        wide product = (wide)pcg_next(&pcg) * bound;

        while ((uint64_t)product < (0 - bound) % bound)
            product = (wide)pcg_next(&pcg) * bound;
        multipliers_out[i] = 2 * (uint64_t)(product >> 64) + 1;
    }
}
