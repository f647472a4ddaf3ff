/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - `tierbench scale`: what many entries cost: memory of each, lookups among them, and
 * opening the store again after a close and after SIGKILL.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_store.h"
#include "complain.h"
#include "json_writer.h"
#include "process_memory.h"
#include "progress.h"
#include "quantity.h"
#include "statistics.h"
#include "sweep.h"
#include "tierbench.h"

enum {
    BLOCK_BYTES = 4096,
    LOOKUP_COUNT = 2000,
    HOST_BYTES = 64 << 20,
    WARM_ENTRIES = 65536, /* Put before the first look at the memory: HOST is full then. */
    SLICE_ENTRIES = 16384,
};

enum {
    OPTION_DIR,
    OPTION_ENTRIES,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where the store is made and removed; made when missing"},
    [OPTION_ENTRIES] = {"--entries", "N", "blocks of 4 KiB, each a page of NVMe (default 1000000)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_scale_line = {
    .program = "tierbench",
    .command = "scale",
    .operands = "",
    .summary = "Measure memory, lookups and reopening with many small blocks.",
    .text = "JSON: \"entries\", \"entry_memory_bytes\" (growth of the process's anonymous memory\n"
            "for each entry, key included), \"lookup_1000_p50_ns\", \"lookup_1000_p99_ns\" (with\n"
            "lease and release), \"lookup_found\" (of the last 1,000), \"reopen_clean_ns\",\n"
            "\"reopen_killed_ns\" (until 1,000 keys were answered), \"page_cache_dropped\" (needs\n"
            "root), \"put_per_s\"",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

struct scale {
    struct bench_store bench;
    uint64_t entries;
    double entry_memory_bytes;
    double put_per_s;
    uint64_t lookup_p50_ns;
    uint64_t lookup_p99_ns;
    uint32_t lookup_found;
    double reopen_clean_seconds;
    double reopen_killed_seconds;
    bool cache_dropped;
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
        if (bench_store_put(&scale->bench, left * BLOCK_BYTES, 3600) < 0)
            return false;
        progress_at(progress, scale->bench.next_number);
    }
    return true;
}

static bool
fill(struct scale *scale)
{
    struct progress progress;
    uint64_t warm = scale->entries / 2 < WARM_ENTRIES ? scale->entries / 2 : WARM_ENTRIES;
    uint64_t before = 0;
    double start = clock_seconds();
    bool is_fine = false;

    progress_begin(&progress, "put", PROGRESS_COUNT, 0, scale->entries);
    is_fine = entries_put(scale, warm, &progress);
    warm = scale->bench.next_number;
    before = process_anonymous_bytes();
    is_fine = is_fine && entries_put(scale, scale->entries, &progress);
    progress_end(&progress);
    if (!is_fine)
        return false;
    scale->entries = scale->bench.next_number; /* Whole batches: a few more than asked for. */
    scale->put_per_s = (double)scale->entries / (clock_seconds() - start);
    scale->entry_memory_bytes =
        ((double)process_anonymous_bytes() - (double)before) / (double)(scale->entries - warm);
    return true;
}

static bool
lookups(struct scale *scale)
{
    static uint64_t times[LOOKUP_COUNT];

    for (uint32_t i = 0; i < LOOKUP_COUNT; i++) {
        times[i] = bench_store_lookup(&scale->bench, &scale->lookup_found);
        if (times[i] == 0)
            return false;
    }
    scale->lookup_p50_ns = number_percentile(times, LOOKUP_COUNT, 0.50);
    scale->lookup_p99_ns = number_percentile(times, LOOKUP_COUNT, 0.99);
    return true;
}

/* Opens with a cold page cache until 1,000 keys were answered. */
static bool
reopen(struct scale *scale, double *seconds_out)
{
    double start = 0;
    uint32_t found = 0;

    scale->cache_dropped = cache_drop();
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
    if (!reopen(scale, &scale->reopen_clean_seconds) || !bench_store_close(&scale->bench))
        return false;
    return kill_child(scale) && reopen(scale, &scale->reopen_killed_seconds) &&
           bench_store_close(&scale->bench);
}

static void
scale_print_json(const struct scale *scale)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_number(&json, "entries", scale->entries);
    json_real(&json, "entry_memory_bytes", scale->entry_memory_bytes);
    json_number(&json, "lookup_1000_p50_ns", scale->lookup_p50_ns);
    json_number(&json, "lookup_1000_p99_ns", scale->lookup_p99_ns);
    json_number(&json, "lookup_found", scale->lookup_found);
    json_number(&json, "reopen_clean_ns", (uint64_t)(scale->reopen_clean_seconds * 1e9));
    json_number(&json, "reopen_killed_ns", (uint64_t)(scale->reopen_killed_seconds * 1e9));
    json_bool(&json, "page_cache_dropped", scale->cache_dropped);
    json_real(&json, "put_per_s", scale->put_per_s);
    json_object_end(&json);
    json_end(&json);
}

