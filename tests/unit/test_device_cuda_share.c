/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda_share.c - which calls the CUDA device makes for memory and words of several
 * processes: the driver's functions are played by cuda_play.c.
 *
 * What a GPU does with these calls only tests/gpu/gpu_sharing.c can tell.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "cuda_play.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "device_share.h"
#include "failure.h"
#include "stop_on_proof.h"

enum {
    SLAB_BYTES = 4 << 20,
};

static const struct device_share_ops *const share = &device_cuda_share_ops;

static struct {
    struct kvt_env env;
    struct device *device;
    void *slab, *adopted;
    int descriptor;
    uint8_t *page;
    bool is_known;
} rig;

static int
setup(void **state)
{
    (void)state;
    play_begin();
    memset(&rig, 0, sizeof(rig));
    rig.descriptor = -1;
    env_host(&rig.env);
    assert_int_equal(device_cuda_ops.open(NULL, &rig.env, 1, &rig.device), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    if (rig.adopted != NULL)
        device_cuda_ops.slab_put(rig.device, rig.adopted, SLAB_BYTES);
    if (rig.slab != NULL)
        device_cuda_ops.slab_put(rig.device, rig.slab, SLAB_BYTES);
    if (!rig.is_known ||
        device_cuda_ops.host_unregister(rig.device, rig.page, PAGE_BYTES) == KVT_OK)
        env_unmap(&rig.env, rig.page, PAGE_BYTES);
    device_cuda_ops.close(rig.device);
    play_judge();
    return 0;
}

static void
slab_goes_through_its_descriptor_and_is_only_read_there(void **state)
{
    struct device_piece piece = {.size = 4096};
    uint8_t id[DEVICE_ID_BYTES];
    uint32_t ordinal = 7;

    (void)state;
    assert_int_equal(share->identity(rig.device, id), KVT_OK);
    assert_int_equal(share->find(NULL, id, &ordinal), KVT_OK);
    assert_int_equal(ordinal, 1);
    id[3] ^= 1;
    assert_int_equal(share->find(NULL, id, &ordinal), KVT_E_INVAL);
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
    assert_int_equal((uintptr_t)rig.slab % (2 << 20), 0);
    assert_int_equal(play.access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(fcntl(rig.descriptor, F_GETFD), FD_CLOEXEC);
    assert_int_equal(
        share->slab_adopt(rig.device, rig.descriptor, SLAB_BYTES, &rig.adopted), KVT_OK);
    assert_int_equal(play.access, CU_MEM_ACCESS_FLAGS_PROT_READ);
    piece.target = rig.slab;
    piece.source = rig.adopted;
    assert_int_equal(
        device_cuda_ops.copy(rig.device, device_cuda_ops.stream(rig.device, DEVICE_IN), &piece, 1),
        KVT_OK);
    piece.target = rig.adopted;
    piece.source = rig.slab;
    assert_int_equal(
        device_cuda_ops.copy(rig.device, device_cuda_ops.stream(rig.device, DEVICE_IN), &piece, 1),
        KVT_E_INVAL);
    /* The descriptor goes with the slab. */
    device_cuda_ops.slab_put(rig.device, rig.slab, SLAB_BYTES);
    rig.slab = NULL;
    assert_int_equal(fcntl(rig.descriptor, F_GETFD), -1);
}

/* A child that lived on would keep the memory. */
static void
forked_child_has_no_descriptor(void **state)
{
    int next = dup(STDERR_FILENO), status = 0;
    pid_t child;

    (void)state;
    assert_int_equal(close(next), 0);
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
    child = fork();
    if (child == 0)
        _exit(fcntl(rig.descriptor, F_GETFD) == -1 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    device_cuda_ops.slab_put(rig.device, rig.slab, SLAB_BYTES);
    rig.slab = NULL;
    assert_int_equal(dup(STDERR_FILENO), next); /* None is left. */
    assert_int_equal(close(next), 0);
}

/* A host may have closed its standard streams. */
static void
descriptor_is_no_standard_stream(void **state)
{
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);

    (void)state;
    assert_int_equal(close(STDIN_FILENO), 0);
    play.lowest_descriptor = 100;
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    device_cuda_ops.slab_put(rig.device, rig.slab, SLAB_BYTES);
    rig.slab = NULL;
    device_cuda_ops.close(rig.device);
    assert_int_equal(device_cuda_ops.open(NULL, &rig.env, 1, &rig.device), KVT_OK);
    assert_in_range(play.lowest_descriptor, 3, 99); /* What the driver would have opened. */
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(close(kept), 0);
}

static void
driver_without_access_to_read_alone_gives_both(void **state)
{
    (void)state;
    play.is_read_refused = true;
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
    assert_int_equal(
        share->slab_adopt(rig.device, rig.descriptor, SLAB_BYTES, &rig.adopted), KVT_OK);
    assert_int_equal(play.access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void
what_cannot_be_shared_is_said_and_costs_nothing(void **state)
{
    int holds = play.holds;
    void *slab = NULL;
    int none;

    (void)state;
    play.has_no_sharing = true;
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &slab, &none), KVT_E_UNSUPPORTED);
    play.has_no_sharing = false;
    play.granularity = 3 << 20;
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &slab, &none), KVT_E_UNSUPPORTED);
    play.granularity = 0;
    assert_int_equal(share->slab_take(rig.device, 256 << 20, &slab, &none), KVT_E_NOMEM);
    assert_int_equal(share->slab_take(rig.device, 4096, &slab, &none), KVT_E_INVAL);
    assert_int_equal(share->slab_take(rig.device, 0, &slab, &none), KVT_E_INVAL);
    assert_null(slab);
    assert_int_equal(play.holds, holds);
}

