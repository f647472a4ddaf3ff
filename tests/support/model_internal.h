/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_internal.h - what model.c and model_chain.c share.
 */
#ifndef KVT_TESTS_MODEL_INTERNAL_H
#define KVT_TESTS_MODEL_INTERNAL_H

#include "model.h"

#define NOTHING MODEL_NOTHING

/* op_of - NULL: it is not kept any more. ops_drop: those before `first` are not. */
struct model_op *op_of(struct model_key *key, uint64_t number);
void ops_drop(struct model_key *key, uint64_t first);

/* Whether the operation is of the name's chain. */
bool chain_has(const struct model_key *key, uint64_t op);
/* chain_hears, chain_saw - an answer of a chain that is not over; what was read may have been any
 * of `states`. False: it is of none. */
bool chain_hears(struct model_key *key, uint64_t op, enum model_outcome outcome);
void chain_saw(struct model_key *key, uint64_t states);
/* chain_narrow - `live` has become less by what was read. */
void chain_narrow(struct model_key *key);
/* chain_ack, chain_ack_present - as model_ack() and model_ack_present(). False: it is of none. */
bool chain_ack(struct model_key *key, uint64_t op);
bool chain_ack_present(struct model_key *key, uint64_t op);
/* chain_forget - one operation that may have left whatever it did takes its place. */
void chain_forget(struct model_key *key);

#endif /* KVT_TESTS_MODEL_INTERNAL_H */
