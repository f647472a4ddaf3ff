/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_files.h - which files among many listed blocks are not whole.
 */
#ifndef KVTOOL_FILES_H
#define KVTOOL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

/* files_check - marks the manifests of which parts are not among the entries, and such parts as
 * are; counts the manifests. Each of them is read, and no part. KVT_CANCELLED: a sentence was
 * said. */
enum kvt_status files_check(kvt_store *store, const struct kvt_scan_entry *entries, size_t count,
    bool *is_broken_out, uint64_t *broken_count_out);

#endif /* KVTOOL_FILES_H */
