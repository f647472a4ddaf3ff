/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_reference.c - make the files of a small store with the code of tiers/, and print what that
 * code reads from them: one JSON object a line, in the words of tools/decode.py.
 *
 * Usage: decode_reference DIR (an empty directory). The store has two roots, several batches with
 * blocks and kills, a recycled segment with remains of an older generation, and one damaged header.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch_header.h"
#include "bytes.h"
#include "failure.h"
#include "image.h"
#include "io_engines.h"
#include "names_file.h"
#include "nvme_tier.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "store_file.h"

enum {
    SEGMENT_PAGES = 256,
    SEGMENTS = 3, /* In each root. */
    ROOTS = 2,
    BLOCKS_MAX = 24,
    BLOCK_BYTES_MAX = 12 * PAGE_BYTES,
    MEMORY_BYTES = BLOCK_BYTES_MAX + PAGE_BYTES, /* Of a block, with its trailer. */
};

struct maker {
    struct kvt_env env;
    const char *path;
    struct fs_dir *dir;
    struct fs_dir *roots[ROOTS];
    struct store_file store;
    struct nvme_tier *nvme;
    struct rng rng;
    struct inbox done;
    uint64_t sequence;
    uint8_t *memory;
    struct codec *codec;
};

static void
must(enum kvt_status status)
{
    if (status == KVT_OK)
        return;
    (void)fprintf(stderr, "%s: %s\n", kvt_status_name(status), failure_last()->text);
    exit(1);
}

/* --- Making ----------------------------------------------------------------------------------- */

static void
files_make(struct maker *maker)
{
    struct store_file *store = &maker->store;
    struct names_file names;
    struct name_entry *entry;

    for (size_t i = 0; i < sizeof(store->uuid); i++)
        store->uuid[i] = (uint8_t)rng_next(&maker->rng);
    for (size_t i = 0; i < sizeof(store->secret); i++)
        store->secret[i] = (uint8_t)rng_next(&maker->rng);
    store->created_ns = 1700000000123456789u;
    store->segment_pages = SEGMENT_PAGES;
    store->block_bytes_max = BLOCK_BYTES_MAX;
    store->map_bytes = 1 << 24;
    store->root_count = ROOTS;
    for (uint32_t i = 0; i < ROOTS; i++)
        store->root_bytes[i] = (uint64_t)SEGMENTS * SEGMENT_PAGES * PAGE_BYTES;
    (void)snprintf(store->root_paths[1], STORE_PATH_BYTES, "%s/second", maker->path);
    for (store->open_epoch = 1; store->open_epoch < 4; store->open_epoch++)
        must(store_file_write(&maker->env, maker->dir, store));

    names_init(&names, &maker->env, store->uuid);
    must(names_add(&names, "model/fp16", "weights 1234", 12, &entry));
    entry->epoch = 3;
    must(names_add(&names, "x", NULL, 0, &entry));
    must(names_add(&names, "a \"quoted\" \xc3\xa4 name", "\x00\xff", 2, &entry));
    must(names_write(&names, maker->dir));
    names_deinit(&names);
}

static void
tier_open(struct maker *maker)
{
    struct nvme_options options = {.root_count = ROOTS, .segment_pages = SEGMENT_PAGES};

    for (uint32_t i = 0; i < ROOTS; i++) {
        options.roots[i] = maker->roots[i];
        options.root_bytes[i] = maker->store.root_bytes[i];
    }
    memcpy(options.store_uuid, maker->store.uuid, sizeof(options.store_uuid));
    memcpy(options.secret, maker->store.secret, sizeof(options.secret));
    must(nvme_open(&maker->env, &options, &maker->nvme));
}

static void
record_make(struct maker *maker, struct block_record *record, uint32_t length)
{
    struct rng *rng = &maker->rng;
    bool is_hashed = rng_below(rng, 4) == 0;

    memset(record, 0, sizeof(*record));
    record->key.namespace_id = 1 + rng_below(rng, 3);
    record->key.component = (uint16_t)rng_next(rng);
    record->key.form = is_hashed ? KEY_HASHED : KEY_RAW;
    record->key.length = (uint8_t)(is_hashed ? KEY_HASHED_BYTES : 1 + rng_below(rng, 64));
    for (uint32_t i = 0; i < record->key.length; i++)
        record->key.bytes[i] = (uint8_t)rng_next(rng);
    record->namespace_epoch = 1 + rng_below(rng, 3);
    record->sequence = rng_next(rng);
    record->length = length;
    record->stored_length = length;
    record->part_count = 1;
    record->hint = (uint8_t)rng_below(rng, 4);
    record->class_id = (uint16_t)rng_next(rng);
    record->parent = (struct hash128){rng_next(rng), rng_next(rng)};
    record->depth = (uint32_t)rng_next(rng);
    record->token_start = (uint32_t)rng_next(rng);
    record->token_count = (uint32_t)rng_next(rng);
    record->recompute_us = (uint32_t)rng_next(rng);
    record->importance = (uint32_t)rng_next(rng);
}

