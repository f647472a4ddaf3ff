/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage_fixture.h - whole stores, kept in memory file by file, with what is known of each page of
 * their data file; written out again and again, damaged.
 *
 * Keys 0..DAMAGE_KEYS-1 of the namespace "kept": one in eight was deleted, one in eight replaced
 * (version 2), one in eight has parts and so a trailer. Keys behind them are in a namespace that
 * was cleared.
 */
#ifndef KVT_TESTS_DAMAGE_FIXTURE_H
#define KVT_TESTS_DAMAGE_FIXTURE_H

#include "store_kit.h"

enum {
    DAMAGE_KEYS = 48,
    DAMAGE_CLEARED_KEYS = 6, /* Behind the others. */
    DAMAGE_ALL_KEYS = DAMAGE_KEYS + DAMAGE_CLEARED_KEYS,
    DAMAGE_BLOCK_BYTES_MAX = 24000,
    DAMAGE_PARTS = 4,
    DAMAGE_DATA_PAGES = 2048, /* 8 segments of 1 MiB. */
};

/* How the store was left. */
enum fixture_kind {
    FIXTURE_CLOSED,
    FIXTURE_KILLED, /* Not closed: the index is walked in full. */
    FIXTURE_WORN,   /* Closed; segments were filled, emptied and filled again. */
    FIXTURE_KIND_COUNT,
};

enum fixture_file {
    FILE_STORE_A,
    FILE_STORE_B,
    FILE_NAMES_A,
    FILE_NAMES_B,
    FILE_LOCK,
    FILE_INDEX,
    FILE_DATA,
    FIXTURE_FILES,
};

struct whole_file {
    uint8_t *bytes;
    size_t size;
    size_t used; /* Behind it there are zeros. */
};

struct known_block {
    bool is_live;
    uint64_t version; /* The current one; of a deleted block the last. */
    uint32_t page;    /* Of the data file. */
    uint32_t page_count;
    uint32_t stored_length;
};

enum page_use {
    PAGE_FREE,
    PAGE_BLOCK,  /* Of a live block. */
    PAGE_HEADER, /* The first page of a batch header. */
};

struct damage_fixture {
    enum fixture_kind kind;
    struct whole_file files[FIXTURE_FILES];
    struct known_block blocks[DAMAGE_ALL_KEYS];
    uint8_t uses[DAMAGE_DATA_PAGES];
};

/* fixture_file_name - below the store. */
const char *fixture_file_name(enum fixture_file file);

struct kvt_options damage_options(void);
uint64_t damage_length(uint64_t key);
bool damage_key_has_parts(uint64_t key);

/* fixture_make - the store is made at `path` and taken into memory. */
void fixture_make(struct damage_fixture *fixture, enum fixture_kind kind, const char *path);
void fixture_free(struct damage_fixture *fixture);

/* fixture_write - the store is at `path` as it was, whatever is there now. */
void fixture_write(const struct damage_fixture *fixture, const char *path);

#endif /* KVT_TESTS_DAMAGE_FIXTURE_H */
