/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_device.h - a store with a device, and what a serving engine has there of its own: two
 * streams, something to compute, and tables that lie in its memory.
 *
 * Owns      the streams and an event of each; one device at a time.
 * Threads   serial.
 */
#ifndef BENCH_ENGRAM_DEVICE_H
#define BENCH_ENGRAM_DEVICE_H

#include "engram_bench.h"
#include "kvtier/kvtier.h"

enum engram_device_stream {
    ENGRAM_STREAM_COMPUTE,
    ENGRAM_STREAM_ROWS,
    ENGRAM_STREAM_COUNT,
};

/* Rows by their numbers, of pages in memory of the device. */
struct engram_device_gather {
    const uint32_t *ids; /* Of a region of the host's memory. */
    uint64_t count;
    const void *pages;
    uint32_t row_count, rows_per_page, row_bytes;
    void *target;      /* Of the device, as what follows. */
    uint64_t *verdict; /* UINT64_MAX: each number was one of a row. */
};

/* engram_device_store_open - kvt_open(), with such a device; `*has_device_out`: there is one.
 * False: complained. engram_device_close: before the store is closed. */
bool engram_device_store_open(const char *path, struct kvt_options *options,
    enum engram_device_choice choice, kvt_store **store_out, bool *has_device_out);
void engram_device_close(void);

void engram_device_name(struct engram_device_facts *facts_out);
void *engram_device_stream(enum engram_device_stream which);

/* The rest: false: it failed, see kvt_last_error().
 *
 * engram_device_compute - something that takes so long, on ENGRAM_STREAM_COMPUTE; `memory` is of
 * the device. engram_device_gather - on ENGRAM_STREAM_ROWS. engram_device_mark, engram_device_wait:
 * what was submitted to the stream until the mark has been done. */
bool engram_device_compute(uint64_t duration_ns, void *memory);
bool engram_device_gather(const struct engram_device_gather *gather);
bool engram_device_mark(enum engram_device_stream which);
bool engram_device_wait(enum engram_device_stream which);

#endif /* BENCH_ENGRAM_DEVICE_H */
