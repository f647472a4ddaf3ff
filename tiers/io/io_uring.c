/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring.c - the io engine over one io_uring ring a queue.
 *
 * Owns      the ring, its table of fixed buffers, the eventfd through which wake() reaches a
 *           thread that waits in the kernel.
 * Not here  retries, budgets, order: the lane's.
 * Threads   open, adopt and close by the owner; wake any; the rest by the thread that uses the
 *           queue. The ring is made disabled at open and enabled at the first use, because
 *           SINGLE_ISSUER binds it to the thread that enables it.
 *
 * System calls: submit only fills the submission ring; the next reap or wait hands everything to
 * the kernel in one call, which also runs deferred completions. A round of the lane costs one call.
 *
 * Invariants
 *   (1) in_flight_count never exceeds depth, and the completion ring has room for four times that
 *       and the eventfd's read, so completions cannot overflow.
 *   (2) From enabling to close, or until the queue breaks, one read of the eventfd is pending (user
 *       data 0), or lies in the completion ring.
 *   (3) User data n + 1 is flight n, which is one of in_flight_count from submit to reap.
 *
 * A kernel that refuses to be entered for good (a seccomp filter that came after the ring) breaks
 * the queue: what it has not taken is called by the thread that reaps, one after the other. What it
 * has taken cannot be told to have ended: that answers -EIO, and a proof fails if there is any.
 *
 * The waker word, so that a wake is never lost and rarely costs a system call:
 *
 *              queue_wait()                queue_wake(): writes the eventfd
 *    WAKER_IDLE ----------> WAKER_SLEEPING ------+
 *       |  ^  ^                  |               |
 *       |  |  +------------------+               v
 *       |  |     queue_wait() returns       WAKER_POSTED
 *       |  |                                  |  ^
 *       |  +----------------------------------+  |
 *       |           queue_wait() returns         |
 *       +----------------------------------------+
 *                queue_wake(): no system call
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "failure.h"
#include "fork_descriptor.h"
#include "io_call.h"
#include "io_engines.h"
#include "streams_host.h"
#include "try.h"

enum {
    CHUNK_BYTES_LOG = 30, /* The kernel's limit for one fixed buffer is 1 GiB. */
    CHUNK_COUNT_MAX = 4096,
    RANGE_COUNT_MAX = 4,
    DEPTH_MAX = 4096,
    BROKEN_WAIT_MS = 10,
};

enum waker {
    WAKER_IDLE,
    WAKER_SLEEPING,
    WAKER_POSTED,
};

/* Memory that was adopted; its chunk i is fixed buffer first_chunk + i when it was registered. */
struct fixed_range {
    uintptr_t start;
    size_t size;
    uint32_t first_chunk;
    uint32_t chunk_count;
};

/* A place for one operation in flight. */
struct flight {
    const struct io_op *op;   /* NULL: free. */
    struct flight *next_free; /* The next free one, when it is. */
    bool is_taken;            /* The kernel had it when the queue broke. */
};

struct io_queue {
    const struct kvt_env *env;
    struct io_uring ring;
    struct fork_descriptor ring_fd; /* It keeps what was registered pinned. */
    uint32_t depth;
    uint32_t in_flight_count;
    bool is_disabled; /* Made with R_DISABLED and not used yet. */
    bool is_started;  /* queue_start() has run. */
    bool is_broken;   /* The kernel is not entered any more. */
    bool is_gone;     /* ... and its completion ring is not looked at. */
    int event_fd;
    uint64_t event_value; /* The target of the pending read. */
    _Atomic int waker;    /* enum waker; (W1) exchanged acq_rel on both sides. */
    struct fixed_range ranges[RANGE_COUNT_MAX];
    uint32_t range_count;
    uint32_t chunk_count;
    bool is_registered[CHUNK_COUNT_MAX];
    struct flight *first_free;
    struct flight flights[]; /* `depth` of them. */
};

/* --- Flights ---------------------------------------------------------------------------------- */

static struct flight *
flight_take(struct io_queue *queue, const struct io_op *op)
{
    struct flight *flight = queue->first_free;

    queue->first_free = flight->next_free;
    *flight = (struct flight){.op = op};
    return flight;
}

