/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_delete.c - a delete says that a block is gone only when no lookup can find it any more:
 * looked at in the moment in which the caller is woken. And a delete that finds nothing says that
 * this is for good only when it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "full_store.h"
#include "nvme_internal.h"
#include "stop_on_proof.h"

enum {
    KEY = 7,
    MANY = 1500, /* More than COMMIT_KILLS_MAX. */
    MOMENTS = 240,
    SPARED_MOMENTS = 40,
#if defined(__SANITIZE_ADDRESS__)
    STRIDE = 5, /* Each fifth moment, ... */
#else
    STRIDE = 1, /* ... or each. */
#endif
};

#define SECOND_NS (UINT64_C(1000) * 1000 * 1000)

/* The world's scheduler, with an eye on what is told to whom. */
struct watch {
    struct kvt_env env;
    struct sched_ops ops;
    const struct sched_ops *inner;
    struct full_store *full;
    kvt_ticket *ticket;  /* Of a delete; NULL: nothing is watched. */
    uint32_t told_count; /* Wakes behind the delete's first stage ... */
    uint32_t lied_count; /* ... when the block was still there. */
};

static struct watch watch;

static void
watch_post(void *context, struct gate *gate)
{
    if (watch.ticket != NULL && kvt_ticket_wait(watch.ticket, KVT_STAGE_DONE, 0) == KVT_OK) {
        watch.told_count++;
        watch.lied_count += full_entry(watch.full, KEY) != ENTRY_NONE;
    }
    watch.inner->gate_post(context, gate);
}

static void
watch_begin(struct full_store *full)
{
    assert_int_equal(kvt_close(full->store), KVT_OK);
    watch = (struct watch){.env = *full->reach.env, .full = full};
    watch.inner = watch.env.sched;
    watch.ops = *watch.inner;
    watch.ops.gate_post = watch_post;
    watch.env.sched = &watch.ops;
    full->reach.env = &watch.env;
    full_open(full, 0);
}

/* Delete the block with its put in whatever state it is. */
static void
delete_watched(struct full_store *full)
{
    struct payload_key name;
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, KEY);
    assert_int_not_equal(full_entry(full, KEY), ENTRY_NONE);
    assert_int_equal(kvt_delete_submit(full->store, full->ns, &name.key, 1, NULL, &ticket), KVT_OK);
    watch.ticket = ticket;
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    watch.ticket = NULL;
    kvt_ticket_free(ticket);
    assert_int_equal(full_entry(full, KEY), ENTRY_NONE);
    assert_true(watch.told_count > 0);
    assert_int_equal(watch.lied_count, 0);
    watch.told_count = 0;
}

/* Submit a put, wait for nothing but that it is visible, and delete the block. */
static void
put_and_delete(struct full_store *full, enum kvt_durability durability)
{
    static uint8_t bytes[PAGE_BYTES];
    struct payload_key name;
    struct kvt_put one = {.source = bytes, .length = sizeof(bytes)};
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, KEY);
    one.key = name.key;
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, &one, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    delete_watched(full);
    kvt_ticket_free(ticket);
}

static void
a_block_is_gone_when_its_delete_says_so(void **state)
{
    struct full_store *full = full_begin(5, FULL_SEGMENTS);

    (void)state;
    watch_begin(full);
    put_and_delete(full, KVT_MEMORY);  /* In HOST only. */
    put_and_delete(full, KVT_RELAXED); /* Waiting for a batch. */
    put_and_delete(full, KVT_SYNC);    /* Being written. */
    full_put(full, KEY, 1);
    delete_watched(full); /* On NVMe. */
    full_end(full);
}

/* --- A block that is gone already ------------------------------------------------------------- */

