/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_internal.h - what a store is made of, and the functions by which the engine's files use
 * each other. Private to engine/.
 *
 * Threads: "loop" functions run on the loop thread only (or before it is started, while a store is
 * opened). "any" functions run on callers' threads. A field without another note belongs to the
 * loop.
 */
#ifndef KVT_ENGINE_STORE_INTERNAL_H
#define KVT_ENGINE_STORE_INTERNAL_H

#include <pthread.h>

#include "bytes.h"
#include "codecs.h"
#include "commit.h"
#include "committer.h"
#include "crew.h"
#include "devices.h"
#include "event_ring.h"
#include "failure.h"
#include "fates.h"
#include "flight.h"
#include "flush.h"
#include "histogram.h"
#include "holds.h"
#include "host_tier.h"
#include "imaging.h"
#include "inbox.h"
#include "kvtier/kvtier.h"
#include "layout.h"
#include "learned.h"
#include "lease.h"
#include "live.h"
#include "log.h"
#include "move.h"
#include "names_file.h"
#include "nvme_tier.h"
#include "patience.h"
#include "phase.h"
#include "pins.h"
#include "policy.h"
#include "pool.h"
#include "processes.h"
#include "reclaim.h"
#include "region.h"
#include "relocate.h"
#include "request.h"
#include "residency.h"
#include "shares.h"
#include "store.h"
#include "store_file.h"
#include "try.h"
#include "victim_scan.h"
#include "waiters.h"
#include "window.h"

enum {
    STORE_ALIVE = 0x4B565431,    /* The word on the fork page; a forked child reads zero. */
    WORK_KEEP_MAX = 8192,        /* Free objects of a pool: more than that are under way seldom. */
    SHORT_JOB_BYTES = 128 << 10, /* A worker copies or sums so much in some 20 us. */
    NUMBERS_LEFT = 1 << 20,      /* Of those of an epoch, when no more are begun. */
    EPOCH_SHIFT = 40,            /* Sequences and batch numbers: open epoch << 40 | counter. */
};

enum loop_rest_state {
    REST_NONE,
    REST_ASKED,
    REST_REACHED, /* The loop's step does nothing from now on. */
};

enum {
    HBM_DEVICE_SHIFT = 29, /* In struct entry's hbm_slot: {device 3, slot number 29}. */
};

/* entry_device - of a block with a copy in HBM. */
static inline uint32_t
entry_device(const struct entry *entry)
{
    return entry->hbm_slot >> HBM_DEVICE_SHIFT;
}

#define SEGMENT_NONE UINT32_MAX /* The number of no segment. */

/* --- 1. Small parts --------------------------------------------------------------------------- */

/* A job of a worker that comes back to the loop. */
struct job {
    struct crew_job crew;
    struct kvt_store *store;
    void (*finish)(struct kvt_store *store, struct job *job);
};

enum {
    JOBS_AT_ONCE = 32, /* One lock and a wake or two for so many; the first does not wait long. */
};

/* Jobs that are handed to the workers together. */
struct job_batch {
    struct job *jobs[JOBS_AT_ONCE];
    uint32_t count;
};

/* Who gets a tier's answer; tier_batch.user points to it. */
struct batch_owner {
    void (*finish)(struct kvt_store *store, struct tier_batch *batch);
};

/* A function that a caller wants run on the loop, and waits for. */
struct loop_call {
    struct message message;
    /* Returns false when it is not finished yet: it is then called again after each step. */
    bool (*run)(struct kvt_store *store, void *context);
    void *context;
    bool is_last; /* The loop rests when it is finished. */
    struct loop_call *next;
    _Atomic uint32_t is_done; /* The loop's last touch of it. */
};

/* The hand that goes round over the map's entries for a namespace's puts (map_room.c). Each has its
 * own: what a share keeps from one may go for another. */
struct map_hand {
    uint32_t next;       /* Number of the entry that it looks at next. */
    uint32_t vain_count; /* Looks since it last found one that left. */
    uint64_t begin;      /* search_begin() */
};

