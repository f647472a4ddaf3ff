/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full_faults.h - data files of a full_store.h store on a disk of which some calls fail: those that
 * are made outside of the lanes, in recovery above all.
 */
#ifndef KVT_TESTS_FULL_FAULTS_H
#define KVT_TESTS_FULL_FAULTS_H

#include "full_store.h"

#define FULL_PAGE_NONE UINT64_MAX

struct full_faults {
    uint64_t page;   /* It cannot be read; FULL_PAGE_NONE: every page can be. */
    bool is_mending; /* A write makes it a good one. */
    enum kvt_status write_status, sync_status; /* KVT_OK, or what all such calls fail with. */
    uint32_t write_count;
};

/* Of the store that was begun last. */
extern struct full_faults full_faults;

/* full_begin_faulty - full_begin_hasty(). In its next lives what the test says will fail. */
struct full_store *full_begin_faulty(uint64_t seed);

#endif /* KVT_TESTS_FULL_FAULTS_H */
