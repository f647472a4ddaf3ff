/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_kill.c - SIGKILL in a random phase, with four writers, again and again on one store.
 *
 * Each round a process opens the store; four threads put, replace and delete SYNC and tell the
 * parent through a pipe what they are about to do and what was acknowledged. The parent kills it,
 * sometimes kills another process that is just opening the store, and then judges what is left with
 * crash_verify(). Rounds alternate between the io engines, and between stores with and without an
 * HBM tier, in which blocks are then born. KVT_KILL_ROUNDS says how many.
 *
 * And once: the owner is killed while a child that it forked lives on; the store must open at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash_verify.h"
#include "kvtier/kvtier_unstable.h"

enum {
    WRITERS = 4,
    WRITER_KEYS = 48,
    BATCH_MAX = 4,
    ROUNDS_DEFAULT = 200,
    RUN_MS_MAX = 120,
    STARTS_MAX = 3, /* Of writers in a round. */
    BLOCK_BYTES_LOW = 1000,
    BLOCK_BYTES_HIGH = 40000,
    POOL_BYTES = BATCH_MAX * BLOCK_BYTES_HIGH, /* Of a writer, on the device. */
    HBM_BYTES = 4 << 20,
};

/* What a writer says: `verb` is an index of verbs[]. */
struct note {
    uint32_t verb;
    uint32_t key;
    uint64_t version;
};

static const char *const verbs[] = {"put", "put_ok", "del", "del_ok"};

struct writer {
    kvt_store *store;
    kvt_namespace ns;
    int pipe;
    uint32_t number;
    struct rng rng;
    uint64_t version;
    uint8_t *device_pool; /* NULL: no HBM tier. */
    kvt_region region;
};

static struct workload kill_workload = {
    .name = "kill",
    .nvme_bytes = UINT64_C(64) << 20,
    .host_bytes = UINT64_C(8) << 20,
};

static kvt_store *
open_store(const char *dir, kvt_namespace *namespaces_out)
{
    struct kvt_options options;
    struct run_paths paths;
    kvt_store *store = NULL;

    run_options(&kill_workload, dir, &paths, &options);
    enum kvt_status status = kvt_open(paths.store, &options, &store);
    if (status != KVT_OK)
        run_fail("kvt_open gave %s", kvt_status_name(status));
    status = run_open_namespaces(store, namespaces_out);
    if (status != KVT_OK)
        run_fail("kvt_namespace_open gave %s", kvt_status_name(status));
    return store;
}

/* --- The process that is killed --------------------------------------------------------------- */

static void
tell(const struct writer *writer, uint32_t verb, uint32_t key, uint64_t version)
{
    struct note note = {verb, key, version};

    if (write(writer->pipe, &note, sizeof(note)) != sizeof(note))
        _exit(0); /* The parent is gone. */
}

/* Wait for stage 2 and tell which blocks are acknowledged. */
static void
finish(const struct writer *writer, kvt_ticket *ticket, uint32_t verb, uint32_t first,
    uint32_t count, const uint64_t *versions)
{
    struct kvt_result results[BATCH_MAX];
    enum kvt_status status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count);
    if (status != KVT_OK)
        run_fail("stage 2 gave %s", kvt_status_name(status));
    for (uint32_t i = 0; i < count; i++) {
        bool is_delete = verb == 3;
        if (results[i].status == KVT_OK || (is_delete && results[i].status == KVT_MISS))
            tell(writer, verb, first + i, versions[i]);
        else if (results[i].status != KVT_EXISTS)
            run_fail("key %u gave %s", first + i, kvt_status_name(results[i].status));
    }
    kvt_ticket_free(ticket);
}

static void
put_from_device(const struct writer *writer, uint32_t i, struct kvt_put *put)
{
    uint8_t *source = writer->device_pool + (size_t)i * BLOCK_BYTES_HIGH;
    enum kvt_status status = kvt_device_write(writer->store, 0, source, put->source, put->length);

    if (status != KVT_OK)
        run_fail("kvt_device_write gave %s", kvt_status_name(status));
    put->source = source;
    put->region = writer->region;
    put->tier = KVT_TIER_HBM;
}

