/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_rig.c - blocks for a policy, and memory that is counted.
 */
#include "policy_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"

enum {
    BLOCKS_MAX = 1 << 20,
};

/* --- Memory ----------------------------------------------------------------------------------- */

static void *
memory_count(struct policy_rig_memory *memory, void *taken)
{
    memory->taken_count++;
    memory->held_count += taken != NULL;
    return taken;
}

static void *
memory_take(void *context, size_t size)
{
    struct policy_rig_memory *memory = context;

    return memory_count(memory, memory->is_short ? NULL : env_take(&memory->host, size));
}

static void
memory_put(void *context, void *taken, size_t size)
{
    struct policy_rig_memory *memory = context;

    memory->held_count -= taken != NULL;
    env_put(&memory->host, taken, size);
}

static void *
memory_map(void *context, size_t size)
{
    struct policy_rig_memory *memory = context;

    return memory_count(memory, memory->is_short ? NULL : env_map(&memory->host, size));
}

static void
memory_unmap(void *context, void *taken, size_t size)
{
    struct policy_rig_memory *memory = context;

    memory->held_count--;
    env_unmap(&memory->host, taken, size);
}

/* --- The rig ---------------------------------------------------------------------------------- */

struct policy_rig *
policy_rig_open(const struct policy_ops *ops)
{
    struct policy_rig *rig = calloc(1, sizeof(*rig));

    if (rig == NULL)
        return NULL;
    env_host(&rig->memory.host);
    env_host(&rig->env);
    rig->memory_ops = (struct memory_ops){
        .take = memory_take, .put = memory_put, .map = memory_map, .unmap = memory_unmap};
    rig->env.memory = &rig->memory_ops;
    rig->env.memory_context = &rig->memory;
    assert_int_equal(residency_open(&rig->memory.host, BLOCKS_MAX, &rig->map), KVT_OK);
    assert_int_equal(entries_open(&rig->memory.host, rig->map, &rig->entries), KVT_OK);
    assert_int_equal(ops->open(&rig->env, rig->entries, &rig->policy), KVT_OK);
    return rig;
}

void
policy_rig_close(struct policy_rig *rig)
{
    rig->policy->ops->close(rig->policy);
    assert_int_equal(rig->memory.held_count, 0);
    entries_close(rig->entries);
    residency_close(rig->map);
    free(rig);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static struct hash128
fingerprint_of(uint64_t key)
{
    struct rng rng = {.state = key};
    uint64_t low = rng_next(&rng);

    return (struct hash128){.low = low, .high = rng_next(&rng)};
}

static struct block_key
block_key_of(uint64_t key)
{
    struct block_key block = {.namespace_id = 1, .form = 0, .length = sizeof(key)};

    memcpy(block.bytes, &key, sizeof(key));
    return block;
}

static uint32_t
block_make(struct policy_rig *rig, uint64_t key, uint32_t parent, uint32_t weight)
{
    struct block_key block = block_key_of(key);
    uint32_t number;

    assert_int_equal(residency_insert(rig->map, fingerprint_of(key), &block, &number), KVT_OK);
    assert_int_equal(entries_reserve(rig->entries, number), KVT_OK);
    entries_link(rig->entries, number, parent);
    entries_at(rig->entries, number)->importance = weight;
    rig->policy->ops->arrive(rig->policy, &number, 1, rig->now_ns);
    residency_publish(rig->map, number, TIER_NVME);
    return number;
}

uint32_t
policy_rig_block(struct policy_rig *rig, uint32_t parent)
{
    return block_make(rig, ++rig->key_count, parent, 0);
}

uint32_t
policy_rig_block_weighing(struct policy_rig *rig, uint32_t weight)
{
    return block_make(rig, ++rig->key_count, ENTRY_NONE, weight);
}

uint32_t
policy_rig_copy(struct policy_rig *rig, uint32_t parent)
{
    return policy_rig_copy_of(rig, ++rig->key_count, parent);
}

uint32_t
policy_rig_copy_of(struct policy_rig *rig, uint64_t key, uint32_t parent)
{
    uint32_t number = block_make(rig, key, parent, 0);

    policy_rig_add(rig, POLICY_HOST, number);
    return number;
}

static void
block_leave(struct policy_rig *rig, uint32_t number, bool is_evicted)
{
    residency_doom(rig->map, number);
    for (unsigned place = 0; place < POLICY_PLACE_COUNT; place++) {
        if (entries_has_copy(rig->entries, place, number))
            policy_rig_remove(rig, place, number);
    }
    rig->policy->ops->leave(rig->policy, number, is_evicted);
    entries_unlink(rig->entries, number);
    assert_true(residency_release(rig->map, number));
}

void
policy_rig_drop(struct policy_rig *rig, uint32_t number)
{
    block_leave(rig, number, true);
}

void
policy_rig_delete(struct policy_rig *rig, uint32_t number)
{
    block_leave(rig, number, false);
}

uint64_t
policy_rig_key(struct policy_rig *rig, uint32_t number)
{
    struct block_key block;
    uint64_t key;

    residency_key(rig->map, number, &block);
    memcpy(&key, block.bytes, sizeof(key));
    return key;
}

uint32_t
policy_rig_find(struct policy_rig *rig, uint64_t key)
{
    struct block_key block = block_key_of(key);

    return residency_find(rig->map, fingerprint_of(key), &block);
}

/* --- Copies ----------------------------------------------------------------------------------- */

void
policy_rig_add(struct policy_rig *rig, unsigned place, uint32_t number)
{
    assert_int_equal(rig->policy->ops->prepare(rig->policy, number), KVT_OK);
    rig->policy->ops->add(rig->policy, place, number);
    rig->host_count += place == POLICY_HOST;
}

void
policy_rig_remove(struct policy_rig *rig, unsigned place, uint32_t number)
{
    rig->policy->ops->remove(rig->policy, place, number);
    rig->host_count -= place == POLICY_HOST;
}

void
policy_rig_use(struct policy_rig *rig, uint32_t number)
{
    rig->policy->ops->request(rig->policy, &number, 1, rig->now_ns);
}

uint32_t
policy_rig_victim(struct policy_rig *rig, unsigned place, uint32_t cursor)
{
    return rig->policy->ops->victim(rig->policy, place, cursor);
}

void
policy_rig_trim(struct policy_rig *rig, uint32_t count)
{
    while (rig->host_count > count) {
        uint32_t victim = policy_rig_victim(rig, POLICY_HOST, ENTRY_NONE);

        assert_int_not_equal(victim, ENTRY_NONE);
        policy_rig_drop(rig, victim);
    }
}
