/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sim_world.c - the simulated world keeps its promises: transfers, memory, time, the order of
 * steps; and the same seed gives the same run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "bytes.h"
#include "sim_file_kit.h"

static void
fill(uint8_t *bytes, size_t size, uint8_t value)
{
    memset(bytes, value, size);
}

/* --- 1. Queues, driven by an actor ------------------------------------------------------------ */

enum {
    OPS = 16,
    OP_BYTES = 4096,
};

/* An actor that submits what it was given once and collects the answers. */
struct pump {
    struct sim_world *world;
    struct io_queue *queue;
    struct task *task;
    struct gate gate;
    struct io_op ops[OPS];
    struct iovec pieces[OPS];
    uint8_t *memory;
    uint32_t op_count;
    uint32_t done_count;
    bool is_submitted;
    int64_t results[OPS];
    uint64_t order[OPS];
};

static bool
pump_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct pump *pump = context;
    const struct kvt_env *env = sim_env(pump->world);
    struct io_done done[4];
    size_t count;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    if (!pump->is_submitted && pump->op_count > 0) {
        const struct io_op *ops[OPS];

        for (uint32_t i = 0; i < pump->op_count; i++)
            ops[i] = &pump->ops[i];
        assert_int_equal(env->io->submit(pump->queue, ops, pump->op_count), pump->op_count);
        pump->is_submitted = true;
    }
    count = env->io->reap(pump->queue, done, 4);
    for (size_t i = 0; i < count; i++) {
        pump->order[pump->done_count++] = done[i].id;
        pump->results[done[i].id] = done[i].result;
    }
    if (count > 0)
        gate_post(env, &pump->gate);
    return count > 0;
}

static void
pump_open(struct pump *pump, struct sim_world *world)
{
    const struct kvt_env *env = sim_env(world);
    struct actor actor = {.name = "pump", .step = pump_step, .context = pump};

    memset(pump, 0, sizeof(*pump));
    pump->world = world;
    pump->memory = env_map(env, OPS * OP_BYTES);
    assert_non_null(pump->memory);
    assert_int_equal(env->io->open(env->io_context, OPS, &pump->queue), KVT_OK);
    assert_int_equal(env->sched->start(env->sched_context, &actor, &pump->task), KVT_OK);
}

static void
pump_add(struct pump *pump, enum io_kind kind, struct fs_file *file, uint64_t offset, size_t size)
{
    uint32_t i = pump->op_count++;

    pump->pieces[i].iov_base = pump->memory + i * OP_BYTES;
    pump->pieces[i].iov_len = size;
    pump->ops[i] = (struct io_op){
        .id = i,
        .kind = kind,
        .file = file,
        .offset = offset,
        .pieces = kind == IO_SYNC ? NULL : &pump->pieces[i],
        .piece_count = kind == IO_SYNC ? 0 : 1,
    };
}

static void
pump_run(struct pump *pump)
{
    const struct kvt_env *env = sim_env(pump->world);

    pump->is_submitted = false;
    pump->done_count = 0;
    env_wake(env, pump->task);
    while (pump->done_count < pump->op_count) {
        uint32_t seen = atomic_load(&pump->gate.value);

        if (pump->done_count < pump->op_count)
            gate_wait(env, &pump->gate, seen, UINT64_MAX);
    }
}

static void
pump_close(struct pump *pump)
{
    const struct kvt_env *env = sim_env(pump->world);

    env->sched->stop(env->sched_context, pump->task);
    env->io->close(pump->queue);
    env_unmap(env, pump->memory, OPS * OP_BYTES);
}

static struct fs_file *
data_file(struct sim_world *world)
{
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);
    struct fs_file *file = file_of(world, dir, "data", FS_CREATE | FS_DIRECT);

    assert_int_equal(fs->allocate(file, 0, OPS * OP_BYTES), KVT_OK);
    assert_int_equal(fs->sync(file), KVT_OK);
    assert_int_equal(fs->dir_sync(dir), KVT_OK);
    fs->dir_close(dir);
    return file;
}

