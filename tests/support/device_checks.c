/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_checks.c - what every implementation of struct kvt_device_ops must do, as a list.
 */
#include "device_checks.h"

#include <pthread.h>
#include <string.h>

#include "device_scatter.h"
#include "device_words.h"
#include "failure.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
};

/* --- 1. Copies -------------------------------------------------------------------------------- */

static bool
device_says_what_it_is(struct device_rig *rig)
{
    struct device_info info = {0};
    uint32_t count = 0;

    RIG_CHECK(rig->ops->count(rig->context, &count) == KVT_OK && count >= 1);
    RIG_CHECK(rig->ops->info(rig->device, &info) == KVT_OK);
    RIG_CHECK(info.name[0] != '\0' && memchr(info.name, '\0', sizeof(info.name)) != NULL);
    RIG_CHECK(info.memory_bytes >= info.free_bytes);
    RIG_CHECK(info.memory_bytes - info.free_bytes >= RIG_SLAB_BYTES);
    return true;
}

static bool
bytes_go_in_around_and_out(struct device_rig *rig)
{
    for (uint32_t round = 0; round < 2; round++) {
        void *stream = round == 0 ? rig->in : rig->out;
        uint64_t size = 300 * KIB;

        device_rig_fill(rig->host, size, round);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, size) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, rig->in));
        RIG_CHECK(device_rig_copy(rig, stream, rig->slab_other + 4096, rig->slab, size) == KVT_OK);
        RIG_CHECK(
            device_rig_copy(rig, stream, rig->slab + MIB, rig->slab_other + 4096, size) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, stream));
        RIG_CHECK(device_rig_copy(rig, rig->out, rig->host + MIB, rig->slab + MIB, size) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, rig->out));
        RIG_CHECK(device_rig_is_filled(rig->host + MIB, size, round));
        /* The source is what it was. */
        RIG_CHECK(device_rig_is_filled(rig->host, size, round));
    }
    return true;
}

/* Host memory out at odd places and sizes, back to others; what lies between is not touched. */
static bool
many_pieces_arrive_and_nothing_else(struct device_rig *rig)
{
    enum {
        COUNT = 257,
        ROOM = 4096, /* Of a piece, on both sides. */
    };
    static struct device_piece pieces[COUNT];
    struct device_piece first;
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t size = 1 + (i * 37) % (ROOM - 64);

        device_rig_fill(rig->host + i * ROOM + i % 11, size, i);
        pieces[i] = (struct device_piece){
            rig->slab + (COUNT - 1 - i) * ROOM + i % 13, rig->host + i * ROOM + i % 11, size};
    }
    RIG_CHECK(rig->ops->copy(rig->device, rig->in, pieces, COUNT) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    memset(back, 0xEE, COUNT * ROOM);
    for (uint32_t i = 0; i < COUNT; i++) {
        pieces[i].source = pieces[i].target;
        pieces[i].target = back + i * ROOM + 1 + i % 17;
    }
    RIG_CHECK(rig->ops->copy(rig->device, rig->out, pieces, COUNT) == KVT_OK);
    /* Read during the call only. */
    first = pieces[0];
    memset(&pieces[0], 0, sizeof(pieces[0]));
    RIG_CHECK(device_rig_drain(rig, rig->out));
    pieces[0] = first;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t *target = pieces[i].target;
        uint64_t end = (uint64_t)(target - (back + i * ROOM)) + pieces[i].size;

        RIG_CHECK(device_rig_is_filled(target, pieces[i].size, i));
        for (uint8_t *at = back + i * ROOM; at < target; at++)
            RIG_CHECK(*at == 0xEE);
        for (uint64_t at = end; at < ROOM; at++)
            RIG_CHECK(back[i * ROOM + at] == 0xEE);
    }
    return true;
}

