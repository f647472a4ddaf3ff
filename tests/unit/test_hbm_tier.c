/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_tier.c - the HBM tier over the emulated accelerator, in the simulated world: opening,
 * slots that are dropped while bytes move, blocks that fail, a device that is lost. What puts and
 * gets do otherwise is in conform_tier.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "device_host.h"
#include "device_rig.h"
#include "failure.h"
#include "hbm_tier.h"
#include "seeds.h"
#include "sim_world.h"
#include "stop_on_proof.h"

enum {
    MIB = 1 << 20,
    KIB = 1 << 10,
    ARENA_BYTES = 4 * MIB,
    BLOCKS = 8,
    ANSWERS_MAX = 32,
};

#define PATIENCE_NS (UINT64_C(60) * 1000 * 1000 * 1000)

static struct seeds seeds = {.first = 1, .count = 30};

struct bench {
    struct sim_world *world;
    const struct kvt_env *env;
    struct device_host_config config;
    struct hbm_options options;
    struct hbm_tier *hbm;
    struct tier *tier;
    uint8_t *arena;
    struct inbox done;
    struct tier_batch *answers[ANSWERS_MAX];
    uint32_t answer_count;
};

struct batch {
    struct tier_batch batch;
    struct tier_block blocks[BLOCKS];
};

/* --- 1. The bench ----------------------------------------------------------------------------- */

static void
bench_init(struct bench *bench, uint64_t seed)
{
    struct sim_options options = {.seed = seed};

    memset(bench, 0, sizeof(*bench));
    bench->world = sim_world_create(&options);
    assert_non_null(bench->world);
    bench->env = sim_env(bench->world);
    bench->config = (struct device_host_config){.seed = seed, .delay_ns_max = 30000};
    bench->arena = env_map(sim_outer_env(bench->world), ARENA_BYTES);
    assert_non_null(bench->arena);
    bench->options = (struct hbm_options){.ops = &device_host_ops,
        .context = &bench->config,
        .capacity_bytes = 2 * MIB,
        .slot_bytes_max = 1 * MIB,
        .arena = bench->arena,
        .arena_size = ARENA_BYTES};
}

static enum kvt_status
bench_try(struct bench *bench)
{
    enum kvt_status status = hbm_open(bench->env, &bench->options, &bench->hbm);

    assert_true((bench->hbm == NULL) == (status != KVT_OK));
    if (status == KVT_OK)
        bench->tier = hbm_as_tier(bench->hbm);
    return status;
}

static void
bench_open(struct bench *bench, uint64_t seed)
{
    bench_init(bench, seed);
    assert_int_equal(bench_try(bench), KVT_OK);
}

static void
bench_close(struct bench *bench)
{
    char leaks[256] = "";

    if (bench->tier != NULL)
        bench->tier->ops->close(bench->tier);
    if (sim_leaks(bench->world, leaks, sizeof(leaks)) != 0)
        fail_msg("left: %s", leaks);
    env_unmap(sim_outer_env(bench->world), bench->arena, ARENA_BYTES);
    sim_world_destroy(bench->world);
}

static uint64_t
used_bytes(struct bench *bench)
{
    struct tier_usage usage;

    bench->tier->ops->usage(bench->tier, &usage);
    slab_check(hbm_slab(bench->hbm));
    return usage.used_bytes;
}

/* A batch of `count` blocks of `size` bytes, whose memory lies behind each other at `at`. */
static void
batch_init(struct bench *bench, struct batch *batch, size_t at, uint32_t count, uint32_t size)
{
    memset(batch, 0, sizeof(*batch));
    batch->batch.blocks = batch->blocks;
    batch->batch.block_count = count;
    batch->batch.done = &bench->done;
    assert_true(count <= BLOCKS && at + count * round_up(size, PAGE_BYTES) <= ARENA_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        batch->blocks[i].record.stored_length = size;
        batch->blocks[i].memory = bench->arena + at + i * round_up(size, PAGE_BYTES);
        batch->blocks[i].status = KVT_E_POISONED;
    }
}

/* Fill the blocks of a put. */
static void
batch_fill(struct batch *batch, uint64_t number)
{
    for (uint32_t i = 0; i < batch->batch.block_count; i++)
        device_rig_fill(batch->blocks[i].memory, batch->blocks[i].record.stored_length, number + i);
}

