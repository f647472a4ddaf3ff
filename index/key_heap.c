/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key_heap.c - the bytes of keys, in slots of four sizes.
 *
 * Owns      the slots. Threads: one writer; readers of keys whose entry they have pinned.
 */
#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "residency_internal.h"
#include "try.h"

#define CLASS_SHIFT 30
#define SLOT_MASK ((UINT32_C(1) << CLASS_SHIFT) - 1)

static size_t
slot_bytes(uint32_t class)
{
    return KEY_HEAD_BYTES + 16 * ((size_t) class + 1);
}

static size_t
directory_bytes(const struct key_heap *heap)
{
    return heap->chunk_count_max * sizeof(uint8_t *);
}

enum kvt_status
key_heap_open(struct key_heap *heap, const struct kvt_env *env, uint64_t key_count_max)
{
    memset(heap, 0, sizeof(*heap));
    heap->env = env;
    if (key_count_max > SLOT_MASK)
        key_count_max = SLOT_MASK;
    heap->chunk_count_max = (uint32_t)(key_count_max / KEYS_PER_CHUNK) + 1;
    for (uint32_t i = 0; i < KEY_CLASS_COUNT; i++) {
        heap->classes[i].chunks = env_take(env, directory_bytes(heap));
        if (heap->classes[i].chunks == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the directory of keys");
    }
    return KVT_OK;
}

void
key_heap_close(struct key_heap *heap)
{
    for (uint32_t i = 0; i < KEY_CLASS_COUNT; i++) {
        uint8_t **chunks = heap->classes[i].chunks;

        env_put(heap->env, heap->classes[i].first, KEYS_FIRST * slot_bytes(i));
        if (chunks == NULL)
            continue;
        for (uint32_t j = 0; j < heap->chunk_count_max && chunks[j] != NULL; j++)
            env_unmap(heap->env, chunks[j], KEYS_PER_CHUNK * slot_bytes(i));
        env_put(heap->env, chunks, directory_bytes(heap));
    }
}

static uint8_t *
slot_at(const struct key_heap *heap, uint32_t class, uint32_t slot)
{
    if (slot < KEYS_FIRST)
        return heap->classes[class].first + slot * slot_bytes(class);
    slot -= KEYS_FIRST;
    return heap->classes[class].chunks[slot / KEYS_PER_CHUNK] +
           (slot % KEYS_PER_CHUNK) * slot_bytes(class);
}

static const uint8_t *
key_at(const struct key_heap *heap, uint32_t reference)
{
    return slot_at(heap, reference >> CLASS_SHIFT, reference & SLOT_MASK);
}

void
key_heap_prefetch(const struct key_heap *heap, uint32_t reference)
{
    const uint8_t *bytes = key_at(heap, reference);

    /* The last byte of a key of 48 or 64 bytes may lie in a third line: rare, and left out. */
    __builtin_prefetch(bytes);
    __builtin_prefetch(bytes + slot_bytes(reference >> CLASS_SHIFT) - 1);
}

/* The memory behind a slot that was never given out; false when there is none. */
static bool
slot_memory(struct key_heap *heap, uint32_t class, uint32_t slot)
{
    uint8_t **chunk;

    if (slot < KEYS_FIRST) {
        if (heap->classes[class].first == NULL)
            heap->classes[class].first = env_take(heap->env, KEYS_FIRST * slot_bytes(class));
        return heap->classes[class].first != NULL;
    }
    chunk = &heap->classes[class].chunks[(slot - KEYS_FIRST) / KEYS_PER_CHUNK];
    if (*chunk == NULL)
        *chunk = env_map(heap->env, KEYS_PER_CHUNK * slot_bytes(class));
    return *chunk != NULL;
}

static enum kvt_status
slot_take(struct key_heap *heap, uint32_t class, uint32_t *slot_out)
{
    uint32_t slot = heap->classes[class].used_count;

    if (heap->classes[class].free_first != 0) {
        slot = heap->classes[class].free_first - 1;
        heap->classes[class].free_first = get_u32(slot_at(heap, class, slot));
        *slot_out = slot;
        return KVT_OK;
    }
    if (slot / KEYS_PER_CHUNK >= heap->chunk_count_max)
        return failure_set(KVT_E_NOSPC, 0, "%u keys are kept already", slot);
    if (!slot_memory(heap, class, slot))
        return failure_set(KVT_E_NOMEM, 0, "no memory for keys");
    heap->classes[class].used_count++;
    *slot_out = slot;
    return KVT_OK;
}

enum kvt_status
key_heap_add(struct key_heap *heap, const struct block_key *key, uint32_t *reference_out)
{
    uint32_t class = ((uint32_t)key->length + 15) / 16 - 1;
    uint32_t slot = 0;
    uint8_t *bytes;

    if (key->length == 0 || key->length > KEY_BYTES_MAX)
        return failure_set(
            KVT_E_INVAL, 0, "a key of %u bytes: 1..%d are kept", key->length, KEY_BYTES_MAX);
    KVT_TRY(slot_take(heap, class, &slot));
    bytes = slot_at(heap, class, slot);
    put_u32(bytes, key->namespace_id);
    put_u16(bytes + 4, key->component);
    bytes[6] = key->form;
    bytes[7] = key->length;
    memcpy(bytes + KEY_HEAD_BYTES, key->bytes, key->length);
    *reference_out = class << CLASS_SHIFT | slot;
    return KVT_OK;
}

void
key_heap_remove(struct key_heap *heap, uint32_t reference)
{
    uint32_t class = reference >> CLASS_SHIFT;
    uint32_t slot = reference & SLOT_MASK;

    put_u32(slot_at(heap, class, slot), heap->classes[class].free_first);
    heap->classes[class].free_first = slot + 1;
}

bool
key_heap_equal(const struct key_heap *heap, uint32_t reference, const struct block_key *key)
{
    const uint8_t *bytes = key_at(heap, reference);

    return get_u32(bytes) == key->namespace_id && get_u16(bytes + 4) == key->component &&
           bytes[6] == key->form && bytes[7] == key->length &&
           memcmp(bytes + KEY_HEAD_BYTES, key->bytes, key->length) == 0;
}

void
key_heap_read(const struct key_heap *heap, uint32_t reference, struct block_key *key_out)
{
    const uint8_t *bytes = key_at(heap, reference);

    memset(key_out, 0, sizeof(*key_out));
    key_out->namespace_id = get_u32(bytes);
    key_out->component = get_u16(bytes + 4);
    key_out->form = bytes[6];
    key_out->length = bytes[7];
    memcpy(key_out->bytes, bytes + KEY_HEAD_BYTES, key_out->length);
}