static void
transfers_complete_out_of_order_and_late(void **state)
{
    struct sim_world *world = world_of(3);
    struct fs_file *file = data_file(world);
    uint64_t start_ns;
    struct pump pump;
    bool in_order = true;

    (void)state;
    pump_open(&pump, world);
    for (uint32_t i = 0; i < OPS; i++) {
        pump_add(&pump, IO_WRITE, file, i * OP_BYTES, OP_BYTES);
        fill(pump.memory + i * OP_BYTES, OP_BYTES, (uint8_t)i);
    }
    start_ns = sim_now(world);
    pump_run(&pump);
    assert_true(sim_now(world) > start_ns + 5000);
    for (uint32_t i = 0; i < OPS; i++) {
        assert_int_equal(pump.results[i], OP_BYTES);
        in_order = in_order && pump.order[i] == i;
        assert_int_equal(count_sectors(world, file, (uint8_t)i), OP_BYTES / 512);
    }
    assert_false(in_order);
    pump_close(&pump);
    sim_env(world)->fs->close(file);
    assert_int_equal(sim_leaks(world, NULL, 0), 0);
    sim_world_destroy(world);
}

static void
sync_covers_only_writes_that_were_complete_before_it(void **state)
{
    uint32_t lost = 0;

    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        struct fs_file *file = data_file(world);
        struct pump pump;

        pump_open(&pump, world);
        pump_add(&pump, IO_WRITE, file, 0, OP_BYTES);
        fill(pump.memory, OP_BYTES, 7);
        pump_run(&pump);
        pump.op_count = 0;
        pump_add(&pump, IO_SYNC, file, 0, 0);
        pump_add(&pump, IO_WRITE, file, OP_BYTES, OP_BYTES);
        fill(pump.memory + OP_BYTES, OP_BYTES, 8);
        pump_run(&pump);
        sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
        file = file_of(world, dir_of(world), "data", 0);
        assert_int_equal(count_sectors(world, file, 7), OP_BYTES / 512);
        lost += count_sectors(world, file, 8) == 0;
        sim_world_destroy(world);
    }
    assert_int_equal(lost, KIT_SEEDS);
}

static void
write_takes_the_bytes_that_are_there_when_it_happens(void **state)
{
    struct sim_world *world = world_of(3);
    struct fs_file *file = data_file(world);
    struct pump pump;

    (void)state;
    pump_open(&pump, world);
    pump_add(&pump, IO_WRITE, file, 0, OP_BYTES);
    fill(pump.memory, OP_BYTES, 1);
    env_wake(sim_env(world), pump.task);
    sim_run_steps(world, 1);
    assert_true(pump.is_submitted);
    fill(pump.memory, OP_BYTES, 2); /* Too early: a bug of the caller's. */
    assert_int_equal(sim_run(world, NULL, NULL, UINT64_MAX), SIM_IDLE);
    assert_int_equal(count_sectors(world, file, 2), OP_BYTES / 512);
    sim_world_destroy(world);
}

static void
misaligned_direct_transfers_are_refused(void **state)
{
    struct sim_world *world = world_of(3);
    struct fs_file *file = data_file(world);
    struct pump pump;

    (void)state;
    pump_open(&pump, world);
    pump_add(&pump, IO_WRITE, file, 100, OP_BYTES);
    pump_add(&pump, IO_READ, file, 0, 100);
    pump_add(&pump, IO_READ, file, 512, 512);
    pump_run(&pump);
    assert_int_equal(pump.results[0], -EINVAL);
    assert_int_equal(pump.results[1], -EINVAL);
    assert_int_equal(pump.results[2], 512);
    sim_world_destroy(world);
}

/* --- 2. Faults -------------------------------------------------------------------------------- */