static bool
block_is_filled(const struct tier_block *block, uint64_t number)
{
    return device_rig_is_filled(block->memory, block->record.stored_length, number);
}

/* A get of what `put` put, into memory at `at`. */
static void
get_init(struct bench *bench, struct batch *get, const struct batch *put, size_t at)
{
    batch_init(bench, get, at, put->batch.block_count, put->blocks[0].record.stored_length);
    for (uint32_t i = 0; i < put->batch.block_count; i++) {
        get->blocks[i].record = put->blocks[i].record;
        memset(get->blocks[i].memory, 0, get->blocks[i].record.stored_length);
    }
}

static enum kvt_status
put(struct bench *bench, struct batch *batch)
{
    return bench->tier->ops->put(bench->tier, &batch->batch);
}

static enum kvt_status
get(struct bench *bench, struct batch *batch)
{
    return bench->tier->ops->get(bench->tier, &batch->batch);
}

static void
drop(struct bench *bench, const struct tier_block *block)
{
    const struct tier_place place = {block->record.extent};

    bench->tier->ops->drop(bench->tier, &place);
}

static void
turn(struct bench *bench)
{
    (void)sim_run_for(bench->world, 1000);
    (void)hbm_step(bench->hbm);
    for (struct inbox_node *node = inbox_take(&bench->done); node != NULL; node = node->next) {
        assert_true(bench->answer_count < ANSWERS_MAX);
        bench->answers[bench->answer_count++] = CONTAINER_OF(node, struct tier_batch, node);
    }
}

static void
await(struct bench *bench, uint32_t count)
{
    uint64_t until_ns = sim_now(bench->world) + PATIENCE_NS;

    while (bench->answer_count < count) {
        turn(bench);
        if (sim_now(bench->world) > until_ns)
            fail_msg("%u of %u answers", bench->answer_count, count);
    }
    for (uint32_t i = 0; i < 200; i++)
        turn(bench);
    assert_int_equal(bench->answer_count, count);
}

static void
put_all(struct bench *bench, struct batch *batch, uint64_t number)
{
    batch_fill(batch, number);
    assert_int_equal(put(bench, batch), KVT_OK);
    await(bench, bench->answer_count + 1);
    for (uint32_t i = 0; i < batch->batch.block_count; i++)
        assert_int_equal(batch->blocks[i].status, KVT_OK);
}

/* --- 2. Opening ------------------------------------------------------------------------------- */

static void
capacity_is_rounded_up_and_lies_on_the_device(void **state)
{
    struct bench bench;
    struct slot slot;
    uint64_t address;

    (void)state;
    bench_init(&bench, 1);
    bench.options.capacity_bytes = 5 * MIB + 1;
    bench.options.slot_bytes_max = 64 * KIB;
    assert_int_equal(bench_try(&bench), KVT_OK);
    assert_int_equal(slab_capacity(hbm_slab(bench.hbm)), 6 * MIB);
    assert_int_equal(slab_take(hbm_slab(bench.hbm), 64 * KIB, &slot), KVT_OK);
    address = (uint64_t)(uintptr_t)slab_address(hbm_slab(bench.hbm), slot);
    assert_true((address & DEVICE_HOST_BIT) != 0);
    assert_int_equal(address % (2 * MIB), 0);
    assert_true(slab_put(hbm_slab(bench.hbm), slot));
    assert_ptr_equal(hbm_device(bench.hbm)->ops, &device_host_ops);
    assert_false(device_mover_is_lost(hbm_mover(bench.hbm)));
    bench.tier->ops->close(NULL); /* Does nothing. */
    bench_close(&bench);
}

static void
what_cannot_be_opened_is_named(void **state)
{
    struct bench bench;

    (void)state;
    bench_init(&bench, 1);
    bench.options.ordinal = 1;
    assert_int_equal(bench_try(&bench), KVT_E_UNSUPPORTED);
    assert_non_null(strstr(failure_last()->text, "no device 1"));
    bench.options.ordinal = 0;
    bench.options.capacity_bytes = 4096 * (uint64_t)MIB;
    assert_int_equal(bench_try(&bench), KVT_E_NOMEM);
    assert_non_null(strstr(failure_last()->text, "4294967296"));
    bench.options.capacity_bytes = UINT64_MAX;
    assert_int_equal(bench_try(&bench), KVT_E_INVAL);
    bench.options.capacity_bytes = 2 * MIB;
    bench.options.slot_bytes_max = 3 * MIB;
    assert_int_equal(bench_try(&bench), KVT_E_INVAL);
    bench.options.slot_bytes_max = 64 * KIB;
    bench.options.arena_size = 5000;
    assert_int_equal(bench_try(&bench), KVT_E_INVAL);
    bench.options.arena = NULL;
    assert_int_equal(bench_try(&bench), KVT_OK);
    bench_close(&bench);
}

