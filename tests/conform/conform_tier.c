/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_tier.c - one list of checks that every tier passes: HOST, HBM over the emulation, NVME
 * over both io engines, null, fake.
 *
 * Each kind declares what it can; a check that asks for more is not run for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "io_engines.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "tier_rig.h"

enum {
    KEEPS = 1,    /* What was put is there until it is dropped. */
    FREES = 2,    /* A drop makes room. */
    CAPACITY = 4, /* It can be full. */
    DURABLE = 8,  /* A place outlives the tier. */
};

struct kind {
    enum tier_kind kind;
    const char *name;
    unsigned can;
};

static const struct kind kinds[] = {
    {TIER_KIND_HOST, "host", KEEPS | FREES | CAPACITY},
    {TIER_KIND_HBM, "hbm over the emulation", KEEPS | FREES | CAPACITY},
    {TIER_KIND_NVME_URING, "nvme over uring", KEEPS | CAPACITY | DURABLE},
    {TIER_KIND_NVME_THREADS, "nvme over threads", KEEPS | CAPACITY | DURABLE},
    {TIER_KIND_NULL, "null", 0},
    {TIER_KIND_FAKE, "fake", KEEPS | FREES | CAPACITY},
};

enum {
    SEGMENTS = 6, /* Of 1 MiB. */
};

static struct tier_rig rig;

static void
rig_ready(void **state)
{
    const struct kind *kind = *state;

    rig_init(&rig, kind->kind, 1, SEGMENTS);
    assert_int_equal(rig_open(&rig), KVT_OK);
}

/* Every block of an answered get is right, in its length and in nothing else that counts. */
static void
blocks_verify(const struct rig_batch *get)
{
    for (uint32_t i = 0; i < get->batch.block_count; i++) {
        const struct tier_block *block = &get->blocks[i];

        assert_int_equal(block->status, KVT_OK);
        assert_true(payload_matches(block->memory, block->record.stored_length, get->seeds[i]));
    }
}

/* --- Checks ----------------------------------------------------------------------------------- */

static void
what_was_put_is_got_back(void **state)
{
    static const uint32_t lengths[] = {1, 511, 4095, 4096, 4097, 8192, 65536, 100001, 262144};
    static struct rig_batch put, get;

    rig_ready(state);
    rig_batch_init(&rig, &put);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        rig_batch_add(&rig, &put, lengths[i], 100 + i);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    assert_int_equal(put.batch.status, KVT_OK);
    for (uint32_t i = 0; i < put.batch.block_count; i++) {
        assert_int_equal(put.blocks[i].status, KVT_OK);
        assert_int_not_equal(put.blocks[i].record.extent.generation, 0);
        /* The source may be reused now. */
        memset(put.blocks[i].memory, 0xCC, lengths[i]);
    }
    for (uint32_t round = 0; round < 3; round++) {
        rig_get_init(&rig, &get, &put);
        get.batch.urgent = round % 2;
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        blocks_verify(&get);
    }
    rig_deinit(&rig);
}

static void
what_keeps_nothing_misses(void **state)
{
    static struct rig_batch put, get;

    rig_ready(state);
    rig_batch_init(&rig, &put);
    rig_batch_add(&rig, &put, 5000, 1);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    assert_int_equal(put.blocks[0].status, KVT_OK);
    rig_get_init(&rig, &get, &put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    assert_int_equal(get.blocks[0].status, KVT_MISS);
    rig_deinit(&rig);
}

static void
a_miss_leaves_the_target_alone(void **state)
{
    static struct rig_batch put, get;
    uint8_t *memory;

    rig_ready(state);
    rig_batch_init(&rig, &put);
    rig_batch_add(&rig, &put, 9000, 1);
    rig_batch_add(&rig, &put, 9000, 2);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    rig_get_init(&rig, &get, &put);
    get.blocks[0].record.extent.generation++;
    get.blocks[1].record.extent.page = UINT32_MAX;
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(get.blocks[i].status, KVT_MISS);
        memory = get.blocks[i].memory;
        for (uint32_t k = 0; k < 12288; k++)
            assert_int_equal(memory[k], 0xDB);
    }
    rig_deinit(&rig);
}

