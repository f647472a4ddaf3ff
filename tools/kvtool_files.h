/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_files.h - which files there are among many listed blocks, and which of them are not whole.
 */
#ifndef KVTOOL_FILES_H
#define KVTOOL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtool_manifest.h"

struct listed_file {
    struct file_id id;
    size_t entry; /* Of the manifest. */
    uint64_t part_count;
    uint64_t found_count; /* Parts among the entries. */
    bool is_broken;       /* A part is not there; or whoever read it has found it damaged. */
};

struct listed_files {
    struct listed_file *files; /* In the order of their ids. */
    size_t count;
    struct listed_file **of_entries; /* Whose part or manifest each entry is; NULL: of none. */
};

/* files_find - among `count` entries. Each manifest is read, and no part. KVT_CANCELLED: a sentence
 * was said. files_free() in any case. */
enum kvt_status files_find(kvt_store *store, const struct kvt_scan_entry *entries, size_t count,
    struct listed_files *files_out);
void files_free(struct listed_files *files);

/* files_has_manifest - the entry is the manifest of a file. */
bool files_has_manifest(const struct listed_files *files, size_t entry);

#endif /* KVTOOL_FILES_H */
