/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c - `tierbench sim`: a run for each policy and capacity, and a report.
 */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>

#include "complain.h"
#include "directory.h"
#include "tierbench.h"

enum {
    SEGMENTS_MIN = 5, /* Three free ones, one to write into, one that is full. */
};

/* The time model of the report. */
static const struct sim_costs costs = {
    .host_load_ms = 1.34,
    .nvme_load_ms = 6.7,
    .recompute_ms = 18,
    .recompute_depth_ms = 0.3,
};

static uint32_t
blocks_of(const struct sim_capacity *capacity, uint32_t unique_count)
{
    double blocks = capacity->percent > 0 ? capacity->percent / 100 * unique_count + 0.5
                                          : (double)capacity->blocks;

    return blocks < 1 ? 1 : blocks > UINT32_MAX - 1.0 ? UINT32_MAX - 1 : (uint32_t)blocks;
}

/* The capacities of one run. */
static void
row_size(struct sim_result *row, const struct sim_settings *settings, uint32_t unique_count,
    uint32_t capacity)
{
    double blocks = 0;

    if (!settings->has_tiers) {
        row->capacity = settings->capacities[capacity];
        row->capacities[SIM_HOST] = blocks_of(&row->capacity, unique_count);
    }
    for (unsigned place = 0; settings->has_tiers && place < SIM_PLACE_COUNT; place++)
        row->capacities[place] = blocks_of(&settings->tiers[place], unique_count);
    for (unsigned place = 0; place < SIM_PLACE_COUNT; place++)
        blocks += row->capacities[place];
    row->capacity.blocks = (uint64_t)blocks;
    if (row->capacity.percent <= 0)
        row->capacity.percent = 100 * blocks / unique_count;
}

static bool
row_run(struct sim_result *row, const struct sim_settings *settings, const struct chains *chains,
    const uint8_t *hints)
{
    struct sim_plan plan = {
        .chains = chains,
        .policy = row->policy,
        .capacities = {row->capacities[0], row->capacities[1], row->capacities[2]},
        .costs = costs,
        .hints = hints,
        .block_tokens = (uint32_t)settings->block_tokens,
        .score_from = (uint32_t)settings->score_from,
        .segment_blocks = (uint32_t)settings->segment_blocks,
    };

    plan.costs.write_price_ms = settings->write_price_ms;
    plan.costs.writes_per_second_max = (uint32_t)settings->writes_per_second_max;
    return sim_plan_run(&plan, &row->totals);
}

static bool
results_fill(struct sim_results *results, const uint8_t *hints)
{
    const struct sim_settings *settings = results->settings;
    uint32_t capacity_count = settings->has_tiers ? 1 : settings->capacity_count;

    for (uint32_t policy = 0; policy < settings->policy_count; policy++) {
        for (uint32_t capacity = 0; capacity < capacity_count; capacity++) {
            struct sim_result *row = &results->rows[results->count++];

            row->policy = settings->policies[policy];
            row_size(row, settings, results->chains->block_count, capacity);
            if (!row_run(row, settings, results->chains, hints))
                return false;
        }
    }
    return true;
}

/* What can only be seen with the trace. */
static bool
settings_fit(const struct sim_settings *settings, const struct chains *chains)
{
    uint32_t nvme_blocks = blocks_of(&settings->tiers[SIM_NVME], chains->block_count);

    if (settings->score_from >= chains->request_count) {
        complain("--score-from %" PRIu64 " leaves none of %" PRIu32 " requests",
            settings->score_from, chains->request_count);
        return false;
    }
    if (settings->segment_blocks > 0 && nvme_blocks / settings->segment_blocks < SEGMENTS_MIN) {
        complain("--segment-blocks %" PRIu64 " leaves fewer than %d segments of %" PRIu32
                 " blocks of NVMe",
            settings->segment_blocks, SEGMENTS_MIN, nvme_blocks);
        return false;
    }
    return true;
}

static int
sim_all(const struct sim_settings *settings, const struct chains *chains)
{
    struct sim_results *results = calloc(1, sizeof(*results));
    uint8_t *hints = NULL;
    bool is_fine = results != NULL;

    if (results == NULL)
        complain("there is no memory for the results");
    if (is_fine && settings->hint_accuracy >= 0) {
        hints = sim_hints_create(chains, settings->hint_accuracy);
        is_fine = hints != NULL;
    }
    if (is_fine) {
        uint64_t first_ns = chains_at(chains, (uint32_t)settings->score_from).now_ns;

        results->settings = settings;
        results->chains = chains;
        results->trace_seconds =
            (double)(chains_at(chains, chains->request_count - 1).now_ns - first_ns) / 1e9;
        is_fine = results_fill(results, hints) && sim_report(results);
    }
    free(hints);
    free(results);
    return is_fine ? EXIT_FINE : EXIT_PROBLEM;
}

int
tierbench_sim(int argc, char **argv)
{
    struct sim_settings settings;
    struct trace trace;
    struct chains chains;
    char message[TRACE_MESSAGE_BYTES];
    int exit_code = EXIT_PROBLEM;

    if (!sim_settings_read(&settings, argc, argv, &exit_code))
        return exit_code;
    if (!trace_load_blocks(&trace, settings.trace_path, (uint32_t)settings.block_tokens, message)) {
        complain("%s", message);
        return EXIT_PROBLEM;
    }
    exit_code = EXIT_PROBLEM;
    if (!chains_create(&chains, &trace, message)) {
        complain("%s: %s", settings.trace_path, message);
    } else {
        if (!settings_fit(&settings, &chains))
            exit_code = EXIT_USAGE;
        else if ((settings.plot_directory == NULL || directory_make(settings.plot_directory)) &&
                 outputs_check(&settings.outputs))
            exit_code = sim_all(&settings, &chains);
        chains_destroy(&chains);
    }
    trace_free(&trace);
    return exit_code;
}
