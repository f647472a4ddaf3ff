/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch_slots.c - the slots of HOST that a fetch (fetch.c) reads and decodes to: a copy that stays,
 * and what passes.
 *
 * Threads   the loop.
 */
#include "fetch_internal.h"

static enum kvt_status
host_take(struct kvt_store *store, const struct fetch *fetch, uint64_t size, bool is_in_line,
    struct slot *slot_out)
{
    return room_take(store,
        &(struct room_want){.place = POLICY_HOST,
            .namespace_id = fetch->op->key.namespace_id,
            .size = size,
            .patience = &fetch->op->patience,
            .is_in_line = is_in_line},
        slot_out);
}

/* Room for so many bytes until the fetch ends: as much as the block at most. */
static enum kvt_status
passing_take(struct kvt_store *store, struct fetch *fetch, uint64_t bytes, bool is_in_line,
    struct slot *slot_out)
{
    uint64_t size = round_up(bytes, PAGE_BYTES);
    uint64_t whole = round_up(fetch->shape.length, PAGE_BYTES);

    return host_take(store, fetch, size < whole ? size : whole, is_in_line, slot_out);
}

void
fetch_slots_put(struct kvt_store *store, struct fetch *fetch)
{
    if (fetch->has_stage)
        copy_slot_put(store, POLICY_HOST, fetch->stage, &fetch->device_job.move);
    if (fetch->has_decoded)
        copy_slot_put(store, POLICY_HOST, fetch->decoded, &fetch->device_job.move);
}

void
fetch_slots_untake(struct kvt_store *store, struct fetch *fetch)
{
    KVT_ASSERT(!fetch->has_decoded && !fetch->has_copy);
    if (fetch->has_stage)
        room_untake(store, POLICY_HOST, fetch->stage);
}

/* Room for stored bytes: as many pages as the parts can take, and what is read in vain. */
enum kvt_status
fetch_stage_take(struct kvt_store *store, struct fetch *fetch, bool is_in_line)
{
    uint64_t pages = pages_of(fetch->range.length) + 1u + GAP_PAGES;
    enum kvt_status status =
        passing_take(store, fetch, pages * PAGE_BYTES, is_in_line, &fetch->stage);

    fetch->has_stage = status == KVT_OK;
    if (fetch->has_stage)
        fetch->memory = slab_address(store->slab, fetch->stage);
    return status;
}

/* Room for a HOST copy, and a flight that says so. */
enum kvt_status
fetch_copy_take(struct kvt_store *store, struct fetch *fetch)
{
    enum kvt_status status = entry_prepare(store, fetch->entry);

    if (status != KVT_OK)
        return status;
    status = host_take(store, fetch, round_up(fetch->shape.length, PAGE_BYTES), true, &fetch->copy);
    if (status == KVT_OK) {
        fetch->flight = flight_create(store, fetch->entry, FLIGHT_READING);
        if (fetch->flight != NULL) {
            fetch->has_copy = true;
            fetch->copy_memory = slab_address(store->slab, fetch->copy);
            if (!fetch->has_stage)
                fetch->memory = fetch->copy_memory;
            return KVT_OK;
        }
        room_put(store, POLICY_HOST, fetch->copy);
        status = KVT_E_NOMEM;
    }
    entry_unprepare(store, fetch->entry);
    return status;
}

/* Room to decode to, when no copy in HOST is wanted: the destination, or what is spread from. */
enum kvt_status
fetch_decoded_take(struct kvt_store *store, struct fetch *fetch)
{
    enum kvt_status status;

    fetch->decoded_memory = fetch->op->destination;
    if ((fetch->op->layout == NULL && !fetch->is_sent) || !image_is_encoded(&fetch->shape))
        return KVT_OK;
    status = passing_take(store, fetch, fetch->range.length, true, &fetch->decoded);
    fetch->has_decoded = status == KVT_OK;
    if (fetch->has_decoded)
        fetch->decoded_memory = slab_address(store->slab, fetch->decoded);
    return status;
}
