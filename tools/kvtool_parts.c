/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_parts.c - files that are larger than a block, put and read part by part.
 *
 * The manifest is put last, when every part is durable, so that a reader finds all of a file or
 * nothing. The parts of what was interrupted are deleted; where a crash prevented that, the next
 * put or rm of the key does it (parts_sweep()).
 */
#include "kvtool_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "complain.h"
#include "interrupt.h"
#include "progress.h"
#include "quantity.h"

enum {
    KEYS_AT_ONCE = 256
};

/* --- The source ------------------------------------------------------------------------------- */

uint64_t
source_read(struct source *source, void *target, uint64_t size)
{
    uint8_t *to = target;
    uint64_t done = source->head_length - source->head_done;

    done = done < size ? done : size;
    if (done > 0)
        memcpy(to, source->head + source->head_done, done);
    source->head_done += done;
    while (done < size && !source->is_bad) {
        ssize_t count = read(source->descriptor, to + done, size - done);

        if (count == 0)
            break;
        if (interrupt_came()) {
            complain("interrupted");
            source->is_bad = true;
        } else if (count > 0) {
            done += (uint64_t)count;
        } else if (errno != EINTR) {
            complain("cannot read %s: %s", source->name, strerror(errno));
            source->is_bad = true;
        }
    }
    return done;
}

/* --- Putting ---------------------------------------------------------------------------------- */

struct upload {
    kvt_store *store;
    struct lanes lanes;
    struct source *source;
    struct progress progress;
    kvt_namespace ns;
    uint16_t component;
    uint64_t room_bytes;
    struct manifest manifest;
    bool is_in_place; /* Though its put has failed. */
    XXH3_state_t *digest;
};

static bool
room_complain(uint64_t room_bytes)
{
    char text[QUANTITY_TEXT_BYTES];

    complain("the store has no room for the file: it holds %s at most",
        quantity_bytes_text(text, (double)room_bytes));
    return false;
}

bool
source_fits(const struct source *source, uint64_t room_bytes)
{
    return (source->length <= room_bytes && source->head_length <= room_bytes) ||
           room_complain(room_bytes);
}

static bool
part_wait(struct lane *lane)
{
    uint64_t length = 0;
    enum kvt_status status = lane_wait(lane, &length);

    if (status == KVT_OK)
        return true;
    if (status == KVT_E_NOSPC || status == KVT_MISS)
        complain("the store has no room for all parts of the file");
    else
        complain_status(status, "cannot keep a part of the file");
    return false;
}

/* Puts the next part. False: there is none, or it went wrong (*is_fine_out false). */
static bool
part_put(struct upload *upload, bool *is_fine_out)
{
    struct manifest *manifest = &upload->manifest;
    struct lane *lane = lanes_at(&upload->lanes, manifest->part_count);
    char text[PART_KEY_BYTES + 1];
    struct kvt_put put = {.source = lane->bytes};
    enum kvt_status status = KVT_OK;

    *is_fine_out = part_wait(lane);
    if (!*is_fine_out)
        return false;
    put.length = source_read(upload->source, lane->bytes, manifest->part_bytes);
    *is_fine_out = !upload->source->is_bad;
    if (!*is_fine_out || put.length == 0)
        return false;
    if (manifest->length + put.length > upload->room_bytes) {
        *is_fine_out = room_complain(upload->room_bytes);
        return false;
    }
    if (manifest->part_count == PART_COUNT_MAX) {
        complain("a file has at most %d parts", PART_COUNT_MAX);
        *is_fine_out = false;
        return false;
    }
    /* It counts before it is put: one whose put fails may be there. */
    put.key = part_key(manifest, manifest->part_count++, upload->component, text);
    manifest->length += put.length;
    XXH3_128bits_update(upload->digest, lane->bytes, put.length);
    status = lane_put(&upload->lanes, lane, upload->ns, &put);
    if (status != KVT_OK) {
        complain_status(status, "cannot keep a part of the file");
        *is_fine_out = false;
        return false;
    }
    progress_at(&upload->progress, manifest->length);
    return put.length == manifest->part_bytes;
}