static bool
odd_sizes_at_odd_places_arrive(struct device_rig *rig)
{
    static const uint64_t sizes[] = {1, 3, 7, 8, 9, 15, 63, 64, 65, 4095, 4097, 131071, 600001};
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t size = sizes[i];

        for (uint32_t shift = 1; shift < 8; shift += 2) {
            memset(back, 0xEE, size + 64);
            device_rig_fill(rig->host + 8 - shift, size, size + shift);
            RIG_CHECK(device_rig_copy(
                          rig, rig->in, rig->slab + shift, rig->host + 8 - shift, size) == KVT_OK);
            RIG_CHECK(device_rig_drain(rig, rig->in));
            RIG_CHECK(device_rig_copy(
                          rig, rig->out, back + 16 + shift / 2, rig->slab + shift, size) == KVT_OK);
            RIG_CHECK(device_rig_drain(rig, rig->out));
            RIG_CHECK(device_rig_is_filled(back + 16 + shift / 2, size, size + shift));
            RIG_CHECK(back[15 + shift / 2] == 0xEE && back[16 + shift / 2 + size] == 0xEE);
        }
    }
    return true;
}

/* The whole of a registration and of a slab, up to the last byte. */
static bool
pieces_may_reach_every_end(struct device_rig *rig)
{
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    device_rig_fill(rig->host, RIG_CHUNK_BYTES, 5);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab_other, rig->host, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(device_rig_copy(rig, rig->out, back, rig->slab_other, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    RIG_CHECK(device_rig_is_filled(back, RIG_CHUNK_BYTES, 5));
    return true;
}

/* --- 2. Order --------------------------------------------------------------------------------- */

/* One place of the device is written and read again and again: nothing is waited for. */
static bool
work_of_one_stream_keeps_its_order(struct device_rig *rig)
{
    enum {
        COUNT = 24,
        SIZE = 40 * KIB,
    };
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    for (uint32_t i = 0; i < COUNT; i++) {
        device_rig_fill(rig->host + i * SIZE, SIZE, i);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host + i * SIZE, SIZE) == KVT_OK);
        RIG_CHECK(
            device_rig_copy(rig, rig->in, rig->slab + MIB + i * SIZE, rig->slab, SIZE) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, back + i * SIZE, rig->slab, SIZE) == KVT_OK);
    }
    RIG_CHECK(device_rig_drain(rig, rig->in));
    for (uint32_t i = 0; i < COUNT; i++)
        RIG_CHECK(device_rig_is_filled(back + i * SIZE, SIZE, i));
    RIG_CHECK(device_rig_copy(rig, rig->out, rig->host, rig->slab + MIB, COUNT * SIZE) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    for (uint32_t i = 0; i < COUNT; i++)
        RIG_CHECK(device_rig_is_filled(rig->host + i * SIZE, SIZE, i));
    return true;
}

/* A slot is filled by one stream and emptied by the other, again and again. */
static bool
streams_wait_for_each_other(struct device_rig *rig)
{
    enum {
        COUNT = 16,
        SIZE = 64 * KIB,
    };
    const struct kvt_device_ops *ops = rig->ops;
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    void *filled = NULL;
    void *emptied = NULL;

    RIG_CHECK(ops->event_create(rig->device, &filled) == KVT_OK);
    RIG_CHECK(ops->event_create(rig->device, &emptied) == KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        device_rig_fill(rig->host + i * SIZE, SIZE, i);
        /* Never recorded in the first round: counts as reached. */
        RIG_CHECK(ops->stream_wait(rig->device, rig->in, emptied) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host + i * SIZE, SIZE) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, filled, rig->in) == KVT_OK);
        RIG_CHECK(ops->stream_wait(rig->device, rig->out, filled) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->out, back + i * SIZE, rig->slab, SIZE) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, emptied, rig->out) == KVT_OK);
    }
    RIG_CHECK(device_rig_await(rig, emptied));
    /* That is behind all of the other stream's work, too. */
    RIG_CHECK(ops->event_query(rig->device, filled) == KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        RIG_CHECK(device_rig_is_filled(back + i * SIZE, SIZE, i));
    ops->event_destroy(rig->device, filled);
    ops->event_destroy(rig->device, emptied);
    return true;
}

