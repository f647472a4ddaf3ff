/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_copy.c - batches of copies through the kernel and the copy engines.
 *
 * Pieces that touch on both sides, as they come, become one run. (They are not sorted first: that
 * takes as long as the copy of small ones, and who asks for many walks one side in its order.)
 * copy_planner.h says which runs the kernel copies. Of the others, one is a cudaMemcpyAsync(), and
 * several are one cudaMemcpyBatchAsync(): a call for each costs more than the bytes of a small one.
 *
 * The source is read in stream order: a copy out may be behind the kernel that writes its source.
 * No overlap flag: copies within the device are many times slower with it.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

static_assert(CUDART_VERSION >= 13000, "cudaMemcpyBatchAsync() had another signature before");
static_assert(sizeof(size_t) == sizeof(uint64_t), "a piece's size is a size_t");

enum {
    RUNS_ON_STACK = 64,
    /* Pieces between the one that is looked at and the one that is fetched: a caller's long list
     * has left the caches, and the processor's own prefetch stops at the end of a page. */
    PIECES_AHEAD = 96,
    /* Of one copy between host and device: what comes from another stream gets between two. */
    ENGINE_BYTES_MAX = 8 << 20,
};

/* --- 1. Memory for runs ----------------------------------------------------------------------- */

static size_t
runs_bytes(uint32_t capacity)
{
    return capacity * (sizeof(void *) + sizeof(const void *) + sizeof(size_t) + sizeof(uint8_t));
}

static bool
runs_take(struct device_cuda *device, uint32_t capacity, struct cuda_runs *runs_out)
{
    void **memory = env_take(&device->env, runs_bytes(capacity));

    if (memory == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "No memory for a copy of %" PRIu32 " pieces.", capacity);
        return false;
    }
    runs_out->targets = memory;
    runs_out->sources = (const void **)(memory + capacity);
    runs_out->sizes = (size_t *)(void *)(runs_out->sources + capacity);
    runs_out->ways = (uint8_t *)(runs_out->sizes + capacity);
    runs_out->count = 0;
    return true;
}

enum kvt_status
cuda_runs_keep(struct device_cuda *device)
{
    return runs_take(device, CUDA_RUNS_KEPT, &device->kept) ? KVT_OK : KVT_E_NOMEM;
}

void
cuda_runs_free(struct device_cuda *device)
{
    if (device->kept.targets != NULL)
        env_put(&device->env, device->kept.targets, runs_bytes(CUDA_RUNS_KEPT));
}

/* --- 2. From pieces to runs ------------------------------------------------------------------- */

/* A call as it is made. */
struct copy_job {
    struct device_cuda *device;
    cudaStream_t stream;
    struct cuda_runs runs;
    struct copy_sum sums[COPY_WAY_COUNT];
    struct copy_plan plan;
    struct cuda_list *list; /* That is being filled. */
    uint32_t chunk_count;   /* In it. */
    bool has_no_list;       /* All are in use. */
    bool is_begun;          /* Something was queued: an error loses the device. */
};

/* Rows come by the ten thousand, and the device takes 10 ns for one: what is needed for each piece
 * lies in one struct of the loop's own, which need not be in memory. */
struct run_end {
    uint64_t start; /* Of the range. */
    uint64_t size;
    uint64_t next; /* The address behind the last piece. */
    enum device_range_kind kind;
};

struct run_cursor {
    struct run_end target;
    struct run_end source;
    uint32_t count; /* Runs. */
    uint64_t size;  /* Of the last. */
    enum copy_way way;
    uint64_t below_bytes; /* Its crossover. */
    struct copy_sum sum;  /* Of those of its way since it was the way. */
};

static inline bool
end_holds(const struct run_end *end, uint64_t address, uint64_t size)
{
    return address - end->start < end->size && size <= end->size - (address - end->start);
}

static bool
end_find(struct device_cuda *device, const void *start, uint64_t size, struct run_end *end_out)
{
    const struct device_range *range =
        size == 0 ? NULL : device_ranges_find(&device->ranges, address_of(start), size);

    if (range == NULL) {
        (void)failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at %p lie in no slab and in no registered memory.", size, start);
        return false;
    }
    end_out->start = range->start;
    end_out->size = range->size;
    end_out->kind = range->kind;
    return true;
}