static void
driver_without_one_of_the_functions_shares_nothing(void **state)
{
    void *slab = NULL;
    int none;

    (void)state;
    for (uint32_t n = 1; n <= 14; n++) {
        play.fail_call = play.call_count + n;
        play.fail_with = cudaErrorInvalidValue;
        assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &slab, &none), KVT_E_UNSUPPORTED);
        assert_null(slab);
    }
    play.fail_call = 0;
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
}

static void
descriptors_of_something_else_are_refused(void **state)
{
    int pipes[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int holds;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor), KVT_OK);
    holds = play.holds;
    assert_int_equal(share->slab_adopt(rig.device, -1, SLAB_BYTES, &rig.adopted), KVT_E_INVAL);
    assert_int_equal(
        share->slab_adopt(rig.device, pipes[0], SLAB_BYTES, &rig.adopted), KVT_E_INVAL);
    assert_int_equal(
        share->slab_adopt(rig.device, rig.descriptor, 2 << 20, &rig.adopted), KVT_E_INVAL);
    assert_int_equal(share->slab_adopt(rig.device, rig.descriptor, 5, &rig.adopted), KVT_E_INVAL);
    play.is_import_refused = true;
    assert_int_equal(share->slab_adopt(rig.device, null, SLAB_BYTES, &rig.adopted), KVT_E_INVAL);
    play.is_import_refused = false;
    assert_null(rig.adopted);
    assert_int_equal(play.holds, holds);
    assert_int_equal(close(pipes[0]) + close(pipes[1]) + close(null), 0);
}

static void
streams_write_and_wait_for_words_that_the_device_knows(void **state)
{
    void *stream = device_cuda_ops.stream(rig.device, DEVICE_OUT);
    uint64_t *word;

    (void)state;
    rig.page = env_map(&rig.env, PAGE_BYTES);
    word = (uint64_t *)rig.page;
    assert_int_equal(share->word_write(rig.device, stream, word, 3), KVT_E_INVAL);
    assert_int_equal(device_cuda_ops.host_register(rig.device, rig.page, PAGE_BYTES), KVT_OK);
    rig.is_known = true;
    assert_int_equal(share->word_write(rig.device, stream, word, 3), KVT_OK);
    assert_int_equal(*word, 3);
    assert_int_equal(share->word_wait(rig.device, stream, word, 4), KVT_OK);
    assert_int_equal(play.waited, 4);
    assert_int_equal(share->word_wait(rig.device, NULL, word, 4), KVT_E_INVAL);
    assert_int_equal(share->word_write(rig.device, cudaStreamLegacy, word, 4), KVT_E_INVAL);
}

static void
memory_that_is_abandoned_stays_pinned(void **state)
{
    void *stream = device_cuda_ops.stream(rig.device, DEVICE_OUT);
    int holds = play.holds;

    (void)state;
    rig.page = env_map(&rig.env, PAGE_BYTES);
    assert_int_equal(device_cuda_ops.host_register(rig.device, rig.page, PAGE_BYTES), KVT_OK);
    assert_int_equal(play.holds, holds + 2); /* The context is held for it, too. */
    device_cuda_ops.host_abandon(rig.device, rig.page, PAGE_BYTES);
    assert_int_equal(play.holds, holds + 2);
    assert_int_equal(share->word_write(rig.device, stream, (uint64_t *)rig.page, 1), KVT_E_INVAL);
    play.holds -= 2; /* As at the end of the process. */
    rig.page = NULL;
}

