/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives_troubles.c - what goes wrong in a life of lives.h: disks, devices, memory, time.
 */
#include "lives.h"
#include "store_inside.h"

enum {
    TROUBLE_STEPS = 40, /* A disk is ill for so many, at most. */
    TROUBLES_COUNT = 6, /* Kinds. */
    PAUSE_STEPS = 500 * 1000,
    TIME_EVERY = 40, /* Steps, on average, in a life whose time jumps. */
};

static const uint64_t SECOND_NS = UINT64_C(1000) * 1000 * 1000;

/* Longer than a disk that was full is left alone (engine/ARCHITECTURE.md, section 7). */
static const uint64_t PAUSE_NS = UINT64_C(40) * 1000 * 1000 * 1000;

static const char *const data_paths[] = {"/first/data.00", "/second/data.00"};

/* Whether nothing is dropped in this life, whatever fails. */
static bool
keeps_all(const struct lives *lives)
{
    return lives->holds_all && !lives->reads_lie && !lives->work->loses_devices;
}

/* Faults of a life. Wrong bytes make the store drop what it reads: then anything may be gone. */
void
faults_choose(struct lives *lives)
{
    enum {
        OF_WRITES = 6, /* The first rules, which reads do not meet; ... */
        TRUTHFUL = 9,  /* ... and those with which no read brings wrong bytes. */
    };
    static const struct sim_rule rules[] = {
        {.ops = SIM_WRITE, .effect = SIM_EIO, .per_mille = 30},
        {.ops = SIM_WRITE, .effect = SIM_TORN, .per_mille = 30},
        {.ops = SIM_WRITE, .effect = SIM_ENOSPC, .per_mille = 30},
        {.ops = SIM_SYNC, .effect = SIM_EIO, .per_mille = 50},
        {.ops = SIM_COMMIT, .effect = SIM_EIO, .per_mille = 30},
        {.ops = SIM_COMMIT, .effect = SIM_ENOSPC, .per_mille = 30},
        {.ops = SIM_READ, .effect = SIM_EIO, .per_mille = 30},
        {.ops = SIM_READ, .effect = SIM_ENOMEM, .per_mille = 30},
        {.ops = SIM_ALL, .effect = SIM_STALL, .per_mille = 20, .stall_ns = 50 * 1000 * 1000},
        {.ops = SIM_READ, .effect = SIM_FLIP, .per_mille = 30, .file = "data."},
        {.ops = SIM_READ, .effect = SIM_MISDIRECT, .per_mille = 30, .file = "data."},
        {.ops = SIM_READ, .effect = SIM_STALE, .per_mille = 30, .file = "data."},
    };
    static const struct sim_rule arrives = {
        .ops = SIM_WRITE, .effect = SIM_ARRIVES, .per_mille = 60, .file = "data."};
    uint32_t choice = rng_below(&lives->rng, sizeof(rules) / sizeof(rules[0]));
    uint32_t second = rng_below(&lives->rng, TRUTHFUL);

    if (sim_index_is_damaged(lives->host.world) || lives->is_rebuilt) {
        /* A rebuild comes, or one whose open failed begins anew: without faults of reads
         * (life_open). */
        choice %= OF_WRITES;
        second %= OF_WRITES;
    }
    /* Who waits for long is told nothing but the truth. */
    lives->work->is_faulty = rules[choice].effect != SIM_STALL || lives->writes_arrive;
    sim_rule_add(lives->host.world, &rules[choice]);
    if (lives->writes_arrive)
        sim_rule_add(lives->host.world, &arrives);
    lives->reads_fail = (rules[choice].ops == SIM_READ);
    if (rng_below(&lives->rng, 3) == 0) {
        sim_rule_add(lives->host.world, &rules[second]);
        lives->work->is_faulty = lives->work->is_faulty || rules[second].effect != SIM_STALL;
        lives->reads_fail = lives->reads_fail || rules[second].ops == SIM_READ;
    }
    lives->reads_lie = choice >= TRUTHFUL;
    lives->work->keeps = keeps_all(lives);
    lives->work->headers_may_lie = lives->work->headers_may_lie || lives->reads_lie;
    if (lives->reads_lie)
        model_doubt_all(&lives->work->model);
}

