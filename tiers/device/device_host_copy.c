/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_copy.c - batches of the emulation: their checks, their poison, and the bytes.
 *
 * Owns      the pieces of each copy until it is done and, under AddressSanitizer, seen.
 * Threads   device_host_internal.h.
 *
 * Two poisons. The bytes: every target is filled with DEVICE_POISON, so that whoever reads early
 * reads rubbish; where work that the copy is ordered behind still uses the target, that waits until
 * the copy begins, because until then the old bytes are somebody's. The shades: under
 * AddressSanitizer the host may not even look at a host target. Only whole granules inside a piece
 * are shaded, because the rest of a granule may be another's. The emulation itself does look: its
 * bytes are moved by functions without instrumentation.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "device_host_internal.h"
#include "failure.h"

#if defined(__SANITIZE_ADDRESS__)
#    define UNDER_ASAN 1
#endif

/* --- 1. Bytes and shades ---------------------------------------------------------------------- */

#ifdef UNDER_ASAN
#    include <sanitizer/asan_interface.h>

static const bool SHADES_ARE_ON = true;

/* Volatile, or the compiler makes a memcpy() of it, which is instrumented. */
__attribute__((no_sanitize_address, noinline)) void
host_bytes_move(uint8_t *target, const uint8_t *source, uint64_t size)
{
    uint64_t done = 0;

    if ((address_of(target) | address_of(source)) % sizeof(uint64_t) == 0) {
        for (; size - done >= sizeof(uint64_t); done += sizeof(uint64_t)) {
            *(volatile uint64_t *)(void *)(target + done) =
                *(const volatile uint64_t *)(const void *)(source + done);
        }
    }
    for (; done < size; done++)
        ((volatile uint8_t *)target)[done] = ((const volatile uint8_t *)source)[done];
}

__attribute__((no_sanitize_address, noinline)) static void
bytes_poison(uint8_t *target, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        ((volatile uint8_t *)target)[i] = DEVICE_POISON;
}

static void
shade_set(const struct host_piece *piece, bool is_dark)
{
    const uint64_t granule = 8;
    uint64_t start = round_up(address_of(piece->target), granule);
    uint64_t end = (address_of(piece->target) + piece->size) & ~(granule - 1);

    if (start >= end)
        return;
    if (is_dark)
        __asan_poison_memory_region((void *)(uintptr_t)start, end - start);
    else
        __asan_unpoison_memory_region((void *)(uintptr_t)start, end - start);
}

#else

static const bool SHADES_ARE_ON = false;

void
host_bytes_move(uint8_t *target, const uint8_t *source, uint64_t size)
{
    memcpy(target, source, size);
}

static void
bytes_poison(uint8_t *target, uint64_t size)
{
    memset(target, DEVICE_POISON, size);
}

static void
shade_set(const struct host_piece *piece, bool is_dark)
{
    (void)piece;
    (void)is_dark;
}

#endif

static void
batch_shade(const struct host_batch *batch, bool is_dark)
{
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        if (batch->pieces[i].is_shaded)
            shade_set(&batch->pieces[i], is_dark);
    }
}

/* What is shaded twice must stay dark when one of the two goes. */
static void
shades_renew(const struct device_host *device)
{
    for (const struct host_batch *batch = device->shaded; batch != NULL; batch = batch->shaded_next)
        batch_shade(batch, true);
}

void
host_shades_release(struct device_host *device, const struct host_clock *clock)
{
    struct host_batch **link = &device->shaded;
    bool is_any = false;

    while (*link != NULL) {
        struct host_batch *batch = *link;

        if (batch->sequence > clock->sequence[batch->stream_index]) {
            link = &batch->shaded_next;
            continue;
        }
        *link = batch->shaded_next;
        batch_shade(batch, false);
        host_batch_release(device, batch);
        is_any = true;
    }
    if (is_any)
        shades_renew(device);
}

void
host_shades_forget(struct device_host *device, const struct device_range *range)
{
    for (struct host_batch *batch = device->shaded; batch != NULL; batch = batch->shaded_next) {
        for (uint32_t i = 0; i < batch->piece_count; i++) {
            struct host_piece *piece = &batch->pieces[i];

            if (!piece->is_shaded ||
                !spans_overlap(address_of(piece->target), piece->size, range->start, range->size))
                continue;
            shade_set(piece, false);
            piece->is_shaded = false;
        }
    }
}

