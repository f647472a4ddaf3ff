/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - see window.h.
 */
#include "window.h"

#include "store_internal.h"

enum {
    HOST_SHARE = 4,
};

void
window_init(const struct kvt_store *store, struct window *window, uint64_t bytes_max)
{
    uint64_t share = slab_capacity(store->slab) / HOST_SHARE;

    window->bytes_max = share < bytes_max ? share : bytes_max;
}

bool
window_waits(struct window *window, struct op *op)
{
    if (window->bytes < window->bytes_max)
        return false;
    op_list_add(&window->waiters, op);
    return true;
}

/* One that fails at once comes back here: then the others are begun from where it was. */
void
window_restart(struct kvt_store *store, struct window *window)
{
    struct op *op;

    if (window->is_restarting)
        return;
    window->is_restarting = true;
    while (window->bytes < window->bytes_max && (op = op_list_take(&window->waiters)) != NULL)
        op_begin(store, op);
    window->is_restarting = false;
}
