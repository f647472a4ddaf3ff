/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_load_reader.c - the actor that reads parts of files into stages and has them copied.
 *
 * How       As long as a stage is free and a load has something left, the next part is read into
 *           it: of the load that came first, in the order of its chunks, so that the first chunk is
 *           there first. What has arrived goes to the device's mover from the stage; the stage is
 *           free again when the mover has seen the copy's event reached. So the disk reads the next
 *           parts while the device copies, and the order of copies is the order of arrivals.
 * Threads   the actor, but where noted; all of it under the set's lock, but for what is logged.
 */
#include <errno.h>

#include "file_load.h"

struct load_reader {
    struct kvt_env env;
    struct kvt_store *store;
    struct load_set *set;
    struct lane *lane;
    struct task *task;
    struct inbox read;   /* The lane pushes. */
    struct inbox copied; /* Movers push. */
    _Atomic uint32_t is_stopping;
    _Atomic uint32_t is_idle; /* ... and nothing is in flight any more. */
};

/* --- 1. Chunks -------------------------------------------------------------------------------- */

void
load_chunk_check(const struct load_chunk *chunk)
{
    KVT_ASSERT(chunk->asked <= chunk->part_count && chunk->in_flight <= chunk->asked);
    switch (chunk->state) {
    case LOAD_WAITING:
        KVT_ASSERT(chunk->place == LOAD_PLACE_NONE && chunk->asked == 0);
        break;
    case LOAD_UNDER_WAY:
        KVT_ASSERT(chunk->place != LOAD_PLACE_NONE);
        KVT_ASSERT(chunk->in_flight > 0 || chunk->asked < chunk->part_count);
        break;
    case LOAD_SETTLED:
        KVT_ASSERT(chunk->in_flight == 0 && chunk->asked == chunk->part_count);
        KVT_ASSERT(chunk->status != KVT_OK || chunk->place != LOAD_PLACE_NONE);
        break;
    case LOAD_RELEASED:
        KVT_ASSERT(chunk->in_flight == 0 && chunk->place == LOAD_PLACE_NONE);
        break;
    }
}

uint64_t
load_chunk_offset(const struct load *load, uint32_t number)
{
    return load->offset + number * load->chunk_bytes;
}

uint64_t
load_chunk_size(const struct load *load, uint32_t number)
{
    uint64_t left = load->length - number * load->chunk_bytes;

    return left < load->chunk_bytes ? left : load->chunk_bytes;
}

uint8_t *
load_chunk_address(const struct load *load, const struct load_chunk *chunk)
{
    return load->memory + chunk->place * load->chunk_bytes;
}

/* Whether it was the last thing of it. */
static bool
chunk_settle(struct load *load, struct load_chunk *chunk)
{
    if (chunk->in_flight > 0 || chunk->asked < chunk->part_count)
        return false;
    chunk->state = LOAD_SETTLED;
    load->settled_count++;
    if (chunk->status != KVT_OK && chunk->status != KVT_CANCELLED)
        COUNT(load->store, load_lost_count, 1);
    load_chunk_check(chunk);
    return true;
}

bool
load_give_up(struct load *load)
{
    bool is_news = false;

    load->is_given_up = true;
    for (; load->chunk_at < load->chunk_count; load->chunk_at++) {
        struct load_chunk *chunk = &load->chunks[load->chunk_at];

        if (chunk->asked == chunk->part_count)
            continue;
        chunk->status = KVT_CANCELLED;
        chunk->asked = chunk->part_count;
        is_news = chunk_settle(load, chunk) || is_news;
    }
    return is_news;
}

/* A place for the chunk; false: none is free. */
static bool
chunk_begin(struct load *load, struct load_chunk *chunk)
{
    if (load->place_free == 0)
        return false;
    chunk->place = load->places[load->place_first];
    load->place_first = (load->place_first + 1) % load->place_count;
    load->place_free--;
    chunk->state = LOAD_UNDER_WAY;
    load_chunk_check(chunk);
    return true;
}

/* --- 2. Parts --------------------------------------------------------------------------------- */

/* The stage is free. True: a chunk was settled, or its load has nothing in flight any more. */
static bool
part_end(struct load_reader *reader, struct load_part *part, enum kvt_status status)
{
    struct load *load = part->load;
    struct load_chunk *chunk = part->chunk;

    if (status == KVT_OK) {
        COUNT(reader->store, load_bytes, part->device_piece.size);
    } else if (chunk->status == KVT_OK) {
        chunk->status = status;
        chunk->asked = chunk->part_count; /* The others would bring nothing. */
    }
    chunk->in_flight--;
    load->in_flight--;
    part->next_free = reader->set->free;
    reader->set->free = part;
    return chunk_settle(load, chunk) || load->in_flight == 0;
}

