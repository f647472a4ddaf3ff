/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_ops.c - what puts and gets of blocks in HOST cost the loop: CPU time of its thread a block,
 * and allocations of the whole store in the steady state.
 *
 * Four callers put (MEMORY, REPLACE) and get batches of 256 blocks of 64 KiB that all fit into
 * HOST, one batch each at a time. Copies are made by workers and are not the loop's.
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "env.h"
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

enum {
    CALLERS = 4,
    BATCH = 256,
    BLOCK_BYTES = 64 << 10,
    WARM_ROUNDS = 200, /* Until all blocks of all callers were under way at once, some time. */
    ROUNDS_DEFAULT = 20,
};

/* Memory that counts what is asked of it. */
struct counted {
    struct kvt_env host;
    _Atomic uint64_t take_count;
};

struct caller {
    struct bench *bench;
    uint32_t number;
    uint8_t *bytes; /* BATCH blocks. */
    bool is_wrong;
};

struct bench {
    kvt_store *store;
    kvt_namespace ns;
    uint64_t rounds;
    struct counted counted;
    struct kvt_env env;
    struct caller callers[CALLERS];
    pthread_barrier_t barrier;
};

static void *
counted_take(void *context, size_t size)
{
    struct counted *counted = context;

    atomic_fetch_add_explicit(&counted->take_count, 1, memory_order_relaxed);
    return counted->host.memory->take(counted->host.memory_context, size);
}

static void
counted_put(void *context, void *memory, size_t size)
{
    struct counted *counted = context;

    counted->host.memory->put(counted->host.memory_context, memory, size);
}

static void *
counted_map(void *context, size_t size)
{
    struct counted *counted = context;

    atomic_fetch_add_explicit(&counted->take_count, 1, memory_order_relaxed);
    return counted->host.memory->map(counted->host.memory_context, size);
}

static void
counted_unmap(void *context, void *memory, size_t size)
{
    struct counted *counted = context;

    counted->host.memory->unmap(counted->host.memory_context, memory, size);
}

static void *
counted_fork_page(void *context)
{
    struct counted *counted = context;

    return counted->host.memory->fork_page(counted->host.memory_context);
}

static const struct memory_ops counted_ops = {
    .take = counted_take,
    .put = counted_put,
    .map = counted_map,
    .unmap = counted_unmap,
    .fork_page = counted_fork_page,
};

/* CPU time of this process's thread of that name, ns; 0: none. */
static uint64_t
thread_cpu_ns(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    uint64_t found = 0;

    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300];
        char text[64] = "";
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        (void)!fgets(text, sizeof(text), file);
        (void)fclose(file);
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(text, name) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", entry->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        (void)!fscanf(file, "%" SCNu64, &found);
        (void)fclose(file);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
    return found;
}

static void
key_make(const struct caller *caller, uint32_t i, uint8_t bytes[16], struct kvt_key *key_out)
{
    memset(bytes, 0, 16);
    memcpy(bytes, &caller->number, sizeof(caller->number));
    memcpy(bytes + 8, &i, sizeof(i));
    *key_out = (struct kvt_key){.bytes = bytes, .length = 16};
}

static bool
ticket_finish(kvt_ticket *ticket)
{
    struct kvt_result results[BATCH];
    bool is_right = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER) == KVT_OK &&
                    kvt_ticket_results(ticket, KVT_STAGE_DONE, results, BATCH) == KVT_OK;

    for (uint32_t i = 0; i < BATCH; i++)
        is_right = is_right && results[i].status == KVT_OK;
    kvt_ticket_free(ticket);
    return is_right;
}

static bool
round_run(struct caller *caller)
{
    struct bench *bench = caller->bench;
    uint8_t names[BATCH][16];
    struct kvt_put puts[BATCH];
    struct kvt_get gets[BATCH];
    kvt_ticket *ticket;

    memset(puts, 0, sizeof(puts));
    memset(gets, 0, sizeof(gets));
    for (uint32_t i = 0; i < BATCH; i++) {
        key_make(caller, i, names[i], &puts[i].key);
        puts[i].source = caller->bytes + (size_t)i * BLOCK_BYTES;
        puts[i].length = BLOCK_BYTES;
        puts[i].flags = KVT_PUT_REPLACE;
        gets[i].key = puts[i].key;
        gets[i].destination = caller->bytes + (size_t)i * BLOCK_BYTES;
        gets[i].capacity = BLOCK_BYTES;
    }
    return kvt_put_submit(bench->store, bench->ns, puts, BATCH, KVT_MEMORY, NULL, &ticket) ==
               KVT_OK &&
           ticket_finish(ticket) &&
           kvt_get_submit(bench->store, bench->ns, gets, BATCH, NULL, &ticket) == KVT_OK &&
           ticket_finish(ticket);
}