struct namespace_state {
    uint32_t id;
    _Atomic uint32_t epoch; /* Written by the loop; a put carries the one it saw. */
    _Atomic uint32_t codec; /* any: enum kvt_codec, of what is written to NVMe from now on. */
    char *name;
    uint64_t block_count;
    uint64_t block_bytes;
    uint64_t share_bytes[SHARE_TIER_COUNT]; /* 0: none. */
    uint64_t used_bytes[SHARE_TIER_COUNT];  /* Counted once a share was set. */
    uint64_t leaving_bytes;                 /* Of NVMe: while victim.c counts. */
    struct map_hand map_hand;
};

#define COUNTER_FIELD(name, text) _Atomic uint64_t name;
struct counters {
    KVT_COUNTERS(COUNTER_FIELD)
};
#undef COUNTER_FIELD

#define LATENCY_FIELD(name, text) struct histogram name;
struct latencies {
    KVT_LATENCIES(LATENCY_FIELD)
};
#undef LATENCY_FIELD

#define COUNT(store, name, n) \
    atomic_fetch_add_explicit(&(store)->counters.name, (uint64_t)(n), memory_order_relaxed)

/* How fast bytes came from a tier of late: what gets and moves up had of it, and how long any were
 * on their way. */
struct load_meter {
    uint64_t bytes;
    uint64_t busy_ns;
};

/* How far the search for room in a place has come. */
struct room_hand {
    uint32_t entry; /* It goes on behind this one; ENTRY_NONE: it begins anew. */
    bool has_found; /* Something went since it began, or is on its way. */
    /* The last search is to go on; of HBM: that in HOST, for the last block that found no way
     * down. */
    bool is_cut;
    uint64_t begin;         /* search_begin() */
    uint32_t given_count;   /* Slots that were given out, and not taken back at once. */
    uint64_t looked_ns;     /* When the last search that it goes on from ended. */
    uint64_t leaving_bytes; /* Of HBM: on their way down to HOST. */
    uint64_t lacking_bytes; /* Of HBM: for so much this search has found no room in HOST. */
    uint64_t begun_bytes;   /* Of HOST: what the last search in HBM has let it begin to write. */
    uint64_t refused_ns;    /* Of HBM: until then nothing goes down for room, one has failed ... */
    enum kvt_status refused_status; /* ... with this. */
    struct vain_askers vain;        /* Their searches let nothing go. */
};

/* The hand that goes round over the map's entries for blocks that others in HBM keep in HOST
 * (room.c). */
struct kept_hand {
    uint32_t next;          /* Number of the entry that it looks at next. */
    uint32_t vain_count;    /* Looks since something went, or began to be written. */
    uint64_t looked_ns;     /* When it last looked. */
    uint64_t vain_until_ns; /* A whole round was in vain: until then it rests. */
};

/* Copies in HBM that nobody finds any more (copies.c). */
struct hidden_copies {
    struct hidden_copy *first;
    struct hidden_copy **next; /* The one that the present round looks at next; NULL: no round. */
    bool is_due;               /* Pins may have gone since it began. */
    uint64_t again_ns;         /* When the next one begins, whatever happens. */
};

/* Those who ask for a reservation, and ask again: they have no place to wait in (direct.c). */
struct reserve_wait {
    struct patience patience;
    uint64_t asked_ns;
};

/* --- 2. The store ----------------------------------------------------------------------------- */

struct kvt_store {
    /* Set at open, then constant. */
    struct kvt_env env;
    struct store_world world;
    struct kvt_options options; /* Resolved. */
    bool index_map_is_default;  /* The caller named no index_map_bytes. */
    const char *roots[STORE_ROOTS_MAX];
    char *path;
    struct logger logger;
    _Atomic uint32_t *fork_page;
    struct fs_dir *dir, *meta_dir;
    struct fs_dir *root_dirs[STORE_ROOTS_MAX];
    struct fs_file *made_files[STORE_ROOTS_MAX]; /* Data files that this open made, locked. */
    struct fs_file *lock;
    struct store_file file;
    uint64_t fingerprint_seed;
    uint8_t life[16]; /* By chance, anew at each open: what an earlier one gave away is stale. */
    bool is_read_only;
    bool is_threads;    /* The io engine is the thread pool. */
    bool is_being_made; /* By this open, which has not succeeded yet. */
    bool seeks_strays;  /* The loop does nothing else before strays_remove() has looked. */
    bool is_unfinished; /* The index: see index_finish(). The committer's while it runs. */

