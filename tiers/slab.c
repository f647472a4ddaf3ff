/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.c - exact-size slots in superblocks: bitmaps, classes, and which superblock serves which.
 *
 * A slot's number is superblock << SLOT_BITS | index. A generation belongs to the number, whatever
 * class the superblock serves, and only rises: so a reference from an earlier class is stale too.
 *
 * A superblock is on exactly one of: the free list (no class), its class's list of superblocks with
 * room, or no list (it is full). All lists are doubly linked through superblock numbers.
 *
 *            class_serve()              take: last slot taken
 *   FREE ------------------> PARTIAL <------------------------> FULL
 *    ^                          |       put: first slot back
 *    +--------------------------+
 *         put: the last taken slot came back
 */
#include "slab.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    SLOT_BITS = 14, /* 64 MiB / 4 KiB slots in a superblock at most. */
    SUPERBLOCK_BYTES_MAX = 64 << 20,
    SUPERBLOCK_BYTES_CHOSEN_MIN = 64 << 10,
    SUPERBLOCK_SHARE = 64, /* A chosen superblock is 1/64 of the arena. */
    WORD_BITS = 64,
};

#define NOWHERE UINT32_MAX
#define CLASS_NONE UINT32_MAX
#define SUPERBLOCK_COUNT_MAX ((uint32_t)1 << (32 - SLOT_BITS))

struct superblock {
    uint32_t
        slot_pages; /* 0 while free. Set with the class, before any slot of it is handed out. */
    uint32_t slot_count; /* Slots of its class that fit. */
    uint32_t taken_count;
    uint32_t class_index; /* CLASS_NONE while free. */
    uint32_t word_hint;   /* No word of the bitmap below this one has a free bit. */
    uint32_t previous, next;
    bool is_listed;
};

struct size_class {
    uint32_t slot_pages; /* 0: not made yet. */
    uint32_t superblock_count;
    uint32_t partial; /* First superblock with room. */
    uint64_t free_count;
};

struct slab {
    const struct kvt_env *env;
    uint8_t *arena;
    uint32_t superblock_pages;
    uint32_t superblock_count;
    uint32_t slot_pages_max;
    uint32_t word_count; /* Of one superblock's bitmap. */
    uint32_t free_first;
    uint32_t busy_count; /* Superblocks that serve a class. */
    uint64_t used_pages;
    struct size_class classes[SLAB_CLASS_MAX];
    struct superblock *superblocks;
    uint64_t *bitmaps;     /* word_count for each superblock; a set bit is a taken slot. */
    uint32_t *generations; /* superblock_pages for each superblock. */
    uint32_t *owners;      /* Likewise; the owner + 1, 0: nobody. */
};

/* --- Opening and closing ---------------------------------------------------------------------- */

static bool
is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

_Static_assert(SLAB_BYTES_END == (uint64_t)SUPERBLOCK_COUNT_MAX * SUPERBLOCK_BYTES_MAX,
    "the first size with too many superblocks");

static size_t
superblock_choose(size_t size, size_t slot_bytes_max)
{
    size_t chosen = SUPERBLOCK_BYTES_CHOSEN_MIN;

    while (chosen < SUPERBLOCK_BYTES_MAX &&
           (chosen < slot_bytes_max || chosen < size / SUPERBLOCK_SHARE))
        chosen *= 2;
    return chosen;
}

uint64_t
slab_bytes_min(size_t slot_bytes_max)
{
    return superblock_choose(0, slot_bytes_max);
}

