/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_scatter.c - pieces that lie scattered on both sides, beside an image of what must come of
 * them.
 */
#include "device_scatter.h"

#include <stdlib.h>
#include <string.h>

enum {
    AREA_BYTES = RIG_CHUNK_BYTES, /* Of each side. */
    SMALL_ROOM = 512,             /* Of a piece, on both sides. */
    LARGE_ROOM = 32 << 10,
    PIECES_MAX = AREA_BYTES / SMALL_ROOM,
    CALLS = 4,
    UNTOUCHED = 0xEE,
};

/* Pieces between two areas, a room each; the rooms of the target are taken in another order. */
struct scatter {
    struct device_piece pieces[PIECES_MAX];
    uint32_t count;
    uint8_t image[AREA_BYTES]; /* What the target must be. */
};

/* `shadow` has the source's bytes, where the host can read them. */
static void
scatter_make(struct scatter *scatter, uint8_t *target, const uint8_t *source, const uint8_t *shadow,
    uint32_t room)
{
    scatter->count = AREA_BYTES / room;
    memset(scatter->image, UNTOUCHED, AREA_BYTES);
    for (uint32_t i = 0; i < scatter->count; i++) {
        /* Sizes and distances of all kinds, among them many that are alike. */
        uint32_t size = 1 + i * 2654435761u % (room - 40);
        uint32_t from = i * room + i * 7 % 37;
        uint32_t to = (i * 181 + 5) % scatter->count * room + (i % 3 == 0 ? i * 7 % 37 : i % 40);

        scatter->pieces[i] = (struct device_piece){target + to, source + from, size};
        memcpy(scatter->image + to, shadow + from, size);
    }
}

static bool
scatter_queue(struct device_rig *rig, void *stream, const struct scatter *scatter, uint32_t call)
{
    uint32_t share = scatter->count / CALLS;

    return rig->ops->copy(rig->device, stream, scatter->pieces + call * share, share) == KVT_OK;
}

/* The device's area is made untouched, or like the host's. */
static bool
area_fill(struct device_rig *rig, uint8_t *area, const uint8_t *host)
{
    RIG_CHECK(device_rig_copy(rig, rig->in, area, host, AREA_BYTES) == KVT_OK);
    return device_rig_drain(rig, rig->in);
}

/* Without a first difference in a message nobody finds it. */
static bool
area_is(const uint8_t *area, const struct scatter *scatter)
{
    for (uint32_t i = 0; i < AREA_BYTES; i++)
        RIG_CHECK(area[i] == scatter->image[i]);
    return true;
}

static bool
both_ways_run(struct device_rig *rig, struct scatter *in, struct scatter *out)
{
    uint8_t *given = rig->host;
    uint8_t *taken = rig->host + AREA_BYTES;
    uint8_t *back = rig->host + 2 * AREA_BYTES;
    uint8_t *area_in = rig->slab;
    uint8_t *area_out = rig->slab + AREA_BYTES;

    device_rig_fill(given, AREA_BYTES, 11);
    memset(taken, UNTOUCHED, AREA_BYTES);
    RIG_CHECK(area_fill(rig, area_in, taken) && area_fill(rig, area_out, given));
    scatter_make(in, area_in, given, given, SMALL_ROOM);
    scatter_make(out, taken, area_out, given, SMALL_ROOM);
    for (uint32_t i = 0; i < CALLS; i++) {
        RIG_CHECK(scatter_queue(rig, rig->in, in, i));
        RIG_CHECK(scatter_queue(rig, rig->out, out, i));
    }
    RIG_CHECK(device_rig_drain(rig, rig->in) && device_rig_drain(rig, rig->out));
    RIG_CHECK(device_rig_copy(rig, rig->out, back, area_in, AREA_BYTES) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    return area_is(back, in) && area_is(taken, out) && device_rig_is_filled(given, AREA_BYTES, 11);
}

bool
odd_pieces_go_both_ways_at_once(struct device_rig *rig)
{
    struct scatter *scatters = calloc(2, sizeof(*scatters));
    bool is_right = false;

    if (scatters != NULL)
        is_right = both_ways_run(rig, &scatters[0], &scatters[1]);
    free(scatters);
    RIG_CHECK(is_right);
    return true;
}

static bool
within_run(struct device_rig *rig, struct scatter *scatter)
{
    uint8_t *given = rig->host;
    uint8_t *back = rig->host + AREA_BYTES;
    uint8_t *area = rig->slab_other;

    for (uint32_t room = SMALL_ROOM; room <= LARGE_ROOM; room *= 8) {
        device_rig_fill(given, AREA_BYTES, room);
        memset(back, UNTOUCHED, AREA_BYTES);
        RIG_CHECK(area_fill(rig, rig->slab, given) && area_fill(rig, area, back));
        scatter_make(scatter, area, rig->slab, given, room);
        for (uint32_t i = 0; i < CALLS; i++)
            RIG_CHECK(scatter_queue(rig, rig->out, scatter, i));
        RIG_CHECK(device_rig_copy(rig, rig->out, back, area, AREA_BYTES) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, rig->out));
        RIG_CHECK(area_is(back, scatter));
    }
    return true;
}

bool
odd_pieces_within_the_device_arrive(struct device_rig *rig)
{
    struct scatter *scatter = calloc(1, sizeof(*scatter));
    bool is_right = scatter != NULL && within_run(rig, scatter);

    free(scatter);
    RIG_CHECK(is_right);
    return true;
}
