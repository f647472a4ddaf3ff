/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contest.c - rounds of puts and gets through the peers.
 */
#include "contest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "damage.h"
#include "directory.h"
#include "huge_buffer.h"
#include "lap.h"
#include "pattern.h"
#include "progress.h"
#include "raw_reads.h"
#include "statistics.h"
#include "usage.h"

enum {
    POOL_BYTES = 512 << 20, /* Of one lap. */
    PATH_BYTES = 4096,
};

/* The figures of one peer in the rounds, before their medians. */
struct tally {
    struct lap_result puts[PEER_VARIANTS_MAX][CONTEST_ROUNDS_MAX];
    struct lap_result gets[PEER_VARIANTS_MAX][CONTEST_ROUNDS_MAX];
    uint64_t put_count; /* Blocks so far. */
    uint64_t turn;      /* Where in the random order its gets are. */
    char directory[PATH_BYTES];
};

struct contest_run {
    const struct contest_plan *plan;
    struct contest *contest;
    struct huge_buffer pool;
    struct peer_block *blocks; /* Of a lap. */
    uint64_t *order;           /* All blocks, shuffled. */
    struct tally tallies[CONTEST_PEERS_MAX];
    double raw_rates[RAW_DEPTHS][CONTEST_ROUNDS_MAX];
    struct progress progress;
    uint64_t steps;
};

static uint32_t
variants_count(const uint32_t callers[PEER_VARIANTS_MAX])
{
    uint32_t count = 0;

    while (count < PEER_VARIANTS_MAX && callers[count] != 0)
        count++;
    return count;
}

static struct peer_place
place_of(const struct contest_run *run, const struct tally *tally)
{
    return (struct peer_place){
        .directory = tally->directory,
        .block_bytes = run->contest->block_bytes,
        .block_count = run->contest->block_count,
        .batch_blocks = run->contest->batch_blocks,
    };
}

/* The blocks of the next puts, with their bytes. How many. */
static uint32_t
puts_prepare(struct contest_run *run, uint64_t first, uint64_t end)
{
    uint64_t size = run->contest->block_bytes;
    uint64_t count = end - first;

    if (count > run->contest->lap_blocks)
        count = run->contest->lap_blocks;
    for (uint64_t i = 0; i < count; i++) {
        run->blocks[i] =
            (struct peer_block){.number = first + i, .bytes = run->pool.bytes + i * size};
        pattern_fill(first + i, run->blocks[i].bytes, size);
    }
    return (uint32_t)count;
}

/* One peer's share of one round, by one number of callers. */
static bool
puts_measure(struct contest_run *run, struct lap *lap, struct tally *tally, uint64_t end,
    struct lap_result *result)
{
    while (tally->put_count < end) {
        lap->block_count = puts_prepare(run, tally->put_count, end);
        if (!lap_run(lap, result))
            return false;
        tally->put_count += lap->block_count;
    }
    return true;
}

static bool
put_round(struct contest_run *run, uint32_t index, uint32_t round)
{
    struct contest_row *row = &run->contest->rows[index];
    struct tally *tally = &run->tallies[index];
    const struct peer *peer = row->peer;
    struct peer_place place = place_of(run, tally);
    uint64_t slices = (uint64_t)run->plan->rounds * row->put_count;
    struct lap lap = {.peer = peer,
        .blocks = run->blocks,
        .batch_blocks = run->contest->batch_blocks,
        .is_put = true};
    bool is_fine = true;

    lap.state = peer->open(&place);
    if (lap.state == NULL)
        return false;
    for (uint32_t i = 0; is_fine && i < row->put_count; i++) {
        uint64_t slice = (uint64_t)round * row->put_count + i + 1;

        lap.callers = peer->put_callers[i];
        is_fine = puts_measure(
            run, &lap, tally, run->contest->block_count * slice / slices, &tally->puts[i][round]);
    }
    is_fine = peer->close(lap.state) && is_fine;
    storage_settle(tally->directory);
    return is_fine;
}

/* The next blocks of the random order, their memory poisoned. */
static void
gets_prepare(struct contest_run *run, struct tally *tally)
{
    const struct contest *contest = run->contest;

    for (uint32_t i = 0; i < contest->lap_blocks; i++) {
        run->blocks[i] = (struct peer_block){
            .number = run->order[tally->turn++ % contest->block_count],
            .bytes = run->pool.bytes + i * contest->block_bytes,
        };
    }
    memset(run->pool.bytes, PATTERN_POISON, contest->lap_blocks * contest->block_bytes);
}

/* Compares every byte of the lap. */
static void
gets_compare(const struct contest_run *run, struct contest_row *row)
{
    const struct contest *contest = run->contest;

    for (uint32_t i = 0; i < contest->lap_blocks; i++) {
        const struct peer_block *block = &run->blocks[i];
        uint64_t wrong = 0;

        row->got_blocks++;
        if (block->is_refused) {
            row->refused_blocks++;
            continue;
        }
        wrong = pattern_wrong_bytes(block->number, block->bytes, contest->block_bytes);
        row->wrong_bytes += wrong;
        row->wrong_blocks += wrong > 0;
    }
}