static enum kvt_status
open_check(const void *arena, size_t size, size_t superblock_bytes, size_t slot_bytes_max)
{
    if (arena == NULL || (uintptr_t)arena % PAGE_BYTES != 0 || size % PAGE_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0, "slab: the arena is not made of whole aligned pages");
    if (slot_bytes_max == 0 || slot_bytes_max > SUPERBLOCK_BYTES_MAX)
        return failure_set(KVT_E_INVAL, 0, "slab: slot_bytes_max is %zu, allowed are 1..%d",
            slot_bytes_max, SUPERBLOCK_BYTES_MAX);
    if (!is_power_of_two(superblock_bytes) || superblock_bytes < PAGE_BYTES ||
        superblock_bytes > SUPERBLOCK_BYTES_MAX || superblock_bytes < slot_bytes_max)
        return failure_set(KVT_E_INVAL, 0,
            "slab: a superblock of %zu bytes is no power of two that holds a slot of %zu bytes",
            superblock_bytes, slot_bytes_max);
    if (size / superblock_bytes == 0)
        return failure_set(KVT_E_INVAL, 0,
            "slab: an arena of %zu bytes does not hold one superblock of %zu bytes", size,
            superblock_bytes);
    if (size / superblock_bytes >= SUPERBLOCK_COUNT_MAX)
        return failure_set(KVT_E_INVAL, 0,
            "slab: an arena of %zu bytes has more than %u superblocks of %zu bytes", size,
            SUPERBLOCK_COUNT_MAX - 1, superblock_bytes);
    return KVT_OK;
}

static size_t
superblocks_size(const struct slab *slab)
{
    return slab->superblock_count * sizeof(struct superblock);
}

static size_t
bitmaps_size(const struct slab *slab)
{
    return (size_t)slab->superblock_count * slab->word_count * sizeof(uint64_t);
}

/* Of what is kept for each slot. */
static size_t
slots_size(const struct slab *slab)
{
    return (size_t)slab->superblock_count * slab->superblock_pages * sizeof(uint32_t);
}

static void list_add(struct slab *slab, uint32_t *first, uint32_t number);

static void
tables_fill(struct slab *slab)
{
    size_t generation_count = (size_t)slab->superblock_count * slab->superblock_pages;

    for (size_t i = 0; i < generation_count; i++)
        slab->generations[i] = 1;
    for (uint32_t i = 0; i < SLAB_CLASS_MAX; i++)
        slab->classes[i].partial = NOWHERE;
    slab->classes[SLAB_CLASS_MAX - 1].slot_pages = slab->slot_pages_max;

    slab->free_first = NOWHERE;
    for (uint32_t i = slab->superblock_count; i-- > 0;) {
        slab->superblocks[i].class_index = CLASS_NONE;
        list_add(slab, &slab->free_first, i);
    }
}

enum kvt_status
slab_open(const struct kvt_env *env, void *arena, size_t size, size_t superblock_bytes,
    size_t slot_bytes_max, struct slab **slab_out)
{
    struct slab *slab;

    *slab_out = NULL;
    if (superblock_bytes == 0)
        superblock_bytes = superblock_choose(size, slot_bytes_max);
    KVT_TRY(open_check(arena, size, superblock_bytes, slot_bytes_max));

    slab = env_take(env, sizeof(*slab));
    if (slab == NULL)
        return failure_set(KVT_E_NOMEM, 0, "slab: no memory for %zu bytes", sizeof(*slab));
    slab->env = env;
    slab->arena = arena;
    slab->superblock_pages = (uint32_t)(superblock_bytes / PAGE_BYTES);
    slab->superblock_count = (uint32_t)(size / superblock_bytes);
    slab->slot_pages_max = pages_of(slot_bytes_max);
    slab->word_count = (slab->superblock_pages + WORD_BITS - 1) / WORD_BITS;

    slab->superblocks = env_take(env, superblocks_size(slab));
    slab->bitmaps = env_take(env, bitmaps_size(slab));
    slab->generations = env_take(env, slots_size(slab));
    slab->owners = env_take(env, slots_size(slab));
    if (slab->superblocks == NULL || slab->bitmaps == NULL || slab->generations == NULL ||
        slab->owners == NULL) {
        size_t wanted = superblocks_size(slab) + bitmaps_size(slab) + 2 * slots_size(slab);

        slab_close(slab);
        return failure_set(KVT_E_NOMEM, 0, "slab: no memory for tables of %zu bytes", wanted);
    }
    tables_fill(slab);
    *slab_out = slab;
    return KVT_OK;
}

