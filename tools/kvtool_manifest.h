/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_manifest.h - files that are larger than a block: many parts, and one block that is put
 * last.
 *
 * A file of more than block_bytes_max bytes is kept as parts, blocks of one size (the last may be
 * shorter) in the namespace and component of its key, and a manifest, the block of the key itself,
 * which is put last. Whoever finds the manifest finds all of it. A file of 0 bytes is a manifest
 * without parts; one whose own bytes begin like a manifest has a manifest, too, so that no content
 * is mistaken for one.
 *
 * The key of part i is the text `~part:KEYHASH:FILE:INDEX` (16, 16 and 8 hex digits): KEYHASH is
 * XXH3-64 of the file's key, FILE a number made by chance for each put, so that a put over an old
 * file changes nothing of that, and what an interrupted put left can be told from the rest.
 *
 *   offset size
 *        0   16  "kvtool manifest\n"
 *       16    4  version, 1
 *       20    4  0
 *       24    8  length of the file
 *       32    8  bytes in a part
 *       40    8  number of parts
 *       48    8  FILE
 *       56    8  KEYHASH
 *       64   16  XXH3-128 of the file, canonical
 *       80   16  XXH3-128 of bytes 0..79, canonical
 */
#ifndef KVTOOL_MANIFEST_H
#define KVTOOL_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

enum {
    MANIFEST_BYTES = 96,
    MANIFEST_DIGEST_BYTES = 16,
    PART_KEY_BYTES = 48,
    PART_COUNT_MAX = 1 << 24
};

struct manifest {
    uint64_t length;
    uint64_t part_bytes;
    uint64_t part_count;
    uint64_t file;
    uint64_t key_hash;
    uint8_t digest[MANIFEST_DIGEST_BYTES];
};

/* What the keys of a file's parts have in common. */
struct file_id {
    uint64_t key_hash, file;
    uint32_t space; /* The namespace: its id in a store, its number in an archive. */
    uint32_t component;
};

/* file_id_compare - for qsort() and bsearch() of what begins with an id. */
int file_id_compare(const void *left, const void *right);

/* What the key of a part says. */
struct part_name {
    uint64_t key_hash, file;
    uint32_t index;
};

void manifest_write(uint8_t bytes_out[MANIFEST_BYTES], const struct manifest *manifest);

/* manifest_read - false: these bytes are none. */
bool manifest_read(struct manifest *manifest_out, const void *bytes, uint64_t length);

/* manifest_is_like - content that must not be kept as a plain block. */
bool manifest_is_like(const void *bytes, uint64_t length);

/* part_length - of part `index`. */
uint64_t part_length(const struct manifest *manifest, uint64_t index);

/* part_key - into `text`, which holds PART_KEY_BYTES + 1 bytes. */
struct kvt_key part_key(
    const struct manifest *manifest, uint64_t index, uint16_t component, char *text);

/* part_name_read - false: this is no part's key. */
bool part_name_read(struct part_name *name_out, const void *key, uint64_t length);

/* part_key_is - the same of a stored key. */
bool part_key_is(const struct kvt_scan_entry *entry, struct part_name *name_out);

/* key_hash - KEYHASH. */
uint64_t key_hash(const struct kvt_key *key);

#endif /* KVTOOL_MANIFEST_H */
