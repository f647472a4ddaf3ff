/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_rig.c - opening tiers for tests and turning their loop.
 */
#include "tier_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "host_tier.h"
#include "io_engines.h"
#include "rng.h"
#include "tier_fake.h"

#define PATIENCE_NS (30ull * 1000 * 1000 * 1000)

static const uint8_t rig_secret[HASH_SECRET_BYTES] = "a secret only the tests know";

static void
stop(const char *what)
{
    (void)fprintf(stderr, "tier_rig: %s: %s\n", what, failure_last()->text);
    abort();
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static bool
kind_is_nvme(enum tier_kind kind)
{
    return kind == TIER_KIND_NVME_URING || kind == TIER_KIND_NVME_THREADS ||
           kind == TIER_KIND_NVME_OTHER;
}

void
rig_init(struct tier_rig *rig, enum tier_kind kind, uint32_t root_count, uint32_t segments)
{
    memset(rig, 0, sizeof(*rig));
    env_host(&rig->env);
    rig->kind = kind;
    rig->device = (struct device_host_config){.seed = 1, .delay_ns_max = 20000};
    rig->env.io = kind == TIER_KIND_NVME_URING ? &io_uring_ops : &io_threads_ops;
    rig->env.io_context = &rig->env;
    rig->arena = env_map(&rig->env, RIG_ARENA_BYTES);
    if (rig->arena == NULL)
        stop("no arena");
    scratch_dir_make(&rig->scratch);
    rig->options.root_count = root_count;
    rig->options.segment_pages = RIG_SEGMENT_PAGES;
    rig->options.arena = rig->arena;
    rig->options.arena_size = RIG_ARENA_BYTES;
    memset(rig->options.store_uuid, 0x5A, sizeof(rig->options.store_uuid));
    memcpy(rig->options.secret, rig_secret, sizeof(rig_secret));
    for (uint32_t i = 0; i < root_count; i++) {
        char name[16];

        rig->options.root_bytes[i] = (uint64_t)segments * RIG_SEGMENT_PAGES * PAGE_BYTES;
        (void)snprintf(name, sizeof(name), "root%u", i);
        if (rig->env.fs->dir_open(rig->env.fs_context, scratch_path(&rig->scratch, name), FS_CREATE,
                &rig->options.roots[i]) != KVT_OK)
            stop("no root");
    }
}

static enum kvt_status
hbm_over_emulation(struct tier_rig *rig, uint64_t capacity_bytes)
{
    struct hbm_options options = {.ops = &device_host_ops,
        .context = &rig->device,
        .capacity_bytes = capacity_bytes,
        .slot_bytes_max = 1 << 20,
        .arena = rig->arena,
        .arena_size = RIG_ARENA_BYTES};
    enum kvt_status status = hbm_open(&rig->env, &options, &rig->hbm);

    if (status == KVT_OK)
        rig->tier = hbm_as_tier(rig->hbm);
    return status;
}

enum kvt_status
rig_open(struct tier_rig *rig)
{
    uint64_t capacity_bytes = rig->options.root_bytes[0];
    struct host_tier *host;
    enum kvt_status status = KVT_E_INVAL;

    switch (rig->kind) {
    case TIER_KIND_HOST:
        status = host_open(&rig->env, capacity_bytes, 1 << 20, &host);
        if (status == KVT_OK)
            rig->tier = host_as_tier(host);
        break;
    case TIER_KIND_HBM:
        status = hbm_over_emulation(rig, capacity_bytes);
        break;
    case TIER_KIND_NVME_URING:
    case TIER_KIND_NVME_THREADS:
    case TIER_KIND_NVME_OTHER:
        status = nvme_open(&rig->env, &rig->options, &rig->nvme);
        if (status == KVT_OK)
            rig->tier = nvme_as_tier(rig->nvme);
        break;
    case TIER_KIND_NULL:
        status = tier_null_open(&rig->env, &rig->tier);
        break;
    case TIER_KIND_FAKE:
        status = tier_fake_open(&rig->env, capacity_bytes, &rig->fake);
        if (status == KVT_OK)
            rig->tier = tier_fake_as_tier(rig->fake);
        break;
    }
    return status;
}

void
rig_close(struct tier_rig *rig)
{
    if (rig->tier != NULL)
        rig->tier->ops->close(rig->tier);
    rig->tier = NULL;
    rig->hbm = NULL;
    rig->nvme = NULL;
    rig->fake = NULL;
    rig_answers_clear(rig);
}

void
rig_deinit(struct tier_rig *rig)
{
    rig_close(rig);
    for (uint32_t i = 0; i < rig->options.root_count; i++)
        rig->env.fs->dir_close(rig->options.roots[i]);
    scratch_dir_remove(&rig->scratch);
    env_unmap(&rig->env, rig->arena, RIG_ARENA_BYTES);
}

/* --- Batches ---------------------------------------------------------------------------------- */

void *
rig_memory(struct tier_rig *rig, size_t size)
{
    void *memory = rig->arena + rig->arena_used;

    rig->arena_used += round_up(size, PAGE_BYTES);
    if (rig->arena_used > RIG_ARENA_BYTES)
        stop("the arena is used up");
    return memory;
}

void
rig_memory_reset(struct tier_rig *rig)
{
    rig->arena_used = 0;
}

void
payload_fill(uint8_t *target, size_t length, uint64_t seed)
{
    struct rng rng = {.state = seed ^ length};
    size_t at = 0;

    for (; at + 8 <= length; at += 8)
        put_u64(target + at, rng_next(&rng));
    for (; at < length; at++)
        target[at] = (uint8_t)rng_next(&rng);
}

bool
payload_matches(const uint8_t *bytes, size_t length, uint64_t seed)
{
    struct rng rng = {.state = seed ^ length};
    size_t at = 0;

    for (; at + 8 <= length; at += 8) {
        if (get_u64(bytes + at) != rng_next(&rng))
            return false;
    }
    for (; at < length; at++) {
        if (bytes[at] != (uint8_t)rng_next(&rng))
            return false;
    }
    return true;
}

void
rig_batch_init(struct tier_rig *rig, struct rig_batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    batch->batch.blocks = batch->blocks;
    batch->batch.kills = batch->kills;
    batch->batch.done = &rig->done;
    batch->batch.sequence = ++rig->sequence;
    batch->batch.user = batch;
}

void
rig_batch_add(struct tier_rig *rig, struct rig_batch *batch, uint32_t length, uint64_t seed)
{
    uint32_t index = batch->batch.block_count++;
    struct tier_block *block = &batch->blocks[index];
    struct block_record *record = &block->record;
    size_t padded = (size_t)pages_of(length) * PAGE_BYTES;

    if (index >= RIG_BATCH_MAX)
        stop("the batch is full");
    block->memory = rig_memory(rig, padded);
    memset(block->memory, 0, padded);
    payload_fill(block->memory, length, seed);
    batch->seeds[index] = seed;
    record->key = (struct block_key){.namespace_id = 1, .form = KEY_RAW, .length = 8};
    put_u64(record->key.bytes, seed);
    record->namespace_epoch = 1;
    record->sequence = rig->sequence << 16 | index;
    record->length = length;
    record->stored_length = length;
    record->part_count = 1;
    record->checksum = hash_payload(block->memory, length);
    block->status = KVT_E_POISONED; /* Must be overwritten. */
}

void
rig_get_init(struct tier_rig *rig, struct rig_batch *get, const struct rig_batch *put)
{
    memset(get, 0, sizeof(*get));
    get->batch.blocks = get->blocks;
    get->batch.block_count = put->batch.block_count;
    get->batch.done = &rig->done;
    get->batch.user = get;
    get->batch.status = KVT_E_POISONED;
    for (uint32_t i = 0; i < put->batch.block_count; i++) {
        size_t padded = (size_t)pages_of(put->blocks[i].record.stored_length) * PAGE_BYTES;

        get->blocks[i].record = put->blocks[i].record;
        get->blocks[i].memory = rig_memory(rig, padded);
        get->blocks[i].status = KVT_E_POISONED;
        get->seeds[i] = put->seeds[i];
        memset(get->blocks[i].memory, 0xDB, padded);
    }
}

/* --- The loop --------------------------------------------------------------------------------- */

void
rig_turn(struct tier_rig *rig)
{
    struct inbox_node *node;

    if (kind_is_nvme(rig->kind) && !nvme_step(rig->nvme))
        (void)usleep(20);
    if (rig->kind == TIER_KIND_HBM && !hbm_step(rig->hbm))
        (void)usleep(20);
    if (rig->kind == TIER_KIND_FAKE)
        (void)tier_fake_step(rig->fake, UINT32_MAX);
    node = inbox_take(&rig->done);
    while (node != NULL) {
        struct inbox_node *next = node->next;

        if (rig->answer_count == RIG_ANSWERS_MAX)
            stop("too many answers");
        rig->answers[rig->answer_count++] = CONTAINER_OF(node, struct tier_batch, node);
        node = next;
    }
}

void
rig_wait(struct tier_rig *rig, uint32_t count)
{
    uint64_t until_ns = env_now(&rig->env) + PATIENCE_NS;

    while (rig->answer_count < count) {
        rig_turn(rig);
        if (env_now(&rig->env) > until_ns)
            stop("no answer came");
    }
}

void
rig_answers_clear(struct tier_rig *rig)
{
    rig->answer_count = 0;
}

enum kvt_status
rig_put(struct tier_rig *rig, struct rig_batch *batch)
{
    enum kvt_status status = rig->tier->ops->put(rig->tier, &batch->batch);

    if (status != KVT_OK)
        return status;
    rig_wait(rig, rig->answer_count + 1);
    rig->answer_count--;
    return KVT_OK;
}

enum kvt_status
rig_get(struct tier_rig *rig, struct rig_batch *batch)
{
    enum kvt_status status = rig->tier->ops->get(rig->tier, &batch->batch);

    if (status != KVT_OK)
        return status;
    rig_wait(rig, rig->answer_count + 1);
    rig->answer_count--;
    return KVT_OK;
}
