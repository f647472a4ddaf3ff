/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket_parts.h - how far each part of the blocks of a ticket of gets has come, and of which put
 * it is.
 *
 * A ticket whose gets come part by part has one for each part, and an operation for each part of
 * each block, the first parts first; a ticket with memory of a device has one, for whole blocks;
 * any other has none.
 *
 * All parts of a block are of one put: of the one whose entry the first of them was read from. A
 * part that finds another entry is a miss (get.c).
 *
 * (D2) An operation is counted in one of two places, once: by the mover when its copy is queued
 * (mark.queued_count), or, if that never was, by the loop when it is over (settled_count). Both
 * together reach operation_count when a stream that waits for what was queued waits for all.
 */
#ifndef KVT_ENGINE_TICKET_PARTS_H
#define KVT_ENGINE_TICKET_PARTS_H

#include <stdatomic.h>

#include "device_mover.h"

struct kvt_store;
struct kvt_ticket;
struct op;

struct ticket_part {
    uint32_t operation_count;
    uint32_t left; /* Of them, those that are not over. The loop's. */
    struct device_mark mark;
    _Atomic uint32_t settled_count;
    _Atomic int32_t status;    /* enum kvt_status: the first that is not KVT_OK. */
    _Atomic uint32_t is_there; /* All are over. */
};

/* ticket_parts_bytes - what a ticket by part has behind its operations. */
size_t ticket_parts_bytes(uint32_t block_count, uint32_t part_total);

/* ticket_parts_init - of a ticket that is not sent yet. `mark_device`: of which device moves are
 * marked; -1: none. Those of others count when they are over. */
void ticket_parts_init(struct kvt_ticket *ticket, int mark_device);

/* ticket_part_reach - the operation is over (loop). */
void ticket_part_reach(struct kvt_store *store, struct op *op, enum kvt_status status);

/* ticket_part_mark - where the operation's copy by `device` is counted, or NULL (loop). */
struct device_mark *ticket_part_mark(const struct op *op, uint32_t device);

/* ticket_part_begin - the operation's bytes are about to be read from that entry (loop).
 * ticket_part_is_strange - another part of its block was read from another one. */
void ticket_part_begin(const struct kvt_store *store, const struct op *op, uint32_t number);
bool ticket_part_is_strange(const struct kvt_store *store, const struct op *op, uint32_t number);

#endif /* KVT_ENGINE_TICKET_PARTS_H */