static void
a_second_delete_waits_for_the_kill_of_the_first(void **state)
{
    struct full_store *full = full_begin(6, FULL_SEGMENTS);
    kvt_ticket *first, *second;

    (void)state;
    full_put(full, KEY, 1);
    first = full_delete_submit(full, KEY);
    second = full_delete_submit(full, KEY);
    assert_int_equal(kvt_ticket_wait(second, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_wait(first, KVT_STAGE_DURABLE, 0), KVT_OK);
    kvt_ticket_free(first);
    kvt_ticket_free(second);
    full_end(full);
}

/* How many kills travel in batches that are being written. */
static uint32_t
travelling_count(const struct commit *commit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BATCH_COUNT; i++)
        count += commit->batches[i].state == BATCH_WRITING ? commit->batches[i].kill_count : 0;
    return count;
}

static void
a_delete_of_nothing_waits_for_a_kill_that_is_being_written(void **state)
{
    struct full_store *full = full_begin(6, FULL_SEGMENTS);
    kvt_ticket *first, *second;

    (void)state;
    full_put(full, KEY, 1);
    first = full_delete_submit(full, KEY);
    while (travelling_count(full->store->commit) == 0)
        sim_run_steps(full->world, 1);
    assert_int_equal(full_entry(full, KEY), ENTRY_NONE);
    second = full_delete_submit(full, KEY);
    assert_true(full_result(second) >= 0);
    assert_int_equal(kvt_ticket_wait(first, KVT_STAGE_DURABLE, 0), KVT_OK);
    kvt_ticket_free(first);
    full_again(full, 0);
    assert_false(full_expect_at_most(full, KEY, 0));
    full_end(full);
}

/* A block whose kill cannot be synced: it is gone, and a crash may bring it back. */
static void
kill_lose(struct full_store *full)
{
    const struct sim_rule no_syncs = {
        .ops = SIM_SYNC, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};

    full_put(full, KEY, 1);
    sim_rule_add(full->world, &no_syncs);
    assert_true(kit_delete(full->store, full->ns, KEY) < 0);
    sim_rules_clear(full->world);
}

static void
no_delete_of_an_absent_key_is_promised_when_a_kill_was_lost(void **state)
{
    struct full_store *full = full_begin(7, FULL_SEGMENTS);

    (void)state;
    kill_lose(full);
    /* Nobody finds it; but a crash may bring it back. */
    assert_false(full_expect_at_most(full, KEY, 1));
    assert_true(kit_delete(full->store, full->ns, KEY) < 0);
    full_again(full, 0);
    (void)full_expect_at_most(full, KEY, 1);
    assert_true(kit_delete(full->store, full->ns, KEY) >= 0);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, KEY, 1));
    full_end(full);
}

static struct payload_key many_names[MANY];
static struct kvt_key many_keys[MANY];

static void
many_put(struct full_store *full)
{
    static struct kvt_result results[MANY];
    static struct kvt_put puts[MANY];
    static uint8_t bytes[PAGE_BYTES];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < MANY; i++) {
        payload_key_make(&many_names[i], i);
        many_keys[i] = many_names[i].key;
        puts[i] = (struct kvt_put){.key = many_keys[i], .source = bytes, .length = sizeof(bytes)};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, MANY, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, MANY), KVT_OK);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
}