static void
flight_put(struct io_queue *queue, struct flight *flight)
{
    *flight = (struct flight){.next_free = queue->first_free};
    queue->first_free = flight;
}

/* --- Making a ring ---------------------------------------------------------------------------- */

/* The best flags first; a kernel that does not know one answers EINVAL. */
static const unsigned ring_flags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
    0,
};

static enum kvt_status
status_from_uring(int error, const char *what)
{
    if (error == ENOMEM)
        return failure_set(KVT_E_NOMEM, error, "io_uring: no memory for %s.", what);
    return failure_set(KVT_E_UNSUPPORTED, error,
        "io_uring: the kernel refuses %s (%s); the thread engine does not need it.", what,
        strerror(error));
}

static enum kvt_status
ring_make(struct io_uring *ring, uint32_t depth, bool *is_disabled_out)
{
    int result = -EINVAL;

    for (size_t i = 0; i < sizeof(ring_flags) / sizeof(ring_flags[0]) && result == -EINVAL; i++) {
        struct io_uring_params params;
        struct streams_hold streams;

        memset(&params, 0, sizeof(params));
        params.flags = ring_flags[i] | IORING_SETUP_CQSIZE;
        params.cq_entries = 4 * depth;
        /* One entry more than the depth: the read of the eventfd is armed in between. */
        streams_hold(&streams);
        result = io_uring_queue_init_params(depth + 1, ring, &params);
        streams_drop(&streams);
        *is_disabled_out = (params.flags & IORING_SETUP_R_DISABLED) != 0;
    }
    if (result < 0)
        return status_from_uring(-result, "a ring");
    if ((ring->features & IORING_FEAT_EXT_ARG) == 0) {
        io_uring_queue_exit(ring);
        return status_from_uring(ENOSYS, "a wait with a time limit (Linux 5.11)");
    }
    /* As other memory of a store: a forked child has none of it. */
    result = io_uring_ring_dontfork(ring);
    if (result < 0) {
        io_uring_queue_exit(ring);
        return status_from_uring(-result, "a ring that children do not inherit");
    }
    return KVT_OK;
}

enum kvt_status
io_uring_probe(void)
{
    struct io_uring ring;
    bool is_disabled;

    KVT_TRY(ring_make(&ring, 4, &is_disabled));
    io_uring_queue_exit(&ring);
    return KVT_OK;
}

static enum kvt_status
queue_ring_make(struct io_queue *queue)
{
    enum kvt_status status;

    KVT_TRY(fork_hold());
    status = ring_make(&queue->ring, queue->depth, &queue->is_disabled);
    if (status == KVT_OK)
        fork_descriptor_add(&queue->ring_fd, queue->ring.ring_fd);
    fork_release();
    return status;
}

static void
queue_ring_end(struct io_queue *queue)
{
    (void)fork_hold(); /* As when the ring was made. */
    fork_descriptor_remove(&queue->ring_fd);
    io_uring_queue_exit(&queue->ring);
    fork_release();
}

static size_t
queue_bytes(uint32_t depth)
{
    return sizeof(struct io_queue) + depth * sizeof(struct flight);
}

static enum kvt_status
queue_open(void *context, uint32_t depth, struct io_queue **queue_out)
{
    const struct kvt_env *env = context;
    struct io_queue *queue;
    enum kvt_status status;

    *queue_out = NULL;
    if (env == NULL)
        return failure_set(KVT_E_INVAL, 0, "io_uring: its context must be an env, for memory.");
    if (depth == 0 || depth > DEPTH_MAX)
        return failure_set(
            KVT_E_INVAL, 0, "io_uring: a depth of %u is not in 1..%d.", (unsigned)depth, DEPTH_MAX);
    queue = env_take(env, queue_bytes(depth));
    if (queue == NULL)
        return failure_set(KVT_E_NOMEM, ENOMEM, "io_uring: no memory for a queue of %zu bytes.",
            queue_bytes(depth));
    queue->env = env;
    queue->depth = depth;
    for (uint32_t i = depth; i-- > 0;)
        flight_put(queue, &queue->flights[i]);
    atomic_init(&queue->waker, WAKER_IDLE);
    queue->event_fd = streams_pass(eventfd(0, EFD_CLOEXEC));
    if (queue->event_fd < 0) {
        status = failure_errno(errno, "make", "an eventfd");
        goto put_queue;
    }
    KVT_TRY_GOTO(queue_ring_make(queue), close_event);
    *queue_out = queue;
    return KVT_OK;

close_event:
    close(queue->event_fd);
put_queue:
    env_put(env, queue, queue_bytes(depth));
    return status;
}

