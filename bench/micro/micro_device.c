/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_device.c - copies of slots through the mover, in and out of a device's memory, beside one
 * plain copy of the same bytes on the same stream (the ceiling); and one slot alone.
 *
 * Usage: micro_device [cuda|emulation] [MIB] [ROUNDS]   MIB: a power of two, 2 to 512.
 *
 * All slots are pushed at once, in an order in which no two touch, and the time ends when the last
 * answer was taken. Mover and ceiling take turns, and the medians are compared. What came out is
 * compared with what went in. Alone, a slot is pushed when the mover sleeps, and its ceiling is a
 * copy, an event and a thread that does nothing but ask for it.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_arguments.h"
#include "failure.h"
#include "hbm_tier.h"
#include "rng.h"

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
};

enum what {
    CEILING,
    MOVER,
    LONE_CEILING,
    LONE,
    WHAT_COUNT,
};

struct bench {
    struct kvt_env env;
    const struct kvt_device_ops *ops;
    uint64_t total_bytes;
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint32_t round_count;
    uint8_t *arena; /* What goes in, then what comes out. */
    struct hbm_tier *hbm;
    struct inbox done;
    void *event;
    uint8_t **slots; /* On the device; the first begins its memory. */
    struct device_move *moves;
    struct device_move **order;
    struct device_piece *pieces;
    double times_ns[DEVICE_LANE_COUNT][WHAT_COUNT][DEVICE_ROUNDS_MAX];
};

/* --- 1. What is timed ------------------------------------------------------------------------- */

static struct device_piece
piece_make(const struct bench *bench, enum device_lane lane, uint32_t slot, uint64_t size)
{
    uint8_t *host = bench->arena + slot * bench->slot_bytes;
    uint8_t *out = host + bench->total_bytes;

    if (lane == DEVICE_IN)
        return (struct device_piece){bench->slots[slot], host, size};
    return (struct device_piece){out, bench->slots[slot], size};
}

static bool
plain_run(struct bench *bench, enum device_lane lane, uint64_t size)
{
    struct device *device = hbm_device(bench->hbm);
    const struct device_piece piece = piece_make(bench, lane, 0, size);
    void *stream = bench->ops->stream(device, lane);
    enum kvt_status status;

    if (bench->ops->copy(device, stream, &piece, 1) != KVT_OK ||
        bench->ops->event_record(device, bench->event, stream) != KVT_OK)
        return false;
    while ((status = bench->ops->event_query(device, bench->event)) == KVT_NOT_READY)
        (void)sched_yield();
    return status == KVT_OK;
}

static void
moves_make(struct bench *bench, enum device_lane lane)
{
    for (uint32_t i = 0; i < bench->slot_count; i++) {
        bench->pieces[i] = piece_make(bench, lane, i, bench->slot_bytes);
        bench->moves[i] = (struct device_move){
            .lane = lane, .pieces = &bench->pieces[i], .piece_count = 1, .done = &bench->done};
    }
}

static bool
mover_run(struct bench *bench, uint32_t count)
{
    bool is_fine = true;

    device_mover_push(hbm_mover(bench->hbm), bench->order, count);
    while (count > 0) {
        struct inbox_node *node = inbox_take(&bench->done);

        if (node == NULL)
            (void)sched_yield();
        for (; node != NULL; node = node->next) {
            is_fine = is_fine && CONTAINER_OF(node, struct device_move, node)->status == KVT_OK;
            count--;
        }
    }
    return is_fine;
}

static bool
what_run(struct bench *bench, enum device_lane lane, enum what what)
{
    switch (what) {
    case CEILING:
        return plain_run(bench, lane, bench->total_bytes);
    case MOVER:
        return mover_run(bench, bench->slot_count);
    case LONE_CEILING:
        return plain_run(bench, lane, bench->slot_bytes);
    case LONE:
        return mover_run(bench, 1);
    case WHAT_COUNT:
        break;
    }
    return false;
}

static bool
rounds_run(struct bench *bench)
{
    for (uint32_t round = 0; round < bench->round_count; round++) {
        for (uint32_t lane = 0; lane < DEVICE_LANE_COUNT; lane++) {
            for (uint32_t what = 0; what < WHAT_COUNT; what++) {
                uint64_t begin_ns;

                moves_make(bench, (enum device_lane)lane);
                begin_ns = env_now(&bench->env);
                if (!what_run(bench, (enum device_lane)lane, (enum what)what))
                    return false;
                bench->times_ns[lane][what][round] = (double)(env_now(&bench->env) - begin_ns);
            }
        }
        if (memcmp(bench->arena, bench->arena + bench->total_bytes, bench->total_bytes) != 0) {
            (void)failure_set(KVT_E_CORRUPT, 0, "What came out is not what went in.");
            return false;
        }
        memset(bench->arena + bench->total_bytes, 0, bench->total_bytes);
    }
    return true;
}

/* --- 2. Making and reporting ------------------------------------------------------------------ */

