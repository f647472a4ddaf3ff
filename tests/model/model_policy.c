/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_policy.c - the policies' object files on a recorded trace, against the hit rates that were
 * measured for them with another program.
 *
 * One request at a time, in the trace's order. The leading resident blocks of a request are its
 * hits, and are used; the others come into HOST, each behind its parent; then victims leave the
 * store one by one until no more than the capacity is there. What is counted is the share of prompt
 * tokens that hits make needless.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy_rig.h"
#include "stop_on_proof.h"
#include "trace.h"

#define TRACE_PATH KVT_TRACE_FOLDER "/conversation_h1.jsonl.zst"

static struct trace trace;
static uint32_t chain[TRACE_CHAIN_MAX]; /* Entries of the request's blocks. */

/* The request's hits; the entries of its blocks are in `chain` afterwards. */
static uint32_t
request_find(struct policy_rig *rig, const struct trace_request *request)
{
    const uint64_t *ids = &trace.ids[request->id_start];
    uint32_t hit_count = request->id_count;

    for (uint32_t i = 0; i < request->id_count; i++) {
        chain[i] = policy_rig_find(rig, ids[i]);
        if (chain[i] == ENTRY_NONE && hit_count == request->id_count)
            hit_count = i;
        /* Leaves went first: what is resident of a chain is its beginning. */
        assert_true(chain[i] == ENTRY_NONE || hit_count == request->id_count);
    }
    return hit_count;
}

/* Percent of the prompts' tokens. */
static double
prefix_hits(const struct policy_ops *ops, double capacity_percent)
{
    struct policy_rig *rig = policy_rig_open(ops);
    uint32_t capacity = (uint32_t)(capacity_percent / 100 * (double)trace.unique_count + 0.5);
    uint64_t input_tokens = 0, saved_tokens = 0;

    assert_non_null(rig);
    for (size_t i = 0; i < trace.request_count; i++) {
        const struct trace_request *request = &trace.requests[i];
        uint32_t hit_count = request_find(rig, request);
        uint64_t hit_tokens = (uint64_t)hit_count * TRACE_BLOCK_TOKENS;

        input_tokens += request->input_length;
        saved_tokens += hit_tokens < request->input_length ? hit_tokens : request->input_length;
        rig->now_ns = (1000 + request->timestamp_ms) * 1000000;
        ops->request(rig->policy, chain, hit_count, rig->now_ns);
        for (uint32_t block = hit_count; block < request->id_count; block++) {
            chain[block] = policy_rig_copy_of(rig, trace.ids[request->id_start + block],
                block == 0 ? ENTRY_NONE : chain[block - 1]);
            entries_at(rig->entries, chain[block])->depth = block;
        }
        policy_rig_trim(rig, capacity);
    }
    policy_rig_close(rig);
    return 100 * (double)saved_tokens / (double)input_tokens;
}

static void
expect_hits(const struct policy_ops *ops, double capacity_percent, double wanted, double tolerance)
{
    double hits = prefix_hits(ops, capacity_percent);

    print_message("%s, %.1f %% of the blocks: %.2f %% of the tokens (%.1f)\n", ops->name,
        capacity_percent, hits, wanted);
    assert_true(hits > wanted - tolerance && hits < wanted + tolerance);
}

static void
lru_hits_as_often_as_it_was_measured(void **state)
{
    const double wanted[][2] = {{0.5, 4.1}, {1, 4.4}, {2, 5.3}, {5, 11.2}, {10, 20.9}, {20, 28.4}};

    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        expect_hits(&policy_lru_ops, wanted[i][0], wanted[i][1], 0.1);
}

/* The figures are of a program that chose among blocks of one age in another way. */
static void
s3fifo_hits_as_often_as_it_was_measured(void **state)
{
    const double wanted[][2] = {{0.5, 4.6}, {1, 5.6}, {2, 8.1}, {5, 13.2}, {10, 20}, {20, 28.4}};

    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        expect_hits(&policy_s3fifo_ops, wanted[i][0], wanted[i][1], 0.2);
}

/* 32 leaves drawn at random, 300 classes, four ghosts a block. */
static void
default_hits_as_often_as_it_was_measured(void **state)
{
    const double wanted[][2] = {{0.5, 5.6}, {1, 7.6}, {2, 10}, {5, 15.7}, {10, 22.7}, {20, 29.5}};

    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        expect_hits(&policy_default_ops, wanted[i][0], wanted[i][1], 0.5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_hits_as_often_as_it_was_measured),
        cmocka_unit_test(s3fifo_hits_as_often_as_it_was_measured),
        cmocka_unit_test(default_hits_as_often_as_it_was_measured),
    };
    char message[TRACE_MESSAGE_BYTES];
    int failed;

    stop_on_proof();
    if (!trace_load(&trace, TRACE_PATH, message)) {
        (void)fprintf(stderr, "%s: %s\n", TRACE_PATH, message);
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    trace_free(&trace);
    return failed;
}