/* A file system may promise direct access and refuse it. */
static bool
part_is_refused(const struct load_part *part)
{
    return part->transfer.error == EINVAL && part->transfer.file == part->load->direct;
}

/* Then by way of the page cache. */
static bool
part_read_plain(struct load_reader *reader, struct load_part *part)
{
    struct load *load = part->load;

    if (!part_is_refused(part))
        return false;
    load->is_direct_refused = true;
    part->transfer.file = load->plain;
    lane_push(reader->lane, &part->transfer);
    return true;
}

/* It lies in its stage, or cannot be read. */
static bool
part_arrived(struct load_reader *reader, struct load_part *part)
{
    struct load *load = part->load;
    struct load_chunk *chunk = part->chunk;
    struct device_move *move = &part->move;

    if (chunk->status == KVT_OK && part_read_plain(reader, part))
        return false;
    chunk->read_end_ns = part->transfer.done_ns;
    if (part->transfer.status != KVT_OK)
        return part_end(reader, part, part->transfer.status);
    if (chunk->status != KVT_OK) /* Another part of it failed. */
        return part_end(reader, part, chunk->status);
    if (chunk->copy_begin_ns == 0)
        chunk->copy_begin_ns = env_now(&reader->env);
    *move = (struct device_move){.lane = DEVICE_IN,
        .pieces = &part->device_piece,
        .piece_count = 1,
        .mark = &chunk->mark,
        .mark_count = 1,
        .done = &reader->copied,
        .done_task = &reader->task};
    device_mover_push(hbm_mover(reader->store->devices.tiers[load->device]), &move, 1);
    return false;
}

static bool
part_copied(struct load_reader *reader, struct load_part *part)
{
    part->chunk->copy_end_ns = env_now(&reader->env);
    return part_end(reader, part, part->move.status);
}

/* The next part of the chunk into the stage. */
static struct transfer *
part_ask(struct load_reader *reader, struct load *load, uint32_t number)
{
    struct load_chunk *chunk = &load->chunks[number];
    struct load_part *part = reader->set->free;
    uint64_t stage_bytes = reader->set->stage_bytes;
    uint64_t first = load_chunk_offset(load, number);
    uint64_t end = first + load_chunk_size(load, number);
    uint64_t border = (first / stage_bytes + chunk->asked) * stage_bytes;
    uint64_t from = border < first ? first : border;
    uint64_t to = end - border < stage_bytes ? end : border + stage_bytes;
    uint64_t page = from / PAGE_BYTES * PAGE_BYTES;
    /* A direct read of the page in which the file ends would be a short one. */
    bool is_plain = load->direct == NULL || load->is_direct_refused ||
                    round_up(to, PAGE_BYTES) > load->file_bytes;

    reader->set->free = part->next_free;
    part->load = load;
    part->chunk = chunk;
    part->piece.iov_base = part->memory;
    part->piece.iov_len = (size_t)((is_plain ? to : round_up(to, PAGE_BYTES)) - page);
    part->device_piece =
        (struct device_piece){.target = load_chunk_address(load, chunk) + (from - first),
            .source = part->memory + (from - page),
            .size = to - from};
    part->transfer = (struct transfer){.kind = IO_READ,
        .class = LANE_BULK,
        .file = is_plain ? load->plain : load->direct,
        .offset = page,
        .pieces = &part->piece,
        .piece_count = 1,
        .done = &reader->read,
        .done_task = &reader->task};
    if (chunk->asked++ == 0)
        chunk->read_begin_ns = env_now(&reader->env);
    chunk->in_flight++;
    load->in_flight++;
    return &part->transfer;
}

/* --- 3. The actor ----------------------------------------------------------------------------- */

/* The number of a chunk of which a part can be asked for; chunk_count: there is none now. */
static uint32_t
load_next(struct load *load)
{
    while (load->chunk_at < load->chunk_count) {
        struct load_chunk *chunk = &load->chunks[load->chunk_at];

        if (chunk->state == LOAD_WAITING && !chunk_begin(load, chunk))
            return load->chunk_count;
        if (chunk->asked < chunk->part_count)
            return load->chunk_at;
        load->chunk_at++;
    }
    return load->chunk_count;
}

static bool
parts_ask(struct load_reader *reader)
{
    struct transfer *transfers[LOAD_STAGES_MAX];
    uint32_t count = 0;

    for (struct load *load = reader->set->loads; load != NULL; load = load->next) {
        while (reader->set->free != NULL) {
            uint32_t number = load_next(load);

            if (number == load->chunk_count)
                break;
            transfers[count++] = part_ask(reader, load, number);
        }
    }
    if (count > 0)
        lane_push_many(reader->lane, transfers, count);
    return count > 0;
}

/* What lanes and movers have answered. */
struct answers {
    struct inbox_node *copied, *read;
};

/*
 * The answers, and what the operator is to know of them. Without the set's lock: the host's log may
 * wait for a thread that is in a call of the store.
 */
