/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_options.c - options of older and newer callers, defaults, bounds, and what a store that is
 * there says to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store_internal.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Of a caller whose struct has fields that this library does not know. */
struct longer_options {
    struct kvt_options known;
    uint64_t unknown[2];
};

static struct kvt_options
resolved(struct kvt_options options)
{
    assert_int_equal(options_resolve(&options, NULL), KVT_OK);
    return options;
}

/* --- Import ----------------------------------------------------------------------------------- */

static void
options_of_a_newer_caller_are_taken_while_the_rest_is_zero(void **state)
{
    struct longer_options source = {.known = {.struct_size = sizeof(source), .worker_count = 3}};
    struct kvt_options target;

    (void)state;
    assert_int_equal(options_import(&target, &source.known), KVT_OK);
    assert_int_equal(target.worker_count, 3);
    assert_int_equal(target.struct_size, sizeof(target));
    source.unknown[1] = 1;
    assert_int_equal(options_import(&target, &source.known), KVT_E_UNSUPPORTED);
}

static void
options_of_an_impossible_size_are_refused(void **state)
{
    struct kvt_options source = KVT_OPTIONS_INIT;
    struct kvt_options target;

    (void)state;
    assert_int_equal(options_import(&target, &source), KVT_OK);
    source.struct_size = sizeof(source) - 1;
    assert_int_equal(options_import(&target, &source), KVT_E_INVAL);
    source.struct_size = 0;
    assert_int_equal(options_import(&target, &source), KVT_E_INVAL);
    source.struct_size = 4097; /* Not read: there is nothing behind the struct. */
    assert_int_equal(options_import(&target, &source), KVT_E_INVAL);
}

static void
flags_that_mean_nothing_are_refused(void **state)
{
    struct kvt_options source = KVT_OPTIONS_INIT;
    struct kvt_options target;

    (void)state;
    source.flags = KVT_OPEN_EXISTING | KVT_OPEN_READ_ONLY | KVT_OPEN_REBUILD |
                   KVT_OPEN_COPY_ENGINES | KVT_OPEN_SHARE_HBM;
    assert_int_equal(options_import(&target, &source), KVT_OK);
    source.flags |= UINT32_C(1) << 31;
    assert_int_equal(options_import(&target, &source), KVT_E_UNSUPPORTED);
}

/* --- Defaults --------------------------------------------------------------------------------- */

static void
zero_means_the_default_of_the_header(void **state)
{
    struct kvt_options options = resolved((struct kvt_options)KVT_OPTIONS_INIT);

    (void)state;
    assert_int_equal(options.host_capacity_bytes, GIB);
    assert_int_equal(options.nvme_capacity_bytes, 8 * GIB);
    assert_int_equal(options.segment_bytes, 128 * MIB); /* 64 of them. */
    assert_int_equal(options.block_bytes_max, 32 * MIB);
    assert_int_equal(options.entry_count_max, UINT64_C(1) << 27);
    assert_int_equal(options.request_count_max, 4096);
    assert_int_equal(options.lease_count_max, 4096);
    assert_int_equal(options.host_high_percent, 95);
    assert_int_equal(options.host_low_percent, 90);
    assert_int_equal(options.nvme_high_percent, 97);
    assert_int_equal(options.dirty_bytes_max, GIB / 2);
    assert_int_equal(options.relaxed_interval_ns, 1000000000);
    assert_int_equal(options.batch_delay_ns, 2000000);
    assert_int_equal(options.log_level, KVT_LOG_ERROR);
    assert_int_equal(options.policy, KVT_POLICY_GHI);
    assert_true(options.index_map_bytes >= MIB);
    assert_true(options.worker_count >= 1 && options.worker_count <= 8);
}

static void
segments_are_a_power_of_two_that_fits_the_capacity(void **state)
{
    (void)state;
    for (uint64_t capacity = 8 * MIB; capacity <= 1024 * GIB; capacity += capacity / 3) {
        struct kvt_options options = resolved(
            (struct kvt_options){.struct_size = sizeof(options), .nvme_capacity_bytes = capacity});

        assert_int_equal(options.segment_bytes & (options.segment_bytes - 1), 0);
        assert_true(options.segment_bytes >= MIB && options.segment_bytes <= 256 * MIB);
        assert_true(capacity / options.segment_bytes >= 8);
        assert_true(options.block_bytes_max <= options.segment_bytes / 4);
    }
}

