/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_shutdown.c - the power goes on a real file system: ext4 and XFS are shut down without a
 * flush of their journals, at any moment of four writers' work, and mounted again.
 *
 * Usage: crash_shutdown [--cycles N] [--seed N]. For each file system and each io engine one store
 * lives through N cycles (25): writers (crash_writers.h) put SYNC and RELAXED, replace and delete;
 * after some notes, or while the store is being opened, the file system is cut, and goes on failing
 * until the writers are killed; it is mounted anew and the store is judged with crash_verify().
 * What was acknowledged before the kill counts, also when the cut came first: the store must not
 * acknowledge what the file system refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_mount.h"
#include "crash_plan.h"
#include "crash_verify.h"
#include "crash_writers.h"

enum {
    CYCLES_DEFAULT = 25,
    NOTES_MAX = 400,      /* Of a cycle, before the cut. */
    NOTES_MS = 10000,     /* For these, on a machine that stands still. */
    EARLY_US_MAX = 20000, /* A cut while the store is being opened. */
    LATE_US_MAX = 3000,   /* From the last note to the cut, and from the cut to the kill. */
    NVME_BYTES = 16 << 20,
};

struct cutting {
    struct workload workload;
    struct crash_mount mount;
    struct rng rng;
    uint64_t seed; /* Of the next writers. */
    uint64_t notes_left;
    uint64_t cut_ns;     /* When the last cut began. */
    uint64_t put_bytes;  /* Acknowledged. */
    uint64_t fail_count; /* Calls that failed after a cut. */
    uint64_t open_count; /* Stores that were open when the cut came. */
    struct oracle oracle;
};

static bool
hear(void *context, const struct writers_note *note)
{
    struct cutting *cutting = context;

    writers_mark(&cutting->oracle, note);
    if (note->verb == WRITERS_PUT_OK)
        cutting->put_bytes +=
            payload_length(note->key, note->version, WRITERS_BYTES_LOW, WRITERS_BYTES_HIGH);
    if (note->verb == WRITERS_OPENED) {
        cutting->open_count++;
        cutting->oracle.is_open = true;
    }
    if (note->verb >= WRITERS_LEFT && note->verb <= WRITERS_BACK &&
        (cutting->cut_ns == 0 || note->time_ns < cutting->cut_ns))
        run_fail("key %u: %s, of a tier that is never full", note->key,
            departure_marks[note->verb - WRITERS_LEFT]);
    if (note->verb == WRITERS_FAILED) {
        cutting->fail_count++;
        if (cutting->cut_ns == 0 || note->time_ns < cutting->cut_ns)
            run_fail("before the cut %s", note->text);
    }
    return cutting->notes_left == 0 || --cutting->notes_left > 0;
}

/* One life of the writers, which ends with the power. */
static void
cut(struct cutting *cutting)
{
    struct writers_plan plan = {.workload = &cutting->workload,
        .dir = cutting->mount.point,
        .seed = ++cutting->seed,
        .may_fail = true,
        .has_relaxed = true,
        .stamp_fd = -1};
    int pipe;

    cutting->cut_ns = 0;
    pid_t child = writers_start(WRITERS_MODE, &plan, &pipe);
    if (rng_below(&cutting->rng, 6) == 0) {
        writers_sleep_us(rng_below(&cutting->rng, EARLY_US_MAX));
    } else {
        cutting->notes_left = 1 + rng_below(&cutting->rng, NOTES_MAX);
        writers_listen(pipe, writers_now_ms() + NOTES_MS, hear, cutting);
        writers_sleep_us(rng_below(&cutting->rng, LATE_US_MAX));
    }
    cutting->notes_left = 0;
    cutting->cut_ns = writers_now_ns();
    crash_mount_cut(&cutting->mount);
    /* They must not be told any more that something is durable. */
    writers_listen(
        pipe, writers_now_ms() + rng_below(&cutting->rng, LATE_US_MAX) / 1000, hear, cutting);
    writers_kill(child);
    writers_listen(pipe, UINT64_MAX, hear, cutting);
    close(pipe);
    crash_mount_down(&cutting->mount);
    if (!crash_mount_up(&cutting->mount))
        run_fail("%s does not mount after a cut: %s", cutting->mount.type, strerror(errno));
}

