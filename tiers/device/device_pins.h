/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_pins.h - which host memory the devices of this process have registered, and how many of
 * them.
 *
 * Pinning is the process's: what one device has pinned is pinned for all, whichever store they
 * belong to, and nobody can pin it twice. So the first one pins a range, the last one that lets go
 * of it unpins it. Two ranges are the same or have no byte in common: one of which a part must stay
 * pinned would have to stay as a whole, and its owner would not know.
 *
 * Memory that could not be unpinned is kept: its range is never registered again, as what is mapped
 * there then may be something else, which a device would take for the old memory.
 *
 * Threads   any. A mutex of the process is held while the driver pins and unpins, which is rare.
 */
#ifndef KVT_TIERS_DEVICE_PINS_H
#define KVT_TIERS_DEVICE_PINS_H

#include <stdint.h>

#include "kvtier/status.h"

enum {
    DEVICE_PINS_MAX = 16384, /* Of the process: 16 TiB of arenas, or as many regions. */
};

struct device_pin {
    uint64_t start;
    uint64_t size;
    void *context; /* The driver's own, these two. */
    int ordinal;
};

/* How devices of one kind pin. Ranges of two kinds have nothing to do with each other. */
struct device_pin_driver {
    /* KVT_MISS: somebody outside of the library has pinned it. Other errors: it is not pinned. */
    enum kvt_status (*pin)(void *device, struct device_pin *pin);
    /* By the last device, which need not be the one that pinned it. An error: it is kept. */
    enum kvt_status (*unpin)(void *device, const struct device_pin *pin);
};

/* device_pins_take - KVT_MISS: somebody else has pinned it, and it is not noted. KVT_E_INVAL: other
 * devices have a part of it, or more; or it is kept. KVT_E_NOMEM: there are too many. Or as pin().
 */
enum kvt_status device_pins_take(
    const struct device_pin_driver *driver, void *device, uint64_t start, uint64_t size);

/* device_pins_put - what was taken. An error: the memory is kept. */
enum kvt_status device_pins_put(
    const struct device_pin_driver *driver, void *device, uint64_t start, uint64_t size);

/* device_pins_keep - instead of it, of memory that the device may go on to use. */
void device_pins_keep(const struct device_pin_driver *driver, uint64_t start, uint64_t size);

#endif /* KVT_TIERS_DEVICE_PINS_H */
