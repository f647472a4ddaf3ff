/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_sticky.c - an error of CUDA that stays (a kernel wrote where nothing is) while a store has
 * blocks in HBM: the store says so within one operation, HOST and NVMe go on, and the next process
 * finds every block that was acknowledged.
 *
 * Usage: gpu_sticky [emulation]. With "emulation" the emulated device is lost instead, everywhere.
 * Exit code 0: passed; 1: not, and why; 77: there is no GPU. Stores lie below /dev/shm, or
 * KVT_TEST_TMP. No cmocka.
 *
 * Each life is a process of its own, because nothing on the device can be used after such an error;
 * the parent, which judges, never calls CUDA: a child could not use it then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_cuda.h"
#include "device_host.h"
#include "env.h"
#include "failure.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sticky_kernel.h"
#include "store_host.h"

enum {
    BLOCKS = 64,
    BLOCK_BYTES = 65536,
    SKIPPED = 77,
    /* What a life does with the device. */
    LOSE_BY_GET = 0,  /* The first operation after the error reads from HBM ... */
    LOSE_BY_PUT,      /* ... puts from memory of the device ... */
    LOSE_BY_PREFETCH, /* ... brings a block up ... */
    LOSE_BY_LOAD,     /* ... loads a file ... */
    LOSE_BY_REGION,   /* ... registers memory. */
    WAYS,
};

static struct device_host_config config = {.seed = 3, .delay_ns_max = 100000};
static bool is_emulated;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t *pool; /* Of the device. */
static kvt_region region;
static uint8_t bytes[BLOCK_BYTES];

/* Ends the life when it is false. */
#define REQUIRE(what)                                                                             \
    do {                                                                                          \
        if (!(what)) {                                                                            \
            fprintf(stderr, "gpu_sticky.c:%d: %s (%s)\n", __LINE__, #what, failure_last()->text); \
            return 1;                                                                             \
        }                                                                                         \
    } while (0)

static enum kvt_status
finish(kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_result result = {.status = KVT_E_STATE};
    enum kvt_status status = kvt_ticket_wait(ticket, stage, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, stage, &result, 1);
    kvt_ticket_free(ticket);
    return status == KVT_OK ? result.status : status;
}

/* A block from memory of the device (to HBM) or of the host. */
static enum kvt_status
block_put(uint64_t number, bool by_device, enum kvt_durability durability)
{
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES};
    struct payload_key name;
    kvt_ticket *ticket;
    enum kvt_status status = KVT_OK;

    payload_key_make(&name, number);
    payload_fill(bytes, sizeof(bytes), number, 1);
    put.key = name.key;
    if (by_device) {
        status = kvt_device_write(store, 0, pool, bytes, sizeof(bytes));
        put.source = pool;
        put.region = region;
        put.tier = KVT_TIER_HBM;
    }
    if (status == KVT_OK)
        status = kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket);
    return status == KVT_OK
               ? finish(ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE)
               : status;
}

/* To memory of the host, whole and right, or not there. */
static enum kvt_status
block_get(uint64_t number)
{
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct payload_key name;
    uint64_t version = 0;
    kvt_ticket *ticket;
    enum kvt_status status;

    payload_key_make(&name, number);
    get.key = name.key;
    memset(bytes, 0x5A, sizeof(bytes));
    status = kvt_get_submit(store, ns, &get, 1, NULL, &ticket);
    if (status == KVT_OK)
        status = finish(ticket, KVT_STAGE_DONE);
    if (status == KVT_OK && !payload_is_right(bytes, BLOCK_BYTES, number, &version))
        return KVT_E_CORRUPT;
    return status;
}

static enum kvt_status
block_move(uint64_t number, uint32_t tier, bool is_up)
{
    const struct kvt_prefetch up = {.struct_size = sizeof(up), .tier = tier};
    struct payload_key name;
    kvt_ticket *ticket;
    enum kvt_status status;

    payload_key_make(&name, number);
    status = is_up ? kvt_prefetch_submit(store, ns, &name.key, 1, &up, NULL, &ticket)
                   : kvt_demote_submit(store, ns, &name.key, 1, tier, NULL, &ticket);
    return status == KVT_OK ? finish(ticket, KVT_STAGE_DONE) : status;
}

static enum kvt_status
store_open(const char *path)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct kvt_env env;
    enum kvt_status status;

    options.host_capacity_bytes = 64 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    options.segment_bytes = 1 << 20;
    options.block_bytes_max = BLOCK_BYTES;
    options.hbm_capacity_bytes = 16 << 20;
    options.device_kind = is_emulated ? KVT_DEVICE_EMULATION : KVT_DEVICE_CUDA;
    kvt_env_host(&env);
    if (is_emulated) {
        env.device = &device_host_ops;
        env.device_context = &config;
    }
    status = kvt_open_env(path, &options, &env, &store);
    return status == KVT_OK ? kvt_namespace_open(store, "sticky", "", 0, &ns) : status;
}

