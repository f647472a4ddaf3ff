/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host.h - the emulated accelerator: what a GPU's asynchrony does to a program, on a machine
 * without one.
 *
 * Owns      memory that plays HBM, streams, events, and the delays between them.
 * Threads   as base/device.h. Each stream is an actor of the env's scheduler (base/env.h): a thread
 *           in production, stepped by a seed in a simulation.
 *
 * It is built to make a program that forgets an event fail:
 *   - A device address is not one the host can use: the emulation hands out the address of its
 *     memory with DEVICE_HOST_BIT flipped. The host that follows such a pointer faults.
 *   - Copies run late, by a seeded delay, in small steps, streams beside each other: a source that
 *     changes, or a target that is read, before the event shows it.
 *   - The target of a copy is filled with DEVICE_POISON when the copy is queued. (In a build with
 *     AddressSanitizer a host target is poisoned for it as well, from the submission until an event
 *     behind the copy was seen reached by event_query(); so is nothing else.)
 *   - Events are seen later than they are reached, by a seeded delay, so two streams' events are
 *     seen out of order.
 *   - Copies whose pieces do not lie in one slab or one registration, or overlap within a call, are
 *     refused, and so are streams and events that are not the device's.
 */
#ifndef KVT_TIERS_DEVICE_HOST_H
#define KVT_TIERS_DEVICE_HOST_H

#include "device.h"

#define DEVICE_HOST_BIT (UINT64_C(1) << 62) /* No address of x86-64 or AArch64 user space has it. */
#define DEVICE_POISON 0xDBu

/* The context of device_host_ops. Zero: as fast as it can, one device, 1 GiB. */
struct device_host_config {
    uint64_t seed;
    uint64_t delay_ns_max; /* Of a copy's steps, and of seeing an event: 0..this. */
    uint64_t memory_bytes; /* Of each device. 0: 1 GiB. It is taken as slabs are. */
    uint32_t device_count; /* 0: 1. At most 8. */
    uint32_t
        fail_call; /* The n-th call that can fail returns fail_status (1: the first); 0: none. */
    enum kvt_status fail_status;
    uint32_t reserved;
};

extern const struct kvt_device_ops device_host_ops;

/* A caller's stream, as a program with its own kernels has one. */
enum kvt_status device_host_stream_create(struct device *device, void **stream_out);
void device_host_stream_destroy(struct device *device, void *stream); /* Waits for its work. */

/* What a kernel would do: fill device memory with bytes of the caller's, in stream order (`run` is
 * called once, late, with the address that the emulation uses; `context` must last until then). */
enum kvt_status device_host_launch(struct device *device, void *stream,
    void (*run)(void *context, void *memory), void *context, void *device_address);

#endif /* KVT_TIERS_DEVICE_HOST_H */
