/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_stat.c - `kvtool stat`: what is in a store, how full it is and whether it is well.
 */
#include <inttypes.h>
#include <stdio.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "quantity.h"

enum {
    CAPS_BYTES = 16384
};

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_stat_line = {
    .program = "kvtool",
    .command = "stat",
    .operands = "DIR",
    .summary = "Tell what is in the store in DIR, how full it is and whether it is well.",
    .text = "JSON: \"path\", \"version\", \"blocks\", \"block_bytes\" (payload),\n"
            "\"nvme_capacity_bytes\", \"nvme_used_bytes\" (segments in use), \"nvme_live_bytes\"\n"
            "(pages of live blocks), \"segment_bytes\", \"block_bytes_max\", \"index_map_bytes\",\n"
            "\"index_used_bytes\", \"open_ns\", \"health\" (names of what is not well),\n"
            "\"namespaces\" [{\"id\", \"name\", \"blocks\", \"block_bytes\"} ...], \"counters\"\n"
            "(each of kvtier/stats.h by its name), \"caps\" (what the machine offers; not stable)",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* Everything that is printed, collected first. */
struct facts {
    const char *path;
    kvt_store *store;
    struct kvt_stats stats;
    struct kvt_options options;
    uint32_t health;
    uint64_t blocks;
    uint64_t block_bytes;
    char caps[CAPS_BYTES];
};

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
} counter_texts[] = {
#define COUNTER_TEXT(name, text) {#name, text},
    KVT_COUNTERS(COUNTER_TEXT)
#undef COUNTER_TEXT
};

enum {
    COUNTER_COUNT = sizeof(counter_texts) / sizeof(counter_texts[0])
};

/* The counters of `stats` in the order of counter_texts. */
static void
counters_of(const struct kvt_stats *stats, uint64_t values_out[COUNTER_COUNT])
{
    size_t i = 0;

#define COUNTER_VALUE(name, text) values_out[i++] = stats->name;
    KVT_COUNTERS(COUNTER_VALUE)
#undef COUNTER_VALUE
}

static enum kvt_status
facts_collect(struct facts *facts)
{
    uint32_t cursor = 0;
    enum kvt_status status = KVT_OK;

    facts->stats.struct_size = sizeof(facts->stats);
    facts->options.struct_size = sizeof(facts->options);
    status = kvt_stats_get(facts->store, &facts->stats);
    if (status == KVT_OK)
        status = kvt_options_get(facts->store, &facts->options);
    if (status == KVT_OK)
        status = kvt_health(facts->store, &facts->health);
    if (status == KVT_OK)
        status = kvt_caps_json(facts->store, facts->caps, sizeof(facts->caps));
    while (status == KVT_OK) {
        struct kvt_namespace_info info;

        status = kvt_namespace_next(facts->store, &cursor, &info);
        if (status == KVT_OK) {
            facts->blocks += info.block_count;
            facts->block_bytes += info.block_bytes;
        }
    }
    return status == KVT_MISS ? KVT_OK : status;
}

static void
namespaces_print_json(struct facts *facts, struct json *json)
{
    struct kvt_namespace_info info;
    uint32_t cursor = 0;

    json_array_begin(json, "namespaces");
    while (kvt_namespace_next(facts->store, &cursor, &info) == KVT_OK) {
        json_object_begin(json, NULL);
        json_number(json, "id", info.ns.id);
        json_string(json, "name", info.name);
        json_number(json, "blocks", info.block_count);
        json_number(json, "block_bytes", info.block_bytes);
        json_object_end(json);
    }
    json_array_end(json);
}

