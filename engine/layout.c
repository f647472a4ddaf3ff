/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - the table of layouts, how one is made, and walks over its pieces.
 *
 * An id is {generation 22, index + 1 10}; the generation is odd while the layout is registered.
 */
#include "layout.h"

#include <stdio.h>
#include <stdlib.h>

#include "store_internal.h"
#include "use_word.h"

enum {
    INDEX_BITS = 10,
    GENERATION_MASK = (1 << 22) - 1,
    PLACE_COUNT = KVT_LAYOUTS_MAX - 1, /* Index + 1 fits INDEX_BITS. */
    ABOUT_BYTES = 24,
};

struct layout_place {
    struct use_word use;   /* (R3) */
    struct layout *layout; /* Written while nobody can see it. */
};

struct layout_table {
    pthread_mutex_t mutex; /* Registering and unregistering. */
    uint32_t next;         /* Where a free place is sought first: an id comes back late. */
    struct layout_place places[PLACE_COUNT];
};

/* What a layout is made from. */
struct layout_plan {
    char about[ABOUT_BYTES]; /* How sentences begin: whose runs they are. */
    const struct kvt_run *runs;
    uint32_t run_count;
    uint32_t slot_count;
    uint64_t block_bytes_max;
    uint64_t piece_count; /* So far. */
};

/* Where the pieces of a run are, in all slots; in the walk over pieces, where one is. */
struct stretch {
    uintptr_t begin, end;
};

/* --- Walks ------------------------------------------------------------------------------------ */

struct walk {
    const struct layout *layout;
    uint32_t slot;
    uint32_t run;   /* The next piece: of this run, ... */
    uint32_t piece; /* ... its number there, ... */
    uint64_t skip;  /* ... and what of it is passed over. */
    uint64_t left;
};

static struct walk
walk_begin(const struct layout *layout, uint32_t slot, uint64_t offset, uint64_t length)
{
    struct walk walk = {.layout = layout, .slot = slot, .left = length};
    const struct layout_run *run;

    while (walk.run + 1 < layout->run_count && layout->runs[walk.run + 1].offset <= offset)
        walk.run++;
    run = &layout->runs[walk.run];
    walk.piece = (uint32_t)((offset - run->offset) / run->piece_bytes);
    walk.skip = (offset - run->offset) % run->piece_bytes;
    return walk;
}

/* False: that was all. */
static bool
walk_next(struct walk *walk, struct stretch *stretch_out)
{
    const struct layout_run *run;
    uint64_t size;

    if (walk->left == 0)
        return false;
    run = &walk->layout->runs[walk->run];
    size = run->piece_bytes - walk->skip;
    if (size > walk->left)
        size = walk->left;
    stretch_out->begin =
        run->address + walk->slot * run->slot_stride + walk->piece * run->piece_stride + walk->skip;
    stretch_out->end = stretch_out->begin + size;
    walk->left -= size;
    walk->skip = 0;
    if (++walk->piece == run->piece_count) {
        walk->piece = 0;
        walk->run++;
    }
    return true;
}

static struct walk
spread_walk(const struct spread *spread)
{
    return walk_begin(spread->layout, spread->slot, spread->offset, spread->length);
}

void
spread_gather(const struct spread *spread)
{
    struct walk walk = spread_walk(spread);
    uint8_t *memory = spread->memory;
    struct stretch piece;

    while (walk_next(&walk, &piece)) {
        memcpy(memory, (const void *)piece.begin, piece.end - piece.begin);
        memory += piece.end - piece.begin;
    }
}

void
spread_scatter(const struct spread *spread)
{
    struct walk walk = spread_walk(spread);
    const uint8_t *memory = spread->memory;
    struct stretch piece;

    while (walk_next(&walk, &piece)) {
        memcpy((void *)piece.begin, memory, piece.end - piece.begin);
        memory += piece.end - piece.begin;
    }
}

uint32_t
spread_pieces(const struct spread *spread, bool is_gather, struct device_piece *pieces_out)
{
    struct walk walk = spread_walk(spread);
    uintptr_t memory = (uintptr_t)spread->memory; /* Of a device perhaps. */
    struct stretch piece;
    uint32_t count = 0;

    for (; walk_next(&walk, &piece); count++) {
        if (pieces_out != NULL)
            pieces_out[count] =
                (struct device_piece){.target = (void *)(is_gather ? memory : piece.begin),
                    .source = (const void *)(is_gather ? piece.begin : memory),
                    .size = piece.end - piece.begin};
        memory += piece.end - piece.begin;
    }
    return count;
}

