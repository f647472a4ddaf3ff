/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_seeds.c - the first inputs of every fuzz target, made with the library's own writers.
 *
 * Usage: fuzz_seeds FOLDER. Writes FOLDER/TARGET/NAME, always the same bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "codec.h"
#include "fuzz_world.h"
#include "index_model.h"
#include "kvtool_archive.h"
#include "live_page.h"
#include "lmdb_page.h"
#include "names_file.h"
#include "rng.h"
#include "scratch_dir.h"
#include "segment_facts.h"
#include "store_file.h"

enum {
    SEED_BYTES_MAX = 1 << 20,
    SCAN_PAGES = 64,
};

static const char *folder;
static uint8_t seed[SEED_BYTES_MAX];
static size_t seed_size;

/* --- Writing ---------------------------------------------------------------------------------- */

static void
seed_add(const void *bytes, size_t size)
{
    assert_true(size <= sizeof(seed) - seed_size);
    memcpy(seed + seed_size, bytes, size);
    seed_size += size;
}

static void
seed_add_number(uint64_t number, size_t width)
{
    uint8_t bytes[8];

    put_u64(bytes, number);
    seed_add(bytes, width);
}

/* What was added so far becomes a file. */
static void
seed_write(const char *target, const char *name)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, target);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(seed, 1, seed_size, file), seed_size);
    assert_int_equal(fclose(file), 0);
    seed_size = 0;
}

/* --- Records and headers ---------------------------------------------------------------------- */

static struct block_record
record_make(uint32_t segment, uint32_t page, uint32_t length)
{
    struct block_record record = {.namespace_epoch = 1,
        .extent = {segment, 3, page},
        .sequence = ((uint64_t)2 << 40) + page,
        .length = length,
        .stored_length = length,
        .codec = RECORD_WHOLE,
        .part_count = 1,
        .depth = 4,
        .token_count = 16};

    assert_true(key_init(&record.key, fuzz_secret, 1, 0, "a key of a block", 16));
    return record;
}

static void
records_write(void)
{
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
    struct block_record record = record_make(1, 9, 70000);

    for (int i = 0; i < 2; i++) {
        seed_add_number(1, 4);
        seed_add_number(9, 4);
        seed_add(bytes, block_record_encode(&record, bytes));
        seed_write("block_record", i == 0 ? "whole" : "parts");
        record.codec = RECORD_PARTS;
        record.part_count = 4;
        record.stored_length = record_raw_bytes(record.length, 4);
    }
}

/* A header of `count` blocks of 5,000 bytes and `kills` kills at a page; how long its run is. */
static uint32_t
header_make(uint32_t segment, uint32_t page, uint32_t count, uint32_t kills, uint8_t *target)
{
    static struct tier_block blocks[BATCH_BLOCKS_MAX];
    static struct tier_kill killed[BATCH_KILLS_MAX];
    struct batch_header header = {.extent = {segment, 3, page},
        .header_pages = batch_header_pages(count, kills),
        .sequence = 100 + page,
        .block_count = count,
        .kill_count = kills};

    memcpy(header.store_uuid, fuzz_uuid, sizeof(header.store_uuid));
    header.total_pages = header.header_pages + 2 * count;
    header.is_recycle = count == 0 && page == 0;
    for (uint32_t i = 0; i < count; i++)
        blocks[i].record = record_make(segment, page + header.header_pages + 2 * i, 5000 + i);
    for (uint32_t i = 0; i < kills; i++)
        killed[i] = (struct tier_kill){.extent = {0, 1, i}, .sequence = i};
    batch_header_encode(&header, blocks, killed, fuzz_secret, target);
    return header.total_pages;
}

static void
headers_write(void)
{
    const uint32_t shapes[][3] = {{0, 1, 0}, {0, 0, 3}, {40, 5, 2}, {8, 60, 30}};

    for (size_t i = 0; i < 4; i++) {
        char name[16];

        seed_add_number(shapes[i][0], 4);
        (void)header_make(1, shapes[i][0], shapes[i][1], shapes[i][2], seed + seed_size);
        seed_size += (size_t)batch_header_pages(shapes[i][1], shapes[i][2]) * PAGE_BYTES;
        (void)snprintf(name, sizeof(name), "shape-%zu", i);
        seed_write("batch_header", name);
    }
}

