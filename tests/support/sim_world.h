/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_world.h - a simulated world for a whole store: everything of struct kvt_env from one seed.
 *
 * What there is: a virtual clock; a scheduler that steps actors one at a time in a seeded order;
 * memory that is counted and can be made to fail; a file system that knows what was synced and
 * what was not; io queues with latency, reordering, short transfers and faults; power cuts. One
 * world outlives several lives of a store in it: what was durable stays.
 *
 * The same seed and the same calls give the same run, and sim_trace_hash() proves it.
 *
 * Threads   none. The test is the "caller"; actors run inside gate_wait(), sim_run() and
 *           sim_run_for(), never elsewhere. An actor's step must not call gate_wait().
 *
 * A crash   sim_crash_after(n) freezes the disk at the n-th io operation: that operation may have
 *           happened, wholly, in part or not at all, nothing later reaches the disk, and every
 *           later io is answered with EIO. The store goes on as a ghost so that a caller who waits
 *           gets an answer; what it says may be believed (it stands on what the disk did before).
 *           The test notices sim_crashed() and calls sim_power_cut(), which makes everything of
 *           that life vanish: tasks, memory, open files, locks. A test may also call
 *           sim_power_cut() at any moment by itself, outside of a step.
 *
 * Broken rules of env.h (a wrong size handed to put(), a file closed twice, a queue closed with
 * transfers in flight, gate_wait() inside a step) print the seed and abort: they are bugs of the
 * code under test.
 */
#ifndef KVT_TESTS_SIM_WORLD_H
#define KVT_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env.h"
#include "index.h"

/* --- 1. The world ----------------------------------------------------------------------------- */

/* All zero is a healthy machine with quick, orderly enough io. */
struct sim_options {
    uint64_t seed;
    uint64_t space_bytes;       /* Of the file system. 0: one TiB. */
    uint64_t latency_ns_max;    /* Of one io operation, from 5 us. 0: 400 us. */
    uint32_t align_bytes;       /* Of direct transfers. 0: 512. */
    uint32_t short_per_mille;   /* Transfers that move less than was asked. */
    uint32_t retry_per_mille;   /* Transfers that are answered with EINTR or EAGAIN. */
    bool direct_unsupported;    /* FS_DIRECT takes no effect. */
    bool direct_refused;        /* It does, and reads are EINVAL. */
    bool directories_sync_late; /* One that is made is lost without its parent's. */
};

struct sim_world;

struct sim_world *sim_world_create(const struct sim_options *options);
/* Whatever is left of a life is thrown away; NULL is fine. */
void sim_world_destroy(struct sim_world *world);

/* The environment to open a store with. */
const struct kvt_env *sim_env(struct sim_world *world);
/* The same, but its memory belongs to the world and not to a life, and never runs out. */
const struct kvt_env *sim_outer_env(struct sim_world *world);

uint64_t sim_now(const struct sim_world *world);
/* sim_clock_jump - it is so much later at once, as for a process that was stopped: whatever waits
 * for a time finds that passed, transfers in flight are over. Not inside a step. */
void sim_clock_jump(struct sim_world *world, uint64_t duration_ns);
uint64_t sim_trace_hash(const struct sim_world *world);
/* sim_trace - mix a fact of the test's own (an operation, an answer) into the hash. */
void sim_trace(struct sim_world *world, uint64_t kind, uint64_t fact);

/* sim_board_enable - stores opened from now on show what they do, which takes no part in faults,
 * crashes and the disk. sim_board: what the last one wrote; NULL when it took it away. */
void sim_board_enable(struct sim_world *world);
const void *sim_board(const struct sim_world *world, size_t *size_out);

/* --- 2. The scheduler ------------------------------------------------------------------------- */

enum sim_outcome {
    SIM_DONE,    /* The condition holds. */
    SIM_TIME,    /* The time has come. */
    SIM_IDLE,    /* Nothing is runnable, no io is in flight, and no time was given. */
    SIM_CRASHED, /* sim_crashed() */
};

/*
 * sim_run - step actors until `done` (may be NULL) holds, the clock reaches `until_ns`, or, with
 * UINT64_MAX, nothing is left to do but timers.
 */
enum sim_outcome sim_run(
    struct sim_world *world, bool (*done)(void *context), void *context, uint64_t until_ns);
enum sim_outcome sim_run_for(struct sim_world *world, uint64_t duration_ns);
/* sim_run_steps - at most `count` steps; used between a caller's calls to make it race. */
void sim_run_steps(struct sim_world *world, uint32_t count);
uint64_t sim_step_count(const struct sim_world *world);
/* A caller waited without a time while nothing could ever happen: a lost wake, or a lost answer. */
bool sim_stuck(const struct sim_world *world);

/* --- 3. Memory -------------------------------------------------------------------------------- */

/* sim_memory_fail - the n-th allocation from now (1: the next) fails; with `sticky` all later ones
 * as well. n = 0: none fails. */
void sim_memory_fail(struct sim_world *world, uint64_t n, bool sticky);
uint64_t sim_memory_asked(const struct sim_world *world); /* Allocations ever asked for. */
/* What the present life holds: allocations, mappings, open files, directories, queues, tasks.
 * 0 after everything was closed. `text` (may be NULL) names them. */
uint64_t sim_leaks(const struct sim_world *world, char *text, size_t size);

