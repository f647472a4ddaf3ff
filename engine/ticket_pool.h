/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket_pool.h - memory of tickets: callers take it, whoever lets go last gives it back.
 *
 * Owns      free tickets, in classes of powers of two of operations, up to TICKET_POOL_BYTES; and,
 *           when it is closed, those that are still out.
 * Threads   any; a mutex guards it for a few instructions.
 */
#ifndef KVT_ENGINE_TICKET_POOL_H
#define KVT_ENGINE_TICKET_POOL_H

#include "request.h"

enum {
    TICKET_POOL_BYTES = 16 << 20,
};

struct ticket_pool;

enum kvt_status ticket_pool_open(struct kvt_store *store);
void ticket_pool_close(struct kvt_store *store);

/* ticket_pool_take - zeroed, for `count` operations; NULL when there is no memory. */
struct kvt_ticket *ticket_pool_take(struct kvt_store *store, uint32_t count);
void ticket_pool_put(struct kvt_store *store, struct kvt_ticket *ticket);

#endif /* KVT_ENGINE_TICKET_POOL_H */
