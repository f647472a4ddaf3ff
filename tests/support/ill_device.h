/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ill_device.h - the emulated device, but for what a test says that it refuses.
 *
 * One for a process; whatever is not said is the emulation's (device_host.h).
 */
#ifndef KVT_TESTS_ILL_DEVICE_H
#define KVT_TESTS_ILL_DEVICE_H

#include <stdatomic.h>

#include "device_host.h"

struct ill_device {
    struct kvt_device_ops ops; /* For the environment. A test may change what is not below. */
    void *stream;              /* What is recorded here ... */
    void *_Atomic event;       /* ... last; it cannot be asked ... */
    atomic_uint fail_count;    /* ... so many times. */
    atomic_int copy_status;    /* Not KVT_OK: of all copies, none of which begins. */
    atomic_bool keeps_all;     /* Copies to the host fail. */
    void *_Atomic never;       /* An event that is not reached. */
};

extern struct ill_device ill;

/* ill_device_init - nothing is refused. Before a store is opened. */
void ill_device_init(void);

#endif /* KVT_TESTS_ILL_DEVICE_H */
