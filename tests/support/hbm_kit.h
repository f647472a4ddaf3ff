/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm_kit.h - a small store with an HBM tier over the emulated device (late copies, poisoned
 * targets, addresses that the host cannot follow), and one block at a time, waited for.
 *
 * Whatever must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_HBM_KIT_H
#define KVT_TESTS_HBM_KIT_H

#include <stdatomic.h>

#include "device_host.h"
#include "env.h"
#include "store_kit.h"

enum {
    HBM_BLOCK_BYTES = 20000, /* No whole number of pages. */
    HBM_POOL_BLOCKS = 256,   /* Of the caller's memory on the device. */
};

struct hbm_kit {
    char path[KIT_PATH_BYTES];
    struct device_host_config config;
    struct kvt_env env;
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    uint8_t *pool; /* Of the device; all of it is a region. */
    kvt_region region;
};

extern struct hbm_kit hbm;

/* For cmocka: a new store in a new directory, and its end. */
int hbm_setup(void **state);
int hbm_teardown(void **state);
/* hbm_close, hbm_open_again - a life of the store ends, the next begins. */
void hbm_close(void);
void hbm_open_again(void);

uint8_t *hbm_pool_at(uint32_t i);

/* hbm_put - a block that was born on the device. The outcome of the last stage. */
enum kvt_status hbm_put(uint64_t number, uint64_t version, uint32_t tier,
    enum kvt_durability durability, uint32_t flags);
/* hbm_get - by way of the device's memory, or straight to the host; KVT_OK: it was this version.
 * `tier_out` may be NULL. */
enum kvt_status hbm_get(uint64_t number, uint64_t version, bool by_device, uint32_t *tier_out);
unsigned hbm_tiers_of(uint64_t number);
enum kvt_status hbm_prefetch(uint64_t number, uint32_t tier, uint64_t deadline_ns);
enum kvt_status hbm_demote(uint64_t number, uint32_t tier);
/* hbm_stream_hold - what comes next on the stream waits until `may_go` (a kernel, which uses this
 * memory of the device): a test says when a thing is late, not a clock. */
void hbm_stream_hold(struct device *device, void *stream, void *memory, atomic_bool *may_go);
/* hbm_stream_finish - all work of the stream is done. */
void hbm_stream_finish(struct device *device, void *stream);
struct kvt_stats hbm_stats(void);

#endif /* KVT_TESTS_HBM_KIT_H */
