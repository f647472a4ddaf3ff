/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_pins.c - the table of host memory that devices of this process have registered.
 *
 * It belongs to no store, and takes no memory of any.
 */
#include "device_pins.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "device_ranges.h"
#include "failure.h"

struct pin_entry {
    const struct device_pin_driver *driver;
    struct device_pin pin;
    uint32_t holder_count;
    bool is_kept; /* Then it is never removed. */
};

static struct {
    pthread_once_t once;
    pthread_mutex_t mutex;
    uint32_t count;
    struct pin_entry entries[DEVICE_PINS_MAX]; /* In any order; none overlaps another. */
} pins = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* A forked child has nothing of its parent's, of which another thread may have been at work. */
static void
child_begins(void)
{
    (void)pthread_mutex_init(&pins.mutex, NULL);
    pins.count = 0;
}

static void
pins_prepare(void)
{
    (void)pthread_atfork(NULL, NULL, child_begins);
}

static void
pins_lock(void)
{
    (void)pthread_once(&pins.once, pins_prepare);
    (void)pthread_mutex_lock(&pins.mutex);
}

static void
pins_unlock(void)
{
    (void)pthread_mutex_unlock(&pins.mutex);
}

/* One of which the range has some byte; NULL: there is none. */
static struct pin_entry *
entry_find(const struct device_pin_driver *driver, uint64_t start, uint64_t size)
{
    for (uint32_t i = 0; i < pins.count; i++) {
        struct pin_entry *entry = &pins.entries[i];

        if (entry->driver == driver &&
            spans_overlap(start, size, entry->pin.start, entry->pin.size))
            return entry;
    }
    return NULL;
}

static void
entry_remove(struct pin_entry *entry)
{
    *entry = pins.entries[--pins.count];
}

static enum kvt_status
entry_join(struct pin_entry *entry, uint64_t start, uint64_t size)
{
    if (entry->is_kept) {
        return failure_set(KVT_E_INVAL, 0,
            "Of %" PRIu64 " bytes at 0x%" PRIx64
            " some are kept by a device that is lost: they cannot be registered again.",
            size, start);
    }
    if (entry->pin.start != start || entry->pin.size != size) {
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at 0x%" PRIx64 " overlap %" PRIu64 " at 0x%" PRIx64
            " that are registered, and are not the same.",
            size, start, entry->pin.size, entry->pin.start);
    }
    entry->holder_count++;
    return KVT_OK;
}

static enum kvt_status
entry_add(const struct device_pin_driver *driver, void *device, uint64_t start, uint64_t size)
{
    struct pin_entry *entry = &pins.entries[pins.count];
    enum kvt_status status;

    if (pins.count == DEVICE_PINS_MAX) {
        return failure_set(KVT_E_NOMEM, 0,
            "The devices of this process have registered %d ranges of host memory.",
            DEVICE_PINS_MAX);
    }
    *entry = (struct pin_entry){driver, {.start = start, .size = size}, 1, false};
    status = driver->pin(device, &entry->pin);
    if (status == KVT_OK)
        pins.count++;
    return status;
}

enum kvt_status
device_pins_take(
    const struct device_pin_driver *driver, void *device, uint64_t start, uint64_t size)
{
    struct pin_entry *entry;
    enum kvt_status status;

    pins_lock();
    entry = entry_find(driver, start, size);
    status =
        entry != NULL ? entry_join(entry, start, size) : entry_add(driver, device, start, size);
    pins_unlock();
    return status;
}

static enum kvt_status
entry_leave(struct pin_entry *entry, void *device)
{
    enum kvt_status status = KVT_OK;

    if (entry->is_kept)
        return failure_set(
            KVT_E_GPU, 0, "Another device, which is lost, does not let go of the memory.");
    if (--entry->holder_count > 0)
        return KVT_OK;
    status = entry->driver->unpin(device, &entry->pin);
    if (status == KVT_OK)
        entry_remove(entry);
    else
        entry->is_kept = true;
    return status;
}

enum kvt_status
device_pins_put(const struct device_pin_driver *driver, void *device, uint64_t start, uint64_t size)
{
    struct pin_entry *entry;
    enum kvt_status status = KVT_OK;

    pins_lock();
    entry = entry_find(driver, start, size);
    if (entry != NULL)
        status = entry_leave(entry, device);
    pins_unlock();
    return status;
}

void
device_pins_keep(const struct device_pin_driver *driver, uint64_t start, uint64_t size)
{
    struct pin_entry *entry;

    pins_lock();
    entry = entry_find(driver, start, size);
    if (entry != NULL)
        entry->is_kept = true;
    pins_unlock();
}
