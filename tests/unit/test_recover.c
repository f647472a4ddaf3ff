/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_recover.c - what an open makes of an index: whether it believes it, and what it does with
 * records that are whole but contradict what else is known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "batch_header.h"
#include "block_record.h"
#include "env.h"
#include "index.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCKS = 12,
    CHOSEN = 5, /* The key whose record is changed. */
    SEGMENTS = 8,
    SEGMENT_PAGES = 256,
};

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
};

static kvt_store *
store_open(const struct fixture *fixture, kvt_namespace *ns_out)
{
    struct kvt_options options = kit_options();
    kvt_store *store = NULL;

    assert_int_equal(kvt_open(fixture->path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, ns_out), KVT_OK);
    return store;
}

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    kvt_namespace ns;
    kvt_store *store;

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    store = store_open(fixture, &ns);
    for (uint64_t key = 0; key < BLOCKS; key++)
        assert_int_equal(kit_put(store, ns, key, 1, 9000 + key, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

/* --- Whether the index is believed ------------------------------------------------------------ */

static enum index_condition
condition_of(const struct fixture *fixture)
{
    enum index_condition condition = INDEX_ABSENT;
    char path[KIT_PATH_BYTES + 64];
    struct kvt_env env;
    struct fs_dir *dir;

    snprintf(path, sizeof(path), "%s/meta", fixture->path);
    env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, path, 0, &dir), KVT_OK);
    assert_int_equal(index_lmdb_ops.inspect(NULL, &env, dir, &condition), KVT_OK);
    env.fs->dir_close(dir);
    return condition;
}

static void
only_a_close_leaves_a_clean_index(void **state)
{
    kvt_namespace ns;
    kvt_store *store;

    assert_int_equal(condition_of(*state), INDEX_CLEAN);
    store = store_open(*state, &ns);
    assert_int_equal(condition_of(*state), INDEX_UNCLEAN);
    kvt_abort(store);
    assert_int_equal(condition_of(*state), INDEX_UNCLEAN);
    store = store_open(*state, &ns);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(condition_of(*state), INDEX_CLEAN);
}

static bool
active_count(void *visitor, const struct index_segment *facts)
{
    *(uint32_t *)visitor += facts->state == SEGMENT_ACTIVE;
    return true;
}

/* Who opens the store behind a crash searches what is ACTIVE for batches: the segment that is being
 * filled, and that of the life before, but none that was filled up. */
static void
segments_that_are_full_are_known_to_be(void **state)
{
    const struct fixture *fixture = *state;
    char path[KIT_PATH_BYTES + 64];
    uint32_t count = 0;
    struct kvt_env env;
    struct fs_dir *dir;
    struct index *index;
    kvt_namespace ns;
    kvt_store *store = store_open(fixture, &ns);

    for (uint64_t key = 0; key < 3 * (SEGMENT_PAGES / 16); key++)
        assert_int_equal(
            kit_put(store, ns, 1000 + key, 1, KIT_BLOCK_BYTES_MAX - 4096, KVT_SYNC), KVT_OK);
    kvt_abort(store);
    snprintf(path, sizeof(path), "%s/meta", fixture->path);
    env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, path, 0, &dir), KVT_OK);
    assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, false, &index), KVT_OK);
    assert_int_equal(index->ops->each_segment(index, active_count, &count), KVT_OK);
    assert_int_equal(count, 2);
    index->ops->close(index);
    env.fs->dir_close(dir);
}

/*
 * A store whose process died when two batches were written and synced, and their records not yet
 * committed: a new block, and a replacement. The index has their segment as FREE, or ACTIVE.
 */
