/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover_table.h - what to do with a store that has a valid STORE: one row for each combination of
 * what can be seen. Pure; a test walks all combinations.
 */
#ifndef KVT_ENGINE_RECOVER_TABLE_H
#define KVT_ENGINE_RECOVER_TABLE_H

#include <stdbool.h>

#include "index.h"

enum recover_names {
    RECOVER_NAMES_VALID,
    RECOVER_NAMES_ABSENT,
    RECOVER_NAMES_DAMAGED,
};

enum recover_action {
    RECOVER_LOAD,    /* The index says what is live. */
    RECOVER_REBUILD, /* The segments' headers do. */
    RECOVER_REFUSE,  /* Nothing may be decided here: the open fails, by name. */
};

struct recover_facts {
    enum index_condition index;
    enum recover_names names;
    bool is_rebuild_wanted;
    bool is_read_only;
};

struct recover_row {
    int index;             /* enum index_condition, or -1: any. */
    int names;             /* enum recover_names, or -1. */
    int is_rebuild_wanted; /* 0, 1, or -1. */
    int is_read_only;      /* 0, 1, or -1. */
    enum recover_action action;
    const char *reason; /* For the sentence of a refusal. */
};

extern const struct recover_row recover_rows[];
extern const unsigned recover_row_count;

/* recover_decide - the one row that fits. */
const struct recover_row *recover_decide(const struct recover_facts *facts);

#endif /* KVT_ENGINE_RECOVER_TABLE_H */
