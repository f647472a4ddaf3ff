/* SPDX-License-Identifier: Apache-2.0 */
/*
 * try.h - the only two macros that may hide a return or a goto.
 *
 * KVT_TRY(expr)             leave the function with expr's status when it is not KVT_OK.
 *                           For functions that own nothing yet.
 * KVT_TRY_GOTO(expr, label) store expr's status in the local `status` and jump to `label`.
 *                           For functions that own something.
 * status_keep(a, b)         the status to report when `a` came first and clean-up gave `b`:
 *                           the first error wins, except that KVT_E_POISONED always wins.
 */
#ifndef KVT_BASE_TRY_H
#define KVT_BASE_TRY_H

#include "kvtier/status.h"

#define KVT_TRY(expr)                         \
    do {                                      \
        enum kvt_status try_status_ = (expr); \
        if (try_status_ != KVT_OK)            \
            return try_status_;               \
    } while (0)

#define KVT_TRY_GOTO(expr, label) \
    do {                          \
        status = (expr);          \
        if (status != KVT_OK)     \
            goto label;           \
    } while (0)

static inline enum kvt_status
status_keep(enum kvt_status first, enum kvt_status cleanup)
{
    if (cleanup == KVT_E_POISONED || first == KVT_OK)
        return cleanup;
    return first;
}

#endif /* KVT_BASE_TRY_H */
