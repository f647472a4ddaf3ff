/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.h - what get.c (where a block comes from; copies in memory) and fetch.c (reads from NVMe)
 * share.
 *
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_GET_H
#define KVT_ENGINE_GET_H

#include "request.h"
#include "residency.h"

/* What of a block an operation wants. */
struct part_range {
    uint32_t first, count; /* Parts. */
    uint64_t offset, length;
    bool is_whole;
};

/* part_range_of - false: the block has no such parts. */
bool part_range_of(const struct op *op, const struct entry *entry, struct part_range *range_out);

/* get_answer - the operation's memory holds what it wanted, from `tier` (enum kvt_tiers); get_miss:
 * nothing. `op` NULL: nobody is told. */
void get_answer(
    struct kvt_store *store, struct op *op, const struct part_range *range, uint32_t tier);
void get_miss(struct kvt_store *store, struct op *op);

/* destination_store - what the operation wanted to its memory, which is the host's (a worker). */
void destination_store(const struct op *op, const struct part_range *range, uint8_t *bytes);

/* get_send - a copy of `bytes`, of host memory that devices reach, into the operation's memory,
 * which is a device's; job->finish() is called. */
void get_send(struct kvt_store *store, const struct op *op, const struct part_range *range,
    uint8_t *bytes, struct device_job *job);

/* --- fetch.c ---------------------------------------------------------------------------------- */

/* fetch_get - into the operation's memory, which is the host's, or a device's and the get
 * TRANSIENT. It is answered, or waits for room. */
void fetch_get(struct kvt_store *store, struct op *op, uint32_t number);

#endif /* KVT_ENGINE_GET_H */
