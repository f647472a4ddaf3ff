/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_io.c - one list of checks that every implementation of struct io_ops must pass.
 *
 * A row is an engine: how its world is made, and what lets time pass in it. Checks that need
 * threads, or descriptors of the kernel, are for the real engines.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "io_engines.h"
#include "sim_world.h"

enum {
    DEPTH = 32,
    KIB = 1024,
    FILE_BYTES = 1024 * KIB,
    FOREVER_NS_COUNT = 60, /* Seconds: what a lost wake would cost. */
};

static const uint64_t second_ns = 1000000000u;

struct world {
    const struct io_ops *io;
    struct kvt_env env;
    char path[64];
    struct fs_dir *dir;
    struct fs_file *file;
    struct io_queue *queue;
    struct sim_world *sim; /* NULL: the kernel's. */
    void (*pass)(struct world *world);
};

/* --- The rows --------------------------------------------------------------------------------- */

/* Until something can be reaped. */
static void
pass_real(struct world *world)
{
    uint64_t now_ns = env_now(&world->env);

    world->io->wait(world->queue, now_ns, now_ns + second_ns);
}

static void
pass_sim(struct world *world)
{
    (void)sim_run_for(world->sim, 100000);
}

static void
world_init_real(struct world *world, const struct io_ops *io)
{
    memset(world, 0, sizeof(*world));
    env_host(&world->env);
    world->env.io = io;
    world->env.io_context = &world->env;
    world->io = io;
    world->pass = pass_real;
}

static void
world_init_sim(struct world *world)
{
    struct sim_options options = {.seed = 11};

    memset(world, 0, sizeof(*world));
    world->sim = sim_world_create(&options);
    world->env = *sim_env(world->sim);
    world->io = world->env.io;
    world->pass = pass_sim;
}

/* The byte at `offset` of the file every check starts with. */
static uint8_t
byte_at(uint64_t offset)
{
    uint64_t z = (offset / 8 + 1) * 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return (uint8_t)(z >> (offset % 8 * 8));
}

static void
bytes_fill(uint8_t *target, uint64_t offset, size_t size)
{
    for (size_t i = 0; i < size; i++)
        target[i] = byte_at(offset + i);
}

static bool
bytes_are_right(const uint8_t *bytes, uint64_t offset, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != byte_at(offset + i))
            return false;
    }
    return true;
}

static int
world_open(void **state)
{
    struct world *world = *state;
    const struct fs_ops *fs = world->env.fs;
    uint8_t *content = malloc(FILE_BYTES);

    assert_non_null(content);
    bytes_fill(content, 0, FILE_BYTES);
    (void)snprintf(world->path, sizeof(world->path), "%s",
        world->sim == NULL ? "/tmp/conform-io-XXXXXX" : "/conform");
    if (world->sim == NULL)
        assert_non_null(mkdtemp(world->path));
    assert_int_equal(
        fs->dir_open(world->env.fs_context, world->path, FS_CREATE, &world->dir), KVT_OK);
    assert_int_equal(fs->open(world->dir, "data", FS_CREATE | FS_EXCLUSIVE, &world->file), KVT_OK);
    assert_int_equal(fs->write_at(world->file, content, FILE_BYTES, 0), KVT_OK);
    free(content);
    assert_int_equal(world->io->open(world->env.io_context, DEPTH, &world->queue), KVT_OK);
    return 0;
}

static int
world_close(void **state)
{
    struct world *world = *state;
    const struct fs_ops *fs = world->env.fs;

    world->io->close(world->queue);
    fs->close(world->file);
    assert_int_equal(fs->unlink(world->dir, "data"), KVT_OK);
    fs->dir_close(world->dir);
    if (world->sim == NULL)
        assert_int_equal(rmdir(world->path), 0);
    return 0;
}

/* --- Helpers ---------------------------------------------------------------------------------- */

/* Submit one operation and wait for its completion. */
static int64_t
perform(struct world *world, const struct io_op *op)
{
    struct io_done done = {0};

    assert_int_equal(world->io->submit(world->queue, &op, 1), 1);
    while (world->io->reap(world->queue, &done, 1) == 0)
        world->pass(world);
    assert_int_equal(done.id, op->id);
    assert_int_equal(world->io->reap(world->queue, &done, 1), 0);
    return done.result;
}

