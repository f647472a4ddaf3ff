/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - the table of segments, its moves and their proofs.
 *
 * Free segments are taken round robin behind the one that was activated last, so that all of a
 * device is worn alike and finding one is cheap.
 */
#include "segment.h"

#include "block_record.h"
#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    ROOTS_MAX = 256,
    STATE_COUNT = 4,
};

#define INDEX_NONE UINT32_MAX
#define SEGMENT_INDEX_MAX 0xFFFFFFu

struct root_table {
    struct segment *segments;
    uint32_t count;
    uint32_t active; /* Index; INDEX_NONE. */
    uint32_t cursor; /* Where the search for a free segment goes on. */
    uint32_t state_counts[STATE_COUNT];
};

struct segment_table {
    const struct kvt_env *env;
    uint32_t root_count;
    uint32_t pages;
    uint64_t total;            /* Segments of all roots. */
    uint64_t turn;             /* Segments that were freed. */
    uint64_t change_count;     /* segment_change_count() */
    struct root_table roots[]; /* root_count */
};

/* --- Opening, closing, finding ---------------------------------------------------------------- */

static enum kvt_status
root_open(struct segment_table *table, uint32_t root_number, uint32_t count)
{
    struct root_table *root = &table->roots[root_number];

    root->active = INDEX_NONE;
    root->count = 0;
    if (count == 0)
        return KVT_OK;
    root->segments = env_take(table->env, count * sizeof(struct segment));
    if (root->segments == NULL)
        return failure_set(KVT_E_NOMEM, 0, "segments: no memory for a table of %u segments", count);
    root->count = count;
    root->state_counts[SEGMENT_FREE] = count;
    for (uint32_t i = 0; i < count; i++) {
        root->segments[i].number = root_number << 24 | i;
        root->segments[i].generation = 1;
        root->segments[i].state = SEGMENT_FREE;
    }
    return KVT_OK;
}

enum kvt_status
segment_table_open(const struct kvt_env *env, uint32_t root_count, const uint32_t *segment_counts,
    uint32_t pages, struct segment_table **table_out)
{
    size_t size = sizeof(struct segment_table) + root_count * sizeof(struct root_table);
    struct segment_table *table;

    *table_out = NULL;
    if (root_count == 0 || root_count > ROOTS_MAX || pages == 0)
        return failure_set(
            KVT_E_INVAL, 0, "segments: %u roots of segments of %u pages", root_count, pages);
    for (uint32_t i = 0; i < root_count; i++) {
        if (segment_counts[i] > SEGMENT_INDEX_MAX + 1)
            return failure_set(KVT_E_INVAL, 0, "segments: %u in root %u, allowed are %u",
                segment_counts[i], i, SEGMENT_INDEX_MAX + 1);
    }
    table = env_take(env, size);
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "segments: no memory for %zu bytes", size);
    table->env = env;
    table->root_count = root_count;
    table->pages = pages;
    for (uint32_t i = 0; i < root_count; i++) {
        enum kvt_status status = root_open(table, i, segment_counts[i]);

        if (status != KVT_OK) {
            segment_table_close(table);
            return status;
        }
        table->total += segment_counts[i];
    }
    *table_out = table;
    return KVT_OK;
}

void
segment_table_close(struct segment_table *table)
{
    if (table == NULL)
        return;
    for (uint32_t i = 0; i < table->root_count; i++)
        env_put(
            table->env, table->roots[i].segments, table->roots[i].count * sizeof(struct segment));
    env_put(table->env, table,
        sizeof(struct segment_table) + table->root_count * sizeof(struct root_table));
}

struct segment *
segment_at(struct segment_table *table, uint32_t number)
{
    uint32_t root = segment_root(number);
    uint32_t index = segment_index(number);

    if (table == NULL || root >= table->root_count || index >= table->roots[root].count)
        return NULL;
    return &table->roots[root].segments[index];
}

uint32_t
segment_pages(const struct segment_table *table)
{
    return table->pages;
}

struct segment *
segment_next(struct segment_table *table, uint32_t *cursor)
{
    uint32_t index = *cursor;

    for (uint32_t i = 0; table != NULL && i < table->root_count; i++) {
        if (index < table->roots[i].count) {
            (*cursor)++;
            return &table->roots[i].segments[index];
        }
        index -= table->roots[i].count;
    }
    return NULL;
}

struct segment *
segment_active(struct segment_table *table, uint32_t root)
{
    const struct root_table *entry = &table->roots[root];

    return entry->active == INDEX_NONE ? NULL : &entry->segments[entry->active];
}

uint64_t
segment_total(const struct segment_table *table, uint32_t root)
{
    return table->roots[root].count;
}

uint32_t
segment_count_in(const struct segment_table *table, uint32_t root, enum segment_state state)
{
    return table->roots[root].state_counts[state];
}

uint64_t
segment_change_count(const struct segment_table *table)
{
    return table->change_count;
}