/* --- Checks ----------------------------------------------------------------------------------- */

/* How far the run reaches from its address, in all slots. False: further than memory can. */
static bool
run_reach(const struct kvt_run *run, uint32_t slot_count, uint64_t *bytes_out)
{
    uint64_t slots, pieces, bytes;

    if (__builtin_mul_overflow(run->slot_stride, (uint64_t)slot_count - 1, &slots) ||
        __builtin_mul_overflow(run->piece_stride, (uint64_t)run->piece_count - 1, &pieces) ||
        __builtin_add_overflow(slots, pieces, &bytes) ||
        __builtin_add_overflow(bytes, run->piece_bytes, &bytes) || bytes > INT64_MAX ||
        bytes > UINTPTR_MAX - (uintptr_t)run->address)
        return false;
    *bytes_out = bytes;
    return true;
}

static enum kvt_status
run_check(const struct layout_plan *plan, uint32_t i, uint64_t *reach_out)
{
    const struct kvt_run *run = &plan->runs[i];

    if (run->address == NULL)
        return failure_set(KVT_E_INVAL, 0, "%sruns[%u].address is NULL", plan->about, i);
    if (run->piece_count == 0 || run->piece_count > KVT_PIECES_MAX)
        return failure_set(KVT_E_INVAL, 0, "%sruns[%u].piece_count %u is not in 1..%u", plan->about,
            i, run->piece_count, KVT_PIECES_MAX);
    if (run->piece_bytes == 0 || run->piece_bytes > plan->block_bytes_max)
        return failure_set(KVT_E_INVAL, 0, "%sruns[%u].piece_bytes %llu is not in 1..%llu",
            plan->about, i, (unsigned long long)run->piece_bytes,
            (unsigned long long)plan->block_bytes_max);
    if (run->piece_stride < run->piece_bytes && (run->piece_count > 1 || run->piece_stride > 0))
        return failure_set(KVT_E_INVAL, 0,
            "%sruns[%u].piece_stride %llu is less than piece_bytes: pieces would overlap",
            plan->about, i, (unsigned long long)run->piece_stride);
    if (run->slot_stride < run->piece_bytes && (plan->slot_count > 1 || run->slot_stride > 0))
        return failure_set(KVT_E_INVAL, 0,
            "%sruns[%u].slot_stride %llu is less than piece_bytes: slots would overlap",
            plan->about, i, (unsigned long long)run->slot_stride);
    if (!run_reach(run, plan->slot_count, reach_out))
        return failure_set(KVT_E_INVAL, 0,
            "%sruns[%u].address: pieces lie behind the end of the address space", plan->about, i);
    return KVT_OK;
}

