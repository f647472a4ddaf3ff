/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild_internal.h - the parts of a rebuild of the index.
 *
 *   rebuild_scan.c  what the headers of all segments say
 *   rebuild.c       what of that lives; the new index
 */
#ifndef KVT_ENGINE_REBUILD_INTERNAL_H
#define KVT_ENGINE_REBUILD_INTERNAL_H

#include "block_record.h"
#include "tier.h"

struct kvt_store;

enum record_mark {
    RECORD_FOUND,
    RECORD_TORN,
    RECORD_LIVE,
};

/* A record that was found. */
struct found_record {
    struct block_record record;
    enum record_mark mark;
};

/* A record or a kill that was found. */
struct trace {
    struct hash128 fingerprint;
    uint64_t sequence;
    uint32_t record;      /* Index among the records; UINT32_MAX: a kill. */
    struct extent extent; /* Of the copy that it is, or names. */
};

/* A batch that was found: its records stand next to each other, and so do its kills. */
struct found_batch {
    uint64_t number; /* Open epoch << 40 | counter. */
    struct extent header;
    uint32_t first_record, record_count;
    uint32_t first_kill, kill_count; /* Among the kills. */
    uint32_t later_count;            /* Records of a later version, which are not there. */
    bool is_bare;                    /* A recycle header without kills. */
    bool is_void;
    bool has_torn; /* One of its records is. */
};

struct rebuild {
    struct kvt_store *store;
    enum kvt_status status;
    struct trace *traces;
    uint32_t trace_count, trace_capacity;
    struct found_record *records;
    uint32_t record_count, record_capacity;
    struct tier_kill *kills;
    uint32_t kill_count, kill_capacity;
    struct found_batch *batches;
    uint32_t batch_count, batch_capacity;
    uint32_t generation_max; /* Seen anywhere. */
    uint32_t torn_count, unread_count, buried_count, later_count;
};

/* rebuild_scan - the table of segments, and all batches that count for their segment, with their
 * records (of namespaces that are there, and were not cleared since) and kills. KVT_E_IO as
 * recover_pass_over(); KVT_E_NOMEM. */
enum kvt_status rebuild_scan(struct rebuild *rebuild);

/* rebuild_no_memory - the failure: KVT_E_NOMEM. */
enum kvt_status rebuild_no_memory(const struct rebuild *rebuild);

#endif /* KVT_ENGINE_REBUILD_INTERNAL_H */
