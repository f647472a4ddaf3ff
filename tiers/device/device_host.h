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
 *   - Copies run late, by a seeded delay, in small steps, pieces in any order, streams beside each
 *     other: a source that changes, or a target that is read, before the event shows it.
 *   - The target of a copy is filled with DEVICE_POISON when the copy is queued; but when it begins
 *     where work is still using the target that the copy is rightly ordered behind. (In a build
 *     with AddressSanitizer a host target is poisoned for it as well, from the submission until an
 *     event behind the copy was seen reached by event_query(), or the memory is unregistered.)
 *   - Events are seen later than they are reached, by a seeded delay, so two streams' events are
 *     seen out of order; never one before another that it is ordered behind.
 *   - Copies whose pieces do not lie in one slab or one registration, or overlap within a call, are
 *     refused, and so are streams and events that are not the device's.
 */
#ifndef KVT_TIERS_DEVICE_HOST_H
#define KVT_TIERS_DEVICE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

/* No address of user space has it. Not one of the top byte: AArch64 ignores that, and follows the
 * pointer; nor bit 55, which picks the kernel's half there. */
#define DEVICE_HOST_BIT (UINT64_C(1) << 54)
#define DEVICE_POISON 0xDBu

enum {
    DEVICE_HOST_DEVICES_MAX = 8,
    DEVICE_HOST_STREAMS_MAX = 16, /* Of one device, its own two among them. */
};

/*
 * The context of device_host_ops; NULL is as all zero: as fast as it can, one device, 1 GiB.
 *
 * It must outlive the devices: they count their calls in it. Every call that returns a status
 * counts, those of device_host_stream_create() and device_host_launch() too. A fail_status of
 * KVT_E_GPU takes the device with it: all its later calls fail, and each copy that is in flight
 * then arrives or does not, by seed.
 */
struct device_host_config {
    uint64_t seed;
    uint64_t delay_ns_max;       /* Of a copy's steps, and of seeing an event: 0..this. */
    uint64_t memory_bytes;       /* Of each device. 0: 1 GiB. It is taken as slabs are. */
    uint32_t device_count;       /* 0: 1. */
    bool has_no_peers;           /* No device reaches another. */
    bool has_slow_peers;         /* Copies from the host are faster. */
    bool keeps_host;             /* Lost, it lets go of no host memory that is registered. */
    uint32_t fail_call;          /* The n-th call (1: the first) returns fail_status; 0: none. */
    enum kvt_status fail_status; /* KVT_OK: KVT_E_GPU. */
    _Atomic uint32_t call_count; /* Ever. The emulation writes it. */
};

extern const struct kvt_device_ops device_host_ops;

/* Memory of the device that a program takes for itself (as by cudaMalloc): the device's copies may
 * use what is registered of it. KVT_E_NOMEM. Put: none of it is registered; NULL is fine. */
enum kvt_status device_host_memory_take(struct device *device, uint64_t size, void **memory_out);
void device_host_memory_put(struct device *device, void *memory, uint64_t size);

/* A caller's stream, as a program with its own kernels has one. KVT_E_BUSY: too many. */
enum kvt_status device_host_stream_create(struct device *device, void **stream_out);
/* Waits for its work (not inside an actor's step). NULL is fine. */
void device_host_stream_destroy(struct device *device, void *stream);

/* What a kernel would do: read or fill device memory, in stream order. `run` is called once, late,
 * with the address that the emulation uses, by a thread of the emulation; or not at all when the
 * device is lost. `context` must last until an event behind it is reached. */
enum kvt_status device_host_launch(struct device *device, void *stream,
    void (*run)(void *context, void *memory), void *context, void *device_address);

#endif /* KVT_TIERS_DEVICE_HOST_H */
