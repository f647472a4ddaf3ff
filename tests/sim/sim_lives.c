/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lives.c - whole lives of a store in one simulated world, on one disk or two, with HBM or
 * without: random operations, faults of disks, devices and memory, power cuts at random moments
 * (also while it opens, or rebuilds its index), kills, lost indexes; after each of them everything
 * that was acknowledged is there, nothing that was deleted comes back, and every byte is right.
 *
 * --seed N --seeds N --ops N (operations in one life, at most).
 *
 * Says at its end how many operations the seeds took (what is repeated counts once), how often a
 * store was audited (store_audit.h), and the hash of all their traces, which is the same for every
 * build.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reclaim.h"
#include "seeds.h"
#include "sim_store.h"
#include "store_host.h"
#include "workload.h"

enum {
    LIVES = 4,              /* With trouble; one in peace follows. */
    REPEAT_EVERY = 30,      /* One seed in so many runs twice. */
    REBUILD_IO = 240,       /* Operations of the disk, at most, before an open's power goes. */
    AFTER_RECLAIM = 8,      /* Steps, at most, behind one that met a reclaim. */
    MAP_MORE = 100,         /* Entries of a small map, at most, beyond the least. */
    PIN_PAGES = 64,         /* That may be pinned, at most, where it is few. */
    GROWTHS_MAX = 3,        /* Of NVMe, between two lives, by: */
    GROWTH_BYTES = 1 << 20, /* A segment. */
    SMALL_LIFE = 600,       /* Operations, at most, of a life in small tiers when fewer are asked
                             * for: NVMe has to be full. */
};

/* What a seed's tiers are like. */
enum shape {
    SHAPE_LARGE, /* All that is put stays. */
    SHAPE_SMALL, /* It evicts, and reclaims segments. */
    SHAPE_TIGHT, /* All stays, but not in HOST, where room is waited for. */
    SHAPE_UPPER, /* As SMALL, but what leaves NVMe stays in HOST. */
    SHAPE_MAP,   /* As LARGE or SMALL, but for the map, for which blocks are evicted. */
    SHAPES,
};

/* How a life ends. */
enum ending {
    END_CLOSE,
    END_CUT,        /* The power goes between two calls. */
    END_RECLAIM,    /* The same, behind a delete beside a reclaim, or soon after that began. */
    END_KILL,       /* The process goes, the machine stays. */
    END_CRASH,      /* The power goes at some io operation. */
    END_CRASH_OPEN, /* The same, early: mostly while it opens. */
    END_ABORT,      /* With requests in flight. */
    ENDINGS,
};

static const char *const roots[] = {"/first", "/second"};
static const char *const data_paths[] = {"/first/data.00", "/second/data.00"};

struct lives {
    struct workload *work;
    struct sim_host host;
    struct rng rng;
    bool is_rebuilt;    /* The index was lost since everything was last read in peace. */
    bool trusts_lies;   /* A rebuild found what is not on the disk. */
    bool writes_arrive; /* What fails is on the disk all the same. */
    bool reads_fail;    /* In this life. */
    bool reads_lie;
    bool memory_fails;  /* In this life, now and then. */
    bool is_in_order;   /* The last life ended so, without trouble. */
    bool was_reclaimed; /* A segment of the last life was, when that ended. */
    enum sim_cut cut;   /* How the power goes. */
    bool has_roots;     /* Two, each on a disk of its own. */
    bool has_hbm;
    uint32_t growth_left;    /* How often NVMe may still become larger. */
    uint32_t spread_percent; /* The workload's, in each life. */
    bool holds_all; /* Nothing leaves HOST for want of room: not even what NVMe does not take. */
};

/* Whether nothing is dropped in this life, whatever fails. */
static bool
keeps_all(const struct lives *lives)
{
    return lives->holds_all && !lives->reads_lie && !lives->work->loses_devices;
}

/* Faults of a life. Wrong bytes make the store drop what it reads: then anything may be gone. */
static void
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
static void
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
static void
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
static void
memory_fails(struct lives *lives)
{
    lives->memory_fails = lives->work->is_faulty = true;
    lives->work->keeps = keeps_all(lives);
    if (rng_below(&lives->rng, 2) == 0)
        sim_memory_fail(
            lives->host.world, 1 + rng_below(&lives->rng, 400), rng_below(&lives->rng, 4) == 0);
}

