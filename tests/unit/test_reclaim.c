/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reclaim.c - segments of a full store are reclaimed while its blocks are pinned, deleted,
 * replaced and evicted: in the simulated world, step by step, so that each operation can meet each
 * moment of a relocation.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "batch_header.h"
#include "sim_world.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    SEGMENTS = 8,
    LARGE = KIT_BLOCK_BYTES_MAX,
    FULL = SEGMENTS * 16, /* So many large blocks are more than NVMe holds. */
    HOT = 6,              /* Keys that are read all the time: their blocks are relocated. */
    COLD = 1000,          /* The first key of the others. */
    MOMENTS = 24,
    STEPS_MAX = 200000,
};

#define WAIT_NS (UINT64_C(600) * 1000000000)

struct fixture {
    struct sim_world *world;
    struct store_world reach;
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    uint64_t next_cold;
    bool is_refusing; /* There was no room for some blocks. */
    uint8_t *bytes;   /* Of the put that is under way. */
};

static void
life_begin(struct fixture *fixture, uint32_t flags)
{
    fixture->options.flags = flags;
    assert_int_equal(
        store_open_in(&fixture->reach, "/store", &fixture->options, &fixture->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(fixture->store, "space", "model", 5, &fixture->ns), KVT_OK);
}

static struct fixture *
world_begin(uint64_t seed, uint32_t segment_count)
{
    const struct sim_options world = {.seed = seed};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->options = kit_options();
    fixture->options.nvme_capacity_bytes = (uint64_t)segment_count << 20;
    fixture->options.relaxed_interval_ns = 2000000;
    fixture->world = sim_world_create(&world);
    fixture->reach = (struct store_world){.env = sim_env(fixture->world),
        .index_ops = &sim_index_ops,
        .index_context = fixture->world};
    fixture->bytes = malloc(LARGE);
    assert_non_null(fixture->bytes);
    fixture->next_cold = COLD;
    life_begin(fixture, 0);
    return fixture;
}

static void
world_end(struct fixture *fixture)
{
    enum kvt_status status = kvt_close(fixture->store);

    /* A close tells that some blocks were refused. */
    assert_true(status == KVT_OK || (fixture->is_refusing && status == KVT_E_IO));
    assert_int_equal(sim_leaks(fixture->world, NULL, 0), 0);
    assert_false(sim_stuck(fixture->world));
    sim_world_destroy(fixture->world);
    free(fixture->bytes);
    free(fixture);
}

/* The power goes; what was not synced is lost. */
static void
life_again(struct fixture *fixture, uint32_t flags)
{
    sim_power_cut(fixture->world, SIM_CUT_NOTHING_KEPT);
    life_begin(fixture, flags);
}

static void
put(struct fixture *fixture, uint64_t key, uint64_t version)
{
    assert_int_equal(kit_put(fixture->store, fixture->ns, key, version, LARGE, KVT_SYNC), KVT_OK);
}

/* KVT_MISS, or KVT_OK with this version. Returns whether it is there. */
static bool
expect_at_most(struct fixture *fixture, uint64_t key, uint64_t wanted)
{
    uint64_t version = 0;
    enum kvt_status status = kit_get(fixture->store, fixture->ns, key, &version);

    if (status != KVT_MISS && (status != KVT_OK || version != wanted))
        fail_msg("block %u: %s, version %u, wanted %u or nothing", (unsigned)key,
            kvt_status_name(status), (unsigned)version, (unsigned)wanted);
    return status == KVT_OK;
}

static void
expect_block(struct fixture *fixture, uint64_t key, uint64_t wanted)
{
    assert_true(expect_at_most(fixture, key, wanted));
}

static uint64_t
counter(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}

/* The entry of a key; ENTRY_NONE. */
static uint32_t
entry_of(const struct fixture *fixture, uint64_t key)
{
    const kvt_store *store = fixture->store;
    struct payload_key name;
    struct block_key block;

    payload_key_make(&name, key);
    assert_true(
        key_init(&block, store->file.secret, fixture->ns.id, 0, name.key.bytes, name.key.length));
    return residency_find(store->map, key_fingerprint(store->fingerprint_seed, &block), &block);
}

static uint64_t
word_of(const struct fixture *fixture, uint32_t number)
{
    return atomic_load(&residency_at(fixture->store->map, number)->word);
}

/* One more block that nobody will read; the hot ones are read. */
static void
churn(struct fixture *fixture)
{
    (void)sim_run_for(fixture->world, UINT64_C(100) * 1000 * 1000); /* A tick of last_use. */
    for (uint64_t key = 0; key < HOT; key++)
        (void)expect_at_most(fixture, key, 1);
    put(fixture, fixture->next_cold++, 1);
}

/* The hot blocks, and so many others that NVMe is full. */
static void
fill(struct fixture *fixture)
{
    for (uint64_t key = 0; key < HOT; key++)
        put(fixture, key, 1);
    for (uint32_t i = 0; i < FULL; i++)
        churn(fixture);
}

/* --- Accounts --------------------------------------------------------------------------------- */

/* What each segment counts, beside what the entries say. */
static void
accounts_check(const struct fixture *fixture)
{
    const kvt_store *store = fixture->store;
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        uint64_t live_bytes = 0, use_sum = 0;
        uint32_t count = 0;

        for (uint32_t i = 0; i < residency_number_limit(store->map); i++) {
            const struct entry *entry = residency_at(store->map, i);
            uint64_t word = atomic_load(&entry->word);

            if (word_state(word) != ENTRY_RESIDENT || (word_tiers(word) & TIER_NVME) == 0 ||
                entry->segment != segment->number)
                continue;
            assert_int_equal(entry->extent_generation, segment->generation);
            live_bytes += (uint64_t)pages_of(entry->stored_length) * PAGE_BYTES;
            use_sum += policy_at(store->policy, i)->last_use;
            count++;
        }
        assert_int_equal(segment->live_bytes, live_bytes);
        assert_int_equal(segment->use_sum, use_sum);
        assert_int_equal(segment->use_count, count);
        assert_int_equal(segment->record_count, count);
        assert_int_equal(segment->held_count, 0);
    }
}

