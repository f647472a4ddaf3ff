/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_eio.c - a disk below a real file system fails: writes, flushes and reads with EIO, for a
 * moment or for good.
 *
 * Usage: crash_eio [--cycles N] [--seed N]. One store lives through N cycles on ext4, on a loop
 * device, on a disk that fails on command (crash_disk.h). In each, four writers (crash_writers.h)
 * work, the disk begins to fail, they are killed, the disk is mended and mounted anew, and the
 * store is judged with crash_verify(): all that was acknowledged, before and after the failure, is
 * there. A disk that takes nothing any more makes the store say so: each request that fails has a
 * sentence, and kvt_health() is not well, or every request is refused. Then all reads fail: each is
 * a miss, and mended, the blocks are there.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_disk.h"
#include "crash_mount.h"
#include "crash_plan.h"
#include "crash_verify.h"
#include "crash_writers.h"

enum {
    CYCLES_DEFAULT = 30,
    NOTES_MAX = 300,   /* Of a cycle, before the fault. */
    NOTES_MS = 10000,  /* For these, on a machine that stands still. */
    AFTER_NOTES = 200, /* After a fault that passes. */
    AFTER_MS = 100,    /* For these; and until the kill, after one that does not. */
    IMAGE_BYTES = 48 << 20,
};

enum fault {
    FAULT_WRITE,       /* One fails. */
    FAULT_WRITES_SOME, /* A few do. */
    FAULT_WRITES,      /* From now on. */
    FAULT_FLUSH,
    FAULT_FLUSHES,
    FAULTS,
};

static const char *const fault_names[] = {
    "one write", "some writes", "all writes", "one flush", "all flushes"};

struct failing {
    struct workload workload;
    struct crash_disk disk;
    struct crash_mount mount;
    struct rng rng;
    uint64_t seed; /* Of the next writers. */
    uint64_t notes_left;
    uint64_t fault_ns;   /* When the disk began to fail; 0: it does not. */
    uint64_t fail_count; /* Answers with an error, of a cycle. */
    uint32_t health;     /* Of the last such answer. */
    char text[192];      /* Its sentence. */
    uint64_t counts[FAULTS];
    uint64_t met[FAULTS];   /* Cycles in which something of the disk's failed, ... */
    uint64_t heard[FAULTS]; /* ... and the writers noticed, ... */
    uint64_t told[FAULTS];  /* ... and kvt_health() said so, of a fault that lasts. */
    struct oracle oracle;
};

static bool
hear(void *context, const struct writers_note *note)
{
    struct failing *failing = context;

    writers_mark(&failing->oracle, note);
    if (note->verb == WRITERS_OPENED)
        failing->oracle.is_open = true;
    if (note->verb == WRITERS_FAILED) {
        failing->fail_count++;
        failing->health = note->health;
        snprintf(failing->text, sizeof(failing->text), "%s", note->text);
        if (failing->fault_ns == 0 || note->time_ns < failing->fault_ns)
            run_fail("on a sound disk %s", note->text);
        if (note->status >= 0)
            run_fail("not an error: %s", note->text);
    }
    return failing->notes_left == 0 || --failing->notes_left > 0;
}

static void
fault_set(struct failing *failing, enum fault fault)
{
    struct disk_board *board = failing->disk.board;
    uint32_t some = 2 + rng_below(&failing->rng, 6);

    failing->fault_ns = writers_now_ns();
    switch (fault) {
    case FAULT_WRITE:
        atomic_store(&board->fail_writes, 1);
        break;
    case FAULT_WRITES_SOME:
        atomic_store(&board->fail_writes, some);
        break;
    case FAULT_WRITES:
        atomic_store(&board->fail_writes, DISK_ALWAYS);
        break;
    case FAULT_FLUSH:
        atomic_store(&board->fail_flushes, 1);
        break;
    case FAULT_FLUSHES:
        atomic_store(&board->fail_flushes, DISK_ALWAYS);
        break;
    case FAULTS:
        run_fail("no such fault");
    }
}

static void
mend(struct failing *failing)
{
    atomic_store(&failing->disk.board->fail_writes, 0);
    atomic_store(&failing->disk.board->fail_flushes, 0);
    atomic_store(&failing->disk.board->fail_reads, 0);
    failing->fault_ns = 0;
}

/* Wait until the writers know that the disk takes nothing: from the store's health, or because each
 * of them has given up after request upon request (when no segment is free, the store may refuse
 * all of them before it has met the disk often enough). */
