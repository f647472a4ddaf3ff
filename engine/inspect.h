/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - what is shared by those who look into a store: kvt_check(), kvt_scrub(), kvt_dump().
 */
#ifndef KVT_ENGINE_INSPECT_H
#define KVT_ENGINE_INSPECT_H

#include "kvtier/kvtier_unstable.h"

struct extent;

/* One examination, and what it found so far. */
struct examination {
    void (*found)(void *context, const struct kvt_finding *finding);
    int (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    struct kvt_check_report report;
};

/* examination_begin - from the caller's wishes. KVT_E_INVAL. */
enum kvt_status examination_begin(struct examination *examination,
    const struct kvt_examiner *examiner, const struct kvt_check_report *report_out);

/* examination_found - counts the finding and tells the caller. */
void examination_found(struct examination *examination, const char *kind, const char *text,
    uint32_t segment, uint32_t page);

/* inspect_open - for reading only, with HOST for a scrub, and without a data file that is missing:
 * what is there is looked into. `log` NULL: none. */
enum kvt_status inspect_open(const char *path,
    void (*log)(void *context, int level, const char *module, const char *line), void *context,
    kvt_store **store_out);

/* scrub_run - reads every durable block (of that namespace; 0: of all). */
enum kvt_status scrub_run(
    struct kvt_store *store, uint32_t namespace_id, struct examination *examination);
/* scrub_host_bytes - HOST that it stages in without waiting for room, at most 256 MiB; always more
 * than a block of block_bytes_max, stored encoded. */
uint64_t scrub_host_bytes(uint64_t block_bytes_max);
/* scrubs_note - what lies there was found damaged, by a scrub or beside it (loop). */
void scrubs_note(struct kvt_store *store, const struct extent *extent);
/* scrubs_close - frees what scrubs of a poisoned store have left, when nothing reads any more. */
void scrubs_close(struct kvt_store *store);

#endif /* KVT_ENGINE_INSPECT_H */
