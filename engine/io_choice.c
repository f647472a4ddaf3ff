/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_choice.c - choosing the io engine, and choosing again.
 */
#include "io_choice.h"

#include "io_engines.h"

static void
threads_use(struct kvt_store *store)
{
    store->env.io = &io_threads_ops;
    store->is_threads = true;
    store_health_set(store, KVT_HEALTH_IO_THREADS);
}

enum kvt_status
io_engine_choose(struct kvt_store *store)
{
    enum kvt_status status = KVT_E_UNSUPPORTED;

    store->env.io_context = &store->env;
    if (store->options.io_engine != KVT_IO_THREADS)
        status = io_uring_probe();
    if (status != KVT_OK && store->options.io_engine == KVT_IO_URING)
        return status;
    if (status == KVT_OK)
        store->env.io = &io_uring_ops;
    else
        threads_use(store);
    return KVT_OK;
}

bool
io_engine_fall_back(struct kvt_store *store, enum kvt_status status)
{
    if ((status != KVT_E_NOMEM && status != KVT_E_UNSUPPORTED) ||
        store->options.io_engine != KVT_IO_AUTO || store->env.io != &io_uring_ops)
        return false;
    threads_use(store);
    return true;
}
