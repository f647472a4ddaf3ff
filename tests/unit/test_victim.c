/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_victim.c - which segment is reclaimed next and which of its blocks are written again, on a
 * store of which only the tables are there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nvme_internal.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "victim.h"
#include "victim_scan.h"

enum {
    SEGMENTS = 8,
    PAGES = 256,
    BLOCKS_MAX = 64,
    BLOCK_PAGES = 16,
};

/* `blocks` are those of the segment that a test asks about. */
struct fixture {
    struct kvt_store store;
    struct nvme_tier nvme; /* What of it is asked for: whether a root takes writes. */
    struct resident blocks[BLOCKS_MAX];
    uint32_t count;
    uint64_t key_count;
    uint64_t credit_bytes;
};

/* *state NULL: of one root, else of two. */
static int
setup(void **state)
{
    const uint32_t counts[2] = {SEGMENTS, SEGMENTS}, roots = *state == NULL ? 1 : 2;
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct kvt_store *store = &fixture->store;

    assert_non_null(fixture);
    env_host(&store->env);
    fixture->credit_bytes = UINT64_C(1) << 40;
    store->file.segment_pages = PAGES;
    store->file.root_count = roots;
    if (segment_table_open(&store->env, roots, counts, PAGES, &store->segments) != KVT_OK ||
        residency_open(&store->env, 1000, &store->map) != KVT_OK ||
        entries_open(&store->env, store->map, &store->entries) != KVT_OK ||
        policy_lru_ops.open(&store->env, store->entries, &store->policy) != KVT_OK ||
        pins_open(store) != KVT_OK || commit_open(store) != KVT_OK ||
        victim_scan_open(store) != KVT_OK)
        return -1;
    store->nvme = &fixture->nvme;
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_store *store = &fixture->store;

    victim_scan_close(store);
    commit_close(store);
    pins_close(store);
    policy_lru_ops.close(store->policy);
    entries_close(store->entries);
    residency_close(store->map);
    segment_table_close(store->segments);
    free(fixture);
    return 0;
}

/* Fill segments up to this one and seal them; they count as full of what lives. */
static struct segment *
segment_make(struct fixture *fixture, uint32_t number)
{
    struct segment_table *segments = fixture->store.segments;
    struct segment *segment = segment_at(segments, number);
    uint32_t root = segment_root(number), page;

    while (segment->state != SEGMENT_SEALED) {
        struct segment *taken, *sealed;

        assert_int_equal(
            segment_run_take(segments, root, BLOCK_PAGES, 0, &taken, &page, &sealed), KVT_OK);
        segment_seal(segments, taken);
        taken->live_bytes = (uint64_t)PAGES * PAGE_BYTES / 2;
    }
    return segment;
}

/* A block in that segment, last used then; among the residents when `is_asked`. */
static uint32_t
block_add(struct fixture *fixture, struct segment *segment, uint32_t last_use, bool is_asked)
{
    struct kvt_store *store = &fixture->store;
    uint64_t key_number = ++fixture->key_count;
    struct hash128 fingerprint = {.low = key_number, .high = 1};
    struct block_record record = {.extent = {segment->number, segment->generation,
                                      (uint32_t)(key_number * BLOCK_PAGES % PAGES)},
        .sequence = key_number,
        .length = BLOCK_PAGES * PAGE_BYTES};
    uint32_t number;

    record.key = (struct block_key){.namespace_id = 1, .length = sizeof(key_number)};
    memcpy(record.key.bytes, &key_number, sizeof(key_number));
    assert_int_equal(residency_insert(store->map, fingerprint, &record.key, &number), KVT_OK);
    assert_int_equal(entries_reserve(store->entries, number), KVT_OK);
    residency_at(store->map, number)->length = record.length;
    record.stored_length = record.length;
    entries_at(store->entries, number)->last_use = last_use;
    residency_publish(store->map, number, TIER_NVME);
    entry_place(store, number, &record, 0);
    segment->live_bytes += record.length;
    if (is_asked)
        fixture->blocks[fixture->count++] =
            (struct resident){.number = number, .extent = record.extent};
    return number;
}

/* --- Segments --------------------------------------------------------------------------------- */

