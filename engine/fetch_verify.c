/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch_verify.c - bytes that were read from NVMe (fetch.c): proved, decoded, and copied to where
 * they are wanted.
 *
 * Threads   a worker, while the loop leaves the fetch alone.
 */
#include "fetch_internal.h"
#include "store_internal.h"

/* Where the part's stored bytes are, all of them. */
static uint8_t *
part_at(const struct fetch *fetch, const struct image_part *part)
{
    return fetch->memory + (part->offset - (size_t)fetch->first_page * PAGE_BYTES);
}

/* The parts' bytes that were read with the trailer, to behind the others. */
static void
tail_join(const struct fetch *fetch, const struct image_part *last)
{
    uint32_t end = last->offset + last->stored_length;
    uint32_t tail_at = fetch->tail_page * PAGE_BYTES;

    if (end > tail_at && fetch->tail_page >= fetch->first_page)
        memcpy(fetch->memory + (size_t)(fetch->tail_page - fetch->first_page) * PAGE_BYTES,
            fetch->tail, end - tail_at);
}

static bool
parts_decode(struct fetch *fetch, const struct image_part *parts, uint8_t *target)
{
    struct kvt_store *store = fetch->job.store;
    uint32_t bytes = image_part_bytes(&fetch->shape);
    struct codec_place *place = codecs_take(&store->codecs);
    uint64_t begin_ns = env_now(&store->env);
    bool is_decoded = true;

    fetch->is_failed = place == NULL;
    if (place == NULL)
        return false;
    for (uint32_t i = 0; i < fetch->range.count && is_decoded; i++)
        is_decoded = codec_decode(place->codec, parts[i].codec, part_at(fetch, &parts[i]),
                         parts[i].stored_length, target + (size_t)i * bytes, bytes) == KVT_OK;
    codecs_put(place);
    fetch->decode_ns = env_now(&store->env) - begin_ns + 1;
    return is_decoded;
}

/* Every part that is wanted is what was written. */
static bool
parts_verify(struct fetch *fetch)
{
    struct image_part parts[RECORD_PARTS_MAX];
    const struct image_part *wanted = parts + fetch->range.first;
    uint32_t trailer_at = image_trailer_at(&fetch->shape);
    bool is_encoded = image_is_encoded(&fetch->shape);

    if (image_trailer_read(&fetch->shape, fetch->tail + trailer_at % PAGE_BYTES, parts) != KVT_OK)
        return false;
    tail_join(fetch, &wanted[fetch->range.count - 1]);
    for (uint32_t i = 0; i < fetch->range.count; i++) {
        if (!image_part_is_right(&wanted[i], part_at(fetch, &wanted[i])))
            return false;
    }
    return !is_encoded ||
           parts_decode(fetch, wanted,
               fetch->copy_memory != NULL ? fetch->copy_memory : fetch->decoded_memory);
}

void
fetch_run(struct crew_job *crew_job)
{
    struct fetch *fetch = CONTAINER_OF(crew_job, struct fetch, job.crew);
    uint64_t length = fetch->shape.length;
    uint8_t *bytes = fetch->copy_memory;

    if (!fetch->shape.has_trailer && fetch->tail != NULL)
        memcpy(fetch->memory + (size_t)fetch->tail_page * PAGE_BYTES, fetch->tail,
            length % PAGE_BYTES);
    if (!fetch->shape.has_trailer)
        fetch->is_right = image_is_right(&fetch->shape, fetch->memory);
    else
        fetch->is_right = parts_verify(fetch);
    if (!fetch->is_right)
        return;
    if (fetch->copy_memory != NULL)
        memset(fetch->copy_memory + length, 0, round_up(length, PAGE_BYTES) - length);
    if (fetch->op == NULL)
        return; /* Nobody wants it. */
    if (bytes == NULL && image_is_encoded(&fetch->shape))
        bytes = fetch->decoded_memory;
    else if (bytes == NULL)
        bytes = fetch->memory - (size_t)fetch->first_page * PAGE_BYTES + fetch->range.offset;
    fetch->found = bytes;
    if (!fetch->is_sent && bytes != fetch->op->destination)
        destination_store(fetch->op, &fetch->range, bytes);
}
