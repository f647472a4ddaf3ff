/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop_on_proof.h - let a false proof stop a test in release builds too, where it only calls a
 * handler. Debug builds stop by themselves. A test that wants to see a proof fail counts instead.
 */
#ifndef KVT_TESTS_STOP_ON_PROOF_H
#define KVT_TESTS_STOP_ON_PROOF_H

#include <stdio.h>
#include <stdlib.h>

#include "failure.h"

static inline void
stop_on_proof_handler(void *context, const char *expression, const char *file, int line)
{
    (void)context;
    (void)fprintf(stderr, "%s:%d: a proof is false: %s\n", file, line, expression);
    abort();
}

/* stop_on_proof - for the calling thread. */
static inline void
stop_on_proof(void)
{
    (void)proof_handler_set((struct proof_handler){stop_on_proof_handler, NULL});
}

#endif /* KVT_TESTS_STOP_ON_PROOF_H */