static void
queue_close(struct io_queue *queue)
{
    if (queue == NULL)
        return;
    KVT_ASSERT(queue->in_flight_count == 0);
    /* The read of the eventfd is cancelled by the kernel; nobody writes the eventfd any more, so
     * event_value cannot be written after it was put back. */
    queue_ring_end(queue);
    close(queue->event_fd);
    env_put(queue->env, queue, queue_bytes(queue->depth));
}

/* --- Fixed buffers ---------------------------------------------------------------------------- */

static void
queue_adopt(struct io_queue *queue, void *memory, size_t size)
{
    size_t chunk_count = (size + ((size_t)1 << CHUNK_BYTES_LOG) - 1) >> CHUNK_BYTES_LOG;
    struct fixed_range *range;

    KVT_ASSERT(!queue->is_started);
    if (size == 0 || queue->range_count == RANGE_COUNT_MAX ||
        chunk_count > CHUNK_COUNT_MAX - queue->chunk_count)
        return;
    range = &queue->ranges[queue->range_count++];
    range->start = (uintptr_t)memory;
    range->size = size;
    range->first_chunk = queue->chunk_count;
    range->chunk_count = (uint32_t)chunk_count;
    queue->chunk_count += (uint32_t)chunk_count;
}

/* Register every chunk that the kernel lets us; the others are used unregistered. */
static void
queue_register(struct io_queue *queue)
{
    if (queue->chunk_count == 0 ||
        io_uring_register_buffers_sparse(&queue->ring, queue->chunk_count) < 0)
        return;
    for (uint32_t i = 0; i < queue->range_count; i++) {
        const struct fixed_range *range = &queue->ranges[i];

        for (uint32_t chunk = 0; chunk < range->chunk_count; chunk++) {
            size_t from = (size_t)chunk << CHUNK_BYTES_LOG;
            size_t left = range->size - from;
            size_t limit = (size_t)1 << CHUNK_BYTES_LOG;
            struct iovec memory = {(char *)range->start + from, left < limit ? left : limit};
            __u64 tag = 0;
            int result = io_uring_register_buffers_update_tag(
                &queue->ring, range->first_chunk + chunk, &memory, &tag, 1);

            queue->is_registered[range->first_chunk + chunk] = result == 1;
        }
    }
}

/* The fixed buffer that holds all of `piece`, or -1. */
static int
fixed_find(const struct io_queue *queue, const struct iovec *piece)
{
    uintptr_t start = (uintptr_t)piece->iov_base;

    for (uint32_t i = 0; i < queue->range_count; i++) {
        const struct fixed_range *range = &queue->ranges[i];
        uintptr_t from = start - range->start;
        uintptr_t last = from + piece->iov_len - 1;
        uint32_t chunk;

        if (start < range->start || piece->iov_len == 0 || piece->iov_len > range->size ||
            from > range->size - piece->iov_len)
            continue;
        if (from >> CHUNK_BYTES_LOG != last >> CHUNK_BYTES_LOG)
            return -1;
        chunk = range->first_chunk + (uint32_t)(from >> CHUNK_BYTES_LOG);
        return queue->is_registered[chunk] ? (int)chunk : -1;
    }
    return -1;
}

/* --- The thread that uses the queue ----------------------------------------------------------- */

/* A free submission entry; hands the full ring to the kernel first when there is none. */
static struct io_uring_sqe *
queue_entry(struct io_queue *queue)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&queue->ring);

    if (entry == NULL) {
        (void)io_uring_submit(&queue->ring);
        entry = io_uring_get_sqe(&queue->ring);
    }
    return entry;
}