/* --- 4. Faults -------------------------------------------------------------------------------- */

enum sim_op {
    SIM_OPEN = 1 << 0, /* Files and directories. */
    SIM_READ = 1 << 1,
    SIM_WRITE = 1 << 2,
    SIM_SYNC = 1 << 3,
    SIM_DIR_SYNC = 1 << 4,
    SIM_RENAME = 1 << 5,
    SIM_UNLINK = 1 << 6,
    SIM_ALLOCATE = 1 << 7,
    SIM_TRUNCATE = 1 << 8,
    SIM_LIST = 1 << 9,
    SIM_COMMIT = 1 << 10, /* Whatever the index makes durable. */
    SIM_INDEX = 1 << 11,  /* Opening and reading it. */
    SIM_ALL = (1 << 12) - 1,
};

enum sim_effect {
    SIM_NOTHING,
    SIM_EIO,    /* A failed sync loses some of what it should have written, for good. */
    SIM_ENOSPC, /* For a commit: the map is full. */
    SIM_ENOMEM, /* Reads and writes only: nothing is done. */
    SIM_EINTR,  /* Queues only, as the next two; other operations are not touched by these. */
    SIM_EAGAIN,
    SIM_SHORT,
    SIM_TORN,      /* Writes: some sectors arrive, and EIO. Others: EIO. */
    SIM_ARRIVES,   /* Writes through queues: all of it arrives, and EIO. */
    SIM_FLIP,      /* Reads: one bit differs. */
    SIM_MISDIRECT, /* Reads: bytes from elsewhere in the file. */
    SIM_STALE,     /* Reads: what stood there before it was last written. */
    SIM_STALL,     /* The operation takes `stall_ns` longer. */
};

/* Which operations go wrong, and how. */
struct sim_rule {
    unsigned ops; /* enum sim_op, or'ed. */
    enum sim_effect effect;
    const char *file;   /* Only names that start so; NULL: all. Kept. */
    const char *path;   /* Only that file ("/dir/name"), and through queues; NULL: all. Kept. */
    uint64_t nth;       /* The n-th matching operation from now, 1..; 0: by chance. */
    uint32_t per_mille; /* The chance. */
    bool sticky;        /* The n-th and all later ones. */
    uint64_t stall_ns;
};

enum {
    SIM_RULES_MAX = 12,
};

void sim_rule_add(struct sim_world *world, const struct sim_rule *rule);
void sim_rules_clear(struct sim_world *world);
/* A failed sync has lost something that reads still show, as a page cache does; until a cut. */
bool sim_lies(const struct sim_world *world);
uint64_t sim_fault_count(const struct sim_world *world); /* How often a rule has fired. */
/* Operations that a rule or a crash could have hit, ever: synchronous, asynchronous, commits. */
uint64_t sim_io_count(const struct sim_world *world);
void sim_space_set(struct sim_world *world, uint64_t space_bytes);
/* sim_direct_refuse - files that are open, and later ones, promise direct reads and refuse them. */
void sim_direct_refuse(struct sim_world *world);

/* --- 5. Crashes ------------------------------------------------------------------------------- */

/* sim_crash_after - at the n-th io operation from now (1: the next); 0: not at all. */
void sim_crash_after(struct sim_world *world, uint64_t n);
bool sim_crashed(const struct sim_world *world);

/* What becomes of what was not synced. */
enum sim_cut {
    SIM_CUT_SEEDED, /* One of the following, by seed. */
    SIM_CUT_NOTHING_KEPT,
    SIM_CUT_ALL_KEPT,
    SIM_CUT_PREFIX, /* Up to one moment everything, from then on nothing. */
    SIM_CUT_EACH,   /* Each change alone is kept or not. */
    SIM_CUT_TORN,   /* As before, and writes are torn at sectors of 512 bytes. */
};

void sim_power_cut(struct sim_world *world, enum sim_cut cut);
/* sim_vanish - the process is killed, the machine goes on: nothing that was written is lost, only
 * transfers in flight may or may not arrive; but what was not synced may be lost in a later cut.
 * When a sync has failed, or the power is off already: SIM_CUT_ALL_KEPT. */
void sim_vanish(struct sim_world *world);

/* --- 6. The disk, as a test sees it ----------------------------------------------------------- */

/* sim_file_corrupt - flip bits of the durable and visible bytes [offset, offset + size) of
 * "dir/name". False when there is no such file. */
bool sim_file_corrupt(struct sim_world *world, const char *path, uint64_t offset, uint64_t size);
bool sim_file_exists(struct sim_world *world, const char *path);
/* sim_change_count - changes ever made to bytes, sizes and names of files, and to the index: the
 * disk is as it was while this stays. */
uint64_t sim_change_count(const struct sim_world *world);

/* --- 7. The index ----------------------------------------------------------------------------- */

/*
 * The in-memory index of index/index.h on this world's disk: its commits count as io operations,
 * faults and crashes hit them, and it can be declared damaged. Context: the world.
 */
extern const struct index_ops sim_index_ops;

/* sim_index_damage - from the next inspection on the index is damaged, until it is replaced. */
void sim_index_damage(struct sim_world *world);
bool sim_index_is_damaged(const struct sim_world *world);

#endif /* KVT_TESTS_SIM_WORLD_H */
