/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learned.h - what the policy has learned, in a file, so that a restart does not begin anew.
 *
 * Owns      what stands in DIR/learned (tiers/FORMAT.md 3.8).
 * Not here  when it is written and how (lazy_file.h).
 */
#ifndef KVT_ENGINE_LEARNED_H
#define KVT_ENGINE_LEARNED_H

#include "lazy_file.h"

extern const struct lazy_file_kind learned_file;

#endif /* KVT_ENGINE_LEARNED_H */
