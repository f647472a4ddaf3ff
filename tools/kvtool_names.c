/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_names.c - health, counters, latencies and namespaces, printed the same way everywhere.
 */
#include "kvtool_names.h"

#include <stdio.h>

#include "kvtool.h"
#include "quantity.h"

static const struct {
    uint32_t flag;
    const char *name;
} health_names[] = {
    {KVT_HEALTH_META_READONLY, "meta_readonly"},
    {KVT_HEALTH_ROOT_READONLY, "root_readonly"},
    {KVT_HEALTH_GPU_LOST, "gpu_lost"},
    {KVT_HEALTH_READ_ONLY, "read_only"},
    {KVT_HEALTH_POISONED, "poisoned"},
    {KVT_HEALTH_IO_THREADS, "io_threads"},
    {KVT_HEALTH_DEVICE_EMULATED, "device_emulated"},
};

static const struct {
    const char *name;
    const char *text;
} counter_texts[] =
    {
#define NAME_AND_TEXT(name, text) {#name, text},
        KVT_COUNTERS(NAME_AND_TEXT)},
  latency_texts[] = {KVT_LATENCIES(NAME_AND_TEXT)};
#undef NAME_AND_TEXT

enum {
    HEALTH_COUNT = sizeof(health_names) / sizeof(health_names[0]),
    COUNTER_COUNT = sizeof(counter_texts) / sizeof(counter_texts[0]),
    LATENCY_COUNT = sizeof(latency_texts) / sizeof(latency_texts[0])
};

void
health_print(uint32_t flags)
{
    printf("health            ");
    for (size_t i = 0; i < HEALTH_COUNT; i++) {
        if ((flags & health_names[i].flag) != 0)
            printf(" %s", health_names[i].name);
    }
    printf(flags == 0 ? " well\n" : "\n");
}

void
health_print_json(struct json *json, uint32_t flags)
{
    json_array_begin(json, "health");
    for (size_t i = 0; i < HEALTH_COUNT; i++) {
        if ((flags & health_names[i].flag) != 0)
            json_string(json, NULL, health_names[i].name);
    }
    json_array_end(json);
}

/* The counters of `stats` in the order of counter_texts. */
static void
counters_of(const struct kvt_stats *stats, uint64_t values_out[COUNTER_COUNT])
{
    size_t i = 0;

#define COUNTER_VALUE(name, text) values_out[i++] = stats->name;
    KVT_COUNTERS(COUNTER_VALUE)
#undef COUNTER_VALUE
}

static void
latencies_of(const struct kvt_stats *stats, struct kvt_latency values_out[LATENCY_COUNT])
{
    size_t i = 0;

#define LATENCY_VALUE(name, text) values_out[i++] = stats->name;
    KVT_LATENCIES(LATENCY_VALUE)
#undef LATENCY_VALUE
}

void
counters_print(const struct kvt_stats *stats)
{
    uint64_t values[COUNTER_COUNT];
    char text[QUANTITY_TEXT_BYTES];

    counters_of(stats, values);
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        if (values[i] != 0)
            printf("  %-26s %18s  %s\n", counter_texts[i].name,
                quantity_count_text(text, values[i]), counter_texts[i].text);
    }
}

void
counters_print_json(struct json *json, const struct kvt_stats *stats)
{
    uint64_t values[COUNTER_COUNT];

    counters_of(stats, values);
    json_object_begin(json, "counters");
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        json_number(json, counter_texts[i].name, values[i]);
    json_object_end(json);
}

void
latencies_print(const struct kvt_stats *stats)
{
    struct kvt_latency values[LATENCY_COUNT];

    latencies_of(stats, values);
    for (size_t i = 0; i < LATENCY_COUNT; i++) {
        char texts[4][QUANTITY_TEXT_BYTES];

        if (values[i].count == 0)
            continue;
        quantity_count_text(texts[0], values[i].count);
        quantity_time_text(texts[1], (double)values[i].p50_ns);
        quantity_time_text(texts[2], (double)values[i].p99_ns);
        quantity_time_text(texts[3], (double)values[i].max_ns);
        printf("  %-16s %14s x  p50 %8s  p99 %8s  max %8s  %s\n", latency_texts[i].name, texts[0],
            texts[1], texts[2], texts[3], latency_texts[i].text);
    }
}

void
latencies_print_json(struct json *json, const struct kvt_stats *stats)
{
    struct kvt_latency values[LATENCY_COUNT];

    latencies_of(stats, values);
    json_object_begin(json, "latencies");
    for (size_t i = 0; i < LATENCY_COUNT; i++) {
        json_object_begin(json, latency_texts[i].name);
        json_number(json, "count", values[i].count);
        json_number(json, "sum_ns", values[i].sum_ns);
        json_number(json, "p50_ns", values[i].p50_ns);
        json_number(json, "p99_ns", values[i].p99_ns);
        json_number(json, "p999_ns", values[i].p999_ns);
        json_number(json, "max_ns", values[i].max_ns);
        json_object_end(json);
    }
    json_object_end(json);
}

void
namespace_print(const struct kvt_namespace_info *info)
{
    char text[QUANTITY_TEXT_BYTES];

    printf("  %6u  %14s blocks", info->ns.id, quantity_count_text(text, info->block_count));
    printf("  %10s  ", quantity_bytes_text(text, (double)info->block_bytes));
    text_print(stdout, info->name, 0);
    printf("\n");
}

void
namespace_print_json(struct json *json, const struct kvt_namespace_info *info)
{
    json_object_begin(json, NULL);
    json_number(json, "id", info->ns.id);
    json_string(json, "name", info->name);
    json_number(json, "blocks", info->block_count);
    json_number(json, "block_bytes", info->block_bytes);
    json_object_end(json);
}