/* From now on the device can do nothing. False: it still can. */
static bool
device_lose(void)
{
    if (!is_emulated)
        return sticky_provoke() != 0;
    config.fail_call = atomic_load(&config.call_count) + 1;
    return true;
}

/* The first operation that needs the device after the error. */
static enum kvt_status
device_need(uint32_t way, const char *path)
{
    struct kvt_file_load_options load_about = {
        .struct_size = sizeof(load_about), .length = KVT_LOAD_TO_END};
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = 4096};
    enum kvt_status status;
    char file[512];
    kvt_load load;

    switch (way) {
    case LOSE_BY_PUT:
        return block_put(BLOCKS + 2, true, KVT_MEMORY);
    case LOSE_BY_PREFETCH:
        return block_move(1, KVT_TIER_HBM, true);
    case LOSE_BY_LOAD:
        snprintf(file, sizeof(file), "%s/STORE.a", path);
        return kvt_file_load(store, file, &load_about, &load);
    case LOSE_BY_REGION:
        about.address = aligned_alloc(4096, 4096);
        status = kvt_region_register(store, &about, &region);
        free(about.address);
        return status;
    default: /* From HBM, where alone it is. */
        return block_get(BLOCKS);
    }
}

/* A life that ends without its device. */
static int
first_life(const char *path, uint32_t way)
{
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
    uint32_t count = 0, health = 0;
    void *address = NULL;

    if (!is_emulated && device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return SKIPPED;
    }
    REQUIRE(store_open(path) == KVT_OK);
    REQUIRE(kvt_device_alloc(store, 0, BLOCK_BYTES, &address) == KVT_OK);
    pool = address;
    about.address = address;
    about.size = BLOCK_BYTES;
    REQUIRE(kvt_region_register(store, &about, &region) == KVT_OK);
    for (uint64_t i = 0; i < BLOCKS; i++)
        REQUIRE(block_put(i, i % 2 == 0, KVT_SYNC) == KVT_OK);
    REQUIRE(block_put(BLOCKS, true, KVT_MEMORY) == KVT_OK); /* In HBM alone. */
    REQUIRE(block_move(3, KVT_TIER_NVME, false) == KVT_OK);
    REQUIRE(device_lose());
    REQUIRE(device_need(way, path) != KVT_OK);
    REQUIRE(kvt_health(store, &health) == KVT_OK && (health & KVT_HEALTH_GPU_LOST) != 0);
    for (uint64_t i = 0; i < BLOCKS; i++) /* From HOST and NVMe. */
        REQUIRE(block_get(i) == KVT_OK);
    REQUIRE(block_get(BLOCKS) != KVT_OK);
    REQUIRE(block_put(BLOCKS + 1, false, KVT_SYNC) == KVT_OK);
    REQUIRE(block_get(BLOCKS + 1) == KVT_OK);
    REQUIRE(block_move(1, KVT_TIER_HBM, true) < KVT_OK);
    kvt_device_free(store, 0, pool, BLOCK_BYTES);
    REQUIRE(kvt_close(store) == KVT_OK);
    return 0;
}

/* Another process: the device is well, and everything that was durable is there. */
static int
second_life(const char *path, uint32_t way)
{
    uint32_t health = 0;

    (void)way;
    REQUIRE(store_open(path) == KVT_OK);
    REQUIRE(kvt_health(store, &health) == KVT_OK && (health & KVT_HEALTH_GPU_LOST) == 0);
    for (uint64_t i = 0; i < BLOCKS + 2; i++) {
        if (i == BLOCKS)
            continue;
        REQUIRE(block_move(i, KVT_TIER_HBM, true) >= KVT_OK);
        REQUIRE(block_get(i) == KVT_OK);
    }
    REQUIRE(kvt_close(store) == KVT_OK);
    return 0;
}

/* The exit code of a life in a process of its own; 1 when a signal ended it. */
static int
live(int (*life)(const char *path, uint32_t way), const char *path, uint32_t way)
{
    int outcome = 0;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        exit(life(path, way));
    if (child < 0 || waitpid(child, &outcome, 0) != child || !WIFEXITED(outcome)) {
        fprintf(stderr, "way %u: a life ended by signal %d\n", way,
            WIFSIGNALED(outcome) ? WTERMSIG(outcome) : 0);
        return 1;
    }
    return WEXITSTATUS(outcome);
}

int
main(int argc, char **argv)
{
    const struct kvt_options options = KVT_OPTIONS_INIT;
    int code = 0;

    is_emulated = argc > 1 && strcmp(argv[1], "emulation") == 0;
    for (uint32_t way = 0; way < WAYS && code == 0; way++) {
        struct real_host host;

        if (!real_host_init(&host, &options)) {
            fprintf(stderr, "no directory for a store\n");
            return 1;
        }
        code = live(first_life, host.path, way);
        if (code == 0)
            code = live(second_life, host.path, way);
        if (code != SKIPPED)
            printf("way %u: %s\n", way, code == 0 ? "passed" : "FAILED");
        real_host_deinit(&host);
    }
    return code;
}