static bool
upload_run(struct upload *upload)
{
    XXH128_canonical_t canonical;
    enum kvt_status status;
    bool is_fine = true;

    progress_begin(&upload->progress, "put", PROGRESS_BYTES, 0, upload->source->length);
    while (part_put(upload, &is_fine))
        ;
    for (uint32_t i = 0; i < upload->lanes.count; i++) {
        struct lane *lane = &upload->lanes.lanes[i];

        if (is_fine)
            is_fine = part_wait(lane);
    }
    progress_end(&upload->progress);
    if (is_fine && interrupt_came()) {
        complain("interrupted");
        is_fine = false;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(upload->digest));
    memcpy(upload->manifest.digest, canonical.digest, sizeof(upload->manifest.digest));
    if (!is_fine)
        return false;
    status = parts_are_there(upload->store, upload->ns, upload->component, &upload->manifest);
    if (status == KVT_MISS)
        complain("the store has no room for all parts of the file: the first were evicted");
    else if (status != KVT_OK)
        complain_status(status, "cannot look for the parts of the file");
    return status == KVT_OK;
}

static bool
manifest_put(struct upload *upload, const struct file_put *wish)
{
    uint8_t bytes[MANIFEST_BYTES];
    struct kvt_put put = {
        .key = wish->key, .source = bytes, .length = sizeof(bytes), .flags = wish->flags};
    enum kvt_status status = KVT_OK;

    manifest_write(bytes, &upload->manifest);
    status = block_put(upload->store, upload->ns, &put);
    if (status == KVT_OK)
        return true;
    complain_status(status, "cannot keep the manifest of the file");
    upload->is_in_place =
        file_is_in_place(upload->store, upload->ns, &put.key, upload->manifest.file);
    return false;
}

/* Deletes its own parts: others of the key may be those of a file that only could not be read. Its
 * own stay, too, when the key has this file, or may, and it may not be durable. */
static void
upload_undo(const struct upload *upload)
{
    if (upload->is_in_place)
        complain("the file may be there, and its parts stay: the next put or rm deletes what "
                 "nobody needs");
    else if (parts_delete(upload->store, upload->ns, upload->component, &upload->manifest) < 0)
        complain("parts that nobody needs could not be deleted: the next put or rm does it");
}

bool
parts_put(
    kvt_store *store, const struct file_put *put, struct source *source, struct looked *stored_out)
{
    struct upload upload = {
        .store = store,
        .source = source,
        .ns = put->ns,
        .component = put->key.component,
        .room_bytes = put->room_bytes,
        .manifest = {.part_bytes = put->part_bytes, .key_hash = key_hash(&put->key)},
        .digest = XXH3_createState(),
    };
    bool is_fine = false;

    if (!source_fits(source, put->room_bytes)) {
        XXH3_freeState(upload.digest);
        return false;
    }
    if (upload.digest == NULL || getrandom(&upload.manifest.file, sizeof(upload.manifest.file),
                                     0) != (ssize_t)sizeof(upload.manifest.file)) {
        complain("there is no memory to put a file, or no random number");
        XXH3_freeState(upload.digest);
        return false;
    }
    upload.manifest.file |= 1; /* 0 is none. */
    XXH3_128bits_reset(upload.digest);
    if (lanes_open(&upload.lanes, store, put->part_bytes)) {
        is_fine = upload_run(&upload) && manifest_put(&upload, put);
        lanes_close(&upload.lanes);
        if (!is_fine)
            upload_undo(&upload);
    }
    XXH3_freeState(upload.digest);
    *stored_out = (struct looked){.file = upload.manifest.file, .length = upload.manifest.length};
    return is_fine;
}

/* --- Reading ---------------------------------------------------------------------------------- */

struct download {
    struct lanes lanes;
    struct progress progress;
    kvt_namespace ns;
    uint16_t component;
    const struct manifest *manifest;
    XXH3_state_t *digest;
};

static enum kvt_status
part_get(struct download *download, uint64_t index)
{
    char text[PART_KEY_BYTES + 1];
    const struct kvt_key key = part_key(download->manifest, index, download->component, text);

    return lane_get(&download->lanes, lanes_at(&download->lanes, index), download->ns, &key);
}