static void
a_store_filled_twenty_times_keeps_its_accounts(void **state)
{
    struct fixture *fixture = world_begin(3, SEGMENTS);
    struct rng rng = {.state = 3};
    uint64_t written_bytes = 0;

    (void)state;
    for (uint32_t i = 0; written_bytes < UINT64_C(20) * SEGMENTS << 20; i++) {
        uint64_t key = rng_below(&rng, 300);
        enum kvt_durability durability = rng_below(&rng, 3) == 0 ? KVT_MEMORY : KVT_SYNC;
        uint64_t length = payload_length(key, i, PAYLOAD_BYTES_MIN, LARGE);

        if (rng_below(&rng, 8) == 0)
            assert_true(kit_delete(fixture->store, fixture->ns, key) >= 0);
        assert_int_equal(kit_put(fixture->store, fixture->ns, key, i, length, durability), KVT_OK);
        written_bytes += length;
        if (i % 500 == 0) {
            assert_int_equal(kvt_flush(fixture->store), KVT_OK);
            (void)sim_run_for(fixture->world, UINT64_C(1000) * 1000 * 1000);
            accounts_check(fixture);
        }
    }
    assert_true(
        counter(&fixture->store->counters.segment_recycle_count) >= UINT64_C(15) * SEGMENTS);
    assert_int_equal(kvt_flush(fixture->store), KVT_OK);
    (void)sim_run_for(fixture->world, UINT64_C(1000) * 1000 * 1000);
    accounts_check(fixture);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    life_begin(fixture, 0);
    accounts_check(fixture);
    world_end(fixture);
}

/* --- Pinned blocks ---------------------------------------------------------------------------- */

static kvt_lease
lease_of(struct fixture *fixture, uint64_t key)
{
    struct payload_key name;
    kvt_lease lease = {0};
    uint8_t tiers = 0;

    payload_key_make(&name, key);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &name.key, 1, &tiers, NULL, &lease), KVT_OK);
    assert_true((tiers & KVT_TIER_NVME) != 0);
    return lease;
}

