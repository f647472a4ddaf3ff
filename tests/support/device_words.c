/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_words.c - streams that wait for a word in memory of the host.
 */
#include "device_words.h"

#include "failure.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
};

static _Atomic uint32_t *
word_at(struct device_rig *rig, uint64_t offset)
{
    return (_Atomic uint32_t *)(void *)(rig->host + offset);
}

/* Time passes, and the event is not reached. */
static bool
is_held_back(struct device_rig *rig, void *event)
{
    for (uint32_t i = 0; i < 200; i++) {
        RIG_CHECK(rig->ops->event_query(rig->device, event) == KVT_NOT_READY);
        rig->pass(rig);
    }
    return true;
}

/* What the other stream does is not held back. */
bool
stream_waits_for_a_word(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    _Atomic uint32_t *word = word_at(rig, MIB);
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    void *behind = NULL;

    RIG_CHECK(ops->event_create(rig->device, &behind) == KVT_OK);
    for (uint32_t i = 1; i < 20; i++) {
        uint64_t size = 100 * KIB + i;

        device_rig_fill(rig->host, size, i);
        atomic_store_explicit(word, i - 1, memory_order_relaxed);
        RIG_CHECK(ops->stream_wait_word(rig->device, rig->in, word, i) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, size) == KVT_OK);
        RIG_CHECK(device_rig_copy(rig, rig->in, back, rig->slab, size) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, behind, rig->in) == KVT_OK);
        RIG_CHECK(is_held_back(rig, behind));
        RIG_CHECK(device_rig_copy(rig, rig->out, back + MIB, rig->slab_other, size) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, rig->out));
        RIG_CHECK(ops->event_query(rig->device, behind) == KVT_NOT_READY);
        atomic_store_explicit(word, i, memory_order_release);
        RIG_CHECK(device_rig_await(rig, behind));
        RIG_CHECK(device_rig_is_filled(back, size, i));
        /* It is there already: nobody waits. */
        RIG_CHECK(ops->stream_wait_word(rig->device, rig->out, word, i) == KVT_OK);
        RIG_CHECK(device_rig_drain(rig, rig->out));
    }
    ops->event_destroy(rig->device, behind);
    return true;
}

/* Numbers go round: what follows the value counts as reached, what comes before it does not. */
bool
word_that_is_beyond_its_value_is_reached(struct device_rig *rig)
{
    static const struct {
        uint32_t value, before, reached;
    } cases[] = {
        {1, 0, 1},
        {1, 0, 1 + (uint32_t)INT32_MAX},
        {1, UINT32_MAX, 2},
        {3, UINT32_MAX - 1, 4},
        {UINT32_MAX, UINT32_MAX - 1, 0},
        {UINT32_MAX, (uint32_t)INT32_MAX, 5},
    };
    _Atomic uint32_t *word = word_at(rig, MIB + 64);

    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        atomic_store_explicit(word, cases[i].before, memory_order_relaxed);
        RIG_CHECK(rig->ops->stream_wait_word(rig->device, rig->in, word, cases[i].value) == KVT_OK);
        RIG_CHECK(rig->ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
        RIG_CHECK(is_held_back(rig, rig->event));
        atomic_store_explicit(word, cases[i].reached, memory_order_release);
        RIG_CHECK(device_rig_await(rig, rig->event));
    }
    return true;
}

bool
what_is_no_word_is_refused(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    const uint64_t places[] = {RIG_HOST_BYTES - RIG_CHUNK_BYTES, /* Not registered. */
        RIG_HOST_BYTES - RIG_CHUNK_BYTES - 2, 2};
    _Atomic uint32_t *word = word_at(rig, MIB);

    for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        failure_clear();
        RIG_CHECK(
            ops->stream_wait_word(rig->device, rig->in, word_at(rig, places[i]), 0) == KVT_E_INVAL);
        RIG_CHECK(failure_last()->status == KVT_E_INVAL && failure_last()->text[0] != '\0');
    }
    RIG_CHECK(ops->stream_wait_word(rig->device, rig->in, NULL, 0) == KVT_E_INVAL);
    RIG_CHECK(ops->stream_wait_word(
                  rig->device, rig->in, (_Atomic uint32_t *)(void *)rig->slab, 0) == KVT_E_INVAL);
    RIG_CHECK(ops->stream_wait_word(rig->device, NULL, word, 0) == KVT_E_INVAL);
    if (rig->is_emulated)
        RIG_CHECK(ops->stream_wait_word(rig->device, rig->event, word, 0) == KVT_E_INVAL);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    return true;
}
