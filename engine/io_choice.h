/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_choice.h - which io engine a store uses: io_uring where the kernel gives it, else threads.
 *
 * Threads   the one that opens the store.
 */
#ifndef KVT_ENGINE_IO_CHOICE_H
#define KVT_ENGINE_IO_CHOICE_H

#include "store_internal.h"

/* io_engine_choose - before anything is opened. KVT_E_UNSUPPORTED, KVT_E_NOMEM: the options name
 * io_uring, and the kernel refuses it. */
enum kvt_status io_engine_choose(struct kvt_store *store);

/*
 * io_engine_fall_back - the tier could not be opened with the engine that was chosen. True: try
 * again, threads are chosen now. The memory of all rings of a user counts against RLIMIT_MEMLOCK
 * (8 MiB, often less), so that the probe's small ring may be had and a whole one not.
 */
bool io_engine_fall_back(struct kvt_store *store, enum kvt_status status);

#endif /* KVT_ENGINE_IO_CHOICE_H */
