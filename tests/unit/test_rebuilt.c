/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt.c - an index is rebuilt while headers cannot be read only when that is asked for,
 * and once more when they can: nothing that was put in between is hidden by them. A root that does
 * not answer is not taken for an empty one, nor one with a page that cannot be read for one that
 * does not answer, nor a payload that cannot be read for one that a crash tore. An index that
 * cannot be read is rebuilt when that is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "batch_header.h"
#include "failure.h"
#include "full_store.h"
#include "nvme_internal.h"
#include "stop_on_proof.h"

enum {
    TURNS = 3, /* So often the segments are filled: their generations are no first ones. */
    NEW_BLOCKS = 40,
    HEADER_BYTE = 100, /* Of a header: behind what tells that it is one. */
    READ_STEP = 9,     /* Of the read that fails first. */
};

static uint32_t
cold_count(const struct full_store *full)
{
    uint32_t count = 0;

    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        count += full_entry(full, key) != ENTRY_NONE;
    return count;
}

/* A store whose index is lost, and whose segments have been filled more than once. */
static struct full_store *
lost_begin(uint32_t *count_out)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    for (uint32_t i = 0; i < TURNS; i++)
        full_fill(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_open(full, 0); /* HOST has nothing. */
    *count_out = cold_count(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    sim_index_damage(full->world);
    return full;
}

static uint32_t unread_count; /* Lines that say that blocks could not be read. */

static void
unread_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    (void)module;
    unread_count += strstr(line, "event=unread ") != NULL;
}

/* The error may pass: an open must not take what it cannot read for empty, and write over it. It
 * comes while headers are looked for, or read again, or it is never come to. */
static void
headers_that_cannot_be_read_keep_the_store_closed(void **state)
{
    bool is_refused = true;
    uint32_t refused_count = 0;

    (void)state;
    for (uint64_t nth = 2; is_refused; nth += READ_STEP) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth, .sticky = true};
        uint32_t count;
        struct full_store *full = lost_begin(&count);
        enum kvt_status status;

        sim_rule_add(full->world, &rule);
        status = store_open_in(&full->reach, "/store", &full->options, &full->store);
        is_refused = status != KVT_OK;
        refused_count += is_refused;
        if (is_refused) {
            refused(status, KVT_E_IO, "segment 0x");
            assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
            sim_rules_clear(full->world);
            unread_count = 0;
            full->options.log = unread_note;
            full->options.log_level = KVT_LOG_WARN;
            full_open(full, 0);
            assert_int_equal(unread_count, 0);
        }
        sim_rules_clear(full->world);
        assert_int_equal(cold_count(full), count);
        assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), 0);
        full_end(full);
    }
    assert_in_range(refused_count, 10, 100);
}

static void
headers_that_can_be_read_again_hide_nothing(void **state)
{
    bool is_all = false;
    uint32_t some_count = 0;

    (void)state;
    for (uint64_t nth = 2; !is_all; nth += READ_STEP) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth, .sticky = true};
        uint32_t count, unread_segments;
        struct full_store *full = lost_begin(&count);
        uint64_t first_new = full->next_cold;

        sim_rule_add(full->world, &rule);
        full_open(full, KVT_OPEN_REBUILD);
        sim_rules_clear(full->world);
        is_all = cold_count(full) == count;
        unread_segments = (uint32_t)atomic_load(&full->store->counters.recover_unread_count);
        assert_in_range(unread_segments, is_all ? 0 : 1, is_all ? 0 : FULL_SEGMENTS);
        some_count += cold_count(full) > 0 && !is_all;
        for (uint32_t i = 0; i < NEW_BLOCKS; i++)
            full_churn(full);
        full_again(full, KVT_OPEN_REBUILD);
        for (uint64_t key = first_new; key < full->next_cold; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
    assert_in_range(some_count, 2, 10);
}

static void
a_root_that_does_not_answer_is_not_taken_for_an_empty_one(void **state)
{
    const struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    uint32_t count;
    struct full_store *full = lost_begin(&count);

    (void)state;
    sim_rule_add(full->world, &rule);
    refused(
        store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO, "data.00");
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    sim_rules_clear(full->world);
    full_open(full, 0);
    assert_int_equal(cold_count(full), count);
    full_end(full);
}

