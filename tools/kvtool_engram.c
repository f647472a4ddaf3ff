/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_engram.c - `kvtool engram`: tables of N-gram embeddings in a store: which are there,
 * importing, verifying, dropping and exporting them.
 */
#include "kvtool_engram.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool_output.h"
#include "progress.h"
#include "quantity.h"

enum {
    OPTION_MODEL,
    OPTION_PROFILE,
    OPTION_LAYER,
    OPTION_CLASS_MAP,
    OPTION_WEIGHT,
    OPTION_SCALE,
    OPTION_RAW,
    OPTION_UNREAD,
    OPTION_CREATE,
    OPTION_NVME,
    OPTION_JSON,
};

enum {
    ROWS_AT_ONCE = 4096,
};

static const struct argument_option options[] = {
    [OPTION_MODEL] = {"--model", "MODEL", "import: a profile that is built in: v41 or demo"},
    [OPTION_PROFILE] = {"--profile", "FILE", "import: a profile as JSON"},
    [OPTION_LAYER] = {"--layer", "NUMBER", "import: which layer of the profile"},
    [OPTION_CLASS_MAP] = {"--class-map", "FILE",
        "import: the class of each token, u32 each; it is\nchecked, and its SHA-256 kept"},
    [OPTION_WEIGHT] = {"--weight", "TENSOR",
        "import: F8_E4M3 [rows, values] (default\nlayers.NUMBER.engram.embed.weight)"},
    [OPTION_SCALE] = {"--scale", "TENSOR",
        "import: F8_E8M0 [rows, scales] (default\nlayers.NUMBER.engram.embed.scale)"},
    [OPTION_RAW] = {"--raw", NULL, "import: the file is rows and nothing else"},
    [OPTION_UNREAD] = {"--unread", NULL, "import: do not read the table back"},
    [OPTION_CREATE] = {"--create", NULL, "import: make the store when there is none"},
    [OPTION_NVME] = {"--nvme", "SIZE",
        "import: NVMe capacity of the new store, for blocks (default\n8G)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON (not export)"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_engram_line = {
    .program = "kvtool",
    .command = "engram",
    .operands = "import|ls|verify|drop|export DIR [NAME [FILE...]]",
    .summary = "Import, list, verify, drop or export tables of N-gram embeddings.",
    .text =
        "import DIR NAME FILE...: safetensors files of a checkpoint, in which the two tensors are\n"
        "looked for, or with --raw one file of rows. The table is there when all of it is written\n"
        "and read back. What was cut short is gone on with by the same command.\n"
        "export DIR NAME FILE: the rows, one behind another; - is standard output.\n"
        "A profile is {\"order_max\", \"head_count\", \"class_count\", \"pad_class\", "
        "\"row_bytes\",\n"
        "\"encoding\": \"bytes\", \"bf16\" or \"e4m3_e8m0\", \"value_count\", \"scale_count\",\n"
        "\"token_count\", \"pad_token\", \"layers\": [{\"number\", \"multipliers\": [...],\n"
        "\"primes\": [...], \"row_count\"}]}.\n"
        "JSON: of a table \"name\", \"state\" (whole, importing, damaged, foreign), \"layer\", "
        "\"row_bytes\",\n"
        "\"rows_per_page\", \"row_count\", \"rows_done\", \"file_bytes\"; ls has \"tables\" of "
        "these;\n"
        "verify \"name\", \"page_count\", \"damaged_count\", \"first_row\" (of the first damaged "
        "page),\n"
        "\"is_sum_wrong\"; drop \"name\", \"outcome\". Damage gives exit code 1.",
    .operand_min = 2,
    .operand_max = 200,
    .options = options,
};

/* --- Facts ------------------------------------------------------------------------------------ */

static const char *
state_text(uint32_t state)
{
    return state == KVT_ENGRAM_WHOLE       ? "whole"
           : state == KVT_ENGRAM_IMPORTING ? "importing"
           : state == KVT_ENGRAM_FOREIGN   ? "foreign"
                                           : "damaged";
}

void
engram_info_print_json(struct json *json, const char *key, const struct kvt_engram_info *info)
{
    json_object_begin(json, key);
    json_string(json, "name", info->name);
    json_string(json, "state", state_text(info->state));
    json_number(json, "layer", info->layer);
    json_number(json, "row_bytes", info->row_bytes);
    json_number(json, "rows_per_page", info->rows_per_page);
    json_number(json, "row_count", info->row_count);
    json_number(json, "rows_done", info->rows_done);
    json_number(json, "file_bytes", info->file_bytes);
    json_object_end(json);
}

struct listing {
    struct json json;
    bool is_json;
};

static int
table_visit(void *context, const struct kvt_engram_info *info)
{
    struct listing *listing = context;
    char texts[3][QUANTITY_TEXT_BYTES];

    if (listing->is_json) {
        engram_info_print_json(&listing->json, NULL, info);
        return 1;
    }
    text_print(stdout, info->name, 24);
    printf(" %-9s layer %2" PRIu32 " %14s rows of %4" PRIu32 " bytes %10s", state_text(info->state),
        info->layer, quantity_count_text(texts[0], info->row_count), info->row_bytes,
        quantity_bytes_text(texts[1], (double)info->file_bytes));
    if (info->state == KVT_ENGRAM_IMPORTING)
        printf(", %s rows done", quantity_count_text(texts[2], info->rows_done));
    printf("\n");
    return 1;
}

static int
tables_list(const char *path, bool is_json)
{
    struct listing listing = {.json = JSON_INIT(stdout), .is_json = is_json};
    kvt_store *store = store_open_to_read(path);
    enum kvt_status status;

    if (store == NULL)
        return EXIT_PROBLEM;
    if (is_json) {
        json_object_begin(&listing.json, NULL);
        json_array_begin(&listing.json, "tables");
    }
    status = kvt_engram_list(store, table_visit, &listing);
    if (status != KVT_OK)
        complain_status(status, "cannot list all tables of %s", path);
    if (is_json) {
        json_array_end(&listing.json);
        json_object_end(&listing.json);
        json_end(&listing.json);
    }
    return store_close(store, path) && status == KVT_OK ? EXIT_FINE : EXIT_PROBLEM;
}

/* --- Verifying -------------------------------------------------------------------------------- */

struct verify {
    struct progress progress;
    uint32_t row_bytes;
};

static int
verify_progress(void *context, uint64_t rows_done, uint64_t row_count)
{
    struct verify *verify = context;

    (void)row_count;
    progress_at(&verify->progress, rows_done * verify->row_bytes);
    return interrupt_came() ? 0 : 1;
}

static void
findings_print(const char *name, const struct kvt_engram_findings *found, bool is_json)
{
    struct json json = JSON_INIT(stdout);
    char texts[3][QUANTITY_TEXT_BYTES];

    if (is_json) {
        json_object_begin(&json, NULL);
        json_string(&json, "name", name);
        json_number(&json, "page_count", found->page_count);
        json_number(&json, "damaged_count", found->damaged_count);
        json_number(&json, "first_row", found->first_row);
        json_bool(&json, "is_sum_wrong", found->is_sum_wrong != 0);
        json_object_end(&json);
        json_end(&json);
        return;
    }
    printf("%s: %s pages, %s damaged", name, quantity_count_text(texts[0], found->page_count),
        quantity_count_text(texts[1], found->damaged_count));
    if (found->damaged_count > 0)
        printf(", the first with row %s", quantity_count_text(texts[2], found->first_row));
    printf(found->is_sum_wrong != 0 ? "; together they are not what was imported\n" : "\n");
}

static bool
table_verify(kvt_engram *table, const char *name, bool is_json)
{
    struct kvt_engram_findings found = {0};
    struct kvt_engram_info info = {0};
    struct verify verify = {0};
    enum kvt_status status = kvt_engram_info_get(table, &info);

    verify.row_bytes = info.row_bytes;
    progress_begin(&verify.progress, "verify", PROGRESS_BYTES, 0, info.row_count * info.row_bytes);
    if (status == KVT_OK)
        status = kvt_engram_verify(table, verify_progress, &verify, &found);
    progress_end(&verify.progress);
    if (status == KVT_CANCELLED)
        complain("interrupted");
    else if (status != KVT_OK)
        complain_status(status, "cannot verify the table %s", name);
    if (status != KVT_OK)
        return false;
    findings_print(name, &found, is_json);
    return found.damaged_count == 0 && found.is_sum_wrong == 0;
}

/* --- Exporting -------------------------------------------------------------------------------- */

static bool
rows_write(
    kvt_engram *table, const struct kvt_engram_info *info, struct output *output, uint8_t *rows)
{
    struct progress progress;
    bool is_fine = true;

    progress_begin(&progress, "export", PROGRESS_BYTES, 0, info->row_count * info->row_bytes);
    for (uint64_t first = 0; first < info->row_count && is_fine; first += ROWS_AT_ONCE) {
        uint64_t count =
            info->row_count - first < ROWS_AT_ONCE ? info->row_count - first : ROWS_AT_ONCE;
        enum kvt_status status = kvt_engram_read(table, first, count, rows);

        if (status != KVT_OK)
            complain_status(status, "cannot read the table %s", info->name);
        is_fine = status == KVT_OK && output_write(output, rows, count * info->row_bytes);
        progress_at(&progress, (first + count) * info->row_bytes);
    }
    progress_end(&progress);
    return is_fine;
}

static bool
table_export(kvt_engram *table, const char *file)
{
    struct kvt_engram_info info = {0};
    enum kvt_status status = kvt_engram_info_get(table, &info);
    uint8_t *rows = malloc((size_t)ROWS_AT_ONCE * (info.row_bytes + 1));
    struct output output = {0};
    bool is_fine = false;

    if (rows == NULL || status != KVT_OK) {
        complain("there is no memory for rows");
        free(rows);
        return false;
    }
    if (output_open(&output, file)) {
        is_fine = rows_write(table, &info, &output, rows);
        is_fine = output_close(&output, is_fine) && is_fine;
    }
    free(rows);
    return is_fine;
}

/* --- The command ------------------------------------------------------------------------------ */

static int
table_drop(const char *path, const char *name, bool is_json)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct json json = JSON_INIT(stdout);
    kvt_store *store;
    enum kvt_status status;

    existing.host_capacity_bytes = KVTOOL_HOST_BYTES;
    store = store_open_to_write(path, &existing, NULL);
    if (store == NULL)
        return EXIT_PROBLEM;
    status = kvt_engram_drop(store, name);
    if (status != KVT_OK) {
        complain_status(status, "cannot drop the table %s", name);
    } else if (is_json) {
        json_object_begin(&json, NULL);
        json_string(&json, "name", name);
        json_string(&json, "outcome", "dropped");
        json_object_end(&json);
        json_end(&json);
    } else {
        printf("%s is dropped\n", name);
    }
    return store_close(store, path) && status == KVT_OK ? EXIT_FINE : EXIT_PROBLEM;
}

/* verify (`file` NULL) and export: with an open table. */
static int
table_use(const char *path, const char *name, const char *file, bool is_json)
{
    kvt_store *store = store_open_to_read(path);
    kvt_engram *table = NULL;
    enum kvt_status status;
    bool is_fine = false;

    if (store == NULL)
        return EXIT_PROBLEM;
    interrupt_watch();
    status = kvt_engram_open(store, name, &table);
    if (status != KVT_OK)
        complain_status(status, "cannot open the table %s", name);
    else
        is_fine = file == NULL ? table_verify(table, name, is_json) : table_export(table, file);
    if (kvt_engram_close(table) != KVT_OK)
        is_fine = false;
    return store_close(store, path) && is_fine ? EXIT_FINE : EXIT_PROBLEM;
}

static int
import_begin(const struct arguments *arguments)
{
    const struct engram_order order = {
        .path = arguments->operands[1],
        .name = arguments->operands[2],
        .files = arguments->operands + 3,
        .file_count = (uint32_t)arguments->operand_count - 3,
        .model = arguments->values[OPTION_MODEL],
        .profile_path = arguments->values[OPTION_PROFILE],
        .class_map_path = arguments->values[OPTION_CLASS_MAP],
        .layer = arguments->values[OPTION_LAYER],
        .weight = arguments->values[OPTION_WEIGHT],
        .scale = arguments->values[OPTION_SCALE],
        .nvme = arguments->values[OPTION_NVME],
        .is_raw = arguments->values[OPTION_RAW] != NULL,
        .may_create = arguments->values[OPTION_CREATE] != NULL,
        .is_unread = arguments->values[OPTION_UNREAD] != NULL,
        .is_json = arguments->values[OPTION_JSON] != NULL,
    };

    return engram_import(&order);
}

enum verb {
    VERB_LS,
    VERB_VERIFY,
    VERB_DROP,
    VERB_EXPORT,
    VERB_IMPORT,
    VERB_COUNT
};

/* Which verb it is, with operands and options that it takes; VERB_COUNT, with a sentence: none. */
static enum verb
verb_read(const struct arguments *arguments)
{
    static const struct {
        const char *word;
        int operand_min, operand_max;
    } verbs[] = {
        {"ls", 2, 2}, {"verify", 3, 3}, {"drop", 3, 3}, {"export", 4, 4}, {"import", 4, 200}};
    const char *word = arguments->operands[0];
    enum verb verb = VERB_LS;

    while (verb < VERB_COUNT && strcmp(word, verbs[verb].word) != 0)
        verb++;
    if (verb == VERB_COUNT) {
        complain("engram %s: it is import, ls, verify, drop or export", word);
        return VERB_COUNT;
    }
    if (arguments->operand_count < verbs[verb].operand_min ||
        arguments->operand_count > verbs[verb].operand_max) {
        complain("engram %s takes another number of operands (see kvtool engram --help)", word);
        return VERB_COUNT;
    }
    for (int i = 0; verb != VERB_IMPORT && options[i].name != NULL; i++) {
        if (arguments->values[i] != NULL && (i != OPTION_JSON || verb == VERB_EXPORT)) {
            complain(
                "engram %s has no option %s (see kvtool engram --help)", word, options[i].name);
            return VERB_COUNT;
        }
    }
    return verb;
}

int
kvtool_engram(int argc, char **argv)
{
    struct arguments arguments;
    int exit_code = EXIT_FINE;
    bool is_json;

    if (!arguments_read(&kvtool_engram_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    is_json = arguments.values[OPTION_JSON] != NULL;
    switch (verb_read(&arguments)) {
    case VERB_LS:
        return tables_list(arguments.operands[1], is_json);
    case VERB_VERIFY:
        return table_use(arguments.operands[1], arguments.operands[2], NULL, is_json);
    case VERB_DROP:
        return table_drop(arguments.operands[1], arguments.operands[2], is_json);
    case VERB_EXPORT:
        return table_use(
            arguments.operands[1], arguments.operands[2], arguments.operands[3], false);
    case VERB_IMPORT:
        return import_begin(&arguments);
    case VERB_COUNT:
        break;
    }
    return EXIT_USAGE;
}
