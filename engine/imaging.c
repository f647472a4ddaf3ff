/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imaging.c - images of blocks that shall become durable.
 *
 * See imaging.h. Threads: the loop; imaging_run() a worker.
 */
#include "imaging.h"

#include "commit_internal.h"
#include "image.h"

enum {
    HOST_SHARE = 8, /* Images take at most one part in so many of HOST, but for the first one. */
};

/* One image; its job has a pin of the entry. */
struct image {
    struct job job;
    struct flight *flight; /* NULL: it has ended. */
    uint32_t entry;
    const uint8_t *payload; /* In HOST. */
    struct image_shape shape;
    enum codec_id codec;
    uint8_t turn; /* patience.h */
    bool is_made;
    bool is_encoded;
    bool has_slot; /* For an encoded image. */
    struct slot slot;
    uint8_t *memory;  /* The slot's. */
    void *tail_taken; /* What the last pages of an image with raw parts were cut from, or NULL. */
    uint8_t *tail;    /* Whole pages. */
    uint32_t tail_pages;
    uint32_t raw_count; /* Parts for which the codec did not pay. */
    uint64_t bytes;     /* Of memory, as they are counted. */
    uint64_t encode_ns;
};

/* --- Memory ----------------------------------------------------------------------------------- */

static size_t
tail_taken_bytes(const struct image *image)
{
    return (size_t)(image->tail_pages + 1) * PAGE_BYTES;
}

static void
tail_put(struct kvt_store *store, struct image *image)
{
    if (image->tail_taken == NULL)
        return;
    env_put(&store->env, image->tail_taken, tail_taken_bytes(image));
    image->tail_taken = NULL;
    image->tail_pages = 0;
}

static void
slot_put(struct kvt_store *store, struct image *image)
{
    if (image->has_slot) {
        room_put(store, POLICY_HOST, image->slot);
        store->imaging.slot_count--;
    }
    image->has_slot = false;
}

static void
image_count(struct kvt_store *store, struct image *image)
{
    store->imaging.bytes -= image->bytes;
    image->bytes = image->has_slot ? slab_slot_bytes(store->slab, image->slot) : 0;
    image->bytes += image->tail_taken == NULL ? 0 : tail_taken_bytes(image);
    store->imaging.bytes += image->bytes;
}

static void
image_put(struct kvt_store *store, struct image *image)
{
    slot_put(store, image);
    tail_put(store, image);
    image_count(store, image);
    store->imaging.count--;
    env_put(&store->env, image, sizeof(*image));
}

static struct image *
image_take(struct kvt_store *store, struct flight *flight)
{
    const struct entry *entry = residency_at(store->map, flight->entry);
    struct image *image = env_take(&store->env, sizeof(*image));
    uint32_t parts = entry_parts(entry);

    if (image == NULL)
        return NULL;
    image->entry = flight->entry;
    image->flight = flight;
    image->payload = entry_host_address(store, entry);
    image->shape = (struct image_shape){.length = entry->length,
        .stored_length = entry->length,
        .part_count = parts,
        .checksum = entry->checksum};
    if (parts > 1) {
        image->tail_pages =
            pages_of(record_raw_bytes(entry->length, parts)) - entry->length / PAGE_BYTES;
        image->tail_taken = env_take(&store->env, tail_taken_bytes(image));
        if (image->tail_taken == NULL) {
            env_put(&store->env, image, sizeof(*image));
            return NULL;
        }
        image->tail = (uint8_t *)image->tail_taken + (PAGE_BYTES - 1);
        image->tail -= (uintptr_t)image->tail % PAGE_BYTES;
    }
    store->imaging.count++;
    return image;
}

/* --- Making one (a worker) -------------------------------------------------------------------- */

