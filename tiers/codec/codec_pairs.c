/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_pairs.c - packs exponents by two and unpacks them.
 *
 * Groups with an escape take a slow path, one escape at a time; in KV caches they are few. The last
 * group, when it is not whole, travels through buffers of its own.
 */
#include "codec_pairs.h"

#include "codec_vector.h"

enum {
    GROUP_BYTES = 2 * PAIRS_GROUP, /* Of 32 numbers. */
    EXPONENTS = 256,
    WINDOW = PAIRS_CODE_ESCAPE, /* Exponents in a window. */
    SAMPLE_RUNS = 32,           /* Runs of whole groups: a cache line each. */
    SAMPLE_MIN = SAMPLE_RUNS * PAIRS_GROUP,
    WORD_BYTES = 8,
    GROUP_WORDS = PAIRS_GROUP / WORD_BYTES,
};

/* Into each function for a processor of its own. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static_assert(PAIRS_GROUP == 2 * VECTOR_NUMBERS, "a group is two vectors");

/* --- The window ------------------------------------------------------------------------------- */

static void
sample_add(uint32_t counts[EXPONENTS], const uint8_t *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        counts[(uint8_t)(source[2 * i + 1] << 1 | source[2 * i] >> 7)]++;
}

bool
pairs_window(const uint8_t *source, size_t count, uint8_t *base_out)
{
    uint32_t counts[EXPONENTS] = {0};
    size_t sampled = count < SAMPLE_MIN ? count : SAMPLE_MIN;
    size_t stride = count / SAMPLE_RUNS;
    uint32_t inside = 0, most = 0;
    uint8_t base = 0;

    if (count < SAMPLE_MIN)
        sample_add(counts, source, count);
    /* Each run begins elsewhere in a row of channels, whatever power of two that row has. */
    for (size_t i = 0; count >= SAMPLE_MIN && i < SAMPLE_RUNS; i++) {
        size_t at = i * stride + i * PAIRS_GROUP % (stride - PAIRS_GROUP + 1);

        sample_add(counts, source + 2 * at, PAIRS_GROUP);
    }
    for (uint32_t i = 0; i < EXPONENTS; i++) {
        inside += counts[i];
        if (i >= WINDOW)
            inside -= counts[i - WINDOW];
        if (i >= WINDOW - 1 && inside > most) {
            most = inside;
            base = (uint8_t)(i - (WINDOW - 1));
        }
    }
    /* The lowest of the best windows ends with the highest exponent that the sample saw. One higher
     * is rarely missing in all, and what is lost below is rarer still. */
    *base_out = (uint8_t)(base + (base < PAIRS_BASE_MAX));
    return most >= sampled - sampled / 16;
}

/* --- Packing ---------------------------------------------------------------------------------- */

/* Which bytes of a group are set: eight in a word, the lowest bit of each. */
static inline void
marks_of(bytes16 low, bytes16 high, uint64_t words[GROUP_WORDS])
{
    memcpy(words, &low, sizeof(low));
    memcpy(words + GROUP_WORDS / 2, &high, sizeof(high));
}

/* Append the exponents that are marked; returns how many there are now. */
static size_t
escapes_append(
    uint8_t *escapes, size_t count, const uint8_t *exponents, const uint64_t marks[GROUP_WORDS])
{
    for (size_t i = 0; i < GROUP_WORDS; i++) {
        uint64_t left = marks[i] & 0x0101010101010101u;

        for (; left != 0; left &= left - 1)
            escapes[count++] = exponents[i * WORD_BYTES + (size_t)__builtin_ctzll(left) / 8];
    }
    return count;
}

/* One group; returns how many escapes there are now. */
static inline size_t
group_pack(const struct pairs_target *target, const uint8_t *source, uint8_t *codes, uint8_t *rests,
    size_t escape_count)
{
    bytes16 low, high, low_rests, high_rests, low_code, high_code, low_far, high_far;
    uint64_t marks[GROUP_WORDS];
    uint8_t exponents[PAIRS_GROUP];

    bf16_split(source, &low, &low_rests);
    bf16_split(source + GROUP_BYTES / 2, &high, &high_rests);
    bytes16_store(rests, low_rests);
    bytes16_store(rests + VECTOR_NUMBERS, high_rests);
    /* What lies below the window wraps around and is far, too. */
    low_code = low - target->base;
    high_code = high - target->base;
    low_far = (bytes16)(low_code >= PAIRS_CODE_ESCAPE);
    high_far = (bytes16)(high_code >= PAIRS_CODE_ESCAPE);
    bytes16_store(codes, ((low_code | low_far) & 15) | (high_code | high_far) << 4);
    if (__builtin_expect(bytes16_any(low_far | high_far), 0)) {
        marks_of(low_far, high_far, marks);
        bytes16_store(exponents, low);
        bytes16_store(exponents + VECTOR_NUMBERS, high);
        escape_count = escapes_append(target->escapes, escape_count, exponents, marks);
    }
    return escape_count;
}

/* The last group: the numbers that it lacks have the exponent `base`. */
static size_t
tail_pack(const struct pairs_target *target, const uint8_t *source, size_t count, size_t whole,
    size_t escape_count)
{
    uint8_t numbers[GROUP_BYTES];
    uint8_t rests[PAIRS_GROUP];

    for (size_t i = 0; i < PAIRS_GROUP; i++) {
        numbers[2 * i] = (uint8_t)(target->base << 7);
        numbers[2 * i + 1] = target->base >> 1;
    }
    memcpy(numbers, source + 2 * whole, 2 * (count - whole));
    escape_count = group_pack(target, numbers, target->codes + whole / 2, rests, escape_count);
    memcpy(target->rests + whole, rests, count - whole);
    return escape_count;
}

