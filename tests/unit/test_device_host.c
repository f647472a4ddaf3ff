/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_host.c - the emulated accelerator's teeth: whoever forgets an event sees it.
 *
 * All in the simulated world, where a mistake is no race of the test itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_host.h"
#include "device_rig.h"
#include "gather_row.h"
#include "sim_world.h"
#include "stop_on_proof.h"

#if defined(__SANITIZE_ADDRESS__)
#    define UNDER_ASAN 1
#endif

enum {
    SEED_COUNT = 60,
    KIB = 1024,
    SIZE = 64 * KIB,
};

struct bench {
    struct sim_world *world;
    struct device_host_config config;
    struct device_rig rig;
    uint8_t *back; /* A registration of its own. */
};

static void
pass_sim(struct device_rig *rig)
{
    (void)sim_run_for(rig->pass_context, 2000);
}

/* The device in a world of `seed`; the source is full of bytes number 1, the slab of number 2. */
static void
bench_open(struct bench *bench, uint64_t seed)
{
    struct sim_options options = {.seed = seed};

    memset(bench, 0, sizeof(*bench));
    bench->world = sim_world_create(&options);
    assert_non_null(bench->world);
    bench->config = (struct device_host_config){.seed = seed, .delay_ns_max = 30000};
    bench->rig = (struct device_rig){.ops = &device_host_ops,
        .context = &bench->config,
        .env = sim_env(bench->world),
        .pass = pass_sim,
        .pass_context = bench->world,
        .is_emulated = true};
    assert_true(device_rig_open(&bench->rig));
    bench->back = bench->rig.host + RIG_CHUNK_BYTES;
    device_rig_fill(bench->rig.host, SIZE, 2);
    assert_int_equal(
        device_rig_copy(&bench->rig, bench->rig.in, bench->rig.slab, bench->rig.host, SIZE),
        KVT_OK);
    assert_true(device_rig_drain(&bench->rig, bench->rig.in));
    device_rig_fill(bench->rig.host, SIZE, 1);
}

static void
bench_close(struct bench *bench)
{
    if (bench->rig.ops->event_record(bench->rig.device, bench->rig.event, bench->rig.in) == KVT_OK)
        assert_true(device_rig_await(&bench->rig, bench->rig.event));
    if (bench->rig.ops->event_record(bench->rig.device, bench->rig.event, bench->rig.out) == KVT_OK)
        assert_true(device_rig_await(&bench->rig, bench->rig.event));
    device_rig_close(&bench->rig);
    assert_int_equal(sim_leaks(bench->world, NULL, 0), 0);
    sim_world_destroy(bench->world);
}

static enum kvt_status
copy(struct bench *bench, void *stream, void *target, const void *source)
{
    return device_rig_copy(&bench->rig, stream, target, source, SIZE);
}

/* A look at bytes at which nobody may look yet. */
__attribute__((no_sanitize("address"), noinline)) static uint8_t
peek(const uint8_t *bytes)
{
    return *(const volatile uint8_t *)bytes;
}

static uint32_t
poison_count(const uint8_t *bytes, uint32_t size)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < size; i++)
        count += peek(bytes + i) == DEVICE_POISON;
    return count;
}

/* What a child process that does `act` ends with; 0: it lived. */
static int
child_end(void (*act)(struct bench *bench), struct bench *bench)
{
    int end = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        /* Neither cmocka's handler, nor a report that looks like one of this test. */
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        (void)freopen("/dev/null", "w", stderr);
        act(bench);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &end, 0), child);
    return end;
}

/* --- 1. Device memory ------------------------------------------------------------------------- */

/* As the processor does it: ThreadSanitizer has no shadow for such an address, and gets lost. */
#define RAW __attribute__((no_sanitize("address", "thread"), noinline))

RAW static void
act_read_device(struct bench *bench)
{
    (void)*(volatile uint8_t *)bench->rig.slab;
}

