/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_probe.h - how fast one file can be read and written with nothing in between: io_uring with
 * registered huge-page buffers and a registered file, O_DIRECT where the file system has it.
 */
#ifndef BENCH_DISK_PROBE_H
#define BENCH_DISK_PROBE_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "huge_buffer.h"

enum {
    DISK_DEPTH_MAX = 256,
    DISK_BUFFER_BYTES = 64 << 20,
    DISK_BATCH_BYTES = 8 << 20, /* One durable batch: the size at which kvtier closes one. */
    DISK_MESSAGE_BYTES = 512,
};

/* One file and one ring. Threads: one. */
struct disk_probe {
    int fd;
    bool is_direct;
    bool is_registered; /* The buffers are; else RLIMIT_MEMLOCK was too low. */
    bool has_ring;
    struct io_uring ring;
    struct huge_buffer buffer;
    uint64_t random;                /* State of the choice of offsets. */
    uint64_t position;              /* Where sequential reads go on. */
    uint64_t batch_number;          /* Of the next durable batch: which memory it comes from. */
    uint64_t turns[DISK_DEPTH_MAX]; /* Of each read of a depth: which of its slots is next. */
    char message[DISK_MESSAGE_BYTES];
};

/* What to read: pieces of `piece_bytes` in [start_bytes, end_bytes), `depth` at a time. */
struct disk_read_plan {
    uint64_t start_bytes;
    uint64_t end_bytes;
    uint64_t piece_bytes; /* A multiple of 4096; piece_bytes x depth <= DISK_BUFFER_BYTES. */
    uint32_t depth;       /* 1..DISK_DEPTH_MAX */
    bool is_random;
    double seconds;
    const uint64_t *offsets; /* Not NULL: read at these, chosen at random, instead of the range. */
    uint32_t offset_count;
};

/*
 * disk_probe_create - a new nameless file of `size` bytes in the directory, allocated, not written.
 * disk_probe_open   - a file that exists, to read.
 * False: nothing to close, and a sentence in probe->message.
 */
bool disk_probe_create(struct disk_probe *probe, const char *directory, uint64_t size);
bool disk_probe_open(struct disk_probe *probe, const char *path);
void disk_probe_close(struct disk_probe *probe);

/* disk_probe_read - into all of the buffer in turns, as into a pool; bytes per second; below 0: it
 * failed, see probe->message. */
double disk_probe_read(struct disk_probe *probe, const struct disk_read_plan *plan);

/*
 * disk_probe_write - durable batches (DISK_BATCH_BYTES in pieces of 1 MiB, then fdatasync), one
 * behind the other from *position up to end_bytes (then stop), for about `seconds`. *position moves
 * on. The batches come from all of the buffer in turns: 64 MiB, as much as a store's sources in the
 * sweep. Bytes per second; below 0: it failed.
 */
double disk_probe_write(
    struct disk_probe *probe, uint64_t *position, uint64_t end_bytes, double seconds);

#endif /* BENCH_DISK_PROBE_H */