/* Before a step: one allocation will fail, or all from one on, or none any more. */
static void
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
static void
rebuild_trouble(struct lives *lives)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_EIO, .nth = 1 + rng_below(&lives->rng, 100)};

    lives->work->is_faulty = true;
    lives->work->keeps = keeps_all(lives);
    sim_rule_add(lives->host.world, &rule);
}

/* What may be another one in each life: the policy, whether HBM is a tier or devices are there for
 * the caller's memory alone, how large the store has become. */
static void
options_vary(struct lives *lives)
{
    struct kvt_options *options = &lives->host.options;

    options->policy = KVT_POLICY_LRU + rng_below(&lives->rng, 3);
    if (lives->has_hbm && rng_below(&lives->rng, 4) == 0)
        options->hbm_capacity_bytes = KVT_CAPACITY_NONE;
    else if (lives->has_hbm)
        host_options_add_hbm(options);
    if (lives->growth_left > 0 && rng_below(&lives->rng, 6) == 0) {
        /* Each of two roots by half of that: every second time by a whole one. */
        options->nvme_capacity_bytes += GROWTH_BYTES;
        lives->growth_left--;
    }
}

/* A rebuild believes what it reads, also what a failed sync has lost, its own or one before: it
 * lasts until the power goes. */
static void
lies_note(struct lives *lives)
{
    lives->trusts_lies = lives->trusts_lies || (lives->is_rebuilt && sim_lies(lives->host.world));
}

/* When the index is lost and headers cannot be read either, or a header was read wrong that had
 * kills, deleted blocks may come back (FORMAT.md section 6): no run has both. Nor may a block be
 * lost with its header, where an index counts on one that a failed sync has lost. */
static bool
may_rebuild(const struct lives *lives)
{
    return !lives->reads_fail && !lives->work->headers_may_lie && !lives->work->finds_damage;
}

static bool
life_open(struct lives *lives)
{
    uint32_t flags = 0;
    enum kvt_status status;

    bool was_faulty = lives->work->is_faulty;

    options_vary(lives);
    lives->work->device_percent = lives->has_hbm ? 60 : 0;
    lives->work->spread_percent = lives->spread_percent;
    if (rng_below(&lives->rng, 6) == 0 && may_rebuild(lives))
        sim_index_damage(lives->host.world);
    else if (rng_below(&lives->rng, 12) == 0 && may_rebuild(lives))
        flags = KVT_OPEN_REBUILD;
    lives->is_rebuilt = lives->is_rebuilt || flags != 0 || sim_index_is_damaged(lives->host.world);
    if ((flags != 0 || sim_index_is_damaged(lives->host.world)) && rng_below(&lives->rng, 2) == 0)
        rebuild_trouble(lives);
    status = workload_open(lives->work, flags, lives->is_rebuilt);
    lies_note(lives);
    if (status != KVT_OK)
        return false;
    if (!was_faulty && lives->work->is_faulty && flags == 0) {
        sim_rules_clear(lives->host.world);
        workload_calm(lives->work);
    }
    if (lives->has_hbm && rng_below(&lives->rng, 2) == 0)
        sim_store_narrow(lives->work->store);
    /* Read in peace: from here on only the index counts again. */
    if (!lives->work->is_faulty && !sim_crashed(lives->host.world))
        lives->is_rebuilt = false;
    return true;
}

static void
leaks_judge(struct lives *lives)
{
    struct model *model = &lives->work->model;
    char leaks[200];

    if (model->failure[0] == '\0' && sim_leaks(lives->host.world, leaks, sizeof(leaks)) != 0)
        model_fail(model, "left behind: %s", leaks);
}

