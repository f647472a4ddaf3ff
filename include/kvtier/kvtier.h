/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtier.h - the public interface of kvtier, a tiered store for transformer KV blocks.
 *
 * A block is an immutable run of bytes named by its namespace, key and component. A tier is a place
 * where copies of blocks live: memory of a device (HBM), pinned host memory (HOST) or files (NVME).
 * A lease is the right to read blocks at one address until it is released. Nothing else is
 * promised: a block without a lease may be demoted, dropped or found damaged at any time, and then
 * the answer is KVT_MISS, never wrong bytes. What a SYNC put acknowledged survives a crash until it
 * is evicted or deleted.
 *
 * Rules that hold for every function here, unless its own comment says otherwise:
 *
 *   Errors     Functions return enum kvt_status. On an error no out-parameter is written, apart
 *              from handles, which are set to NULL. kvt_last_error() has a sentence.
 *   Threads    "any" may be called from every thread at once. "serial" may move between threads,
 *              one caller at a time. A call needs up to 64 KiB of stack, drivers apart.
 *   Ownership  "borrows": we read it during the call only. "keeps": it must outlive what is named.
 *              "gives": the caller must hand it back with the named function, exactly once.
 *              "takes": it is ours from the moment of the call.
 *   Units      Sizes and offsets are bytes. Times are nanoseconds of CLOCK_MONOTONIC.
 *   Limits     Every queue, table and wait has an upper bound that an option sets.
 *   Fork       A store belongs to the process that opened it. In a forked child every call with its
 *              handles returns KVT_E_STATE and kvt_close() only forgets them.
 *   State      After a broken invariant every call is KVT_E_POISONED, but those without status,
 *              kvt_health(), kvt_queue_destroy(), kvt_engram_close(), those of an import, and
 *              kvt_close(), which ends all use of memory.
 */
#ifndef KVTIER_H
#define KVTIER_H

#include <stddef.h>
#include <stdint.h>

#include "kvtier/stats.h"
#include "kvtier/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_VERSION_MAJOR 0
#define KVT_VERSION_MINOR 1
#define KVT_VERSION_PATCH 0

/* --- 1. Handles and limits -------------------------------------------------------------------- */

typedef struct kvt_store kvt_store;
typedef struct kvt_queue kvt_queue;
typedef struct kvt_ticket kvt_ticket;

/* A namespace of one store; id 0 is none. */
typedef struct kvt_namespace {
    uint32_t id;
} kvt_namespace;

/* Memory of the caller that copies go to and come from directly; id 0: ordinary host memory. */
typedef struct kvt_region {
    uint32_t id;
} kvt_region;

/* How blocks are spread over memory of the caller (layouts.h); id 0 is none. */
typedef struct kvt_layout {
    uint32_t id;
} kvt_layout;

/* A slot number and a generation in one integer; id 0 is no lease. Copying the value does not copy
 * the right: there is one release per lease. */
typedef struct kvt_lease {
    uint64_t id;
} kvt_lease;

#define KVT_BLOCK_BYTES_MAX (UINT64_C(64) << 20) /* Larger things are split by the caller. */
#define KVT_KEY_BYTES_MAX 1048576u               /* Above 64 bytes a key is kept as its hash. */
#define KVT_BATCH_MAX 65536u                     /* Blocks in one call. */
#define KVT_CAPACITY_NONE UINT64_MAX             /* Switches a tier off. */
#define KVT_DEVICES_MAX 8u                       /* Devices of one store. */
#define KVT_REGIONS_MAX 4096u                    /* Regions registered at a time. */
#define KVT_FOREVER UINT64_MAX                   /* A time that never comes. */
#define KVT_PARTS_MAX 64u                        /* Parts of a block. */

/* --- 2. Options ------------------------------------------------------------------------------- */

enum kvt_open_flags {
    KVT_OPEN_EXISTING = 1,  /* Do not create: KVT_MISS when there is no store. */
    KVT_OPEN_READ_ONLY = 2, /* Nothing on disk is changed. Implies KVT_OPEN_EXISTING. */
    KVT_OPEN_REBUILD = 4,   /* Rebuild the index, even a whole one, from what can be read. */
    /* Leave the processors of devices alone: their copy engines do all copies to and from the host.
     * Without it short scattered runs are copied by a kernel of at most 8 thread blocks, several
     * times faster, which has to wait behind other work and takes room from it. */
    KVT_OPEN_COPY_ENGINES = 8,
    /* Take HBM as memory that other processes can map: sharing.h. KVT_E_UNSUPPORTED where a device
     * has none such, KVT_E_INVAL without an HBM tier. */
    KVT_OPEN_SHARE_HBM = 16,
};

enum kvt_io_engine {
    KVT_IO_AUTO = 0, /* io_uring where the kernel allows it, else threads. */
    KVT_IO_URING = 1,
    KVT_IO_THREADS = 2,
};