void
slab_close(struct slab *slab)
{
    if (slab == NULL)
        return;
    env_put(slab->env, slab->owners, slots_size(slab));
    env_put(slab->env, slab->generations, slots_size(slab));
    env_put(slab->env, slab->bitmaps, bitmaps_size(slab));
    env_put(slab->env, slab->superblocks, superblocks_size(slab));
    env_put(slab->env, slab, sizeof(*slab));
}

/* --- Lists ------------------------------------------------------------------------------------ */

static void
list_add(struct slab *slab, uint32_t *first, uint32_t number)
{
    struct superblock *superblock = &slab->superblocks[number];

    KVT_ASSERT(!superblock->is_listed);
    superblock->previous = NOWHERE;
    superblock->next = *first;
    if (*first != NOWHERE)
        slab->superblocks[*first].previous = number;
    *first = number;
    superblock->is_listed = true;
}

static void
list_remove(struct slab *slab, uint32_t *first, uint32_t number)
{
    struct superblock *superblock = &slab->superblocks[number];

    KVT_ASSERT(superblock->is_listed);
    if (superblock->previous == NOWHERE)
        *first = superblock->next;
    else
        slab->superblocks[superblock->previous].next = superblock->next;
    if (superblock->next != NOWHERE)
        slab->superblocks[superblock->next].previous = superblock->previous;
    superblock->is_listed = false;
}

/* --- Classes ---------------------------------------------------------------------------------- */

/* The class that would serve `pages` now, without making one; CLASS_NONE: a new one would. */
static uint32_t
class_find(const struct slab *slab, uint32_t pages)
{
    uint32_t smallest = CLASS_NONE;
    bool has_room = false;

    for (uint32_t i = 0; i < SLAB_CLASS_MAX; i++) {
        const struct size_class *class = &slab->classes[i];

        if (class->slot_pages == pages)
            return i;
        if (class->slot_pages == 0 || (class->superblock_count == 0 && i < SLAB_CLASS_MAX - 1))
            has_room = true;
        if (class->slot_pages >= pages &&
            (smallest == CLASS_NONE || class->slot_pages < slab->classes[smallest].slot_pages))
            smallest = i;
    }
    return has_room ? CLASS_NONE : smallest;
}

/* An entry for a new class: one never used, else one without superblocks; SLAB_CLASS_MAX: none. */
static uint32_t
class_vacant(const struct slab *slab)
{
    uint32_t vacant = SLAB_CLASS_MAX;

    for (uint32_t i = 0; i < SLAB_CLASS_MAX - 1; i++) {
        if (slab->classes[i].slot_pages == 0)
            return i;
        if (slab->classes[i].superblock_count == 0)
            vacant = i;
    }
    return vacant;
}

/* As class_find(), making the class. */
static uint32_t
class_obtain(struct slab *slab, uint32_t pages)
{
    uint32_t found = class_find(slab, pages);
    uint32_t vacant;

    if (found != CLASS_NONE)
        return found;
    vacant = class_vacant(slab);
    KVT_ASSERT(vacant < SLAB_CLASS_MAX);
    if (vacant >= SLAB_CLASS_MAX)
        return SLAB_CLASS_MAX - 1; /* The last class holds every size. */
    slab->classes[vacant].slot_pages = pages;
    return vacant;
}

/* Give a free superblock to a class. */
static bool
class_serve(struct slab *slab, uint32_t class_index)
{
    struct size_class *class = &slab->classes[class_index];
    uint32_t number = slab->free_first;
    struct superblock *superblock;

    if (number == NOWHERE)
        return false;
    superblock = &slab->superblocks[number];
    KVT_ASSERT(superblock->taken_count == 0);
    list_remove(slab, &slab->free_first, number);
    superblock->class_index = class_index;
    superblock->slot_pages = class->slot_pages;
    superblock->slot_count = slab->superblock_pages / class->slot_pages;
    superblock->word_hint = 0;
    class->superblock_count++;
    class->free_count += superblock->slot_count;
    slab->busy_count++;
    list_add(slab, &class->partial, number);
    return true;
}