bool
pairs_pack(const struct pairs_target *target, const uint8_t *source, size_t count,
    size_t *escape_count_out)
{
    size_t escapes_max = pairs_escapes_max(count);
    size_t whole = count - count % PAIRS_GROUP;
    size_t escape_count = 0;

    for (size_t i = 0; i < whole && escape_count <= escapes_max; i += PAIRS_GROUP) {
        ahead_read(source + 2 * i);
        ahead_write(target->rests + i);
        escape_count = group_pack(
            target, source + 2 * i, target->codes + i / 2, target->rests + i, escape_count);
    }
    if (whole < count && escape_count <= escapes_max)
        escape_count = tail_pack(target, source, count, whole, escape_count);
    *escape_count_out = escape_count;
    return escape_count <= escapes_max;
}

/* --- Unpacking -------------------------------------------------------------------------------- */

/* Put the next escapes where they are marked; false: there are not as many. */
static bool
escapes_insert(const struct pairs_source *source, size_t *used, uint8_t *exponents,
    const uint64_t marks[GROUP_WORDS])
{
    for (size_t i = 0; i < GROUP_WORDS; i++) {
        uint64_t left = marks[i] & 0x0101010101010101u;

        for (; left != 0; left &= left - 1) {
            if (*used == source->escape_count)
                return false;
            exponents[i * WORD_BYTES + (size_t)__builtin_ctzll(left) / 8] =
                source->escapes[(*used)++];
        }
    }
    return true;
}

/* Sixteen numbers to the target: past the caches, if it is aligned. */
static inline void
half_store(uint8_t *target, bytes16 exponents, bytes16 rests, bool is_streamed)
{
    bytes16 numbers[2];

    bf16_join(exponents, rests, numbers);
    if (is_streamed) {
        bytes16_stream(target, numbers[0]);
        bytes16_stream(target + VECTOR_NUMBERS, numbers[1]);
    } else {
        bytes16_store(target, numbers[0]);
        bytes16_store(target + VECTOR_NUMBERS, numbers[1]);
    }
}

/* What a group is made of and becomes. */
struct group {
    const uint8_t *codes;
    const uint8_t *rests;
    uint8_t *target;
    bool is_streamed;
};

/* One group; *used: how many escapes were. */
ALWAYS_INLINE bool
group_unpack(const struct pairs_source *source, const struct group *group, size_t *used)
{
    bytes16 pairs = bytes16_load(group->codes);
    bytes16 low = pairs & 15, high = pairs >> 4;
    bytes16 low_far = (bytes16)(low == PAIRS_CODE_ESCAPE);
    bytes16 high_far = (bytes16)(high == PAIRS_CODE_ESCAPE);
    uint64_t marks[GROUP_WORDS];
    uint8_t exponents[PAIRS_GROUP];

    low += source->base;
    high += source->base;
    if (__builtin_expect(bytes16_any(low_far | high_far), 0)) {
        marks_of(low_far, high_far, marks);
        bytes16_store(exponents, low);
        bytes16_store(exponents + VECTOR_NUMBERS, high);
        if (!escapes_insert(source, used, exponents, marks))
            return false;
        low = bytes16_load(exponents);
        high = bytes16_load(exponents + VECTOR_NUMBERS);
    }
    half_store(group->target, low, bytes16_load(group->rests), group->is_streamed);
    half_store(group->target + GROUP_BYTES / 2, high, bytes16_load(group->rests + VECTOR_NUMBERS),
        group->is_streamed);
    return true;
}

/* All whole groups. */
ALWAYS_INLINE bool
groups_unpack(const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    struct group group = {
        .codes = source->codes,
        .rests = source->rests,
        .target = target,
        .is_streamed = (uintptr_t)target % VECTOR_NUMBERS == 0,
    };

    for (size_t i = 0; i < whole; i += PAIRS_GROUP) {
        ahead_read(group.rests);
        if (!group_unpack(source, &group, used))
            return false;
        group.codes += PAIRS_GROUP / 2;
        group.rests += PAIRS_GROUP;
        group.target += GROUP_BYTES;
    }
    stream_end();
    return true;
}

static bool
groups_unpack_anywhere(
    const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    return groups_unpack(source, target, whole, used);
}

#ifdef __x86_64__
/* The same, of instructions with three operands. */
__attribute__((target("avx2"))) static bool
groups_unpack_avx2(const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    return groups_unpack(source, target, whole, used);
}
#endif

static bool
groups_unpack_here(const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return groups_unpack_avx2(source, target, whole, used);
#endif
    return groups_unpack_anywhere(source, target, whole, used);
}

bool
pairs_unpack(const struct pairs_source *source, uint8_t *target, size_t count)
{
    size_t whole = count - count % PAIRS_GROUP;
    size_t used = 0;
    uint8_t rests[PAIRS_GROUP] = {0};
    uint8_t numbers[GROUP_BYTES];
    const struct group last = {
        .codes = source->codes + whole / 2, .rests = rests, .target = numbers};

    if (!groups_unpack_here(source, target, whole, &used))
        return false;
    if (whole < count) {
        memcpy(rests, source->rests + whole, count - whole);
        if (!group_unpack(source, &last, &used))
            return false;
        memcpy(target + 2 * whole, numbers, 2 * (count - whole));
    }
    return used == source->escape_count;
}
