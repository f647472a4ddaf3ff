/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_kill_queue.c - the kills that wait, which of them are told, and commit_kill_find() among
 * these and those that travel, against a list that is searched from its beginning.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "env.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    NAMES = 48,  /* Kills of each follow each other in the queue and in batches. */
    SHARING = 6, /* Names with the same low half: they share buckets and ways. */
    CAPACITY = 16,
    WAITING_MAX = 4000,
    STEPS = 6000,
    LOOK_EVERY = 7,
};

/* What shall wait, in order; `sequence` says which is which. */
struct model {
    struct kvt_env env;
    struct commit commit;
    struct kill_item waiting[WAITING_MAX];
    uint32_t count;
    uint64_t made_count;
};

static struct model *
model_begin(void)
{
    static struct model model;

    memset(&model, 0, sizeof(model));
    kvt_env_host(&model.env);
    model.commit.batches = env_take(&model.env, BATCH_COUNT * sizeof(struct batch));
    assert_non_null(model.commit.batches);
    assert_true(kill_queue_open(&model.commit.kills, &model.env, CAPACITY));
    return &model;
}

static void
model_end(struct model *model)
{
    kill_queue_close(&model->commit.kills, &model->env);
    env_put(&model->env, model->commit.batches, BATCH_COUNT * sizeof(struct batch));
}

static struct hash128
name_of(uint32_t i)
{
    return (struct hash128){.high = 1 + i, .low = (uint64_t)(i / SHARING) * 1000003};
}

static uint32_t
travelling_count(const struct model *model)
{
    uint32_t count = 0;

    for (uint32_t n = 0; n < BATCH_COUNT; n++)
        count += model->commit.batches[n].kill_count;
    return count;
}

/* Room for one more, and for what travels. */
static bool
model_reserve(struct model *model)
{
    struct kill_queue *queue = &model->commit.kills;
    uint32_t wanted = queue->count + travelling_count(model) + 1;

    if (wanted >= WAITING_MAX)
        return false;
    while (wanted >= queue->capacity)
        assert_true(kill_queue_grow(queue, &model->env));
    return true;
}

static struct kill_item
item_make(struct model *model, uint32_t name, bool is_echo)
{
    static struct op waiters[STEPS];
    uint64_t number = ++model->made_count;

    return (struct kill_item){
        .kill = {.fingerprint = name_of(name), .waiter = &waiters[number % STEPS]},
        .sequence = number,
        .order = number,
        .is_echo = is_echo};
}

static void
model_add(struct model *model, uint32_t name, bool is_echo)
{
    struct kill_item item = item_make(model, name, is_echo);

    if (!model_reserve(model))
        return;
    kill_queue_add(&model->commit.kills, &item);
    model->waiting[model->count++] = item;
}

/* Each behind those that are not of a higher order. */
static void
model_return(struct model *model, const struct kill_item *items, uint32_t count)
{
    kill_queue_return(&model->commit.kills, items, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = model->count++;

        for (; at > 0 && model->waiting[at - 1].order > items[i].order; at--)
            model->waiting[at] = model->waiting[at - 1];
        model->waiting[at] = items[i];
    }
}

static void
model_void(struct model *model)
{
    struct kill_item item = {.sequence = ++model->made_count};

    if (model_reserve(model))
        model_return(model, &item, 1);
}

/* The first `count` of them travel in the batch. */
static void
model_take(struct model *model, struct batch *batch, uint32_t count)
{
    batch->kill_count = count < model->count ? count : model->count;
    for (uint32_t i = 0; i < batch->kill_count; i++) {
        kill_queue_take(&model->commit.kills, &batch->kills[i]);
        assert_int_equal(batch->kills[i].sequence, model->waiting[i].sequence);
    }
    commit_kills_note(batch);
    model->count -= batch->kill_count;
    memmove(model->waiting, model->waiting + batch->kill_count,
        model->count * sizeof(model->waiting[0]));
}

/* All that are not told, in their order. */
static void
model_tell(struct model *model)
{
    uint32_t kept_count = 0;
    struct op *waiter;

    for (uint32_t i = 0; i < model->count; i++) {
        struct kill_item *item = &model->waiting[i];

        if (!item->is_told) {
            assert_true(kill_queue_tell(&model->commit.kills, &waiter));
            assert_ptr_equal(waiter, item->kill.waiter);
        }
        item->kill.waiter = NULL;
        item->is_told = true;
        if (!item->is_echo)
            model->waiting[kept_count++] = *item;
    }
    model->count = kept_count;
    assert_false(kill_queue_tell(&model->commit.kills, &waiter));
    assert_null(waiter);
}

