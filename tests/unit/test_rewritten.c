/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rewritten.c - a store with room to spare, whose blocks are replaced all the time, loses
 * nothing and evicts nothing although the power goes again and again, mostly when reclaiming has
 * just taken a segment of those that are kept for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 2,
    LIVES = 60,
    SEGMENTS = 16,
    KEYS = 96, /* Less than 3 of 16 MiB. */
    PUTS_MAX = 8,
    TICKETS = 16,      /* Under way at a time. */
    FILLING = 150,     /* Submissions until segments are reclaimed. */
    REWRITES_MAX = 40, /* Of a life, when reclaiming takes no segment. */
    STEPS_MAX = 200,   /* Between two submissions. */
    MORE_STEPS = 80,   /* From that moment to the cut. */
    BYTES_LOW = 1000,
    BYTES_HIGH = 60000,
    SPREAD = 36, /* Blocks that stay, between others: */
    FILLERS = 5, /* so many behind each. */
    ROUNDS = 4,
};

struct rewriting {
    struct full_store *full;
    struct rng rng;
    uint64_t version;
    bool is_durable[KEYS]; /* Acknowledged once, and never deleted. */
    kvt_ticket *tickets[TICKETS];
    uint32_t firsts[TICKETS], counts[TICKETS];
    uint8_t *bytes[TICKETS];
};

static void
rewriting_begin(struct rewriting *work, uint64_t seed)
{
    *work = (struct rewriting){.full = full_begin(seed, SEGMENTS), .rng = {.state = seed}};
    for (uint32_t i = 0; i < TICKETS; i++) {
        work->bytes[i] = malloc((size_t)PUTS_MAX * BYTES_HIGH);
        assert_non_null(work->bytes[i]);
    }
}

static void
rewriting_end(struct rewriting *work)
{
    full_end(work->full);
    for (uint32_t i = 0; i < TICKETS; i++)
        free(work->bytes[i]);
}

/* Take the answers of a ticket. False: it is still under way. */
static bool
ticket_finish(struct rewriting *work, uint32_t i, uint64_t wait_ns)
{
    struct kvt_result results[PUTS_MAX];
    enum kvt_status status;

    if (work->tickets[i] == NULL)
        return true;
    status = kvt_ticket_wait(work->tickets[i], KVT_STAGE_DURABLE, wait_ns);
    if (status == KVT_LATE)
        return false;
    assert_int_equal(status, KVT_OK);
    assert_int_equal(
        kvt_ticket_results(work->tickets[i], KVT_STAGE_DURABLE, results, work->counts[i]), KVT_OK);
    for (uint32_t n = 0; n < work->counts[i]; n++) {
        /* KVT_MISS: a later put has taken its place before it was durable. */
        assert_true(results[n].status == KVT_OK || results[n].status == KVT_MISS);
        work->is_durable[work->firsts[i] + n] |= results[n].status == KVT_OK;
    }
    kvt_ticket_free(work->tickets[i]);
    work->tickets[i] = NULL;
    return true;
}

/* New versions of some keys, with a ticket that is not out. */
static void
rewrite(struct rewriting *work, uint32_t i)
{
    uint32_t count = 1 + rng_below(&work->rng, PUTS_MAX);
    uint32_t first = rng_below(&work->rng, KEYS - PUTS_MAX);
    enum kvt_durability durability = rng_below(&work->rng, 4) == 0 ? KVT_RELAXED : KVT_SYNC;
    struct payload_key names[PUTS_MAX];
    struct kvt_put puts[PUTS_MAX] = {0};

    for (uint32_t n = 0; n < count; n++) {
        uint8_t *bytes = work->bytes[i] + (size_t)n * BYTES_HIGH;
        uint64_t version = ++work->version;

        payload_key_make(&names[n], first + n);
        puts[n] = (struct kvt_put){.key = names[n].key,
            .source = bytes,
            .length = payload_length(first + n, version, BYTES_LOW, BYTES_HIGH),
            .flags = KVT_PUT_REPLACE};
        payload_fill(bytes, puts[n].length, first + n, version);
    }
    assert_int_equal(kvt_put_submit(work->full->store, work->full->ns, puts, count, durability,
                         NULL, &work->tickets[i]),
        KVT_OK);
    work->firsts[i] = first;
    work->counts[i] = count;
}

static uint32_t
free_count(const struct rewriting *work)
{
    return segment_count_in(work->full->store->segments, 0, SEGMENT_FREE);
}