/* The first page of a data file is no more than the others. */
static void
a_page_that_cannot_be_read_keeps_no_store_closed(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    full_put(full, FULL_COLD, 1);
    for (uint64_t count = 1; count <= 3; count++) {
        assert_int_equal(kvt_close(full->store), KVT_OK);
        for (uint64_t nth = 1; nth <= count; nth++)
            sim_rule_add(
                full->world, &(struct sim_rule){
                                 .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth});
        if (count == 3) {
            refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO,
                "data.00");
            sim_rules_clear(full->world);
        }
        full_open(full, 0);
        sim_rules_clear(full->world);
        full_expect(full, FULL_COLD, 1);
    }
    full_end(full);
}

/* The error may pass: only who asks for it has an index that cannot be read made anew. */
static void
an_index_that_cannot_be_read_is_rebuilt_when_asked(void **state)
{
    const struct sim_rule rule = {.ops = SIM_INDEX, .effect = SIM_EIO, .nth = 1};
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    full_put(full, FULL_COLD, 1);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    sim_rule_add(full->world, &rule);
    refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO, "index");
    sim_rules_clear(full->world);
    sim_rule_add(full->world, &rule);
    full_open(full, KVT_OPEN_REBUILD);
    assert_int_equal(sim_fault_count(full->world), 2);
    assert_int_equal(atomic_load(&full->store->counters.recover_rebuilt_count), 1);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

/* --- Reads that fail at some places ----------------------------------------------------------- */

/* Reads that are not through queues, at `offset`, or of some segments: so many fail; or, with
 * KVT_OK, give a wrong byte in each page. */
static struct {
    struct kvt_env env;
    struct fs_ops fs;
    const struct fs_ops *sim_fs;
    uint64_t offset;
    uint64_t end;    /* 0: only what begins at `offset`. */
    uint32_t spared; /* Of these, the first are as they should be. */
    uint32_t count;
    uint32_t wrong_byte; /* Of a page. */
    enum kvt_status status;
} failing;

static enum kvt_status
read_around(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    uint64_t file_bytes = 0;

    assert_int_equal(failing.sim_fs->size(file, &file_bytes), KVT_OK);
    if (file_bytes != (uint64_t)FULL_SEGMENTS << 20 || failing.count == 0 ||
        (offset != failing.offset && (offset < failing.offset || offset >= failing.end)))
        return failing.sim_fs->read_at(file, target, size, offset, read_out);
    if (failing.spared > 0) {
        failing.spared--;
        return failing.sim_fs->read_at(file, target, size, offset, read_out);
    }
    failing.count--;
    if (failing.status != KVT_OK)
        return failure_set(failing.status, 5, "a payload cannot be read on purpose");
    assert_int_equal(failing.sim_fs->read_at(file, target, size, offset, read_out), KVT_OK);
    for (size_t i = 0; i < *read_out; i += PAGE_BYTES)
        ((uint8_t *)target)[i + failing.wrong_byte] ^= 1;
    return KVT_OK;
}

/* In the next lives of its store. */
static void
failing_begin(struct full_store *full)
{
    failing.env = *full->reach.env;
    failing.sim_fs = failing.env.fs;
    failing.fs = *failing.sim_fs;
    failing.fs.read_at = read_around;
    failing.env.fs = &failing.fs;
    full->reach.env = &failing.env;
    failing.status = KVT_E_IO;
    failing.spared = failing.count = 0;
    failing.end = failing.wrong_byte = 0;
}

/* All segments but the first and the last, until failing.count is 0. */
static void
failing_middle(struct full_store *full)
{
    failing_begin(full);
    failing.offset = UINT64_C(1) << 20;
    failing.end = (uint64_t)(FULL_SEGMENTS - 1) << 20;
    failing.count = UINT32_MAX;
}