/* A block of some parts, as its number says: raw, or encoded where that pays. */
static void
image_make(struct maker *maker, struct tier_block *block, uint32_t number)
{
    static const uint8_t counts[] = {2, 3, 7, 64};
    struct block_record *record = &block->record;
    uint32_t raw_count = 0;
    enum codec_id id = (enum codec_id)(number % 3);
    struct image_shape shape = {.part_count = counts[number / 2 % 4]};
    uint8_t *payload = maker->memory + (size_t)BLOCKS_MAX * MEMORY_BYTES;

    shape.length = shape.part_count * (1 + rng_below(&maker->rng, BLOCK_BYTES_MAX / 64));
    for (uint32_t i = 0; i < shape.length; i++)
        payload[i] = i % 2 == 0 || i < shape.length / 4 ? (uint8_t)rng_next(&maker->rng) : 60;
    if (id == CODEC_RAW ||
        !image_encode(maker->codec, id, &shape, payload, block->memory, &raw_count)) {
        memcpy(block->memory, payload, shape.length);
        image_note_raw(&shape, payload, (uint8_t *)block->memory + shape.length);
    }
    record_make(maker, record, shape.length);
    record->codec = RECORD_PARTS;
    record->part_count = (uint8_t)shape.part_count;
    record->stored_length = shape.stored_length;
    record->checksum = shape.checksum;
}

static void
batch_wait(struct maker *maker, struct tier_batch *batch)
{
    while (inbox_is_empty(&maker->done)) {
        if (!nvme_step(maker->nvme))
            (void)usleep(50);
    }
    (void)inbox_take(&maker->done);
    must(batch->status);
}

static void
batch_init(struct maker *maker, struct tier_batch *batch, struct tier_kill *kills, uint32_t count)
{
    memset(batch, 0, sizeof(*batch));
    for (uint32_t i = 0; i < count; i++) {
        kills[i].extent = (struct extent){rng_below(&maker->rng, 9), 1 + i, i * 3};
        kills[i].fingerprint = (struct hash128){rng_next(&maker->rng), rng_next(&maker->rng)};
        kills[i].sequence = rng_next(&maker->rng);
    }
    batch->kills = kills;
    batch->kill_count = count;
    batch->sequence = ++maker->sequence;
    batch->done = &maker->done;
}

/* One put; returns the segment it went to. */
static uint32_t
batch_put(struct maker *maker, uint32_t block_count, uint32_t kill_count)
{
    static struct tier_block blocks[BLOCKS_MAX];
    static struct tier_kill kills[BATCH_KILLS_MAX];
    struct tier_batch batch;

    batch_init(maker, &batch, kills, kill_count);
    for (uint32_t i = 0; i < block_count; i++) {
        uint32_t length = 1 + rng_below(&maker->rng, BLOCK_BYTES_MAX);

        blocks[i].memory = maker->memory + (size_t)i * MEMORY_BYTES;
        if (i % 3 == 2) {
            image_make(maker, &blocks[i], i / 3);
            continue;
        }
        for (uint32_t k = 0; k < length; k++)
            ((uint8_t *)blocks[i].memory)[k] = (uint8_t)rng_next(&maker->rng);
        record_make(maker, &blocks[i].record, length);
        blocks[i].record.checksum = hash_payload(blocks[i].memory, length);
    }
    batch.blocks = blocks;
    batch.block_count = block_count;
    must(nvme_as_tier(maker->nvme)->ops->put(nvme_as_tier(maker->nvme), &batch));
    batch_wait(maker, &batch);
    return block_count == 0 ? 0 : blocks[0].record.extent.segment;
}

static void
segment_turn(struct maker *maker, uint32_t number, uint32_t kill_count)
{
    static struct tier_kill kills[3];
    struct segment_table *table = nvme_segments(maker->nvme);
    struct segment *segment = segment_at(table, number);
    struct tier_batch batch;

    if (segment->state == SEGMENT_ACTIVE)
        segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    batch_init(maker, &batch, kills, kill_count);
    must(nvme_recycle(maker->nvme, segment, &batch));
    batch_wait(maker, &batch);
    segment_free(table, segment);
}

static void
header_spoil(struct maker *maker)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/second/data.00", maker->path);
    file = fopen(path, "r+b");
    if (file == NULL || fseek(file, 100, SEEK_SET) != 0 || fputc(0x77, file) == EOF ||
        fclose(file) != 0)
        exit(1);
}