static void
impossible_places_are_misses(void **state)
{
    static struct rig_batch put, get;
    struct rng rng = {.state = 11};

    rig_ready(state);
    rig_batch_init(&rig, &put);
    rig_batch_add(&rig, &put, 4096, 1);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    for (uint32_t i = 0; i < 300; i++) {
        struct extent *extent = &get.blocks[0].record.extent;

        rig_memory_reset(&rig);
        rig_get_init(&rig, &get, &put);
        /* Never the place itself: its generation is small. */
        extent->generation = i % 3 == 0 ? 0 : (uint32_t)rng_next(&rng) | 0x80000000;
        if (i % 2 == 0)
            extent->segment = (uint32_t)rng_next(&rng) >> rng_below(&rng, 32);
        if (i % 5 == 0)
            extent->page = (uint32_t)rng_next(&rng) >> rng_below(&rng, 32);
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        assert_int_equal(get.blocks[0].status, KVT_MISS);
    }
    rig_deinit(&rig);
}

static void
each_block_has_its_own_status(void **state)
{
    static struct rig_batch put, get;

    rig_ready(state);
    rig_batch_init(&rig, &put);
    for (uint32_t i = 0; i < 40; i++)
        rig_batch_add(&rig, &put, 3000 + i * 100, i);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    rig_get_init(&rig, &get, &put);
    for (uint32_t i = 0; i < 40; i += 3)
        get.blocks[i].record.extent.generation += 7;
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    for (uint32_t i = 0; i < 40; i++) {
        const struct tier_block *block = &get.blocks[i];

        assert_int_equal(block->status, i % 3 == 0 ? KVT_MISS : KVT_OK);
        if (i % 3 != 0)
            assert_true(payload_matches(block->memory, block->record.stored_length, i));
    }
    rig_deinit(&rig);
}

static void
every_batch_is_answered_once_and_puts_in_order(void **state)
{
    enum {
        COUNT = 30
    };
    static struct rig_batch puts[COUNT], gets[COUNT];

    rig_ready(state);
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_batch_init(&rig, &puts[i]);
        for (uint32_t k = 0; k <= i % 3; k++)
            rig_batch_add(&rig, &puts[i], 1 + (i * 7919 + k * 104729) % 20000, i * 10 + k);
        assert_int_equal(rig.tier->ops->put(rig.tier, &puts[i].batch), KVT_OK);
        if (i % 4 == 0)
            rig_turn(&rig);
    }
    rig_wait(&rig, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(rig.answers[i], &puts[i].batch);
        assert_int_equal(puts[i].batch.status, KVT_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_get_init(&rig, &gets[i], &puts[i]);
        gets[i].batch.urgent = i % 2;
        assert_int_equal(rig.tier->ops->get(rig.tier, &gets[i].batch), KVT_OK);
    }
    rig_wait(&rig, 2 * COUNT);
    for (uint32_t i = 0; i < 100; i++)
        rig_turn(&rig);
    assert_int_equal(rig.answer_count, 2 * COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t seen = 0;

        for (uint32_t k = COUNT; k < 2 * COUNT; k++)
            seen += rig.answers[k] == &gets[i].batch;
        assert_int_equal(seen, 1);
        if (((const struct kind *)*state)->can & KEEPS)
            blocks_verify(&gets[i]);
    }
    rig_deinit(&rig);
}

static void
places_never_overlap(void **state)
{
    enum {
        COUNT = 12
    };
    static struct rig_batch puts[COUNT], get;

    rig_ready(state);
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_batch_init(&rig, &puts[i]);
        for (uint32_t k = 0; k < 8; k++)
            rig_batch_add(&rig, &puts[i], 20000, i * 100 + k);
        assert_int_equal(rig.tier->ops->put(rig.tier, &puts[i].batch), KVT_OK);
    }
    rig_wait(&rig, COUNT);
    /* Only now: a later put must not have written over an earlier one. */
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_get_init(&rig, &get, &puts[i]);
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        blocks_verify(&get);
    }
    rig_deinit(&rig);
}