/* The runs that were registered, and have not been unregistered. */
static struct {
    uint8_t *start;
    uint64_t size;
} runs[8];
static uint32_t run_count;
static uint32_t run_limit;

static enum kvt_status
run_register(struct device *device, void *memory, uint64_t size)
{
    (void)device;
    if (run_count == run_limit)
        return failure_set(KVT_E_NOMEM, 0, "No more registrations, on purpose.");
    runs[run_count].start = memory;
    runs[run_count++].size = size;
    return KVT_OK;
}

static enum kvt_status
run_unregister(struct device *device, void *memory, uint64_t size)
{
    (void)device;
    for (uint32_t i = 0; i < run_count; i++) {
        if (runs[i].start == memory && runs[i].size == size) {
            runs[i] = runs[--run_count];
            return KVT_OK;
        }
    }
    fail();
    return KVT_E_INVAL;
}

static void
large_arenas_are_registered_in_runs(void **state)
{
    const uint64_t gib = UINT64_C(1) << 30;
    struct kvt_device_ops ops = device_host_ops;
    uint8_t *arena = (uint8_t *)(uintptr_t)(64 * gib); /* Nobody looks into it. */
    struct bench bench;

    (void)state;
    ops.host_register = run_register;
    ops.host_unregister = run_unregister;
    for (run_limit = 0; run_limit <= 3; run_limit++) {
        bench_init(&bench, 1);
        bench.config.delay_ns_max = 0;
        bench.options.arena = arena;
        bench.options.arena_size = 2 * gib + 2 * MIB;
        bench.options.ops = &ops;
        assert_int_equal(bench_try(&bench), run_limit < 3 ? KVT_E_NOMEM : KVT_OK);
        if (run_limit == 3) {
            assert_int_equal(run_count, 3);
            for (uint32_t i = 0; i < 3; i++) {
                assert_ptr_equal(runs[i].start, arena + i * gib);
                assert_int_equal(runs[i].size, i < 2 ? gib : 2 * MIB);
            }
        }
        bench_close(&bench);
        assert_int_equal(run_count, 0);
    }
}

static struct {
    uint32_t count;
    enum device_plan_choice choice;
    enum kvt_status status;
} chosen;

static enum kvt_status
plan_note(struct device *device, enum device_plan_choice choice, struct device_plan *plan_out)
{
    (void)device;
    *plan_out = (struct device_plan){.is_measured = false};
    chosen.count++;
    chosen.choice = choice;
    return chosen.status == KVT_OK ? KVT_OK : failure_set(chosen.status, 0, "It is lost.");
}

static void
copies_are_measured_unless_engines_are_asked_for(void **state)
{
    struct kvt_device_ops ops = device_host_ops;
    struct bench bench;

    (void)state;
    ops.plan = plan_note;
    for (uint32_t i = 0; i < 3; i++) {
        bench_init(&bench, 1);
        bench.options.ops = &ops;
        bench.options.is_engines_only = i == 1;
        chosen.count = 0;
        chosen.status = i == 2 ? KVT_E_GPU : KVT_OK;
        assert_int_equal(bench_try(&bench), chosen.status);
        assert_int_equal(chosen.count, 1);
        assert_int_equal(chosen.choice, i == 1 ? DEVICE_PLAN_ENGINES : DEVICE_PLAN_MEASURE);
        bench_close(&bench);
    }
}

/* --- 3. Drops --------------------------------------------------------------------------------- */

