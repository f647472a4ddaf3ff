/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_copies.c - scattered pieces of one size between pinned memory and a device, in, out and
 * both at once: as the device's planner has them copied, and by its copy engines alone; beside
 * plain copies of large pieces in the same run (the ceiling).
 *
 * Usage: micro_copies [cuda|emulation] [MIB] [ROUNDS]   MIB: a power of two, 2 to 512.
 *
 * One thread queues calls as the mover does, four in flight in each direction, of at most
 * DEVICE_MOVER_PIECES_MAX pieces and DEVICE_MOVER_CALL_BYTES; rows, which only their own readers
 * ask for, come in calls of ROWS_MAX. Ceiling, planner and engines take turns, and medians are
 * compared. After each size the bytes of both sides are checked.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_arguments.h"
#include "device_host.h"
#include "device_mover.h"
#include "failure.h"
#include "rng.h"

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
    ROW_BYTES_MAX = 1024, /* Smaller pieces are rows. */
    ROWS_MAX = 16384,
    CEILING_PIECE_BYTES = 16 * MIB,
    ENGINE_PIECES_MAX = 16384, /* Of a round: they take their time with small ones. */
};

enum way {
    CEILING,
    PLANNER,
    ENGINES,
    WAY_COUNT,
};

/* Bits: which lanes are at work. */
enum direction {
    IN = 1 << DEVICE_IN,
    OUT = 1 << DEVICE_OUT,
    BOTH = IN | OUT,
    DIRECTION_COUNT,
};

static const char *const way_names[] = {"ceiling", "planner", "engines"};
static const char *const direction_names[] = {"", "in", "out", "both"};

/* One direction's memory, and its calls in flight. */
struct lane {
    enum device_lane lane;
    void *stream;
    uint8_t *host;
    uint8_t *memory;
    struct device_piece *pieces[2]; /* Of the size at hand, and the ceiling's. */
    void *events[DEVICE_MOVER_CALLS_MAX];
    uint32_t begun; /* Calls of the run. */
    uint32_t ended;
    uint32_t next; /* The first piece that has not been queued. */
};

struct bench {
    struct kvt_env env;
    const struct kvt_device_ops *ops;
    struct device *device;
    uint64_t total_bytes; /* Of each area. */
    uint32_t round_count;
    uint64_t piece_bytes;
    uint32_t *order[2]; /* Where pieces lie on the host's and the device's side. */
    struct lane lanes[DEVICE_LANE_COUNT];
    struct device_plan plan;
    double measure_ms;                                           /* That it took to find. */
    double rates[WAY_COUNT][DIRECTION_COUNT][DEVICE_ROUNDS_MAX]; /* Bytes a second. */
};

/* --- 1. What is timed ------------------------------------------------------------------------- */

struct run {
    const struct device_piece *pieces[DEVICE_LANE_COUNT];
    uint32_t piece_count;
    uint32_t call_pieces;
};

static bool
call_begin(struct bench *bench, struct lane *lane, const struct run *run)
{
    uint32_t left = run->piece_count - lane->next;
    uint32_t count = left < run->call_pieces ? left : run->call_pieces;

    if (bench->ops->copy(
            bench->device, lane->stream, run->pieces[lane->lane] + lane->next, count) != KVT_OK)
        return false;
    lane->next += count;
    return bench->ops->event_record(bench->device,
               lane->events[lane->begun++ % DEVICE_MOVER_CALLS_MAX], lane->stream) == KVT_OK;
}

/* One look at a lane. *is_done: there is nothing left of it. */
static bool
lane_step(struct bench *bench, struct lane *lane, const struct run *run, bool *is_done)
{
    while (lane->ended < lane->begun) {
        enum kvt_status status = bench->ops->event_query(
            bench->device, lane->events[lane->ended % DEVICE_MOVER_CALLS_MAX]);

        if (status == KVT_NOT_READY)
            break;
        if (status != KVT_OK)
            return false;
        lane->ended++;
    }
    if (lane->next < run->piece_count && lane->begun - lane->ended < DEVICE_MOVER_CALLS_MAX &&
        !call_begin(bench, lane, run))
        return false;
    *is_done = lane->next == run->piece_count && lane->ended == lane->begun;
    return true;
}

