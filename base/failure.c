/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - the calling thread's record of what went wrong last, and what a false proof does.
 *
 * Threads   everything here belongs to the calling thread; nothing is shared.
 *
 * A false proof in a debug build stops the program where it happened: that build is for people who
 * look for mistakes. A release build never stops the host: it records the sentence, calls the
 * thread's handler and goes on. A test of a release build that wants to stop installs a handler
 * that does.
 */
#include "failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thread-local on purpose: a status travels up the same thread's stack, its sentence waits here. */
static _Thread_local struct failure failure_record;
static _Thread_local struct proof_handler proof_handler;

enum kvt_status
failure_set(enum kvt_status status, int foreign_code, const char *format, ...)
{
    /* The arguments may point into the record (a sentence built around the last one). */
    char text[FAILURE_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    if (vsnprintf(text, sizeof(text), format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    failure_record.status = status;
    failure_record.foreign_code = foreign_code;
    memcpy(failure_record.text, text, sizeof(text));
    return status;
}

static enum kvt_status
status_from_errno(int error)
{
    switch (error) {
    case ENOENT:
        return KVT_MISS;
    case EEXIST:
        return KVT_EXISTS;
    case ENOMEM:
        return KVT_E_NOMEM;
    case ENOSPC:
    case EDQUOT:
        return KVT_E_NOSPC;
    case EACCES:
    case EPERM:
        return KVT_E_PERMISSION;
    case EROFS:
        return KVT_E_READONLY;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case ELOOP:
        return KVT_E_INVAL;
    case EAGAIN:
    case EBUSY:
        return KVT_E_BUSY;
    case ENOSYS:
    case EOPNOTSUPP:
        return KVT_E_UNSUPPORTED;
    default:
        return KVT_E_IO;
    }
}

enum kvt_status
failure_errno(int error, const char *what, const char *path)
{
    char buffer[96];
    const char *reason = strerror_r(error, buffer, sizeof(buffer));

    return failure_set(status_from_errno(error), error, "%s%s%s: %s", what, path == NULL ? "" : " ",
        path == NULL ? "" : path, reason);
}

const struct failure *
failure_last(void)
{
    return &failure_record;
}

bool
failure_lacks_descriptor(void)
{
    return failure_record.foreign_code == EMFILE || failure_record.foreign_code == ENFILE;
}

void
failure_copy(const struct failure *source)
{
    /* `source` may be this thread's own record: memmove. */
    memmove(&failure_record, source, sizeof(failure_record));
}

void
failure_clear(void)
{
    failure_record = (struct failure){.status = KVT_OK};
}

struct proof_handler
proof_handler_set(struct proof_handler handler)
{
    struct proof_handler before = proof_handler;

    proof_handler = handler;
    return before;
}

struct proof_handler
proof_handler_get(void)
{
    return proof_handler;
}

void
proof_failed(const char *expression, const char *file, int line)
{
    (void)failure_set(KVT_E_POISONED, 0, "A proof is false: %s (%s:%d).", expression, file, line);
#ifdef NDEBUG
    if (proof_handler.call != NULL)
        proof_handler.call(proof_handler.context, expression, file, line);
#else
    (void)fprintf(stderr, "%s\n", failure_record.text);
    abort();
#endif
}
