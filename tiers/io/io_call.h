/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_call.h - one operation by the system call that does it, and blocks.
 *
 * Threads   any.
 */
#ifndef KVT_TIERS_IO_CALL_H
#define KVT_TIERS_IO_CALL_H

#include "env.h"

/* io_call - preadv, pwritev or fdatasync: bytes moved (may be short), or minus an errno value. */
int64_t io_call(const struct io_op *op);

#endif /* KVT_TIERS_IO_CALL_H */
