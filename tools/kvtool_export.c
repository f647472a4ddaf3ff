/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_export.c - `kvtool export`: namespaces or single keys of a store as one archive.
 *
 * Parents come before their children, so that an import finds them, and the manifests of files
 * behind everything else: by then it is known which files could be read.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "kvtool_archive.h"
#include "kvtool_block.h"
#include "kvtool_files.h"
#include "kvtool_output.h"
#include "progress.h"
#include "quantity.h"

enum {
    SCAN_COUNT = 256
};

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print facts as JSON; needs a FILE"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_export_line = {
    .program = "kvtool",
    .command = "export",
    .operands = "DIR FILE|- [NAMESPACE|KEY]...",
    .summary = "Write the blocks of DIR, or those named, as an archive for kvtool import.",
    .text =
        "An operand that is the name of a namespace means all of it; any other is a KEY, which\n"
        "must be there. Left out and counted are blocks whose keys are longer than 64 bytes (a\n"
        "store keeps only a hash of them), damaged ones, and files of which parts are gone or\n"
        "damaged. The exit code is then 1, and when DIR has lost blocks. FILE is there whole or "
        "as\n"
        "it was. Tables of N-gram embeddings are in no archive: see kvtool engram export.\n"
        "JSON: {\"namespaces\", \"blocks\", \"payload_bytes\", \"archive_bytes\",\n"
        "\"left_out_hashed\", \"left_out_damaged\", \"left_out_files\"}",
    .operand_min = 2,
    .operand_max = ARGUMENT_OPERAND_MAX,
    .options = options,
};

/* What was asked for: all, or these. */
struct wish {
    const char *spelling;
    uint32_t namespace_id;
    bool is_key;
    uint64_t hash; /* Of the key: its parts are meant, too. */
    struct spelled_key key;
    bool is_found;   /* The key's own block. */
    bool is_broken;  /* It is the manifest of a file that is not whole. */
    bool is_damaged; /* It cannot be read. */
};

struct export
{
    const char *path;
    kvt_store *store;
    struct wish *wishes;
    size_t wish_count;
    struct kvt_scan_entry *entries;
    struct kvt_block_facts *facts;
    size_t count, capacity;
    struct listed_files files; /* Among the entries. */
    uint32_t *order;           /* Of the entries that are to be written. */
    size_t order_count;
    uint64_t payload_bytes; /* Of these. */
    uint64_t hashed_count;
    uint64_t damaged_count;
    uint64_t broken_file_count;
    uint32_t *namespace_indexes; /* By id; UINT32_MAX: not in the archive. */
    uint32_t namespace_limit;
    struct archive_writer writer;
    struct progress progress;
};

/* --- What is wanted --------------------------------------------------------------------------- */

static bool
wish_read(struct export *export, const char *text, struct wish *wish)
{
    struct kvt_namespace_info info;
    enum kvt_status status = namespace_find(export->store, text, &info);

    wish->spelling = text;
    if (status == KVT_MISS) {
        if (!spelled_key_read(&wish->key, text))
            return false;
        wish->is_key = true;
        wish->hash = key_hash(&wish->key.key);
        status = namespace_find(export->store, wish->key.namespace_name, &info);
        if (status == KVT_MISS) {
            namespace_complain(wish->key.namespace_name, export->path);
            return false;
        }
    }
    if (status != KVT_OK)
        complain_status(status, "cannot list the namespaces of %s", export->path);
    wish->namespace_id = info.ns.id;
    return status == KVT_OK;
}

/* The entry is the block of the key that was named. */
static bool
wish_names(const struct wish *wish, const struct kvt_scan_entry *entry)
{
    const struct kvt_key *key = &wish->key.key;

    return wish->is_key && wish->namespace_id == entry->ns.id &&
           entry->component == key->component && !entry->is_hashed &&
           entry->key_length == key->length && memcmp(entry->key, key->bytes, key->length) == 0;
}

static bool
wish_wants(const struct wish *wish, const struct kvt_scan_entry *entry)
{
    struct part_name part;

    if (wish->namespace_id != entry->ns.id)
        return false;
    if (!wish->is_key || wish_names(wish, entry))
        return true;
    return entry->component == wish->key.key.component && part_key_is(entry, &part) &&
           part.key_hash == wish->hash;
}

