/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload.h - random operations on a store, each answer held against the model.
 *
 * Owns      the store while it is open, requests in flight, leases, the model.
 * Not here  the world: the host says how to open a store in it and how time passes.
 *
 * A name with a request in flight whose first stage was not yet collected is left alone by all
 * others, so that the model knows one state; but for chains (workload_chain()), requests on the
 * same few names back to back, of which the model takes any order that explains their answers.
 * Everything else is interleaved. Now and then a call names a key twice: the model takes the two in
 * the order of the call, which is what comes of them. A quarter of the requests report to a queue;
 * the others are waited for by their ticket. Some tickets are freed before their last stage. Where
 * there is an emulated device some requests wait for work of a stream on it, which fills a source
 * late, or still reads a destination.
 *
 * After a crash of a simulated world the operations go on against the ghost (sim_world.h) and
 * whatever they answer is tolerated, but for wrong bytes and a poisoned store.
 */
#ifndef KVT_TESTS_WORKLOAD_H
#define KVT_TESTS_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"
#include "model.h"
#include "rng.h"
#include "run_plan.h"

enum {
    FLIGHTS_MAX = 6,
    LEASES_MAX = 4,
    BATCH_MAX = 8,
    WORKLOAD_KEY_BYTES = 100,
    WORKLOAD_DEVICES_MAX = 4,
    CHAIN_NAMES = 3,    /* Of one chain. */
    KEY_COMPONENTS = 3, /* Of the keys that have the same bytes. */
    QUEUES_MAX = 2,
    LATE_MAX = 3,    /* Requests behind work of a stream. */
    LATE_BLOCKS = 2, /* Of each, whose memory is that work's. */
};

/* How a store is reached. Functions may be NULL but for `open`. */
struct workload_host {
    void *context;
    enum kvt_status (*open)(void *context, uint32_t flags, kvt_store **store_out);
    const char *(*path)(void *context);           /* Of a store on this machine. */
    void (*pass)(void *context, struct rng *rng); /* Let others run, let time pass. */
    bool (*crashed)(void *context);
    bool (*lies)(void *context); /* Reads may show what a failed sync has lost. */
    void (*trace)(void *context, uint64_t kind, uint64_t fact);
};

enum flight_kind {
    FLIGHT_FREE,
    FLIGHT_PUT,
    FLIGHT_GET,
    FLIGHT_DELETE
};

/* What the workload asks and says of blocks (workload_questions.c, workload_why.c). */
enum asked_kind {
    ASKED_TOUCH,
    ASKED_IMPORTANCE,
    ASKED_IMPORTANCE_MISS, /* Of blocks of which none was there. */
    ASKED_ESTIMATE,        /* Of which all is known. */
    ASKED_MATCH,
    ASKED_MATCH_LONG, /* Some prefix was usable, of several components. */
    ASKED_HEALTH,
    ASKED_ILL_HEALTH, /* It was not well, with faults about. */
    ASKED_NAMESPACES,
    ASKED_WHY,
    ASKED_FATE,      /* The block was not there, and it was said why. */
    ASKED_AHEAD,     /* Blocks of lookups whose prefetch was waited for. */
    ASKED_PART,      /* Parts that were waited for, and were there. */
    ASKED_REFUSED,   /* Calls that break a rule. */
    ASKED_CLOSE,     /* Of a store of which something is out. */
    ASKED_PIN_LIMIT, /* Pins that were too many. */
    ASKED_READ_ONLY, /* Lives that only read. */
    ASKED_SCRUB,     /* Blocks of these. */
    ASKED_LIST,      /* Blocks of a closed store. */
    ASKED_KINDS,
};

enum spread_kind {
    SPREAD_NONE,
    SPREAD_PLAIN,
    SPREAD_PINNED,
    SPREAD_DEVICE,
};

/* Memory of a block that is spread in strided runs. */
struct spread_area {
    enum spread_kind kind;
    struct run_plan plan;
    kvt_layout layout; /* {0}: runs of its own. */
    uint32_t slot;
    uint8_t *bytes; /* The area; SPREAD_DEVICE: a copy of it. SPREAD_PINNED: of the pool. */
};

