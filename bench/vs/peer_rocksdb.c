/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_rocksdb.c - RocksDB with its values in blob files (BlobDB), through its C interface.
 *
 * A durable put is a write batch with a synced log; a get is a MultiGet of the batch, whose pinned
 * values are copied to the caller's memory: the library reads into memory of its own only. When it
 * closes, what is in memory is written to blob files and the keys are compacted to one level.
 */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "pattern.h"
#include "peer.h"

enum {
    BUFFER_BYTES = 64 << 20, /* Of a memtable; the cache of key blocks is as large. */
    BLOB_FILE_BYTES = 256 << 20,
    BLOOM_BITS = 10,
    JOBS = 2,
};

struct rocksdb_state {
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_block_based_table_options_t *table;
    rocksdb_cache_t *cache;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
    rocksdb_column_family_handle_t *family;
    uint64_t block_bytes;
    bool was_written;
};

/* Takes the library's sentence. True: there was one, and it is told. */
static bool
failed(char *sentence, const char *what)
{
    if (sentence == NULL)
        return false;
    complain("RocksDB %s: %s", what, sentence);
    rocksdb_free(sentence);
    return true;
}

static void
options_make(struct rocksdb_state *state)
{
    rocksdb_options_t *options = rocksdb_options_create();

    state->cache = rocksdb_cache_create_lru(BUFFER_BYTES);
    state->table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(state->table, state->cache);
    rocksdb_block_based_options_set_filter_policy(
        state->table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
    rocksdb_options_set_block_based_table_factory(options, state->table);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_write_buffer_size(options, BUFFER_BYTES);
    rocksdb_options_set_max_open_files(options, -1);
    rocksdb_options_set_max_background_jobs(options, JOBS);
    rocksdb_options_set_use_direct_reads(options, 1);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
    rocksdb_options_set_enable_blob_files(options, 1);
    rocksdb_options_set_min_blob_size(options, 1);
    rocksdb_options_set_blob_file_size(options, BLOB_FILE_BYTES);
    rocksdb_options_set_blob_compression_type(options, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_gc(options, 0);
    state->options = options;
    state->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(state->write, 1);
    state->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(state->read, 1);
}

static void
state_free(struct rocksdb_state *state)
{
    if (state->family != NULL)
        rocksdb_column_family_handle_destroy(state->family);
    if (state->db != NULL)
        rocksdb_close(state->db);
    rocksdb_readoptions_destroy(state->read);
    rocksdb_writeoptions_destroy(state->write);
    rocksdb_options_destroy(state->options);
    rocksdb_block_based_options_destroy(state->table);
    rocksdb_cache_destroy(state->cache);
    free(state);
}

static void *
rocksdb_peer_open(const struct peer_place *place)
{
    struct rocksdb_state *state = calloc(1, sizeof(*state));
    const char *const names[] = {"default"};
    const rocksdb_options_t *family_options[1];
    char *sentence = NULL;

    if (state == NULL) {
        complain("there is no memory");
        return NULL;
    }
    state->block_bytes = place->block_bytes;
    options_make(state);
    family_options[0] = state->options;
    state->db = rocksdb_open_column_families(
        state->options, place->directory, 1, names, family_options, &state->family, &sentence);
    if (!failed(sentence, "cannot be opened"))
        return state;
    state->family = NULL;
    state->db = NULL;
    state_free(state);
    return NULL;
}

static bool
rocksdb_peer_put(void *opened, uint32_t caller, const struct peer_block *blocks, uint32_t count)
{
    struct rocksdb_state *state = opened;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    char *sentence = NULL;

    (void)caller;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t key[PATTERN_KEY_BYTES];

        pattern_key(blocks[i].number, key);
        rocksdb_writebatch_put(batch, (const char *)key, sizeof(key), (const char *)blocks[i].bytes,
            state->block_bytes);
    }
    rocksdb_write(state->db, state->write, batch, &sentence);
    rocksdb_writebatch_destroy(batch);
    __atomic_store_n(&state->was_written, true, __ATOMIC_RELAXED);
    return !failed(sentence, "cannot write a batch");
}

/* Copies one value to where it shall be. A damaged one comes with a sentence instead. */
static void
value_take(struct peer_block *block, rocksdb_pinnableslice_t *value, char *sentence, size_t size)
{
    size_t length = 0;
    const char *bytes = value != NULL ? rocksdb_pinnableslice_value(value, &length) : NULL;

    block->is_refused = sentence != NULL || bytes == NULL || length != size;
    if (!block->is_refused)
        memcpy(block->bytes, bytes, size);
    rocksdb_pinnableslice_destroy(value);
    rocksdb_free(sentence);
}

static bool
rocksdb_peer_get(void *opened, uint32_t caller, struct peer_block *blocks, uint32_t count)
{
    struct rocksdb_state *state = opened;
    uint8_t bytes[PEER_BATCH_MAX][PATTERN_KEY_BYTES];
    const char *keys[PEER_BATCH_MAX] = {NULL};
    size_t sizes[PEER_BATCH_MAX] = {0};
    rocksdb_pinnableslice_t *values[PEER_BATCH_MAX] = {NULL};
    char *sentences[PEER_BATCH_MAX] = {NULL};

    (void)caller;
    for (uint32_t i = 0; i < count; i++) {
        pattern_key(blocks[i].number, bytes[i]);
        keys[i] = (const char *)bytes[i];
        sizes[i] = PATTERN_KEY_BYTES;
    }
    rocksdb_batched_multi_get_cf(
        state->db, state->read, state->family, count, keys, sizes, values, sentences, false);
    for (uint32_t i = 0; i < count; i++)
        value_take(&blocks[i], values[i], sentences[i], state->block_bytes);
    return true;
}

/* Flushes, waits, and brings the keys to one level. The blobs stay where they are. */
static bool
settle(struct rocksdb_state *state)
{
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    char *sentence = NULL;

    rocksdb_flushoptions_set_wait(flush, 1);
    rocksdb_flush(state->db, flush, &sentence);
    rocksdb_flushoptions_destroy(flush);
    if (failed(sentence, "cannot flush"))
        return false;
    rocksdb_compact_range(state->db, NULL, 0, NULL, 0);
    return true;
}

static bool
rocksdb_peer_close(void *opened)
{
    struct rocksdb_state *state = opened;
    bool is_fine = !state->was_written || settle(state);

    state_free(state);
    return is_fine;
}

static void
rocksdb_peer_describe(const struct peer_place *place, struct peer_facts *facts_out)
{
    /* Its own header of numbers is C++: CMake has asked pkg-config. */
    snprintf(facts_out->version, sizeof(facts_out->version), "%s", VS_ROCKSDB_VERSION);
    snprintf(facts_out->settings, sizeof(facts_out->settings),
        "blob files of 256 MiB, direct reads, direct flush and compaction, no compression, "
        "checksums verified, MultiGet of %u, write batch of %u with a synced log, memtables and "
        "key cache of 64 MiB, bloom filter of 10 bits, keys compacted to one level, values copied "
        "to the caller's huge pages",
        place->batch_blocks, place->batch_blocks);
}

const struct peer peer_rocksdb = {
    .name = "rocksdb",
    .put_callers = {1, 4},
    .get_callers = {1, 2, 4, 8, 16},
    .open = rocksdb_peer_open,
    .put_batch = rocksdb_peer_put,
    .get_batch = rocksdb_peer_get,
    .close = rocksdb_peer_close,
    .describe = rocksdb_peer_describe,
};
