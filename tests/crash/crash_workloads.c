/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_workloads.c - the lives that are recorded and cut off everywhere: one function each, and
 * the table of them.
 */
#include "crash_lmdb.h"
#include "crash_rename.h"
#include "crash_run.h"

#define SECOND ORACLE_NAMESPACE_KEYS /* The first key of the second namespace. */

static void
create(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 1, KVT_SYNC);
    run_close(run);
}

static void
put_sync(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 12; i++)
        run_put(run, i, 1, KVT_SYNC);
    run_put(run, 12, 16, KVT_SYNC);
    run_put(run, SECOND, 8, KVT_SYNC);
    run_get(run, 0, 28);
    run_close(run);
}

static void
put_relaxed(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 60; i += 3) {
        run_put(run, i, 3, KVT_RELAXED);
        if (i % 15 == 0)
            run_flush(run);
    }
    run_put(run, 100, 2, KVT_SYNC);
    for (uint32_t i = 0; i < 12; i++)
        run_replace(run, i, 1, KVT_RELAXED);
    run_close(run);
}

static void
replace(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 12, KVT_SYNC);
    for (uint32_t round = 0; round < 3; round++) {
        run_replace(run, round, 6, KVT_SYNC);
        run_replace(run, round + 3, 1, KVT_SYNC);
    }
    run_replace(run, 0, 4, KVT_MEMORY);
    run_flush(run);
    run_replace(run, 0, 2, KVT_SYNC);
    run_abort(run);
    run_open(run, 0);
    run_get(run, 0, 12);
    run_close(run);
}

static void
delete_some(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 20, KVT_SYNC);
    run_delete(run, 0, 8);
    run_put(run, 4, 4, KVT_SYNC);
    for (uint32_t i = 10; i < 16; i++)
        run_delete(run, i, 1);
    run_delete(run, 5, 1);
    run_put(run, 5, 1, KVT_SYNC);
    run_delete(run, 40, 2); /* Never there. */
    /* The copy that a MEMORY block replaced must go with it, whoever is asked to delete. */
    for (uint32_t round = 0; round < 3; round++) {
        run_put(run, 30, 4, KVT_SYNC);
        run_replace(run, 30, 4, KVT_MEMORY);
        run_delete(run, 30, 4);
        run_delete(run, 30, 2);
    }
    run_abort(run);
    run_open(run, 0);
    run_delete(run, 16, 3);
    run_close(run);
}

/* Puts, deletes and puts of the same keys that do not wait for one another. */
static void
overlap(struct run *run)
{
    run_open(run, 0);
    for (uint32_t round = 0; round < 48; round++) {
        if (round == 24) {
            run_abort(run);
            run_open(run, 0);
        }
        run_overlap(run, round % 6 * 3, 3);
        run_delete(run, round % 6 * 3, 1);
    }
    run_close(run);
}

/* HOST is smaller than what is put: blocks move to NVMe and are read back. */
static void
evict(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 160; i += 8) {
        run_put(run, i, 8, i % 32 == 0 ? KVT_SYNC : KVT_MEMORY);
        if (i >= 40)
            run_get(run, i - 40, 4);
    }
    run_flush(run);
    run_get(run, 0, 160);
    run_close(run);
}

/* Several times the tier's size is written and most of it dies: segments are reclaimed, and the
 * blocks that stay are moved. */
static void
recycle(struct run *run)
{
    run_open(run, 0);
    run_put(run, 200, 4, KVT_SYNC);
    for (uint32_t round = 0; round < 26; round++) {
        run_put(run, round, 1, KVT_SYNC); /* Stays. */
        run_replace(run, 100, 16, KVT_SYNC);
        if (round % 4 == 3)
            run_delete(run, 100 + round % 16, 3);
        if (round == 13)
            run_delete(run, 200, 2);
    }
    run_get(run, 0, 26);
    run_close(run);
}