RAW static void
act_write_device(struct bench *bench)
{
    *(volatile uint8_t *)(bench->rig.slab + 4096) = 1;
}

static void
act_nothing(struct bench *bench)
{
    (void)*(volatile uint8_t *)bench->rig.host;
}

static void
host_faults_on_a_device_address(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, 1);
    assert_int_equal(child_end(act_nothing, &bench), 0);
    assert_int_not_equal(child_end(act_read_device, &bench), 0);
    assert_int_not_equal(child_end(act_write_device, &bench), 0);
    bench_close(&bench);
}

/* The address that the process could use is not one of the device. */
static void
address_of_the_memory_behind_is_refused(void **state)
{
    struct bench bench;
    uint8_t *behind;

    (void)state;
    bench_open(&bench, 1);
    behind = (uint8_t *)((uintptr_t)bench.rig.slab ^ DEVICE_HOST_BIT);
    assert_int_equal(copy(&bench, bench.rig.in, behind, bench.rig.host), KVT_E_INVAL);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, behind), KVT_E_INVAL);
    bench_close(&bench);
}

/* --- 2. Too early ----------------------------------------------------------------------------- */

static void
target_is_poison_before_the_event_and_torn_on_the_way(void **state)
{
    uint32_t torn_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        bool is_torn = false;

        bench_open(&bench, seed);
        assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
        assert_int_equal(poison_count(bench.back, SIZE), SIZE);
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t poisoned = poison_count(bench.back, SIZE);

            is_torn = is_torn || (poisoned > SIZE / 100 && poisoned < SIZE);
            (void)sim_run_for(bench.world, 2000);
        }
        torn_seeds += is_torn;
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        assert_true(device_rig_is_filled(bench.back, SIZE, 2));
        bench_close(&bench);
    }
    assert_true(torn_seeds > SEED_COUNT / 4);
}

static void
device_target_is_poison_before_the_copy_has_run(void **state)
{
    struct bench bench;
    const uint8_t *behind;

    (void)state;
    bench_open(&bench, 5);
    behind = (const uint8_t *)((uintptr_t)bench.rig.slab ^ DEVICE_HOST_BIT);
    assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
    assert_int_equal(poison_count(behind, SIZE), SIZE);
    bench_close(&bench);
}

static void
source_that_changes_before_the_event_is_seen_in_the_copy(void **state)
{
    uint32_t wrong_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;

        bench_open(&bench, seed);
        assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
        (void)sim_run_for(bench.world, seed % 8 * 4000);
        device_rig_fill(bench.rig.host, SIZE, 3);
        assert_true(device_rig_drain(&bench.rig, bench.rig.in));
        assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        wrong_seeds += !device_rig_is_filled(bench.back, SIZE, 1);
        bench_close(&bench);
    }
    assert_true(wrong_seeds > SEED_COUNT / 2);
}

static void
pieces_of_one_call_arrive_in_any_order(void **state)
{
    uint32_t first_seeds = 0;
    uint32_t second_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        struct device_piece pieces[2];
        bool is_first_there = false;
        bool is_second_there = false;

        bench_open(&bench, seed);
        pieces[0] = (struct device_piece){bench.back, bench.rig.slab, SIZE / 2};
        pieces[1] = (struct device_piece){bench.back + SIZE, bench.rig.slab, SIZE / 2};
        assert_int_equal(bench.rig.ops->copy(bench.rig.device, bench.rig.out, pieces, 2), KVT_OK);
        while (!is_first_there && !is_second_there) {
            (void)sim_run_for(bench.world, 1000);
            is_first_there = poison_count(bench.back, SIZE / 2) < SIZE / 4;
            is_second_there = poison_count(bench.back + SIZE, SIZE / 2) < SIZE / 4;
        }
        first_seeds += is_first_there && !is_second_there;
        second_seeds += is_second_there && !is_first_there;
        bench_close(&bench);
    }
    assert_true(first_seeds > 5 && second_seeds > 5);
}