static int
stretch_compare(const void *a, const void *b)
{
    const struct stretch *left = a;
    const struct stretch *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* In slot 0, and so in every slot of runs with the same slot_stride. */
static enum kvt_status
pieces_check(struct kvt_store *store, const struct layout *layout, const struct layout_plan *plan)
{
    const struct spread all = {.layout = layout, .length = layout->block_bytes};
    struct walk walk = spread_walk(&all);
    struct stretch last = {0}, piece;
    struct stretch *pieces;
    uint32_t count = 0;
    bool is_rising = true, is_overlapping = false;

    for (; walk_next(&walk, &piece); count++) {
        is_rising = is_rising && piece.begin >= last.end;
        last = piece;
    }
    if (is_rising)
        return KVT_OK;
    pieces = env_take(&store->env, count * sizeof(*pieces));
    if (pieces == NULL)
        return failure_set(
            KVT_E_NOMEM, 0, "%sno memory to check %u pieces of runs", plan->about, count);
    walk = spread_walk(&all);
    for (uint32_t i = 0; walk_next(&walk, &piece); i++)
        pieces[i] = piece;
    qsort(pieces, count, sizeof(*pieces), stretch_compare);
    for (uint32_t i = 1; i < count && !is_overlapping; i++)
        is_overlapping = pieces[i - 1].end > pieces[i].begin;
    env_put(&store->env, pieces, count * sizeof(*pieces));
    if (is_overlapping)
        return failure_set(KVT_E_INVAL, 0, "%sruns: two pieces of a slot overlap", plan->about);
    return KVT_OK;
}

static struct stretch
run_stretch(const struct layout *layout, const struct layout_run *run)
{
    return (struct stretch){
        run->address, run->address + (layout->slot_count - 1) * run->slot_stride +
                          (run->piece_count - 1) * run->piece_stride + run->piece_bytes};
}

/* Runs whose slots lie in different steps keep away from each other. */
static enum kvt_status
steps_check(const struct layout *layout, const struct layout_plan *plan)
{
    for (uint32_t i = 1; i < layout->run_count && layout->slot_count > 1; i++) {
        const struct layout_run *run = &layout->runs[i];
        struct stretch own = run_stretch(layout, run);

        for (uint32_t j = 0; j < i; j++) {
            struct stretch other = run_stretch(layout, &layout->runs[j]);

            if (layout->runs[j].slot_stride != run->slot_stride && own.begin < other.end &&
                other.begin < own.end)
                return failure_set(KVT_E_INVAL, 0,
                    "%sruns with slot_stride %llu and %llu reach into each other's memory",
                    plan->about, (unsigned long long)layout->runs[j].slot_stride,
                    (unsigned long long)run->slot_stride);
        }
    }
    return KVT_OK;
}

/* --- Making one ------------------------------------------------------------------------------- */

static void
layout_free(struct kvt_store *store, struct layout *layout)
{
    for (uint32_t i = 0; i < layout->run_count; i++)
        region_let_go(store, layout->runs[i].region);
    env_put(&store->env, layout, sizeof(*layout) + layout->run_capacity * sizeof(layout->runs[0]));
}

/* Where the run lies. Its region is held. */
static enum kvt_status
run_hold(struct kvt_store *store, struct layout *layout, const struct layout_plan *plan, uint32_t i,
    uint64_t reach)
{
    const struct kvt_run *run = &plan->runs[i];
    int device = MEMORY_PLAIN;
    enum kvt_status status = KVT_OK;
    struct failure why;

    if (run->region.id != 0)
        status =
            region_hold(store, run->region, &(struct iovec){run->address, (size_t)reach}, &device);
    if (status != KVT_OK) {
        why = *failure_last();
        return failure_set(status, 0, "%sruns[%u].region: %.200s", plan->about, i, why.text);
    }
    if (i == 0)
        layout->memory_device = device;
    if (device == layout->memory_device)
        return KVT_OK;
    if (device >= 0 || layout->memory_device >= 0) {
        region_let_go(store, run->region);
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "%sruns[%u].region: other runs lie in memory of another device, or of the host",
            plan->about, i);
    }
    layout->memory_device = MEMORY_PLAIN;
    return KVT_OK;
}

/* Behind the runs that are there, or joined to the last of them. */
static void
run_add(struct kvt_store *store, struct layout *layout, const struct layout_plan *plan, uint32_t i)
{
    const struct kvt_run *source = &plan->runs[i];
    struct layout_run *last = &layout->runs[layout->run_count];
    struct layout_run run = {.address = (uintptr_t)source->address,
        .region = source->region,
        .piece_count = source->piece_count,
        .piece_bytes = source->piece_bytes,
        .piece_stride = source->piece_stride,
        .slot_stride = plan->slot_count == 1 ? 0 : source->slot_stride,
        .offset = layout->block_bytes};

    layout->block_bytes += run.piece_count * run.piece_bytes;
    if (run.piece_stride == run.piece_bytes) {
        run.piece_bytes *= run.piece_count;
        run.piece_count = 1;
    }
    if (layout->run_count > 0 && run.piece_count == 1 && last[-1].piece_count == 1 &&
        last[-1].address + last[-1].piece_bytes == run.address &&
        last[-1].slot_stride == run.slot_stride && last[-1].region.id == run.region.id) {
        last[-1].piece_bytes += run.piece_bytes;
        region_let_go(store, run.region);
        return;
    }
    *last = run;
    layout->run_count++;
}

