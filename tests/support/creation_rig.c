/* SPDX-License-Identifier: Apache-2.0 */
/*
 * creation_rig.c - what creation_rig.h promises, in the simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "creation_rig.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

const char *const creation_roots[2] = {"/first", "/second"};

void
creation_begin(struct creation_rig *rig, uint64_t seed)
{
    const struct sim_options world = {.seed = seed, .directories_sync_late = true};

    memset(rig, 0, sizeof(*rig));
    rig->world = sim_world_create(&world);
    rig->env = *sim_env(rig->world);
    rig->fs = *rig->env.fs;
    rig->env.fs = &rig->fs;
    rig->reach = (struct store_world){
        .env = &rig->env, .index_ops = &sim_index_ops, .index_context = rig->world};
    rig->options = kit_options();
    rig->options.nvme_capacity_bytes = 32 * MIB;
    rig->options.roots = creation_roots;
    rig->options.root_count = 2;
}

void
creation_end(struct creation_rig *rig)
{
    char leaks[200];

    if (sim_leaks(rig->world, leaks, sizeof(leaks)) != 0)
        fail_msg("left behind: %s", leaks);
    sim_world_destroy(rig->world);
}

enum kvt_status
creation_open(struct creation_rig *rig)
{
    return store_open_in(&rig->reach, "/store", &rig->options, &rig->store);
}

void
creation_works_still(struct creation_rig *rig)
{
    uint64_t version = 0;
    kvt_namespace ns;

    rig->options.flags = KVT_OPEN_EXISTING;
    assert_int_equal(creation_open(rig), KVT_OK);
    assert_int_equal(kvt_namespace_open(rig->store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(rig->store, ns, 1, &version), KVT_OK);
    assert_int_equal(kvt_close(rig->store), KVT_OK);
    creation_end(rig);
}

void
creation_left_nothing(struct creation_rig *rig)
{
    rig->options.flags = KVT_OPEN_EXISTING;
    assert_int_equal(creation_open(rig), KVT_MISS);
    rig->options.flags = 0;
    rig->options.nvme_capacity_bytes = 40 * MIB;
    rig->options.segment_bytes = 2 * MIB;
    rig->options.block_bytes_max /= 2;
    rig->options.root_count = 1;
    assert_int_equal(creation_open(rig), KVT_OK);
    assert_int_equal(rig->store->options.nvme_capacity_bytes, 40 * MIB);
    kit_works(rig->store);
}
