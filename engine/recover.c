/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.c - from the files of a store to the map in memory.
 *
 * Owns      the order of recovery: NAMES, look at the index, decide (recover_table.c), rebuild if
 *           need be, load segments and records, link children to parents, deal with what a crash
 *           left (strays.h).
 * Threads   the thread that opens, before the loop is started.
 */
#include "array.h"
#include "recover_table.h"
#include "store_dir.h"
#include "store_internal.h"
#include "strays.h"

struct child {
    uint32_t entry, generation; /* Its number is another block's when a newer record came. */
    uint32_t below; /* While it waits for the link of its parent: 1 + the child to link then. */
    struct hash128 parent;
};

/* A record of a key that has a newer one: its delete was to follow when the last life was cut. */
struct stale {
    struct extent extent;
    uint32_t record_crc;
    struct hash128 fingerprint;
    uint64_t sequence;
};

struct load {
    struct kvt_store *store;
    enum kvt_status status;
    bool is_unclean;
    uint64_t batch_number_max;
    uint32_t segment;  /* Of the record before this one. */
    uint32_t page_end; /* Where it ended: no two may overlap. */
    struct child *children;
    uint32_t child_count, child_capacity;
    struct stale *stales;
    uint32_t stale_count, stale_capacity;
};

static bool
segment_visit(void *visitor, const struct index_segment *facts)
{
    struct load *load = visitor;
    struct segment segment = {
        .number = facts->number,
        .generation = facts->generation,
        .state = (enum segment_state)facts->state,
        .record_count = facts->record_count,
        .crc_xor = facts->crc_xor,
        .batch_number = facts->batch_number,
    };

    if (facts->batch_number > load->batch_number_max)
        load->batch_number_max = facts->batch_number;
    /* A data file that lost its end, and cannot have it again, has fewer: their records are dropped
     * below. */
    if (segment_restore(load->store->segments, &segment) && load->is_unclean &&
        facts->state == SEGMENT_ACTIVE) {
        segment_at(load->store->segments, facts->number)->was_active = true;
        /* It stays ACTIVE in the index until it was searched (strays.c): a kill of a stale record
         * may be committed before. */
        segment_at(load->store->segments, facts->number)->void_count = 1;
    }
    return true;
}

/* Whether the record may be served: what it says agrees with everything else that is known. */
static const char *
record_refusal(const struct load *load, const struct block_record *record)
{
    struct segment *segment = segment_at(load->store->segments, record->extent.segment);
    uint64_t end = (uint64_t)record->extent.page + pages_of(record->stored_length);

    if (segment == NULL)
        return "its segment does not exist";
    if (segment->generation != record->extent.generation)
        return "its generation has passed";
    if (segment->state != SEGMENT_SEALED && segment->state != SEGMENT_ACTIVE)
        return "its segment holds no blocks";
    if (end > segment_pages(load->store->segments))
        return "it reaches beyond its segment";
    if (record->extent.segment == load->segment && record->extent.page < load->page_end)
        return "it overlaps the one before it";
    if (record->length > KVT_BLOCK_BYTES_MAX || record->length > load->store->file.block_bytes_max)
        return "it is longer than a block may be";
    return NULL;
}

static uint64_t
word_of(const struct load *load, uint32_t entry)
{
    return atomic_load_explicit(&residency_at(load->store->map, entry)->word, memory_order_relaxed);
}

