/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c - what all tiers do alike: handing a batch back.
 */
#include "tier.h"

#include "env.h"

void
tier_answer(const struct kvt_env *env, struct tier_batch *batch)
{
    /* Taken before the push: the batch may be gone after it. */
    struct task *const *done_task = batch->done_task;

    if (inbox_push(batch->done, &batch->node) && done_task != NULL && *done_task != NULL)
        env_wake(env, *done_task);
}
