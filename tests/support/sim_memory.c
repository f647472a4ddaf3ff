/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_memory.c - memory that is counted, that can run out, and that goes away with its life.
 *
 * Every piece is preceded by (mappings: described by) a record that knows its size, so that a
 * wrong size on the way back is noticed. What was put back is scribbled over; what was unmapped
 * can no longer be touched, and is kept for the next life: new pages would be half of its time.
 */
#include <assert.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bytes.h"
#include "sim_world_internal.h"

enum {
    RECORD_BYTES = 128, /* Keeps what follows aligned to two cache lines. */
    HUGE_BYTES = 2 << 20,
    SCRIBBLE = 0xDB,
    SCRIBBLE_BYTES_MAX = 64 << 10, /* At most: tables of megabytes come and go with each open. */
    PAGES_FROM = 1 << 20,          /* So large an allocation is pages of its own. */
    SPARE_COUNT = 32,
    SPARE_BYTES_MAX = 64 << 20, /* Of one. */
};

struct sim_allocation {
    struct sim_allocation *next;
    struct sim_allocation *previous;
    void *memory;
    void *start;     /* What calloc() gave. */
    size_t size;     /* As asked. */
    size_t span;     /* Of a mapping: bytes mapped; 0: not a mapping. */
    uint64_t number; /* Which request of the heap it was. */
};

static_assert(sizeof(struct sim_allocation) <= RECORD_BYTES, "the record fits");

/* A mapping that was given back: huge pages, out of reach. */
struct spare {
    void *memory;
    size_t span; /* 0: there is none. */
};

static struct spare spares[SPARE_COUNT];

/* --- Mappings --------------------------------------------------------------------------------- */

/* Zeroed as far as it was asked for, in whole pages: huge ones, when it is as large as one. */
static void *
spare_take(size_t size, size_t span)
{
    for (int i = 0; i < SPARE_COUNT; i++) {
        void *memory = spares[i].memory;

        if (spares[i].span != span)
            continue;
        spares[i].span = 0;
        if (mprotect(memory, span, PROT_READ | PROT_WRITE) != 0) {
            munmap(memory, span);
            return NULL;
        }
        return memset(memory, 0, size < HUGE_BYTES ? (size_t)round_up(size, PAGE_BYTES) : span);
    }
    return NULL;
}

static void
span_put(void *memory, size_t span)
{
    for (int i = 0; i < SPARE_COUNT; i++) {
        if (spares[i].span > 0 || span % HUGE_BYTES > 0 || span > SPARE_BYTES_MAX ||
            mprotect(memory, span, PROT_NONE) != 0)
            continue;
        spares[i] = (struct spare){.memory = memory, .span = span};
        return;
    }
    munmap(memory, span);
}

