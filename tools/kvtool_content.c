/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_content.c - what a key of the command line stands for: the bytes of one block, or of the
 * file behind a manifest.
 */
#include "kvtool_content.h"

#include <string.h>

#include "complain.h"
#include "kvtool_parts.h"
#include "kvtool_sweep.h"

/* A miss may be a block that was never there, or one whose bytes are damaged: what it is, by what
 * was counted since `before`. */
static enum kvt_status
miss_complain(kvt_store *store, const struct kvt_stats *before, const char *key)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) != KVT_OK)
        stats = *before;
    if (stats.corrupt_count > before->corrupt_count) {
        complain("the block %s is there, but its bytes are damaged: it counts as missing", key);
        return KVT_E_CORRUPT;
    }
    if (stats.read_failed_count > before->read_failed_count) {
        complain("the block %s is there, but the device cannot read it: it counts as missing", key);
        return KVT_E_IO;
    }
    complain("there is no block %s", key);
    return KVT_MISS;
}

enum kvt_status
content_find(kvt_store *store, const char *path, const struct spelled_key *key,
    const char *spelling, struct content *content_out)
{
    struct kvt_stats before = {.struct_size = sizeof(before)};
    struct kvt_namespace_info info;
    enum kvt_status status = namespace_find(store, key->namespace_name, &info);

    memset(content_out, 0, sizeof(*content_out));
    if (status == KVT_MISS) {
        namespace_complain(key->namespace_name, path);
        return KVT_MISS;
    }
    if (status == KVT_OK)
        status = kvt_stats_get(store, &before);
    if (status == KVT_OK)
        status = block_get(store, info.ns, &key->key, &content_out->block);
    if (status == KVT_MISS)
        return miss_complain(store, &before, spelling);
    if (status != KVT_OK) {
        complain_status(status, "cannot read the block %s", spelling);
        return status;
    }
    content_out->ns = info.ns;
    content_out->length = content_out->block.result.length;
    content_out->is_file = manifest_read(
        &content_out->manifest, content_out->block.bytes, content_out->block.result.length);
    if (!content_out->is_file)
        return KVT_OK;
    content_out->length = content_out->manifest.length;
    status = parts_are_there(store, info.ns, key->key.component, &content_out->manifest);
    if (status == KVT_MISS)
        complain(
            "the file %s is not whole: parts of it were evicted or damaged; it counts as missing",
            spelling);
    else if (status != KVT_OK)
        complain_status(status, "cannot look for the parts of the file %s", spelling);
    return status;
}

enum kvt_status
content_delete(kvt_store *store, const struct spelled_key *key)
{
    struct kvt_namespace_info info;
    enum kvt_status status = namespace_find(store, key->namespace_name, &info);
    enum kvt_status swept = KVT_OK;

    if (status != KVT_OK)
        return status;
    status = blocks_delete(store, info.ns, &key->key, 1);
    if (status < 0)
        return status;
    swept = parts_sweep(store, info.ns, &key->key, 0);
    return swept < 0 ? swept : status;
}

void
content_free(struct content *content)
{
    block_free(&content->block);
}

bool
content_read(kvt_store *store, const struct spelled_key *key, const char *spelling,
    const struct content *content, bool (*sink)(void *context, const void *bytes, uint64_t size),
    void *context)
{
    enum kvt_status status = KVT_OK;

    if (!content->is_file)
        return sink(context, content->block.bytes, content->length);
    status = parts_get(store, content->ns, key->key.component, &content->manifest, sink, context);
    if (status == KVT_MISS)
        complain("the file %s is damaged: it counts as missing", spelling);
    else if (status < 0)
        complain_status(status, "cannot read the file %s", spelling);
    return status == KVT_OK;
}
