/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_rig.h - a policy with its map and entries, and blocks that are nothing but numbers. What
 * it takes of memory is counted, and can be refused.
 */
#ifndef KVT_TESTS_POLICY_RIG_H
#define KVT_TESTS_POLICY_RIG_H

#include "policy.h"

/* Between the policy and the machine's memory. */
struct policy_rig_memory {
    struct kvt_env host;
    uint64_t taken_count;
    uint64_t held_count; /* Taken and not put back. */
    bool is_short;       /* Nothing is given. */
};

struct policy_rig {
    struct policy_rig_memory memory;
    struct memory_ops memory_ops;
    struct kvt_env env;
    struct residency *map;
    struct entries *entries;
    struct policy *policy;
    uint64_t key_count; /* Of the last block with a key of its own. */
    uint64_t now_ns;    /* The caller's: what the policy is told. */
    uint32_t host_count;
};

struct policy_rig *policy_rig_open(const struct policy_ops *ops);
void policy_rig_close(struct policy_rig *rig); /* All memory must be back. */

/* --- Blocks ----------------------------------------------------------------------------------- */

/* policy_rig_block - a new block without a copy in memory (NVMe has it). */
uint32_t policy_rig_block(struct policy_rig *rig, uint32_t parent);
/* policy_rig_block_weighing - one with that weight, and no parent. */
uint32_t policy_rig_block_weighing(struct policy_rig *rig, uint32_t weight);
/* policy_rig_copy - a new block in HOST; policy_rig_copy_of: with that key. */
uint32_t policy_rig_copy(struct policy_rig *rig, uint32_t parent);
uint32_t policy_rig_copy_of(struct policy_rig *rig, uint64_t key, uint32_t parent);
/* policy_rig_drop - the block is evicted with all its copies; policy_rig_delete: deleted. */
void policy_rig_drop(struct policy_rig *rig, uint32_t number);
void policy_rig_delete(struct policy_rig *rig, uint32_t number);

uint64_t policy_rig_key(struct policy_rig *rig, uint32_t number);
uint32_t policy_rig_find(struct policy_rig *rig, uint64_t key); /* ENTRY_NONE: not there. */

/* --- Copies ----------------------------------------------------------------------------------- */

void policy_rig_add(struct policy_rig *rig, unsigned place, uint32_t number);
void policy_rig_remove(struct policy_rig *rig, unsigned place, uint32_t number);
/* policy_rig_use - a request of this block alone. */
void policy_rig_use(struct policy_rig *rig, uint32_t number);
uint32_t policy_rig_victim(struct policy_rig *rig, unsigned place, uint32_t cursor);
/* policy_rig_trim - the policy's victims leave the store until HOST has no more than `count`. */
void policy_rig_trim(struct policy_rig *rig, uint32_t count);

#endif /* KVT_TESTS_POLICY_RIG_H */
