/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_ls.c - `kvtool ls`: the blocks of a store, one a line.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "kvtool_manifest.h"
#include "kvtool_owner.h"
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
            "\"is_encoded\"} ...], \"block_count\", \"length_bytes\" (both of what was listed),\n"
            "\"part_count\" (parts of larger files that were not)}",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* One listing. */
struct listing {
    bool has_begun;
    bool is_short_of_memory;
    bool has_parts;      /* They are listed. */
    uint64_t part_count; /* Of those that are not. */
    uint64_t limit;
    uint64_t block_count;
    uint64_t length_bytes;
    bool as_json;
    struct json json;
};

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

static void
listing_begin(struct listing *listing)
{
    if (listing->has_begun)
        return;
    listing->has_begun = true;
    if (listing->as_json) {
        json_object_begin(&listing->json, NULL);
        json_array_begin(&listing->json, "blocks");
    } else {
        printf("%12s  %12s  %5s  %-10s  %9s:%-8s  %s\n", "BYTES", "STORED", "PARTS", "TIERS",
            "SEGMENT", "PAGE", "KEY");
    }
}

static void
listing_end(struct listing *listing)
{
    listing_begin(listing);
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
}

static void
entry_print(struct listing *listing, const struct kvt_scan_entry *entry, const char *name,
    const char *key, const char *hex)
{
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
}

/* Of each block. Not 0: that was the last. */
static int
entry_take(void *context, const struct kvt_scan_entry *entry, const char *name)
{
    struct listing *listing = context;
    char *hex = NULL;
    char *key = NULL;
    struct part_name part;

    listing_begin(listing);
    if (!listing->has_parts && part_key_is(entry, &part)) {
        listing->part_count++;
        return 0;
    }
    if (listing->block_count == listing->limit)
        return 1;
    hex = bytes_hex(entry->key, entry->key_length <= 64 ? entry->key_length : 64);
    key = spelled_key_text(name, entry);
    if (hex != NULL && key != NULL)
        entry_print(listing, entry, name, key, hex);
    else
        listing->is_short_of_memory = true;
    free(hex);
    free(key);
    return listing->is_short_of_memory || ferror(stdout) != 0;
}

/* The name of the namespace of the last entry is that of most others. */
static const char *
name_of(kvt_store *store, kvt_namespace ns, struct kvt_namespace_info *last)
{
    uint32_t cursor = ns.id - 1;

    if (last->name == NULL || last->ns.id != ns.id) {
        if (kvt_namespace_next(store, &cursor, last) != KVT_OK || last->ns.id != ns.id)
            last->name = NULL;
    }
    return last->name == NULL ? "?" : last->name;
}

/* A store that was not closed in order: what recovery finds in it. */
static enum kvt_status
store_list(kvt_store *store, const char *name, struct listing *listing)
{
    struct kvt_scan_entry entries[SCAN_COUNT];
    struct kvt_namespace_info only = {.ns = {0}};
    struct kvt_namespace_info last = {.name = NULL};
    uint64_t cursor = 0;
    enum kvt_status status = name == NULL ? KVT_OK : namespace_find(store, name, &only);

    while (status == KVT_OK) {
        uint32_t count = 0;

        status = kvt_scan(store, &cursor, entries, SCAN_COUNT, &count);
        for (uint32_t i = 0; status == KVT_OK && i < count; i++) {
            if (only.ns.id != 0 && entries[i].ns.id != only.ns.id)
                continue;
            if (entry_take(listing, &entries[i], name_of(store, entries[i].ns, &last)) != 0)
                return KVT_OK;
        }
        if (status == KVT_MISS)
            return KVT_OK;
    }
    return status;
}

static enum kvt_status
opened_list(const char *path, const char *name, struct listing *listing)
{
    kvt_store *store = store_open_to_read(path);
    enum kvt_status status = KVT_OK;

    if (store == NULL)
        return KVT_CANCELLED;
    status = store_list(store, name, listing);
    if (status == KVT_MISS)
        namespace_complain(name, path);
    else if (status != KVT_OK)
        complain_status(status, "cannot list %s", path);
    return store_close(store, path) && status == KVT_OK ? KVT_OK : KVT_CANCELLED;
}

/* Most stores are closed, and were closed in order: they need not be opened. */
static int
list(const char *path, const char *name, struct listing *listing)
{
    enum kvt_status status = kvt_list(path, name, entry_take, listing);

    if (status == KVT_NOT_READY)
        status = opened_list(path, name, listing);
    else if (status == KVT_MISS)
        complain("there is no store in %s", path);
    else if (status == KVT_E_LOCKED)
        owner_complain(path);
    else if (status != KVT_OK)
        complain_status(status, "cannot list %s", path);
    if (listing->is_short_of_memory)
        complain("there is no memory to print a key");
    if (status == KVT_OK || listing->has_begun)
        listing_end(listing);
    return status == KVT_OK && !listing->is_short_of_memory ? EXIT_FINE : EXIT_PROBLEM;
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
