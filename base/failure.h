/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - the calling thread's record of what went wrong last, and proofs that must not fail.
 *
 * A status is for programs; the record's sentence is for people. Every function that makes a new
 * error status (rather than passing one on) calls failure_set() first, so that the sentence names
 * the cause: which file, which argument, which limit, which foreign code.
 *
 * Threads: each thread has its own record.
 */
#ifndef KVT_BASE_FAILURE_H
#define KVT_BASE_FAILURE_H

#include <stdbool.h>

#include "kvtier/status.h"

enum {
    FAILURE_TEXT_BYTES = 320, /* The longest sentence, its terminating zero included. */
};

struct failure {
    enum kvt_status status;
    int foreign_code; /* errno, or the code of the library below; 0 when there is none. */
    char text[FAILURE_TEXT_BYTES];
};

/* failure_set - record `status` and a printf-style sentence; returns `status`. Never allocates. */
enum kvt_status failure_set(enum kvt_status status, int foreign_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * failure_errno - translate an errno value (positive) and record "<what> <path>: <strerror>".
 *
 * ENOENT gives KVT_MISS, EEXIST KVT_EXISTS, ENOMEM KVT_E_NOMEM, ENOSPC/EDQUOT KVT_E_NOSPC,
 * EACCES/EPERM KVT_E_PERMISSION, EROFS KVT_E_READONLY, EINVAL/ENAMETOOLONG/ENOTDIR/ELOOP
 * KVT_E_INVAL, EAGAIN/EBUSY KVT_E_BUSY, ENOSYS/EOPNOTSUPP KVT_E_UNSUPPORTED, the rest KVT_E_IO.
 */
enum kvt_status failure_errno(int error, const char *what, const char *path);

/* failure_last - this thread's record; valid until its next failure_set(). Never NULL. */
const struct failure *failure_last(void);

/* failure_lacks_descriptor - of the last failure: this process, or the system, has none left, which
 * says nothing about the file that was to be opened. */
bool failure_lacks_descriptor(void);

/* failure_copy - make `source` (from another thread) this thread's record. */
void failure_copy(const struct failure *source);

void failure_clear(void);

/*
 * proof_failed - a proof turned out false. Debug builds and tests abort; a release build calls
 * the handler (the engine poisons the store there) and goes on.
 */
void proof_failed(const char *expression, const char *file, int line);
typedef void (*proof_handler_fn)(void *context, const char *expression, const char *file, int line);
struct proof_handler {
    proof_handler_fn call; /* NULL: none. */
    void *context;
};

/* proof_handler_set - of the calling thread; returns the one before. A thread that env.sched starts
 * has that of the thread which started it. */
struct proof_handler proof_handler_set(struct proof_handler handler);
struct proof_handler proof_handler_get(void);

/* KVT_ASSERT - we have a proof. KVT_ASSERT_SLOW - the same, not constant time. */
#define KVT_ASSERT(x) ((x) ? (void)0 : proof_failed(#x, __FILE__, __LINE__))
#ifdef NDEBUG
#    define KVT_ASSERT_SLOW(x) ((void)0)
#else
#    define KVT_ASSERT_SLOW(x) KVT_ASSERT(x)
#endif

#endif /* KVT_BASE_FAILURE_H */
