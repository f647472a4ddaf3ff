/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_tier.c - the arena and its slots behind the tier vtable.
 *
 * Touching: the kernel gives pages when they are first written, which takes about 0.1 ms for 2 MiB.
 * Up to TOUCH_ALONE_BYTES the opening thread does that; above, TOUCH_ACTORS actors share it.
 */
#include "host_tier.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "try.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define TOUCH_ALONE_BYTES ((size_t)256 << 20)
#define TOUCH_STEP_BYTES ((size_t)64 << 20)

enum {
    TOUCH_ACTORS = 16,
};

struct host_tier {
    struct tier tier;
    const struct kvt_env *env;
    uint8_t *arena;
    bool is_arena_kept;
    size_t size;
    struct slab *slab;
};

/* --- Touching --------------------------------------------------------------------------------- */

struct toucher {
    uint8_t *next; /* Only its actor changes it. */
    uint8_t *end;
    _Atomic bool is_done; /* Release: pairs with the acquire in touch_wait(). */
    const struct kvt_env *env;
    struct gate *gate;
    struct task *task;
};

static void
range_touch(uint8_t *from, uint8_t *to)
{
    /* Every page: where huge pages are not to be had, small ones are what was mapped. */
    for (volatile uint8_t *byte = from; byte < to; byte += PAGE_BYTES)
        *byte = 0;
}

static bool
touch_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct toucher *toucher = context;
    size_t left = (size_t)(toucher->end - toucher->next);
    size_t step = left < TOUCH_STEP_BYTES ? left : TOUCH_STEP_BYTES;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    if (left == 0)
        return false;
    range_touch(toucher->next, toucher->next + step);
    toucher->next += step;
    if (toucher->next == toucher->end) {
        atomic_store_explicit(&toucher->is_done, true, memory_order_release);
        gate_post(toucher->env, toucher->gate);
    }
    return true;
}

static void
touch_wait(const struct kvt_env *env, struct gate *gate, struct toucher *toucher)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(&gate->value, memory_order_acquire);

        if (atomic_load_explicit(&toucher->is_done, memory_order_acquire))
            return;
        gate_wait(env, gate, seen, UINT64_MAX);
    }
}

static void
arena_touch(const struct kvt_env *env, uint8_t *arena, size_t size)
{
    struct toucher touchers[TOUCH_ACTORS] = {0};
    struct gate gate = {0};
    size_t share = size / TOUCH_ACTORS / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;

    if (size <= TOUCH_ALONE_BYTES) {
        range_touch(arena, arena + size);
        return;
    }
    for (uint32_t i = 0; i < TOUCH_ACTORS; i++) {
        struct toucher *toucher = &touchers[i];
        struct actor actor = {.name = "kvt-touch", .step = touch_step, .context = toucher};

        toucher->next = arena + i * share;
        toucher->end = i + 1 == TOUCH_ACTORS ? arena + size : toucher->next + share;
        toucher->env = env;
        toucher->gate = &gate;
        /* Without a thread the share is touched here: it only takes longer. */
        if (env->sched->start(env->sched_context, &actor, &toucher->task) != KVT_OK) {
            range_touch(toucher->next, toucher->end);
            toucher->task = NULL;
        }
    }
    for (uint32_t i = 0; i < TOUCH_ACTORS; i++) {
        if (touchers[i].task == NULL)
            continue;
        env_wake(env, touchers[i].task);
        touch_wait(env, &gate, &touchers[i]);
        env->sched->stop(env->sched_context, touchers[i].task);
    }
}

/* --- The vtable ------------------------------------------------------------------------------- */

static struct host_tier *
host_of(struct tier *tier)
{
    return (struct host_tier *)(void *)tier;
}

static struct slot
slot_of(const struct extent *extent)
{
    return (struct slot){.number = extent->page, .generation = extent->generation};
}

static size_t
padded_bytes(const struct tier_block *block)
{
    return (size_t)pages_of(block->record.stored_length) * PAGE_BYTES;
}

static void
slots_return(struct host_tier *host, struct tier_batch *batch, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        slab_put(host->slab, slot_of(&batch->blocks[i].record.extent));
        batch->blocks[i].record.extent = (struct extent){0};
    }
}