static kvt_ticket *
many_delete_submit(struct full_store *full)
{
    kvt_ticket *ticket = NULL;

    assert_int_equal(
        kvt_delete_submit(full->store, full->ns, many_keys, MANY, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
many_results(kvt_ticket *ticket, struct kvt_result *results)
{
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, MANY), KVT_OK);
    kvt_ticket_free(ticket);
}

/* More than one batch takes: the rest is not left behind when nothing else is written. */
static void
many_deletes_at_once_become_durable(void **state)
{
    static struct kvt_result results[MANY];
    struct full_store *full = full_begin(8, 4 * FULL_SEGMENTS);

    (void)state;
    many_put(full);
    many_results(many_delete_submit(full), results);
    full_again(full, 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(full_entry(full, i), ENTRY_NONE);
    full_end(full);
}

/* Each key is deleted twice at once, and the batch with the first 1,024 kills finds no memory. */
static void
deletes_without_memory(struct full_store *full, struct kvt_result (*results)[MANY])
{
    struct nvme_tier *nvme = full->store->nvme;
    struct nvme_put *pool;
    kvt_ticket *tickets[2];

    for (uint32_t i = 0; i < 2; i++)
        tickets[i] = many_delete_submit(full);
    pool = nvme->put_pool;
    nvme->put_pool = NULL; /* As if all were in flight. */
    sim_memory_fail(full->world, 1, false);
    for (uint32_t i = 0; i < 2; i++)
        many_results(tickets[i], results[i]);
    while (pool != NULL) {
        struct nvme_put *next = pool->next;

        pool->next = nvme->put_pool;
        nvme->put_pool = pool;
        pool = next;
    }
}

/* None is promised, and all wait for the next batches, whatever these are written for. */
static void
deletes_that_find_no_memory_go_with_the_next_batches(void **state)
{
    static struct kvt_result results[2][MANY];
    struct full_store *full = full_begin(9, 4 * FULL_SEGMENTS);

    (void)state;
    many_put(full);
    deletes_without_memory(full, results);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(results[0][i].status, KVT_E_NOMEM);
        assert_int_equal(results[1][i].status, KVT_E_NOMEM);
    }
    assert_int_equal(full->store->commit->kills.count, MANY); /* The second ones add nothing. */
    for (uint32_t i = 0; i < MANY; i += COMMIT_KILLS_MAX)
        full_put(full, MANY, 1 + i);
    full_again(full, 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(full_entry(full, i), ENTRY_NONE);
    full_expect(full, MANY, 1 + COMMIT_KILLS_MAX);
    full_end(full);
}

/* Nothing is tried again when the store is being closed. The kills of the second deletes are
 * written, but it is those of the first ones that take the records out of the index. */
static void
second_deletes_are_not_promised_when_those_before_them_are_given_up(void **state)
{
    static struct kvt_result results[2][MANY];
    struct full_store *full = full_begin(9, 4 * FULL_SEGMENTS);
    uint32_t failed_count = 0;

    (void)state;
    many_put(full);
    commit_try_last(full->store);
    deletes_without_memory(full, results);
    full_again(full, 0);
    for (uint32_t i = 0; i < MANY; i++) {
        if (full_entry(full, i) != ENTRY_NONE) {
            failed_count++;
            assert_int_equal(results[0][i].status, KVT_E_NOMEM);
            assert_int_equal(results[1][i].status, KVT_E_NOMEM);
        }
    }
    assert_int_equal(failed_count, COMMIT_KILLS_MAX);
    full_end(full);
}

static uint32_t pinned[2 * FULL_BLOCKS];
static uint32_t pinned_count;

static void
pin(struct full_store *full, uint64_t key)
{
    uint32_t entry = full_entry(full, key);

    if (entry == ENTRY_NONE)
        return;
    assert_in_range(pinned_count, 0, sizeof(pinned) / sizeof(pinned[0]) - 1);
    residency_pin(full->store->map, entry);
    pinned[pinned_count++] = entry;
}

/* Of two pages with its header, where there is no room for the others. */
static enum kvt_status
small_put(struct full_store *full, uint64_t number)
{
    struct payload_key name;
    struct kvt_put put;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put = (struct kvt_put){.key = name.key, .source = full->bytes, .length = 1};
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    return full_result(ticket);
}

/* Nothing can be reclaimed. */
static struct full_store *
pinned_begin(uint64_t seed)
{
    struct full_store *full = full_begin(seed, FULL_SEGMENTS);

    full_fill(full);
    for (uint64_t key = 0; key < full->next_cold; key++)
        pin(full, key);
    while (full_result(full_put_submit(full, full->next_cold, 1, KVT_SYNC)) == KVT_OK)
        pin(full, full->next_cold++);
    (void)sim_run_for(full->world, 5 * SECOND_NS); /* What was in vain is tried again then. */
    while (small_put(full, full->next_cold) == KVT_OK)
        pin(full, full->next_cold++);
    return full;
}

/* Then it can; nothing else is to be written. */
static void
a_delete_that_found_no_room_makes_some(void **state)
{
    struct full_store *full = pinned_begin(12);
    uint32_t kill_count;

    (void)state;
    assert_int_equal(full_result(full_delete_submit(full, 1)), KVT_E_NOSPC);
    kill_count = full->store->commit->kills.count;
    for (uint32_t i = 0; i < 50; i++) /* However often that is asked for. */
        assert_int_equal(full_result(full_delete_submit(full, 1)), KVT_E_NOSPC);
    assert_int_equal(full->store->commit->kills.count, kill_count);
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    while (pinned_count > 0)
        entry_unpin(full->store, pinned[--pinned_count]);
    (void)sim_run_for(full->world, 5 * SECOND_NS);
    full_again(full, 0);
    assert_int_equal(full_entry(full, 1), ENTRY_NONE);
    full_end(full);
}

/* Kills that wait behind those of the next batch, and are told: set whether they are echoes, which
 * go when they are told. */
static void
told_mark(struct kill_queue *queue, bool is_echo)
{
    uint32_t i = 0;

    for (uint32_t at = queue->first; at != 0; at = queue->slots[at].next) {
        if (i++ >= COMMIT_KILLS_MAX && queue->slots[at].item.is_told)
            queue->slots[at].item.is_echo = is_echo;
    }
}

/* What many deletes have left is not gone through for each other one that finds no room. */
static void
who_was_told_is_not_told_again(void **state)
{
    struct full_store *full = pinned_begin(13);
    struct kill_queue *queue = &full->store->commit->kills;
    uint32_t kill_count;

    (void)state;
    for (uint64_t i = 0; i < MANY; i++) {
        const struct commit_kill kill = {.fingerprint = {.high = i, .low = i + 1}};

        assert_int_equal(commit_kill(full->store, &kill), KVT_OK);
    }
    assert_int_equal(full_result(full_delete_submit(full, 1)), KVT_E_NOSPC);
    kill_count = queue->count;
    assert_true(kill_count > MANY);
    told_mark(queue, true);
    assert_int_equal(full_result(full_delete_submit(full, 2)), KVT_E_NOSPC);
    assert_int_equal(queue->count, kill_count + 1);
    told_mark(queue, false);
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    while (pinned_count > 0)
        entry_unpin(full->store, pinned[--pinned_count]);
    full_again(full, 0);
    full_end(full);
}

/* Two copies of the key are being committed when the last delete comes: it waits for both kills.
 * Half of the times the index is rebuilt. */
static void
a_delete_waits_for_the_kill_of_the_newest_copy(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment += STRIDE) {
        const struct sim_rule slow = {.ops = SIM_COMMIT,
            .effect = SIM_STALL,
            .nth = 1 + moment % 3,
            .stall_ns = UINT64_C(5) * 1000000,
            .sticky = true};
        struct full_store *full = full_begin_hasty(100 + moment);
        kvt_ticket *tickets[5];

        sim_rule_add(full->world, &slow);
        tickets[0] = full_put_submit(full, KEY, 1, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(tickets[0], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        full_writing_meet(full, KEY);
        tickets[1] = full_delete_submit(full, KEY);
        tickets[2] = full_put_submit(full, KEY, 2, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(tickets[2], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        full_writing_meet(full, KEY);
        sim_run_steps(full->world, moment / 3);
        tickets[3] = full_delete_submit(full, KEY);
        tickets[4] = full_delete_submit(full, KEY);
        assert_true(kvt_ticket_wait(tickets[4], KVT_STAGE_DURABLE, FULL_WAIT_NS) >= 0);
        full_again(full, moment % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, KEY, 0));
        full_end(full);
    }
}

/* The copy that was deleted while it was written is killed when it is durable: behind a newer one
 * of the key, which is being written by then. */
static void
the_kill_of_a_copy_spares_what_was_put_behind_its_delete(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < SPARED_MOMENTS; moment += STRIDE) {
        struct full_store *full = full_begin_hasty(500 + moment);
        kvt_ticket *tickets[3];

        tickets[0] = full_put_submit(full, KEY, 1, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(tickets[0], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        full_writing_meet(full, KEY);
        tickets[1] = full_delete_submit(full, KEY);
        tickets[2] = full_put_submit(full, KEY, 2, KVT_SYNC);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(full_result(tickets[i]), i == 0 ? KVT_MISS : KVT_OK);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, KEY, 2);
        full_end(full);
    }
}

/* The block is deleted while it is written, and the power goes: its batch may count by then, and
 * its kill not. Who deletes it again finds it, or is promised what holds. */
static void
a_block_whose_kill_is_lost_in_a_crash_can_be_deleted(void **state)
{
    uint32_t found_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment += STRIDE) {
        struct full_store *full = full_begin_hasty(700 + moment);
        kvt_ticket *ticket = full_put_submit(full, KEY, 1, KVT_SYNC);

        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        full_writing_meet(full, KEY);
        (void)full_delete_submit(full, KEY);
        sim_run_steps(full->world, moment);
        full_again(full, 0);
        found_count += full_expect_at_most(full, KEY, 1);
        assert_true(kit_delete(full->store, full->ns, KEY) >= 0);
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, KEY, 0));
        full_end(full);
    }
    assert_true(found_count > 0);
}

/* The batch with the kill of the first delete fails while that of a second waits: what comes back
 * stands before that, or a flush would not see it. */
static void
a_kill_that_comes_back_has_not_passed(void **state)
{
    const struct sim_rule fails = {.ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1};
    struct full_store *full = full_begin(13, FULL_SEGMENTS);
    struct commit *commit = full->store->commit;
    kvt_ticket *tickets[2];
    uint64_t mark;

    (void)state;
    full_put(full, KEY, 1);
    full_put(full, KEY + 1, 1);
    sim_rule_add(full->world, &fails);
    tickets[0] = full_delete_submit(full, KEY);
    while (travelling_count(commit) == 0)
        sim_run_steps(full->world, 1);
    mark = commit_kill_mark(full->store);
    tickets[1] = full_delete_submit(full, KEY + 1);
    while (kvt_ticket_wait(tickets[0], KVT_STAGE_DURABLE, 0) == KVT_LATE) {
        assert_false(commit_kills_have_passed(full->store, mark));
        sim_run_steps(full->world, 1);
    }
    assert_int_equal(atomic_load(&full->store->counters.batch_failed_count), 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(full_result(tickets[i]), KVT_OK);
    full_end(full);
}

/* A delete that waits for its batch, and then a victim for whose blocks nothing goes ahead. */
static void
a_delete_that_waits_keeps_its_turn(void **state)
{
    struct full_store *full = full_begin_hasty(1);
    struct commit *commit = full->store->commit;
    kvt_ticket *tickets[3];

    (void)state;
    full_put(full, KEY, 1);
    for (uint64_t i = 0; i < 2; i++) {
        tickets[i] = full_put_submit(full, KEY + 1 + i, 1, KVT_SYNC);
        full_writing_meet(full, KEY + 1 + i);
    }
    tickets[2] = full_delete_submit(full, KEY);
    assert_int_equal(kvt_ticket_wait(tickets[2], KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(commit->kills.count, 1);
    assert_int_equal(commit_batch_ahead(full->store, FULL_SEGMENTS - 1), KVT_MISS);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(full_result(tickets[i]), KVT_OK);
    full_end(full);
}

/* --- What a flush tells ----------------------------------------------------------------------- */

/* A block that leaves HOST is deleted while it is written, and its commit fails. */
static void
a_flush_tells_of_a_delete_that_came_while_a_demotion_was_written(void **state)
{
    const struct sim_rule no_commits = {
        .ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true};
    struct full_store *full = full_begin_hasty(40);
    kvt_ticket *put = full_put_submit(full, KEY, 1, KVT_MEMORY);
    struct payload_key name;
    kvt_ticket *demote, *deletion;
    struct kvt_result result;

    (void)state;
    (void)full_stage_result(put, KVT_STAGE_DONE);
    payload_key_make(&name, KEY);
    sim_rule_add(full->world, &no_commits);
    assert_int_equal(
        kvt_demote_submit(full->store, full->ns, &name.key, 1, KVT_TIER_NVME, NULL, &demote),
        KVT_OK);
    full_writing_meet(full, KEY);
    deletion = full_delete_submit(full, KEY);
    assert_int_equal(kvt_ticket_wait(deletion, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(deletion, KVT_STAGE_DONE, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_OK); /* Stage 1 did not refuse it. */
    assert_int_equal(full_result(deletion), KVT_E_META);
    (void)full_stage_result(demote, KVT_STAGE_DONE);
    assert_int_equal(kvt_flush(full->store), KVT_E_META);
    sim_rules_clear(full->world);
    full_end(full);
}

/* The kill of a block deleted while it is written finds no memory. */
static void
a_flush_tells_of_a_delete_whose_kill_found_no_memory(void **state)
{
    struct full_store *full = full_begin_hasty(41);
    struct commit *commit = full->store->commit;
    kvt_ticket *put = full_put_submit(full, KEY, 1, KVT_SYNC);
    kvt_ticket *deletion;

    (void)state;
    full_writing_meet(full, KEY);
    deletion = full_delete_submit(full, KEY);
    while (full_entry(full, KEY) != ENTRY_NONE)
        sim_run_steps(full->world, 1);
    commit->held_count += COMMIT_KILLS_START; /* As if so many travelled. */
    sim_memory_fail(full->world, 1, true);
    assert_true(full_result(put) >= 0);
    assert_int_equal(full_result(deletion), KVT_E_NOMEM);
    sim_memory_fail(full->world, 0, false);
    commit->held_count -= COMMIT_KILLS_START;
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    full_end(full);
}

/* A kill was lost, and a flush has told that; a later delete of a key that is not there fails. */
static void
a_flush_tells_of_each_delete_that_is_in_doubt(void **state)
{
    struct full_store *full = full_begin(42, FULL_SEGMENTS);

    (void)state;
    kill_lose(full);
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    assert_true(kit_delete(full->store, full->ns, KEY) < 0);
    assert_int_equal(kvt_flush(full->store), KVT_E_IO);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_gone_when_its_delete_says_so),
        cmocka_unit_test(a_second_delete_waits_for_the_kill_of_the_first),
        cmocka_unit_test(a_delete_of_nothing_waits_for_a_kill_that_is_being_written),
        cmocka_unit_test(no_delete_of_an_absent_key_is_promised_when_a_kill_was_lost),
        cmocka_unit_test(many_deletes_at_once_become_durable),
        cmocka_unit_test(deletes_that_find_no_memory_go_with_the_next_batches),
        cmocka_unit_test(second_deletes_are_not_promised_when_those_before_them_are_given_up),
        cmocka_unit_test(a_delete_that_found_no_room_makes_some),
        cmocka_unit_test(who_was_told_is_not_told_again),
        cmocka_unit_test(a_delete_waits_for_the_kill_of_the_newest_copy),
        cmocka_unit_test(the_kill_of_a_copy_spares_what_was_put_behind_its_delete),
        cmocka_unit_test(a_block_whose_kill_is_lost_in_a_crash_can_be_deleted),
        cmocka_unit_test(a_kill_that_comes_back_has_not_passed),
        cmocka_unit_test(a_delete_that_waits_keeps_its_turn),
        cmocka_unit_test(a_flush_tells_of_a_delete_that_came_while_a_demotion_was_written),
        cmocka_unit_test(a_flush_tells_of_a_delete_whose_kill_found_no_memory),
        cmocka_unit_test(a_flush_tells_of_each_delete_that_is_in_doubt),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
