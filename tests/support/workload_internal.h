/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_internal.h - what workload.c (the course of a life), workload_ops.c (each operation) and
 * those of one subject share.
 */
#ifndef KVT_TESTS_WORKLOAD_INTERNAL_H
#define KVT_TESTS_WORKLOAD_INTERNAL_H

#include "workload.h"

/* Errors are no failures now. */
bool workload_tolerates(const struct workload *work);
/* Tell the model whether a miss is a failure now; before it hears an answer. */
void workload_mood(struct workload *work);
/* A status that a call or a block may not have now is a failure. Returns status == KVT_OK. */
bool workload_expect(struct workload *work, const char *what, enum kvt_status status);
/* Likewise, of a flush or close: it tells what could not be made durable, all of which was
 * collected. */
bool workload_expect_told(struct workload *work, const char *what, enum kvt_status status);
/* In peace what the store counts, and what the headers on NVMe say, is what there is. `is_unused`:
 * nobody holds anything of it. */
void workload_audit(struct workload *work, bool is_unused);
/* Mix an answer into the trace. */
void workload_note(struct workload *work, uint64_t kind, uint64_t fact);

/* The key of a name, and back. False for a key that this test never made (or made as a hash). */
struct kvt_key workload_key(struct model_name name, uint8_t bytes[WORKLOAD_KEY_BYTES]);
/* It is longer than the store keeps. */
bool workload_key_is_long(struct model_name name);
bool workload_key_parse(
    const uint8_t *bytes, uint32_t length, uint16_t component, struct model_name *name_out);

const char *workload_space_name(uint32_t space);
/* What computing the version anew costs; 0: nobody says. */
uint32_t workload_recompute_us(
    const struct workload *work, struct model_name name, uint32_t version);

struct flight *flight_take(struct workload *work); /* NULL: all are used. */
struct flight *flight_get(struct workload *work);  /* One of them is collected if it must be. */
/* Wait for stage 1 and tell the model. */
void flight_land(struct workload *work, struct flight *flight);
/* Of this one alone: chain_land() tells the model when all have. */
void flight_collect(struct workload *work, struct flight *flight);
/* Wait for the last stage, tell the model, free the ticket. */
void flight_finish(struct workload *work, struct flight *flight);
/* Cancel it, wherever it is. */
void flight_cancel(struct workload *work, struct flight *flight);
/* Stage 1 of one block. block_put_untold - it is there now, or something was before. */
void block_put_landed(
    struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status);
void block_put_untold(struct workload *work, struct flight *flight, uint32_t i);
void block_get_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result);
void block_delete_landed(
    struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status);
bool block_is_untouched(const struct flight *flight, uint32_t i);
/* Submitted: collect stage 1 now, everything now, or nothing yet; some are cancelled. */
void flight_launched(struct workload *work, struct flight *flight);
void flight_clear(struct flight *flight);
/* flight_has_stage_2 - a put that is to last, or a delete. */
bool flight_has_stage_2(const struct flight *flight);
bool name_is_busy(const struct workload *work, struct model_name name);
/* Names of the namespace that no request in flight is concerned with, no two alike: steps may name
 * one of them twice in a call (workload.c). */
uint32_t names_pick_in(
    struct workload *work, uint32_t space, struct model_name *names, bool for_change);

/* Nothing was written to a get's destination. */
bool is_poisoned_all(const uint8_t *bytes, uint64_t size);

/* What a lookup of blocks that are not in flight has answered. */
void lookup_heard(struct workload *work, const struct model_name *names, const uint8_t *tiers,
    uint32_t count, uint32_t leading);
void lease_give_back(struct workload *work, struct held_lease *held);

/* It was not there when all were read after an open: a failure when the last life ended with it. */
void stay_missed(struct workload *work, struct model_name name);

/* --- workload_delivery.c ---------------------------------------------------------------------- */

/* delivery_open - queues of a store that was opened. delivery_close - which are empty. */
void delivery_open(struct workload *work);
void delivery_close(struct workload *work);
/* delivery_end - nothing more will be submitted: whatever is to come is in the queues, and taken
 * out of them. */
void delivery_end(struct workload *work);
/* delivery_choose - by chance: where the request that is submitted next, the flight's, reports. */
const struct kvt_submit *delivery_choose(struct workload *work, struct flight *flight);
/* delivery_reach - wait for the stage; of a ticket that was freed its queue tells it. False: it did
 * not come as it should, which is a failure.
 * delivery_await - wait for the stage, and how each block has ended. */
bool delivery_reach(struct workload *work, struct flight *flight, uint32_t stage);
bool delivery_await(
    struct workload *work, struct flight *flight, uint32_t stage, struct kvt_result *results);
/* delivery_is_late - a last stage that has not been reached. */
bool delivery_is_late(const struct flight *flight);
/* delivery_look - what has come meanwhile; nobody waits. */
void delivery_look(struct workload *work);

/* --- workload_clear.c ------------------------------------------------------------------------- */

/* What a get, or a delete, answers of a block whose namespace was cleared meanwhile. */
void cleared_get_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result);
void cleared_delete_landed(
    struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status);

/* --- workload_freed.c ------------------------------------------------------------------------- */

/* freed_is_untold - its ticket is gone, it names no queue: only a flush says what came of it. */
bool freed_is_untold(const struct flight *flight);
/* freed_early - by chance: the ticket is freed, before stage 1. freed_later - behind it. */
void freed_early(struct workload *work, struct flight *flight);
void freed_later(struct workload *work, struct flight *flight);
/* freed_landed, freed_finished - the stages of a request whose ticket was freed. */
void freed_landed(struct workload *work, struct flight *flight);
void freed_finished(struct workload *work, struct flight *flight);
/* freed_flushed - what the end of a flush, or of the store, says of those that are untold. */
void freed_flushed(struct workload *work, enum kvt_status status);