/* Notes which of the keys that were named are there, too. */
static bool
is_wanted(const struct export *export, const struct kvt_scan_entry *entry)
{
    bool is_wanted = export->wish_count == 0;

    for (size_t i = 0; i < export->wish_count; i++) {
        struct wish *wish = &export->wishes[i];

        wish->is_found = wish->is_found || wish_names(wish, entry);
        is_wanted = is_wanted || wish_wants(wish, entry);
    }
    return is_wanted;
}

/* Whether each key that was named is there, as far as that is known. */
static bool
wishes_check(const struct export *export)
{
    for (size_t i = 0; i < export->wish_count; i++) {
        const struct wish *wish = &export->wishes[i];

        if (!wish->is_key || (wish->is_found && !wish->is_broken && !wish->is_damaged))
            continue;
        if (wish->key.key.length > ARCHIVE_KEY_MAX)
            complain("the key %s has more than %d bytes, of which a store keeps a hash: it cannot "
                     "be exported",
                wish->spelling, ARCHIVE_KEY_MAX);
        else if (wish->is_damaged)
            complain("the block %s is damaged: it counts as missing", wish->spelling);
        else if (wish->is_found)
            complain("the file %s is not whole: parts of it were evicted or damaged; it counts as "
                     "missing",
                wish->spelling);
        else
            complain("there is no block %s", wish->spelling);
        return false;
    }
    return true;
}

/* --- Collecting ------------------------------------------------------------------------------- */

static bool
entry_add(struct export *export, const struct kvt_scan_entry *entry)
{
    if (export->count == export->capacity) {
        size_t capacity = export->capacity == 0 ? SCAN_COUNT : export->capacity * 2;
        struct kvt_scan_entry *entries =
            realloc(export->entries, capacity * sizeof(*export->entries));

        if (entries == NULL)
            return false;
        export->entries = entries;
        export->capacity = capacity;
    }
    export->entries[export->count++] = *entry;
    return true;
}

static enum kvt_status
entries_collect(struct export *export)
{
    struct kvt_scan_entry entries[SCAN_COUNT];
    uint64_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    while ((status = kvt_scan(export->store, &cursor, entries, SCAN_COUNT, &count)) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (!is_wanted(export, &entries[i]))
                continue;
            if (entries[i].is_hashed)
                export->hashed_count++;
            else if (!entry_add(export, &entries[i]))
                return KVT_E_NOMEM;
        }
    }
    return status == KVT_MISS ? KVT_OK : status;
}

/* Whoever named the key of that entry. */
static struct wish *
wish_of(const struct export *export, size_t number)
{
    for (size_t i = 0; i < export->wish_count; i++) {
        if (wish_names(&export->wishes[i], &export->entries[number]))
            return &export->wishes[i];
    }
    return NULL;
}

/* Of a file that is not whole nothing is written, or no manifest any more. */
static void
file_leave_out(struct export *export, const struct listed_file *file)
{
    struct wish *wish = wish_of(export, file->entry);

    export->broken_file_count++;
    if (wish != NULL)
        wish->is_broken = true;
}

/* Manifests last; parents first; then as the blocks lie on NVMe. */
static int
order_compare(const void *a, const void *b, void *context)
{
    const struct export *export = context;
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;
    const struct kvt_scan_entry *left = &export->entries[one];
    const struct kvt_scan_entry *right = &export->entries[other];
    uint32_t left_depth = export->facts[one].depth;
    uint32_t right_depth = export->facts[other].depth;
    bool is_left_last = files_has_manifest(&export->files, one);

    if (is_left_last != files_has_manifest(&export->files, other))
        return is_left_last ? 1 : -1;
    if (left_depth != right_depth)
        return left_depth < right_depth ? -1 : 1;
    if (left->segment != right->segment)
        return left->segment < right->segment ? -1 : 1;
    return left->page < right->page ? -1 : left->page > right->page;
}