void
segment_changed(struct segment_table *table)
{
    table->change_count++;
}

/* --- Moves ------------------------------------------------------------------------------------ */

static void
state_set(struct segment_table *table, struct segment *segment, enum segment_state state)
{
    struct root_table *root = &table->roots[segment_root(segment->number)];

    KVT_ASSERT(root->state_counts[segment->state] > 0);
    root->state_counts[segment->state]--;
    root->state_counts[state]++;
    segment->state = state;
    segment_changed(table);
}

/* Whether facts from the index can be true: it may be damaged, so nothing in it is a proof. */
static bool
restore_is_possible(const struct segment_table *table, const struct segment *source)
{
    bool has_records = source->record_count != 0;

    if (source->generation == 0 || source->state > SEGMENT_RECYCLING)
        return false;
    if (has_records && (source->state == SEGMENT_FREE || source->state == SEGMENT_RECYCLING))
        return false;
    if (!has_records && (source->live_bytes != 0 || source->crc_xor != 0))
        return false;
    return source->live_bytes <= (uint64_t)table->pages * PAGE_BYTES;
}

bool
segment_restore(struct segment_table *table, const struct segment *source)
{
    struct segment *segment = segment_at(table, source->number);
    enum segment_state state = source->state;

    if (segment == NULL || !restore_is_possible(table, source))
        return false;
    if (segment->state == SEGMENT_ACTIVE || segment->reader_count != 0)
        return false;
    if (state == SEGMENT_ACTIVE)
        state = SEGMENT_SEALED;

    segment->generation = source->generation;
    segment->record_count = source->record_count;
    segment->crc_xor = source->crc_xor;
    segment->live_bytes = source->live_bytes;
    segment->batch_number = source->batch_number;
    segment->generation_seen = 0;
    segment->void_count = 0;
    segment->fill_page = 0;
    if (state == SEGMENT_SEALED)
        segment->fill_page = table->pages;
    else if (state == SEGMENT_FREE && segment->generation > 1)
        segment->fill_page =
            table->pages < SEGMENT_HEAD_PAGES_MAX ? table->pages : SEGMENT_HEAD_PAGES_MAX;
    state_set(table, segment, state);
    segment_check(segment, table->pages);
    return true;
}

/* The next free segment of a root with room for a run; INDEX_NONE: there is none. */
static uint32_t
free_find(const struct segment_table *table, uint32_t root_number, uint32_t pages)
{
    const struct root_table *root = &table->roots[root_number];
    uint32_t left = root->state_counts[SEGMENT_FREE];

    for (uint32_t i = 0, index = root->cursor; i < root->count && left > 0; i++, index++) {
        if (index >= root->count)
            index = 0;
        if (root->segments[index].state != SEGMENT_FREE)
            continue;
        if (table->pages - root->segments[index].fill_page >= pages)
            return index;
        left--;
    }
    return INDEX_NONE;
}

static bool
fits_active(const struct segment_table *table, const struct root_table *root, uint32_t pages,
    uint32_t reserve_count)
{
    return root->active != INDEX_NONE && root->state_counts[SEGMENT_FREE] >= reserve_count &&
           table->pages - root->segments[root->active].fill_page >= pages;
}

bool
segment_fits(
    const struct segment_table *table, uint32_t root, uint32_t pages, uint32_t reserve_count)
{
    if (fits_active(table, &table->roots[root], pages, reserve_count))
        return true;
    return table->roots[root].state_counts[SEGMENT_FREE] > reserve_count &&
           free_find(table, root, pages) != INDEX_NONE;
}

static void
segment_activate(struct segment_table *table, struct root_table *root, uint32_t index)
{
    struct segment *segment = &root->segments[index];

    KVT_ASSERT(root->active == INDEX_NONE);
    segment_check(segment, table->pages);
    state_set(table, segment, SEGMENT_ACTIVE);
    segment->void_count = 0;
    root->active = index;
    root->cursor = index + 1;
    segment_check(segment, table->pages);
}

enum kvt_status
segment_run_take(struct segment_table *table, uint32_t root_number, uint32_t pages,
    uint32_t reserve_count, struct segment **segment_out, uint32_t *page_out,
    struct segment **sealed_out)
{
    struct root_table *root = &table->roots[root_number];
    struct segment *segment;

    *sealed_out = NULL;
    if (pages == 0 || pages > table->pages)
        return failure_set(
            KVT_E_INVAL, 0, "segments: a run of %u pages, a segment has %u", pages, table->pages);
    if (!fits_active(table, root, pages, reserve_count)) {
        uint32_t index = INDEX_NONE;

        if (root->state_counts[SEGMENT_FREE] > reserve_count)
            index = free_find(table, root_number, pages);
        if (index == INDEX_NONE)
            return failure_set(KVT_E_NOSPC, 0,
                "segments: root %u has no free segment for %u pages (%u free, %u in reserve)",
                root_number, pages, root->state_counts[SEGMENT_FREE], reserve_count);
        if (root->active != INDEX_NONE) {
            *sealed_out = &root->segments[root->active];
            segment_seal(table, *sealed_out);
        }
        segment_activate(table, root, index);
    }
    segment = &root->segments[root->active];
    *segment_out = segment;
    *page_out = segment->fill_page;
    segment->fill_page += pages;
    segment_check(segment, table->pages);
    return KVT_OK;
}

