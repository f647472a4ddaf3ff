/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_world.c - the simulated world put together: clock, randomness, trace, crashes, leaks.
 */
#include "sim_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_world_internal.h"

enum {
    LOOK_NS = 20, /* What reading the clock costs, so that a caller who spins gets somewhere. */
};

static const uint64_t START_NS = UINT64_C(1000) * 1000 * 1000;
static const uint64_t WALL_NS = UINT64_C(1700000000) * 1000 * 1000 * 1000;

void
sim_panic(const struct sim_world *world, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "sim_world: seed %llu, at %llu ns: ", (unsigned long long)world->options.seed,
        (unsigned long long)world->now_ns);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    abort();
}

/* --- 1. Trace, clock, randomness -------------------------------------------------------------- */

void
sim_trace_mix(struct sim_world *world, enum sim_trace_kind kind, uint64_t fact)
{
    struct rng mixer = {.state = world->trace ^ ((uint64_t)kind << 56) ^ fact};

    world->trace = rng_next(&mixer) + world->now_ns;
}

void
sim_trace(struct sim_world *world, uint64_t kind, uint64_t fact)
{
    sim_trace_mix(world, TRACE_TEST, kind);
    sim_trace_mix(world, TRACE_TEST, fact);
}

uint64_t
sim_trace_hash(const struct sim_world *world)
{
    return world->trace;
}

uint64_t
sim_now(const struct sim_world *world)
{
    return world->now_ns;
}

void
sim_clock_jump(struct sim_world *world, uint64_t duration_ns)
{
    if (world->current != NULL)
        sim_panic(world, "the clock is made to jump inside a step");
    world->now_ns += duration_ns;
    sim_trace_mix(world, TRACE_CLOCK, world->now_ns);
}

static uint64_t
clock_now(void *context)
{
    struct sim_world *world = context;

    world->now_ns += LOOK_NS;
    return world->now_ns;
}

static uint64_t
clock_wall(void *context)
{
    const struct sim_world *world = context;

    return WALL_NS + world->now_ns;
}

static void
random_fill(void *context, void *target, size_t size)
{
    struct sim_world *world = context;
    uint8_t *to = target;

    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)rng_next(&world->random_rng);
}

static const struct clock_ops clock_ops = {.now_ns = clock_now, .wall_ns = clock_wall};
static const struct random_ops random_ops = {.fill = random_fill};

/* --- 2. Assembly ------------------------------------------------------------------------------ */

static void
env_fill(struct sim_world *world, struct kvt_env *env, struct sim_heap *heap)
{
    heap->world = world;
    *env = (struct kvt_env){
        .clock = &clock_ops,
        .clock_context = world,
        .random = &random_ops,
        .random_context = world,
        .memory = &sim_memory_ops,
        .memory_context = heap,
        .sched = &sim_sched_ops,
        .sched_context = world,
        .fs = &sim_fs_ops,
        .fs_context = world,
        .io = &sim_io_ops,
        .io_context = world,
    };
}

struct sim_world *
sim_world_create(const struct sim_options *options)
{
    struct sim_world *world = calloc(1, sizeof(*world));
    struct rng seeds = {.state = options->seed};

    if (world == NULL) {
        fprintf(stderr, "sim_world: out of memory\n");
        abort();
    }
    sim_memory_prepare();
    world->options = *options;
    world->sched_rng.state = rng_next(&seeds);
    world->io_rng.state = rng_next(&seeds);
    world->fault_rng.state = rng_next(&seeds);
    world->random_rng.state = rng_next(&seeds);
    world->cut_rng.state = rng_next(&seeds);
    world->trace = rng_next(&seeds);
    world->now_ns = START_NS;
    env_fill(world, &world->env, &world->life);
    env_fill(world, &world->outer_env, &world->outer);
    disk_init(&world->disk);
    return world;
}

static void
life_clear(struct sim_world *world)
{
    if (world->current != NULL)
        sim_panic(world, "the power is cut inside a step");
    sim_tasks_clear(world);
    sim_queues_clear(world);
    sim_handles_clear(world);
    sim_heap_clear(&world->life);
    world->life.fail_at = 0;
    world->signals_open = 0;
    sim_board_clear(world->board);
    world->stuck_count = 0;
    world->crash_at = 0;
    world->is_crashed = false;
}

void
sim_world_destroy(struct sim_world *world)
{
    if (world == NULL)
        return;
    life_clear(world);
    sim_board_free(world->board);
    if (world->guest.destroy != NULL)
        world->guest.destroy(world);
    sim_heap_clear(&world->outer);
    disk_deinit(&world->disk);
    free(world);
}

const struct kvt_env *
sim_env(struct sim_world *world)
{
    return &world->env;
}

const struct kvt_env *
sim_outer_env(struct sim_world *world)
{
    return &world->outer_env;
}

