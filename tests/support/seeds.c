/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.c - arguments and reports of tests that run by seed.
 */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
number_parse(const char *text, uint64_t *value_out)
{
    char *end = NULL;

    if (text == NULL || *text == '\0')
        return false;
    *value_out = strtoull(text, &end, 0);
    return *end == '\0';
}

bool
seeds_parse(struct seeds *seeds, int argc, char **argv)
{
    uint64_t value;

    seeds->program = argv[0];
    if (number_parse(getenv("KVT_TEST_SEEDS"), &value))
        seeds->count = value;
    if (number_parse(getenv("KVT_TEST_SEED"), &value)) {
        seeds->first = value;
        seeds->count = 1;
    }
    for (int i = 1; i < argc; i += 2) {
        bool is_number = i + 1 < argc && number_parse(argv[i + 1], &value);

        if (is_number && strcmp(argv[i], "--seed") == 0)
            seeds->first = value;
        else if (is_number && strcmp(argv[i], "--seeds") == 0)
            seeds->count = value;
        else if (is_number && strcmp(argv[i], "--ops") == 0 && value <= UINT32_MAX)
            seeds->operation_count = (uint32_t)value;
        else {
            fprintf(stderr, "usage: %s [--seed N] [--seeds N] [--ops N]\n", argv[0]);
            return false;
        }
    }
    return true;
}

void
seeds_report(
    const struct seeds *seeds, const char *configuration, uint64_t seed, const char *failure)
{
    fprintf(stderr, "%s: seed %llu: %s\n  again: %s --seed %llu --seeds 1 --ops %u\n",
        configuration, (unsigned long long)seed, failure, seeds->program, (unsigned long long)seed,
        seeds->operation_count);
}