static int64_t
perform_piece(struct world *world, enum io_kind kind, void *memory, size_t size, uint64_t offset)
{
    struct iovec piece = {memory, size};
    struct io_op op = {.id = 77 + offset,
        .kind = kind,
        .file = world->file,
        .offset = offset,
        .pieces = &piece,
        .piece_count = 1};

    return perform(world, &op);
}

static void
expect_in_file(struct world *world, const uint8_t *bytes, size_t size, uint64_t offset)
{
    uint8_t *found = malloc(size);
    size_t count = 0;

    assert_non_null(found);
    assert_int_equal(world->env.fs->read_at(world->file, found, size, offset, &count), KVT_OK);
    assert_int_equal(count, size);
    assert_memory_equal(found, bytes, size);
    free(found);
}

/* --- The checks ------------------------------------------------------------------------------- */

static void
read_brings_what_is_there(void **state)
{
    struct world *world = *state;
    uint8_t bytes[3 * 4096];

    memset(bytes, 0xEE, sizeof(bytes));
    assert_int_equal(perform_piece(world, IO_READ, bytes + 4096, 4096, 8192), 4096);
    assert_true(bytes_are_right(bytes + 4096, 8192, 4096));
    for (size_t i = 0; i < 4096; i++)
        assert_true(bytes[i] == 0xEE && bytes[2 * 4096 + i] == 0xEE);
}

static void
write_lands_where_it_should_and_nowhere_else(void **state)
{
    struct world *world = *state;
    uint8_t bytes[8192];
    uint8_t before[4096];

    memset(bytes, 0xA5, sizeof(bytes));
    bytes_fill(before, 4096, 4096);
    assert_int_equal(perform_piece(world, IO_WRITE, bytes, sizeof(bytes), 8192), 8192);
    expect_in_file(world, bytes, sizeof(bytes), 8192);
    expect_in_file(world, before, sizeof(before), 4096);
    bytes_fill(before, 16384, 4096);
    expect_in_file(world, before, sizeof(before), 16384);
}

/* As many pieces as there may be, of growing sizes, with gaps in memory. */
static void
many_pieces_are_read_and_written_in_order(void **state)
{
    struct world *world = *state;
    struct iovec pieces[IO_PIECES_MAX];
    uint8_t *memory = calloc(IO_PIECES_MAX, 2 * 4096);
    struct io_op op = {.id = 1,
        .kind = IO_READ,
        .file = world->file,
        .offset = 4096,
        .pieces = pieces,
        .piece_count = IO_PIECES_MAX};
    size_t size = 0;

    assert_non_null(memory);
    for (size_t i = 0; i < IO_PIECES_MAX; i++) {
        pieces[i] = (struct iovec){memory + i * 8192, 64 * (i + 1)};
        size += pieces[i].iov_len;
    }
    assert_int_equal(perform(world, &op), size);
    for (size_t i = 0, at = 4096; i < IO_PIECES_MAX; at += pieces[i++].iov_len)
        assert_true(bytes_are_right(pieces[i].iov_base, at, pieces[i].iov_len));
    op.kind = IO_WRITE;
    op.offset = 512 * KIB;
    op.id = 2;
    assert_int_equal(perform(world, &op), size);
    for (size_t i = 0, at = 512 * KIB; i < IO_PIECES_MAX; at += pieces[i++].iov_len)
        expect_in_file(world, pieces[i].iov_base, pieces[i].iov_len, at);
    free(memory);
}

static void
read_across_the_end_is_short_and_beyond_it_empty(void **state)
{
    struct world *world = *state;
    uint8_t bytes[4096];

    assert_int_equal(perform_piece(world, IO_READ, bytes, 4096, FILE_BYTES - 1000), 1000);
    assert_true(bytes_are_right(bytes, FILE_BYTES - 1000, 1000));
    assert_int_equal(perform_piece(world, IO_READ, bytes, 4096, FILE_BYTES), 0);
    assert_int_equal(perform_piece(world, IO_READ, bytes, 4096, 8ull * FILE_BYTES), 0);
}

static void
sync_succeeds_on_a_good_file(void **state)
{
    struct world *world = *state;
    struct io_op op = {.id = 9, .kind = IO_SYNC, .file = world->file};

    assert_int_equal(perform(world, &op), 0);
}

