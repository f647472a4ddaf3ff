/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_measure.c - what one number of small blocks costs: memory of each, lookups among them, and
 * opening the store again after a close and after SIGKILL.
 */
#include "scale_measure.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_store.h"
#include "complain.h"
#include "process_memory.h"
#include "progress.h"
#include "statistics.h"

enum {
    LOOKUP_COUNT = 2000,
    HOST_BYTES = 64 << 20,
    WARM_ENTRIES = 65536, /* Put before the first look at the memory: HOST is full then. */
    SLICE_ENTRIES = 16384,
    BATCHES_MIN = 64, /* Of a small store too, so that it has about as many blocks as asked for. */
};

struct scale {
    struct bench_store bench;
    struct scale_row *row;
};

/* True when the kernel forgot what it had cached of files. */
static bool
cache_drop(void)
{
    int fd = -1;
    bool dropped = false;

    sync();
    fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    dropped = write(fd, "3", 1) == 1;
    close(fd);
    return dropped;
}

/* Puts until `entries` are there. */
static bool
entries_put(struct scale *scale, uint64_t entries, struct progress *progress)
{
    while (scale->bench.next_number < entries) {
        uint64_t left = entries - scale->bench.next_number;

        if (left > SLICE_ENTRIES)
            left = SLICE_ENTRIES;
        if (bench_store_put(&scale->bench, left * scale->bench.block_bytes, 3600) < 0)
            return false;
        progress_at(progress, scale->bench.next_number);
    }
    return true;
}

static bool
fill(struct scale *scale)
{
    struct progress progress;
    uint64_t warm = scale->row->entries / 2 < WARM_ENTRIES ? scale->row->entries / 2 : WARM_ENTRIES;
    uint64_t before = 0;
    double start = clock_seconds();
    bool is_fine = false;

    progress_begin(&progress, "put", PROGRESS_COUNT, 0, scale->row->entries);
    is_fine = entries_put(scale, warm, &progress);
    warm = scale->bench.next_number;
    before = process_anonymous_bytes();
    is_fine = is_fine && entries_put(scale, scale->row->entries, &progress);
    progress_end(&progress);
    if (!is_fine)
        return false;
    scale->row->entries = scale->bench.next_number; /* Whole batches: a few more than asked for. */
    scale->row->put_per_s = (double)scale->row->entries / (clock_seconds() - start);
    scale->row->entry_memory_bytes =
        ((double)process_anonymous_bytes() - (double)before) / (double)(scale->row->entries - warm);
    return true;
}

static bool
lookups(struct scale *scale)
{
    static uint64_t times[LOOKUP_COUNT];

    for (uint32_t i = 0; i < LOOKUP_COUNT; i++) {
        times[i] = bench_store_lookup(&scale->bench, &scale->row->lookup_found);
        if (times[i] == 0)
            return false;
    }
    scale->row->lookup_p50_ns = number_percentile(times, LOOKUP_COUNT, 0.50);
    scale->row->lookup_p99_ns = number_percentile(times, LOOKUP_COUNT, 0.99);
    return true;
}

/* Opens with a cold page cache until 1,000 keys were answered. */
static bool
reopen(struct scale *scale, double *seconds_out)
{
    double start = 0;
    uint32_t found = 0;

    scale->row->cache_dropped = cache_drop();
    start = clock_seconds();
    if (!bench_store_open(&scale->bench) || bench_store_lookup(&scale->bench, &found) == 0)
        return false;
    *seconds_out = clock_seconds() - start;
    if (found < BENCH_LOOKUP_KEYS * 9 / 10) {
        complain("only %u of 1,000 keys were found after a reopen", found);
        return false;
    }
    return true;
}

/* A child opens the store, writes, and is killed in the middle of it. No store is open here. */
static bool
kill_child(struct scale *scale)
{
    int wait_status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (bench_store_open(&scale->bench) &&
            bench_store_put(&scale->bench, UINT64_C(4) << 20, 60) > 0)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    if (child < 0 || waitpid(child, &wait_status, 0) != child || !WIFSIGNALED(wait_status)) {
        complain("the child that was to be killed with the store open was not");
        return false;
    }
    return true;
}

static bool
measure(struct scale *scale)
{
    if (!bench_store_new(&scale->bench) || !fill(scale) || !lookups(scale) ||
        !bench_store_close(&scale->bench))
        return false;
    if (!reopen(scale, &scale->row->reopen_clean_seconds) || !bench_store_close(&scale->bench))
        return false;
    return kill_child(scale) && reopen(scale, &scale->row->reopen_killed_seconds) &&
           bench_store_close(&scale->bench);
}

/* Half as much again: batch headers, and the mark above which segments are reclaimed. */
static uint64_t
capacity_for(const struct scale_store *store)
{
    return (store->entries * store->block_bytes * 3 / 2 + (UINT64_C(256) << 20)) >> 20 << 20;
}

/* In the child: 0 when *row_out is filled. */
static int
child_measure(const struct scale_store *store, struct scale_row *row_out)
{
    struct scale *scale = calloc(1, sizeof(*scale));
    bool is_fine = false;

    if (scale == NULL) {
        complain("there is no memory");
        return 1;
    }
    row_out->entries = store->entries;
    scale->row = row_out;
    scale->bench.path = store->path;
    scale->bench.block_bytes = store->block_bytes;
    scale->bench.host_bytes = HOST_BYTES;
    scale->bench.nvme_bytes = capacity_for(store);
    scale->bench.batch_blocks = (uint32_t)(store->entries / BATCHES_MIN);
    is_fine = measure(scale);
    scale->bench.keeps_files = is_fine && store->keeps;
    bench_store_end(&scale->bench);
    free(scale);
    return is_fine ? 0 : 1;
}

bool
scale_measure(const struct scale_store *store, struct scale_row *row_out)
{
    int ends[2];
    int wait_status = 0;
    pid_t child = -1;
    ssize_t count = 0;

    memset(row_out, 0, sizeof(*row_out));
    if (pipe2(ends, O_CLOEXEC) != 0 || (child = fork()) < 0) {
        complain("cannot start a process: %s", strerror(errno));
        return false;
    }
    if (child == 0) {
        int exit_code = child_measure(store, row_out);

        if (write(ends[1], row_out, sizeof(*row_out)) != (ssize_t)sizeof(*row_out))
            exit_code = 1;
        _exit(exit_code);
    }
    close(ends[1]);
    do {
        count = read(ends[0], row_out, sizeof(*row_out)); /* Less than PIPE_BUF: whole. */
    } while (count < 0 && errno == EINTR);
    close(ends[0]);
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(wait_status))
        complain("the process that measured ended by signal %d", WTERMSIG(wait_status));
    return count == (ssize_t)sizeof(*row_out) && WIFEXITED(wait_status) &&
           WEXITSTATUS(wait_status) == 0;
}