/* The seconds that it took; below 0: it failed. */
static double
run_time(struct bench *bench, uint32_t direction, const struct run *run)
{
    uint64_t begin_ns = env_now(&bench->env);
    uint32_t left = direction;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        bench->lanes[i].begun = 0;
        bench->lanes[i].ended = 0;
        bench->lanes[i].next = 0;
    }
    while (left != 0) {
        for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
            bool is_done = false;

            if ((left >> i & 1) == 0)
                continue;
            if (!lane_step(bench, &bench->lanes[i], run, &is_done))
                return -1;
            if (is_done)
                left &= ~(1u << i);
        }
        if (bench->ops == &device_host_ops)
            (void)sched_yield();
    }
    return (double)(env_now(&bench->env) - begin_ns) / 1e9;
}

static struct run
run_make(const struct bench *bench, enum way way)
{
    bool is_ceiling = way == CEILING;
    uint64_t size = is_ceiling ? CEILING_PIECE_BYTES : bench->piece_bytes;
    uint32_t call_max = size < ROW_BYTES_MAX ? ROWS_MAX : DEVICE_MOVER_PIECES_MAX;
    struct run run = {.piece_count = (uint32_t)(bench->total_bytes / size),
        .call_pieces = (uint32_t)(DEVICE_MOVER_CALL_BYTES / size)};

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        run.pieces[i] = bench->lanes[i].pieces[is_ceiling];
    if (run.call_pieces > call_max)
        run.call_pieces = call_max;
    if (way == ENGINES && run.piece_count > ENGINE_PIECES_MAX)
        run.piece_count = ENGINE_PIECES_MAX;
    if (is_ceiling && run.piece_count == 0)
        run.piece_count = 1; /* As large as the area is. */
    return run;
}

static bool
plan_choose(struct bench *bench, enum device_plan_choice choice)
{
    return bench->ops->plan == NULL ||
           bench->ops->plan(bench->device, choice, &bench->plan) == KVT_OK;
}

static bool
way_run(struct bench *bench, enum way way, uint32_t round)
{
    const struct run run = run_make(bench, way);

    for (uint32_t direction = IN; direction <= BOTH; direction++) {
        uint64_t bytes = 0;
        double seconds = run_time(bench, direction, &run);

        if (seconds < 0)
            return false;
        for (uint32_t i = 0; i < run.piece_count; i++)
            bytes += run.pieces[0][i].size;
        bench->rates[way][direction][round] =
            (double)(direction == BOTH ? 2 * bytes : bytes) / seconds;
    }
    return true;
}

/* Ceiling and planner take turns; the engines have theirs afterwards, since measuring what the
 * planner does takes a while. */
static bool
rounds_run(struct bench *bench)
{
    uint64_t begin_ns = env_now(&bench->env);

    if (!plan_choose(bench, DEVICE_PLAN_MEASURE))
        return false;
    bench->measure_ms = (double)(env_now(&bench->env) - begin_ns) / 1e6;
    for (uint32_t round = 0; round < bench->round_count; round++) {
        if (!way_run(bench, CEILING, round) || !way_run(bench, PLANNER, round))
            return false;
    }
    return true;
}

static bool
engine_rounds_run(struct bench *bench)
{
    struct device_plan measured = bench->plan;
    bool is_fine = plan_choose(bench, DEVICE_PLAN_ENGINES);

    for (uint32_t round = 0; round < bench->round_count && is_fine; round++)
        is_fine = way_run(bench, ENGINES, round);
    bench->plan = measured;
    return is_fine;
}

/* --- 2. Pieces and bytes ---------------------------------------------------------------------- */

static void
order_make(uint32_t *order, uint32_t count, uint64_t seed)
{
    struct rng rng = {.state = seed};

    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = rng_below(&rng, i);
        uint32_t place = order[i - 1];

        order[i - 1] = order[other];
        order[other] = place;
    }
}

