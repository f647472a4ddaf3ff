/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_roots.c - a store on two disks of which one takes no writes any more: that one can be read,
 * and the other is filled and reclaimed as if it were alone. No other store takes one of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "nvme_internal.h"
#include "stop_on_proof.h"
#include "victim.h"
#include "victim_scan.h"

enum {
    LOST = 1,                             /* Root 1 fails. */
    SETTLED = FULL_SEGMENTS * 4,          /* Blocks before that: both have some. */
    ROOM = FULL_SEGMENTS * 16,            /* Blocks; more than a root holds. */
    KEYS = SETTLED + 4 * ROOM + 4 * ROOM, /* Put in all, at most. */
    TRIES = ROOM,
    MOMENTS = 24,
    STEPS = 200, /* Of the world, beside a put. */
};

static bool
takes_no_writes(const struct full_store *full, uint32_t root)
{
    return !nvme_root_is_writable(full->store->nvme, root);
}

static bool
caps_say(const struct full_store *full, const char *what)
{
    char text[200];

    assert_int_equal(kvt_caps_json(full->store, text, sizeof(text)), KVT_OK);
    return strstr(text, what) != NULL;
}

/* So many blocks, each durable. */
static void
blocks_put(struct full_store *full, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        full_put(full, full->next_cold++, 1);
}

/* Which keys have a copy in the lost root. Returns how many. */
static uint32_t
lost_note(const struct full_store *full, bool *is_lost)
{
    uint32_t count = 0;

    assert_true(full->next_cold - FULL_COLD <= KEYS);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        uint32_t number = full_entry(full, key);
        const struct entry *entry =
            number == ENTRY_NONE ? NULL : residency_at(full->store->map, number);
        bool is_there = entry != NULL && (word_tiers(atomic_load(&entry->word)) & TIER_NVME) != 0;

        is_lost[key - FULL_COLD] = is_there && segment_root(entry->segment) == LOST;
        count += is_lost[key - FULL_COLD];
    }
    return count;
}

/* Puts, until the root takes no more of them; none of them fails. */
static void
root_lose(struct full_store *full, unsigned ops)
{
    const struct sim_rule fails = {
        .ops = ops, .effect = SIM_EIO, .nth = 1, .sticky = true, .path = "/second/data.00"};

    sim_rule_add(full->world, &fails);
    for (uint32_t i = 0; i < TRIES && !takes_no_writes(full, LOST); i++)
        blocks_put(full, 1);
    assert_true(takes_no_writes(full, LOST));
    assert_false(takes_no_writes(full, 1 - LOST));
}

/* Three times what the other root holds is put; what the lost one has stays. */
static void
other_root_goes_on(struct full_store *full)
{
    static bool is_lost[KEYS];
    uint64_t recycled = kit_stats(full->store).segment_recycle_count;
    uint64_t end = full->next_cold;

    assert_true(lost_note(full, is_lost) > 0);
    blocks_put(full, 3 * ROOM);
    assert_true(kit_stats(full->store).segment_recycle_count >= recycled + 2 * FULL_SEGMENTS);
    for (uint64_t key = FULL_COLD; key < end; key++) {
        if (is_lost[key - FULL_COLD])
            full_expect(full, key, 1);
    }
    sim_rules_clear(full->world);
}

static void
a_root_that_takes_no_writes_keeps_its_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct full_store *full = full_begin_two_roots(seed);

        blocks_put(full, SETTLED);
        assert_true(caps_say(full, "\"is_read_only\": false"));
        root_lose(full, seed % 2 == 0 ? SIM_SYNC : SIM_WRITE);
        assert_true(caps_say(full, "\"is_read_only\": true"));
        other_root_goes_on(full);
        full_end(full);
    }
}

