/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index_pages.c - a transaction of the index touches no page of its map that was not proved
 * before, in a map of the index's own: what the disk cannot read is an error then, and through
 * LMDB's map it would be a SIGBUS.
 *
 * LMDB's map is closed before each transaction. A page opens when the index has proved it; what
 * LMDB touches otherwise raises a signal, which notes the page and opens it.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "index_model.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    MAP_BYTES = 32 << 20,
    SMALL_MAP_BYTES = 64 * PAGE_BYTES,
    SEGMENTS = 16,
    PAGES = 2500, /* Of a segment: there are three levels when all of them have records. */
    SEEDS = 6,
    ROUNDS = 120, /* Of each seed. */
    FILL_ROUNDS = 60,
    LIST_MAX = 4096,
};

#define NO_PAGE UINT64_MAX

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_make, world_end)

/* --- 1. A map that opens page by page --------------------------------------------------------- */

static struct kvt_env env;
static struct fs_ops watching_ops;
static const struct fs_ops *host_ops;
static struct scratch_dir scratch;
static struct fs_dir *dir;

static char *map;
static size_t map_size;
static bool is_closed;
static volatile sig_atomic_t unproved_count;
static volatile uint64_t unproved_page; /* The first. */
static const void *own_map;             /* The index's, in which it proves. */
static uint32_t commit_proofs;          /* Of page 0. */
static bool is_proved[MAP_BYTES / PAGE_BYTES];
static uint64_t page_refused; /* A map cannot read it; NO_PAGE: it can read all. */
static uint64_t read_count;
static uint64_t read_refused; /* The n-th read from now fails; 0: none. */

static void
map_open(uint64_t offset, size_t size)
{
    if (mprotect(map + offset, size, PROT_READ) != 0)
        abort();
}

static void
unproved_note(int number, siginfo_t *info, void *context)
{
    char *address = info->si_addr;

    (void)context;
    if (!is_closed || address < map || address >= map + map_size) {
        signal(number, SIG_DFL);
        return;
    }
    if (unproved_count++ == 0)
        unproved_page = (uint64_t)(address - map) / PAGE_BYTES;
    map_open((uint64_t)(address - map) / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES);
}

static enum kvt_status
watching_read(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    read_count++;
    if (read_refused > 0 && --read_refused == 0)
        return failure_errno(EIO, "read", "data.mdb");
    return host_ops->read_at(file, target, size, offset, read_out);
}

static enum kvt_status
watching_map(struct fs_file *file, uint64_t size, void **map_out)
{
    enum kvt_status status = host_ops->map(file, size, map_out);

    own_map = *map_out;
    return status;
}

static enum kvt_status
watching_prove(struct fs_file *file, void *proved, uint64_t offset, uint64_t size)
{
    for (uint64_t page = offset / PAGE_BYTES; page < (offset + size) / PAGE_BYTES; page++) {
        if (page == page_refused)
            return failure_errno(EIO, "read", "data.mdb");
        is_proved[page] = true;
        commit_proofs += page == 0;
    }
    if (is_closed)
        map_open(offset, size);
    return host_ops->map_prove(file, proved, offset, size);
}

static void
map_find(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];

    assert_non_null(maps);
    map = NULL;
    while (fgets(line, sizeof(line), maps) != NULL) {
        char *end;
        uint64_t first = strtoull(line, &end, 16);
        uint64_t last = strtoull(end + 1, NULL, 16);

        if (strstr(line, "/data.mdb") == NULL || first == (uintptr_t)own_map)
            continue;
        if (map == NULL)
            map = (char *)(uintptr_t)first;
        map_size = (size_t)(last - (uint64_t)(uintptr_t)map);
    }
    fclose(maps);
    assert_non_null(map);
}