void
sim_space_set(struct sim_world *world, uint64_t space_bytes)
{
    world->options.space_bytes = space_bytes;
}

void
sim_direct_refuse(struct sim_world *world)
{
    world->options.direct_refused = true;
}

bool
sim_lies(const struct sim_world *world)
{
    return world->disk.has_lies;
}

bool
sim_crashed(const struct sim_world *world)
{
    return world->is_crashed;
}

/* --- 3. Cuts ---------------------------------------------------------------------------------- */

struct cut {
    struct rng *rng;
    enum sim_cut kind;
    uint64_t prefix; /* SIM_CUT_PREFIX: changes up to this number are kept. */
};

static enum sim_fate
cut_decide(void *context, const struct sim_change *change)
{
    const struct cut *cut = context;

    switch (cut->kind) {
    case SIM_CUT_NOTHING_KEPT:
        return FATE_DROP;
    case SIM_CUT_ALL_KEPT:
        return FATE_KEEP;
    case SIM_CUT_PREFIX:
        return change->number <= cut->prefix ? FATE_KEEP : FATE_DROP;
    case SIM_CUT_EACH:
        return rng_below(cut->rng, 2) == 0 ? FATE_KEEP : FATE_DROP;
    case SIM_CUT_TORN:
        return (enum sim_fate)rng_below(cut->rng, 3);
    case SIM_CUT_SEEDED:
        break;
    }
    return FATE_KEEP;
}

static uint64_t
oldest_unsynced(const struct sim_disk *disk)
{
    uint64_t oldest = disk->change_count;

    for (const struct sim_node *node = disk->nodes; node != NULL; node = node->next) {
        if (node->changes != NULL && node->changes->number < oldest)
            oldest = node->changes->number;
    }
    return oldest;
}

void
sim_power_cut(struct sim_world *world, enum sim_cut kind)
{
    struct cut cut = {.rng = &world->cut_rng, .kind = kind};
    uint64_t oldest;

    if (!world->is_crashed)
        sim_io_freeze(world);
    if (kind == SIM_CUT_SEEDED)
        cut.kind = (enum sim_cut)(SIM_CUT_NOTHING_KEPT + rng_below(&world->cut_rng, 5));
    oldest = oldest_unsynced(&world->disk);
    cut.prefix = oldest + rng_next(&world->cut_rng) % (world->disk.change_count - oldest + 2) - 1;
    if (world->guest.cut != NULL)
        world->guest.cut(world);
    sim_trace_mix(world, TRACE_CUT, (uint64_t)cut.kind);
    disk_cut(&world->disk, &world->cut_rng, cut_decide, &cut);
    life_clear(world);
}

void
sim_vanish(struct sim_world *world)
{
    if (world->is_crashed || sim_lies(world)) {
        sim_power_cut(world, SIM_CUT_ALL_KEPT);
        return;
    }
    sim_io_freeze(world);
    if (world->guest.cut != NULL)
        world->guest.cut(world);
    sim_trace_mix(world, TRACE_CUT, (uint64_t)SIM_CUT_ALL_KEPT);
    disk_unlock(&world->disk);
    life_clear(world);
}

/* --- 4. What a test asks ---------------------------------------------------------------------- */

uint64_t
sim_leaks(const struct sim_world *world, char *text, size_t size)
{
    uint64_t files = sim_handle_count(world);
    uint64_t dirs = sim_dir_count(world);
    uint64_t queues = sim_queue_count(world);
    uint64_t tasks = sim_task_count(world);
    uint64_t signals = (uint64_t)world->signals_open;

    if (text != NULL)
        snprintf(text, size,
            "%llu allocations, %llu files, %llu directories, %llu queues, %llu tasks, %llu signals",
            (unsigned long long)world->life.count, (unsigned long long)files,
            (unsigned long long)dirs, (unsigned long long)queues, (unsigned long long)tasks,
            (unsigned long long)signals);
    return world->life.count + files + dirs + queues + tasks + signals;
}

bool
sim_file_exists(struct sim_world *world, const char *path)
{
    return disk_find_path(&world->disk, path) != NULL;
}

uint64_t
sim_change_count(const struct sim_world *world)
{
    return world->disk.change_count + world->guest.change_count;
}

bool
sim_file_corrupt(struct sim_world *world, const char *path, uint64_t offset, uint64_t size)
{
    struct sim_node *node = disk_find_path(&world->disk, path);

    if (node == NULL || node->is_directory)
        return false;
    for (uint64_t at = offset; at < offset + size; at++) {
        uint8_t byte;

        image_read(&node->current, at, &byte, 1);
        byte ^= (uint8_t)(1 + rng_below(&world->fault_rng, 255));
        disk_write(&world->disk, node, &byte, at, 1);
    }
    disk_sync(node, UINT64_MAX);
    return true;
}
