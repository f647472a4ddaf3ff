/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_kit.h - a model for each test of a group, and reads of one name of it.
 */
#ifndef KVT_TESTS_MODEL_KIT_H
#define KVT_TESTS_MODEL_KIT_H

#include "model.h"

/* Fixtures of cmocka: *state is a struct model with 8 keys in each namespace. */
int model_setup(void **state);
int model_teardown(void **state);

/* model_read_version - a read of the name gave that version's bytes; 0: a miss. */
void model_read_version(struct model *model, struct model_name name, uint32_t version);

#endif /* KVT_TESTS_MODEL_KIT_H */