/* --- workload_late.c -------------------------------------------------------------------------- */

/* late_open, late_close - a stream, where the store has an emulated device. late_forget - without
 * the store. */
void late_open(struct workload *work);
void late_close(struct workload *work);
void late_forget(struct workload *work);
/* late_puts, late_gets, late_alone - by chance: the request that is about to be submitted waits for
 * work that writes sources of it, or reads destinations of it, or does nothing. */
void late_puts(struct workload *work, struct flight *flight, struct kvt_put *puts);
void late_gets(struct workload *work, struct flight *flight, struct kvt_get *gets);
void late_alone(struct workload *work, struct flight *flight);
/* late_lease_end - by chance: the lease is given back behind work that reads what it holds. */
bool late_lease_end(struct workload *work, const struct held_lease *held);
/* late_landed - stage 1 was reached; `has_begun`: so that the work had been done before. What a get
 * wrote in host memory is in `memory`. late_release - the request does not need it any more. */
void late_landed(struct workload *work, struct flight *flight, bool has_begun);
void late_release(struct flight *flight);
/* late_scribble - over a source in host memory. False: the work may still write the source. */
bool late_scribble(const struct flight *flight, uint32_t i, uint8_t filler);

/* --- workload_race.c -------------------------------------------------------------------------- */

/* race_landed - what came of one block of a workload_race(). */
void race_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result);

/* --- workload_chain.c ------------------------------------------------------------------------- */

/* chain_names - the name is in a chain of which stage 1 was not collected. */
bool chain_names(const struct workload *work, struct model_name name);
/* chain_grow - the request was submitted as part of the chain that is growing. */
void chain_grow(struct workload *work, struct flight *flight);
/* chain_land - stage 1 of all that are in it, in the order of their submission. */
void chain_land(struct workload *work);

/* --- workload_hold.c -------------------------------------------------------------------------- */

/* Whatever may end a pin. */
void pin_forget(struct workload *work, struct model_name name);
void pin_forget_all(struct workload *work, uint32_t space);
/* It was not there: a failure when it is pinned. */
void pin_missed(struct workload *work, struct model_name name);

/* --- workload_why.c --------------------------------------------------------------------------- */

/* What may have become of the block: stage 1 of a put or a delete says this; its namespace was
 * cleared; the store was opened. */
void fate_put(
    struct workload *work, const struct flight *flight, uint32_t i, enum kvt_status status);
void fate_delete(
    struct workload *work, const struct flight *flight, uint32_t i, enum kvt_status status);
void fate_clear(struct workload *work, struct model_name name);
void fate_open(struct workload *work);
void fate_heal(struct workload *work);

/* --- workload_refused.c ----------------------------------------------------------------------- */

/* The call that was made last on this thread must be refused so, with a sentence. */
void refused_judge(
    struct workload *work, const char *what, enum kvt_status wanted, enum kvt_status status);

/* --- workload_shares.c ------------------------------------------------------------------------ */

/* Room of its own for the namespace, in some tier; or none any more. */
void shares_choose(struct workload *work, uint32_t space);

/* --- workload_events.c ------------------------------------------------------------------------ */

/* A new life of the store. */
void events_reset(struct workload *work);

/* --- workload_spread.c ------------------------------------------------------------------------ */

/* Bytes of a block's area at most. */
uint64_t spread_area_bytes(const struct workload *work);
/* spread_choose - by chance: the block's memory is spread. Of a put the area holds `memory`. */
bool spread_choose(struct workload *work, struct flight *flight, uint32_t i, uint64_t length);
void spread_name_put(
    struct workload *work, const struct flight *flight, uint32_t i, struct kvt_put *put);
void spread_name_get(const struct flight *flight, uint32_t i, struct kvt_get *get);
/* spread_fetch - what a get wrote, into `memory`; nothing else may be written. False: there is no
 * more to judge. */
bool spread_fetch(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result);
/* True also when it is not spread. */
bool spread_is_untouched(struct workload *work, const struct flight *flight, uint32_t i);
void spread_scribble(
    struct workload *work, const struct flight *flight, uint32_t i, uint8_t filler);
/* spread_end - stage 1 was reached. spread_forget - without the store. */
void spread_end(struct workload *work, struct flight *flight, uint32_t i);
void spread_forget(struct flight *flight, uint32_t i);

/* --- workload_device.c ------------------------------------------------------------------------ */

/* device_open, device_close - a pool in memory of each device of the store, and its region. */
enum kvt_status device_open(struct workload *work);
void device_close(struct workload *work);
/* device_pick - one of them; device_is_chosen - by chance: the block's source or destination lies
 * on a device, which is chosen. device_memory - there, the block's; device_region - its region. */
uint32_t device_pick(struct workload *work);
bool device_is_chosen(struct workload *work, struct flight *flight, uint32_t i);
void *device_memory(const struct workload *work, const struct flight *flight, uint32_t i);
kvt_region device_region(const struct workload *work, const struct flight *flight, uint32_t i);
/* device_fill, device_fetch - the block's memory on the device from its copy, and back. */
bool device_fill(struct workload *work, const struct flight *flight, uint32_t i);
bool device_fetch(struct workload *work, const struct flight *flight, uint32_t i);
/* device_lease_version - what lies in HBM under a lease; 0: nothing that can be read. `is_fresh`:
 * the lease is new, so that it must be what the model has. */
uint32_t device_lease_version(
    struct workload *work, const struct held_lease *held, uint32_t i, bool is_fresh);

#endif /* KVT_TESTS_WORKLOAD_INTERNAL_H */
