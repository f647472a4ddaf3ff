/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage_plan.h - one piece of damage to a store that was written out, and what it may cost.
 */
#ifndef KVT_TESTS_DAMAGE_PLAN_H
#define KVT_TESTS_DAMAGE_PLAN_H

#include "damage_fixture.h"
#include "rng.h"

/* Which structure is hit. */
enum damage_target {
    TARGET_STORE,
    TARGET_NAMES,
    TARGET_INDEX,
    TARGET_HEADER,  /* Of a write batch. */
    TARGET_BLOCK,   /* The extent of a live block. */
    TARGET_TRAILER, /* The checksums of a block's parts. */
    TARGET_SWAP,    /* Pages of the data file change places, or stand twice. */
    TARGET_CUT,     /* The data file is shorter. */
    TARGET_MISSING, /* A file is gone, or all of meta/. */
    TARGET_LITTER,  /* LOCK has bytes, or files of a broken rebuild lie there. */
    TARGET_COUNT,
};

/* All that was done to one store. */
struct damage {
    bool store_hurt[2];
    bool names_hurt[2];
    bool index_hurt;
    bool header_hurt;
    bool data_short;  /* The data file, or its end, is gone. */
    bool data_gone;   /* All of it. */
    bool header_gone; /* Its first bytes no longer say that it is one. */
    uint8_t page_hurt[DAMAGE_DATA_PAGES];
    uint32_t targets; /* One bit for each target. */
    char text[400];   /* For people. */
};

const char *damage_target_name(enum damage_target target);

/* damage_do - one more piece, below `path`. False: it happened to change nothing. */
bool damage_do(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    enum damage_target target, struct rng *rng);

/* damage_may_refuse - no copy of STORE, or none of NAMES, is whole. */
bool damage_may_refuse(const struct damage *damage);

/* damage_must_hit - the block of a live key has all that it needs. damage_may_return - a block that
 * was deleted, cleared or replaced may be seen: the index and headers are damaged. */
bool damage_must_hit(
    const struct damage *damage, const struct damage_fixture *fixture, uint64_t key);
bool damage_may_return(
    const struct damage *damage, const struct damage_fixture *fixture, uint64_t key);

#endif /* KVT_TESTS_DAMAGE_PLAN_H */
