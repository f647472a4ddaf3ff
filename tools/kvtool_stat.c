/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_stat.c - `kvtool stat`: what is in a store, how full it is and whether it is well.
 *
 * Of a closed store it opens, of an open one it reads what the owner shows: the owner is not
 * disturbed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "kvtool_names.h"
#include "kvtool_owner.h"
#include "quantity.h"

enum {
    CAPS_BYTES = 16384,
    OWNER_TEXT_BYTES = 160
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
    .text =
        "JSON: \"path\", \"version\", \"blocks\", \"nvme_capacity_bytes\",\n"
        "\"nvme_used_bytes\" (segments in use), \"nvme_live_bytes\" (pages of live blocks),\n"
        "\"segment_bytes\", \"block_bytes_max\", \"index_map_bytes\", \"index_used_bytes\",\n"
        "\"open_ns\", \"health\" (names of what is not well), \"counters\" (each of\n"
        "kvtier/stats.h by its name), \"latencies\" (each: count, sum_ns, p50_ns, p99_ns,\n"
        "p999_ns, max_ns), \"owner\" (null, or of an open store: pid, program, version, age_ns\n"
        "of what it shows).\n"
        "Only of a closed store: \"block_bytes\" (payload), \"namespaces\" [{\"id\", \"name\",\n"
        "\"blocks\", \"block_bytes\"} ...], \"caps\" (of the machine; not stable)",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* Everything that is printed, collected first. */
struct facts {
    const char *path;
    const char *version;
    kvt_store *store;          /* NULL: it is open elsewhere. */
    const struct owner *owner; /* NULL: nobody has it open. */
    struct kvt_stats stats;
    struct kvt_options options;
    uint32_t health;
    uint64_t blocks;
    uint64_t block_bytes;
    char caps[CAPS_BYTES];
};

static enum kvt_status
facts_collect(struct facts *facts)
{
    uint32_t cursor = 0;
    enum kvt_status status = KVT_OK;

    facts->version = kvt_version();
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
facts_of_owner(struct facts *facts, const struct owner *owner)
{
    facts->owner = owner;
    facts->version = owner->live.version;
    facts->stats = owner->live.stats;
    facts->options = owner->live.options;
    facts->health = owner->live.health;
    facts->blocks = owner->live.stats.entry_count_now;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void
namespaces_print_json(struct facts *facts, struct json *json)
{
    struct kvt_namespace_info info;
    uint32_t cursor = 0;

    json_array_begin(json, "namespaces");
    while (kvt_namespace_next(facts->store, &cursor, &info) == KVT_OK)
        namespace_print_json(json, &info);
    json_array_end(json);
}

static void
owner_print_json(struct json *json, const struct owner *owner)
{
    if (owner == NULL) {
        json_null(json, "owner");
        return;
    }
    json_object_begin(json, "owner");
    json_number(json, "pid", owner->live.pid);
    json_string(json, "program", owner->program);
    json_string(json, "version", owner->live.version);
    json_number(json, "age_ns", owner->live.age_ns);
    json_object_end(json);
}

static void
facts_print_json(struct facts *facts)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "path", facts->path);
    json_string(&json, "version", facts->version);
    json_number(&json, "blocks", facts->blocks);
    json_number(&json, "nvme_capacity_bytes", facts->stats.nvme_capacity_bytes_now);
    json_number(&json, "nvme_used_bytes", facts->stats.nvme_used_bytes_now);
    json_number(&json, "nvme_live_bytes", facts->stats.nvme_live_bytes_now);
    json_number(&json, "segment_bytes", facts->options.segment_bytes);
    json_number(&json, "block_bytes_max", facts->options.block_bytes_max);
    json_number(&json, "index_map_bytes", facts->stats.index_map_bytes_now);
    json_number(&json, "index_used_bytes", facts->stats.index_used_bytes_now);
    json_number(&json, "open_ns", facts->stats.open_ns.sum_ns);
    health_print_json(&json, facts->health);
    owner_print_json(&json, facts->owner);
    counters_print_json(&json, &facts->stats);
    latencies_print_json(&json, &facts->stats);
    if (facts->store != NULL) {
        json_number(&json, "block_bytes", facts->block_bytes);
        namespaces_print_json(facts, &json);
        json_raw(&json, "caps", facts->caps);
    }
    json_object_end(&json);
    json_end(&json);
}

/* --- For people ------------------------------------------------------------------------------- */

static void
line_print(const char *name, const char *value, const char *remark)
{
    printf("%-18s %14s  %s\n", name, value, remark);
}

static void
owner_print(const struct facts *facts)
{
    char text[OWNER_TEXT_BYTES];
    char age[QUANTITY_TEXT_BYTES];

    if (facts->owner == NULL)
        return;
    printf("open in            ");
    text_print(stdout, owner_text(facts->owner, text, sizeof(text)), 0);
    printf(", kvtier %s; as of %s ago\n", facts->version,
        quantity_time_text(age, (double)facts->owner->live.age_ns));
}

static void
tiers_print(const struct facts *facts)
{
    const struct kvt_stats *stats = &facts->stats;
    char text[QUANTITY_TEXT_BYTES];

    if (stats->hbm_capacity_bytes_now > 0) {
        line_print(
            "HBM capacity", quantity_bytes_text(text, (double)stats->hbm_capacity_bytes_now), "");
        line_print("HBM used", quantity_bytes_text(text, (double)stats->hbm_used_bytes_now), "");
    }
    if (facts->owner != NULL) {
        line_print(
            "HOST capacity", quantity_bytes_text(text, (double)stats->host_capacity_bytes_now), "");
        line_print("HOST used", quantity_bytes_text(text, (double)stats->host_used_bytes_now), "");
    }
    line_print(
        "NVMe capacity", quantity_bytes_text(text, (double)stats->nvme_capacity_bytes_now), "");
    line_print("NVMe used", quantity_bytes_text(text, (double)stats->nvme_used_bytes_now),
        "in segments that are not free");
    line_print("NVMe live", quantity_bytes_text(text, (double)stats->nvme_live_bytes_now),
        "whole pages of live blocks");
}

static void
facts_print(struct facts *facts)
{
    struct kvt_namespace_info info;
    char text[QUANTITY_TEXT_BYTES];
    uint32_t cursor = 0;

    owner_print(facts);
    line_print("blocks", quantity_count_text(text, facts->blocks), "");
    if (facts->store != NULL)
        line_print("payload", quantity_bytes_text(text, (double)facts->block_bytes), "");
    tiers_print(facts);
    line_print("segment", quantity_bytes_text(text, (double)facts->options.segment_bytes), "");
    line_print("index", quantity_bytes_text(text, (double)facts->stats.index_used_bytes_now),
        "pages in use");
    line_print("open took", quantity_time_text(text, (double)facts->stats.open_ns.sum_ns), "");
    health_print(facts->health);
    if (facts->store != NULL) {
        printf("\nnamespaces\n");
        while (kvt_namespace_next(facts->store, &cursor, &info) == KVT_OK)
            namespace_print(&info);
    }
    printf("\ncounters that are not 0\n");
    counters_print(&facts->stats);
    printf("\nlatencies\n");
    latencies_print(&facts->stats);
}

/* --- The command ------------------------------------------------------------------------------ */

static void
print(struct facts *facts, const struct arguments *arguments)
{
    if (arguments->values[OPTION_JSON] != NULL)
        facts_print_json(facts);
    else
        facts_print(facts);
}

static int
stat_closed(struct facts *facts, const struct arguments *arguments)
{
    enum kvt_status status = KVT_OK;

    facts->store = store_open_to_read(facts->path);
    if (facts->store == NULL)
        return EXIT_PROBLEM;
    status = facts_collect(facts);
    if (status != KVT_OK)
        complain_status(status, "cannot look into %s", facts->path);
    else
        print(facts, arguments);
    if (!store_close(facts->store, facts->path) || status != KVT_OK)
        return EXIT_PROBLEM;
    return EXIT_FINE;
}

int
kvtool_stat(int argc, char **argv)
{
    struct arguments arguments;
    struct facts facts = {0};
    struct owner *owner = NULL;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_stat_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    facts.path = arguments.operands[0];
    owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        complain("there is no memory to look at %s", facts.path);
        return EXIT_PROBLEM;
    }
    owner_find(facts.path, owner);
    if (owner->has_live) {
        facts_of_owner(&facts, owner);
        print(&facts, &arguments);
        exit_code = EXIT_FINE;
    } else {
        exit_code = stat_closed(&facts, &arguments);
    }
    free(owner);
    return exit_code;
}