/* The payload's bytes that do not fill a page, the trailer, zeros. */
static void
tail_make(struct image *image)
{
    uint32_t length = image->shape.length;
    uint32_t rest = length % PAGE_BYTES;
    uint32_t used = rest + image->shape.part_count * RECORD_NOTE_BYTES;

    memcpy(image->tail, image->payload + length - rest, rest);
    image_note_raw(&image->shape, image->payload, image->tail + rest);
    memset(image->tail + used, 0, (size_t)image->tail_pages * PAGE_BYTES - used);
}

/*
 * Encoded: then its bytes are summed up anew. What they were when they were put is known of a block
 * without parts: one that is not so any more goes as it is, under that sum, which no read believes.
 */
static void
encoded_make(struct image *image, struct codec_place *place)
{
    struct image_shape raw = image->shape;
    uint64_t begin_ns = env_now(&image->job.store->env);

    image->is_encoded = image_encode(place->codec, image->codec, &image->shape, image->payload,
        image->memory, &image->raw_count);
    image->encode_ns = env_now(&image->job.store->env) - begin_ns;
    if (image->is_encoded && raw.part_count == 1 && !hash128_is_zero(raw.checksum) &&
        !hash128_equal(hash_payload(image->payload, raw.length), raw.checksum)) {
        image->shape = raw;
        image->is_encoded = false;
    }
}

static void
imaging_run(struct crew_job *crew_job)
{
    struct image *image = CONTAINER_OF(crew_job, struct image, job.crew);
    struct kvt_store *store = image->job.store;
    struct codec_place *place = image->has_slot ? codecs_take(&store->codecs) : NULL;

    if (place != NULL) {
        encoded_make(image, place);
        codecs_put(place);
    }
    if (image->is_encoded)
        return;
    if (image->tail != NULL)
        tail_make(image);
    else if (hash128_is_zero(image->shape.checksum))
        image->shape.checksum = hash_payload(image->payload, image->shape.length);
}

/* --- Its end ---------------------------------------------------------------------------------- */

static void
image_report(struct kvt_store *store, const struct image *image)
{
    COUNT(store, codec_raw_count, image->raw_count);
    if (!image->is_encoded)
        return;
    COUNT(store, codec_in_bytes, image->shape.length);
    COUNT(store, codec_out_bytes, image->shape.stored_length);
    histogram_add(&store->latencies.encode_ns, image->encode_ns);
}

static void
imaging_done(struct kvt_store *store, struct job *job)
{
    struct image *image = CONTAINER_OF(job, struct image, job);
    struct flight *flight = image->flight;
    uint32_t number = image->entry;

    work_end(store, &store->images_in_flight, image->turn);
    image->is_made = true;
    if (flight == NULL) {
        image_put(store, image);
        entry_unpin(store, number);
        return;
    }
    KVT_ASSERT(flight->state == FLIGHT_IMAGING && flight->image == image);
    image_report(store, image);
    if (image->is_encoded)
        tail_put(store, image);
    else
        slot_put(store, image);
    image_count(store, image);
    if (!image->shape.has_trailer) {
        residency_at(store->map, number)->checksum = image->shape.checksum;
        flight->image = NULL;
        image_put(store, image);
    }
    entry_unpin(store, number);
    commit_ready(store, flight);
}

/* --- Turns ------------------------------------------------------------------------------------ */

static enum codec_id
codec_of(const struct kvt_store *store, uint32_t number)
{
    struct namespace_state *space = entry_namespace((struct kvt_store *)store, number);

    return (enum codec_id)atomic_load_explicit(&space->codec, memory_order_relaxed);
}

bool
imaging_begin(struct kvt_store *store, struct flight *flight)
{
    const struct entry *entry = residency_at(store->map, flight->entry);
    struct imaging *imaging = &store->imaging;

    if (entry_parts(entry) == 1 && codec_of(store, flight->entry) == CODEC_RAW &&
        !hash128_is_zero(entry->checksum))
        return false;
    flight->state = FLIGHT_IMAGING;
    flight->image_next = NULL;
    flight->image_last = imaging->last;
    if (imaging->last == NULL)
        imaging->first = flight;
    else
        imaging->last->image_next = flight;
    imaging->last = flight;
    return true;
}