static void
nothing_is_reclaimed_while_nothing_is_sealed(void **state)
{
    struct fixture *fixture = *state;
    struct segment *taken, *sealed;
    uint32_t page;

    assert_null(victim_choose(&fixture->store, false));
    assert_int_equal(
        segment_run_take(fixture->store.segments, 0, 1, 0, &taken, &page, &sealed), KVT_OK);
    assert_null(victim_choose(&fixture->store, false)); /* One is ACTIVE. */
}

static void
the_segment_that_was_filled_longest_ago_goes_first(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segments[3];

    for (uint32_t i = 0; i < 3; i++) {
        segments[i] = segment_make(fixture, i);
        segments[i]->batch_number = (const uint64_t[]){9, 3, 5}[i];
        /* However late its blocks were used. */
        block_add(fixture, segments[i], (const uint32_t[]){100, 300, 200}[i], false);
    }
    assert_ptr_equal(victim_choose(&fixture->store, false), segments[1]);
    segments[1]->is_passed_over = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), segments[2]);
    segments[2]->is_passed_over = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), segments[0]);
    segments[0]->is_passed_over = true;
    assert_null(victim_choose(&fixture->store, false));
    victim_spare_none(&fixture->store);
    assert_ptr_equal(victim_choose(&fixture->store, false), segments[1]);
}

static void
an_empty_segment_goes_before_all_others(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);
    struct segment *second = segment_make(fixture, 1);

    first->live_bytes = (uint64_t)PAGES * PAGE_BYTES;
    second->live_bytes = 0;
    first->batch_number = 1;
    second->batch_number = 2;
    assert_ptr_equal(victim_choose(&fixture->store, false), second);
}

static void
where_most_is_dead_the_segment_with_the_least_alive_goes_first(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);
    struct segment *second = segment_make(fixture, 1);

    first->live_bytes = 8 * PAGE_BYTES;
    second->live_bytes = PAGE_BYTES;
    first->batch_number = 1;
    second->batch_number = 2; /* Filled later. */
    assert_ptr_equal(victim_choose(&fixture->store, false), second);
}

static void
kills_that_are_needed_count_like_what_lives(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_store *store = &fixture->store;
    struct segment *data = segment_make(fixture, 0);
    struct segment *kills = segment_make(fixture, 1);

    for (uint32_t is_mostly_dead = 0; is_mostly_dead < 2; is_mostly_dead++) {
        data->live_bytes = (uint64_t)PAGES * PAGE_BYTES * (is_mostly_dead ? 1 : 13) / 16;
        kills->live_bytes = 0;
        data->batch_number = 1;
        kills->batch_number = 2;
        segment_kills_note(store->segments, kills, PAGES * PAGE_BYTES / 50);
        assert_ptr_equal(victim_choose(store, false), data);
        segment_kills_note(store->segments, kills, 10);
        assert_ptr_equal(victim_choose(store, false), kills);
    }
}

static void
what_gains_too_little_is_let_go(void **state)
{
    enum {
        PAGE_KILLS = 100
    }; /* Fewer than a page of a full batch of kills has. */
    struct fixture *fixture = *state;
    struct kvt_store *store = &fixture->store;
    struct segment *other = segment_make(fixture, 0);
    struct segment *victim = segment_make(fixture, 1);

    victim->live_bytes = 0;
    victim->is_claimed = true;
    other->live_bytes = (uint64_t)PAGES * PAGE_BYTES / 2;
    assert_true(victim_gains(store, victim, 0));
    assert_true(victim_gains(store, victim, PAGES * 3 / 4 * PAGE_KILLS));
    assert_false(victim_gains(store, victim, PAGES * PAGE_KILLS));
    victim->is_claimed = false;
    assert_ptr_equal(victim_choose(store, false), other); /* That is known now. */
}

/* Each segment that is freed may be the one that some of them name. */
static void
kills_are_forgotten_with_the_segments_that_are_freed(void **state)
{
    struct fixture *fixture = *state;
    struct segment_table *segments = fixture->store.segments;
    struct segment *kills = segment_make(fixture, 0);

    segment_kills_note(segments, kills, 1000);
    for (uint32_t freed = 0; freed <= SEGMENTS + 1; freed++) {
        struct segment *segment = segment_make(fixture, 1);

        assert_int_equal(segment_kills_left(segments, kills),
            freed > SEGMENTS ? 0 : 1000 * (SEGMENTS - freed) / SEGMENTS);
        segment_recycle_begin(segments, segment);
        segment_free(segments, segment);
    }
    segment_kills_note(segments, kills, 1000);
    assert_int_equal(segment_kills_left(segments, kills), 1000);
    segment_recycle_begin(segments, kills);
    assert_int_equal(segment_kills_left(segments, kills), 0);
}