    /* The parts below. */
    struct crew *crew;
    struct host_tier *host;
    struct slab *slab;
    struct nvme_tier *nvme; /* NULL: no NVMe tier. */
    struct segment_table *segments;
    struct index *index; /* The committer's while it runs. */
    struct residency *map;
    struct entries *entries;
    struct policy *policy; /* Which copy in HOST goes first: options.policy. */
    struct pins *pins;
    struct phases phases;
    struct holds holds;
    struct event_ring *event_ring; /* NULL: nobody asked for events. any reads */
    struct commit *commit;
    struct committer *committer;
    struct reclaim *reclaim;
    struct victim_scans *victim_scans;
    struct relocate *relocate;
    struct hidden_copies hidden;
    struct lease_table *leases;      /* any */
    struct lazy_file *learned;       /* NULL: nothing is kept. */
    struct lazy_file *fates_file;    /* The same. */
    struct fates fates;              /* any asks */
    struct live *live;               /* NULL: nothing is shown. */
    struct region_table *regions;    /* any */
    struct engram_set *engrams;      /* any */
    struct load_set *loads;          /* any */
    struct process_watch processes;  /* any */
    struct layout_table *layouts;    /* any */
    struct ticket_pool *ticket_pool; /* any */
    struct devices devices;
    struct codecs codecs; /* workers */

    /* The loop. */
    struct pool flight_pool, fill_pool, fill_copies_pool, copy_pool, spread_pool, run_pool;
    struct pool fetch_pool, move_pool;
    struct copy_run *copy_run;   /* copy_run.c: being put together; NULL: none. */
    struct pool tail_pool;       /* fetch.c: pages that are read beside the others. */
    struct job_batch jobs_ready; /* Not yet handed to the workers. */
    struct task *loop_task;
    struct gate call_gate;     /* any waits: a loop call was finished. */
    struct loop_call *calls;   /* Not finished yet. */
    struct scrub *scrubs;      /* scrub.c: that have listed what they read. */
    struct inbox messages;     /* any pushes */
    struct inbox jobs_done;    /* workers push */
    struct inbox batches_done; /* tiers push */
    uint64_t now_ns;
    uint64_t turn;                            /* Of the loop. */
    uint64_t sequence;                        /* Of the record written last. */
    uint64_t batch_sequence;                  /* Of the batch written last. */
    struct op_list room_waiters[POLICY_NVME]; /* Operations that wait for a slot there. */
    struct room_hand room_hands[POLICY_NVME]; /* room.c */
    struct kept_hand kept_hand;
    uint32_t compact_next;       /* Superblock of HOST that compact.c looks at first. */
    uint32_t map_given_count;    /* Entries that were given room in a full map. */
    struct vain_askers map_vain; /* For whom nothing could leave it. */
    struct flush_list flush_list;
    struct window sends; /* fetch.c: blocks on their way to devices through stages, ... */
    struct window bulks; /* ... and those that bulk prefetches read. */
    bool has_shares;     /* A namespace has a share of a tier. */
    bool room_changed;   /* A slot or a pin came free since the last look. */
    uint32_t *doomed;    /* Entries that wait for their last pin. */
    uint32_t doomed_count, doomed_capacity;
    uint32_t doomed_left;       /* The first ones, at which the present round has not looked yet. */
    uint8_t sweep_turn;         /* Of that round. */
    bool is_sweeping;           /* There is one. */
    struct turns work, flights; /* What is in flight: the next line and more; all of flight.h. */
    struct rounds rounds;       /* patience.h: of who waits for room in memory. */
    struct nvme_wait nvme_wait;
    struct reserve_wait reserve_wait;
    uint32_t fills_in_flight, reads_in_flight, copies_in_flight, images_in_flight;
    uint32_t host_loads_in_flight; /* What host_meter counts; each is other work, too. */
    struct load_meter host_meter, nvme_meter;
    uint64_t metered_ns;                      /* Until then. */
    uint64_t costs_told_ns;                   /* To the policy. */
    double put_mean_bytes, recompute_mean_us; /* Of puts; 0: none yet (that said). */
    double demote_mean_bytes;                 /* Of what the policy lets onto NVMe; 0: none yet. */
    struct imaging imaging;
    uint64_t dirty_bytes;  /* HOST slots of blocks that shall become durable. */
    uint64_t nvme_use_sum; /* Last uses of the copies on NVMe, in ticks (entries.h), added up. */
    uint32_t nvme_copy_count;
    bool is_draining; /* Abort: nothing new is started. */

