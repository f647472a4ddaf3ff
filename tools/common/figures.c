/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.c - what a store counts and times, taken out of its statistics by the table of stats.h.
 */
#include "figures.h"

void
counter_figures(const struct kvt_stats *stats, struct counter_figure figures[COUNTER_COUNT])
{
    size_t i = 0;

#define FIGURE(name, text) figures[i++] = (struct counter_figure){#name, text, stats->name};
    KVT_COUNTERS(FIGURE)
#undef FIGURE
}

void
latency_figures(const struct kvt_stats *stats, struct latency_figure figures[LATENCY_COUNT])
{
    size_t i = 0;

#define FIGURE(name, text) figures[i++] = (struct latency_figure){#name, text, stats->name};
    KVT_LATENCIES(FIGURE)
#undef FIGURE
}

void
counters_print_json(struct json *json, const struct kvt_stats *stats)
{
    struct counter_figure figures[COUNTER_COUNT];

    counter_figures(stats, figures);
    json_object_begin(json, "counters");
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        json_number(json, figures[i].name, figures[i].value);
    json_object_end(json);
}

void
latencies_print_json(struct json *json, const struct kvt_stats *stats)
{
    struct latency_figure figures[LATENCY_COUNT];

    latency_figures(stats, figures);
    json_object_begin(json, "latencies");
    for (size_t i = 0; i < LATENCY_COUNT; i++) {
        json_object_begin(json, figures[i].name);
        json_number(json, "count", figures[i].value.count);
        json_number(json, "sum_ns", figures[i].value.sum_ns);
        json_number(json, "p50_ns", figures[i].value.p50_ns);
        json_number(json, "p99_ns", figures[i].value.p99_ns);
        json_number(json, "p999_ns", figures[i].value.p999_ns);
        json_number(json, "max_ns", figures[i].value.max_ns);
        json_object_end(json);
    }
    json_object_end(json);
}
