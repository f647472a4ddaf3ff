/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_run.h - the steps of a workload: each does something to a small store and marks in the log
 * what was asked and what was acknowledged.
 *
 * A step that the store answers in a way it must not (an error, wrong bytes) ends the program with
 * a sentence on stderr and exit code 1: a recording that went wrong is a failed test.
 */
#ifndef KVT_TESTS_CRASH_RUN_H
#define KVT_TESTS_CRASH_RUN_H

#include "crash_departures.h"
#include "crash_log.h"
#include "crash_oracle.h"
#include "kvtier/kvtier.h"
#include "payload.h"

#define RUN_DATA_FILES "data.0" /* In their paths; the index is meta/data.mdb. */

enum {
    RUN_TICKETS_MAX = 256,
    RUN_BATCH_MAX = 128,
    RUN_DEVICE_BLOCKS = 16, /* Of a batch, in memory of the device. */
    RUN_BLOCK_BYTES_MAX = 65536,
    RUN_IO_AUTO = 100, /* As workload.io_engine: KVT_IO_AUTO, whose number means something else. */
};

/* A workload: its store, and its steps. */
struct run;
struct workload {
    const char *name;
    void (*steps)(struct run *run);
    /* Another subject than a store (crash_lmdb.h); NULL: a store. */
    bool (*verify)(
        const char *path, const struct oracle *oracle, char *problem, size_t problem_size);
    uint64_t host_bytes; /* 0: 4 MiB */
    uint64_t nvme_bytes; /* 0: 16 MiB */
    uint64_t hbm_bytes;  /* 0: no HBM tier; else on an emulated device. */
    uint64_t map_bytes;  /* Of the index; 0: 1 MiB. */
    uint32_t block_low;  /* Lengths of blocks; 0: 4 KiB .. 24 KiB. */
    uint32_t block_high;
    uint32_t root_count;      /* 0: the store's own directory. */
    uint32_t io_engine;       /* enum kvt_io_engine; 0: the threads, whose calls the shim can see;
                          * RUN_IO_AUTO. */
    bool may_leave;           /* It is more than the tier holds: blocks leave NVMe for room. */
    const char *rebuilds_for; /* NULL, or in the warning of an open that may rebuild the index. */
    const char *expects;      /* With --expect-failure: in what is said of each wrong state. */
};

struct run_pending {
    kvt_ticket *ticket;
    uint32_t key[RUN_BATCH_MAX];
    uint64_t version[RUN_BATCH_MAX];
    uint32_t count;
};

struct run {
    const struct workload *workload;
    const char *dir; /* The recorded directory: the store is dir/store, the roots dir/root0 ... */
    crash_mark_fn mark;
    crash_full_fn full;
    bool may_fail;       /* The disk is full, or was in this life: calls may be refused. */
    bool index_may_fail; /* ... also those of the index, which is the end of it in this life. */
    kvt_store *store;
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    uint64_t version;      /* The last one given out. */
    uint64_t acknowledged; /* The last one that was. */
    bool is_chained;       /* Each block that is put has the key below its own as its parent. */
    struct rng rng;
    struct run_pending relaxed[RUN_TICKETS_MAX]; /* RELAXED puts that nobody waited for. */
    uint32_t relaxed_count;
    struct departures departures;
    uint8_t *device_pool; /* With an HBM tier: RUN_DEVICE_BLOCKS sources. */
    kvt_region region;
};

/* run_options - the options of a workload's store; `roots` (8 strings) and `paths` hold what they
 * point to. */
struct run_paths {
    char store[512];
    char roots[8][512];
    const char *list[8];
};
void run_options(const struct workload *workload, const char *dir, struct run_paths *paths,
    struct kvt_options *options_out);

/* run_open_namespaces - both namespaces of an open store. */
enum kvt_status run_open_namespaces(kvt_store *store, kvt_namespace namespaces_out[]);

/* run_device_take - memory for `size` bytes on device 0, as a region. */
uint8_t *run_device_take(kvt_store *store, uint64_t size, kvt_region *region_out);

void run_open(struct run *run, uint32_t flags);
void run_close(struct run *run);
void run_abort(struct run *run);

/* run_put - `count` blocks with new versions, keys first, first + 1, ... in one call. SYNC waits
 * for the acknowledgement; RELAXED is acknowledged by run_flush(). */
void run_put(struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability);
void run_replace(struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability);
void run_delete(struct run *run, uint32_t first, uint32_t count);
/* run_overlap - put, delete, put again and replace the keys, and only then wait for all of it. */
void run_overlap(struct run *run, uint32_t first, uint32_t count);
void run_clear(struct run *run, uint32_t number);
void run_flush(struct run *run);

/* run_disk_full - the disk is full (crash_log.h). Until the next run_open() whatever is asked for
 * may fail. run_disk_room - there is room again, and something must have been refused. Where that
 * was no file of the index, a put of `key` succeeds by and by. */
void run_disk_full(struct run *run, const char *part, uint64_t skip, uint64_t count);
void run_disk_room(struct run *run, uint32_t key);

/* run_claim - mark a block as put and acknowledged that nobody has put: the judge must miss it. */
void run_claim(struct run *run, uint32_t key);

/* run_demote, run_prefetch - down to `tier`, up to it: what is there. */
void run_demote(struct run *run, uint32_t first, uint32_t count, uint32_t tier);
void run_prefetch(struct run *run, uint32_t first, uint32_t count, uint32_t tier);

/* run_get - read the keys; what comes must be whole (any version: the checker knows which). */
void run_get(struct run *run, uint32_t first, uint32_t count);

/* run_fail - print and end the program. */
void run_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The table of workloads (crash_workloads.c); ends with a NULL name. */
extern const struct workload workload_table[];

#endif /* KVT_TESTS_CRASH_RUN_H */