/* Memory of one block that work of a stream still writes, or reads. */
struct late_block {
    uint8_t *host;  /* A source or destination there, ... */
    void *address;  /* ... or here, on the device: one of the two is used. */
    uint8_t *bytes; /* Of a put: what the work writes. */
    uint64_t size;
    bool is_read;       /* It looks at a destination, which must be as it was. */
    bool is_on_device;  /* The memory is that at `address`. */
    const void *leased; /* Instead: a copy that is leased, which must be as `bytes`. */
    bool was_changed;
    _Atomic uint32_t run_count;
};

/* Work of the stream that a request waits for, by an event behind it. */
struct late_work {
    void *event;
    bool is_flown; /* A request has it. */
    bool is_out;   /* The event was not seen reached yet. */
    struct late_block blocks[LATE_BLOCKS];
    uint32_t count; /* Blocks with work. */
};

/* A stream of the test's own, on an emulated device of the store. */
struct late_stream {
    struct device *device; /* NULL: there is none. */
    uint32_t number;
    void *stream;
    void *memory; /* Of the device, in a region. */
    kvt_region region;
    uint8_t *host;
    struct late_work works[LATE_MAX];
};

/* A submitted request. */
struct flight {
    enum flight_kind kind;
    kvt_ticket *ticket;       /* NULL: it was freed early. */
    struct kvt_submit submit; /* As it was submitted: `user` is its number among all. */
    uint32_t come;            /* Stages that its queue has told, ... */
    enum kvt_status told[2];  /* ... and what of each. */
    struct model_name names[BATCH_MAX];
    uint64_t ops[BATCH_MAX];
    uint8_t *memory[BATCH_MAX]; /* Sources or destinations. */
    uint64_t sizes[BATCH_MAX];
    struct model_range ranges[BATCH_MAX]; /* Get: of each block. */
    enum kvt_status first[BATCH_MAX];     /* Outcome of stage 1; KVT_NOT_READY: it is not told
                                           * whether something was there. */
    uint32_t count;
    enum kvt_durability durability;
    uint32_t flags;                        /* Of every block in it. */
    bool is_on_device[BATCH_MAX];          /* Source or destination; `memory` is a copy of it. */
    uint8_t devices[BATCH_MAX];            /* Of which device, if it is. */
    struct spread_area spreads[BATCH_MAX]; /* Source or destination instead of `memory`. */
    struct late_work *late;                /* It waits for that. NULL: for nothing. */
    struct late_block *late_blocks[BATCH_MAX]; /* Source or destination instead of `memory`. */
    bool is_visible;                           /* Stage 1 was collected. */
    bool is_cancelled;                         /* It was asked for: any block may say so. */
    bool is_race;                              /* Get: its blocks are put anew meanwhile. */
    bool is_cleared;           /* Its namespace was, before stage 1 was collected. */
    uint64_t met[BATCH_MAX];   /* Get, delete: states that it may have met. 0: what is live. */
    bool is_chained;           /* Its first stage is collected with all of the chain. */
    uint32_t links[BATCH_MAX]; /* Of each block, in the model's chain of its name. */
};

/* Requests on the same names, in the order of their submission. */
struct workload_chain {
    struct flight *flights[MODEL_LINKS]; /* Stage 1 of none of them was collected. */
    uint32_t count;
    uint32_t reached; /* Bits of those that had reached stage 1 before the one that is submitted. */
    bool is_growing;  /* What is submitted now is part of it. */
    struct model_name names[CHAIN_NAMES];
    uint32_t name_count;
};

/* Memory of a device, all of it in a region. */
struct workload_pool {
    void *memory;
    kvt_region region;
};

struct held_lease {
    kvt_lease lease;
    struct model_name names[BATCH_MAX];
    uint32_t versions[BATCH_MAX]; /* What was seen at the address in HOST; 0: no address. */
    uint32_t hbm_versions[BATCH_MAX];
    uint32_t count;
};