/* A file system, and one store on it that goes through all cycles. */
static bool
run_cycles(struct cutting *cutting, const char *folder, const char *type, uint64_t cycles)
{
    char image[300], problem[512];
    bool is_right = true;
    uint64_t cycle = 0;

    snprintf(image, sizeof(image), "%s/image", folder);
    int file = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    /* XFS wants 300 MiB; what is not written takes no room. */
    if (file < 0 || ftruncate(file, 320 << 20) != 0 || !crash_mount_format(image, type))
        run_fail("no image of %s in %s", type, folder);
    unlink(image);
    snprintf(image, sizeof(image), "%s/mount", folder);
    crash_mount_attach(&cutting->mount, file, type, image);
    close(file);
    if (!crash_mount_up(&cutting->mount))
        run_fail("%s does not mount: %s", type, strerror(errno));
    for (; cycle < cycles && is_right; cycle++) {
        cut(cutting);
        struct verify_request request = {.workload = &cutting->workload,
            .oracle = &cutting->oracle,
            .dir = cutting->mount.point,
            .lives_on = true,
            .seed = rng_next(&cutting->rng)};
        is_right = crash_verify(&request, problem, sizeof(problem));
        if (!is_right) {
            printf("WRONG in cycle %" PRIu64 ": %s\n", cycle, problem);
            crash_mount_keep(&cutting->mount, folder);
        }
    }
    crash_mount_down(&cutting->mount);
    crash_mount_detach(&cutting->mount);
    printf("%s, %s: %" PRIu64 " cuts, %" PRIu64 " with the store open; %" PRIu64
           " acknowledgements, %" PRIu64 " MiB; %" PRIu64 " failures after the cut, %" PRIu64
           " departures\n",
        type, cutting->workload.io_engine == KVT_IO_THREADS ? "threads" : "io_uring", cycle,
        cutting->open_count, cutting->oracle.acknowledged_count, cutting->put_bytes >> 20,
        cutting->fail_count, cutting->oracle.left_count);
    return is_right;
}

static bool
run_all(const char *folder, uint64_t cycles, uint64_t seed)
{
    static const char *const types[] = {"ext4", "xfs"};
    static const uint32_t engines[] = {RUN_IO_AUTO, KVT_IO_THREADS};
    static struct cutting cutting;
    uint64_t put_bytes = 0;

    for (uint32_t i = 0; i < 4; i++) {
        cutting =
            (struct cutting){.workload = {.name = "shutdown",
                                 .nvme_bytes = NVME_BYTES,
                                 .io_engine = engines[i % 2],
                                 .may_leave = true}, /* Writes that fail close their segments. */
                .rng = {seed * 4 + i},
                .seed = seed};
        oracle_init(&cutting.oracle);
        if (!run_cycles(&cutting, folder, types[i / 2], cycles))
            return false;
        put_bytes += cutting.put_bytes;
    }
    printf("%" PRIu64 " cuts judged\n", cycles * 4);
    /* Segments must have been filled again and again. */
    if (cycles >= CYCLES_DEFAULT && put_bytes < UINT64_C(5) * NVME_BYTES)
        run_fail("only %" PRIu64 " bytes were acknowledged", put_bytes);
    return true;
}

static struct workload child_workload = {.name = "shutdown"};

int
main(int count, char **values)
{
    struct crash_plan plan = {
        .name = "shutdown", .option = "--cycles", .count = CYCLES_DEFAULT, .seed = 1};
    int code = crash_plan_begin(&plan, count, values, &child_workload);
    char point[256];

    if (code != 0)
        return code;
    snprintf(point, sizeof(point), "%s/mount", plan.folder);
    if (mkdir(plan.folder, 0700) != 0 || mkdir(point, 0700) != 0)
        run_fail("cannot make %s", plan.folder);
    bool is_right = run_all(plan.folder, plan.count, plan.seed);
    rmdir(point);
    rmdir(plan.folder);
    return is_right ? 0 : 1;
}
