/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_share.h - what an accelerator offers to several processes: its memory, and words of host
 * memory that its streams write and wait for. Part of struct kvt_device_ops.
 *
 * Words lie in host memory that was registered with the device (8 bytes, at a multiple of 8); each
 * process has them at an address of its own. They only grow: who waits for a number waits for it or
 * one of the 2^63 - 1 that follow it (device_number_is_reached).
 *
 * Errors    as base/device.h; of words KVT_E_INVAL too: the stream is being captured.
 */
#ifndef KVT_BASE_DEVICE_SHARE_H
#define KVT_BASE_DEVICE_SHARE_H

#include "device.h"

enum {
    DEVICE_ID_BYTES = 16,
};

/* device_number_is_reached - what streams wait for, of a word that was read. */
static inline bool
device_number_is_reached(uint64_t word, uint64_t value)
{
    return word - value <= UINT64_MAX / 2;
}

struct device_share_ops {
    /* What a device is called in every process, whatever its number there. */
    enum kvt_status (*identity)(struct device *device, uint8_t id_out[DEVICE_ID_BYTES]);
    /* Its number in this process. KVT_E_INVAL: there is none. Makes no context. */
    enum kvt_status (*find)(
        void *context, const uint8_t id[DEVICE_ID_BYTES], uint32_t *ordinal_out);

    /* As slab_take(), of memory that lives as long as anybody uses it, and a descriptor that stands
     * for it: the device's, closed with the slab. KVT_E_UNSUPPORTED. slab_put() gives it back. */
    enum kvt_status (*slab_take)(
        struct device *device, uint64_t size, void **address_out, int *descriptor_out);
    /* Memory that another process took, all of it: as a slab that is only read. KVT_E_INVAL: the
     * descriptor, which is borrowed, does not stand for memory of this size. slab_put(). */
    enum kvt_status (*slab_adopt)(
        struct device *device, int descriptor, uint64_t size, void **address_out);

    /* When the work before it has been done, `word` becomes `value`. */
    enum kvt_status (*word_write)(
        struct device *device, void *stream, uint64_t *word, uint64_t value);
    /* Later work waits until `word` is `value` or more. */
    enum kvt_status (*word_wait)(
        struct device *device, void *stream, uint64_t *word, uint64_t value);
};

#endif /* KVT_BASE_DEVICE_SHARE_H */
