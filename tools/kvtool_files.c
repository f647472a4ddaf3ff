/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_files.c - which files there are among many listed blocks, and which of them are not whole.
 *
 * A manifest is found by its length and read; parts tell by their keys to which file they belong,
 * and are counted.
 */
#include "kvtool_files.h"

#include <stdlib.h>
#include <string.h>

#include "kvtool_block.h"

struct search {
    const struct kvt_scan_entry *entries;
    size_t *candidates; /* Entries that are as long as a manifest. */
    size_t candidate_count;
    struct listed_files *found;
};

static enum kvt_status
candidates_find(struct search *search, size_t count)
{
    search->candidates = calloc(count + 1, sizeof(*search->candidates));
    search->found->of_entries = calloc(count + 1, sizeof(struct listed_file *));
    if (search->candidates == NULL || search->found->of_entries == NULL)
        return KVT_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (search->entries[i].length == MANIFEST_BYTES)
            search->candidates[search->candidate_count++] = i;
    }
    search->found->files = calloc(search->candidate_count + 1, sizeof(*search->found->files));
    return search->found->files == NULL ? KVT_E_NOMEM : KVT_OK;
}

static void
file_add(struct search *search, size_t number, const struct manifest *manifest)
{
    const struct kvt_scan_entry *entry = &search->entries[number];

    search->found->files[search->found->count++] = (struct listed_file){
        .id = {.key_hash = manifest->key_hash,
            .file = manifest->file,
            .space = entry->ns.id,
            .component = entry->component},
        .entry = number,
        .part_count = manifest->part_count,
    };
}

/* A block that is damaged is no manifest. */
static enum kvt_status
manifests_read(struct search *search, struct lanes *lanes)
{
    size_t begun = 0;

    for (size_t i = 0; i < search->candidate_count; i++) {
        struct lane *lane = lanes_at(lanes, i);
        struct manifest manifest;
        uint64_t length = 0;
        enum kvt_status status = KVT_OK;

        for (; begun < search->candidate_count && begun < i + lanes->count; begun++) {
            const struct kvt_scan_entry *entry = &search->entries[search->candidates[begun]];
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
            file_add(search, search->candidates[i], &manifest);
    }
    return KVT_OK;
}

/* The file of which the entry is a part; NULL: none of those that were found. */
static struct listed_file *
part_file(const struct listed_files *files, const struct kvt_scan_entry *entry)
{
    struct file_id wanted = {.space = entry->ns.id, .component = entry->component};
    struct part_name part;

    if (!part_key_is(entry, &part))
        return NULL;
    wanted.key_hash = part.key_hash;
    wanted.file = part.file;
    return bsearch(&wanted, files->files, files->count, sizeof(*files->files), file_id_compare);
}

static void
parts_count(const struct search *search, size_t count)
{
    struct listed_files *files = search->found;

    qsort(files->files, files->count, sizeof(*files->files), file_id_compare);
    for (size_t i = 0; i < count; i++) {
        files->of_entries[i] = part_file(files, &search->entries[i]);
        if (files->of_entries[i] != NULL)
            files->of_entries[i]->found_count++;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct listed_file *file = &files->files[i];

        file->is_broken = file->found_count < file->part_count;
        files->of_entries[file->entry] = file;
    }
}

enum kvt_status
files_find(kvt_store *store, const struct kvt_scan_entry *entries, size_t count,
    struct listed_files *files_out)
{
    struct search search = {.entries = entries, .found = files_out};
    struct lanes lanes;
    enum kvt_status status;

    memset(files_out, 0, sizeof(*files_out));
    status = candidates_find(&search, count);
    if (status == KVT_OK && search.candidate_count > 0) {
        if (lanes_open(&lanes, store, MANIFEST_BYTES)) {
            status = manifests_read(&search, &lanes);
            lanes_close(&lanes);
        } else {
            status = KVT_CANCELLED;
        }
    }
    if (status == KVT_OK)
        parts_count(&search, count);
    free(search.candidates);
    return status;
}

void
files_free(struct listed_files *files)
{
    free(files->files);
    free(files->of_entries);
    memset(files, 0, sizeof(*files));
}

bool
files_has_manifest(const struct listed_files *files, size_t entry)
{
    return files->of_entries[entry] != NULL && files->of_entries[entry]->entry == entry;
}
