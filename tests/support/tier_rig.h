/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_rig.h - a tier opened for a test, batches to put into it, and a loop that waits for answers.
 *
 * Payloads are PRF(seed, length), so any read can be verified. Memory of blocks is cut from one
 * arena, which an NVME tier adopts, and an HBM tier registers with its device (an emulation that
 * is late).
 */
#ifndef KVT_TESTS_TIER_RIG_H
#define KVT_TESTS_TIER_RIG_H

#include "device_host.h"
#include "env.h"
#include "hbm_tier.h"
#include "nvme_tier.h"
#include "scratch_dir.h"
#include "tier.h"

enum tier_kind {
    TIER_KIND_HOST,
    TIER_KIND_HBM,
    TIER_KIND_NVME_URING,
    TIER_KIND_NVME_THREADS,
    TIER_KIND_NVME_OTHER, /* env.io is set by the test. */
    TIER_KIND_NULL,
    TIER_KIND_FAKE,
};

enum {
    RIG_BATCH_MAX = 64, /* Blocks in a batch. */
    RIG_ANSWERS_MAX = 256,
    RIG_ARENA_BYTES = 64 << 20,
    RIG_SEGMENT_PAGES = 256,
};

struct rig_batch {
    struct tier_batch batch;
    struct tier_block blocks[RIG_BATCH_MAX];
    uint64_t seeds[RIG_BATCH_MAX];
    struct tier_kill kills[RIG_BATCH_MAX];
};

struct tier_fake;

struct tier_rig {
    struct kvt_env env;
    enum tier_kind kind;
    struct tier *tier;
    struct hbm_tier *hbm;        /* Kind HBM. */
    struct nvme_tier *nvme;      /* Kinds NVME. */
    struct tier_fake *fake;      /* Kind FAKE. */
    struct nvme_options options; /* Before rig_open(): may be changed. */
    struct device_host_config device;
    struct scratch_dir scratch;
    uint8_t *arena;
    size_t arena_used;
    uint64_t sequence; /* Of the last put. */
    struct inbox done;
    struct tier_batch *answers[RIG_ANSWERS_MAX]; /* In order of arrival. */
    uint32_t answer_count;
};

/* rig_init - everything but opening; `segments` in each of `root_count` roots (NVME), about as many
 * MiB (HOST, HBM, FAKE). rig_deinit closes and removes all of it. */
void rig_init(struct tier_rig *rig, enum tier_kind kind, uint32_t root_count, uint32_t segments);
enum kvt_status rig_open(struct tier_rig *rig);
void rig_close(struct tier_rig *rig);
void rig_deinit(struct tier_rig *rig);

/* rig_memory - `size` bytes of whole pages from the arena; rig_memory_reset takes all back. */
void *rig_memory(struct tier_rig *rig, size_t size);
void rig_memory_reset(struct tier_rig *rig);

void payload_fill(uint8_t *target, size_t length, uint64_t seed);
bool payload_matches(const uint8_t *bytes, size_t length, uint64_t seed);

/* rig_batch_init - an empty batch with the next sequence. rig_batch_add - one block of PRF bytes
 * with a record that agrees. */
void rig_batch_init(struct tier_rig *rig, struct rig_batch *batch);
void rig_batch_add(struct tier_rig *rig, struct rig_batch *batch, uint32_t length, uint64_t seed);

/* rig_get_init - a get of what `put` holds, into poisoned memory. */
void rig_get_init(struct tier_rig *rig, struct rig_batch *get, const struct rig_batch *put);

/* rig_wait - turn the loop until `count` answers lie in `answers`; stops the test when none comes
 * for 30 s. rig_turn - one round of the loop. */
void rig_wait(struct tier_rig *rig, uint32_t count);
void rig_turn(struct tier_rig *rig);
void rig_answers_clear(struct tier_rig *rig);

/* rig_put, rig_get - submit, wait for the one answer, forget it. The status of the submission. */
enum kvt_status rig_put(struct tier_rig *rig, struct rig_batch *batch);
enum kvt_status rig_get(struct tier_rig *rig, struct rig_batch *batch);

#endif /* KVT_TESTS_TIER_RIG_H */
