/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt.c - an index is rebuilt while headers cannot be read only when that is asked for,
 * and once more when they can: nothing that was put in between is hidden by them. A root that does
 * not answer is not taken for an empty one, nor one with a page that cannot be read for one that
 * does not answer, nor a payload that cannot be read for one that a crash tore. What is dead stays
 * so in later rebuilds. An index that cannot be read is rebuilt when that is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failure.h"
#include "full_store.h"
#include "stop_on_proof.h"

enum {
    TURNS = 3, /* So often the segments are filled: their generations are no first ones. */
    NEW_BLOCKS = 40,
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
        full_open(full, 0);
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
    uint64_t end; /* 0: only what begins at `offset`. */
    uint32_t count;
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
    failing.count--;
    if (failing.status != KVT_OK)
        return failure_set(failing.status, 5, "a payload cannot be read on purpose");
    assert_int_equal(failing.sim_fs->read_at(file, target, size, offset, read_out), KVT_OK);
    for (size_t i = 0; i < *read_out; i += PAGE_BYTES)
        ((uint8_t *)target)[i] ^= 1;
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
    failing.count = 0;
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

/* --- Payloads that cannot be read ------------------------------------------------------------- */

/* A block that was replaced, with an acknowledgement, and is the last that was written. The next
 * lives of its store may meet errors when they read it. */
static struct full_store *
replaced_begin(void)
{
    struct full_store *full = full_begin(900, FULL_SEGMENTS);
    const struct entry *entry;

    full_put(full, FULL_COLD, 1);
    full_put(full, FULL_COLD, 2);
    entry = residency_at(full->store->map, full_entry(full, FULL_COLD));
    failing.offset =
        ((uint64_t)segment_index(entry->segment) * full->store->file.segment_pages + entry->page) *
        PAGE_BYTES;
    failing.end = 0;
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
        cmocka_unit_test(a_root_that_does_not_answer_is_not_taken_for_an_empty_one),
        cmocka_unit_test(a_page_that_cannot_be_read_keeps_no_store_closed),
        cmocka_unit_test(an_index_that_cannot_be_read_is_rebuilt_when_asked),
        cmocka_unit_test(a_payload_that_cannot_be_read_is_not_torn),
        cmocka_unit_test(a_payload_that_is_wrong_once_is_not_torn),
        cmocka_unit_test(a_payload_that_no_memory_is_there_for_fails_the_open),
        cmocka_unit_test(a_dead_copy_that_no_kill_names_gets_one),
        cmocka_unit_test(a_dead_copy_that_a_kill_names_gets_no_other),
        cmocka_unit_test(a_torn_copy_gets_a_kill_when_a_newer_one_lives),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