/* Which block leaves a full tier in memory first: after its children, unless HOST has no other. */
enum kvt_policy {
    KVT_POLICY_DEFAULT = 0, /* The library's choice: KVT_POLICY_GHI in this version. */
    KVT_POLICY_LRU = 1,     /* The least recently used. */
    KVT_POLICY_S3FIFO = 2,  /* S3-FIFO: what is used once leaves soon, and in its own order. */
    KVT_POLICY_GHI = 3,     /* What is least likely to come back soon: learned; heeds hints. */
};

enum kvt_device_kind {
    KVT_DEVICE_AUTO = 0, /* CUDA, if this build and a usable device have it; else EMULATION. */
    KVT_DEVICE_CUDA = 1,
    KVT_DEVICE_EMULATION = 2, /* Ordinary memory that behaves like a GPU's: for machines without. */
};

enum kvt_log_level {
    KVT_LOG_ERROR = 0,
    KVT_LOG_WARN = 1,
    KVT_LOG_INFO = 2,
    KVT_LOG_DEBUG = 3
};

/*
 * How to open a store. Start from KVT_OPTIONS_INIT and set what you need; zero always means "the
 * default". Fields are only ever appended: a library newer than the caller takes the missing ones
 * as zero; an older one accepts a longer struct when the rest is zero, else KVT_E_UNSUPPORTED.
 */
struct kvt_options {
    uint32_t struct_size; /* sizeof(struct kvt_options) in the caller's build. */
    uint32_t flags;       /* enum kvt_open_flags */

    uint64_t host_capacity_bytes; /* HOST tier, in whole 2 MiB: from the power of two that holds
                                   * block_bytes_max to 2 MiB below 16 TiB. Default 1 GiB. Taken
                                   * once, at open. It stages reads and writes: never NONE. */
    uint64_t nvme_capacity_bytes; /* NVME tier, all roots together: 8..2^24 segments a root.
                                   * Default: as it is; 8 GiB for a new one. More makes the store
                                   * larger for good, if the disk has room; less is refused.
                                   * KVT_CAPACITY_NONE: no NVMe, for a store that has none. */
    uint64_t segment_bytes;       /* New stores only: a power of two, 1 MiB..1 GiB, at least 4 x
                                   * block_bytes_max. Default: 256 MiB, less for small stores. */
    uint64_t block_bytes_max;     /* New stores only: 4 KiB..64 MiB. Default: a quarter of the
                                   * segment, at most 64 MiB, and what HBM holds. */
    uint64_t index_map_bytes;     /* Of a new LMDB file: 1 MiB..16 TiB. Default: by capacity. */
    uint64_t entry_count_max;     /* Blocks in the map: 1..2^31. Default 2^27 (memory is taken as
                                   * needed). In a full one a block leaves all tiers for another,
                                   * or for what replaces one that is leased. More blocks that
                                   * an open finds stay until others come. Of keys of 1..16 bytes,
                                   * 17..32, 33..48, 49..64: 2^30 each. */

    const char *const *roots; /* New stores only: directories, one per device, for the data files,
                               * without any yet, from `/`: ..399 bytes. Default: `path`/data. */
    uint32_t root_count;      /* 0..8 */
    uint32_t io_engine;       /* enum kvt_io_engine */

    uint32_t worker_count;      /* 1..64. Default 2. */
    uint32_t request_count_max; /* Tickets not freed, or not ended: 16..65536. Default 4096. */
    uint32_t lease_count_max;   /* 1..2^20. Default 4096. */
    uint32_t host_high_percent; /* Eviction begins there: 1..100. Default 95. */
    uint32_t host_low_percent;  /* It ends there: 1..host_high_percent. Default: 5 below it. */
    uint32_t nvme_high_percent; /* Reclaim starts when NVME is so full: 10..100. Default 97. */
    uint64_t dirty_bytes_max;   /* Of HOST, waiting for NVMe, durable puts apart. Default: half. */
    uint64_t relaxed_interval_ns; /* RELAXED puts are durable after so long, ..1 h. Default 1 s. */
    uint64_t batch_delay_ns;      /* Longest wait for a fuller batch, ..1 s. Default 2 ms. */

    /* Called from any thread, one line a call; must not call back into the store. NULL: silent. */
    void (*log)(void *context, int level, const char *module, const char *line);
    void *log_context;
    uint32_t log_level; /* enum kvt_log_level; lines above it are not made. Default: errors only. */
    uint32_t policy;    /* enum kvt_policy */

    /* HBM tier of each device, in whole 2 MiB: from the power of two that holds block_bytes_max to
     * 2 TiB, taken once, at open. Default and KVT_CAPACITY_NONE: no HBM tier. */
    uint64_t hbm_capacity_bytes;
    uint32_t device_kind; /* enum kvt_device_kind; read back: which it is. */
    uint32_t device_mask; /* Bit i: device i (0..7) is used. Default: device 0, and none when
                                  * there is no HBM tier. Without an HBM tier the devices serve
                                  * regions; nothing touches a device that is not named here. */

