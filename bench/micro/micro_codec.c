/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_codec.c - encoding and decoding parts on one core, beside memcpy of the same buffers (the
 * ceiling) and zstd's level 1 on the bytes as they are.
 *
 * Numbers are gaussian in each of 128 channels, whose scales differ: log-normal, and every 37th one
 * an outlier of 20 times that. What is timed takes turns, so that a slow moment of the machine
 * falls on all; memory is far more than the caches and on huge pages. Rates are of decoded bytes
 * and of the thread's own time, which does not count what the machine does besides.
 *
 * get_decode is decoding where a get does it: the part's stored bytes have just been verified by
 * the same thread (which is not counted), and where they go nobody has been for long.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zstd.h>

#include "codec.h"
#include "env.h"
#include "failure.h"
#include "hash.h"
#include "rng.h"

enum {
    ROUNDS_DEFAULT = 21,
    ROUNDS_MAX = 1000,
    PART_KIB_DEFAULT = 1024,
    TOTAL_MIB_DEFAULT = 64,
    TOTAL_MIB_MAX = 4096,
    CHANNELS = 128,
    OUTLIER_EVERY = 37,
    OUTLIER_SCALE = 20,
    SEED = 20,
};

enum what {
    COPY,
    ENCODE,
    DECODE,
    GET_DECODE,
    ZSTD_ENCODE,
    ZSTD_DECODE,
    WHAT_COUNT,
};

static const char *const what_names[WHAT_COUNT] = {
    "memcpy", "encode", "decode", "get_decode", "zstd1_encode", "zstd1_decode"};

struct bench {
    struct kvt_env env;
    struct codec *codec;
    enum codec_id id;
    uint64_t total_bytes;
    uint64_t part_bytes;
    uint64_t part_count;
    uint64_t target_bytes; /* Room for an encoded part, of either kind. */
    uint32_t round_count;
    uint64_t verified; /* So that it is done. */
    uint8_t *source;
    uint8_t *target;
    uint8_t *back;
    uint64_t *stored;
    enum codec_id *stored_as;
    ZSTD_CCtx *encoder;
    ZSTD_DCtx *decoder;
    uint64_t stored_bytes[WHAT_COUNT];
    double rates[WHAT_COUNT][ROUNDS_MAX];
};

static uint64_t
thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static double
gaussian(struct rng *rng)
{
    double radius = sqrt(-2 * log(((double)(rng_next(rng) >> 11) + 1) * 0x1p-53));

    return radius * cos(6.283185307179586 * (double)(rng_next(rng) >> 11) * 0x1p-53);
}

/* To nearest; subnormal halves become zero, and what is too large the largest. */
static uint16_t
number_make(enum codec_id id, float value)
{
    uint32_t bits;
    uint32_t magnitude;

    memcpy(&bits, &value, sizeof(bits));
    if (id == CODEC_BF16)
        return (uint16_t)((bits + 0x8000) >> 16);
    magnitude = (bits & 0x7FFFFFFF) + 0x1000;
    if (magnitude < 113u << 23)
        magnitude = 112u << 23;
    if (magnitude >= 143u << 23)
        magnitude = (143u << 23) - 1;
    return (uint16_t)((bits >> 16 & 0x8000) | (magnitude - (112u << 23)) >> 13);
}

static void
source_fill(struct bench *bench)
{
    struct rng rng = {.state = SEED};
    double scales[CHANNELS];

    for (uint32_t i = 0; i < CHANNELS; i++)
        scales[i] = exp(0.5 * gaussian(&rng)) * (i % OUTLIER_EVERY == 5 ? OUTLIER_SCALE : 1);
    for (uint64_t i = 0; i < bench->part_count * bench->part_bytes / 2; i++) {
        uint16_t number = number_make(bench->id, (float)(gaussian(&rng) * scales[i % CHANNELS]));

        memcpy(bench->source + 2 * i, &number, sizeof(number));
    }
}

/* --- What is timed ---------------------------------------------------------------------------- */

/* One part; returns how many bytes its encoded form has, 0 for a failure. */
static uint64_t
part_run(struct bench *bench, enum what what, uint64_t i)
{
    const uint8_t *source = bench->source + i * bench->part_bytes;
    uint8_t *target = bench->target + i * bench->target_bytes;
    uint8_t *back = bench->back + i * bench->part_bytes;
    size_t size = bench->part_bytes;
    size_t result = 1;

    switch (what) {
    case COPY:
        memcpy(back, source, size);
        break;
    case ENCODE:
        bench->stored_as[i] =
            codec_encode(bench->codec, bench->id, source, size, target, &bench->stored[i]);
        return bench->stored[i];
    case DECODE:
    case GET_DECODE:
        if (codec_decode(bench->codec, bench->stored_as[i], target, bench->stored[i], back, size) !=
            KVT_OK)
            return 0;
        break;
    case ZSTD_ENCODE:
        result = ZSTD_compressCCtx(bench->encoder, target, bench->target_bytes, source, size, 1);
        bench->stored[i] = result;
        break;
    case ZSTD_DECODE:
        result = ZSTD_decompressDCtx(bench->decoder, back, size, target, bench->stored[i]);
        break;
    case WHAT_COUNT:
        break;
    }
    return ZSTD_isError(result) ? 0 : result;
}

