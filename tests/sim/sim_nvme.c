/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_nvme.c - the NVME tier in the simulated world: what it answered as durable survives power
 * cuts and is found by the rebuild scan, byte for byte; what it never answered may be there, whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "nvme_tier.h"
#include "rng.h"
#include "sim_world.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 60,
    LIVES = 4,
    BATCHES = 24, /* In a life, at most. */
    BLOCKS = 6,
    LENGTH_MAX = 40000,
    SEGMENTS = 6,
    SEGMENT_PAGES = 256,
};

/* What was answered KVT_OK, over all lives. */
struct promised {
    struct extent extent;
    uint64_t sequence;
    uint32_t length;
    struct hash128 checksum;
    bool is_found;
};

struct life {
    struct nvme_tier *nvme;
    struct fs_dir *dir;
    struct inbox done;
    uint8_t *memory;
    uint32_t pending;
    struct tier_batch batches[BATCHES];
    struct tier_block blocks[BATCHES][BLOCKS];
};

struct run {
    struct sim_world *world;
    const struct kvt_env *env;
    struct rng rng;
    uint64_t sequence;
    struct promised promised[LIVES * BATCHES * BLOCKS];
    uint32_t promised_count;
    uint32_t used_segments; /* Bits. */
    struct life life;
};

static bool
life_open(struct run *run)
{
    struct life *life = &run->life;
    struct nvme_options options = {.root_count = 1, .segment_pages = SEGMENT_PAGES};
    struct segment facts = {.generation = 1, .state = SEGMENT_SEALED};

    memset(life, 0, sizeof(*life));
    run->env = sim_env(run->world);
    if (run->env->fs->dir_open(run->env->fs_context, "/store", FS_CREATE, &life->dir) != KVT_OK)
        return false;
    options.roots[0] = life->dir;
    options.root_bytes[0] = (uint64_t)SEGMENTS * SEGMENT_PAGES * PAGE_BYTES;
    memset(options.secret, 3, sizeof(options.secret));
    life->memory = env_map(run->env, (size_t)16 << 20);
    if (nvme_open(run->env, &options, &life->nvme) != KVT_OK)
        return false;
    /* Nothing is appended behind a tail from before a crash. */
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        facts.number = i;
        if ((run->used_segments >> i & 1) != 0)
            assert_true(segment_restore(nvme_segments(life->nvme), &facts));
    }
    return true;
}

static void
batch_put(struct run *run, uint32_t index)
{
    struct life *life = &run->life;
    struct tier_batch *batch = &life->batches[index];
    uint8_t *memory = life->memory + (size_t)index * BLOCKS * 12 * PAGE_BYTES;

    memset(batch, 0, sizeof(*batch));
    batch->blocks = life->blocks[index];
    batch->block_count = 1 + rng_below(&run->rng, BLOCKS);
    batch->sequence = ++run->sequence;
    batch->done = &life->done;
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        uint32_t length = 1 + rng_below(&run->rng, LENGTH_MAX);

        memset(block, 0, sizeof(*block));
        block->memory = memory + (size_t)i * 12 * PAGE_BYTES;
        memset(block->memory, 0, (size_t)12 * PAGE_BYTES);
        for (uint32_t k = 0; k < length; k++)
            ((uint8_t *)block->memory)[k] = (uint8_t)rng_next(&run->rng);
        block->record.key = (struct block_key){.namespace_id = 1, .form = KEY_RAW, .length = 8};
        put_u64(block->record.key.bytes, run->sequence << 8 | i);
        block->record.namespace_epoch = 1;
        block->record.sequence = run->sequence << 8 | i;
        block->record.length = length;
        block->record.stored_length = length;
        block->record.part_count = 1;
        block->record.checksum = hash_payload(block->memory, length);
    }
    if (nvme_as_tier(life->nvme)->ops->put(nvme_as_tier(life->nvme), batch) == KVT_OK)
        life->pending++;
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        if (segment_at(nvme_segments(life->nvme), i)->state != SEGMENT_FREE)
            run->used_segments |= 1u << i;
    }
}

