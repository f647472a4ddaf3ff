/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_failure.c - the thread's record, errno translation, and false proofs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"

static void
record_has_the_status_the_code_and_the_sentence(void **state)
{
    (void)state;
    assert_int_equal(failure_set(KVT_E_NOSPC, 28, "%d of %s are gone.", 7, "nine"), KVT_E_NOSPC);
    assert_int_equal(failure_last()->status, KVT_E_NOSPC);
    assert_int_equal(failure_last()->foreign_code, 28);
    assert_string_equal(failure_last()->text, "7 of nine are gone.");
    failure_clear();
    assert_int_equal(failure_last()->status, KVT_OK);
    assert_int_equal(failure_last()->foreign_code, 0);
    assert_string_equal(failure_last()->text, "");
}

static void
sentence_that_is_too_long_is_cut_and_terminated(void **state)
{
    char text[2 * FAILURE_TEXT_BYTES];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    (void)failure_set(KVT_E_IO, 0, "%s", text);
    assert_int_equal(strlen(failure_last()->text), FAILURE_TEXT_BYTES - 1);
}

static void
new_sentence_may_quote_the_old_one(void **state)
{
    (void)state;
    (void)failure_set(KVT_E_IO, 5, "the disk is gone");
    (void)failure_set(KVT_E_META, 5, "No commit: %s.", failure_last()->text);
    assert_string_equal(failure_last()->text, "No commit: the disk is gone.");
}

static void
each_errno_has_its_status(void **state)
{
    static const struct {
        int error;
        enum kvt_status status;
    } rows[] = {
        {ENOENT, KVT_MISS},
        {EEXIST, KVT_EXISTS},
        {ENOMEM, KVT_E_NOMEM},
        {ENOSPC, KVT_E_NOSPC},
        {EDQUOT, KVT_E_NOSPC},
        {EACCES, KVT_E_PERMISSION},
        {EPERM, KVT_E_PERMISSION},
        {EROFS, KVT_E_READONLY},
        {EINVAL, KVT_E_INVAL},
        {ENAMETOOLONG, KVT_E_INVAL},
        {ENOTDIR, KVT_E_INVAL},
        {ELOOP, KVT_E_INVAL},
        {EAGAIN, KVT_E_BUSY},
        {EBUSY, KVT_E_BUSY},
        {ENOSYS, KVT_E_UNSUPPORTED},
        {EOPNOTSUPP, KVT_E_UNSUPPORTED},
        {EIO, KVT_E_IO},
        {EBADF, KVT_E_IO},
        {12345, KVT_E_IO},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(failure_errno(rows[i].error, "Cannot open", "a/b"), rows[i].status);
        assert_int_equal(failure_last()->status, rows[i].status);
        assert_int_equal(failure_last()->foreign_code, rows[i].error);
    }
}

static void
a_lack_of_descriptors_is_told_from_other_failures(void **state)
{
    (void)state;
    (void)failure_errno(EMFILE, "Cannot open", "a");
    assert_true(failure_lacks_descriptor());
    (void)failure_errno(ENFILE, "Cannot open", "a");
    assert_true(failure_lacks_descriptor());
    (void)failure_errno(EIO, "Cannot open", "a");
    assert_false(failure_lacks_descriptor());
}

static void
errno_sentence_names_what_path_and_reason(void **state)
{
    (void)state;
    (void)failure_errno(ENOENT, "Cannot open", "/data/STORE.a");
    assert_string_equal(
        failure_last()->text, "Cannot open /data/STORE.a: No such file or directory");
    (void)failure_errno(ENOMEM, "Cannot start", NULL);
    assert_string_equal(failure_last()->text, "Cannot start: Cannot allocate memory");
}

static void *
other_thread(void *argument)
{
    struct failure *copy = argument;

    if (failure_last()->status != KVT_OK)
        return NULL;
    (void)failure_set(KVT_E_GPU, 700, "from the other thread");
    *copy = *failure_last();
    return copy;
}

static void
each_thread_has_its_own_record_and_may_hand_it_over(void **state)
{
    struct failure copy;
    pthread_t thread;
    void *result;

    (void)state;
    (void)failure_set(KVT_E_IO, 5, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &copy), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &copy);
    assert_string_equal(failure_last()->text, "mine");
    failure_copy(&copy);
    assert_int_equal(failure_last()->status, KVT_E_GPU);
    assert_int_equal(failure_last()->foreign_code, 700);
    assert_string_equal(failure_last()->text, "from the other thread");
    failure_copy(failure_last());
    assert_string_equal(failure_last()->text, "from the other thread");
}

#ifdef NDEBUG

struct seen_proof {
    int count;
    const char *expression;
};

static void
proof_seen(void *context, const char *expression, const char *file, int line)
{
    struct seen_proof *seen = context;

    (void)file;
    assert_true(line > 0);
    seen->count++;
    seen->expression = expression;
}

static void
false_proof_calls_the_handler_and_goes_on(void **state)
{
    struct seen_proof seen = {0};

    (void)state;
    (void)proof_handler_set((struct proof_handler){proof_seen, &seen});
    KVT_ASSERT(seen.count == 0);
    assert_int_equal(seen.count, 0);
    KVT_ASSERT(seen.count == 99);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.expression, "seen.count == 99");
    assert_int_equal(failure_last()->status, KVT_E_POISONED);
    assert_non_null(strstr(failure_last()->text, "seen.count == 99"));
    assert_ptr_equal(proof_handler_set((struct proof_handler){0}).context, &seen);
    KVT_ASSERT(seen.count == 99);
    assert_int_equal(seen.count, 1);
}

#else

static void
false_proof_stops_a_debug_build(void **state)
{
    int status = 0;
    pid_t child;

    (void)state;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)freopen("/dev/null", "w", stderr);
        KVT_ASSERT(child != 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_has_the_status_the_code_and_the_sentence),
        cmocka_unit_test(sentence_that_is_too_long_is_cut_and_terminated),
        cmocka_unit_test(new_sentence_may_quote_the_old_one),
        cmocka_unit_test(each_errno_has_its_status),
        cmocka_unit_test(a_lack_of_descriptors_is_told_from_other_failures),
        cmocka_unit_test(errno_sentence_names_what_path_and_reason),
        cmocka_unit_test(each_thread_has_its_own_record_and_may_hand_it_over),
#ifdef NDEBUG
        cmocka_unit_test(false_proof_calls_the_handler_and_goes_on),
#else
        cmocka_unit_test(false_proof_stops_a_debug_build),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
