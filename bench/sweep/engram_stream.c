/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_stream.c - see engram_stream.h.
 */
#include "engram_stream.h"

#include <stdlib.h>

#include "complain.h"
#include "pattern.h"

enum {
    HISTORY = 3,
};

bool
engram_stream_open(struct engram_stream *stream, struct engram_bench_rig *rig)
{
    const char *text = rig->plan->text;

    *stream = (struct engram_stream){.rig = rig};
    stream->sequences = calloc(ENGRAM_TOKENS_MAX, sizeof(*stream->sequences));
    stream->cursors = calloc(ENGRAM_TOKENS_MAX, sizeof(*stream->cursors));
    if (stream->sequences == NULL || stream->cursors == NULL) {
        complain("there is no memory for steps");
        return false;
    }
    return text == NULL || engram_text_read(text, &stream->text);
}

void
engram_stream_close(struct engram_stream *stream)
{
    engram_text_free(&stream->text);
    free(stream->sequences);
    free(stream->cursors);
}

void
engram_stream_start(struct engram_stream *stream, uint32_t batch)
{
    for (uint32_t i = 0; i < batch && stream->text.count > 0; i++)
        stream->cursors[i] = HISTORY + (uint32_t)(pattern_mix(i) % (stream->text.count - HISTORY));
}

/* Of text each token goes on where its sequence is. */
bool
engram_stream_plan(struct engram_stream *stream, enum engram_tokens tokens,
    struct engram_step *step, uint32_t batch, uint32_t flags)
{
    struct engram_bench_rig *rig = stream->rig;
    const struct kvt_engram_sequence sequence = {.tokens = rig->tokens, .token_count = batch};

    if (tokens != ENGRAM_TEXT) {
        for (uint32_t i = 0; i < batch; i++)
            rig->tokens[i] = engram_token_next(rig, tokens == ENGRAM_ZIPF);
        return kvt_engram_plan_fill(step->plan, &sequence, 1, flags) == KVT_OK;
    }
    for (uint32_t i = 0; i < batch; i++) {
        uint32_t *cursor = &stream->cursors[i];

        if (++*cursor >= stream->text.count)
            *cursor = HISTORY;
        stream->sequences[i] =
            (struct kvt_engram_sequence){.tokens = stream->text.ids + *cursor - HISTORY,
                .token_count = HISTORY + 1,
                .history_count = HISTORY};
    }
    return kvt_engram_plan_fill(step->plan, stream->sequences, batch, flags) == KVT_OK;
}
