/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_pairs.c - packs tops by two, unpacks them, and exponents that were packed before.
 *
 * Vectors with an escape take a slow path, one escape at a time. The last group, when it is not
 * whole, travels through buffers of its own.
 */
#include "codec_pairs.h"

#include "bytes.h"
#include "codec_vector.h"

enum {
    GROUP_BYTES = 2 * PAIRS_GROUP,
    TOPS = PAIRS_TOP_MAX + 1,
    WINDOW = PAIRS_CODE_ESCAPE, /* Tops in a window. */
    SAMPLE_RUNS = 32,
    SAMPLE_NUMBERS = 32, /* In a run: a cache line. */
    SAMPLE_MIN = SAMPLE_RUNS * SAMPLE_NUMBERS,
    WORD_BYTES = 8,
    VECTOR_WORDS = PAIRS_NUMBERS / WORD_BYTES, /* Of the 32 bytes that a vector of codes becomes. */
};

/* Into each function for a processor of its own. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static_assert(PAIRS_NUMBERS == 2 * VECTOR_NUMBERS, "a vector of codes becomes two");
static_assert(PAIRS_GROUP == 8 * VECTOR_NUMBERS, "the signs of a group are one vector");

/* --- The window ------------------------------------------------------------------------------- */

static void
sample_add(uint32_t counts[TOPS], const uint8_t *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        counts[source[2 * i + 1] & PAIRS_TOP_MAX]++;
}

bool
pairs_window(const uint8_t *source, size_t count, uint8_t *base_out)
{
    uint32_t counts[TOPS] = {0};
    size_t sampled = count < SAMPLE_MIN ? count : SAMPLE_MIN;
    size_t stride = count / SAMPLE_RUNS;
    uint32_t inside = 0, most = 0;
    uint8_t base = 0;

    if (count < SAMPLE_MIN)
        sample_add(counts, source, count);
    /* Each run begins elsewhere in a row of channels, whatever power of two that row has. */
    for (size_t i = 0; count >= SAMPLE_MIN && i < SAMPLE_RUNS; i++) {
        size_t at = i * stride + i * SAMPLE_NUMBERS % (stride - SAMPLE_NUMBERS + 1);

        sample_add(counts, source + 2 * at, SAMPLE_NUMBERS);
    }
    for (uint32_t i = 0; i < TOPS; i++) {
        inside += counts[i];
        if (i >= WINDOW)
            inside -= counts[i - WINDOW];
        if (i >= WINDOW - 1 && inside > most) {
            most = inside;
            base = (uint8_t)(i - (WINDOW - 1));
        }
    }
    /* The lowest of the best windows ends with the highest top that the sample saw. One higher
     * is rarely missing in all, and what is lost below is rarer still. */
    *base_out = (uint8_t)(base + (base < PAIRS_TOP_BASE_MAX));
    return most >= sampled - sampled / 16;
}

/* --- Packing ---------------------------------------------------------------------------------- */

/* Which of 32 bytes are set: eight in a word, the lowest bit of each. */
static inline void
marks_of(bytes16 low, bytes16 high, uint64_t words[VECTOR_WORDS])
{
    memcpy(words, &low, sizeof(low));
    memcpy(words + VECTOR_WORDS / 2, &high, sizeof(high));
}

/* Append the tops that are marked; returns how many escapes there are now. */
static size_t
escapes_append(
    uint8_t *escapes, size_t count, const uint8_t *tops, const uint64_t marks[VECTOR_WORDS])
{
    for (size_t i = 0; i < VECTOR_WORDS; i++) {
        uint64_t left = marks[i] & 0x0101010101010101u;

        for (; left != 0; left &= left - 1)
            escapes[count++] = tops[i * WORD_BYTES + (size_t)__builtin_ctzll(left) / 8];
    }
    return count;
}

/* The codes of 32 tops; returns how many escapes there are now. */
static inline size_t
codes_write(const struct pairs_target *target, uint8_t *codes, bytes16 low, bytes16 high,
    size_t escape_count)
{
    /* What lies below the window wraps around and is far, too. */
    bytes16 low_code = low - target->base, high_code = high - target->base;
    bytes16 low_far = (bytes16)(low_code >= PAIRS_CODE_ESCAPE);
    bytes16 high_far = (bytes16)(high_code >= PAIRS_CODE_ESCAPE);
    uint64_t marks[VECTOR_WORDS];
    uint8_t tops[PAIRS_NUMBERS];

    bytes16_store(codes, ((low_code | low_far) & 15) | (high_code | high_far) << 4);
    if (__builtin_expect(bytes16_any(low_far | high_far), 0)) {
        marks_of(low_far, high_far, marks);
        bytes16_store(tops, low);
        bytes16_store(tops + VECTOR_NUMBERS, high);
        escape_count = escapes_append(target->escapes, escape_count, tops, marks);
    }
    return escape_count;
}