static void
class_release(struct slab *slab, uint32_t number)
{
    struct superblock *superblock = &slab->superblocks[number];
    struct size_class *class = &slab->classes[superblock->class_index];

    list_remove(slab, &class->partial, number);
    class->superblock_count--;
    class->free_count -= superblock->slot_count;
    slab->busy_count--;
    superblock->class_index = CLASS_NONE;
    superblock->slot_pages = 0;
    superblock->slot_count = 0;
    list_add(slab, &slab->free_first, number);
}

/* --- Slots ------------------------------------------------------------------------------------ */

static uint64_t *
bitmap_of(const struct slab *slab, uint32_t number)
{
    return slab->bitmaps + (size_t)number * slab->word_count;
}

/* Where its place is among all slots. */
static size_t
place_of(const struct slab *slab, struct slot slot)
{
    size_t number = slot.number >> SLOT_BITS;

    return number * slab->superblock_pages + (slot.number & ((1u << SLOT_BITS) - 1));
}

static uint32_t *
generation_of(const struct slab *slab, struct slot slot)
{
    return &slab->generations[place_of(slab, slot)];
}

/* The lowest free slot of a superblock that has one. */
static uint32_t
bitmap_take(struct slab *slab, uint32_t number)
{
    struct superblock *superblock = &slab->superblocks[number];
    uint64_t *words = bitmap_of(slab, number);
    uint32_t word = superblock->word_hint;
    uint32_t bit;

    while (words[word] == UINT64_MAX)
        word++;
    bit = (uint32_t)__builtin_ctzll(~words[word]);
    superblock->word_hint = word;
    words[word] |= (uint64_t)1 << bit;
    KVT_ASSERT(word * WORD_BITS + bit < superblock->slot_count);
    return word * WORD_BITS + bit;
}

/* Of a superblock that has one. */
static struct slot
slot_take(struct slab *slab, uint32_t number)
{
    struct superblock *superblock = &slab->superblocks[number];
    struct size_class *class = &slab->classes[superblock->class_index];
    struct slot slot = {.number = number << SLOT_BITS | bitmap_take(slab, number)};

    slot.generation = *generation_of(slab, slot);
    superblock->taken_count++;
    class->free_count--;
    slab->used_pages += superblock->slot_pages;
    if (superblock->taken_count == superblock->slot_count)
        list_remove(slab, &class->partial, number);
    KVT_ASSERT(slot.generation != 0);
    return slot;
}

enum kvt_status
slab_take(struct slab *slab, size_t size, struct slot *slot_out)
{
    uint32_t class_index;

    if (size == 0 || size > (size_t)slab->slot_pages_max * PAGE_BYTES)
        return failure_set(KVT_E_INVAL, 0, "slab: a slot of %zu bytes, allowed are 1..%zu", size,
            (size_t)slab->slot_pages_max * PAGE_BYTES);
    class_index = class_obtain(slab, pages_of(size));
    if (slab->classes[class_index].partial == NOWHERE && !class_serve(slab, class_index))
        return failure_set(KVT_E_NOSPC, 0, "slab: no free slot of %zu bytes", size);
    *slot_out = slot_take(slab, slab->classes[class_index].partial);
    return KVT_OK;
}

bool
slab_has_room(const struct slab *slab, size_t size)
{
    uint32_t found = class_find(slab, pages_of(size));

    return slab->free_first != NOWHERE ||
           (found != CLASS_NONE && slab->classes[found].partial != NOWHERE);
}

