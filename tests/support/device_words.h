/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_words.h - checks of streams that wait for a word: a part of the list in device_checks.c.
 */
#ifndef KVT_TESTS_DEVICE_WORDS_H
#define KVT_TESTS_DEVICE_WORDS_H

#include "device_rig.h"

bool stream_waits_for_a_word(struct device_rig *rig);
bool word_that_is_beyond_its_value_is_reached(struct device_rig *rig);
bool what_is_no_word_is_refused(struct device_rig *rig);

#endif /* KVT_TESTS_DEVICE_WORDS_H */
