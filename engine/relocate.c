/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relocate.c - one group of blocks on its way from a victim to where puts go. See relocate.h.
 */
#include "relocate.h"

#include "batch_header.h"
#include "image.h"
#include "store_internal.h"

enum relocate_state {
    RELOCATE_IDLE,
    RELOCATE_LOADING,
    RELOCATE_PROVING,
    RELOCATE_PUTTING,
    RELOCATE_COMMITTING,
};

/* A block of the group; the group has a pin of its entry. */
struct move {
    struct resident resident;
    uint8_t *own_memory; /* Where in ours it is read to. */
    void *memory;        /* That, or HOST's copy. */
    bool is_loaded;      /* From NVMe, to our own memory. */
    bool is_host_wrong;  /* HOST's copy was proved, and is not the block. */
    struct image_shape shape;
    bool is_right;
    enum kvt_status status; /* Of the read. */
};

struct relocate {
    enum relocate_state state;
    enum kvt_status status;
    uint8_t *memory;
    size_t memory_size;
    struct move moves[COMMIT_BLOCKS_MAX];
    uint32_t count;
    struct batch_owner load_owner, put_owner;
    struct tier_batch load, put;
    struct tier_block load_blocks[COMMIT_BLOCKS_MAX], put_blocks[COMMIT_BLOCKS_MAX];
    struct tier_kill kills[COMMIT_KILLS_MAX];
    uint32_t last_of;       /* nvme_put_reserved() */
    uint8_t turn;           /* patience.h: not IDLE. */
    struct op_list waiters; /* PUTTING: puts that replace one of its blocks. */
    struct job proof;
    struct commit_job job;
    struct index_work work;
    struct index_batch index_batch;
};

