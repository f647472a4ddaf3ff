/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counted_memory.h - the host's memory, with a count of what is out, and one allocation that may
 * fail.
 */
#ifndef KVT_TESTS_COUNTED_MEMORY_H
#define KVT_TESTS_COUNTED_MEMORY_H

#include "env.h"

struct counted_memory {
    struct memory_ops ops;
    struct kvt_env host;
    size_t out_bytes;
    uint64_t asked_count;
    uint64_t fail_at; /* Of asked_count; 0: none fails. */
};

/* counted_memory_init - *env_out is the host's, with this memory. */
void counted_memory_init(struct counted_memory *counted, struct kvt_env *env_out);

#endif /* KVT_TESTS_COUNTED_MEMORY_H */