static bool
slots_take(struct bench *bench)
{
    struct rng rng = {.state = 1};

    for (uint32_t i = 0; i < bench->slot_count; i++) {
        struct slot slot;

        if (slab_take(hbm_slab(bench->hbm), bench->slot_bytes, &slot) != KVT_OK)
            return false;
        bench->slots[i] = slab_address(hbm_slab(bench->hbm), slot);
        if (bench->slots[i] < bench->slots[0]) {
            uint8_t *first = bench->slots[0];

            bench->slots[0] = bench->slots[i];
            bench->slots[i] = first;
        }
    }
    /* First every other one in a random order, then those between: none touches the one before. */
    for (uint32_t i = 0; i < bench->slot_count; i++)
        bench->order[i] = &bench->moves[i * 2 % bench->slot_count + i * 2 / bench->slot_count];
    for (uint32_t i = bench->slot_count / 2; i > 1; i--) {
        uint32_t other = rng_below(&rng, i);
        struct device_move *move = bench->order[i - 1];

        bench->order[i - 1] = bench->order[other];
        bench->order[other] = move;
    }
    return true;
}

static bool
bench_open(struct bench *bench)
{
    struct hbm_options options = {.ops = bench->ops,
        .capacity_bytes = bench->total_bytes,
        .slot_bytes_max = bench->slot_bytes,
        .arena = bench->arena,
        .arena_size = 2 * bench->total_bytes};

    bench->slot_count = (uint32_t)(bench->total_bytes / bench->slot_bytes);
    bench->slots = calloc(bench->slot_count, sizeof(*bench->slots));
    bench->moves = calloc(bench->slot_count, sizeof(*bench->moves));
    bench->order = calloc(bench->slot_count, sizeof(struct device_move *));
    bench->pieces = calloc(bench->slot_count, sizeof(*bench->pieces));
    if (bench->slots == NULL || bench->moves == NULL || bench->order == NULL ||
        bench->pieces == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "No memory for %" PRIu32 " moves.", bench->slot_count);
        return false;
    }
    return hbm_open(&bench->env, &options, &bench->hbm) == KVT_OK && slots_take(bench) &&
           bench->ops->event_create(hbm_device(bench->hbm), &bench->event) == KVT_OK;
}

static void
bench_close(struct bench *bench)
{
    if (bench->hbm != NULL) {
        bench->ops->event_destroy(hbm_device(bench->hbm), bench->event);
        hbm_as_tier(bench->hbm)->ops->close(hbm_as_tier(bench->hbm));
    }
    free(bench->pieces);
    free(bench->order);
    free(bench->moves);
    free(bench->slots);
    bench->hbm = NULL;
    bench->event = NULL;
}

static int
double_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

static double
median_ns(struct bench *bench, uint32_t lane, enum what what)
{
    double *times = bench->times_ns[lane][what];

    qsort(times, bench->round_count, sizeof(*times), double_compare);
    return times[bench->round_count / 2];
}

static void
report(struct bench *bench, const char *name)
{
    for (uint32_t lane = 0; lane < DEVICE_LANE_COUNT; lane++) {
        double ceiling_ns = median_ns(bench, lane, CEILING);
        double mover_ns = median_ns(bench, lane, MOVER);

        printf("{\"device\": \"%s\", \"direction\": \"%s\", \"slot_kib\": %" PRIu64
               ", \"bytes_per_second\": %.0f, \"ceiling_bytes_per_second\": %.0f, \"share\": %.3f"
               ", \"lone_us\": %.1f, \"lone_ceiling_us\": %.1f}\n",
            name, lane == DEVICE_IN ? "in" : "out", bench->slot_bytes / KIB,
            (double)bench->total_bytes * 1e9 / mover_ns,
            (double)bench->total_bytes * 1e9 / ceiling_ns, ceiling_ns / mover_ns,
            median_ns(bench, lane, LONE) / 1e3, median_ns(bench, lane, LONE_CEILING) / 1e3);
    }
}

/* --- 3. The program --------------------------------------------------------------------------- */

static bool
bench_run(struct bench *bench)
{
    static const uint64_t slot_sizes[] = {4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, MIB};
    struct rng rng = {.state = 2};

    bench->arena = env_map(&bench->env, 2 * bench->total_bytes);
    if (bench->arena == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "No arena of %" PRIu64 " bytes.", 2 * bench->total_bytes);
        return false;
    }
    for (uint64_t at = 0; at < bench->total_bytes; at += sizeof(uint64_t)) {
        uint64_t word = rng_next(&rng);

        memcpy(bench->arena + at, &word, sizeof(word));
    }
    for (size_t i = 0; i < sizeof(slot_sizes) / sizeof(slot_sizes[0]); i++) {
        struct device_info info = {.name = ""};
        bool is_fine;

        bench->slot_bytes = slot_sizes[i];
        is_fine = bench_open(bench) && bench->ops->info(hbm_device(bench->hbm), &info) == KVT_OK &&
                  rounds_run(bench);
        bench_close(bench);
        if (!is_fine)
            return false;
        report(bench, info.name);
    }
    return true;
}

int
main(int argc, char **argv)
{
    static struct bench bench;
    struct device_arguments arguments;

    if (!device_arguments_read("micro_device", argc, argv, &arguments))
        return 2;
    env_host(&bench.env);
    bench.ops = arguments.ops;
    bench.total_bytes = arguments.total_bytes;
    bench.round_count = arguments.round_count;
    if (bench.ops == NULL || !bench_run(&bench)) {
        fprintf(stderr, "micro_device: %s\n", failure_last()->text);
        return 1;
    }
    env_unmap(&bench.env, bench.arena, 2 * bench.total_bytes);
    return 0;
}