/* `is_in_host`: the pinned block has a copy in HOST, too. */
static void
pinned_block_run(uint64_t seed, bool is_in_host)
{
    struct fixture *fixture = world_begin(seed, SEGMENTS);
    struct entry *entry;
    struct entry before;
    kvt_lease lease;

    put(fixture, 0, 1);
    if (!is_in_host) {
        assert_true(entry_host_release(fixture->store, entry_of(fixture, 0)));
        fixture->store->room_changed = false;
    }
    lease = lease_of(fixture, 0);
    entry = residency_at(fixture->store->map, entry_of(fixture, 0));
    before = *entry;
    for (uint32_t i = 0; i < 3 * FULL; i++)
        put(fixture, fixture->next_cold++, 1);
    assert_true(counter(&fixture->store->counters.nvme_relocate_count) > 0);
    assert_true(entry->sequence > before.sequence); /* Written again. */
    assert_int_equal(
        word_tiers(atomic_load(&entry->word)), is_in_host ? TIER_HOST | TIER_NVME : TIER_NVME);
    kvt_lease_release(fixture->store, lease);
    expect_block(fixture, 0, 1);
    life_again(fixture, 0); /* From NVMe, where it was moved to. */
    expect_block(fixture, 0, 1);
    life_again(fixture, KVT_OPEN_REBUILD);
    expect_block(fixture, 0, 1);
    world_end(fixture);
}

static void
a_pinned_block_survives_its_segment(void **state)
{
    (void)state;
    pinned_block_run(11, true);
    pinned_block_run(12, false);
}

/* --- Operations that meet a relocation -------------------------------------------------------- */

/* Step until a hot block is on its way. Its key, or HOT when there is none any more. */
static uint64_t
moving_key(struct fixture *fixture)
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        for (uint64_t key = 0; key < HOT && !relocate_is_idle(fixture->store); key++) {
            uint32_t number = entry_of(fixture, key);

            if (number != ENTRY_NONE && word_pins(word_of(fixture, number)) > 0)
                return key;
        }
        if (reclaim_is_idle(fixture->store))
            return HOT;
        sim_run_steps(fixture->world, 1);
    }
    return HOT;
}

/* Churn until a hot block is being moved, with a put in flight. */
static uint64_t
relocation_meet(struct fixture *fixture, kvt_ticket **ticket_out)
{
    for (uint32_t i = 0; i < FULL; i++) {
        struct payload_key name;
        struct kvt_put one = {.source = fixture->bytes, .length = LARGE};
        uint64_t key = fixture->next_cold++;

        (void)sim_run_for(fixture->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t hot = 0; hot < HOT; hot++)
            (void)expect_at_most(fixture, hot, 1);
        payload_key_make(&name, key);
        payload_fill(fixture->bytes, LARGE, key, 1);
        one.key = name.key;
        assert_int_equal(
            kvt_put_submit(fixture->store, fixture->ns, &one, 1, KVT_SYNC, NULL, ticket_out),
            KVT_OK);
        for (uint32_t k = 0; k < 2000 && reclaim_is_idle(fixture->store); k++)
            sim_run_steps(fixture->world, 1);
        key = moving_key(fixture);
        if (key != HOT)
            return key;
        assert_int_equal(kvt_ticket_wait(*ticket_out, KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
        kvt_ticket_free(*ticket_out);
    }
    fail_msg("no hot block was ever moved");
    return HOT;
}

static void
put_finish(kvt_ticket *ticket)
{
    struct kvt_result result = {0};

    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_OK);
    kvt_ticket_free(ticket);
}

static void
a_block_that_is_deleted_while_it_is_moved_stays_away(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct fixture *fixture = world_begin(100 + moment, SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key;

        fill(fixture);
        key = relocation_meet(fixture, &ticket);
        sim_run_steps(fixture->world, moment);
        assert_int_equal(kit_delete(fixture->store, fixture->ns, key), KVT_OK);
        assert_false(expect_at_most(fixture, key, 0));
        if (moment % 2 == 0) {
            put_finish(ticket);
            for (uint32_t i = 0; i < 40; i++)
                churn(fixture);
            assert_false(expect_at_most(fixture, key, 0));
        }
        life_again(fixture, 0);
        assert_false(expect_at_most(fixture, key, 0));
        life_again(fixture, KVT_OPEN_REBUILD);
        assert_false(expect_at_most(fixture, key, 0));
        world_end(fixture);
    }
}

static void
a_block_that_is_replaced_while_it_is_moved_stays_replaced(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct fixture *fixture = world_begin(200 + moment, SEGMENTS);
        kvt_ticket *ticket;
        uint64_t key;

        fill(fixture);
        key = relocation_meet(fixture, &ticket);
        sim_run_steps(fixture->world, moment);
        put(fixture, key, 2);
        expect_block(fixture, key, 2);
        if (moment % 2 == 0) {
            put_finish(ticket);
            for (uint32_t i = 0; i < 20; i++)
                put(fixture, fixture->next_cold++, 1);
            (void)expect_at_most(fixture, key, 2);
        }
        life_again(fixture, 0);
        (void)expect_at_most(fixture, key, 2);
        life_again(fixture, KVT_OPEN_REBUILD);
        assert_true(expect_at_most(fixture, key, 2) || moment % 2 == 0);
        world_end(fixture);
    }
}

