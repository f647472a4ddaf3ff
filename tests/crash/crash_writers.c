/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_writers.c - the process that writes until it is killed, and its parent's ear
 * (crash_writers.h).
 */
#include "crash_writers.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvtier/kvtier_unstable.h"

enum {
    BATCH_MAX = 4,
    RELAXED_MAX = 6, /* Tickets of a thread that nobody waited for yet. */
    POOL_BYTES = BATCH_MAX * WRITERS_BYTES_HIGH, /* Of a writer, on the device. */
};

struct pending {
    kvt_ticket *ticket;
    uint32_t first;
    uint32_t count;
    bool is_delete;
    uint64_t versions[BATCH_MAX];
};

/* What left NVMe, which any writer tells before it tells anything else. */
struct watch {
    pthread_mutex_t lock;
    int pipe;
    const kvt_namespace *namespaces;
    const _Atomic uint64_t *stamp; /* NULL: none. */
    uint64_t stamp_before;         /* When it was looked last. */
    struct departures departures;
};

struct writer {
    const struct writers_plan *plan;
    kvt_store *store;
    kvt_namespace ns;
    uint32_t number;
    struct rng rng;
    uint64_t version;
    uint32_t failure_count;
    struct watch *watch;
    struct pending relaxed[RELAXED_MAX];
    uint32_t relaxed_count;
    uint8_t *device_pool; /* NULL: no HBM tier. */
    kvt_region region;
};

/* --- The process that is killed --------------------------------------------------------------- */

kvt_store *
writers_open(const struct workload *workload, const char *dir, kvt_namespace *namespaces_out)
{
    struct kvt_options options;
    struct run_paths paths;
    kvt_store *store = NULL;

    run_options(workload, dir, &paths, &options);
    enum kvt_status status = kvt_open(paths.store, &options, &store);
    if (status == KVT_OK)
        status = run_open_namespaces(store, namespaces_out);
    return status == KVT_OK ? store : NULL;
}

static void
note_write(int pipe, const struct writers_note *note)
{
    if (write(pipe, note, sizeof(*note)) != sizeof(*note))
        _exit(0); /* The parent is gone. */
}

/* The log's position: all that is before it has been logged. */
static uint64_t
stamp_now(const struct watch *watch)
{
    return watch->stamp == NULL ? 0 : atomic_load_explicit(watch->stamp, memory_order_seq_cst);
}

static void
tell_departure(void *context, uint32_t key, enum departure what)
{
    const struct watch *watch = context;
    bool is_back = what == DEPARTURE_BACK;
    struct writers_note note = {.verb = WRITERS_LEFT + (uint32_t)what,
        .key = key,
        .stamp = is_back ? stamp_now(watch) : watch->stamp_before,
        .time_ns = writers_now_ns()};

    note_write(watch->pipe, &note);
}

/* Tell what has left since it was looked last. */
static void
tell_departures(const struct writer *writer)
{
    struct watch *watch = writer->watch;

    (void)pthread_mutex_lock(&watch->lock);
    uint64_t now = stamp_now(watch);
    if (!departures_read(
            &watch->departures, writer->store, watch->namespaces, tell_departure, watch))
        run_fail("events were lost");
    watch->stamp_before = now;
    (void)pthread_mutex_unlock(&watch->lock);
}

static void
tell_note(const struct writer *writer, struct writers_note *note)
{
    if (writer->store != NULL)
        tell_departures(writer);
    /* What is told now was true when all of this had been logged. */
    note->stamp = stamp_now(writer->watch);
    note_write(writer->watch->pipe, note);
}

static void
tell(const struct writer *writer, enum writers_verb verb, uint32_t key, uint64_t version)
{
    struct writers_note note = {.verb = verb, .key = key, .version = version};

    tell_note(writer, &note);
}

static void wait_for_the_end(const struct writer *writer) __attribute__((noreturn));

/* The store goes on: what it lets go of is told. */
static void
wait_for_the_end(const struct writer *writer)
{
    for (;;) {
        if (writer->store != NULL)
            tell_departures(writer);
        writers_sleep_us(1000);
    }
}

