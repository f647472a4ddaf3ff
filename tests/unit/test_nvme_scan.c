/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_scan.c - what a rebuild finds in a segment: whole chains, broken ones, older
 * generations behind newer ones, recycle headers, hostile bytes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "failure.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "tier_rig.h"

enum {
    FOUND_MAX = 128,
    PAGES = RIG_SEGMENT_PAGES,
};

static struct tier_rig rig;

/* What a scan handed to its visitor. */
static struct found {
    struct batch_header headers[FOUND_MAX];
    uint64_t first_sequence[FOUND_MAX]; /* Of the batch's first record; 0 without records. */
    uint32_t count;
    uint32_t limit; /* Stop after so many; 0: never. */
    uint32_t generation;
    uint64_t damaged_pages;
    uint32_t unreadable_end;
} found;

static bool
visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct found *into = visitor;

    (void)kills;
    assert_true(into->count < FOUND_MAX);
    into->headers[into->count] = *header;
    into->first_sequence[into->count] = header->block_count == 0 ? 0 : records[0].sequence;
    into->count++;
    return into->count != into->limit;
}

static void
scan(struct found *into, uint32_t segment)
{
    struct nvme_scan_result result;
    uint32_t limit = into->limit;

    memset(into, 0, sizeof(*into));
    into->limit = limit;
    assert_int_equal(nvme_scan(rig.nvme, segment, visit, into, &result), KVT_OK);
    into->generation = result.generation;
    into->damaged_pages = result.damaged_pages;
    into->unreadable_end = result.unreadable_end;
    for (uint32_t i = 1; i < into->count; i++)
        assert_true(into->headers[i - 1].sequence < into->headers[i].sequence);
}

static void
fixture_open(uint32_t segments)
{
    rig_init(&rig, TIER_KIND_NVME_THREADS, 1, segments);
    assert_int_equal(rig_open(&rig), KVT_OK);
}

/* A batch of one block of `pages` pages; returns the page of its header. */
static uint32_t
put_one(uint32_t pages, struct segment **segment_out)
{
    static struct rig_batch batch;

    rig_memory_reset(&rig);
    rig_batch_init(&rig, &batch);
    rig_batch_add(&rig, &batch, pages * PAGE_BYTES, rig.sequence);
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    assert_int_equal(batch.batch.status, KVT_OK);
    if (segment_out != NULL)
        *segment_out = segment_at(nvme_segments(rig.nvme), batch.blocks[0].record.extent.segment);
    return batch.blocks[0].record.extent.page - 1;
}

/* Write over pages of the first segment's file, behind the tier's back. */
static void
pages_write(uint32_t segment, uint32_t page, uint32_t count, const uint8_t *bytes)
{
    int fd = open(scratch_path(&rig.scratch, "root0/data.00"), O_WRONLY | O_CLOEXEC);
    size_t size = (size_t)count * PAGE_BYTES;

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)(segment * PAGES + page) * PAGE_BYTES), size);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

static void
pages_read(uint32_t segment, uint32_t page, uint32_t count, uint8_t *bytes)
{
    int fd = open(scratch_path(&rig.scratch, "root0/data.00"), O_RDONLY | O_CLOEXEC);
    size_t size = (size_t)count * PAGE_BYTES;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, size, (off_t)(segment * PAGES + page) * PAGE_BYTES), size);
    assert_int_equal(close(fd), 0);
}

static void
page_spoil(uint32_t page)
{
    uint8_t bytes[PAGE_BYTES];

    pages_read(0, page, 1, bytes);
    for (size_t i = 4; i < sizeof(bytes); i += 97)
        bytes[i] ^= 0x10;
    pages_write(0, page, 1, bytes);
}