/* Chains of blocks lie among others that die: what has children is written elsewhere when its
 * segment is reclaimed, and is deleted and replaced before and after. */
static void
relocate(struct run *run)
{
    run_open(run, 0);
    for (uint32_t round = 0; round < 24; round++) {
        run->is_chained = true;
        run_replace(run, round % 6 * 4, 4, KVT_SYNC);
        run->is_chained = false;
        run_replace(run, 100, 14, KVT_SYNC);
        if (round % 5 == 4)
            run_delete(run, round % 6 * 4 + 2, 1);
        if (round == 15) {
            run_abort(run);
            run_open(run, 0);
        }
    }
    run_get(run, 0, 24);
    run_close(run);
}

/* More is put than the tier holds. */
static void
small_tier_steps(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 480; i += 16)
        run_put(run, i, 16, KVT_SYNC);
    run_get(run, 0, 480);
    run_delete(run, 460, 8);
}

static void
small_tier(struct run *run)
{
    small_tier_steps(run);
    run_close(run);
}

/* The harness itself: of many blocks that may be missing, and are, one is not among those. */
static void
small_tier_claimed(struct run *run)
{
    small_tier_steps(run);
    run_claim(run, 500);
    run_close(run);
}

static void
reopen(struct run *run)
{
    for (uint32_t life = 0; life < 4; life++) {
        run_open(run, 0);
        run_put(run, life * 8, 8, KVT_SYNC);
        if (life > 0)
            run_delete(run, life * 8 - 4, 2);
        run_close(run);
    }
}

/* Every life ends without a close, so that the log has recoveries that are cut off themselves. */
static void
recover(struct run *run)
{
    for (uint32_t life = 0; life < 5; life++) {
        run_open(run, 0);
        run_get(run, 0, life * 6);
        run_put(run, life * 6, 6, KVT_SYNC);
        run_replace(run, life * 3, 2, KVT_SYNC);
        run_put(run, 100 + life * 4, 4, KVT_RELAXED);
        run_abort(run);
    }
    run_open(run, 0);
    run_get(run, 0, 30);
    run_close(run);
}