    uint64_t pin_bytes_max; /* Blocks that kvt_pin() may keep: 4 KiB..host_capacity_bytes. Default:
                             * a quarter of HOST, or of NVMe when that is smaller. While more than
                             * half of NVMe is pinned, new blocks may find no room there. */
    uint32_t event_count_max; /* For kvt_events_read(): 64..2^20, the next power of two. Default:
                               * none, and nothing is noted. */
    uint32_t reserved0;       /* Must be zero. */
    uint64_t nvme_write_bytes_per_second; /* Demoted by KVT_POLICY_GHI. Default: no limit. */
    uint64_t engram_capacity_bytes; /* Files of Engram tables, all together; what is above is not
                                     * imported. Default: no bound but the disk's. */
};

/* Without a designator, which C++ has from C++20 on only. */
#define KVT_OPTIONS_INIT                                                                           \
    {                                                                                              \
        sizeof(struct kvt_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                           \
    }

/* --- 3. Life ---------------------------------------------------------------------------------- */

/*
 * kvt_open - open or create the store in directory `path` (whose parent must exist).
 *
 * Takes the HOST tier's memory, recovers after a crash, rebuilds a damaged index from the segments;
 * blocks that cannot be proved whole are dropped and counted. `options` NULL: all defaults. Only
 * KVT_OPEN_REBUILD gives up what cannot be read, else KVT_E_IO. A failed creation leaves no store.
 *
 * KVT_MISS           KVT_OPEN_EXISTING and there is no store at `path`.
 * KVT_E_INVAL        an argument or option breaks its bound, `path` has other things in it and no
 *                    store, its parent is missing, or a root is another store's or another root's.
 * KVT_E_LOCKED       another process, or another handle of this one, has the store open; or a root
 *                    was in use half a minute: by another store, or by writes of a killed owner.
 * KVT_E_FORMAT       a version or feature that this build does not read (or not write).
 * KVT_E_CORRUPT      both copies of STORE, or of NAMES, are damaged; KVT_OPEN_READ_ONLY, and the
 *                    index would have to be rebuilt.
 * KVT_E_NOSPC        the disk has no room for the capacity that was asked for, or for the index.
 * KVT_E_UNSUPPORTED  the io engine that was asked for is denied here; there is no such device;
 *                    `path` is on a network file system; unknown options.
 * KVT_E_GPU, KVT_E_NOMEM, KVT_E_BUSY, KVT_E_IO, KVT_E_META, KVT_E_PERMISSION, KVT_E_READONLY
 *                    see kvt_last_error().
 *
 * Threads: any. Ownership: borrows `path` and `options`; gives *store_out, see kvt_close().
 * Blocks: yes, for recovery, in proportion to the number of blocks.
 */
KVT_CHECKED enum kvt_status kvt_open(
    const char *path, const struct kvt_options *options, kvt_store **store_out);

/*
 * kvt_close - finish what was submitted, make durable what shall be, mark the store clean, free it.
 *
 * NULL does nothing. With leases, reservations, tickets, queues, holds, loads, Engram tables or
 * shared events out it returns KVT_E_STATE and changes nothing; give them back first, or call
 * kvt_abort(). Other errors are reported, and the store is closed all the same: KVT_E_IO when
 * something could not be made durable and no kvt_flush() has said so, or that of the last write;
 * not clean, when what failed may still be on the disk.
 * Threads: serial; no other call may be running. Ownership: takes `store` unless KVT_E_STATE.
 * Blocks: yes.
 */
KVT_CHECKED enum kvt_status kvt_close(kvt_store *store);

/*
 * kvt_abort - free everything now; NULL does nothing. What was not durable is lost; the next open
 * recovers as after a crash. All that the store gave and kvt_close() asks for is void.
 * Threads: serial; no other call may be running. Ownership: takes `store`. Blocks: until the
 * transfers in flight have ended.
 */
KVT_API void kvt_abort(kvt_store *store);

/*
 * kvt_flush - make every RELAXED and SYNC put and every delete that was submitted before durable:
 * their tickets have reached the last stage. KVT_E_IO, KVT_E_META: some could not be (an error at
 * stage 2, of what stage 1 did not refuse) since a flush last said so, or the open. The first flush
 * that ends after a failure tells it, with those that wait at the same time, and later ones do not.
 * Threads: any. Ownership: nothing changes hands. Blocks: yes; also for tickets that wait for an
 * event, and for puts that wait for room, as long as leases hold that: release them elsewhere.
 */
KVT_CHECKED enum kvt_status kvt_flush(kvt_store *store);

/*
 * kvt_options_get - the options in force, every default resolved. `options_out->struct_size` says
 * how much to fill. Pointers in it (roots, log) belong to the store.
 * Threads: any. Ownership: borrows `options_out`. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_options_get(kvt_store *store, struct kvt_options *options_out);

/*
 * kvt_stats_get - all counters, gauges and latencies; stats_out->struct_size says how much to fill.
 * Threads: any. Ownership: borrows `stats_out`. Blocks: briefly, until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_stats_get(kvt_store *store, struct kvt_stats *stats_out);

enum kvt_health_flags {
    KVT_HEALTH_META_READONLY = 1, /* No more commits: one failed, or the open has 2^40 records. */
    KVT_HEALTH_ROOT_READONLY = 2, /* No root takes writes any more, after repeated failures. */
    KVT_HEALTH_GPU_LOST = 4,      /* A device failed for good: its HBM copies are gone. */
    KVT_HEALTH_READ_ONLY = 8,     /* Opened so. */
    KVT_HEALTH_POISONED = 16,
    KVT_HEALTH_IO_THREADS = 32,      /* The thread pool serves io (io_uring denied or not asked). */
    KVT_HEALTH_DEVICE_EMULATED = 64, /* The devices are emulated (no GPU, or asked). */
};

