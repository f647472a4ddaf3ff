/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_fake.c - the scripted in-memory tier.
 */
#include "tier_fake.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"

enum {
    SLOTS_MAX = 4096,
};

struct fake_slot {
    uint8_t *bytes; /* NULL: free. */
    size_t size;
    uint32_t generation;
};

/* Something that happens once, `left` events from now; 0: not at all. */
struct fake_script {
    uint32_t left;
    enum kvt_status status;
};

struct tier_fake {
    struct tier tier;
    const struct kvt_env *env;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    struct fake_slot slots[SLOTS_MAX];
    struct tier_batch *first, *last; /* Waiting for their answer, linked by tier_private. */
    uint32_t waiting_count;
    struct fake_script refuse_put, fail_put, refuse_get, fail_block, flip_block;
};

static bool
script_strikes(struct fake_script *script)
{
    if (script->left == 0)
        return false;
    script->left--;
    return script->left == 0;
}

static struct tier_fake *
fake_of(struct tier *tier)
{
    return (struct tier_fake *)(void *)tier;
}

static size_t
padded_bytes(const struct tier_block *block)
{
    return (size_t)pages_of(block->record.stored_length) * PAGE_BYTES;
}

/* --- Slots ------------------------------------------------------------------------------------ */

static bool
slot_fill(struct tier_fake *fake, struct tier_block *block)
{
    size_t size = padded_bytes(block);

    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        struct fake_slot *slot = &fake->slots[i];

        if (slot->bytes != NULL)
            continue;
        if (size > fake->capacity_bytes - fake->used_bytes)
            return false;
        slot->bytes = env_take(fake->env, size);
        if (slot->bytes == NULL)
            return false;
        memcpy(slot->bytes, block->memory, size);
        slot->size = size;
        slot->generation++;
        fake->used_bytes += size;
        block->record.extent = (struct extent){.generation = slot->generation, .page = i};
        return true;
    }
    return false;
}

static struct fake_slot *
slot_find(struct tier_fake *fake, const struct extent *extent)
{
    struct fake_slot *slot = extent->page < SLOTS_MAX ? &fake->slots[extent->page] : NULL;

    if (slot == NULL || extent->segment != 0 || slot->bytes == NULL ||
        slot->generation != extent->generation)
        return NULL;
    return slot;
}

static void
slot_empty(struct tier_fake *fake, struct fake_slot *slot)
{
    env_put(fake->env, slot->bytes, slot->size);
    fake->used_bytes -= slot->size;
    slot->bytes = NULL;
}

static void
fake_drop(struct tier *tier, const struct tier_place *place)
{
    struct fake_slot *slot = slot_find(fake_of(tier), &place->extent);

    if (slot != NULL)
        slot_empty(fake_of(tier), slot);
}

/* --- Batches ---------------------------------------------------------------------------------- */

static void
batch_queue(struct tier_fake *fake, struct tier_batch *batch)
{
    batch->tier_private = NULL;
    if (fake->last == NULL)
        fake->first = batch;
    else
        fake->last->tier_private = batch;
    fake->last = batch;
    fake->waiting_count++;
}

static void
blocks_drop(struct tier_fake *fake, struct tier_batch *batch, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tier_place place = {batch->blocks[i].record.extent};

        fake_drop(&fake->tier, &place);
        batch->blocks[i].record.extent = (struct extent){0};
    }
}

static enum kvt_status
fake_put(struct tier *tier, struct tier_batch *batch)
{
    struct tier_fake *fake = fake_of(tier);

    if (script_strikes(&fake->refuse_put))
        return failure_set(fake->refuse_put.status, 0, "the fake tier refuses a put on purpose");
    for (uint32_t i = 0; i < batch->block_count; i++) {
        if (batch->blocks[i].record.stored_length == 0) {
            blocks_drop(fake, batch, i);
            return failure_set(KVT_E_INVAL, 0, "fake tier: block %u has no bytes", i);
        }
        if (!slot_fill(fake, &batch->blocks[i])) {
            blocks_drop(fake, batch, i);
            return failure_set(KVT_E_NOSPC, 0, "the fake tier is full");
        }
    }
    batch->status = KVT_OK;
    if (script_strikes(&fake->fail_put)) {
        batch->status = fake->fail_put.status;
        blocks_drop(fake, batch, batch->block_count);
    }
    for (uint32_t i = 0; i < batch->block_count; i++)
        batch->blocks[i].status = batch->status;
    batch_queue(fake, batch);
    return KVT_OK;
}