static void
bad_descriptor_is_an_error_of_the_operation(void **state)
{
    struct world *world = *state;
    struct fs_file bad = {.descriptor = 1000000};
    static const enum io_kind kinds[] = {IO_READ, IO_WRITE, IO_SYNC};
    uint8_t bytes[512];

    for (uint64_t i = 0; i < 3; i++) {
        struct iovec piece = {bytes, sizeof(bytes)};
        struct io_op op = {.id = i, .kind = kinds[i], .file = &bad};

        if (kinds[i] != IO_SYNC) {
            op.pieces = &piece;
            op.piece_count = 1;
        }
        assert_int_equal(perform(world, &op), -EBADF);
    }
    /* One bad operation does not keep those behind it. */
    assert_int_equal(perform_piece(world, IO_READ, bytes, 512, 0), 512);
}

/* Three times the depth, submitted as fast as the queue takes them. */
static void
each_operation_is_answered_exactly_once(void **state)
{
    enum {
        COUNT = 3 * DEPTH,
        SIZE = 1000
    };
    struct world *world = *state;
    struct io_op ops[COUNT];
    struct iovec pieces[COUNT];
    uint8_t *memory = malloc((size_t)COUNT * SIZE);
    uint32_t answers[COUNT] = {0};
    size_t submitted = 0;
    size_t answered = 0;

    assert_non_null(memory);
    for (size_t i = 0; i < COUNT; i++) {
        pieces[i] = (struct iovec){memory + i * SIZE, SIZE};
        ops[i] = (struct io_op){.id = ~(uint64_t)i,
            .kind = IO_READ,
            .file = world->file,
            .offset = i * 7777,
            .pieces = &pieces[i],
            .piece_count = 1};
    }
    while (answered < COUNT) {
        const struct io_op *batch[COUNT];
        struct io_done done[7];
        size_t count;

        for (size_t i = submitted; i < COUNT; i++)
            batch[i - submitted] = &ops[i];
        submitted += world->io->submit(world->queue, batch, COUNT - submitted);
        assert_true(submitted - answered <= DEPTH);
        count = world->io->reap(world->queue, done, 7);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(done[i].result, SIZE);
            answers[~done[i].id]++;
        }
        answered += count;
        if (count == 0)
            world->pass(world);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(answers[i], 1);
        assert_true(bytes_are_right(memory + i * SIZE, i * 7777, SIZE));
    }
    free(memory);
}

static void
full_queue_takes_no_more(void **state)
{
    struct world *world = *state;
    struct io_op ops[DEPTH + 1];
    const struct io_op *batch[DEPTH + 1];
    struct iovec pieces[DEPTH + 1];
    uint8_t bytes[DEPTH + 1][512];
    size_t answered = 0;

    for (uint64_t i = 0; i <= DEPTH; i++) {
        pieces[i] = (struct iovec){bytes[i], sizeof(bytes[i])};
        ops[i] = (struct io_op){i, IO_READ, world->file, 0, &pieces[i], 1};
        batch[i] = &ops[i];
    }
    assert_int_equal(world->io->submit(world->queue, batch, DEPTH + 1), DEPTH);
    assert_int_equal(world->io->submit(world->queue, batch + DEPTH, 1), 0);
    while (answered < DEPTH) {
        struct io_done done[DEPTH];
        size_t count = world->io->reap(world->queue, done, DEPTH);

        answered += count;
        if (count == 0)
            world->pass(world);
    }
    assert_int_equal(world->io->submit(world->queue, batch + DEPTH, 1), 1);
    while (world->io->reap(world->queue, &(struct io_done){0}, 1) == 0)
        world->pass(world);
}