/* Nothing of all segments but the first and the last can be read, until those are filled again. */
static void
headers_that_stay_unreadable_until_their_segment_is_filled_hide_nothing(void **state)
{
    uint32_t count;
    struct full_store *full = lost_begin(&count);
    uint64_t first_new = full->next_cold;

    (void)state;
    failing_middle(full);
    full_open(full, KVT_OPEN_REBUILD);
    assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), FULL_SEGMENTS - 2);
    for (uint32_t i = 0; i < NEW_BLOCKS; i++)
        full_churn(full);
    /* The last of these is hardly filled: behind that nothing is left of what stood there. */
    assert_in_range(full_leave(full)->number, 1, FULL_SEGMENTS - 2);
    failing.count = 0;
    full_again(full, KVT_OPEN_REBUILD);
    for (uint64_t key = first_new; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* Nor do headers that are taken for something else. */
static void
headers_that_are_right_again_hide_nothing(void **state)
{
    uint32_t count;
    struct full_store *full = lost_begin(&count);
    uint64_t first_new = full->next_cold;

    (void)state;
    failing_middle(full);
    failing.status = KVT_OK;
    full_open(full, 0);
    failing.count = 0;
    assert_in_range(cold_count(full), 1, count - 1);
    for (uint32_t i = 0; i < NEW_BLOCKS; i++)
        full_churn(full);
    full_again(full, KVT_OPEN_REBUILD);
    for (uint64_t key = first_new; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* The kernel has no memory for them: that says nothing of the disk, and the open can be tried
 * again. */
static void
headers_that_no_memory_is_there_for_fail_the_open(void **state)
{
    uint32_t count;
    struct full_store *full = lost_begin(&count);

    (void)state;
    failing_begin(full);
    failing.offset = UINT64_C(1) << 20;
    failing.end = failing.offset + PAGE_BYTES;
    failing.count = 2; /* The range, and the page. */
    failing.status = KVT_E_NOMEM;
    full->options.flags = KVT_OPEN_REBUILD;
    refused(
        store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_NOMEM, "memory");
    assert_int_equal(failing.count, 0);
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    full_open(full, KVT_OPEN_REBUILD);
    assert_int_equal(cold_count(full), count);
    full_end(full);
}

/* A store with one block in each batch, whose index is lost; so many reads of a header, of the last
 * batch or of one that is none of the last, will be wrong, behind those that are spared. */
static struct full_store *
wrong_header_begin(bool is_last, uint32_t spared, uint32_t wrong_count, uint32_t *count_out)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    while (full->next_cold < FULL_COLD + NEW_BLOCKS)
        full_put(full, full->next_cold++, 1);
    *count_out = cold_count(full);
    failing_begin(full);
    failing.offset =
        is_last ? full_copy_at(full, full->next_cold - 1) - PAGE_BYTES : UINT64_C(1) << 20;
    failing.status = KVT_OK;
    failing.spared = spared;
    failing.count = wrong_count;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    sim_index_damage(full->world);
    return full;
}

/* Reads of a header that was found: what it says; of one of the last batches, to see whether a
 * crash tore it; for the index. It is tried again, but for the first. */
static const struct header_read {
    bool is_last;
    bool is_for_proof;
    uint32_t spared;
    uint32_t tries;
} header_reads[] = {
    {false, false, 1, 1},
    {false, false, 2, 2},
    {true, false, 1, 1},
    {true, true, 2, 2},
    {true, false, 3, 2},
};

enum {
    HEADER_READS = sizeof(header_reads) / sizeof(header_reads[0]),
};

static void
a_header_that_is_there_and_then_is_not_keeps_the_store_closed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HEADER_READS; i++) {
        const struct header_read *read = &header_reads[i];
        uint32_t count;
        struct full_store *full =
            wrong_header_begin(read->is_last, read->spared, read->tries, &count);

        refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO,
            "segment 0x");
        assert_int_equal(failing.count, 0);
        assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
        full_open(full, 0);
        assert_int_equal(cold_count(full), count);
        full_end(full);
    }
}

static void
a_header_that_is_wrong_once_in_a_later_read_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HEADER_READS; i++) {
        const struct header_read *read = &header_reads[i];
        uint32_t count;
        struct full_store *full;

        if (read->tries < 2)
            continue;
        full = wrong_header_begin(read->is_last, read->spared, 1, &count);
        full_open(full, 0);
        assert_int_equal(failing.count, 0);
        assert_int_equal(cold_count(full), count);
        full_end(full);
    }
}

