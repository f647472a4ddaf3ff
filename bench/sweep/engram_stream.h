/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_stream.h - the tokens of decode steps, uniform, by Zipf's law or of text, and the plans of
 * these steps.
 */
#ifndef BENCH_ENGRAM_STREAM_H
#define BENCH_ENGRAM_STREAM_H

#include "engram_rig_bench.h"
#include "engram_text.h"

struct engram_stream {
    struct engram_bench_rig *rig;
    struct engram_text text;
    struct kvt_engram_sequence *sequences; /* Of text: one a token. */
    uint32_t *cursors;
};

/* engram_stream_open - with the text of the rig's plan, if any. False: complained. */
bool engram_stream_open(struct engram_stream *stream, struct engram_bench_rig *rig);
void engram_stream_close(struct engram_stream *stream);

/* engram_stream_start - the same places of the text for each run of so many tokens a step. */
void engram_stream_start(struct engram_stream *stream, uint32_t batch);
/* engram_stream_plan - the next step; `flags` of kvt_engram_plan_fill(). */
bool engram_stream_plan(struct engram_stream *stream, enum engram_tokens tokens,
    struct engram_step *step, uint32_t batch, uint32_t flags);

#endif /* BENCH_ENGRAM_STREAM_H */