bool
slab_put(struct slab *slab, struct slot slot)
{
    uint32_t number = slot.number >> SLOT_BITS;
    uint32_t index = slot.number & ((1u << SLOT_BITS) - 1);
    uint32_t *generation;
    struct superblock *superblock;

    if (!slab_is_current(slab, slot))
        return false;
    superblock = &slab->superblocks[number];
    generation = generation_of(slab, slot);
    *generation = *generation == UINT32_MAX ? 1 : *generation + 1;
    bitmap_of(slab, number)[index / WORD_BITS] &= ~((uint64_t)1 << index % WORD_BITS);
    if (index / WORD_BITS < superblock->word_hint)
        superblock->word_hint = index / WORD_BITS;
    slab->used_pages -= superblock->slot_pages;
    if (superblock->taken_count == superblock->slot_count)
        list_add(slab, &slab->classes[superblock->class_index].partial, number);
    superblock->taken_count--;
    slab->classes[superblock->class_index].free_count++;
    if (slab->owners[place_of(slab, slot)] != 0) /* Nobody owns slots of HBM: no memory for them. */
        slab->owners[place_of(slab, slot)] = 0;
    if (superblock->taken_count == 0)
        class_release(slab, number);
    return true;
}

bool
slab_is_current(const struct slab *slab, struct slot slot)
{
    uint32_t number = slot.number >> SLOT_BITS;
    uint32_t index = slot.number & ((1u << SLOT_BITS) - 1);

    if (number >= slab->superblock_count || index >= slab->superblocks[number].slot_count)
        return false;
    if ((bitmap_of(slab, number)[index / WORD_BITS] >> index % WORD_BITS & 1) == 0)
        return false;
    return *generation_of(slab, slot) == slot.generation;
}

struct slot
slab_slot(const struct slab *slab, uint32_t number)
{
    struct slot slot = {.number = number};

    if (number >> SLOT_BITS < slab->superblock_count)
        slot.generation = *generation_of(slab, slot);
    return slot;
}

void *
slab_address(const struct slab *slab, struct slot slot)
{
    uint32_t number = slot.number >> SLOT_BITS;
    size_t page;

    if (number >= slab->superblock_count)
        return NULL;
    page = (size_t)number * slab->superblock_pages +
           (size_t)(slot.number & ((1u << SLOT_BITS) - 1)) * slab->superblocks[number].slot_pages;
    return slab->arena + page * PAGE_BYTES;
}

size_t
slab_slot_bytes(const struct slab *slab, struct slot slot)
{
    uint32_t number = slot.number >> SLOT_BITS;

    if (number >= slab->superblock_count)
        return 0;
    return (size_t)slab->superblocks[number].slot_pages * PAGE_BYTES;
}

void *
slab_base(const struct slab *slab)
{
    return slab->arena;
}

/* --- Emptying superblocks --------------------------------------------------------------------- */

void
slab_own(struct slab *slab, struct slot slot, uint32_t owner)
{
    KVT_ASSERT(slab_is_current(slab, slot));
    slab->owners[place_of(slab, slot)] = owner + 1;
}

/* Whether what is in a superblock of it has room in its others. */
static bool
class_is_loose(const struct slab *slab, const struct size_class *class)
{
    return class->superblock_count > 0 &&
           class->free_count >= slab->superblock_pages / class->slot_pages;
}

uint32_t
slab_emptiable(const struct slab *slab, size_t size, uint32_t first)
{
    uint32_t own = class_find(slab, pages_of(size));
    bool is_loose[SLAB_CLASS_MAX];
    bool has_loose = false;

    for (uint32_t i = 0; i < SLAB_CLASS_MAX; i++) {
        is_loose[i] = i != own && class_is_loose(slab, &slab->classes[i]);
        has_loose |= is_loose[i];
    }
    for (uint32_t i = 0; has_loose && i < slab->superblock_count; i++) {
        uint32_t number = (uint32_t)(((uint64_t)first + i) % slab->superblock_count);
        uint32_t class_index = slab->superblocks[number].class_index;

        if (class_index != CLASS_NONE && is_loose[class_index])
            return number;
    }
    return UINT32_MAX;
}

bool
slab_taken_next(const struct slab *slab, uint32_t superblock, uint32_t *cursor,
    struct slot *slot_out, uint32_t *owner_out)
{
    const uint64_t *words = bitmap_of(slab, superblock);