/* Two segments of 32 pages: a chain of three batches, and a recycle header before one batch. */
static void
segments_write(void)
{
    for (int state = 0; state < 3; state++) {
        char name[16];
        uint8_t *data = seed + 2;
        uint32_t page = 0;

        memset(seed, 0, 2 + SCAN_PAGES * PAGE_BYTES);
        seed[0] = (uint8_t)state;
        seed[1] = 3;
        for (uint32_t i = 0; i < 3; i++)
            page += header_make(0, page, 1 + i, i, data + (size_t)page * PAGE_BYTES);
        data += (size_t)SCAN_PAGES / 2 * PAGE_BYTES;
        page = header_make(1, 0, 0, 2, data);
        (void)header_make(1, page, 1, 1, data + (size_t)page * PAGE_BYTES);
        seed_size = 2 + (state == 2 ? 20 : SCAN_PAGES) * (size_t)PAGE_BYTES;
        (void)snprintf(name, sizeof(name), "state-%d", state);
        seed_write("nvme_scan", name);
    }
}

/* --- Files ------------------------------------------------------------------------------------ */

static size_t
file_add(const struct scratch_dir *scratch, const char *name)
{
    size_t size = scratch_read(scratch, name, seed + seed_size, sizeof(seed) - seed_size);

    seed_size += size;
    return size;
}

static void
store_files_write(const struct kvt_env *env, struct fs_dir *dir, struct scratch_dir *scratch)
{
    struct store_file file = {.open_epoch = 1,
        .segment_pages = 256,
        .block_bytes_max = 1 << 18,
        .map_bytes = 1 << 20,
        .root_count = 2,
        .root_bytes = {8 << 20, 16 << 20},
        .root_paths = {"", "/another/device"}};

    memcpy(file.uuid, fuzz_uuid, sizeof(file.uuid));
    memcpy(file.secret, fuzz_secret, sizeof(file.secret));
    assert_int_equal(store_file_write(env, dir, &file), KVT_OK);
    seed_add_number(0, 1);
    (void)file_add(scratch, "STORE.a");
    (void)file_add(scratch, "STORE.b");
    seed_write("store_file", "both");
    seed_add_number(2, 1);
    (void)file_add(scratch, "STORE.a");
    seed_write("store_file", "one");
}

static void
names_files_write(const struct kvt_env *env, struct fs_dir *dir, struct scratch_dir *scratch)
{
    struct names_file names;
    struct name_entry *entry;
    size_t first;

    names_init(&names, env, fuzz_uuid);
    assert_int_equal(names_add(&names, "chat", "model of chat", 13, &entry), KVT_OK);
    assert_int_equal(names_add(&names, "code", "", 0, &entry), KVT_OK);
    assert_int_equal(names_write(&names, dir), KVT_OK);
    seed_size = 2;
    first = file_add(scratch, "NAMES.a");
    (void)file_add(scratch, "NAMES.b");
    put_u16(seed, (uint16_t)(first / 8));
    seed_write("names_file", "two-names");
    names_deinit(&names);
}

/* Small ones: a fuzzer changes few bytes of a large file. */
static void
lmdb_files_write(const struct kvt_env *env, struct fs_dir *dir, struct scratch_dir *scratch)
{
    static struct index_model model;
    static struct model_batch batch;
    struct rng rng = {3};
    struct index *index;
    struct lmdb_meta meta;
    uint32_t commits = 0;

    for (uint32_t i = 0; i < 3; i++) {
        char name[16];

        memset(&model, 0, sizeof(model));
        assert_int_equal(index_lmdb_ops.create(NULL, env, dir, 1 << 20, &index), KVT_OK);
        assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
        assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
        for (uint32_t n = 0; n < i * i; n++, commits++) {
            model_batch_random(&model, &batch, &rng, 24, 12);
            assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
        }
        index_lmdb_ops.close(index);
        (void)file_add(scratch, "data.mdb");
        assert_int_equal(lmdb_meta_parse(&meta, seed + PAGE_BYTES, 1), KVT_OK);
        seed_size = (size_t)(meta.page_last + 3) * PAGE_BYTES;
        (void)snprintf(name, sizeof(name), "commits-%u", commits);
        seed_write("lmdb_check", name);
    }
}