static void
block_read(struct tier_fake *fake, struct tier_block *block)
{
    struct fake_slot *slot = slot_find(fake, &block->record.extent);

    block->status = KVT_MISS;
    if (slot == NULL || block->record.stored_length == 0 || padded_bytes(block) > slot->size)
        return;
    if (script_strikes(&fake->fail_block)) {
        block->status = fake->fail_block.status;
        return;
    }
    memcpy(block->memory, slot->bytes, padded_bytes(block));
    if (script_strikes(&fake->flip_block))
        ((uint8_t *)block->memory)[block->record.stored_length / 2] ^= 1;
    block->status = KVT_OK;
}

static enum kvt_status
fake_get(struct tier *tier, struct tier_batch *batch)
{
    struct tier_fake *fake = fake_of(tier);

    if (script_strikes(&fake->refuse_get))
        return failure_set(fake->refuse_get.status, 0, "the fake tier refuses a get on purpose");
    for (uint32_t i = 0; i < batch->block_count; i++)
        block_read(fake, &batch->blocks[i]);
    batch->status = KVT_OK;
    batch_queue(fake, batch);
    return KVT_OK;
}

static void
fake_usage(struct tier *tier, struct tier_usage *usage_out)
{
    struct tier_fake *fake = fake_of(tier);

    usage_out->capacity_bytes = fake->capacity_bytes;
    usage_out->used_bytes = fake->used_bytes;
    usage_out->free_bytes = fake->capacity_bytes - fake->used_bytes;
}

static void
fake_close(struct tier *tier)
{
    struct tier_fake *fake = fake_of(tier);

    if (fake == NULL)
        return;
    KVT_ASSERT(fake->waiting_count == 0);
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        if (fake->slots[i].bytes != NULL)
            slot_empty(fake, &fake->slots[i]);
    }
    env_put(fake->env, fake, sizeof(*fake));
}

static const struct tier_ops fake_ops = {
    .name = "fake",
    .put = fake_put,
    .get = fake_get,
    .drop = fake_drop,
    .usage = fake_usage,
    .close = fake_close,
};

enum kvt_status
tier_fake_open(const struct kvt_env *env, uint64_t capacity_bytes, struct tier_fake **fake_out)
{
    struct tier_fake *fake = env_take(env, sizeof(*fake));

    *fake_out = NULL;
    if (fake == NULL)
        return failure_set(KVT_E_NOMEM, 0, "fake tier: no memory for %zu bytes", sizeof(*fake));
    fake->tier.ops = &fake_ops;
    fake->env = env;
    fake->capacity_bytes = capacity_bytes;
    *fake_out = fake;
    return KVT_OK;
}

struct tier *
tier_fake_as_tier(struct tier_fake *fake)
{
    return &fake->tier;
}

uint32_t
tier_fake_step(struct tier_fake *fake, uint32_t count)
{
    uint32_t answered_count = 0;

    while (answered_count < count && fake->first != NULL) {
        struct tier_batch *batch = fake->first;

        fake->first = batch->tier_private;
        if (fake->first == NULL)
            fake->last = NULL;
        fake->waiting_count--;
        tier_answer(fake->env, batch);
        answered_count++;
    }
    return answered_count;
}

uint32_t
tier_fake_waiting(const struct tier_fake *fake)
{
    return fake->waiting_count;
}

void
tier_fake_refuse_put(struct tier_fake *fake, uint32_t nth, enum kvt_status status)
{
    fake->refuse_put = (struct fake_script){.left = nth, .status = status};
}

void
tier_fake_fail_put(struct tier_fake *fake, uint32_t nth, enum kvt_status status)
{
    fake->fail_put = (struct fake_script){.left = nth, .status = status};
}

void
tier_fake_refuse_get(struct tier_fake *fake, uint32_t nth, enum kvt_status status)
{
    fake->refuse_get = (struct fake_script){.left = nth, .status = status};
}

void
tier_fake_fail_block(struct tier_fake *fake, uint32_t nth, enum kvt_status status)
{
    fake->fail_block = (struct fake_script){.left = nth, .status = status};
}

void
tier_fake_flip_block(struct tier_fake *fake, uint32_t nth)
{
    fake->flip_block = (struct fake_script){.left = nth};
}