static bool
event_never_recorded_counts_as_reached(struct device_rig *rig)
{
    RIG_CHECK(rig->ops->event_query(rig->device, rig->event) == KVT_OK);
    RIG_CHECK(rig->ops->stream_wait(rig->device, rig->in, rig->event) == KVT_OK);
    RIG_CHECK(rig->ops->stream_wait(rig->device, rig->out, rig->event) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in) && device_rig_drain(rig, rig->out));
    /* A stream without work is at its end. */
    return true;
}

static bool
last_record_of_an_event_counts(struct device_rig *rig)
{
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    for (uint32_t i = 0; i < 20; i++) {
        uint64_t size = 200 * KIB + i;

        device_rig_fill(rig->host, size, i);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, 64) == KVT_OK);
        RIG_CHECK(rig->ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
        if (i % 2 == 0)
            RIG_CHECK(device_rig_await(rig, rig->event));
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, size) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, back, rig->slab, size) == KVT_OK);
        RIG_CHECK(rig->ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
        RIG_CHECK(device_rig_await(rig, rig->event));
        RIG_CHECK(device_rig_is_filled(back, size, i));
    }
    return true;
}

/* With any other record than that of its moment the two streams would wait for each other. */
static bool
wait_keeps_to_the_record_of_its_moment(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    void *behind = NULL;

    RIG_CHECK(ops->event_create(rig->device, &behind) == KVT_OK);
    device_rig_fill(rig->host, MIB, 1);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
    RIG_CHECK(ops->stream_wait(rig->device, rig->out, rig->event) == KVT_OK);
    RIG_CHECK(device_rig_copy(rig, rig->out, back, rig->slab, MIB) == KVT_OK);
    RIG_CHECK(ops->event_record(rig->device, behind, rig->out) == KVT_OK);
    RIG_CHECK(ops->stream_wait(rig->device, rig->in, behind) == KVT_OK);
    RIG_CHECK(ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
    RIG_CHECK(device_rig_await(rig, rig->event));
    RIG_CHECK(device_rig_is_filled(back, MIB, 1));
    ops->event_destroy(rig->device, behind);
    return true;
}

/* Of an event, and of a device whose streams still wait for one another. */
static bool
event_may_be_destroyed_before_it_is_reached(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;

    device_rig_fill(rig->host, MIB, 3);
    for (uint32_t i = 0; i < 8; i++) {
        void *event = NULL;

        RIG_CHECK(ops->event_create(rig->device, &event) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, MIB) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, event, rig->in) == KVT_OK);
        RIG_CHECK(ops->stream_wait(rig->device, rig->out, event) == KVT_OK);
        ops->event_destroy(rig->device, event);
    }
    ops->event_destroy(rig->device, NULL);
    RIG_CHECK(device_rig_copy(rig, rig->out, back, rig->slab, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    RIG_CHECK(device_rig_is_filled(back, MIB, 3));
    /* Records that nobody waits for are closed over. */
    for (uint32_t i = 0; i < 8; i++) {
        RIG_CHECK(ops->event_record(rig->device, rig->event, i % 2 ? rig->in : rig->out) == KVT_OK);
        RIG_CHECK(ops->stream_wait(rig->device, i % 2 ? rig->out : rig->in, rig->event) == KVT_OK);
    }
    return true;
}

/* --- 3. Refusals ------------------------------------------------------------------------------ */

static bool
is_refused(struct device_rig *rig, void *target, const void *source, uint64_t size)
{
    failure_clear();
    RIG_CHECK(device_rig_copy(rig, rig->in, target, source, size) == KVT_E_INVAL);
    RIG_CHECK(failure_last()->status == KVT_E_INVAL && failure_last()->text[0] != '\0');
    return true;
}

static bool
copy_outside_the_devices_memory_is_refused(struct device_rig *rig)
{
    uint8_t *unregistered = rig->host + RIG_HOST_BYTES - RIG_CHUNK_BYTES;
    uint8_t *slab_end = rig->slab + RIG_SLAB_BYTES;
    const struct device_piece good_and_bad[] = {
        {rig->slab, rig->host, 4096},
        {rig->slab + 4096, unregistered, 4096},
    };

    RIG_CHECK(is_refused(rig, rig->slab, unregistered, 4096));
    RIG_CHECK(is_refused(rig, unregistered, rig->slab, 4096));
    RIG_CHECK(is_refused(rig, rig->slab, unregistered - 1, 2));
    /* Two registrations that touch are two. */
    RIG_CHECK(is_refused(rig, rig->slab, rig->host + RIG_CHUNK_BYTES - 1, 2));
    RIG_CHECK(is_refused(rig, rig->host + RIG_CHUNK_BYTES - 4096, rig->slab, 4097));
    RIG_CHECK(is_refused(rig, slab_end - 1, rig->host, 2));
    RIG_CHECK(is_refused(rig, rig->host, slab_end - 4095, 4096));
    RIG_CHECK(is_refused(rig, slab_end, rig->host, UINT64_MAX));
    RIG_CHECK(is_refused(rig, rig->slab, rig->host, UINT64_MAX));
    RIG_CHECK(is_refused(rig, rig->slab, rig->host, 0));
    RIG_CHECK(is_refused(rig, NULL, rig->host, 4096));
    RIG_CHECK(is_refused(rig, rig->slab, NULL, 4096));
    RIG_CHECK(rig->ops->copy(rig->device, rig->in, good_and_bad, 0) == KVT_E_INVAL);
    RIG_CHECK(rig->ops->copy(rig->device, rig->in, NULL, 1) == KVT_E_INVAL);
    /* One bad piece, and none of them is queued. */
    device_rig_fill(rig->host, 8192, 7);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host + 4096, 4096) == KVT_OK);
    RIG_CHECK(rig->ops->copy(rig->device, rig->in, good_and_bad, 2) == KVT_E_INVAL);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->host + MIB, rig->slab, 4096) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(memcmp(rig->host + MIB, rig->host + 4096, 4096) == 0);
    return true;
}