static void
a_segment_with_copies_that_are_being_replaced_goes_last(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);
    struct segment *second = segment_make(fixture, 1);

    first->batch_number = 1;
    second->batch_number = 2;
    first->held_bytes = PAGE_BYTES;
    assert_ptr_equal(victim_choose(&fixture->store, false), second);
    second->is_passed_over = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), first);
}

/* What is dead on a root that takes no writes is no room. */
static void
what_is_dead_where_nothing_can_be_written_counts_not(void **state)
{
    struct fixture *fixture = *state;
    struct segment *oldest = segment_make(fixture, 0);
    struct segment *dead = segment_make(fixture, 1u << 24);

    segment_make(fixture, 1)->live_bytes = PAGE_BYTES;
    oldest->live_bytes = (uint64_t)PAGES * PAGE_BYTES;
    dead->live_bytes = 0;
    assert_ptr_equal(victim_choose(&fixture->store, false), dead);
    fixture->nvme.roots[1].is_read_only = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), oldest);
}

/* Those that are full would be written again for ever. */
static void
where_most_is_dead_held_segments_go_before_full_ones(void **state)
{
    struct fixture *fixture = *state;
    struct segment *held = segment_make(fixture, 0);
    struct segment *light = segment_make(fixture, 1);
    struct segment *full = segment_make(fixture, 2);

    segment_make(fixture, 3)->live_bytes = 0;
    segment_at(fixture->store.segments, 3)->is_passed_over = true;
    held->live_bytes = PAGE_BYTES;
    held->held_bytes = PAGE_BYTES;
    full->live_bytes = (uint64_t)PAGES * PAGE_BYTES;
    light->live_bytes = (uint64_t)PAGES * PAGE_BYTES / 2;
    assert_ptr_equal(victim_choose(&fixture->store, false), light);
    light->is_passed_over = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), held);
    held->is_passed_over = true;
    assert_ptr_equal(victim_choose(&fixture->store, false), full);
}

static void
a_segment_that_is_written_to_or_at_its_last_generation_stays(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);

    first->writer_count = 1;
    assert_null(victim_choose(&fixture->store, false));
    first->writer_count = 0;
    first->generation = UINT32_MAX - 1;
    assert_null(victim_choose(&fixture->store, false));
    first->generation = UINT32_MAX - 2;
    assert_ptr_equal(victim_choose(&fixture->store, false), first);
}

static void
a_segment_that_a_crash_left_half_reclaimed_is_found(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);

    assert_null(victim_unfinished(&fixture->store));
    segment_recycle_begin(fixture->store.segments, first);
    assert_ptr_equal(victim_unfinished(&fixture->store), first);
    assert_null(victim_choose(&fixture->store, false));
    /* It could not be emptied: others have their turn, or those who want room are told. */
    first->is_passed_over = true;
    assert_null(victim_unfinished(&fixture->store));
    victim_spare_none(&fixture->store);
    assert_ptr_equal(victim_unfinished(&fixture->store), first);
}

