/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt.c - an index is rebuilt while headers cannot be read only when that is asked for,
 * and once more when they can: nothing that was put in between is hidden by them. A root that does
 * not answer is not taken for an empty one, nor one with a page that cannot be read for one that
 * does not answer, nor a payload that cannot be read for one that a crash tore. What is dead stays
 * so in later rebuilds. An index that cannot be read is rebuilt when that is asked for, and names
 * nothing that the disk does not have.
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
    LAST_BATCHES = 14, /* Of a life, of which a rebuild proves the payloads (rebuild.c). */
    OTHER = 2000,      /* Keys of other blocks. */
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

/* The error may pass: an open must not take what it cannot read for empty, and write over it. */
static void
headers_that_cannot_be_read_keep_the_store_closed(void **state)
{
    (void)state;
    for (uint64_t nth = 2; nth <= 64; nth *= 2) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth, .sticky = true};
        uint32_t count;
        struct full_store *full = lost_begin(&count);

        sim_rule_add(full->world, &rule);
        refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO,
            "segment 0x");
        assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
        sim_rules_clear(full->world);
        unread_count = 0;
        full->options.log = unread_note;
        full->options.log_level = KVT_LOG_WARN;
        full_open(full, 0);
        assert_int_equal(unread_count, 0);
        assert_int_equal(cold_count(full), count);
        assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), 0);
        full_end(full);
    }
}

static void
headers_that_can_be_read_again_hide_nothing(void **state)
{
    uint32_t some_count = 0;

    (void)state;
    for (uint64_t nth = 2; nth <= 64; nth *= 2) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = SIM_EIO, .file = "data.", .nth = nth, .sticky = true};
        uint32_t count;
        struct full_store *full = lost_begin(&count);
        uint64_t first_new = full->next_cold;

        sim_rule_add(full->world, &rule);
        full_open(full, KVT_OPEN_REBUILD);
        sim_rules_clear(full->world);
        assert_in_range(cold_count(full), 0, count - 1);
        assert_in_range(atomic_load(&full->store->counters.recover_unread_count), 1, FULL_SEGMENTS);
        some_count += cold_count(full) > 0;
        for (uint32_t i = 0; i < NEW_BLOCKS; i++)
            full_churn(full);
        full_again(full, KVT_OPEN_REBUILD);
        for (uint64_t key = first_new; key < full->next_cold; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
    assert_in_range(some_count, 1, 5);
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

/* The header of a segment was found, and is something else when it is read once more. */
static void
a_header_that_is_there_and_then_is_not_keeps_the_store_closed(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    uint32_t count;

    (void)state;
    while (full->next_cold < FULL_COLD + NEW_BLOCKS)
        full_put(full, full->next_cold++, 1);
    count = cold_count(full);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    sim_index_damage(full->world);
    failing_begin(full);
    failing.offset = UINT64_C(1) << 20;
    failing.spared = 1;
    failing.count = 1;
    failing.status = KVT_OK;
    refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO,
        "segment 0x");
    assert_int_equal(failing.count, 0);
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    full_open(full, 0);
    assert_int_equal(cold_count(full), count);
    full_end(full);
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

/* --- The end of a life ------------------------------------------------------------------------ */

/* A process is killed whose last block was written, and not synced: who names it, syncs it. */
static void
a_rebuilt_index_names_what_the_disk_has(void **state)
{
    const struct sim_rule no_sync = {.ops = SIM_SYNC,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .sticky = true,
        .stall_ns = FULL_WAIT_NS};
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    sim_rule_add(full->world, &no_sync);
    (void)full_put_submit(full, FULL_COLD, 1, KVT_SYNC);
    (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
    sim_rules_clear(full->world);
    sim_vanish(full->world);
    full_open(full, KVT_OPEN_REBUILD);
    assert_int_not_equal(full_entry(full, FULL_COLD), ENTRY_NONE);
    full_again(full, 0);
    full_expect(full, FULL_COLD, 1);
    full_end(full);
}

/* In each life; batches that have no blocks, behind them, are none of these. */
static void
no_torn_copy_of_the_last_batches_hides_an_older_one(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);

    (void)state;
    for (uint64_t i = 0; i < LAST_BATCHES; i++) {
        full_put(full, FULL_COLD + i, 1);
        full_put(full, OTHER + i, 1);
    }
    for (uint64_t key = FULL_COLD; key < FULL_COLD + LAST_BATCHES; key++) {
        full_put(full, key, 2);
        assert_true(
            sim_file_corrupt(full->world, "store/data/data.00", full_copy_at(full, key), 1));
    }
    for (uint64_t i = 0; i < LAST_BATCHES; i++)
        assert_int_equal(kit_delete(full->store, full->ns, OTHER + i), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    for (uint64_t key = FULL_COLD; key < FULL_COLD + LAST_BATCHES; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* --- Copies that are dead --------------------------------------------------------------------- */

/* Only a kill of another copy, in another segment, hides it: it has one when the open returns. */
static void
a_dead_copy_that_no_kill_names_gets_one(void **state)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    struct commit_kill kill = {.extent = {.segment = FULL_SEGMENTS - 1, .generation = 1}};

    (void)state;
    full_put(full, FULL_COLD, 1);
    full_put(full, FULL_COLD + 1, 1);
    kill.fingerprint = full_fingerprint(full, FULL_COLD);
    assert_int_equal(commit_kill(full->store, &kill), KVT_OK);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FULL_COLD, 0));
    full_again(full, 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 1);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FULL_COLD, 0));
    full_expect(full, FULL_COLD + 1, 1);
    full_end(full);
}

