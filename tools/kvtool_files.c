/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_files.c - which files among many listed blocks are not whole.
 *
 * A manifest is found by its length and read; parts tell by their keys to which file they belong,
 * and are counted.
 */
#include "kvtool_files.h"

#include <stdlib.h>
#include <string.h>

#include "kvtool_block.h"
#include "kvtool_manifest.h"

/* What the keys of a file's parts have in common. */
struct file_id {
    uint64_t key_hash, file;
    uint32_t namespace_id;
    uint32_t component;
};

struct file {
    struct file_id id;
    size_t entry; /* Of the manifest. */
    uint64_t part_count;
    uint64_t found_count;
};

struct files {
    const struct kvt_scan_entry *entries;
    size_t *candidates; /* Entries that are as long as a manifest. */
    size_t candidate_count;
    struct file *files; /* In the order of their ids. */
    size_t count;
};

static int
id_compare(const struct file_id *left, const struct file_id *right)
{
    if (left->file != right->file)
        return left->file < right->file ? -1 : 1;
    if (left->key_hash != right->key_hash)
        return left->key_hash < right->key_hash ? -1 : 1;
    if (left->namespace_id != right->namespace_id)
        return left->namespace_id < right->namespace_id ? -1 : 1;
    if (left->component != right->component)
        return left->component < right->component ? -1 : 1;
    return 0;
}

static int
file_compare(const void *left, const void *right)
{
    return id_compare(&((const struct file *)left)->id, &((const struct file *)right)->id);
}

static enum kvt_status
candidates_find(struct files *files, size_t count)
{
    files->candidates = calloc(count + 1, sizeof(*files->candidates));
    if (files->candidates == NULL)
        return KVT_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (files->entries[i].length == MANIFEST_BYTES)
            files->candidates[files->candidate_count++] = i;
    }
    files->files = calloc(files->candidate_count + 1, sizeof(*files->files));
    return files->files == NULL ? KVT_E_NOMEM : KVT_OK;
}

static void
file_add(struct files *files, size_t number, const struct manifest *manifest)
{
    const struct kvt_scan_entry *entry = &files->entries[number];

    files->files[files->count++] = (struct file){
        .id = {.key_hash = manifest->key_hash,
            .file = manifest->file,
            .namespace_id = entry->ns.id,
            .component = entry->component},
        .entry = number,
        .part_count = manifest->part_count,
    };
}

/* A block that is damaged is no manifest. */
static enum kvt_status
manifests_read(struct files *files, struct lanes *lanes)
{
    size_t begun = 0;

    for (size_t i = 0; i < files->candidate_count; i++) {
        struct lane *lane = lanes_at(lanes, i);
        struct manifest manifest;
        uint64_t length = 0;
        enum kvt_status status = KVT_OK;

        for (; begun < files->candidate_count && begun < i + lanes->count; begun++) {
            const struct kvt_scan_entry *entry = &files->entries[files->candidates[begun]];
            const struct kvt_key key = {
                .bytes = entry->key, .length = entry->key_length, .component = entry->component};

            status = lane_get(lanes, lanes_at(lanes, begun), entry->ns, &key);
            if (status != KVT_OK)
                return status;
        }
        status = lane_wait(lane, &length);
        if (status < 0)
            return status;
        if (status == KVT_OK && manifest_read(&manifest, lane->bytes, length))
            file_add(files, files->candidates[i], &manifest);
    }
    return KVT_OK;
}

/* The file of which the entry is a part; NULL: none of those that were found. */
static struct file *
part_file(const struct files *files, const struct kvt_scan_entry *entry)
{
    struct file wanted = {
        .id = {.namespace_id = entry->ns.id, .component = entry->component},
    };

    if (!part_key_is(entry, &wanted.id.key_hash, &wanted.id.file))
        return NULL;
    return bsearch(&wanted, files->files, files->count, sizeof(wanted), file_compare);
}

static uint64_t
broken_mark(struct files *files, size_t count, bool *is_broken_out)
{
    uint64_t broken_count = 0;

    qsort(files->files, files->count, sizeof(*files->files), file_compare);
    for (size_t i = 0; i < count; i++) {
        struct file *file = part_file(files, &files->entries[i]);

        if (file != NULL)
            file->found_count++;
    }
    for (size_t i = 0; i < count; i++) {
        const struct file *file = part_file(files, &files->entries[i]);

        is_broken_out[i] = file != NULL && file->found_count < file->part_count;
    }
    for (size_t i = 0; i < files->count; i++) {
        const struct file *file = &files->files[i];

        is_broken_out[file->entry] = file->found_count < file->part_count;
        broken_count += is_broken_out[file->entry];
    }
    return broken_count;
}

enum kvt_status
files_check(kvt_store *store, const struct kvt_scan_entry *entries, size_t count,
    bool *is_broken_out, uint64_t *broken_count_out)
{
    struct files files = {.entries = entries};
    struct lanes lanes;
    enum kvt_status status = candidates_find(&files, count);

    *broken_count_out = 0;
    if (status == KVT_OK && files.candidate_count > 0) {
        if (lanes_open(&lanes, store, MANIFEST_BYTES)) {
            status = manifests_read(&files, &lanes);
            lanes_close(&lanes);
        } else {
            status = KVT_CANCELLED;
        }
    }
    if (status == KVT_OK)
        *broken_count_out = broken_mark(&files, count, is_broken_out);
    free(files.files);
    free(files.candidates);
    return status;
}