static struct device_piece
piece_make(const struct lane *lane, uint64_t host_at, uint64_t memory_at, uint64_t size)
{
    uint8_t *host = lane->host + host_at;
    uint8_t *memory = lane->memory + memory_at;

    if (lane->lane == DEVICE_IN)
        return (struct device_piece){memory, host, size};
    return (struct device_piece){host, memory, size};
}

static void
pieces_make(struct bench *bench)
{
    uint64_t large =
        CEILING_PIECE_BYTES < bench->total_bytes ? CEILING_PIECE_BYTES : bench->total_bytes;
    uint32_t count = (uint32_t)(bench->total_bytes / bench->piece_bytes);

    order_make(bench->order[0], count, 1);
    order_make(bench->order[1], count, 2);
    for (uint32_t k = 0; k < DEVICE_LANE_COUNT; k++) {
        struct lane *lane = &bench->lanes[k];

        for (uint32_t i = 0; i < count; i++) {
            lane->pieces[0][i] = piece_make(lane, bench->order[0][i] * bench->piece_bytes,
                bench->order[1][i] * bench->piece_bytes, bench->piece_bytes);
        }
        for (uint32_t i = 0; i < bench->total_bytes / large; i++)
            lane->pieces[1][i] = piece_make(lane, i * large, i * large, large);
    }
}

/* One piece, now. */
static bool
plain_copy(struct bench *bench, void *target, const void *source)
{
    const struct device_piece piece = {target, source, bench->total_bytes};
    struct lane *lane = &bench->lanes[DEVICE_OUT];
    enum kvt_status status;

    if (bench->ops->copy(bench->device, lane->stream, &piece, 1) != KVT_OK ||
        bench->ops->event_record(bench->device, lane->events[0], lane->stream) != KVT_OK)
        return false;
    while ((status = bench->ops->event_query(bench->device, lane->events[0])) == KVT_NOT_READY)
        (void)sched_yield();
    return status == KVT_OK;
}

/* What the last run of the planner moved: the device's side of what went in, and the host's of what
 * came out. */
static bool
bytes_check(struct bench *bench)
{
    const struct lane *in = &bench->lanes[DEVICE_IN];
    const struct lane *out = &bench->lanes[DEVICE_OUT];
    uint32_t count = (uint32_t)(bench->total_bytes / bench->piece_bytes);
    bool is_right = true;

    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < count && is_right; i++) {
            uint64_t host_at = bench->order[0][i] * bench->piece_bytes;
            uint64_t memory_at = bench->order[1][i] * bench->piece_bytes;

            is_right = memcmp(out->host + (side == 0 ? host_at : memory_at),
                           in->host + (side == 0 ? memory_at : host_at), bench->piece_bytes) == 0;
        }
        if (side == 0 && is_right && !plain_copy(bench, out->host, in->memory))
            return false;
    }
    if (!is_right)
        (void)failure_set(KVT_E_CORRUPT, 0, "Bytes are not where they belong.");
    return is_right;
}

/* --- 3. Making and reporting ------------------------------------------------------------------ */

static bool
lane_open(struct bench *bench, enum device_lane number)
{
    struct lane *lane = &bench->lanes[number];
    void *memory = NULL;

    lane->lane = number;
    lane->stream = bench->ops->stream(bench->device, number);
    lane->host = env_map(&bench->env, bench->total_bytes);
    for (uint32_t i = 0; i < 2; i++)
        lane->pieces[i] = calloc(bench->total_bytes / 256 + 1, sizeof(struct device_piece));
    if (lane->host == NULL || lane->pieces[0] == NULL || lane->pieces[1] == NULL) {
        (void)failure_set(
            KVT_E_NOMEM, 0, "No memory for areas of %" PRIu64 " bytes.", bench->total_bytes);
        return false;
    }
    for (uint32_t i = 0; i < DEVICE_MOVER_CALLS_MAX; i++) {
        if (bench->ops->event_create(bench->device, &lane->events[i]) != KVT_OK)
            return false;
    }
    if (bench->ops->host_register(bench->device, lane->host, bench->total_bytes) != KVT_OK ||
        bench->ops->slab_take(bench->device, bench->total_bytes, &memory) != KVT_OK)
        return false;
    lane->memory = memory;
    return true;
}