/* --- Printing --------------------------------------------------------------------------------- */

static void
hex_print(const char *name, const uint8_t *bytes, size_t size)
{
    (void)printf("\"%s\": \"", name);
    for (size_t i = 0; i < size; i++)
        (void)printf("%02x", bytes[i]);
    (void)printf("\"");
}

static void
hash_print(const char *name, struct hash128 hash)
{
    (void)printf(", \"%s\": \"%016" PRIx64 "%016" PRIx64 "\"", name, hash.high, hash.low);
}

static void
block_print(const struct block_record *record)
{
    (void)printf("{\"key_form\": %u, ", record->key.form);
    hex_print("key", record->key.bytes, record->key.length);
    (void)printf(", \"component\": %u, \"codec\": %u, \"part_count\": %u", record->key.component,
        record->codec, record->part_count);
    (void)printf(", \"hint\": %u, \"namespace_id\": %" PRIu32 ", \"namespace_epoch\": %" PRIu32
                 ", \"sequence\": %" PRIu64 ", \"generation\": %" PRIu32
                 ", \"class_id\": %u, \"length\": %" PRIu32 ", \"stored_length\": %" PRIu32,
        record->hint, record->key.namespace_id, record->namespace_epoch, record->sequence,
        record->extent.generation, record->class_id, record->length, record->stored_length);
    hash_print("checksum", record->checksum);
    hash_print("parent", record->parent);
    (void)printf(", \"depth\": %" PRIu32 ", \"token_start\": %" PRIu32 ", \"token_count\": %" PRIu32
                 ", \"recompute_us\": %" PRIu32 ", \"importance\": %" PRIu32 ", \"page\": %" PRIu32
                 "}",
        record->depth, record->token_start, record->token_count, record->recompute_us,
        record->importance, record->extent.page);
}

static void
parts_print(struct maker *maker, const struct block_record *record)
{
    struct image_part parts[RECORD_PARTS_MAX];
    const struct image_shape shape = {.length = record->length,
        .stored_length = record->stored_length,
        .part_count = record->part_count,
        .has_trailer = record->codec == RECORD_PARTS,
        .checksum = record->checksum};

    if (!shape.has_trailer)
        return;
    must(nvme_peek(maker->nvme, &record->extent, record->stored_length, maker->memory));
    if (!image_is_right(&shape, maker->memory))
        exit(1);
    must(image_trailer_read(&shape, maker->memory + image_trailer_at(&shape), parts));
    (void)printf("{\"type\": \"parts\", \"segment\": %" PRIu32 ", \"page\": %" PRIu32
                 ", \"parts\": [",
        record->extent.segment, record->extent.page);
    for (uint32_t i = 0; i < shape.part_count; i++) {
        (void)printf("%s{\"codec\": %u, \"stored_length\": %" PRIu32, i == 0 ? "" : ", ",
            parts[i].codec, parts[i].stored_length);
        hash_print("checksum", parts[i].checksum);
        (void)printf("}");
    }
    (void)printf("]}\n");
}

static bool
batch_print(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    (void)printf("{\"type\": \"batch\", \"segment\": %" PRIu32 ", \"generation\": %" PRIu32
                 ", \"page\": %" PRIu32 ", \"header_pages\": %" PRIu32 ", \"total_pages\": %" PRIu32
                 ", \"block_count\": %" PRIu32 ", \"kill_count\": %" PRIu32
                 ", \"sequence\": %" PRIu64 ", \"is_recycle\": %s, \"blocks\": [",
        header->extent.segment, header->extent.generation, header->extent.page,
        header->header_pages, header->total_pages, header->block_count, header->kill_count,
        header->sequence, header->is_recycle ? "true" : "false");
    for (uint32_t i = 0; i < header->block_count; i++) {
        (void)printf("%s", i == 0 ? "" : ", ");
        block_print(&records[i]);
    }
    (void)printf("], \"kills\": [");
    for (uint32_t i = 0; i < header->kill_count; i++) {
        (void)printf("%s{\"segment\": %" PRIu32 ", \"generation\": %" PRIu32 ", \"page\": %" PRIu32,
            i == 0 ? "" : ", ", kills[i].extent.segment, kills[i].extent.generation,
            kills[i].extent.page);
        hash_print("fingerprint", kills[i].fingerprint);
        (void)printf(", \"sequence\": %" PRIu64 "}", kills[i].sequence);
    }
    (void)printf("]}\n");
    for (uint32_t i = 0; i < header->block_count; i++)
        parts_print(visitor, &records[i]);
    return true;
}