static bool
null_stream_and_null_event_are_refused(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    const struct device_piece piece = {rig->slab, rig->host, 4096};

    RIG_CHECK(ops->copy(rig->device, NULL, &piece, 1) == KVT_E_INVAL);
    RIG_CHECK(ops->event_record(rig->device, rig->event, NULL) == KVT_E_INVAL);
    RIG_CHECK(ops->event_record(rig->device, NULL, rig->in) == KVT_E_INVAL);
    RIG_CHECK(ops->stream_wait(rig->device, NULL, rig->event) == KVT_E_INVAL);
    RIG_CHECK(ops->stream_wait(rig->device, rig->in, NULL) == KVT_E_INVAL);
    RIG_CHECK(ops->event_query(rig->device, NULL) == KVT_E_INVAL);
    return true;
}

static bool
foreign_streams_and_events_are_refused(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    const struct device_piece piece = {rig->slab, rig->host, 4096};
    struct device *other = NULL;
    void *event = NULL;
    void *foreign[3];

    RIG_CHECK(ops->open(rig->context, rig->env, 0, &other) == KVT_OK);
    RIG_CHECK(ops->event_create(other, &event) == KVT_OK);
    foreign[0] = ops->stream(other, DEVICE_IN);
    foreign[1] = rig->event;
    foreign[2] = rig->slab;
    for (uint32_t i = 0; i < 3; i++) {
        RIG_CHECK(ops->copy(rig->device, foreign[i], &piece, 1) == KVT_E_INVAL);
        RIG_CHECK(ops->event_record(rig->device, rig->event, foreign[i]) == KVT_E_INVAL);
        RIG_CHECK(ops->stream_wait(rig->device, foreign[i], rig->event) == KVT_E_INVAL);
    }
    foreign[0] = event;
    foreign[1] = rig->in;
    foreign[2] = (uint8_t *)rig->event + 1;
    for (uint32_t i = 0; i < 3; i++) {
        RIG_CHECK(ops->event_record(rig->device, foreign[i], rig->in) == KVT_E_INVAL);
        RIG_CHECK(ops->stream_wait(rig->device, rig->in, foreign[i]) == KVT_E_INVAL);
        RIG_CHECK(ops->event_query(rig->device, foreign[i]) == KVT_E_INVAL);
    }
    /* Nor may a copy look into an event. */
    RIG_CHECK(is_refused(rig, rig->slab, rig->event, 8));
    RIG_CHECK(is_refused(rig, rig->event, rig->slab, 8));
    ops->event_destroy(other, event);
    RIG_CHECK(ops->event_query(other, event) == KVT_E_INVAL);
    ops->close(other);
    return true;
}