static void
write_some(struct writer *writer, uint8_t (*sources)[BLOCK_BYTES_HIGH])
{
    uint32_t count = 1 + rng_below(&writer->rng, BATCH_MAX);
    uint32_t first =
        writer->number * WRITER_KEYS + rng_below(&writer->rng, WRITER_KEYS - BATCH_MAX);
    uint32_t action = rng_below(&writer->rng, 10);
    struct payload_key keys[BATCH_MAX];
    struct kvt_put puts[BATCH_MAX] = {0};
    struct kvt_key list[BATCH_MAX];
    uint64_t versions[BATCH_MAX] = {0};
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;
    enum kvt_status status;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], first + i);
        list[i] = keys[i].key;
        if (action >= 7) {
            tell(writer, 2, first + i, 0);
            continue;
        }
        versions[i] = ++writer->version;
        puts[i].key = list[i];
        puts[i].source = sources[i];
        puts[i].length = payload_length(first + i, versions[i], BLOCK_BYTES_LOW, BLOCK_BYTES_HIGH);
        puts[i].flags = action < 4 ? KVT_PUT_REPLACE : 0;
        payload_fill(sources[i], puts[i].length, first + i, versions[i]);
        tell(writer, 0, first + i, versions[i]);
        if (writer->device_pool != NULL)
            put_from_device(writer, i, &puts[i]);
    }
    if (action >= 7)
        status = kvt_delete_submit(writer->store, writer->ns, list, count, &submit, &ticket);
    else
        status = kvt_put_submit(writer->store, writer->ns, puts, count, KVT_SYNC, &submit, &ticket);
    if (status != KVT_OK)
        run_fail("a submission gave %s", kvt_status_name(status));
    finish(writer, ticket, action >= 7 ? 3 : 1, first, count, versions);
}

static void *
writer_main(void *context)
{
    struct writer *writer = context;
    static _Thread_local uint8_t sources[BATCH_MAX][BLOCK_BYTES_HIGH];

    for (;;)
        write_some(writer, sources);
    return NULL;
}

/* Opens the store, says so with one byte's worth of a note, and writes until it is killed. */
static int
write_until_killed(const char *dir, int pipe, uint64_t seed)
{
    static struct writer writers[WRITERS];
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    kvt_store *store = open_store(dir, namespaces);

    for (uint32_t i = 0; i < WRITERS; i++) {
        pthread_t thread;
        writers[i] = (struct writer){.store = store,
            .ns = namespaces[0],
            .pipe = pipe,
            .number = i,
            .rng = {seed * WRITERS + i},
            .version = (seed * WRITERS + i) << 24};
        if (kill_workload.hbm_bytes != 0)
            writers[i].device_pool = run_device_take(store, POOL_BYTES, &writers[i].region);
        if (pthread_create(&thread, NULL, writer_main, &writers[i]) != 0)
            run_fail("no thread");
    }
    for (;;)
        pause();
}

/* Opens the store, forks a child that only sleeps, and tells its number. */
static int
hold(const char *dir, int pipe)
{
    kvt_namespace namespaces[ORACLE_NAMESPACES];

    (void)open_store(dir, namespaces);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    struct note note = {.version = (uint64_t)child};
    if (write(pipe, &note, sizeof(note)) != sizeof(note))
        return 1;
    for (;;)
        pause();
}

/* --- The parent ------------------------------------------------------------------------------- */

