/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_disk.h - what the simulated disk holds: files and directories, each as it looks now and as it
 * would look after a power cut.
 *
 * Owns      nodes, their bytes, and the list of changes of each that are not yet synced.
 * Not here  open files, locks, faults (sim_fs.c); transfers in flight (sim_io.c).
 *
 * Invariants
 *   (1) durable + every change of the list, in order = current; except for what a failed sync has
 *       lost: that is in current alone, and gone after a cut.
 *   (2) Every change has a number that rises over the whole disk.
 *   (3) A node lives as long as the disk; one that no directory names has no bytes after a cut.
 *   (4) A page is changed only while it has one holder; images and changes share all others.
 */
#ifndef KVT_TESTS_SIM_DISK_H
#define KVT_TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rng.h"

enum {
    SIM_SECTOR_BYTES = 512,
    SIM_NAME_BYTES = 80,
};

/* A page of images and changes, with the number of those that hold it. */
struct sim_page;

/* Bytes of a file: pages of 4 KiB, NULL where nothing but zeros was ever written. */
struct sim_image {
    struct sim_page **pages;
    size_t page_count; /* Length of the table. */
    uint64_t size;
};

struct sim_node;

struct sim_entry {
    char name[SIM_NAME_BYTES];
    struct sim_node *node;
};

struct sim_entries {
    struct sim_entry *items;
    size_t count;
    size_t capacity;
};

enum sim_change_kind {
    CHANGE_WRITE,  /* offset, size, pages */
    CHANGE_SIZE,   /* The file is `size` long. */
    CHANGE_GROW,   /* The file is at least `size` long. */
    CHANGE_CREATE, /* name, node */
    CHANGE_RENAME, /* name -> to, node */
    CHANGE_UNLINK, /* name */
};

struct sim_change {
    struct sim_change *next;
    uint64_t number;
    enum sim_change_kind kind;
    uint64_t offset;
    uint64_t size;
    struct sim_node *node;
    char name[SIM_NAME_BYTES];
    char to[SIM_NAME_BYTES];
    size_t page_count;
    struct sim_page *pages[]; /* Those that the write touched, as they were behind it. */
};

struct sim_node {
    struct sim_node *next; /* All nodes of the disk, newest first. */
    uint64_t number;
    bool is_directory;
    bool is_reachable; /* Scratch of disk_used() and disk_cut(). */
    struct sim_image current;
    struct sim_image durable;
    struct sim_image previous; /* What stood where something was written since (stale reads). */
    struct sim_entries entries;
    struct sim_entries durable_entries;
    struct sim_change *changes; /* Oldest first. */
    struct sim_change *newest;
    const void *lock_owner; /* The open file that holds the lock. */
};

struct sim_disk {
    struct sim_node *nodes;
    struct sim_node *root;
    uint64_t change_count;
    uint64_t node_count;
    bool has_lies; /* Something is in `current` alone, for good. */
};

void image_read(const struct sim_image *image, uint64_t offset, void *target, size_t size);

void disk_init(struct sim_disk *disk);
void disk_deinit(struct sim_disk *disk);
uint64_t disk_used(struct sim_disk *disk); /* Sizes of all files that have a name. */

/* Entries as they look now; NULL when there is none. */
struct sim_node *disk_find(const struct sim_node *directory, const char *name);
struct sim_node *disk_find_path(const struct sim_disk *disk, const char *path);

/* Changes: seen at once, durable with the node's next sync. */
struct sim_node *disk_create(
    struct sim_disk *disk, struct sim_node *directory, const char *name, bool is_directory);
bool disk_rename(
    struct sim_disk *disk, struct sim_node *directory, const char *from, const char *to);
bool disk_unlink(struct sim_disk *disk, struct sim_node *directory, const char *name);
void disk_write(
    struct sim_disk *disk, struct sim_node *file, const void *bytes, uint64_t offset, size_t size);
void disk_resize(
    struct sim_disk *disk, struct sim_node *file, enum sim_change_kind kind, uint64_t size);

/* disk_sync - changes of the node up to number `up_to` are durable. */
void disk_sync(struct sim_node *node, uint64_t up_to);
/* disk_sync_lossy - the same, but each of them may be lost instead, for good. */
void disk_sync_lossy(struct sim_disk *disk, struct sim_node *node, uint64_t up_to, struct rng *rng);

/* disk_unlock - no lock is held: who held one is gone. */
void disk_unlock(struct sim_disk *disk);

/* What a cut does with one change. */
enum sim_fate {
    FATE_KEEP,
    FATE_DROP,
    FATE_TEAR
};

/* disk_cut - every unsynced change meets the fate that `decide` gives it; then the durable state
 * is what everybody sees, and no lock is held. */
void disk_cut(struct sim_disk *disk, struct rng *rng,
    enum sim_fate (*decide)(void *context, const struct sim_change *change), void *context);

#endif /* KVT_TESTS_SIM_DISK_H */
