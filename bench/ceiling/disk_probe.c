/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_probe.c - how fast one file can be read and written with nothing in between.
 */
#include "disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pattern.h"
#include "progress.h"

enum {
    PAGE_BYTES = 4096,
    WRITE_PIECE_BYTES = 1 << 20,
    WRITE_PIECES = DISK_BATCH_BYTES / WRITE_PIECE_BYTES,
};

static bool
fail(struct disk_probe *probe, const char *what, int error)
{
    snprintf(probe->message, sizeof(probe->message), "%s: %s", what, strerror(error));
    return false;
}

/* Older kernels refuse the two flags; io_uring itself may be denied. */
static int
ring_open(struct io_uring *ring)
{
    int result = io_uring_queue_init(
        DISK_DEPTH_MAX, ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

    if (result == -EINVAL)
        result = io_uring_queue_init(DISK_DEPTH_MAX, ring, 0);
    return result;
}

/* Takes what both kinds of files need. probe->fd is open. */
static bool
probe_ready(struct disk_probe *probe)
{
    struct iovec whole;
    int result = 0;

    if (!huge_buffer_take(&probe->buffer, DISK_BUFFER_BYTES))
        return fail(probe, "a buffer of 64 MiB", ENOMEM);
    pattern_fill(
        1, probe->buffer.bytes, probe->buffer.size); /* No device may find it compressible. */
    result = ring_open(&probe->ring);
    if (result < 0)
        return fail(probe, "io_uring is denied here", -result);
    probe->has_ring = true;
    result = io_uring_register_files(&probe->ring, &probe->fd, 1);
    if (result < 0)
        return fail(probe, "io_uring takes no registered file", -result);
    whole = (struct iovec){probe->buffer.bytes, probe->buffer.size};
    probe->is_registered = io_uring_register_buffers(&probe->ring, &whole, 1) == 0;
    return true;
}

/* A file without a name, or one whose name is gone at once. */
static int
nameless_open(const char *directory, int direct)
{
    char path[4096];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    if (snprintf(path, sizeof(path), "%s/ceiling.tmp.%ld", directory, (long)getpid()) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | direct, 0600);
    if (fd >= 0)
        unlink(path);
    return fd;
}

bool
disk_probe_create(struct disk_probe *probe, const char *directory, uint64_t size)
{
    memset(probe, 0, sizeof(*probe));
    probe->is_direct = true;
    probe->fd = nameless_open(directory, O_DIRECT);
    if (probe->fd < 0 && errno == EINVAL) {
        probe->is_direct = false;
        probe->fd = nameless_open(directory, 0);
    }
    if (probe->fd < 0)
        return fail(probe, directory, errno);
    if (fallocate(probe->fd, 0, 0, (off_t)size) != 0)
        fail(probe, "cannot allocate the file to measure with", errno);
    else if (probe_ready(probe))
        return true;
    disk_probe_close(probe);
    return false;
}

bool
disk_probe_open(struct disk_probe *probe, const char *path)
{
    memset(probe, 0, sizeof(*probe));
    probe->is_direct = true;
    probe->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (probe->fd < 0 && errno == EINVAL) {
        probe->is_direct = false;
        probe->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (probe->fd < 0)
        return fail(probe, path, errno);
    if (probe_ready(probe))
        return true;
    disk_probe_close(probe);
    return false;
}

void
disk_probe_close(struct disk_probe *probe)
{
    if (probe->has_ring)
        io_uring_queue_exit(&probe->ring);
    probe->has_ring = false;
    huge_buffer_put(&probe->buffer);
    if (probe->fd >= 0)
        close(probe->fd);
    probe->fd = -1;
}

/* What one read or write moves. `slot` of the buffer is its memory. */
struct piece {
    uint64_t number; /* Comes back with the completion. */
    uint64_t slot;
    uint64_t offset;
    uint32_t bytes;
};

/* Queues one read or write. The ring has room: depth <= its size. */
static void
piece_queue(struct disk_probe *probe, bool is_write, const struct piece *piece)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&probe->ring);
    uint8_t *place = probe->buffer.bytes + piece->slot * piece->bytes;
    uint64_t offset = piece->offset;
    uint32_t bytes = piece->bytes;

    if (probe->is_registered && is_write)
        io_uring_prep_write_fixed(sqe, 0, place, bytes, offset, 0);
    else if (probe->is_registered)
        io_uring_prep_read_fixed(sqe, 0, place, bytes, offset, 0);
    else if (is_write)
        io_uring_prep_write(sqe, 0, place, bytes, offset);
    else
        io_uring_prep_read(sqe, 0, place, bytes, offset);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = piece->number;
}

static uint64_t
offset_next(struct disk_probe *probe, const struct disk_read_plan *plan)
{
    uint64_t pieces = (plan->end_bytes - plan->start_bytes) / plan->piece_bytes;
    uint64_t piece = plan->is_random ? pattern_mix(probe->random++) : probe->position++;

    if (plan->offsets != NULL)
        return plan->offsets[piece % plan->offset_count];
    return plan->start_bytes + piece % pieces * plan->piece_bytes;
}

