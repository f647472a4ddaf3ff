/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.h - so many bytes of one kind of read may be under way at a time; operations whose reads
 * would be more wait for their turn, in order.
 *
 * Owns      the count, and the list of those that wait.
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_WINDOW_H
#define KVT_ENGINE_WINDOW_H

#include "request.h"

struct kvt_store;

struct window {
    uint64_t bytes_max; /* That many under way, or more: the next one waits. */
    uint64_t bytes;
    struct op_list waiters;
    bool is_restarting; /* Some of them are being begun again. */
};

/* window_init - for `bytes_max`, but no more than a quarter of HOST: of two, half of it. */
void window_init(const struct kvt_store *store, struct window *window, uint64_t bytes_max);

/* window_waits - true: the operation is in the list. */
bool window_waits(struct window *window, struct op *op);

/* window_restart - after `bytes` became less. */
void window_restart(struct kvt_store *store, struct window *window);

#endif /* KVT_ENGINE_WINDOW_H */