/* A failure that the plan allows is told; any other ends the program. */
static void
failed(struct writer *writer, const char *what, uint32_t key, enum kvt_status status)
{
    struct writers_note note = {.verb = WRITERS_FAILED, .key = key, .status = (int32_t)status};
    struct kvt_error error;

    kvt_last_error(&error);
    note.time_ns = writers_now_ns();
    snprintf(
        note.text, sizeof(note.text), "%s gave %s: %s", what, kvt_status_name(status), error.text);
    if (!writer->plan->may_fail)
        run_fail("%s of key %u gave %s", what, key, kvt_status_name(status));
    if (writer->store != NULL && kvt_health(writer->store, &note.health) != KVT_OK)
        run_fail("kvt_health");
    tell_note(writer, &note);
}

/* A thread that only fails tells nothing new, and fills the oracle with what may be. */
static void
stop_after_failures(struct writer *writer, bool is_failed)
{
    writer->failure_count += is_failed;
    if (writer->failure_count == WRITERS_FAILURES)
        wait_for_the_end(writer);
}

/* Wait for stage 2 and tell which blocks are acknowledged. */
static void
finish(struct writer *writer, struct pending *pending)
{
    struct kvt_result results[BATCH_MAX], visible[BATCH_MAX];
    bool is_failed = false;
    enum kvt_status status = kvt_ticket_wait(pending->ticket, KVT_STAGE_DURABLE, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_ticket_results(pending->ticket, KVT_STAGE_DURABLE, results, pending->count);
    if (status == KVT_OK)
        status = kvt_ticket_results(pending->ticket, KVT_STAGE_DONE, visible, pending->count);
    if (status != KVT_OK)
        run_fail("stage 2 gave %s", kvt_status_name(status));
    for (uint32_t i = 0; i < pending->count; i++) {
        uint32_t key = pending->first + i;
        status = results[i].status;
        if (pending->is_delete && (status == KVT_OK || status == KVT_MISS))
            tell(writer, WRITERS_DELETE_OK, key, 0);
        else if (!pending->is_delete && status == KVT_OK && visible[i].status == KVT_OK)
            tell(writer, WRITERS_PUT_OK, key, pending->versions[i]);
        /* It shared the outcome of another put; or a later request took its place. */
        else if (status != KVT_OK && status != KVT_EXISTS &&
                 !(status == KVT_MISS && writer->plan->has_relaxed)) {
            failed(writer, pending->is_delete ? "a delete" : "a put", key, status);
            is_failed = true;
        }
    }
    kvt_ticket_free(pending->ticket);
    stop_after_failures(writer, is_failed);
}

static void
submission_failed(struct writer *writer, const char *what, uint32_t key, enum kvt_status status)
{
    failed(writer, what, key, status);
    stop_after_failures(writer, true);
}

static void
finish_relaxed(struct writer *writer)
{
    for (uint32_t i = 0; i < writer->relaxed_count; i++)
        finish(writer, &writer->relaxed[i]);
    writer->relaxed_count = 0;
}

static void
put_from_device(const struct writer *writer, uint32_t i, struct kvt_put *put)
{
    uint8_t *source = writer->device_pool + (size_t)i * WRITERS_BYTES_HIGH;
    enum kvt_status status = kvt_device_write(writer->store, 0, source, put->source, put->length);

    if (status != KVT_OK)
        run_fail("kvt_device_write gave %s", kvt_status_name(status));
    put->source = source;
    put->region = writer->region;
    put->tier = KVT_TIER_HBM;
}

static void
delete_some(struct writer *writer, uint32_t first, uint32_t count)
{
    struct pending pending = {.first = first, .count = count, .is_delete = true};
    struct payload_key keys[BATCH_MAX];
    struct kvt_key list[BATCH_MAX];
    struct kvt_submit submit = {0};

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], first + i);
        list[i] = keys[i].key;
        tell(writer, WRITERS_DELETE, first + i, 0);
    }
    enum kvt_status status =
        kvt_delete_submit(writer->store, writer->ns, list, count, &submit, &pending.ticket);
    if (status == KVT_OK)
        finish(writer, &pending);
    else
        submission_failed(writer, "a delete's submission", first, status);
}