static enum kvt_status
runs_add(struct kvt_store *store, struct layout *layout, struct layout_plan *plan)
{
    uint64_t bytes = 0, reach = 0;

    for (uint32_t i = 0; i < plan->run_count; i++) {
        KVT_TRY(run_check(plan, i, &reach));
        bytes += plan->runs[i].piece_count * plan->runs[i].piece_bytes;
        plan->piece_count += plan->runs[i].piece_count;
        if (bytes > plan->block_bytes_max || plan->piece_count > KVT_PIECES_MAX)
            return failure_set(KVT_E_INVAL, 0,
                "%sruns: a block has more than %llu bytes (block_bytes_max) or %u pieces",
                plan->about, (unsigned long long)plan->block_bytes_max, KVT_PIECES_MAX);
        KVT_TRY(run_hold(store, layout, plan, i, reach));
        run_add(store, layout, plan, i);
    }
    KVT_TRY(steps_check(layout, plan));
    return pieces_check(store, layout, plan);
}

static enum kvt_status
layout_make(struct kvt_store *store, struct layout_plan *plan, struct layout **layout_out)
{
    struct layout *layout;
    enum kvt_status status;

    if (plan->runs == NULL)
        return failure_set(KVT_E_INVAL, 0, "%sruns is NULL", plan->about);
    if (plan->run_count == 0 || plan->run_count > KVT_RUNS_MAX)
        return failure_set(KVT_E_INVAL, 0, "%srun_count %u is not in 1..%u", plan->about,
            plan->run_count, KVT_RUNS_MAX);
    layout = env_take(&store->env, sizeof(*layout) + plan->run_count * sizeof(layout->runs[0]));
    if (layout == NULL)
        return failure_set(KVT_E_NOMEM, 0, "%sno memory for %u runs", plan->about, plan->run_count);
    plan->block_bytes_max = store->options.block_bytes_max;
    layout->run_capacity = plan->run_count;
    layout->slot_count = plan->slot_count;
    status = runs_add(store, layout, plan);
    if (status == KVT_OK)
        *layout_out = layout;
    else
        layout_free(store, layout);
    return status;
}

/* --- The table -------------------------------------------------------------------------------- */

enum kvt_status
layouts_open(struct kvt_store *store)
{
    struct layout_table *table = env_take(&store->env, sizeof(*table));

    store->layouts = table;
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for layouts");
    pthread_mutex_init(&table->mutex, NULL);
    return KVT_OK;
}

void
layouts_close(struct kvt_store *store)
{
    struct layout_table *table = store->layouts;

    if (table == NULL)
        return;
    for (uint32_t i = 0; i < PLACE_COUNT; i++) {
        if (table->places[i].layout != NULL)
            layout_free(store, table->places[i].layout);
    }
    pthread_mutex_destroy(&table->mutex);
    env_put(&store->env, table, sizeof(*table));
    store->layouts = NULL;
}

static struct layout_place *
place_at(struct kvt_store *store, kvt_layout id)
{
    uint32_t index = id.id & ((1u << INDEX_BITS) - 1);

    return index == 0 ? NULL : &store->layouts->places[index - 1];
}

static bool
place_is_current(struct layout_place *place, kvt_layout id)
{
    uint32_t generation = use_word_generation(&place->use);

    return (generation & 1) != 0 && (generation & GENERATION_MASK) == id.id >> INDEX_BITS;
}

/* Of a table that is locked. False: no place is free. */
static bool
table_add(struct layout_table *table, struct layout *layout, kvt_layout *layout_out)
{
    for (uint32_t i = 0; i < PLACE_COUNT; i++) {
        uint32_t index = (table->next + i) % PLACE_COUNT;
        struct layout_place *place = &table->places[index];

        if (place->layout != NULL)
            continue;
        table->next = index + 1;
        layout->place = place;
        place->layout = layout;
        layout_out->id = use_word_open(&place->use) << INDEX_BITS | (index + 1);
        return true;
    }
    return false;
}

