/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_rig.h - an open device with some memory on both sides, for checks of struct
 * kvt_device_ops. No cmocka: the program for machines with a GPU is carried there alone.
 *
 * Threads   one, but for what a check starts itself.
 */
#ifndef KVT_TESTS_DEVICE_RIG_H
#define KVT_TESTS_DEVICE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "env.h"

enum {
    RIG_CHUNK_BYTES = 2 << 20, /* Of one registration. */
    RIG_CHUNK_COUNT = 4,       /* In one arena; the last one is not registered. */
    RIG_HOST_BYTES = RIG_CHUNK_BYTES * RIG_CHUNK_COUNT,
    RIG_SLAB_BYTES = 8 << 20, /* Of the first slab; the second has RIG_CHUNK_BYTES. */
};

struct device_rig {
    /* Set by the test. */
    const struct kvt_device_ops *ops;
    void *context;
    const struct kvt_env *env;
    uint32_t ordinal;
    void (*pass)(struct device_rig *rig); /* Let some time pass. */
    void *pass_context;
    /* Memory of the device that the test's program takes for itself. */
    enum kvt_status (*memory_take)(struct device *device, uint64_t size, void **memory_out);
    void (*memory_put)(struct device *device, void *memory, uint64_t size);
    bool is_emulated; /* It refuses what CUDA believes, and its memory can be used up. */
    bool has_threads;

    /* Set by device_rig_open(). */
    struct device *device;
    uint8_t *host; /* RIG_HOST_BYTES */
    uint8_t *slab;
    uint8_t *slab_other;
    void *in;
    void *out;
    void *event;
};

/* False, and a sentence on stderr: something in a check is not as it should be. */
bool device_rig_fail(const char *file, int line, const char *what);
#define RIG_CHECK(x)                                        \
    do {                                                    \
        if (!(x))                                           \
            return device_rig_fail(__FILE__, __LINE__, #x); \
    } while (0)

bool device_rig_open(struct device_rig *rig);
/* All in flight must have been waited for. Also after a failed open. */
void device_rig_close(struct device_rig *rig);

/* Bytes that follow from their number and place. */
void device_rig_fill(uint8_t *target, uint64_t size, uint64_t number);
bool device_rig_is_filled(const uint8_t *bytes, uint64_t size, uint64_t number);

/* Wait until an event is reached. */
bool device_rig_await(struct device_rig *rig, void *event);
/* Copy one piece on `stream`. */
enum kvt_status device_rig_copy(
    struct device_rig *rig, void *stream, void *target, const void *source, uint64_t size);
/* Record the rig's event behind all work of `stream`, and wait for it. */
bool device_rig_drain(struct device_rig *rig, void *stream);

#endif /* KVT_TESTS_DEVICE_RIG_H */
