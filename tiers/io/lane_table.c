/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_table.c - hands out operations, numbers their attempts, feeds the io queue.
 */
#include "lane_table.h"

#include <assert.h>

#include "failure.h"

enum {
    SUBMIT_COUNT = 64,
};

static_assert((LANE_DEPTH & (LANE_DEPTH - 1)) == 0, "an id's low bits are the slot");

void
table_init(struct lane_table *table)
{
    table->free_count = LANE_DEPTH;
}

struct lane_operation *
table_take(struct lane_table *table)
{
    struct lane_operation *operation = table->free_first;

    KVT_ASSERT(table->free_count > 0);
    if (operation != NULL)
        table->free_first = operation->next;
    else
        operation = &table->operations[table->used_count++];
    table->free_count--;
    return operation;
}

/* A sync is charged with nothing. */
static bool
is_charged_bulk(const struct lane_operation *operation)
{
    return operation->class == LANE_BULK && operation->charged > 0;
}

void
table_put(struct lane_table *table, struct lane_operation *operation)
{
    KVT_ASSERT(operation->state == OPERATION_QUEUED);
    KVT_ASSERT(table->bytes_in_flight[operation->class] >= operation->charged);
    table->bytes_in_flight[operation->class] -= operation->charged;
    table->bulk_count -= is_charged_bulk(operation);
    operation->part_count = 0;
    operation->state = OPERATION_FREE;
    operation->next = table->free_first;
    table->free_first = operation;
    table->free_count++;
}

void
table_charge(struct lane_table *table, const struct lane_operation *operation)
{
    table->bytes_in_flight[operation->class] += operation->charged;
    table->bulk_count += is_charged_bulk(operation);
}

void
table_queue(struct lane_table *table, struct lane_operation *operation)
{
    uint64_t slot = (uint64_t)(operation - table->operations);

    operation->op.id = ++table->serial * LANE_DEPTH + slot;
    operation->state = OPERATION_QUEUED;
    operation->next = NULL;
    if (table->queued_first == NULL)
        table->queued_first = operation;
    else
        table->queued_last->next = operation;
    table->queued_last = operation;
    operation_check(operation);
}

void
table_submit(struct lane_table *table, const struct io_ops *io, struct io_queue *queue)
{
    while (table->queued_first != NULL) {
        const struct io_op *ops[SUBMIT_COUNT];
        struct lane_operation *operation = table->queued_first;
        size_t count = 0;
        size_t taken;

        for (; operation != NULL && count < SUBMIT_COUNT; operation = operation->next)
            ops[count++] = &operation->op;
        taken = io->submit(queue, ops, count);
        KVT_ASSERT(taken <= count);
        for (size_t i = 0; i < taken; i++) {
            table->queued_first->state = OPERATION_FLYING;
            table->queued_first = table->queued_first->next;
            table->flying_count++;
        }
        if (taken < count)
            return;
    }
}

struct lane_operation *
table_land(struct lane_table *table, uint64_t id)
{
    struct lane_operation *operation = &table->operations[id % LANE_DEPTH];
    bool is_known = operation->state == OPERATION_FLYING && operation->op.id == id;

    KVT_ASSERT(is_known);
    if (!is_known)
        return NULL;
    table->flying_count--;
    operation->state = OPERATION_QUEUED;
    return operation;
}

void
table_check(const struct lane_table *table)
{
    uint64_t bytes[2] = {0, 0};
    uint32_t free_count = 0;
    uint32_t flying_count = 0;
    uint32_t bulk_count = 0;

    for (size_t i = 0; i < LANE_DEPTH; i++) {
        const struct lane_operation *operation = &table->operations[i];

        operation_check(operation);
        if (operation->state == OPERATION_FREE) {
            free_count++;
            continue;
        }
        bytes[operation->class] += operation->charged;
        flying_count += operation->state == OPERATION_FLYING;
        bulk_count += is_charged_bulk(operation);
    }
    KVT_ASSERT(free_count == table->free_count && flying_count == table->flying_count);
    KVT_ASSERT(bytes[LANE_URGENT] == table->bytes_in_flight[LANE_URGENT]);
    KVT_ASSERT(bulk_count == table->bulk_count);
    KVT_ASSERT(bytes[LANE_BULK] == table->bytes_in_flight[LANE_BULK]);
}
