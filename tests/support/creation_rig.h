/* SPDX-License-Identifier: Apache-2.0 */
/*
 * creation_rig.h - a simulated world in which no store was made yet, whose file system's functions
 * a test can replace; and what must hold of a creation there, whether it was refused or not.
 */
#ifndef KVT_TESTS_CREATION_RIG_H
#define KVT_TESTS_CREATION_RIG_H

#include "kvtier/kvtier.h"
#include "sim_world.h"
#include "store_internal.h"

struct creation_rig {
    struct sim_world *world;
    struct kvt_env env;
    struct fs_ops fs; /* The world's, some functions replaced. */
    struct store_world reach;
    struct kvt_options options; /* Of a store in /store, with two roots. */
    kvt_store *store;
};

extern const char *const creation_roots[2];

void creation_begin(struct creation_rig *rig, uint64_t seed);

/* creation_end - nothing of the library's is left, nor is the world then. */
void creation_end(struct creation_rig *rig);

enum kvt_status creation_open(struct creation_rig *rig);

/* creation_works_still - it is a store that has what kit_works() put. Ends the rig. */
void creation_works_still(struct creation_rig *rig);

/* creation_left_nothing - there is none, and one of other sizes can be made. */
void creation_left_nothing(struct creation_rig *rig);

#endif /* KVT_TESTS_CREATION_RIG_H */
