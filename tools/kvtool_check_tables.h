/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_check_tables.h - the tables of N-gram embeddings of a store, for check: kvt_check() reads
 * blocks and their structures only.
 */
#ifndef KVTOOL_CHECK_TABLES_H
#define KVTOOL_CHECK_TABLES_H

#include "kvtool_findings.h"

/* check_tables - read every page of every whole table of the store in `path`, and note what is
 * wrong. KVT_CANCELLED: Ctrl-C came. */
enum kvt_status check_tables(const char *path, struct findings *findings);

#endif /* KVTOOL_CHECK_TABLES_H */
