/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.h - copies that a crash left on disk without a commit of the index.
 *
 * The index does not know them, and nobody can see them; but a later rebuild would take them for live,
 * also when their key was deleted meanwhile. So they are killed by the first batch of the next life.
 *
 * Threads   the thread that opens, before the loop is started.
 */
#ifndef KVT_ENGINE_STRAYS_H
#define KVT_ENGINE_STRAYS_H

#include "kvtier/status.h"

struct kvt_store;

/* strays_kill - after an unclean stop: queue kills of what was on its way in the segments that were
 * active (store->active_at_crash). After commit_open(). KVT_E_NOMEM. */
enum kvt_status strays_kill(struct kvt_store *store);

#endif /* KVT_ENGINE_STRAYS_H */