    /* Shared. */
    _Atomic uint32_t health;                /* enum kvt_health_flags */
    _Atomic uint32_t poisoned;              /* Set once, by a proof that failed. */
    struct waiters waiters;                 /* Whom that wakes. */
    struct scrub *_Atomic scrubs_left;      /* inspect.h; of a store that is poisoned. */
    _Atomic uint32_t rest;                  /* enum loop_rest_state */
    _Atomic uint32_t ticket_count;          /* Tickets in memory. */
    _Atomic uint32_t ticket_held_count;     /* Of these, the ones that callers have not freed. */
    _Atomic uint32_t ticket_admitted_count; /* Those with claims: request_count_max at most. */
    _Atomic uint32_t queue_count;
    pthread_mutex_t queues_lock;
    struct kvt_queue *queues; /* That callers have. guarded by: queues_lock */
    _Atomic uint32_t lease_out_count;
    _Atomic uint32_t lease_waiting_count; /* Given back, for when a stream has done its work. */
    _Atomic uint32_t reservation_count;
    pthread_mutex_t reservations_lock;
    struct kvt_reservation *reservations; /* In memory: those that are out, or being given back. */
    struct counters counters;
    struct latencies latencies;

    /* Namespaces: guarded by names_lock, but for each state's epoch and the loop's counts. The
     * table has a fixed size, so that readers need no lock for states that exist (count is
     * released). */
    pthread_mutex_t names_lock;
    struct names_file names;
    struct namespace_state *namespaces;
    _Atomic uint32_t namespace_count;
};

/* --- 3. store.c: checks at the border (any) --------------------------------------------------- */

/* store_enter - may this call go on? KVT_E_INVAL (NULL), KVT_E_STATE (forked), KVT_E_POISONED. */
enum kvt_status store_enter(const struct kvt_store *store);
bool store_is_poisoned(const struct kvt_store *store);
/* store_proofs_set - a proof that fails on the calling thread, or on one that it starts, poisons
 * the store. Returns what it was before: set that again. */
struct proof_handler store_proofs_set(struct kvt_store *store);
void store_health_set(struct kvt_store *store, uint32_t flag);

/* --- 4. loop.c -------------------------------------------------------------------------------- */

bool loop_step(void *context, uint64_t now_ns, uint64_t *next_ns_out);
void loop_send(struct kvt_store *store, struct message *message); /* any */
/* loop_rest - waits until the loop takes no further step (any): of a store that is closed. */
void loop_rest(struct kvt_store *store);
void loop_call(struct kvt_store *store, bool (*run)(struct kvt_store *, void *), void *context);
/* loop_end - the same, and the step in which `run` is done is the last one: what was idle then is
 * so for good. loop_rest() waits for its end. */
void loop_end(struct kvt_store *store, bool (*run)(struct kvt_store *, void *), void *context);
/* loop_job - hand a job to the workers, at the end of the step at the latest; loop_job_on: to
 * another crew, now. */
void loop_job(struct kvt_store *store, struct job *job);
void loop_job_on(struct kvt_store *store, struct crew *crew, struct job *job);

/* --- 5. entry.c: what happens to entries (loop) ----------------------------------------------- */

/* entry_drop - take a block out of the map, with all its copies; readers that have it pinned keep
 * it until they let go. `is_forced` false: only when neither a reader nor kvt_pin() has it pinned
 * (false if so). The releases below it and in copies.c ask for the same. */
bool entry_drop(
    struct kvt_store *store, uint32_t number, bool is_forced, enum kvt_event_reason reason);
/* entry_doomed_step - some more of those that wait for their last pin, once one of these has gone:
 * in rounds over all of them, each as work that is in flight. */