/* All parts once. */
static bool
round_run(struct bench *bench, enum what what, double *rate_out)
{
    uint64_t bytes = bench->part_count * bench->part_bytes;
    bool is_decoding = what == DECODE || what == GET_DECODE || what == ZSTD_DECODE;
    uint64_t passed_ns = 0;

    if (is_decoding)
        memset(bench->back, 0xEE, bytes);
    bench->stored_bytes[what] = 0;
    for (uint64_t i = 0; i < bench->part_count; i++) {
        uint64_t begin_ns, stored;

        if (what == GET_DECODE)
            bench->verified ^=
                hash_payload(bench->target + i * bench->target_bytes, bench->stored[i]).low;
        begin_ns = thread_ns();
        stored = part_run(bench, what, i);
        passed_ns += thread_ns() - begin_ns;
        if (stored == 0)
            return false;
        bench->stored_bytes[what] += stored;
    }
    *rate_out = (double)bytes / (double)passed_ns;
    return !is_decoding || memcmp(bench->back, bench->source, bytes) == 0;
}

static int
double_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static bool
kind_run(struct bench *bench, const char *name)
{
    uint64_t bytes = bench->part_count * bench->part_bytes;
    struct hash128 hash;

    source_fill(bench);
    for (uint32_t round = 0; round < bench->round_count; round++) {
        for (enum what what = COPY; what < WHAT_COUNT; what++) {
            if (!round_run(bench, what, &bench->rates[what][round]))
                return false;
        }
    }
    hash = hash_payload(bench->back, bytes);
    printf("{\"data\": \"%s\", \"part_kib\": %" PRIu64 ", \"rounds\": %" PRIu32
           ", \"ratio\": %.3f, \"zstd1_ratio\": %.3f",
        name, bench->part_bytes >> 10, bench->round_count,
        (double)bytes / (double)bench->stored_bytes[ENCODE],
        (double)bytes / (double)bench->stored_bytes[ZSTD_ENCODE]);
    for (enum what what = COPY; what < WHAT_COUNT; what++) {
        double *rates = bench->rates[what];

        qsort(rates, bench->round_count, sizeof(*rates), double_compare);
        printf(", \"%s_gbs\": %.2f, \"%s_gbs_best\": %.2f", what_names[what],
            rates[bench->round_count / 2], what_names[what], rates[bench->round_count - 1]);
    }
    printf(", \"hash\": \"%016" PRIx64 "\"}\n", hash.high);
    return true;
}

/* --- Running ---------------------------------------------------------------------------------- */

static bool
bench_open(struct bench *bench)
{
    env_host(&bench->env);
    bench->part_count = bench->total_bytes / bench->part_bytes;
    bench->target_bytes = ZSTD_compressBound(bench->part_bytes);
    bench->source = env_map(&bench->env, bench->total_bytes);
    bench->target = env_map(&bench->env, bench->part_count * bench->target_bytes);
    bench->back = env_map(&bench->env, bench->total_bytes);
    bench->stored = calloc(bench->part_count, sizeof(*bench->stored));
    bench->stored_as = calloc(bench->part_count, sizeof(*bench->stored_as));
    bench->encoder = ZSTD_createCCtx();
    bench->decoder = ZSTD_createDCtx();
    return bench->source != NULL && bench->target != NULL && bench->back != NULL &&
           bench->stored != NULL && bench->stored_as != NULL && bench->encoder != NULL &&
           bench->decoder != NULL &&
           codec_open(&bench->env, bench->part_bytes, &bench->codec) == KVT_OK;
}

static void
bench_close(struct bench *bench)
{
    codec_close(bench->codec);
    ZSTD_freeDCtx(bench->decoder);
    ZSTD_freeCCtx(bench->encoder);
    free(bench->stored_as);
    free(bench->stored);
    if (bench->back != NULL)
        env_unmap(&bench->env, bench->back, bench->total_bytes);
    if (bench->target != NULL)
        env_unmap(&bench->env, bench->target, bench->part_count * bench->target_bytes);
    if (bench->source != NULL)
        env_unmap(&bench->env, bench->source, bench->total_bytes);
    free(bench);
}

int
main(int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    uint64_t part_kib = argc > 2 ? strtoull(argv[2], NULL, 10) : PART_KIB_DEFAULT;
    uint64_t total_mib = argc > 3 ? strtoull(argv[3], NULL, 10) : TOTAL_MIB_DEFAULT;
    bool is_fine = false;

    if (bench == NULL || argc > 4 || rounds == 0 || rounds > ROUNDS_MAX || total_mib == 0 ||
        total_mib > TOTAL_MIB_MAX || part_kib == 0 || part_kib > total_mib << 10) {
        fprintf(stderr,
            "usage: micro_codec [ROUNDS [PART_KIB [TOTAL_MIB]]]  (default %d rounds of"
            " parts of %d KiB, %d MiB of them)\n",
            ROUNDS_DEFAULT, PART_KIB_DEFAULT, TOTAL_MIB_DEFAULT);
        free(bench);
        return 2;
    }
    bench->round_count = (uint32_t)rounds;
    bench->part_bytes = part_kib << 10;
    bench->total_bytes = total_mib << 20;
    is_fine = bench_open(bench);
    bench->id = CODEC_BF16;
    is_fine = is_fine && kind_run(bench, "bf16");
    bench->id = CODEC_FP16;
    is_fine = is_fine && kind_run(bench, "fp16");
    if (!is_fine)
        fprintf(stderr, "micro_codec: %s\n", failure_last()->text);
    bench_close(bench);
    return is_fine ? 0 : 1;
}
