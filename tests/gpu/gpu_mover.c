/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_mover.c - the mover and the HBM tier on real GPUs: every byte that comes out is compared with
 * what went in.
 *
 * Usage: gpu_mover. Exit code 0: all passed; 1: not; 77: there is no GPU, and why. No cmocka.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "bytes.h"
#include "device_cuda.h"
#include "failure.h"
#include "hbm_tier.h"
#include "mover_user.h"
#include "stop_on_proof.h"

enum {
    MIB = 1024 * 1024,
    MOVES = 10000,
    BLOCKS = 64, /* Of a batch. */
    BATCHES = 4, /* In flight. */
    ROUNDS = 20,
    ARENA_BYTES = 2 * BATCHES * BLOCKS * MIB, /* Half of it for puts, half for gets. */
};

static void
pass_real(struct device_rig *rig)
{
    (void)rig;
    (void)sched_yield();
}

/* --- 1. The mover ----------------------------------------------------------------------------- */

/* Moves of mixed sizes; a quarter of them waits for an event of the caller's stream. */
static bool
random_moves_bring_the_right_bytes(const struct kvt_env *env, uint32_t ordinal)
{
    static struct mover_user user;
    struct device_rig rig = {.ops = &device_cuda_ops,
        .env = env,
        .ordinal = ordinal,
        .pass = pass_real,
        .has_threads = true};
    struct device_mover_stats stats;
    struct device_mover *mover;
    cudaStream_t stream = NULL;

    RIG_CHECK(device_rig_open(&rig));
    RIG_CHECK(cudaSetDevice((int)ordinal) == cudaSuccess);
    RIG_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    RIG_CHECK(device_mover_open(env, rig.device, "mover", &mover) == KVT_OK);
    RIG_CHECK(mover_user_open(&user, &rig, mover, stream, 1 + ordinal));
    RIG_CHECK(mover_user_run(&user, MOVES));
    RIG_CHECK(user.out_count > MOVES / 4 && user.staged_count > MOVES / 8);
    device_mover_stats_get(mover, &stats);
    RIG_CHECK(stats.error_count == 0);
    RIG_CHECK(stats.move_count[DEVICE_IN] + stats.move_count[DEVICE_OUT] == MOVES);
    mover_user_close(&user);
    device_mover_close(mover);
    RIG_CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    device_rig_close(&rig);
    return true;
}

/* --- 2. The HBM tier -------------------------------------------------------------------------- */

struct tier_bench {
    struct hbm_tier *hbm;
    struct tier *tier;
    uint8_t *arena;
    struct inbox done;
    struct rng rng;
    struct tier_batch puts[BATCHES], gets[BATCHES];
    struct tier_block put_blocks[BATCHES][BLOCKS], get_blocks[BATCHES][BLOCKS];
};

static bool
batches_await(struct tier_bench *bench, uint32_t count)
{
    while (count > 0) {
        struct inbox_node *node;

        if (!hbm_step(bench->hbm))
            (void)sched_yield();
        for (node = inbox_take(&bench->done); node != NULL; node = node->next) {
            RIG_CHECK(count > 0);
            count--;
        }
    }
    return true;
}

static uint64_t
number_of(uint32_t round, uint32_t batch, uint32_t block)
{
    return ((uint64_t)round * BATCHES + batch) * BLOCKS + block + 1;
}

static bool
batch_put(struct tier_bench *bench, uint32_t round, uint32_t i)
{
    for (uint32_t k = 0; k < BLOCKS; k++) {
        struct tier_block *block = &bench->put_blocks[i][k];
        uint32_t length = k % 4 == 0 ? MIB : 1 + rng_below(&bench->rng, MIB);

        *block = (struct tier_block){.memory = bench->arena + ((size_t)i * BLOCKS + k) * MIB};
        block->record.stored_length = length;
        device_rig_fill(block->memory, length, number_of(round, i, k));
    }
    bench->puts[i] = (struct tier_batch){
        .blocks = bench->put_blocks[i], .block_count = BLOCKS, .done = &bench->done};
    RIG_CHECK(bench->tier->ops->put(bench->tier, &bench->puts[i]) == KVT_OK);
    return true;
}

static bool
batch_get(struct tier_bench *bench, uint32_t i)
{
    for (uint32_t k = 0; k < BLOCKS; k++) {
        struct tier_block *block = &bench->get_blocks[i][k];

        RIG_CHECK(bench->put_blocks[i][k].status == KVT_OK);
        *block = bench->put_blocks[i][k];
        block->memory = (uint8_t *)block->memory + ARENA_BYTES / 2;
        memset(block->memory, 0, block->record.stored_length);
        /* The source may be reused. */
        memset(bench->put_blocks[i][k].memory, 0x11, block->record.stored_length);
    }
    bench->gets[i] = (struct tier_batch){.blocks = bench->get_blocks[i],
        .block_count = BLOCKS,
        .done = &bench->done,
        .urgent = i % 2};
    RIG_CHECK(bench->tier->ops->get(bench->tier, &bench->gets[i]) == KVT_OK);
    return true;
}

