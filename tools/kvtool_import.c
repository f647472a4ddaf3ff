/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import.c - `kvtool import`: the blocks of an archive into a store, all or none.
 *
 * The archive is read twice: whole, before the first block becomes visible, and again to put its
 * blocks. What comes from a pipe is kept in a nameless temporary file in between. Blocks that were
 * put before something went wrong, or before Ctrl-C, are deleted again. What the last blocks have
 * pushed out of the store is known when that is closed: then each key of the archive is looked up.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "kvtool_parts.h"
#include "progress.h"
#include "quantity.h"

enum {
    COPY_BYTES = 1 << 20,
    KEYS_AT_ONCE = 256
};

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
        "there stays as it is, but for a file of which parts are gone. When something goes wrong\n"
        "on the way, Ctrl-C is pressed, or the store does not keep all of the archive, what was\n"
        "put is deleted again (what was replaced stays replaced; namespaces stay).\n"
        "JSON: {\"namespaces\", \"blocks\", \"payload_bytes\", \"stored\", \"existed\"}",
    .operand_min = 1,
    .operand_max = 2,
    .options = options,
};

/* Keys of the archive, for when all its blocks were put. */
struct listed_key {
    kvt_namespace ns;
    struct kvt_key key;
    uint8_t bytes[ARCHIVE_KEY_MAX];
};

struct key_list {
    struct listed_key *items;
    size_t count, capacity;
};

struct import {
    const char *path;
    const char *name; /* Of the archive, for sentences. */
    int descriptor;
    uint32_t flags;
    struct archive_sums sums; /* Of the whole archive. */
    kvt_store *store;
    kvt_namespace *spaces;     /* In the archive's order. */
    struct key_list made;      /* By this import: deleted if the rest fails. */
    struct key_list was_there; /* Kept or replaced. */
    uint64_t existed_count;
    struct lanes lanes;
    struct progress progress;
};

/* --- The archive ------------------------------------------------------------------------------ */

/* A file that has no name and goes with us. */
static int
nameless_file(void)
{
    const char *folder = getenv("TMPDIR");
    int descriptor = -1;

    if (folder == NULL || folder[0] == '\0')
        folder = "/var/tmp";
    descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0)
        complain("cannot make a temporary file in %s: %s", folder, strerror(errno));
    return descriptor;
}

static bool
all_write(int descriptor, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = write(descriptor, bytes, size);

        if (count < 0 && errno == EINTR && !interrupt_came())
            continue;
        if (count < 0) {
            complain("cannot write the temporary file (TMPDIR): %s", strerror(errno));
            return false;
        }
        bytes += count;
        size -= (size_t)count;
    }
    return true;
}

/* Copies a pipe into `target`. */
static bool
pipe_copy(const struct import *import, int target)
{
    char *bytes = malloc(COPY_BYTES);
    bool is_fine = bytes != NULL;

    while (is_fine) {
        ssize_t count = read(import->descriptor, bytes, COPY_BYTES);

        if (interrupt_came()) {
            complain("interrupted");
            is_fine = false;
        } else if (count == 0) {
            break;
        } else if (count > 0) {
            is_fine = all_write(target, bytes, (size_t)count);
        } else if (errno != EINTR) {
            complain("cannot read %s: %s", import->name, strerror(errno));
            is_fine = false;
        }
    }
    free(bytes);
    return is_fine;
}

/* Something that can be read twice. */
static bool
descriptor_open(struct import *import, const char *file)
{
    struct stat facts;
    int target = -1;

    import->name = strcmp(file, "-") == 0 ? "standard input" : file;
    import->descriptor =
        strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
    if (import->descriptor < 0 || fstat(import->descriptor, &facts) != 0) {
        complain("cannot read %s: %s", import->name, strerror(errno));
        return false;
    }
    if (S_ISREG(facts.st_mode))
        return true;
    target = nameless_file();
    if (target < 0)
        return false;
    if (!pipe_copy(import, target)) {
        close(target);
        return false;
    }
    close(import->descriptor);
    import->descriptor = target;
    return true;
}

static bool
archive_rewind(const struct import *import, struct archive_reader *reader)
{
    if (lseek(import->descriptor, 0, SEEK_SET) != 0) {
        complain("cannot read %s: %s", import->name, strerror(errno));
        return false;
    }
    return archive_open(reader, import->descriptor, import->name);
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
    while (is_fine && archive_next(&reader))
        progress_at(&import->progress, reader.sums.archive_bytes);
    progress_end(&import->progress);
    import->sums = reader.sums;
    is_fine = is_fine && !reader.is_bad;
    archive_close(&reader);
    return is_fine;
}

/* --- Putting ---------------------------------------------------------------------------------- */

static bool
space_open(struct import *import, const struct archive_reader *reader)
{
    const struct archive_namespace *space = &reader->space;
    enum kvt_status status = kvt_namespace_open(import->store, space->name, space->description,
        space->description_length, &import->spaces[reader->sums.namespace_count - 1]);

    if (status == KVT_OK)
        return true;
    complain_status(status, "cannot open the namespace %s", space->name);
    return false;
}

