/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_tables.h - Engram tables in a store's directory: imported once, then read by rows that a
 * plan (engram.h) names. Part of kvtier.h, whose rules hold.
 *
 * A table holds the rows of one layer, as bytes, and the layer's part of the profile. It is
 * immutable: it is dropped and imported anew, never changed. A crash during an import leaves no
 * table, and what a later import of the same rows goes on with. Rows are read with the checksum of
 * their page: what is damaged is an error, never wrong bytes. Tables belong to no namespace, and
 * neither eviction nor kvt_options.nvme_capacity_bytes concerns them.
 */
#ifndef KVTIER_ENGRAM_TABLES_H
#define KVTIER_ENGRAM_TABLES_H

#include "kvtier/engram.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvt_engram kvt_engram;             /* An open table. */
typedef struct kvt_engram_fetch kvt_engram_fetch; /* Rows that are on their way. */

#define KVT_ENGRAM_NAME_BYTES_MAX 64u
#define KVT_ENGRAM_ROW_BYTES_MAX 4088u

/* --- 1. Tables -------------------------------------------------------------------------------- */

enum kvt_engram_state {
    KVT_ENGRAM_IMPORTING = 1, /* An import is under way, or was cut short. Of one that has only
                               * begun nothing else is known: row_count is 0. */
    KVT_ENGRAM_WHOLE = 2,
    KVT_ENGRAM_DAMAGED = 3, /* No head of its file is good: each is damaged, of another name, or
                             * not whole though the file is named so. Nothing else is known. */
    KVT_ENGRAM_FOREIGN = 4, /* Of a later version, whole or not: nothing else is known. */
};

struct kvt_engram_info {
    char name[KVT_ENGRAM_NAME_BYTES_MAX + 8];
    uint32_t state; /* enum kvt_engram_state */
    uint32_t layer; /* In the model. */
    uint32_t row_bytes;
    uint32_t rows_per_page; /* Of 4096 bytes. */
    uint64_t row_count;
    uint64_t rows_done; /* IMPORTING: durable rows. */
    uint64_t file_bytes;
    uint64_t created_ns;  /* Wall clock, for people. */
    uint8_t uuid[16];     /* Another one for each import. */
    uint64_t rows_pinned; /* Of an open table: engram_pinned.h. */
};

/*
 * kvt_engram_open - the table called `name`.
 *
 * KVT_MISS: there is none. KVT_E_CORRUPT: both heads are damaged, or it is not that table.
 * KVT_E_FORMAT: of a later version. KVT_E_STATE: it is being imported or dropped. KVT_E_INVAL: no
 * name, or what has it is no regular file. KVT_E_NOMEM, KVT_E_IO.
 * Threads: any. Ownership: borrows `name`; gives *table_out, see kvt_engram_close(). Blocks: for
 * reads of a page or two.
 */
KVT_CHECKED enum kvt_status kvt_engram_open(
    kvt_store *store, const char *name, kvt_engram **table_out);

/*
 * kvt_engram_close - KVT_E_STATE, and nothing changes, while a fetch from it has not been freed.
 * NULL does nothing. kvt_close() needs all tables closed; kvt_abort() makes them void.
 * Threads: serial. Ownership: takes `table` when KVT_OK. Blocks: in the driver, for all streams of
 * devices that know pinned rows of it or have a cache of them; otherwise never.
 */
KVT_CHECKED enum kvt_status kvt_engram_close(kvt_engram *table);

/*
 * kvt_engram_info_get - what the table is; kvt_engram_profile_of: its manifest, a profile of this
 * one layer.
 *
 * KVT_E_INVAL: NULL.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_info_get(
    kvt_engram *table, struct kvt_engram_info *info_out);
KVT_CHECKED enum kvt_status kvt_engram_profile_of(
    kvt_engram *table, struct kvt_engram_profile *profile_out);

/*
 * kvt_engram_list - calls `visit` for each table, imports that are not finished among them, until
 * it returns 0. It must not call back into the store's tables. In a folder of hundreds of tables,
 * which is read in pieces, one whose import ends meanwhile may be visited under both states, or not
 * at all.
 *
 * KVT_E_INVAL: NULL. KVT_E_IO, KVT_E_NOMEM, KVT_E_PERMISSION: of a table that could not be looked
 * at, the first of them; the others were visited. Or the folder could not be.
 * Threads: any. Ownership: borrows. Blocks: for reads of a page or two of each.
 */