struct workload {
    struct model model;
    struct workload_host host;
    struct rng rng;
    kvt_store *store;
    kvt_namespace spaces[MODEL_SPACES];
    struct flight flights[FLIGHTS_MAX];
    kvt_queue *queues[QUEUES_MAX];
    uint32_t queue_count;
    uint64_t submit_count;   /* Of requests that named one, ever. */
    uint64_t told_count;     /* Stages that were collected from them. */
    uint64_t freed_count[2]; /* Tickets, before their stage 1 and before their stage 2. */
    uint64_t untold_count;   /* Of the latter, of requests that named no queue. */
    struct workload_chain chain;
    struct held_lease leases[LEASES_MAX];
    kvt_lease stale_lease; /* The one that was given back last in this life. */
    uint64_t stale_count;  /* How often one was, again. */
    bool evicts;           /* The tiers are small: misses are no failures. */
    bool is_read_only;     /* In this life. */
    bool is_made;          /* It was open once: its index is there. */
    bool gets_fly;         /* A get is left in flight. */
    bool has_codecs;       /* Namespaces are encoded for NVMe. */
    bool has_shares;    /* Namespaces of a store that evicts have room of their own in the tiers. */
    bool loses_devices; /* In this life: what HBM has is not compared with events. */
    bool headers_may_lie; /* Kills may have been passed over: bytes were read that are not there. */
    bool finds_damage;    /* An earlier life counted on what was lost with the power. */
    bool is_verifying;    /* Every block is read as a whole. */
    bool is_faulty;       /* Errors are possible: statuses below zero are no failures. */
    uint32_t calmed_count;   /* So many have failed, while it was opened. */
    bool keeps;              /* But no block leaves for them: only reads may miss one. */
    uint32_t device_percent; /* Sources and destinations in memory of devices. 0: no device. */
    uint32_t device_count;   /* That have a pool. */
    bool has_hbm;            /* A tier there, too. */
    struct workload_pool pools[WORKLOAD_DEVICES_MAX];
    struct late_stream late;
    uint64_t late_count; /* Requests that have waited for work of it. */
    uint64_t late_lease_count;
    uint32_t spread_percent; /* Sources and destinations that are spread, also on the device. */
    uint8_t *pinned_pool;    /* Host memory in a region, for them; NULL: there is no device. */
    kvt_region pinned;
    uint64_t spread_count[SPREAD_DEVICE + 1]; /* Of each kind that landed well. */
    uint64_t operation_count;
    uint64_t hit_count;      /* Reads that gave bytes. */
    uint32_t volatile_count; /* Puts and deletes that could not be made durable, since a flush
                              * has told. */
    uint64_t audit_count;    /* Of store_audit() that judged. */
    uint64_t cancel_count, pin_count, direct_count, phase_count;
    uint16_t fates[MODEL_SPACES][MODEL_KEYS_MAX]; /* That kvt_why() may give (workload_why.c). */
    uint64_t asked_count[ASKED_KINDS];            /* Answers that were judged. */
    uint64_t chain_count;   /* Of requests on the same names, in flight together. */
    uint64_t cleared_count; /* Gets and deletes in flight beside a clear that met what was there. */
    uint64_t heal_count;    /* Of workload_heal(), behind which all counted again. */
    uint64_t watch_count;   /* Namespaces that were watched while others used the store. */
    bool is_pinned[MODEL_SPACES][MODEL_KEYS_MAX]; /* For ever: it must be there. */
    bool must_stay[MODEL_SPACES][MODEL_KEYS_MAX]; /* On NVMe when the last life ended. */
    uint64_t (*evicted)(const kvt_store *store);  /* Blocks given up since the open; no step. */
    uint64_t event_cursor;
    uint64_t shadow_count;                        /* How often the two were compared. */
    bool knows_copies;                            /* `shadow` is what the events say. */
    uint8_t shadow[MODEL_SPACES][MODEL_KEYS_MAX]; /* Tiers, of keys that are not hashed. */
};

void workload_init(struct workload *work, const struct workload_host *host, uint64_t seed,
    uint32_t key_count, uint32_t length_shift);

/*
 * workload_open - open the store and its namespaces, read everything, and settle the model. `flags`
 * are kvt_open()'s; KVT_OPEN_REBUILD, or `is_rebuilt`, says that the index is lost.
 * The status of what failed; the model's failure is set when it must not have.
 */
