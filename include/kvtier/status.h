/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.h - every status code kvtier can return. Part of the public interface.
 *
 * One enum serves the whole library. A value below zero is an error; zero is success; a value
 * above zero is an outcome that is not an error (the question had another answer). A status never
 * carries a count, a size or an errno: those travel through out-parameters and kvt_last_error().
 *
 * Values are pinned. A number is never reused and never changes meaning; retired codes keep their
 * slot with a comment. New codes are appended inside their class's band.
 */
#ifndef KVTIER_STATUS_H
#define KVTIER_STATUS_H

#if defined(__GNUC__)
#    define KVT_API __attribute__((visibility("default")))
#    define KVT_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#    define KVT_API
#    define KVT_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum kvt_status {
    KVT_OK = 0,

    /* Outcomes. Not errors; never logged above debug. */
    KVT_MISS = 1,      /* No tier holds a valid copy of the block; or: no such file or record. */
    KVT_LATE = 2,      /* The deadline passed first; the work goes on without the caller. */
    KVT_EXISTS = 3,    /* The thing was already there and nothing was changed. */
    KVT_NOT_READY = 4, /* Not finished yet. */
    KVT_CANCELLED = 5, /* Given up before it began, because the caller asked for that. */
    KVT_OVERRUN = 6,   /* The reader was too slow: what it wanted next is gone. */

    /* -100..-199 caller: the call was wrong. Retrying unchanged cannot help. */
    KVT_E_INVAL = -100,       /* An argument breaks its documented rule. */
    KVT_E_UNSUPPORTED = -101, /* Well formed, but this build or this hardware lacks it. */
    KVT_E_STATE = -102,       /* Right call, wrong time (for example: close with leases out). */
    KVT_E_LOCKED = -103,      /* Another owner has the store open. */
    KVT_E_PERMISSION = -104,  /* The operating system denies access to a file or directory. */

    /* -200..-299 limit: a configured bound was reached. Retry once pressure drops. */
    KVT_E_NOMEM = -200, /* Host memory. */
    KVT_E_NOSPC = -201, /* Every slot of the tier is leased or in flight, or the disk is full. */
    KVT_E_BUSY = -202,  /* A queue with a fixed depth is full. */

    /* -300..-399 device: an operation below us failed. The detail names the layer and its code. */
    KVT_E_IO = -300,
    KVT_E_GPU = -301,
    KVT_E_META = -302,     /* LMDB failed, or the store no longer accepts commits. */
    KVT_E_READONLY = -303, /* The store or its file system takes no writes. */

    /* -400..-499 data: bytes on a device are not ours. A lookup answers KVT_MISS instead. */
    KVT_E_CORRUPT = -400,
    KVT_E_FORMAT = -401, /* Valid, but written by a version this build does not read. */

    /* -900 fatal: an invariant broke. The store refuses work until it is closed. */
    KVT_E_POISONED = -900,
};

/*
 * kvt_status_name - the enumerator's own spelling, for example "KVT_E_NOSPC".
 *
 * Never NULL: an unknown value gives "KVT_?". The string is static; do not free it.
 * Threads: any. Ownership: nothing changes hands. Blocks: never.
 */
KVT_API const char *kvt_status_name(enum kvt_status status);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_STATUS_H */