/* The tier holds two slots of 1 MiB: one of them is dropped while its bytes are on their way. */
static void
slot_is_not_reused_while_a_copy_of_it_is_in_flight(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct batch old, gets[2], late, new;
        struct bench bench;
        uint32_t refused = 0;

        bench_open(&bench, seed);
        batch_init(&bench, &old, 0, 2, MIB);
        put_all(&bench, &old, 10);
        old.batch.block_count = 1;
        for (uint32_t i = 0; i < 2; i++) {
            get_init(&bench, &gets[i], &old, (2 + i) * (size_t)MIB);
            assert_int_equal(get(&bench, &gets[i]), KVT_OK);
        }
        sim_run_steps(bench.world, (uint32_t)seed % 10);
        drop(&bench, &old.blocks[0]);
        drop(&bench, &old.blocks[0]);
        assert_int_equal(used_bytes(&bench), 2 * MIB);
        /* Nobody finds it any more. */
        get_init(&bench, &late, &old, 0);
        assert_int_equal(get(&bench, &late), KVT_OK);
        turn(&bench);
        assert_ptr_equal(bench.answers[1], &late.batch);
        assert_int_equal(late.blocks[0].status, KVT_MISS);

        batch_init(&bench, &new, 0, 1, MIB);
        batch_fill(&new, 20);
        while (put(&bench, &new) != KVT_OK) {
            assert_int_equal(failure_last()->status, KVT_E_NOSPC);
            assert_true(bench.answer_count < 4);
            refused++;
            turn(&bench);
        }
        assert_true(refused > 0);
        await(&bench, 5);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(gets[i].blocks[0].status, KVT_OK);
            assert_true(block_is_filled(&gets[i].blocks[0], 10));
        }
        assert_int_equal(new.blocks[0].status, KVT_OK);
        drop(&bench, &old.blocks[0]); /* Stale: the new one stays. */
        get_init(&bench, &late, &new, 2 * MIB);
        assert_int_equal(get(&bench, &late), KVT_OK);
        await(&bench, 6);
        assert_int_equal(late.blocks[0].status, KVT_OK);
        assert_true(block_is_filled(&late.blocks[0], 20));
        drop(&bench, &new.blocks[0]);
        drop(&bench, &old.blocks[1]);
        assert_int_equal(used_bytes(&bench), 0);
        bench_close(&bench);
    }
}

static void
block_that_is_being_put_is_a_miss(void **state)
{
    struct batch one, other, early;
    struct bench bench;

    (void)state;
    bench_open(&bench, 1);
    batch_init(&bench, &one, 0, 4, 64 * KIB);
    batch_fill(&one, 1);
    assert_int_equal(put(&bench, &one), KVT_OK);
    get_init(&bench, &early, &one, MIB);
    assert_int_equal(get(&bench, &early), KVT_OK);
    /* Dropped before it is there: its slot goes when the bytes have come. */
    drop(&bench, &one.blocks[0]);
    assert_int_equal(used_bytes(&bench), 4 * 64 * KIB);
    await(&bench, 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(early.blocks[i].status, KVT_MISS);
    assert_int_equal(used_bytes(&bench), 3 * 64 * KIB);
    get_init(&bench, &other, &one, MIB);
    assert_int_equal(get(&bench, &other), KVT_OK);
    await(&bench, 3);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(other.blocks[i].status, i == 0 ? KVT_MISS : KVT_OK);
    for (uint32_t i = 0; i < 4; i++)
        drop(&bench, &one.blocks[i]);
    assert_int_equal(used_bytes(&bench), 0);
    bench_close(&bench);
}

/* --- 4. Failures ------------------------------------------------------------------------------ */

static void
bad_block_fails_alone_and_keeps_no_slot(void **state)
{
    static uint8_t foreign[64 * KIB];
    struct batch some, back;
    struct bench bench;

    (void)state;
    bench_open(&bench, 1);
    batch_init(&bench, &some, 0, 5, 64 * KIB);
    batch_fill(&some, 1);
    some.blocks[2].memory = foreign; /* Not registered. */
    assert_int_equal(put(&bench, &some), KVT_OK);
    await(&bench, 1);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(some.blocks[i].status, i == 2 ? KVT_E_INVAL : KVT_OK);
        assert_true((some.blocks[i].record.extent.generation == 0) == (i == 2));
    }
    assert_int_equal(used_bytes(&bench), 4 * 64 * KIB);
    get_init(&bench, &back, &some, MIB);
    back.blocks[4].memory = foreign;
    assert_int_equal(get(&bench, &back), KVT_OK);
    await(&bench, 2);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(back.blocks[i].status, i == 2 ? KVT_MISS : KVT_OK);
        assert_true(i == 2 || block_is_filled(&back.blocks[i], 1 + i));
    }
    assert_int_equal(back.blocks[4].status, KVT_E_INVAL);
    /* A get that fails takes nothing away. */
    assert_int_equal(used_bytes(&bench), 4 * 64 * KIB);
    bench_close(&bench);
}