static enum kvt_status
download_run(struct download *download,
    bool (*sink)(void *context, const void *bytes, uint64_t size), void *context)
{
    const struct manifest *manifest = download->manifest;
    uint64_t begun = 0;
    uint64_t length = 0;

    progress_begin(&download->progress, "get", PROGRESS_BYTES, 0, manifest->length);
    for (uint64_t i = 0; i < manifest->part_count; i++) {
        struct lane *lane = lanes_at(&download->lanes, i);
        enum kvt_status status = KVT_OK;

        for (; begun < manifest->part_count && begun < i + download->lanes.count; begun++) {
            status = part_get(download, begun);
            if (status != KVT_OK)
                return status;
        }
        status = lane_wait(lane, &length);
        if (status == KVT_OK && length != part_length(manifest, i))
            status = KVT_MISS;
        if (status != KVT_OK)
            return status;
        XXH3_128bits_update(download->digest, lane->bytes, length);
        if (!sink(context, lane->bytes, length))
            return KVT_CANCELLED;
        progress_at(&download->progress, i * manifest->part_bytes + length);
    }
    return KVT_OK;
}

enum kvt_status
parts_get(kvt_store *store, kvt_namespace ns, uint16_t component, const struct manifest *manifest,
    bool (*sink)(void *context, const void *bytes, uint64_t size), void *context)
{
    struct download download = {
        .ns = ns,
        .component = component,
        .manifest = manifest,
        .digest = XXH3_createState(),
    };
    XXH128_canonical_t canonical;
    enum kvt_status status = KVT_E_NOMEM;

    if (download.digest == NULL)
        return KVT_E_NOMEM;
    XXH3_128bits_reset(download.digest);
    if (lanes_open(&download.lanes, store, manifest->part_bytes)) {
        status = download_run(&download, sink, context);
        progress_end(&download.progress);
        lanes_close(&download.lanes);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(download.digest));
    XXH3_freeState(download.digest);
    if (status == KVT_OK && memcmp(canonical.digest, manifest->digest, MANIFEST_DIGEST_BYTES) != 0)
        return KVT_MISS;
    return status;
}

enum kvt_status
parts_are_there(
    kvt_store *store, kvt_namespace ns, uint16_t component, const struct manifest *manifest)
{
    for (uint64_t i = 0; i < manifest->part_count; i++) {
        char text[PART_KEY_BYTES + 1];
        const struct kvt_key key = part_key(manifest, i, component, text);
        enum kvt_status status = blocks_are_there(store, ns, &key, 1);

        if (status != KVT_OK)
            return status;
    }
    return KVT_OK;
}

enum kvt_status
parts_delete(
    kvt_store *store, kvt_namespace ns, uint16_t component, const struct manifest *manifest)
{
    char texts[KEYS_AT_ONCE][PART_KEY_BYTES + 1];
    struct kvt_key keys[KEYS_AT_ONCE];

    for (uint64_t i = 0; i < manifest->part_count;) {
        uint32_t count = 0;
        enum kvt_status status;

        for (; count < KEYS_AT_ONCE && i < manifest->part_count; count++, i++)
            keys[count] = part_key(manifest, i, component, texts[count]);
        status = blocks_delete(store, ns, keys, count);
        if (status < 0)
            return status;
    }
    return KVT_OK;
}

/* For a file that is only to be verified. */
static bool
bytes_pass(void *context, const void *bytes, uint64_t size)
{
    (void)context;
    (void)bytes;
    (void)size;
    return !interrupt_came();
}

enum kvt_status
file_look(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, bool is_read,
    struct looked *looked_out)
{
    struct block block = {0};
    struct manifest manifest;
    enum kvt_status status = block_get(store, ns, key, &block);

    *looked_out = (struct looked){.length = status == KVT_OK ? block.result.length : 0};
    if (status == KVT_MISS) {
        uint8_t tiers = 0;

        /* It is gone meanwhile; or it is there, and cannot be read. */
        status = kvt_lookup(store, ns, key, 1, &tiers, NULL, NULL);
        if (status == KVT_OK && tiers != 0)
            status = KVT_MISS;
    } else if (status == KVT_OK && manifest_read(&manifest, block.bytes, block.result.length)) {
        *looked_out = (struct looked){.file = manifest.file, .length = manifest.length};
        status = parts_are_there(store, ns, key->component, &manifest);
        if (status == KVT_OK && is_read)
            status = parts_get(store, ns, key->component, &manifest, bytes_pass, NULL);
    }
    block_free(&block);
    return status;
}

bool
file_is_in_place(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t file)
{
    struct looked there;
    enum kvt_status status = file_look(store, ns, key, false, &there);

    /* A block that is there and cannot be read may be it. */
    if (status == KVT_MISS && there.length == 0)
        return true;
    return (status != KVT_OK && status != KVT_MISS) || there.file == file;
}