/* New pages, zeroed, aligned. */
static void *
span_new(size_t size, size_t alignment)
{
    size_t span = size + alignment;
    uint8_t *memory = mmap(
        NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t head;

    if (memory == MAP_FAILED)
        return NULL;
    head = (alignment - (uintptr_t)memory % alignment) % alignment;
    if (head > 0)
        munmap(memory, head);
    if (span - head > size)
        munmap(memory + head + size, span - head - size);
    (void)madvise(memory + head, size, MADV_HUGEPAGE); /* Only faster. */
    return memory + head;
}

void
sim_memory_prepare(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, PAGES_FROM);
    /* With that, glibc does not learn by itself that what is put back is soon taken again. */
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

/* --- Records ---------------------------------------------------------------------------------- */

static bool
heap_grants(struct sim_heap *heap)
{
    heap->asked++;
    if (heap->fail_at == 0)
        return true;
    if (heap->asked == heap->fail_at)
        return false;
    return heap->asked < heap->fail_at || !heap->fails_on;
}

static void
allocation_link(struct sim_heap *heap, struct sim_allocation *allocation)
{
    allocation->number = heap->asked;
    allocation->previous = NULL;
    allocation->next = heap->allocations;
    if (heap->allocations != NULL)
        heap->allocations->previous = allocation;
    heap->allocations = allocation;
    heap->count++;
}

static void
allocation_unlink(struct sim_heap *heap, struct sim_allocation *allocation)
{
    if (allocation->previous == NULL)
        heap->allocations = allocation->next;
    else
        allocation->previous->next = allocation->next;
    if (allocation->next != NULL)
        allocation->next->previous = allocation->previous;
    heap->count--;
}

static void
allocation_free(struct sim_allocation *allocation)
{
    if (allocation->span > 0)
        span_put(allocation->memory, allocation->span);
    free(allocation->start);
}

/* --- What a store's env has ------------------------------------------------------------------- */

static void *
sim_take(void *context, size_t size)
{
    struct sim_heap *heap = context;
    struct sim_allocation *allocation;
    uint8_t *start;
    size_t whole = (size + RECORD_BYTES - 1) / RECORD_BYTES * RECORD_BYTES;

    if (size == 0)
        sim_panic(heap->world, "take() of 0 bytes");
    if (!heap_grants(heap))
        return NULL;
    if (size > (UINT64_C(1) << 40))
        return NULL;
    /* Large ones are pages that nobody has touched, if calloc() knows: a table that is hardly used
     * costs little. */
    start = calloc(1, 2 * RECORD_BYTES + whole);
    if (start == NULL)
        return NULL;
    allocation =
        (struct sim_allocation *)(void *)(start + RECORD_BYTES - (uintptr_t)start % RECORD_BYTES);
    allocation->start = start;
    allocation->memory = (uint8_t *)allocation + RECORD_BYTES;
    allocation->size = size;
    allocation_link(heap, allocation);
    return allocation->memory;
}

static void
sim_put(void *context, void *memory, size_t size)
{
    struct sim_heap *heap = context;
    struct sim_allocation *allocation;

    if (memory == NULL)
        return;
    allocation = (struct sim_allocation *)(void *)((uint8_t *)memory - RECORD_BYTES);
    if (allocation->memory != memory)
        sim_panic(heap->world, "put() of memory that take() did not give");
    if (allocation->size != size)
        sim_panic(heap->world, "put() of %zu bytes; %zu were taken (request %llu)", size,
            allocation->size, (unsigned long long)allocation->number);
    allocation_unlink(heap, allocation);
    allocation->memory = NULL;
    memset(memory, SCRIBBLE, size < SCRIBBLE_BYTES_MAX ? size : SCRIBBLE_BYTES_MAX);
    allocation_free(allocation);
}

static void *
map_span(struct sim_heap *heap, size_t size, size_t span, size_t alignment)
{
    struct sim_allocation *allocation;

    if (!heap_grants(heap))
        return NULL;
    allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL)
        return NULL;
    allocation->start = allocation;
    allocation->memory = spare_take(size, span);
    if (allocation->memory == NULL)
        allocation->memory = span_new(span, alignment);
    if (allocation->memory == NULL) {
        free(allocation);
        return NULL;
    }
    allocation->size = size;
    allocation->span = span;
    allocation_link(heap, allocation);
    return allocation->memory;
}

static void *
sim_map(void *context, size_t size)
{
    struct sim_heap *heap = context;

    if (size == 0)
        sim_panic(heap->world, "map() of 0 bytes");
    if (size > (UINT64_C(1) << 40))
        return NULL;
    return map_span(heap, size, (size_t)round_up(size, HUGE_BYTES), HUGE_BYTES);
}

static void
sim_unmap(void *context, void *memory, size_t size)
{
    struct sim_heap *heap = context;

    if (memory == NULL)
        return;
    for (struct sim_allocation *each = heap->allocations; each != NULL; each = each->next) {
        if (each->memory != memory || each->span == 0)
            continue;
        if (each->size != size)
            sim_panic(heap->world, "unmap() of %zu bytes; %zu were mapped", size, each->size);
        allocation_unlink(heap, each);
        allocation_free(each);
        return;
    }
    sim_panic(heap->world, "unmap() of memory that map() did not give");
}

static void *
sim_fork_page(void *context)
{
    return map_span(context, PAGE_BYTES, PAGE_BYTES, PAGE_BYTES);
}

const struct memory_ops sim_memory_ops = {
    .take = sim_take,
    .put = sim_put,
    .map = sim_map,
    .unmap = sim_unmap,
    .fork_page = sim_fork_page,
};

void
sim_heap_clear(struct sim_heap *heap)
{
    while (heap->allocations != NULL) {
        struct sim_allocation *allocation = heap->allocations;

        allocation_unlink(heap, allocation);
        allocation_free(allocation);
    }
}

void
sim_memory_fail(struct sim_world *world, uint64_t n, bool sticky)
{
    world->life.fail_at = n == 0 ? 0 : world->life.asked + n;
    world->life.fails_on = sticky;
}

uint64_t
sim_memory_asked(const struct sim_world *world)
{
    return world->life.asked;
}