static void
crashed_make(const struct fixture *fixture, struct fixture *crashed, bool is_active)
{
    char from[KIT_PATH_BYTES + 64], to[KIT_PATH_BYTES + 64];
    kvt_namespace ns;
    kvt_store *store = store_open(fixture, &ns);

    if (is_active)
        assert_int_equal(kit_put(store, ns, 99, 1, 100, KVT_SYNC), KVT_OK);
    snprintf(crashed->path, sizeof(crashed->path), "%s/crashed", fixture->dir);
    kit_dir_copy(fixture->path, crashed->path); /* The index before the two. */
    assert_int_equal(kit_put(store, ns, 100, 1, 100, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_put(store, ns, CHOSEN, 2, 100, KVT_SYNC), KVT_OK);
    kvt_abort(store);
    snprintf(from, sizeof(from), "%s/data", fixture->path);
    snprintf(to, sizeof(to), "%s/data", crashed->path);
    kit_dir_remove(to);
    kit_dir_copy(from, to);
}

static void
rebuilt_judge(const struct fixture *crashed)
{
    struct kvt_options options = kit_options();
    kvt_namespace ns;
    uint64_t version = 0;
    kvt_store *store;

    options.flags = KVT_OPEN_REBUILD;
    assert_int_equal(kvt_open(crashed->path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, CHOSEN, &version), KVT_OK);
    assert_int_equal(version, 1);
    assert_int_equal(kit_get(store, ns, 100, &version), KVT_MISS);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* Their segment is used again, by less than was there: what is behind must not count as its own. */
static void
what_a_crash_left_uncommitted_never_comes_to_life(void **state)
{
    struct fixture crashed;
    kvt_namespace ns;
    uint64_t version = 0;
    kvt_store *store;

    crashed_make(*state, &crashed, false);
    store = store_open(&crashed, &ns);
    assert_int_equal(kit_get(store, ns, CHOSEN, &version), KVT_OK);
    assert_int_equal(version, 1);
    assert_int_equal(kit_put(store, ns, 101, 1, 100, KVT_SYNC), KVT_OK);
    kvt_abort(store);
    rebuilt_judge(&crashed);
}

static void
what_a_crash_left_in_a_free_segment_is_void_when_the_next_open_returns(void **state)
{
    struct fixture crashed;
    kvt_namespace ns;

    crashed_make(*state, &crashed, false);
    kvt_abort(store_open(&crashed, &ns));
    rebuilt_judge(&crashed);
}

static void
what_a_crash_left_in_an_active_segment_is_void_when_the_next_open_returns(void **state)
{
    struct fixture crashed;
    kvt_namespace ns;

    crashed_make(*state, &crashed, true);
    kvt_abort(store_open(&crashed, &ns));
    rebuilt_judge(&crashed);
}

/* Change one byte of the payload on disk. */
static void
payload_tear(const struct fixture *fixture, const struct kvt_scan_entry *block)
{
    char path[KIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/data/data.00", fixture->path);
    kit_byte_damage(path, (long)(block->segment * SEGMENT_PAGES + block->page) * 4096);
}

/* A crash may leave a header whole and its payloads not. */
static void
a_torn_copy_does_not_hide_the_one_that_it_was_to_replace(void **state)
{
    const struct fixture *fixture = *state;
    struct kvt_scan_entry blocks[BLOCKS];
    struct kvt_options options = kit_options();
    kvt_namespace ns;
    kvt_store *store = store_open(fixture, &ns);
    uint64_t cursor = 0, version = 0;
    uint32_t count = 0, newest = 0;

    assert_int_equal(kit_put(store, ns, CHOSEN, 2, 100, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_scan(store, &cursor, blocks, BLOCKS, &count), KVT_OK);
    assert_int_equal(count, BLOCKS);
    for (uint32_t i = 1; i < count; i++) {
        if (blocks[i].sequence > blocks[newest].sequence)
            newest = i;
    }
    kvt_abort(store);
    payload_tear(fixture, &blocks[newest]);
    options.flags = KVT_OPEN_REBUILD;
    assert_int_equal(kvt_open(fixture->path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, CHOSEN, &version), KVT_OK);
    assert_int_equal(version, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* --- Changing one record ---------------------------------------------------------------------- */

static bool
chosen_find(void *visitor, const struct index_block *block)
{
    struct block_record *record = visitor;
    struct payload_key key;

    payload_key_make(&key, CHOSEN);
    assert_int_equal(
        block_record_decode(record, block->segment, block->page, block->bytes, block->size),
        KVT_OK);
    return record->key.length != key.key.length ||
           memcmp(record->key.bytes, key.bytes, record->key.length) != 0;
}

/* The index of a store that is closed, and the record of the chosen key. */
static struct index *
index_open(const struct fixture *fixture, struct fs_dir **dir_out, struct block_record *record_out)
{
    static struct kvt_env env;
    struct index *index;
    char path[KIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/meta", fixture->path);
    env_host(&env);
    assert_int_equal(env.fs->dir_open(env.fs_context, path, 0, dir_out), KVT_OK);
    assert_int_equal(index_lmdb_ops.open(NULL, &env, *dir_out, false, &index), KVT_OK);
    assert_int_equal(index->ops->each_block(index, chosen_find, record_out), KVT_OK);
    return index;
}

static void
index_close(struct index *index, struct fs_dir *dir)
{
    struct kvt_env env;

    env_host(&env);
    index->ops->close(index);
    env.fs->dir_close(dir);
}

static bool
segment_find(void *visitor, const struct index_segment *facts)
{
    struct index_segment *wanted = visitor;

    if (facts->number != wanted->number)
        return true;
    *wanted = *facts;
    return false;
}

/* The facts of a segment; of one that the index does not have, what they would be. */
static struct index_segment
segment_facts_of(struct index *index, uint32_t number)
{
    struct index_segment facts = {.number = number, .generation = 1};

    assert_int_equal(index->ops->each_segment(index, segment_find, &facts), KVT_OK);
    return facts;
}

/* The record says something else, and the facts of the segments agree with it: so the index is
 * whole, and only what else is known contradicts it. */
static void
record_change(const struct fixture *fixture, void (*change)(struct block_record *))
{
    struct fs_dir *dir;
    struct block_record record;
    struct index *index = index_open(fixture, &dir, &record);
    struct index_segment facts[2];
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

    const struct index_block old = {.segment = record.extent.segment, .page = record.extent.page};
    facts[0] = segment_facts_of(index, record.extent.segment);
    (void)block_record_encode(&record, bytes);
    facts[0].record_count--;
    facts[0].crc_xor ^= block_record_crc(bytes);
    change(&record);
    const struct index_block new = {.segment = record.extent.segment,
        .page = record.extent.page,
        .bytes = bytes,
        .size = (uint32_t)block_record_encode(&record, bytes)};
    bool has_moved = new.segment != old.segment;
    if (has_moved)
        facts[1] = segment_facts_of(index, new.segment);
    facts[has_moved].record_count++;
    facts[has_moved].crc_xor ^= block_record_crc(bytes);
    const struct index_batch batch = {.deleted = &old,
        .deleted_count = 1,
        .added = &new,
        .added_count = 1,
        .segments = facts,
        .segment_count = has_moved ? 2 : 1};
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    index_close(index, dir);
}

/* A second record of the chosen key, whose sequence is so much higher, behind all others; it has no
 * parent. */
static void
record_double(const struct fixture *fixture, int higher)
{
    struct fs_dir *dir;
    struct block_record record;
    struct index_segment facts;
    struct index *index = index_open(fixture, &dir, &record);
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

    facts = segment_facts_of(index, record.extent.segment);
    record.extent.page = SEGMENT_PAGES / 2;
    record.sequence += (uint64_t)higher;
    record.parent = (struct hash128){0};
    const struct index_block new = {.segment = record.extent.segment,
        .page = record.extent.page,
        .bytes = bytes,
        .size = (uint32_t)block_record_encode(&record, bytes)};
    facts.record_count++;
    facts.crc_xor ^= block_record_crc(bytes);
    const struct index_batch batch = {
        .added = &new, .added_count = 1, .segments = &facts, .segment_count = 1};
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    index_close(index, dir);
}

/* --- What is left ----------------------------------------------------------------------------- */

static void
judge(const struct fixture *fixture, uint64_t dropped_count)
{
    kvt_namespace ns;
    kvt_store *store = store_open(fixture, &ns);
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct payload_key key;
    uint64_t version = 0;
    uint8_t tiers = 0;

    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.recover_dropped_count, dropped_count);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        payload_key_make(&key, i);
        assert_int_equal(kvt_lookup(store, ns, &key.key, 1, &tiers, NULL, NULL), KVT_OK);
        assert_int_equal(tiers, i == CHOSEN ? 0 : KVT_TIER_NVME);
        assert_int_equal(kit_get(store, ns, i, &version), i == CHOSEN ? KVT_MISS : KVT_OK);
    }
    assert_int_equal(kit_put(store, ns, CHOSEN, 2, 9000, KVT_SYNC), KVT_OK);
    kvt_abort(store);
    store = store_open(fixture, &ns);
    assert_int_equal(kit_get(store, ns, CHOSEN, &version), KVT_OK);
    assert_int_equal(version, 2);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
of_another_generation(struct block_record *record)
{
    record->extent.generation++;
}

static void
of_no_segment(struct block_record *record)
{
    record->extent.segment = SEGMENTS;
}

static void
of_a_free_segment(struct block_record *record)
{
    record->extent.segment = SEGMENTS - 1;
}

static void
beyond_its_segment(struct block_record *record)
{
    record->extent.page = SEGMENT_PAGES - 1;
}

/* Each block of the fixture has a batch of its own: a header, and three pages. */
static void
over_the_one_before(struct block_record *record)
{
    record->extent.page -= 2;
}

static void
longer_than_a_block(struct block_record *record)
{
    record->length = record->stored_length = KIT_BLOCK_BYTES_MAX + 1;
    record->extent.page = SEGMENT_PAGES / 2;
}

static void
of_no_namespace(struct block_record *record)
{
    record->key.namespace_id = 77;
}

static void
of_a_cleared_namespace(struct block_record *record)
{
    record->namespace_epoch++;
}

static void
a_record_of_another_generation_is_dropped(void **state)
{
    record_change(*state, of_another_generation);
    judge(*state, 1);
}

static void
a_record_of_no_segment_is_dropped(void **state)
{
    record_change(*state, of_no_segment);
    judge(*state, 1);
}

static void
a_record_of_a_free_segment_is_dropped(void **state)
{
    record_change(*state, of_a_free_segment);
    judge(*state, 1);
}

static void
a_record_beyond_its_segment_is_dropped(void **state)
{
    record_change(*state, beyond_its_segment);
    judge(*state, 1);
}

static void
a_record_over_the_one_before_it_is_dropped(void **state)
{
    record_change(*state, over_the_one_before);
    judge(*state, 1);
}

static void
a_record_longer_than_a_block_is_dropped(void **state)
{
    record_change(*state, longer_than_a_block);
    judge(*state, 1);
}

/* That is how a clear works: nothing is wrong with such a record. */
static void
a_record_of_a_cleared_namespace_is_passed_over(void **state)
{
    record_change(*state, of_a_cleared_namespace);
    judge(*state, 0);
}

static void
a_record_of_no_namespace_is_passed_over(void **state)
{
    record_change(*state, of_no_namespace);
    judge(*state, 0);
}

/* The kill of an old copy follows the commit of the new one: a crash may come between. */
static void
delete_after_doubling(const struct fixture *fixture, int higher)
{
    kvt_namespace ns;
    kvt_store *store;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct payload_key key;
    uint8_t tiers = 0;

    record_double(fixture, higher);
    payload_key_make(&key, CHOSEN);
    store = store_open(fixture, &ns);
    assert_int_equal(kvt_lookup(store, ns, &key.key, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, KVT_TIER_NVME);
    assert_int_equal(kit_delete(store, ns, CHOSEN), KVT_OK);
    kvt_abort(store);
    store = store_open(fixture, &ns);
    assert_int_equal(kvt_lookup(store, ns, &key.key, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, 0);
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.recover_rebuilt_count, 0);
    assert_int_equal(stats.recover_block_count, BLOCKS - 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
an_older_record_of_a_key_does_not_outlive_the_newer_one(void **state)
{
    delete_after_doubling(*state, -1);
}

static void
an_older_record_that_was_loaded_first_does_not_either(void **state)
{
    delete_after_doubling(*state, 1);
}

static struct hash128 parent_named;

static void
of_that_parent(struct block_record *record)
{
    record->parent = parent_named;
}

/* The entry of the older one may be that of the newer one. */
static void
the_parent_of_an_older_record_is_not_that_of_the_newer_one(void **state)
{
    kvt_namespace ns;
    kvt_store *store = store_open(*state, &ns);

    parent_named = residency_at(store->map, kit_entry(store, ns, 0))->fingerprint;
    assert_int_equal(kvt_close(store), KVT_OK);
    record_change(*state, of_that_parent);
    store = store_open(*state, &ns);
    assert_int_equal(
        entries_parent(store->entries, kit_entry(store, ns, CHOSEN)), kit_entry(store, ns, 0));
    assert_int_equal(kvt_close(store), KVT_OK);
    record_double(*state, 1);
    store = store_open(*state, &ns);
    assert_int_equal(entries_parent(store->entries, kit_entry(store, ns, CHOSEN)), ENTRY_NONE);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* A kill of the chosen key; the fingerprint is what it names it by. */
struct kill_search {
    struct hash128 fingerprint;
    uint32_t count;
};

static bool
kill_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct kill_search *search = visitor;

    (void)records;
    for (uint32_t i = 0; i < header->kill_count; i++)
        search->count += hash128_equal(kills[i].fingerprint, search->fingerprint);
    return true;
}

/* Its header stands: without a kill a rebuild would find it behind the delete of the newer one. */
static void
an_older_record_that_an_open_finds_gets_a_kill(void **state)
{
    struct kill_search search = {.count = 0};
    struct segment *segment;
    uint32_t cursor = 0;
    struct block_record record;
    struct fs_dir *dir;
    struct index *index;
    kvt_namespace ns;
    kvt_store *store;

    record_double(*state, -1);
    index = index_open(*state, &dir, &record);
    index_close(index, dir);
    store = store_open(*state, &ns);
    search.fingerprint = key_fingerprint(store->fingerprint_seed, &record.key);
    assert_int_equal(kvt_flush(store), KVT_OK);
    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        struct nvme_scan_result result;

        assert_int_equal(
            nvme_scan(store->nvme, segment->number, kill_visit, &search, &result), KVT_OK);
    }
    assert_int_equal(search.count, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_a_close_leaves_a_clean_index, setup, teardown),
        cmocka_unit_test_setup_teardown(segments_that_are_full_are_known_to_be, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_a_crash_left_uncommitted_never_comes_to_life, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_a_crash_left_in_a_free_segment_is_void_when_the_next_open_returns, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            what_a_crash_left_in_an_active_segment_is_void_when_the_next_open_returns, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            a_torn_copy_does_not_hide_the_one_that_it_was_to_replace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_of_another_generation_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_of_no_segment_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_of_a_free_segment_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_beyond_its_segment_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_record_over_the_one_before_it_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_longer_than_a_block_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_record_of_a_cleared_namespace_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_of_no_namespace_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_older_record_of_a_key_does_not_outlive_the_newer_one, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_older_record_that_was_loaded_first_does_not_either, setup, teardown),
        cmocka_unit_test_setup_teardown(
            the_parent_of_an_older_record_is_not_that_of_the_newer_one, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_older_record_that_an_open_finds_gets_a_kill, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