/* Seal, recycle and free, as the engine does. */
static void
turn(struct segment *segment, uint32_t kill_count)
{
    static struct rig_batch batch;
    struct segment_table *table = nvme_segments(rig.nvme);

    if (segment->state == SEGMENT_ACTIVE)
        segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    rig_batch_init(&rig, &batch);
    for (uint32_t i = 0; i < kill_count; i++)
        batch.kills[i].sequence = i + 1;
    batch.batch.kill_count = kill_count;
    assert_int_equal(nvme_recycle(rig.nvme, segment, &batch.batch), KVT_OK);
    rig_wait(&rig, 1);
    rig_answers_clear(&rig);
    assert_int_equal(batch.batch.status, KVT_OK);
    segment_free(table, segment);
}

/* --- Chains ----------------------------------------------------------------------------------- */

static void
an_untouched_segment_has_nothing(void **state)
{
    struct nvme_scan_result result;

    (void)state;
    fixture_open(2);
    scan(&found, 1);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.generation, 0);
    assert_int_equal(found.damaged_pages, 0);
    assert_int_equal(nvme_scan(rig.nvme, 2, visit, &found, &result), KVT_E_INVAL);
    rig_deinit(&rig);
}

static void
every_batch_of_a_whole_chain_is_found_in_order(void **state)
{
    uint32_t count = 0;
    uint32_t pages = 0;

    (void)state;
    fixture_open(1);
    for (; pages + 1 + 1 + count % 7 <= PAGES && count < 60; count++) {
        assert_int_equal(put_one(1 + count % 7, NULL), pages);
        pages += 2 + count % 7;
    }
    scan(&found, 0);
    assert_int_equal(found.count, count);
    assert_int_equal(found.generation, 1);
    assert_int_equal(found.damaged_pages, 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(found.headers[i].sequence, i + 1);
        assert_int_equal(found.headers[i].block_count, 1);
        assert_int_equal(found.first_sequence[i], (uint64_t)(i + 1) << 16);
    }
    found.limit = 3;
    scan(&found, 0);
    assert_int_equal(found.count, 3);
    found.limit = 0;
    rig_deinit(&rig);
}

static void
a_batch_that_was_found_is_read_again_and_no_other(void **state)
{
    static struct found again;
    struct extent place = {.generation = 1};

    (void)state;
    fixture_open(1);
    place.page = put_one(3, NULL);
    assert_int_equal(nvme_scan_again(rig.nvme, &place, 1, visit, &again), KVT_OK);
    assert_int_equal(again.first_sequence[0], UINT64_C(1) << 16);
    assert_int_equal(nvme_scan_again(rig.nvme, &place, 2, visit, &again), KVT_E_IO);
    place.generation++;
    assert_int_equal(nvme_scan_again(rig.nvme, &place, 1, visit, &again), KVT_E_IO);
    rig_deinit(&rig);
}

static void
a_broken_chain_loses_only_what_is_broken(void **state)
{
    uint32_t headers[20];

    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 20; i++)
        headers[i] = put_one(1 + i % 5, NULL);
    page_spoil(headers[0]);
    page_spoil(headers[7]);
    page_spoil(headers[8]);
    scan(&found, 0);
    assert_int_equal(found.count, 17);
    assert_int_equal(found.damaged_pages, 3);
    assert_int_equal(found.unreadable_end, 0); /* All of them were read. */
    for (uint32_t i = 0, next = 0; i < 20; i++) {
        if (i == 0 || i == 7 || i == 8)
            continue;
        assert_int_equal(found.headers[next++].sequence, i + 1);
    }
    rig_deinit(&rig);
}

static void
a_header_in_a_payload_is_not_believed(void **state)
{
    static struct rig_batch batch;
    uint8_t header[PAGE_BYTES];
    uint32_t page;

    (void)state;
    fixture_open(2);
    page = put_one(1, NULL);
    pages_read(0, page, 1, header);
    put_u32(header + 28, 99); /* Generation. */
    put_u32(header + 32, 4);  /* Page: where the payload below will lie. */
    rig_batch_init(&rig, &batch);
    rig_batch_add(&rig, &batch, 4 * PAGE_BYTES, 5);
    for (uint32_t i = 0; i < 4; i++) {
        put_u32(header + 32, 3 + i);
        memcpy((uint8_t *)batch.blocks[0].memory + (size_t)i * PAGE_BYTES, header, PAGE_BYTES);
    }
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    put_one(1, NULL);
    scan(&found, 0);
    assert_int_equal(found.count, 3);
    assert_int_equal(found.generation, 1);
    /* Nor when its own header is gone and every page is looked at. */
    page_spoil(2);
    scan(&found, 0);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.generation, 1);
    rig_deinit(&rig);
}