static void
answers_take(struct run *run)
{
    struct life *life = &run->life;

    (void)nvme_step(life->nvme);
    for (struct inbox_node *node = inbox_take(&life->done); node != NULL; node = node->next) {
        struct tier_batch *batch = CONTAINER_OF(node, struct tier_batch, node);

        life->pending--;
        for (uint32_t i = 0; i < batch->block_count; i++) {
            const struct block_record *record = &batch->blocks[i].record;

            if (batch->blocks[i].status != KVT_OK)
                continue;
            run->promised[run->promised_count++] = (struct promised){.extent = record->extent,
                .sequence = record->sequence,
                .length = record->length,
                .checksum = record->checksum};
        }
    }
}

static bool
found_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct run *run = visitor;

    (void)kills;
    for (uint32_t i = 0; i < header->block_count; i++) {
        for (uint32_t k = 0; k < run->promised_count; k++) {
            struct promised *promised = &run->promised[k];

            if (promised->sequence != records[i].sequence)
                continue;
            assert_memory_equal(&promised->extent, &records[i].extent, sizeof(promised->extent));
            promised->is_found = true;
        }
    }
    return true;
}

/* Everything that was promised is found, and its bytes are right. */
static void
promises_verify(struct run *run)
{
    struct life *life = &run->life;
    uint8_t *bytes = life->memory;
    struct nvme_scan_result result;

    for (uint32_t i = 0; i < run->promised_count; i++)
        run->promised[i].is_found = false;
    for (uint32_t i = 0; i < SEGMENTS; i++)
        assert_int_equal(nvme_scan(life->nvme, i, found_visit, run, &result), KVT_OK);
    for (uint32_t i = 0; i < run->promised_count; i++) {
        const struct promised *promised = &run->promised[i];
        struct tier_block block = {.memory = bytes};
        struct tier_batch get = {.blocks = &block, .block_count = 1, .done = &life->done};

        assert_true(promised->is_found);
        block.record.extent = promised->extent;
        block.record.stored_length = promised->length;
        assert_int_equal(
            nvme_as_tier(life->nvme)->ops->get(nvme_as_tier(life->nvme), &get), KVT_OK);
        while (inbox_is_empty(&life->done)) {
            assert_int_not_equal(sim_run(run->world, NULL, NULL, UINT64_MAX), SIM_CRASHED);
            (void)nvme_step(life->nvme);
        }
        (void)inbox_take(&life->done);
        assert_int_equal(block.status, KVT_OK);
        assert_true(hash128_equal(hash_payload(bytes, promised->length), promised->checksum));
    }
}

static void
life_live(struct run *run)
{
    if (!life_open(run)) {
        assert_true(sim_crashed(run->world));
        return;
    }
    for (uint32_t i = 0; i < BATCHES && !sim_crashed(run->world); i++) {
        batch_put(run, i);
        sim_run_steps(run->world, rng_below(&run->rng, 12));
        if (!sim_crashed(run->world))
            answers_take(run);
    }
}

static void
what_was_answered_survives_power_cuts(void **state)
{
    static struct run run;
    uint32_t total = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_options options = {
            .seed = seed, .short_per_mille = 30, .retry_per_mille = 20, .align_bytes = 4096};

        memset(&run, 0, sizeof(run));
        run.rng.state = seed;
        run.world = sim_world_create(&options);
        for (uint32_t life = 0; life < LIVES; life++) {
            sim_crash_after(run.world, 1 + rng_below(&run.rng, 120));
            life_live(&run);
            sim_power_cut(run.world, SIM_CUT_SEEDED);
            sim_crash_after(run.world, 0);
            assert_true(life_open(&run));
            promises_verify(&run);
            nvme_as_tier(run.life.nvme)->ops->close(nvme_as_tier(run.life.nvme));
            sim_power_cut(run.world, SIM_CUT_SEEDED);
        }
        total += run.promised_count;
        sim_world_destroy(run.world);
    }
    assert_true(total > SEEDS * 20); /* A tier that answers nothing must not pass. */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_answered_survives_power_cuts),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