static bool
lasting_fault_is_told(struct failing *failing, enum fault fault, int pipe)
{
    for (int i = 0; i < 100; i++) {
        uint64_t before = failing->fail_count;
        writers_listen(pipe, writers_now_ms() + AFTER_MS, hear, failing);
        if ((failing->health & (KVT_HEALTH_META_READONLY | KVT_HEALTH_ROOT_READONLY)) != 0) {
            failing->told[fault]++;
            return true;
        }
        if (failing->fail_count >= WRITERS_FAILURES * WRITERS && failing->fail_count == before)
            return true;
    }
    printf("WRONG: only %" PRIu64 " answers were errors, and then the health is %u (%s)\n",
        failing->fail_count, failing->health, failing->text);
    return false;
}

/* One life of the writers, on a disk that fails in its course. */
static bool
fail(struct failing *failing, enum fault fault)
{
    struct writers_plan plan = {.workload = &failing->workload,
        .dir = failing->mount.point,
        .seed = ++failing->seed,
        .may_fail = true,
        .has_relaxed = true,
        .may_lose = true,
        .stamp_fd = -1};
    uint64_t failed_before = atomic_load(&failing->disk.board->failed_count);
    bool is_right = true;
    int pipe;

    failing->fail_count = 0;
    failing->health = 0;
    pid_t child = writers_start(WRITERS_MODE, &plan, &pipe);
    failing->notes_left = 20 + rng_below(&failing->rng, NOTES_MAX);
    writers_listen(pipe, writers_now_ms() + NOTES_MS, hear, failing);
    failing->notes_left = 0;
    fault_set(failing, fault);
    if (fault == FAULT_WRITES || fault == FAULT_FLUSHES) {
        is_right = lasting_fault_is_told(failing, fault, pipe);
    } else {
        failing->notes_left = 1 + rng_below(&failing->rng, AFTER_NOTES);
        writers_listen(pipe, writers_now_ms() + AFTER_MS, hear, failing);
        failing->notes_left = 0;
    }
    writers_kill(child);
    writers_listen(pipe, UINT64_MAX, hear, failing);
    close(pipe);
    failing->counts[fault]++;
    failing->heard[fault] += failing->fail_count > 0;
    mend(failing);
    crash_mount_down(&failing->mount);
    failing->met[fault] += atomic_load(&failing->disk.board->failed_count) != failed_before;
    if (!crash_mount_up(&failing->mount))
        run_fail("ext4 does not mount after a fault: %s", strerror(errno));
    return is_right;
}

static bool
run_cycles(struct failing *failing, const char *folder, uint64_t cycles)
{
    char problem[512];

    for (uint64_t cycle = 0; cycle < cycles; cycle++) {
        enum fault fault = (enum fault)(cycle % FAULTS);
        struct verify_request request = {.workload = &failing->workload,
            .oracle = &failing->oracle,
            .dir = failing->mount.point,
            .lives_on = true,
            .seed = rng_next(&failing->rng)};
        failing->workload.io_engine = cycle / FAULTS % 2 == 0 ? RUN_IO_AUTO : KVT_IO_THREADS;
        if (!fail(failing, fault)) {
            printf("in cycle %" PRIu64 ", %s\n", cycle, fault_names[fault]);
            return false;
        }
        if (!crash_verify(&request, problem, sizeof(problem))) {
            printf("WRONG in cycle %" PRIu64 ", %s: %s\n", cycle, fault_names[fault], problem);
            crash_mount_keep(&failing->mount, folder);
            return false;
        }
    }
    uint64_t met = 0;
    for (uint32_t i = 0; i < FAULTS; i++) {
        printf("%s: met in %" PRIu64 " of %" PRIu64 " cycles, noticed in %" PRIu64
               ", by the health in %" PRIu64 "\n",
            fault_names[i], failing->met[i], failing->counts[i], failing->heard[i],
            failing->told[i]);
        met += failing->met[i];
    }
    printf("%" PRIu64 " faults met and judged, %" PRIu64 " acknowledgements, %" PRIu64
           " calls failed, %" PRIu64 " departures\n",
        met, failing->oracle.acknowledged_count, atomic_load(&failing->disk.board->failed_count),
        failing->oracle.left_count);
    return cycles < CYCLES_DEFAULT ||
           (failing->told[FAULT_WRITES] > 0 && failing->told[FAULT_FLUSHES] > 0);
}