static const struct kill_item *
list_find(const struct kill_item *items, uint32_t count, struct hash128 name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].order == 0 || hash128_equal(items[i].kill.fingerprint, name))
            return &items[i];
    }
    return NULL;
}

/* That which the model has first is found; 0: none. */
static uint64_t
wanted_sequence(const struct model *model, struct hash128 name)
{
    const struct kill_item *item = list_find(model->waiting, model->count, name);

    for (uint32_t n = 0; n < BATCH_COUNT && item == NULL; n++)
        item = list_find(model->commit.batches[n].kills, model->commit.batches[n].kill_count, name);
    return item == NULL ? 0 : item->sequence;
}

static void
model_expect(const struct model *model)
{
    const struct kill_queue *queue = &model->commit.kills;
    uint32_t untold = queue->first_untold;
    uint32_t previous = 0;
    uint32_t i = 0;

    assert_int_equal(queue->count, model->count);
    for (uint32_t at = queue->first; at != 0; at = queue->slots[at].next) {
        assert_true(i < model->count);
        assert_int_equal(queue->slots[at].previous, previous);
        if (!model->waiting[i].is_told) {
            assert_int_equal(untold, at);
            untold = queue->slots[at].next_untold;
        }
        assert_int_equal(queue->slots[at].item.sequence, model->waiting[i++].sequence);
        previous = at;
    }
    assert_int_equal(i, model->count);
    assert_int_equal(untold, 0);
    for (uint32_t name = 0; name < NAMES + SHARING; name++) { /* The last are never used. */
        const struct kill_item *item = commit_kill_find(&model->commit, name_of(name));

        assert_int_equal(item == NULL ? 0 : item->sequence, wanted_sequence(model, name_of(name)));
    }
}

static void
model_step(struct model *model, struct rng *rng)
{
    struct batch *batch = &model->commit.batches[rng_below(rng, BATCH_COUNT)];
    uint32_t name = rng_below(rng, 2) == 0 ? rng_below(rng, NAMES) : rng_below(rng, 3);

    switch (rng_below(rng, 32)) {
    case 0:
        model_void(model);
        break;
    case 1:
        model_tell(model);
        break;
    case 2:
    case 3:
        if (batch->kill_count == 0)
            model_take(model, batch, 1 + rng_below(rng, 40));
        break;
    case 4:
        model_return(model, batch->kills, batch->kill_count);
        batch->kill_count = 0;
        break;
    case 5:
        batch->kill_count = 0;
        break;
    default:
        model_add(model, name, rng_below(rng, 4) == 0);
    }
}

static void
the_first_kill_of_a_key_is_found_and_each_is_told_once(void **state)
{
    struct model *model = model_begin();
    struct rng rng = {.state = 1};

    (void)state;
    for (uint32_t i = 0; i < STEPS; i++) {
        model_step(model, &rng);
        if (i % LOOK_EVERY == 0)
            model_expect(model);
    }
    while (model->count > 0)
        model_take(model, &model->commit.batches[0], COMMIT_KILLS_MAX);
    model_expect(model);
    model_end(model);
}

/* However often keys are deleted: whoever looks for one passes by one kill each of those that share
 * its bucket. */
static void
one_kill_of_a_key_stands_in_a_bucket(void **state)
{
    struct model *model = model_begin();
    const struct kill_queue *queue = &model->commit.kills;
    uint32_t passed_count = 0;

    (void)state;
    for (uint32_t i = 0; i < WAITING_MAX / 2; i++)
        model_add(model, i % NAMES, i >= NAMES);
    for (uint32_t at = queue->slots[0].head; at != 0; at = queue->slots[at].other)
        passed_count++;
    assert_int_equal(passed_count, SHARING);
    model_expect(model);
    model_end(model);
}

static void
a_queue_that_cannot_grow_stays(void **state)
{
    const struct kill_queue full = {.capacity = UINT32_MAX / 2 + 1};
    struct kill_queue queue = full;
    struct kvt_env env;

    (void)state;
    kvt_env_host(&env);
    assert_false(kill_queue_grow(&queue, &env));
    assert_memory_equal(&queue, &full, sizeof(full));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_kill_of_a_key_is_found_and_each_is_told_once),
        cmocka_unit_test(one_kill_of_a_key_stands_in_a_bucket),
        cmocka_unit_test(a_queue_that_cannot_grow_stays),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
