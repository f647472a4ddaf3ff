/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codecs.h - a codec for each worker that wants one, made when it is first wanted.
 *
 * Threads   codecs_take(), codecs_put() any; the rest whoever owns the pool, with nothing taken.
 */
#ifndef KVT_ENGINE_CODECS_H
#define KVT_ENGINE_CODECS_H

#include <stdatomic.h>

#include "codec.h"

enum {
    CODECS_MAX = 64, /* As many as workers. */
};

struct codec_place {
    _Atomic uint32_t is_taken;
    struct codec *codec; /* NULL: not made yet. Of whoever has taken the place. */
};

struct codecs {
    const struct kvt_env *env;
    uint64_t part_bytes_max;
    struct codec_place places[CODECS_MAX];
};

void codecs_init(struct codecs *codecs, const struct kvt_env *env, uint64_t part_bytes_max);
void codecs_deinit(struct codecs *codecs);

/* codecs_take - a place with a codec that nobody else uses until codecs_put(); NULL: no memory. */
struct codec_place *codecs_take(struct codecs *codecs);
void codecs_put(struct codec_place *place);

#endif /* KVT_ENGINE_CODECS_H */
