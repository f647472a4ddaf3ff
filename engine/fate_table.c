/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fate_table.c - fates in buckets (fate_table.h).
 *
 * A value is {kind 4, seconds 32, score 14, cut 14}: of a number that is not negative the sign is
 * left out and, of a 32-bit float, the last 17 bits. A tag is never zero.
 */
#include "fate_table.h"

#include <math.h>

#include "bytes.h"
#include "kvtier/explaining.h"

enum {
    FLOAT_DROPPED = 17,
    FLOAT_BITS = 14,
    FLOAT_NAN = (1 << FLOAT_BITS) - 1,
    FLOAT_INFINITE = 0xFF << 6,
    CUT_SHIFT = 0,
    SCORE_SHIFT = FLOAT_BITS,
    WHEN_SHIFT = 2 * FLOAT_BITS,
    KIND_SHIFT = WHEN_SHIFT + 32,
};

struct fate_slot {
    _Atomic uint64_t bound; /* Tag xor value. 0: none, or it is being written. */
    _Atomic uint64_t value;
};

/* --- Values ----------------------------------------------------------------------------------- */

static uint64_t
float_pack(float number)
{
    uint32_t bits;

    if (isnan(number))
        return FLOAT_NAN;
    if (!(number > 0))
        return 0;
    memcpy(&bits, &number, sizeof(bits));
    bits = (bits + (1u << (FLOAT_DROPPED - 1))) >> FLOAT_DROPPED;
    return bits < FLOAT_INFINITE ? bits : FLOAT_INFINITE;
}