KVT_CHECKED enum kvt_status kvt_engram_list(kvt_store *store,
    int (*visit)(void *context, const struct kvt_engram_info *info), void *context);

/*
 * kvt_engram_drop - the table, or what an import has left of it, is gone for good.
 *
 * KVT_MISS: there is none, and none comes back. KVT_E_STATE: it is open, or being imported.
 * KVT_E_IO: it may be there, or be there again after a crash, until this is called again.
 * KVT_E_READONLY, KVT_E_INVAL.
 * Threads: any. Ownership: borrows `name`. Blocks: for the sync.
 */
KVT_CHECKED enum kvt_status kvt_engram_drop(kvt_store *store, const char *name);

/*
 * kvt_engram_read - `row_count` rows from `row_first` on, one behind another. For tools: a program
 * that computes with rows wants kvt_engram_fetch_submit().
 *
 * KVT_E_INVAL: NULL, rows that it does not have. KVT_E_CORRUPT: a page is damaged. KVT_E_IO. What
 * is in the destination then is undefined. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: for the reads.
 */
KVT_CHECKED enum kvt_status kvt_engram_read(
    kvt_engram *table, uint64_t row_first, uint64_t row_count, void *rows_out);

/* What kvt_engram_verify() found. */
struct kvt_engram_findings {
    uint64_t page_count;
    uint64_t damaged_count; /* Pages that are unreadable, or not what was imported. */
    uint64_t first_row;     /* Of the first of these. */
    uint32_t is_sum_wrong;  /* 1: every page is intact, and together they are another table. */
    uint32_t reserved0;
};

/*
 * kvt_engram_verify - reads every page. `progress` (may be NULL) is told of rows that were read and
 * stops it by returning 0.
 *
 * KVT_OK: look at the findings. KVT_CANCELLED: it was stopped. KVT_E_INVAL: NULL.
 * KVT_E_UNSUPPORTED: a table that another process shares was verified when it was opened.
 * KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: for as long as reading the whole table takes.
 */
KVT_CHECKED enum kvt_status kvt_engram_verify(kvt_engram *table,
    int (*progress)(void *context, uint64_t rows_done, uint64_t row_count), void *context,
    struct kvt_engram_findings *findings_out);

enum kvt_engram_import_flags {
    KVT_ENGRAM_IMPORT_UNREAD = 1, /* Do not read everything back before the table is there. */
};

/* Where a table's rows come from. */
struct kvt_engram_source {
    uint32_t struct_size; /* sizeof(struct kvt_engram_source) */
    uint32_t flags;       /* enum kvt_engram_import_flags */
    const char *name;     /* 1..64 of A-Z a-z 0-9 . _ -, and no dot first. */
    const struct kvt_engram_profile *profile;
    uint32_t layer_index; /* Which layer of it. Its rows have up to 4088 bytes. */
    uint32_t reserved0;   /* Must be zero. */
    uint8_t mark[32];     /* Of what the rows are (a hash, say): an import that was cut short is
                           * gone on with when profile and mark are the same. */
    uint64_t step_bytes;  /* So much is written between two syncs: what a crash may cost. 0: 256
                           * MiB. */
    /* Called for rising rows, one call at a time: row_count rows one behind another. Another status
     * than KVT_OK ends the import with it. */
    enum kvt_status (*read)(void *context, uint64_t row_first, uint64_t row_count, void *rows_out);
    /* May be NULL. Told of rows that were written, and again from 0 when they are read back.
     * Returns 0: stop. */
    int (*progress)(void *context, uint64_t rows_done, uint64_t row_count);
    void *context;
};

