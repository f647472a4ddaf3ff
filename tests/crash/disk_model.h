/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_model.h - what a disk may hold after a power cut, from the log of a recorded program.
 *
 * Owns      the content of every file and directory: what is surely on the disk (the base), and the
 *           list of changes that may or may not be there (pending).
 * Not here  which of the possible disks are tried (crash_check.c), what they must contain
 *           (crash_oracle.h).
 *
 * The rules of the modelled disk, as POSIX promises them and no more:
 *   (1) A change of a file (write, size) is sure after a sync of that file that began after it, or
 *       if the write had O_DSYNC. Before that it is there or not, each change on its own, and a
 *       write may be there in some of its 512-byte sectors only.
 *   (2) A change of a directory (create, mkdir, rename, unlink) is sure after a sync of that
 *       directory. Before that it is there or not; a file that has no name is not there.
 *   (3) What is there of one file, or of one directory, happened in the order of the program.
 */
#ifndef KVT_TESTS_DISK_MODEL_H
#define KVT_TESTS_DISK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crash_log.h"

enum {
    DISK_NODES_MAX = 512,
    DISK_PENDING_MAX = 8192,
    DISK_SECTOR_BYTES = 512,
};

/* How much of one pending change is on the disk. */
enum disk_keep {
    DISK_DROP,
    DISK_KEEP,
    DISK_TEAR
};

struct disk;

struct disk *disk_create(void);
void disk_destroy(struct disk *disk);

/* disk_reset - an empty disk whose root directory has this inode. */
void disk_reset(struct disk *disk, uint64_t root_inode);

/* disk_apply - the next record of the log. `path` and `data` must outlive the disk. True when the
 * set of possible disks has changed. */
bool disk_apply(
    struct disk *disk, const struct crash_record *record, const char *path, const uint8_t *data);

/* disk_pending - the number of changes that may or may not be there. disk_pending_is_name - whether
 * one of them is a change of a directory. */
size_t disk_pending(const struct disk *disk);
bool disk_pending_is_name(const struct disk *disk, size_t index);

/*
 * disk_choose - make the disk that has these pending changes: keep[i] for each of them, `seed` for
 * the sectors of torn ones. Returns a hash of its content (names, sizes, bytes). Must be followed
 * by disk_restore() before anything else but disk_write_out().
 */
uint64_t disk_choose(struct disk *disk, const uint8_t *keep, uint64_t seed);
void disk_restore(struct disk *disk);

/* disk_write_out - make the directory `path` hold exactly the chosen disk; what is there already
 * and equal is not written again. False with errno when the file system refuses. */
bool disk_write_out(struct disk *disk, const char *path);

#endif /* KVT_TESTS_DISK_MODEL_H */