/* Put blocks of 128 KiB until there is no room; returns how many were kept. */
static uint32_t
fill(struct rig_batch *puts, uint32_t count_max)
{
    uint32_t count = 0;
    enum kvt_status status;

    for (; count < count_max; count++) {
        rig_batch_init(&rig, &puts[count]);
        rig_batch_add(&rig, &puts[count], 128 * 1024, count);
        status = rig_put(&rig, &puts[count]);
        if (status != KVT_OK) {
            assert_int_equal(status, KVT_E_NOSPC);
            break;
        }
        assert_int_equal(puts[count].blocks[0].status, KVT_OK);
    }
    return count;
}

static void
a_full_tier_refuses_and_takes_nothing(void **state)
{
    enum {
        COUNT_MAX = 64
    };
    static struct rig_batch puts[COUNT_MAX], more, get;
    struct tier_usage before, after;
    uint32_t count;

    rig_ready(state);
    count = fill(puts, COUNT_MAX);
    assert_true(count >= SEGMENTS && count < COUNT_MAX);
    rig.tier->ops->usage(rig.tier, &before);
    assert_true(before.used_bytes >= (uint64_t)count * 128 * 1024);
    assert_true(before.used_bytes <= before.capacity_bytes);
    assert_true(before.free_bytes < before.capacity_bytes);

    /* Its first blocks may fit, the last does not: none of them is kept. */
    rig_batch_init(&rig, &more);
    for (uint32_t i = 0; i < 10; i++)
        rig_batch_add(&rig, &more, 80 * 1024, i);
    assert_int_equal(rig_put(&rig, &more), KVT_E_NOSPC);
    for (uint32_t i = 0; i < 20; i++)
        rig_turn(&rig);
    assert_int_equal(rig.answer_count, 0);
    rig.tier->ops->usage(rig.tier, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    for (uint32_t i = 0; i < count; i++) {
        rig_memory_reset(&rig);
        rig_get_init(&rig, &get, &puts[i]);
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        blocks_verify(&get);
    }
    rig_deinit(&rig);
}

static void
a_drop_frees_and_makes_stale(void **state)
{
    enum {
        COUNT_MAX = 64
    };
    static struct rig_batch puts[COUNT_MAX], get;
    static struct rig_batch again;
    struct tier_usage usage;
    uint32_t count;

    rig_ready(state);
    count = fill(puts, COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct tier_place place = {puts[i].blocks[0].record.extent};

        rig.tier->ops->drop(rig.tier, &place);
        rig.tier->ops->drop(rig.tier, &place); /* Twice does no harm. */
        rig_memory_reset(&rig);
        rig_get_init(&rig, &get, &puts[i]);
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        assert_int_equal(get.blocks[0].status, KVT_MISS);
    }
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.used_bytes, 0);
    assert_int_equal(usage.free_bytes, usage.capacity_bytes);
    rig_memory_reset(&rig);
    rig_batch_init(&rig, &again);
    rig_batch_add(&rig, &again, 128 * 1024, 500);
    assert_int_equal(rig_put(&rig, &again), KVT_OK);
    /* What lived there before does not come back under its old place. */
    for (uint32_t i = 0; i < count; i++) {
        struct tier_place place = {puts[i].blocks[0].record.extent};

        rig_get_init(&rig, &get, &puts[i]);
        assert_int_equal(rig_get(&rig, &get), KVT_OK);
        assert_int_equal(get.blocks[0].status, KVT_MISS);
        rig.tier->ops->drop(rig.tier, &place);
        rig.arena_used = 128 * 1024;
    }
    rig_get_init(&rig, &get, &again);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    blocks_verify(&get);
    rig_deinit(&rig);
}

