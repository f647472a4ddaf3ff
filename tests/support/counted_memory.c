/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counted_memory.c - memory that knows how much of it is out (counted_memory.h).
 *
 * Behind each piece lies a mark, so that what is written there is noticed.
 */
#include "counted_memory.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t mark[16] = {
    0xA5, 0x5A, 0xC3, 0x3C, 0xA5, 0x5A, 0xC3, 0x3C, 0xA5, 0x5A, 0xC3, 0x3C, 0xA5, 0x5A, 0xC3, 0x3C};

static bool
counted_refuses(struct counted_memory *counted, size_t size)
{
    if (++counted->asked_count == counted->fail_at)
        return true;
    counted->out_bytes += size;
    return false;
}

static void *
counted_take(void *context, size_t size)
{
    struct counted_memory *counted = context;
    uint8_t *memory;

    if (counted_refuses(counted, size))
        return NULL;
    memory = env_take(&counted->host, size + sizeof(mark));
    if (memory != NULL)
        memcpy(memory + size, mark, sizeof(mark));
    return memory;
}

static void *
counted_map(void *context, size_t size)
{
    struct counted_memory *counted = context;

    return counted_refuses(counted, size) ? NULL : env_map(&counted->host, size);
}

static void
counted_put(void *context, void *memory, size_t size)
{
    struct counted_memory *counted = context;

    if (memory == NULL)
        return;
    if (memcmp((const uint8_t *)memory + size, mark, sizeof(mark)) != 0)
        abort();
    counted->out_bytes -= size;
    env_put(&counted->host, memory, size + sizeof(mark));
}

static void
counted_unmap(void *context, void *memory, size_t size)
{
    struct counted_memory *counted = context;

    counted->out_bytes -= size;
    env_unmap(&counted->host, memory, size);
}

void
counted_memory_init(struct counted_memory *counted, struct kvt_env *env_out)
{
    *counted = (struct counted_memory){
        .ops = {
            .take = counted_take, .put = counted_put, .map = counted_map, .unmap = counted_unmap}};
    env_host(&counted->host);
    *env_out = counted->host;
    env_out->memory = &counted->ops;
    env_out->memory_context = counted;
}
