/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import_files.h - the files that are in an archive: their manifests, how many of their
 * parts it has, and what an import does with each.
 */
#ifndef KVTOOL_IMPORT_FILES_H
#define KVTOOL_IMPORT_FILES_H

#include "kvtool_archive.h"
#include "kvtool_manifest.h"

enum file_fate {
    FATE_NEW,      /* Its key has nothing. */
    FATE_REPLACE,  /* It takes the place of what its key has. */
    FATE_KEEP,     /* What its key has stays. */
    FATE_LEFT_OUT, /* The archive lacks parts of it. */
};

struct archive_file {
    struct file_id id;
    struct archive_block block; /* The manifest: its head, */
    uint8_t bytes[MANIFEST_BYTES];
    struct manifest manifest; /* and what it says. */
    uint64_t found_count;     /* Parts that are in the archive. */
    enum file_fate fate;
    bool is_mended; /* FATE_REPLACE: its key has this file itself, of which parts are gone, or
                     * something that cannot be read, and may be that. */
    bool is_put;    /* The manifest was, or may have been. */
};

struct archive_part {
    struct file_id id;
    uint32_t index;
};

struct archive_files {
    struct archive_file *files; /* In the order of their ids, once they are complete. */
    size_t count, capacity;
    struct archive_part *parts; /* Until then. */
    size_t part_count, part_capacity;
};

/* room_make - `items`, moved where there was no room for one more. NULL, with a sentence: there is
 * no memory, and they are as they were. */
void *room_make(void *items, size_t count, size_t *capacity, size_t item_bytes);

/* archive_files_note - a block of the archive, a file's or not. False, with a sentence: no memory.
 * archive_files_complete: that was the last one. */
bool archive_files_note(struct archive_files *files, const struct archive_block *block,
    const void *payload, uint64_t length);
void archive_files_complete(struct archive_files *files);
void archive_files_free(struct archive_files *files);

/* archive_files_find - the file of which the block is a part; NULL: its manifest is not there. */
struct archive_file *archive_files_find(const struct archive_files *files,
    const struct archive_block *block, const struct part_name *part);

/* archive_file_key - the manifest's key; it points into the file. */
struct kvt_key archive_file_key(const struct archive_file *file);

/* archive_file_decide - the fate of a file that is whole in the archive. Reads what its key has,
 * where that may stay. KVT_CANCELLED: Ctrl-C. */
enum kvt_status archive_file_decide(
    struct archive_file *file, kvt_store *store, kvt_namespace ns, bool is_replacing);

/* archive_file_is_there - as blocks_are_there(), of what an import has made of the file. */
enum kvt_status archive_file_is_there(
    const struct archive_file *file, kvt_store *store, kvt_namespace ns);

/* archive_file_is_in_place - its key has it now; also when that could not be found out. */
bool archive_file_is_in_place(const struct archive_file *file, kvt_store *store, kvt_namespace ns);

/* archive_file_undo - deletes what an import has put of it, unless its manifest took another's
 * place: then it stays. */
enum kvt_status archive_file_undo(
    const struct archive_file *file, kvt_store *store, kvt_namespace ns);

#endif /* KVTOOL_IMPORT_FILES_H */