bool entry_doomed_step(struct kvt_store *store);
/* entry_is_held - it is pinned by more than its flight, for which one pin is taken. */
bool entry_is_held(const struct kvt_store *store, uint32_t number);
void entry_unpin(struct kvt_store *store, uint32_t number);
/* entry_extent - where the entry's copy on NVMe is, or was. */
struct extent entry_extent(const struct entry *entry);
/* extent_forget - an extent's bytes count as live no longer. */
void extent_forget(struct kvt_store *store, const struct extent *extent, uint32_t stored_length);
/* entry_place - the entry's NVMe copy is the one that `record` describes, stored as it says (its
 * bytes count already). */
void entry_place(struct kvt_store *store, uint32_t number, const struct block_record *record,
    uint32_t record_crc);
/* entry_place_forget - the copy at the entry's place counts no longer, nor its uses. */
void entry_place_forget(struct kvt_store *store, uint32_t number);
/* entry_nvme_release - give up the NVMe copy of a block that HOST holds too; false when pinned. */
bool entry_nvme_release(struct kvt_store *store, uint32_t number);
/*
 * entry_nvme_condemn - the NVMe copy is bad, and another tier has the block, which stays. That copy
 * is given up and killed; HOST's is written again, and the kill goes with it: a crash leaves one of
 * the two. What only HBM has goes down in its turn. False: a reader or a flight has the block
 * pinned, or there is no memory: nothing was changed.
 */
bool entry_nvme_condemn(struct kvt_store *store, uint32_t number);
/* host_load_begin - bytes of HOST are on their way to where they were asked for; host_load_end -
 * they are there, or 0 of them. */
static inline void
host_load_begin(struct kvt_store *store)
{
    store->host_loads_in_flight++;
}

static inline void
host_load_end(struct kvt_store *store, uint64_t bytes)
{
    store->host_loads_in_flight--;
    store->host_meter.bytes += bytes;
}

/* load_meter_age - what was long ago counts less. load_meter_ns - how long so many bytes take; 0:
 * not known. */
void load_meter_age(struct load_meter *meter);
uint64_t load_meter_ns(const struct load_meter *meter, uint64_t bytes);
/* costs_note - a put brings a block; costs_note_demotion - one goes to NVMe from memory. costs_step
 * - the policy hears what was measured. */
void costs_note(struct kvt_store *store, const struct op *op);
void costs_note_demotion(struct kvt_store *store, uint64_t length);
void costs_step(struct kvt_store *store);

/* entry_request - the blocks of one request were used, a chain, first block first (ENTRY_NONE:
 * passed over). Those that have left the map meanwhile become ENTRY_NONE. */
void entry_request(struct kvt_store *store, uint32_t *numbers, uint32_t count);
/* entry_touch - a request of this block alone. */
void entry_touch(struct kvt_store *store, uint32_t number);
/* entry_use_share - what the entry adds to nvme_use_sum: to be taken off before, and added behind
 * what may change its last use. */
uint64_t entry_use_share(const struct kvt_store *store, uint32_t number);
/* entry_corrupt_note - the bytes of a copy are wrong: counted, a line in the log, and noted by the
 * scrubs. `tier`: an enum residency_tier; `extent`: where on NVMe they were read.
 * entry_quarantine - the block leaves the store, so that nobody reads it again. */
void entry_corrupt_note(
    struct kvt_store *store, uint32_t number, unsigned tier, const struct extent *extent);
void entry_quarantine(struct kvt_store *store, uint32_t number);
/* entry_record - what the store knows of an entry, for a batch; extent and sequence left empty. */
void entry_record(const struct kvt_store *store, uint32_t number, struct block_record *record_out);
struct namespace_state *entry_namespace(struct kvt_store *store, uint32_t number);
uint64_t sequence_next(struct kvt_store *store);

/* --- 6. copies.c: copies in HBM and HOST (loop) ----------------------------------------------- */

/* entry_host_release - give up the HOST copy of a block that another tier holds too; false when
 * pinned. */
bool entry_host_release(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason);
/* entry_host_condemn - the same of a bad one: a kvt_pin() keeps the block, and not that copy. */
bool entry_host_condemn(struct kvt_store *store, uint32_t number);
/* entry_host_is_movable - its HOST copy lies in that slot, and nobody has it pinned: nor is it in
 * flight. entry_host_move - it lies in another superblock of the same class from here on; false:
 * none has room, or no memory. */
