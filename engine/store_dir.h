/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_dir.h - the directory of a store: whether it is one, and its STORE and NAMES, read or made.
 *
 * Threads   whoever opens or frees the store.
 */
#ifndef KVT_ENGINE_STORE_DIR_H
#define KVT_ENGINE_STORE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/status.h"

struct kvt_store;

/* store_dir_open - store->dir; created when `may_create`. KVT_MISS. KVT_E_INVAL: other things are
 * in it, or its parent is missing. KVT_E_UNSUPPORTED: it is on a network file system. */
enum kvt_status store_dir_open(struct kvt_store *store, bool may_create);

/* store_identity_open - STORE as it is, or made; the options in force; a new open epoch. */
enum kvt_status store_identity_open(struct kvt_store *store, bool *is_new_out);

/* store_dir_unmake - of a store that this open was to make, and could not: what it made goes, so
 * that the next open may make it otherwise. Nothing happens to a store that was there, and to one
 * of which an invariant broke. */
void store_dir_unmake(struct kvt_store *store);

/* store_capacity_note - the capacity in force is that of the data files; those that have become
 * larger are so for good. */
enum kvt_status store_capacity_note(struct kvt_store *store);

/* store_epoch_pass - `number` is the highest of the batches that are there: the numbers of this
 * life are above it, also where STORE is an older copy, which does not know the life that gave it.
 */
enum kvt_status store_epoch_pass(struct kvt_store *store, uint64_t number);

/* store_dir_sync - names are sure from here on: those that were just made, and those that an
 * earlier life made and did not live to sync. */
enum kvt_status store_dir_sync(struct kvt_store *store);

void store_dirs_close(struct kvt_store *store);

#endif /* KVT_ENGINE_STORE_DIR_H */