/*
 * kvt_engram_import - make a table. It is there, durable and read back, when this returns KVT_OK;
 * before that nobody sees it. Its space is taken first.
 *
 * KVT_EXISTS: there is a table of that name, durable, perhaps open. KVT_CANCELLED: `progress` said
 * so. KVT_E_NOSPC: the disk, or kvt_options.engram_capacity_bytes. KVT_E_STATE: it is being
 * imported, dropped, or looked for. KVT_E_CORRUPT: what was read back is not what was written:
 * nothing of it is kept. KVT_E_FORMAT: an import of a later version was cut short there.
 * KVT_E_INVAL, KVT_E_UNSUPPORTED (profile), KVT_E_READONLY, KVT_E_NOMEM, KVT_E_IO, and whatever
 * `read` returned: what is durable stays for the next import, also when a head that may name it, or
 * a page of it, cannot be read (KVT_E_IO). What a later version left, or can never be read,
 * kvt_engram_drop() takes away; no import does.
 * Threads: any. Ownership: borrows. Blocks: for as long as writing, and reading, the table takes.
 */
KVT_CHECKED enum kvt_status kvt_engram_import(
    kvt_store *store, const struct kvt_engram_source *source);

/* --- 2. Fetching rows ------------------------------------------------------------------------- */

enum kvt_engram_target_flags {
    /* The destination gets rows[0], rows[1] ... of the plan, each once, instead of the row of each
     * slot. */
    KVT_ENGRAM_ONCE = 1,
};

enum kvt_engram_row_state {
    KVT_ENGRAM_ROW_THERE = 0,
    KVT_ENGRAM_ROW_UNREADABLE = 1, /* The device failed, or there was no memory for the read. */
    KVT_ENGRAM_ROW_DAMAGED = 2,    /* Its page is not what was imported. */
    KVT_ENGRAM_ROW_NOT_READ = 3,   /* The store was aborted first. */
    KVT_ENGRAM_ROW_NOT_COPIED = 4, /* To the device; some of its bytes may be. */
    KVT_ENGRAM_ROW_ELSEWHERE = 5,  /* Another rank's: the slot was left as it was. */
};

/* What is wanted of one table. Start from all zero. */
struct kvt_engram_target {
    kvt_engram *table;
    uint32_t layer_index; /* Of the plan's profile. */
    uint32_t flags;       /* enum kvt_engram_target_flags */
    void *destination;    /* Row after row, without gaps. */
    uint64_t capacity;    /* Bytes of it. */
    uint8_t *states;      /* May be NULL. Gets an enum kvt_engram_row_state of each row. */
    uint64_t deadline_ns; /* When it is needed, CLOCK_MONOTONIC: of all pages that wait, those of
                            * the target with the earliest time go first. 0: behind all others. */
    kvt_region region;    /* {0}: the destination is host memory. Else it lies in this one, of a
                           * device (or of the host). */
    uint32_t reserved0;   /* Must be zero. */
};

/*
 * kvt_engram_cache - give fetches from this table up to `capacity_bytes` (256 KiB ..) of host
 * memory, until it is closed, for rows that they read. What would be found there is measured with
 * the numbers of one row of 16; rows are kept only while that pays: while the reads of pages that
 * it saves take longer than the keeping. The counters engram_cache_* say what was found.
 *
 * KVT_E_INVAL: NULL, a bound. KVT_E_STATE: it has been given some. KVT_E_NOMEM.
 * Threads: serial for one table; fetches of it may be under way. Ownership: nothing changes hands.
 * Blocks: while the memory is cleared.
 */
KVT_CHECKED enum kvt_status kvt_engram_cache(kvt_engram *table, uint64_t capacity_bytes);

