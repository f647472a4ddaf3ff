/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learned.h - what the policy has learned, in a file, so that a restart does not begin anew.
 *
 * Owns      DIR/learned (tiers/FORMAT.md 3.8), and the one write of it that may be under way.
 *
 * It is written each minute while the policy has something to keep, and by the close; never synced.
 * A file that is missing, torn or damaged is no error: everything is learned again.
 *
 * Threads   the loop; one worker while it writes; who opens and closes.
 */
#ifndef KVT_ENGINE_LEARNED_H
#define KVT_ENGINE_LEARNED_H

struct kvt_store;

/* learned_open - the policy takes over what the file says. Without memory nothing is kept. */
void learned_open(struct kvt_store *store);
void learned_step(struct kvt_store *store);
/* learned_stop - nothing is written behind the caller's back any more: the loop. */
void learned_stop(struct kvt_store *store);
/* learned_write - once more, now that the threads are stopped. */
void learned_write(struct kvt_store *store);
void learned_close(struct kvt_store *store);

#endif /* KVT_ENGINE_LEARNED_H */