/* --- 3. Streams and events -------------------------------------------------------------------- */

/* From the host through the device and back, on two streams; true: the right bytes came. */
static bool
round_trip_is_right(uint64_t seed, bool waits)
{
    struct bench bench;
    bool is_right;

    bench_open(&bench, seed);
    assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
    if (waits) {
        assert_int_equal(
            bench.rig.ops->event_record(bench.rig.device, bench.rig.event, bench.rig.in), KVT_OK);
        assert_int_equal(
            bench.rig.ops->stream_wait(bench.rig.device, bench.rig.out, bench.rig.event), KVT_OK);
    }
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_true(device_rig_drain(&bench.rig, bench.rig.out));
    is_right = device_rig_is_filled(bench.back, SIZE, 1);
    bench_close(&bench);
    return is_right;
}

static void
missing_wait_between_streams_gives_wrong_bytes(void **state)
{
    uint32_t wrong_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        assert_true(round_trip_is_right(seed, true));
        wrong_seeds += !round_trip_is_right(seed, false);
    }
    assert_true(wrong_seeds > SEED_COUNT * 3 / 4);
}

/* A slot is emptied by one stream and filled again by the other; true: the old bytes came out. */
static bool
refill_is_right(uint64_t seed, bool waits)
{
    struct bench bench;
    bool is_right;

    bench_open(&bench, seed);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    if (waits) {
        assert_int_equal(
            bench.rig.ops->event_record(bench.rig.device, bench.rig.event, bench.rig.out), KVT_OK);
        assert_int_equal(
            bench.rig.ops->stream_wait(bench.rig.device, bench.rig.in, bench.rig.event), KVT_OK);
    }
    assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
    assert_true(device_rig_drain(&bench.rig, bench.rig.out));
    is_right = device_rig_is_filled(bench.back, SIZE, 2);
    assert_true(device_rig_drain(&bench.rig, bench.rig.in));
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_true(device_rig_drain(&bench.rig, bench.rig.out));
    assert_true(device_rig_is_filled(bench.back, SIZE, 1));
    bench_close(&bench);
    return is_right;
}

static void
slot_refilled_too_early_gives_wrong_bytes(void **state)
{
    uint32_t wrong_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        assert_true(refill_is_right(seed, true));
        wrong_seeds += !refill_is_right(seed, false);
    }
    assert_true(wrong_seeds > SEED_COUNT * 3 / 4);
}

/* Which of two events is seen first: 1, 2, or 3 for both at once. */
static uint32_t
first_seen(struct bench *bench, void *one, void *other)
{
    uint32_t seen = 0;

    while (seen == 0) {
        (void)sim_run_for(bench->world, 500);
        if (bench->rig.ops->event_query(bench->rig.device, other) == KVT_OK)
            seen |= 2;
        if (bench->rig.ops->event_query(bench->rig.device, one) == KVT_OK)
            seen |= 1;
    }
    return seen;
}

static void
events_of_two_streams_are_seen_in_any_order(void **state)
{
    uint32_t seen_seeds[4] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        void *other = NULL;

        bench_open(&bench, seed);
        assert_int_equal(bench.rig.ops->event_create(bench.rig.device, &other), KVT_OK);
        assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
        assert_int_equal(
            bench.rig.ops->event_record(bench.rig.device, bench.rig.event, bench.rig.in), KVT_OK);
        assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab + SIZE), KVT_OK);
        assert_int_equal(
            bench.rig.ops->event_record(bench.rig.device, other, bench.rig.out), KVT_OK);
        seen_seeds[first_seen(&bench, bench.rig.event, other)]++;
        assert_true(device_rig_await(&bench.rig, other));
        bench.rig.ops->event_destroy(bench.rig.device, other);
        bench_close(&bench);
    }
    assert_true(seen_seeds[1] > 5 && seen_seeds[2] > 5);
}

