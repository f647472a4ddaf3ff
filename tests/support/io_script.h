/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_script.h - an io queue that does what a test says, and a scheduler that steps one actor by
 * hand: together they run a lane without threads, files or time.
 *
 * Operations that were submitted lie in flight, in order of submission, until the test answers
 * them, in any order, with any result; or until the lane is waited for. Nothing is read or written.
 *
 * Threads: one.
 */
#ifndef KVT_TESTS_IO_SCRIPT_H
#define KVT_TESTS_IO_SCRIPT_H

#include "env.h"

enum {
    SCRIPT_OPS_MAX = 1024,
};

struct io_script {
    struct kvt_env env; /* Filled by io_script_init(): real memory, the rest from here. */
    /* What the lane did. */
    const struct io_op *flying[SCRIPT_OPS_MAX];
    uint32_t flying_count;
    uint64_t submit_count; /* Operations ever taken. */
    uint32_t wake_count;   /* Of the queue, since the last io_script_step(). */
    uint32_t user_wakes;   /* Of tasks other than the lane's, ever. */
    uint64_t next_ns;      /* What the last step asked for. */
    bool is_queue_open;
    bool is_started;
    void *adopted;
    size_t adopted_size;
    /* What the test says. */
    uint64_t now_ns;
    uint32_t take_limit; /* Operations in flight at most; 0: SCRIPT_OPS_MAX. */
    bool refuses_queue;
    bool refuses_task;
    uint32_t memory_left;              /* Allocations that succeed; UINT32_MAX: all. */
    void (*user_woken)(void *context); /* Called when such a task is woken; may be NULL. */
    void *user_context;
    /* Its own. */
    struct actor actor;
    struct io_done done[SCRIPT_OPS_MAX];
    uint32_t done_count;
    struct kvt_env host;
};

void io_script_init(struct io_script *script);

/* io_script_step - step the actor until it has nothing more to do. */
void io_script_step(struct io_script *script);

/* io_script_answer - complete the operation at `index` of flying; seen by the next step. */
void io_script_answer(struct io_script *script, uint32_t index, int64_t result);

/* io_script_size - bytes of the operation at `index` of flying. */
uint64_t io_script_size(const struct io_script *script, uint32_t index);

/* io_script_task - what stands for a task of the test's: waking it is counted in user_wakes. */
struct task *io_script_task(struct io_script *script);

#endif /* KVT_TESTS_IO_SCRIPT_H */
