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

#include "lives.h"
#include "reclaim.h"
#include "seeds.h"
#include "sim_store.h"
#include "workload_counts.h"

enum {
    LIVES = 4,              /* With trouble; one in peace follows. */
    REPEAT_EVERY = 30,      /* One seed in so many runs twice. */
    COUNTED_SEEDS = 140,    /* In so many chance has had its turn: all was there to be judged. */
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
    uint32_t existing =
        lives->work->is_made && rng_below(&lives->rng, 4) == 0 ? KVT_OPEN_EXISTING : 0;
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
    status = workload_open(lives->work, flags | existing, lives->is_rebuilt);
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

    /* What is only read may be known to the index alone: a rebuild finds what a crash left. */
    if (!was_crashed && work->store != NULL && !work->is_read_only &&
        (ending == END_CUT || ending == END_RECLAIM || ending == END_KILL))
        workload_remember(work, sim_store_evicted);
    if (work->store != NULL && lives->reads_fail && sim_store_kills_lost(work->store) > 0)
        work->headers_may_lie = true;
    if (is_ended) {
        if (ending == END_CLOSE)
            (void)workload_close(work);
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
    sim_space_set(lives->host.world, 0);
    lives->trouble_count = 0;
    sim_crash_after(lives->host.world, 0);
    sim_memory_fail(lives->host.world, 0, false);
    lives->host.device.fail_call = 0;
    /* What was acknowledged in this life may have been dropped in it, too. */
    if (lives->reads_lie)
        model_doubt_all(&work->model);
    work->is_faulty = work->keeps = work->loses_devices = false;
    lives->reads_fail = lives->reads_lie = lives->memory_fails = lives->time_jumps = false;
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

/* What goes wrong all life long. */
static void
lasting_choose(struct lives *lives)
{
    if (rng_below(&lives->rng, 3) == 0)
        faults_choose(lives);
    if (lives->has_roots && rng_below(&lives->rng, 8) == 0)
        disk_fails(lives);
    if (lives->has_hbm && rng_below(&lives->rng, 8) == 0)
        device_fails(lives);
    if (rng_below(&lives->rng, 8) == 0)
        memory_fails(lives);
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
    if (rng_below(&lives->rng, 5) == 0)
        troubles_choose(lives, count);
    else
        lasting_choose(lives);
    if (rng_below(&lives->rng, 6) == 0)
        time_choose(lives);
    if (ending == END_RECLAIM && rng_below(&lives->rng, 2) == 0)
        sim_rule_add(lives->host.world, &slow_commits);
    if (ending == END_CRASH_OPEN)
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, 60));
    if (ending == END_CRASH)
        sim_crash_after(lives->host.world, 1 + rng_below(&lives->rng, 800));
    is_open = life_open(lives);
    if (ending == END_ABORT && lives->work->store != NULL)
        workload_memory_close(lives->work);
    for (uint32_t i = 0; i < count && is_open && !sim_crashed(lives->host.world); i++) {
        bool is_busy = ending == END_RECLAIM && !reclaim_is_idle(lives->work->store);
        bool is_delete = is_busy && rng_below(&lives->rng, 4) == 0;

        if (lives->memory_fails)
            memory_vary(lives);
        troubles_step(lives, i);
        time_step(lives);
        if (is_delete ? !workload_step_delete(lives->work) : !workload_step(lives->work))
            return;
        if (is_delete && rng_below(&lives->rng, 4) == 0)
            break;
        if (is_busy && !has_met && rng_below(&lives->rng, 16) == 0) {
            lives->trouble_count = 0;
            count = i + 1 + reclaim_meet(lives);
            has_met = true;
        }
    }
    /* What a flush has told is there, also of requests whose ticket is gone. */
    if (ending == END_CUT && is_open && !sim_crashed(lives->host.world) &&
        rng_below(&lives->rng, 4) == 0)
        workload_flush(lives->work);
    lives->was_reclaimed = lives->work->store != NULL && !reclaim_is_idle(lives->work->store);
    life_end(lives, ending);
}

/* A store whose index is lost refuses to be opened for reading only; so may one that was not wholly
 * made, or has a new index that may not be finished. False: it does. */
