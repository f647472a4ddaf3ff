/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_user.c - random transfers with contents that can be checked.
 */
#include "lane_user.h"

#include <string.h>

/* --- Content ---------------------------------------------------------------------------------- */

static uint64_t
slot_word(const struct lane_user *user, uint32_t slot, uint64_t version, uint64_t index)
{
    struct rng rng = {(user->region_offset + slot) * 0x2545F4914F6CDD1Du + version * 977 + index};

    return rng_next(&rng);
}

/*
 * Visit the words of a job's slots where they lie in its pieces: write them (is_check false) or
 * compare them. Pieces are multiples of a page, so no word crosses a border.
 */
static bool
job_words(struct lane_user *user, struct user_job *job, bool is_check)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < job->transfer.piece_count; i++) {
        uint8_t *memory = job->pieces[i].iov_base;

        for (size_t j = 0; j < job->pieces[i].iov_len; j += 8, at += 8) {
            uint32_t slot = job->first + (uint32_t)(at / USER_SLOT_BYTES);
            uint64_t word = slot_word(user, slot, user->versions[slot], at % USER_SLOT_BYTES / 8);

            if (!is_check)
                memcpy(memory + j, &word, 8);
            else if (memcmp(memory + j, &word, 8) != 0)
                return false;
        }
    }
    return true;
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static bool
user_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct lane_user *user = context;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    gate_post(user->env, &user->gate);
    return false;
}

bool
lane_user_open(struct lane_user *user, const struct kvt_env *env, uint64_t seed,
    struct fs_file *file, uint64_t region_offset, void *memory)
{
    struct actor actor = {.name = "user", .step = user_step, .context = user};

    memset(user, 0, sizeof(*user));
    user->env = env;
    user->file = file;
    user->region_offset = region_offset;
    user->rng.state = seed;
    for (size_t i = 0; i < USER_JOBS; i++)
        user->jobs[i].memory = (uint8_t *)memory + i * USER_JOB_BYTES;
    return env->sched->start(env->sched_context, &actor, &user->task) == KVT_OK;
}

void
lane_user_close(struct lane_user *user)
{
    user->env->sched->stop(user->env->sched_context, user->task);
}

/* Choose free slots: most of the time those behind the last job's. */
static bool
job_place(struct lane_user *user, struct user_job *job)
{
    uint32_t wanted = rng_below(&user->rng, 4) == 0 ? 1 + rng_below(&user->rng, USER_JOB_SLOTS)
                                                    : 1 + rng_below(&user->rng, 3);
    uint32_t count = 0;

    job->first = rng_below(&user->rng, 4) == 0 ? rng_below(&user->rng, USER_SLOTS)
                                               : user->next_slot % USER_SLOTS;
    while (count < wanted && job->first + count < USER_SLOTS &&
           !user->is_slot_busy[job->first + count])
        count++;
    job->count = count;
    user->next_slot = job->first + (count == 0 ? 1 : count);
    return count > 0;
}

/* Cut the job's memory into pieces of whole pages, a page apart now and then. */
static void
job_cut(struct lane_user *user, struct user_job *job)
{
    size_t left = (size_t)job->count * USER_SLOT_BYTES;
    uint8_t *memory = job->memory;
    uint32_t count = 0;

    while (left > 0) {
        size_t size = (1 + rng_below(&user->rng, (uint32_t)(left / 4096))) * 4096u;

        if (count + 1 == USER_PIECES)
            size = left;
        memory += rng_below(&user->rng, 2) * 4096u;
        job->pieces[count++] = (struct iovec){memory, size};
        memory += size;
        left -= size;
    }
    job->transfer.piece_count = count;
}

