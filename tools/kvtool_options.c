/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_options.c - `kvtool options`: the options in force in an open store, or what a closed one
 * was made with and would be opened with; defaults are marked.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_owner.h"
#include "quantity.h"

#define GIB (UINT64_C(1) << 30)

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_options_line = {
    .program = "kvtool",
    .command = "options",
    .operands = "DIR",
    .summary = "Tell the options of the store in DIR: in force, or what an open would take.",
    .text =
        "Names are those of struct kvt_options. * marks a default, + what the store was made\n"
        "with (it cannot change). JSON: {\"is_open\", \"options\": {each name: {\"value\" (null:\n"
        "none, no such tier), \"is_default\", \"is_made\"} ...}}",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

enum unit {
    UNIT_BYTES,
    UNIT_COUNT,
    UNIT_NS,
    UNIT_PERCENT,
    UNIT_WORD
};

/* One option. */
struct row {
    const char *name;
    enum unit unit;
    uint64_t value;
    uint64_t usual;           /* The default. */
    const char *const *words; /* UNIT_WORD. */
    uint32_t word_count;
    bool is_made; /* Belongs to the store for ever. */
};

static const char *const io_words[] = {"auto", "uring", "threads"};
static const char *const policy_words[] = {"default", "lru", "s3fifo", "ghi"};
static const char *const device_words[] = {"auto", "cuda", "emulation"};
static const char *const log_words[] = {"error", "warn", "info", "debug"};

enum {
    ROW_MAX = 32
};

#define WORDS(table) table, (uint32_t)(sizeof(table) / sizeof((table)[0]))

static uint64_t
pin_bytes_usual(const struct kvt_options *o)
{
    return (o->nvme_capacity_bytes < o->host_capacity_bytes ? o->nvme_capacity_bytes
                                                            : o->host_capacity_bytes) /
           4;
}

/* Every option with its default (kvtier.h). Returns how many. */
static size_t
rows_of(const struct kvt_options *o, struct row rows_out[ROW_MAX])
{
    uint64_t none = KVT_CAPACITY_NONE;
    uint64_t low = o->host_high_percent > 5 ? o->host_high_percent - 5 : 1;
    uint64_t pin = pin_bytes_usual(o);
    const struct row rows[] = {
        {"host_capacity_bytes", UNIT_BYTES, o->host_capacity_bytes, GIB, NULL, 0, false},
        {"nvme_capacity_bytes", UNIT_BYTES, o->nvme_capacity_bytes, 8 * GIB, NULL, 0, false},
        {"segment_bytes", UNIT_BYTES, o->segment_bytes, 0, NULL, 0, true},
        {"block_bytes_max", UNIT_BYTES, o->block_bytes_max, 0, NULL, 0, true},
        {"root_count", UNIT_COUNT, o->root_count, 0, NULL, 0, true},
        {"entry_count_max", UNIT_COUNT, o->entry_count_max, UINT64_C(1) << 27, NULL, 0, false},
        {"io_engine", UNIT_WORD, o->io_engine, KVT_IO_AUTO, WORDS(io_words), false},
        {"worker_count", UNIT_COUNT, o->worker_count, 2, NULL, 0, false},
        {"request_count_max", UNIT_COUNT, o->request_count_max, 4096, NULL, 0, false},
        {"lease_count_max", UNIT_COUNT, o->lease_count_max, 4096, NULL, 0, false},
        {"host_high_percent", UNIT_PERCENT, o->host_high_percent, 95, NULL, 0, false},
        {"host_low_percent", UNIT_PERCENT, o->host_low_percent, low, NULL, 0, false},
        {"nvme_high_percent", UNIT_PERCENT, o->nvme_high_percent, 97, NULL, 0, false},
        {"dirty_bytes_max", UNIT_BYTES, o->dirty_bytes_max, o->host_capacity_bytes / 2, NULL, 0,
            false},
        {"relaxed_interval_ns", UNIT_NS, o->relaxed_interval_ns, 1000000000, NULL, 0, false},
        {"batch_delay_ns", UNIT_NS, o->batch_delay_ns, 2000000, NULL, 0, false},
        {"policy", UNIT_WORD, o->policy, KVT_POLICY_GHI, WORDS(policy_words), false},
        {"hbm_capacity_bytes", UNIT_BYTES, o->hbm_capacity_bytes, none, NULL, 0, false},
        {"device_kind", UNIT_WORD, o->device_kind, KVT_DEVICE_AUTO, WORDS(device_words), false},
        {"device_mask", UNIT_COUNT, o->device_mask, 0, NULL, 0, false},
        {"pin_bytes_max", UNIT_BYTES, o->pin_bytes_max, pin, NULL, 0, false},
        {"event_count_max", UNIT_COUNT, o->event_count_max, 0, NULL, 0, false},
        {"nvme_write_bytes_per_second", UNIT_BYTES, o->nvme_write_bytes_per_second, 0, NULL, 0,
            false},
        {"engram_capacity_bytes", UNIT_BYTES, o->engram_capacity_bytes, none, NULL, 0, false},
        {"log_level", UNIT_WORD, o->log_level, KVT_LOG_ERROR, WORDS(log_words), false},
    };

    memcpy(rows_out, rows, sizeof(rows));
    return sizeof(rows) / sizeof(rows[0]);
}

static bool
row_is_none(const struct row *row)
{
    return row->unit == UNIT_BYTES && row->value == KVT_CAPACITY_NONE;
}

static const char *
row_text(const struct row *row, char text[QUANTITY_TEXT_BYTES])
{
    if (row_is_none(row))
        return "none";
    switch (row->unit) {
    case UNIT_BYTES:
        return quantity_bytes_text(text, (double)row->value);
    case UNIT_NS:
        return quantity_time_text(text, (double)row->value);
    case UNIT_PERCENT:
        snprintf(text, QUANTITY_TEXT_BYTES, "%" PRIu64 " %%", row->value);
        return text;
    case UNIT_WORD:
        if (row->value < row->word_count)
            return row->words[row->value];
        break;
    case UNIT_COUNT:
        break;
    }
    return quantity_count_text(text, row->value);
}

static void
rows_print(const struct row *rows, size_t count, bool is_open)
{
    char text[QUANTITY_TEXT_BYTES];

    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

        printf("%c %-22s %14s",
            row->is_made               ? '+'
            : row->value == row->usual ? '*'
                                       : ' ',
            row->name, row_text(row, text));
        if (row->unit == UNIT_BYTES && !row_is_none(row))
            printf("  (%" PRIu64 ")", row->value);
        printf("\n");
    }
    printf("* default   + as the store was made%s\n",
        is_open ? "" : "; no process has it open: this is what an open without options would take");
}

