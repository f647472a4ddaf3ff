/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild_internal.h - the parts of a rebuild of the index.
 *
 *   rebuild_scan.c    what the headers of all segments say: a trace of each record and kill
 *   rebuild_choose.c  which records live
 *   rebuild.c         the new index, with these, read again
 *
 * Of a record only its trace is kept, dead or not: as many bytes as a store of 10^9 blocks can
 * spare. What else is needed of the few that may be torn, and of those that live, is read again.
 */
#ifndef KVT_ENGINE_REBUILD_INTERNAL_H
#define KVT_ENGINE_REBUILD_INTERNAL_H

#include "block_record.h"
#include "nvme_tier.h"

struct kvt_store;

enum {
    REBUILD_READS_MAX = 2, /* Of a header that was found, or a payload, that is not right then. */
};

enum trace_mark {
    TRACE_RECORD,
    TRACE_KILL,
    TRACE_TORN, /* A record whose payload is not whole. */
    TRACE_LIVE, /* A record that lives. */
    TRACE_VOID, /* Of no account. */
};

/* A record or a kill that was found. */
struct trace {
    struct hash128 fingerprint; /* Of the key; zero: a void entry. */
    uint64_t sequence;
    struct extent extent; /* Of the copy that it is, or names; void entry: of a batch's header. */
    enum trace_mark mark;
};

_Static_assert(sizeof(struct trace) == 40, "what ARCHITECTURE.md says of a rebuild's memory");

/* A batch that was found: its records have traces next to each other, in order of place, and its
 * kills have those behind. */
struct found_batch {
    uint64_t number; /* Open epoch << 40 | counter. */
    size_t first_trace;
    struct extent header;
    uint32_t total_pages;              /* Of the header and the payloads behind it. */
    uint32_t record_count, kill_count; /* That have traces. */
    uint32_t later_count;              /* Records of a later version, which have none. */
    bool is_bare;                      /* A recycle header without kills. */
    bool is_void;
};

struct rebuild {
    struct kvt_store *store;
    enum kvt_status status; /* Of a visit. */
    struct trace *traces;
    size_t trace_count, trace_capacity;
    struct found_batch *batches;
    size_t batch_count, batch_capacity;
    uint32_t *passed_segments; /* Not all of their headers could be read. */
    uint32_t passed_count, passed_capacity;
    size_t live_count;       /* rebuild_choose(): of the traces, which come first. */
    uint32_t generation_max; /* Seen anywhere. */
    uint64_t torn_count, unread_count, buried_count, later_count;
};

_Static_assert(sizeof(struct found_batch) == 48, "the same");

/* rebuild_scan - the table of segments, and all batches that count for their segment, with traces
 * of their records (of namespaces that are there, and were not cleared since) and kills. KVT_E_IO
 * as recover_pass_over(); KVT_E_NOMEM. */
enum kvt_status rebuild_scan(struct rebuild *rebuild);

/*
 * rebuild_choose - void what void entries name, pass over what a crash has torn, and choose.
 * Behind it the traces are: those that live, in order of place; and those that rebuild_bury()
 * needs. KVT_E_IO as recover_pass_over(); KVT_E_NOMEM.
 */
enum kvt_status rebuild_choose(struct rebuild *rebuild);

/* rebuild_bury - kill entries, put by commit_kill(), for what is dead by no kill that stays. When
 * the new index is in its place. */
enum kvt_status rebuild_bury(struct rebuild *rebuild);

/* rebuild_batch_read - one batch again; KVT_OK without a visit: it could not be, and is passed
 * over as recover_pass_over() says. KVT_E_IO: as that; KVT_E_NOMEM. */
enum kvt_status rebuild_batch_read(
    struct rebuild *rebuild, const struct found_batch *batch, nvme_scan_fn visit, void *visitor);

/* rebuild_no_memory - the failure: KVT_E_NOMEM. */
enum kvt_status rebuild_no_memory(const struct rebuild *rebuild);

#endif /* KVT_ENGINE_REBUILD_INTERNAL_H */