static void
a_header_copied_to_another_place_is_not_believed(void **state)
{
    uint8_t header[PAGE_BYTES];

    (void)state;
    fixture_open(2);
    put_one(3, NULL);
    put_one(3, NULL);
    pages_read(0, 4, 1, header);
    pages_write(0, 100, 1, header);
    pages_write(1, 4, 1, header);
    scan(&found, 0);
    assert_int_equal(found.count, 2);
    scan(&found, 1);
    assert_int_equal(found.count, 0);
    rig_deinit(&rig);
}

/* It says that it goes on behind the segment's end. */
static void
the_beginning_of_a_header_in_the_last_page_is_not_believed(void **state)
{
    static struct rig_batch batch;
    uint8_t bytes[PAGE_BYTES];
    struct batch_header header;

    (void)state;
    fixture_open(1);
    rig_memory_reset(&rig);
    rig_batch_init(&rig, &batch);
    for (uint32_t i = 0; i < RIG_BATCH_MAX; i++)
        rig_batch_add(&rig, &batch, PAGE_BYTES, rig.sequence);
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    assert_int_equal(batch.batch.status, KVT_OK);
    pages_read(0, 0, 1, bytes);
    assert_int_equal(batch_header_peek(bytes, &header), KVT_OK);
    assert_true(header.header_pages > 1);
    pages_write(0, PAGES - 1, 1, bytes);
    scan(&found, 0);
    assert_int_equal(found.count, 1);
    rig_deinit(&rig);
}

/* --- Generations ------------------------------------------------------------------------------ */

static void
a_recycle_header_voids_what_stands_behind_it(void **state)
{
    struct segment *segment;

    (void)state;
    fixture_open(1);
    put_one(5, &segment);
    put_one(6, NULL);
    turn(segment, 3);
    scan(&found, 0);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.generation, 2);
    assert_true(found.headers[0].is_recycle);
    assert_int_equal(found.headers[0].kill_count, 3);
    rig_deinit(&rig);
}

static void
only_the_highest_generation_counts(void **state)
{
    struct segment *segment;

    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 30; i++)
        put_one(1 + i % 9, &segment);
    turn(segment, 0);
    put_one(3, NULL);
    put_one(9, NULL);
    turn(segment, 60);
    put_one(2, NULL);
    put_one(2, NULL);
    scan(&found, 0);
    assert_int_equal(found.generation, 3);
    assert_int_equal(found.count, 3);
    assert_int_equal(found.damaged_pages, 0); /* What is void is not damaged. */
    assert_true(found.headers[0].is_recycle);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(found.headers[i].extent.generation, 3);
    rig_deinit(&rig);
}

/* What a recycle header hides stays hidden when its page is damaged, or its copy's. */
static void
one_of_two_recycle_headers_is_enough(void **state)
{
    uint8_t pages[2 * PAGE_BYTES];
    struct segment *segment;

    (void)state;
    fixture_open(1);
    put_one(1, &segment);
    put_one(1, NULL);
    turn(segment, 0);
    pages_read(0, 0, 2, pages);
    for (uint32_t page = 0; page < 2; page++) {
        page_spoil(page);
        rig_close(&rig);
        assert_int_equal(rig_open(&rig), KVT_OK);
        scan(&found, 0);
        assert_int_equal(found.generation, 2);
        assert_int_equal(found.count, 1);
        assert_true(found.headers[0].is_recycle);
        assert_int_equal(found.headers[0].extent.page, 1 - page);
        pages_write(0, 0, 2, pages);
    }
    rig_deinit(&rig);
}

