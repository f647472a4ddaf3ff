/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_later_version.c - a store of a later minor version is read: what its index and its batches
 * say that this version does not know is no damage, and is dropped and counted (tiers/FORMAT.md
 * section 9).
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
#include "payload.h"
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
    DATA_BYTES = 8 << 20,
    HEADER_MAGIC = 0x7E91F3B5, /* Of a batch: FORMAT.md section 3.3. */
    AT_MAC = 64,
    AT_SIZE = 128, /* Of its first record, which stands behind it and its page. */
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
record_forge(uint8_t *bytes, size_t size, uint32_t segment, uint32_t page, size_t at, uint8_t value)
{
    uint8_t place[8];
    uint32_t crc;

    bytes[at] = value;
    put_u32_big(place, segment);
    put_u32_big(place + 4, page);
    crc = crc32c(0, bytes, AT_CRC);
    crc = crc32c(crc, bytes + AT_KEY, size - AT_KEY);
    put_u32(bytes + AT_CRC, crc32c(crc, place, sizeof(place)));
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
    record_forge(first.bytes, first.block.size, first.block.segment, first.block.page, at, value);
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

/* The first record of the newest batch is one that a later version wrote: CRC and MAC are right. */
static void
header_forge(const struct store_place *place)
{
    static uint8_t data[DATA_BYTES];
    char name[KIT_PATH_BYTES + 32];
    struct store_file file;
    struct kvt_env env;
    struct fs_dir *dir;
    uint8_t mac[HASH_MAC_BYTES];
    uint8_t *newest = NULL;
    size_t header_bytes;
    bool is_unwritable;

    kvt_env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, place->path, 0, &dir), KVT_OK);
    assert_int_equal(store_file_read(&env, dir, &file, &is_unwritable), KVT_OK);
    env.fs->dir_close(dir);
    (void)snprintf(name, sizeof(name), "%s/data/data.00", place->path);
    assert_int_equal(kit_file_read(name, data, sizeof(data)), sizeof(data));
    for (uint8_t *page = data; page < data + sizeof(data); page += PAGE_BYTES) {
        if (get_u32(page) == HEADER_MAGIC && get_u32(page + 44) > 0 &&
            (newest == NULL || get_u64(page + 56) > get_u64(newest + 56)))
            newest = page;
    }
    assert_non_null(newest);
    assert_int_equal(get_u32(newest + 44), 3); /* Blocks, and kills: batch_put(). */
    assert_int_equal(get_u32(newest + 48), 3);
    record_forge(newest + AT_SIZE + 8, get_u32(newest + AT_SIZE), get_u32(newest + 24),
        get_u32(newest + AT_SIZE + 4), AT_VERSION, 2);
    header_bytes = (size_t)get_u32(newest + 36) * PAGE_BYTES;
    memset(newest + AT_MAC, 0, HASH_MAC_BYTES);
    hash_mac(mac, file.secret, newest, header_bytes);
    memcpy(newest + AT_MAC, mac, sizeof(mac));
    kit_file_write(name, data, sizeof(data));
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

/* A batch with blocks 3, 4 and 5 anew: of the copies that they replace it has the kills. */
static void
batch_put(struct store_place *place)
{
    static uint8_t bytes[3][4096];
    struct payload_key names[3];
    struct kvt_put puts[3] = {0};
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < 3; i++) {
        payload_key_make(&names[i], 3 + i);
        payload_fill(bytes[i], sizeof(bytes[i]), 3 + i, 2);
        puts[i].key = names[i].key;
        puts[i].source = bytes[i];
        puts[i].length = sizeof(bytes[i]);
        puts[i].flags = KVT_PUT_REPLACE;
    }
    assert_int_equal(
        kvt_put_submit(place->store, place->ns, puts, 3, KVT_SYNC, &submit, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

/* One of the three is not known, and is a miss: it hides neither the others nor the kill of what it
 * has replaced. */
static void
batch_expect(struct store_place *place)
{
    uint32_t miss_count = 0;

    for (uint64_t key = 0; key < COUNT; key++) {
        uint64_t version = 0;
        enum kvt_status status = kit_get(place->store, place->ns, key, &version);
        bool is_new = key >= 3 && key <= 5;

        miss_count += status == KVT_MISS && is_new;
        assert_int_equal(status, status == KVT_MISS && is_new ? KVT_MISS : KVT_OK);
        assert_int_equal(version, status == KVT_MISS ? 0 : is_new ? 2 : 1);
    }
    assert_int_equal(miss_count, 1);
}

static void
what_is_not_known_of_a_batch_hides_no_other(void **state)
{
    struct store_place place = {0};
    struct kvt_check_report report = {.struct_size = sizeof(report)};

    (void)state;
    place_begin(&place);
    place_open(&place, 0);
    batch_put(&place);
    assert_int_equal(kvt_close(place.store), KVT_OK);
    header_forge(&place);
    assert_int_equal(kvt_check(place.path, NULL, &report), KVT_OK);
    assert_int_equal(report.finding_count, 0);
    place_open(&place, KVT_OPEN_REBUILD);
    assert_int_equal(kit_stats(place.store).recover_dropped_count, 1);
    batch_expect(&place);
    assert_int_equal(kvt_close(place.store), KVT_OK);
    place_open(&place, 0);
    batch_expect(&place);
    assert_int_equal(kvt_close(place.store), KVT_OK);
    kit_dir_remove(place.dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_is_dropped_and_counted),
        cmocka_unit_test(what_is_not_known_of_a_batch_hides_no_other),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
