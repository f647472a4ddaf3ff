/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h - the devices of a store: opening them, the HBM tier of each, copies that go through
 * them, and what happens when one is lost.
 *
 * Owns      the handles of the HBM tiers, the inbox of their answers.
 * Not here  which block lies where (entry.c), memory of callers (region.h).
 * Threads   the loop, but where noted.
 *
 * A device that is lost: KVT_HEALTH_GPU_LOST; nothing is sent to it any more. Its HBM copies are
 * given up as soon as nobody has them pinned, and are not shown or read from that moment on; a
 * block that had no other copy is gone.
 */
#ifndef KVT_ENGINE_DEVICES_H
#define KVT_ENGINE_DEVICES_H

#include "device_mover.h"
#include "hbm_tier.h"
#include "policy.h"

struct kvt_store;
struct spread;

/* Copies of one device that come back to the loop. Embedded in who wants them. */
struct device_job {
    struct device_move move;
    struct device_piece piece;
    struct device_piece *pieces; /* NULL: `piece` alone; else given back when it has finished. */
    uint32_t device;
    bool is_urgent; /* Somebody waits for these bytes now: ahead of moves between tiers. */
    bool is_before; /* What waits for it has no pin and no slot yet: no turn counts it. */
    /* device_job_wait(): is_wait_firm, is_wait_owned (device_mover.h). */
    bool is_firm, owns_event;
    struct device_mark *mark; /* Where it counts when it was queued; NULL: nowhere. */
    uint8_t turn;             /* patience.h */
    struct device_job *next_wait, **wait_link; /* device_job_wait(): in devices.waits. */
    void (*finish)(struct kvt_store *store, struct device_job *job); /* move.status says how. */
};

struct devices {
    uint32_t mask; /* Those that are open. */
    struct hbm_tier *tiers[POLICY_DEVICES_MAX];
    uint32_t peers[POLICY_DEVICES_MAX];      /* Mask: whose HBM it reads by itself. */
    uint32_t near_peers[POLICY_DEVICES_MAX]; /* Of them, those that it reads faster than HOST. */
    struct inbox done;                       /* Movers push. */
    uint32_t in_flight;                      /* Jobs that were sent and have not finished. */
    struct device_job *waits;                /* Of them, those that wait for an event only. */
    bool has_remains;                        /* Lost devices may have copies in the map yet. */
    bool is_sweeping;                        /* A round over all entries gives these up. */
    bool is_sweep_due;                       /* Pins may have gone behind its look: another. */
    uint8_t sweep_turn;                      /* patience.h */
    uint32_t sweep_next;                     /* Its next entry. */
    uint32_t mourned;                        /* Mask of the lost ones that the loop knows of. */
    _Atomic uint32_t lost;                   /* Mask; any. */
    bool is_arena_kept; /* By a lost device: it stays mapped when the store ends. */
};

/* devices_open - as the options say, before the loop. KVT_E_UNSUPPORTED, KVT_E_NOMEM, KVT_E_GPU. */
enum kvt_status devices_open(struct kvt_store *store);
/* devices_close - nothing may be in flight. Any thread, when nobody calls the store any more. */
void devices_close(struct devices *devices);

/* devices_step - take answers; true when there were any. */
bool devices_step(struct kvt_store *store);

/* device_stream_keep_check - any; of a caller's stream whose handle is used again after the call,
 * maybe by another thread. KVT_E_INVAL: there it may stand for another stream, or it is the default
 * stream. */
enum kvt_status device_stream_keep_check(const void *stream);

/* device_job_copy - one run of bytes; device_job_wait - nothing but an event of the caller. */
void device_job_copy(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct device_piece *piece);
/* device_job_spread - the same between the memory (`is_gather`: its target) and the slot of a
 * layout. Without memory for the pieces the job finishes with KVT_E_NOMEM. */
void device_job_spread(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct spread *spread, bool is_gather);
/* device_job_pieces - pieces of the caller's, which live until it finishes; each counts at the
 * mark. */
void device_job_pieces(struct kvt_store *store, struct device_job *job, enum device_lane lane,
    const struct device_piece *pieces, uint32_t count);
void device_job_wait(struct kvt_store *store, struct device_job *job, void *event);
/* devices_waits_cancel - each job that waits for an event only finishes soon, with KVT_CANCELLED
 * unless its event is reached or it is firm. */
void devices_waits_cancel(struct kvt_store *store);

/* devices_memory_share - register host memory of whole pages with every device that is not lost, in
 * runs of at most 1 GiB from `memory` on; *mask_out: with which. KVT_E_NOMEM, KVT_E_INVAL: with
 * none; *mask_out is still to be unshared. devices_memory_unshare - no copy of it is in flight, but
 * of devices that are lost. False: one of them does not let go of it, the log says so, and it must
 * not be unmapped any more. any */
enum kvt_status devices_memory_share(
    struct kvt_store *store, void *memory, uint64_t size, uint32_t *mask_out);
bool devices_memory_unshare(struct kvt_store *store, void *memory, uint64_t size, uint32_t mask);
/* devices_kept_log - host memory stays mapped until the process ends: a device may use it. any */
void devices_kept_log(struct kvt_store *store, const void *memory, uint64_t size);

/* device_reads_peer - whether `device` copies by itself what lies in HBM of `other`; `has_host`: it
 * lies in HOST too, and is copied from there unless `other` is nearer. */
bool device_reads_peer(
    const struct kvt_store *store, uint32_t device, uint32_t other, bool has_host);

bool device_is_open(const struct kvt_store *store, uint32_t device); /* any */
bool device_is_lost(const struct kvt_store *store, uint32_t device); /* any */
/* device_answer - what a call of the device said, unchanged: with KVT_E_GPU it is lost. any */
enum kvt_status device_answer(struct kvt_store *store, uint32_t device, enum kvt_status status);

#endif /* KVT_ENGINE_DEVICES_H */
