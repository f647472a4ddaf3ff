/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_names_file.c - NAMES.a and NAMES.b: the list, round trip, the rule of two copies, hostile
 * bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "names_file.h"
#include "rng.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

static const uint8_t uuid[16] = {4, 4, 2};

struct fixture {
    struct kvt_env env;
    struct fs_ops fs;
    struct scratch_dir scratch;
    struct fs_dir *dir;
    struct names_file names;
};

static const struct fs_ops *host_fs;

static void
fixture_open(struct fixture *fixture)
{
    env_host(&fixture->env);
    host_fs = fixture->env.fs;
    fixture->fs = *host_fs;
    fixture->env.fs = &fixture->fs;
    scratch_dir_make(&fixture->scratch);
    assert_int_equal(
        fixture->fs.dir_open(fixture->env.fs_context, fixture->scratch.path, 0, &fixture->dir),
        KVT_OK);
    names_init(&fixture->names, &fixture->env, uuid);
}

static void
fixture_close(struct fixture *fixture)
{
    names_deinit(&fixture->names);
    fixture->fs.dir_close(fixture->dir);
    scratch_dir_remove(&fixture->scratch);
}

/* Forget the list and read it again. */
static enum kvt_status
read_back(struct fixture *fixture)
{
    names_deinit(&fixture->names);
    names_init(&fixture->names, &fixture->env, uuid);
    return names_read(&fixture->names, fixture->dir);
}

static struct name_entry *
add(struct fixture *fixture, const char *name, const char *description)
{
    struct name_entry *entry;

    assert_int_equal(
        names_add(&fixture->names, name, description, strlen(description), &entry), KVT_OK);
    return entry;
}

/* --- The list --------------------------------------------------------------------------------- */

static void
names_are_found_by_name_and_by_id(void **state)
{
    struct fixture fixture;
    char name[32];

    (void)state;
    fixture_open(&fixture);
    assert_null(names_find(&fixture.names, "a"));
    for (uint32_t i = 1; i <= 100; i++) {
        (void)snprintf(name, sizeof(name), "space %u", i);
        assert_int_equal(add(&fixture, name, "")->id, i);
    }
    for (uint32_t i = 1; i <= 100; i++) {
        (void)snprintf(name, sizeof(name), "space %u", i);
        assert_int_equal(names_find(&fixture.names, name)->id, i);
        assert_string_equal(names_find_id(&fixture.names, i)->name, name);
        assert_int_equal(names_find_id(&fixture.names, i)->epoch, 1);
    }
    assert_null(names_find(&fixture.names, "space"));
    assert_null(names_find_id(&fixture.names, 0));
    assert_null(names_find_id(&fixture.names, 101));
    fixture_close(&fixture);
}

/* The engine takes back a name that could not be written. */
static void
a_name_that_was_taken_back_leaves_nothing_in_the_next(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    add(&fixture, "a long name", "a long description");
    fixture.names.count--;
    add(&fixture, "short", "one");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_string_equal(fixture.names.entries[0].name, "short");
    assert_string_equal(fixture.names.entries[0].description, "one");
    fixture_close(&fixture);
}

static void
names_out_of_bounds_are_refused(void **state)
{
    static char text[DESCRIPTION_BYTES_MAX + 2];
    struct fixture fixture;
    struct name_entry *entry;

    (void)state;
    fixture_open(&fixture);
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(names_add(&fixture.names, "", NULL, 0, &entry), KVT_E_INVAL);
    assert_int_equal(names_add(&fixture.names, text, NULL, 0, &entry), KVT_E_INVAL);
    assert_int_equal(
        names_add(&fixture.names, "a", text, DESCRIPTION_BYTES_MAX + 1, &entry), KVT_E_INVAL);
    text[NAME_BYTES_MAX] = 0;
    assert_int_equal(names_add(&fixture.names, text, NULL, 0, &entry), KVT_OK);
    assert_int_equal(entry->name_length, NAME_BYTES_MAX);
    assert_int_equal(names_add(&fixture.names, text, NULL, 0, &entry), KVT_E_INVAL);
    entry = names_find(&fixture.names, text);
    entry->id = NAMES_COUNT_MAX;
    assert_int_equal(names_add(&fixture.names, "no id is left", NULL, 0, &entry), KVT_E_NOSPC);
    fixture_close(&fixture);
}