static void
a_root_that_takes_no_writes_keeps_its_segments(void **state)
{
    struct fixture *fixture = *state;
    struct segment *first = segment_make(fixture, 0);
    struct segment *second = segment_make(fixture, 1);

    segment_recycle_begin(fixture->store.segments, second);
    assert_ptr_equal(victim_choose(&fixture->store, false), first);
    fixture->nvme.roots[0].is_read_only = true;
    assert_null(victim_choose(&fixture->store, false));
    assert_null(victim_unfinished(&fixture->store));
    fixture->nvme.roots[0].is_read_only = false;
    assert_ptr_equal(victim_unfinished(&fixture->store), second);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static uint32_t
survivors(struct fixture *fixture)
{
    return victim_survivors(
        &fixture->store, fixture->blocks, fixture->count, false, &fixture->credit_bytes);
}

/* The numbers of those in front, in their order. */
static void
expect_survivors(struct fixture *fixture, const uint32_t *wanted, uint32_t wanted_count)
{
    uint32_t count = survivors(fixture);

    assert_int_equal(count, wanted_count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(fixture->blocks[i].number, wanted[i]);
}

static void
blocks_used_later_than_the_average_stay(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    uint32_t late, later;

    block_add(fixture, segment, 10, true);
    late = block_add(fixture, segment, 60, true);
    block_add(fixture, segment, 50, true); /* The mean itself: (10 + 60 + 50 + 80) / 4. */
    later = block_add(fixture, segment, 80, true);
    expect_survivors(fixture, (const uint32_t[]){later, late}, 2);
}

/* Last uses elsewhere count in the average, too. */
static void
a_segment_of_old_blocks_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);

    for (uint32_t i = 0; i < 4; i++) {
        block_add(fixture, segment, 10 + i, true);
        block_add(fixture, other, 100, false);
    }
    expect_survivors(fixture, NULL, 0);
}

static void
a_block_whose_children_need_it_stays(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    uint32_t parent, child;

    block_add(fixture, segment, 10, true);
    parent = block_add(fixture, segment, 10, true);
    child = block_add(fixture, other, 100, false);
    entries_link(fixture->store.entries, child, parent);
    expect_survivors(fixture, &parent, 1);
    entries_unlink(fixture->store.entries, child);
    expect_survivors(fixture, NULL, 0);
}

/* Three generations, used alike, the youngest in another segment: none goes before its child. */
static void
a_chain_goes_from_its_end(void **state)
{
    struct fixture *fixture = *state;
    struct entries *entries = fixture->store.entries;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    uint32_t numbers[3];

    for (uint32_t i = 0; i < 3; i++) {
        numbers[i] = block_add(fixture, i < 2 ? segment : other, 10, i < 2);
        entries_at(entries, numbers[i])->depth = i;
        if (i > 0)
            entries_link(entries, numbers[i], numbers[i - 1]);
    }
    block_add(fixture, other, 1000, false);
    expect_survivors(fixture, numbers, 2);
    entries_unlink(entries, numbers[2]);
    expect_survivors(fixture, NULL, 0);
    /* What was used later stays, and so does what it builds on. */
    entries_at(entries, numbers[1])->last_use = 1000;
    expect_survivors(fixture, (const uint32_t[]){numbers[1], numbers[0]}, 2);
}

/* The child has the lower number: it came into the map first. */
static void
a_child_takes_its_parent_along_whichever_came_first(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    uint32_t child = block_add(fixture, segment, 10, true);
    uint32_t parent = block_add(fixture, segment, 10, true);

    entries_link(fixture->store.entries, child, parent);
    block_add(fixture, other, 1000, false);
    expect_survivors(fixture, NULL, 0);
}

/* Its copy in another tier keeps the child in the map, and needs its parent. */
static void
a_child_that_is_in_memory_too_keeps_its_parent(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    uint32_t parent = block_add(fixture, segment, 10, true);
    uint32_t child = block_add(fixture, segment, 10, true);

    entries_link(fixture->store.entries, child, parent);
    block_add(fixture, other, 1000, false);
    expect_survivors(fixture, NULL, 0);
    residency_tier_set(fixture->store.map, child, TIER_HOST);
    expect_survivors(fixture, &parent, 1);
}

/* Half a segment: 128 pages, eight blocks of 16; of equals the deepest go. */
static void
no_more_than_half_a_segment_stays_and_the_deepest_go(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    uint32_t wanted[8];

    for (uint32_t i = 0; i < 11; i++) {
        uint32_t number = block_add(fixture, segment, 100, true);

        entries_at(fixture->store.entries, number)->depth = 10 - i;
        if (i >= 3)
            wanted[10 - i] = number;
        block_add(fixture, other, 1, false);
    }
    expect_survivors(fixture, wanted, 8);
}