enum kvt_status
relocate_open(struct kvt_store *store)
{
    struct relocate *relocate = env_take(&store->env, sizeof(*relocate));

    store->relocate = relocate;
    if (relocate == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for relocating");
    if (store->nvme == NULL)
        return KVT_OK;
    relocate->memory_size = commit_batch_bytes_max(store);
    if (relocate->memory_size <
        round_up(store->file.block_bytes_max + IMAGE_TRAILER_BYTES_MAX, PAGE_BYTES))
        relocate->memory_size =
            round_up(store->file.block_bytes_max + IMAGE_TRAILER_BYTES_MAX, PAGE_BYTES);
    relocate->memory = env_map(&store->env, relocate->memory_size);
    if (relocate->memory == NULL)
        return failure_set(
            KVT_E_NOMEM, 0, "no memory of %zu bytes for relocating", relocate->memory_size);
    return KVT_OK;
}

void
relocate_close(struct kvt_store *store)
{
    struct relocate *relocate = store->relocate;

    if (relocate == NULL)
        return;
    if (relocate->memory != NULL)
        env_unmap(&store->env, relocate->memory, relocate->memory_size);
    env_put(&store->env, relocate, sizeof(*relocate));
    store->relocate = NULL;
}

bool
relocate_is_idle(const struct kvt_store *store)
{
    return store->relocate == NULL || store->relocate->state == RELOCATE_IDLE;
}

bool
relocate_is_writing(const struct kvt_store *store, uint32_t segment)
{
    return store->relocate != NULL && store->relocate->state == RELOCATE_PUTTING &&
           store->relocate->put.header.segment == segment;
}

enum kvt_status
relocate_status_take(struct kvt_store *store)
{
    enum kvt_status status = store->relocate->status;

    store->relocate->status = KVT_OK;
    return status;
}

bool
resident_is_there(struct kvt_store *store, const struct resident *resident)
{
    const struct entry *entry = residency_at(store->map, resident->number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    return word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_NVME) != 0 &&
           entry->segment == resident->extent.segment && entry->page == resident->extent.page &&
           entry->extent_generation == resident->extent.generation;
}

bool
relocate_wait(struct kvt_store *store, struct op *op)
{
    struct relocate *relocate = store->relocate;

    if (relocate == NULL || relocate->state != RELOCATE_PUTTING)
        return false;
    for (uint32_t i = 0; i < relocate->count; i++) {
        if (hash128_equal(residency_at(store->map, relocate->moves[i].resident.number)->fingerprint,
                op->fingerprint)) {
            op_list_add(&relocate->waiters, op);
            return true;
        }
    }
    return false;
}

/* It is known where the blocks stand: puts that waited for that start again. */
static void
waiters_restart(struct kvt_store *store)
{
    struct op_list waiters = store->relocate->waiters;
    struct op *op;

    store->relocate->waiters = (struct op_list){NULL, NULL};
    while ((op = op_list_take(&waiters)) != NULL)
        op_begin(store, op);
}

/* --- The end of a group ----------------------------------------------------------------------- */

static bool
has_wrong_copy(struct kvt_store *store, const struct move *move)
{
    const struct entry *entry = residency_at(store->map, move->resident.number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    unsigned both = TIER_HOST | TIER_NVME;

    return move->is_host_wrong && word_state(word) == ENTRY_RESIDENT &&
           (word_tiers(word) & both) == both;
}

static void
move_forget(struct kvt_store *store, const struct move *move)
{
    bool is_wrong = has_wrong_copy(store, move);

    entry_unpin(store, move->resident.number);
    if (is_wrong)
        (void)entry_host_condemn(store, move->resident.number);
}

static void
group_end(struct kvt_store *store, enum kvt_status status)
{
    struct relocate *relocate = store->relocate;

    for (uint32_t i = 0; i < relocate->count; i++)
        move_forget(store, &relocate->moves[i]);
    relocate->count = 0;
    turns_end(&store->work, relocate->turn);
    store->room_changed = true; /* Who waits for that is looked at, also if it was kills alone. */
    relocate->status = status_keep(relocate->status, status);
    relocate->state = RELOCATE_IDLE;
}

static void
group_committed(struct kvt_store *store, struct commit_job *job)
{
    KVT_ASSERT(store->relocate->state == RELOCATE_COMMITTING);
    group_end(store, job->status);
    if (job->status != KVT_OK)
        commit_failed(store);
}

static enum kvt_status
group_run(struct kvt_store *store, struct commit_job *job)
{
    struct relocate *relocate = CONTAINER_OF(job, struct relocate, job);

    return index_commit_job(store, &relocate->index_batch);
}

/* --- Written ---------------------------------------------------------------------------------- */

/* The copy that was written counts: the entry has it from now on. */
static void
block_move(struct kvt_store *store, const struct move *move, const struct block_record *record)
{
    struct relocate *relocate = store->relocate;
    uint32_t number = move->resident.number;

    index_work_delete(store, &relocate->work, &move->resident.extent,
        entries_at(store->entries, number)->record_crc);
    entry_place_forget(store, number);
    entry_place(store, number, record, index_work_add(store, &relocate->work, record));
    COUNT(store, nvme_relocate_count, 1);
    COUNT(store, nvme_relocate_bytes, record->stored_length);
}

/* The block is gone, or has no copy where it was: with the batch its new copy counts as committed,
 * and no kill of another copy reaches it. The index has it until its own is durable (group_take(),
 * commit_group.c). */
static void
copy_bury(struct kvt_store *store, const struct move *move, const struct block_record *record)
{
    const struct entry *entry = residency_at(store->map, move->resident.number);
    struct commit_kill kill = {.extent = record->extent,
        .fingerprint = entry->fingerprint,
        .sequence = record->sequence,
        .is_indexed = true};

    kill.record_crc = index_work_add(store, &store->relocate->work, record);
    extent_forget(store, &record->extent, record->stored_length);
    commit_bury(store, &kill);
}

/* The blocks stay where they are. */
static void
group_failed(struct kvt_store *store, enum kvt_status status)
{
    struct relocate *relocate = store->relocate;

    COUNT(store, batch_failed_count, 1);
    commit_void(store, &relocate->put);
    group_end(store, status);
    waiters_restart(store);
}

static void
group_written(struct kvt_store *store, struct tier_batch *put)
{
    struct relocate *relocate = store->relocate;

    KVT_ASSERT(relocate->state == RELOCATE_PUTTING);
    if (put->status != KVT_OK) {
        group_failed(store, put->status);
        return;
    }
    index_work_reset(&relocate->work);
    commit_touch(store, &relocate->work, put);
    for (uint32_t i = 0; i < relocate->count; i++) {
        const struct move *move = &relocate->moves[i];
        const struct block_record *record = &relocate->put_blocks[i].record;

        if (resident_is_there(store, &move->resident))
            block_move(store, move, record);
        else
            copy_bury(store, move, record);
    }
    index_work_seal(store, &relocate->work, &relocate->index_batch);
    relocate->job.run = group_run;
    relocate->job.finish = group_committed;
    relocate->state = RELOCATE_COMMITTING;
    committer_submit(store->committer, &relocate->job);
    waiters_restart(store);
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* The batch of what is left of the group, with `kill_count` kills in place, and void entries. */
static void
group_put(struct kvt_store *store, uint32_t kill_count)
{
    struct relocate *relocate = store->relocate;
    enum kvt_status status;

    kill_count += commit_voids(store, relocate->kills + kill_count, COMMIT_KILLS_MAX - kill_count);
    relocate->put_owner.finish = group_written;
    relocate->put = (struct tier_batch){.blocks = relocate->put_blocks,
        .block_count = relocate->count,
        .kills = relocate->kills,
        .kill_count = kill_count,
        .sequence = commit_batch_number(store),
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &relocate->put_owner};
    status = nvme_put_reserved(store->nvme, &relocate->put, relocate->last_of);
    if (status != KVT_OK)
        group_end(store, status);
    else
        relocate->state = RELOCATE_PUTTING;
}

static void
blocks_put(struct kvt_store *store)
{
    struct relocate *relocate = store->relocate;

    if (relocate->count == 0) {
        group_end(store, KVT_OK);
        return;
    }
    for (uint32_t i = 0; i < relocate->count; i++) {
        const struct move *move = &relocate->moves[i];
        const struct entry *entry = residency_at(store->map, move->resident.number);
        struct tier_block *block = &relocate->put_blocks[i];

        relocate->kills[i] = (struct tier_kill){.extent = move->resident.extent,
            .fingerprint = entry->fingerprint,
            .sequence = entry->sequence};
        memset(block, 0, sizeof(*block));
        entry_record(store, move->resident.number, &block->record);
        block->record.sequence = sequence_next(store);
        block->memory = move->memory;
    }
    group_put(store, relocate->count);
}

/* --- Proving ---------------------------------------------------------------------------------- */

static void blocks_load(struct kvt_store *store);

static void
proof_run(struct crew_job *crew_job)
{
    struct job *job = CONTAINER_OF(crew_job, struct job, crew);
    struct relocate *relocate = CONTAINER_OF(job, struct relocate, proof);

    for (uint32_t i = 0; i < relocate->count; i++) {
        struct move *move = &relocate->moves[i];

        if (!move->is_right && move->status == KVT_OK)
            move->is_right = image_is_right(&move->shape, move->memory);
    }
}

/* The error may pass: the block stays until it cannot be read a second time (reclaim.h). That there
 * was no memory for a read says nothing of the block, however often it is so. */
static bool
move_is_put_off(struct kvt_store *store, const struct move *move)
{
    if (move->status == KVT_E_NOMEM)
        return true;
    return move->status != KVT_OK &&
           !segment_at(store->segments, move->resident.extent.segment)->was_unreadable;
}

static void
move_put_off(struct kvt_store *store, const struct move *move)
{
    struct relocate *relocate = store->relocate;

    entry_unpin(store, move->resident.number);
    if (move->status == KVT_E_NOMEM) {
        relocate->status = status_keep(relocate->status, KVT_E_NOMEM);
        return;
    }
    COUNT(store, read_failed_count, 1);
    relocate->status = KVT_NOT_READY;
}

/* The copy that was read is bad. A block that is nowhere else, or no better in HOST, leaves the
 * store; of another only this copy goes, or, while somebody has it pinned, nothing: then the victim
 * cannot be emptied now. */
static void
move_fail(struct kvt_store *store, const struct move *move)
{
    uint32_t number = move->resident.number;

    if (move->status == KVT_OK)
        entry_corrupt_note(store, number, TIER_NVME, &move->resident.extent);
    else
        COUNT(store, read_failed_count, 1);
    if (entry_tiers(store, number) == TIER_NVME || has_wrong_copy(store, move)) {
        (void)entry_erase(store, number, NULL);
        entry_unpin(store, number);
        return;
    }
    entry_unpin(store, number);
    if (!entry_nvme_condemn(store, number))
        store->relocate->status = KVT_E_BUSY;
}

/* Somebody has written over HOST's copy: it goes, unless others read the block now; then that is
 * tried once more when the group ends. The one on NVMe may be whole: that is read. */
static void
host_copy_fail(struct kvt_store *store, struct move *move)
{
    uint32_t number = move->resident.number;

    entry_corrupt_note(store, number, TIER_HOST, NULL);
    entry_unpin(store, number); /* The move's own pin is not to be in the way. */
    (void)entry_host_condemn(store, number);
    residency_pin(store->map, number);
    move->memory = move->own_memory;
    move->is_loaded = true;
    move->is_host_wrong = true;
}

/* True: some of HOST's copies are wrong. */
static bool
host_copies_fail(struct kvt_store *store)
{
    struct relocate *relocate = store->relocate;
    bool are_wrong = false;

    for (uint32_t i = 0; i < relocate->count; i++) {
        struct move *move = &relocate->moves[i];

        if (move->is_loaded || move->is_right || !resident_is_there(store, &move->resident))
            continue;
        host_copy_fail(store, move);
        are_wrong = true;
    }
    return are_wrong;
}

/* Keep what may be written again. */
static void
blocks_proved(struct kvt_store *store, struct job *job)
{
    struct relocate *relocate = store->relocate;
    uint32_t kept_count = 0;

    (void)job;
    KVT_ASSERT(relocate->state == RELOCATE_PROVING);
    if (host_copies_fail(store)) {
        blocks_load(store);
        return;
    }
    for (uint32_t i = 0; i < relocate->count; i++) {
        const struct move *move = &relocate->moves[i];

        if (!resident_is_there(store, &move->resident))
            entry_unpin(store, move->resident.number);
        else if (move->is_right)
            relocate->moves[kept_count++] = *move;
        else if (move_is_put_off(store, move))
            move_put_off(store, move);
        else
            move_fail(store, move);
    }
    relocate->count = kept_count;
    /* Then the victim will not be empty behind this group. */
    if (relocate->status != KVT_OK)
        relocate->last_of = NVME_ROOT_NONE;
    blocks_put(store);
}

static void
group_prove(struct kvt_store *store)
{
    struct relocate *relocate = store->relocate;

    relocate->proof.crew.run = proof_run;
    relocate->proof.finish = blocks_proved;
    relocate->proof.store = store;
    relocate->state = RELOCATE_PROVING;
    loop_job(store, &relocate->proof);
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* Behind a copy in HOST that is wrong: what the group has right is not read again. */
static bool
move_is_read(const struct move *move)
{
    return move->is_loaded && !move->is_right;
}

static void
blocks_loaded(struct kvt_store *store, struct tier_batch *batch)
{
    struct relocate *relocate = store->relocate;
    uint32_t next = 0;

    KVT_ASSERT(relocate->state == RELOCATE_LOADING);
    for (uint32_t i = 0; i < relocate->count; i++) {
        if (move_is_read(&relocate->moves[i]))
            relocate->moves[i].status = batch->blocks[next++].status;
    }
    group_prove(store);
}

static void
blocks_load(struct kvt_store *store)
{
    struct relocate *relocate = store->relocate;
    struct tier *tier = nvme_as_tier(store->nvme);
    uint32_t load_count = 0;
    enum kvt_status status;

    for (uint32_t i = 0; i < relocate->count; i++) {
        const struct move *move = &relocate->moves[i];
        struct tier_block *block = &relocate->load_blocks[load_count];

        if (!move_is_read(move))
            continue;
        memset(block, 0, sizeof(*block));
        block->record.extent = move->resident.extent;
        block->record.stored_length = move->shape.stored_length;
        block->memory = move->memory;
        load_count++;
    }
    if (load_count == 0) {
        group_prove(store);
        return;
    }
    relocate->load_owner.finish = blocks_loaded;
    relocate->load = (struct tier_batch){.blocks = relocate->load_blocks,
        .block_count = load_count,
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &relocate->load_owner};
    relocate->state = RELOCATE_LOADING;
    status = tier->ops->get(tier, &relocate->load);
    if (status != KVT_OK)
        group_end(store, status);
}

/* --- Starting --------------------------------------------------------------------------------- */

/* Take the block into the group. `offset`: where in our memory it is read to. */
static void
move_add(struct kvt_store *store, const struct resident *resident, uint64_t offset)
{
    struct relocate *relocate = store->relocate;
    const struct entry *entry = residency_at(store->map, resident->number);
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));
    struct move *move = &relocate->moves[relocate->count++];

    *move = (struct move){.resident = *resident,
        .own_memory = relocate->memory + offset,
        .shape = {.length = entry->length,
            .stored_length = entry->stored_length,
            .part_count = entry_parts(entry),
            .has_trailer = entry->has_trailer != 0,
            .checksum = entry->checksum},
        .status = KVT_OK};
    residency_pin(store->map, resident->number);
    /* HOST has the bytes of a block, never a trailer or an encoded part: those are moved as they
     * are. */
    move->is_loaded = (tiers & TIER_HOST) == 0 || entry->has_trailer;
    move->memory = move->is_loaded ? move->own_memory : entry_host_address(store, entry);
}

/* Whether `count` blocks of so many bytes are a batch, and no more than fill `tail_pages` (0: it
 * goes to another segment). A kill goes with each, and void entries with all (group_put()). */
static bool
group_fits(struct kvt_store *store, uint32_t count, uint64_t bytes, uint32_t tail_pages)
{
    uint32_t kills;

    if (bytes > commit_batch_bytes_max(store))
        return false;
    if (tail_pages == 0)
        return true;
    kills = count + commit_voids(store, NULL, COMMIT_KILLS_MAX - count);
    return bytes / PAGE_BYTES + batch_header_pages(count, kills) <= tail_pages;
}

uint32_t
relocate_start(
    struct kvt_store *store, const struct resident *residents, uint32_t count, uint32_t last_of)
{
    struct relocate *relocate = store->relocate;
    uint32_t tail_pages = nvme_tail_pages(store->nvme);
    uint64_t bytes = 0;
    uint32_t i;

    KVT_ASSERT(relocate->state == RELOCATE_IDLE);
    for (i = 0; i < count && relocate->count < COMMIT_BLOCKS_MAX; i++) {
        uint64_t size;

        if (!resident_is_there(store, &residents[i]))
            continue;
        size = (uint64_t)pages_of(residency_at(store->map, residents[i].number)->stored_length) *
               PAGE_BYTES;
        if (relocate->count == 0 && !group_fits(store, 1, size, tail_pages))
            tail_pages = 0; /* Not even one goes there. */
        else if (relocate->count > 0 &&
                 !group_fits(store, relocate->count + 1, bytes + size, tail_pages))
            break;
        move_add(store, &residents[i], bytes);
        bytes += size;
    }
    relocate->last_of = i == count ? last_of : NVME_ROOT_NONE;
    if (relocate->count > 0) {
        relocate->turn = turns_begin(&store->work);
        blocks_load(store);
    }
    return i;
}

void
relocate_kills(
    struct kvt_store *store, const struct tier_kill *kills, uint32_t kill_count, uint32_t last_of)
{
    struct relocate *relocate = store->relocate;

    KVT_ASSERT(relocate->state == RELOCATE_IDLE && kill_count <= COMMIT_KILLS_MAX);
    memcpy(relocate->kills, kills, kill_count * sizeof(*kills));
    relocate->last_of = last_of;
    relocate->turn = turns_begin(&store->work);
    group_put(store, kill_count);
}
