/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shared_memory.c - memory that several processes map: what is made, and which descriptors of
 * others are taken. The kernel's fallocate() is played where memory is to be short.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "env.h"

/* Since Linux 6.3, which sets it by itself with the setting vm.memfd_noexec. */
#ifndef F_SEAL_EXEC
#    define F_SEAL_EXEC 0x0020
#endif
#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

static struct kvt_env env;
static int fail_error; /* Of the next call; 0: it does not fail. */

/* Instead of the C library's. */
int
fallocate(int descriptor, int mode, off_t offset, off_t size)
{
    if (fail_error == 0)
        return (int)syscall(SYS_fallocate, descriptor, mode, offset, size);
    errno = fail_error;
    fail_error = 0;
    return -1;
}

static int
setup(void **state)
{
    (void)state;
    env_host(&env);
    return 0;
}

/* Negative: the kernel does not know these seals. */
static int
memory_make(size_t size, int seals)
{
    int descriptor = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(descriptor >= 0);
    /* What can be run is sealed against writes with F_SEAL_EXEC. */
    assert_int_equal(fchmod(descriptor, 0600), 0);
    assert_int_equal(fallocate(descriptor, 0, 0, (off_t)size), 0);
    if (fcntl(descriptor, F_ADD_SEALS, seals) == 0)
        return descriptor;
    assert_int_equal(close(descriptor), 0);
    return -1;
}

/* --- 1. Seals --------------------------------------------------------------------------------- */

static void
page_adopt_gives(int seals, enum kvt_status wanted)
{
    int descriptor = memory_make(PAGE_BYTES, seals);
    struct shared_page page;

    if (descriptor < 0) {
        print_message("This kernel does not know the seals 0x%x.\n", (unsigned)seals);
        return;
    }
    assert_int_equal(env.memory->page_adopt(env.memory_context, descriptor, &page), wanted);
    if (wanted == KVT_OK)
        env.memory->page_end(env.memory_context, &page);
    assert_int_equal(close(descriptor), 0);
}

static void
page_needs_its_seals_and_may_have_more(void **state)
{
    const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    (void)state;
    page_adopt_gives(needed, KVT_OK);
    page_adopt_gives(needed | F_SEAL_EXEC, KVT_OK);
    page_adopt_gives(F_SEAL_GROW | F_SEAL_SEAL, KVT_E_INVAL);
    page_adopt_gives(F_SEAL_SHRINK | F_SEAL_SEAL, KVT_E_INVAL);
    page_adopt_gives(F_SEAL_SHRINK | F_SEAL_GROW, KVT_E_INVAL);
    /* Nobody could write to it. */
    page_adopt_gives(needed | F_SEAL_WRITE, KVT_E_INVAL);
    page_adopt_gives(needed | F_SEAL_FUTURE_WRITE, KVT_E_INVAL);
}

static void
share_adopt_gives(int seals, enum kvt_status wanted)
{
    int descriptor = memory_make(PAGE_BYTES, seals);
    void *memory;
    size_t size;
    int own;

    if (descriptor < 0)
        return;
    assert_int_equal(
        env.memory->share_adopt(env.memory_context, descriptor, &memory, &size, &own), wanted);
    if (wanted == KVT_OK) {
        assert_int_equal(size, PAGE_BYTES);
        env.memory->share_end(env.memory_context, memory, size, own);
    }
    assert_int_equal(close(descriptor), 0);
}

static void
share_needs_its_seals_and_may_have_more(void **state)
{
    const int sizes = F_SEAL_SHRINK | F_SEAL_GROW;

    (void)state;
    share_adopt_gives(sizes | F_SEAL_WRITE, KVT_OK);
    share_adopt_gives(sizes | F_SEAL_FUTURE_WRITE, KVT_OK);
    share_adopt_gives(sizes | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL | F_SEAL_EXEC, KVT_OK);
    share_adopt_gives(sizes, KVT_E_INVAL);
    share_adopt_gives(F_SEAL_GROW | F_SEAL_WRITE, KVT_E_INVAL);
    share_adopt_gives(F_SEAL_SHRINK | F_SEAL_WRITE, KVT_E_INVAL);
}

/* --- 2. Forks --------------------------------------------------------------------------------- */

static bool
is_open(int descriptor)
{
    return fcntl(descriptor, F_GETFD) >= 0;
}