/*
 * kvt_health - *flags_out: enum kvt_health_flags; 0: well. Threads: any. Ownership: borrows.
 * Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_health(kvt_store *store, uint32_t *flags_out);

/* What went wrong last on the calling thread. The strings last until its next call into kvtier. */
struct kvt_error {
    enum kvt_status status;
    int foreign_code; /* errno or the code of the library below; 0: none. */
    const char *text; /* One sentence; "" when nothing went wrong yet. */
};

/* kvt_last_error - the calling thread's last failure. Never fails.
 * Threads: any. Ownership: borrows `error_out`. Blocks: never. */
KVT_API void kvt_last_error(struct kvt_error *error_out);

/* kvt_version - "0.1.0". Static.
 * Threads: any. Ownership: nothing changes hands. Blocks: never. */
KVT_API const char *kvt_version(void);

/* --- 4. Namespaces ---------------------------------------------------------------------------- */

/*
 * kvt_namespace_open - the namespace called `name`, made when missing.
 *
 * `description` (0..4096 bytes) is the fingerprint of everything that must agree for a block to be
 * usable: model, weights, dtype, layout, parallel rank, hash scheme, tenant salt. The same name and
 * description give the same namespace on every restart.
 *
 * KVT_E_INVAL    name is empty or longer than 255 bytes; a namespace of this name has another
 *                description.
 * KVT_MISS       the store is read-only and has no such namespace.
 * KVT_E_NOSPC    4096 namespaces exist, or the disk is full.
 * KVT_E_IO, KVT_E_READONLY, KVT_E_NOMEM  it could not be written.
 *
 * Threads: any. Ownership: borrows. Blocks: for the syncs of NAMES when it is new.
 */
KVT_CHECKED enum kvt_status kvt_namespace_open(kvt_store *store, const char *name,
    const void *description, size_t description_bytes, kvt_namespace *namespace_out);

/*
 * kvt_namespace_clear - every block of the namespace is gone, at once and for good; puts in flight
 * leave nothing. When it returns KVT_OK the clear has survived any crash.
 *
 * KVT_E_INVAL: no such namespace. KVT_E_READONLY, KVT_E_NOMEM: nothing was cleared. KVT_E_IO,
 * KVT_E_NOSPC (also after 2^32 - 2 clears of it): nothing is cleared; but when what the failed
 * write left cannot be undone, the store takes no more commits (KVT_HEALTH_META_READONLY), and a
 * later open may find the clear done. Threads: any. Ownership: nothing changes hands.
 * Blocks: for the syncs of NAMES and in proportion to the map.
 */
KVT_CHECKED enum kvt_status kvt_namespace_clear(kvt_store *store, kvt_namespace ns);

struct kvt_namespace_info {
    kvt_namespace ns;
    const char *name; /* Lives until the store is closed. */
    uint64_t block_count;
    uint64_t block_bytes; /* Payload bytes, each block once. */
};

/*
 * kvt_namespace_next - walk the namespaces: *cursor starts at 0. KVT_MISS at the end.
 * Threads: any. Ownership: borrows. Blocks: briefly.
 */
KVT_CHECKED enum kvt_status kvt_namespace_next(
    kvt_store *store, uint32_t *cursor, struct kvt_namespace_info *info_out);

/* --- 5. Look ---------------------------------------------------------------------------------- */

struct kvt_key {
    const void *bytes;
    uint32_t length;    /* 1..KVT_KEY_BYTES_MAX */
    uint16_t component; /* Which part of a cached unit (attention KV, indexer keys ...). */
    uint16_t reserved0; /* Must be zero. */
};

enum kvt_tiers {
    KVT_TIER_HBM = 1,
    KVT_TIER_HOST = 2,
    KVT_TIER_NVME = 4,
};