enum kvt_status
kvt_layout_register(
    kvt_store *store, const struct kvt_layout_options *options, kvt_layout *layout_out)
{
    struct layout_plan plan = {.about = ""};
    struct layout *layout;
    bool is_added;

    if (layout_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "layout_out is NULL");
    layout_out->id = 0;
    if (options == NULL)
        return failure_set(KVT_E_INVAL, 0, "options is NULL");
    KVT_TRY(store_enter(store));
    if (options->struct_size != sizeof(*options))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_layout_options has %zu",
            options->struct_size, sizeof(*options));
    if (options->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "reserved0 is not zero");
    if (options->slot_count == 0)
        return failure_set(KVT_E_INVAL, 0, "slot_count is 0");
    plan.runs = options->runs;
    plan.run_count = options->run_count;
    plan.slot_count = options->slot_count;
    KVT_TRY(layout_make(store, &plan, &layout));
    pthread_mutex_lock(&store->layouts->mutex);
    is_added = table_add(store->layouts, layout, layout_out);
    pthread_mutex_unlock(&store->layouts->mutex);
    if (is_added)
        return KVT_OK;
    layout_free(store, layout);
    return failure_set(KVT_E_NOSPC, 0, "%d layouts are registered", PLACE_COUNT);
}

enum kvt_status
kvt_layout_unregister(kvt_store *store, kvt_layout id)
{
    struct layout *layout = NULL;
    struct layout_place *place;
    enum kvt_status status = KVT_OK;

    if (id.id == 0)
        return KVT_OK;
    KVT_TRY(store_enter(store));
    place = place_at(store, id);
    pthread_mutex_lock(&store->layouts->mutex);
    if (place == NULL || !place_is_current(place, id)) {
        status = failure_set(KVT_E_INVAL, 0, "the layout is stale, or none");
    } else if (use_word_close(&place->use)) {
        layout = place->layout;
        place->layout = NULL;
    } else {
        status = failure_set(KVT_E_STATE, 0, "operations that use the layout are under way");
    }
    pthread_mutex_unlock(&store->layouts->mutex);
    if (layout != NULL)
        layout_free(store, layout);
    return status;
}

/* --- Uses ------------------------------------------------------------------------------------- */

/* The layout of the table, counted as used. */
static enum kvt_status
place_use(struct kvt_store *store, const struct layout_name *name, struct layout **layout_out)
{
    struct layout_place *place = place_at(store, name->layout);

    if (place == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "block %u: layout %u is none", name->index, name->layout.id);
    if (!use_word_take(&place->use, name->layout.id >> INDEX_BITS, GENERATION_MASK))
        return failure_set(
            KVT_E_INVAL, 0, "block %u: layout %u is stale", name->index, name->layout.id);
    *layout_out = place->layout;
    return KVT_OK;
}

enum kvt_status
layout_use(struct kvt_store *store, struct op *op, const struct layout_name *name)
{
    if (name->layout.id != 0 && (name->runs != NULL || name->run_count != 0))
        return failure_set(KVT_E_INVAL, 0,
            "block %u: runs or run_count %u beside a layout: one of the two", name->index,
            name->run_count);
    if (name->layout.id == 0) {
        struct layout_plan plan = {
            .runs = name->runs, .run_count = name->run_count, .slot_count = 1};

        if (name->slot != 0)
            return failure_set(
                KVT_E_INVAL, 0, "block %u: slot %u without a layout", name->index, name->slot);
        snprintf(plan.about, sizeof(plan.about), "block %u: ", name->index);
        KVT_TRY(layout_make(store, &plan, &op->layout));
        op->layout->owner_count = 1;
    } else {
        KVT_TRY(place_use(store, name, &op->layout));
    }
    if (name->slot >= op->layout->slot_count)
        return failure_set(KVT_E_INVAL, 0, "block %u: slot %u of a layout with %u", name->index,
            name->slot, op->layout->slot_count);
    op->layout_slot = name->slot;
    op->memory_device = (int8_t)op->layout->memory_device;
    return KVT_OK;
}

void
layout_share(struct op *op, const struct op *other)
{
    op->layout = other->layout;
    op->layout_slot = other->layout_slot;
    op->memory_device = other->memory_device;
    op->length = other->length;
    if (op->layout->place != NULL)
        use_word_share(&op->layout->place->use);
    else
        op->layout->owner_count++;
}

void
layout_unuse(struct kvt_store *store, struct op *op)
{
    struct layout *layout = op->layout;

    op->layout = NULL;
    if (layout->place != NULL)
        use_word_put(&layout->place->use);
    else if (--layout->owner_count == 0)
        layout_free(store, layout);
}
