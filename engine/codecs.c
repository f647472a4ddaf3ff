/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codecs.c - places that workers take by exchange.
 *
 * (C1) A place's codec is written between a take (acquire) and a put (release) of the place.
 */
#include "codecs.h"

#include <string.h>

void
codecs_init(struct codecs *codecs, const struct kvt_env *env, uint64_t part_bytes_max)
{
    memset(codecs, 0, sizeof(*codecs));
    codecs->env = env;
    codecs->part_bytes_max = part_bytes_max;
}

void
codecs_deinit(struct codecs *codecs)
{
    for (uint32_t i = 0; i < CODECS_MAX; i++) {
        codec_close(codecs->places[i].codec);
        codecs->places[i].codec = NULL;
    }
}

struct codec_place *
codecs_take(struct codecs *codecs)
{
    for (uint32_t i = 0; i < CODECS_MAX; i++) {
        struct codec_place *place = &codecs->places[i];

        /* (C1) acquire: pairs with the release in codecs_put(). */
        if (atomic_exchange_explicit(&place->is_taken, 1, memory_order_acquire) != 0)
            continue;
        if (place->codec != NULL ||
            codec_open(codecs->env, codecs->part_bytes_max, &place->codec) == KVT_OK)
            return place;
        codecs_put(place);
        return NULL;
    }
    return NULL;
}

void
codecs_put(struct codec_place *place)
{
    atomic_store_explicit(&place->is_taken, 0, memory_order_release);
}