static void
the_list_is_bounded_and_its_largest_file_is_read(void **state)
{
    static char description[DESCRIPTION_BYTES_MAX];
    struct fixture fixture;
    struct name_entry *entry;
    char name[NAME_BYTES_MAX + 1];

    (void)state;
    fixture_open(&fixture);
    memset(name, 'n', sizeof(name));
    name[NAME_BYTES_MAX] = 0;
    for (uint32_t i = 0; i < NAMES_COUNT_MAX; i++) {
        (void)snprintf(name, 8, "%07u", i);
        name[7] = 'n';
        memset(description, (int)i, sizeof(description));
        assert_int_equal(
            names_add(&fixture.names, name, description, sizeof(description), &entry), KVT_OK);
    }
    assert_int_equal(names_add(&fixture.names, "one more", NULL, 0, &entry), KVT_E_NOSPC);
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_int_equal(fixture.names.count, NAMES_COUNT_MAX);
    for (uint32_t i = 0; i < NAMES_COUNT_MAX; i += 511) {
        entry = names_find_id(&fixture.names, i + 1);
        assert_int_equal(entry->name_length, NAME_BYTES_MAX);
        memset(description, (int)i, sizeof(description));
        assert_memory_equal(entry->description, description, sizeof(description));
    }
    fixture_close(&fixture);
}

/* --- The file --------------------------------------------------------------------------------- */

static void
what_was_written_is_read(void **state)
{
    struct fixture fixture;
    struct name_entry *entry;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(read_back(&fixture), KVT_MISS);
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_int_equal(fixture.names.count, 0);
    add(&fixture, "first", "a description");
    add(&fixture, "second", "")->epoch = 77;
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_int_equal(fixture.names.count, 2);
    entry = names_find(&fixture.names, "first");
    assert_int_equal(entry->id, 1);
    assert_int_equal(entry->epoch, 1);
    assert_int_equal(entry->description_length, 13);
    assert_memory_equal(entry->description, "a description", 13);
    entry = names_find(&fixture.names, "second");
    assert_int_equal(entry->id, 2);
    assert_int_equal(entry->epoch, 77);
    assert_int_equal(entry->description_length, 0);
    /* Shorter than before: nothing of the longer file stays behind. */
    fixture.names.count = 1;
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_int_equal(fixture.names.count, 1);
    fixture_close(&fixture);
}

static void
damage_to_either_copy_loses_nothing(void **state)
{
    static const char *const files[2] = {"NAMES.a", "NAMES.b"};
    struct fixture fixture;
    uint8_t whole[512];
    size_t size;

    (void)state;
    fixture_open(&fixture);
    add(&fixture, "model", "weights");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    names_find_id(&fixture.names, 1)->epoch = 2; /* A clear. */
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        size = scratch_read(&fixture.scratch, files[i], whole, sizeof(whole));
        for (size_t at = 0; at < size; at++) {
            whole[at] ^= (uint8_t)(1u << at % 8);
            scratch_write(&fixture.scratch, files[i], whole, size);
            whole[at] ^= (uint8_t)(1u << at % 8);
            assert_int_equal(read_back(&fixture), KVT_OK);
            assert_int_equal(names_find(&fixture.names, "model")->epoch, 2);
        }
        for (size_t keep = 0; keep < size; keep += 5) {
            scratch_write(&fixture.scratch, files[i], whole, keep);
            assert_int_equal(read_back(&fixture), KVT_OK);
            assert_int_equal(names_find(&fixture.names, "model")->epoch, 2);
        }
        scratch_unlink(&fixture.scratch, files[i]);
        assert_int_equal(read_back(&fixture), KVT_OK);
        assert_int_equal(names_find(&fixture.names, "model")->epoch, 2);
        scratch_write(&fixture.scratch, files[i], whole, size);
    }
    fixture_close(&fixture);
}

static void
both_copies_damaged_are_refused_by_name(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    add(&fixture, "model", "weights");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    scratch_write(&fixture.scratch, "NAMES.a", "", 0);
    scratch_write(&fixture.scratch, "NAMES.b", "no", 2);
    assert_int_equal(read_back(&fixture), KVT_E_CORRUPT);
    assert_non_null(strstr(failure_last()->text, "NAMES.a"));
    assert_non_null(strstr(failure_last()->text, "NAMES.b"));
    assert_int_equal(fixture.names.count, 0);
    fixture_close(&fixture);
}

static void
names_of_another_store_are_refused_and_never_spared(void **state)
{
    static const uint8_t other_uuid[16] = {1};
    struct fixture fixture;
    struct names_file other;

    (void)state;
    fixture_open(&fixture);
    names_init(&other, &fixture.env, other_uuid);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(names_write(&other, fixture.dir), KVT_OK);
    names_deinit(&other);
    assert_int_equal(read_back(&fixture), KVT_E_CORRUPT);
    assert_non_null(strstr(failure_last()->text, "another store"));

    /* Written over, ours count although the others' sequences were higher. */
    add(&fixture, "ours", "");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_non_null(names_find(&fixture.names, "ours"));
    fixture_close(&fixture);
}

static uint32_t syncs_left; /* That succeed. */

static enum kvt_status
sync_failing(struct fs_file *file)
{
    if (syncs_left == 0)
        return failure_set(KVT_E_IO, 5, "the sync fails on purpose");
    syncs_left--;
    return host_fs->sync(file);
}

