/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold_kit.h - a store in a simulated world whose blocks are on NVMe, streams of a program, and
 * kernels on them that look at statuses and destinations behind a hold.
 *
 * Nothing happens between two calls, so that it is known what a stream was waiting for. Whatever
 * must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_HOLD_KIT_H
#define KVT_TESTS_HOLD_KIT_H

#include <stdatomic.h>

#include "device_host.h"
#include "kvtier/kvtier_unstable.h"
#include "sim_store.h"
#include "store_kit.h"

enum {
    HOLD_PARTS = 8,
    HOLD_BLOCK_BYTES = 20000, /* No whole number of pages. */
    HOLD_COUNT = 6,           /* Blocks that there are. */
    HOLD_ABSENT = 1000,       /* No such block. */
    HOLD_POOL_BYTES = 2 * HOLD_COUNT * HOLD_BLOCK_BYTES,
    MS = 1000000,
};

struct hold_bench {
    struct sim_store sim;
    struct kvt_device_ops ops; /* The emulation's, but that a close finds the pool given back. */
    kvt_namespace ns;
    struct device *device;
    uint8_t *pool; /* Of the device, in a region. */
    kvt_region region, pinned;
    void *stream, *other; /* The caller's. */
    void *event;
    _Atomic uint32_t *gate; /* Host memory that the device knows. */
    uint32_t early_count;   /* Memory was given back while a stream was at it. */
    bool is_stuck;          /* A stream waits for ever: nothing of the world can be closed. */
};

extern struct hold_bench bench;

/* For cmocka: a new store, and its end, unless the test has ended it. */
int hold_setup(void **state);
int hold_teardown(void **state);
/* hold_clear - gives back all but the store and the pool. hold_forget - the store is closed, and
 * nothing is left. hold_forget_aborted - something may be left of its tickets. */
void hold_clear(void);
void hold_forget(void);
void hold_forget_aborted(void);
void hold_block_demote(uint64_t number);

/* What a kernel saw. */
struct look {
    const int32_t *status;
    int32_t seen;
    uint32_t run_count;
    uint8_t bytes[HOLD_BLOCK_BYTES];
};

void kernel_look(void *context, void *memory);

struct batch {
    struct payload_key names[HOLD_COUNT];
    struct kvt_get gets[HOLD_COUNT];
    struct look looks[HOLD_COUNT];
    kvt_ticket *ticket;
    kvt_hold *hold;
};

/* batch_init - gets of all blocks; `place`: the first block's in the pool. */
void batch_init(struct batch *self, uint32_t place, uint32_t flags);
void batch_submit(struct batch *self, const struct kvt_submit *submit);
/* batch_hold - a hold, and behind it a kernel for each block. */
void batch_hold(struct batch *self, void *stream, uint64_t deadline_ns);
/* batch_run - until the last kernel has run. */
void batch_run(struct batch *self);
void batch_end(struct batch *self);

/* looks_check - the kernels of these blocks have run, once, and have found this. */
void looks_check(const struct batch *self, uint32_t first, uint32_t end, enum kvt_status status);
void looks_check_none(const struct batch *self);

/* behind_the_gate - what is submitted with it begins when the test writes 1 to the gate. */
struct kvt_submit behind_the_gate(void);
/* reads_stall - reads that begin from now on take a second. */
void reads_stall(void);
/* many_submit - gets of blocks that are not there. */
kvt_ticket *many_submit(kvt_store *store, kvt_namespace ns, uint32_t count);

#endif /* KVT_TESTS_HOLD_KIT_H */