/* A cut has kept the old batch at page 0, whose run covers the copy of the recycle header. */
static void
an_older_run_does_not_hide_the_copy_of_a_recycle_header(void **state)
{
    uint8_t old_header[PAGE_BYTES];
    struct segment *segment;

    (void)state;
    fixture_open(1);
    put_one(3, &segment);
    pages_read(0, 0, 1, old_header);
    turn(segment, 0);
    pages_write(0, 0, 1, old_header);
    rig_close(&rig);
    assert_int_equal(rig_open(&rig), KVT_OK);
    scan(&found, 0);
    assert_int_equal(found.generation, 2);
    assert_int_equal(found.count, 1);
    assert_true(found.headers[0].is_recycle);
    rig_deinit(&rig);
}

/*
 * The header of an older generation stands in the gap that a lost header left, and its run covers
 * newer batches: following it would lose them.
 */
static void
an_older_run_does_not_hide_newer_batches(void **state)
{
    uint8_t old_header[PAGE_BYTES];
    struct segment *segment;

    (void)state;
    fixture_open(1);
    put_one(1, &segment);                   /* Pages 0, 1. */
    assert_int_equal(put_one(40, NULL), 2); /* An old run that covers pages 2..42. */
    pages_read(0, 2, 1, old_header);
    turn(segment, 0); /* The recycle header and its copy take pages 0 and 1. */
    /* The write of a batch at page 2 is lost, as after a crash; the old header there is not. */
    assert_int_equal(put_one(6, NULL), 2);
    pages_write(0, 2, 1, old_header);
    assert_int_equal(put_one(3, NULL), 9);
    assert_int_equal(put_one(3, NULL), 13);
    scan(&found, 0);
    assert_int_equal(found.generation, 2);
    assert_int_equal(found.count, 3);
    assert_int_equal(found.headers[1].extent.page, 9);
    assert_int_equal(found.headers[2].extent.page, 13);

    /* And with the recycle header and its copy lost as well, the older generation is met first. */
    page_spoil(0);
    page_spoil(1);
    scan(&found, 0);
    assert_int_equal(found.generation, 2);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.headers[0].extent.page, 9);
    rig_deinit(&rig);
}

static bool
visit_and_spoil(void *visitor, const struct batch_header *header,
    const struct block_record *records, const struct tier_kill *kills)
{
    if (found.count == 0)
        page_spoil(10);
    return visit(visitor, header, records, kills);
}

/*
 * A rebuild, which knows nothing of the segment: the write of the recycle header was lost, so that
 * the chain at page 0 is the old one, and a newer batch stands beside its way.
 */
static void
an_old_chain_at_the_front_does_not_hide_newer_batches(void **state)
{
    struct nvme_scan_result result;
    uint8_t old_header[PAGE_BYTES];
    struct segment *segment;

    (void)state;
    fixture_open(1);
    assert_int_equal(put_one(1, &segment), 0);
    pages_read(0, 0, 1, old_header);
    turn(segment, 0);
    assert_int_equal(put_one(3, NULL), 2);
    assert_int_equal(put_one(3, NULL), 6);
    assert_int_equal(put_one(3, NULL), 10);
    pages_write(0, 0, 1, old_header);
    page_spoil(1);
    rig_close(&rig);
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(segment_at(nvme_segments(rig.nvme), 0)->state, SEGMENT_FREE);
    scan(&found, 0);
    assert_int_equal(found.generation, 2);
    assert_int_equal(found.count, 3); /* Each once. */
    assert_int_equal(found.headers[0].extent.page, 2);
    assert_int_equal(found.headers[2].extent.page, 10);
    /* And once when it is damaged before it is told, as page 1 was from the first. */
    found.count = 0;
    assert_int_equal(nvme_scan(rig.nvme, 0, visit_and_spoil, &found, &result), KVT_OK);
    assert_int_equal(found.count, 2);
    assert_int_equal(result.damaged_pages, 2);
    rig_deinit(&rig);
}