/* Arm the read that ends a wait when somebody writes the eventfd. */
static void
waker_arm(struct io_queue *queue)
{
    struct io_uring_sqe *entry = queue_entry(queue);

    /* The ring has an entry more than the depth, for this one. */
    KVT_ASSERT(entry != NULL);
    if (entry == NULL)
        return;
    io_uring_prep_read(entry, queue->event_fd, &queue->event_value, sizeof(queue->event_value), 0);
    io_uring_sqe_set_data64(entry, 0);
}

/* What the kernel has not taken lies between its head of the submission ring and our tail. */
static void
queue_break(struct io_queue *queue)
{
    const struct io_uring_sq *entries = &queue->ring.sq;
    unsigned first = IO_URING_READ_ONCE(*entries->khead);

    queue->is_broken = true;
    for (uint32_t i = 0; i < queue->depth; i++)
        queue->flights[i].is_taken = queue->flights[i].op != NULL;
    for (unsigned i = first; i != entries->sqe_tail; i++) {
        uint64_t number = entries->sqes[i & *entries->kring_mask].user_data;

        if (number != 0)
            queue->flights[number - 1].is_taken = false;
    }
}

static void
queue_start(struct io_queue *queue)
{
    if (queue->is_started)
        return;
    queue->is_started = true;
    /* liburing 2.3 declares io_uring_enable_rings() but its shared library lacks it. */
    if (queue->is_disabled && io_uring_register((unsigned)queue->ring.ring_fd,
                                  IORING_REGISTER_ENABLE_RINGS, NULL, 0) != 0) {
        queue_break(queue);
        return;
    }
    queue_register(queue);
    waker_arm(queue);
}

