/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learned.c - the policy's own bytes, to the file of what was learned and back.
 */
#include "learned.h"

#include "store_internal.h"

static size_t
learned_fill(struct kvt_store *store, uint8_t *target)
{
    return store->policy->ops->save(store->policy, target);
}

static bool
learned_take(struct kvt_store *store, const uint8_t *source, size_t size)
{
    return store->policy->ops->restore(store->policy, source, size);
}

const struct lazy_file_kind learned_file = {
    .name = "learned",
    .new_name = "learned.new",
    .magic = UINT32_C(0x6C9E21D4),
    .bytes_max = POLICY_STATE_BYTES_MAX,
    .fill = learned_fill,
    .take = learned_take,
};