/* Submit new versions, and wait as the durability asks. */
static void
put_some(struct writer *writer, uint32_t first, uint32_t count, uint32_t flags)
{
    static _Thread_local uint8_t sources[BATCH_MAX][WRITERS_BYTES_HIGH];
    struct pending pending = {.first = first, .count = count};
    struct payload_key keys[BATCH_MAX];
    struct kvt_put puts[BATCH_MAX] = {0};
    struct kvt_submit submit = {0};
    bool is_relaxed = writer->plan->has_relaxed && rng_below(&writer->rng, 4) == 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t version = ++writer->version;
        payload_key_make(&keys[i], first + i);
        pending.versions[i] = version;
        puts[i].key = keys[i].key;
        puts[i].source = sources[i];
        puts[i].length = payload_length(first + i, version, WRITERS_BYTES_LOW, WRITERS_BYTES_HIGH);
        puts[i].flags = flags;
        payload_fill(sources[i], puts[i].length, first + i, version);
        /* The old block is given up at once; its kill goes on alone when the new one fails. */
        if (writer->plan->may_lose && (flags & KVT_PUT_REPLACE) != 0)
            tell(writer, WRITERS_DELETE, first + i, 0);
        tell(writer, WRITERS_PUT, first + i, version);
        if (writer->device_pool != NULL)
            put_from_device(writer, i, &puts[i]);
    }
    enum kvt_status status = kvt_put_submit(writer->store, writer->ns, puts, count,
        is_relaxed ? KVT_RELAXED : KVT_SYNC, &submit, &pending.ticket);
    if (status != KVT_OK) {
        submission_failed(writer, "a put's submission", first, status);
        return;
    }
    if (!is_relaxed) {
        finish(writer, &pending);
        return;
    }
    status = kvt_ticket_wait(pending.ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status != KVT_OK)
        run_fail("stage 1 gave %s", kvt_status_name(status));
    if (writer->relaxed_count == RELAXED_MAX)
        finish_relaxed(writer);
    writer->relaxed[writer->relaxed_count++] = pending;
}

static void *
writer_main(void *context)
{
    struct writer *writer = context;

    for (uint64_t i = 0; writer->plan->action_count == 0 || i < writer->plan->action_count; i++) {
        uint32_t count = 1 + rng_below(&writer->rng, BATCH_MAX);
        uint32_t first =
            writer->number * WRITERS_KEYS + rng_below(&writer->rng, WRITERS_KEYS - BATCH_MAX);
        uint32_t action = rng_below(&writer->rng, 10);
        if (action >= 7)
            delete_some(writer, first, count);
        else
            put_some(writer, first, count, action < 4 ? KVT_PUT_REPLACE : 0);
    }
    finish_relaxed(writer);
    return NULL;
}

static void write_until_killed(const struct writers_plan *plan, int pipe) __attribute__((noreturn));

/* Opens the store, says so, and writes. */
static void
write_until_killed(const struct writers_plan *plan, int pipe)
{
    static struct writer writers[WRITERS];
    static struct watch watch = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct writer opener = {.plan = plan, .watch = &watch};
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    pthread_t threads[WRITERS];

    watch.pipe = pipe;
    watch.namespaces = namespaces;

    if (plan->stamp_fd >= 0) {
        watch.stamp = mmap(NULL, 4096, PROT_READ, MAP_SHARED, plan->stamp_fd, 0);
        if (watch.stamp == MAP_FAILED)
            run_fail("no map of the stamp");
    }
    opener.store = writers_open(plan->workload, plan->dir, namespaces);
    if (opener.store == NULL) {
        struct kvt_error error;
        kvt_last_error(&error);
        failed(&opener, "opening", 0, error.status);
        wait_for_the_end(&opener);
    }
    tell(&opener, WRITERS_OPENED, 0, 0);
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i] = opener;
        writers[i].ns = namespaces[0];
        writers[i].number = i;
        writers[i].rng.state = plan->seed * WRITERS + i;
        writers[i].version = (plan->seed * WRITERS + i) << 24;
        if (plan->workload->hbm_bytes != 0)
            writers[i].device_pool = run_device_take(opener.store, POOL_BYTES, &writers[i].region);
        if (pthread_create(&threads[i], NULL, writer_main, &writers[i]) != 0)
            run_fail("no thread");
    }
    for (uint32_t i = 0; i < WRITERS && plan->action_count != 0; i++)
        (void)pthread_join(threads[i], NULL);
    if (plan->action_count != 0) {
        tell_departures(&opener);
        close(pipe); /* All is done. */
        opener.store = NULL;
    }
    wait_for_the_end(&opener);
}