static int
world_make(void **state)
{
    struct sigaction action = {.sa_sigaction = unproved_note, .sa_flags = SA_SIGINFO};

    (void)state;
    env_host(&env);
    host_ops = env.fs;
    watching_ops = *host_ops;
    watching_ops.read_at = watching_read;
    watching_ops.map = watching_map;
    watching_ops.map_prove = watching_prove;
    page_refused = NO_PAGE;
    env.fs = &watching_ops;
    scratch_dir_make(&scratch);
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    return env.fs->dir_open(env.fs_context, scratch.path, 0, &dir) == KVT_OK ? 0 : -1;
}

static int
world_end(void **state)
{
    (void)state;
    signal(SIGSEGV, SIG_DFL);
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}

static struct index *
index_make(uint64_t map_bytes)
{
    struct index *index;

    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, map_bytes, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
    return index;
}

/* --- 2. Batches ------------------------------------------------------------------------------- */

static bool has_record[SEGMENTS][PAGES];
static struct index_block added[LIST_MAX];
static uint8_t records[LIST_MAX][BLOCK_RECORD_BYTES_MAX];
static struct index_block deleted[LIST_MAX];
static uint32_t emptied;
static struct index_segment facts[2];
static struct index_batch batch;

static void
batch_begin(uint32_t segment)
{
    batch = (struct index_batch){
        .added = added, .deleted = deleted, .emptied = &emptied, .segments = facts};
    facts[0] = (struct index_segment){.number = segment, .generation = 1, .state = 1};
    facts[1] = (struct index_segment){.number = segment + SEGMENTS, .generation = 1, .state = 1};
    batch.segment_count = 2;
}

static void
record_add(uint32_t segment, uint32_t page)
{
    uint32_t i = batch.added_count;

    if (has_record[segment][page] || i == LIST_MAX)
        return;
    has_record[segment][page] = true;
    added[i] = (struct index_block){segment, page, records[i], 0};
    added[i].size = model_record(segment, page, 1, records[i]);
    batch.added_count++;
}

static void
record_delete(uint32_t segment, uint32_t page)
{
    if (!has_record[segment][page] || batch.deleted_count == LIST_MAX)
        return;
    has_record[segment][page] = false;
    deleted[batch.deleted_count++] = (struct index_block){.segment = segment, .page = page};
}

/* From each `step` pages of a stretch that begins somewhere, all but `kept`. */
static void
stretch_delete(struct rng *rng, uint32_t length, uint32_t step, uint32_t kept)
{
    uint32_t first = rng_below(rng, SEGMENTS * PAGES);

    for (uint32_t i = first; i < first + length && i < SEGMENTS * PAGES; i++) {
        if (i % step >= kept)
            record_delete(i / PAGES, i % PAGES);
    }
}

static void
some_delete(struct rng *rng, uint32_t share)
{
    for (uint32_t i = 0; i < SEGMENTS * PAGES; i++) {
        if (rng_below(rng, share) == 0)
            record_delete(i / PAGES, i % PAGES);
    }
}

static void
some_add(struct rng *rng, uint32_t length, uint32_t step)
{
    uint32_t first = rng_below(rng, SEGMENTS * PAGES);

    for (uint32_t i = first; i < first + length && i < SEGMENTS * PAGES; i += step)
        record_add(i / PAGES, i % PAGES);
}

static void
batch_random(struct rng *rng)
{
    uint32_t segment = rng_below(rng, SEGMENTS);

    batch_begin(segment);
    switch (rng_below(rng, 8)) {
    case 0:
        stretch_delete(rng, 1 + rng_below(rng, 4000), 1, 0);
        break;
    case 1: /* Leaves with little in them, */
        stretch_delete(rng, 1 + rng_below(rng, 6000), 2 + rng_below(rng, 60), 1);
        break;
    case 2: /* and such that are too empty when a few more go. */
        stretch_delete(rng, 1 + rng_below(rng, 3000), 40, 9 + rng_below(rng, 4));
        break;
    case 3:
        some_delete(rng, 20 + rng_below(rng, 2000));
        break;
    case 4:
        some_add(rng, 4000, 1 + rng_below(rng, 3));
        break;
    case 5:
        some_delete(rng, 3000);
        some_add(rng, 200, 1);
        break;
    case 6:
        emptied = segment;
        batch.emptied_count = 1;
        memset(has_record[segment], 0, sizeof(has_record[segment]));
        stretch_delete(rng, 300, 3, 1);
        break;
    default:
        some_add(rng, SEGMENTS * PAGES, 7 + rng_below(rng, 50));
        break;
    }
}