/* --- 2. Making a batch ------------------------------------------------------------------------ */

static int
piece_compare(const void *left, const void *right)
{
    const struct host_piece *a = left;
    const struct host_piece *b = right;

    return a->target < b->target ? -1 : a->target > b->target;
}

static enum kvt_status
piece_overlap_fail(const void *one, const void *other)
{
    return failure_set(KVT_E_INVAL, 0,
        "Pieces of one copy overlap: one is written at %p, another is read or written at %p.", one,
        other);
}

/* Is what lies at [source, source + size) written by one of the pieces, sorted by target? */
static const struct host_piece *
target_find(const struct host_batch *batch, const uint8_t *source, uint64_t size)
{
    uint32_t low = 0;
    uint32_t high = batch->piece_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (batch->pieces[middle].target <= source)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0) {
        const struct host_piece *before = &batch->pieces[low - 1];

        if (address_of(source) - address_of(before->target) < before->size)
            return before;
    }
    if (low < batch->piece_count) {
        const struct host_piece *behind = &batch->pieces[low];

        if (address_of(behind->target) - address_of(source) < size)
            return behind;
    }
    return NULL;
}

static enum kvt_status
batch_check(struct host_batch *batch)
{
    qsort(batch->pieces, batch->piece_count, sizeof(batch->pieces[0]), piece_compare);
    for (uint32_t i = 1; i < batch->piece_count; i++) {
        const struct host_piece *before = &batch->pieces[i - 1];
        const struct host_piece *piece = &batch->pieces[i];

        if (address_of(piece->target) - address_of(before->target) < before->size)
            return piece_overlap_fail(before->target, piece->target);
    }
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        const struct host_piece *piece = &batch->pieces[i];
        const struct host_piece *written = target_find(batch, piece->source, piece->size);

        if (written != NULL)
            return piece_overlap_fail(written->target, piece->source);
    }
    return KVT_OK;
}

static size_t
batch_bytes(uint32_t piece_count)
{
    return sizeof(struct host_batch) + piece_count * sizeof(struct host_piece);
}

enum kvt_status
host_batch_create(struct device_host *device, const struct device_piece *pieces, uint32_t count,
    struct host_batch **batch_out)
{
    struct host_batch *batch;
    enum kvt_status status;

    *batch_out = NULL;
    if (pieces == NULL || count == 0)
        return failure_set(KVT_E_INVAL, 0, "A copy has one piece or more.");
    batch = env_take(&device->env, batch_bytes(count));
    if (batch == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a copy of %" PRIu32 " pieces.", count);
    batch->reference_count = 1;
    batch->piece_count = count;
    for (uint32_t i = 0; i < count; i++) {
        batch->pieces[i] = (struct host_piece){
            .target = pieces[i].target,
            .source = pieces[i].source,
            .size = pieces[i].size,
        };
        batch->size += pieces[i].size;
    }
    status = batch_check(batch);
    if (status != KVT_OK) {
        host_batch_release(device, batch);
        return status;
    }
    *batch_out = batch;
    return KVT_OK;
}

void
host_batch_release(struct device_host *device, struct host_batch *batch)
{
    if (batch != NULL && --batch->reference_count == 0)
        env_put(&device->env, batch, batch_bytes(batch->piece_count));
}

/* The process's address of one end of a piece; 0, and a sentence: the device may not use it. */
static uint64_t
end_resolve(
    struct device_host *device, uint64_t start, uint64_t size, enum device_range_kind *kind_out)
{
    const struct device_range *range =
        size == 0 ? NULL : device_ranges_find(&device->ranges, start, size);

    if (range == NULL || range->kind == DEVICE_RANGE_EVENT) {
        (void)failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at 0x%" PRIx64 " lie in no slab and in no registered memory.", size,
            start);
        return 0;
    }
    *kind_out = range->kind;
    return range->kind == DEVICE_RANGE_HOST ? start : start ^ DEVICE_HOST_BIT;
}