static bool
read_only_opens(struct lives *lives)
{
    struct workload *work = lives->work;
    bool is_lost = sim_index_is_damaged(lives->host.world);
    enum kvt_status status;

    if (work->is_made && !is_lost && !lives->is_rebuilt)
        return true;
    status = work->host.open(work->host.context, KVT_OPEN_READ_ONLY, &work->store);
    sim_trace(lives->host.world, 45, (uint64_t)status);
    if (status == KVT_OK ? work->is_made && is_lost
                         : status != KVT_E_CORRUPT && (work->is_made || status != KVT_MISS))
        model_fail(&work->model, "a store without an index, or that is not there, is read: %s",
            kvt_status_name(status));
    if (status == KVT_OK && kvt_close(work->store) != KVT_OK)
        model_fail(&work->model, "a store that was only read is not closed");
    work->store = NULL;
    return status == KVT_OK && work->is_made;
}

/* Everything is there that must be, and the next life finds the disk as this one did. */
static void
read_only_life(struct lives *lives)
{
    static const enum ending endings[5] = {END_CLOSE, END_CLOSE, END_ABORT, END_KILL, END_CUT};
    static struct model before;
    struct workload *work = lives->work;
    enum ending ending = endings[rng_below(&lives->rng, 5)];
    uint64_t change_count = sim_change_count(lives->host.world);
    uint64_t capacity_bytes = lives->host.options.nvme_capacity_bytes;

    if (work->is_made && may_rebuild(lives) && rng_below(&lives->rng, 4) == 0)
        sim_index_damage(lives->host.world);
    before = work->model;
    /* It may be to become larger with the next open. */
    lives->host.options.nvme_capacity_bytes = 0;
    if (read_only_opens(lives) &&
        workload_open(work, KVT_OPEN_READ_ONLY | KVT_OPEN_EXISTING * rng_below(&lives->rng, 2),
            lives->is_rebuilt) == KVT_OK) {
        workload_read_only(work);
        /* Longer than what others write each minute. */
        (void)sim_run_for(lives->host.world, UINT64_C(70) * 1000 * 1000 * 1000);
        if (ending == END_ABORT)
            workload_memory_close(work);
        life_end(lives, ending);
    }
    lives->host.options.nvme_capacity_bytes = capacity_bytes;
    model_undo(&work->model, &before);
    if (sim_change_count(lives->host.world) != change_count)
        model_fail(&work->model, "a store that was opened for reading only has changed the disk");
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
    uint64_t counts[WORKLOAD_COUNTS_MAX]; /* Of all that were run with this one. */
    char failure[MODEL_FAILURE_BYTES];    /* Empty: none. */
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

/* One seed in ten has a file system, or a store, that is unlike the others'. */
static void
rare_choose(struct lives *lives, struct sim_options *world, struct kvt_options *options)
{
    switch (rng_below(&lives->rng, 60)) {
    case 0:
        world->direct_unsupported = true;
        break;
    case 1:
        world->direct_refused = true;
        break;
    case 2:
        world->directories_sync_late = true;
        break;
    case 3:
        options->worker_count = 1;
        break;
    case 4:
        options->worker_count = 4;
        break;
    case 5:
        options->event_count_max = 64;
        break;
    default:
        break;
    }
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
    rare_choose(&lives, &world, &options);
    lives.work = calloc(1, sizeof(*lives.work));
    assert_non_null(lives.work);
    sim_host_init(&lives.host, &world, &options);
    reach = sim_host_of(&lives.host);
    workload_init(lives.work, &reach, seed, is_small ? SMALL_KEYS : LARGE_KEYS,
        is_small ? SMALL_SHIFT : LARGE_SHIFT);
    lives.work->evicts = is_small || shape == SHAPE_MAP;
    if (is_small && operation_count < SMALL_LIFE)
        operation_count = SMALL_LIFE;
    for (uint32_t i = 0; i < LIVES && lives.work->model.failure[0] == '\0'; i++) {
        if (i == 0 && rng_below(&lives.rng, 8) == 0)
            read_only_life(&lives);
        life(&lives, operation_count);
        if (lives.work->model.failure[0] == '\0' && rng_below(&lives.rng, 6) == 0)
            read_only_life(&lives);
    }
    if (lives.work->model.failure[0] == '\0')
        last_life(&lives);
    course->hash = sim_trace_hash(lives.host.world);
    course->operation_count = lives.work->operation_count;
    course->audit_count = lives.work->audit_count;
    workload_counts_add(lives.work, course->counts);
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
    struct course course = {0};
    const char *lacking;

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
    lacking = workload_counts_lack(course.counts);
    if (lacking != NULL && seeds->count >= COUNTED_SEEDS)
        fail_msg("no seed had any: %s", lacking);
}

static void
same_seed_gives_the_same_trace(void **state)
{
    const struct courses *courses = *state;
    const struct seeds *seeds = &courses->seeds;
    struct course course = {0};

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
