/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_word.c - words in memory of the host that streams of the emulation write and wait
 * for.
 */
#include "device_host_internal.h"
#include "failure.h"
#include "try.h"

/* One registration holds it, at a place where it can be written at once. */
static enum kvt_status
word_check(const struct device_host *device, const struct host_word *word)
{
    uint64_t size = word->is_wide ? sizeof(uint64_t) : sizeof(uint32_t);
    const struct device_range *range =
        device_ranges_find(&device->ranges, address_of(word->address), size);

    if (range != NULL && device_range_is_host(range->kind) && address_of(word->address) % size == 0)
        return KVT_OK;
    return failure_set(
        KVT_E_INVAL, 0, "%p is no word in host memory that was registered.", word->address);
}

static enum kvt_status
word_push(struct device_host *device, const void *handle, struct host_work *work)
{
    struct host_stream *stream = host_stream_find(device, handle);

    if (stream == NULL)
        return KVT_E_INVAL;
    KVT_TRY(word_check(device, &work->word));
    host_stream_push(stream, work);
    return KVT_OK;
}

enum kvt_status
host_word_queue(struct device *base, void *stream, enum host_work_kind kind, struct host_word word)
{
    struct device_host *device = device_host_of(base);
    struct host_work *work;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    work = host_work_take(device, kind);
    if (work == NULL)
        return KVT_E_NOMEM;
    work->word = word;
    device_host_lock(device);
    status = word_push(device, stream, work);
    if (status != KVT_OK)
        host_work_put(device, work);
    device_host_unlock(device);
    return status;
}

enum kvt_status
device_host_stream_wait_word(
    struct device *device, void *stream, const _Atomic uint32_t *word, uint32_t value)
{
    return host_word_queue(device, stream, HOST_WORK_WORD_WAIT,
        (struct host_word){.address = (void *)(uintptr_t)word, .value = value});
}