static void
rebuild_delete(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 16, KVT_SYNC);
    run_delete(run, 0, 6);
    run_abort(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_get(run, 0, 16);
    run_put(run, 4, 4, KVT_SYNC);
    run_delete(run, 4, 1);
    run_close(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_delete(run, 10, 2);
    run_close(run);
}

static void
rebuild_replace(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 12, KVT_SYNC);
    run_replace(run, 2, 6, KVT_SYNC);
    run_close(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_get(run, 0, 12);
    run_replace(run, 4, 6, KVT_SYNC);
    run_abort(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_get(run, 0, 12);
    run_close(run);
}

static void
rebuild_clear(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 10, KVT_SYNC);
    run_put(run, SECOND, 10, KVT_SYNC);
    run_clear(run, 0);
    run_put(run, 0, 4, KVT_SYNC);
    run_abort(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_get(run, 0, 10);
    run_get(run, SECOND, 10);
    run_clear(run, 1);
    run_put(run, SECOND + 5, 4, KVT_SYNC);
    run_close(run);
    run_open(run, KVT_OPEN_REBUILD);
    run_get(run, SECOND, 10);
    run_close(run);
}

static void
clear(struct run *run)
{
    run_open(run, 0);
    for (uint32_t round = 0; round < 4; round++) {
        run_put(run, 0, 8, KVT_SYNC);
        run_put(run, SECOND + round * 4, 4, KVT_SYNC);
        run_put(run, 20, 4, KVT_RELAXED);
        run_clear(run, 0);
    }
    run_put(run, 0, 3, KVT_SYNC);
    run_clear(run, 1);
    run_close(run);
    run_open(run, 0);
    run_put(run, 3, 3, KVT_SYNC);
    run_close(run);
}

/* Many small blocks outgrow the index's first size. */
static void
map_growth(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 2560; i += 128) {
        run_put(run, i, 128, KVT_SYNC);
        run_put(run, SECOND + i, 128, KVT_SYNC);
    }
    run_delete(run, 100, 100);
    run_get(run, 0, 50);
    run_close(run);
}

static void
two_roots(struct run *run)
{
    run_open(run, 0);
    for (uint32_t i = 0; i < 96; i += 8)
        run_put(run, i, 8, KVT_SYNC);
    run_replace(run, 10, 20, KVT_SYNC);
    run_delete(run, 40, 10);
    run_abort(run);
    run_open(run, 0);
    run_get(run, 0, 96);
    run_put(run, 40, 10, KVT_SYNC);
    run_close(run);
}

/* A seeded random life over a few keys, with everything that a caller can do. */
static void
mixed(struct run *run)
{
    run_open(run, 0);
    for (uint32_t step = 0; step < 150; step++) {
        uint32_t space = rng_below(&run->rng, 3) == 0 ? SECOND : 0;
        uint32_t first = space + rng_below(&run->rng, 50);
        uint32_t count = 1 + rng_below(&run->rng, 6);
        enum kvt_durability durability = rng_below(&run->rng, 2) == 0 ? KVT_SYNC : KVT_RELAXED;
        uint32_t action = rng_below(&run->rng, 100);

        if (action < 35)
            run_put(run, first, count, durability);
        else if (action < 60)
            run_replace(run, first, count, durability);
        else if (action < 75)
            run_delete(run, first, count);
        else if (action < 84)
            run_get(run, first, count);
        else if (action < 92 || step % 4 != 0)
            run_flush(run);
        else if (action < 95)
            run_clear(run, space / ORACLE_NAMESPACE_KEYS);
        else
            run_abort(run);
        if (run->store == NULL)
            run_open(run, action == 99 ? KVT_OPEN_REBUILD : 0);
    }
    run_close(run);
}

/* The same keys are asked for while the disk is full, and again in the next life: what was refused
 * does not come back, and takes nothing of what came later with it. */
static void
disk_full_ask(struct run *run, uint32_t round)
{
    run_put(run, 30 + round * 4, 4, KVT_SYNC);
    run_replace(run, round * 2, 2, KVT_SYNC);
    run_put(run, 80 + round * 3, 3, KVT_RELAXED);
    run_delete(run, 12 + round, 1);
    if (round % 3 == 2)
        run_clear(run, 1);
}

/* The disk is full for a while: for all, for some calls, for data or the index alone. What is
 * acknowledged meanwhile is as safe as ever, and what was refused was not half done. */
static void
disk_full(struct run *run)
{
    static const char *const parts[] = {RUN_DATA_FILES, "", "meta/", RUN_DATA_FILES};

    run_open(run, 0);
    run_put(run, 0, 24, KVT_SYNC);
    for (uint32_t round = 0; round < 8; round++) {
        bool is_all = rng_below(&run->rng, 3) == 0;
        uint64_t skip = is_all ? 0 : rng_below(&run->rng, 3);
        uint64_t count = is_all ? UINT64_MAX : 1 + rng_below(&run->rng, 3);

        run_disk_full(run, parts[round % 4], skip, count);
        disk_full_ask(run, round);
        run_disk_room(run, 110 + round);
        run_put(run, SECOND + round, 1, KVT_SYNC);
        run_abort(run);
        run_open(run, 0);
        run_get(run, 0, 120);
        disk_full_ask(run, round);
        run_put(run, 12 + round, 1, KVT_SYNC);
    }
    run_close(run);
}

/* Blocks are born in HBM and go down, asked for or for want of room; others take their place. */
static void
hbm(struct run *run)
{
    run_open(run, 0);
    run_put(run, 0, 8, KVT_SYNC);
    for (uint32_t i = 100; i < 228; i += 16)
        run_put(run, i, 16, KVT_MEMORY); /* More than HBM holds. */
    run_put(run, 8, 4, KVT_RELAXED);
    run_demote(run, 200, 12, KVT_TIER_NVME);
    run_replace(run, 0, 3, KVT_SYNC);
    run_put(run, 200, 4, KVT_SYNC); /* Of MEMORY, on NVMe or still in HBM: durable now. */
    run_delete(run, 4, 2);
    run_demote(run, 0, 8, KVT_TIER_NVME);
    run_prefetch(run, 0, 8, KVT_TIER_HBM);
    run_replace(run, 6, 2, KVT_SYNC);
    run_delete(run, 208, 3);
    run_abort(run);
    run_open(run, 0);
    run_get(run, 0, 12);
    run_prefetch(run, 0, 12, KVT_TIER_HBM);
    run_replace(run, 1, 3, KVT_SYNC);
    run_delete(run, 7, 1);
    run_close(run);
}

#define MIB (UINT64_C(1) << 20)

const struct workload workload_table[] = {
    {.name = "create", .steps = create},
    {.name = "put_sync", .steps = put_sync},
    {.name = "put_relaxed", .steps = put_relaxed},
    {.name = "replace", .steps = replace},
    {.name = "delete", .steps = delete_some},
    {.name = "overlap", .steps = overlap},
    {.name = "evict", .steps = evict, .host_bytes = 2 * MIB},
    {.name = "hbm",
        .steps = hbm,
        .host_bytes = 2 * MIB,
        .hbm_bytes = 2 * MIB,
        .block_low = 20000,
        .block_high = 40000},
    {.name = "recycle",
        .steps = recycle,
        .nvme_bytes = 8 * MIB,
        .block_low = 20000,
        .block_high = 60000,
        .may_leave = true},
    {.name = "relocate",
        .steps = relocate,
        .nvme_bytes = 9 * MIB,
        .block_low = 20000,
        .block_high = 60000},
    {.name = "small_tier",
        .steps = small_tier,
        .nvme_bytes = 8 * MIB,
        .block_low = 16384,
        .block_high = 65536,
        .may_leave = true},
    {.name = "small_tier_claimed",
        .steps = small_tier_claimed,
        .nvme_bytes = 8 * MIB,
        .block_low = 16384,
        .block_high = 65536,
        .may_leave = true,
        .expects = "key 500 has version 0"},
    {.name = "reopen", .steps = reopen},
    {.name = "recover", .steps = recover},
    {.name = "rebuild_delete", .steps = rebuild_delete},
    {.name = "rebuild_replace", .steps = rebuild_replace},
    {.name = "rebuild_clear", .steps = rebuild_clear},
    {.name = "clear", .steps = clear},
    {.name = "map_growth",
        .steps = map_growth,
        .nvme_bytes = 48 * MIB,
        .block_low = 500,
        .block_high = 4096},
    {.name = "two_roots", .steps = two_roots, .root_count = 2},
    {.name = "mixed", .steps = mixed, .nvme_bytes = 12 * MIB},
    /* LMDB, whose meta page was refused, writes the old one's number beside new trees: where only
     * that write lasts the index is no state of it. */
    {.name = "disk_full", .steps = disk_full, .rebuilds_for = "meta page is of transaction"},
    /* The harness itself: LMDB keeps its promise, and must be seen to break it without syncs. */
    {.name = "lmdb", .steps = lmdb_steps, .verify = lmdb_verify},
    {.name = "lmdb_nosync",
        .steps = lmdb_steps_unsynced,
        .verify = lmdb_verify,
        .expects = "LMDB: "},
    {.name = "rename", .steps = rename_steps, .verify = rename_verify},
    {.name = "rename_no_file_sync",
        .steps = rename_steps_without_file_sync,
        .verify = rename_verify,
        .expects = "the file is torn"},
    {.name = "rename_no_dir_sync",
        .steps = rename_steps_without_dir_sync,
        .verify = rename_verify,
        .expects = "version 0 is not allowed"},
    {.name = NULL},
};