/* Nor does one of which the table has the generation: a rebuild that could not read all knows no
 * better. */
static void
an_old_chain_does_not_hide_a_newer_fill(void **state)
{
    struct segment facts = {.generation = 2, .state = SEGMENT_FREE};

    (void)state;
    fixture_open(1);
    assert_int_equal(put_one(60, NULL), 0);
    for (int i = 0; i < 2; i++) {
        rig_close(&rig);
        assert_int_equal(rig_open(&rig), KVT_OK);
        assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
        if (i == 0)
            assert_int_equal(put_one(3, NULL), SEGMENT_HEAD_PAGES_MAX);
        facts = (struct segment){.generation = 1, .state = SEGMENT_SEALED};
    }
    scan(&found, 0);
    assert_int_equal(found.generation, 2);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.headers[0].extent.page, SEGMENT_HEAD_PAGES_MAX);
    rig_deinit(&rig);
}

static void
many_generations_in_one_segment_end_the_search_all_the_same(void **state)
{
    struct segment *segment;

    (void)state;
    fixture_open(1);
    /* Each turn leaves one batch further behind than the one before: 1, 2, ... from front to
     * back. */
    put_one(1, &segment);
    for (uint32_t i = 0; i < 20; i++) {
        turn(segment, 0);
        put_one(1, NULL);
        segment->fill_page = 4 + 10 * i;
        put_one(2, NULL);
    }
    scan(&found, 0);
    assert_int_equal(found.generation, 21);
    assert_int_equal(found.count, 3);
    for (uint32_t page = 0; page < 3; page++)
        page_spoil(page);
    scan(&found, 0);
    assert_int_equal(found.generation, 21);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.headers[0].extent.page, 194);
    rig_deinit(&rig);
}

/* --- Hostile bytes ---------------------------------------------------------------------------- */

static void
random_bytes_and_magics_never_hurt(void **state)
{
    static uint8_t bytes[PAGES * PAGE_BYTES];
    static uint8_t whole[PAGES * PAGE_BYTES];
    struct rng rng = {.state = 17};

    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 30; i++)
        put_one(1 + i % 6, NULL);
    pages_read(0, 0, PAGES, whole);
    for (uint32_t round = 0; round < 60; round++) {
        memcpy(bytes, whole, sizeof(bytes));
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t from = rng_below(&rng, PAGES);
            uint32_t to = rng_below(&rng, PAGES);

            /* Pages swapped and copied, fields of headers changed, magics planted. */
            memcpy(bytes + (size_t)to * PAGE_BYTES, bytes + (size_t)from * PAGE_BYTES, PAGE_BYTES);
            put_u32(bytes + (size_t)from * PAGE_BYTES + 4 * rng_below(&rng, 40),
                (uint32_t)rng_next(&rng) >> rng_below(&rng, 32));
            if (round % 3 == 0)
                put_u32(bytes + (size_t)rng_below(&rng, PAGES) * PAGE_BYTES, 0x7E91F3B5);
        }
        pages_write(0, 0, PAGES, bytes);
        scan(&found, 0);
        assert_true(found.count <= 30);
        assert_in_range(found.generation, 0, 1);
    }
    pages_write(0, 0, PAGES, whole);
    scan(&found, 0);
    assert_int_equal(found.count, 30);
    rig_deinit(&rig);
}

static void
a_file_cut_short_loses_only_its_end(void **state)
{
    (void)state;
    fixture_open(1);
    for (uint32_t i = 0; i < 10; i++)
        put_one(3, NULL);
    assert_int_equal(truncate(scratch_path(&rig.scratch, "root0/data.00"), 18 * PAGE_BYTES), 0);
    scan(&found, 0);
    assert_int_equal(found.count, 5);
    rig_deinit(&rig);
}

static const struct fs_ops *host_fs;
static uint64_t bad_page;
static uint64_t bad_pages = 1;
static uint32_t failed_reads;

