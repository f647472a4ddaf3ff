/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import.c - `kvtool import`: the blocks of an archive into a store, all or none.
 *
 * The archive is read twice: whole, before the first block becomes visible, and again to put its
 * blocks; an item that is not the one that was verified ends it. What becomes of each file is
 * settled before the second reading; manifests are put when all other blocks are durable and there,
 * those that take another's place last: whenever this ends, a key has its old file or the new one.
 * Blocks that were put before something went wrong, or before Ctrl-C, are deleted again. What the
 * last blocks have pushed out of the store is known when that is closed: then each key of the
 * archive is looked up. A new file that has lost a part by then is lost, and so is the old one: the
 * room for both is what the store did not have.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_archive.h"
#include "kvtool_block.h"
#include "kvtool_import_files.h"
#include "kvtool_import_source.h"
#include "kvtool_key_list.h"
#include "kvtool_parts.h"
#include "kvtool_sweep.h"
#include "progress.h"
#include "quantity.h"

enum {
    OPTION_REPLACE,
    OPTION_CREATE,
    OPTION_NVME,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_REPLACE] = {"--replace", NULL, "replace blocks that are there"},
    [OPTION_CREATE] = {"--create", NULL, "make the store when there is none"},
    [OPTION_NVME] = {"--nvme", "SIZE",
        "NVMe capacity of a store that is made (default 8G); one that\n"
        "is there stays as it is (K, M, G, T: powers of two)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_import_line = {
    .program = "kvtool",
    .command = "import",
    .operands = "DIR [FILE|-]",
    .summary = "Put the blocks of an archive of kvtool export (default: standard input), durably.",
    .text =
        "The whole archive is verified before its first block becomes visible. A block that is\n"
        "there stays as it is, but for a file of which parts are gone or damaged. A file of which\n"
        "the archive lacks parts is left out, and the exit code is 1. When something goes wrong\n"
        "on the way, Ctrl-C is pressed, or the store does not keep all of the archive, what was\n"
        "put is deleted again (what was replaced stays replaced; namespaces stay). A file that is\n"
        "replaced is the old or the new one, whole, whenever the import ends, but in a store that\n"
        "is too full: what it evicts of them is gone, and the exit code is 1.\n"
        "JSON: {\"namespaces\", \"blocks\", \"payload_bytes\": of the archive; of its blocks\n"
        "\"stored\", \"existed\" (they, or their file, were there and stay), \"left_out\" (parts "
        "of\n"
        "files that are not whole in it); \"left_out_files\": how many these are}",
    .operand_min = 1,
    .operand_max = 2,
    .options = options,
};

struct import {
    const char *path;
    const char *name; /* Of the archive, for sentences. */
    int descriptor;
    bool is_replacing;
    struct archive_sums sums;               /* Of the whole archive. */
    struct archive_namespace *descriptions; /* Its namespaces. */
    size_t description_count, description_capacity;
    uint64_t *checks; /* Of its items, in their order. */
    size_t check_count, check_capacity;
    struct archive_files files;
    kvt_store *store;
    kvt_namespace *spaces;     /* In the archive's order. */
    struct key_list made;      /* By this import, but of no file: deleted if the rest fails. */
    struct key_list was_there; /* Kept or replaced, and of no file. */
    uint64_t existed_count;
    uint64_t left_out_count;
    uint64_t left_out_file_count;
    struct lanes lanes;
    struct progress progress;
};

/* --- The archive ------------------------------------------------------------------------------ */

static bool
archive_rewind(const struct import *import, struct archive_reader *reader)
{
    if (lseek(import->descriptor, 0, SEEK_SET) != 0) {
        complain("cannot read %s: %s", import->name, strerror(errno));
        return false;
    }
    return archive_open(reader, import->descriptor, import->name);
}

static bool
space_note(struct import *import, const struct archive_namespace *space)
{
    struct archive_namespace *items = room_make(import->descriptions, import->description_count,
        &import->description_capacity, sizeof(*items));

    if (items == NULL)
        return false;
    import->descriptions = items;
    items[import->description_count++] = *space;
    return true;
}

static bool
item_note(struct import *import, const struct archive_reader *reader)
{
    uint64_t *checks =
        room_make(import->checks, import->check_count, &import->check_capacity, sizeof(*checks));

    if (checks == NULL)
        return false;
    import->checks = checks;
    checks[import->check_count++] = reader->check;
    return reader->kind == ARCHIVE_NAMESPACE ? space_note(import, &reader->space)
                                             : archive_files_note(&import->files, &reader->block,
                                                   reader->payload, reader->payload_length);
}

