/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_log.h - the log that crash_shim.c writes and crash_check replays.
 *
 * A file of records in the order in which the calls ended. A record is the struct below, then
 * path_length bytes of path (relative to the recorded directory, "" for itself; for a rename the
 * old path, a zero byte, the new path), then data_length bytes.
 *
 * A write is logged when its call has returned and before the caller goes on; a sync when it begins
 * and when it has ended. So a sync is known to cover exactly the writes that stand before its
 * beginning, and it counts from its end on.
 */
#ifndef KVT_TESTS_CRASH_LOG_H
#define KVT_TESTS_CRASH_LOG_H

#include <stdint.h>

enum crash_kind {
    CRASH_WRITE = 1,  /* offset, data */
    CRASH_DURABLE,    /* The write before this record was made with O_DSYNC and is durable. */
    CRASH_SYNC_BEGIN, /* offset: a number that the end repeats */
    CRASH_SYNC_END,   /* offset: the number; length: 1 when it succeeded */
    CRASH_TRUNCATE,   /* length: the new size */
    CRASH_ALLOCATE,   /* offset, length: the file has at least offset + length bytes */
    CRASH_CREATE,     /* a file that was not there */
    CRASH_MKDIR,
    CRASH_RENAME,
    CRASH_UNLINK, /* a file or an empty directory */
    CRASH_MARK,   /* data: a line of the workload (crash_oracle.h) */
};

struct crash_record {
    uint32_t kind;
    uint32_t path_length;
    uint64_t inode;
    uint64_t offset;
    uint64_t length;
    uint64_t data_length;
};

/* In the environment of a recorded program: the directory and the log. */
#define CRASH_DIR_VARIABLE "KVT_CRASH_DIR"
#define CRASH_LOG_VARIABLE "KVT_CRASH_LOG"

/* crash_mark - the shim's function that puts a line into the log. */
typedef void (*crash_mark_fn)(const char *line);

/* crash_full - the shim's function by which the disk is full: of the calls that may take room for a
 * file whose path has `part` in it ("": any; NULL: there is room) `skip` pass, and the next `count`
 * fail with ENOSPC. Returns how many have failed since the last time. */
typedef uint64_t (*crash_full_fn)(const char *part, uint64_t skip, uint64_t count);

#endif /* KVT_TESTS_CRASH_LOG_H */