/* One of two disks takes no writes any more, or none of its syncs succeeds. */
void
disk_fails(struct lives *lives)
{
    static const unsigned ops[3] = {SIM_WRITE, SIM_SYNC, SIM_WRITE | SIM_SYNC};
    struct sim_rule rule = {.effect = SIM_EIO, .sticky = true};

    rule.ops = ops[rng_below(&lives->rng, 3)];
    rule.path = data_paths[rng_below(&lives->rng, 2)];
    rule.nth = 1 + rng_below(&lives->rng, 60);
    lives->work->is_faulty = true;
    sim_rule_add(lives->host.world, &rule);
}

/* A call of a device fails, and most of these take the device with them. */
void
device_fails(struct lives *lives)
{
    static const enum kvt_status statuses[3] = {KVT_E_GPU, KVT_E_GPU, KVT_E_NOMEM};
    struct device_host_config *device = &lives->host.device;

    device->fail_status = statuses[rng_below(&lives->rng, 3)];
    device->fail_call = device->call_count + 1 + rng_below(&lives->rng, 2000);
    lives->work->is_faulty = lives->work->loses_devices = true;
    lives->work->keeps = keeps_all(lives);
}

/* Allocations fail in this life; half of these begin with one of the open. */
void
memory_fails(struct lives *lives)
{
    lives->memory_fails = lives->work->is_faulty = true;
    lives->work->keeps = keeps_all(lives);
    if (rng_below(&lives->rng, 2) == 0)
        sim_memory_fail(
            lives->host.world, 1 + rng_below(&lives->rng, 400), rng_below(&lives->rng, 4) == 0);
}

/* Before a step: one allocation will fail, or all from one on, or none any more. */
void
memory_vary(struct lives *lives)
{
    uint32_t choice = rng_below(&lives->rng, 32);

    if (choice == 0)
        sim_memory_fail(lives->host.world, 1 + rng_below(&lives->rng, 64), false);
    else if (choice == 1)
        sim_memory_fail(lives->host.world, 1 + rng_below(&lives->rng, 24), true);
    else if (choice < 8)
        sim_memory_fail(lives->host.world, 0, false);
}

/* One read fails, mostly of the rebuild that comes: nothing is lost for that, and nothing comes
 * back; or the open is refused. */
void
rebuild_trouble(struct lives *lives)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_EIO, .nth = 1 + rng_below(&lives->rng, 100)};

    lives->work->is_faulty = true;
    lives->work->keeps = keeps_all(lives);
    sim_rule_add(lives->host.world, &rule);
}

/* --- In mid-life ------------------------------------------------------------------------------ */

void
troubles_choose(struct lives *lives, uint32_t step_count)
{
    static const struct sim_rule rules[TROUBLES_COUNT] = {
        {.ops = SIM_WRITE, .effect = SIM_EIO},
        {.ops = SIM_SYNC, .effect = SIM_EIO},
        {.ops = SIM_WRITE | SIM_SYNC, .effect = SIM_EIO},
        {.ops = SIM_READ, .effect = SIM_EIO},
        {.ops = SIM_READ | SIM_WRITE | SIM_SYNC, .effect = SIM_EIO},
        {.ops = SIM_WRITE, .effect = SIM_ENOSPC},
    };
    bool is_both = lives->has_roots && rng_below(&lives->rng, 4) == 0;

    lives->trouble_count = 1 + rng_below(&lives->rng, TROUBLES_MAX);
    for (uint32_t i = 0; i < lives->trouble_count; i++) {
        struct trouble *trouble = &lives->troubles[i];

        *trouble = (struct trouble){.rule = rules[rng_below(&lives->rng, TROUBLES_COUNT)],
            .from = rng_below(&lives->rng, step_count)};
        trouble->until = trouble->from + 1 + rng_below(&lives->rng, TROUBLE_STEPS);
        trouble->is_full = trouble->rule.effect == SIM_ENOSPC;
        /* All that they are asked for, or some of it. */
        trouble->rule.nth = rng_below(&lives->rng, 2);
        trouble->rule.sticky = trouble->rule.nth == 1;
        trouble->rule.per_mille = 300;
        trouble->rule.file = rng_below(&lives->rng, 4) == 0 ? NULL : "data.";
        if (lives->has_roots && !is_both)
            trouble->rule.path = data_paths[rng_below(&lives->rng, 2)];
    }
}