/* Ask for each key that was ever put: the number of hits. A wrong byte ends the program. */
static uint64_t
count_hits(kvt_store *store, kvt_namespace ns)
{
    static uint8_t target[RUN_BLOCK_BYTES_MAX];
    uint64_t hits = 0, version = 0;

    for (uint32_t i = 0; i < WRITERS * WRITERS_KEYS; i++) {
        struct payload_key key;
        struct kvt_submit submit = {0};
        struct kvt_result result;
        kvt_ticket *ticket = NULL;
        payload_key_make(&key, i);
        struct kvt_get get = {.key = key.key, .destination = target, .capacity = sizeof(target)};
        get.flags = KVT_GET_TRANSIENT; /* Nothing stays in memory. */
        enum kvt_status status = kvt_get_submit(store, ns, &get, 1, &submit, &ticket);
        if (status == KVT_OK)
            status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
        if (status == KVT_OK)
            status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1);
        if (status != KVT_OK || (result.status != KVT_OK && result.status != KVT_MISS))
            run_fail("a get of key %u", i);
        if (result.status == KVT_OK && !payload_is_right(target, result.length, i, &version))
            run_fail("WRONG BYTES in key %u", i);
        hits += result.status == KVT_OK;
        kvt_ticket_free(ticket);
    }
    return hits;
}

/* All reads fail: misses; and afterwards the blocks are there. */
static bool
run_reads(struct failing *failing)
{
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    kvt_store *store = writers_open(&failing->workload, failing->mount.point, namespaces);
    uint64_t hits[3];

    if (store == NULL)
        run_fail("kvt_open");
    hits[0] = count_hits(store, namespaces[0]);
    atomic_store(&failing->disk.board->fail_reads, DISK_ALWAYS);
    hits[1] = count_hits(store, namespaces[0]);
    mend(failing);
    kvt_abort(store);
    store = writers_open(&failing->workload, failing->mount.point, namespaces);
    if (store == NULL)
        run_fail("kvt_open after reads failed");
    hits[2] = count_hits(store, namespaces[0]);
    kvt_abort(store);
    printf("blocks found: %" PRIu64 ", while no read succeeds %" PRIu64 ", mended %" PRIu64 "\n",
        hits[0], hits[1], hits[2]);
    return hits[0] > 0 && hits[1] == 0 && hits[2] == hits[0];
}

static struct failing failing = {
    .workload = {.name = "eio",
        .io_engine = RUN_IO_AUTO,
        .host_bytes = 8 << 20,
        .may_leave = true}}; /* Writes that fail close their segments. */

/* Everything between the making of the folder and its end. Returns the exit code. */
static int
run(const char *folder, uint64_t cycles)
{
    char point[256], disk_point[256], path[256], reason[256];

    snprintf(point, sizeof(point), "%s/mount", folder);
    snprintf(disk_point, sizeof(disk_point), "%s/disk", folder);
    snprintf(path, sizeof(path), "%s/image", folder);
    if (mkdir(folder, 0700) != 0 || mkdir(point, 0700) != 0 || mkdir(disk_point, 0700) != 0)
        run_fail("cannot make %s", folder);
    int image = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (image < 0 || ftruncate(image, IMAGE_BYTES) != 0 || !crash_mount_format(path, "ext4"))
        run_fail("no image in %s", folder);
    unlink(path);
    oracle_init(&failing.oracle);
    int code = CRASH_SKIPPED;
    if (crash_disk_start(&failing.disk, image, folder, disk_point, reason, sizeof(reason))) {
        crash_mount_attach(&failing.mount, failing.disk.file, "ext4", point);
        if (!crash_mount_up(&failing.mount))
            run_fail("ext4 does not mount: %s", strerror(errno));
        code = run_cycles(&failing, folder, cycles) && run_reads(&failing) ? 0 : 1;
        crash_mount_down(&failing.mount);
        crash_mount_detach(&failing.mount);
        crash_disk_stop(&failing.disk);
    } else {
        printf("SKIPPED: %s\n", reason);
    }
    rmdir(point);
    rmdir(disk_point);
    rmdir(folder);
    return code;
}

int
main(int count, char **values)
{
    struct crash_plan plan = {
        .name = "eio", .option = "--cycles", .count = CYCLES_DEFAULT, .seed = 1};
    int code = crash_plan_begin(&plan, count, values, &failing.workload);

    failing.rng.state = plan.seed;
    failing.seed = plan.seed;
    return code != 0 ? code : run(plan.folder, plan.count);
}