static enum kvt_status
read_failing(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (bad_page * PAGE_BYTES < offset + size && (bad_page + bad_pages) * PAGE_BYTES > offset) {
        failed_reads++;
        return failure_set(
            KVT_E_IO, 5, "page %llu is unreadable on purpose", (unsigned long long)bad_page);
    }
    return host_fs->read_at(file, target, size, offset, read_out);
}

/* Ten batches of four pages. */
static void
fixture_failing_open(void)
{
    static struct fs_ops fs_ops;

    fixture_open(1);
    for (uint32_t i = 0; i < 10; i++)
        put_one(3, NULL);
    host_fs = rig.env.fs;
    fs_ops = *host_fs;
    fs_ops.read_at = read_failing;
    rig.env.fs = &fs_ops;
}

static void
an_unreadable_page_loses_only_its_batch(void **state)
{
    (void)state;
    fixture_failing_open();
    bad_page = 20;
    scan(&found, 0);
    assert_int_equal(found.count, 9);
    assert_true(found.damaged_pages >= 1);
    assert_int_equal(found.unreadable_end, 21);
    bad_page = 22; /* In a payload: the headers do not care. */
    scan(&found, 0);
    assert_int_equal(found.count, 10);
    assert_int_equal(found.unreadable_end, 0);
    rig.env.fs = host_fs;
    rig_deinit(&rig);
}

/* A disk takes seconds to give up. */
static void
what_cannot_be_read_is_hardly_asked_for_twice(void **state)
{
    (void)state;
    fixture_failing_open();
    bad_page = 0;
    bad_pages = RIG_SEGMENT_PAGES;
    failed_reads = 0;
    scan(&found, 0);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.damaged_pages, RIG_SEGMENT_PAGES);
    assert_int_equal(found.unreadable_end, RIG_SEGMENT_PAGES);
    assert_in_range(failed_reads, RIG_SEGMENT_PAGES, RIG_SEGMENT_PAGES + 4);
    bad_page = 9; /* In a payload, and read together with the header of page 8. */
    bad_pages = 3;
    failed_reads = 0;
    scan(&found, 0);
    assert_int_equal(found.count, 10);
    assert_int_equal(found.damaged_pages, 0);
    assert_in_range(failed_reads, 1, 4);
    bad_pages = 1;
    rig.env.fs = host_fs;
    rig_deinit(&rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_untouched_segment_has_nothing),
        cmocka_unit_test(every_batch_of_a_whole_chain_is_found_in_order),
        cmocka_unit_test(a_batch_that_was_found_is_read_again_and_no_other),
        cmocka_unit_test(a_broken_chain_loses_only_what_is_broken),
        cmocka_unit_test(a_header_in_a_payload_is_not_believed),
        cmocka_unit_test(a_header_copied_to_another_place_is_not_believed),
        cmocka_unit_test(the_beginning_of_a_header_in_the_last_page_is_not_believed),
        cmocka_unit_test(a_recycle_header_voids_what_stands_behind_it),
        cmocka_unit_test(only_the_highest_generation_counts),
        cmocka_unit_test(one_of_two_recycle_headers_is_enough),
        cmocka_unit_test(an_older_run_does_not_hide_the_copy_of_a_recycle_header),
        cmocka_unit_test(an_older_run_does_not_hide_newer_batches),
        cmocka_unit_test(an_old_chain_at_the_front_does_not_hide_newer_batches),
        cmocka_unit_test(an_old_chain_does_not_hide_a_newer_fill),
        cmocka_unit_test(many_generations_in_one_segment_end_the_search_all_the_same),
        cmocka_unit_test(random_bytes_and_magics_never_hurt),
        cmocka_unit_test(a_file_cut_short_loses_only_its_end),
        cmocka_unit_test(an_unreadable_page_loses_only_its_batch),
        cmocka_unit_test(what_cannot_be_read_is_hardly_asked_for_twice),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