static pid_t
start(const char *mode, const char *dir, uint64_t seed, int *pipe_out)
{
    int ends[2];
    char number[32], descriptor[32], engine[32], hbm[32];

    if (pipe(ends) != 0)
        run_fail("no pipe");
    snprintf(number, sizeof(number), "%" PRIu64, seed);
    snprintf(descriptor, sizeof(descriptor), "%d", ends[1]);
    snprintf(engine, sizeof(engine), "%u", kill_workload.io_engine);
    snprintf(hbm, sizeof(hbm), "%" PRIu64, kill_workload.hbm_bytes);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        execl("/proc/self/exe", "crash_kill", mode, dir, descriptor, number, engine, hbm,
            (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *pipe_out = ends[0];
    return child;
}

static uint64_t
now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Take notes until `until_ms` (UINT64_MAX: the end of the pipe). Returns how many. */
static uint64_t
listen(int pipe, struct oracle *oracle, uint64_t until_ms)
{
    struct note note;
    char line[96];
    uint64_t count = 0;

    for (;;) {
        uint64_t now = now_ms();
        struct pollfd ready = {.fd = pipe, .events = POLLIN};
        if (now >= until_ms)
            return count;
        int timeout = until_ms == UINT64_MAX ? -1 : (int)(until_ms - now);
        if (poll(&ready, 1, timeout) <= 0)
            continue;
        ssize_t size = read(pipe, &note, sizeof(note));
        if (size != sizeof(note))
            return count; /* The writers are gone. */
        snprintf(line, sizeof(line), "%s %u %" PRIu64, verbs[note.verb], note.key, note.version);
        if (!oracle_mark(oracle, line, strlen(line)))
            run_fail("the oracle does not take '%s'", line);
        count++;
    }
}

/* The child must have died of our signal and of nothing else. */
static void
kill_now(pid_t child)
{
    int result = 0;

    kill(child, SIGKILL);
    if (waitpid(child, &result, 0) != child || !WIFSIGNALED(result) || WTERMSIG(result) != SIGKILL)
        run_fail("a writer ended by itself, with %d", result);
}

static void
sleep_ms(uint32_t milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

    nanosleep(&time, NULL);
}

static bool
kill_round(const char *dir, struct oracle *oracle, struct rng *rng, uint64_t round)
{
    char problem[512];
    int pipe;
    struct verify_request request = {.workload = &kill_workload,
        .oracle = oracle,
        .dir = dir,
        .lives_on = true,
        .seed = rng_next(rng)};

    uint64_t seed = (round + 1) * STARTS_MAX; /* No version is used twice. */
    pid_t child = start("--write", dir, seed++, &pipe);
    uint64_t count = listen(pipe, oracle, now_ms() + 1 + rng_below(rng, RUN_MS_MAX));
    kill_now(child);
    count += listen(pipe, oracle, UINT64_MAX);
    close(pipe);
    for (uint32_t i = rng_below(rng, STARTS_MAX); i > 0; i--) {
        child = start("--write", dir, seed++, &pipe);
        sleep_ms(rng_below(rng, 12));
        kill_now(child);
        listen(pipe, oracle, UINT64_MAX);
        close(pipe);
    }
    oracle->is_open = oracle->is_open || count > 0;
    if (crash_verify(&request, problem, sizeof(problem)))
        return true;
    printf("WRONG in round %" PRIu64 " (engine %u, HBM %" PRIu64 "): %s\n", round,
        kill_workload.io_engine, kill_workload.hbm_bytes, problem);
    return false;
}

/* A child that outlives its killed parent must not keep the store locked. */
static bool
survivor_does_not_hold_the_lock(const char *dir)
{
    struct kvt_options options;
    struct run_paths paths;
    struct note note;
    kvt_store *store = NULL;
    int pipe;

    pid_t owner = start("--hold", dir, 0, &pipe);
    if (read(pipe, &note, sizeof(note)) != sizeof(note))
        run_fail("the owner did not start");
    run_options(&kill_workload, dir, &paths, &options);
    enum kvt_status while_owned = kvt_open(paths.store, &options, &store);
    kill_now(owner);
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
    const char *place = getenv("KVT_TEST_TMP");
    uint64_t rounds = wanted != NULL ? strtoull(wanted, NULL, 10) : ROUNDS_DEFAULT;
    struct rng rng = {rounds};
    char dir[256];
    bool is_right = true;

    snprintf(dir, sizeof(dir), "%s/kvt-kill-%d", place != NULL ? place : "/dev/shm", (int)getpid());
    if (mkdir(dir, 0700) != 0)
        run_fail("cannot make %s", dir);
    oracle_init(&oracle);
    uint64_t round = 0;
    for (; round < rounds && is_right; round++) {
        kill_workload.io_engine = round % 2 == 0 ? KVT_IO_THREADS : KVT_IO_AUTO;
        kill_workload.hbm_bytes = round / 2 % 2 == 0 ? 0 : HBM_BYTES;
        is_right = kill_round(dir, &oracle, &rng, round);
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
    if (count == 7) {
        int pipe = (int)strtol(values[3], NULL, 10);
        kill_workload.io_engine = (uint32_t)strtoul(values[5], NULL, 10);
        kill_workload.hbm_bytes = strtoull(values[6], NULL, 10);
        if (strcmp(values[1], "--write") == 0)
            return write_until_killed(values[2], pipe, strtoull(values[4], NULL, 10));
        if (strcmp(values[1], "--hold") == 0)
            return hold(values[2], pipe);
    }
    return run_rounds();
}
