/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_sweep.h - deletes the parts of files that no manifest names any more.
 */
#ifndef KVTOOL_SWEEP_H
#define KVTOOL_SWEEP_H

#include "kvtool_key_list.h"

/* parts_sweep - delete the parts of `key`'s files, but for those of the file `keep` (0: none).
 * What an interrupted put left goes with them. */
enum kvt_status parts_sweep(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t keep);

/* parts_sweep_all - the same for each key of these lists, in one walk: what it keeps is the file
 * that the key has now. */
enum kvt_status parts_sweep_all(
    kvt_store *store, const struct key_list *const *lists, size_t list_count);

#endif /* KVTOOL_SWEEP_H */
