/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.h - what processes share of HBM: memory, events, and who watches that no wait is for
 * ever.
 *
 * An event is a page that both processes map (struct process_words) and that devices know: a record
 * is a number which the maker's stream writes there when it comes to it, a wait is for that number
 * or any above. (An event of CUDA between processes would do for the order; but a stream that waits
 * for one whose maker is dead waits for ever, and nobody can end that.)
 *
 * Who ends a wait that will never be reached: process_watch of the process that waits. It sees by
 * the page's lock that the maker is gone (page_is_made), marks the page broken, and raises the
 * number above all (event_break()); again at each look, since what the dead one's device still had
 * to do may write there once more. It calls no device, and its lock is held over no call of one:
 * such a call blocks while the stream is full, perhaps of waits that only the watch can end. (Whose
 * lock it is nobody says: who has the descriptor can keep one when the maker is gone, and the waits
 * with it, until they are ended by who waits, process_waits_end(), or by itself.)
 *
 * Threads   any.
 */
#ifndef KVT_ENGINE_PROCESSES_H
#define KVT_ENGINE_PROCESSES_H

#include <pthread.h>

#include "device_share.h"
#include "env.h"
#include "kvtier/sharing.h"

enum {
    PROCESS_WORDS_MAGIC = 0x56454B4B,
    PROCESS_WORDS_VERSION = 1,
};

/*
 * The page of an event. Whoever has its descriptor can write anything there, at any time. So its
 * maker reads nothing of it that it goes by: it counts its records itself, and asks its device
 * whether they are reached (but for a record that is no longer its last one). Others can be told
 * too early, or never while anybody locks its file, as its maker does; what they read is bounded so
 * that devices and hosts see the same in it, and that each wait can be ended.
 */
struct process_words {
    uint32_t magic;
    uint32_t version;
    uint64_t number;            /* As in its struct kvt_share. */
    _Atomic uint64_t recorded;  /* Records that were queued, for who waits. */
    uint64_t reached;           /* The last that was reached. Atomic; devices write it. */
    _Atomic uint32_t is_broken; /* What was not reached never will be. */
};

/* The open events of a store or of an import. */
struct process_watch {
    const struct kvt_env *env;
    pthread_mutex_t lock;
    struct kvt_shared_event *first; /* guarded by: lock */
    uint32_t count;                 /* guarded by: lock */
    struct task *task;              /* From the first stream's wait on. guarded by: lock */
};

void process_watch_init(struct process_watch *watch, const struct kvt_env *env);
uint32_t process_watch_count(struct process_watch *watch);
/* process_waits_end - what streams wait for of other processes ends, for good: the watch goes on
 * looking. Before anything that a device knows is given back. */
void process_waits_end(struct process_watch *watch);
/* Close what is still open. What streams wait for ends; pages that they may still use are left to
 * them. */
void process_watch_close(struct process_watch *watch);
void process_watch_deinit(struct process_watch *watch);

struct kvt_import {
    struct kvt_env env;
    struct kvt_share share;
    _Atomic uint32_t *fork_page; /* 0: in a forked child. */
    uint32_t ordinal;
    struct device *device;
    uint8_t *memory; /* The device's. */
    struct process_watch watch;
    pthread_mutex_t lock;
    uint8_t *stage; /* kvt_import_read(): host memory that the device knows. guarded by: lock */
    bool is_stage_known;
    void *event; /* guarded by: lock */
};

/* import_open_in - kvt_import_open() in a world that has a kind of device, or none yet. */
enum kvt_status import_open_in(const struct kvt_env *env, const struct kvt_share *share,
    int descriptor, kvt_import **import_out);
enum kvt_status import_enter(const kvt_import *import);

/* share_seal - its check is right. share_check - it is whole, and of this kind. */
void share_seal(struct kvt_share *share);
enum kvt_status share_check(const struct kvt_share *share, enum kvt_share_kind kind);

#endif /* KVT_ENGINE_PROCESSES_H */
