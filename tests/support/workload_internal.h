/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_internal.h - what workload.c (the course of a life) and workload_ops.c (each operation)
 * share.
 */
#ifndef KVT_TESTS_WORKLOAD_INTERNAL_H
#define KVT_TESTS_WORKLOAD_INTERNAL_H

#include "workload.h"

/* Errors are no failures now. */
bool workload_tolerates(const struct workload *work);
/* Tell the model whether a miss is a failure now; before it hears an answer. */
void workload_mood(struct workload *work);
/* A status that a call or a block may not have now is a failure. Returns status == KVT_OK. */
bool workload_expect(struct workload *work, const char *what, enum kvt_status status);
/* Mix an answer into the trace. */
void workload_note(struct workload *work, uint64_t kind, uint64_t fact);

/* The key of a name, and back. False for a key that this test never made (or made as a hash). */
struct kvt_key workload_key(struct model_name name, uint8_t bytes[WORKLOAD_KEY_BYTES]);
bool workload_key_parse(
    const uint8_t *bytes, uint32_t length, uint16_t component, struct model_name *name_out);

struct flight *flight_take(struct workload *work); /* NULL: all are used. */
/* Wait for stage 1 and tell the model. */
void flight_land(struct workload *work, struct flight *flight);
/* Wait for the last stage, tell the model, free the ticket. */
void flight_finish(struct workload *work, struct flight *flight);
bool name_is_busy(const struct workload *work, struct model_name name);

void lease_give_back(struct workload *work, struct held_lease *held);

#endif /* KVT_TESTS_WORKLOAD_INTERNAL_H */
