/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_kit.h - an NVME tier over an io engine that fails as scripted (io_puppet.h), with a clock
 * that stands until it is put forward, and batches of it that are waited for.
 *
 * Whatever must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_NVME_KIT_H
#define KVT_TESTS_NVME_KIT_H

#include <stdatomic.h>

#include "io_puppet.h"
#include "tier_rig.h"

enum {
    NVME_KIT_SEGMENTS = 8, /* In each root. */
};

struct nvme_kit {
    struct tier_rig rig;
    struct io_puppet *script;
    struct clock_ops clock;
    _Atomic uint64_t now_ns;
};

extern struct nvme_kit nvme_kit;

void nvme_kit_open(uint32_t root_count);
void nvme_kit_close(void);

/* nvme_kit_batch - a batch of `block_count` blocks of 9,000 bytes and more, not put yet. */
void nvme_kit_batch(struct rig_batch *batch, uint32_t block_count, uint64_t seed);

/* nvme_kit_put - put, and wait: all of it is answered with `status`. nvme_kit_get - all blocks of
 * what was put are there, and right. */
void nvme_kit_put(struct rig_batch *batch, enum kvt_status status);
void nvme_kit_get(const struct rig_batch *put);

/* nvme_kit_segment - where the first block of what was put lies. */
struct segment *nvme_kit_segment(const struct rig_batch *put);

/* nvme_kit_held_wait - turn the loop until at least `count` operations of a kind are kept back. */
void nvme_kit_held_wait(enum io_kind kind, uint32_t count);

#endif /* KVT_TESTS_NVME_KIT_H */