static void
segments_hold_four_of_the_largest_block_that_is_asked_for(void **state)
{
    struct kvt_options options = resolved((struct kvt_options){
        .struct_size = sizeof(options), .block_bytes_max = KVT_BLOCK_BYTES_MAX});

    (void)state;
    assert_int_equal(options.segment_bytes, 256 * MIB);
    options = (struct kvt_options){
        .struct_size = sizeof(options), .block_bytes_max = MIB, .segment_bytes = 2 * MIB};
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL);
    options = (struct kvt_options){.struct_size = sizeof(options),
        .block_bytes_max = 48 * MIB,
        .host_capacity_bytes = 47 * MIB};
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL); /* HOST holds none of them. */
}

static void
store_without_nvme_needs_no_segments(void **state)
{
    struct kvt_options options = resolved((struct kvt_options){
        .struct_size = sizeof(options), .nvme_capacity_bytes = KVT_CAPACITY_NONE});

    (void)state;
    assert_int_equal(options.nvme_capacity_bytes, KVT_CAPACITY_NONE);
    assert_int_equal(options.index_map_bytes, MIB);
}

static void
store_without_nvme_takes_blocks_by_its_host(void **state)
{
    struct kvt_options none = {
        .struct_size = sizeof(none), .nvme_capacity_bytes = KVT_CAPACITY_NONE};
    struct kvt_options options = resolved(none);

    (void)state;
    assert_int_equal(options.block_bytes_max, 4 * MIB); /* Of a HOST of 1 GiB. */
    none.host_capacity_bytes = 64 * GIB;
    options = resolved(none);
    assert_int_equal(options.block_bytes_max, KVT_BLOCK_BYTES_MAX);
    none.host_capacity_bytes = 2 * MIB;
    options = resolved(none);
    assert_int_equal(options.block_bytes_max, 256 * KIB);
    /* What is asked for needs no segment_bytes beside it. */
    none.host_capacity_bytes = 64 * MIB;
    none.block_bytes_max = KVT_BLOCK_BYTES_MAX;
    options = resolved(none);
    assert_int_equal(options.segment_bytes, 256 * MIB); /* STORE has such. */
}

/* --- Bounds ----------------------------------------------------------------------------------- */

struct bound {
    const char *name;
    size_t offset;
    size_t size; /* Of the field. */
    uint64_t min;
    uint64_t max;
};

#define BOUND(field, low, high)                                                                \
    {                                                                                          \
#        field, offsetof(struct kvt_options, field), sizeof(((struct kvt_options *)0)->field), \
            low, high                                                                          \
    }

static const struct bound bounds[] = {
    /* One block of the default's. */
    BOUND(host_capacity_bytes, 30 * MIB + 1, SLAB_BYTES_END - 2 * MIB),
    BOUND(nvme_capacity_bytes, 8 * MIB, (UINT64_C(1) << 52) + 256 * MIB - 1), /* 2^24 segments. */
    BOUND(segment_bytes, MIB, GIB),
    BOUND(block_bytes_max, 4 * KIB, KVT_BLOCK_BYTES_MAX),
    BOUND(index_map_bytes, MIB, UINT64_C(1) << 44),
    BOUND(entry_count_max, 1, UINT64_C(1) << 31),
    BOUND(root_count, 1, 8),
    BOUND(worker_count, 1, 64),
    BOUND(request_count_max, 16, 65536),
    BOUND(lease_count_max, 1, 1 << 20),
    BOUND(host_high_percent, 1, 100),
    BOUND(host_low_percent, 1, 95),
    BOUND(nvme_high_percent, 10, 100),
    BOUND(dirty_bytes_max, 1, GIB),
    BOUND(relaxed_interval_ns, 1, UINT64_C(3600000000000)),
    BOUND(batch_delay_ns, 1, UINT64_C(1000000000)),
};

static enum kvt_status
resolve_with(const struct bound *bound, uint64_t value)
{
    static const char *const roots[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    struct kvt_options options = {.struct_size = sizeof(options), .roots = roots};
    uint32_t narrow = (uint32_t)value;

    memcpy((char *)&options + bound->offset, bound->size == 4 ? (void *)&narrow : (void *)&value,
        bound->size);
    failure_clear();
    return options_resolve(&options, NULL);
}

static void
every_bound_is_held_and_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        const struct bound *bound = &bounds[i];

        assert_int_equal(resolve_with(bound, bound->min), KVT_OK);
        assert_int_equal(resolve_with(bound, bound->max), KVT_OK);
        if (bound->min > 1) { /* Zero is the default. */
            assert_int_equal(resolve_with(bound, bound->min - 1), KVT_E_INVAL);
            assert_non_null(strstr(failure_last()->text, bound->name));
        }
        assert_int_equal(resolve_with(bound, bound->max + 1), KVT_E_INVAL);
        assert_non_null(strstr(failure_last()->text, bound->name));
    }
}