static void
store_print(struct maker *maker)
{
    struct store_file store;
    bool unwritable;

    must(store_file_read(&maker->env, maker->dir, &store, &unwritable));
    (void)printf("{\"type\": \"store\", \"sequence\": %" PRIu64 ", \"version_major\": %u, "
                 "\"version_minor\": %u, \"features_needed\": %" PRIu64
                 ", \"features_to_write\": %" PRIu64 ", ",
        store.sequence, store.version_major, store.version_minor, store.features_needed,
        store.features_to_write);
    hex_print("uuid", store.uuid, sizeof(store.uuid));
    (void)printf(", \"created_ns\": %" PRIu64 ", \"open_epoch\": %" PRIu32
                 ", \"segment_pages\": %" PRIu32 ", \"block_bytes_max\": %" PRIu64
                 ", \"map_bytes\": %" PRIu64 ", \"root_count\": %" PRIu32 ", \"roots\": [",
        store.created_ns, store.open_epoch, store.segment_pages, store.block_bytes_max,
        store.map_bytes, store.root_count);
    for (uint32_t i = 0; i < store.root_count; i++)
        (void)printf("%s{\"bytes\": %" PRIu64 ", \"path\": \"%s\"}", i == 0 ? "" : ", ",
            store.root_bytes[i], store.root_paths[i]);
    (void)printf("]}\n");
}

static void
names_print(struct maker *maker)
{
    struct names_file names;

    names_init(&names, &maker->env, maker->store.uuid);
    must(names_read(&names, maker->dir));
    (void)printf("{\"type\": \"names\", \"sequence\": %" PRIu64 ", \"entries\": [", names.sequence);
    for (uint32_t i = 0; i < names.count; i++) {
        const struct name_entry *entry = &names.entries[i];

        (void)printf("%s{\"id\": %" PRIu32 ", \"epoch\": %" PRIu32 ", \"name\": \"",
            i == 0 ? "" : ", ", entry->id, entry->epoch);
        for (const char *at = entry->name; *at != 0; at++)
            (void)printf(*at == '"' ? "\\%c" : "%c", *at);
        (void)printf("\", ");
        hex_print("description", entry->description, entry->description_length);
        (void)printf("}");
    }
    (void)printf("]}\n");
    names_deinit(&names);
}

static void
segments_print(struct maker *maker)
{
    for (uint32_t i = 0; i < ROOTS * SEGMENTS; i++) {
        struct nvme_scan_result result;

        must(
            nvme_scan(maker->nvme, i / SEGMENTS << 24 | i % SEGMENTS, batch_print, maker, &result));
    }
}

/* --- Main ------------------------------------------------------------------------------------- */

static void
maker_open(struct maker *maker, const char *path)
{
    memset(maker, 0, sizeof(*maker));
    env_host(&maker->env);
    maker->env.io = &io_threads_ops;
    maker->env.io_context = &maker->env;
    maker->path = path;
    maker->rng.state = 42;
    maker->memory = env_map(&maker->env, 2 << 20);
    must(codec_open(&maker->env, BLOCK_BYTES_MAX, &maker->codec));
    if (maker->memory == NULL)
        exit(1);
    must(maker->env.fs->dir_open(maker->env.fs_context, path, 0, &maker->dir));
    must(maker->env.fs->dir_open_at(maker->dir, "data", FS_CREATE, &maker->roots[0]));
    must(maker->env.fs->dir_open_at(maker->dir, "second", FS_CREATE, &maker->roots[1]));
}

static void
maker_close(struct maker *maker)
{
    nvme_as_tier(maker->nvme)->ops->close(nvme_as_tier(maker->nvme));
    maker->env.fs->dir_close(maker->roots[1]);
    maker->env.fs->dir_close(maker->roots[0]);
    maker->env.fs->dir_close(maker->dir);
    codec_close(maker->codec);
    env_unmap(&maker->env, maker->memory, 2 << 20);
}

int
main(int argc, char **argv)
{
    static struct maker maker;
    struct rng before;

    if (argc != 2)
        return 2;
    stop_on_proof();
    maker_open(&maker, argv[1]);
    files_make(&maker);
    tier_open(&maker);
    segment_turn(&maker, batch_put(&maker, 3, 0), 3);
    before = maker.rng;
    segment_turn(&maker, batch_put(&maker, 1, 0), 0); /* Its header has a copy. */
    maker.rng = before;                               /* So the blocks below are of all kinds. */
    for (uint32_t i = 0; i < 14; i++)
        (void)batch_put(&maker, 1 + rng_below(&maker.rng, BLOCKS_MAX), i % 3);
    (void)batch_put(&maker, 0, 2);
    (void)batch_put(&maker, 1, 300);
    header_spoil(&maker);
    store_print(&maker);
    names_print(&maker);
    segments_print(&maker);
    maker_close(&maker);
    return 0;
}