/* --- 3. Tests --------------------------------------------------------------------------------- */

static enum kvt_status
commit_watched(struct index *index, uint64_t seed, uint32_t round)
{
    enum kvt_status status;

    map_find();
    unproved_count = 0;
    commit_proofs = 0;
    assert_int_equal(mprotect(map, map_size, PROT_NONE), 0);
    is_closed = true;
    status = index->ops->commit(index, &batch);
    is_closed = false;
    map_open(0, map_size);
    if (status != KVT_OK && status != KVT_E_NOSPC)
        fail_msg("seed %" PRIu64 ", round %u: %s", seed, round, failure_last()->text);
    if (unproved_count > 0) {
        fail_msg("seed %" PRIu64
                 ", round %u: %d pages were touched that were not proved, first %" PRIu64,
            seed, round, (int)unproved_count, unproved_page);
    }
    return status;
}

static void
a_commit_touches_no_page_that_was_not_proved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = {.state = seed};
        struct index *index = index_make(MAP_BYTES);

        memset(has_record, 0, sizeof(has_record));
        for (uint32_t i = 0; i < SEGMENTS * PAGES;) {
            batch_begin(i / PAGES);
            for (uint32_t end = i + 2000; i < end; i++)
                record_add(i / PAGES, i % PAGES);
            assert_int_equal(commit_watched(index, seed, 0), KVT_OK);
        }
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            batch_random(&rng);
            assert_int_equal(commit_watched(index, seed, round), KVT_OK);
        }
        index->ops->close(index);
    }
}

/* Where a map is full a transaction is tried again, behind one that has written other pages. */
static void
nor_does_one_that_is_tried_again(void **state)
{
    struct index *index = index_make(SMALL_MAP_BYTES);
    struct rng rng = {.state = 1};
    uint32_t again_count = 0;

    (void)state;
    memset(has_record, 0, sizeof(has_record));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        batch_begin(0);
        batch.segment_count = 1;
        if (round < FILL_ROUNDS)
            some_add(&rng, 60, 1);
        else
            some_delete(&rng, 2 + rng_below(&rng, 200));
        if (commit_watched(index, 1, round) == KVT_OK && commit_proofs > 1)
            again_count++;
    }
    assert_true(again_count > 0);
    index->ops->close(index);
}

/* An index with one long segment, and a batch that deletes some of it. */
static struct index *
worn_index_make(void)
{
    struct index *index = index_make(MAP_BYTES);

    memset(has_record, 0, sizeof(has_record));
    batch_begin(0);
    for (uint32_t page = 0; page < PAGES; page++)
        record_add(0, page);
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    batch_begin(0);
    for (uint32_t page = 0; page < PAGES; page += 400)
        record_delete(0, page);
    read_count = 0;
    return index;
}

static void
refused_commit_check(struct index *index, const char *text)
{
    struct index_stats before = {0};
    struct index_stats after = {0};

    index->ops->stats(index, &before);
    assert_int_equal(index->ops->commit(index, &batch), KVT_E_META);
    assert_non_null(strstr(failure_last()->text, text));
    assert_non_null(strstr(failure_last()->text, "cannot be read: read data.mdb: Input/output"));
    assert_int_equal(failure_last()->foreign_code, EIO);
    index->ops->stats(index, &after);
    assert_int_equal(after.block_count, before.block_count);
    assert_int_equal(index->ops->mark(index, true), KVT_E_META);
    assert_non_null(strstr(failure_last()->text, "failed before"));
}

static void
a_page_that_cannot_be_read_fails_the_commit(void **state)
{
    struct index *index = worn_index_make();
    uint64_t reads;

    (void)state;
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    reads = read_count;
    index->ops->close(index);
    assert_true(reads > 20);
    for (uint64_t n = 1; n <= reads; n++) {
        index = worn_index_make();
        read_refused = n;
        refused_commit_check(index, "The commit of a batch failed: Page ");
        index->ops->close(index);
    }
}