/* Waits for one completion and takes its number. False, with a message: it was not whole. */
static bool
piece_wait(struct disk_probe *probe, uint64_t expected_bytes, uint64_t *number_out)
{
    struct io_uring_cqe *cqe = NULL;
    int result = io_uring_peek_cqe(&probe->ring, &cqe);

    while (result == -EAGAIN || result == -EINTR) {
        result = io_uring_submit_and_wait(&probe->ring, 1);
        if (result >= 0 || result == -EINTR)
            result = io_uring_peek_cqe(&probe->ring, &cqe);
    }
    if (result < 0)
        return fail(probe, "io_uring stopped", -result);
    *number_out = cqe->user_data;
    result = cqe->res;
    io_uring_cqe_seen(&probe->ring, cqe);
    if (result < 0)
        return fail(probe, "a transfer failed", -result);
    if ((uint64_t)result != expected_bytes)
        return fail(probe, "a transfer was short", EIO);
    return true;
}

static bool
read_plan_is_valid(struct disk_probe *probe, const struct disk_read_plan *plan)
{
    if (plan->depth == 0 || plan->depth > DISK_DEPTH_MAX || plan->piece_bytes == 0 ||
        plan->piece_bytes % PAGE_BYTES != 0 ||
        plan->piece_bytes > DISK_BUFFER_BYTES / plan->depth ||
        plan->end_bytes < plan->start_bytes + plan->piece_bytes ||
        (plan->offsets != NULL && plan->offset_count == 0))
        return fail(probe, "the pieces to read do not fit the buffer or the file", EINVAL);
    return true;
}

/* Queues read `number` of the plan's depth. Each has its share of the buffer's slots and goes
 * around in it, so that reads come to all of the buffer and never to memory that another one is
 * filling. */
static void
read_queue(struct disk_probe *probe, const struct disk_read_plan *plan, uint64_t number)
{
    uint64_t slots = DISK_BUFFER_BYTES / plan->piece_bytes / plan->depth;
    struct piece piece = {
        .number = number,
        .slot = number + probe->turns[number]++ % slots * plan->depth,
        .offset = offset_next(probe, plan),
        .bytes = (uint32_t)plan->piece_bytes,
    };

    piece_queue(probe, false, &piece);
}

double
disk_probe_read(struct disk_probe *probe, const struct disk_read_plan *plan)
{
    double start = clock_seconds();
    uint64_t done_bytes = 0;
    uint64_t in_flight = 0;
    bool is_fine = read_plan_is_valid(probe, plan);

    if (!is_fine)
        return -1;
    for (; in_flight < plan->depth; in_flight++)
        read_queue(probe, plan, in_flight);
    io_uring_submit(&probe->ring);
    while (in_flight > 0) {
        uint64_t number = 0;

        in_flight--; /* Also when it failed: the others still have to come back. */
        is_fine = piece_wait(probe, plan->piece_bytes, &number) && is_fine;
        done_bytes += plan->piece_bytes;
        if (!is_fine || clock_seconds() - start >= plan->seconds)
            continue;
        read_queue(probe, plan, number);
        in_flight++;
    }
    return is_fine ? (double)done_bytes / (clock_seconds() - start) : -1;
}

/* One durable batch at `offset`. Each comes from the next memory of the buffer: batches that are
 * written one behind the other do not lie at the same place, where the caches would hold them. */
static bool
batch_write(struct disk_probe *probe, uint64_t offset)
{
    uint64_t first = probe->batch_number++ % (DISK_BUFFER_BYTES / DISK_BATCH_BYTES) * WRITE_PIECES;
    bool is_fine = true;

    for (uint64_t i = 0; i < WRITE_PIECES; i++) {
        const struct piece piece = {
            .number = i,
            .slot = first + i,
            .offset = offset + i * WRITE_PIECE_BYTES,
            .bytes = WRITE_PIECE_BYTES,
        };

        piece_queue(probe, true, &piece);
    }
    for (uint64_t i = 0; i < WRITE_PIECES; i++) {
        uint64_t number = 0;

        is_fine = piece_wait(probe, WRITE_PIECE_BYTES, &number) && is_fine;
    }
    if (is_fine && fdatasync(probe->fd) != 0)
        return fail(probe, "fdatasync failed", errno);
    return is_fine;
}

double
disk_probe_write(struct disk_probe *probe, uint64_t *position, uint64_t end_bytes, double seconds)
{
    double start = clock_seconds();
    uint64_t done_bytes = 0;

    while (*position + DISK_BATCH_BYTES <= end_bytes &&
           (done_bytes == 0 || clock_seconds() - start < seconds)) {
        if (!batch_write(probe, *position))
            return -1;
        *position += DISK_BATCH_BYTES;
        done_bytes += DISK_BATCH_BYTES;
    }
    return (double)done_bytes / (clock_seconds() - start);
}
