/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_engram.c - addressing rows of Engram tables on one core: plans of the V4.1 profile, as they
 * come and each row once, and dequantisation of rows.
 *
 * Tokens are classes, uniform or by Zipf's law with exponent 1 (ranks are shuffled over classes).
 * Rates are of the thread's own time; the median of the rounds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "failure.h"
#include "kvtier/kvtier.h"
#include "rng.h"

enum {
    ROUNDS_DEFAULT = 15,
    ROUNDS_MAX = 1000,
    TOKENS_A_ROUND = 131072,
    ROWS_A_ROUND = 65536,
    SEED = 41,
};

struct bench {
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    uint32_t round_count;
    uint32_t *tokens;
    double *sums; /* Of Zipf's law: sums[i] is the chance of ranks 0..i, unscaled. */
    uint32_t *classes;
    double rates[ROUNDS_MAX];
};

static uint64_t
thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int
double_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static double
rate_median(struct bench *bench)
{
    qsort(bench->rates, bench->round_count, sizeof(bench->rates[0]), double_compare);
    return bench->rates[bench->round_count / 2];
}

/* --- Tokens ----------------------------------------------------------------------------------- */

static bool
zipf_prepare(struct bench *bench)
{
    uint32_t count = bench->profile.class_count;
    struct rng rng = {.state = SEED};

    bench->sums = calloc(count, sizeof(*bench->sums));
    bench->classes = calloc(count, sizeof(*bench->classes));
    if (bench->sums == NULL || bench->classes == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)(rng_next(&rng) % (i + 1));

        bench->sums[i] = (i == 0 ? 0 : bench->sums[i - 1]) + 1.0 / (i + 1);
        bench->classes[i] = bench->classes[other];
        bench->classes[other] = i;
    }
    return true;
}

static uint32_t
zipf_class(const struct bench *bench, struct rng *rng)
{
    uint32_t low = 0, high = bench->profile.class_count - 1;
    double at = (double)(rng_next(rng) >> 11) * 0x1p-53 * bench->sums[high];

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (bench->sums[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return bench->classes[low];
}

static void
tokens_make(struct bench *bench, bool is_zipf)
{
    struct rng rng = {.state = SEED};

    for (uint32_t i = 0; i < TOKENS_A_ROUND; i++)
        bench->tokens[i] = is_zipf ? zipf_class(bench, &rng)
                                   : (uint32_t)(rng_next(&rng) % bench->profile.class_count);
}

/* --- What is timed ---------------------------------------------------------------------------- */

/* All tokens once, `batch` at a time: sequences of 4 with 3 tokens of history each would be decode;
 * here one sequence a plan. *unique_out: rows that are left of those that are wanted. */
static bool
plans_run(struct bench *bench, uint32_t batch, uint32_t flags, double *unique_out)
{
    kvt_engram_plan *plan = NULL;
    uint64_t rows_wanted = 0, rows_left = 0;
    bool is_fine = kvt_engram_plan_create(bench->hasher, batch, &plan) == KVT_OK;

    for (uint32_t round = 0; is_fine && round < bench->round_count; round++) {
        uint64_t begin = thread_ns();

        for (uint32_t at = 0; is_fine && at + batch <= TOKENS_A_ROUND; at += batch) {
            const struct kvt_engram_sequence sequence = {
                .tokens = bench->tokens + at, .token_count = batch};
            struct kvt_engram_rows rows;

            is_fine = kvt_engram_plan_fill(plan, &sequence, 1, flags) == KVT_OK;
            for (uint32_t i = 0; is_fine && i < bench->profile.layer_count; i++) {
                is_fine = kvt_engram_plan_rows(plan, i, &rows) == KVT_OK;
                rows_wanted += rows.slot_count;
                rows_left += rows.row_count;
            }
        }
        bench->rates[round] =
            (double)(TOKENS_A_ROUND / batch * batch) * 1e3 / (double)(thread_ns() - begin);
    }
    kvt_engram_plan_destroy(plan);
    *unique_out = rows_wanted == 0 ? 0 : (double)rows_left / (double)rows_wanted;
    return is_fine;
}

static bool
addressing_run(struct bench *bench, bool is_zipf)
{
    static const uint32_t batches[] = {1, 16, 64, 256, 1024, 4096, 16384, 131072};

    tokens_make(bench, is_zipf);
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        double left = 0, plain = 0;

        if (!plans_run(bench, batches[i], 0, &left))
            return false;
        plain = rate_median(bench);
        if (!plans_run(bench, batches[i], KVT_ENGRAM_UNIQUE, &left))
            return false;
        printf("{\"tokens\": \"%s\", \"batch\": %" PRIu32 ", \"rows_a_token\": 48"
               ", \"plain_mtokens_s\": %.2f, \"unique_mtokens_s\": %.2f, \"rows_left\": %.3f}\n",
            is_zipf ? "zipf" : "uniform", batches[i], plain, rate_median(bench), left);
    }
    return true;
}

static bool
values_run(struct bench *bench)
{
    uint32_t row_bytes = bench->profile.row_bytes;
    uint8_t *rows = malloc((size_t)ROWS_A_ROUND * row_bytes);
    uint16_t *values = malloc((size_t)ROWS_A_ROUND * bench->profile.value_count * sizeof(*values));
    struct rng rng = {.state = SEED};
    bool is_fine = rows != NULL && values != NULL;

    for (size_t i = 0; is_fine && i < (size_t)ROWS_A_ROUND * row_bytes; i++)
        rows[i] = (uint8_t)(i % row_bytes < 256 ? rng_next(&rng) : 110 + rng_next(&rng) % 16);
    for (uint32_t round = 0; is_fine && round < bench->round_count; round++) {
        uint64_t begin = thread_ns();

        is_fine = kvt_engram_dequantise(&bench->profile, rows, ROWS_A_ROUND, values) == KVT_OK;
        bench->rates[round] = ROWS_A_ROUND * 1e3 / (double)(thread_ns() - begin);
    }
    if (is_fine)
        printf("{\"dequantise_mrows_s\": %.2f}\n", rate_median(bench));
    free(values);
    free(rows);
    return is_fine;
}

int
main(int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    bool is_fine = false;

    if (bench == NULL || argc > 2 || rounds == 0 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: micro_engram [ROUNDS]  (default %d)\n", ROUNDS_DEFAULT);
        free(bench);
        return 2;
    }
    bench->round_count = (uint32_t)rounds;
    bench->tokens = calloc(TOKENS_A_ROUND, sizeof(*bench->tokens));
    is_fine = bench->tokens != NULL &&
              kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &bench->profile) == KVT_OK &&
              kvt_engram_hasher_open(&bench->profile, NULL, 0, &bench->hasher) == KVT_OK &&
              zipf_prepare(bench) && addressing_run(bench, false) && addressing_run(bench, true) &&
              values_run(bench);
    if (!is_fine)
        fprintf(stderr, "micro_engram: %s\n", failure_last()->text);
    kvt_engram_hasher_close(bench->hasher);
    free(bench->classes);
    free(bench->sums);
    free(bench->tokens);
    free(bench);
    return is_fine ? 0 : 1;
}
