/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_engines.h - the two real implementations of struct io_ops (base/env.h), and the choice.
 *
 *   io_uring    one ring a queue: SINGLE_ISSUER | DEFER_TASKRUN where the kernel has them, CQ four
 *               times the depth, no SQPOLL, no IOPOLL. A sparse table of fixed buffers takes what
 *               adopt() gives, in chunks of at most 1 GiB; registration that fails (RLIMIT_MEMLOCK)
 *               is not an error. One-piece transfers inside adopted memory use READ/WRITE_FIXED,
 *               others READV/WRITEV. wake() goes through an eventfd that the ring reads.
 *               SINGLE_ISSUER means that the ring must be made or enabled by the thread that
 *               submits: it is made disabled at open, and enabled on the first submit, reap or
 *               wait. What the kernel cancels, for want of a thread of its own, is called at the
 *               reap; so is everything from there on where it refuses to be entered any more.
 *   io_threads  a pool of threads (8 by default) that call preadv, pwritev and fdatasync: for
 *               containers that forbid io_uring, and for tests that watch system calls.
 *
 * Both deliver what the kernel said: short transfers, -EINTR, -EAGAIN are the caller's business.
 * The context of both is the const struct kvt_env * whose memory they use; it outlives the queues.
 */
#ifndef KVT_TIERS_IO_ENGINES_H
#define KVT_TIERS_IO_ENGINES_H

#include "env.h"

extern const struct io_ops io_uring_ops;
extern const struct io_ops io_threads_ops;

/* io_uring_probe - KVT_OK when a ring can be made here; otherwise KVT_E_UNSUPPORTED and why. */
enum kvt_status io_uring_probe(void);

#endif /* KVT_TIERS_IO_ENGINES_H */