/* Adopted memory only changes how, not what: inside, outside and across its borders. */
static void
adopted_memory_moves_the_same_bytes(void **state)
{
    struct world *world = *state;
    size_t arena_size = 2 * 1024 * KIB;
    uint8_t *arena = env_map(&world->env, arena_size);
    uint8_t outside[4096];

    assert_non_null(arena);
    world->io->adopt(world->queue, arena + 4096, arena_size - 8192);
    for (size_t at = 0; at + 8192 <= arena_size; at += 509 * KIB) {
        assert_int_equal(perform_piece(world, IO_READ, arena + at, 8192, at / 4), 8192);
        assert_true(bytes_are_right(arena + at, at / 4, 8192));
    }
    assert_int_equal(perform_piece(world, IO_READ, outside, 4096, 12345), 4096);
    assert_true(bytes_are_right(outside, 12345, 4096));
    memset(arena + 64 * KIB, 0x3C, 4096);
    assert_int_equal(perform_piece(world, IO_WRITE, arena + 64 * KIB, 4096, 0), 4096);
    expect_in_file(world, arena + 64 * KIB, 4096, 0);
    /* The queue lets go of the arena when it is closed. */
    world->io->close(world->queue);
    assert_int_equal(world->io->open(world->env.io_context, DEPTH, &world->queue), KVT_OK);
    env_unmap(&world->env, arena, arena_size);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void
wait_ends_at_its_time(void **state)
{
    struct world *world = *state;
    uint64_t now_ns = env_now(&world->env);

    world->io->wait(world->queue, now_ns, now_ns + 1000000);
    world->io->wait(world->queue, now_ns, now_ns);
    assert_int_equal(world->io->reap(world->queue, &(struct io_done){0}, 1), 0);
}

static void
wake_before_the_wait_is_not_lost(void **state)
{
    struct world *world = *state;

    for (int i = 0; i < 100; i++) {
        uint64_t now_ns = env_now(&world->env);

        world->io->wake(world->queue);
        world->io->wake(world->queue);
        world->io->wait(world->queue, now_ns, now_ns + FOREVER_NS_COUNT * second_ns);
        assert_true(env_now(&world->env) < now_ns + FOREVER_NS_COUNT * second_ns);
    }
}

struct waker {
    struct world *world;
    atomic_uint asked;
    atomic_uint answered;
};

static void *
waker_main(void *argument)
{
    struct waker *waker = argument;

    for (unsigned i = 1; i <= 2000; i++) {
        atomic_store_explicit(&waker->asked, i, memory_order_release);
        waker->world->io->wake(waker->world->queue);
        while (atomic_load_explicit(&waker->answered, memory_order_acquire) != i)
            ;
    }
    return NULL;
}

static void
wake_from_another_thread_is_not_lost(void **state)
{
    struct world *world = *state;
    struct waker waker = {.world = world};
    pthread_t thread;
    unsigned seen = 0;

    assert_int_equal(pthread_create(&thread, NULL, waker_main, &waker), 0);
    while (seen < 2000) {
        unsigned asked = atomic_load_explicit(&waker.asked, memory_order_acquire);
        uint64_t now_ns = env_now(&world->env);

        if (asked != seen) {
            seen = asked;
            atomic_store_explicit(&waker.answered, seen, memory_order_release);
            continue;
        }
        world->io->wait(world->queue, now_ns, now_ns + FOREVER_NS_COUNT * second_ns);
        assert_true(env_now(&world->env) < now_ns + FOREVER_NS_COUNT * second_ns);
        assert_int_equal(world->io->reap(world->queue, &(struct io_done){0}, 1), 0);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* One after the other, so that each has to end a wait. */
static void
completion_ends_the_wait(void **state)
{
    struct world *world = *state;
    uint8_t bytes[512];
    struct iovec piece = {bytes, sizeof(bytes)};

    for (uint64_t i = 0; i < 5000; i++) {
        const struct io_op op = {
            .id = i, .kind = IO_READ, .file = world->file, .pieces = &piece, .piece_count = 1};
        const struct io_op *batch = &op;
        uint64_t begin_ns = env_now(&world->env);

        assert_int_equal(world->io->submit(world->queue, &batch, 1), 1);
        while (world->io->reap(world->queue, &(struct io_done){0}, 1) == 0) {
            world->io->wait(
                world->queue, env_now(&world->env), begin_ns + FOREVER_NS_COUNT * second_ns);
            assert_true(env_now(&world->env) < begin_ns + FOREVER_NS_COUNT * second_ns);
        }
    }
}

static void *
reader_main(void *argument)
{
    struct world *world = argument;
    uint8_t bytes[4096];

    assert_int_equal(perform_piece(world, IO_READ, bytes, 4096, 4096), 4096);
    assert_true(bytes_are_right(bytes, 4096, 4096));
    return NULL;
}

static void
queue_belongs_to_the_thread_that_uses_it_first(void **state)
{
    struct world *world = *state;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, reader_main, world), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* Closed by this thread. */
}

/* --- Opening ---------------------------------------------------------------------------------- */

struct scarce {
    struct kvt_env host;
    uint32_t left;
    int64_t balance;
};

static void *
scarce_take(void *context, size_t size)
{
    struct scarce *scarce = context;

    if (scarce->left == 0)
        return NULL;
    scarce->left--;
    scarce->balance++;
    return env_take(&scarce->host, size);
}

static void
scarce_put(void *context, void *memory, size_t size)
{
    struct scarce *scarce = context;

    if (memory != NULL)
        scarce->balance--;
    env_put(&scarce->host, memory, size);
}

static void
open_without_memory_fails_and_leaves_nothing(void **state)
{
    static const struct memory_ops memory = {.take = scarce_take, .put = scarce_put};
    struct world *world = *state;
    struct kvt_env env = world->env;
    struct scarce scarce = {.host = world->env};
    struct io_queue *queue = NULL;
    uint32_t needed = 0;

    env.memory = &memory;
    env.memory_context = &scarce;
    for (;; needed++) {
        scarce.left = needed;
        if (world->io->open(&env, DEPTH, &queue) == KVT_OK)
            break;
        assert_null(queue);
        assert_int_equal(failure_last()->status, KVT_E_NOMEM);
        assert_int_equal(scarce.balance, 0);
    }
    assert_true(needed > 0);
    world->io->close(queue);
    assert_int_equal(scarce.balance, 0);
    world->io->close(NULL);
}

static void
depth_out_of_range_is_refused(void **state)
{
    struct world *world = *state;
    struct io_queue *queue = world->queue;

    assert_int_equal(world->io->open(world->env.io_context, 0, &queue), KVT_E_INVAL);
    assert_null(queue);
    assert_int_equal(world->io->open(world->env.io_context, UINT32_MAX, &queue), KVT_E_INVAL);
    assert_null(queue);
}

#define CHECK(function)                                                     \
    {                                                                       \
        .name = #function, .test_func = function, .setup_func = world_open, \
        .teardown_func = world_close                                        \
    }

static int
run_checks(struct world *world, const char *kind, struct CMUnitTest *checks, size_t count)
{
    char name[64];

    for (size_t i = 0; i < count; i++)
        checks[i].initial_state = world;
    (void)snprintf(name, sizeof(name), "%s: %s", world->io->name, kind);
    return _cmocka_run_group_tests(name, checks, count, NULL, NULL);
}

static int
run_row(struct world *world)
{
    struct CMUnitTest everywhere[] = {
        CHECK(read_brings_what_is_there),
        CHECK(write_lands_where_it_should_and_nowhere_else),
        CHECK(many_pieces_are_read_and_written_in_order),
        CHECK(read_across_the_end_is_short_and_beyond_it_empty),
        CHECK(sync_succeeds_on_a_good_file),
        CHECK(each_operation_is_answered_exactly_once),
        CHECK(full_queue_takes_no_more),
        CHECK(adopted_memory_moves_the_same_bytes),
        CHECK(wait_ends_at_its_time),
    };
    struct CMUnitTest in_the_kernel[] = {
        CHECK(bad_descriptor_is_an_error_of_the_operation),
        CHECK(wake_before_the_wait_is_not_lost),
        CHECK(wake_from_another_thread_is_not_lost),
        CHECK(completion_ends_the_wait),
        CHECK(queue_belongs_to_the_thread_that_uses_it_first),
        CHECK(open_without_memory_fails_and_leaves_nothing),
        CHECK(depth_out_of_range_is_refused),
    };
    int failed =
        run_checks(world, "everywhere", everywhere, sizeof(everywhere) / sizeof(everywhere[0]));

    if (world->sim == NULL)
        failed += run_checks(world, "in the kernel", in_the_kernel,
            sizeof(in_the_kernel) / sizeof(in_the_kernel[0]));
    return failed;
}

int
main(void)
{
    struct world world;
    int failed;

    world_init_sim(&world);
    failed = run_row(&world);
    sim_world_destroy(world.sim);
    world_init_real(&world, &io_threads_ops);
    failed += run_row(&world);
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: the io_uring rows: %s\n", failure_last()->text);
        return failed == 0 ? 77 : failed;
    }
    world_init_real(&world, &io_uring_ops);
    return failed + run_row(&world);
}