/* One life: work until reclaiming has taken a segment, and some steps more. False: it took none. */
static bool
live(struct rewriting *work)
{
    uint32_t before = free_count(work);

    for (uint32_t n = 0; n < REWRITES_MAX; n++) {
        uint32_t i = rng_below(&work->rng, TICKETS);
        uint32_t steps = 0;

        while (!ticket_finish(work, i, 0) || steps < STEPS_MAX) {
            if (free_count(work) < before) {
                sim_run_steps(work->full->world, rng_below(&work->rng, MORE_STEPS));
                return true;
            }
            sim_run_steps(work->full->world, 1);
            steps++;
        }
        rewrite(work, i);
    }
    return false;
}

static void
nothing_is_lost_when_the_power_goes_again_and_again(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rewriting work;
        uint32_t taken_count = 0;

        rewriting_begin(&work, seed);
        for (uint32_t i = 0; i < FILLING; i++) {
            (void)ticket_finish(&work, i % TICKETS, FULL_WAIT_NS);
            rewrite(&work, i % TICKETS);
        }
        for (uint32_t life = 0; life < LIVES; life++) {
            taken_count += live(&work);
            assert_int_equal(atomic_load(&work.full->store->counters.nvme_evict_count), 0);
            sim_power_cut(work.full->world, SIM_CUT_SEEDED);
            memset(work.tickets, 0, sizeof(work.tickets));
            full_open(work.full, 0);
            for (uint64_t key = 0; key < KEYS; key++) {
                uint64_t version = 0;

                if (work.is_durable[key])
                    assert_int_equal(
                        kit_get(work.full->store, work.full->ns, key, &version), KVT_OK);
            }
        }
        assert_true(taken_count > LIVES / 4); /* Else the cuts were anywhere. */
        rewriting_end(&work);
    }
}

/* --- One segment while it is reclaimed -------------------------------------------------------- */

/* A block that is put and deleted again. */
static void
filler_pass(struct full_store *full)
{
    full_put(full, FULL_COLD, 1);
    assert_int_equal(kit_delete(full->store, full->ns, FULL_COLD), KVT_OK);
}

/* New versions of all blocks that stay, in any order; the ticket is finished. */
static void
all_replace(struct full_store *full, struct rng *rng, uint8_t *bytes, uint64_t version)
{
    struct payload_key names[SPREAD];
    struct kvt_put puts[SPREAD] = {0};
    struct kvt_result results[SPREAD];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < SPREAD; i++) {
        uint32_t other = rng_below(rng, i + 1);

        payload_key_make(&names[i], i);
        payload_fill(bytes + (size_t)i * FULL_BLOCK_BYTES, FULL_BLOCK_BYTES, i, version);
        puts[i] = puts[other];
        puts[other] = (struct kvt_put){.key = names[i].key,
            .source = bytes + (size_t)i * FULL_BLOCK_BYTES,
            .length = FULL_BLOCK_BYTES,
            .flags = KVT_PUT_REPLACE};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, SPREAD, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, SPREAD), KVT_OK);
    for (uint32_t i = 0; i < SPREAD; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
}

/*
 * A segment is being reclaimed when the blocks in it are replaced, and there is no room for batches
 * before it is free: the old copies stay until the new ones are durable.
 */
static void
copies_that_are_replaced_while_their_segment_is_reclaimed_are_not_evicted(void **state)
{
    uint8_t *bytes = malloc((size_t)SPREAD * FULL_BLOCK_BYTES);

    (void)state;
    assert_non_null(bytes);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin(seed, SEGMENTS);
        struct rng rng = {.state = seed};

        for (uint64_t round = 1; round <= ROUNDS; round++) {
            /* Each segment has some of them. */
            for (uint64_t key = 0; key < SPREAD; key++) {
                full_put(full, key, 2 * round);
                for (uint32_t i = 0; i < FILLERS; i++)
                    filler_pass(full);
            }
            for (uint32_t i = 0; i < 100 && reclaim_is_idle(full->store); i++)
                filler_pass(full);
            all_replace(full, &rng, bytes, 2 * round + 1);
            assert_int_equal(atomic_load(&full->store->counters.nvme_evict_count), 0);
            for (uint64_t key = 0; key < SPREAD; key++)
                full_expect(full, key, 2 * round + 1);
        }
        full_end(full);
    }
    free(bytes);
}

/* A later kill of its key is not enough: it goes with the generation that it names. */
static void
each_copy_that_was_replaced_is_named_by_a_kill(void **state)
{
    struct full_store *full = full_begin(1, SEGMENTS);

    (void)state;
    for (uint64_t version = 1; version <= ROUNDS; version++)
        full_put(full, 0, version);
    assert_int_equal(full_copies_check(full, 0), ROUNDS - 1);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_are_replaced_while_their_segment_is_reclaimed_are_not_evicted),
        cmocka_unit_test(each_copy_that_was_replaced_is_named_by_a_kill),
        cmocka_unit_test(nothing_is_lost_when_the_power_goes_again_and_again),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