/*
 * kvt_lookup - which of `count` keys (a chain, first block first) are there, and where.
 *
 * tiers_out[i] (may be NULL) gets the tiers that hold a copy, 0 for a miss. *leading_out (may be
 * NULL) gets the number of hits before the first miss. With `lease_out` every block that was found
 * is pinned by one lease ({0}: none was): no copy goes or is reused until kvt_lease_release(), and
 * one in HOST has at most two addresses, both good. Such a lookup is what the policy counts as a
 * request (of many in a row not each). Memory only; blocks whose put is not visible are misses.
 *
 * KVT_E_INVAL: a NULL, a key's bound, no such namespace, count not in 1..KVT_BATCH_MAX.
 * KVT_E_NOSPC: lease_count_max. KVT_E_NOMEM: a lease of more than 64 keys.
 * Threads: any. Ownership: borrows; gives *lease_out. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_lookup(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, uint8_t *tiers_out, uint32_t *leading_out,
    kvt_lease *lease_out);

/*
 * kvt_lease_address - where the i-th key of the lookup lies in `tier` (KVT_TIER_HOST, or
 * KVT_TIER_HBM: an address of its device), and its length.
 *
 * KVT_MISS: it was not found, or has no copy there. KVT_E_INVAL: a stale lease, an index too
 * large, another tier. KVT_E_GPU: the device of the copy is lost.
 * Threads: any. Ownership: the address is good until the lease is released. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_lease_address(kvt_store *store, kvt_lease lease, uint32_t index,
    uint32_t tier, const void **address_out, uint64_t *length_out);

/*
 * kvt_lease_release - give a lease back. Nothing may be using its addresses any more.
 *
 * Id 0 does nothing. A stale id changes nothing and is counted (lease_stale_count).
 * Threads: any. Ownership: takes `lease`. Blocks: never.
 */
KVT_API void kvt_lease_release(kvt_store *store, kvt_lease lease);

/*
 * kvt_lease_release_after - as kvt_lease_release(), when the work that was queued on `stream` of
 * device `device` before this call has been done: kernels that read the lease's addresses, say.
 * From this call on the lease may not be used for new work.
 *
 * KVT_E_INVAL: a stale lease, no such device, the default stream (NULL), a stream that is being
 * captured: nothing changed. KVT_E_NOMEM. KVT_E_GPU: device and work are lost; it was released.
 * Threads: any. Ownership: takes `lease` when KVT_OK or KVT_E_GPU; `stream` is a cudaStream_t of
 * the device. Blocks: never, but for the driver.
 */
KVT_CHECKED enum kvt_status kvt_lease_release_after(
    kvt_store *store, kvt_lease lease, uint32_t device, void *stream);

/* --- 6. Tickets ------------------------------------------------------------------------------- */

enum kvt_stage {
    KVT_STAGE_DONE = 1, /* Put: visible, or refused; the source may be reused. Get, delete: all. */
    KVT_STAGE_DURABLE = 2, /* Put RELAXED and SYNC, delete: committed, or known not to be. */
};

/* One block's outcome. */
struct kvt_result {
    enum kvt_status status;
    uint32_t tier;   /* Get: enum kvt_tiers, where it came from. */
    uint64_t length; /* Get: payload bytes that were wanted: of KVT_OK and KVT_E_INVAL; else 0. */
};

/*
 * kvt_ticket_wait - wait, at most `timeout_ns`, until the ticket is at `stage` (enum kvt_stage).
 *
 * KVT_OK: reached (look at kvt_ticket_results() for each block). KVT_LATE: not yet. KVT_E_INVAL: a
 * stage that this ticket does not have. KVT_E_STATE: the submission named a queue (poll that).
 * Threads: any. Ownership: nothing changes hands. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_ticket_wait(
    kvt_ticket *ticket, uint32_t stage, uint64_t timeout_ns);

/*
 * kvt_ticket_results - outcomes in the order of submission. `stage` must have been reached:
 * else KVT_NOT_READY. `count` must be the submission's.
 *
 *   put, stage 1     KVT_OK visible, KVT_EXISTS nothing changed, KVT_E_NOSPC no room,
 *                    KVT_E_NOMEM, KVT_MISS its namespace was cleared meanwhile, KVT_E_GPU
 *   put, stage 2     KVT_OK committed, KVT_EXISTS was committed before, KVT_MISS evicted, deleted,
 *                    replaced or cleared before it could be, KVT_E_IO, KVT_E_META, KVT_E_NOSPC,
 *                    KVT_E_READONLY, KVT_E_NOMEM, KVT_E_GPU (HBM had it, and did not give it)
 *   get              KVT_OK, KVT_MISS, KVT_E_NOSPC (nowhere to read to), KVT_E_INVAL (capacity,
 *                    layout), KVT_E_NOMEM, KVT_E_GPU (the device of the destination, or of
 *                    submit->wait_event, is lost: it may be written until kvt_close())
 *   prefetch, demote as their functions say
 *   delete           KVT_OK, KVT_MISS was not there, KVT_E_NOMEM, KVT_E_GPU; stage 2 as a put's
 *   each             KVT_CANCELLED by kvt_ticket_cancel(), KVT_E_INVAL no such event; both stages
 *
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_ticket_results(
    kvt_ticket *ticket, uint32_t stage, struct kvt_result *results_out, uint32_t count);

/*
 * kvt_ticket_cancel - give up what the ticket has not begun.
 *
 * A block whose bytes do not move yet is answered with KVT_CANCELLED, soon, whatever it waits for:
 * submit->wait_event (even one that never comes), room, another request's copy, read or write of
 * the same block, the next of several moves of a prefetch or demote. Nothing came of its put or
 * delete; its destination was not written. What a prefetch or demote had started before goes on
 * without it. A block whose bytes move is answered as if nobody had asked, and so is stage 2 of a
 * put that is visible, or of a delete whose stage 1 was reached. Every stage is still reached (and
 * delivered) once. A ticket whose last stage was reached, or that was cancelled before, stays so.
 *
 * KVT_OK: it was asked for; the results say what came of it. KVT_E_INVAL: NULL.
 * Threads: any. Ownership: nothing changes hands. Blocks: never.
 */