/* Reads all of it. */
static bool
archive_verify(struct import *import)
{
    struct archive_reader reader = {0};
    struct stat facts = {0};
    bool is_fine = archive_rewind(import, &reader);

    if (fstat(import->descriptor, &facts) != 0)
        facts.st_size = 0;
    progress_begin(&import->progress, "verify", PROGRESS_BYTES, 0, (uint64_t)facts.st_size);
    while (is_fine && archive_next(&reader)) {
        is_fine = item_note(import, &reader);
        progress_at(&import->progress, reader.sums.archive_bytes);
    }
    progress_end(&import->progress);
    archive_files_complete(&import->files);
    import->sums = reader.sums;
    is_fine = is_fine && !reader.is_bad;
    archive_close(&reader);
    return is_fine;
}

/* --- Before the first block ------------------------------------------------------------------- */

static bool
spaces_open(struct import *import)
{
    import->spaces = calloc(import->description_count + 1, sizeof(*import->spaces));
    if (import->spaces == NULL) {
        complain("there is no memory for the namespaces");
        return false;
    }
    for (size_t i = 0; i < import->description_count; i++) {
        const struct archive_namespace *space = &import->descriptions[i];
        enum kvt_status status = kvt_namespace_open(import->store, space->name, space->description,
            space->description_length, &import->spaces[i]);

        if (status != KVT_OK) {
            complain_status(status, "cannot open the namespace %s", space->name);
            return false;
        }
    }
    return true;
}

static kvt_namespace
file_space(const struct import *import, const struct archive_file *file)
{
    return import->spaces[file->id.space];
}

static bool
fate_settle(struct import *import, struct archive_file *file)
{
    enum kvt_status status = KVT_OK;

    if (file->fate == FATE_LEFT_OUT) {
        import->left_out_count++;
        import->left_out_file_count++;
        return true;
    }
    status =
        archive_file_decide(file, import->store, file_space(import, file), import->is_replacing);
    if (status == KVT_CANCELLED)
        complain("interrupted");
    else if (status != KVT_OK)
        complain_status(
            status, "cannot look for the files of %s in %s", import->name, import->path);
    import->existed_count += file->fate == FATE_KEEP;
    return status == KVT_OK;
}

static bool
fates_settle(struct import *import)
{
    for (size_t i = 0; i < import->files.count; i++) {
        if (!fate_settle(import, &import->files.files[i]))
            return false;
    }
    return true;
}

/* --- Putting ---------------------------------------------------------------------------------- */

/* A block of the archive as a put; it points to itself, and to the block. */
struct order {
    struct kvt_key parent;
    struct kvt_put put;
};

static void
order_make(
    struct order *order, const struct archive_block *block, const void *source, uint64_t length)
{
    order->parent = (struct kvt_key){.bytes = block->parent,
        .length = block->parent_length,
        .component = block->parent_component};
    order->put = (struct kvt_put){
        .key = {.bytes = block->key, .length = block->key_length, .component = block->component},
        .parent = block->parent_length > 0 ? &order->parent : NULL,
        .source = source,
        .length = length,
        .depth = block->depth,
        .token_start = block->token_start,
        .token_count = block->token_count,
        .recompute_us = block->recompute_us,
        .importance = block->importance,
        .class_id = block->class_id,
        .hint = block->hint,
        .part_count = block->part_count,
    };
}

/* Whatever was put in that lane is there, or was before. */
static bool
put_finish(struct import *import, struct lane *lane)
{
    uint64_t length = 0;
    bool is_under_way = lane->ticket != NULL;
    enum kvt_status status = lane_wait(lane, &length);

    if (!is_under_way || status == KVT_OK)
        return true;
    if (status == KVT_EXISTS) {
        import->existed_count++;
        return true;
    }
    complain_status(status, "cannot keep a block of %s", import->name);
    return false;
}

/* A block whose key is there gives way when it is to be replaced, and when it is a file that is not
 * whole. */
static enum kvt_status
flags_over(struct import *import, kvt_namespace ns, struct kvt_put *put)
{
    struct looked there;
    enum kvt_status status = KVT_MISS;

    if (!import->is_replacing)
        status = file_look(import->store, ns, &put->key, true, &there);
    if (status != KVT_MISS)
        return status;
    put->flags = KVT_PUT_REPLACE;
    return KVT_OK;
}

