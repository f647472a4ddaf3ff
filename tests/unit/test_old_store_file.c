/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_old_store_file.c - STORE is of an earlier life, put back from a copy, beside an index and
 * segments that are newer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    COPIES = 2,
    REPLACED = 1, /* Keys. */
    DELETED,
    FILLER,
};

struct kept {
    uint8_t bytes[COPIES][8192];
    size_t sizes[COPIES];
};

static const char *const copies[COPIES] = {"STORE.a", "STORE.b"};

static char path[KIT_PATH_BYTES];
static kvt_store *store;
static kvt_namespace ns;
static uint32_t epoch_last;

static void
life_begin(uint32_t flags)
{
    struct kvt_options options = kit_options();

    options.flags = flags;
    options.nvme_high_percent = 50; /* Segments are reclaimed. */
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "a", "d", 1, &ns), KVT_OK);
    assert_true(store->file.open_epoch > epoch_last);
    epoch_last = store->file.open_epoch;
}

static void
life_end(bool is_orderly)
{
    if (is_orderly)
        assert_int_equal(kvt_close(store), KVT_OK);
    else
        kvt_abort(store);
}

static const char *
copy_path(uint32_t copy, char text[KIT_PATH_BYTES + 16])
{
    (void)snprintf(text, KIT_PATH_BYTES + 16, "%s/%s", path, copies[copy]);
    return text;
}

static void
store_keep(struct kept *kept)
{
    char text[KIT_PATH_BYTES + 16];

    for (uint32_t i = 0; i < COPIES; i++) {
        kept->sizes[i] = kit_file_read(copy_path(i, text), kept->bytes[i], sizeof(kept->bytes[i]));
        assert_in_range(kept->sizes[i], 1, sizeof(kept->bytes[i]) - 1);
    }
}

static void
store_put_back(const struct kept *kept)
{
    char text[KIT_PATH_BYTES + 16];

    for (uint32_t i = 0; i < COPIES; i++)
        kit_file_write(copy_path(i, text), kept->bytes[i], kept->sizes[i]);
}

static void
fill(uint64_t count)
{
    static uint64_t key = FILLER;

    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(kit_put(store, ns, key++, 1, KIT_BLOCK_BYTES_MAX, KVT_SYNC), KVT_OK);
}

static void
replaced_is(uint64_t wanted)
{
    uint64_t version = 0;

    assert_int_equal(kit_get(store, ns, REPLACED, &version), KVT_OK);
    assert_int_equal(version, wanted);
}

/* Some lives, of which the first alone is known to STORE. */
static void
lives_before(bool last_is_orderly, uint64_t fill_count)
{
    struct kept kept;
    enum {
        COUNT = 4
    };

    kit_dir_make(path);
    epoch_last = 0;
    life_begin(0);
    life_end(true);
    store_keep(&kept);
    for (uint64_t i = 1; i <= COUNT; i++) {
        life_begin(0);
        fill(fill_count);
        assert_int_equal(kit_put(store, ns, REPLACED, i, 1000, KVT_SYNC), KVT_OK);
        assert_int_equal(kit_put(store, ns, DELETED, i, 1000, KVT_SYNC), KVT_OK);
        life_end(i < COUNT || last_is_orderly);
    }
    for (uint32_t i = 0; i < 3; i++) { /* They commit nothing. */
        life_begin(0);
        life_end(i < 2);
    }
    store_put_back(&kept);
}

/* What is written behind it is newer than what the lives wrote that it does not know, for a rebuild
 * as well; and segments take on batches and are reclaimed as ever. */
static void
an_old_store_file_uses_no_number_twice(void **state)
{
    static const uint32_t flags[] = {0, KVT_OPEN_REBUILD};

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        lives_before((i & 1) != 0, (i & 2) != 0 ? 30 : 0);
        life_begin(flags[i >> 2]);
        replaced_is(4);
        assert_int_equal(kit_put(store, ns, REPLACED, 9, 1000, KVT_SYNC), KVT_OK);
        assert_int_equal(kit_delete(store, ns, DELETED), KVT_OK);
        fill((i & 2) != 0 ? 200 : 0);
        kit_audit(store);
        life_end(true);
        life_begin(KVT_OPEN_REBUILD);
        if ((i & 2) == 0)
            replaced_is(9);
        assert_int_equal(kit_get(store, ns, DELETED, &(uint64_t){0}), KVT_MISS);
        life_end(true);
        kit_dir_remove(path);
    }
}

static void
finding_note(void *context, const struct kvt_finding *finding)
{
    assert_string_equal(finding->kind, "store");
    assert_non_null(strstr(finding->text, "older copy"));
    ++*(uint32_t *)context;
}

static void
an_old_store_file_is_named_until_it_is_written_anew(void **state)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    uint32_t count = 0;
    const struct kvt_examiner examiner = {.found = finding_note, .context = &count};

    (void)state;
    lives_before(true, 0);
    assert_int_equal(kvt_check(path, &examiner, &report), KVT_OK);
    assert_int_equal(count, 1);
    life_begin(0);
    life_end(true);
    assert_int_equal(kvt_check(path, &examiner, &report), KVT_OK);
    assert_int_equal(count, 1);
    kit_dir_remove(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_store_file_uses_no_number_twice),
        cmocka_unit_test(an_old_store_file_is_named_until_it_is_written_anew),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
