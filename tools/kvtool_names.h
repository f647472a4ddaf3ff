/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_names.h - health, counters, latencies and namespaces, printed the same way everywhere.
 */
#ifndef KVTOOL_NAMES_H
#define KVTOOL_NAMES_H

#include "figures.h"

void health_print(uint32_t flags); /* One line, "well" when there is nothing to say. */
void health_print_json(struct json *json, uint32_t flags); /* "health" [...] */

/* Those that are not 0, with their sentence. */
void counters_print(const struct kvt_stats *stats);
void latencies_print(const struct kvt_stats *stats);

void namespace_print(const struct kvt_namespace_info *info);
void namespace_print_json(struct json *json, const struct kvt_namespace_info *info);

#endif /* KVTOOL_NAMES_H */
