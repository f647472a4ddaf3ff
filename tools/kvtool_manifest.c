/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_manifest.c - the manifest of a file that is larger than a block, and its parts' keys.
 */
#include "kvtool_manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "little_endian.h"

static const char magic[16] = "kvtool manifest\n";

enum {
    VERSION = 1,
    AT_VERSION = 16,
    AT_LENGTH = 24,
    AT_PART_BYTES = 32,
    AT_PART_COUNT = 40,
    AT_FILE = 48,
    AT_KEY_HASH = 56,
    AT_DIGEST = 64,
    AT_CHECK = 80
};

static void
check_of(const uint8_t *bytes, XXH128_canonical_t *check_out)
{
    XXH128_canonicalFromHash(check_out, XXH3_128bits(bytes, AT_CHECK));
}

void
manifest_write(uint8_t bytes_out[MANIFEST_BYTES], const struct manifest *manifest)
{
    XXH128_canonical_t check;

    memset(bytes_out, 0, MANIFEST_BYTES);
    memcpy(bytes_out, magic, sizeof(magic));
    store_u32(bytes_out + AT_VERSION, VERSION);
    store_u64(bytes_out + AT_LENGTH, manifest->length);
    store_u64(bytes_out + AT_PART_BYTES, manifest->part_bytes);
    store_u64(bytes_out + AT_PART_COUNT, manifest->part_count);
    store_u64(bytes_out + AT_FILE, manifest->file);
    store_u64(bytes_out + AT_KEY_HASH, manifest->key_hash);
    memcpy(bytes_out + AT_DIGEST, manifest->digest, MANIFEST_DIGEST_BYTES);
    check_of(bytes_out, &check);
    memcpy(bytes_out + AT_CHECK, check.digest, sizeof(check.digest));
}

bool
manifest_is_like(const void *bytes, uint64_t length)
{
    return length >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

bool
manifest_read(struct manifest *manifest_out, const void *bytes, uint64_t length)
{
    const uint8_t *from = bytes;
    XXH128_canonical_t check;
    uint64_t parts = 0;

    if (length != MANIFEST_BYTES || !manifest_is_like(bytes, length) ||
        load_u32(from + AT_VERSION) != VERSION)
        return false;
    check_of(from, &check);
    if (memcmp(check.digest, from + AT_CHECK, sizeof(check.digest)) != 0)
        return false;
    manifest_out->length = load_u64(from + AT_LENGTH);
    manifest_out->part_bytes = load_u64(from + AT_PART_BYTES);
    manifest_out->part_count = load_u64(from + AT_PART_COUNT);
    manifest_out->file = load_u64(from + AT_FILE);
    manifest_out->key_hash = load_u64(from + AT_KEY_HASH);
    memcpy(manifest_out->digest, from + AT_DIGEST, MANIFEST_DIGEST_BYTES);
    if (manifest_out->part_bytes == 0 || manifest_out->part_bytes > KVT_BLOCK_BYTES_MAX)
        return false;
    parts = manifest_out->length / manifest_out->part_bytes +
            (manifest_out->length % manifest_out->part_bytes != 0);
    return parts == manifest_out->part_count && parts <= PART_COUNT_MAX;
}

uint64_t
part_length(const struct manifest *manifest, uint64_t index)
{
    uint64_t start = index * manifest->part_bytes;
    uint64_t left = manifest->length - start;

    return left < manifest->part_bytes ? left : manifest->part_bytes;
}

struct kvt_key
part_key(const struct manifest *manifest, uint64_t index, uint16_t component, char *text)
{
    snprintf(text, PART_KEY_BYTES + 1, "~part:%016" PRIx64 ":%016" PRIx64 ":%08" PRIx32,
        manifest->key_hash, manifest->file, (uint32_t)index);
    return (struct kvt_key){.bytes = text, .length = PART_KEY_BYTES, .component = component};
}

bool
part_name_read(struct part_name *name_out, const void *key, uint64_t length)
{
    char text[PART_KEY_BYTES + 1];
    char *end = NULL;

    if (length != PART_KEY_BYTES || memcmp(key, "~part:", 6) != 0)
        return false;
    memcpy(text, key, PART_KEY_BYTES);
    text[PART_KEY_BYTES] = '\0';
    if (strspn(text + 6, "0123456789abcdef:") != PART_KEY_BYTES - 6 || text[22] != ':' ||
        text[39] != ':')
        return false;
    name_out->key_hash = strtoull(text + 6, &end, 16);
    name_out->file = strtoull(text + 23, &end, 16);
    name_out->index = (uint32_t)strtoull(text + 40, &end, 16);
    return true;
}

bool
part_key_is(const struct kvt_scan_entry *entry, struct part_name *name_out)
{
    return !entry->is_hashed && part_name_read(name_out, entry->key, entry->key_length);
}

int
file_id_compare(const void *left, const void *right)
{
    const struct file_id *one = left;
    const struct file_id *other = right;

    if (one->file != other->file)
        return one->file < other->file ? -1 : 1;
    if (one->key_hash != other->key_hash)
        return one->key_hash < other->key_hash ? -1 : 1;
    if (one->space != other->space)
        return one->space < other->space ? -1 : 1;
    if (one->component != other->component)
        return one->component < other->component ? -1 : 1;
    return 0;
}

uint64_t
key_hash(const struct kvt_key *key)
{
    return XXH3_64bits(key->bytes, key->length);
}