static struct answers
answers_take(struct load_reader *reader)
{
    const struct answers answers = {inbox_take(&reader->copied), inbox_take(&reader->read)};

    for (const struct inbox_node *node = answers.copied; node != NULL; node = node->next) {
        const struct device_move *move = CONTAINER_OF(node, struct device_move, node);
        const struct load_part *part = CONTAINER_OF(move, struct load_part, move);

        (void)device_answer(reader->store, part->load->device, move->status);
    }
    for (const struct inbox_node *node = answers.read; node != NULL; node = node->next) {
        const struct transfer *transfer = CONTAINER_OF(node, struct transfer, node);

        if (transfer->status == KVT_OK ||
            part_is_refused(CONTAINER_OF(transfer, struct load_part, transfer)))
            continue;
        log_line(&reader->store->logger, LOG_ERROR, "load",
            "event=chunk_unreadable offset=%llu errno=%d", (unsigned long long)transfer->offset,
            transfer->error);
    }
    return answers;
}

/* True: who waits should look. */
static bool
answers_settle(struct load_reader *reader, struct answers answers)
{
    bool is_news = false;

    while (answers.copied != NULL) {
        struct device_move *move = CONTAINER_OF(answers.copied, struct device_move, node);

        answers.copied = answers.copied->next;
        is_news = part_copied(reader, CONTAINER_OF(move, struct load_part, move)) || is_news;
    }
    while (answers.read != NULL) {
        struct transfer *transfer = CONTAINER_OF(answers.read, struct transfer, node);

        answers.read = answers.read->next;
        is_news =
            part_arrived(reader, CONTAINER_OF(transfer, struct load_part, transfer)) || is_news;
    }
    return is_news;
}

/* Nothing is begun any more. */
static void
reader_stop_step(struct load_reader *reader)
{
    uint32_t in_flight = 0;

    for (struct load *load = reader->set->loads; load != NULL; load = load->next) {
        (void)load_give_up(load);
        in_flight += load->in_flight;
    }
    if (in_flight == 0)
        atomic_store_explicit(&reader->is_idle, 1, memory_order_release);
}

static bool
reader_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct load_reader *reader = context;
    bool is_stopping, is_busy, is_news;
    struct answers answers;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    is_stopping = atomic_load_explicit(&reader->is_stopping, memory_order_acquire) != 0;
    answers = answers_take(reader);
    is_busy = answers.copied != NULL || answers.read != NULL;
    pthread_mutex_lock(&reader->set->lock);
    is_news = answers_settle(reader, answers);
    if (is_stopping)
        reader_stop_step(reader);
    is_busy = parts_ask(reader) || is_busy;
    pthread_mutex_unlock(&reader->set->lock);
    if (is_news || is_stopping)
        gate_post(&reader->env, &reader->set->gate);
    return is_busy;
}

/* --- 4. Its life (callers) -------------------------------------------------------------------- */

enum kvt_status
load_reader_open(struct kvt_store *store, struct load_reader **reader_out)
{
    const struct kvt_env *env = &store->env;
    struct load_reader *reader = env_take(env, sizeof(*reader));
    struct actor actor = {.name = "kvt-load", .step = reader_step, .context = reader};
    struct proof_handler handler;
    enum kvt_status status;

    if (reader == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to load files");
    reader->env = *env;
    reader->store = store;
    reader->set = store->loads;
    handler = store_proofs_set(store);
    /* The arena is registered with the lanes of the roots, whose reads are many and small. */
    status = lane_open(env, "kvt-io-load", NULL, 0, &reader->lane);
    if (status == KVT_OK)
        status = env->sched->start(env->sched_context, &actor, &reader->task);
    (void)proof_handler_set(handler);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        load_reader_close(reader);
        failure_copy(&failure);
        return status;
    }
    *reader_out = reader;
    return KVT_OK;
}

void
load_reader_stop(struct load_reader *reader)
{
    struct gate *gate;

    if (reader == NULL)
        return;
    gate = &reader->set->gate;
    atomic_store_explicit(&reader->is_stopping, 1, memory_order_release);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&gate->value, memory_order_acquire);

        env_wake(&reader->env, reader->task);
        if (atomic_load_explicit(&reader->is_idle, memory_order_acquire) != 0)
            break;
        gate_wait(&reader->env, gate, seen, UINT64_MAX);
    }
    lane_close(reader->lane);
    reader->lane = NULL;
}

void
load_reader_close(struct load_reader *reader)
{
    struct kvt_env env;

    if (reader == NULL)
        return;
    env = reader->env;
    lane_close(reader->lane);
    if (reader->task != NULL)
        env.sched->stop(env.sched_context, reader->task);
    env_put(&env, reader, sizeof(*reader));
}

void
load_reader_wake(struct load_reader *reader)
{
    env_wake(&reader->env, reader->task);
}
