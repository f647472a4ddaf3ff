/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_committer.c - the committer tries no job behind one that failed. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

struct two_jobs {
    struct commit_job jobs[2];
    uint32_t run_count, finish_count;
    bool is_sent;
};

static struct two_jobs two_jobs;

/* The first one fails. */
static enum kvt_status
job_run(struct kvt_store *store, struct commit_job *job)
{
    (void)store;
    two_jobs.run_count++;
    return job == &two_jobs.jobs[0] ? KVT_E_META : KVT_OK;
}

static void
job_finish(struct kvt_store *store, struct commit_job *job)
{
    (void)store;
    (void)job;
    two_jobs.finish_count++;
}

static bool
two_jobs_run(struct kvt_store *store, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < 2 && !two_jobs.is_sent; i++) {
        two_jobs.jobs[i] = (struct commit_job){.run = job_run, .finish = job_finish};
        committer_submit(store->committer, &two_jobs.jobs[i]);
    }
    two_jobs.is_sent = true;
    return two_jobs.finish_count == 2;
}

/* Nor one that the committer was given before the loop could hear of the failure. */
static void
a_commit_that_was_asked_for_before_one_failed_is_not_tried(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS);

    (void)state;
    two_jobs = (struct two_jobs){0};
    loop_call(full->store, two_jobs_run, NULL);
    assert_int_equal(two_jobs.run_count, 1);
    assert_int_equal(two_jobs.jobs[0].status, KVT_E_META);
    assert_int_equal(two_jobs.jobs[1].status, KVT_E_META);
    full_again(full, 0);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_that_was_asked_for_before_one_failed_is_not_tried),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