/* Its kill stands beside the block that has taken its place. */
static void
a_dead_copy_that_a_kill_names_gets_no_other(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(atomic_load(&full->store->counters.batch_count), 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 1);
    full_end(full);
}

/* A kill of it would be one of every older copy: it gets it when none lives any more. */
static void
a_torn_copy_gets_a_kill_when_a_newer_one_lives(void **state)
{
    struct full_store *full = replaced_begin();

    (void)state;
    assert_true(sim_file_corrupt(full->world, "store/data/data.00", failing.offset, 1));
    for (uint32_t i = 0; i < 2; i++) {
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FULL_COLD, 1);
    }
    full_put(full, FULL_COLD, 3);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FULL_COLD, 3);
    full_again(full, 0);
    assert_int_equal(full_copies_check(full, FULL_COLD), 2);
    full_expect(full, FULL_COLD, 3);
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
        cmocka_unit_test(a_root_that_does_not_answer_is_not_taken_for_an_empty_one),
        cmocka_unit_test(a_page_that_cannot_be_read_keeps_no_store_closed),
        cmocka_unit_test(an_index_that_cannot_be_read_is_rebuilt_when_asked),
        cmocka_unit_test(a_header_that_could_not_be_read_is_there_another_day),
        cmocka_unit_test(a_header_that_was_not_seen_does_not_come_back),
        cmocka_unit_test(a_recycle_header_with_kills_is_kept),
        cmocka_unit_test(a_payload_that_cannot_be_read_is_not_torn),
        cmocka_unit_test(a_payload_that_is_wrong_once_is_not_torn),
        cmocka_unit_test(a_payload_that_no_memory_is_there_for_fails_the_open),
        cmocka_unit_test(a_rebuilt_index_names_what_the_disk_has),
        cmocka_unit_test(no_torn_copy_of_the_last_batches_hides_an_older_one),
        cmocka_unit_test(a_dead_copy_that_no_kill_names_gets_one),
        cmocka_unit_test(a_dead_copy_that_a_kill_names_gets_no_other),
        cmocka_unit_test(a_torn_copy_gets_a_kill_when_a_newer_one_lives),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