static void
faults_of_transfers_fire_where_they_were_asked_for(void **state)
{
    static const struct {
        enum sim_effect effect;
        int64_t result;
    } cases[] = {{SIM_EIO, -EIO}, {SIM_ENOSPC, -ENOSPC}, {SIM_EINTR, -EINTR}, {SIM_EAGAIN, -EAGAIN},
        {SIM_ENOMEM, -ENOMEM}, {SIM_TORN, -EIO}, {SIM_ARRIVES, -EIO}, {SIM_SHORT, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sim_world *world = world_of(i);
        struct fs_file *file = data_file(world);
        struct sim_rule rule = {.ops = SIM_WRITE, .effect = cases[i].effect, .nth = 3};
        struct pump pump;

        pump_open(&pump, world);
        for (uint32_t op = 0; op < 6; op++)
            pump_add(&pump, op == 0 ? IO_READ : IO_WRITE, file, op * OP_BYTES, OP_BYTES);
        sim_rule_add(world, &rule);
        pump_run(&pump);
        assert_int_equal(sim_fault_count(world), 1);
        for (uint32_t op = 0; op < 6; op++) {
            if (op != 3)
                assert_int_equal(pump.results[op], OP_BYTES);
            else if (cases[i].effect == SIM_SHORT)
                assert_in_range(pump.results[op], 512, OP_BYTES - 512);
            else
                assert_int_equal(pump.results[op], cases[i].result);
        }
        sim_world_destroy(world);
    }
}

static void
spoiled_reads_differ_from_what_stands_there(void **state)
{
    static const enum sim_effect effects[] = {SIM_FLIP, SIM_MISDIRECT, SIM_STALE};

    (void)state;
    for (size_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        struct sim_world *world = world_of(i + 11);
        struct fs_file *file = data_file(world);
        struct sim_rule rule = {.ops = SIM_READ, .effect = effects[i], .nth = 1};
        struct pump pump;
        uint8_t good[OP_BYTES];

        pump_open(&pump, world);
        for (uint32_t op = 0; op < OPS; op++) {
            pump_add(&pump, IO_WRITE, file, op * OP_BYTES, OP_BYTES);
            fill(pump.memory + op * OP_BYTES, OP_BYTES, (uint8_t)(op + 100));
        }
        pump_run(&pump);
        pump.op_count = 0;
        pump_add(&pump, IO_READ, file, 0, OP_BYTES);
        fill(good, sizeof(good), 100);
        pump_run(&pump);
        assert_memory_equal(pump.memory, good, OP_BYTES);
        sim_rule_add(world, &rule);
        pump_run(&pump);
        assert_int_equal(pump.results[0], OP_BYTES);
        assert_memory_not_equal(pump.memory, good, OP_BYTES);
        pump_run(&pump);
        assert_memory_equal(pump.memory, good, OP_BYTES);
        sim_world_destroy(world);
    }
}

/* --- 3. Memory -------------------------------------------------------------------------------- */

static void
nth_allocation_fails_once_or_from_then_on(void **state)
{
    struct sim_world *world = world_of(1);
    const struct kvt_env *env = sim_env(world);
    void *kept[3];

    (void)state;
    sim_memory_fail(world, 2, false);
    kept[0] = env_take(env, 10);
    assert_non_null(kept[0]);
    assert_true(bytes_are_zero(kept[0], 10));
    assert_null(env_take(env, 10));
    kept[1] = env_map(env, 4096);
    assert_non_null(kept[1]);
    assert_int_equal((uintptr_t)kept[1] % (2u << 20), 0);
    sim_memory_fail(world, 1, true);
    assert_null(env_map(env, 4096));
    assert_null(env_take(env, 10));
    assert_null(env->memory->fork_page(env->memory_context));
    sim_memory_fail(world, 0, false);
    kept[2] = env->memory->fork_page(env->memory_context);
    assert_non_null(kept[2]);
    assert_int_equal(sim_leaks(world, NULL, 0), 3);
    env_put(env, kept[0], 10);
    env_unmap(env, kept[1], 4096);
    env_unmap(env, kept[2], PAGE_BYTES);
    assert_int_equal(sim_leaks(world, NULL, 0), 0);
    assert_int_equal(sim_memory_asked(world), 7);
    sim_world_destroy(world);
}

static void
life_that_ends_leaves_nothing_behind(void **state)
{
    struct sim_world *world = world_of(1);
    struct pump pump;

    (void)state;
    pump_open(&pump, world);
    (void)data_file(world);
    assert_true(sim_leaks(world, NULL, 0) > 0);
    sim_power_cut(world, SIM_CUT_SEEDED);
    assert_int_equal(sim_leaks(world, NULL, 0), 0);
    sim_world_destroy(world);
}

/* --- 4. The scheduler ------------------------------------------------------------------------- */

struct ticker {
    struct sim_world *world;
    struct task *task;
    uint64_t period_ns;
    uint64_t last_ns;
    uint32_t steps;
};

static bool
ticker_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct ticker *ticker = context;

    ticker->steps++;
    ticker->last_ns = now_ns;
    *next_ns_out = ticker->period_ns == 0 ? UINT64_MAX : now_ns + ticker->period_ns;
    return false;
}