static void
facts_print_json(struct facts *facts)
{
    struct json json = JSON_INIT(stdout);
    uint64_t values[COUNTER_COUNT];

    counters_of(&facts->stats, values);
    json_object_begin(&json, NULL);
    json_string(&json, "path", facts->path);
    json_string(&json, "version", kvt_version());
    json_number(&json, "blocks", facts->blocks);
    json_number(&json, "block_bytes", facts->block_bytes);
    json_number(&json, "nvme_capacity_bytes", facts->stats.nvme_capacity_bytes_now);
    json_number(&json, "nvme_used_bytes", facts->stats.nvme_used_bytes_now);
    json_number(&json, "nvme_live_bytes", facts->stats.nvme_live_bytes_now);
    json_number(&json, "segment_bytes", facts->options.segment_bytes);
    json_number(&json, "block_bytes_max", facts->options.block_bytes_max);
    json_number(&json, "index_map_bytes", facts->stats.index_map_bytes_now);
    json_number(&json, "index_used_bytes", facts->stats.index_used_bytes_now);
    json_number(&json, "open_ns", facts->stats.open_ns.sum_ns);
    json_array_begin(&json, "health");
    for (size_t i = 0; i < sizeof(health_names) / sizeof(health_names[0]); i++) {
        if ((facts->health & health_names[i].flag) != 0)
            json_string(&json, NULL, health_names[i].name);
    }
    json_array_end(&json);
    namespaces_print_json(facts, &json);
    json_object_begin(&json, "counters");
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        json_number(&json, counter_texts[i].name, values[i]);
    json_object_end(&json);
    json_raw(&json, "caps", facts->caps);
    json_object_end(&json);
    json_end(&json);
}

static void
line_print(const char *name, const char *value, const char *remark)
{
    printf("%-18s %14s  %s\n", name, value, remark);
}

static void
facts_print(struct facts *facts)
{
    const struct kvt_stats *stats = &facts->stats;
    struct kvt_namespace_info info;
    uint64_t values[COUNTER_COUNT];
    char text[QUANTITY_TEXT_BYTES];
    uint32_t cursor = 0;

    counters_of(stats, values);
    line_print("blocks", quantity_count_text(text, facts->blocks), "");
    line_print("payload", quantity_bytes_text(text, (double)facts->block_bytes), "");
    line_print(
        "NVMe capacity", quantity_bytes_text(text, (double)stats->nvme_capacity_bytes_now), "");
    line_print("NVMe used", quantity_bytes_text(text, (double)stats->nvme_used_bytes_now),
        "in segments that are not free");
    line_print("NVMe live", quantity_bytes_text(text, (double)stats->nvme_live_bytes_now),
        "whole pages of live blocks");
    line_print("segment", quantity_bytes_text(text, (double)facts->options.segment_bytes), "");
    line_print(
        "index", quantity_bytes_text(text, (double)stats->index_used_bytes_now), "pages in use");
    line_print("open took", quantity_time_text(text, (double)stats->open_ns.sum_ns), "");
    printf("health            ");
    for (size_t i = 0; i < sizeof(health_names) / sizeof(health_names[0]); i++) {
        if ((facts->health & health_names[i].flag) != 0)
            printf(" %s", health_names[i].name);
    }
    printf("\n\nnamespaces\n");
    while (kvt_namespace_next(facts->store, &cursor, &info) == KVT_OK) {
        printf("  %12s blocks", quantity_count_text(text, info.block_count));
        printf("  %10s  ", quantity_bytes_text(text, (double)info.block_bytes));
        text_print(stdout, info.name, 0);
        printf("\n");
    }
    printf("\ncounters that are not 0\n");
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        if (values[i] != 0)
            printf("  %-26s %18s  %s\n", counter_texts[i].name,
                quantity_count_text(text, values[i]), counter_texts[i].text);
    }
}

int
kvtool_stat(int argc, char **argv)
{
    struct arguments arguments;
    struct facts facts = {0};
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_stat_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    facts.path = arguments.operands[0];
    facts.store = store_open_to_read(facts.path);
    if (facts.store == NULL)
        return EXIT_PROBLEM;
    status = facts_collect(&facts);
    if (status != KVT_OK)
        complain_status(status, "cannot look into %s", facts.path);
    else if (arguments.values[OPTION_JSON] != NULL)
        facts_print_json(&facts);
    else
        facts_print(&facts);
    if (!store_close(facts.store, facts.path) || status != KVT_OK)
        return EXIT_PROBLEM;
    return EXIT_FINE;
}