/* Its disk is full; it is no lost one, and is written to when there is space again. */
static void
a_root_without_space_leaves_puts_to_the_other(void **state)
{
    static const struct sim_rule full_disk = {.ops = SIM_WRITE,
        .effect = SIM_ENOSPC,
        .nth = 1,
        .sticky = true,
        .path = "/second/data.00"};

    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct full_store *full = full_begin_two_roots(40 + seed);
        static bool is_there[KEYS];
        uint32_t before;

        blocks_put(full, SETTLED);
        sim_rule_add(full->world, &full_disk);
        blocks_put(full, 2 * ROOM);
        assert_in_range(kit_stats(full->store).batch_failed_count, 1, 2);
        assert_false(takes_no_writes(full, LOST));
        sim_rules_clear(full->world);
        (void)sim_run_for(full->world, UINT64_C(60) * 1000 * 1000 * 1000);
        before = lost_note(full, is_there);
        blocks_put(full, 2 * ROOM);
        assert_true(lost_note(full, is_there) > before + ROOM / 4);
        full_end(full);
    }
}

/* Both are full, and segments of both are being reclaimed. */
static void
a_root_that_fails_while_it_is_reclaimed_stops_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct full_store *full = full_begin_two_roots(10 + seed);

        blocks_put(full, 2 * ROOM);
        root_lose(full, seed % 2 == 0 ? SIM_SYNC : SIM_WRITE);
        other_root_goes_on(full);
        full_end(full);
    }
}

/* What is dead there gives no room: the other root does not spare all of its own for that. */
static void
a_lost_root_in_which_all_is_dead_is_no_room(void **state)
{
    static bool is_lost[KEYS];

    (void)state;
    for (uint64_t seed = 20; seed < 23; seed++) {
        struct full_store *full = full_begin_two_roots(seed);
        uint64_t end;

        blocks_put(full, 2 * ROOM);
        root_lose(full, SIM_SYNC);
        end = full->next_cold;
        assert_true(lost_note(full, is_lost) > 0);
        for (uint64_t key = FULL_COLD; key < end; key++) {
            if (is_lost[key - FULL_COLD])
                assert_int_equal(kit_delete(full->store, full->ns, key), KVT_OK);
        }
        blocks_put(full, 3 * ROOM);
        sim_rules_clear(full->world);
        full_end(full);
    }
}

/* A segment is being reclaimed; `is_empty`: one of the second disk, of which nothing is left. */
static bool
is_met(const struct full_store *full, bool is_empty)
{
    return is_empty ? segment_count_in(full->store->segments, LOST, SEGMENT_RECYCLING) > 0
                    : !reclaim_is_idle(full->store);
}

/* Puts until one is under way then: its ticket. */
static kvt_ticket *
reclaim_meet(struct full_store *full, bool is_empty)
{
    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

        for (uint32_t k = 0; k < 2000 && !is_met(full, is_empty); k++)
            sim_run_steps(full->world, 1);
        if (is_met(full, is_empty))
            return ticket;
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    fail_msg("no segment is reclaimed");
    return NULL;
}

/* Wherever in the reclaim of a segment, of either. */
static void
a_disk_that_fails_in_a_reclaim_does_not_stop_the_reclaims_of_the_other(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin_two_roots(2 + moment);
        kvt_ticket *ticket;

        for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
            full_put(full, full->next_cold++, 1);
        ticket = reclaim_meet(full, moment % 2 == 0);
        sim_run_steps(full->world, moment / 2);
        met_count += !reclaim_is_idle(full->store);
        full->store->nvme->roots[LOST].is_read_only = true;
        other_root_goes_on(full);
        assert_int_equal(full_result(ticket), KVT_OK);
        full_end(full);
    }
    assert_true(met_count > MOMENTS / 2);
}

static kvt_lease
lease_of(struct full_store *full, uint64_t key)
{
    struct payload_key name;
    kvt_lease lease = {0};
    uint8_t tiers = 0;

    payload_key_make(&name, key);
    assert_int_equal(kvt_lookup(full->store, full->ns, &name.key, 1, &tiers, NULL, &lease), KVT_OK);
    return lease;
}

/* A lease of every third block of the first: their segments are emptied by writing them elsewhere.
 * Returns how many. */
static uint32_t
leased_fill(struct full_store *full, kvt_lease leases[ROOM])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < 2 * ROOM; i++) {
        full_put(full, full->next_cold, 1);
        if (i % 3 == 0 && i < ROOM)
            leases[count++] = lease_of(full, full->next_cold);
        full->next_cold++;
    }
    return count;
}

