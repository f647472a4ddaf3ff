/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtier_unstable.h - inspection for tools and tests, stores in a world of the caller's making, and
 * streams that wait for gets which have not begun. May change in any release.
 */
#ifndef KVTIER_UNSTABLE_H
#define KVTIER_UNSTABLE_H

#include "kvtier/explaining.h"
#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Time, memory, threads, files, io and devices as a store reaches them: base/env.h of the source
 * tree that the library was built from. It is not installed. */
struct kvt_env;

/*
 * kvt_env_host - the world that kvt_open() uses; change of it what shall be different.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_API void kvt_env_host(struct kvt_env *env_out);

/*
 * kvt_open_env - kvt_open() in the world `env`. The index stays a file of this machine (LMDB opens
 * it by itself), so `env` must find the same files at `path`.
 *
 * KVT_E_INVAL: `env` is NULL. The rest as kvt_open().
 * Threads: any. Ownership: borrows `env` (copied; the contexts that it names are kept until
 * kvt_close()). Blocks: as kvt_open().
 */
KVT_CHECKED enum kvt_status kvt_open_env(const char *path, const struct kvt_options *options,
    const struct kvt_env *env, kvt_store **store_out);

/* One thing that kvt_check() found. */
struct kvt_finding {
    const char *kind; /* "store", "names", "index", "record", "file", "header", "payload". */
    const char *text; /* What is wrong, where, and what to do. */
    uint32_t segment; /* UINT32_MAX when it has no place. */
    uint32_t page;
};

struct kvt_check_report {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t block_count;   /* Durable blocks that were checked. */
    uint64_t block_bytes;   /* Payload bytes that were read. */
    uint64_t damaged_count; /* Blocks that cannot be served. */
    uint64_t finding_count; /* Everything that was reported. */
};

/*
 * kvt_list - each durable block of a closed store (of one namespace; NULL: of all), in the order in
 * which they lie, until `visit` returns non-zero. Nothing is loaded: the first one comes at once.
 *
 * KVT_NOT_READY: it was not closed in order, or is damaged: open it, and use kvt_scan().
 * KVT_E_INVAL: a NULL, or no such namespace. KVT_MISS: no store. KVT_E_LOCKED, KVT_E_CORRUPT (also:
 * the index is damaged behind the blocks that were shown), KVT_E_FORMAT, KVT_E_IO, KVT_E_NOMEM as
 * kvt_open().
 * Threads: any. Ownership: borrows. Blocks: yes; nobody can open the store meanwhile.
 */
KVT_CHECKED enum kvt_status kvt_list(const char *path, const char *namespace_name,
    int (*visit)(void *context, const struct kvt_scan_entry *entry, const char *name),
    void *context);