bool entry_host_is_movable(const struct kvt_store *store, uint32_t number, struct slot slot);
bool entry_host_move(struct kvt_store *store, uint32_t number);
/* entry_hbm_release - give up the HBM copy of a block that another tier holds too; false when
 * pinned. */
bool entry_hbm_release(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason);
/* entry_hbm_hide - give up a bad HBM copy of a block that another tier holds too and somebody has
 * pinned: nobody else finds it, and its slot is used again when hidden_copies_step() sees no pin of
 * the entry. While it has one (entry_is_hiding()) the block gets no other copy in HBM: who has it
 * pinned may ask for its address. False: no memory. */
bool entry_hbm_hide(struct kvt_store *store, uint32_t number);
bool entry_is_hiding(const struct kvt_store *store, uint32_t number);
bool hidden_copies_step(struct kvt_store *store);
/* hidden_copies_next_ns - when it is to be called, whatever happens. */
uint64_t hidden_copies_next_ns(const struct kvt_store *store);
/* hidden_newest_free - of those hidden since `first` was the first: whose pins have gone. */
void hidden_newest_free(struct kvt_store *store, const struct hidden_copy *first);
void hidden_copies_close(struct kvt_store *store);
/* entry_prepare - the policy can take one more copy of the block: each ends with one
 * entry_copy_add() or entry_publish() of that copy, or with entry_unprepare(). KVT_E_NOMEM. */
enum kvt_status entry_prepare(struct kvt_store *store, uint32_t number);
void entry_unprepare(struct kvt_store *store, uint32_t number);
/* entry_copy_add - the slot is a copy of the RESIDENT block from now on; that is a use. */
void entry_copy_add(struct kvt_store *store, uint32_t number, enum policy_place place,
    struct slot slot, enum kvt_event_reason reason);
/* entry_publish - a FILLING block is RESIDENT, with these copies (NULL: not there). */
void entry_publish(struct kvt_store *store, uint32_t number, const struct slot *hbm,
    const struct slot *host, uint32_t device);
/* copy_bytes - what the copy there takes. */
uint64_t copy_bytes(const struct kvt_store *store, enum policy_place place, uint32_t number);
/* entry_tiers - enum residency_tier: where the block can be read; not from a lost device. */
unsigned entry_tiers(const struct kvt_store *store, uint32_t number);
/* Of a block with that copy (any, when it is pinned). */
void *entry_host_address(const struct kvt_store *store, const struct entry *entry);
void *entry_hbm_address(const struct kvt_store *store, const struct entry *entry);
/* copy_slot_put - a slot that did not become a copy; `move`: the device's copy into it, which has
 * ended. When the device was lost while it was on its way, the slot is used no more. */
void copy_slot_put(struct kvt_store *store, enum policy_place place, struct slot slot,
    const struct device_move *move);
/* copies_forget - the entry leaves the map: its copies are none to the policy any more.
 * copies_free: nobody reads them: the slots of an entry that `was`, by its tiers. */
void copies_forget(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason);
void copies_free(struct kvt_store *store, const struct entry *was, unsigned tiers);

/* --- 7. room.c, map_room.c: room in memory and who waits for it (loop) ------------------------ */

/* Who wants room for what. */
struct room_want {
    enum policy_place place;
    uint32_t namespace_id; /* Whose block it is for; 0: nobody's. */
    uint64_t size;
    struct patience *patience; /* Of who wants it; NULL: it is never out. */
    bool is_in_line;           /* It waits with room_wait(). */
    bool is_within;            /* HOST, in a search in HBM: for a block that shall leave that. */
    bool is_last;              /* Nothing is waited for, but for what this search lets go. */
};

void room_open(struct kvt_store *store);
/* room_take - a slot, evicting what may go. KVT_NOT_READY: wait with room_wait(), work that may
 * make room is under way. KVT_E_NOSPC: nothing will. */
enum kvt_status room_take(
    struct kvt_store *store, const struct room_want *want, struct slot *slot_out);
void room_put(struct kvt_store *store, enum policy_place place, struct slot slot);
/* room_untake - of a slot that was taken just now, and is of no use without another one: that is no
 * change of room, for which those who wait would try again, and nobody was given any. */