void
segment_resume(struct segment_table *table, struct segment *segment, uint32_t fill_page)
{
    struct root_table *root = &table->roots[segment_root(segment->number)];

    KVT_ASSERT(segment->state == SEGMENT_SEALED);
    KVT_ASSERT(root->active == INDEX_NONE);
    segment->fill_page = fill_page;
    state_set(table, segment, SEGMENT_ACTIVE);
    root->active = segment_index(segment->number);
    root->cursor = root->active + 1;
    segment_check(segment, table->pages);
}

void
segment_seal(struct segment_table *table, struct segment *segment)
{
    KVT_ASSERT(segment->state == SEGMENT_ACTIVE);
    table->roots[segment_root(segment->number)].active = INDEX_NONE;
    state_set(table, segment, SEGMENT_SEALED);
    segment_check(segment, table->pages);
}

void
segment_recycle_begin(struct segment_table *table, struct segment *segment)
{
    KVT_ASSERT(segment->state == SEGMENT_SEALED);
    KVT_ASSERT(segment->writer_count == 0);
    segment->record_count = 0;
    segment->crc_xor = 0;
    segment->live_bytes = 0;
    segment->is_passed_over = false;
    segment->kill_count = 0;
    segment->fill_page = 0;
    state_set(table, segment, SEGMENT_RECYCLING);
    segment_check(segment, table->pages);
}

uint32_t
segment_generation_next(const struct segment *segment)
{
    uint32_t last = segment->generation_seen > segment->generation ? segment->generation_seen
                                                                   : segment->generation;

    return last == UINT32_MAX ? UINT32_MAX : last + 1;
}

void
segment_free(struct segment_table *table, struct segment *segment)
{
    uint32_t head_pages =
        table->pages < SEGMENT_HEAD_PAGES_MAX ? table->pages : SEGMENT_HEAD_PAGES_MAX;

    KVT_ASSERT(segment->state == SEGMENT_RECYCLING);
    KVT_ASSERT(segment->reader_count == 0);
    KVT_ASSERT(segment->generation < UINT32_MAX);
    if (segment->fill_page == 0)
        segment->fill_page = head_pages;
    segment->generation = segment_generation_next(segment);
    segment->generation_seen = 0;
    segment->are_kills_elsewhere = false;
    table->turn++;
    state_set(table, segment, SEGMENT_FREE);
    segment_check(segment, table->pages);
}

void
segment_kills_note(struct segment_table *table, struct segment *segment, uint32_t count)
{
    segment->kill_count = count;
    segment->kill_turn = table->turn;
}

uint32_t
segment_kills_left(const struct segment_table *table, const struct segment *segment)
{
    uint64_t turns = table->turn - segment->kill_turn;

    if (turns >= table->total)
        return 0;
    return (uint32_t)(segment->kill_count * (table->total - turns) / table->total);
}

/* --- Proofs ----------------------------------------------------------------------------------- */

void
segment_check(const struct segment *segment, uint32_t pages)
{
    KVT_ASSERT(segment->generation > 0);
    KVT_ASSERT(segment->fill_page <= pages);
    switch (segment->state) {
    case SEGMENT_FREE:
        KVT_ASSERT(segment->record_count == 0 && segment->live_bytes == 0);
        KVT_ASSERT(segment->crc_xor == 0);
        KVT_ASSERT(segment->reader_count == 0 && segment->writer_count == 0);
        KVT_ASSERT((segment->fill_page == 0) == (segment->generation == 1));
        KVT_ASSERT(segment->fill_page <= SEGMENT_HEAD_PAGES_MAX);
        break;
    case SEGMENT_ACTIVE:
    case SEGMENT_SEALED:
        KVT_ASSERT(segment->live_bytes <= (uint64_t)pages * PAGE_BYTES);
        KVT_ASSERT(segment->record_count > 0 || segment->crc_xor == 0);
        break;
    case SEGMENT_RECYCLING:
        KVT_ASSERT(segment->record_count == 0 && segment->live_bytes == 0);
        KVT_ASSERT(segment->crc_xor == 0);
        KVT_ASSERT(segment->writer_count == 0);
        break;
    }
}

const char *
segment_state_name(enum segment_state state)
{
    switch (state) {
    case SEGMENT_FREE:
        return "FREE";
    case SEGMENT_ACTIVE:
        return "ACTIVE";
    case SEGMENT_SEALED:
        return "SEALED";
    case SEGMENT_RECYCLING:
        return "RECYCLING";
    }
    return "?";
}