/* --- Its arguments ---------------------------------------------------------------------------- */

pid_t
writers_start(const char *mode, const struct writers_plan *plan, int *pipe_out)
{
    int ends[2];
    char numbers[256];

    if (pipe(ends) != 0)
        run_fail("no pipe");
    snprintf(numbers, sizeof(numbers),
        "%d %d %" PRIu64 " %d %d %d %" PRIu64 " %u %" PRIu64 " %" PRIu64, ends[1], plan->stamp_fd,
        plan->seed, plan->may_fail, plan->has_relaxed, plan->may_lose, plan->action_count,
        plan->workload->io_engine, plan->workload->hbm_bytes, plan->workload->nvme_bytes);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        execl("/proc/self/exe", "crash_writers", mode, plan->dir, numbers, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *pipe_out = ends[0];
    return child;
}

void
writers_plan_read(
    char **values, struct workload *workload, struct writers_plan *plan_out, int *pipe_out)
{
    struct writers_plan plan = {.workload = workload, .dir = values[2]};
    int may_fail, has_relaxed, may_lose;

    if (sscanf(values[3], "%d %d %" SCNu64 " %d %d %d %" SCNu64 " %u %" SCNu64 " %" SCNu64,
            pipe_out, &plan.stamp_fd, &plan.seed, &may_fail, &has_relaxed, &may_lose,
            &plan.action_count, &workload->io_engine, &workload->hbm_bytes,
            &workload->nvme_bytes) != 10)
        run_fail("this is a mode for the test itself");
    plan.may_fail = may_fail != 0;
    plan.has_relaxed = has_relaxed != 0;
    plan.may_lose = may_lose != 0;
    *plan_out = plan;
    /* Nobody is left behind, whatever ends the parent. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void
writers_main(char **values, struct workload *workload)
{
    struct writers_plan plan;
    int pipe;

    writers_plan_read(values, workload, &plan, &pipe);
    write_until_killed(&plan, pipe);
}

/* --- The parent ------------------------------------------------------------------------------- */

uint64_t
writers_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t
writers_now_ms(void)
{
    return writers_now_ns() / 1000000;
}

void
writers_sleep_us(uint64_t microseconds)
{
    struct timespec time = {
        (time_t)(microseconds / 1000000), (long)(microseconds % 1000000) * 1000};

    nanosleep(&time, NULL);
}

uint64_t
writers_listen(int pipe, uint64_t until_ms, writers_hear hear, void *context)
{
    struct writers_note note;
    uint64_t count = 0;

    for (;;) {
        uint64_t now = writers_now_ms();
        struct pollfd ready = {.fd = pipe, .events = POLLIN};
        if (now >= until_ms)
            return count;
        int timeout = until_ms == UINT64_MAX ? -1 : (int)(until_ms - now);
        if (poll(&ready, 1, timeout) <= 0)
            continue;
        if (read(pipe, &note, sizeof(note)) != sizeof(note))
            return count; /* The writers are gone. */
        count++;
        if (!hear(context, &note))
            return count;
    }
}

void
writers_mark(struct oracle *oracle, const struct writers_note *note)
{
    static const char *const verbs[] = {"put", "put_ok", "del", "del_ok"};
    char line[96];

    if (note->verb >= WRITERS_LEFT && note->verb <= WRITERS_BACK &&
        !oracle_depart(oracle, note->key, (enum departure)(note->verb - WRITERS_LEFT)))
        run_fail("key %u left too often", note->key);
    if (note->verb >= sizeof(verbs) / sizeof(verbs[0]))
        return;
    snprintf(line, sizeof(line), "%s %u %" PRIu64, verbs[note->verb], note->key, note->version);
    if (!oracle_mark(oracle, line, strlen(line)))
        run_fail("the oracle does not take '%s'", line);
}

void
writers_kill(pid_t child)
{
    int result = 0;

    kill(child, SIGKILL);
    if (waitpid(child, &result, 0) != child || !WIFSIGNALED(result) || WTERMSIG(result) != SIGKILL)
        run_fail("a writer ended by itself, with %d", result);
}