/* A program may conclude from the later one that the earlier is reached as well. */
static void
event_is_never_seen_before_one_that_it_is_behind(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        const struct kvt_device_ops *ops = &device_host_ops;
        void *last = NULL;

        bench_open(&bench, seed);
        assert_int_equal(ops->event_create(bench.rig.device, &last), KVT_OK);
        assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_OK);
        assert_int_equal(
            ops->event_record(bench.rig.device, bench.rig.event, bench.rig.in), KVT_OK);
        if (seed % 2 == 0)
            assert_int_equal(
                ops->stream_wait(bench.rig.device, bench.rig.out, bench.rig.event), KVT_OK);
        assert_int_equal(
            ops->event_record(bench.rig.device, last, seed % 2 == 0 ? bench.rig.out : bench.rig.in),
            KVT_OK);
        assert_true(first_seen(&bench, bench.rig.event, last) & 1);
        assert_true(device_rig_await(&bench.rig, last));
        ops->event_destroy(bench.rig.device, last);
        bench_close(&bench);
    }
}

/* --- 4. Launches, and a lost device ----------------------------------------------------------- */

struct launch {
    uint8_t seen[SIZE];
    uint32_t count;
};

static void
launch_run(void *context, void *memory)
{
    struct launch *launch = context;

    memcpy(launch->seen, memory, SIZE);
    device_rig_fill(memory, SIZE, 9);
    launch->count++;
}

static void
launch_runs_once_in_the_order_of_its_stream(void **state)
{
    static struct launch launch;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        void *stream = NULL;

        memset(&launch, 0, sizeof(launch));
        bench_open(&bench, seed);
        assert_int_equal(device_host_stream_create(bench.rig.device, &stream), KVT_OK);
        assert_int_equal(copy(&bench, stream, bench.rig.slab, bench.rig.host), KVT_OK);
        assert_int_equal(
            device_host_launch(bench.rig.device, stream, launch_run, &launch, bench.rig.slab),
            KVT_OK);
        assert_int_equal(launch.count, 0);
        assert_int_equal(copy(&bench, stream, bench.back, bench.rig.slab), KVT_OK);
        /* Poisons the slab only when the launch and the copy out are done. */
        assert_int_equal(copy(&bench, stream, bench.rig.slab, bench.rig.host), KVT_OK);
        assert_int_equal(
            bench.rig.ops->event_record(bench.rig.device, bench.rig.event, stream), KVT_OK);
        device_host_stream_destroy(bench.rig.device, stream);
        assert_int_equal(launch.count, 1);
        assert_true(device_rig_is_filled(launch.seen, SIZE, 1));
        assert_true(device_rig_await(&bench.rig, bench.rig.event));
        assert_true(device_rig_is_filled(bench.back, SIZE, 9));
        bench_close(&bench);
    }
}

/* Rows of 32 numbers and as many scales, as bfloat16. */
static void
rows_convert(uint8_t (*rows)[64], uint64_t count)
{
    uint16_t values[32];

    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t v = 0; v < 32; v++)
            values[v] = gather_value(rows[i][v], rows[i][32 + v]);
        memcpy(rows[i], values, sizeof(values));
    }
}

/* The first rows of a table of one page, as they are and as numbers. Table and ids lie in the slab,
 * or in memory of the host, which is shaded when the copies into it are queued. */
