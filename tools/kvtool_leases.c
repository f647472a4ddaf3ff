/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_leases.c - `kvtool leases`: which leases the owner of an open store has out, how old they
 * are and what they hold.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_owner.h"
#include "quantity.h"

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_leases_line = {
    .program = "kvtool",
    .command = "leases",
    .operands = "DIR",
    .summary = "Tell which leases the process that has DIR open has out, oldest first.",
    .text =
        "JSON: {\"pid\", \"program\", \"age_ns\" (of what is shown), \"lease_count\", \"seen\" "
        "(of\n"
        "these, the ones that the sums are of), \"oldest_ns\", \"hbm_bytes\", \"host_bytes\",\n"
        "\"nvme_bytes\", \"leases\" [{\"age_ns\", \"blocks\", \"key\" (of the first block; longer\n"
        "ones end in ...), \"namespace\", \"tiers\"} ...] (256 at most)}. A closed store has no\n"
        "leases.",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

/* The spelling of what is shown of a key, as a new string; NULL without memory. */
static char *
key_text(const struct kvt_live_lease *lease)
{
    struct kvt_scan_entry entry = {.component = lease->component, .is_hashed = lease->is_hashed};
    char *text = NULL;
    char *longer = NULL;

    entry.key_length =
        lease->key_length < sizeof(lease->key) ? lease->key_length : (uint32_t)sizeof(lease->key);
    memcpy(entry.key, lease->key, entry.key_length);
    text = spelled_key_text(lease->namespace_name, &entry);
    if (text == NULL || lease->key_length <= sizeof(lease->key))
        return text;
    longer = realloc(text, strlen(text) + 4);
    if (longer == NULL) {
        free(text);
        return NULL;
    }
    memcpy(longer + strlen(longer), "...", 4);
    return longer;
}

static int
older_first(const void *a, const void *b)
{
    const struct kvt_live_lease *left = a;
    const struct kvt_live_lease *right = b;

    return left->age_ns < right->age_ns ? 1 : left->age_ns > right->age_ns ? -1 : 0;
}

static void
lease_print(const struct kvt_live_lease *lease, const char *key)
{
    char age[QUANTITY_TEXT_BYTES];

    printf("%10s  %8" PRIu32 "  %-14s  ", quantity_time_text(age, (double)lease->age_ns),
        lease->block_count, tiers_text(lease->tiers));
    text_print(stdout, key, 0);
    printf("\n");
}

static void
lease_print_json(struct json *json, const struct kvt_live_lease *lease, const char *key)
{
    json_object_begin(json, NULL);
    json_number(json, "age_ns", lease->age_ns);
    json_number(json, "blocks", lease->block_count);
    json_string(json, "key", key);
    json_string(json, "namespace", lease->namespace_name);
    json_string(json, "tiers", tiers_text(lease->tiers));
    json_object_end(json);
}

static bool
leases_print(struct kvt_live *live, struct json *json)
{
    qsort(live->leases, live->lease_shown_count, sizeof(live->leases[0]), older_first);
    for (uint32_t i = 0; i < live->lease_shown_count; i++) {
        char *key = key_text(&live->leases[i]);

        if (key == NULL) {
            complain("there is no memory to print a lease");
            return false;
        }
        if (json != NULL)
            lease_print_json(json, &live->leases[i], key);
        else
            lease_print(&live->leases[i], key);
        free(key);
    }
    return true;
}

static bool
owner_print_json(struct owner *owner)
{
    struct json json = JSON_INIT(stdout);
    bool is_fine = false;

    json_object_begin(&json, NULL);
    json_number(&json, "pid", owner->live.pid);
    json_string(&json, "program", owner->program);
    json_number(&json, "age_ns", owner->live.age_ns);
    json_number(&json, "lease_count", owner->live.lease_count);
    json_number(&json, "seen", owner->live.lease_seen_count);
    json_number(&json, "oldest_ns", owner->live.lease_oldest_ns);
    json_number(&json, "hbm_bytes", owner->live.leased_hbm_bytes);
    json_number(&json, "host_bytes", owner->live.leased_host_bytes);
    json_number(&json, "nvme_bytes", owner->live.leased_nvme_bytes);
    json_array_begin(&json, "leases");
    is_fine = leases_print(&owner->live, &json);
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
    return is_fine;
}

static bool
owner_print(struct owner *owner)
{
    struct kvt_live *live = &owner->live;
    char texts[4][QUANTITY_TEXT_BYTES];

    printf("%s leases, the oldest %s; copies they hold: HBM %s, HOST %s, NVMe %s\n",
        quantity_count_text(texts[0], live->lease_count),
        quantity_time_text(texts[1], (double)live->lease_oldest_ns),
        quantity_bytes_text(texts[2], (double)live->leased_hbm_bytes),
        quantity_bytes_text(texts[3], (double)live->leased_host_bytes),
        quantity_bytes_text((char[QUANTITY_TEXT_BYTES]){0}, (double)live->leased_nvme_bytes));
    if (live->lease_seen_count < live->lease_count)
        printf("(the ages and sums are those of %s of them)\n",
            quantity_count_text(texts[0], live->lease_seen_count));
    if (live->lease_shown_count == 0)
        return true;
    printf("%10s  %8s  %-14s  %s\n", "AGE", "BLOCKS", "TIERS", "FIRST KEY");
    return leases_print(live, NULL);
}

int
kvtool_leases(int argc, char **argv)
{
    struct arguments arguments;
    struct owner *owner = NULL;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_leases_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    exit_code = EXIT_PROBLEM;
    owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        complain("there is no memory to look at %s", arguments.operands[0]);
        return EXIT_PROBLEM;
    }
    if (owner_must_show(arguments.operands[0], owner)) {
        bool is_fine =
            arguments.values[OPTION_JSON] != NULL ? owner_print_json(owner) : owner_print(owner);

        if (is_fine)
            exit_code = EXIT_FINE;
    }
    free(owner);
    return exit_code;
}
