/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_owner.h - who has a store open, and what that process shows of itself.
 */
#ifndef KVTOOL_OWNER_H
#define KVTOOL_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier_unstable.h"

enum {
    PROGRAM_NAME_BYTES = 64
};

struct owner {
    bool is_open;    /* Some process has it open. */
    int error;       /* Why that is not known (an errno); 0: it is. */
    uint32_t pid;    /* 0: nobody that can be seen from here. */
    bool has_live;   /* `live` was read. */
    bool is_distant; /* It shows itself, but its pid is not one of this machine's or container's. */
    char program[PROGRAM_NAME_BYTES];
    struct kvt_live live;
};

/* owner_find - asks the lock, then the page, then /proc. Never fails: what cannot be known is not
 * there. */
void owner_find(const char *path, struct owner *owner_out);

/* owner_text - "process 123 (vllm)". */
const char *owner_text(const struct owner *owner, char *text, int size);

/* owner_complain - "DIR is open: process 123 (vllm) has it". */
void owner_complain(const char *path);

/* owner_must_show - finds an owner that shows itself, or complains and returns false: nobody has
 * the store open, it is open for reading only, or that cannot be seen. */
bool owner_must_show(const char *path, struct owner *owner_out);

#endif /* KVTOOL_OWNER_H */