static enum kvt_status
child_add(struct load *load, uint32_t entry, struct hash128 parent)
{
    if (load->child_count == load->child_capacity) {
        struct child *grown =
            array_grow(&load->store->env, load->children, &load->child_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory to link %u blocks", load->child_count);
        load->children = grown;
    }
    load->children[load->child_count++] = (struct child){
        .entry = entry, .generation = word_generation(word_of(load, entry)), .parent = parent};
    return KVT_OK;
}

static enum kvt_status
stale_add(struct load *load, const struct stale *stale)
{
    if (load->stale_count == load->stale_capacity) {
        struct stale *grown =
            array_grow(&load->store->env, load->stales, &load->stale_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory to note %u records", load->stale_count);
        load->stales = grown;
    }
    load->stales[load->stale_count++] = *stale;
    return KVT_OK;
}

static void
entry_fill(struct kvt_store *store, uint32_t number, const struct block_record *record,
    uint32_t record_crc)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = entries_at(store->entries, number);

    entry->length = record->length;
    entry->parts_less = (record->part_count - 1u) & (RECORD_PARTS_MAX - 1u);
    state->depth = record->depth;
    state->token_start = record->token_start;
    state->token_count = record->token_count;
    state->recompute_us = record->recompute_us;
    state->importance = record->importance;
    state->class_id = record->class_id;
    state->hint = record->hint & 3u;
    entry_place(store, number, record, record_crc);
}

static enum kvt_status
record_load(struct load *load, const struct block_record *record, uint32_t record_crc)
{
    struct kvt_store *store = load->store;
    struct namespace_state *space = namespace_at(store, record->key.namespace_id);
    struct hash128 fingerprint = key_fingerprint(store->fingerprint_seed, &record->key);
    uint32_t number = residency_find(store->map, fingerprint, &record->key);

    if (number != ENTRY_NONE) {
        const struct entry *entry = residency_at(store->map, number);
        const struct stale this = {record->extent, record_crc, fingerprint, record->sequence};
        const struct stale other = {{entry->segment, entry->extent_generation, entry->page},
            entries_at(store->entries, number)->record_crc, fingerprint, entry->sequence};

        if (entry->sequence >= record->sequence)
            return stale_add(load, &this);
        KVT_TRY(stale_add(load, &other));
        (void)entry_drop(store, number, true, KVT_REASON_REPLACED);
    }
    KVT_TRY(residency_insert(store->map, fingerprint, &record->key, &number));
    KVT_TRY(entries_reserve(store->entries, number));
    entry_fill(store, number, record, record_crc);
    residency_publish(store->map, number, TIER_NVME);
    space->block_count++;
    space->block_bytes += record->length;
    segment_at(store->segments, record->extent.segment)->live_bytes +=
        (uint64_t)pages_of(record->stored_length) * PAGE_BYTES;
    COUNT(store, recover_block_count, 1);
    return hash128_is_zero(record->parent) ? KVT_OK : child_add(load, number, record->parent);
}

static bool
block_visit(void *visitor, const struct index_block *block)
{
    struct load *load = visitor;
    struct kvt_store *store = load->store;
    struct namespace_state *space;
    struct block_record record;
    const char *refusal;

    if (block_record_decode(&record, block->segment, block->page, block->bytes, block->size) !=
        KVT_OK) {
        log_line(&store->logger, LOG_WARN, "recover",
            "event=record_dropped segment=%u page=%u reason=\"%s\"", block->segment, block->page,
            failure_last()->text);
        COUNT(store, recover_dropped_count, 1);
        return true;
    }
    space = namespace_at(store, record.key.namespace_id);
    if (space == NULL)
        names_id_note(&store->names, record.key.namespace_id);
    if (space == NULL ||
        atomic_load_explicit(&space->epoch, memory_order_relaxed) != record.namespace_epoch)
        return true; /* Cleared: its record goes with its segment. */
    refusal = record_refusal(load, &record);
    if (refusal != NULL) {
        log_line(&store->logger, LOG_WARN, "recover",
            "event=record_dropped segment=%u page=%u reason=\"%s\"", block->segment, block->page,
            refusal);
        COUNT(store, recover_dropped_count, 1);
        return true;
    }
    load->segment = block->segment;
    load->page_end = block->page + pages_of(record.stored_length);
    load->status = record_load(load, &record, block_record_crc(block->bytes));
    return load->status == KVT_OK;
}

/* Up from a child to the topmost that is still to be linked, then link from there down: no entry
 * has children when its own link is made, but for one that would close a ring (entries_link). */
static void
chain_link(struct load *load, uint32_t *waiting, uint32_t first)
{
    struct kvt_store *store = load->store;
    uint32_t at = first; /* 1 + index, as in waiting[] and `below`. */
    uint32_t parent = ENTRY_NONE;

    while (at != 0) {
        const struct child *child = &load->children[at - 1];
        uint32_t above;

        waiting[child->entry] = 0;
        parent = residency_find_fingerprint(store->map, child->parent);
        above = parent == ENTRY_NONE ? 0 : waiting[parent];
        if (above == 0)
            break;
        load->children[above - 1].below = at;
        at = above;
    }
    while (at != 0) {
        const struct child *child = &load->children[at - 1];

        entries_link(store->entries, child->entry, parent);
        parent = child->entry;
        at = child->below;
    }
}

/* Parents may come after their children in the index, so that links are made at the end. Takes time
 * in proportion to the children, whatever their order. */
static enum kvt_status
children_link(struct load *load)
{
    struct kvt_store *store = load->store;
    size_t size = residency_number_limit(store->map) * sizeof(uint32_t);
    uint32_t *waiting; /* By entry: 1 + index of the child that is to be linked; 0: none. */

    if (load->child_count == 0)
        return KVT_OK;
    waiting = env_take(&store->env, size);
    if (waiting == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to link %u blocks", load->child_count);
    for (uint32_t i = 0; i < load->child_count; i++) {
        const struct child *child = &load->children[i];
        uint64_t word = word_of(load, child->entry);

        if (word_state(word) == ENTRY_RESIDENT && word_generation(word) == child->generation)
            waiting[child->entry] = i + 1;
    }
    for (uint32_t i = 0; i < load->child_count; i++) {
        uint32_t entry = load->children[i].entry;

        if (waiting[entry] == i + 1)
            chain_link(load, waiting, i + 1);
    }
    env_put(&store->env, waiting, size);
    return KVT_OK;
}

/* Take the stale records out of the index, with kills of their copies in the same commit: a delete
 * of the key would find neither later. */
static enum kvt_status
stales_kill(struct load *load)
{
    for (uint32_t i = 0; i < load->stale_count && !load->store->is_read_only; i++) {
        const struct stale *stale = &load->stales[i];
        const struct commit_kill kill = {.extent = stale->extent,
            .fingerprint = stale->fingerprint,
            .sequence = stale->sequence,
            .is_indexed = true,
            .record_crc = stale->record_crc};

        KVT_TRY(commit_kill(load->store, &kill));
    }
    return KVT_OK;
}

static enum kvt_status
index_load(struct kvt_store *store, bool is_unclean)
{
    struct load load = {.store = store, .is_unclean = is_unclean, .segment = SEGMENT_NONE};
    enum kvt_status status;

    KVT_TRY(store->index->ops->each_segment(store->index, segment_visit, &load));
    KVT_TRY(store_epoch_pass(store, load.batch_number_max));
    status = store->index->ops->each_block(store->index, block_visit, &load);
    if (status == KVT_OK)
        status = load.status;
    if (status == KVT_OK)
        status = children_link(&load);
    if (status == KVT_OK)
        status = stales_kill(&load);
    env_put(&store->env, load.stales, load.stale_capacity * sizeof(*load.stales));
    env_put(&store->env, load.children, load.child_capacity * sizeof(*load.children));
    return status;
}

static enum kvt_status
names_recover(struct kvt_store *store, bool is_new, enum recover_names *names_out)
{
    enum kvt_status status;

    *names_out = RECOVER_NAMES_VALID;
    if (is_new)
        return KVT_OK; /* Written by whoever made the store. */
    status = names_read(&store->names, store->dir);
    if (status == KVT_MISS)
        *names_out = RECOVER_NAMES_ABSENT;
    else if (status == KVT_E_CORRUPT)
        *names_out = RECOVER_NAMES_DAMAGED;
    else
        return status;
    return KVT_OK;
}

enum kvt_status
recover_meta_open(struct kvt_store *store)
{
    unsigned flags = store->is_read_only ? 0 : FS_CREATE;
    enum kvt_status status =
        store->env.fs->dir_open_at(store->dir, "meta", flags, &store->meta_dir);

    if (status != KVT_MISS)
        return status;
    log_line(&store->logger, LOG_WARN, "recover", "event=index_damaged text=\"meta is missing\"");
    return failure_set(
        KVT_E_CORRUPT, 0, "%s/meta is missing: only an open for writing rebuilds it", store->path);
}

/*
 * What the index looks like. One that the disk cannot read is damaged for who wants it rebuilt in
 * any case; for everybody else the error may pass, and a rebuild would bring evicted blocks back.
 * One for which no descriptor was left may be a good one.
 */
static enum kvt_status
index_inspect(struct kvt_store *store, struct recover_facts *facts)
{
    enum kvt_status status = store->world.index_ops->inspect(
        store->world.index_context, &store->env, store->meta_dir, &facts->index);

    if (status != KVT_E_IO || failure_lacks_descriptor() || !facts->is_rebuild_wanted ||
        facts->is_read_only)
        return status;
    facts->index = INDEX_DAMAGED;
    return KVT_OK;
}

/* An index without what such a page says would give up what may be whole, and have it overwritten:
 * only who asks for that gets one. */
enum kvt_status
recover_pass_over(struct kvt_store *store, uint32_t segment, uint32_t page)
{
    if ((store->options.flags & KVT_OPEN_REBUILD) == 0)
        return failure_set(KVT_E_IO, 0,
            "segment 0x%x: page %u cannot be read, and may be a header that the index is to be "
            "rebuilt from: the error may pass, try again; a rebuild that is asked for goes on "
            "without it, and gives up what it cannot read",
            segment, page);
    COUNT(store, recover_unread_count, 1);
    log_line(&store->logger, LOG_WARN, "rebuild",
        "event=header_unreadable segment=%u page=%u text=\"blocks and kills that headers there "
        "have are not found, or not proved\"",
        segment, page);
    return KVT_OK;
}

enum kvt_status
recover_look(struct kvt_store *store, bool is_new, struct recover_facts *facts_out)
{
    const struct recover_row *row;

    facts_out->is_rebuild_wanted = (store->options.flags & KVT_OPEN_REBUILD) != 0;
    facts_out->is_read_only = store->is_read_only;
    KVT_TRY(names_recover(store, is_new, &facts_out->names));
    KVT_TRY(index_inspect(store, facts_out));
    if (facts_out->index == INDEX_ABSENT && !is_new)
        log_line(&store->logger, LOG_WARN, "recover",
            "event=index_damaged text=\"meta/data.mdb is missing\"");
    if (facts_out->index == INDEX_DAMAGED)
        log_line(&store->logger, LOG_WARN, "recover", "event=index_damaged text=\"%s\"",
            failure_last()->text);
    row = recover_decide(facts_out);
    return row->action == RECOVER_REFUSE
               ? failure_set(KVT_E_CORRUPT, 0, "%s: %s", store->path, row->reason)
               : KVT_OK;
}

enum kvt_status
recover_store(struct kvt_store *store, bool is_new, const struct recover_facts *facts)
{
    const struct index_ops *ops = store->world.index_ops;
    const struct recover_row *row = recover_decide(facts);
    bool is_unclean = facts->index == INDEX_UNCLEAN && row->action == RECOVER_LOAD;
    bool is_rebuilt = row->action == RECOVER_REBUILD && !is_new;

    /* Both copies, so that no later open comes to other names, whichever it can read. */
    if (!is_new && !store->is_read_only)
        KVT_TRY(names_write(&store->names, store->dir));
    KVT_TRY(namespaces_open(store));
    if (row->action == RECOVER_REBUILD)
        KVT_TRY(rebuild_index(store));
    else
        KVT_TRY(ops->open(store->world.index_context, &store->env, store->meta_dir,
            store->is_read_only, &store->index));
    if (is_rebuilt)
        COUNT(store, recover_rebuilt_count, 1);
    KVT_TRY(index_load(store, is_unclean && !store->is_read_only));
    if (store->is_read_only)
        return KVT_OK;
    /* Behind a rebuild the new index is in its place, and not finished: no life that would not look
     * at the segments again comes to know of older generations than these headers are of. */
    if (is_unclean || is_rebuilt)
        KVT_TRY(strays_recycle(store, is_rebuilt));
    /* Kills that a rebuild owes, which index_load() has none of: index_finish() does it then. */
    store->is_unfinished =
        row->action == RECOVER_REBUILD && !commit_kills_have_passed(store, commit_kill_mark(store));
    if (store->is_unfinished)
        return KVT_OK;
    return store->index->ops->mark(store->index, false);
}
