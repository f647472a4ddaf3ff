/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_order.h - puts, gets and leases in the order of the caller's own streams (stream_order.c).
 */
#ifndef STREAM_ORDER_H
#define STREAM_ORDER_H

#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h>

enum kvt_status blocks_put_behind(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts,
    uint32_t count, void *filled_event, kvt_ticket **ticket_out);
enum kvt_status layer_await(kvt_ticket *ticket, uint32_t layer, void *stream);

/* Work on a stream that comes behind gets, whatever came of these. */
struct behind {
    /* Queues it on the caller's stream: what it does with block i it does when statuses[i], read by
     * the device, is KVT_OK. */
    void (*launch)(void *context, const int32_t *statuses);
    void *context;
};

enum kvt_status blocks_get_ahead(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets,
    uint32_t count, void *stream, const struct behind *behind);

struct kernel {
    /* Queues work that reads `length` bytes of the device on the caller's stream. */
    void (*launch)(void *context, const void *address, uint64_t length);
    void *context;
};

enum kvt_status lease_read_in_place(kvt_store *store, kvt_lease lease, uint32_t count, void *stream,
    const struct kernel *kernel, uint32_t *used_out);

#endif /* STREAM_ORDER_H */
