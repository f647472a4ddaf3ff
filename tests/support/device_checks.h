/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_checks.h - what every implementation of struct kvt_device_ops must do, as a list.
 */
#ifndef KVT_TESTS_DEVICE_CHECKS_H
#define KVT_TESTS_DEVICE_CHECKS_H

#include "device_rig.h"

struct device_check {
    const char *name;
    bool (*run)(struct device_rig *rig); /* On a rig that is open. Waits for what it started. */
    bool needs_emulation;
    bool needs_threads;
};

enum {
    DEVICE_CHECK_COUNT = 25,
};

extern const struct device_check device_checks[DEVICE_CHECK_COUNT];

/* Is this one for such a device? */
bool device_check_fits(const struct device_check *check, const struct device_rig *rig);
/* On a fresh device, and nothing is left of it. */
bool device_check_run(const struct device_check *check, struct device_rig *rig);

#endif /* KVT_TESTS_DEVICE_CHECKS_H */