static bool
get_lap(struct contest_run *run, uint32_t index, struct lap *lap, struct lap_result *result)
{
    struct tally *tally = &run->tallies[index];

    gets_prepare(run, tally);
    if (lap->peer->forget != NULL && !lap->peer->forget(lap->state))
        return false;
    if (!lap_run(lap, result))
        return false;
    gets_compare(run, &run->contest->rows[index]);
    return true;
}

/* One peer's gets in one round: for each number of callers a lap to warm up, then those that
 * count. */
static bool
get_round(struct contest_run *run, uint32_t index, uint32_t round)
{
    struct contest_row *row = &run->contest->rows[index];
    struct tally *tally = &run->tallies[index];
    struct peer_place place = place_of(run, tally);
    struct lap lap = {.peer = row->peer,
        .blocks = run->blocks,
        .block_count = run->contest->lap_blocks,
        .batch_blocks = run->contest->batch_blocks};
    double seconds = run->plan->seconds / run->plan->rounds;
    bool is_fine = true;

    lap.state = row->peer->open(&place);
    if (lap.state == NULL)
        return false;
    for (uint32_t i = 0; is_fine && i < row->get_count; i++) {
        struct lap_result warm = {.seconds = 0};
        struct lap_result *result = &tally->gets[i][round];

        lap.callers = row->peer->get_callers[i];
        is_fine = get_lap(run, index, &lap, &warm);
        while (is_fine && result->seconds < seconds)
            is_fine = get_lap(run, index, &lap, result);
    }
    return row->peer->close(lap.state) && is_fine;
}

/* What the disk gives of the same blocks without a peer: of kvtier's data file, which is full of
 * them from its beginning on. */
static bool
raw_round(struct contest_run *run, uint32_t round)
{
    const struct contest *contest = run->contest;
    char path[PATH_BYTES + sizeof("/data/data.00")];
    double rates[RAW_DEPTHS];

    for (uint32_t i = 0; i < contest->row_count; i++) {
        if (contest->rows[i].peer != &peer_kvtier)
            continue;
        snprintf(path, sizeof(path), "%s/data/data.00", run->tallies[i].directory);
        if (!raw_reads(path, contest->block_bytes, contest->block_count * contest->block_bytes,
                run->plan->seconds / run->plan->rounds, rates))
            return false;
        for (uint32_t j = 0; j < RAW_DEPTHS; j++)
            run->raw_rates[j][round] = rates[j];
    }
    return true;
}

/* Medians of the rounds, each figure by itself. */
static struct contest_point
point_of(const struct contest_run *run, uint32_t callers, const struct lap_result *results)
{
    double rates[CONTEST_ROUNDS_MAX];
    double cpu[CONTEST_ROUNDS_MAX];
    double read[CONTEST_ROUNDS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->plan->rounds; i++) {
        double blocks = (double)results[i].block_count;

        if (results[i].block_count == 0 || results[i].seconds <= 0)
            continue;
        rates[count] = blocks * (double)run->contest->block_bytes / results[i].seconds;
        cpu[count] = results[i].cpu_seconds * 1e9 / blocks;
        read[count] = (double)results[i].read_bytes / blocks;
        count++;
    }
    return (struct contest_point){
        .callers = callers,
        .bytes_per_s = median(rates, count),
        .cpu_ns = median(cpu, count),
        .read_bytes = median(read, count),
    };
}

static void
medians_take(struct contest_run *run)
{
    for (uint32_t i = 0; i < RAW_DEPTHS; i++) {
        double rate = median(run->raw_rates[i], run->plan->rounds);

        if (rate <= run->contest->ceiling_bytes_per_s)
            continue;
        run->contest->ceiling_bytes_per_s = rate;
        run->contest->ceiling_depth = raw_depth(run->contest->block_bytes, i);
    }
    for (uint32_t i = 0; i < run->contest->row_count; i++) {
        struct contest_row *row = &run->contest->rows[i];
        const struct tally *tally = &run->tallies[i];

        for (uint32_t j = 0; j < row->put_count; j++)
            row->puts[j] = point_of(run, row->peer->put_callers[j], tally->puts[j]);
        for (uint32_t j = 0; j < row->get_count; j++)
            row->gets[j] = point_of(run, row->peer->get_callers[j], tally->gets[j]);
    }
}

/* One round of all peers, from another one on each time: none has always the same before it. */
static bool
round_run(
    struct contest_run *run, uint32_t round, bool (*step)(struct contest_run *, uint32_t, uint32_t))
{
    for (uint32_t i = 0; i < run->contest->row_count; i++) {
        if (!step(run, (i + round) % run->contest->row_count, round))
            return false;
        progress_at(&run->progress, ++run->steps);
    }
    return true;
}

