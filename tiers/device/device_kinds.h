/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_kinds.h - which kinds of device this build and this machine have, and the choice.
 */
#ifndef KVT_TIERS_DEVICE_KINDS_H
#define KVT_TIERS_DEVICE_KINDS_H

#include "device.h"

enum device_choice {
    DEVICE_ANY,  /* CUDA when it can be used here, else the emulation. */
    DEVICE_CUDA, /* KVT_E_UNSUPPORTED, with the reason, when it cannot be used. */
    DEVICE_EMULATED,
};

/* device_choose - no context is made on any device. The ops' context is NULL. */
enum kvt_status device_choose(enum device_choice choice, const struct kvt_device_ops **ops_out);

#endif /* KVT_TIERS_DEVICE_KINDS_H */
