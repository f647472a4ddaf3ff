/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_later_version.c - a store of a later minor version is read: what its index says that this
 * version does not know is no damage, and is dropped and counted (tiers/FORMAT.md section 9).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "block_record.h"
#include "bytes.h"
#include "env.h"
#include "hash.h"
#include "index.h"
#include "kvtier/kvtier_unstable.h"
#include "stop_on_proof.h"
#include "store_file.h"
#include "store_kit.h"

enum {
    COUNT = 10,     /* Blocks. */
    AT_VERSION = 0, /* In a record: FORMAT.md section 3.4. */
    AT_CODEC = 3,
    AT_CRC = 96,
    AT_KEY = 100,
    LATER_FEATURE = 2, /* Of those that a writer must know. */
};

struct store_place {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
};

struct first_block {
    struct index_block block;
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
    struct index_segment facts; /* Of its segment. */
};

static bool
block_take(void *visitor, const struct index_block *block)
{
    struct first_block *first = visitor;

    memcpy(first->bytes, block->bytes, block->size);
    first->block = *block;
    first->block.bytes = first->bytes;
    return false;
}

static bool
segment_take(void *visitor, const struct index_segment *segment)
{
    struct first_block *first = visitor;

    if (segment->number == first->block.segment)
        first->facts = *segment;
    return true;
}

/* The byte of the record is another one, and its CRC is right. */
static void
record_forge(struct first_block *first, size_t at, uint8_t value)
{
    uint8_t place[8];
    uint32_t crc;

    first->bytes[at] = value;
    put_u32_big(place, first->block.segment);
    put_u32_big(place + 4, first->block.page);
    crc = crc32c(0, first->bytes, AT_CRC);
    crc = crc32c(crc, first->bytes + AT_KEY, first->block.size - AT_KEY);
    put_u32(first->bytes + AT_CRC, crc32c(crc, place, sizeof(place)));
}

/* The first record of the index is one that a later version wrote. */
static void
index_forge(const struct kvt_env *env, struct fs_dir *meta, size_t at, uint8_t value)
{
    struct first_block first = {0};
    struct index_batch batch = {
        .added = &first.block, .added_count = 1, .segments = &first.facts, .segment_count = 1};
    struct index *index = NULL;

    assert_int_equal(index_lmdb_ops.open(NULL, env, meta, false, &index), KVT_OK);
    assert_int_equal(index->ops->each_block(index, block_take, &first), KVT_OK);
    assert_int_equal(index->ops->each_segment(index, segment_take, &first), KVT_OK);
    first.facts.crc_xor ^= block_record_crc(first.bytes);
    record_forge(&first, at, value);
    first.facts.crc_xor ^= block_record_crc(first.bytes);
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    assert_int_equal(index->ops->mark(index, true), KVT_OK);
    index->ops->close(index);
}

static void
store_forge(const struct store_place *place, size_t at, uint8_t value)
{
    struct store_file file;
    struct fs_dir *dir, *meta;
    struct kvt_env env;
    bool is_unwritable;

    kvt_env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, place->path, 0, &dir), KVT_OK);
    assert_int_equal(env.fs->dir_open_at(dir, "meta", 0, &meta), KVT_OK);
    index_forge(&env, meta, at, value);
    assert_int_equal(store_file_read(&env, dir, &file, &is_unwritable), KVT_OK);
    file.features_to_write |= LATER_FEATURE;
    assert_int_equal(store_file_write(&env, dir, &file), KVT_OK);
    env.fs->dir_close(meta);
    env.fs->dir_close(dir);
}

static void
place_open(struct store_place *place, uint32_t flags)
{
    place->options.flags = flags;
    assert_int_equal(kvt_open(place->path, &place->options, &place->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(place->store, "space", "model", 5, &place->ns), KVT_OK);
}

static void
place_begin(struct store_place *place)
{
    kit_dir_make(place->dir);
    (void)snprintf(place->path, sizeof(place->path), "%s/store", place->dir);
    place->options = kit_options();
    place_open(place, 0);
    for (uint64_t key = 0; key < COUNT; key++)
        assert_int_equal(kit_put(place->store, place->ns, key, 1, 4096, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(place->store), KVT_OK);
}

static void
what_is_not_known_is_dropped_and_counted(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{AT_CODEC, 2}, {AT_VERSION, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store_place place = {0};
        struct kvt_check_report report = {.struct_size = sizeof(report)};
        uint32_t found = 0;

        place_begin(&place);
        store_forge(&place, cases[i].at, cases[i].value);
        place.options.flags = 0;
        refused(kvt_open(place.path, &place.options, &place.store), KVT_E_FORMAT, "only be read");
        place_open(&place, KVT_OPEN_READ_ONLY);
        for (uint64_t key = 0; key < COUNT; key++) {
            uint64_t version = 0;

            found += kit_get(place.store, place.ns, key, &version) == KVT_OK;
        }
        assert_int_equal(found, COUNT - 1);
        assert_int_equal(kit_stats(place.store).recover_dropped_count, 1);
        assert_int_equal(kvt_close(place.store), KVT_OK);
        /* An examination says so of that record, and of nothing else. */
        assert_int_equal(kvt_check(place.path, NULL, &report), KVT_OK);
        assert_int_equal(report.damaged_count, 1);
        assert_int_equal(report.finding_count, 1);
        kit_dir_remove(place.dir);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_is_dropped_and_counted),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