static void
a_block_without_bytes_is_refused(void **state)
{
    static struct rig_batch put;
    struct tier_usage before, after;

    rig_ready(state);
    rig.tier->ops->usage(rig.tier, &before);
    rig_batch_init(&rig, &put);
    rig_batch_add(&rig, &put, 100, 1);
    rig_batch_add(&rig, &put, 100, 2);
    put.blocks[1].record.stored_length = 0;
    assert_int_equal(rig_put(&rig, &put), KVT_E_INVAL);
    rig.tier->ops->usage(rig.tier, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    rig_deinit(&rig);
}

static void
a_get_of_nothing_is_answered(void **state)
{
    static struct rig_batch get;

    rig_ready(state);
    rig_batch_init(&rig, &get);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    assert_int_equal(get.batch.status, KVT_OK);
    rig_deinit(&rig);
}

static void
an_empty_tier_says_so(void **state)
{
    struct tier_usage usage;

    rig_ready(state);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.used_bytes, 0);
    assert_int_equal(usage.free_bytes, usage.capacity_bytes);
    assert_true(usage.capacity_bytes >= (SEGMENTS - 1) << 20);
    assert_non_null(rig.tier->ops->name);
    rig_deinit(&rig);
}

/* A place is plain data: after a restart it still finds its bytes. */
static void
a_place_outlives_the_tier(void **state)
{
    static struct rig_batch put, get;
    struct segment facts;

    rig_ready(state);
    rig_batch_init(&rig, &put);
    for (uint32_t i = 0; i < 10; i++)
        rig_batch_add(&rig, &put, 10000 + i, i);
    assert_int_equal(rig_put(&rig, &put), KVT_OK);
    facts = *segment_at(nvme_segments(rig.nvme), put.blocks[0].record.extent.segment);
    rig_close(&rig);
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
    rig_get_init(&rig, &get, &put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    blocks_verify(&get);
    rig_deinit(&rig);
}

/* --- The list --------------------------------------------------------------------------------- */

struct check {
    const char *name;
    CMUnitTestFunction run;
    unsigned needs;
    unsigned excludes;
};

#define CHECK(function, needs, excludes)     \
    {                                        \
#        function, function, needs, excludes \
    }

static const struct check checks[] = {
    CHECK(what_was_put_is_got_back, KEEPS, 0),
    CHECK(what_keeps_nothing_misses, 0, KEEPS),
    CHECK(a_miss_leaves_the_target_alone, 0, 0),
    CHECK(impossible_places_are_misses, 0, 0),
    CHECK(each_block_has_its_own_status, KEEPS, 0),
    CHECK(every_batch_is_answered_once_and_puts_in_order, 0, 0),
    CHECK(places_never_overlap, KEEPS, 0),
    CHECK(a_full_tier_refuses_and_takes_nothing, CAPACITY, 0),
    CHECK(a_drop_frees_and_makes_stale, FREES, 0),
    CHECK(a_block_without_bytes_is_refused, KEEPS, 0),
    CHECK(a_get_of_nothing_is_answered, 0, 0),
    CHECK(an_empty_tier_says_so, 0, 0),
    CHECK(a_place_outlives_the_tier, DURABLE, 0),
};

enum {
    KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]),
    CHECK_COUNT = sizeof(checks) / sizeof(checks[0]),
};

int
main(void)
{
    static struct CMUnitTest tests[KIND_COUNT * CHECK_COUNT];
    static char names[KIND_COUNT * CHECK_COUNT][128];
    bool has_uring = io_uring_probe() == KVT_OK;
    size_t count = 0;

    stop_on_proof();
    if (!has_uring)
        print_message("nvme over uring is left out: %s\n", failure_last()->text);
    for (size_t k = 0; k < KIND_COUNT; k++) {
        for (size_t c = 0; c < CHECK_COUNT; c++) {
            if (kinds[k].kind == TIER_KIND_NVME_URING && !has_uring)
                continue;
            if ((checks[c].needs & ~kinds[k].can) != 0 || (checks[c].excludes & kinds[k].can) != 0)
                continue;
            (void)snprintf(
                names[count], sizeof(names[count]), "%s: %s", kinds[k].name, checks[c].name);
            tests[count] = (struct CMUnitTest){.name = names[count],
                .test_func = checks[c].run,
                .initial_state = (void *)(uintptr_t)&kinds[k]};
            count++;
        }
    }
    return _cmocka_run_group_tests("conform_tier", tests, count, NULL, NULL);
}