static void
gather_has_run_before_what_it_reads_is_written(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        bool is_host = seed % 2 == 0;
        uint32_t value_count = seed % 4 < 2 ? 0 : 32;
        struct device_gather gather = {.count = 16,
            .row_count = 64,
            .rows_per_page = 64,
            .row_bytes = 64,
            .value_count = value_count,
            .scale_count = value_count};
        uint8_t rows[16][64];
        uint8_t *ids, *pages;

        bench_open(&bench, seed);
        ids = is_host ? bench.back : bench.rig.slab + 3 * SIZE;
        pages = is_host ? bench.back + SIZE : bench.rig.slab;
        device_rig_fill(rows[0], sizeof(rows), 2);
        for (uint32_t i = 0; i < gather.count; i++)
            ((uint32_t *)(void *)bench.back)[i] = i;
        if (is_host)
            device_rig_fill(pages, SIZE, 2);
        else
            assert_int_equal(copy(&bench, bench.rig.out, ids, bench.back), KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        gather.ids = (const uint32_t *)(const void *)ids;
        gather.pages = pages;
        gather.target = bench.rig.slab + SIZE;
        gather.verdict = (uint64_t *)(void *)(bench.rig.slab + 2 * SIZE);
        assert_int_equal(bench.rig.ops->gather(bench.rig.device, bench.rig.out, &gather), KVT_OK);
        /* Both would be poisoned at once if nobody were to read them. */
        assert_int_equal(copy(&bench, bench.rig.out, pages, bench.rig.host), KVT_OK);
        assert_int_equal(copy(&bench, bench.rig.out, ids, bench.rig.host), KVT_OK);
        assert_int_equal(
            copy(&bench, bench.rig.out, bench.back + 2 * SIZE, bench.rig.slab + SIZE), KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        if (value_count > 0)
            rows_convert(rows, gather.count);
        assert_memory_equal(bench.back + 2 * SIZE, rows, sizeof(rows));
        bench_close(&bench);
    }
}

static void
launch_outside_the_devices_memory_is_refused(void **state)
{
    static struct launch launch;
    struct bench bench;
    struct device *device;

    (void)state;
    bench_open(&bench, 1);
    device = bench.rig.device;
    assert_int_equal(
        device_host_launch(device, bench.rig.in, launch_run, &launch, bench.rig.host), KVT_E_INVAL);
    assert_int_equal(
        device_host_launch(device, bench.rig.in, NULL, &launch, bench.rig.slab), KVT_E_INVAL);
    assert_int_equal(
        device_host_launch(device, NULL, launch_run, &launch, bench.rig.slab), KVT_E_INVAL);
    bench_close(&bench);
}

static void
copies_of_a_lost_device_arrive_or_not(void **state)
{
    uint32_t arrived_seeds = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEED_COUNT; seed++) {
        struct bench bench;
        uint32_t poisoned;

        bench_open(&bench, seed);
        assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
        bench.config.fail_call = bench.config.call_count + 1;
        assert_int_equal(copy(&bench, bench.rig.in, bench.rig.slab, bench.rig.host), KVT_E_GPU);
        (void)sim_run_for(bench.world, 10000000);
        poisoned = poison_count(bench.back, SIZE);
        arrived_seeds += poisoned < SIZE / 100;
        bench_close(&bench);
    }
    assert_true(arrived_seeds > 2 && arrived_seeds < SEED_COUNT - 5);
}

/* --- 5. AddressSanitizer ---------------------------------------------------------------------- */

#ifdef UNDER_ASAN

static void
act_read_target(struct bench *bench)
{
    (void)*(volatile uint8_t *)(bench->back + 100);
}

static void
act_read_beside(struct bench *bench)
{
    (void)*(volatile uint8_t *)(bench->back - 1);
    (void)*(volatile uint8_t *)(bench->back + SIZE);
}

static void
early_look_at_a_target_is_caught(void **state)
{
    struct bench bench;
    void *early = NULL;

    (void)state;
    bench_open(&bench, 1);
    assert_int_equal(bench.rig.ops->event_create(bench.rig.device, &early), KVT_OK);
    assert_int_equal(bench.rig.ops->event_record(bench.rig.device, early, bench.rig.out), KVT_OK);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_int_not_equal(child_end(act_read_target, &bench), 0);
    assert_int_equal(child_end(act_read_beside, &bench), 0);
    /* The bytes are there, and an event before the copy is reached: that is not enough. */
    (void)sim_run_for(bench.world, 100000000);
    assert_int_equal(bench.rig.ops->event_query(bench.rig.device, early), KVT_OK);
    assert_int_not_equal(child_end(act_read_target, &bench), 0);
    assert_true(device_rig_drain(&bench.rig, bench.rig.out));
    assert_int_equal(child_end(act_read_target, &bench), 0);
    bench.rig.ops->event_destroy(bench.rig.device, early);
    bench_close(&bench);
}