/* As end_resolve(): where it may write, too. */
static uint64_t
target_resolve(
    struct device_host *device, uint64_t start, uint64_t size, enum device_range_kind *kind_out)
{
    uint64_t address = end_resolve(device, start, size, kind_out);

    if (address == 0 || !device_range_is_only_read(*kind_out))
        return address;
    (void)failure_set(KVT_E_INVAL, 0,
        "%" PRIu64 " bytes at 0x%" PRIx64 " are a peer's or another process's: to be read only.",
        size, start);
    return 0;
}

enum kvt_status
host_batch_resolve(struct device_host *device, struct host_batch *batch)
{
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        struct host_piece *piece = &batch->pieces[i];
        enum device_range_kind kind = DEVICE_RANGE_SLAB;
        uint64_t source = end_resolve(device, address_of(piece->source), piece->size, &kind);
        uint64_t target =
            source == 0 ? 0 : target_resolve(device, address_of(piece->target), piece->size, &kind);

        if (target == 0)
            return KVT_E_INVAL;
        piece->source = (const uint8_t *)(uintptr_t)source;
        piece->target = (uint8_t *)(uintptr_t)target;
        piece->is_shaded = kind == DEVICE_RANGE_HOST && SHADES_ARE_ON;
    }
    return KVT_OK;
}

/* --- 3. Before it is queued ------------------------------------------------------------------- */

bool
host_batch_uses(const struct host_batch *batch, const struct device_range *range)
{
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        const struct host_piece *piece = &batch->pieces[i];

        if (spans_overlap(address_of(piece->target), piece->size, range->start, range->size) ||
            spans_overlap(address_of(piece->source), piece->size, range->start, range->size))
            return true;
    }
    return false;
}

void
host_batch_poison(struct host_stream *stream, struct host_batch *batch)
{
    struct device_host *device = stream->device;
    bool is_any_shaded = false;

    for (uint32_t i = 0; i < batch->piece_count; i++) {
        struct host_piece *piece = &batch->pieces[i];
        const struct device_range range = {address_of(piece->target), piece->size, 0};

        piece->is_poison_due = host_stream_has_use(stream, &range);
        if (!piece->is_poison_due)
            bytes_poison(piece->target, piece->size);
        is_any_shaded = is_any_shaded || piece->is_shaded;
    }
    if (!is_any_shaded)
        return;
    batch_shade(batch, true);
    batch->reference_count++;
    batch->shaded_next = device->shaded;
    device->shaded = batch;
}

/* --- 4. Copying ------------------------------------------------------------------------------- */

static void
batch_begin(struct host_batch *batch, struct rng *rng)
{
    for (uint32_t i = batch->piece_count; i > 1; i--) {
        uint32_t other = rng_below(rng, i);
        struct host_piece piece = batch->pieces[i - 1];

        batch->pieces[i - 1] = batch->pieces[other];
        batch->pieces[other] = piece;
    }
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        if (batch->pieces[i].is_poison_due)
            bytes_poison(batch->pieces[i].target, batch->pieces[i].size);
    }
}

bool
host_batch_step(struct host_batch *batch, struct rng *rng)
{
    uint64_t spread = batch->size < COPY_STEP_BYTES ? batch->size : COPY_STEP_BYTES;
    uint64_t budget;

    if (batch->is_given_up)
        return true;
    if (!batch->is_begun)
        batch_begin(batch, rng);
    batch->is_begun = true;
    budget = 1 + rng_below(rng, (uint32_t)spread);
    while (budget > 0 && batch->piece_at < batch->piece_count) {
        const struct host_piece *piece = &batch->pieces[batch->piece_at];
        uint64_t rest = piece->size - batch->offset_at;
        uint64_t size = rest < budget ? rest : budget;

        host_bytes_move(piece->target + batch->offset_at, piece->source + batch->offset_at, size);
        budget -= size;
        batch->offset_at += size;
        if (batch->offset_at == piece->size) {
            batch->piece_at++;
            batch->offset_at = 0;
        }
    }
    return batch->piece_at == batch->piece_count;
}
