/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_rig.h - small Engram tables whose every row can be computed, for tests.
 */
#ifndef KVT_TESTS_ENGRAM_RIG_H
#define KVT_TESTS_ENGRAM_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

enum {
    RIG_ROW_BYTES_MAX = 4088,
    RIG_CLASSES = 1000,
};

/* Where rows come from, and how an import of them went. */
struct engram_rig {
    struct kvt_engram_profile profile; /* Two layers: 3 and 7. */
    struct kvt_engram_source source;
    uint64_t seed;        /* Of the rows. */
    uint64_t fail_at;     /* This row cannot be given; 0: all can. */
    uint64_t stop_at;     /* progress() says no from there on; 0: never. */
    uint64_t first_asked; /* UINT64_MAX: none was asked for. */
    uint64_t asked_count;
};

/* engram_rig_init - tables of 2 x 2 columns with some `rows_a_column` rows each; `name` is kept. */
void engram_rig_init(
    struct engram_rig *rig, const char *name, uint32_t row_bytes, uint32_t rows_a_column);

/* engram_rig_row - what a row of a layer (by index) is. */
void engram_rig_row(
    const struct engram_rig *rig, uint32_t layer_index, uint64_t row, uint8_t *row_out);

/* engram_rig_import - of one layer; the call's status. */
enum kvt_status engram_rig_import(
    struct engram_rig *rig, kvt_store *store, const char *name, uint32_t layer_index);

/* engram_rig_has - whether an open table has exactly the rows of that layer. */
bool engram_rig_has(const struct engram_rig *rig, kvt_engram *table, uint32_t layer_index);

/* engram_rig_cache_on - the table's cache on a device is used for a window of rows, whether it pays
 * or not. Nothing of the table is being fetched. */
void engram_rig_cache_on(kvt_engram *table, uint32_t device);

#endif /* KVT_TESTS_ENGRAM_RIG_H */
