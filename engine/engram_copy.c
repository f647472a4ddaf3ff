/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_copy.c - the rows of a page that has arrived, to where their target wants them: host
 * memory, or memory of a device by its mover.
 *
 * A page's memory is in use until the device has read it. One with more places than PAGE_PIECES is
 * copied by several moves, one after the other. The states of its rows are written when the last
 * has been answered: until then none of them counts as there.
 *
 * Threads   the reader's.
 */
#include "engram_reader.h"

static uint32_t
places_count(const struct fetch_target *target, uint32_t row)
{
    return target->is_once ? 1 : target->rows.firsts[row + 1] - target->rows.firsts[row];
}

/* The i-th place of a row in the destination. */
static inline uint32_t
place_of(const struct fetch_target *target, uint32_t row, uint32_t i)
{
    return target->is_once ? row : target->rows.slots[target->rows.firsts[row] + i];
}

static const uint8_t *
row_source(const struct page_read *read, uint32_t row)
{
    const struct engram_head *head = &read->target->table->head;
    uint32_t base = read->page * head->rows_per_page;

    if (read->is_within)
        return engram_cache_device_source(read->cache, read->target->rows.rows[row]);
    return read->bytes + (size_t)(read->target->rows.rows[row] - base) * head->profile.row_bytes;
}

/* As a filler of places in caches. */
static uint32_t
read_number(const struct engram_reader *reader, const struct page_read *read)
{
    return (uint32_t)(read - reader->reads);
}

/* Where in the device's cache this row of the page goes; NULL: it does not. */
static void *
cache_place(const struct engram_reader *reader, const struct page_read *read, uint32_t row)
{
    if (!read->is_kept)
        return NULL;
    return engram_cache_device_target(
        read->cache, read->target->rows.rows[row], read_number(reader, read));
}

void
engram_rows_copy(struct fetch_target *target, const struct page_read *read)
{
    size_t row_bytes = target->table->head.profile.row_bytes;

    for (uint32_t j = read->row_first; j < read->row_end; j++) {
        const uint8_t *source = row_source(read, j);

        for (uint32_t i = 0; i < places_count(target, j); i++)
            memcpy(target->destination + place_of(target, j, i) * row_bytes, source, row_bytes);
    }
}

void
engram_rows_note(
    struct fetch_target *target, const struct page_read *read, enum kvt_engram_row_state state)
{
    for (uint32_t j = read->row_first; j < read->row_end; j++) {
        uint32_t count = places_count(target, j);

        if (state != KVT_ENGRAM_ROW_THERE)
            target->lost_count += count;
        for (uint32_t i = 0; target->states != NULL && i < count; i++)
            target->states[place_of(target, j, i)] = (uint8_t)state;
    }
}

void
engram_target_look(struct fetch_target *target)
{
    if (target->device < 0 || target->asked < target->rows.row_count || target->pages_unsent > 0)
        return;
    /* Once: nothing is handed over any more, and others read what was said. */
    if (atomic_load_explicit(&target->moves_sent, memory_order_relaxed) != MOVES_UNSENT)
        return;
    target->queued_status = target->status;
    /* (F2) release: pairs with the acquire in kvt_engram_fetch_stream_wait(). */
    atomic_store_explicit(&target->moves_sent, target->move_count + 1, memory_order_release);
}

/* What is copied after this: the next of the row's places, or of the page's rows. */
static void
place_pass(const struct engram_reader *reader, struct page_read *read)
{
    uint32_t count = places_count(read->target, read->row_at);

    read->place_at++;
    if (read->place_at < count ||
        (read->place_at == count && cache_place(reader, read, read->row_at) != NULL))
        return;
    read->place_at = 0;
    read->row_at++;
}

/* Pieces of what was not copied yet. */
static uint32_t
pieces_fill(const struct engram_reader *reader, struct page_read *read)
{
    const struct fetch_target *target = read->target;
    uint32_t row_bytes = target->table->head.profile.row_bytes;
    uint32_t count = 0;

    while (count < PAGE_PIECES && read->row_at < read->row_end) {
        struct device_piece piece = {.source = row_source(read, read->row_at), .size = row_bytes};

        if (read->place_at < places_count(target, read->row_at)) {
            uint64_t place = place_of(target, read->row_at, read->place_at);

            piece.target =
                (void *)((uintptr_t)target->destination + (uintptr_t)(place * row_bytes));
        } else {
            piece.target = cache_place(reader, read, read->row_at);
        }
        read->pieces[count++] = piece;
        place_pass(reader, read);
    }
    return count;
}

static void
move_push(struct engram_reader *reader, struct page_read *read)
{
    struct fetch_target *target = read->target;
    struct device_move *move = &read->move;

    *move = (struct device_move){.lane = read->is_within ? DEVICE_OUT : DEVICE_IN,
        .is_urgent = target->deadline_ns != UINT64_MAX,
        .pieces = read->pieces,
        .piece_count = pieces_fill(reader, read),
        .mark = &target->mark,
        .mark_count = 1,
        .done = &reader->copied,
        .done_task = &reader->task};
    target->move_count++;
    if (read->row_at == read->row_end)
        target->pages_unsent--;
    device_mover_push(hbm_mover(reader->store->devices.tiers[target->device]), &move, 1);
}

void
engram_rows_keep(struct engram_reader *reader, struct page_read *read)
{
    for (uint32_t j = read->row_first; read->cache != NULL && j < read->row_end; j++)
        read->is_kept = engram_cache_device_keep(
                            read->cache, read->target->rows.rows[j], read_number(reader, read)) ||
                        read->is_kept;
}

void
engram_rows_end(const struct engram_reader *reader, struct page_read *read)
{
    for (uint32_t j = read->row_first; read->is_within && j < read->row_end; j++)
        engram_cache_device_release(read->cache, read->target->rows.rows[j]);
    for (uint32_t j = read->row_first; read->is_kept && j < read->row_end; j++)
        engram_cache_device_filled(read->cache, read->target->rows.rows[j],
            read_number(reader, read), read->copied_status == KVT_OK);
}

void
engram_rows_send(struct engram_reader *reader, struct page_read *read)
{
    read->row_at = read->row_first;
    read->place_at = 0;
    read->copied_status = KVT_OK;
    move_push(reader, read);
}

bool
engram_rows_go_on(struct engram_reader *reader, struct page_read *read)
{
    uint32_t device = (uint32_t)read->target->device;

    read->copied_status = device_answer(reader->store, device, read->move.status);
    if (read->row_at == read->row_end)
        return true;
    if (read->copied_status == KVT_OK) {
        move_push(reader, read);
        return false;
    }
    read->target->pages_unsent--; /* The rest is not sent. */
    return true;
}