static enum kvt_status
entries_order(struct export *export)
{
    size_t room = export->count == 0 ? 1 : export->count;

    export->facts = calloc(room, sizeof(*export->facts));
    export->order = calloc(room, sizeof(*export->order));
    if (export->facts == NULL || export->order == NULL || export->count > UINT32_MAX)
        return KVT_E_NOMEM;
    for (size_t at = 0; at < export->count; at += SCAN_COUNT) {
        size_t part = export->count - at < SCAN_COUNT ? export->count - at : SCAN_COUNT;
        enum kvt_status status = kvt_block_facts_get(
            export->store, export->entries + at, (uint32_t)part, export->facts + at);

        if (status != KVT_OK)
            return status;
    }
    for (size_t i = 0; i < export->files.count; i++) {
        if (export->files.files[i].is_broken)
            file_leave_out(export, &export->files.files[i]);
    }
    for (size_t i = 0; i < export->count; i++) {
        const struct listed_file *file = export->files.of_entries[i];

        if (file != NULL && file->is_broken)
            continue;
        export->order[export->order_count++] = (uint32_t)i;
        export->payload_bytes += export->entries[i].length;
    }
    qsort_r(export->order, export->order_count, sizeof(*export->order), order_compare, export);
    return KVT_OK;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static enum kvt_status
namespaces_write(struct export *export)
{
    struct archive_namespace space;
    struct kvt_namespace_info info;
    uint32_t cursor = 0;
    enum kvt_status status = KVT_OK;

    while ((status = kvt_namespace_next(export->store, &cursor, &info)) == KVT_OK) {
        size_t length = 0;
        bool is_used = export->wish_count == 0;

        for (size_t i = 0; i < export->wish_count; i++)
            is_used = is_used || export->wishes[i].namespace_id == info.ns.id;
        if (!is_used || info.ns.id >= export->namespace_limit)
            continue;
        status = kvt_namespace_description(
            export->store, info.ns, space.description, sizeof(space.description), &length);
        if (status != KVT_OK)
            return status;
        space.description_length = (uint32_t)length;
        snprintf(space.name, sizeof(space.name), "%s", info.name);
        export->namespace_indexes[info.ns.id] = (uint32_t) export->writer.sums.namespace_count;
        if (!archive_namespace_write(&export->writer, &space))
            return KVT_CANCELLED;
    }
    return status == KVT_MISS ? KVT_OK : status;
}

static void
block_describe(const struct export *export, uint32_t number, struct archive_block *block_out)
{
    const struct kvt_scan_entry *entry = &export->entries[number];
    const struct kvt_block_facts *facts = &export->facts[number];

    *block_out = (struct archive_block){
        .namespace_index = export->namespace_indexes[entry->ns.id],
        .component = entry->component,
        .part_count = entry->part_count,
        .class_id = facts->class_id,
        .hint = facts->hint,
        .depth = facts->depth,
        .token_start = facts->token_start,
        .token_count = facts->token_count,
        .recompute_us = facts->recompute_us,
        .importance = facts->importance,
        .key_length = entry->key_length,
    };
    memcpy(block_out->key, entry->key, entry->key_length);
    if (facts->has_parent && !facts->parent_is_hashed) {
        block_out->parent_length = facts->parent_length;
        block_out->parent_component = facts->parent_component;
        memcpy(block_out->parent, facts->parent, facts->parent_length);
    }
}

static enum kvt_status
block_begin(struct export *export, struct lanes *lanes, size_t at)
{
    const struct kvt_scan_entry *entry = &export->entries[export->order[at]];
    const struct kvt_key key = {
        .bytes = entry->key, .length = entry->key_length, .component = entry->component};

    return lane_get(lanes, lanes_at(lanes, at), entry->ns, &key);
}

/* A block that cannot be read, and with it the file of which it is a part. */
static void
damage_note(struct export *export, size_t number)
{
    struct listed_file *file = export->files.of_entries[number];
    struct wish *wish = wish_of(export, number);

    export->damaged_count++;
    if (wish != NULL)
        wish->is_damaged = true;
    if (file == NULL || file->is_broken)
        return;
    file->is_broken = true;
    file_leave_out(export, file);
}

static enum kvt_status
block_write(struct export *export, size_t number, const void *bytes, uint64_t length)
{
    const struct listed_file *file = export->files.of_entries[number];
    struct archive_block block;

    if (files_has_manifest(&export->files, number) && file->is_broken)
        return KVT_OK;
    block_describe(export, (uint32_t)number, &block);
    return archive_block_write(&export->writer, &block, bytes, length) ? KVT_OK : KVT_CANCELLED;
}

static enum kvt_status
blocks_write(struct export *export, struct lanes *lanes)
{
    size_t begun = 0;

    progress_begin(&export->progress, "export", PROGRESS_BYTES, 0, export->payload_bytes);
    for (size_t i = 0; i < export->order_count; i++) {
        struct lane *lane = lanes_at(lanes, i);
        uint64_t length = 0;
        enum kvt_status status = KVT_OK;

        for (; status == KVT_OK && begun < export->order_count && begun < i + lanes->count; begun++)
            status = block_begin(export, lanes, begun);
        if (status == KVT_OK)
            status = lane_wait(lane, &length);
        if (status == KVT_MISS) {
            damage_note(export, export->order[i]);
            continue;
        }
        if (status == KVT_OK)
            status = block_write(export, export->order[i], lane->bytes, length);
        if (status != KVT_OK)
            return status;
        progress_at(&export->progress, export->writer.sums.payload_bytes);
    }
    return KVT_OK;
}

static enum kvt_status
archive_write(struct export *export, struct output *output)
{
    struct kvt_options made = KVT_OPTIONS_INIT;
    struct kvt_namespace_info info;
    struct lanes lanes;
    uint32_t cursor = 0;
    enum kvt_status status = kvt_options_get(export->store, &made);

    while (kvt_namespace_next(export->store, &cursor, &info) == KVT_OK)
        export->namespace_limit = info.ns.id + 1;
    export->namespace_indexes =
        calloc((size_t) export->namespace_limit + 1, sizeof(*export->namespace_indexes));
    if (status == KVT_OK && export->namespace_indexes == NULL)
        status = KVT_E_NOMEM;
    if (status != KVT_OK)
        return status;
    if (!archive_begin(&export->writer, output_write, output))
        return KVT_CANCELLED;
    status = namespaces_write(export);
    if (status != KVT_OK)
        return status;
    if (!lanes_open(&lanes, export->store, made.block_bytes_max))
        return KVT_CANCELLED;
    status = blocks_write(export, &lanes);
    progress_end(&export->progress);
    lanes_close(&lanes);
    if (status == KVT_OK && (!wishes_check(export) || !archive_end(&export->writer)))
        status = KVT_CANCELLED;
    return status;
}

/* --- The command ------------------------------------------------------------------------------ */

static void
facts_print(const struct export *export, bool is_json, FILE *out)
{
    const struct archive_sums *sums = &export->writer.sums;
    struct json json = JSON_INIT(out);
    char texts[3][QUANTITY_TEXT_BYTES];

    if (!is_json) {
        fprintf(out, "%s blocks of %" PRIu64 " namespaces, %s; an archive of %s\n",
            quantity_count_text(texts[0], sums->block_count), sums->namespace_count,
            quantity_bytes_text(texts[1], (double)sums->payload_bytes),
            quantity_bytes_text(texts[2], (double)sums->archive_bytes));
        return;
    }
    json_object_begin(&json, NULL);
    json_number(&json, "namespaces", sums->namespace_count);
    json_number(&json, "blocks", sums->block_count);
    json_number(&json, "payload_bytes", sums->payload_bytes);
    json_number(&json, "archive_bytes", sums->archive_bytes);
    json_number(&json, "left_out_hashed", export->hashed_count);
    json_number(&json, "left_out_damaged", export->damaged_count);
    json_number(&json, "left_out_files", export->broken_file_count);
    json_object_end(&json);
    json_end(&json);
}

static bool
wishes_read(struct export *export, const char *const *spellings, size_t count)
{
    export->wishes = calloc(count + 1, sizeof(*export->wishes));
    if (export->wishes == NULL) {
        complain("there is no memory for %zu names", count);
        return false;
    }
    export->wish_count = count;
    for (size_t i = 0; i < count; i++) {
        if (!wish_read(export, spellings[i], &export->wishes[i]))
            return false;
    }
    return true;
}

static int
table_count(void *context, const struct kvt_engram_info *info)
{
    (void)info;
    ++*(uint64_t *)context;
    return 1;
}

/* Tables are no blocks: whoever exports a whole store may think that they are in its archive. */
static void
tables_complain(const struct export *export)
{
    uint64_t count = 0;
    enum kvt_status status = kvt_engram_list(export->store, table_count, &count);

    if (status != KVT_OK)
        complain_status(status, "cannot list the tables of %s", export->path);
    else if (count > 0)
        complain("%" PRIu64 " tables of N-gram embeddings are not in the archive: kvtool engram "
                 "export writes their rows",
            count);
}

/* Says what is not in the archive; true: nothing. */
static bool
left_out_complain(const struct export *export)
{
    if (export->hashed_count > 0)
        complain("%" PRIu64
                 " blocks have keys of more than 64 bytes, of which a store keeps a hash: "
                 "they were left out",
            export->hashed_count);
    if (export->damaged_count > 0)
        complain("%" PRIu64 " blocks are damaged: they were left out", export->damaged_count);
    if (export->broken_file_count > 0)
        complain("%" PRIu64
                 " files are not whole, parts of them are gone or damaged: they were left out",
            export->broken_file_count);
    return export->hashed_count + export->damaged_count + export->broken_file_count == 0;
}

static bool
export_run(struct export *export, const struct arguments *arguments)
{
    const char *file = arguments->operands[1];
    struct output output;
    bool is_whole = false;
    enum kvt_status status = KVT_OK;

    if (!wishes_read(export, arguments->operands + 2, (size_t)(arguments->operand_count - 2)))
        return false;
    status = entries_collect(export);
    if (status == KVT_OK)
        status = files_find(export->store, export->entries, export->count, &export->files);
    if (status == KVT_OK)
        status = entries_order(export);
    if (status < 0)
        complain_status(status, "cannot list %s", export->path);
    if (status != KVT_OK || !wishes_check(export))
        return false;
    if (!output_open(&output, file))
        return false;
    status = archive_write(export, &output);
    if (!output_close(&output, status == KVT_OK))
        return false;
    if (status < 0)
        complain_status(status, "cannot export %s", export->path);
    if (status != KVT_OK)
        return false;
    facts_print(
        export, arguments->values[OPTION_JSON] != NULL, strcmp(file, "-") == 0 ? stderr : stdout);
    if (export->wish_count == 0)
        tables_complain(export);
    is_whole = store_is_whole(export->store, export->path);
    return left_out_complain(export) && is_whole;
}

int
kvtool_export(int argc, char **argv)
{
    struct arguments arguments;
    struct export export = {0};
    bool is_fine = false;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_export_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (strcmp(arguments.operands[1], "-") == 0 && isatty(STDOUT_FILENO) == 1) {
        complain("the archive would go to the terminal: name a file");
        return EXIT_USAGE;
    }
    if (strcmp(arguments.operands[1], "-") == 0 && arguments.values[OPTION_JSON] != NULL) {
        complain("--json and the archive cannot both go to standard output: name a file");
        return EXIT_USAGE;
    }
    interrupt_watch();
    export.path = arguments.operands[0];
    export.store = store_open_to_read(export.path);
    if (export.store == NULL)
        return EXIT_PROBLEM;
    is_fine = export_run(&export, &arguments);
    for (size_t i = 0; export.wishes != NULL && i < export.wish_count; i++)
        spelled_key_free(&export.wishes[i].key);
    archive_free(&export.writer);
    free(export.wishes);
    free(export.entries);
    free(export.facts);
    files_free(&export.files);
    free(export.order);
    free(export.namespace_indexes);
    return store_close(export.store, export.path) && is_fine ? EXIT_FINE : EXIT_PROBLEM;
}
