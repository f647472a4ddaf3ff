/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.h - parts of a put's submission, for puts whose memory is reserved first (direct.c).
 *
 * Threads   any.
 */
#ifndef KVT_ENGINE_SUBMIT_H
#define KVT_ENGINE_SUBMIT_H

#include "request.h"

/* put_import - everything that a put says of its block, checked, into an operation without a
 * ticket. KVT_E_INVAL and others as kvt_put_submit(). */
enum kvt_status put_import(
    struct kvt_store *store, struct op *op, kvt_namespace ns, const struct kvt_put *put);

/* put_ticket_create - for `count` puts with that durability. As kvt_put_submit(). */
enum kvt_status put_ticket_create(struct kvt_store *store, uint32_t count,
    enum kvt_durability durability, const struct kvt_submit *submit,
    struct kvt_ticket **ticket_out);

#endif /* KVT_ENGINE_SUBMIT_H */