static void
scale_print(const struct scale *scale)
{
    char text[QUANTITY_TEXT_BYTES];

    printf("%-34s %12s\n", "entries", quantity_count_text(text, scale->entries));
    printf("%-34s %12.1f bytes\n", "memory of an entry, key included", scale->entry_memory_bytes);
    printf("%-34s %12s p50", "lookup of 1,000 keys, with lease",
        quantity_time_text(text, (double)scale->lookup_p50_ns));
    printf(" %12s p99\n", quantity_time_text(text, (double)scale->lookup_p99_ns));
    printf("%-34s %12s\n", "reopen after a close",
        quantity_time_text(text, scale->reopen_clean_seconds * 1e9));
    printf("%-34s %12s\n", "reopen after SIGKILL",
        quantity_time_text(text, scale->reopen_killed_seconds * 1e9));
    if (!scale->cache_dropped)
        printf("the page cache was not dropped (that needs root): the reopens read from memory\n");
}

/* Half as much again: batch headers, and the mark above which segments are reclaimed. */
static uint64_t
capacity_for(uint64_t entries)
{
    return (entries * BLOCK_BYTES * 3 / 2 + (UINT64_C(256) << 20)) >> 20 << 20;
}

static int
scale_run(const char *path, uint64_t entries, bool as_json)
{
    struct scale *scale = calloc(1, sizeof(*scale));
    bool is_fine = false;

    if (scale == NULL) {
        complain("there is no memory");
        return EXIT_PROBLEM;
    }
    scale->entries = entries;
    scale->bench.path = path;
    scale->bench.block_bytes = BLOCK_BYTES;
    scale->bench.host_bytes = HOST_BYTES;
    scale->bench.nvme_bytes = capacity_for(entries);
    is_fine = measure(scale);
    if (is_fine && as_json)
        scale_print_json(scale);
    else if (is_fine)
        scale_print(scale);
    bench_store_end(&scale->bench);
    free(scale);
    return is_fine ? EXIT_FINE : EXIT_PROBLEM;
}

int
tierbench_scale(int argc, char **argv)
{
    struct arguments arguments;
    char path[4096];
    const char *directory = NULL;
    uint64_t entries = 1000000;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&tierbench_scale_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    directory = arguments.values[OPTION_DIR];
    if (directory == NULL ||
        snprintf(path, sizeof(path), "%s/scale-store", directory) >= (int)sizeof(path)) {
        complain("scale needs --dir DIR");
        return EXIT_USAGE;
    }
    if (arguments.values[OPTION_ENTRIES] != NULL &&
        (!quantity_count(arguments.values[OPTION_ENTRIES], &entries) || entries < 10000 ||
            entries > 100000000)) {
        complain(
            "--entries %s is no count of 10000 to 100000000", arguments.values[OPTION_ENTRIES]);
        return EXIT_USAGE;
    }
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        complain("cannot make %s: %s", directory, strerror(errno));
        return EXIT_PROBLEM;
    }
    return scale_run(path, entries, arguments.values[OPTION_JSON] != NULL);
}
