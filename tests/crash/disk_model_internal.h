/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_model_internal.h - what disk_model.c knows of a disk, and disk_model_write.c writes out.
 */
#ifndef KVT_TESTS_DISK_MODEL_INTERNAL_H
#define KVT_TESTS_DISK_MODEL_INTERNAL_H

#include <sys/types.h>

#include "disk_model.h"

enum {
    PAGE = 4096,
    NAME_MAX_BYTES = 64,
    SYNCS_MAX = 256,
};

#define IMAGE_BYTES (UINT64_C(64) << 20)
#define NOTHING UINT32_MAX

struct node {
    uint64_t inode;
    bool is_dir;
    uint64_t size;
    uint8_t *image;      /* IMAGE_BYTES of address space; zero behind `size`. */
    uint64_t *page_hash; /* 0: a page of zeros. */
    uint32_t *touched;   /* The last choice that saved this page. */
    uint64_t hash;       /* Of all pages. */

    /* The file that it was written out to, mapped once for many disks: its inode and size then. */
    const uint8_t *there;
    ino_t there_inode;
    uint64_t there_size;
};

struct entry {
    uint32_t parent;
    uint32_t node;
    char name[NAME_MAX_BYTES];
};

struct tree {
    struct entry entries[DISK_NODES_MAX];
    uint32_t count;
};

struct change {
    enum crash_kind kind;
    bool is_sure;    /* Waits only for an earlier change of the same node. */
    uint32_t node;   /* The file, or the directory. */
    uint32_t target; /* Of a name: what it names. */
    uint64_t number; /* Rises from change to change. */
    uint64_t offset;
    uint64_t length;
    const uint8_t *data;
    char name[NAME_MAX_BYTES];
    char new_name[NAME_MAX_BYTES];
};

struct saved_page {
    uint32_t node;
    uint64_t page;
    uint64_t hash;
    uint8_t bytes[PAGE];
};

struct disk {
    struct node nodes[DISK_NODES_MAX];
    uint32_t node_count;
    struct tree sure;
    struct tree now; /* As the program saw it: resolves the log's paths. */
    struct change pending[DISK_PENDING_MAX];
    size_t pending_count;
    uint64_t change_count;
    uint64_t sync_begin[SYNCS_MAX]; /* By number of the sync: changes made before it began. */
    uint64_t zero_hash;

    /* While a disk is chosen. */
    uint32_t choice; /* Rises; 0: none yet. */
    bool is_chosen;
    struct tree sure_before;
    uint64_t size_before[DISK_NODES_MAX];
    uint64_t hash_before[DISK_NODES_MAX];
    struct saved_page *saved;
    size_t saved_count;
    size_t saved_capacity;
};

/* tree_find - the index of an entry; NOTHING: there is none. */
uint32_t tree_find(const struct tree *tree, uint32_t parent, const char *name);

/* node_forget_file - the file that it was written out to is not mapped any more. */
void node_forget_file(struct node *node);

#endif /* KVT_TESTS_DISK_MODEL_INTERNAL_H */