void room_untake(struct kvt_store *store, enum policy_place place, struct slot slot);
/* room_will_come - nothing can go now, but something that is under way will end: it is hurried. */
bool room_will_come(struct kvt_store *store);
void room_wait(struct kvt_store *store, enum policy_place place, struct op *op);
bool room_is_wanted(const struct kvt_store *store);
/* room_line_has - somebody waits there before whom `asker` is not to be given room: with shares one
 * of its own namespace, or more than are looked at. */
bool room_line_has(const struct kvt_store *store, enum policy_place place, uint32_t asker);
bool room_step(struct kvt_store *store);
/*
 * room_lowered - the copy in HOST is there for which that in `place`, HBM, was to make room: the
 * latter goes, if room is still wanted and its share does not keep it from namespace `asker`, which
 * wanted it. Left to the next search it might be passed over, and the copy in HOST given up for
 * that of another block, and so on for ever.
 */
void room_lowered(
    struct kvt_store *store, enum policy_place place, uint32_t number, uint32_t asker);

/* room_refused - a copy down from `place`, HBM, that was to make room failed with `status`. */
void room_refused(struct kvt_store *store, enum policy_place place, enum kvt_status status);

/* map_room_make - map_room.c: the map takes one more block, of namespace `asker`; another has left
 * for it if need be, but not `keep` (ENTRY_NONE: any may). KVT_NOT_READY: wait, as for HOST.
 * KVT_E_NOSPC: none can go. */
enum kvt_status map_room_make(
    struct kvt_store *store, uint32_t keep, uint32_t asker, struct patience *patience);

/* place_slab - of HOST or of a device's HBM; NULL: there is none. */
struct slab *place_slab(const struct kvt_store *store, enum policy_place place);

static inline enum policy_place
place_of_device(uint32_t device)
{
    return (enum policy_place)(POLICY_HBM + device);
}

/* Whether something that was started will end: pins and slots will come free. */
static inline bool
work_is_in_flight(const struct kvt_store *store)
{
    return store->fills_in_flight + store->reads_in_flight + store->copies_in_flight +
                   store->images_in_flight + store->devices.in_flight >
               0 ||
           store->copy_run != NULL;
}

/* ticket_age_ns - since its submission. Another thread's may be later than this step's look at the
 * clock: then 0. */
static inline uint64_t
ticket_age_ns(const struct kvt_store *store, const struct kvt_ticket *ticket)
{
    return store->now_ns > ticket->submit_ns ? store->now_ns - ticket->submit_ns : 0;
}

/* work_begin - something is in flight that one of these counts has; work_end: with what that
 * returned. */
static inline uint8_t
work_begin(struct kvt_store *store, uint32_t *count)
{
    (*count)++;
    return turns_begin(&store->work);
}

static inline void
work_end(struct kvt_store *store, uint32_t *count, uint8_t turn)
{
    (*count)--;
    turns_end(&store->work, turn);
}

/* Whether pins of other than flights may go, or slots of what has left. A run of copies is in
 * flight with the end of the step. */
static inline bool
work_may_make_room(const struct kvt_store *store)
{
    return !turns_are_idle(&store->work) || store->copy_run != NULL;
}

/* --- 8. put.c, get.c, delete.c, prefetch.c: one operation each (loop) ------------------------- */

void put_begin(struct kvt_store *store, struct op *op);
void get_begin(struct kvt_store *store, struct op *op);
void delete_begin(struct kvt_store *store, struct op *op);
/* delete_settle - stage 2 of a delete that has no kill of its own to wait for, with the status of
 * its stage 1; or when an older copy of its key is dead for good. */
void delete_settle(struct kvt_store *store, struct op *op);
/* entry_kill - of the entry's copy on NVMe, and all that was written for its key so far. */
struct commit_kill entry_kill(struct kvt_store *store, uint32_t number, struct op *waiter);
/*
 * entry_erase - the block is gone at once, and no crash brings it back once its kill is durable
 * (`waiter`, a delete, may be NULL, is told of both: stages 1 and 2). The entry is not FILLING.
 * KVT_E_NOMEM: nothing was changed.
 */