static void
rows_print_json(const struct row *rows, size_t count, bool is_open)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_bool(&json, "is_open", is_open);
    json_object_begin(&json, "options");
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

        json_object_begin(&json, row->name);
        if (row_is_none(row))
            json_null(&json, "value");
        else if (row->unit == UNIT_WORD && row->value < row->word_count)
            json_string(&json, "value", row->words[row->value]);
        else
            json_number(&json, "value", row->value);
        json_bool(&json, "is_default", !row->is_made && row->value == row->usual);
        json_bool(&json, "is_made", row->is_made);
        json_object_end(&json);
    }
    json_object_end(&json);
    json_object_end(&json);
    json_end(&json);
}

/* What a closed store would be opened with: as it was made, and the defaults. */
static bool
closed_read(const char *path, struct kvt_options *options_out)
{
    struct kvt_options made = KVT_OPTIONS_INIT;
    kvt_store *store = store_open_to_read(path);
    enum kvt_status status = KVT_OK;

    if (store == NULL)
        return false;
    status = kvt_options_get(store, &made);
    if (status != KVT_OK)
        complain_status(status, "cannot ask %s for its options", path);
    *options_out = made;
    options_out->io_engine = KVT_IO_AUTO;
    options_out->host_capacity_bytes = GIB;
    options_out->dirty_bytes_max = GIB / 2;
    options_out->pin_bytes_max = pin_bytes_usual(options_out);
    return store_close(store, path) && status == KVT_OK;
}

int
kvtool_options(int argc, char **argv)
{
    struct arguments arguments;
    struct kvt_options found = KVT_OPTIONS_INIT;
    struct row rows[ROW_MAX];
    struct owner *owner = NULL;
    bool is_open = false;
    size_t count = 0;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_options_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        complain("there is no memory to look at %s", arguments.operands[0]);
        return EXIT_PROBLEM;
    }
    owner_find(arguments.operands[0], owner);
    is_open = owner->has_live;
    if (is_open)
        found = owner->live.options;
    free(owner);
    if (!is_open && !closed_read(arguments.operands[0], &found))
        return EXIT_PROBLEM;
    count = rows_of(&found, rows);
    if (arguments.values[OPTION_JSON] != NULL)
        rows_print_json(rows, count, is_open);
    else
        rows_print(rows, count, is_open);
    return EXIT_FINE;
}