/* Half of it arrives. */
static enum kvt_status
write_torn(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    return host_fs->write_at(file, source, size / 2, offset);
}

static void
a_failed_write_leaves_the_copy_that_counted(void **state)
{
    struct fixture fixture;
    uint64_t sequence;

    (void)state;
    fixture_open(&fixture);
    fixture.fs.sync = sync_failing;
    syncs_left = 100;
    add(&fixture, "model", "");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    sequence = fixture.names.sequence;
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t a[512], b[512];
        bool is_kept;

        syncs_left = 0;
        fixture.names.entries[0].epoch = 2 + i;
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
        assert_int_equal(fixture.names.sequence, sequence);
        scratch_read(&fixture.scratch, "NAMES.a", a, sizeof(a));
        scratch_read(&fixture.scratch, "NAMES.b", b, sizeof(b));
        is_kept = get_u64(a + 8) == sequence || get_u64(b + 8) == sequence;
        assert_true(is_kept);
    }
    /* One copy is behind: who could read only that would not find what was written. */
    syncs_left = 1;
    fixture.names.entries[0].epoch = 50;
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
    assert_non_null(strstr(failure_last()->text, "one copy of NAMES.a"));
    assert_int_equal(read_back(&fixture), KVT_OK);
    assert_int_equal(fixture.names.entries[0].epoch, 50);
    fixture_close(&fixture);
}

/* KVT_MISS would say that there are no names. */
static void
a_write_into_a_folder_that_is_gone_has_failed(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    add(&fixture, "model", "");
    scratch_dir_remove(&fixture.scratch);
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
    scratch_dir_make(&fixture.scratch);
    fixture_close(&fixture);
}

static void
a_failed_write_leaves_the_newer_of_two_copies(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    fixture.fs.sync = sync_failing;
    syncs_left = 100;
    add(&fixture, "model", "");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    for (uint32_t epoch = 2; epoch < 6; epoch++) { /* Each copy is the newer one in its turn. */
        fixture.names.entries[0].epoch = epoch;
        syncs_left = 1;
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
        fixture.names.entries[0].epoch = 100;
        syncs_left = 0;
        fixture.fs.write_at = write_torn;
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
        fixture.fs.write_at = host_fs->write_at;
        assert_int_equal(read_back(&fixture), KVT_OK);
        assert_int_equal(fixture.names.entries[0].epoch, epoch);
    }
    fixture_close(&fixture);
}

static enum kvt_status
read_failing(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    (void)file, (void)target, (void)size, (void)offset, (void)read_out;
    return failure_set(KVT_E_IO, 0, "the read fails on purpose");
}

/* Nobody knows then which of the two is the whole one: to write over it would leave none, if the
 * power goes. */
static void
what_cannot_be_read_is_not_written_over_while_the_other_is_torn(void **state)
{
    static const char *const copies[] = {"NAMES.a", "NAMES.b"};
    struct fixture fixture;

    (void)state;
    for (uint32_t torn = 0; torn < 2; torn++) {
        uint8_t before[512], after[512];
        const char *whole = copies[1 - torn];
        size_t size;

        fixture_open(&fixture);
        add(&fixture, "model", "");
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
        scratch_write(&fixture.scratch, copies[torn], "torn", 4);
        assert_int_equal(read_back(&fixture), KVT_OK);
        size = scratch_read(&fixture.scratch, whole, before, sizeof(before));
        fixture.fs.read_at = read_failing;
        fixture.names.entries[0].epoch = 2;
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
        fixture.fs.read_at = host_fs->read_at;
        assert_int_equal(scratch_read(&fixture.scratch, whole, after, sizeof(after)), size);
        assert_memory_equal(after, before, size);
        assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
        assert_int_equal(read_back(&fixture), KVT_OK);
        assert_int_equal(fixture.names.entries[0].epoch, 2);
        fixture_close(&fixture);
    }
}

static uint32_t opens_left; /* For writing, that succeed. */

static enum kvt_status
open_short_of_memory(
    struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if ((flags & FS_CREATE) != 0 && opens_left-- == 0)
        return failure_set(KVT_E_NOMEM, 0, "the open finds no memory on purpose");
    return host_fs->open(dir, name, flags, file_out);
}

/* KVT_E_NOMEM is for a write of which nothing is there. */
static void
what_one_copy_has_is_not_nothing(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    fixture.fs.open = open_short_of_memory;
    opens_left = 2;
    add(&fixture, "model", "");
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_OK);
    opens_left = 0;
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_NOMEM);
    opens_left = 1;
    assert_int_equal(names_write(&fixture.names, fixture.dir), KVT_E_IO);
    fixture_close(&fixture);
}