static enum kvt_status
host_put(struct tier *tier, struct tier_batch *batch)
{
    struct host_tier *host = host_of(tier);

    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        struct slot slot;
        enum kvt_status status = slab_take(host->slab, block->record.stored_length, &slot);

        if (status != KVT_OK) {
            slots_return(host, batch, i);
            return status;
        }
        block->record.extent = (struct extent){.generation = slot.generation, .page = slot.number};
    }
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];

        memcpy(slab_address(host->slab, slot_of(&block->record.extent)), block->memory,
            padded_bytes(block));
        block->status = KVT_OK;
    }
    batch->status = KVT_OK;
    tier_answer(host->env, batch);
    return KVT_OK;
}

static enum kvt_status
host_get(struct tier *tier, struct tier_batch *batch)
{
    struct host_tier *host = host_of(tier);

    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        struct slot slot = slot_of(&block->record.extent);

        block->status = KVT_MISS;
        if (block->record.extent.segment != 0 || !slab_is_current(host->slab, slot))
            continue;
        if (block->record.stored_length == 0 ||
            padded_bytes(block) > slab_slot_bytes(host->slab, slot))
            continue;
        memcpy(block->memory, slab_address(host->slab, slot), padded_bytes(block));
        block->status = KVT_OK;
    }
    batch->status = KVT_OK;
    tier_answer(host->env, batch);
    return KVT_OK;
}

static void
host_drop(struct tier *tier, const struct tier_place *place)
{
    /* A place that has passed names nothing any more: dropping it again is harmless. */
    if (place->extent.segment == 0)
        slab_put(host_of(tier)->slab, slot_of(&place->extent));
}

static void
host_usage(struct tier *tier, struct tier_usage *usage_out)
{
    const struct slab *slab = host_of(tier)->slab;

    usage_out->capacity_bytes = slab_capacity(slab);
    usage_out->used_bytes = slab_used(slab);
    usage_out->free_bytes = slab_capacity(slab) - slab_used(slab);
}

static void
host_close(struct tier *tier)
{
    struct host_tier *host = host_of(tier);

    if (host == NULL)
        return;
    slab_close(host->slab);
    if (host->arena != NULL && !host->is_arena_kept)
        env_unmap(host->env, host->arena, host->size);
    env_put(host->env, host, sizeof(*host));
}

static const struct tier_ops host_ops = {
    .name = "host",
    .put = host_put,
    .get = host_get,
    .drop = host_drop,
    .usage = host_usage,
    .close = host_close,
};

/* --- Opening ---------------------------------------------------------------------------------- */

enum kvt_status
host_open(const struct kvt_env *env, uint64_t capacity_bytes, size_t slot_bytes_max,
    struct host_tier **host_out)
{
    struct host_tier *host;
    enum kvt_status status;

    *host_out = NULL;
    if (capacity_bytes == 0 || capacity_bytes > SIZE_MAX - HUGE_PAGE_BYTES)
        return failure_set(KVT_E_INVAL, 0, "host tier: a capacity of %llu bytes is impossible",
            (unsigned long long)capacity_bytes);
    host = env_take(env, sizeof(*host));
    if (host == NULL)
        return failure_set(KVT_E_NOMEM, 0, "host tier: no memory for %zu bytes", sizeof(*host));
    host->tier.ops = &host_ops;
    host->env = env;
    host->size = round_up(capacity_bytes, HUGE_PAGE_BYTES);
    host->arena = env_map(env, host->size);
    if (host->arena == NULL) {
        status = failure_set(
            KVT_E_NOMEM, 0, "host tier: the system has no arena of %zu bytes", host->size);
        goto close;
    }
    KVT_TRY_GOTO(slab_open(env, host->arena, host->size, 0, slot_bytes_max, &host->slab), close);
    arena_touch(env, host->arena, host->size);
    *host_out = host;
    return KVT_OK;
close:
    host_close(&host->tier);
    return status;
}

struct tier *
host_as_tier(struct host_tier *host)
{
    return &host->tier;
}

struct slab *
host_slab(struct host_tier *host)
{
    return host->slab;
}

void *
host_arena(struct host_tier *host, size_t *size_out)
{
    *size_out = host->size;
    return host->arena;
}

void
host_arena_keep(struct host_tier *host)
{
    host->is_arena_kept = true;
}