    for (; *cursor < slab->superblocks[superblock].slot_count; ++*cursor) {
        if ((words[*cursor / WORD_BITS] >> *cursor % WORD_BITS & 1) == 0)
            continue;
        *slot_out = slab_slot(slab, superblock << SLOT_BITS | *cursor);
        *owner_out = slab->owners[place_of(slab, *slot_out)] - 1;
        ++*cursor;
        return true;
    }
    return false;
}

bool
slab_take_beside(struct slab *slab, struct slot slot, struct slot *slot_out)
{
    uint32_t number = slot.number >> SLOT_BITS;
    uint32_t other = slab->classes[slab->superblocks[number].class_index].partial;

    KVT_ASSERT(slab_is_current(slab, slot));
    if (other == number)
        other = slab->superblocks[number].next;
    if (other == NOWHERE)
        return false;
    *slot_out = slot_take(slab, other);
    return true;
}

/* --- Looking at it ---------------------------------------------------------------------------- */

uint64_t
slab_superblock_bytes(const struct slab *slab)
{
    return (uint64_t)slab->superblock_pages * PAGE_BYTES;
}

uint64_t
slab_capacity(const struct slab *slab)
{
    return (uint64_t)slab->superblock_count * slab->superblock_pages * PAGE_BYTES;
}

uint64_t
slab_used(const struct slab *slab)
{
    return slab->used_pages * PAGE_BYTES;
}

uint64_t
slab_committed(const struct slab *slab)
{
    return (uint64_t)slab->busy_count * slab->superblock_pages * PAGE_BYTES;
}

static void
superblock_check(const struct slab *slab, uint32_t number)
{
    const struct superblock *superblock = &slab->superblocks[number];
    const uint64_t *words = bitmap_of(slab, number);
    uint32_t taken_count = 0;

    for (uint32_t i = 0; i < slab->word_count; i++)
        taken_count += (uint32_t)__builtin_popcountll(words[i]);
    KVT_ASSERT(taken_count == superblock->taken_count);
    if (superblock->class_index == CLASS_NONE) {
        KVT_ASSERT(taken_count == 0);
        KVT_ASSERT(superblock->is_listed);
        return;
    }
    KVT_ASSERT(superblock->slot_pages == slab->classes[superblock->class_index].slot_pages);
    KVT_ASSERT(taken_count > 0);
    KVT_ASSERT(taken_count <= superblock->slot_count);
    KVT_ASSERT(superblock->is_listed == (taken_count < superblock->slot_count));
    for (uint32_t i = superblock->slot_count; i < slab->word_count * WORD_BITS; i++)
        KVT_ASSERT((words[i / WORD_BITS] >> i % WORD_BITS & 1) == 0);
}

void
slab_check(const struct slab *slab)
{
    uint64_t used_pages = 0;
    uint32_t busy_count = 0;
    uint32_t class_count = 0;
    uint64_t free_counts[SLAB_CLASS_MAX] = {0};

    for (uint32_t i = 0; i < slab->superblock_count; i++) {
        const struct superblock *superblock = &slab->superblocks[i];

        superblock_check(slab, i);
        used_pages += (uint64_t)superblock->taken_count * superblock->slot_pages;
        if (superblock->class_index == CLASS_NONE)
            continue;
        busy_count++;
        free_counts[superblock->class_index] += superblock->slot_count - superblock->taken_count;
    }
    for (uint32_t i = 0; i < SLAB_CLASS_MAX; i++) {
        class_count += slab->classes[i].superblock_count;
        KVT_ASSERT(free_counts[i] == slab->classes[i].free_count);
    }
    KVT_ASSERT(used_pages == slab->used_pages);
    KVT_ASSERT(busy_count == slab->busy_count);
    KVT_ASSERT(class_count == slab->busy_count);
    KVT_ASSERT(slab->classes[SLAB_CLASS_MAX - 1].slot_pages == slab->slot_pages_max);
}