static void
a_write_that_fails_while_blocks_are_moved_costs_no_more_than_them(void **state)
{
    uint64_t failed_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        const struct sim_rule rule = {
            .ops = moment % 2 == 0 ? SIM_WRITE : SIM_SYNC, .effect = SIM_EIO, .nth = 1};
        struct fixture *fixture = world_begin(300 + moment, SEGMENTS);
        kvt_ticket *ticket;
        bool is_deleted;

        fill(fixture);
        (void)relocation_meet(fixture, &ticket);
        sim_run_steps(fixture->world, moment / 2);
        sim_rule_add(fixture->world, &rule);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
        kvt_ticket_free(ticket);
        sim_rules_clear(fixture->world);
        failed_count += counter(&fixture->store->counters.batch_failed_count);
        /* What may have reached the disk must not come back behind a delete. */
        is_deleted = moment % 4 == 1;
        for (uint64_t key = 0; key < HOT && is_deleted; key++)
            assert_true(kit_delete(fixture->store, fixture->ns, key) >= 0);
        for (uint32_t i = 0; i < 40 && !is_deleted; i++)
            churn(fixture); /* It goes on. */
        for (uint32_t life = 0; life < 3; life++) {
            for (uint64_t key = 0; key < HOT; key++)
                assert_true(!expect_at_most(fixture, key, 1) || !is_deleted);
            for (uint64_t key = COLD; key < fixture->next_cold; key++)
                (void)expect_at_most(fixture, key, 1);
            if (life < 2)
                life_again(fixture, life == 0 ? 0 : KVT_OPEN_REBUILD);
        }
        world_end(fixture);
    }
    assert_true(failed_count > MOMENTS / 2);
}

/* --- Evicted blocks --------------------------------------------------------------------------- */

/* Cold keys that have left the map since the last look, one of them; 0: none. */
static uint64_t
evicted_key(const struct fixture *fixture, bool *is_there)
{
    for (uint64_t key = COLD; key < fixture->next_cold; key++) {
        if (is_there[key - COLD] && entry_of(fixture, key) == ENTRY_NONE)
            return key;
    }
    return 0;
}

static void
a_delete_of_what_was_just_evicted_is_safe_before_it_says_so(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < 8; moment++) {
        struct fixture *fixture = world_begin(400 + moment, SEGMENTS);
        bool is_there[2 * FULL] = {false};
        kvt_ticket *ticket;
        uint64_t key = 0;

        fill(fixture);
        (void)relocation_meet(fixture, &ticket);
        for (key = COLD; key < fixture->next_cold; key++)
            is_there[key - COLD] = entry_of(fixture, key) != ENTRY_NONE;
        key = 0;
        for (uint32_t i = 0; i < STEPS_MAX && key == 0; i++) {
            sim_run_steps(fixture->world, 1);
            key = evicted_key(fixture, is_there);
        }
        assert_int_not_equal(key, 0);
        sim_run_steps(fixture->world, moment);
        assert_int_equal(kit_delete(fixture->store, fixture->ns, key), KVT_MISS);
        /* Nothing is finished that was under way. */
        life_again(fixture, moment % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
        assert_false(expect_at_most(fixture, key, 0));
        life_again(fixture, KVT_OPEN_REBUILD);
        assert_false(expect_at_most(fixture, key, 0));
        world_end(fixture);
    }
}

