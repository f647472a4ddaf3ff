/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_device.h - the emulated device of a simulated process that may end without closing it.
 *
 * What a process has registered with its devices ends with it. Simulated processes end inside a
 * real one, whose registrations (device_pins.h) outlive them: so they are noted, and taken back.
 *
 * Threads   one. The devices of one simulated process at a time.
 */
#ifndef KVT_TESTS_SIM_DEVICE_H
#define KVT_TESTS_SIM_DEVICE_H

#include "device_host.h"

/* sim_device_ops - for the environment of the process, with a struct device_host_config as their
 * context. */
const struct kvt_device_ops *sim_device_ops(void);

/*
 * sim_device_forget - the process is about to vanish from its world, which has not been cleared
 * yet: its devices, which are of `config`, are lost, and let go of all that they have registered.
 * Nothing is changed where there are none.
 */
void sim_device_forget(struct device_host_config *config);

#endif /* KVT_TESTS_SIM_DEVICE_H */