KVT_API enum kvt_status kvt_ticket_cancel(kvt_ticket *ticket);

/*
 * kvt_ticket_free - forget a ticket. One that has not reached its last stage is freed when it has;
 * its completions are still delivered to its queue, with `ticket` NULL. NULL does nothing.
 * The memory that the submission named must stay valid until stage 1 all the same.
 * Threads: any. Ownership: takes `ticket`. Blocks: never.
 */
KVT_API void kvt_ticket_free(kvt_ticket *ticket);

/* Where a submission reports, and what it waits for. All zero: only through its ticket, nothing. */
struct kvt_submit {
    kvt_queue *queue; /* Of the same store; kept until the last completion. NULL: wait. */
    void *user;
    void *wait_event; /* Nothing of the submission begins before this event of wait_device (a
                           * cudaEvent_t, recorded before the call) is reached: what fills a source,
                           * or still reads a destination. Kept until stage 1. NULL: at once. */
    uint32_t wait_device;
    uint32_t reserved0; /* Must be zero. */
};

/* --- 7. Move ---------------------------------------------------------------------------------- */

enum kvt_durability {
    KVT_MEMORY = 0,  /* Visible in HBM or HOST; moves down when these need room. No stage 2. */
    KVT_RELAXED = 1, /* Durable within relaxed_interval_ns. */
    KVT_SYNC = 2,    /* Durable as soon as possible: wait for stage 2. */
};

enum kvt_put_flags {
    KVT_PUT_REPLACE = 1, /* A block that exists is replaced; else it stays and the put succeeds. */
};

struct kvt_run; /* layouts.h */

struct kvt_put {
    struct kvt_key key;
    const struct kvt_key *parent; /* Before it in its chain. None: NULL, not there, or behind it. */
    const void *source;           /* In `region` when that is given. */
    uint64_t length;              /* 1..block_bytes_max */
    kvt_region region;            /* Where the source lies; {0}: ordinary host memory. */
    uint32_t flags;               /* enum kvt_put_flags */
    uint32_t depth;               /* Blocks above it in its chain. */
    uint32_t token_start;         /* First token it covers. */
    uint32_t token_count;
    uint32_t recompute_us; /* Cost to compute it anew, microseconds; 0: unknown. */
    uint32_t importance;   /* The caller's weight; 0: none. */
    uint16_t class_id;     /* Opaque to kvtier; blocks of a class are expected to behave alike. */
    uint8_t hint;          /* 0..3, opaque: the policy learns what it is worth. */
    uint8_t tier;          /* Where it is kept first: KVT_TIER_HOST (0 too), or KVT_TIER_HBM: then
                            * the source lies in a region. */
    uint32_t device;       /* KVT_TIER_HBM: of which device. */
    uint16_t part_count;   /* Equal parts (layers, say) that can be read alone: 1..KVT_PARTS_MAX,
                            * length is a multiple of it. 0: 1. */
    uint16_t reserved0;    /* Must be zero. */
    kvt_layout layout;     /* How the source is spread; then `source` is NULL, `region` {0}. */
    uint32_t slot;         /* Of the layout. */
    const struct kvt_run *runs; /* Instead: as a layout of one slot, for this block alone. */
    uint32_t run_count;         /* 1..KVT_RUNS_MAX with `runs`. */
    uint32_t reserved1;         /* Must be zero. */
};