/* Whom an examination tells. Both functions may be NULL. */
struct kvt_examiner {
    void (*found)(void *context, const struct kvt_finding *finding);
    /* Bytes of payload done and in all; returns 0 to give up (KVT_CANCELLED). */
    int (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
};

/*
 * kvt_check - examine a closed store without changing it: both copies of STORE and NAMES, LMDB
 * pages, records, segment facts, batch headers, and every payload's checksum.
 *
 * KVT_OK: the report is written, whatever it says. KVT_E_CORRUPT: the store cannot be opened, the
 * findings say why. KVT_CANCELLED. Other errors as kvt_open(). `examiner` may be NULL.
 * Takes 96 to 768 MiB of host memory, by block_bytes_max, and what an open takes for each block.
 * Threads: any. Ownership: borrows. Blocks: for reading every block.
 */
KVT_CHECKED enum kvt_status kvt_check(
    const char *path, const struct kvt_examiner *examiner, struct kvt_check_report *report_out);

/*
 * kvt_scrub - read every durable block of a store that is open for reading only (of the namespace
 * `only`; {0}: of all) as a get does, many at a time, and report those that cannot be served. One
 * whose place a put into memory takes meanwhile is passed over.
 *
 * KVT_E_STATE: it is open for writing: blocks that come and go would look damaged. KVT_E_NOMEM,
 * KVT_CANCELLED, and what a get may be answered.
 * Threads: any. Ownership: borrows. Blocks: for reading every block.
 */
KVT_CHECKED enum kvt_status kvt_scrub(kvt_store *store, kvt_namespace only,
    const struct kvt_examiner *examiner, struct kvt_check_report *report_out);

enum kvt_dump_kind {
    KVT_DUMP_SEGMENTS,
    KVT_DUMP_RECORDS, /* Of the index: blocks that are there. */
    KVT_DUMP_BATCHES, /* Batch headers. */
    KVT_DUMP_EXTENTS, /* What the batch headers say lies where, dead or alive. */
};

/*
 * kvt_dump - print a closed store's inside, one JSON object a line, to `line`, until it returns
 * non-zero; of one segment, or of all (UINT32_MAX).
 *
 * KVT_E_INVAL: a NULL, no such kind or segment. Other errors as kvt_open(). Memory as kvt_check().
 * Threads: any. Ownership: borrows. Blocks: yes.
 */
KVT_CHECKED enum kvt_status kvt_dump(const char *path, enum kvt_dump_kind kind, uint32_t segment,
    int (*line)(void *context, const char *json), void *context);

/*
 * kvt_machine_json - what this machine and this build offer, as one JSON object: io engine and why,
 * devices and why, of each GPU which runs a kernel copies (measured now: KVT_OPEN_COPY_ENGINES),
 * codecs, versions of the libraries; of the folder `path` (may be NULL) its free space, and, when
 * it has a store, how direct transfers are done there.
 *
 * KVT_E_INVAL: a NULL, or `size` is too small (4096 is enough): `target` then has what fits.
 * Threads: any. Ownership: borrows. Blocks: briefly; half a second for each GPU.
 */
KVT_CHECKED enum kvt_status kvt_machine_json(const char *path, char *target, size_t size);

/* kvt_caps_json - facts of the machine as the store found them, as one JSON object. KVT_E_INVAL as
 * kvt_machine_json(). Threads: any. Ownership: borrows `target`. Blocks: never. */
KVT_CHECKED enum kvt_status kvt_caps_json(kvt_store *store, char *target, size_t size);

/* What the caller said of a block when it was put (struct kvt_put). */
struct kvt_block_facts {
    uint8_t is_there;   /* 0: there is no such block, and the rest is 0. */
    uint8_t has_parent; /* It was given, and is there. */
    uint8_t parent_is_hashed;
    uint8_t hint;
    uint16_t parent_component;
    uint16_t class_id;
    uint32_t parent_length;
    uint32_t depth;
    uint32_t token_start;
    uint32_t token_count;
    uint32_t recompute_us;
    uint32_t importance;
    uint8_t parent[64];
};

/*
 * kvt_block_facts_get - of `count` blocks that kvt_scan() gave.
 * KVT_E_INVAL. Threads: any. Ownership: borrows. Blocks: briefly.
 */
KVT_CHECKED enum kvt_status kvt_block_facts_get(kvt_store *store,
    const struct kvt_scan_entry *entries, uint32_t count, struct kvt_block_facts *facts_out);

/*
 * kvt_namespace_description - what the namespace was opened with (at most 4096 bytes).
 * KVT_E_INVAL: no such namespace, or `size` is too small.
 * Threads: any. Ownership: borrows. Blocks: while NAMES is written.
 */
KVT_CHECKED enum kvt_status kvt_namespace_description(
    kvt_store *store, kvt_namespace ns, void *target, size_t size, size_t *length_out);

#define KVT_LIVE_LEASES_MAX 256u

/* What is under way in an owner: indexes of kvt_live.work. */
enum kvt_live_work {
    KVT_LIVE_TICKETS, /* Submitted, their last stage not reached or not freed. */
    KVT_LIVE_FILLS,   /* Puts being copied in. */
    KVT_LIVE_READS,   /* Reads of NVMe. */
    KVT_LIVE_COPIES,  /* Copies out of HOST. */
    KVT_LIVE_IMAGES,  /* Blocks made ready for NVMe. */
    KVT_LIVE_MOVES,   /* Jobs of devices. */
    KVT_LIVE_WORKS,
};

/* A lease that is out: its first block, and how many more. */
struct kvt_live_lease {
    uint64_t age_ns;
    kvt_namespace ns;
    uint32_t block_count;
    uint16_t component;
    uint8_t tiers; /* enum kvt_tiers, of the first block when the lease was taken. */
    uint8_t is_hashed;
    uint32_t key_length; /* Of the whole key; `key` has its first bytes. */
    uint8_t key[32];
    char namespace_name[96]; /* Cut. */
};

/* What the owner of an open store shows, at most a second old unless nothing happens. */
struct kvt_live {
    uint32_t struct_size;
    uint32_t pid;
    uint64_t start_time; /* Tells processes of one pid apart. */
    char program[64];
    char version[16];        /* Of its library. */
    uint64_t sequence;       /* How often the owner wrote. */
    uint64_t age_ns;         /* Since it wrote this. */
    uint64_t opened_wall_ns; /* Since 1970. */
    uint32_t health;         /* enum kvt_health_flags */
    uint32_t is_stale;       /* No such process is to be seen: it is gone and left this behind, or
                              * lives in another container or machine, or /proc hides it. Who asks
                              * must know more (is DIR/LOCK locked?) before it takes it for gone. */
    struct kvt_stats stats;
    struct kvt_options options; /* In force; without its pointers. */
    uint64_t work[KVT_LIVE_WORKS];
    uint64_t lease_count;
    uint64_t lease_seen_count; /* What the sums below were made of: the last walk over all, which
                                * takes several pages where there are thousands. */
    uint64_t lease_oldest_ns;  /* Age. */
    uint64_t leased_hbm_bytes, leased_host_bytes, leased_nvme_bytes;
    uint32_t lease_shown_count;
    uint32_t reserved0;
    struct kvt_live_lease leases[KVT_LIVE_LEASES_MAX];
};

/*
 * kvt_live_read - what the process that has the store in `path` open shows of itself, without
 * disturbing it. live_out->struct_size must be sizeof(struct kvt_live).
 *
 * KVT_MISS       nothing is shown: no store, nobody has it open, or only for reading.
 * KVT_E_CORRUPT  what is there is no such page. KVT_E_FORMAT: of a version that is not known here.
 * KVT_E_INVAL, KVT_E_NOMEM, KVT_E_IO, KVT_E_PERMISSION  see kvt_last_error().
 * Threads: any. Ownership: borrows. Blocks: to read a small file.
 */
KVT_CHECKED enum kvt_status kvt_live_read(const char *path, struct kvt_live *live_out);

/*
 * kvt_why_read - kvt_why() of a store that a process has open, as its owner wrote it last (each
 * minute), without disturbing it. Where blocks are is not known: why_out->tiers is 0, and
 * why_out->other none, and a block may be there, with a fate or without. *written_seconds_out:
 * when that was, since 1970; 0: nothing that can be read was written.
 *
 * KVT_MISS: no store, or no such namespace in it. KVT_E_INVAL: a NULL, a struct_size, a key's
 * bound.
 * Other errors as kvt_open().
 * Threads: any. Ownership: borrows. Blocks: to read a file of a megabyte.
 */
KVT_CHECKED enum kvt_status kvt_why_read(const char *path, const char *namespace_name,
    const struct kvt_key *key, struct kvt_explanation *why_out, uint64_t *written_seconds_out);

/*
 * Memory of a device of the store, for programs that are to run with and without a GPU: taken and
 * given back before the store is closed, written and read by copies that wait. An address may be
 * put into a region. Host memory that lies in a region of 1 GiB or less is copied as a whole; other
 * host memory goes through slots of HOST, which is slow.
 *
 * kvt_device_alloc - `size` bytes of the device.
 *
 * KVT_E_INVAL: no such device, a NULL. KVT_E_NOMEM. KVT_E_GPU: the device is lost.
 * Threads: any. Ownership: gives *address_out, see kvt_device_free(). Blocks: in the driver.
 *
 * kvt_device_free - give them back, `size` as taken.
 *
 * Threads: any. Ownership: takes `address`. Blocks: in the driver, for all streams of the device.
 *
 * kvt_device_write - copy to the device; kvt_device_read() copies from it.
 *
 * KVT_E_INVAL: no such device, a NULL. KVT_E_NOSPC: no slot of HOST to go through. KVT_E_NOMEM.
 * KVT_E_GPU: the device is lost.
 * Threads: any. Ownership: borrows. Blocks: until the bytes are there.
 *
 * kvt_device_read - as kvt_device_write(), from the device.
 *
 * KVT_E_INVAL, KVT_E_NOSPC, KVT_E_NOMEM, KVT_E_GPU as kvt_device_write().
 * Threads: any. Ownership: borrows. Blocks: until the bytes are there.
 */
KVT_CHECKED enum kvt_status kvt_device_alloc(
    kvt_store *store, uint32_t device, uint64_t size, void **address_out);
KVT_API void kvt_device_free(kvt_store *store, uint32_t device, void *address, uint64_t size);
KVT_CHECKED enum kvt_status kvt_device_write(
    kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size);
KVT_CHECKED enum kvt_status kvt_device_read(
    kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size);

/* A stream of the caller that waits for the gets of a ticket, and what came of each of them. */
typedef struct kvt_hold kvt_hold;

#define KVT_HOLDS_MAX 256u /* Of a store: those that are out, or whose streams have not passed. */

/*
 * kvt_hold_submit - work that is submitted to `stream` from now on waits, on the device, until
 * every get of the ticket is settled (its bytes are in place, or it has failed), or `deadline_ns`
 * (0: none) has passed, whichever is first. The host does not wait: where kvt_ticket_stream_wait()
 * says KVT_NOT_READY, because blocks are still to be read, kernels can be launched behind this at
 * once. They MUST look at kvt_hold_statuses() before they use a destination.
 *
 * Whatever ends the gets ends the wait: kvt_ticket_cancel(), a lost device; so does kvt_abort().
 * kvt_ticket_free() changes nothing. Of a ticket that is done already nobody waits. Several holds
 * may be of one ticket, on one stream or many.
 *
 * What the gets themselves need may not stand behind the wait: then only the deadline, or a cancel,
 * ends it. So give one where any of this is possible:
 * - submit->wait_event of this ticket recorded there; leases that keep HOST full until the stream
 *   has passed.
 * - cudaFree(), cudaFreeHost() and cudaHostUnregister(), by anybody in the process: they wait for
 *   the device, and every copy of the store waits for them (seen on an H200, driver 580, and an
 *   H100; cudaMalloc(), cudaHostAlloc(), cudaHostRegister(), cudaEventDestroy(),
 *   cudaDeviceSynchronize(), copies of pageable memory and work on the default stream let it copy).
 *   These calls make them: kvt_region_unregister() of host memory, kvt_device_free(),
 *   kvt_load_release() and kvt_load_close() of memory of the load's own,
 *   kvt_engram_close() of a table with pinned rows or a cache on a device,
 *   kvt_shared_event_close(), kvt_import_close(). Make none of them while a stream waits.
 * - more streams that wait at once than the hardware has queues (CUDA_DEVICE_MAX_CONNECTIONS, 8
 *   unless the environment says otherwise; 4 were fine there, 32 were not): copies may stand behind
 *   them. The store's own streams have the greatest priority, which keeps them apart from few.
 * CUDA does not know what the stream waits for: a call that waits for it, cudaDeviceSynchronize()
 * say, ends when the gets do.
 *
 * KVT_E_INVAL: NULL, not a ticket of gets, no such device, the default stream (NULL), a stream that
 * is being captured, cudaStreamPerThread (the stream is kept, and in the thread that frees the hold
 * that may be another one). KVT_E_NOSPC: KVT_HOLDS_MAX, or no room for so many statuses (1 MiB for
 * those of all holds): free some. KVT_E_UNSUPPORTED: the device or its driver cannot wait so.
 * KVT_E_GPU: the device is lost. KVT_E_NOMEM. With any of them no stream waits.
 * Threads: any. Ownership: keeps `stream`, a cudaStream_t of the device, until kvt_hold_free();
 * gives *hold_out; the ticket stays the caller's, who may free it. Blocks: never, but for the
 * driver. Completion: KVT_OK -> the statuses are written exactly once, and then the stream goes on.
 * Otherwise never.
 */
KVT_CHECKED enum kvt_status kvt_hold_submit(
    kvt_ticket *ticket, uint32_t device, void *stream, uint64_t deadline_ns, kvt_hold **hold_out);

/*
 * kvt_hold_statuses - one for each get, in the order of submission (enum kvt_status), at an address
 * that host and device share. They are written before the stream goes on, and then never again.
 *
 * KVT_OK: the block is in place. KVT_LATE: the deadline came first: the destination may be written
 * until the ticket is done, and this stays. KVT_CANCELLED: by kvt_ticket_cancel(); or by
 * kvt_abort(), until whose end the destination may be written. Others as kvt_ticket_results(): the
 * destination counts as not written. The host, which nothing holds back, may find KVT_NOT_READY
 * before.
 *
 * NULL gives NULL; so does a forked child, which has no such memory.
 * Threads: any. Ownership: the hold's, as long as its stream needs them (kvt_hold_free()). Blocks:
 * never.
 */
KVT_API const int32_t *kvt_hold_statuses(const kvt_hold *hold);

/*
 * kvt_hold_free - the caller submits no more work that reads the statuses. It may be called right
 * behind the launches: the stream goes on waiting as it was told to, and the memory is used again
 * when the work that was submitted to the stream before this call has been done. NULL does nothing.
 *
 * Until then, at the latest, the stream must not be destroyed. A hold that was not freed keeps the
 * store open (kvt_close() is KVT_E_STATE); for one that was, a close waits as for its tickets.
 * kvt_abort() frees all: it releases the streams first, and returns when they have done what was
 * submitted to them.
 *
 * KVT_E_GPU: the device is lost, and so is its work: the hold was freed. KVT_E_INVAL: it was freed
 * before; the stream is being captured now, or was destroyed (then only kvt_abort() frees the
 * hold). KVT_E_NOMEM. With the last two nothing has changed.
 * Threads: any. Ownership: takes `hold` when KVT_OK or KVT_E_GPU. Blocks: never, but for the
 * driver.
 */
KVT_API enum kvt_status kvt_hold_free(kvt_hold *hold);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_UNSTABLE_H */