static void
live_page_seed(void)
{
    static struct kvt_live live = {
        .struct_size = sizeof(live), .pid = 77, .program = "server", .lease_shown_count = 2};

    live.options.struct_size = sizeof(live.options);
    seed_size = live_page_write(seed, &live, UINT64_C(1) << 60);
    seed_write("live_page", "two-leases");
}

/* --- Archives, codecs, what callers give ------------------------------------------------------ */

static bool
archive_sink(void *context, const void *bytes, uint64_t size)
{
    (void)context;
    seed_add(bytes, size);
    return true;
}

static void
archive_write(void)
{
    struct archive_writer writer;
    struct archive_namespace space = {
        .name = "chat", .description = {1, 2}, .description_length = 2};
    struct archive_block block = {
        .part_count = 2, .key = "first", .key_length = 5, .parent = "root", .parent_length = 4};

    assert_true(archive_begin(&writer, archive_sink, NULL));
    assert_true(archive_namespace_write(&writer, &space));
    assert_true(archive_block_write(&writer, &block, "payload.", 8));
    assert_true(archive_block_write(&writer, &block, "another payload.", 16));
    assert_true(archive_end(&writer));
    archive_free(&writer);
    seed_write("archive", "two-blocks");
}

static void
codec_write(const struct kvt_env *env)
{
    static uint8_t part[16384];
    static uint8_t stored[16384];
    struct rng rng = {7};
    struct codec *codec;

    assert_int_equal(codec_open(env, sizeof(part), &codec), KVT_OK);
    for (size_t i = 0; i < sizeof(part); i++)
        part[i] = i % 2 == 1 ? (uint8_t)(0x3c + rng_below(&rng, 3)) : (uint8_t)rng_next(&rng);
    for (uint32_t id = 0; id < 3; id++) {
        uint64_t size = 0;
        char name[16];
        size_t length = id == 0 ? 300 : sizeof(part);

        (void)codec_encode(codec, (enum codec_id)id, part, length, stored, &size);
        seed_add_number(id, 1);
        seed_add_number(length - 1, 2);
        seed_add(stored, size);
        (void)snprintf(name, sizeof(name), "codec-%u", id);
        seed_write("codec", name);
    }
    codec_close(codec);
}

static void
text_write(const char *name, const char *text)
{
    seed_add(text, strlen(text));
    seed_write("key", name);
}

static void
callers_write(void)
{
    struct kvt_options options = {.struct_size = sizeof(options)};

    text_write("hex", "name/space/00ff10@7");
    text_write("text", "chat/\"a \\\"quoted\\\" \\x00 key\"@65535");
    text_write("number", "64K");
    text_write("share", "12.5%");
    for (int i = 0; i < 2; i++) {
        seed_add_number((uint64_t)i, 1);
        seed_add(&options, sizeof(options));
        seed_write("options", i == 0 ? "defaults" : "numbers");
        options.nvme_capacity_bytes = UINT64_C(1) << 30;
        options.host_capacity_bytes = UINT64_C(1) << 28;
    }
    for (uint32_t i = 0; i < 2; i++) {
        seed_add_number(4, 4);
        for (uint32_t run = 0; run <= i; run++) {
            seed_add_number(0, 1);
            seed_add_number(run * 4096, 4);
            seed_add_number(2, 2);
            seed_add_number(64, 3);
            seed_add_number(2048, 4);
            seed_add_number(64, 4);
        }
        seed_write("layout", i == 0 ? "one-run" : "two-runs");
    }
}

int
main(int argc, char **argv)
{
    struct scratch_dir scratch;
    struct kvt_env env;
    struct fs_dir *dir;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    (void)mkdir(folder, 0755);
    env_host(&env);
    scratch_dir_make(&scratch);
    assert_int_equal(env.fs->dir_open(env.fs_context, scratch.path, 0, &dir), KVT_OK);
    records_write();
    headers_write();
    segments_write();
    store_files_write(&env, dir, &scratch);
    names_files_write(&env, dir, &scratch);
    lmdb_files_write(&env, dir, &scratch);
    live_page_seed();
    archive_write();
    codec_write(&env);
    callers_write();
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}
