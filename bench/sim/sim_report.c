/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_report.c - what the simulator's runs found: JSON, a table, CSV and a picture.
 */
#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "json_writer.h"
#include "sim.h"

enum figure_kind {
    FIGURE_SHARE,
    FIGURE_COUNT,
    FIGURE_TIMING, /* Another one in each run: not for CSV. */
};

/* What is told of one run: figures by name. */
struct figure {
    const char *key;    /* In JSON and CSV. */
    const char *column; /* In the table; NULL: not there. */
    enum figure_kind kind;
    double value;
};

enum {
    FIGURES_MAX = 20,
    CSV_COLUMNS_BYTES = FIGURES_MAX * 32,
};

static double
share(uint64_t part, uint64_t whole, double of)
{
    return whole == 0 ? 0 : of * (double)part / (double)whole;
}

double
sim_token_hits(const struct sim_totals *totals)
{
    return share(totals->saved_tokens, totals->input_tokens, 100);
}

double
sim_block_hits(const struct sim_totals *totals)
{
    return share(totals->hits[SIM_HBM] + totals->hits[SIM_HOST] + totals->hits[SIM_NVME],
        totals->block_count, 100);
}

/* Those of three tiers, behind the first `count`. */
static uint32_t
tier_figures(const struct sim_results *results, const struct sim_result *row,
    struct figure figures[FIGURES_MAX], uint32_t count)
{
    const struct sim_totals *totals = &row->totals;
    uint64_t blocks = totals->block_count;
    double writes = (double)(totals->nvme_write_count + totals->nvme_rewrite_count);
    const struct figure tiers[] = {
        {"hbm_capacity_blocks", NULL, FIGURE_COUNT, row->capacities[SIM_HBM]},
        {"host_capacity_blocks", NULL, FIGURE_COUNT, row->capacities[SIM_HOST]},
        {"nvme_capacity_blocks", NULL, FIGURE_COUNT, row->capacities[SIM_NVME]},
        {"hbm_hit_percent", "HBM %", FIGURE_SHARE, share(totals->hits[SIM_HBM], blocks, 100)},
        {"host_hit_percent", "HOST %", FIGURE_SHARE, share(totals->hits[SIM_HOST], blocks, 100)},
        {"nvme_hit_percent", "NVMe %", FIGURE_SHARE, share(totals->hits[SIM_NVME], blocks, 100)},
        {"h2d_per_1000", "H2D", FIGURE_SHARE, share(totals->hits[SIM_HOST], blocks, 1000)},
        {"d2h_per_1000", "D2H", FIGURE_SHARE, share(totals->d2h_count, blocks, 1000)},
        {"nvme_reads_per_1000", "reads", FIGURE_SHARE, share(totals->hits[SIM_NVME], blocks, 1000)},
        {"nvme_writes_per_1000", "writes", FIGURE_SHARE,
            blocks == 0 ? 0 : 1000 * writes / (double)blocks},
        {"nvme_writes_per_s", "writes/s", FIGURE_SHARE,
            results->trace_seconds <= 0 ? 0 : writes / results->trace_seconds},
        {"time_saved_percent", "time %", FIGURE_SHARE,
            totals->recompute_ms <= 0 ? 0 : 100 * totals->saved_ms / totals->recompute_ms},
    };

    for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++)
        figures[count++] = tiers[i];
    if (results->settings->segment_blocks > 0)
        figures[count++] = (struct figure){"write_amplification", "amplif.", FIGURE_SHARE,
            totals->nvme_write_count == 0 ? 0 : writes / (double)totals->nvme_write_count};
    return count;
}

static uint32_t
row_figures(const struct sim_results *results, const struct sim_result *row,
    struct figure figures[FIGURES_MAX])
{
    const struct sim_totals *totals = &row->totals;
    uint32_t count = 0;

