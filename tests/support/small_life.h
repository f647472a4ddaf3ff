/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_life.h - one fixed, short course of a store's life that touches everything once: what the
 * fault tests repeat with another call failing each time.
 */
#ifndef KVT_TESTS_SMALL_LIFE_H
#define KVT_TESTS_SMALL_LIFE_H

#include "store_host.h"
#include "workload.h"

enum small_life_kind {
    SMALL_LIFE_PLAIN,
    SMALL_LIFE_HBM,   /* With an HBM tier on an emulated device, and a course through it. */
    SMALL_LIFE_ROOTS, /* On two disks. */
};

/* A world, a store's options and a workload, all from `seed`. */
struct small_life {
    struct sim_host host;
    struct workload *work;
    enum small_life_kind kind;
    bool is_judged;  /* Nothing fails but calls of the device: device_course.h. */
    bool is_judging; /* Now: nothing shall fail that has not yet. */
};

void small_life_init(struct small_life *life, enum small_life_kind kind, uint64_t seed);
void small_life_deinit(struct small_life *life);

/*
 * small_life_run - open, put, get, replace, delete, clear, look up, flush, close, open again, read,
 * close. Stops early when an open fails or the power goes. The status of the first open that
 * failed.
 */
enum kvt_status small_life_run(struct small_life *life);

/*
 * small_life_prove - in a life without faults: the store opens, holds what was acknowledged, works,
 * closes, and leaves nothing behind. `is_rebuilt` as in workload_open().
 */
void small_life_prove(struct small_life *life, bool is_rebuilt);

#endif /* KVT_TESTS_SMALL_LIFE_H */
