/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h - kvt_list() in a world of the caller's making.
 */
#ifndef KVT_ENGINE_LISTING_H
#define KVT_ENGINE_LISTING_H

#include "env.h"
#include "kvtier/kvtier_unstable.h"

/* Who is shown each block; non-zero ends it. */
struct list_visitor {
    int (*visit)(void *context, const struct kvt_scan_entry *entry, const char *name);
    void *context;
};

enum kvt_status list_in(const struct kvt_env *env, const char *path, const char *namespace_name,
    const struct list_visitor *visitor);

#endif /* KVT_ENGINE_LISTING_H */