/* One group, to where the planes of `at` begin; returns how many escapes there are now. */
static inline size_t
group_pack(const struct pairs_target *at, const uint8_t *source, size_t escape_count)
{
    bytes16 signs = {0};

    for (size_t i = 0; i < PAIRS_GROUP; i += PAIRS_NUMBERS) {
        bytes16 lows[2], highs[2];

        ahead_read(source + 2 * i);
        ahead_write(at->lows + i);
        for (size_t half = 0; half < 2; half++) {
            size_t first = i + half * VECTOR_NUMBERS;

            bytes16_unweave(source + 2 * first, &lows[half], &highs[half]);
            bytes16_store(at->lows + first, lows[half]);
            signs = (signs + signs) | highs[half] >> 7;
        }
        escape_count = codes_write(at, at->codes + i / 2, highs[0] & PAIRS_TOP_MAX,
            highs[1] & PAIRS_TOP_MAX, escape_count);
    }
    bytes16_store(at->signs, signs);
    return escape_count;
}

/* The last `count` numbers, fewer than a group: what it lacks are numbers of the top `base`. */
static size_t
tail_pack(const struct pairs_target *at, const uint8_t *source, size_t count, size_t escape_count)
{
    uint8_t numbers[GROUP_BYTES];
    uint8_t lows[PAIRS_GROUP];
    struct pairs_target group = *at;

    group.lows = lows;
    for (size_t i = count; i < PAIRS_GROUP; i++)
        put_u16(numbers + 2 * i, (uint16_t)(at->base << 8));
    memcpy(numbers, source, 2 * count);
    escape_count = group_pack(&group, numbers, escape_count);
    memcpy(at->lows, lows, count);
    return escape_count;
}

bool
pairs_pack(const struct pairs_target *target, const uint8_t *source, size_t count,
    size_t *escape_count_out)
{
    size_t escapes_max = pairs_escapes_max(count);
    size_t left = count;
    size_t escape_count = 0;
    struct pairs_target at = *target;

    for (; left >= PAIRS_GROUP && escape_count <= escapes_max; left -= PAIRS_GROUP) {
        escape_count = group_pack(&at, source, escape_count);
        source += GROUP_BYTES;
        at.codes += PAIRS_GROUP / 2;
        at.lows += PAIRS_GROUP;
        at.signs += PAIRS_GROUP / 8;
    }
    if (left > 0 && escape_count <= escapes_max)
        escape_count = tail_pack(&at, source, left, escape_count);
    *escape_count_out = escape_count;
    return escape_count <= escapes_max;
}

/* --- Unpacking -------------------------------------------------------------------------------- */

/* Put the next escapes where they are marked; false: there are not as many. */
static bool
escapes_insert(const struct pairs_source *source, size_t *used, uint8_t *values,
    const uint64_t marks[VECTOR_WORDS])
{
    for (size_t i = 0; i < VECTOR_WORDS; i++) {
        uint64_t left = marks[i] & 0x0101010101010101u;

        for (; left != 0; left &= left - 1) {
            if (*used == source->escape_count)
                return false;
            values[i * WORD_BYTES + (size_t)__builtin_ctzll(left) / 8] = source->escapes[(*used)++];
        }
    }
    return true;
}

/* What 32 codes stand for; *used: how many escapes were. */
ALWAYS_INLINE bool
codes_read(
    const struct pairs_source *source, const uint8_t *codes, bytes16 values_out[2], size_t *used)
{
    bytes16 pairs = bytes16_load(codes);
    bytes16 low = pairs & 15, high = pairs >> 4;
    bytes16 low_far = (bytes16)(low == PAIRS_CODE_ESCAPE);
    bytes16 high_far = (bytes16)(high == PAIRS_CODE_ESCAPE);
    uint64_t marks[VECTOR_WORDS];
    uint8_t values[PAIRS_NUMBERS];

    values_out[0] = low + source->base;
    values_out[1] = high + source->base;
    if (__builtin_expect(bytes16_any(low_far | high_far), 0)) {
        marks_of(low_far, high_far, marks);
        bytes16_store(values, values_out[0]);
        bytes16_store(values + VECTOR_NUMBERS, values_out[1]);
        if (!escapes_insert(source, used, values, marks))
            return false;
        values_out[0] = bytes16_load(values);
        values_out[1] = bytes16_load(values + VECTOR_NUMBERS);
    }
    return true;
}