/* Blocks of a segment of the second disk are being written elsewhere, and none of the first. */
static bool
is_emptying_lost(const struct full_store *full)
{
    const struct segment *segment;
    uint32_t cursor = 0;
    uint32_t counts[2] = {0};

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        counts[segment_root(segment->number)] += segment->is_claimed;
    return counts[LOST] > 0 && counts[1 - LOST] == 0 && !relocate_is_idle(full->store);
}

static kvt_ticket *
emptying_lost_meet(struct full_store *full)
{
    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

        for (uint32_t k = 0; k < 2000 && !is_emptying_lost(full); k++)
            sim_run_steps(full->world, 1);
        if (is_emptying_lost(full))
            return ticket;
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    fail_msg("no segment of the second disk is emptied");
    return NULL;
}

static bool
is_on_nvme(const struct full_store *full, uint64_t key)
{
    uint32_t number = full_entry(full, key);

    return number != ENTRY_NONE && (entry_tiers(full->store, number) & TIER_NVME) != 0;
}

/* Some blocks of the segment are being written elsewhere: the others are not given up then. */
static void
what_a_disk_holds_that_fails_while_a_segment_of_it_is_emptied_stays(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin_two_roots(40 + moment);
        kvt_lease leases[ROOM];
        uint32_t count = leased_fill(full, leases);
        kvt_ticket *ticket = emptying_lost_meet(full);
        bool is_lost[KEYS];

        sim_run_steps(full->world, moment / 4);
        (void)lost_note(full, is_lost);
        full->store->nvme->roots[LOST].is_read_only = true;
        for (uint32_t i = 0; i < STEPS * STEPS && !reclaim_is_idle(full->store); i++)
            sim_run_steps(full->world, 1);
        for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
            assert_true(!is_lost[key - FULL_COLD] || is_on_nvme(full, key));
        other_root_goes_on(full);
        assert_int_equal(full_result(ticket), KVT_OK);
        for (uint32_t i = 0; i < count; i++)
            kvt_lease_release(full->store, leases[i]);
        full_end(full);
    }
}

/* With these options that store cannot be opened, in vain a second time too; and the one whose root
 * it wants has all its blocks. */