/*
 * kvt_put_submit - keep `count` blocks.
 *
 * Stage 1: each block is visible to lookups (or has its error), and `source` may be reused. Stage 2
 * (RELAXED, SYNC): each is committed, or has its error. A key that is there or in flight is a
 * success that changes nothing (KVT_EXISTS); it shares the first put's stage 2. Of two puts of one
 * key in one call the first wins, unless the second has KVT_PUT_REPLACE. A replace that is refused
 * leaves the block that was there, and so needs room beside it unless NVMe has that; one whose
 * device then fails to copy leaves neither.
 *
 * KVT_E_INVAL     a bound; the sentence names the block and the field. Nothing was submitted.
 * KVT_E_BUSY      request_count_max tickets are out.
 * KVT_E_UNSUPPORTED  RELAXED, SYNC, HBM: no such tier; to HBM from memory of another device; runs
 *                    of its own in memory of several devices, or of a device and the host.
 * KVT_E_NOMEM, KVT_E_STATE, KVT_E_READONLY (RELAXED and SYNC on a store that takes no commits).
 *
 * Threads: any. Ownership: borrows `puts` and keys; keeps the sources until stage 1; gives
 * *ticket_out. Blocks: never. Completion: KVT_OK -> each stage is reached exactly once (and
 * delivered to submit->queue exactly once). Otherwise never.
 */
KVT_CHECKED enum kvt_status kvt_put_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_put *puts, uint32_t count, enum kvt_durability durability,
    const struct kvt_submit *submit, kvt_ticket **ticket_out);

enum kvt_get_flags {
    KVT_GET_TRANSIENT = 1, /* Do not keep a copy in HOST for it. With a destination in host memory
                            * aligned to 4 KiB the bytes go straight there; on their way to a device
                            * they need a slot of HOST until they are there. */
    KVT_GET_BY_PART = 2,   /* Part after part of one put: readiness.h. Capacity: their length. */
};

struct kvt_get {
    struct kvt_key key;
    void *destination;
    uint64_t capacity;   /* 1.. At least what is wanted: else KVT_E_INVAL and the true length. */
    uint32_t flags;      /* enum kvt_get_flags */
    kvt_region region;   /* Where the destination lies; {0}: ordinary host memory. */
    uint16_t part_first; /* The first part that is wanted, from 0; 0 with part_count 0. */
    uint16_t part_count; /* How many; the destination gets them without gaps. 0: the whole block. */
    uint32_t reserved0;  /* Must be zero. */
    kvt_layout layout;   /* As of a put: then `destination` is NULL, `capacity` 0, `region` {0}. */
    uint32_t slot;       /* Parts are written to their own places in it, nothing else is. */
    const struct kvt_run *runs;
    uint32_t run_count;
    uint32_t reserved1; /* Must be zero. */
};

/*
 * kvt_get_submit - read `count` blocks, or parts of them.
 *
 * Of parts only, what is read from NVMe is their pages and those with the block's checksums, and no
 * copy in HOST stays, unless the destination is memory of a device. Parts that a block does not
 * have are KVT_E_INVAL in its result, with length 0.
 *
 * A destination whose result is KVT_OK holds the block's bytes, verified. With any other result it
 * counts as not written: a miss leaves it untouched, except that a TRANSIENT read straight into it
 * that turned out damaged, or failed, has scribbled there; so may a read of encoded parts. Bytes
 * behind the block's length up to a multiple of 4096 may be overwritten by a TRANSIENT read that
 * the capacity has room for. Blocks damaged, unreadable, or put anew many times are misses.
 *
 * KVT_E_INVAL (also: destinations overlap), KVT_E_UNSUPPORTED (runs of its own), KVT_E_BUSY,
 * KVT_E_NOMEM, KVT_E_STATE: kvt_put_submit().
 * Threads: any. Ownership: borrows `gets` and keys; keeps the destinations until stage 1; gives
 * *ticket_out. Blocks: never. Completion: as kvt_put_submit(), stage 1 only.
 */
KVT_CHECKED enum kvt_status kvt_get_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_get *gets, uint32_t count, const struct kvt_submit *submit,
    kvt_ticket **ticket_out);

/*
 * kvt_delete_submit - forget `count` blocks. Stage 1: no lookup finds them any more (leases stay
 * good). Stage 2: no crash brings them back; after a failure one may, until a later try is good. Of
 * what was not there: KVT_MISS, and behind stage 2 that or KVT_OK.
 * KVT_E_INVAL, KVT_E_BUSY, KVT_E_NOMEM, KVT_E_STATE, KVT_E_READONLY as kvt_put_submit().
 * Threads: any. Ownership: borrows `keys`; gives *ticket_out. Blocks: never.
 * Completion: as kvt_put_submit().
 */
KVT_CHECKED enum kvt_status kvt_delete_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, const struct kvt_submit *submit,
    kvt_ticket **ticket_out);

enum kvt_prefetch_flags {
    KVT_PREFETCH_BULK = 1, /* Its reads give way to those of gets; few are under way at a time. */
};