/* A child that lived on would keep the memory. What it opens gets the numbers. */
static void
forked_child_has_no_descriptors(void **state)
{
    struct shared_page made, adopted;
    void *memory, *view;
    int descriptor, own, status = 0;
    size_t size;
    pid_t child;

    (void)state;
    assert_int_equal(
        env.memory->share(env.memory_context, PAGE_BYTES, &memory, &descriptor), KVT_OK);
    assert_int_equal(
        env.memory->share_adopt(env.memory_context, descriptor, &view, &size, &own), KVT_OK);
    assert_int_equal(env.memory->page_make(env.memory_context, &made), KVT_OK);
    assert_int_equal(env.memory->page_adopt(env.memory_context, made.descriptor, &adopted), KVT_OK);
    child = fork();
    if (child == 0) {
        if (is_open(descriptor) || is_open(own) || is_open(made.descriptor) ||
            is_open(adopted.descriptor))
            _exit(1);
        (void)dup2(STDERR_FILENO, adopted.descriptor);
        env.memory->page_end(env.memory_context, &adopted);
        _exit(is_open(adopted.descriptor) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    env.memory->page_end(env.memory_context, &adopted);
    env.memory->page_end(env.memory_context, &made);
    env.memory->share_end(env.memory_context, view, size, own);
    env.memory->share_end(env.memory_context, memory, PAGE_BYTES, descriptor);
    assert_false(is_open(descriptor) || is_open(own));
    assert_false(is_open(made.descriptor) || is_open(adopted.descriptor));
}

/* --- 3. Pages --------------------------------------------------------------------------------- */

enum {
    LONG_BYTES = (7 << 20) + PAGE_BYTES,
};

static uint64_t
bytes_of(int descriptor)
{
    struct stat about;

    assert_int_equal(fstat(descriptor, &about), 0);
    return (uint64_t)about.st_blocks * 512;
}

/* Before anybody touches it: to touch what cannot be had is SIGBUS. */
static void
what_is_shared_has_all_its_pages(void **state)
{
    struct shared_page page;
    void *memory;
    int descriptor;

    (void)state;
    assert_int_equal(
        env.memory->share(env.memory_context, LONG_BYTES, &memory, &descriptor), KVT_OK);
    assert_true(bytes_of(descriptor) >= LONG_BYTES);
    env.memory->share_end(env.memory_context, memory, LONG_BYTES, descriptor);
    assert_int_equal(env.memory->page_make(env.memory_context, &page), KVT_OK);
    assert_true(bytes_of(page.descriptor) >= PAGE_BYTES);
    env.memory->page_end(env.memory_context, &page);
}

static int
descriptors(void)
{
    int next = dup(STDIN_FILENO);

    assert_true(next >= 0);
    assert_int_equal(close(next), 0);
    return next;
}

static void
memory_that_is_short_is_said(void **state)
{
    static const int errors[] = {ENOSPC, ENOMEM, EIO};
    static const enum kvt_status statuses[] = {KVT_E_NOMEM, KVT_E_NOMEM, KVT_E_IO};
    struct shared_page page;
    void *memory;
    int descriptor, next = descriptors();

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        fail_error = errors[i];
        assert_int_equal(
            env.memory->share(env.memory_context, LONG_BYTES, &memory, &descriptor), statuses[i]);
        fail_error = errors[i];
        assert_int_equal(env.memory->page_make(env.memory_context, &page), statuses[i]);
        assert_int_equal(fail_error, 0);
    }
    assert_int_equal(descriptors(), next);
    /* A signal came. */
    fail_error = EINTR;
    assert_int_equal(
        env.memory->share(env.memory_context, LONG_BYTES, &memory, &descriptor), KVT_OK);
    assert_true(bytes_of(descriptor) >= LONG_BYTES);
    env.memory->share_end(env.memory_context, memory, LONG_BYTES, descriptor);
}

static void
memory_without_its_pages_is_refused(void **state)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct shared_page page;
    void *memory;
    size_t size;
    int own;

    (void)state;
    for (int is_page = 0; is_page < 2; is_page++) {
        int descriptor = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(descriptor >= 0);
        assert_int_equal(ftruncate(descriptor, PAGE_BYTES), 0);
        assert_int_equal(fcntl(descriptor, F_ADD_SEALS, is_page ? seals : seals | F_SEAL_WRITE), 0);
        if (is_page)
            assert_int_equal(
                env.memory->page_adopt(env.memory_context, descriptor, &page), KVT_E_INVAL);
        else
            assert_int_equal(
                env.memory->share_adopt(env.memory_context, descriptor, &memory, &size, &own),
                KVT_E_INVAL);
        assert_int_equal(close(descriptor), 0);
    }
}

/* Of the address space; none of it may be lost. */
static uint64_t
address_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages * PAGE_BYTES;
}

static void
addresses_of_what_cannot_be_mapped_are_given_back(void **state)
{
    char path[64];
    uint64_t before;
    void *memory;
    size_t size;
    int own, writer, descriptor = memory_make(LONG_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);

    (void)state;
    /* A descriptor that is not to be read. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    writer = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(writer >= 0);
    assert_int_equal(fcntl(descriptor, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    assert_int_equal(env.memory->share_adopt(env.memory_context, writer, &memory, &size, &own),
        KVT_E_PERMISSION);
    before = address_bytes();
    for (int i = 0; i < 64; i++)
        assert_int_equal(env.memory->share_adopt(env.memory_context, writer, &memory, &size, &own),
            KVT_E_PERMISSION);
    assert_true(address_bytes() < before + LONG_BYTES);
    assert_int_equal(close(writer) + close(descriptor), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_needs_its_seals_and_may_have_more),
        cmocka_unit_test(share_needs_its_seals_and_may_have_more),
        cmocka_unit_test(forked_child_has_no_descriptors),
        cmocka_unit_test(what_is_shared_has_all_its_pages),
        cmocka_unit_test(memory_that_is_short_is_said),
        cmocka_unit_test(memory_without_its_pages_is_refused),
        cmocka_unit_test(addresses_of_what_cannot_be_mapped_are_given_back),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
