/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_descriptor.h - descriptors that a forked child closes before fork() returns in it: what they
 * stand for (memory that the kernel keeps pinned for a ring, say) ends with its owner, however long
 * the child lives.
 *
 * Threads   any.
 */
#ifndef KVT_BASE_FORK_DESCRIPTOR_H
#define KVT_BASE_FORK_DESCRIPTOR_H

#include "kvtier/status.h"

struct fork_descriptor {
    struct fork_descriptor *next, *prior;
    int descriptor;
};

/* fork_hold - until fork_release() no thread of the process forks: what is made and added, or
 * removed and closed, in between, no child inherits. KVT_E_NOMEM, once and then always: nothing is
 * held. */
enum kvt_status fork_hold(void);
void fork_release(void);

/* Between both. */
void fork_descriptor_add(struct fork_descriptor *item, int descriptor);
void fork_descriptor_remove(struct fork_descriptor *item);
/* fork_descriptor_find - NULL: it was not added, or not since this process was forked. */
struct fork_descriptor *fork_descriptor_find(int descriptor);

#endif /* KVT_BASE_FORK_DESCRIPTOR_H */
