/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - what the files of `tierbench replay` share: settings, one run's state, its totals.
 *
 * A run replays requests one behind the other, as a serving process with one prefill would: look
 * the chain up with a lease, read the leading hits, keep the blocks that were missing, release.
 * Writes become durable behind it: their tickets report to one queue, which is the only place
 * where the run waits.
 *
 * With an HBM tier blocks are made in memory of the device (device_pool.h), put to HBM from there,
 * and hits are read back to there.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "ceiling.h"
#include "device_pool.h"
#include "huge_buffer.h"
#include "kvtier/kvtier.h"
#include "outputs.h"
#include "pattern.h"
#include "progress.h"
#include "trace.h"

enum {
    FLIGHT_BLOCKS_MAX = 256, /* Blocks of one ticket. */
    FLIGHT_COUNT = 1024,     /* Tickets that are out at once. */
    FLIGHT_BUFFER_COUNT = 4, /* Buffers that they share until stage 1. */
    FLIGHT_BUFFER_BYTES = 4 << 20,
    ACK_LINE_BYTES = 2 * PATTERN_KEY_BYTES + 1,
};

#define REPLAY_NO_REQUEST UINT64_MAX

/* The command line, understood. Constant during a run. */
struct replay_settings {
    const char *trace_path; /* NULL: only verify. */
    const char *directory;
    const char *verify_path; /* NULL: nothing to verify. */
    const char *hbm_text;    /* A size, or a share that needs the trace. NULL: no HBM tier. */
    const char *host_text;
    const char *nvme_text;
    uint64_t hbm_bytes; /* 0: no HBM tier. */
    uint64_t host_bytes;
    uint64_t nvme_bytes;
    uint64_t block_bytes;
    uint64_t request_end; /* Index behind the last request. */
    uint64_t resume_at;
    uint64_t kill_at;       /* REPLAY_NO_REQUEST: never. */
    enum kvt_policy policy; /* Never KVT_POLICY_DEFAULT. */
    enum kvt_durability durability;
    uint64_t durable_every; /* Requests from one that is put so to the next; others: MEMORY. */
    uint32_t io_engine;     /* enum kvt_io_engine */
    uint32_t device_kind;   /* enum kvt_device_kind */
    double ceiling_seconds; /* 0: the ceilings are not measured. */
    int acks_fd;            /* -1: acknowledgements are only counted. */
    bool as_json;
    struct outputs outputs; /* Of the paths. */
};

/* Time and bytes of one way that blocks take. */
struct replay_path {
    uint64_t bytes;
    double busy_seconds; /* While at least one block was awaited from it. */
};

/* Everything that is counted. Only grows. */
struct replay_totals {
    uint64_t request_count;
    uint64_t block_count; /* Accesses: every block of every request. */
    uint64_t hit_hbm_count;
    uint64_t hit_host_count; /* Not in HBM. */
    uint64_t hit_nvme_count; /* On NVMe only. */
    uint64_t input_tokens;
    uint64_t saved_tokens;
    uint64_t read_count; /* Blocks that were read and compared. */
    uint64_t wrong_block_count;
    uint64_t wrong_bytes;
    uint64_t leased_miss_count; /* Found and leased, yet not readable: a damaged block. */
    uint64_t read_refused_count;
    uint64_t put_count;
    uint64_t put_refused_count;
    uint64_t acknowledged_count; /* Durable, as their tickets said. */
    uint64_t shown_count;        /* Durable at the end, as a scan of the store showed. */
    uint64_t dropped_count;      /* Put, and evicted before it was durable. */
    uint64_t durable_failed_count;
    struct replay_path caller_to_hbm;
    struct replay_path caller_to_host;
    struct replay_path hbm_to_caller;
    struct replay_path host_to_caller;
    struct replay_path nvme_to_caller;
    double durable_wait_seconds; /* While puts waited for earlier ones to be durable. */
    double verify_seconds;       /* Making and comparing patterns: not the store's. */
    double hbm_pool_seconds;     /* Taking them to memory of the device and back: nor this. */
    double elapsed_seconds;
};

/* What --verify-acks found. */
struct replay_verified {
    uint64_t key_count; /* Different keys. */
    uint64_t lost_count;
    uint64_t wrong_block_count;
    uint64_t wrong_bytes;
    uint64_t read_bytes;
    double open_seconds;
    double reopen_seconds; /* Opening, until 1,000 keys were answered. */
    double read_seconds;
};

enum flight_kind {
    FLIGHT_FREE,
    FLIGHT_GET,
    FLIGHT_PUT
};

/*
 * One ticket.
 *
 *            get_prepare()         stage 1        wave_compare()
 *    FREE -----------------> GET ----------> GET ---------------> FREE
 *     |                         holds a buffer
 *     |      put_prepare()                stage 1           last stage
 *     +--------------------> PUT ------------------> PUT ----------> FREE
 *                       holds a buffer         no buffer any more
 */
