/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.h - the counters and latencies of a store by name, with the sentence that stats.h has for
 * each, and as JSON.
 */
#ifndef KVT_TOOLS_FIGURES_H
#define KVT_TOOLS_FIGURES_H

#include "json_writer.h"
#include "kvtier/kvtier.h"

struct counter_figure {
    const char *name, *text;
    uint64_t value;
};

struct latency_figure {
    const char *name, *text;
    struct kvt_latency value;
};

#define FIGURE_COUNT(name, text) +1
enum {
    COUNTER_COUNT = 0 KVT_COUNTERS(FIGURE_COUNT),
    LATENCY_COUNT = 0 KVT_LATENCIES(FIGURE_COUNT),
};
#undef FIGURE_COUNT

/* In the order of stats.h. */
void counter_figures(const struct kvt_stats *stats, struct counter_figure figures[COUNTER_COUNT]);
void latency_figures(const struct kvt_stats *stats, struct latency_figure figures[LATENCY_COUNT]);

void counters_print_json(struct json *json, const struct kvt_stats *stats);  /* "counters" {...} */
void latencies_print_json(struct json *json, const struct kvt_stats *stats); /* "latencies" {...} */

#endif /* KVT_TOOLS_FIGURES_H */