static bool
pieces_that_overlap_are_refused(struct device_rig *rig)
{
    uint8_t *slab = rig->slab;
    uint8_t *host = rig->host;
    struct device_piece pieces[][3] = {
        /* Two targets, by one byte; the same target; one inside another. */
        {{slab, host, 4096}, {slab + 8192, host + 8192, 10}, {slab + 4095, host + 4096, 10}},
        {{slab, host, 4096}, {slab + 8192, host + 8192, 10}, {slab, host + 4096, 4096}},
        {{slab, host, 4096}, {slab + 8192, host + 8192, 10}, {slab + 10, host + 4096, 10}},
        /* A target is another piece's source, or its own. */
        {{slab, slab + 65536, 4096}, {slab + 8192, host, 10}, {slab + 65636, host + 64, 9}},
        {{slab, slab + 65536, 4096}, {slab + 8192, host, 10}, {slab + 65536 + 4095, host, 1}},
        {{slab, slab + 65536, 4096}, {slab + 8192, host, 10}, {slab + 65530, host, 7}},
        {{slab, host, 4096}, {slab + 8192, host + 8192, 10}, {slab + 65536, slab + 65536, 1}},
        {{slab, host, 4096}, {slab + 8192, host + 8192, 10}, {slab + 65536, slab + 65530, 7}},
    };
    const struct device_piece touching[] = {
        {slab, host, 4096},
        {slab + 4096, host, 4096},
        {host + 8192, slab + 8192, 4096},
        {slab + 12288, host + 12288, 1},
    };

    for (uint32_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        RIG_CHECK(rig->ops->copy(rig->device, rig->in, pieces[i], 3) == KVT_E_INVAL);
    /* What only touches, and what is read twice, is no overlap. */
    RIG_CHECK(rig->ops->copy(rig->device, rig->in, touching, 4) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    return true;
}

static bool
bad_registrations_are_refused(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    uint8_t *free_chunk = rig->host + RIG_HOST_BYTES - RIG_CHUNK_BYTES;
    void *slab = NULL;

    RIG_CHECK(ops->host_register(rig->device, NULL, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, free_chunk, 0) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, free_chunk + 1, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, free_chunk, 4097) == KVT_E_INVAL);
    RIG_CHECK(
        ops->host_register(rig->device, free_chunk, (UINT64_C(1) << 30) + 4096) == KVT_E_INVAL);
    /* Twice, in part, and around. */
    RIG_CHECK(ops->host_register(rig->device, rig->host, RIG_CHUNK_BYTES) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, rig->host + 4096, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, free_chunk - 4096, 8192) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(rig->device, free_chunk + 8192, 4096) == KVT_OK);
    RIG_CHECK(ops->host_register(rig->device, free_chunk, RIG_CHUNK_BYTES) == KVT_E_INVAL);
    RIG_CHECK(is_refused(rig, rig->slab, free_chunk, 4096));
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, free_chunk + 8192, 4096) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    ops->host_unregister(rig->device, free_chunk + 8192, 4096);
    RIG_CHECK(is_refused(rig, rig->slab, free_chunk + 8192, 4096));
    RIG_CHECK(ops->slab_take(rig->device, 0, &slab) == KVT_E_INVAL && slab == NULL);
    return true;
}