/* The rules of those that are ill now, and no others. */
static void
troubles_set(struct lives *lives)
{
    bool is_full = false;

    sim_rules_clear(lives->host.world);
    for (uint32_t i = 0; i < lives->trouble_count; i++) {
        const struct trouble *trouble = &lives->troubles[i];

        if (!trouble->is_on)
            continue;
        sim_rule_add(lives->host.world, &trouble->rule);
        is_full = is_full || trouble->is_full;
        lives->reads_fail = lives->reads_fail || (trouble->rule.ops & SIM_READ) != 0;
    }
    sim_space_set(lives->host.world, is_full ? 1 : 0); /* One byte, or a TiB. */
}

/* The steps of a pause in which nobody asks for anything are few. */
struct pause {
    const struct sim_world *world;
    uint64_t step_limit;
};

static bool
pause_is_restless(void *context)
{
    const struct pause *pause = context;

    return sim_step_count(pause->world) > pause->step_limit;
}

/* All disks are well again. */
static void
troubles_end(struct lives *lives)
{
    struct sim_world *world = lives->host.world;
    struct pause pause = {.world = world, .step_limit = sim_step_count(world) + PAUSE_STEPS};

    if (sim_run(world, pause_is_restless, &pause, sim_now(world) + PAUSE_NS) == SIM_DONE)
        model_fail(&lives->work->model, "disks are well again, and the store never comes to rest");
    else if (!sim_crashed(world))
        workload_heal(lives->work, store_has_lost_root(lives->work->store));
}

void
troubles_step(struct lives *lives, uint32_t step)
{
    bool was_on = false, is_on = false, is_new = false;

    for (uint32_t i = 0; i < lives->trouble_count; i++) {
        struct trouble *trouble = &lives->troubles[i];
        bool is_time = step >= trouble->from && step < trouble->until;

        was_on = was_on || trouble->is_on;
        is_on = is_on || is_time;
        is_new = is_new || trouble->is_on != is_time;
        trouble->is_on = is_time;
    }
    if (!is_new)
        return;
    troubles_set(lives);
    if (is_on) {
        lives->work->is_faulty = true;
        lives->work->keeps = keeps_all(lives);
    } else if (was_on) {
        troubles_end(lives);
    }
}

/* --- Time ------------------------------------------------------------------------------------- */

void
time_choose(struct lives *lives)
{
    static const unsigned ops[4] = {SIM_READ, SIM_WRITE, SIM_SYNC, SIM_COMMIT};
    struct sim_rule rule = {.effect = SIM_STALL, .stall_ns = 30 * SECOND_NS};

    lives->time_jumps = true;
    for (uint32_t i = 0; i < 2; i++) {
        rule.ops = ops[rng_below(&lives->rng, 4)];
        rule.nth = 1 + rng_below(&lives->rng, 60);
        sim_rule_add(lives->host.world, &rule);
    }
}

void
time_step(struct lives *lives)
{
    uint32_t choice;
    uint64_t duration_ns;

    if (!lives->time_jumps || rng_below(&lives->rng, TIME_EVERY) != 0)
        return;
    choice = rng_below(&lives->rng, 16);
    duration_ns = (choice < 12 ? 70 : 3600) * SECOND_NS;
    /* Everybody finds it later than the time they wait for, or all times come one by one. */
    if (choice % 4 > 0)
        sim_clock_jump(lives->host.world, duration_ns);
    else
        (void)sim_run_for(lives->host.world, duration_ns);
}