static void
ticker_open(struct ticker *ticker, struct sim_world *world, uint64_t period_ns)
{
    const struct kvt_env *env = sim_env(world);
    struct actor actor = {.name = "ticker", .step = ticker_step, .context = ticker};

    *ticker = (struct ticker){.world = world, .period_ns = period_ns};
    assert_int_equal(env->sched->start(env->sched_context, &actor, &ticker->task), KVT_OK);
}

static void
clock_jumps_to_the_next_deadline(void **state)
{
    struct sim_world *world = world_of(1);
    struct ticker ticker;

    (void)state;
    ticker_open(&ticker, world, 1000 * 1000 * 1000);
    assert_int_equal(sim_run_for(world, UINT64_C(10500) * 1000 * 1000), SIM_TIME);
    assert_in_range(ticker.steps, 10, 12);
    assert_int_equal(sim_run(world, NULL, NULL, UINT64_MAX), SIM_IDLE);
    sim_world_destroy(world);
}

static void
actor_that_is_not_woken_is_not_stepped_and_its_waiter_is_stuck(void **state)
{
    struct sim_world *world = world_of(1);
    const struct kvt_env *env = sim_env(world);
    struct ticker ticker;
    struct gate gate = {0};

    (void)state;
    ticker_open(&ticker, world, 0);
    assert_int_equal(sim_run(world, NULL, NULL, UINT64_MAX), SIM_IDLE);
    assert_int_equal(ticker.steps, 1);
    env_wake(env, ticker.task);
    assert_int_equal(sim_run(world, NULL, NULL, UINT64_MAX), SIM_IDLE);
    assert_int_equal(ticker.steps, 2);
    gate_wait(env, &gate, 0, sim_now(world) + 5000);
    assert_false(sim_stuck(world));
    gate_wait(env, &gate, 0, UINT64_MAX);
    assert_true(sim_stuck(world));
    sim_world_destroy(world);
}

/* One run with everything in it; returns its trace hash. */
static uint64_t
busy_run(uint64_t seed)
{
    struct sim_options options = {.seed = seed, .short_per_mille = 100, .retry_per_mille = 100};
    struct sim_world *world = sim_world_create(&options);
    struct fs_file *file = data_file(world);
    struct ticker tickers[3];
    struct pump pump;
    uint64_t hash;

    for (size_t i = 0; i < 3; i++)
        ticker_open(&tickers[i], world, 1000 * (i + 1));
    pump_open(&pump, world);
    for (uint32_t i = 0; i < OPS; i++)
        pump_add(&pump, i % 2 == 0 ? IO_WRITE : IO_READ, file, i * OP_BYTES, OP_BYTES);
    pump_run(&pump);
    sim_run_for(world, 100 * 1000);
    sim_power_cut(world, SIM_CUT_SEEDED);
    hash = sim_trace_hash(world);
    sim_world_destroy(world);
    return hash;
}

static void
same_seed_gives_the_same_run_and_another_seed_another(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        uint64_t hash = busy_run(seed);
        struct sim_world *other = world_of(seed); /* Addresses are not the same again. */

        assert_true(hash == busy_run(seed));
        assert_true(hash != busy_run(seed + 1));
        sim_world_destroy(other);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_complete_out_of_order_and_late),
        cmocka_unit_test(sync_covers_only_writes_that_were_complete_before_it),
        cmocka_unit_test(write_takes_the_bytes_that_are_there_when_it_happens),
        cmocka_unit_test(misaligned_direct_transfers_are_refused),
        cmocka_unit_test(faults_of_transfers_fire_where_they_were_asked_for),
        cmocka_unit_test(spoiled_reads_differ_from_what_stands_there),
        cmocka_unit_test(nth_allocation_fails_once_or_from_then_on),
        cmocka_unit_test(life_that_ends_leaves_nothing_behind),
        cmocka_unit_test(clock_jumps_to_the_next_deadline),
        cmocka_unit_test(actor_that_is_not_woken_is_not_stepped_and_its_waiter_is_stuck),
        cmocka_unit_test(same_seed_gives_the_same_run_and_another_seed_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