/* What stays is taken off; pinned blocks stay without any, and cost what there is. */
static void
no_more_stays_than_the_credit_allows(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    struct segment *other = segment_make(fixture, 1);
    const uint64_t block_bytes = BLOCK_PAGES * PAGE_BYTES;
    uint32_t numbers[4];

    for (uint32_t i = 0; i < 4; i++) {
        numbers[i] = block_add(fixture, segment, 100 - i, true);
        block_add(fixture, other, 1, false);
    }
    fixture->credit_bytes = 3 * block_bytes - 1;
    expect_survivors(fixture, numbers, 2);
    assert_int_equal(fixture->credit_bytes, block_bytes - 1);
    expect_survivors(fixture, NULL, 0);
    residency_pin(fixture->store.map, numbers[3]);
    expect_survivors(fixture, &numbers[3], 1);
    assert_int_equal(fixture->credit_bytes, 0);
    (void)residency_unpin(fixture->store.map, numbers[3]);
}

static bool
nothing_admitted(struct policy *policy, uint32_t entry)
{
    (void)policy;
    (void)entry;
    return false;
}

/* Also what was used before the average block, and what the policy would not write anew; and it
 * costs nothing. */
static void
where_most_is_dead_all_stays(void **state)
{
    struct fixture *fixture = *state;
    struct policy *policy = fixture->store.policy;
    const struct policy_ops *ops = policy->ops;
    struct policy_ops strict = *ops;
    struct segment *segment = segment_make(fixture, 0);
    uint32_t wanted[8];

    strict.admits = nothing_admitted;
    policy->ops = &strict;
    segment->live_bytes = 0;
    segment_make(fixture, 1)->live_bytes = 0;
    fixture->credit_bytes = 1;
    for (uint32_t i = 0; i < 8; i++)
        wanted[i] = block_add(fixture, segment, 100 - i, true);
    expect_survivors(fixture, wanted, 8);
    assert_int_equal(fixture->credit_bytes, 1);
    policy->ops = ops;
}

/* To write it again would gain nothing, and be done again and again. */
static void
where_most_is_dead_full_segments_wait_for_emptier_ones(void **state)
{
    struct fixture *fixture = *state;
    struct segment *other = segment_make(fixture, 0);
    struct segment *segment = segment_make(fixture, 1);
    uint32_t late;

    segment->live_bytes = 0;
    other->live_bytes = 0;
    late = block_add(fixture, segment, 101, true);
    for (uint32_t i = 0; i < 8; i++)
        block_add(fixture, segment, 100, true);
    assert_int_equal(survivors(fixture), VICTIM_UNMOVABLE);
    other->is_claimed = true; /* Its turn comes next. */
    assert_int_equal(survivors(fixture), VICTIM_UNMOVABLE);
    other->is_claimed = false;
    other->is_passed_over = true;
    expect_survivors(fixture, &late, 1); /* As where most is alive. */
}

static void
pinned_blocks_stay_in_front_whenever_they_were_used(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    uint32_t pinned, late;

    late = block_add(fixture, segment, 100, true);
    pinned = block_add(fixture, segment, 1, true);
    residency_pin(fixture->store.map, pinned);
    expect_survivors(fixture, (const uint32_t[]){pinned, late}, 2);
    (void)residency_unpin(fixture->store.map, pinned);
}

/* Half a segment: 128 pages, eight blocks of 16. */
static void
a_segment_of_which_more_than_half_is_pinned_is_unmovable(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, 0);
    uint32_t numbers[9];

    for (uint32_t i = 0; i < 9; i++)
        numbers[i] = block_add(fixture, segment, 1, true);
    for (uint32_t i = 0; i < 8; i++)
        residency_pin(fixture->store.map, numbers[i]);
    assert_int_equal(survivors(fixture), 8);
    residency_pin(fixture->store.map, numbers[8]);
    assert_int_equal(survivors(fixture), VICTIM_UNMOVABLE);
    for (uint32_t i = 0; i < 9; i++)
        (void)residency_unpin(fixture->store.map, numbers[i]);
}