/* Who asks for it goes on without: of what was not seen again nothing is in the index, but a block
 * whose header is read for the index is there, whole or not. */
static void
a_header_that_is_not_read_again_is_passed_over_when_asked(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HEADER_READS; i++) {
        const struct header_read *read = &header_reads[i];
        uint32_t count;
        struct full_store *full =
            wrong_header_begin(read->is_last, read->spared, read->tries, &count);

        full_open(full, KVT_OPEN_REBUILD);
        assert_int_equal(failing.count, 0);
        assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), 1);
        assert_int_equal(cold_count(full), read->is_for_proof ? count : count - 1);
        full_again(full, KVT_OPEN_REBUILD);
        assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), 0);
        assert_int_equal(cold_count(full), count);
        full_end(full);
    }
}

/* The kernel has no memory for one that was found. */
static void
a_header_that_no_memory_is_there_for_any_more_fails_the_open(void **state)
{
    (void)state;
    for (uint32_t spared = 1; spared < 4; spared++) {
        uint32_t count;
        /* The range, and the page. */
        struct full_store *full = wrong_header_begin(true, spared, 2, &count);

        failing.status = KVT_E_NOMEM;
        full->options.flags = KVT_OPEN_REBUILD;
        refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_NOMEM,
            "memory");
        assert_int_equal(failing.count, 0);
        assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
        full_open(full, KVT_OPEN_REBUILD);
        assert_int_equal(cold_count(full), count);
        full_end(full);
    }
}

/* --- Segments that look FREE ------------------------------------------------------------------ */

/* The only header of a block stands behind a recycle header, in segment 0; all pages but that
 * one's will not be read right. */
static struct full_store *
behind_header_begin(enum kvt_status status, uint32_t wrong_byte)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    full_again(full, 0);
    full_put(full, FULL_COLD, 1);
    assert_int_equal(full_active(full)->number, 0);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    failing_begin(full);
    failing.status = status;
    failing.wrong_byte = wrong_byte;
    failing.offset = PAGE_BYTES;
    failing.end = UINT64_C(1) << 20;
    failing.count = UINT32_MAX;
    full_open(full, KVT_OPEN_REBUILD);
    failing.count = 0;
    assert_int_equal(full_entry(full, FULL_COLD), ENTRY_NONE);
    return full;
}

/* What may be a header on another day is one then. */
static void
a_header_that_could_not_be_read_is_there_another_day(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_IO, KVT_OK};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct full_store *full = behind_header_begin(statuses[i], HEADER_BYTE);

        assert_int_equal(segment_at(full->store->segments, 0)->state, SEGMENT_SEALED);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FULL_COLD, 1);
        full_end(full);
    }
}

/* What nothing was seen of is not, when a delete has promised so. */
static void
a_header_that_was_not_seen_does_not_come_back(void **state)
{
    struct full_store *full = behind_header_begin(KVT_OK, 0);

    (void)state;
    assert_int_equal(segment_at(full->store->segments, 0)->state, SEGMENT_FREE);
    assert_int_equal(kit_delete(full->store, full->ns, FULL_COLD), KVT_MISS);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FULL_COLD, 0));
    full_end(full);
}

