/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import_files.c - the files that are in an archive: their manifests, how many of their
 * parts it has, and what an import does with each.
 */
#include "kvtool_import_files.h"

#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "kvtool_block.h"
#include "kvtool_parts.h"

/* --- What the archive has --------------------------------------------------------------------- */

void *
room_make(void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    size_t larger = *capacity == 0 ? 64 : *capacity * 2;

    if (count < *capacity)
        return items;
    items = realloc(items, larger * item_bytes);
    if (items == NULL)
        complain("there is no memory to note what is in an archive");
    else
        *capacity = larger;
    return items;
}

static bool
part_note(
    struct archive_files *files, const struct archive_block *block, const struct part_name *part)
{
    struct archive_part *parts =
        room_make(files->parts, files->part_count, &files->part_capacity, sizeof(*parts));

    if (parts == NULL)
        return false;
    files->parts = parts;
    parts[files->part_count++] = (struct archive_part){
        .id = {.key_hash = part->key_hash,
            .file = part->file,
            .space = block->namespace_index,
            .component = block->component},
        .index = part->index,
    };
    return true;
}

bool
archive_files_note(struct archive_files *files, const struct archive_block *block,
    const void *payload, uint64_t length)
{
    struct manifest manifest;
    struct archive_file *items;
    struct part_name part;

    if (!manifest_read(&manifest, payload, length))
        return !part_name_read(&part, block->key, block->key_length) ||
               part_note(files, block, &part);
    items = room_make(files->files, files->count, &files->capacity, sizeof(*items));
    if (items == NULL)
        return false;
    files->files = items;
    items[files->count] = (struct archive_file){
        .id = {.key_hash = manifest.key_hash,
            .file = manifest.file,
            .space = block->namespace_index,
            .component = block->component},
        .block = *block,
        .manifest = manifest,
    };
    memcpy(items[files->count++].bytes, payload, MANIFEST_BYTES);
    return true;
}

static int
part_compare(const void *left, const void *right)
{
    const struct archive_part *one = left;
    const struct archive_part *other = right;
    int order = file_id_compare(&one->id, &other->id);

    if (order != 0)
        return order;
    return one->index < other->index ? -1 : one->index > other->index;
}

static struct archive_file *
file_find(const struct archive_files *files, const struct file_id *id)
{
    return files->count == 0
               ? NULL
               : bsearch(id, files->files, files->count, sizeof(*files->files), file_id_compare);
}

void
archive_files_complete(struct archive_files *files)
{
    if (files->count > 0)
        qsort(files->files, files->count, sizeof(*files->files), file_id_compare);
    if (files->part_count > 0)
        qsort(files->parts, files->part_count, sizeof(*files->parts), part_compare);
    for (size_t i = 0; i < files->part_count; i++) {
        const struct archive_part *part = &files->parts[i];
        struct archive_file *file = file_find(files, &part->id);

        if (file != NULL && part->index < file->manifest.part_count &&
            (i == 0 || part_compare(part - 1, part) != 0))
            file->found_count++;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct archive_file *file = &files->files[i];

        file->fate = file->found_count < file->manifest.part_count ? FATE_LEFT_OUT : FATE_NEW;
    }
    free(files->parts);
    files->parts = NULL;
}

void
archive_files_free(struct archive_files *files)
{
    free(files->files);
    free(files->parts);
    memset(files, 0, sizeof(*files));
}

struct archive_file *
archive_files_find(const struct archive_files *files, const struct archive_block *block,
    const struct part_name *part)
{
    const struct file_id id = {.key_hash = part->key_hash,
        .file = part->file,
        .space = block->namespace_index,
        .component = block->component};

    return file_find(files, &id);
}

struct kvt_key
archive_file_key(const struct archive_file *file)
{
    return (struct kvt_key){.bytes = file->block.key,
        .length = file->block.key_length,
        .component = file->block.component};
}

/* --- What an import does with it -------------------------------------------------------------- */

enum kvt_status
archive_file_decide(
    struct archive_file *file, kvt_store *store, kvt_namespace ns, bool is_replacing)
{
    const struct kvt_key key = archive_file_key(file);
    struct looked there;
    uint8_t tiers = 0;
    bool may_stay = !is_replacing;
    enum kvt_status status = file_look(store, ns, &key, may_stay, &there);

    if (is_replacing && there.file == file->id.file) {
        may_stay = true;
        if (status == KVT_OK)
            status = file_look(store, ns, &key, true, &there);
    }
    may_stay = may_stay && status == KVT_OK;
    if (status == KVT_OK || status == KVT_MISS)
        status = kvt_lookup(store, ns, &key, 1, &tiers, NULL, NULL);
    file->fate = tiers == 0 ? FATE_NEW : may_stay ? FATE_KEEP : FATE_REPLACE;
    /* What cannot be read now may be the very same file, and be whole later. */
    file->is_mended =
        file->fate == FATE_REPLACE && (there.file == file->id.file || there.length == 0);
    return status;
}

enum kvt_status
archive_file_is_there(const struct archive_file *file, kvt_store *store, kvt_namespace ns)
{
    const struct kvt_key key = archive_file_key(file);
    struct looked there;
    enum kvt_status status = KVT_OK;

    if (file->fate == FATE_LEFT_OUT)
        return KVT_OK;
    if (file->fate == FATE_KEEP || file->is_put)
        status = blocks_are_there(store, ns, &key, 1);
    if (status != KVT_OK)
        return status;
    if (file->fate == FATE_KEEP)
        return file_look(store, ns, &key, false, &there);
    return parts_are_there(store, ns, key.component, &file->manifest);
}

bool
archive_file_is_in_place(const struct archive_file *file, kvt_store *store, kvt_namespace ns)
{
    const struct kvt_key key = archive_file_key(file);

    return file_is_in_place(store, ns, &key, file->id.file);
}

enum kvt_status
archive_file_undo(const struct archive_file *file, kvt_store *store, kvt_namespace ns)
{
    const struct kvt_key key = archive_file_key(file);
    enum kvt_status status = KVT_OK;

    if (file->fate == FATE_KEEP || file->fate == FATE_LEFT_OUT || file->is_mended ||
        (file->fate == FATE_REPLACE && file->is_put))
        return KVT_OK;
    /* The manifest first: whatever ends this, no file lacks parts. */
    if (file->is_put)
        status = blocks_delete(store, ns, &key, 1);
    return status < 0 ? status : parts_delete(store, ns, key.component, &file->manifest);
}