/* Which read() can: a fault needs all that the kernel keeps the page in. */
static void
a_page_that_a_map_cannot_read_fails_the_commit(void **state)
{
    struct index *index = worn_index_make();
    bool is_needed[MAP_BYTES / PAGE_BYTES];
    uint32_t count = 0;

    (void)state;
    memset(is_proved, 0, sizeof(is_proved));
    assert_int_equal(index->ops->commit(index, &batch), KVT_OK);
    memcpy(is_needed, is_proved, sizeof(is_needed));
    index->ops->close(index);
    for (uint64_t page = 0; page < MAP_BYTES / PAGE_BYTES; page++) {
        char text[64];

        if (!is_needed[page])
            continue;
        count++;
        index = worn_index_make();
        page_refused = page;
        (void)snprintf(text, sizeof(text), "batch failed: Page %" PRIu64 " of", page);
        refused_commit_check(index, text);
        page_refused = NO_PAGE;
        index->ops->close(index);
    }
    assert_in_range(count, 8, 200);
}

/* One that an open or a walk needs: the store is not opened, and its host lives. */
static void
a_page_that_a_map_cannot_read_fails_an_open_and_a_walk(void **state)
{
    enum index_condition condition;
    struct index *index;

    (void)state;
    index_lmdb_ops.close(worn_index_make());
    page_refused = 0;
    assert_int_equal(index_lmdb_ops.inspect(NULL, &env, dir, &condition), KVT_E_IO);
    assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, true, &index), KVT_E_IO);
    page_refused = NO_PAGE;
    assert_int_equal(index_lmdb_ops.inspect(NULL, &env, dir, &condition), KVT_OK);
    assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, true, &index), KVT_OK);
    page_refused = 0;
    assert_int_equal(index->ops->each_segment(index, NULL, NULL), KVT_E_IO);
    assert_int_equal(index->ops->each_block(index, NULL, NULL), KVT_E_IO);
    index->ops->close(index);
}

static void
meta_pages_that_cannot_be_read_fail_a_sync_and_a_growth(void **state)
{
    struct index *index = worn_index_make();

    (void)state;
    assert_int_equal(index->ops->commit_deferred(index, &batch), KVT_OK);
    read_refused = 2;
    assert_int_equal(index->ops->sync(index), KVT_E_META);
    assert_non_null(strstr(failure_last()->text, "The sync of a commit failed: Page 1 "));
    index->ops->close(index);
    index = worn_index_make();
    read_refused = 1;
    assert_int_equal(index->ops->grow(index, 0), KVT_E_META);
    assert_int_equal(index->ops->commit(index, &batch), KVT_E_META);
    index->ops->close(index);
}

/* Cut by somebody else: the map goes on behind the end, and reading there is a SIGBUS. */
static void
a_file_that_was_cut_fails_the_commit(void **state)
{
    struct index *index = worn_index_make();
    struct fs_file *file;

    (void)state;
    assert_int_equal(env.fs->open(dir, "data.mdb", 0, &file), KVT_OK);
    assert_int_equal(env.fs->truncate(file, 4 * PAGE_BYTES), KVT_OK);
    env.fs->close(file);
    assert_int_equal(index->ops->commit(index, &batch), KVT_E_META);
    assert_non_null(strstr(failure_last()->text, "ends before page"));
    index->ops->close(index);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_commit_touches_no_page_that_was_not_proved),
        TEST(nor_does_one_that_is_tried_again),
        TEST(a_page_that_cannot_be_read_fails_the_commit),
        TEST(a_page_that_a_map_cannot_read_fails_the_commit),
        TEST(a_page_that_a_map_cannot_read_fails_an_open_and_a_walk),
        TEST(meta_pages_that_cannot_be_read_fail_a_sync_and_a_growth),
        TEST(a_file_that_was_cut_fails_the_commit),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
