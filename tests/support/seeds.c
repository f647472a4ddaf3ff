/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.c - arguments and reports of tests that run by seed.
 */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool
seeds_parse(struct seeds *seeds, int argc, char **argv)
{
    seeds->program = argv[0];
    for (int i = 1; i < argc; i += 2) {
        char *end = NULL;
        uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], &end, 0) : 0;
        bool is_number = end != NULL && *end == '\0' && end != argv[i + 1];

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