/* `other` has memory that `rig`, too, has registered, and lets go of at first. */
static bool
memory_outlives_one_of_two(struct device_rig *rig, struct device *other)
{
    const struct kvt_device_ops *ops = rig->ops;

    RIG_CHECK(ops->host_register(other, rig->host + 4096, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(other, rig->host, RIG_CHUNK_BYTES + 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->host_register(other, rig->host, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(ops->host_unregister(rig->device, rig->host, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(ops->host_register(rig->device, rig->host + 4096, 4096) == KVT_E_INVAL);
    return true;
}

static bool
memory_is_used_by_the_last(struct device_rig *rig, struct device_rig *other)
{
    void *slab = NULL;
    bool is_right;

    RIG_CHECK(other->ops->slab_take(other->device, RIG_CHUNK_BYTES, &slab) == KVT_OK);
    other->in = other->ops->stream(other->device, DEVICE_IN);
    device_rig_fill(rig->host, 8192, 5);
    is_right = device_rig_copy(other, other->in, slab, rig->host, 8192) == KVT_OK &&
               device_rig_copy(other, other->in, rig->host + MIB, slab, 8192) == KVT_OK &&
               device_rig_drain(other, other->in) && device_rig_is_filled(rig->host + MIB, 8192, 5);
    other->ops->slab_put(other->device, slab, RIG_CHUNK_BYTES);
    return is_right;
}

static bool
host_memory_of_two_devices_stays_until_the_last_lets_go(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    struct device_rig other = *rig;
    bool is_right;

    RIG_CHECK(ops->open(rig->context, rig->env, rig->ordinal, &other.device) == KVT_OK);
    RIG_CHECK(ops->event_create(other.device, &other.event) == KVT_OK);
    is_right =
        memory_outlives_one_of_two(rig, other.device) && memory_is_used_by_the_last(rig, &other);
    RIG_CHECK(ops->host_unregister(other.device, rig->host, RIG_CHUNK_BYTES) == KVT_OK);
    ops->event_destroy(other.device, other.event);
    ops->close(other.device);
    /* Now it can be had in other pieces. */
    RIG_CHECK(ops->host_register(rig->device, rig->host + 4096, 4096) == KVT_OK);
    RIG_CHECK(ops->host_unregister(rig->device, rig->host + 4096, 4096) == KVT_OK);
    RIG_CHECK(ops->host_register(rig->device, rig->host, RIG_CHUNK_BYTES) == KVT_OK);
    return is_right;
}

/* What a program took for itself is used as far as it was registered. */
static bool
foreign_memory_is_checked(struct device_rig *rig, uint8_t *memory)
{
    const struct kvt_device_ops *ops = rig->ops;
    uint8_t *half = memory + MIB;

    RIG_CHECK(is_refused(rig, memory, rig->host, 4096));
    RIG_CHECK(ops->memory_register(rig->device, half, MIB) == KVT_OK);
    RIG_CHECK(is_refused(rig, half - 1, rig->host, 4096));
    RIG_CHECK(ops->memory_register(rig->device, memory, 2 * MIB) == KVT_E_INVAL);
    RIG_CHECK(ops->memory_register(rig->device, half + 100, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->memory_register(rig->device, memory, MIB) == KVT_OK);
    device_rig_fill(rig->host, MIB, 7);
    RIG_CHECK(device_rig_copy(rig, rig->in, half, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_copy(rig, rig->in, memory + 1, half, MIB - 1) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(device_rig_copy(rig, rig->out, rig->host + MIB, memory + 1, MIB - 1) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    RIG_CHECK(memcmp(rig->host + MIB, rig->host, MIB - 1) == 0);
    ops->memory_unregister(rig->device, half, MIB);
    RIG_CHECK(is_refused(rig, half, rig->host, 4096));
    RIG_CHECK(device_rig_copy(rig, rig->in, memory, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    ops->memory_unregister(rig->device, memory, MIB);
    RIG_CHECK(is_refused(rig, memory, rig->host, 4096));
    return true;
}

static bool
memory_of_others_is_used_while_it_is_registered(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    void *memory = NULL;
    bool is_right;

    RIG_CHECK(rig->memory_take(rig->device, 2 * MIB, &memory) == KVT_OK);
    is_right = foreign_memory_is_checked(rig, memory);
    rig->memory_put(rig->device, memory, 2 * MIB);
    RIG_CHECK(is_right);
    /* A slab's memory is the device's anyway, before and after. */
    RIG_CHECK(ops->memory_register(rig->device, rig->slab + 4096, 4096) == KVT_OK);
    RIG_CHECK(ops->memory_register(rig->device, rig->slab, MIB) == KVT_OK);
    ops->memory_unregister(rig->device, rig->slab, MIB);
    ops->memory_unregister(rig->device, rig->slab + 4096, 4096);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(ops->memory_register(rig->device, rig->slab, 0) == KVT_E_INVAL);
    RIG_CHECK(ops->memory_register(rig->device, NULL, 4096) == KVT_E_INVAL);
    RIG_CHECK(ops->memory_register(rig->device, rig->host, 4096) == KVT_E_INVAL);
    return true;
}

/* --- 4. Limits and threads -------------------------------------------------------------------- */

static bool
slabs_are_aligned_and_end_with_the_memory(struct device_rig *rig)
{
    static const uint64_t sizes[] = {1, 4096, (2 << 20) + 1, 5 << 20};
    struct device_info before = {0};
    struct device_info info = {0};
    void *slab = NULL;
    void *none = NULL;

    RIG_CHECK(rig->ops->info(rig->device, &before) == KVT_OK);
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        RIG_CHECK(rig->ops->slab_take(rig->device, sizes[i], &slab) == KVT_OK);
        RIG_CHECK(slab != NULL && (uintptr_t)slab % (2 << 20) == 0);
        RIG_CHECK(is_refused(rig, (uint8_t *)slab + sizes[i], rig->host, 1));
        RIG_CHECK(is_refused(rig, slab, rig->host, sizes[i] + 1));
        rig->ops->slab_put(rig->device, slab, sizes[i]);
        RIG_CHECK(is_refused(rig, slab, rig->host, 1));
    }
    RIG_CHECK(rig->ops->slab_take(rig->device, before.memory_bytes + 1, &none) == KVT_E_NOMEM);
    RIG_CHECK(none == NULL);
    RIG_CHECK(rig->ops->slab_take(rig->device, UINT64_MAX, &none) == KVT_E_NOMEM);
    /* And the device goes on. */
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, 4096) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    if (!rig->is_emulated)
        return true;
    RIG_CHECK(rig->ops->slab_take(rig->device, before.free_bytes, &slab) == KVT_OK);
    RIG_CHECK(rig->ops->info(rig->device, &info) == KVT_OK && info.free_bytes == 0);
    RIG_CHECK(rig->ops->slab_take(rig->device, 1, &none) == KVT_E_NOMEM && none == NULL);
    rig->ops->slab_put(rig->device, slab, before.free_bytes);
    RIG_CHECK(rig->ops->info(rig->device, &info) == KVT_OK);
    RIG_CHECK(info.free_bytes == before.free_bytes);
    return true;
}

struct check_thread {
    struct device_rig *rig;
    pthread_t thread;
    uint32_t index;
    bool is_right;
};

static bool
thread_copies(struct check_thread *self)
{
    enum {
        SIZE = 100 * KIB,
    };
    struct device_rig rig = *self->rig; /* With an event of its own. */
    uint8_t *host = rig.host + self->index * 2 * SIZE;
    uint8_t *slab = rig.slab + self->index * MIB;

    RIG_CHECK(rig.ops->event_create(rig.device, &rig.event) == KVT_OK);
    for (uint32_t i = 0; i < 30; i++) {
        uint64_t number = self->index * 1000 + i;

        device_rig_fill(host, SIZE, number);
        RIG_CHECK(device_rig_copy(&rig, rig.in, slab, host, SIZE) == KVT_OK);
        RIG_CHECK(rig.ops->event_record(rig.device, rig.event, rig.in) == KVT_OK);
        RIG_CHECK(rig.ops->stream_wait(rig.device, rig.out, rig.event) == KVT_OK);
        RIG_CHECK(device_rig_copy(&rig, rig.out, host + SIZE, slab, SIZE) == KVT_OK);
        RIG_CHECK(device_rig_drain(&rig, rig.out));
        RIG_CHECK(device_rig_is_filled(host + SIZE, SIZE, number));
    }
    rig.ops->event_destroy(rig.device, rig.event);
    return true;
}

static void *
thread_main(void *argument)
{
    struct check_thread *self = argument;

    self->is_right = thread_copies(self);
    return NULL;
}

static bool
threads_may_use_one_device(struct device_rig *rig)
{
    enum {
        COUNT = 4,
    };
    struct check_thread threads[COUNT];
    bool is_right = true;

    for (uint32_t i = 0; i < COUNT; i++) {
        threads[i] = (struct check_thread){.rig = rig, .index = i};
        RIG_CHECK(pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]) == 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        is_right = is_right && threads[i].is_right;
    }
    RIG_CHECK(is_right);
    return true;
}

/* --- 5. The list ------------------------------------------------------------------------------ */

#define CHECK(function) .name = #function, .run = function

const struct device_check device_checks[DEVICE_CHECK_COUNT] = {
    {CHECK(device_says_what_it_is)},
    {CHECK(bytes_go_in_around_and_out)},
    {CHECK(many_pieces_arrive_and_nothing_else)},
    {CHECK(odd_sizes_at_odd_places_arrive)},
    {CHECK(odd_pieces_go_both_ways_at_once)},
    {CHECK(odd_pieces_within_the_device_arrive)},
    {CHECK(pieces_may_reach_every_end)},
    {CHECK(work_of_one_stream_keeps_its_order)},
    {CHECK(streams_wait_for_each_other)},
    {CHECK(event_never_recorded_counts_as_reached)},
    {CHECK(last_record_of_an_event_counts)},
    {CHECK(wait_keeps_to_the_record_of_its_moment)},
    {CHECK(event_may_be_destroyed_before_it_is_reached)},
    {CHECK(stream_waits_for_a_word)},
    {CHECK(word_that_is_beyond_its_value_is_reached)},
    {CHECK(what_is_no_word_is_refused)},
    {CHECK(copy_outside_the_devices_memory_is_refused)},
    {CHECK(null_stream_and_null_event_are_refused)},
    {CHECK(foreign_streams_and_events_are_refused), .needs_emulation = true},
    {CHECK(pieces_that_overlap_are_refused), .needs_emulation = true},
    {CHECK(bad_registrations_are_refused)},
    {CHECK(host_memory_of_two_devices_stays_until_the_last_lets_go)},
    {CHECK(memory_of_others_is_used_while_it_is_registered)},
    {CHECK(slabs_are_aligned_and_end_with_the_memory)},
    {CHECK(threads_may_use_one_device), .needs_threads = true},
};

bool
device_check_fits(const struct device_check *check, const struct device_rig *rig)
{
    return (!check->needs_emulation || rig->is_emulated) &&
           (!check->needs_threads || rig->has_threads);
}

bool
device_check_run(const struct device_check *check, struct device_rig *rig)
{
    bool is_right = device_rig_open(rig);

    is_right = is_right && check->run(rig);
    device_rig_close(rig);
    return is_right;
}
