/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_ls.c - `kvtool ls`: the blocks of a store, one a line.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_manifest.h"
#include "quantity.h"

enum {
    SCAN_COUNT = 256
};

enum {
    OPTION_NAMESPACE,
    OPTION_LIMIT,
    OPTION_PARTS,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_NAMESPACE] = {"--namespace", "NAME", "only the blocks of this namespace"},
    [OPTION_LIMIT] = {"--limit", "N", "at most N blocks"},
    [OPTION_PARTS] = {"--parts", NULL, "also the parts of files that are larger than a block"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_ls_line = {
    .program = "kvtool",
    .command = "ls",
    .operands = "DIR",
    .summary = "List the durable blocks of the store in DIR.",
    .text = "STORED is what they take on NVMe, with * when they are encoded.\n\n"
            "JSON: {\"blocks\": [{\"key\" (as the other commands take it), \"namespace\",\n"
            "\"key_hex\", \"key_is_hashed\", \"component\", \"length_bytes\", \"tiers\",\n"
            "\"sequence\", \"part_count\", \"segment\", \"page\", \"stored_bytes\" (on NVMe),\n"
            "\"is_encoded\"} ...], \"block_count\", \"length_bytes\" (both of what was listed)}",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* One listing. */
struct listing {
    kvt_store *store;
    const char **names; /* By namespace id; NULL: no such id. The strings are the store's. */
    uint32_t name_count;
    uint32_t only_id;    /* 0: every namespace. */
    bool has_parts;      /* They are listed. */
    uint64_t part_count; /* Of those that are not. */
    uint64_t limit;
    uint64_t block_count;
    uint64_t length_bytes;
    bool as_json;
    struct json json;
};

/* Remembers the name of each namespace, so that a scanned id finds it. */
static enum kvt_status
names_load(struct listing *listing)
{
    uint32_t cursor = 0;

    for (;;) {
        struct kvt_namespace_info info;
        enum kvt_status status = kvt_namespace_next(listing->store, &cursor, &info);

        if (status != KVT_OK)
            return status == KVT_MISS ? KVT_OK : status;
        if (info.ns.id >= listing->name_count) {
            size_t count = (size_t)info.ns.id + 64;
            const char **names = realloc(listing->names, count * sizeof(*names));

            if (names == NULL)
                return KVT_E_NOMEM;
            memset(names + listing->name_count, 0, (count - listing->name_count) * sizeof(*names));
            listing->names = names;
            listing->name_count = (uint32_t)count;
        }
        listing->names[info.ns.id] = info.name;
    }
}

static void
entry_print_json(struct listing *listing, const struct kvt_scan_entry *entry, const char *name,
    const char *key, const char *hex)
{
    struct json *json = &listing->json;

    json_object_begin(json, NULL);
    json_string(json, "key", key);
    json_string(json, "namespace", name);
    json_string(json, "key_hex", hex);
    json_bool(json, "key_is_hashed", entry->is_hashed != 0);
    json_number(json, "component", entry->component);
    json_number(json, "length_bytes", entry->length);
    json_string(json, "tiers", tiers_text(entry->tiers));
    json_number(json, "sequence", entry->sequence);
    json_number(json, "part_count", entry->part_count);
    if ((entry->tiers & KVT_TIER_NVME) != 0) {
        json_number(json, "segment", entry->segment);
        json_number(json, "page", entry->page);
        json_number(json, "stored_bytes", entry->stored_length);
        json_bool(json, "is_encoded", entry->is_encoded != 0);
    }
    json_object_end(json);
}

/* False: no memory. */
static bool
entry_print(struct listing *listing, const struct kvt_scan_entry *entry)
{
    const char *name = entry->ns.id < listing->name_count ? listing->names[entry->ns.id] : NULL;
    char *hex = bytes_hex(entry->key, entry->key_length <= 64 ? entry->key_length : 64);
    char *key = NULL;

    if (name == NULL)
        name = "?";
    key = spelled_key_text(name, entry);
    if (hex == NULL || key == NULL) {
        free(hex);
        free(key);
        return false;
    }
    if (listing->as_json) {
        entry_print_json(listing, entry, name, key, hex);
    } else {
        printf("%12" PRIu64 "  %12" PRIu64 "%c %5u  %-10s  %9" PRIu32 ":%-8" PRIu32 "  ",
            entry->length, entry->stored_length, entry->is_encoded != 0 ? '*' : ' ',
            entry->part_count, tiers_text(entry->tiers), entry->segment, entry->page);
        text_print(stdout, key, 0);
        fputc('\n', stdout);
    }
    listing->block_count++;
    listing->length_bytes += entry->length;
    free(hex);
    free(key);
    return true;
}

static enum kvt_status
blocks_print(struct listing *listing)
{
    struct kvt_scan_entry entries[SCAN_COUNT];
    uint64_t cursor = 0;
    uint64_t hash = 0;
    uint64_t file = 0;

    for (;;) {
        uint32_t count = 0;
        enum kvt_status status = kvt_scan(listing->store, &cursor, entries, SCAN_COUNT, &count);

        if (status != KVT_OK)
            return status == KVT_MISS ? KVT_OK : status;
        for (uint32_t i = 0; i < count; i++) {
            if (listing->only_id != 0 && entries[i].ns.id != listing->only_id)
                continue;
            if (!listing->has_parts && part_key_is(&entries[i], &hash, &file)) {
                listing->part_count++;
                continue;
            }
            if (listing->block_count == listing->limit)
                return KVT_OK;
            if (!entry_print(listing, &entries[i]))
                return KVT_E_NOMEM;
        }
    }
}

static enum kvt_status
listing_print(struct listing *listing)
{
    enum kvt_status status = names_load(listing);

    if (status != KVT_OK)
        return status;
    if (listing->as_json) {
        json_object_begin(&listing->json, NULL);
        json_array_begin(&listing->json, "blocks");
    } else {
        printf("%12s  %12s  %5s  %-10s  %9s:%-8s  %s\n", "BYTES", "STORED", "PARTS", "TIERS",
            "SEGMENT", "PAGE", "KEY");
    }
    status = blocks_print(listing);
    if (listing->as_json) {
        json_array_end(&listing->json);
        json_number(&listing->json, "block_count", listing->block_count);
        json_number(&listing->json, "length_bytes", listing->length_bytes);
        json_number(&listing->json, "part_count", listing->part_count);
        json_object_end(&listing->json);
        json_end(&listing->json);
    } else if (listing->part_count > 0) {
        printf(
            "(and %" PRIu64 " parts of larger files: --parts lists them)\n", listing->part_count);
    }
    return status;
}

/* Opens, lists, closes. */
static int
list(const char *path, const char *name, struct listing *listing)
{
    struct kvt_namespace_info info = {0};
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_PROBLEM;

    listing->store = store_open_to_read(path);
    if (listing->store == NULL)
        return EXIT_PROBLEM;
    if (name != NULL)
        status = namespace_find(listing->store, name, &info);
    listing->only_id = info.ns.id;
    if (status == KVT_MISS) {
        namespace_complain(name, path);
    } else {
        if (status == KVT_OK)
            status = listing_print(listing);
        if (status == KVT_OK)
            exit_code = EXIT_FINE;
        else
            complain_status(status, "cannot list %s", path);
    }
    if (!store_close(listing->store, path))
        exit_code = EXIT_PROBLEM;
    free(listing->names);
    return exit_code;
}

int
kvtool_ls(int argc, char **argv)
{
    struct arguments arguments;
    struct listing listing = {.limit = UINT64_MAX, .json = JSON_INIT(stdout)};
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_ls_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (arguments.values[OPTION_LIMIT] != NULL &&
        !quantity_count(arguments.values[OPTION_LIMIT], &listing.limit)) {
        complain("--limit %s is no count", arguments.values[OPTION_LIMIT]);
        return EXIT_USAGE;
    }
    listing.has_parts = arguments.values[OPTION_PARTS] != NULL;
    listing.as_json = arguments.values[OPTION_JSON] != NULL;
    return list(arguments.operands[0], arguments.values[OPTION_NAMESPACE], &listing);
}
