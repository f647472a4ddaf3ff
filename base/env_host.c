/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env_host.c - the real world: clocks, random bytes and memory of Linux; threads are in
 * sched_host.c, files in fs_host.c.
 *
 * Threads   any.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"

enum {
    HUGE_PAGE_BYTES = 2 * 1024 * 1024,
};

static uint64_t
host_now_ns(void *context)
{
    (void)context;
    return clock_read_ns(CLOCK_MONOTONIC);
}

static uint64_t
host_wall_ns(void *context)
{
    (void)context;
    return clock_read_ns(CLOCK_REALTIME);
}

static void
host_random_fill(void *context, void *target, size_t size)
{
    uint8_t *to = target;

    (void)context;
    memset(target, 0, size);
    while (size > 0) {
        ssize_t got = getrandom(to, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        /* Every kernel since 3.17 has the call, and it fails for no other reason. */
        KVT_ASSERT(got > 0);
        if (got <= 0)
            return;
        to += got;
        size -= (size_t)got;
    }
}

static void *
host_take(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void
host_put(void *context, void *memory, size_t size)
{
    (void)context;
    (void)size;
    free(memory);
}

/* The length of a mapping that was asked for with `size`: what is shorter than a huge page would
 * cost the zeroing of one. 0: there is no such length. */
static size_t
mapping_length(size_t size)
{
    if (size == 0 || size > SIZE_MAX - 2 * (size_t)HUGE_PAGE_BYTES)
        return 0;
    return round_up(size, size < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES);
}

/* Aligned to its page size; MAP_FAILED: no memory. */
static uint8_t *
mapping_take(size_t length)
{
    bool is_huge = length >= HUGE_PAGE_BYTES;
    /* One huge page too many, then the ends are cut so that what remains is aligned. */
    size_t reserve = length + (is_huge ? HUGE_PAGE_BYTES : 0);
    uint8_t *start =
        mmap(NULL, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;
    size_t after;

    if (start == MAP_FAILED || !is_huge)
        return start;
    before = (size_t)(round_up((uintptr_t)start, HUGE_PAGE_BYTES) - (uintptr_t)start);
    after = reserve - before - length;
    if (before > 0)
        (void)munmap(start, before);
    if (after > 0)
        (void)munmap(start + before + length, after);
    start += before;
    /* Huge pages are a wish: a kernel without them refuses, and small ones do. */
    (void)madvise(start, length, MADV_HUGEPAGE);
    return start;
}

static void *
host_map(void *context, size_t size)
{
    size_t length = mapping_length(size);
    uint8_t *start;

    (void)context;
    if (length == 0)
        return NULL;
    start = mapping_take(length);
    if (start == MAP_FAILED)
        return NULL;
    /* A child would otherwise copy pages that a device is writing into. */
    if (madvise(start, length, MADV_DONTFORK) != 0) {
        (void)munmap(start, length);
        return NULL;
    }
    return start;
}

static void
host_unmap(void *context, void *memory, size_t size)
{
    (void)context;
    if (memory != NULL)
        (void)munmap(memory, mapping_length(size));
}

static void *
host_fork_page(void *context)
{
    void *page;

    (void)context;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, PAGE_BYTES);
        return NULL;
    }
    return page;
}

static const struct clock_ops clock_host_ops = {
    .now_ns = host_now_ns,
    .wall_ns = host_wall_ns,
};

static const struct random_ops random_host_ops = {
    .fill = host_random_fill,
};

static const struct memory_ops memory_host_ops = {
    .take = host_take,
    .put = host_put,
    .map = host_map,
    .unmap = host_unmap,
    .fork_page = host_fork_page,
    .share = share_host_make,
    .share_adopt = share_host_adopt,
    .share_end = share_host_end,
    .page_make = page_host_make,
    .page_adopt = page_host_adopt,
    .page_is_made = page_host_is_made,
    .page_end = page_host_end,
};

void
env_host(struct kvt_env *env_out)
{
    *env_out = (struct kvt_env){
        .clock = &clock_host_ops,
        .random = &random_host_ops,
        .memory = &memory_host_ops,
        .sched = &sched_host_ops,
        .fs = &fs_host_ops,
        .board = &board_host_ops,
    };
}
