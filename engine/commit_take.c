/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_take.c - which of the blocks that wait go into a batch.
 *
 * Those that somebody waits for come first, the oldest first. Behind them come blocks that leave
 * HOST. No more than fill what is left of the segment, if one does: one more would take the whole
 * batch to the next segment, and a hole would stay in this one.
 *
 * Threads   the loop.
 */
#include "batch_header.h"
#include "commit_internal.h"

/* A block that leaves HOST: it may be left to the next batch until it is late. */
static bool
flight_is_patient(const struct kvt_store *store, const struct flight *flight)
{
    return flight->is_demotion && !flight->is_asked_for &&
           flight->due_ns + store->options.batch_delay_ns > store->now_ns;
}

/* What a batch takes next, and what it has. */
struct taking {
    struct batch *batch;
    uint32_t segment;    /* Flights that replace in it alone; SEGMENT_NONE: */
    bool is_patient;     /* those that are, or those that are not. */
    uint32_t tail_pages; /* It stays within so many, with its header; 0: it may be larger. */
    uint32_t void_count; /* Entries of others that its header says, too. */
    uint64_t bytes;
};

static bool
taking_wants(
    const struct kvt_store *store, const struct taking *taking, const struct flight *flight)
{
    if (taking->segment != SEGMENT_NONE)
        return commit_replaces_in(flight, taking->segment);
    return flight_is_patient(store, flight) == taking->is_patient;
}

/* Whether `count` blocks of so many bytes are as much as it may take. */
static bool
taking_fits(
    const struct kvt_store *store, const struct taking *taking, uint32_t count, uint64_t bytes)
{
    /* Each may replace one. */
    uint32_t kills = store->commit->kills.count + taking->void_count + count;

    if (count > COMMIT_BLOCKS_MAX || (count > 1 && bytes > store->commit->batch_bytes_max))
        return false;
    return taking->tail_pages == 0 ||
           bytes / PAGE_BYTES +
                   batch_header_pages(count, kills < COMMIT_KILLS_MAX ? kills : COMMIT_KILLS_MAX) <=
               taking->tail_pages;
}

static void
due_note(struct commit *commit, const struct flight *flight)
{
    if (flight->due_ns < commit->due_ns)
        commit->due_ns = flight->due_ns;
}

/* Move the oldest QUEUED flights that it wants into the batch. False: not all of them fit. Nothing
 * is looked at behind the last that is QUEUED. */
static bool
taking_run(struct kvt_store *store, struct taking *taking)
{
    struct commit *commit = store->commit;
    struct batch *batch = taking->batch;
    uint32_t passed_count = 0; /* QUEUED, and not wanted. */

    for (struct flight *flight = commit->oldest;
         flight != NULL && passed_count < commit->queued_count; flight = flight->newer) {
        uint64_t size;

        /* Of one that is IMAGING nobody knows the size yet. */
        if (flight->state != FLIGHT_QUEUED)
            continue;
        if (!taking_wants(store, taking, flight)) {
            passed_count++;
            if (taking->segment != SEGMENT_NONE)
                due_note(commit, flight);
            continue;
        }
        size = imaging_bytes(store, flight);
        if (!taking_fits(store, taking, batch->count + 1, taking->bytes + size)) {
            /* The rest is not looked at one by one. Those ahead may have time; those behind may
             * not. */
            commit_hurry_all(store);
            return false;
        }
        commit_uncount(store, flight);
        flight->state = FLIGHT_WRITING;
        batch->flights[batch->count++] = flight;
        taking->bytes += size;
    }
    return true;
}

/* Of one kind as many as fill what is left of the segment. When the batch has none, and not even
 * one fits there, as many as may be. False: not all of them. */
static bool
kind_take(struct kvt_store *store, struct taking *taking, bool is_patient)
{
    taking->is_patient = is_patient;
    taking->tail_pages = nvme_tail_pages(store->nvme);
    if (!taking_fits(store, taking, taking->batch->count, taking->bytes))
        taking->tail_pages = 0;
    if (taking_run(store, taking))
        return true;
    if (taking->batch->count > 0 || taking->tail_pages == 0)
        return false;
    taking->tail_pages = 0;
    store->commit->due_ns = UINT64_MAX;
    return taking_run(store, taking);
}

void
commit_batch_take(struct kvt_store *store, struct batch *batch, uint32_t segment)
{
    struct taking taking = {.batch = batch,
        .segment = segment,
        .void_count = commit_voids_travelling(store->commit, NULL, COMMIT_KILLS_MAX)};

    store->commit->due_ns = UINT64_MAX;
    if (segment != SEGMENT_NONE) {
        (void)taking_run(store, &taking);
        return;
    }
    /* Where not all of the first fit, less is left than one of them needs: not worth a look at all
     * that wait, of which there may be a million, for each batch. */
    if (kind_take(store, &taking, false))
        (void)kind_take(store, &taking, true);
}