/* Remembers the key of a block that is being put. */
static bool
key_list_add(struct key_list *list, kvt_namespace ns, const struct kvt_key *key)
{
    struct listed_key *item;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : list->capacity * 2;
        struct listed_key *items = realloc(list->items, capacity * sizeof(*items));

        if (items == NULL) {
            complain("there is no memory for the keys of %zu blocks", capacity);
            return false;
        }
        list->items = items;
        list->capacity = capacity;
    }
    item = &list->items[list->count++];
    item->ns = ns;
    item->key = *key;
    memcpy(item->bytes, key->bytes, key->length);
    return true;
}

/* From the item `at` on, keys of its namespace; how many. */
static uint32_t
key_list_part(const struct key_list *list, size_t at, struct kvt_key keys_out[KEYS_AT_ONCE])
{
    const struct listed_key *item = &list->items[at];
    uint32_t count = 0;

    for (; count < KEYS_AT_ONCE && at + count < list->count && item[count].ns.id == item->ns.id;
         count++) {
        keys_out[count] = item[count].key;
        keys_out[count].bytes = item[count].bytes;
    }
    return count;
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

/* The flags for a block whose key is there: a file of which parts are gone gives way to what the
 * archive has, and the rest of its parts with it. */
static uint32_t
flags_over(struct import *import, kvt_namespace ns, const struct kvt_put *put)
{
    struct manifest manifest;
    bool is_file = manifest_read(&manifest, put->source, put->length);
    uint64_t file = is_file ? manifest.file : 0;
    uint64_t old_file;

    if (import->flags != 0 ||
        file_look(import->store, ns, &put->key, false, &old_file) != KVT_MISS || old_file == file)
        return import->flags;
    if (parts_sweep(import->store, ns, &put->key, file) < 0)
        complain(
            "parts of a file that is not whole could not be deleted: the next put or rm does it");
    return KVT_PUT_REPLACE;
}

static bool
put_begin(struct import *import, const struct archive_reader *reader, struct lane *lane)
{
    const struct archive_block *block = &reader->block;
    const struct kvt_key parent = {.bytes = block->parent,
        .length = block->parent_length,
        .component = block->parent_component};
    struct kvt_put put = {
        .key = {.bytes = block->key, .length = block->key_length, .component = block->component},
        .parent = block->parent_length > 0 ? &parent : NULL,
        .source = lane->bytes,
        .length = reader->payload_length,
        .flags = import->flags,
        .depth = block->depth,
        .token_start = block->token_start,
        .token_count = block->token_count,
        .recompute_us = block->recompute_us,
        .importance = block->importance,
        .class_id = block->class_id,
        .hint = block->hint,
        .part_count = block->part_count,
    };
    kvt_namespace ns = import->spaces[block->namespace_index];
    uint8_t tiers = 0;
    enum kvt_status status = kvt_lookup(import->store, ns, &put.key, 1, &tiers, NULL, NULL);

    if (status == KVT_OK &&
        !key_list_add(tiers == 0 ? &import->made : &import->was_there, ns, &put.key))
        return false;
    memcpy(lane->bytes, reader->payload, reader->payload_length);
    if (tiers != 0)
        put.flags = flags_over(import, ns, &put);
    if (status == KVT_OK)
        status = lane_put(&import->lanes, lane, ns, &put);
    if (status == KVT_OK)
        return true;
    complain_status(status, "cannot keep a block of %s", import->name);
    return false;
}

static bool
blocks_put(struct import *import)
{
    struct archive_reader reader = {0};
    bool is_fine = archive_rewind(import, &reader);

    progress_begin(&import->progress, "import", PROGRESS_BYTES, 0, import->sums.payload_bytes);
    while (is_fine && archive_next(&reader)) {
        if (reader.kind == ARCHIVE_NAMESPACE) {
            is_fine = reader.sums.namespace_count <= import->sums.namespace_count &&
                      space_open(import, &reader);
        } else {
            struct lane *lane = lanes_at(&import->lanes, reader.sums.block_count);

            is_fine = reader.payload_length <= import->lanes.block_bytes &&
                      put_finish(import, lane) && put_begin(import, &reader, lane);
        }
        progress_at(&import->progress, reader.sums.payload_bytes);
    }
    for (uint32_t i = 0; i < import->lanes.count; i++)
        is_fine = put_finish(import, &import->lanes.lanes[i]) && is_fine;
    progress_end(&import->progress);
    is_fine = is_fine && !reader.is_bad;
    archive_close(&reader);
    if (is_fine && interrupt_came()) {
        complain("interrupted");
        is_fine = false;
    }
    return is_fine;
}

/* Deletes what was put. */
static void
made_undo(struct import *import)
{
    const struct key_list *made = &import->made;
    struct kvt_key keys[KEYS_AT_ONCE];
    uint32_t count;

    for (size_t at = 0; at < made->count; at += count) {
        count = key_list_part(made, at, keys);
        if (blocks_delete(import->store, made->items[at].ns, keys, count) < 0) {
            complain("some of the blocks that were put could not be deleted again");
            return;
        }
    }
}

/* As blocks_are_there(). */
static enum kvt_status
keys_are_there(kvt_store *store, const struct key_list *list)
{
    struct kvt_key keys[KEYS_AT_ONCE];
    enum kvt_status status = KVT_OK;
    uint32_t count;

    for (size_t at = 0; at < list->count && status == KVT_OK; at += count) {
        count = key_list_part(list, at, keys);
        status = blocks_are_there(store, list->items[at].ns, keys, count);
    }
    return status;
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
    status = keys_are_there(store, &import->made);
    if (status == KVT_OK)
        status = keys_are_there(store, &import->was_there);
    if (status < 0)
        complain_status(status,
            "the blocks of %s are stored, but that all are there could not be "
            "verified",
            import->name);
    if (!store_close(store, import->path) || status != KVT_MISS)
        return status == KVT_OK;
    complain("%s has no room for all blocks of %s: some of them were evicted", import->path,
        import->name);
    existing.host_capacity_bytes = KVTOOL_HOST_BYTES;
    import->store = store_open_to_write(import->path, &existing, NULL);
    if (import->store == NULL)
        return false;
    made_undo(import);
    (void)store_close(import->store, import->path);
    return false;
}

/* --- The command ------------------------------------------------------------------------------ */

static bool
archive_fits(const struct import *import, const struct kvt_options *made)
{
    char texts[2][QUANTITY_TEXT_BYTES];

    if (import->sums.largest_bytes > made->block_bytes_max) {
        complain("%s has a block of %" PRIu64 " bytes, and %s was made for blocks of 1 to %" PRIu64
                 " bytes",
            import->name, import->sums.largest_bytes, import->path, made->block_bytes_max);
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
    if (!archive_fits(import, &made))
        return false;
    import->spaces = calloc(import->sums.namespace_count + 1, sizeof(*import->spaces));
    if (import->spaces == NULL) {
        complain("there is no memory for the namespaces");
        return false;
    }
    if (!lanes_open(&import->lanes, import->store,
            import->sums.largest_bytes == 0 ? 1 : import->sums.largest_bytes))
        return false;
    is_fine = blocks_put(import);
    lanes_close(&import->lanes);
    if (!is_fine)
        made_undo(import);
    return is_fine;
}

static void
facts_print(const struct import *import, bool is_json)
{
    const struct archive_sums *sums = &import->sums;
    struct json json = JSON_INIT(stdout);
    char texts[3][QUANTITY_TEXT_BYTES];
    uint64_t stored = sums->block_count - import->existed_count;

    if (!is_json) {
        printf("%s blocks of %" PRIu64 " namespaces, %s: %" PRIu64 " stored",
            quantity_count_text(texts[0], sums->block_count), sums->namespace_count,
            quantity_bytes_text(texts[1], (double)sums->payload_bytes), stored);
        printf(", %s were there\n", quantity_count_text(texts[2], import->existed_count));
        return;
    }
    json_object_begin(&json, NULL);
    json_number(&json, "namespaces", sums->namespace_count);
    json_number(&json, "blocks", sums->block_count);
    json_number(&json, "payload_bytes", sums->payload_bytes);
    json_number(&json, "stored", stored);
    json_number(&json, "existed", import->existed_count);
    json_object_end(&json);
    json_end(&json);
}

static bool
import_into(struct import *import, const struct arguments *arguments, uint64_t nvme_bytes)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct kvt_options created;
    bool is_fine = false;

    existing.host_capacity_bytes =
        (uint64_t)KVTOOL_HOST_BYTES * 2 + import->sums.largest_bytes / (2 << 20) * (8 << 20);
    created = existing;
    created.nvme_capacity_bytes = nvme_bytes;
    created.block_bytes_max = new_block_bytes_max(nvme_bytes, import->sums.largest_bytes);
    import->store = store_open_to_write(
        import->path, &existing, arguments->values[OPTION_CREATE] != NULL ? &created : NULL);
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
    import.flags = arguments.values[OPTION_REPLACE] != NULL ? KVT_PUT_REPLACE : 0;
    exit_code = EXIT_PROBLEM;
    if (descriptor_open(&import, arguments.operand_count > 1 ? arguments.operands[1] : "-") &&
        archive_verify(&import) && import_into(&import, &arguments, nvme_bytes)) {
        facts_print(&import, arguments.values[OPTION_JSON] != NULL);
        exit_code = EXIT_FINE;
    }
    free(import.spaces);
    free(import.made.items);
    free(import.was_there.items);
    if (import.descriptor >= 0)
        close(import.descriptor);
    return exit_code;
}
