/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_curves.c - a picture of hits over capacities, a curve for each policy.
 */
#include <string.h>

#include "plot.h"
#include "sim.h"

/* More of them than other pictures need: ten curves that can be told apart. */
static const char styles[] = "set linetype 7 lc rgb '#d62728' lw 2 pt 4 ps 0.7\n"
                             "set linetype 8 lc rgb '#e377c2' lw 2 pt 8 ps 0.7\n"
                             "set linetype 9 lc rgb '#bcbd22' lw 2 pt 10 ps 0.7\n"
                             "set linetype 10 lc rgb '#17becf' lw 2 pt 12 ps 0.7\n";

/* The trace's name as the picture's title. gnuplot's quotes must not end in it; between single ones
 * nothing else means anything. */
static void
title_make(const struct sim_results *results, char title[SIM_PATH_BYTES])
{
    const char *slash = strrchr(results->settings->trace_path, '/');
    const char *name = slash == NULL ? results->settings->trace_path : slash + 1;

    snprintf(title, SIM_PATH_BYTES, "%.*s: tokens that hits make needless",
        (int)strcspn(name, ".'\n\r"), name);
}

bool
sim_curves(const struct sim_results *results, const char *path)
{
    const struct sim_settings *settings = results->settings;
    char title[SIM_PATH_BYTES];
    struct plot plot;

    title_make(results, title);
    if (!plot_begin(&plot, title, 900, 550))
        return false;
    for (uint32_t policy = 0; policy < settings->policy_count; policy++) {
        fprintf(plot.script, "$policy%u << EOD\n", (unsigned)policy);
        for (uint32_t i = 0; i < settings->capacity_count; i++) {
            const struct sim_result *row = &results->rows[policy * settings->capacity_count + i];

            fprintf(
                plot.script, "%.6g %.4f\n", row->capacity.percent, sim_token_hits(&row->totals));
        }
        fprintf(plot.script, "EOD\n");
    }
    fprintf(plot.script,
        "%sset logscale x 10\nset xlabel 'capacity, %% of the unique blocks'\n"
        "set ylabel 'hits, %% of the input tokens'\nset yrange [0:*]\nplot",
        styles);
    for (uint32_t policy = 0; policy < settings->policy_count; policy++)
        fprintf(plot.script, "%s $policy%u using 1:2 with linespoints title '%s'",
            policy == 0 ? "" : ",", (unsigned)policy, settings->policies[policy]->name);
    fprintf(plot.script, "\n");
    return plot_end(&plot, path);
}