/* Whole superblocks of 8 MiB hold blocks of 5. */
static void
memory_holds_a_block_where_the_slab_takes_it(void **state)
{
    const struct kvt_options fits = {.struct_size = sizeof(fits),
        .nvme_capacity_bytes = GIB,
        .block_bytes_max = 5 * MIB,
        .host_capacity_bytes = 7 * MIB,
        .hbm_capacity_bytes = 7 * MIB};
    struct kvt_options options = resolved(fits);

    (void)state;
    options = fits;
    options.host_capacity_bytes = 6 * MIB;
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "host_capacity_bytes 6291456"));
    options = fits;
    options.hbm_capacity_bytes = 6 * MIB;
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "hbm_capacity_bytes 6291456"));
    options.hbm_capacity_bytes = (UINT64_C(1) << 41) + 1;
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "hbm_capacity_bytes"));
}

static void
the_ring_of_events_is_told_as_it_is(void **state)
{
    static const uint32_t counts[][2] = {{0, 0}, {64, 64}, {65, 128}, {100, 128}, {128, 128},
        {(1 << 19) + 1, 1 << 20}, {1 << 20, 1 << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct kvt_options options = resolved(
            (struct kvt_options){.struct_size = sizeof(options), .event_count_max = counts[i][0]});

        assert_int_equal(options.event_count_max, counts[i][1]);
    }
}

static void
roots_that_are_counted_must_be_there(void **state)
{
    struct kvt_options options = {.struct_size = sizeof(options), .root_count = 1};

    (void)state;
    assert_int_equal(options_resolve(&options, NULL), KVT_E_INVAL);
}

/* --- A store that is there -------------------------------------------------------------------- */

static const struct store_file made = {
    .segment_pages = (uint32_t)(4 * MIB / PAGE_BYTES),
    .block_bytes_max = 512 * KIB,
    .root_count = 2,
    .root_bytes = {64 * MIB, 128 * MIB},
};

static void
store_that_is_there_wins_over_silence(void **state)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    (void)state;
    assert_int_equal(options_resolve(&options, &made), KVT_OK);
    assert_int_equal(options.segment_bytes, 4 * MIB);
    assert_int_equal(options.block_bytes_max, 512 * KIB);
    assert_int_equal(options.root_count, 2);
    assert_int_equal(options.nvme_capacity_bytes, 192 * MIB);
}

static void
store_that_is_there_refuses_contradiction(void **state)
{
    struct kvt_options same = {.struct_size = sizeof(same),
        .segment_bytes = 4 * MIB,
        .block_bytes_max = 512 * KIB,
        .root_count = 2};
    struct kvt_options options = same;

    (void)state;
    assert_int_equal(options_resolve(&options, &made), KVT_OK);
    options = same;
    options.segment_bytes = 8 * MIB;
    assert_int_equal(options_resolve(&options, &made), KVT_E_INVAL);
    options = same;
    options.block_bytes_max = 256 * KIB;
    assert_int_equal(options_resolve(&options, &made), KVT_E_INVAL);
    options = same;
    options.root_count = 1;
    assert_int_equal(options_resolve(&options, &made), KVT_E_INVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_a_newer_caller_are_taken_while_the_rest_is_zero),
        cmocka_unit_test(options_of_an_impossible_size_are_refused),
        cmocka_unit_test(flags_that_mean_nothing_are_refused),
        cmocka_unit_test(zero_means_the_default_of_the_header),
        cmocka_unit_test(segments_are_a_power_of_two_that_fits_the_capacity),
        cmocka_unit_test(segments_hold_four_of_the_largest_block_that_is_asked_for),
        cmocka_unit_test(store_without_nvme_needs_no_segments),
        cmocka_unit_test(store_without_nvme_takes_blocks_by_its_host),
        cmocka_unit_test(every_bound_is_held_and_named),
        cmocka_unit_test(memory_holds_a_block_where_the_slab_takes_it),
        cmocka_unit_test(the_ring_of_events_is_told_as_it_is),
        cmocka_unit_test(roots_that_are_counted_must_be_there),
        cmocka_unit_test(store_that_is_there_wins_over_silence),
        cmocka_unit_test(store_that_is_there_refuses_contradiction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
