/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives.h - one store that has several lives in a simulated world, and what goes wrong in them.
 *
 * Owns      the world, the workload, what is known of the present life.
 * Not here  the course of a life, and how it ends: sim/sim_lives.c.
 */
#ifndef KVT_TESTS_LIVES_H
#define KVT_TESTS_LIVES_H

#include "rng.h"
#include "store_host.h"
#include "workload.h"

enum {
    TROUBLES_MAX = 2,
};

/* A disk, or both, that is ill for some steps of a life. */
struct trouble {
    struct sim_rule rule;
    bool is_full; /* No file grows, either. */
    uint32_t from, until;
    bool is_on;
};

struct lives {
    struct workload *work;
    struct sim_host host;
    struct rng rng;
    bool is_rebuilt;    /* The index was lost since everything was last read in peace. */
    bool trusts_lies;   /* A rebuild found what is not on the disk. */
    bool writes_arrive; /* What fails is on the disk all the same. */
    bool reads_fail;    /* In this life. */
    bool reads_lie;
    bool memory_fails;  /* In this life, now and then. */
    bool was_reclaimed; /* A segment of the last life was, when that ended. */
    enum sim_cut cut;   /* How the power goes. */
    bool has_roots;     /* Two, each on a disk of its own. */
    bool has_hbm;
    uint32_t growth_left;    /* How often NVMe may still become larger. */
    uint32_t spread_percent; /* The workload's, in each life. */
    bool holds_all; /* Nothing leaves HOST for want of room: not even what NVMe does not take. */
    struct trouble troubles[TROUBLES_MAX];
    uint32_t trouble_count; /* In this life. */
    bool time_jumps;        /* In this life. */
};

/* --- lives_troubles.c: before a life is opened, or a step is made ---------------------------- */

void faults_choose(struct lives *lives);
void disk_fails(struct lives *lives);
void device_fails(struct lives *lives);
void memory_fails(struct lives *lives);
/* memory_vary - before a step of a life whose memory fails. */
void memory_vary(struct lives *lives);
void rebuild_trouble(struct lives *lives);
/* troubles_choose - disks will fail, or be full, and be well again, in the life of so many steps.
 * troubles_step: before each of them. */
void troubles_choose(struct lives *lives, uint32_t step_count);
void troubles_step(struct lives *lives, uint32_t step);
/* time_choose - single operations of the disk take half a minute, and the clock jumps.
 * time_step: before each step. Nothing is lost for that, and nothing fails. */
void time_choose(struct lives *lives);
void time_step(struct lives *lives);

#endif /* KVT_TESTS_LIVES_H */