/* A block that is no file's. */
static enum kvt_status
plain_begin(struct import *import, struct lane *lane, kvt_namespace ns, struct kvt_put *put)
{
    uint8_t tiers = 0;
    enum kvt_status status = kvt_lookup(import->store, ns, &put->key, 1, &tiers, NULL, NULL);

    if (status == KVT_OK &&
        !key_list_add(tiers == 0 ? &import->made : &import->was_there, ns, &put->key))
        status = KVT_E_NOMEM;
    if (status == KVT_OK && tiers != 0)
        status = flags_over(import, ns, put);
    return status == KVT_OK ? lane_put(&import->lanes, lane, ns, put) : status;
}

/* A part: there may be one that a killed import has left. */
static enum kvt_status
part_begin(
    struct import *import, struct lane *lane, const struct archive_file *file, struct kvt_put *put)
{
    if (file == NULL || file->fate == FATE_LEFT_OUT) {
        import->left_out_count++;
        return KVT_OK;
    }
    if (file->fate == FATE_KEEP) {
        import->existed_count++;
        return KVT_OK;
    }
    put->flags = KVT_PUT_REPLACE;
    return lane_put(&import->lanes, lane, file_space(import, file), put);
}

/* Whatever block it is; manifests have their turn later. */
static bool
block_begin(struct import *import, const struct archive_reader *reader, struct lane *lane)
{
    const struct archive_block *block = &reader->block;
    struct manifest manifest;
    struct part_name part;
    struct order order;
    enum kvt_status status;

    if (manifest_read(&manifest, reader->payload, reader->payload_length))
        return true;
    memcpy(lane->bytes, reader->payload, reader->payload_length);
    order_make(&order, block, lane->bytes, reader->payload_length);
    status =
        part_name_read(&part, block->key, block->key_length)
            ? part_begin(import, lane, archive_files_find(&import->files, block, &part), &order.put)
            : plain_begin(import, lane, import->spaces[block->namespace_index], &order.put);
    if (status == KVT_OK)
        return true;
    if (status == KVT_CANCELLED)
        complain("interrupted");
    else
        complain_status(status, "cannot keep a block of %s", import->name);
    return false;
}

static bool
change_complain(const struct import *import)
{
    complain("%s has changed while it was read", import->name);
    return false;
}

/* The second reading has brought what the first one had there. Equal checksums are no proof of
 * lengths: what would not fit is refused whatever its checksum. */
static bool
item_is_verified(const struct import *import, const struct archive_reader *reader)
{
    uint64_t number = reader->sums.namespace_count + reader->sums.block_count - 1;

    return (number < import->check_count && reader->check == import->checks[number] &&
               reader->sums.namespace_count <= import->description_count &&
               reader->payload_length <= import->lanes.block_bytes) ||
           change_complain(import);
}

static bool
blocks_put(struct import *import)
{
    struct archive_reader reader = {0};
    bool is_fine = archive_rewind(import, &reader);

    progress_begin(&import->progress, "import", PROGRESS_BYTES, 0, import->sums.payload_bytes);
    while (is_fine && archive_next(&reader)) {
        struct lane *lane = lanes_at(&import->lanes, reader.sums.block_count);

        is_fine = item_is_verified(import, &reader);
        if (is_fine && reader.kind == ARCHIVE_BLOCK)
            is_fine = put_finish(import, lane) && block_begin(import, &reader, lane);
        progress_at(&import->progress, reader.sums.payload_bytes);
    }
    for (uint32_t i = 0; i < import->lanes.count; i++)
        is_fine = put_finish(import, &import->lanes.lanes[i]) && is_fine;
    progress_end(&import->progress);
    is_fine = is_fine && !reader.is_bad;
    if (is_fine && reader.sums.archive_bytes != import->sums.archive_bytes)
        is_fine = change_complain(import);
    archive_close(&reader);
    return is_fine;
}

static bool
manifest_put(struct import *import, struct archive_file *file)
{
    struct order order;
    enum kvt_status status;

    if (interrupt_came()) {
        complain("interrupted");
        return false;
    }
    order_make(&order, &file->block, file->bytes, MANIFEST_BYTES);
    if (file->fate == FATE_REPLACE)
        order.put.flags = KVT_PUT_REPLACE;
    file->is_put = true;
    status = block_put(import->store, file_space(import, file), &order.put);
    import->existed_count += status == KVT_EXISTS;
    if (status == KVT_OK || status == KVT_EXISTS)
        return true;
    complain_status(status, "cannot keep the manifest of a file of %s", import->name);
    file->is_put = archive_file_is_in_place(file, import->store, file_space(import, file));
    return false;
}