static void *
caller_main(void *context)
{
    struct caller *caller = context;

    for (uint64_t i = 0; i < WARM_ROUNDS; i++)
        caller->is_wrong = !round_run(caller) || caller->is_wrong;
    (void)pthread_barrier_wait(&caller->bench->barrier); /* Who measures looks at the counters. */
    (void)pthread_barrier_wait(&caller->bench->barrier);
    for (uint64_t i = 0; i < caller->bench->rounds; i++)
        caller->is_wrong = !round_run(caller) || caller->is_wrong;
    return NULL;
}

static bool
bench_open(struct bench *bench, const char *path)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    kvt_env_host(&bench->counted.host);
    bench->env = bench->counted.host;
    bench->env.memory = &counted_ops;
    bench->env.memory_context = &bench->counted;
    options.host_capacity_bytes = UINT64_C(512) << 20; /* Four batches fit three times. */
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.block_bytes_max = BLOCK_BYTES;
    return kvt_open_env(path, &options, &bench->env, &bench->store) == KVT_OK &&
           kvt_namespace_open(bench->store, "micro", "", 0, &bench->ns) == KVT_OK;
}

static bool
bench_run(struct bench *bench)
{
    pthread_t threads[CALLERS];
    uint64_t cpu_ns, take_count;
    uint64_t blocks = bench->rounds * CALLERS * BATCH * 2;
    bool is_wrong = false;

    (void)pthread_barrier_init(&bench->barrier, NULL, CALLERS + 1);
    for (uint32_t i = 0; i < CALLERS; i++) {
        bench->callers[i] =
            (struct caller){.bench = bench, .number = i, .bytes = calloc(BATCH, BLOCK_BYTES)};
        if (bench->callers[i].bytes == NULL ||
            pthread_create(&threads[i], NULL, caller_main, &bench->callers[i]) != 0)
            return false;
    }
    (void)pthread_barrier_wait(&bench->barrier);
    cpu_ns = thread_cpu_ns("kvt-loop");
    take_count = atomic_load(&bench->counted.take_count);
    (void)pthread_barrier_wait(&bench->barrier);
    for (uint32_t i = 0; i < CALLERS; i++) {
        (void)pthread_join(threads[i], NULL);
        is_wrong = is_wrong || bench->callers[i].is_wrong;
        free(bench->callers[i].bytes);
    }
    cpu_ns = thread_cpu_ns("kvt-loop") - cpu_ns;
    take_count = atomic_load(&bench->counted.take_count) - take_count;
    printf("{\"blocks\": %" PRIu64 ", \"loop_cpu_ns_per_block\": %.1f, "
           "\"allocations_per_block\": %.4f, \"allocation_count\": %" PRIu64 "}\n",
        blocks, (double)cpu_ns / (double)blocks, (double)take_count / (double)blocks, take_count);
    return !is_wrong;
}

int
main(int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    bool is_right;

    if (bench != NULL)
        bench->rounds = argc == 3 ? strtoull(argv[2], NULL, 10) : ROUNDS_DEFAULT;
    if (bench == NULL || argc < 2 || argc > 3 || argv[1][0] == '-' || bench->rounds == 0) {
        fprintf(stderr, "usage: micro_ops DIR [ROUNDS]   (DIR: of a new store; 1 round or more)\n");
        free(bench);
        return 2;
    }
    is_right = bench_open(bench, argv[1]) && bench_run(bench);
    if (!is_right) {
        struct kvt_error error;

        kvt_last_error(&error);
        fprintf(stderr, "micro_ops: %s %s\n", kvt_status_name(error.status), error.text);
    }
    if (bench->store != NULL && kvt_close(bench->store) != KVT_OK)
        is_right = false;
    free(bench);
    return is_right ? 0 : 1;
}
