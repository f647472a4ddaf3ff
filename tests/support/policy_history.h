/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_history.h - a random history of blocks and copies, played to a policy and to a naive
 * reference: arrays that are searched from end to end.
 */
#ifndef KVT_TESTS_POLICY_HISTORY_H
#define KVT_TESTS_POLICY_HISTORY_H

#include "policy_rig.h"

/*
 * policy_history_run - after each step the counts of children are exact, and a walk of some place
 * shows each leaf of it once and nothing else: for LRU in the reference's order. All blocks are
 * gone at the end.
 */
void policy_history_run(struct policy_rig *rig, uint64_t seed, uint32_t step_count);

#endif /* KVT_TESTS_POLICY_HISTORY_H */
