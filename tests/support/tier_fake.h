/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_fake.h - a tier in ordinary memory that answers when it is told to and fails as scripted.
 *
 * Bytes are copied at once; the answer comes with the next tier_fake_step(), so the time between
 * them is the test's to use. Places: segment 0, page = slot, generation rises.
 * Threads: one.
 */
#ifndef KVT_TESTS_TIER_FAKE_H
#define KVT_TESTS_TIER_FAKE_H

#include "env.h"
#include "tier.h"

struct tier_fake;

enum kvt_status tier_fake_open(
    const struct kvt_env *env, uint64_t capacity_bytes, struct tier_fake **fake_out);
struct tier *tier_fake_as_tier(struct tier_fake *fake);

/* tier_fake_step - answer up to `count` batches, oldest first; returns how many were. */
uint32_t tier_fake_step(struct tier_fake *fake, uint32_t count);
uint32_t tier_fake_waiting(const struct tier_fake *fake); /* Batches not yet answered. */

/* --- The script: each counts from now (1: the next), happens once, and replaces the one before. */

void tier_fake_refuse_put(struct tier_fake *fake, uint32_t nth, enum kvt_status status);
void tier_fake_fail_put(struct tier_fake *fake, uint32_t nth, enum kvt_status status);
void tier_fake_refuse_get(struct tier_fake *fake, uint32_t nth, enum kvt_status status);
/* The n-th block that is read, over all batches. */
void tier_fake_fail_block(struct tier_fake *fake, uint32_t nth, enum kvt_status status);
/* The n-th block that is read differs in one bit. */
void tier_fake_flip_block(struct tier_fake *fake, uint32_t nth);

#endif /* KVT_TESTS_TIER_FAKE_H */
