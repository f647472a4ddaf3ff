/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_probe.c - the raw rate of a disk for the mix of a soak (soak.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rng.h"
#include "soak.h"

enum {
    FILE_BYTES = 512 << 20,
    SYNC_BYTES = 8 << 20, /* A sync behind so many bytes written, as behind a store's batch. */
    PIECE_BYTES = 1 << 20,
};

struct probe {
    struct io_uring ring;
    int fd;
    uint8_t *memory;
    struct rng rng;
    double write_share;
    uint64_t read_bytes, write_bytes; /* Asked for. */
    uint64_t unsynced_bytes;
    uint64_t done_bytes;
};

/* A file of written pages; it stays for the next probe. */
static int
file_ready(const char *dir, uint8_t *memory)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/probe", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0)
        return -1;
    for (off_t at = lseek(fd, 0, SEEK_END); at < FILE_BYTES; at += PIECE_BYTES) {
        if (pwrite(fd, memory, PIECE_BYTES, at) != PIECE_BYTES) {
            close(fd);
            return -1;
        }
    }
    return fdatasync(fd) == 0 ? fd : -1;
}

/* Ask for one more; slot `slot` of the memory is free. */
static void
probe_submit(struct probe *probe, uint32_t slot)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&probe->ring);
    uint64_t length = soak_block_length(rng_next(&probe->rng));
    uint64_t offset = rng_below(&probe->rng, (FILE_BYTES - SOAK_BLOCK_MAX) / 4096) * UINT64_C(4096);
    uint8_t *bytes = probe->memory + (size_t)slot * SOAK_BLOCK_MAX;
    uint64_t all = probe->read_bytes + probe->write_bytes;
    bool is_write = (double)probe->write_bytes < probe->write_share * (double)all;

    if (is_write && probe->unsynced_bytes >= SYNC_BYTES) {
        probe->unsynced_bytes = 0;
        io_uring_prep_fsync(entry, probe->fd, IORING_FSYNC_DATASYNC);
    } else if (is_write) {
        probe->write_bytes += length;
        probe->unsynced_bytes += length;
        io_uring_prep_write(entry, probe->fd, bytes, (unsigned)length, offset);
    } else {
        probe->read_bytes += length;
        io_uring_prep_read(entry, probe->fd, bytes, (unsigned)length, offset);
    }
    io_uring_sqe_set_data64(entry, slot);
}

/* Keep the depth for so long; false when something fails. */
static bool
probe_run(struct probe *probe, uint64_t until_ns)
{
    uint32_t inflight = 0;
    bool is_good = true;

    for (; inflight < SOAK_PROBE_DEPTH; inflight++)
        probe_submit(probe, inflight);
    while (inflight > 0) {
        struct io_uring_cqe *done;
        if (io_uring_submit_and_wait(&probe->ring, 1) < 0 ||
            io_uring_peek_cqe(&probe->ring, &done) != 0)
            return false;
        uint32_t slot = (uint32_t)done->user_data;
        is_good = is_good && done->res >= 0;
        probe->done_bytes += done->res > 0 ? (uint64_t)done->res : 0;
        io_uring_cqe_seen(&probe->ring, done);
        if (is_good && soak_now_ns() < until_ns)
            probe_submit(probe, slot);
        else
            inflight--;
    }
    return is_good;
}

uint64_t
soak_probe(const char *dir, double write_share, uint64_t duration_ns)
{
    size_t size = (size_t)SOAK_PROBE_DEPTH * SOAK_BLOCK_MAX;
    struct probe probe = {.write_share = write_share, .rng = {soak_now_ns()}};
    uint64_t rate = 0;

    probe.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe.memory == MAP_FAILED)
        return 0;
    (void)madvise(probe.memory, size, MADV_HUGEPAGE);
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t word = rng_next(&probe.rng);
        memcpy(probe.memory + i, &word, sizeof(word));
    }
    probe.fd = file_ready(dir, probe.memory);
    if (probe.fd >= 0 && io_uring_queue_init(SOAK_PROBE_DEPTH, &probe.ring, 0) == 0) {
        uint64_t begin_ns = soak_now_ns();
        if (probe_run(&probe, begin_ns + duration_ns))
            rate = (uint64_t)((double)probe.done_bytes * 1e9 / (double)(soak_now_ns() - begin_ns));
        io_uring_queue_exit(&probe.ring);
    }
    if (probe.fd >= 0)
        close(probe.fd);
    munmap(probe.memory, size);
    return rate;
}