static void
other_is_refused(
    struct full_store *full, const char *path, const struct kvt_options *options, const char *words)
{
    for (uint32_t i = 0; i < 2; i++) /* The first one leaves nothing that the next takes for it. */
        refused(store_open_in(&full->reach, path, options, &full->store), KVT_E_INVAL, words);
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    full_open(full, 0);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* All that one has is older than what the other has: that the other is short of room is no reason
 * to empty the first, which gains the other nothing. */
static void
a_root_that_is_short_leaves_the_blocks_of_another_alone(void **state)
{
    enum {
        WANTED = 3, /* FREE segments. */
    };

    (void)state;
    for (uint64_t seed = 60; seed < 64; seed++) {
        struct full_store *full = full_begin_two_roots(seed);
        uint32_t most = 0;

        blocks_put(full, 2 * ROOM);
        root_lose(full, SIM_SYNC);
        blocks_put(full, 3 * ROOM);
        sim_rules_clear(full->world);
        assert_int_equal(kvt_close(full->store), KVT_OK);
        full_open(full, 0);
        assert_false(takes_no_writes(full, LOST));
        for (uint32_t i = 0; i < ROOM; i++) {
            uint32_t count;

            blocks_put(full, 1);
            count = segment_count_in(full->store->segments, LOST, SEGMENT_FREE);
            most = count > most ? count : most;
        }
        assert_in_range(most, 0, WANTED + 2);
        full_end(full);
    }
}

/* Puts to that root alone until no more than so many of its segments are FREE; but for NULL a lease
 * of each. Returns how many. */
static uint32_t
root_fill(struct full_store *full, uint32_t root, uint32_t free_count, kvt_lease *leases)
{
    uint32_t count = 0;

    full->store->nvme->roots[1 - root].is_read_only = true;
    while (segment_count_in(full->store->segments, root, SEGMENT_FREE) > free_count) {
        blocks_put(full, 1);
        if (leases != NULL)
            leases[count] = lease_of(full, full->next_cold - 1);
        count++;
    }
    full->store->nvme->roots[1 - root].is_read_only = false;
    return count;
}

/* Nor when nothing of the short one can be reclaimed, and it stays short. */
static void
a_root_that_stays_short_leaves_the_blocks_of_another_alone(void **state)
{
    enum {
        SHORT = 2, /* FREE segments. */
        PUTS = 2 * FULL_SEGMENTS,
    };

    (void)state;
    for (uint64_t seed = 80; seed < 84; seed++) {
        struct full_store *full = full_begin_two_roots(seed);
        kvt_lease leases[ROOM];
        struct segment *segment;
        uint32_t cursor = 0;
        uint32_t count;

        (void)root_fill(full, 1, FULL_SEGMENTS / 2 + 1, NULL);
        count = root_fill(full, 0, SHORT, leases);
        blocks_put(full, PUTS);
        assert_true(victim_root_is_short(full->store, 0));
        assert_false(victim_root_is_short(full->store, 1));
        while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
            assert_int_equal(segment->generation, 1);
        for (uint32_t i = 0; i < count; i++)
            kvt_lease_release(full->store, leases[i]);
        for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
            full_expect(full, key, 1);
        full_end(full);
    }
}

static uint32_t
claimed_count(const struct full_store *full, uint32_t root)
{
    struct segment *segment;
    uint32_t cursor = 0;
    uint32_t count = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        count += segment->is_claimed && segment_root(segment->number) == root;
    return count;
}

/* What is still to come is counted for the root that it comes to: it is no help to the other. */
static void
victims_count_for_their_own_root(void **state)
{
    struct full_store *full = full_begin_two_roots(70);
    uint32_t met_counts[2] = {0, 0};

    (void)state;
    blocks_put(full, 2 * ROOM);
    for (uint32_t i = 0; i < ROOM; i++) {
        kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

        for (uint32_t n = 0; n < STEPS; n++) {
            sim_run_steps(full->world, 1);
            for (uint32_t root = 0; root < 2; root++) {
                uint32_t count = victim_scan_count(full->store, root);

                assert_int_equal(count, claimed_count(full, root));
                met_counts[root] += count > 0;
            }
        }
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    assert_int_not_equal(met_counts[0], 0);
    assert_int_not_equal(met_counts[1], 0);
    full_end(full);
}

/* Each would write over the other's blocks. */
static void
a_root_of_another_store_is_refused(void **state)
{
    static const char *const roots[] = {"/third", "/second"};
    struct full_store *full = full_begin_two_roots(1);
    struct kvt_options options = full->options;

    (void)state;
    blocks_put(full, SETTLED / 4);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    options.roots = roots;
    other_is_refused(full, "/other", &options, "/second/data.00 is there already");
}

/* A store without data names the roots, too, and then is to have some. */
static void
a_root_that_has_become_another_store_s_is_refused(void **state)
{
    struct full_store *full = full_begin_two_roots(1);
    struct kvt_options options = full->options;

    (void)state;
    blocks_put(full, SETTLED / 4);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    assert_int_equal(store_open_in(&full->reach, "/bare", &options, &full->store), KVT_OK);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    options.nvme_capacity_bytes = full->options.nvme_capacity_bytes;
    other_is_refused(full, "/bare", &options, "has blocks of another store");
}

/* --- Paths ------------------------------------------------------------------------------------ */

/* What STORE says of the first root, as an older version may have written it. */
static void
root_rename(struct full_store *full, const char *path)
{
    const struct kvt_env *env = full->reach.env;
    bool is_unwritable = false;
    struct store_file file;
    struct fs_dir *dir;

    assert_int_equal(env->fs->dir_open(env->fs_context, "/store", 0, &dir), KVT_OK);
    assert_int_equal(store_file_read(env, dir, &file, &is_unwritable), KVT_OK);
    memset(file.root_paths[0], 0, sizeof(file.root_paths[0]));
    memcpy(file.root_paths[0], path, strlen(path));
    assert_int_equal(store_file_write(env, dir, &file), KVT_OK);
    env->fs->dir_close(dir);
}

/* Who opens the store from elsewhere would look for it elsewhere. */
static void
a_root_that_begins_elsewhere_than_at_the_top_is_refused_for_a_new_store(void **state)
{
    static const char *const roots[] = {"/third", "second"};
    struct full_store *full = full_begin_two_roots(1);
    struct kvt_options options = full->options;

    (void)state;
    blocks_put(full, SETTLED / 4);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    options.roots = roots;
    refused(store_open_in(&full->reach, "/other", &options, &full->store), KVT_E_INVAL,
        "roots[1], second, does not begin with '/'");
    /* One that has it keeps it. */
    root_rename(full, "first");
    full_open(full, 0);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* It is not that there is no store. */
static void
a_root_that_is_missing_with_its_folder_is_named(void **state)
{
    static const uint32_t flags[] = {0, KVT_OPEN_EXISTING, KVT_OPEN_READ_ONLY, KVT_OPEN_REBUILD};
    struct full_store *full = full_begin_two_roots(1);
    struct kvt_options options = full->options;

    (void)state;
    blocks_put(full, SETTLED / 4);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    root_rename(full, "/gone/first");
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        options.flags = flags[i];
        refused(store_open_in(&full->reach, "/store", &options, &full->store), KVT_E_IO,
            "root 0, /gone/first, is missing");
    }
    root_rename(full, "/first");
    full_open(full, 0);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* A batch finds no room: of the root that is short a segment goes, although the other, which takes
 * no batch for another reason (nvme_lack()), has an older one. */
static void
who_finds_no_room_empties_the_root_that_is_short(void **state)
{
    struct full_store *full = full_begin_two_roots(80);
    struct segment_table *table = full->store->segments;
    struct segment *segment, *taken, *sealed;
    uint32_t cursor = 0;
    uint32_t page;

    (void)state;
    full_fill(full);
    (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
    assert_true(reclaim_is_idle(full->store));
    full->store->options.nvme_high_percent = 100;
    while (!victim_root_is_short(full->store, 1 - LOST)) {
        assert_int_equal(segment_run_take(table, 1 - LOST, 1, 0, &taken, &page, &sealed), KVT_OK);
        segment_seal(table, taken);
        taken->live_bytes = (uint64_t)segment_pages(table) * PAGE_BYTES;
    }
    assert_false(victim_root_is_short(full->store, LOST));
    while ((segment = segment_next(table, &cursor)) != NULL)
        segment->batch_number = segment_root(segment->number) == LOST ? 1 : 2;
    segment = victim_choose(full->store, false);
    assert_non_null(segment);
    assert_int_equal(segment_root(segment->number), 1 - LOST);
    full_again(full, 0);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_that_takes_no_writes_keeps_its_blocks),
        cmocka_unit_test(a_root_without_space_leaves_puts_to_the_other),
        cmocka_unit_test(a_root_that_fails_while_it_is_reclaimed_stops_nothing),
        cmocka_unit_test(a_lost_root_in_which_all_is_dead_is_no_room),
        cmocka_unit_test(a_disk_that_fails_in_a_reclaim_does_not_stop_the_reclaims_of_the_other),
        cmocka_unit_test(what_a_disk_holds_that_fails_while_a_segment_of_it_is_emptied_stays),
        cmocka_unit_test(a_root_that_is_short_leaves_the_blocks_of_another_alone),
        cmocka_unit_test(a_root_that_stays_short_leaves_the_blocks_of_another_alone),
        cmocka_unit_test(who_finds_no_room_empties_the_root_that_is_short),
        cmocka_unit_test(victims_count_for_their_own_root),
        cmocka_unit_test(a_root_of_another_store_is_refused),
        cmocka_unit_test(a_root_that_has_become_another_store_s_is_refused),
        cmocka_unit_test(a_root_that_begins_elsewhere_than_at_the_top_is_refused_for_a_new_store),
        cmocka_unit_test(a_root_that_is_missing_with_its_folder_is_named),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
