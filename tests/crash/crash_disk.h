/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_disk.h - a disk that logs what reaches it and fails on command: one file of a FUSE file
 * system, for a loop device to stand on. A process of its own serves it, from an image.
 *
 * Owns      the server, the image, the log of writes and flushes, in the order in which they were
 *           answered. A write is in the log before it is answered, so that what waited for it can
 *           read a position (`board->position`) that covers it.
 */
#ifndef KVT_TESTS_CRASH_DISK_H
#define KVT_TESTS_CRASH_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_ALWAYS UINT32_MAX

/* What the server and others say to each other, in shared memory. */
struct disk_board {
    _Atomic uint64_t position;   /* Records in the log. */
    _Atomic uint32_t is_logging; /* Else nothing is kept; the position stays. */
    /* How many of the next ones fail with EIO; DISK_ALWAYS: all of them. */
    _Atomic uint32_t fail_writes;
    /* DISK_ALWAYS: a flush takes with it what was written since the one before, or since this was
     * set; the old bytes are there again. A single one takes nothing: the disk would be lost to the
     * other files on it, whose next sync is told nothing of that. */
    _Atomic uint32_t fail_flushes;
    _Atomic uint32_t fail_reads;
    _Atomic uint64_t failed_count; /* So many did. */
};

struct disk_record {
    uint64_t is_flush; /* Else a write, whose bytes follow. */
    uint64_t offset;
    uint64_t size;
};

struct crash_disk {
    struct disk_board *board;
    int board_fd;
    int image; /* The file with the disk's bytes. */
    int log;   /* Records, each with its bytes. */
    int file;  /* The disk, as a file: what a loop device is made of. */
    pid_t server;
    char point[256];
};

/* crash_disk_start - serve `image` (an open file, kept) below the empty directory `point`; `place`
 * takes the log. False, with a reason, where there is no FUSE. */
bool crash_disk_start(struct crash_disk *disk, int image, const char *place, const char *point,
    char *reason, uint64_t reason_size);

/* crash_disk_stop - nothing uses it any more. The log can still be read. */
void crash_disk_stop(struct crash_disk *disk);

#endif /* KVT_TESTS_CRASH_DISK_H */