static void
entry_fill(struct io_queue *queue, struct io_uring_sqe *entry, const struct io_op *op)
{
    int descriptor = op->file->descriptor;
    int chunk = op->piece_count == 1 ? fixed_find(queue, op->pieces) : -1;
    unsigned length = chunk >= 0 ? (unsigned)op->pieces->iov_len : 0;

    switch (op->kind) {
    case IO_READ:
        if (chunk >= 0)
            io_uring_prep_read_fixed(
                entry, descriptor, op->pieces->iov_base, length, op->offset, chunk);
        else
            io_uring_prep_readv(entry, descriptor, op->pieces, op->piece_count, op->offset);
        break;
    case IO_WRITE:
        if (chunk >= 0)
            io_uring_prep_write_fixed(
                entry, descriptor, op->pieces->iov_base, length, op->offset, chunk);
        else
            io_uring_prep_writev(entry, descriptor, op->pieces, op->piece_count, op->offset);
        break;
    case IO_SYNC:
        io_uring_prep_fsync(entry, descriptor, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data64(entry, (uint64_t)(flight_take(queue, op) - queue->flights) + 1);
}

static size_t
queue_submit(struct io_queue *queue, const struct io_op *const *ops, size_t count)
{
    size_t taken;

    queue_start(queue);
    for (taken = 0; taken < count && queue->in_flight_count < queue->depth; taken++) {
        struct io_uring_sqe *entry = queue->is_broken ? NULL : queue_entry(queue);

        if (queue->is_broken)
            (void)flight_take(queue, ops[taken]);
        else if (entry == NULL)
            break;
        else
            entry_fill(queue, entry, ops[taken]);
        queue->in_flight_count++;
    }
    return taken;
}

/* What the kernel says to being entered: a failure that passes leaves the entries for the next
 * call; a time limit of a wait is none. */
static void
enter_result(struct io_queue *queue, int result)
{
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY && result != -ETIME)
        queue_break(queue);
}

/* Hand filled entries to the kernel and let it run deferred completions; never blocks. */
static void
queue_flush(struct io_queue *queue)
{
    bool has_entries = io_uring_sq_ready(&queue->ring) != 0;
    unsigned flags = IO_URING_READ_ONCE(*queue->ring.sq.kflags);

    if (has_entries || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
        enter_result(queue, io_uring_submit_and_get_events(&queue->ring));
}

/*
 * What came of an operation. It is cancelled, and not begun, where the kernel gets no thread for it
 * (RLIMIT_NPROC, pids.max): every sync needs one, and a write that would block.
 */
static int64_t
operation_result(const struct io_op *op, int result)
{
    return result == -ECANCELED ? io_call(op) : result;
}

/* What the kernel has completed. */
static size_t
completions_take(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    struct io_uring_cqe *entry;
    size_t count = 0;
    bool is_waker_spent = false;

    /* A broken queue's ring is looked at as far as it is filled: more would enter the kernel. */
    while (count < count_max && (!queue->is_broken || io_uring_cq_ready(&queue->ring) > 0) &&
           io_uring_peek_cqe(&queue->ring, &entry) == 0) {
        uint64_t number = io_uring_cqe_get_data64(entry);

        if (number == 0) {
            is_waker_spent = true;
        } else {
            struct flight *flight = &queue->flights[number - 1];

            done[count].id = flight->op->id;
            done[count].result = operation_result(flight->op, entry->res);
            count++;
            flight_put(queue, flight);
        }
        io_uring_cqe_seen(&queue->ring, entry);
    }
    if (is_waker_spent && !queue->is_broken)
        waker_arm(queue);
    return count;
}

/* The rest of a broken queue. What of it comes from the kernel after this is of no flight. */
static size_t
flights_call(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    size_t count = 0;

    queue->is_gone = true;
    for (uint32_t i = 0; i < queue->depth && count < count_max; i++) {
        struct flight *flight = &queue->flights[i];

        if (flight->op == NULL)
            continue;
        KVT_ASSERT(!flight->is_taken);
        done[count].id = flight->op->id;
        done[count].result = flight->is_taken ? -EIO : io_call(flight->op);
        count++;
        flight_put(queue, flight);
    }
    return count;
}

static size_t
queue_reap(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    size_t count = 0;

    queue_start(queue);
    if (!queue->is_broken)
        queue_flush(queue);
    if (!queue->is_gone)
        count = completions_take(queue, done, count_max);
    if (queue->is_broken && count < count_max)
        count += flights_call(queue, done + count, count_max - count);
    KVT_ASSERT(count <= queue->in_flight_count);
    queue->in_flight_count -= (uint32_t)count;
    return count;
}

/* No longer than some milliseconds: the read that the kernel has may take what the waker writes. */
static void
broken_wait(const struct io_queue *queue, uint64_t left_ns)
{
    const uint64_t longest_ns = BROKEN_WAIT_MS * UINT64_C(1000000);
    uint64_t limit_ns = left_ns < longest_ns ? left_ns : longest_ns;
    struct pollfd event = {queue->event_fd, POLLIN, 0};
    eventfd_t value;

    if (queue->in_flight_count == 0 && poll(&event, 1, (int)((limit_ns + 999999) / 1000000)) == 1)
        (void)eventfd_read(queue->event_fd, &value);
}

static void
queue_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct __kernel_timespec limit = {
        (int64_t)(left_ns / 1000000000u), (long long)(left_ns % 1000000000u)};
    struct io_uring_cqe *entry;
    int idle = WAKER_IDLE;

    queue_start(queue);
    /* (W1) acquire: what the waker wrote before is visible to the step that follows. */
    if (atomic_compare_exchange_strong_explicit(
            &queue->waker, &idle, WAKER_SLEEPING, memory_order_acq_rel, memory_order_acquire)) {
        if (queue->is_broken)
            broken_wait(queue, left_ns);
        else
            enter_result(queue, io_uring_submit_and_wait_timeout(&queue->ring, &entry, 1,
                                    until_ns == UINT64_MAX ? NULL : &limit, NULL));
    }
    (void)atomic_exchange_explicit(&queue->waker, WAKER_IDLE, memory_order_acq_rel);
}

static void
queue_wake(struct io_queue *queue)
{
    uint64_t one = 1;

    /* (W1) release: pairs with the acquire in queue_wait(). */
    if (atomic_exchange_explicit(&queue->waker, WAKER_POSTED, memory_order_acq_rel) ==
        WAKER_SLEEPING) {
        ssize_t written = write(queue->event_fd, &one, sizeof(one));

        KVT_ASSERT(written == (ssize_t)sizeof(one));
    }
}

const struct io_ops io_uring_ops = {
    .name = "uring",
    .open = queue_open,
    .close = queue_close,
    .adopt = queue_adopt,
    .submit = queue_submit,
    .reap = queue_reap,
    .wait = queue_wait,
    .wake = queue_wake,
};