/*
 * kvt_engram_cache_device - the same in memory of `device`, for fetches whose destination lies
 * there: rows that are found are copied within the device, others also to the cache when they come
 * from their file or from the host's cache. The host's memory has 8 bytes for each row. It is
 * judged by its own sample: rows are kept while the reads of pages, and the copies from the host,
 * that it saves take longer than finding, keeping and copying them. Rows that are pinned are taken
 * from there. A lost device has no cache. The counters engram_cache_device_* say what was found.
 *
 * KVT_E_INVAL: NULL, a bound, a device that is not the store's. KVT_E_STATE: it has been given some
 * there. KVT_E_NOMEM: of the device, or of the host. KVT_E_GPU.
 * Threads: serial for one table; fetches of it may be under way. Ownership: nothing changes hands.
 * Blocks: in the driver.
 */
KVT_CHECKED enum kvt_status kvt_engram_cache_device(
    kvt_engram *table, uint32_t device, uint64_t capacity_bytes);

/*
 * kvt_engram_fetch_submit - read what the plan wants of up to KVT_ENGRAM_LAYERS_MAX tables. Each
 * page is read once for each target, all of them with as many in flight as the device likes.
 *
 * KVT_E_INVAL: NULL, a plan without KVT_ENGRAM_UNIQUE, a table of another profile than the plan's,
 * of another layer, or of another store than the first, too little capacity, a destination that
 * does not lie in its region, a stale region, a row that a shared table does not have. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows `targets`; keeps the plan (which may not be filled), the
 * destinations, states and regions until the fetch is done, the tables until it is freed; gives
 * *fetch_out.
 * Blocks: never.
 * Completion: KVT_OK -> each target is settled exactly once. Otherwise never.
 */
KVT_CHECKED enum kvt_status kvt_engram_fetch_submit(const kvt_engram_plan *plan,
    const struct kvt_engram_target *targets, uint32_t count, kvt_engram_fetch **fetch_out);

/*
 * kvt_engram_fetch_wait - wait, at most `timeout_ns`, until target `index` is settled.
 *
 * KVT_OK: every row is in place. KVT_LATE: not yet. KVT_E_CORRUPT, KVT_E_IO, KVT_E_NOMEM (there
 * was no memory for a read): some rows are not (the states say which), the others are; a row that
 * is not was left as it was. KVT_E_GPU: the device is lost: what is in the rows that are not there
 * is undefined.
 * *lost_out (may be NULL): how many are not. KVT_E_INVAL: NULL, no such target.
 * Threads: any. Ownership: nothing changes hands. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_engram_fetch_wait(
    kvt_engram_fetch *fetch, uint32_t index, uint64_t timeout_ns, uint64_t *lost_out);

/*
 * kvt_engram_fetch_stream_wait - work that is submitted to `stream` from now on waits, on the
 * device, until the rows of target `index` have been copied there. The host does not wait.
 *
 * KVT_OK: the stream waits, or there is nothing to wait for (no rows, or not any more).
 * KVT_NOT_READY: the copy of some row was not queued yet, because its page is still being read:
 * nothing has changed, ask again. KVT_E_CORRUPT, KVT_E_IO, KVT_E_NOMEM: some rows are not there;
 * the stream waits for the others.
 * KVT_E_GPU: the device is lost. KVT_E_INVAL: NULL, the default stream among it; a stream that is
 * being captured; no such target; its destination is host memory.
 * Threads: any. Ownership: `stream` is a cudaStream_t of the destination's device. Blocks: never,
 * but for the driver.
 */
KVT_CHECKED enum kvt_status kvt_engram_fetch_stream_wait(
    kvt_engram_fetch *fetch, uint32_t index, void *stream);

/*
 * kvt_engram_fetch_free - waits for what is not settled yet; when the store is poisoned that ends
 * with kvt_close(), and until then its plan and destinations are in use. NULL does nothing.
 * Threads: serial. Ownership: takes `fetch`. Blocks: until every target is settled.
 */
KVT_API void kvt_engram_fetch_free(kvt_engram_fetch *fetch);

#ifdef __cplusplus
}
#endif

#include "kvtier/engram_pinned.h"

#endif /* KVTIER_ENGRAM_TABLES_H */