struct flight {
    enum flight_kind kind;
    int buffer; /* Index, or -1. */
    enum kvt_durability durability;
    uint32_t count;
    kvt_ticket *ticket;
    uint64_t numbers[FLIGHT_BLOCKS_MAX];
};

/* Tickets, their buffers, and the queue that all of them report to. */
struct flights {
    kvt_store *store;
    kvt_namespace ns;
    kvt_queue *queue;
    struct replay_totals *totals;
    struct flight *flights; /* FLIGHT_COUNT */
    uint32_t free_list[FLIGHT_COUNT];
    uint32_t free_count;
    uint32_t buffer_free_mask;
    struct huge_buffer memory;
    struct device_pool pool; /* A place for each of the buffers' bytes. */
    uint64_t block_bytes;
    uint64_t stride_bytes; /* Between blocks of a buffer: whole pages. */
    uint64_t buffer_bytes;
    uint32_t chunk_blocks; /* Blocks of one ticket at most. */
    struct flight *wave[FLIGHT_BUFFER_COUNT];
    uint32_t wave_count;
    uint32_t wave_out; /* Of it, sent and not at stage 1. */
    uint64_t wave_bytes;
    uint64_t undurable_bytes;
    uint64_t undurable_limit_bytes;
    enum kvt_durability durability; /* Of the next puts. */
    uint32_t get_flags;
    int acks_fd;
    /* FLIGHT_BLOCKS_MAX for each buffer: what was submitted, and what came of it. */
    uint8_t (*keys)[PATTERN_KEY_BYTES];
    uint8_t (*parents)[PATTERN_KEY_BYTES];
    struct kvt_key *parent_keys;
    struct kvt_get *gets;
    struct kvt_put *puts;
    struct kvt_result *results;
};

/* Blocks of one chain that are to be put: chain[first .. first + count - 1]. */
struct flight_chain {
    const uint64_t *numbers;
    const uint8_t *tiers; /* By position: not 0 means that it is there already. */
    uint32_t start;
    uint32_t end;
};

/* flights_create - false, with a sentence on stderr. The store and namespace stay the caller's. */
bool flights_create(struct flights *flights, const struct replay_settings *settings,
    kvt_store *store, kvt_namespace ns, struct replay_totals *totals);
void flights_destroy(struct flights *flights);

/* flights_read - submit reads of `count` blocks, and wait until all are compared. The time in which
 * they were awaited is added to `path`, their bytes to the path of the tier that each came from. */
bool flights_read(
    struct flights *flights, const uint64_t *numbers, uint32_t count, struct replay_path *path);

/* flights_write - submit puts of what is missing of the chain, and wait until all are visible. */
bool flights_write(
    struct flights *flights, const struct flight_chain *chain, struct replay_path *path);

/* flights_pump - take what has completed, waiting for the first at most `timeout_ns`. */
bool flights_pump(struct flights *flights, uint64_t timeout_ns);

/* flights_drain - wait until every ticket has reached its last stage. */
bool flights_drain(struct flights *flights);

/* acks_write - one line for each number to `fd`, whole before it returns. False: complained. */
bool acks_write(int fd, const uint64_t *numbers, uint32_t count);

/* acks_write_shown - the same for every block that the store shows on NVMe; counts them. */
bool acks_write_shown(struct flights *flights);

/* acks_read - the different numbers of a file of such lines, sorted; a last line that was cut off
 * is left out. False: complained. The numbers are the caller's to free(). */
bool acks_read(const char *path, uint64_t **numbers_out, uint64_t *count_out);

/* One run: the store and everything around it. */
struct replay {
    const struct replay_settings *settings;
    struct trace trace;
    struct ceiling ceiling;
    bool has_ceiling;
    kvt_store *store;
    kvt_namespace ns;
    struct flights flights;
    uint32_t device_kind; /* Which it is: enum kvt_device_kind. */
    struct replay_totals totals;
    struct replay_verified verified;
    struct kvt_stats stats; /* As they were at the end. */
};

/* replay_requests - the requests of the settings' range. False: complained. */
bool replay_requests(struct replay *replay);

/* replay_verify - every acknowledged key, read and compared. False: complained. */
bool replay_verify(struct replay *replay, const uint64_t *numbers, uint64_t count);

/* replay_answered - looks up the first 1,000 of the numbers; false: complained. */
bool replay_answered(struct replay *replay, const uint64_t *numbers, uint64_t count);

/* replay_report - to stdout, as JSON or as a table, and to the files that were asked for. False:
 * complained about one of those. */
bool replay_report(const struct replay *replay);

/* replay_is_fine - nothing was wrong or lost. */
bool replay_is_fine(const struct replay *replay);

/* replay_settings_read - false, with a sentence, and an exit code in *exit_out. */
bool replay_settings_read(struct replay_settings *settings, int argc, char **argv, int *exit_out);

/* replay_capacities - what the shares among the sizes come to for this trace. False: complained. */
bool replay_capacities(struct replay_settings *settings, const struct trace *trace);

#endif /* BENCH_REPLAY_H */
