/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - the names of the status codes.
 */
#include "kvtier/status.h"

#define NAME(status) \
    case status:     \
        return #status

const char *
kvt_status_name(enum kvt_status status)
{
    switch (status) {
        NAME(KVT_OK);
        NAME(KVT_MISS);
        NAME(KVT_LATE);
        NAME(KVT_EXISTS);
        NAME(KVT_NOT_READY);
        NAME(KVT_CANCELLED);
        NAME(KVT_OVERRUN);
        NAME(KVT_E_INVAL);
        NAME(KVT_E_UNSUPPORTED);
        NAME(KVT_E_STATE);
        NAME(KVT_E_LOCKED);
        NAME(KVT_E_PERMISSION);
        NAME(KVT_E_NOMEM);
        NAME(KVT_E_NOSPC);
        NAME(KVT_E_BUSY);
        NAME(KVT_E_IO);
        NAME(KVT_E_GPU);
        NAME(KVT_E_META);
        NAME(KVT_E_READONLY);
        NAME(KVT_E_CORRUPT);
        NAME(KVT_E_FORMAT);
        NAME(KVT_E_POISONED);
    }
    return "KVT_?";
}