static enum copy_way
way_between(const struct run_end *target, const struct run_end *source)
{
    if (device_range_is_host(source->kind))
        return device_range_is_host(target->kind) ? COPY_ACROSS : COPY_IN;
    return device_range_is_host(target->kind) ? COPY_OUT : COPY_WITHIN;
}

/* The last run will not grow any more. */
static inline void
cursor_close(struct run_cursor *cursor, size_t *sizes)
{
    if (cursor->count == 0)
        return;
    sizes[cursor->count - 1] = cursor->size;
    if (cursor->size < cursor->below_bytes) {
        cursor->sum.short_count++;
        cursor->sum.short_bytes += cursor->size;
    } else {
        cursor->sum.long_bytes += cursor->size;
    }
}

static void
cursor_sum(struct copy_job *job, struct run_cursor *cursor)
{
    struct copy_sum *sum = &job->sums[cursor->way];

    sum->short_count += cursor->sum.short_count;
    sum->short_bytes += cursor->sum.short_bytes;
    sum->long_bytes += cursor->sum.long_bytes;
    cursor->sum = (struct copy_sum){.short_count = 0};
}

/* The piece lies elsewhere than the last one. No run crosses from one range to the next. */
static enum kvt_status
cursor_move(struct copy_job *job, struct run_cursor *cursor, const struct device_piece *piece)
{
    cursor_sum(job, cursor);
    if (!end_find(job->device, piece->target, piece->size, &cursor->target) ||
        !end_find(job->device, piece->source, piece->size, &cursor->source))
        return KVT_E_INVAL;
    if (device_range_is_only_read(cursor->target.kind))
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at %p are a peer's or another process's: to be read only.",
            piece->size, piece->target);
    cursor->way = way_between(&cursor->target, &cursor->source);
    cursor->below_bytes = job->plan.kernel_below_bytes[cursor->way];
    return KVT_OK;
}

/* Pieces that touch the last one on both sides, within the same ranges, make its run longer. */
static enum kvt_status
runs_fill(struct copy_job *job, const struct device_piece *pieces, uint32_t count)
{
    const struct cuda_runs runs = job->runs;
    struct run_cursor cursor = {.count = 0};

    for (uint32_t i = 0; i < count; i++) {
        const struct device_piece piece = pieces[i];
        uint64_t target = address_of(piece.target);
        uint64_t source = address_of(piece.source);
        bool is_known = piece.size > 0 && end_holds(&cursor.target, target, piece.size) &&
                        end_holds(&cursor.source, source, piece.size);

        if (i + PIECES_AHEAD < count)
            __builtin_prefetch(&pieces[i + PIECES_AHEAD]);
        if (is_known && target == cursor.target.next && source == cursor.source.next) {
            cursor.size += piece.size;
        } else {
            cursor_close(&cursor, runs.sizes);
            if (!is_known)
                KVT_TRY(cursor_move(job, &cursor, &piece));
            runs.targets[cursor.count] = piece.target;
            runs.sources[cursor.count] = piece.source;
            runs.ways[cursor.count] = (uint8_t)cursor.way;
            cursor.count++;
            cursor.size = piece.size;
        }
        cursor.target.next = target + piece.size;
        cursor.source.next = source + piece.size;
    }
    cursor_close(&cursor, runs.sizes);
    cursor_sum(job, &cursor);
    job->runs.count = cursor.count;
    return KVT_OK;
}

static enum kvt_status
job_plan(struct copy_job *job, const struct device_piece *pieces, uint32_t count)
{
    struct device_cuda *device = job->device;
    uint64_t now_ns = env_now(&device->env);
    enum kvt_status status;

    (void)pthread_mutex_lock(&device->mutex);
    memcpy(job->plan.kernel_below_bytes, device->planner.kernel_below_bytes,
        sizeof(job->plan.kernel_below_bytes));
    status = runs_fill(job, pieces, count);
    if (status == KVT_OK)
        copy_planner_decide(&device->planner, job->sums, now_ns, &job->plan);
    (void)pthread_mutex_unlock(&device->mutex);
    return status;
}

/* --- 3. By the kernel ------------------------------------------------------------------------- */