static bool
batch_verify(struct tier_bench *bench, uint32_t round, uint32_t i)
{
    for (uint32_t k = 0; k < BLOCKS; k++) {
        const struct tier_block *block = &bench->get_blocks[i][k];
        const struct tier_place place = {block->record.extent};

        RIG_CHECK(block->status == KVT_OK);
        RIG_CHECK(device_rig_is_filled(
            block->memory, block->record.stored_length, number_of(round, i, k)));
        bench->tier->ops->drop(bench->tier, &place);
    }
    return true;
}

static bool
round_run(struct tier_bench *bench, uint32_t round)
{
    struct tier_usage usage;

    for (uint32_t i = 0; i < BATCHES; i++)
        RIG_CHECK(batch_put(bench, round, i));
    RIG_CHECK(batches_await(bench, BATCHES));
    for (uint32_t i = 0; i < BATCHES; i++)
        RIG_CHECK(batch_get(bench, i));
    RIG_CHECK(batches_await(bench, BATCHES));
    for (uint32_t i = 0; i < BATCHES; i++)
        RIG_CHECK(batch_verify(bench, round, i));
    bench->tier->ops->usage(bench->tier, &usage);
    RIG_CHECK(usage.used_bytes == 0);
    return true;
}

static bool
tier_gives_back_what_was_put(const struct kvt_env *env, uint32_t ordinal)
{
    static struct tier_bench bench;
    struct hbm_options options = {.ops = &device_cuda_ops,
        .ordinal = ordinal,
        .capacity_bytes = ARENA_BYTES,
        .slot_bytes_max = MIB,
        .arena_size = ARENA_BYTES};

    memset(&bench, 0, sizeof(bench));
    bench.rng.state = ordinal;
    bench.arena = env_map(env, ARENA_BYTES);
    RIG_CHECK(bench.arena != NULL);
    options.arena = bench.arena;
    RIG_CHECK(hbm_open(env, &options, &bench.hbm) == KVT_OK);
    bench.tier = hbm_as_tier(bench.hbm);
    for (uint32_t round = 0; round < ROUNDS; round++)
        RIG_CHECK(round_run(&bench, round));
    bench.tier->ops->close(bench.tier);
    env_unmap(env, bench.arena, ARENA_BYTES);
    return true;
}

/* Asked for too much, the tier says how much, and leaves nothing: it can be opened afterwards. */
static bool
too_much_memory_is_refused(const struct kvt_env *env, uint32_t ordinal)
{
    struct hbm_options options = {.ops = &device_cuda_ops,
        .ordinal = ordinal,
        .capacity_bytes = UINT64_C(1) << 46,
        .slot_bytes_max = 64 * MIB};
    struct hbm_tier *hbm = NULL;

    RIG_CHECK(hbm_open(env, &options, &hbm) == KVT_E_NOMEM);
    RIG_CHECK(strstr(failure_last()->text, "70368744177664") != NULL);
    options.capacity_bytes = 64 * MIB;
    RIG_CHECK(hbm_open(env, &options, &hbm) == KVT_OK);
    hbm_as_tier(hbm)->ops->close(hbm_as_tier(hbm));
    return true;
}

/* --- 3. The program --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*run)(const struct kvt_env *env, uint32_t ordinal);
} checks[] = {
    {"random_moves_bring_the_right_bytes", random_moves_bring_the_right_bytes},
    {"tier_gives_back_what_was_put", tier_gives_back_what_was_put},
    {"too_much_memory_is_refused", too_much_memory_is_refused},
};

int
main(void)
{
    struct kvt_env env;
    uint32_t count = 0;
    uint32_t failed = 0;

    stop_on_proof();
    env_host(&env);
    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        return 77;
    }
    for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
        for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
            bool is_right = checks[i].run(&env, ordinal);

            printf("%s  device %u  %s\n", is_right ? "ok    " : "FAILED", ordinal, checks[i].name);
            if (!is_right)
                printf("        the last failure was: %s\n", failure_last()->text);
            (void)fflush(stdout);
            failed += !is_right;
        }
    }
    printf("%u devices, %u checks failed\n", count, failed);
    return failed == 0 ? 0 : 1;
}