enum kvt_status workload_open(struct workload *work, uint32_t flags, bool is_rebuilt);
/* workload_calm - the one operation that failed while it was opened has cost nothing, and no more
 * will: read it all again. */
void workload_calm(struct workload *work);
/* workload_heal - in mid-life all disks are well again, and have been for a while. What is durable
 * is there, and a flush says so: from here on no error is possible any more, unless the store says
 * that it takes no writes in this life (kvt_health()), or one of its roots takes none. */
void workload_heal(struct workload *work, bool has_lost_root);

/* workload_step - one random operation. False once the model has failed. */
bool workload_step(struct workload *work);
/* workload_read_only - steps in a store that was opened for reading only: all that must be there is
 * read, each change is refused, and blocks that are put in memory come and go. */
void workload_read_only(struct workload *work);
/* workload_step_delete - a delete of one name, and the wait until it is acknowledged, as a step. */
bool workload_step_delete(struct workload *work);
/* workload_verify - read every name that is not in flight. */
void workload_verify(struct workload *work);
/* workload_settle - collect every request, but for those of which nobody is told any more. */
void workload_settle(struct workload *work);
/*
 * workload_remember - the store's end comes at once, before it has another step: what NVMe has now
 * is there at the next open, also in a store that evicts, unless a request that is not acknowledged
 * may have changed it. `evicted` says how many blocks a store has given up, without a step.
 */
void workload_remember(struct workload *work, uint64_t (*evicted)(const kvt_store *store));
/* workload_memory_close - collect every request; those that follow are to and from plain memory. */
void workload_memory_close(struct workload *work);
/* workload_close - collect everything, give everything back, close. */
enum kvt_status workload_close(struct workload *work);
/* workload_closed - it was closed in order: open it for reading only, and ask what tools ask. */
void workload_closed(struct workload *work);
/* workload_abandon - the store is gone with its world: forget handles, free the test's memory. */
void workload_abandon(struct workload *work);

/* --- single operations, for tests that need a fixed order ------------------------------------- */

void workload_put(struct workload *work, const struct model_name *names, uint32_t count,
    enum kvt_durability durability, uint32_t flags);
void workload_get(
    struct workload *work, const struct model_name *names, uint32_t count, uint32_t flags);
/* Get blocks of a namespace part by part, and put them anew meanwhile. */
void workload_race(struct workload *work, uint32_t space);
/* Put, replace, delete and get the same few blocks without waiting in between. */
void workload_chain(struct workload *work, uint32_t space);
void workload_delete(struct workload *work, const struct model_name *names, uint32_t count);
void workload_lookup(struct workload *work, const struct model_name *names, uint32_t count);
void workload_clear(struct workload *work, uint32_t space);
/* Prefetch to `tier`, or demote to it, and wait. */
void workload_move(struct workload *work, const struct model_name *names, uint32_t count,
    uint32_t tier, bool is_up);
/* Look up and have brought up; who waits for it may hold a lease of the blocks meanwhile. */
void workload_ahead(struct workload *work, const struct model_name *names, uint32_t count,
    uint32_t tier, bool waits);
void workload_pin(struct workload *work, const struct model_name *names, uint32_t count);
void workload_phase(struct workload *work, const struct model_name *names, uint32_t count,
    enum kvt_phase phase, uint64_t resume_ns);
/* Reserve, write, and commit or discard. */
void workload_direct(
    struct workload *work, struct model_name name, enum kvt_durability durability, uint32_t flags);
void workload_map(struct workload *work, struct model_name name);
/* Give hints, and ask questions that move nothing. */
void workload_ask(struct workload *work, uint32_t space);
/* Why it is where it is, or not there. */
void workload_why(struct workload *work, struct model_name name);
/* One call that breaks a rule. */
void workload_refused(struct workload *work);
/* Others use the store, and the namespace loses nothing for it where it is within its share; then
 * it finds room for its own. */
void workload_shares(struct workload *work, uint32_t space);
/* Read the events, and compare what they say with a scan. */
void workload_events(struct workload *work);
void workload_flush(struct workload *work);
void workload_scan(struct workload *work);
void workload_stats(struct workload *work);

#endif /* KVT_TESTS_WORKLOAD_H */