static void
life_end(struct lives *lives, enum ending ending)
{
    struct workload *work = lives->work;
    bool was_crashed = sim_crashed(lives->host.world);
    bool is_ended = !was_crashed && (ending == END_CLOSE || ending == END_ABORT);

    lives->is_in_order = false;
    if (!was_crashed && work->store != NULL &&
        (ending == END_CUT || ending == END_RECLAIM || ending == END_KILL))
        workload_remember(work, sim_store_evicted);
    if (is_ended) {
        if (ending == END_CLOSE)
            lives->is_in_order = workload_close(work) == KVT_OK && !work->is_faulty;
        else
            kvt_abort(work->store);
        leaks_judge(lives);
    }
    if (!sim_crashed(lives->host.world) && (ending == END_KILL || ending == END_ABORT))
        sim_host_vanish(&lives->host);
    else if (ending != END_CLOSE || sim_crashed(lives->host.world))
        sim_host_power_cut(&lives->host, lives->cut);
    if ((ending != END_CLOSE || was_crashed) && lives->trusts_lies) {
        model_doubt_all(&work->model);
        work->finds_damage = true;
        lives->trusts_lies = false;
    }
    workload_abandon(work);
    sim_rules_clear(lives->host.world);
    sim_crash_after(lives->host.world, 0);
    sim_memory_fail(lives->host.world, 0, false);
    lives->host.device.fail_call = 0;
    /* What was acknowledged in this life may have been dropped in it, too. */
    if (lives->reads_lie)
        model_doubt_all(&work->model);
    work->is_faulty = work->keeps = work->loses_devices = false;
    lives->reads_fail = lives->reads_lie = lives->memory_fails = false;
}

/* It was closed in order: whoever reads it only changes nothing on the disk, and does not even try
 * to. */
static void
closed_look(struct lives *lives)
{
    static const struct sim_rule changes = {.ops = SIM_WRITE | SIM_SYNC | SIM_DIR_SYNC |
                                                   SIM_RENAME | SIM_UNLINK | SIM_ALLOCATE |
                                                   SIM_TRUNCATE | SIM_COMMIT,
        .effect = SIM_EIO,
        .nth = 1,
        .sticky = true};
    uint64_t before = sim_fault_count(lives->host.world);

    if (!lives->is_in_order || lives->work->model.failure[0] != '\0')
        return;
    sim_rule_add(lives->host.world, &changes);
    workload_closed(lives->work);
    sim_rules_clear(lives->host.world);
    if (sim_fault_count(lives->host.world) != before)
        model_fail(&lives->work->model, "a store that is read only writes");
    leaks_judge(lives);
}

/* The power goes once or twice while an open rebuilds the index, or soon after: the next one has
 * what that has left. Headers that were hidden, kills that were written: any part of it. */
static void
rebuilds_cut(struct lives *lives)
{
    uint32_t count = 1 + rng_below(&lives->rng, 2);

    for (uint32_t i = 0; i < count && lives->work->model.failure[0] == '\0'; i++) {
        uint32_t flags = rng_below(&lives->rng, 4) == 0 ? KVT_OPEN_REBUILD : 0;

        if (flags == 0)
            sim_index_damage(lives->host.world);
        lives->is_rebuilt = true;
        lives->cut = rng_below(&lives->rng, 2) == 0 ? SIM_CUT_EACH : SIM_CUT_TORN;
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, REBUILD_IO));
        (void)workload_open(lives->work, flags, true);
        lies_note(lives);
        life_end(lives, END_CUT);
    }
    lives->cut = SIM_CUT_SEEDED;
}

/* A segment is being reclaimed: the power goes after a few operations of the disk, or one of these
 * fails, and it goes after a few steps. Returns how many there are at most. */
static uint32_t
reclaim_meet(struct lives *lives)
{
    static const unsigned ops[3] = {SIM_WRITE, SIM_SYNC, SIM_COMMIT};
    struct sim_rule rule = {.effect = SIM_EIO};

    rule.ops = ops[rng_below(&lives->rng, 3)];
    rule.nth = 1 + rng_below(&lives->rng, 4);
    if (rng_below(&lives->rng, 2) == 0) {
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, 24));
    } else {
        lives->work->is_faulty = true;
        sim_rule_add(lives->host.world, &rule);
    }
    return 1 + rng_below(&lives->rng, AFTER_RECLAIM);
}