static bool
manifests_put(struct import *import, enum file_fate fate)
{
    for (size_t i = 0; i < import->files.count; i++) {
        struct archive_file *file = &import->files.files[i];

        if (file->fate == fate && !manifest_put(import, file))
            return false;
    }
    return true;
}

/* What older files, and killed puts and imports, have left under the keys of the archive. */
static void
leftovers_sweep(const struct import *import)
{
    struct key_list of_files = {0};
    const struct key_list *const lists[] = {&import->made, &import->was_there, &of_files};
    bool is_listed = true;

    for (size_t i = 0; is_listed && i < import->files.count; i++) {
        const struct archive_file *file = &import->files.files[i];
        const struct kvt_key key = archive_file_key(file);

        if (file->fate != FATE_LEFT_OUT)
            is_listed = key_list_add(&of_files, file_space(import, file), &key);
    }
    if (!is_listed || parts_sweep_all(import->store, lists, sizeof(lists) / sizeof(lists[0])) < 0)
        complain(
            "parts that nobody needs could not be deleted: the next put, rm or import does it");
    key_list_free(&of_files);
}

/* Deletes what was put. */
static void
made_undo(struct import *import)
{
    enum kvt_status status = KVT_OK;

    for (size_t i = 0; status >= 0 && i < import->files.count; i++) {
        const struct archive_file *file = &import->files.files[i];

        status = archive_file_undo(file, import->store, file_space(import, file));
    }
    if (status >= 0)
        status = key_list_delete(&import->made, import->store);
    if (status < 0)
        complain("some of the blocks that were put could not be deleted again");
}

/* As blocks_are_there(), of all that was put or kept so far. */
static enum kvt_status
archive_is_there(const struct import *import, kvt_store *store)
{
    enum kvt_status status = key_list_is_there(&import->made, store);

    if (status == KVT_OK)
        status = key_list_is_there(&import->was_there, store);
    for (size_t i = 0; status == KVT_OK && i < import->files.count; i++) {
        const struct archive_file *file = &import->files.files[i];

        status = archive_file_is_there(file, store, file_space(import, file));
    }
    return status;
}

static void
evicted_complain(const struct import *import)
{
    complain("%s has no room for all blocks of %s: some of them were evicted", import->path,
        import->name);
}

/* A manifest whose parts are gone already would cost the file that it replaces. */
static bool
parts_have_stayed(const struct import *import)
{
    enum kvt_status status = archive_is_there(import, import->store);

    if (status == KVT_MISS)
        evicted_complain(import);
    else if (status != KVT_OK)
        complain_status(status, "cannot look for the blocks of %s", import->name);
    return status == KVT_OK;
}

/* Of a store that was closed: before, segments may still be reclaimed. */
static bool
archive_has_stayed(struct import *import)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    kvt_store *store = store_open_to_read(import->path);
    enum kvt_status status;

    if (store == NULL)
        return false;
    status = archive_is_there(import, store);
    if (status < 0)
        complain_status(status,
            "the blocks of %s are stored, but that all are there could not be "
            "verified",
            import->name);
    if (!store_close(store, import->path) || status != KVT_MISS)
        return status == KVT_OK;
    evicted_complain(import);
    existing.host_capacity_bytes = KVTOOL_HOST_BYTES;
    import->store = store_open_to_write(import->path, &existing, NULL);
    if (import->store == NULL)
        return false;
    made_undo(import);
    (void)store_close(import->store, import->path);
    return false;
}

/* --- The command ------------------------------------------------------------------------------ */

/* Into a store that was made so, or (`is_new`) would be. */
static bool
archive_fits(const struct import *import, const struct kvt_options *made, bool is_new)
{
    char texts[2][QUANTITY_TEXT_BYTES];

    if (import->sums.largest_bytes > made->block_bytes_max) {
        complain("%s has a block of %" PRIu64 " bytes, and %s %s made for blocks of 1 to %" PRIu64
                 " bytes",
            import->name, import->sums.largest_bytes, import->path, is_new ? "would be" : "was",
            made->block_bytes_max);
        return false;
    }
    if (import->sums.stored_bytes > store_room_bytes(made)) {
        complain("%s needs %s of a store, and %s has room for %s: nothing was imported",
            import->name, quantity_bytes_text(texts[0], (double)import->sums.stored_bytes),
            import->path, quantity_bytes_text(texts[1], (double)store_room_bytes(made)));
        return false;
    }
    return true;
}

