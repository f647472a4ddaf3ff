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

enum {
    HEALTH_COUNT = sizeof(health_names) / sizeof(health_names[0])
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

void
counters_print(const struct kvt_stats *stats)
{
    struct counter_figure figures[COUNTER_COUNT];
    char text[QUANTITY_TEXT_BYTES];

    counter_figures(stats, figures);
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        if (figures[i].value != 0)
            printf("  %-26s %18s  %s\n", figures[i].name,
                quantity_count_text(text, figures[i].value), figures[i].text);
    }
}

void
latencies_print(const struct kvt_stats *stats)
{
    struct latency_figure figures[LATENCY_COUNT];

    latency_figures(stats, figures);
    for (size_t i = 0; i < LATENCY_COUNT; i++) {
        const struct kvt_latency *value = &figures[i].value;
        char texts[4][QUANTITY_TEXT_BYTES];

        if (value->count == 0)
            continue;
        quantity_count_text(texts[0], value->count);
        quantity_time_text(texts[1], (double)value->p50_ns);
        quantity_time_text(texts[2], (double)value->p99_ns);
        quantity_time_text(texts[3], (double)value->max_ns);
        printf("  %-16s %14s x  p50 %8s  p99 %8s  max %8s  %s\n", figures[i].name, texts[0],
            texts[1], texts[2], texts[3], figures[i].text);
    }
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