static void
life(struct lives *lives, uint32_t operation_count)
{
    /* Between a victim that is empty and the index that knows of it. */
    static const struct sim_rule slow_commits = {.ops = SIM_COMMIT,
        .effect = SIM_STALL,
        .nth = 1,
        .sticky = true,
        .stall_ns = 30 * 1000 * 1000};
    enum ending ending = (enum ending)rng_below(&lives->rng, ENDINGS);
    uint32_t count = 1 + rng_below(&lives->rng, operation_count);
    bool has_met = false;
    bool is_open;

    if (may_rebuild(lives) && rng_below(&lives->rng, lives->was_reclaimed ? 2 : 8) == 0)
        rebuilds_cut(lives);
    if (rng_below(&lives->rng, 3) == 0)
        faults_choose(lives);
    if (lives->has_roots && rng_below(&lives->rng, 8) == 0)
        disk_fails(lives);
    if (lives->has_hbm && rng_below(&lives->rng, 8) == 0)
        device_fails(lives);
    if (rng_below(&lives->rng, 8) == 0)
        memory_fails(lives);
    if (ending == END_RECLAIM && rng_below(&lives->rng, 2) == 0)
        sim_rule_add(lives->host.world, &slow_commits);
    if (ending == END_CRASH_OPEN)
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, 60));
    if (ending == END_CRASH)
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, 800));
    is_open = life_open(lives);
    if (ending == END_ABORT && is_open)
        workload_memory_close(lives->work);
    for (uint32_t i = 0; i < count && is_open && !sim_crashed(lives->host.world); i++) {
        bool is_busy = ending == END_RECLAIM && !reclaim_is_idle(lives->work->store);
        bool is_delete = is_busy && rng_below(&lives->rng, 4) == 0;

        if (lives->memory_fails)
            memory_vary(lives);
        if (is_delete ? !workload_step_delete(lives->work) : !workload_step(lives->work))
            return;
        if (is_delete && rng_below(&lives->rng, 4) == 0)
            break;
        if (is_busy && !has_met && rng_below(&lives->rng, 16) == 0) {
            count = i + 1 + reclaim_meet(lives);
            has_met = true;
        }
    }
    lives->was_reclaimed = lives->work->store != NULL && !reclaim_is_idle(lives->work->store);
    life_end(lives, ending);
    if (rng_below(&lives->rng, 2) == 0)
        closed_look(lives);
}

static void
last_life(struct lives *lives)
{
    if (!life_open(lives))
        return;
    for (uint32_t i = 0; i < 20; i++) {
        if (!workload_step(lives->work))
            return;
    }
    life_end(lives, END_CLOSE);
    if (lives->work->model.failure[0] != '\0' || !life_open(lives))
        return;
    life_end(lives, END_CLOSE);
    if (sim_stuck(lives->host.world))
        model_fail(&lives->work->model, "a caller waited while nothing could happen");
}

/* What one seed came to. */
struct course {
    uint64_t hash;
    uint64_t operation_count, audit_count;
    char failure[MODEL_FAILURE_BYTES]; /* Empty: none. */
};

static struct kvt_options
options_choose(struct lives *lives, enum shape shape, bool is_small)
{
    struct kvt_options options = is_small ? host_options_small() : host_options_large();

    if (shape == SHAPE_LARGE)
        options.host_capacity_bytes = 12 << 20;
    if (shape == SHAPE_UPPER)
        options.host_capacity_bytes = 24 << 20;
    if (shape == SHAPE_TIGHT)
        options.host_capacity_bytes = 4 << 20;
    if (shape == SHAPE_MAP)
        options.entry_count_max = SMALL_MAP + rng_below(&lives->rng, MAP_MORE);
    if (rng_below(&lives->rng, 3) == 0)
        options.pin_bytes_max = (uint64_t)(1 + rng_below(&lives->rng, PIN_PAGES)) << 12;
    if (lives->has_roots) {
        options.roots = roots;
        options.root_count = 2;
        if (is_small)
            options.nvme_capacity_bytes *= 2; /* 8 segments of a root are the least. */
    }
    if (lives->has_hbm)
        options.device_mask = 1 + 2 * rng_below(&lives->rng, 2);
    return options;
}