/* A recycle header may have kills: no build of today writes one. */
static void
a_recycle_header_with_kills_is_kept(void **state)
{
    static _Alignas(PAGE_BYTES) uint8_t page[PAGE_BYTES];
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    const struct segment *last;
    struct batch_header header = {.header_pages = 1, .total_pages = 1, .sequence = 1};
    struct tier_kill kill = {.sequence = UINT64_MAX};

    (void)state;
    full_again(full, 0);
    full_put(full, FULL_COLD, 1);
    last = segment_at(full->store->segments, FULL_SEGMENTS - 1);
    assert_int_equal(last->state, SEGMENT_FREE);
    header.extent = (struct extent){.segment = last->number, .generation = last->generation};
    header.is_recycle = true;
    header.kill_count = 1;
    memcpy(header.store_uuid, full->store->file.uuid, sizeof(header.store_uuid));
    kill.fingerprint = full_fingerprint(full, FULL_COLD);
    kill.extent = (struct extent){.segment = full_active(full)->number,
        .generation = full_active(full)->generation,
        .page = residency_at(full->store->map, full_entry(full, FULL_COLD))->page};
    batch_header_encode(&header, NULL, &kill, full->store->file.secret, page);
    assert_int_equal(full->store->env.fs->write_at(full->store->nvme->roots[0].file, page,
                         PAGE_BYTES, (uint64_t)(FULL_SEGMENTS - 1) << 20),
        KVT_OK);
    assert_int_equal(nvme_files_sync(full->store->nvme), KVT_OK);
    for (uint32_t life = 0; life < 2; life++) {
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, FULL_COLD, 0));
    }
    full_end(full);
}

/* --- Payloads that cannot be read ------------------------------------------------------------- */

/* A block that was replaced, with an acknowledgement, and is the last that was written. The next
 * lives of its store may meet errors when they read it. */
static struct full_store *
replaced_begin(void)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    full_put(full, FULL_COLD, 1);
    full_put(full, FULL_COLD, 2);
    failing.offset = full_copy_at(full, FULL_COLD);
    failing_begin(full);
    return full;
}

/* An old version must not come back because the newer one could not be read, once or for long. */
static void
a_payload_that_cannot_be_read_is_not_torn(void **state)
{
    static const uint32_t counts[] = {1, 2, 1000};

    (void)state;
    for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct full_store *full = replaced_begin();

        failing.count = counts[i];
        full_again(full, KVT_OPEN_REBUILD);
        assert_true(failing.count < counts[i]);
        failing.count = 0;
        full_expect(full, FULL_COLD, 2);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FULL_COLD, 2);
        full_end(full);
    }
}

/* Nor is one of which a read was wrong once. */
static void
a_payload_that_is_wrong_once_is_not_torn(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    failing.status = KVT_OK;
    failing.count = 1;
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(failing.count, 0);
    full_expect(full, FULL_COLD, 2);
    full_end(full);
}

/* Neither is one for which the kernel has no memory: the open can be tried again. */
static void
a_payload_that_no_memory_is_there_for_fails_the_open(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    failing.count = 1;
    failing.status = KVT_E_NOMEM;
    full->options.flags = KVT_OPEN_REBUILD;
    refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_NOMEM,
        "on purpose");
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    full_open(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 2);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_cannot_be_read_keep_the_store_closed),
        cmocka_unit_test(headers_that_can_be_read_again_hide_nothing),
        cmocka_unit_test(headers_that_stay_unreadable_until_their_segment_is_filled_hide_nothing),
        cmocka_unit_test(headers_that_are_right_again_hide_nothing),
        cmocka_unit_test(headers_that_no_memory_is_there_for_fail_the_open),
        cmocka_unit_test(a_header_that_is_there_and_then_is_not_keeps_the_store_closed),
        cmocka_unit_test(a_header_that_is_wrong_once_in_a_later_read_is_found),
        cmocka_unit_test(a_header_that_is_not_read_again_is_passed_over_when_asked),
        cmocka_unit_test(a_header_that_no_memory_is_there_for_any_more_fails_the_open),
        cmocka_unit_test(a_root_that_does_not_answer_is_not_taken_for_an_empty_one),
        cmocka_unit_test(a_page_that_cannot_be_read_keeps_no_store_closed),
        cmocka_unit_test(an_index_that_cannot_be_read_is_rebuilt_when_asked),
        cmocka_unit_test(a_header_that_could_not_be_read_is_there_another_day),
        cmocka_unit_test(a_header_that_was_not_seen_does_not_come_back),
        cmocka_unit_test(a_recycle_header_with_kills_is_kept),
        cmocka_unit_test(a_payload_that_cannot_be_read_is_not_torn),
        cmocka_unit_test(a_payload_that_is_wrong_once_is_not_torn),
        cmocka_unit_test(a_payload_that_no_memory_is_there_for_fails_the_open),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
