/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_content.h - what a key of the command line stands for: the bytes of one block, or of the
 * file behind a manifest.
 */
#ifndef KVTOOL_CONTENT_H
#define KVTOOL_CONTENT_H

#include "kvtool.h"
#include "kvtool_block.h"
#include "kvtool_manifest.h"

struct content {
    kvt_namespace ns;
    struct block block;
    struct manifest manifest;
    bool is_file; /* The block is a manifest. */
    uint64_t length;
};

/* content_find - reads the key's block, and looks whether all parts of a file are there. With a
 * sentence: KVT_MISS, the block or a part is not there; a failure, it is damaged or cannot be read,
 * or that could not be found out. content_free() in any case. */
enum kvt_status content_find(kvt_store *store, const char *path, const struct spelled_key *key,
    const char *spelling, struct content *content_out);
void content_free(struct content *content);

/* content_delete - KVT_OK: it is gone for good. KVT_MISS: it was not there. The manifest of a file
 * goes before its parts: what a crash between the two leaves is found by nobody, and the next
 * deletion takes it. */
enum kvt_status content_delete(kvt_store *store, const struct spelled_key *key);

/* content_read - the bytes to `sink`. False: with a sentence, or the sink has said one. */
bool content_read(kvt_store *store, const struct spelled_key *key, const char *spelling,
    const struct content *content, bool (*sink)(void *context, const void *bytes, uint64_t size),
    void *context);

#endif /* KVTOOL_CONTENT_H */