/* Puts, gets and drops while call `fail_call` of the device fails; false: it never came to it. */
static bool
life_with_failure(uint64_t seed, uint32_t fail_call, enum kvt_status fail_status)
{
    struct batch puts[3], gets[3];
    struct bench bench;
    uint32_t pushed = 0;
    bool is_lost;

    bench_init(&bench, seed);
    bench.config.fail_call = fail_call;
    bench.config.fail_status = fail_status;
    if (bench_try(&bench) != KVT_OK) {
        assert_int_equal(failure_last()->status, fail_status);
        bench_close(&bench);
        return true;
    }
    for (uint32_t i = 0; i < 3; i++) {
        batch_init(&bench, &puts[i], i * 512u * KIB, 4, 50 * KIB);
        batch_fill(&puts[i], i * 10);
        if (put(&bench, &puts[i]) == KVT_OK)
            await(&bench, ++pushed);
        else
            assert_int_equal(failure_last()->status, fail_status);
        get_init(&bench, &gets[i], &puts[i], 2 * MIB + i * 512u * KIB);
        assert_int_equal(get(&bench, &gets[i]), KVT_OK);
        pushed++;
        if (i == 1)
            drop(&bench, &puts[i].blocks[0]);
    }
    await(&bench, pushed);
    is_lost = device_mover_is_lost(hbm_mover(bench.hbm));
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            const struct tier_block *block = &gets[i].blocks[k];

            assert_true(block->status == KVT_OK || block->status == KVT_MISS ||
                        block->status == fail_status);
            if (block->status == KVT_OK)
                assert_true(block_is_filled(block, i * 10 + k));
            drop(&bench, &puts[i].blocks[k]);
        }
    }
    assert_int_equal(used_bytes(&bench), 0);
    assert_int_equal(is_lost, fail_status == KVT_E_GPU && bench.config.call_count >= fail_call);
    if (is_lost) {
        assert_int_equal(bench.config.call_count, fail_call);
        batch_init(&bench, &puts[0], 0, 1, 4096);
        assert_int_equal(put(&bench, &puts[0]), KVT_E_GPU);
        assert_int_equal(used_bytes(&bench), 0);
    }
    is_lost = bench.config.call_count >= fail_call;
    bench_close(&bench);
    return is_lost;
}

static void
each_call_may_fail_and_no_slot_is_left(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_GPU, KVT_E_INVAL};

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + 2 + seeds.count / 8; seed++) {
        uint32_t n = 1;

        while (life_with_failure(seed, n, statuses[seed % 2]))
            n++;
        assert_true(n > 30);
    }
}

static void
each_allocation_may_fail_and_nothing_is_left(void **state)
{
    enum kvt_status status = KVT_E_NOMEM;
    uint64_t n = 0;

    (void)state;
    while (status != KVT_OK) {
        struct bench bench;
        struct batch batch;

        bench_init(&bench, 1);
        batch_init(&bench, &batch, 0, 4, 50 * KIB);
        sim_memory_fail(bench.world, ++n, false);
        status = bench_try(&bench);
        if (status == KVT_OK) {
            sim_memory_fail(bench.world, 1, false);
            assert_int_equal(put(&bench, &batch), KVT_E_NOMEM);
            assert_int_equal(used_bytes(&bench), 0);
            sim_memory_fail(bench.world, 1, false);
            assert_int_equal(get(&bench, &batch), KVT_E_NOMEM);
            sim_memory_fail(bench.world, 0, false);
            await(&bench, 0);
        } else {
            assert_int_equal(status, KVT_E_NOMEM);
        }
        bench_close(&bench);
    }
    assert_true(n > 10);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_rounded_up_and_lies_on_the_device),
        cmocka_unit_test(what_cannot_be_opened_is_named),
        cmocka_unit_test(large_arenas_are_registered_in_runs),
        cmocka_unit_test(copies_are_measured_unless_engines_are_asked_for),
        cmocka_unit_test(slot_is_not_reused_while_a_copy_of_it_is_in_flight),
        cmocka_unit_test(block_that_is_being_put_is_a_miss),
        cmocka_unit_test(bad_block_fails_alone_and_keeps_no_slot),
        cmocka_unit_test(each_call_may_fail_and_no_slot_is_left),
        cmocka_unit_test(each_allocation_may_fail_and_nothing_is_left),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
