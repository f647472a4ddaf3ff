/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtier_unstable.h - inspection for tools and tests, and stores in a world of the caller's making.
 * May change in any release.
 */
#ifndef KVTIER_UNSTABLE_H
#define KVTIER_UNSTABLE_H

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
    const char *kind; /* "store", "index", "record", "payload". */
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
 * kvt_check - examine a closed store without changing it: STORE, NAMES, LMDB pages, records,
 * segment facts, and every payload's checksum. Batch headers count only in a rebuild: kvt_dump().
 *
 * `found` (may be NULL) gets each finding; `progress` (may be NULL) bytes done and bytes in all.
 * KVT_OK: the report is written, whatever it says. Errors as kvt_open() (a store whose STORE files
 * are both damaged is a finding and KVT_E_CORRUPT).
 * Threads: any. Ownership: borrows. Blocks: for reading every block.
 */
KVT_CHECKED enum kvt_status kvt_check(const char *path,
    void (*found)(void *context, const struct kvt_finding *finding),
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes), void *context,
    struct kvt_check_report *report_out);

enum kvt_dump_kind {
    KVT_DUMP_SEGMENTS,
    KVT_DUMP_RECORDS,
    KVT_DUMP_BATCHES
};

/*
 * kvt_dump - print a closed store's inside, one JSON object a line, to `line`, until it returns
 * non-zero. Errors as kvt_open().
 * Threads: any. Ownership: borrows. Blocks: yes.
 */
KVT_CHECKED enum kvt_status kvt_dump(const char *path, enum kvt_dump_kind kind,
    int (*line)(void *context, const char *json), void *context);

/* kvt_caps_json - facts of the machine as the store found them, as one JSON object.
 * Threads: any. Ownership: borrows `target`. Blocks: never. */
KVT_CHECKED enum kvt_status kvt_caps_json(kvt_store *store, char *target, size_t size);

/*
 * Memory of a device of the store, for programs that are to run with and without a GPU: taken and
 * given back (`size` as taken) before the store is closed, written and read by copies that wait.
 * An address may be put into a region. Host memory that lies in a region of 1 GiB or less is copied
 * as a whole; other host memory goes through slots of HOST, which is slow.
 *
 * KVT_E_INVAL: no such device, a NULL. KVT_E_NOMEM. KVT_E_NOSPC: no slot of HOST to go through.
 * KVT_E_GPU: the device is lost.
 * Threads: any. Ownership: kvt_device_alloc() gives *address_out, kvt_device_free() takes it.
 * Blocks: kvt_device_write() and _read() until the bytes are there.
 */
KVT_CHECKED enum kvt_status kvt_device_alloc(
    kvt_store *store, uint32_t device, uint64_t size, void **address_out);
KVT_API void kvt_device_free(kvt_store *store, uint32_t device, void *address, uint64_t size);
KVT_CHECKED enum kvt_status kvt_device_write(
    kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size);
KVT_CHECKED enum kvt_status kvt_device_read(
    kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_UNSTABLE_H */