/* Seen on another stream that waited for the copy's: that vouches for it as well. */
static void
look_behind_an_event_of_a_waiting_stream_is_allowed(void **state)
{
    struct bench bench;
    const struct kvt_device_ops *ops = &device_host_ops;

    (void)state;
    bench_open(&bench, 2);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_true(device_rig_drain(&bench.rig, bench.rig.in));
    (void)sim_run_for(bench.world, 100000000);
    assert_int_not_equal(child_end(act_read_target, &bench), 0);
    assert_int_equal(ops->event_record(bench.rig.device, bench.rig.event, bench.rig.out), KVT_OK);
    assert_int_equal(ops->stream_wait(bench.rig.device, bench.rig.in, bench.rig.event), KVT_OK);
    assert_true(device_rig_drain(&bench.rig, bench.rig.in));
    assert_int_equal(child_end(act_read_target, &bench), 0);
    bench_close(&bench);
}

/* Two copies into the same bytes: the first one's event does not open them. */
static void
target_of_two_copies_stays_closed_until_the_second(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, 3);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_int_equal(
        bench.rig.ops->event_record(bench.rig.device, bench.rig.event, bench.rig.out), KVT_OK);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    assert_true(device_rig_await(&bench.rig, bench.rig.event));
    assert_int_not_equal(child_end(act_read_target, &bench), 0);
    assert_true(device_rig_drain(&bench.rig, bench.rig.out));
    assert_int_equal(child_end(act_read_target, &bench), 0);
    bench_close(&bench);
}

static void
memory_that_left_the_device_is_open(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench, 4);
    assert_int_equal(copy(&bench, bench.rig.out, bench.back, bench.rig.slab), KVT_OK);
    (void)sim_run_for(bench.world, 100000000);
    bench.rig.ops->host_unregister(bench.rig.device, bench.back, RIG_CHUNK_BYTES);
    assert_int_equal(child_end(act_read_target, &bench), 0);
    assert_int_equal(
        bench.rig.ops->host_register(bench.rig.device, bench.back, RIG_CHUNK_BYTES), KVT_OK);
    assert_int_equal(child_end(act_read_target, &bench), 0);
    bench_close(&bench);
}

#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_faults_on_a_device_address),
        cmocka_unit_test(address_of_the_memory_behind_is_refused),
        cmocka_unit_test(target_is_poison_before_the_event_and_torn_on_the_way),
        cmocka_unit_test(device_target_is_poison_before_the_copy_has_run),
        cmocka_unit_test(source_that_changes_before_the_event_is_seen_in_the_copy),
        cmocka_unit_test(pieces_of_one_call_arrive_in_any_order),
        cmocka_unit_test(missing_wait_between_streams_gives_wrong_bytes),
        cmocka_unit_test(slot_refilled_too_early_gives_wrong_bytes),
        cmocka_unit_test(events_of_two_streams_are_seen_in_any_order),
        cmocka_unit_test(event_is_never_seen_before_one_that_it_is_behind),
        cmocka_unit_test(launch_runs_once_in_the_order_of_its_stream),
        cmocka_unit_test(gather_has_run_before_what_it_reads_is_written),
        cmocka_unit_test(launch_outside_the_devices_memory_is_refused),
        cmocka_unit_test(copies_of_a_lost_device_arrive_or_not),
#ifdef UNDER_ASAN
        cmocka_unit_test(early_look_at_a_target_is_caught),
        cmocka_unit_test(look_behind_an_event_of_a_waiting_stream_is_allowed),
        cmocka_unit_test(target_of_two_copies_stays_closed_until_the_second),
        cmocka_unit_test(memory_that_left_the_device_is_open),
#endif
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