enum kvt_status entry_erase(struct kvt_store *store, uint32_t number, struct op *waiter);
/*
 * entry_replace - as entry_erase(), for a block whose place another takes: the kill of its copy on
 * NVMe (*has_kill_out: there is one) is left to the other's flight. The entry is not WRITING
 * either.
 */
enum kvt_status entry_replace(
    struct kvt_store *store, uint32_t number, struct commit_kill *kill_out, bool *has_kill_out);
/* get_bring - read the block from NVMe into HOST; get_lower: copy it down from HBM. The operation
 * starts again afterwards, or has been answered. */
void get_bring(struct kvt_store *store, struct op *op, uint32_t number);
void get_lower(struct kvt_store *store, struct op *op, uint32_t number);
void prefetch_begin(struct kvt_store *store, struct op *op);
void demote_begin(struct kvt_store *store, struct op *op);
/* op_begin - start, or start again, by the kind of its ticket. During an abort: end it. */
void op_begin(struct kvt_store *store, struct op *op);
/* The pools of what each operation needs while it is under way. */
void flight_pool_open(struct kvt_store *store);
void fill_pool_open(struct kvt_store *store);
void copy_pool_open(struct kvt_store *store);
void fetches_open(struct kvt_store *store);
void move_pool_open(struct kvt_store *store);
/* op_await - it waits in the entry's flight. op_note: what it says of its moves is of this entry.
 * op_look - it found its block in this one: what it has made of another's moves is no matter. */
void op_await(struct kvt_store *store, struct op *op, uint32_t number);
void op_note(const struct kvt_store *store, struct op *op, uint32_t number);
void op_look(struct kvt_store *store, struct op *op, uint32_t number);
/* ops_restart - start all of them again; `status` is that of what they waited for. */
void ops_restart(struct kvt_store *store, struct op_list *waiters, enum kvt_status status);

/* --- 9. namespace.c (any, but where noted) ---------------------------------------------------- */

enum kvt_status namespaces_open(struct kvt_store *store); /* From NAMES; before the loop. */
void namespaces_close(struct kvt_store *store);
struct namespace_state *namespace_at(struct kvt_store *store, uint32_t id); /* NULL: none. */

/* reservations_close - direct.c: those that are out are void (kvt_abort()); the loop has ended. */
void reservations_close(struct kvt_store *store);

/* --- 10. recover.c, rebuild*.c (before the loop) ---------------------------------------------- */

/* recover_meta_open - the index's folder; KVT_E_CORRUPT: it is missing, and may not be made. */
enum kvt_status recover_meta_open(struct kvt_store *store);
/* recover_look - what NAMES and the index look like. Nothing is changed; KVT_E_CORRUPT: the store
 * cannot be opened so. recover_store - as recover_decide() says. */
struct recover_facts;
enum kvt_status recover_look(struct kvt_store *store, bool is_new, struct recover_facts *facts_out);
enum kvt_status recover_store(
    struct kvt_store *store, bool is_new, const struct recover_facts *facts);
/* recover_pass_over - a rebuild cannot read a page that may be a header: KVT_E_IO, unless it was
 * asked for; then its segment is SEALED, with what was read, until reclaim.c has made sure that
 * nothing in it counts any more. */
enum kvt_status recover_pass_over(struct kvt_store *store, uint32_t segment, uint32_t page);
enum kvt_status rebuild_index(struct kvt_store *store);

/* --- 11. stats.c ------------------------------------------------------------------------------ */

/* stats_counts - adds counters and latencies; any. stats_gauges: what only the loop knows, but for
 * stats_live_bytes(), which looks at every segment. */
void stats_counts(const struct kvt_store *store, struct kvt_stats *stats);
void stats_gauges(struct kvt_store *store, struct kvt_stats *stats);
uint64_t stats_live_bytes(struct kvt_store *store);

/* --- 12. options.c ---------------------------------------------------------------------------- */

enum kvt_status options_import(struct kvt_options *target, const struct kvt_options *source);
/* options_resolve - bounds and defaults; `file` is NULL for a new store. */
enum kvt_status options_resolve(struct kvt_options *options, const struct store_file *file);
/* options_policy - the policy that resolved options name. */
const struct policy_ops *options_policy(const struct kvt_options *options);

#endif /* KVT_ENGINE_STORE_INTERNAL_H */