static void
turn_leave(struct imaging *imaging, struct flight *flight)
{
    if (flight->image_last == NULL)
        imaging->first = flight->image_next;
    else
        flight->image_last->image_next = flight->image_next;
    if (flight->image_next == NULL)
        imaging->last = flight->image_last;
    else
        flight->image_next->image_last = flight->image_last;
}

/* A slot for the encoded image. False: not now, but when images that are there have been
 * written. */
static bool
image_place(struct kvt_store *store, struct image *image)
{
    uint64_t size = round_up(image->shape.length, PAGE_BYTES);
    uint64_t tail_bytes = image->tail_taken == NULL ? 0 : tail_taken_bytes(image);
    bool is_encodable;

    image->codec = codec_of(store, image->entry);
    /* What fits into a page takes one in any case. */
    is_encodable = image->codec != CODEC_RAW && size > PAGE_BYTES;
    if (store->imaging.count > 1 && store->imaging.bytes + tail_bytes + (is_encodable ? size : 0) >
                                        slab_capacity(store->slab) / HOST_SHARE)
        return false;
    if (!is_encodable)
        return true;
    image->has_slot = slab_take(store->slab, size, &image->slot) == KVT_OK;
    if (!image->has_slot)
        return store->imaging.slot_count == 0; /* No other one will give a slot back. */
    store->imaging.slot_count++;
    image->memory = slab_address(store->slab, image->slot);
    return true;
}

static bool
imaging_start(struct kvt_store *store, struct flight *flight)
{
    struct image *image = image_take(store, flight);

    if (image == NULL) {
        commit_flight_settle(store, flight, KVT_E_NOMEM);
        return true;
    }
    if (!image_place(store, image)) {
        image_put(store, image);
        return false;
    }
    turn_leave(&store->imaging, flight);
    image_count(store, image);
    flight->image = image;
    residency_pin(store->map, image->entry);
    image->turn = work_begin(store, &store->images_in_flight);
    image->job.store = store;
    image->job.crew.run = imaging_run;
    image->job.finish = imaging_done;
    image->job.crew.is_short = image->shape.length <= SHORT_JOB_BYTES && !image->has_slot;
    loop_job(store, &image->job);
    return true;
}

bool
imaging_step(struct kvt_store *store)
{
    bool was_busy = false;

    while (store->imaging.first != NULL) {
        if (!imaging_start(store, store->imaging.first)) {
            /* Those ahead may have time; those behind may not. */
            commit_hurry_all(store);
            break;
        }
        was_busy = true;
    }
    return was_busy;
}

void
imaging_end(struct kvt_store *store, struct flight *flight)
{
    struct image *image = flight->image;

    if (image == NULL) {
        if (flight->state == FLIGHT_IMAGING)
            turn_leave(&store->imaging, flight);
        return;
    }
    flight->image = NULL;
    if (image->is_made)
        image_put(store, image);
    else
        image->flight = NULL;
}

/* --- For batches ------------------------------------------------------------------------------ */

uint64_t
imaging_bytes(const struct kvt_store *store, const struct flight *flight)
{
    uint32_t length = flight->image != NULL ? flight->image->shape.stored_length
                                            : residency_at(store->map, flight->entry)->length;

    return (uint64_t)pages_of(length) * PAGE_BYTES;
}

void
imaging_fill(const struct kvt_store *store, const struct flight *flight, struct tier_block *block)
{
    const struct entry *entry = residency_at(store->map, flight->entry);
    const struct image *image = flight->image;

    block->memory = entry_host_address(store, entry);
    if (image == NULL)
        return;
    block->record.codec = RECORD_PARTS;
    block->record.part_count = (uint8_t)image->shape.part_count;
    block->record.stored_length = image->shape.stored_length;
    block->record.checksum = image->shape.checksum;
    if (image->is_encoded)
        block->memory = image->memory;
    block->tail = image->tail_taken == NULL ? NULL : image->tail;
    block->tail_pages = image->tail_pages;
}