/* --- Hostile bytes under a right CRC ---------------------------------------------------------- */

enum {
    FORGED_BYTES = 64 + 24 + 24,
};

/* Two entries: {1, 1, "ab", "cdef"} and {2, 1, "xy", ""}. */
static void
forged_make(uint8_t bytes[FORGED_BYTES])
{
    memset(bytes, 0, FORGED_BYTES);
    put_u32(bytes, 0x9BD25A6E);
    put_u64(bytes + 8, 1);
    memcpy(bytes + 16, uuid, 16);
    put_u32(bytes + 32, 2);
    put_u32(bytes + 36, FORGED_BYTES);
    put_u32(bytes + 64, 1);
    put_u32(bytes + 68, 1);
    put_u32(bytes + 72, 2);
    put_u32(bytes + 76, 4);
    memcpy(bytes + 80, "abcdef", 6);
    put_u32(bytes + 88, 2);
    put_u32(bytes + 92, 1);
    put_u32(bytes + 96, 2);
    memcpy(bytes + 104, "xy", 2);
}

static enum kvt_status
forged_read(struct fixture *fixture, uint8_t bytes[FORGED_BYTES])
{
    put_u32(bytes + 4, crc32c(0, bytes + 8, FORGED_BYTES - 8));
    scratch_write(&fixture->scratch, "NAMES.a", bytes, FORGED_BYTES);
    return read_back(fixture);
}

static void
entries_out_of_bounds_are_refused_whatever_the_crc(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } forged[] = {
        {32, 0}, {32, 1}, {32, 3}, {32, 4097}, {32, UINT32_MAX}, /* count */
        {36, FORGED_BYTES - 8}, {36, UINT32_MAX},                /* length */
        {40, 1}, {60, 1},                                        /* reserved */
        {64, 0}, {64, 2}, {88, 4097}, {88, UINT32_MAX},          /* id: none, twice, too high */
        {68, 0},                                                 /* epoch */
        {72, 0}, {72, 256}, {72, UINT32_MAX}, {72, 100},         /* name's length */
        {76, 4097}, {76, UINT32_MAX}, {76, 40}, {76, 3},         /* description's length */
        {84, 0x01006665},                                        /* padding */
        {80, 0x64630061},                                        /* a zero in the name */
        {96, 9},                                                 /* the last entry ends outside */
        {104, 'a' | 'b' << 8},                                   /* the same name twice */
    };
    struct fixture fixture;
    uint8_t bytes[FORGED_BYTES];

    (void)state;
    fixture_open(&fixture);
    forged_make(bytes);
    assert_int_equal(forged_read(&fixture, bytes), KVT_OK);
    assert_int_equal(fixture.names.count, 2);
    assert_memory_equal(names_find(&fixture.names, "ab")->description, "cdef", 4);
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        forged_make(bytes);
        put_u32(bytes + forged[i].at, forged[i].value);
        assert_int_equal(forged_read(&fixture, bytes), KVT_E_CORRUPT);
        assert_int_equal(fixture.names.count, 0);
    }
    fixture_close(&fixture);
}

static void
random_bytes_never_hurt(void **state)
{
    struct fixture fixture;
    struct rng rng = {.state = 5};
    uint8_t bytes[FORGED_BYTES];

    (void)state;
    fixture_open(&fixture);
    for (uint32_t i = 0; i < 2000; i++) {
        forged_make(bytes);
        for (uint32_t k = 0; k <= i % 4; k++) {
            uint32_t at = 32 + 4 * rng_below(&rng, (FORGED_BYTES - 32) / 4);

            put_u32(bytes + at, (uint32_t)rng_next(&rng) >> rng_below(&rng, 32));
        }
        (void)forged_read(&fixture, bytes);
    }
    fixture_close(&fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_by_name_and_by_id),
        cmocka_unit_test(a_name_that_was_taken_back_leaves_nothing_in_the_next),
        cmocka_unit_test(names_out_of_bounds_are_refused),
        cmocka_unit_test(the_list_is_bounded_and_its_largest_file_is_read),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(damage_to_either_copy_loses_nothing),
        cmocka_unit_test(both_copies_damaged_are_refused_by_name),
        cmocka_unit_test(names_of_another_store_are_refused_and_never_spared),
        cmocka_unit_test(a_failed_write_leaves_the_copy_that_counted),
        cmocka_unit_test(a_write_into_a_folder_that_is_gone_has_failed),
        cmocka_unit_test(a_failed_write_leaves_the_newer_of_two_copies),
        cmocka_unit_test(what_one_copy_has_is_not_nothing),
        cmocka_unit_test(what_cannot_be_read_is_not_written_over_while_the_other_is_torn),
        cmocka_unit_test(entries_out_of_bounds_are_refused_whatever_the_crc),
        cmocka_unit_test(random_bytes_never_hurt),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
