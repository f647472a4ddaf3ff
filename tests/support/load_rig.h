/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_rig.h - files whose bytes follow from their place, and chunks of them in memory of a device.
 *
 * Whatever must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_LOAD_RIG_H
#define KVT_TESTS_LOAD_RIG_H

#include "kvtier/kvtier.h"
#include "sim_store.h"

enum {
    LOAD_RIG_CHUNK = 64 << 10,
    LOAD_RIG_FILE_BYTES = 9 * LOAD_RIG_CHUNK + 1234, /* 10 chunks. */
};

/* A small store in a simulated world, with two emulated devices and a file "/weights". */
extern struct sim_store load_sim;

/* For cmocka. The end: all that loads took was given back. */
int load_rig_setup(void **state);
int load_rig_teardown(void **state);

kvt_load load_rig_begin(const struct kvt_file_load_options *options);
void load_rig_end(kvt_load load);
enum kvt_status load_rig_look(kvt_load load, uint32_t chunk);
enum kvt_status load_rig_await(kvt_load load, uint32_t chunk);
/* load_rig_reads_fail - the nth read of the file and the next one. The lane joins reads of
 * neighbours, and tries them again one by one: so it takes two to fail a chunk. */
void load_rig_reads_fail(uint64_t nth);

/* load_rig_bytes - the file's bytes from `offset` on. */
void load_rig_bytes(void *target, uint64_t offset, uint64_t size);
/* load_rig_file - a file of `size` bytes in the simulated world, "/name". */
void load_rig_file(struct sim_store *sim, const char *name, uint64_t size);
void load_rig_truncate(struct sim_store *sim, const char *name, uint64_t size);
/* load_rig_replace - the next `count` times that a load opens "/weights" for direct reads, a new
 * file of these bytes takes its place first. What is there now has other bytes in its last page. */
void load_rig_replace(uint32_t count);
/* load_rig_is_right - what lies on device 0 is the file's range. */
bool load_rig_is_right(kvt_store *store, const void *address, uint64_t offset, uint64_t size);
/* load_rig_options - from `offset` on, to the device's own memory. */
struct kvt_file_load_options load_rig_options(
    uint64_t offset, uint64_t length, uint64_t chunk_bytes);
/* load_rig_check - every chunk is there, and right. */
void load_rig_check(
    kvt_store *store, kvt_load load, const struct kvt_file_load_options *options, uint64_t length);

#endif /* KVT_TESTS_LOAD_RIG_H */
