/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_kill.c - SIGKILL in a random phase, with four writers, again and again on one store.
 *
 * Each round a process opens the store; four threads put, replace and delete SYNC and tell the
 * parent through a pipe what they are about to do and what was acknowledged (crash_writers.h). The
 * parent kills it, sometimes kills another process that is just opening the store, and then judges
 * what is left with crash_verify(). Rounds alternate between the io engines, and between stores
 * with and without an HBM tier, in which blocks are then born. KVT_KILL_ROUNDS says how many,
 * KVT_KILL_SEED what is done and when they are killed, as far as the machine's pace lets it.
 *
 * And once: the owner is killed while a child that it forked lives on; the store must open at once.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_verify.h"
#include "crash_writers.h"

enum {
    ROUNDS_DEFAULT = 200,
    RUN_MS_MAX = 120,
    STARTS_MAX = 3, /* Of writers in a round. */
    HBM_BYTES = 4 << 20,
};

static struct workload kill_workload = {
    .name = "kill",
    .nvme_bytes = UINT64_C(64) << 20,
    .host_bytes = UINT64_C(8) << 20, /* Both are never full. */
};

/* Opens the store and forks a child, which tells its number and then only sleeps. The child tells:
 * what it inherited is closed when fork() has returned in it, and not before. */
static int
hold(char **values)
{
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    struct writers_plan plan;
    int pipe;

    writers_plan_read(values, &kill_workload, &plan, &pipe);
    if (writers_open(&kill_workload, plan.dir, namespaces) == NULL)
        run_fail("the owner cannot open the store");
    pid_t child = fork();
    if (child < 0)
        run_fail("the owner cannot fork");
    if (child == 0) {
        struct writers_note note = {.version = (uint64_t)getpid()};
        alarm(60);
        if (write(pipe, &note, sizeof(note)) != sizeof(note))
            return 1;
    }
    for (;;)
        pause();
}

static bool
hear(void *context, const struct writers_note *note)
{
    writers_mark(context, note);
    return true;
}

static pid_t
start(const char *mode, const char *dir, uint64_t seed, int *pipe_out)
{
    struct writers_plan plan = {
        .workload = &kill_workload, .dir = dir, .seed = seed, .stamp_fd = -1};

    return writers_start(mode, &plan, pipe_out);
}

static bool
kill_round(const char *dir, struct oracle *oracle, struct rng *rng, uint64_t first_seed)
{
    char problem[512];
    int pipe;
    struct verify_request request = {.workload = &kill_workload,
        .oracle = oracle,
        .dir = dir,
        .lives_on = true,
        .seed = rng_next(rng)};
    uint64_t seed = first_seed;
    pid_t child = start(WRITERS_MODE, dir, seed++, &pipe);
    uint64_t count =
        writers_listen(pipe, writers_now_ms() + 1 + rng_below(rng, RUN_MS_MAX), hear, oracle);
    writers_kill(child);
    count += writers_listen(pipe, UINT64_MAX, hear, oracle);
    close(pipe);
    for (uint32_t i = rng_below(rng, STARTS_MAX); i > 0; i--) {
        child = start(WRITERS_MODE, dir, seed++, &pipe);
        writers_sleep_us(1000 * rng_below(rng, 12));
        writers_kill(child);
        writers_listen(pipe, UINT64_MAX, hear, oracle);
        close(pipe);
    }
    oracle->is_open = oracle->is_open || count > 0;
    bool is_right = crash_verify(&request, problem, sizeof(problem));
    if (is_right && oracle->left_count > 0) {
        snprintf(problem, sizeof(problem), "a block left NVMe, which is never full");
        is_right = false;
    }
    if (!is_right)
        printf("WRONG (engine %u, HBM %" PRIu64 "): %s\n", kill_workload.io_engine,
            kill_workload.hbm_bytes, problem);
    return is_right;
}

/* A child that outlives its killed parent must not keep the store locked. */
static bool
survivor_does_not_hold_the_lock(const char *dir)
{
    struct kvt_options options;
    struct run_paths paths;
    struct writers_note note;
    kvt_store *store = NULL;
    int pipe;

    pid_t owner = start("--hold", dir, 0, &pipe);
    if (read(pipe, &note, sizeof(note)) != sizeof(note))
        run_fail("the owner did not start");
    run_options(&kill_workload, dir, &paths, &options);
    enum kvt_status while_owned = kvt_open(paths.store, &options, &store);
    writers_kill(owner);
    enum kvt_status after = kvt_open(paths.store, &options, &store);
    int is_alive = kill((pid_t)note.version, 0);
    kill((pid_t)note.version, SIGKILL);
    close(pipe);
    if (store != NULL && kvt_close(store) != KVT_OK)
        run_fail("kvt_close");
    printf("while owned: %s; owner killed, its child %s: %s\n", kvt_status_name(while_owned),
        is_alive == 0 ? "alive" : "gone", kvt_status_name(after));
    return while_owned == KVT_E_LOCKED && after == KVT_OK && is_alive == 0;
}

static int
run_rounds(void)
{
    static struct oracle oracle;
    const char *wanted = getenv("KVT_KILL_ROUNDS");
    const char *chosen = getenv("KVT_KILL_SEED");
    const char *place = getenv("KVT_TEST_TMP");
    uint64_t rounds = wanted != NULL ? strtoull(wanted, NULL, 10) : ROUNDS_DEFAULT;
    uint64_t seed = chosen != NULL ? strtoull(chosen, NULL, 10) : 1;
    struct rng rng = {seed};
    char dir[256];
    bool is_right = true;

    snprintf(dir, sizeof(dir), "%s/kvt-kill-%d", place != NULL ? place : "/dev/shm", (int)getpid());
    if (mkdir(dir, 0700) != 0)
        run_fail("cannot make %s", dir);
    oracle_init(&oracle);
    uint64_t round = 0;
    for (; round < rounds && is_right; round++) {
        kill_workload.io_engine = round % 2 == 0 ? KVT_IO_THREADS : RUN_IO_AUTO;
        kill_workload.hbm_bytes = round / 2 % 2 == 0 ? 0 : HBM_BYTES;
        /* No version is used twice. */
        is_right = kill_round(dir, &oracle, &rng, seed + round * STARTS_MAX);
    }
    printf("%" PRIu64 " rounds, %" PRIu64 " acknowledgements\n", round, oracle.acknowledged_count);
    is_right =
        is_right && oracle.acknowledged_count > rounds && survivor_does_not_hold_the_lock(dir);
    if (!is_right) {
        printf("the store is left in %s\n", dir);
        return 1;
    }
    fflush(stdout); /* The next program does not know what is still in it. */
    execlp("rm", "rm", "-rf", dir, (char *)NULL);
    return 1;
}

int
main(int count, char **values)
{
    if (count == 4 && strcmp(values[1], WRITERS_MODE) == 0)
        writers_main(values, &kill_workload);
    if (count == 4 && strcmp(values[1], "--hold") == 0)
        return hold(values);
    return run_rounds();
}