static bool
job_start(struct lane_user *user, struct user_job *job)
{
    bool is_sync = rng_below(&user->rng, 16) == 0;
    bool is_write = !is_sync && rng_below(&user->rng, 2) == 0;

    job->count = 0;
    if (!is_sync && !job_place(user, job))
        return false;
    job->transfer = (struct transfer){
        .kind = is_sync    ? IO_SYNC
                : is_write ? IO_WRITE
                           : IO_READ,
        .class = rng_below(&user->rng, 3) == 0 ? LANE_URGENT : LANE_BULK,
        .file = user->file,
        .offset = user->region_offset + (uint64_t)job->first * USER_SLOT_BYTES,
        .done = &user->inbox,
        .done_task = &user->task,
        .user = job,
    };
    if (is_sync) {
        job->transfer.offset = 0;
    } else {
        job->transfer.pieces = job->pieces;
        job_cut(user, job);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        uint32_t slot = job->first + i;

        user->is_slot_busy[slot] = true;
        if (is_write)
            user->versions[slot] = user->push_count + 1;
    }
    if (is_write)
        (void)job_words(user, job, false);
    else
        memset(job->memory, 0xEE, USER_JOB_BYTES);
    job->is_busy = true;
    user->push_count++;
    user->busy_count++;
    return true;
}

static void
job_finish(struct lane_user *user, struct user_job *job)
{
    const char *wrong = NULL;

    if (!job->is_busy)
        wrong = "a transfer was answered twice";
    else if (job->transfer.status != KVT_OK)
        wrong = "a transfer failed";
    else if (job->transfer.done_ns < job->transfer.submit_ns)
        wrong = "a transfer was done before it was pushed";
    else if (job->transfer.kind == IO_READ && !job_words(user, job, true))
        wrong = "a read brought wrong bytes";
    if (job->transfer.kind == IO_READ)
        user->read_slots += job->count;
    if (user->wrong == NULL)
        user->wrong = wrong;
    job->is_busy = false;
    user->busy_count--;
    for (uint32_t i = 0; i < job->count; i++)
        user->is_slot_busy[job->first + i] = false;
}

/* --- The run ---------------------------------------------------------------------------------- */

static void
user_take(struct lane_user *user)
{
    uint32_t seen = atomic_load_explicit(&user->gate.value, memory_order_acquire);
    struct inbox_node *node = inbox_take(&user->inbox);

    if (node == NULL)
        gate_wait(user->env, &user->gate, seen, UINT64_MAX);
    while (node != NULL) {
        struct inbox_node *next = node->next;

        job_finish(user, CONTAINER_OF(node, struct transfer, node)->user);
        node = next;
    }
}

/* Start as many jobs as are free, and push them together or one by one. */
static uint64_t
user_push(struct lane_user *user, struct lane *lane, uint64_t limit)
{
    struct transfer *transfers[USER_JOBS];
    uint32_t count = 0;

    for (size_t i = 0; i < USER_JOBS && count < limit; i++) {
        if (!user->jobs[i].is_busy && job_start(user, &user->jobs[i]))
            transfers[count++] = &user->jobs[i].transfer;
    }
    if (rng_below(&user->rng, 2) == 0) {
        for (uint32_t i = 0; i < count; i++)
            lane_push(lane, transfers[i]);
    } else if (count > 0) {
        lane_push_many(lane, transfers, count);
    }
    return count;
}

/* Before anything is random, the whole region is written. */
static void
user_fill(struct lane_user *user, struct lane *lane)
{
    for (uint32_t slot = 0; slot < USER_SLOTS; slot += USER_JOB_SLOTS) {
        struct user_job *job = &user->jobs[0];

        job->first = slot;
        job->count = USER_SLOTS - slot < USER_JOB_SLOTS ? USER_SLOTS - slot : USER_JOB_SLOTS;
        job->transfer = (struct transfer){.kind = IO_WRITE,
            .class = LANE_BULK,
            .file = user->file,
            .offset = user->region_offset + (uint64_t)slot * USER_SLOT_BYTES,
            .pieces = job->pieces,
            .done = &user->inbox,
            .done_task = &user->task,
            .user = job};
        job_cut(user, job);
        (void)job_words(user, job, false);
        job->is_busy = true;
        user->busy_count = 1;
        lane_push(lane, &job->transfer);
        while (user->busy_count > 0)
            user_take(user);
    }
}

void
lane_user_run(struct lane_user *user, struct lane *lane, uint64_t count)
{
    uint64_t left = count;

    user_fill(user, lane);
    while (left > 0 && user->wrong == NULL) {
        left -= user_push(user, lane, left);
        user_take(user);
    }
    while (user->busy_count > 0)
        user_take(user);
}