static bool
rounds_run(struct contest_run *run)
{
    const struct contest *contest = run->contest;

    for (uint32_t round = 0; round < run->plan->rounds; round++) {
        if (!round_run(run, round, put_round))
            return false;
    }
    for (uint32_t i = 0; run->plan->has_damage && i < contest->row_count; i++) {
        if (!damage_block(run->tallies[i].directory, 0, contest->block_bytes))
            return false;
    }
    for (uint32_t round = 0; round < run->plan->rounds; round++) {
        if (!round_run(run, round, get_round) || !raw_round(run, round))
            return false;
    }
    return true;
}

/* Fisher and Yates, always the same way. */
static void
order_shuffle(uint64_t *order, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        order[i] = i;
    for (uint64_t i = count; i > 1; i--) {
        uint64_t other = pattern_mix(i) % i;
        uint64_t number = order[i - 1];

        order[i - 1] = order[other];
        order[other] = number;
    }
}

static bool
memory_take(struct contest_run *run)
{
    struct contest *contest = run->contest;

    run->blocks = calloc(contest->lap_blocks, sizeof(*run->blocks));
    run->order = calloc(contest->block_count, sizeof(*run->order));
    if (run->blocks == NULL || run->order == NULL ||
        !huge_buffer_take(&run->pool, contest->lap_blocks * contest->block_bytes)) {
        complain("there is no memory for a lap of %" PRIu32 " blocks", contest->lap_blocks);
        return false;
    }
    order_shuffle(run->order, contest->block_count);
    return true;
}

/* Sizes, peers and folders. */
static bool
contest_prepare(struct contest_run *run, uint64_t block_bytes)
{
    const struct contest_plan *plan = run->plan;
    struct contest *contest = run->contest;
    uint64_t lap = POOL_BYTES / block_bytes;
    uint64_t batch = (UINT64_C(4) << 20) / block_bytes;

    contest->block_bytes = block_bytes;
    contest->block_count =
        plan->block_count > 0 ? plan->block_count : plan->total_bytes / block_bytes;
    if (contest->block_count == 0)
        contest->block_count = 1;
    contest->lap_blocks = (uint32_t)(lap < contest->block_count ? lap : contest->block_count);
    batch = batch > 64 ? 64 : batch < 4 ? 4 : batch;
    contest->batch_blocks = plan->batch_blocks > 0 ? plan->batch_blocks : (uint32_t)batch;
    contest->row_count = plan->peer_count;
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        struct contest_row *row = &contest->rows[i];
        struct tally *tally = &run->tallies[i];
        struct peer_place place;

        row->peer = plan->peers[i];
        row->put_count = variants_count(row->peer->put_callers);
        row->get_count = variants_count(row->peer->get_callers);
        if (snprintf(tally->directory, PATH_BYTES, "%s/vs-%s", plan->directory, row->peer->name) >=
            PATH_BYTES) {
            complain("%s is too long", plan->directory);
            return false;
        }
        if (!directory_remove(tally->directory) || !directory_make(tally->directory))
            return false;
        place = place_of(run, tally);
        row->peer->describe(&place, &row->facts);
    }
    return true;
}

bool
contest_measure(const struct contest_plan *plan, uint64_t block_bytes, struct contest *contest_out)
{
    struct contest_run *run = calloc(1, sizeof(*run));
    struct usage usage;
    char title[64];
    bool is_fine = false;

    memset(contest_out, 0, sizeof(*contest_out));
    if (run == NULL) {
        complain("there is no memory");
        return false;
    }
    run->plan = plan;
    run->contest = contest_out;
    contest_out->has_read_bytes = usage_now(&usage);
    snprintf(title, sizeof(title), "blocks of %" PRIu64 " bytes, turns", block_bytes);
    progress_begin(
        &run->progress, title, PROGRESS_COUNT, 0, UINT64_C(2) * plan->rounds * plan->peer_count);
    is_fine = contest_prepare(run, block_bytes) && memory_take(run) && rounds_run(run);
    progress_end(&run->progress);
    if (is_fine)
        medians_take(run);
    for (uint32_t i = 0; i < contest_out->row_count; i++)
        is_fine = directory_remove(run->tallies[i].directory) && is_fine;
    huge_buffer_put(&run->pool);
    free(run->blocks);
    free(run->order);
    free(run);
    return is_fine;
}

const struct contest_row *
contest_row_of(const struct contest *contest, const char *name)
{
    for (uint32_t i = 0; i < contest->row_count; i++) {
        if (strcmp(contest->rows[i].peer->name, name) == 0)
            return &contest->rows[i];
    }
    return NULL;
}

const struct contest_point *
contest_best(const struct contest_point *points, uint32_t count)
{
    const struct contest_point *best = &points[0];

    for (uint32_t i = 1; i < count; i++) {
        if (points[i].bytes_per_s > best->bytes_per_s)
            best = &points[i];
    }
    return best;
}

bool
contest_is_cold(const struct contest *contest, const struct contest_row *row)
{
    for (uint32_t i = 0; i < row->get_count; i++) {
        if (row->gets[i].read_bytes < 0.99 * (double)contest->block_bytes)
            return false;
    }
    return contest->has_read_bytes;
}