static void
run(uint64_t seed, uint32_t operation_count, struct course *course)
{
    struct lives lives = {.rng.state = seed * 0x9E3779B97F4A7C15u, .writes_arrive = seed % 4 == 1};
    enum shape shape = (enum shape)rng_below(&lives.rng, SHAPES);
    bool is_small =
        shape == SHAPE_SMALL || shape == SHAPE_UPPER || (shape == SHAPE_MAP && seed % 3 > 0);
    struct sim_options world = {
        .seed = seed,
        .align_bytes = seed % 2 == 0 ? 512 : 4096,
        .short_per_mille = seed % 3 == 0 ? 20 : 0,
        .retry_per_mille = seed % 5 == 0 ? 20 : 0,
        .latency_ns_max = seed % 4 == 0 ? 20 * 1000 * 1000 : 0,
    };
    struct workload_host reach;
    struct kvt_options options;

    lives.has_roots = rng_below(&lives.rng, 3) == 0;
    lives.has_hbm = rng_below(&lives.rng, 3) == 0;
    lives.spread_percent = rng_below(&lives.rng, 2) == 0 ? 25 : 0;
    lives.growth_left = rng_below(&lives.rng, GROWTHS_MAX + 1);
    lives.holds_all = shape == SHAPE_LARGE;
    options = options_choose(&lives, shape, is_small);
    lives.work = calloc(1, sizeof(*lives.work));
    assert_non_null(lives.work);
    sim_host_init(&lives.host, &world, &options);
    reach = sim_host_of(&lives.host);
    workload_init(lives.work, &reach, seed, is_small ? SMALL_KEYS : LARGE_KEYS,
        is_small ? SMALL_SHIFT : LARGE_SHIFT);
    lives.work->evicts = is_small || shape == SHAPE_MAP;
    if (is_small && operation_count < SMALL_LIFE)
        operation_count = SMALL_LIFE;
    for (uint32_t i = 0; i < LIVES && lives.work->model.failure[0] == '\0'; i++)
        life(&lives, operation_count);
    if (lives.work->model.failure[0] == '\0')
        last_life(&lives);
    course->hash = sim_trace_hash(lives.host.world);
    course->operation_count = lives.work->operation_count;
    course->audit_count = lives.work->audit_count;
    snprintf(course->failure, sizeof(course->failure), "%s", lives.work->model.failure);
    sim_host_deinit(&lives.host);
    workload_abandon(lives.work);
    free(lives.work);
}

/* What the two tests share. */
struct courses {
    struct seeds seeds;
    uint64_t *hashes; /* Of the seeds that run twice, as far as the first test came. */
    uint64_t hash_count;
    uint64_t seed_count; /* That were run, and their operations. */
    uint64_t operation_count;
    uint64_t audit_count; /* Of stores at rest. */
    uint64_t trace;       /* Of all seeds. */
};

static void
acknowledged_blocks_survive_and_deleted_ones_stay_away(void **state)
{
    struct courses *courses = *state;
    const struct seeds *seeds = &courses->seeds;
    struct course course;

    for (uint64_t i = 0; i < seeds->count; i++) {
        run(seeds->first + i, seeds->operation_count, &course);
        courses->seed_count++;
        courses->operation_count += course.operation_count;
        courses->audit_count += course.audit_count;
        courses->trace = courses->trace * UINT64_C(0x9E3779B97F4A7C15) + course.hash;
        if (course.failure[0] != '\0') {
            seeds_report(seeds, "lives", seeds->first + i, course.failure);
            fail();
        }
        if (i % REPEAT_EVERY == 0)
            courses->hashes[courses->hash_count++] = course.hash;
    }
    /* In one life all may be in trouble. */
    assert_true(courses->audit_count > 0 || seeds->count < REPEAT_EVERY);
}

static void
same_seed_gives_the_same_trace(void **state)
{
    const struct courses *courses = *state;
    const struct seeds *seeds = &courses->seeds;
    struct course course;

    for (uint64_t i = 0; i < courses->hash_count; i++) {
        uint64_t seed = seeds->first + i * REPEAT_EVERY;
        struct sim_options options = {.seed = seed};
        struct sim_world *other = sim_world_create(&options); /* Other addresses this time. */

        run(seed, seeds->operation_count, &course);
        if (course.hash != courses->hashes[i]) {
            seeds_report(seeds, "lives", seed, "two runs took two courses");
            fail();
        }
        sim_world_destroy(other);
    }
}

int
main(int argc, char **argv)
{
    struct courses courses = {.seeds = {.first = 1, .count = 140, .operation_count = 120}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(acknowledged_blocks_survive_and_deleted_ones_stay_away, &courses),
        cmocka_unit_test_prestate(same_seed_gives_the_same_trace, &courses),
    };
    int failed_count;

    if (!seeds_parse(&courses.seeds, argc, argv))
        return 2;
    courses.hashes = calloc(courses.seeds.count / REPEAT_EVERY + 1, sizeof(courses.hashes[0]));
    if (courses.hashes == NULL)
        return 2;
    failed_count = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%llu operations in %llu lives, %llu audits, traces %016llx\n",
        (unsigned long long)courses.operation_count, (unsigned long long)courses.seed_count,
        (unsigned long long)courses.audit_count, (unsigned long long)courses.trace);
    free(courses.hashes);
    return failed_count;
}