/* What came of queueing a part of the call. */
static enum kvt_status
job_note(struct copy_job *job, enum kvt_status status)
{
    struct failure cause;

    if (status == KVT_OK) {
        job->is_begun = true;
        return KVT_OK;
    }
    if (!job->is_begun || status == KVT_E_GPU)
        return status;
    /* What the parts before it read and write is not the caller's any more. Pieces and stream were
     * good, so this is no everyday error. */
    cause = *failure_last();
    atomic_store_explicit(&job->device->is_lost, true, memory_order_relaxed);
    return failure_set(
        KVT_E_GPU, cause.foreign_code, "A part of a copy is queued, but: %s", cause.text);
}

static enum kvt_status
list_flush(struct copy_job *job)
{
    struct cuda_list *list = job->list;

    job->list = NULL;
    if (list == NULL)
        return KVT_OK;
    return job_note(
        job, cuda_list_queue(job->device, list, job->chunk_count, &job->plan, job->stream));
}

/* False: there is no list for it. */
static bool
list_has_room(struct copy_job *job, uint32_t chunk_count, enum kvt_status *status)
{
    if (job->list != NULL && chunk_count > CUDA_LIST_CHUNKS - job->chunk_count)
        *status = list_flush(job);
    if (job->list == NULL && *status == KVT_OK && !job->has_no_list) {
        job->list = cuda_list_take(job->device);
        job->has_no_list = job->list == NULL;
        job->chunk_count = 0;
        /* It was lost by the question. */
        if (cuda_is_lost(job->device))
            *status = KVT_E_GPU;
    }
    return job->list != NULL;
}

/* False: the kernel cannot copy this run. */
static bool
run_list(struct copy_job *job, uint32_t index, enum kvt_status *status)
{
    const struct cuda_runs *runs = &job->runs;
    uint64_t target = address_of(runs->targets[index]);
    uint64_t source = address_of(runs->sources[index]);
    uint64_t size = runs->sizes[index];
    uint32_t cut = job->plan.cut_bytes;
    uint64_t chunk_count = (size + cut - 1) / cut;

    if (((target | source) >> COPY_ADDRESS_BITS) != 0 || chunk_count > CUDA_LIST_CHUNKS ||
        !list_has_room(job, (uint32_t)chunk_count, status))
        return false;
    for (; size > cut; size -= cut, target += cut, source += cut)
        job->list->chunks[job->chunk_count++] = copy_chunk_make(target, source, cut);
    job->list->chunks[job->chunk_count++] = copy_chunk_make(target, source, (uint32_t)size);
    return true;
}

/* The runs from `index` on that are a chunk each, as far as the list has room: most are, so they
 * have a loop without calls. The number of them. */
static uint32_t
rows_list(struct copy_job *job, uint32_t index)
{
    const struct cuda_runs runs = job->runs;
    const uint8_t way = runs.ways[index];
    uint64_t size_max = job->plan.kernel_below_bytes[way] - 1;
    struct copy_chunk *chunks = job->list->chunks + job->chunk_count;
    uint32_t room = CUDA_LIST_CHUNKS - job->chunk_count;
    uint32_t count = 0;

    if (size_max > job->plan.cut_bytes)
        size_max = job->plan.cut_bytes;
    if (room > runs.count - index)
        room = runs.count - index;
    for (; count < room; count++) {
        uint64_t target = address_of(runs.targets[index + count]);
        uint64_t source = address_of(runs.sources[index + count]);
        uint64_t size = runs.sizes[index + count];

        if (size > size_max || runs.ways[index + count] != way ||
            ((target | source) >> COPY_ADDRESS_BITS) != 0)
            break;
        chunks[count] = copy_chunk_make(target, source, (uint32_t)size);
    }
    job->chunk_count += count;
    return count;
}

/* Start the kernel on its runs; the others stay. */
static enum kvt_status
kernel_queue(struct copy_job *job)
{
    struct cuda_runs *runs = &job->runs;
    enum kvt_status status = KVT_OK;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < runs->count && status == KVT_OK; i++) {
        if (runs->sizes[i] < job->plan.kernel_below_bytes[runs->ways[i]] &&
            run_list(job, i, &status)) {
            if (i + 1 < runs->count && job->plan.kernel_below_bytes[runs->ways[i + 1]] > 0)
                i += rows_list(job, i + 1);
            continue;
        }
        runs->targets[kept] = runs->targets[i];
        runs->sources[kept] = runs->sources[i];
        runs->sizes[kept] = runs->sizes[i];
        runs->ways[kept] = runs->ways[i];
        kept++;
    }
    runs->count = kept;
    if (status == KVT_OK)
        status = list_flush(job);
    else if (job->list != NULL)
        cuda_list_put(job->list);
    return status;
}

