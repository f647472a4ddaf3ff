/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams_host.h - no descriptor of ours has the number of a standard stream.
 *
 * A host may have closed its standard streams. What is opened next gets their numbers, and what the
 * host then writes to them would go into a file of the store; where it opens them anew (dup2) the
 * store's would be closed.
 *
 * Threads   any; what another thread opens or closes meanwhile is its own affair.
 */
#ifndef KVT_BASE_STREAMS_HOST_H
#define KVT_BASE_STREAMS_HOST_H

#include <stdint.h>

enum {
    STREAM_COUNT = 3, /* Descriptors 0 to 2. */
};

/*
 * streams_pass - what an open gave, or a duplicate of it, closed by exec, that is no standard
 * stream; then the first is closed. -1 stays, and errno with it; -1 and errno where there is none:
 * then what was given is closed.
 */
int streams_pass(int descriptor);

/* The numbers that were free. */
struct streams_hold {
    int descriptors[STREAM_COUNT];
    uint64_t files[STREAM_COUNT]; /* What was opened there: inodes, each its own. */
    int count;
};

/* streams_hold - until streams_drop() what is opened is no standard stream. For calls of another
 * library's. As far as there are descriptors; errno stays, in both. What another thread has put
 * under one of the numbers meanwhile stays. */
void streams_hold(struct streams_hold *hold_out);
void streams_drop(const struct streams_hold *hold);

#endif /* KVT_BASE_STREAMS_HOST_H */
