/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - what an open store shows to other programs: kvt_live_read(), kvtool stat, leases, top.
 *
 * The loop gathers what only it knows, at most each 100 ms and only after something was done; a
 * worker adds the counters and writes the file, so that the loop never waits for it. Lookups and
 * leases happen without the loop: when nothing else is done it looks each second whether there were
 * any. Nothing in the store reads the file. A store that is open for reading shows nothing: it
 * changes nothing on disk.
 */
#ifndef KVT_ENGINE_LIVE_H
#define KVT_ENGINE_LIVE_H

#include <stdbool.h>

#include "env.h"
#include "kvtier/kvtier.h"
#include "live_page.h"

struct live;

/* live_read_in - kvt_live_read() in a world of the caller's making (any). */
enum kvt_status live_read_in(
    const struct kvt_env *env, const char *path, struct kvt_live *live_out);

/* live_open - before the loop is started. What cannot be shown is not: KVT_E_NOMEM is all. */
enum kvt_status live_open(struct kvt_store *store);

/* live_close - when the loop and the workers have ended: the file goes. */
void live_close(struct kvt_store *store);

/* live_step - the loop, at the end of its step; lowers *next_ns_out. */
void live_step(struct kvt_store *store, bool was_busy, uint64_t *next_ns_out);

#endif /* KVT_ENGINE_LIVE_H */