/* --- No room ---------------------------------------------------------------------------------- */

static void
a_store_in_which_everything_is_pinned_refuses_and_recovers(void **state)
{
    struct fixture *fixture = world_begin(21, SEGMENTS);
    kvt_lease leases[FULL];
    uint64_t keys[FULL];
    uint32_t lease_count = 0;
    enum kvt_status status = KVT_OK;

    (void)state;
    /* Each block is pinned where it stands on NVMe, and leaves HOST. */
    for (uint32_t i = 0; i < FULL && status == KVT_OK; i++) {
        status = kit_put(fixture->store, fixture->ns, i, 1, LARGE, KVT_SYNC);
        if (status != KVT_OK)
            break;
        (void)entry_host_release(fixture->store, entry_of(fixture, i));
        leases[lease_count] = lease_of(fixture, i);
        keys[lease_count++] = i;
    }
    assert_int_equal(status, KVT_E_NOSPC);
    fixture->is_refusing = true;
    assert_true(lease_count > 3 * 14 && lease_count < FULL);
    /* Visible all the same, and another one is refused as soon as it is seen that there is no room. */
    expect_block(fixture, lease_count, 1);
    assert_int_equal(kit_put(fixture->store, fixture->ns, FULL, 1, LARGE, KVT_SYNC), KVT_E_NOSPC);
    assert_int_equal(kit_put(fixture->store, fixture->ns, FULL + 1, 1, LARGE, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < lease_count; i++) {
        expect_block(fixture, keys[i], 1);
        kvt_lease_release(fixture->store, leases[i]);
    }
    for (uint32_t i = 0; i < 2 * FULL; i++)
        put(fixture, fixture->next_cold++, 1);
    assert_true(counter(&fixture->store->counters.segment_recycle_count) > SEGMENTS);
    world_end(fixture);
}

/* Every block is replaced at once: each segment has copies that stay until what replaces them is
 * durable, and there is no room for that before one of them is reclaimed. */
static void
a_full_store_in_which_every_block_is_replaced_goes_on(void **state)
{
    struct fixture *fixture = world_begin(22, SEGMENTS);
    struct payload_key names[FULL];
    struct kvt_put puts[FULL];
    struct kvt_result results[FULL];
    uint64_t keys[FULL];
    kvt_ticket *ticket = NULL;
    uint8_t *memory = malloc((size_t)FULL * LARGE);
    uint32_t count = 0;

    (void)state;
    assert_non_null(memory);
    fill(fixture);
    memset(puts, 0, sizeof(puts));
    for (uint64_t key = COLD; key < fixture->next_cold && count < 60; key++) {
        if (entry_of(fixture, key) == ENTRY_NONE)
            continue;
        keys[count] = key;
        payload_key_make(&names[count], key);
        payload_fill(memory + (size_t)count * LARGE, LARGE, key, 2);
        puts[count].key = names[count].key;
        puts[count].source = memory + (size_t)count * LARGE;
        puts[count].length = LARGE;
        puts[count].flags = KVT_PUT_REPLACE;
        count++;
    }
    assert_true(count > 40);
    assert_int_equal(
        kvt_put_submit(fixture->store, fixture->ns, puts, count, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < count; i++)
        (void)expect_at_most(fixture, keys[i], 2);
    free(memory);
    world_end(fixture);
}

/* --- Kills ------------------------------------------------------------------------------------ */

enum {
    TINY_COUNT = 5000, /* More than BATCH_KILLS_MAX. */
    TINY_BATCH = 500,
    TINY_SEGMENTS = 48,
};

static_assert((int)TINY_COUNT > (int)BATCH_KILLS_MAX, "the recycle header must not hold all");

/* Put, or delete, many small blocks with the numbers 0..TINY_COUNT. */
static void
tiny_run(struct fixture *fixture, bool is_delete)
{
    static struct payload_key names[TINY_BATCH];
    static struct kvt_put puts[TINY_BATCH];
    static struct kvt_key keys[TINY_BATCH];
    static uint8_t bytes[TINY_BATCH][PAYLOAD_BYTES_MIN];
    static struct kvt_result results[TINY_BATCH];

    for (uint64_t first = 0; first < TINY_COUNT; first += TINY_BATCH) {
        kvt_ticket *ticket = NULL;

        for (uint32_t i = 0; i < TINY_BATCH; i++) {
            payload_key_make(&names[i], first + i);
            payload_fill(bytes[i], PAYLOAD_BYTES_MIN, first + i, 1);
            keys[i] = names[i].key;
            puts[i] =
                (struct kvt_put){.key = keys[i], .source = bytes[i], .length = PAYLOAD_BYTES_MIN};
        }
        assert_int_equal(is_delete ? kvt_delete_submit(fixture->store, fixture->ns, keys,
                                         TINY_BATCH, NULL, &ticket)
                                   : kvt_put_submit(fixture->store, fixture->ns, puts, TINY_BATCH,
                                         KVT_SYNC, NULL, &ticket),
            KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
        assert_int_equal(
            kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, TINY_BATCH), KVT_OK);
        for (uint32_t i = 0; i < TINY_BATCH; i++)
            assert_int_equal(results[i].status, KVT_OK);
        kvt_ticket_free(ticket);
    }
}

/* Put blocks until another segment is filled. */
static struct segment *
segment_leave(struct fixture *fixture)
{
    const struct segment *active = segment_active(fixture->store->segments, 0);

    while (segment_active(fixture->store->segments, 0) == active)
        put(fixture, fixture->next_cold++, 1);
    return segment_active(fixture->store->segments, 0);
}

static void
no_kill_is_lost_when_a_segment_has_more_than_a_header_takes(void **state)
{
    struct fixture *fixture = world_begin(31, TINY_SEGMENTS);
    struct segment *victim, *segment;
    uint32_t generation, cursor = 0;
    uint64_t others;

    (void)state;
    fixture->next_cold = UINT64_C(100000);
    tiny_run(fixture, false);
    victim = segment_leave(fixture);
    generation = victim->generation;
    tiny_run(fixture, true);
    assert_ptr_equal(segment_active(fixture->store->segments, 0), victim); /* It has all kills. */
    (void)segment_leave(fixture);
    others = fixture->next_cold;
    for (uint32_t i = 0; i < 10; i++)
        put(fixture, fixture->next_cold++, 1);
    while ((segment = segment_next(fixture->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    assert_true(reclaim_want(fixture->store));
    (void)sim_run_for(fixture->world, UINT64_C(60) * 1000 * 1000 * 1000);
    assert_true(reclaim_is_idle(fixture->store));
    assert_int_equal(victim->state, SEGMENT_FREE);
    assert_int_equal(victim->generation, generation + 1);
    life_again(fixture, KVT_OPEN_REBUILD);
    for (uint64_t key = 0; key < TINY_COUNT; key++)
        assert_int_equal(entry_of(fixture, key), ENTRY_NONE);
    for (uint64_t key = others; key < fixture->next_cold; key++)
        expect_block(fixture, key, 1);
    world_end(fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_filled_twenty_times_keeps_its_accounts),
        cmocka_unit_test(a_pinned_block_survives_its_segment),
        cmocka_unit_test(a_block_that_is_deleted_while_it_is_moved_stays_away),
        cmocka_unit_test(a_block_that_is_replaced_while_it_is_moved_stays_replaced),
        cmocka_unit_test(a_write_that_fails_while_blocks_are_moved_costs_no_more_than_them),
        cmocka_unit_test(a_delete_of_what_was_just_evicted_is_safe_before_it_says_so),
        cmocka_unit_test(a_store_in_which_everything_is_pinned_refuses_and_recovers),
        cmocka_unit_test(a_full_store_in_which_every_block_is_replaced_goes_on),
        cmocka_unit_test(no_kill_is_lost_when_a_segment_has_more_than_a_header_takes),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
