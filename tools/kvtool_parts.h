/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_parts.h - content of any length: put and read as one block, or as parts and a manifest.
 */
#ifndef KVTOOL_PARTS_H
#define KVTOOL_PARTS_H

#include "kvtool.h"
#include "kvtool_block.h"
#include "kvtool_manifest.h"

/* Where content comes from: reads up to `size` bytes, fewer only at its end; *is_bad_out with a
 * sentence when it cannot be read (or somebody pressed Ctrl-C). */
struct source {
    int descriptor;
    const char *name; /* For sentences. */
    uint8_t *head;    /* Read already; then the descriptor goes on. */
    uint64_t head_length;
    uint64_t head_done;
    uint64_t length; /* Of all of it, when a file says so; 0: nobody knows. */
    bool is_bad;
};

uint64_t source_read(struct source *source, void *target, uint64_t size);

/* source_fits - false, with a sentence: what is known of its length is more than the room. */
bool source_fits(const struct source *source, uint64_t room_bytes);

/* What a key has. */
struct looked {
    uint64_t file;   /* Its number; 0: it is no file. */
    uint64_t length; /* Of the content; 0: there is none. */
};

/* A file to put. */
struct file_put {
    kvt_namespace ns;
    struct kvt_key key;
    uint64_t part_bytes; /* At most, in a part. */
    uint64_t room_bytes; /* A larger file is refused. */
    uint32_t flags;      /* enum kvt_put_flags */
};

/* parts_put - all of `source` as parts, then the manifest. The parts of other files of the key
 * stay. False, with a sentence, and nothing was changed: a part was refused, there is no room,
 * Ctrl-C. When the manifest alone has failed, and may be there, all parts stay, and a second
 * sentence says so. */
bool parts_put(
    kvt_store *store, const struct file_put *put, struct source *source, struct looked *stored_out);

/* parts_get - the file in order, verified, to `sink` until it returns false. KVT_MISS: a part is
 * missing or damaged, or the digest differs. */
enum kvt_status parts_get(kvt_store *store, kvt_namespace ns, uint16_t component,
    const struct manifest *manifest, bool (*sink)(void *context, const void *bytes, uint64_t size),
    void *context);

/* parts_are_there - as blocks_are_there(), of all parts; nothing is read. */
enum kvt_status parts_are_there(
    kvt_store *store, kvt_namespace ns, uint16_t component, const struct manifest *manifest);

/* parts_delete - of that file; KVT_OK also when some were not there. */
enum kvt_status parts_delete(
    kvt_store *store, kvt_namespace ns, uint16_t component, const struct manifest *manifest);

/* file_look - what `key` has now. KVT_MISS: a file of which parts are gone, or, when `is_read`,
 * which cannot be read; a block that cannot be read. KVT_OK: anything else. Else it could not be
 * found out. */
enum kvt_status file_look(kvt_store *store, kvt_namespace ns, const struct kvt_key *key,
    bool is_read, struct looked *looked_out);

/* file_is_in_place - `key` has that file now; also when that could not be found out. */
bool file_is_in_place(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t file);

#endif /* KVTOOL_PARTS_H */