static void
no_more_stays_than_can_be_written_elsewhere(void **state)
{
    struct fixture *fixture = *state;
    struct segment *segment = segment_make(fixture, SEGMENTS - 3);
    struct segment *taken, *sealed;
    uint32_t first, number, page;

    /* One that is left is for the last kills, 23 pages of the other: an eighth off, 21 pages. */
    assert_int_equal(
        segment_run_take(fixture->store.segments, 0, PAGES - 23, 0, &taken, &page, &sealed),
        KVT_OK);
    first = block_add(fixture, segment, 100, true);
    number = block_add(fixture, segment, 100, true);
    block_add(fixture, segment, 1, true);
    expect_survivors(fixture, &first, 1);
    residency_pin(fixture->store.map, number);
    expect_survivors(fixture, &number, 1);
    residency_pin(fixture->store.map, fixture->blocks[1].number);
    assert_int_equal(survivors(fixture), VICTIM_UNMOVABLE);
}

/* As when writes fail while blocks are moved: each closes a segment in which nothing is. */
static void
where_most_is_dead_nothing_is_lost_while_another_segment_is_emptier(void **state)
{
    struct fixture *fixture = *state;
    struct segment_table *segments = fixture->store.segments;
    struct segment *segment = segment_make(fixture, SEGMENTS - 3);
    struct segment *taken, *sealed;
    uint32_t first, page;

    for (uint32_t i = 0; i <= SEGMENTS - 3; i++)
        segment_at(segments, i)->live_bytes = 0;
    assert_int_equal(segment_run_take(segments, 0, PAGES - 23, 0, &taken, &page, &sealed), KVT_OK);
    first = block_add(fixture, segment, 100, true);
    expect_survivors(fixture, &first, 1); /* All of it fits. */
    block_add(fixture, segment, 100, true);
    assert_int_equal(survivors(fixture), VICTIM_UNMOVABLE);
    for (uint32_t i = 0; i < SEGMENTS - 3; i++)
        segment_at(segments, i)->live_bytes = segment->live_bytes;
    assert_int_equal(survivors(fixture), 1);
    for (uint32_t i = 0; i < SEGMENTS - 3; i++) {
        segment_at(segments, i)->live_bytes = 0;
        segment_at(segments, i)->is_passed_over = true;
    }
    assert_int_equal(survivors(fixture), 1);
}

#define VICTIM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define VICTIM_OF_TWO(test) cmocka_unit_test_prestate_setup_teardown(test, setup, teardown, "two")

int
main(void)
{
    const struct CMUnitTest tests[] = {
        VICTIM(nothing_is_reclaimed_while_nothing_is_sealed),
        VICTIM(the_segment_that_was_filled_longest_ago_goes_first),
        VICTIM(an_empty_segment_goes_before_all_others),
        VICTIM(where_most_is_dead_the_segment_with_the_least_alive_goes_first),
        VICTIM(kills_that_are_needed_count_like_what_lives),
        VICTIM(what_gains_too_little_is_let_go),
        VICTIM(kills_are_forgotten_with_the_segments_that_are_freed),
        VICTIM(a_segment_with_copies_that_are_being_replaced_goes_last),
        VICTIM_OF_TWO(what_is_dead_where_nothing_can_be_written_counts_not),
        VICTIM(where_most_is_dead_held_segments_go_before_full_ones),
        VICTIM(a_segment_that_is_written_to_or_at_its_last_generation_stays),
        VICTIM(a_segment_that_a_crash_left_half_reclaimed_is_found),
        VICTIM(a_root_that_takes_no_writes_keeps_its_segments),
        VICTIM(blocks_used_later_than_the_average_stay),
        VICTIM(a_segment_of_old_blocks_leaves_nothing),
        VICTIM(a_block_whose_children_need_it_stays),
        VICTIM(a_chain_goes_from_its_end),
        VICTIM(a_child_takes_its_parent_along_whichever_came_first),
        VICTIM(a_child_that_is_in_memory_too_keeps_its_parent),
        VICTIM(no_more_than_half_a_segment_stays_and_the_deepest_go),
        VICTIM(no_more_stays_than_the_credit_allows),
        VICTIM(where_most_is_dead_all_stays),
        VICTIM(where_most_is_dead_full_segments_wait_for_emptier_ones),
        VICTIM(pinned_blocks_stay_in_front_whenever_they_were_used),
        VICTIM(a_segment_of_which_more_than_half_is_pinned_is_unmovable),
        VICTIM(no_more_stays_than_can_be_written_elsewhere),
        VICTIM(where_most_is_dead_nothing_is_lost_while_another_segment_is_emptier),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