static bool
import_run(struct import *import)
{
    struct kvt_options made = KVT_OPTIONS_INIT;
    enum kvt_status status = kvt_options_get(import->store, &made);
    bool is_fine = false;

    if (status != KVT_OK) {
        complain_status(status, "cannot ask %s for its options", import->path);
        return false;
    }
    if (!archive_fits(import, &made, false))
        return false;
    if (!spaces_open(import) || !fates_settle(import))
        return false;
    if (!lanes_open(&import->lanes, import->store,
            import->sums.largest_bytes == 0 ? 1 : import->sums.largest_bytes))
        return false;
    is_fine = blocks_put(import) && parts_have_stayed(import) && manifests_put(import, FATE_NEW) &&
              manifests_put(import, FATE_REPLACE);
    lanes_close(&import->lanes);
    if (is_fine && interrupt_came()) {
        complain("interrupted");
        is_fine = false;
    }
    if (is_fine)
        leftovers_sweep(import);
    else
        made_undo(import);
    return is_fine;
}

static void
facts_print(const struct import *import, bool is_json)
{
    const struct archive_sums *sums = &import->sums;
    struct json json = JSON_INIT(stdout);
    char texts[3][QUANTITY_TEXT_BYTES];
    uint64_t stored = sums->block_count - import->existed_count - import->left_out_count;

    if (!is_json) {
        printf("%s blocks of %" PRIu64 " namespaces, %s: %" PRIu64 " stored",
            quantity_count_text(texts[0], sums->block_count), sums->namespace_count,
            quantity_bytes_text(texts[1], (double)sums->payload_bytes), stored);
        printf(", %s were there", quantity_count_text(texts[2], import->existed_count));
        if (import->left_out_count > 0)
            printf(", %s left out", quantity_count_text(texts[2], import->left_out_count));
        printf("\n");
        return;
    }
    json_object_begin(&json, NULL);
    json_number(&json, "namespaces", sums->namespace_count);
    json_number(&json, "blocks", sums->block_count);
    json_number(&json, "payload_bytes", sums->payload_bytes);
    json_number(&json, "stored", stored);
    json_number(&json, "existed", import->existed_count);
    json_number(&json, "left_out", import->left_out_count);
    json_number(&json, "left_out_files", import->left_out_file_count);
    json_object_end(&json);
    json_end(&json);
}

/* Says which files are not in the store; true: none. */
static bool
left_out_complain(const struct import *import)
{
    if (import->left_out_file_count > 0)
        complain("%" PRIu64 " files are not whole in %s, parts of them are not there: they were "
                 "left out",
            import->left_out_file_count, import->name);
    return import->left_out_file_count == 0;
}

static bool
import_into(struct import *import, const struct arguments *arguments, uint64_t nvme_bytes)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct kvt_options created;
    bool may_create = arguments->values[OPTION_CREATE] != NULL;
    bool is_fine = false;

    existing.host_capacity_bytes =
        (uint64_t)KVTOOL_HOST_BYTES * 2 + import->sums.largest_bytes / (2 << 20) * (8 << 20);
    created = existing;
    new_options_set(&created, nvme_bytes, import->sums.largest_bytes);
    if (may_create && store_is_missing(import->path) && !archive_fits(import, &created, true))
        return false;
    import->store = store_open_to_write(import->path, &existing, may_create ? &created : NULL);
    if (import->store == NULL)
        return false;
    is_fine = import_run(import);
    return store_close(import->store, import->path) && is_fine && archive_has_stayed(import);
}

int
kvtool_import(int argc, char **argv)
{
    struct arguments arguments;
    struct import import = {.descriptor = -1};
    uint64_t nvme_bytes = 0;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_import_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!new_capacity_read(arguments.values[OPTION_NVME], &nvme_bytes))
        return EXIT_USAGE;
    interrupt_watch();
    import.path = arguments.operands[0];
    import.is_replacing = arguments.values[OPTION_REPLACE] != NULL;
    exit_code = EXIT_PROBLEM;
    import.descriptor =
        import_source_open(arguments.operand_count > 1 ? arguments.operands[1] : "-", &import.name);
    if (import.descriptor >= 0 && archive_verify(&import) &&
        import_into(&import, &arguments, nvme_bytes)) {
        facts_print(&import, arguments.values[OPTION_JSON] != NULL);
        exit_code = left_out_complain(&import) ? EXIT_FINE : EXIT_PROBLEM;
    }
    free(import.descriptions);
    free(import.checks);
    free(import.spaces);
    archive_files_free(&import.files);
    key_list_free(&import.made);
    key_list_free(&import.was_there);
    if (import.descriptor >= 0)
        close(import.descriptor);
    return exit_code;
}
