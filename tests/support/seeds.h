/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.h - the arguments of tests that run by seed: --seed N --seeds N --ops N.
 *
 * Without them the environment counts: KVT_TEST_SEED=N (that one only), KVT_TEST_SEEDS=N (so many).
 */
#ifndef KVT_TESTS_SEEDS_H
#define KVT_TESTS_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct seeds {
    const char *program;
    uint64_t first;
    uint64_t count;
    uint32_t operation_count; /* In one run. */
};

/* seeds_parse - over the defaults in `seeds`. False, and usage on stderr, for anything unknown. */
bool seeds_parse(struct seeds *seeds, int argc, char **argv);

/* seeds_report - say which seed failed, why, and how to run it again. */
void seeds_report(
    const struct seeds *seeds, const char *configuration, uint64_t seed, const char *failure);

#endif /* KVT_TESTS_SEEDS_H */