static void
words_on_a_captured_stream_are_refused(void **state)
{
    void *stream = device_cuda_ops.stream(rig.device, DEVICE_OUT);
    void *captured = &rig; /* A caller's: of those of the device nobody can capture one. */
    uint64_t *word;

    (void)state;
    rig.page = env_map(&rig.env, PAGE_BYTES);
    word = (uint64_t *)rig.page;
    assert_int_equal(device_cuda_ops.host_register(rig.device, rig.page, PAGE_BYTES), KVT_OK);
    rig.is_known = true;
    assert_int_equal(share->word_write(rig.device, stream, word, 1), KVT_OK);
    assert_int_equal(share->word_wait(rig.device, stream, word, 1), KVT_OK);
    play.is_stream_captured = true;
    assert_int_equal(share->word_write(rig.device, captured, word, 2), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "being captured"));
    assert_int_equal(share->word_wait(rig.device, captured, word, 2), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "being captured"));
    assert_int_equal(*word, 1);
    assert_int_equal(play.waited, 1);
    play.is_stream_captured = false;
    assert_int_equal(share->word_write(rig.device, captured, word, 2), KVT_OK);
    assert_int_equal(*word, 2);
}

/* --- Every call fails once -------------------------------------------------------------------- */

#define LIFE_TRY(expr)                  \
    do {                                \
        enum kvt_status tried = (expr); \
        if (tried != KVT_OK)            \
            return tried;               \
    } while (0)

static enum kvt_status
life_run(void)
{
    void *stream = device_cuda_ops.stream(rig.device, DEVICE_OUT);
    uint8_t id[DEVICE_ID_BYTES];

    rig.page = env_map(&rig.env, PAGE_BYTES);
    LIFE_TRY(share->identity(rig.device, id));
    LIFE_TRY(share->slab_take(rig.device, SLAB_BYTES, &rig.slab, &rig.descriptor));
    LIFE_TRY(share->slab_adopt(rig.device, rig.descriptor, SLAB_BYTES, &rig.adopted));
    LIFE_TRY(device_cuda_ops.host_register(rig.device, rig.page, PAGE_BYTES));
    rig.is_known = true;
    LIFE_TRY(share->word_write(rig.device, stream, (uint64_t *)rig.page, 1));
    return share->word_wait(rig.device, stream, (uint64_t *)rig.page, 1);
}

static void
each_call_of_the_driver_may_fail(void **state)
{
    static const cudaError_t errors[] = {
        cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorIllegalAddress};
    uint8_t id[DEVICE_ID_BYTES];

    (void)teardown(state);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        bool was_called = true;

        for (uint32_t n = 1; was_called; n++) {
            enum kvt_status status;
            uint32_t first;

            (void)setup(state);
            assert_int_equal(share->identity(rig.device, id), KVT_OK); /* All are found. */
            first = play.call_count;
            play.fail_call = first + n;
            play.fail_with = errors[i];
            failure_clear();
            status = life_run();
            was_called = play.call_count >= play.fail_call;
            if (play.is_lost && status != KVT_E_GPU)
                fail_msg("call %u: %s", n, kvt_status_name(status));
            /* But where something else does as well: access to read and write. */
            if (was_called && status != KVT_OK)
                assert_true(failure_last()->text[0] != '\0');
            play.fail_call = 0;
            (void)teardown(state);
        }
    }
    (void)setup(state);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slab_goes_through_its_descriptor_and_is_only_read_there),
        TEST(forked_child_has_no_descriptor),
        TEST(descriptor_is_no_standard_stream),
        TEST(driver_without_access_to_read_alone_gives_both),
        TEST(what_cannot_be_shared_is_said_and_costs_nothing),
        TEST(driver_without_one_of_the_functions_shares_nothing),
        TEST(descriptors_of_something_else_are_refused),
        TEST(streams_write_and_wait_for_words_that_the_device_knows),
        TEST(memory_that_is_abandoned_stays_pinned),
        TEST(words_on_a_captured_stream_are_refused),
        TEST(each_call_of_the_driver_may_fail),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