static float
float_unpack(uint64_t packed)
{
    uint32_t bits = (uint32_t)(packed & FLOAT_NAN) << FLOAT_DROPPED;
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

static uint64_t
value_pack(const struct fate *fate)
{
    return (uint64_t)fate->kind << KIND_SHIFT | (uint64_t)fate->when_s << WHEN_SHIFT |
           float_pack(fate->score) << SCORE_SHIFT | float_pack(fate->cut) << CUT_SHIFT;
}

static struct fate
value_unpack(uint64_t value)
{
    return (struct fate){
        .kind = (uint8_t)(value >> KIND_SHIFT),
        .when_s = (uint32_t)(value >> WHEN_SHIFT),
        .score = float_unpack(value >> SCORE_SHIFT),
        .cut = float_unpack(value >> CUT_SHIFT),
    };
}

static uint64_t
tag_of(uint64_t fingerprint)
{
    return fingerprint == 0 ? 1 : fingerprint;
}

/* --- Slots ------------------------------------------------------------------------------------ */

/* By the writer: nobody else changes a slot. */
static uint64_t
slot_tag(struct fate_slot *slot)
{
    return atomic_load_explicit(&slot->bound, memory_order_relaxed) ^
           atomic_load_explicit(&slot->value, memory_order_relaxed);
}

static void
slot_write(struct fate_slot *slot, uint64_t tag, uint64_t value)
{
    /* (F2) Each release pairs with the acquire of the same word in slot_read(). */
    atomic_store_explicit(&slot->bound, 0, memory_order_release);
    atomic_store_explicit(&slot->value, value, memory_order_release);
    atomic_store_explicit(&slot->bound, tag ^ value, memory_order_release);
}

/* The tag; 0: there is none that is whole. */
static uint64_t
slot_read(struct fate_slot *slot, uint64_t *value_out)
{
    /* (F2) */
    uint64_t bound = atomic_load_explicit(&slot->bound, memory_order_acquire);

    *value_out = atomic_load_explicit(&slot->value, memory_order_acquire);
    if (bound == 0 || atomic_load_explicit(&slot->bound, memory_order_acquire) != bound)
        return 0;
    return bound ^ *value_out;
}

static struct fate_slot *
bucket_of(const struct fate_table *table, uint64_t tag)
{
    return &table->slots[tag & (table->slot_count - 1) & ~(uint64_t)(FATE_WAYS - 1)];
}

/* As far as the others are moved for this one: to its own old place, an empty one, or the last. */
static uint32_t
bucket_place(struct fate_slot *bucket, uint64_t tag)
{
    uint32_t place = FATE_WAYS - 1;

    for (uint32_t i = FATE_WAYS; i-- > 0;) {
        uint64_t there = slot_tag(&bucket[i]);

        if (there == tag)
            return i;
        if (there == 0)
            place = i;
    }
    return place;
}

static void
bucket_add(struct fate_table *table, uint64_t tag, uint64_t value)
{
    struct fate_slot *bucket = bucket_of(table, tag);

    for (uint32_t last = bucket_place(bucket, tag); last > 0; last--)
        slot_write(&bucket[last], slot_tag(&bucket[last - 1]),
            atomic_load_explicit(&bucket[last - 1].value, memory_order_relaxed));
    slot_write(&bucket[0], tag, value);
    /* (F5) release: pairs with the acquire in fate_table_save(). */
    atomic_store_explicit(&table->is_changed, 1, memory_order_release);
}

/* --- The table -------------------------------------------------------------------------------- */

void
fate_table_open(struct fate_table *table, const struct kvt_env *env, uint64_t count)
{
    uint32_t slot_count = FATE_SLOTS_LEAST;

    while (slot_count < count && slot_count < KVT_FATES_MAX)
        slot_count *= 2;
    table->slots = env_take(env, slot_count * sizeof(*table->slots));
    if (table->slots != NULL)
        table->slot_count = slot_count;
}

void
fate_table_close(struct fate_table *table, const struct kvt_env *env)
{
    env_put(env, table->slots, table->slot_count * sizeof(*table->slots));
    table->slots = NULL;
    table->slot_count = 0;
}

void
fate_table_add(struct fate_table *table, uint64_t fingerprint, const struct fate *fate)
{
    if (table->slots != NULL)
        bucket_add(table, tag_of(fingerprint), value_pack(fate));
}

void
fate_table_remove(struct fate_table *table, uint64_t fingerprint)
{
    uint64_t tag = tag_of(fingerprint);
    struct fate_slot *bucket;

    if (table->slots == NULL)
        return;
    bucket = bucket_of(table, tag);
    for (uint32_t i = 0; i < FATE_WAYS; i++) {
        if (slot_tag(&bucket[i]) != tag)
            continue;
        slot_write(&bucket[i], 0, 0);
        /* (F5) */
        atomic_store_explicit(&table->is_changed, 1, memory_order_release);
    }
}

bool
fate_table_find(const struct fate_table *table, uint64_t fingerprint, struct fate *fate_out)
{
    uint64_t tag = tag_of(fingerprint);
    struct fate_slot *bucket;
    uint64_t value;

    if (table->slots == NULL)
        return false;
    bucket = bucket_of(table, tag);
    for (uint32_t i = 0; i < FATE_WAYS; i++) {
        if (slot_read(&bucket[i], &value) == tag) {
            *fate_out = value_unpack(value);
            return true;
        }
    }
    return false;
}

/* --- Keeping ---------------------------------------------------------------------------------- */

size_t
fate_table_save(struct fate_table *table, uint8_t *target)
{
    size_t size = 0;

    /* (F5) acquire, and an exchange: a plain store could pass the loads below, and hide a change
     * that these do not see. */
    (void)atomic_exchange_explicit(&table->is_changed, 0, memory_order_acquire);
    for (uint32_t first = 0; first < table->slot_count; first += FATE_WAYS) {
        uint64_t tags[FATE_WAYS];
        uint64_t values[FATE_WAYS];

        for (uint32_t i = 0; i < FATE_WAYS; i++)
            tags[i] = slot_read(&table->slots[first + i], &values[i]);
        for (uint32_t i = FATE_WAYS; i-- > 0;) {
            if (tags[i] == 0)
                continue;
            put_u64(target + size, tags[i]);
            put_u64(target + size + 8, values[i]);
            size += FATE_RECORD_BYTES;
        }
    }
    return size;
}

static bool
record_is_fate(uint64_t tag, uint64_t value)
{
    uint64_t kind = value >> KIND_SHIFT;

    return tag != 0 && kind != KVT_FATE_NONE && kind <= KVT_FATE_CLOSED;
}

void
fate_table_restore(struct fate_table *table, const uint8_t *source, size_t size)
{
    for (size_t at = 0; table->slots != NULL && size - at >= FATE_RECORD_BYTES;
         at += FATE_RECORD_BYTES) {
        uint64_t tag = get_u64(source + at);
        uint64_t value = get_u64(source + at + 8);

        if (record_is_fate(tag, value))
            bucket_add(table, tag, value);
    }
    atomic_store_explicit(&table->is_changed, 0, memory_order_relaxed);
}

bool
fate_in_records(const uint8_t *source, size_t size, uint64_t fingerprint, struct fate *fate_out)
{
    uint64_t tag = tag_of(fingerprint);
    bool is_found = false;

    /* The newest stands last. */
    for (size_t at = 0; size - at >= FATE_RECORD_BYTES; at += FATE_RECORD_BYTES) {
        uint64_t value = get_u64(source + at + 8);

        if (get_u64(source + at) != tag || !record_is_fate(tag, value))
            continue;
        *fate_out = value_unpack(value);
        is_found = true;
    }
    return is_found;
}
