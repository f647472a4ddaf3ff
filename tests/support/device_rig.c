/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_rig.c - an open device with some memory on both sides.
 */
#include "device_rig.h"

#include <stdio.h>
#include <string.h>

#include "failure.h"

bool
device_rig_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n  last failure: %s: %s\n", file, line, what,
        kvt_status_name(failure_last()->status), failure_last()->text);
    return false;
}

static bool
rig_register(struct device_rig *rig)
{
    for (uint32_t i = 0; i + 1 < RIG_CHUNK_COUNT; i++) {
        uint8_t *chunk = rig->host + (size_t)i * RIG_CHUNK_BYTES;

        RIG_CHECK(rig->ops->host_register(rig->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    }
    return true;
}

bool
device_rig_open(struct device_rig *rig)
{
    void *slab = NULL;
    void *slab_other = NULL;

    rig->device = NULL;
    rig->host = NULL;
    rig->slab = NULL;
    rig->slab_other = NULL;
    rig->event = NULL;
    RIG_CHECK(rig->ops->open(rig->context, rig->env, rig->ordinal, &rig->device) == KVT_OK);
    RIG_CHECK(rig->device != NULL && rig->device->ops == rig->ops);
    RIG_CHECK(rig->ops->slab_take(rig->device, RIG_SLAB_BYTES, &slab) == KVT_OK);
    rig->slab = slab;
    RIG_CHECK(rig->ops->slab_take(rig->device, RIG_CHUNK_BYTES, &slab_other) == KVT_OK);
    rig->slab_other = slab_other;
    RIG_CHECK(rig->ops->event_create(rig->device, &rig->event) == KVT_OK);
    rig->host = env_map(rig->env, RIG_HOST_BYTES);
    RIG_CHECK(rig->host != NULL);
    if (!rig_register(rig))
        return false;
    rig->in = rig->ops->stream(rig->device, DEVICE_IN);
    rig->out = rig->ops->stream(rig->device, DEVICE_OUT);
    RIG_CHECK(rig->in != NULL && rig->out != NULL && rig->in != rig->out);
    return true;
}

void
device_rig_close(struct device_rig *rig)
{
    bool is_kept = false;

    if (rig->device == NULL)
        return;
    for (uint32_t i = 0; rig->host != NULL && i + 1 < RIG_CHUNK_COUNT; i++) {
        if (rig->ops->host_unregister(
                rig->device, rig->host + (size_t)i * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES) != KVT_OK)
            is_kept = true;
    }
    rig->ops->event_destroy(rig->device, rig->event);
    if (rig->slab_other != NULL)
        rig->ops->slab_put(rig->device, rig->slab_other, RIG_CHUNK_BYTES);
    if (rig->slab != NULL)
        rig->ops->slab_put(rig->device, rig->slab, RIG_SLAB_BYTES);
    rig->ops->close(rig->device);
    rig->device = NULL;
    if (!is_kept)
        env_unmap(rig->env, rig->host, RIG_HOST_BYTES);
    rig->host = NULL;
}

static uint64_t
word_of(uint64_t number, uint64_t place)
{
    uint64_t z = (number * 0x9E3779B97F4A7C15u) ^ (place * 0xD1B54A32D192ED03u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void
device_rig_fill(uint8_t *target, uint64_t size, uint64_t number)
{
    for (uint64_t done = 0; done < size; done += 8) {
        uint64_t word = word_of(number, done);

        memcpy(target + done, &word, size - done < 8 ? size - done : 8);
    }
}

bool
device_rig_is_filled(const uint8_t *bytes, uint64_t size, uint64_t number)
{
    for (uint64_t done = 0; done < size; done += 8) {
        uint64_t word = word_of(number, done);

        if (memcmp(bytes + done, &word, size - done < 8 ? size - done : 8) != 0)
            return false;
    }
    return true;
}

bool
device_rig_await(struct device_rig *rig, void *event)
{
    enum kvt_status status;

    while ((status = rig->ops->event_query(rig->device, event)) == KVT_NOT_READY)
        rig->pass(rig);
    RIG_CHECK(status == KVT_OK);
    return true;
}

enum kvt_status
device_rig_copy(
    struct device_rig *rig, void *stream, void *target, const void *source, uint64_t size)
{
    const struct device_piece piece = {target, source, size};

    return rig->ops->copy(rig->device, stream, &piece, 1);
}

bool
device_rig_drain(struct device_rig *rig, void *stream)
{
    RIG_CHECK(rig->ops->event_record(rig->device, rig->event, stream) == KVT_OK);
    return device_rig_await(rig, rig->event);
}
