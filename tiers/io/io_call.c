/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_call.c - see io_call.h.
 */
#include "io_call.h"

#include <errno.h>
#include <unistd.h>

int64_t
io_call(const struct io_op *op)
{
    ssize_t result = -1;

    switch (op->kind) {
    case IO_READ:
        result = preadv(op->file->descriptor, op->pieces, (int)op->piece_count, (off_t)op->offset);
        break;
    case IO_WRITE:
        result = pwritev(op->file->descriptor, op->pieces, (int)op->piece_count, (off_t)op->offset);
        break;
    case IO_SYNC:
        result = fdatasync(op->file->descriptor);
        break;
    }
    return result < 0 ? -errno : result;
}