/* What codes stand for, and how numbers are stored. */
struct manner {
    bool is_tops;
    bool is_streamed; /* Past the caches: the target is aligned, and nobody reads it soon. */
};

ALWAYS_INLINE void
numbers_store(uint8_t *target, const bytes16 numbers[2], struct manner manner)
{
    if (manner.is_streamed) {
        bytes16_stream(target, numbers[0]);
        bytes16_stream(target + VECTOR_NUMBERS, numbers[1]);
    } else {
        bytes16_store(target, numbers[0]);
        bytes16_store(target + VECTOR_NUMBERS, numbers[1]);
    }
}

/* One group, from where the planes of `at` begin. */
ALWAYS_INLINE bool
group_unpack(const struct pairs_source *at, uint8_t *target, struct manner manner, size_t *used)
{
    bytes16 signs = manner.is_tops ? bytes16_load(at->signs) : (bytes16){0};

    for (size_t i = 0; i < PAIRS_GROUP; i += PAIRS_NUMBERS) {
        bytes16 values[2], numbers[2];

        ahead_read(at->rests + i);
        if (!codes_read(at, at->codes + i / 2, values, used))
            return false;
        for (size_t half = 0; half < 2; half++) {
            size_t first = i + half * VECTOR_NUMBERS;
            bytes16 rests = bytes16_load(at->rests + first);

            if (manner.is_tops)
                bytes16_weave(rests, values[half] | (signs & 0x80), numbers);
            else
                bf16_join(values[half], rests, numbers);
            signs += signs;
            numbers_store(target + 2 * first, numbers, manner);
        }
    }
    return true;
}

/* All whole groups. */
ALWAYS_INLINE bool
groups_unpack(
    const struct pairs_source *source, uint8_t *target, size_t whole, bool is_tops, size_t *used)
{
    struct manner manner = {is_tops, (uintptr_t)target % VECTOR_NUMBERS == 0};
    struct pairs_source at = *source;

    for (size_t i = 0; i < whole; i += PAIRS_GROUP) {
        if (!group_unpack(&at, target + 2 * i, manner, used))
            return false;
        at.codes += PAIRS_GROUP / 2;
        at.rests += PAIRS_GROUP;
        if (is_tops)
            at.signs += PAIRS_GROUP / 8;
    }
    stream_end();
    return true;
}

ALWAYS_INLINE bool
groups_unpack_both(const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    if (source->signs != NULL)
        return groups_unpack(source, target, whole, true, used);
    return groups_unpack(source, target, whole, false, used);
}

static bool
groups_unpack_anywhere(
    const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    return groups_unpack_both(source, target, whole, used);
}

#ifdef __x86_64__
/* The same, of instructions with three operands. */
__attribute__((target("avx2"))) static bool
groups_unpack_avx2(const struct pairs_source *source, uint8_t *target, size_t whole, size_t *used)
{
    return groups_unpack_both(source, target, whole, used);
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

/* The last group, of which `whole` numbers come first; what it has besides must be nothing. */
static bool
tail_unpack(
    const struct pairs_source *source, uint8_t *target, size_t whole, size_t count, size_t *used)
{
    struct manner manner = {.is_tops = source->signs != NULL};
    size_t left = count - whole;
    uint8_t codes[PAIRS_GROUP / 2] = {0}, rests[PAIRS_GROUP] = {0};
    uint8_t numbers[GROUP_BYTES];
    struct pairs_source group = *source;

    memcpy(codes, source->codes + whole / 2, pairs_bytes(left));
    memcpy(rests, source->rests + whole, left);
    group.codes = codes;
    group.rests = rests;
    if (manner.is_tops)
        group.signs += whole / 8;
    if (!group_unpack(&group, numbers, manner, used))
        return false;
    memcpy(target + 2 * whole, numbers, 2 * left);
    for (size_t i = left; i < PAIRS_GROUP; i++) {
        if (get_u16(numbers + 2 * i) != source->base << (manner.is_tops ? 8 : 7))
            return false;
    }
    return true;
}

static bool
escapes_are_tops(const struct pairs_source *source)
{
    uint8_t any = 0;

    for (size_t i = 0; i < source->escape_count; i++)
        any |= source->escapes[i];
    return any <= PAIRS_TOP_MAX;
}

bool
pairs_unpack(const struct pairs_source *source, uint8_t *target, size_t count)
{
    size_t whole = count - count % PAIRS_GROUP;
    size_t used = 0;

    if (source->signs != NULL && !escapes_are_tops(source))
        return false;
    if (!groups_unpack_here(source, target, whole, &used) ||
        (whole < count && !tail_unpack(source, target, whole, count, &used)))
        return false;
    return used == source->escape_count;
}