    figures[count++] =
        (struct figure){"capacity_blocks", "blocks", FIGURE_COUNT, (double)row->capacity.blocks};
    figures[count++] =
        (struct figure){"capacity_percent", "of all %", FIGURE_SHARE, row->capacity.percent};
    figures[count++] = (struct figure){
        "prefix_token_hit_percent", "token %", FIGURE_SHARE, sim_token_hits(totals)};
    figures[count++] =
        (struct figure){"block_hit_percent", "block %", FIGURE_SHARE, sim_block_hits(totals)};
    if (results->settings->has_tiers)
        count = tier_figures(results, row, figures, count);
    figures[count++] = (struct figure){"ns_per_access", "ns", FIGURE_TIMING,
        totals->access_count == 0 ? 0
                                  : 1e9 * totals->elapsed_seconds / (double)totals->access_count};
    return count;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void
row_print_json(struct json *json, const struct sim_results *results, const struct sim_result *row)
{
    struct figure figures[FIGURES_MAX];
    uint32_t count = row_figures(results, row, figures);

    json_string(json, "policy", row->policy->name);
    for (uint32_t i = 0; i < count; i++) {
        if (figures[i].kind == FIGURE_COUNT)
            json_number(json, figures[i].key, (uint64_t)figures[i].value);
        else
            json_real(json, figures[i].key, figures[i].value);
    }
}

static void
results_print_json(const struct sim_results *results)
{
    const struct sim_totals *totals = &results->rows[0].totals;
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "trace", results->settings->trace_path);
    json_number(&json, "unique_blocks", results->chains->block_count);
    json_number(&json, "requests", totals->request_count);
    json_number(&json, "blocks", totals->block_count);
    json_number(&json, "input_tokens", totals->input_tokens);
    if (results->count == 1) {
        row_print_json(&json, results, &results->rows[0]);
    } else {
        json_array_begin(&json, "results");
        for (uint32_t i = 0; i < results->count; i++) {
            json_object_begin(&json, NULL);
            row_print_json(&json, results, &results->rows[i]);
            json_object_end(&json);
        }
        json_array_end(&json);
    }
    json_object_end(&json);
    json_end(&json);
}

/* --- The table, and CSV ----------------------------------------------------------------------- */

static void
results_print(const struct sim_results *results)
{
    const struct sim_totals *totals = &results->rows[0].totals;
    struct figure figures[FIGURES_MAX];
    uint32_t count = row_figures(results, &results->rows[0], figures);

    printf("%s: %" PRIu32 " unique blocks; %" PRIu64 " requests for %" PRIu64
           " blocks count\n\n%-8s",
        results->settings->trace_path, results->chains->block_count, totals->request_count,
        totals->block_count, "policy");
    for (uint32_t i = 0; i < count; i++) {
        if (figures[i].column != NULL)
            printf(" %8s", figures[i].column);
    }
    printf("\n");
    for (uint32_t row = 0; row < results->count; row++) {
        count = row_figures(results, &results->rows[row], figures);
        printf("%-8s", results->rows[row].policy->name);
        for (uint32_t i = 0; i < count; i++) {
            if (figures[i].column != NULL)
                printf(" %8.*f", figures[i].kind == FIGURE_SHARE ? 2 : 0, figures[i].value);
        }
        printf("\n");
    }
}

static bool
results_csv(const struct sim_results *results, const char *path)
{
    struct figure figures[FIGURES_MAX];
    uint32_t count = row_figures(results, &results->rows[0], figures);
    char columns[CSV_COLUMNS_BYTES];
    size_t length = (size_t)snprintf(columns, sizeof(columns), "policy");
    FILE *out;

    for (uint32_t i = 0; i < count; i++) {
        if (figures[i].kind != FIGURE_TIMING)
            length +=
                (size_t)snprintf(columns + length, sizeof(columns) - length, ",%s", figures[i].key);
    }
    out = csv_open(path, columns);
    if (out == NULL)
        return false;
    for (uint32_t row = 0; row < results->count; row++) {
        count = row_figures(results, &results->rows[row], figures);
        fprintf(out, "%s", results->rows[row].policy->name);
        for (uint32_t i = 0; i < count; i++) {
            if (figures[i].kind != FIGURE_TIMING)
                fprintf(out, ",%.*f", figures[i].kind == FIGURE_COUNT ? 0 : 4, figures[i].value);
        }
        fprintf(out, "\n");
    }
    return csv_close(out, path);
}

bool
sim_report(const struct sim_results *results)
{
    const struct outputs *outputs = &results->settings->outputs;

    if (results->settings->as_json)
        results_print_json(results);
    else
        results_print(results);
    if (outputs->csv_path != NULL && !results_csv(results, outputs->csv_path))
        return false;
    return outputs->plot_path == NULL || sim_curves(results, outputs->plot_path);
}
