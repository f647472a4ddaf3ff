/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_order.c - puts, gets and leases in the order of the caller's own streams: the host never
 * waits for the device. A stream is a cudaStream_t, an event a cudaEvent_t, both of device 0.
 */
#include "stream_order.h"

#include <sched.h>
#include <stddef.h>

/* Keeps blocks that kernels are still computing: `filled_event` was recorded behind them. The pages
 * may be filled anew when the ticket has reached stage 1. */
enum kvt_status
blocks_put_behind(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts, uint32_t count,
    void *filled_event, kvt_ticket **ticket_out)
{
    struct kvt_submit submit = {.wait_event = filled_event, .wait_device = 0};

    return kvt_put_submit(store, ns, puts, count, KVT_RELAXED, &submit, ticket_out);
}

/* What is submitted to `stream` from now on finds this layer of all blocks in place. A layer whose
 * copies are not queued yet is asked for again: an engine does other work meanwhile. */
enum kvt_status
layer_await(kvt_ticket *ticket, uint32_t layer, void *stream)
{
    enum kvt_status status;

    while ((status = kvt_ticket_stream_wait(ticket, layer, 0, stream)) == KVT_NOT_READY)
        (void)sched_yield();
    return status;
}

/* Queues a whole step: gets, wherever their blocks are, and behind them the work that uses these.
 * The stream goes on when all gets are over; the host waits for nothing. (With a deadline, here 0,
 * it would keep the ticket: the destinations are its own again when that is done.) */
enum kvt_status
blocks_get_ahead(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets, uint32_t count,
    void *stream, const struct behind *behind)
{
    enum kvt_status status, last;
    kvt_ticket *ticket;
    kvt_hold *hold;

    status = kvt_get_submit(store, ns, gets, count, NULL, &ticket);
    if (status != KVT_OK)
        return status;
    status = kvt_hold_submit(ticket, 0, stream, 0, &hold);
    if (status == KVT_OK) {
        behind->launch(behind->context, kvt_hold_statuses(hold));
        status = kvt_hold_free(hold); /* Its memory lasts until that work is done. */
    } else {
        (void)kvt_ticket_cancel(ticket);
        last = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
        status = last == KVT_OK ? status : last;
    }
    kvt_ticket_free(ticket);
    return status;
}

/* Kernels read the leading blocks of a lease where they lie in HBM: *used_out of them, those before
 * the first that has no copy there. The lease ends when the kernels have, and is not the caller's
 * any more after KVT_OK and KVT_E_GPU (the device is lost, and what the kernels did with it). After
 * another status the caller synchronizes with `stream` and calls kvt_lease_release(). */
enum kvt_status
lease_read_in_place(kvt_store *store, kvt_lease lease, uint32_t count, void *stream,
    const struct kernel *kernel, uint32_t *used_out)
{
    const void *address;
    uint64_t length;
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (kvt_lease_address(store, lease, i, KVT_TIER_HBM, &address, &length) != KVT_OK)
            break;
        kernel->launch(kernel->context, address, length);
    }
    *used_out = i;
    return kvt_lease_release_after(store, lease, 0, stream);
}