/* Where blocks shall be brought. Start from all zero but struct_size and tier. */
struct kvt_prefetch {
    uint32_t struct_size; /* sizeof(struct kvt_prefetch) */
    uint32_t tier;        /* KVT_TIER_HOST or KVT_TIER_HBM. */
    uint32_t device;      /* KVT_TIER_HBM: of which device. */
    uint32_t flags;       /* enum kvt_prefetch_flags */
    uint64_t deadline_ns; /* What has not come to its last move by then is not moved: KVT_LATE.
                           * CLOCK_MONOTONIC; 0: never. */
};

/*
 * kvt_prefetch_submit - bring `count` blocks up, so that a later lookup finds them there. Copies
 * below stay. Nothing keeps the copies from being evicted again but a lease.
 *
 * Results: KVT_OK it was moved, KVT_EXISTS it was there (or in HBM of another device: a block is in
 * that of one, and stays), KVT_MISS no block, unreadable, or put anew many times meanwhile,
 * KVT_LATE, KVT_E_NOSPC every slot there is leased or in use, or a copy there that somebody had
 * written over is held, KVT_E_NOMEM, KVT_E_GPU it is lost, or another one is whose copy is held.
 *
 * KVT_E_INVAL, KVT_E_BUSY, KVT_E_NOMEM, KVT_E_STATE as kvt_put_submit(). KVT_E_UNSUPPORTED: no HBM.
 * Threads: any. Ownership: borrows `keys` and `how`; gives *ticket_out. Blocks: never.
 * Completion: as kvt_put_submit(), stage 1 only.
 */
KVT_CHECKED enum kvt_status kvt_prefetch_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, const struct kvt_prefetch *how,
    const struct kvt_submit *submit, kvt_ticket **ticket_out);

/*
 * kvt_lookup_prefetch - kvt_lookup(), and kvt_prefetch_submit() of the hits before the first miss,
 * in the order of the chain: what a request will get soon is on its way when it is known. Gets that
 * come meanwhile wait for blocks that are being read, and read those themselves whose turn has not
 * come. With KVT_PREFETCH_BULK, as a scheduler's lookup should, no more than 16 MiB (or a quarter
 * of HOST) of all such prefetches are read at a time, behind the reads of gets.
 *
 * *ticket_out gets the prefetch, of *leading_out blocks; NULL: all of these are there or above, or
 * there are none, or all tickets are out, or memory is short (prefetch_skip_count): nothing is
 * brought, and the lookup is answered all the same. `ticket_out` may be NULL: nobody waits for it.
 *
 * KVT_E_INVAL, KVT_E_NOSPC, KVT_E_NOMEM as kvt_lookup(); KVT_E_INVAL, KVT_E_UNSUPPORTED and
 * KVT_E_STATE as kvt_prefetch_submit(): then nothing was looked up.
 * Threads: any. Ownership: borrows; gives *lease_out and *ticket_out. Blocks: never.
 * Completion: as kvt_prefetch_submit().
 */
KVT_CHECKED enum kvt_status kvt_lookup_prefetch(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, const struct kvt_prefetch *how, uint8_t *tiers_out,
    uint32_t *leading_out, kvt_lease *lease_out, kvt_ticket **ticket_out);

/*
 * kvt_demote_submit - give up the copies of `count` blocks above `tier` (KVT_TIER_HOST or
 * KVT_TIER_NVME), after a copy there, or below, has been made where there is none.
 *
 * Results: KVT_OK, KVT_MISS no block, or put anew many times, KVT_NOT_READY a lease, a get or
 * kvt_pin() holds copies above, KVT_E_NOSPC, KVT_E_NOMEM, KVT_E_IO no write, KVT_E_GPU: they stay.
 *
 * KVT_E_INVAL, KVT_E_BUSY, KVT_E_NOMEM, KVT_E_STATE, KVT_E_UNSUPPORTED, KVT_E_READONLY (NVMe) as
 * kvt_put_submit().
 * Threads: any. Ownership: borrows `keys`; gives *ticket_out. Blocks: never.
 * Completion: as kvt_put_submit(), stage 1 only.
 */
KVT_CHECKED enum kvt_status kvt_demote_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, uint32_t tier, const struct kvt_submit *submit,
    kvt_ticket **ticket_out);

#ifdef __cplusplus
}
#endif

/* The rest, by subject; each needs what is above. */
#include "kvtier/compression.h"
#include "kvtier/direct.h"
#include "kvtier/engram.h"
#include "kvtier/events.h"
#include "kvtier/hints.h"
#include "kvtier/layouts.h"
#include "kvtier/loading.h"
#include "kvtier/matching.h"
#include "kvtier/queues.h"
#include "kvtier/readiness.h"
#include "kvtier/regions.h"
#include "kvtier/scanning.h"
#include "kvtier/sharing.h"

#endif /* KVTIER_H */