static void
lane_close(struct bench *bench, struct lane *lane)
{
    bench->ops->slab_put(bench->device, lane->memory, bench->total_bytes);
    bench->ops->host_unregister(bench->device, lane->host, bench->total_bytes);
    for (uint32_t i = 0; i < DEVICE_MOVER_CALLS_MAX; i++)
        bench->ops->event_destroy(bench->device, lane->events[i]);
    env_unmap(&bench->env, lane->host, bench->total_bytes);
    free(lane->pieces[0]);
    free(lane->pieces[1]);
}

static bool
bench_open(struct bench *bench)
{
    struct rng rng = {.state = 3};

    for (uint32_t i = 0; i < 2; i++) {
        bench->order[i] = calloc(bench->total_bytes / 256 + 1, sizeof(uint32_t));
        if (bench->order[i] == NULL) {
            (void)failure_set(KVT_E_NOMEM, 0, "No memory for an order.");
            return false;
        }
    }
    if (bench->ops->open(NULL, &bench->env, 0, &bench->device) != KVT_OK ||
        !lane_open(bench, DEVICE_IN) || !lane_open(bench, DEVICE_OUT))
        return false;
    for (uint64_t at = 0; at < bench->total_bytes; at += sizeof(uint64_t)) {
        uint64_t word = rng_next(&rng);

        memcpy(bench->lanes[DEVICE_IN].host + at, &word, sizeof(word));
    }
    return plain_copy(bench, bench->lanes[DEVICE_OUT].memory, bench->lanes[DEVICE_IN].host);
}

static int
double_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

static double
median(struct bench *bench, enum way way, uint32_t direction)
{
    double *rates = bench->rates[way][direction];

    qsort(rates, bench->round_count, sizeof(*rates), double_compare);
    return rates[bench->round_count / 2];
}

static void
report(struct bench *bench, const char *name)
{
    for (uint32_t direction = IN; direction <= BOTH; direction++) {
        double ceiling = median(bench, CEILING, direction);

        for (uint32_t way = PLANNER; way <= ENGINES; way++) {
            double rate = median(bench, (enum way)way, direction);

            printf("{\"device\": \"%s\", \"piece_bytes\": %" PRIu64
                   ", \"direction\": \"%s\", \"way\": \"%s\", \"bytes_per_second\": %.0f"
                   ", \"ceiling_bytes_per_second\": %.0f, \"share\": %.3f"
                   ", \"kernel_below_bytes\": [%" PRIu64 ", %" PRIu64 "], \"measure_ms\": %.1f}\n",
                name, bench->piece_bytes, direction_names[direction], way_names[way], rate, ceiling,
                rate / ceiling, way == ENGINES ? 0 : bench->plan.kernel_below_bytes[DEVICE_IN],
                way == ENGINES ? 0 : bench->plan.kernel_below_bytes[DEVICE_OUT], bench->measure_ms);
        }
    }
    (void)fflush(stdout);
}

/* --- 4. The program --------------------------------------------------------------------------- */

static bool
bench_run(struct bench *bench)
{
    static const uint64_t sizes[] = {
        264, 656, 4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB};
    struct device_info info = {.name = ""};

    if (!bench_open(bench) || bench->ops->info(bench->device, &info) != KVT_OK)
        return false;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bench->piece_bytes = sizes[i];
        pieces_make(bench);
        if (!rounds_run(bench) || !bytes_check(bench) || !engine_rounds_run(bench))
            return false;
        report(bench, info.name);
    }
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        lane_close(bench, &bench->lanes[i]);
    bench->ops->close(bench->device);
    free(bench->order[0]);
    free(bench->order[1]);
    return true;
}

int
main(int argc, char **argv)
{
    static struct bench bench;
    struct device_arguments arguments;

    if (!device_arguments_read("micro_copies", argc, argv, &arguments))
        return 2;
    env_host(&bench.env);
    bench.ops = arguments.ops;
    bench.total_bytes = arguments.total_bytes;
    bench.round_count = arguments.round_count;
    if (bench.ops == NULL || !bench_run(&bench)) {
        fprintf(stderr, "micro_copies: %s\n", failure_last()->text);
        return 1;
    }
    return 0;
}
