/* SPDX-License-Identifier: Apache-2.0 */
/*
 * use_word.h - a generation and a count of uses in one word: of a thing that callers register, name
 * by an id with that generation, and take back when nobody uses it (region.c, layout.c).
 *
 * Threads   any; use_word_open() and use_word_close() of one word by one thread at a time.
 *
 * Invariants
 *   (1) The generation is odd while the thing is registered.
 *   (2) Uses are only of that generation: there are none while it is even.
 *
 * (R3) Both are one word, so that a use is counted of the generation that was named, or not at all,
 * and an end that is refused changes nothing: who names the thing meanwhile does not find it gone.
 * Acquire where a use or an end begins, release where they and the registration are done: a use
 * sees what was registered, and what comes after the end sees all uses done.
 */
#ifndef KVT_ENGINE_USE_WORD_H
#define KVT_ENGINE_USE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct use_word {
    _Atomic uint64_t word; /* {generation 32, uses 32}. All zero: not registered. */
};

#define USE_WORD_GENERATION (UINT64_C(1) << 32)

static inline uint32_t
use_word_generation(const struct use_word *use)
{
    return (uint32_t)(atomic_load_explicit(&use->word, memory_order_acquire) >> 32);
}

static inline bool
use_word_is_open(const struct use_word *use)
{
    return (use_word_generation(use) & 1) != 0;
}

/* use_word_open - what was written before is registered from here on. Returns the generation. */
static inline uint32_t
use_word_open(struct use_word *use)
{
    uint64_t before =
        atomic_fetch_add_explicit(&use->word, USE_WORD_GENERATION, memory_order_release);

    return (uint32_t)(before >> 32) + 1;
}

/* use_word_close - it is registered no more. False: somebody uses it, and nothing has changed. */
static inline bool
use_word_close(struct use_word *use)
{
    uint64_t word = atomic_load_explicit(&use->word, memory_order_relaxed);

    do {
        if ((uint32_t)word != 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &use->word, &word, word + USE_WORD_GENERATION, memory_order_acquire, memory_order_relaxed));
    return true;
}

/* use_word_take - one use more, if it is registered and its generation is, in the bits of `mask`,
 * this one. use_word_share: one more for who has one. use_word_put: one less. */
static inline bool
use_word_take(struct use_word *use, uint32_t generation, uint32_t mask)
{
    uint64_t word = atomic_load_explicit(&use->word, memory_order_relaxed);

    do {
        uint32_t current = (uint32_t)(word >> 32);

        if ((current & 1) == 0 || (current & mask) != generation)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &use->word, &word, word + 1, memory_order_acquire, memory_order_relaxed));
    return true;
}

static inline void
use_word_share(struct use_word *use)
{
    atomic_fetch_add_explicit(&use->word, 1, memory_order_relaxed);
}

static inline void
use_word_put(struct use_word *use)
{
    atomic_fetch_sub_explicit(&use->word, 1, memory_order_release);
}

#endif /* KVT_ENGINE_USE_WORD_H */
