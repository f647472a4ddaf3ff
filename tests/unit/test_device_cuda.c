/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda.c - what a build with CUDA says on this machine, whatever it has; which of
 * CUDA's errors take a device out of service; and numbers that are CUDA's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "failure.h"

static void
count_gives_a_number_or_the_reason(void **state)
{
    uint32_t count = 77;
    enum kvt_status status;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        failure_clear();
        status = device_cuda_ops.count(NULL, &count);
        if (status == KVT_OK) {
            assert_in_range(count, 1, 1024);
            continue;
        }
        assert_int_equal(status, KVT_E_UNSUPPORTED);
        assert_int_equal(count, 77);
        assert_int_equal(failure_last()->status, KVT_E_UNSUPPORTED);
        assert_memory_equal(failure_last()->text, "No GPU: ", 8);
    }
}

static void
device_that_is_not_there_is_refused(void **state)
{
    struct kvt_env env;
    struct device *device = (struct device *)&env;
    uint32_t count = 0;
    bool is_any = device_cuda_ops.count(NULL, &count) == KVT_OK;

    (void)state;
    env_host(&env);
    assert_int_equal(device_cuda_ops.open(NULL, &env, is_any ? count : 0, &device),
        is_any ? KVT_E_INVAL : KVT_E_UNSUPPORTED);
    assert_null(device);
    device_cuda_ops.close(NULL);
}

static void
errors_that_stay_or_are_unknown_lose_the_device(void **state)
{
    static const cudaError_t lost[] = {cudaErrorIllegalAddress, cudaErrorLaunchFailure,
        cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress, cudaErrorInvalidPc, cudaErrorContextIsDestroyed,
        cudaErrorDevicesUnavailable, cudaErrorContained, cudaErrorUnknown, (cudaError_t)12345};
    static const cudaError_t kept[] = {cudaErrorMemoryAllocation, cudaErrorInvalidValue,
        cudaErrorInvalidResourceHandle, cudaErrorHostMemoryAlreadyRegistered,
        cudaErrorHostMemoryNotRegistered, cudaErrorNotSupported, cudaErrorNoDevice};

    (void)state;
    assert_int_equal(status_from_cuda(cudaSuccess), KVT_OK);
    assert_int_equal(status_from_cuda(cudaErrorNotReady), KVT_NOT_READY);
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
        assert_int_equal(status_from_cuda(lost[i]), KVT_E_GPU);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        assert_true(status_from_cuda(kept[i]) < KVT_OK);
        assert_int_not_equal(status_from_cuda(kept[i]), KVT_E_GPU);
    }
}

/* The engine goes by them without CUDA's headers. */
static void
streams_without_a_handle_have_these_numbers(void **state)
{
    (void)state;
    assert_int_equal((uintptr_t)cudaStreamLegacy, DEVICE_STREAM_LEGACY);
    assert_int_equal((uintptr_t)cudaStreamPerThread, DEVICE_STREAM_PER_THREAD);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_gives_a_number_or_the_reason),
        cmocka_unit_test(device_that_is_not_there_is_refused),
        cmocka_unit_test(errors_that_stay_or_are_unknown_lose_the_device),
        cmocka_unit_test(streams_without_a_handle_have_these_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
