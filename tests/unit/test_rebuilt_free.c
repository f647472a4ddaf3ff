/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt_free.c - damage of one page of a FREE segment: what was deleted, and whose kills
 * are gone because the segment's recycle header hides it, does not come back with a rebuild.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "batch_header.h"
#include "kvtier/kvtier.h"
#include "segment.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

enum {
    BLOCK_COUNT = 600,
    BLOCK_BYTES = 65536,
    LAG = 20, /* Puts between one and its delete: so many blocks live. */
    SEGMENT_PAGES = 256,
    SEGMENT_COUNT = 16,
};

static char path[KIT_PATH_BYTES];
static kvt_store *store;
static kvt_namespace ns;

static void
life_begin(uint32_t flags)
{
    struct kvt_options options = kit_options();

    options.flags = flags;
    options.host_capacity_bytes = 16 * MIB;
    options.nvme_capacity_bytes = SEGMENT_COUNT * MIB;
    options.segment_bytes = MIB;
    options.block_bytes_max = 2 * BLOCK_BYTES;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "a", "d", 1, &ns), KVT_OK);
}

/* Segments are filled, freed and filled again; those with the kills, too. */
static void
all_is_put_and_deleted(void)
{
    life_begin(0);
    for (uint64_t i = 1; i <= BLOCK_COUNT + LAG; i++) {
        if (i <= BLOCK_COUNT)
            assert_int_equal(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        if (i > LAG)
            assert_int_equal(kit_delete(store, ns, i - LAG), KVT_OK);
    }
}

static bool
free_segments_run(struct kvt_store *of, void *context)
{
    uint32_t *found = context;
    const struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(of->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_FREE && segment->generation > 1)
            *found |= 1u << segment_index(segment->number);
    }
    return true;
}

/* Which segments are FREE, and were filled before: bit i is segment i. */
static uint32_t
free_segments(void)
{
    uint32_t found = 0;

    loop_call(store, free_segments_run, &found);
    assert_in_range(__builtin_popcount(found), 2, SEGMENT_COUNT);
    return found;
}

static void
page_damage(uint32_t segment, uint32_t page)
{
    char name[KIT_PATH_BYTES + 16];

    (void)snprintf(name, sizeof(name), "%s/data/data.00", path);
    kit_byte_damage(name, ((long)segment * SEGMENT_PAGES + page) * PAGE_BYTES + 200);
}

/* In one of them alone: with the header of another the kills would be found that it hides. Returns
 * whether there is an n-th. */
static bool
deleted_blocks_stay_away_from(uint32_t n, bool is_behind_crash, uint32_t page)
{
    uint64_t version;
    uint32_t segments;

    kit_dir_make(path);
    all_is_put_and_deleted();
    if (is_behind_crash) {
        kvt_abort(store);
        life_begin(0);
    }
    segments = free_segments();
    assert_int_equal(kvt_close(store), KVT_OK);
    for (uint32_t i = 0; i < n; i++)
        segments &= segments - 1;
    if (segments != 0)
        page_damage((uint32_t)__builtin_ctz(segments), page);
    life_begin(KVT_OPEN_REBUILD);
    for (uint64_t key = 1; key <= BLOCK_COUNT; key++)
        assert_int_equal(kit_get(store, ns, key, &version), KVT_MISS);
    kit_works(store);
    kit_dir_remove(path);
    return segments != 0;
}

/* The recycle headers of a reclaim, or, behind a crash, those of an open. */
static void
deleted_blocks_stay_away(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t n = 0; deleted_blocks_stay_away_from(n, (i & 2) != 0, i & 1); n++)
            ;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deleted_blocks_stay_away),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