/* --- 4. By the copy engines ------------------------------------------------------------------- */

static enum kvt_status
run_queue(struct copy_job *job, uint32_t index)
{
    const struct cuda_runs *runs = &job->runs;
    uint8_t *target = runs->targets[index];
    const uint8_t *source = runs->sources[index];
    size_t left = runs->sizes[index];
    size_t most = runs->ways[index] == COPY_WITHIN ? left : ENGINE_BYTES_MAX;

    while (left > 0) {
        size_t size = left < most ? left : most;

        KVT_TRY(
            job_note(job, cuda_check(job->device,
                              cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, job->stream),
                              "queue a copy")));
        target += size;
        source += size;
        left -= size;
    }
    return KVT_OK;
}

/* Large runs by themselves, the others as a batch. */
static enum kvt_status
engines_queue(struct copy_job *job)
{
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    struct cuda_runs *runs = &job->runs;
    uint32_t kept = 0;
    size_t first = 0;
    cudaError_t error;

    for (uint32_t i = 0; i < runs->count; i++) {
        if (runs->sizes[i] > ENGINE_BYTES_MAX || runs->count == 1) {
            KVT_TRY(run_queue(job, i));
            continue;
        }
        runs->targets[kept] = runs->targets[i];
        runs->sources[kept] = runs->sources[i];
        runs->sizes[kept] = runs->sizes[i];
        kept++;
    }
    if (kept == 0)
        return KVT_OK;
    error = cudaMemcpyBatchAsync((void *const *)runs->targets, (const void *const *)runs->sources,
        runs->sizes, kept, &attributes, &first, 1, job->stream);
    /* Some of it may be queued. */
    return error == cudaSuccess ? KVT_OK : cuda_lose(job->device, error, "queue a batch of copies");
}

/* --- 5. Interface ----------------------------------------------------------------------------- */

static enum kvt_status
job_queue(struct copy_job *job)
{
    KVT_TRY(cuda_capture_check(job->device, job->stream));
    if (job->runs.count > 1)
        KVT_TRY(kernel_queue(job));
    return engines_queue(job);
}

static enum kvt_status
job_run(struct copy_job *job, const struct device_piece *pieces, uint32_t count)
{
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(job_plan(job, pieces, count));
    KVT_TRY(cuda_enter(job->device, &scope));
    status = job_queue(job);
    cuda_leave(&scope);
    return status;
}

/* With the memory that the device keeps for it, or when another call has that, with its own. */
static enum kvt_status
job_run_large(struct copy_job *job, const struct device_piece *pieces, uint32_t count)
{
    struct device_cuda *device = job->device;
    enum kvt_status status;
    void *memory;

    if (count <= CUDA_RUNS_KEPT &&
        !atomic_exchange_explicit(&device->is_kept_taken, true, memory_order_acquire)) {
        job->runs = device->kept;
        status = job_run(job, pieces, count);
        atomic_store_explicit(&device->is_kept_taken, false, memory_order_release);
        return status;
    }
    if (!runs_take(device, count, &job->runs))
        return KVT_E_NOMEM;
    memory = job->runs.targets;
    status = job_run(job, pieces, count);
    env_put(&device->env, memory, runs_bytes(count));
    return status;
}

enum kvt_status
device_cuda_copy(
    struct device *base, void *stream, const struct device_piece *pieces, uint32_t count)
{
    void *targets[RUNS_ON_STACK];
    const void *sources[RUNS_ON_STACK];
    size_t sizes[RUNS_ON_STACK];
    uint8_t ways[RUNS_ON_STACK];
    struct copy_job job = {.device = device_cuda_of(base),
        .stream = stream,
        .runs = {.targets = targets, .sources = sources, .sizes = sizes, .ways = ways}};

    KVT_TRY(cuda_stream_check(stream));
    if (pieces == NULL || count == 0)
        return failure_set(KVT_E_INVAL, 0, "A copy has one piece or more.");
    return count <= RUNS_ON_STACK ? job_run(&job, pieces, count)
                                  : job_run_large(&job, pieces, count);
}
