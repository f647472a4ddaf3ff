/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_inbox.c - order, the empty answer, and many producers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "inbox.h"

struct letter {
    struct inbox_node node;
    uint32_t producer;
    uint32_t number;
};

static void
letters_come_out_oldest_first(void **state)
{
    struct inbox inbox = {NULL};
    struct letter letters[5];
    struct inbox_node *node;

    (void)state;
    assert_null(inbox_take(&inbox));
    assert_true(inbox_is_empty(&inbox));
    for (uint32_t i = 0; i < 5; i++) {
        letters[i].number = i;
        /* Only the first push finds it empty: that producer wakes the consumer. */
        assert_int_equal(inbox_push(&inbox, &letters[i].node), i == 0);
    }
    assert_false(inbox_is_empty(&inbox));
    node = inbox_take(&inbox);
    for (uint32_t i = 0; i < 5; i++) {
        assert_non_null(node);
        assert_int_equal(CONTAINER_OF(node, struct letter, node)->number, i);
        node = node->next;
    }
    assert_null(node);
    assert_null(inbox_take(&inbox));
    assert_true(inbox_push(&inbox, &letters[0].node));
}

enum {
    PRODUCER_COUNT = 4,
    LETTER_COUNT = 20000,
};

struct producer {
    struct inbox *inbox;
    struct letter *letters;
    uint32_t index;
};

static void *
produce(void *argument)
{
    const struct producer *producer = argument;

    for (uint32_t i = 0; i < LETTER_COUNT; i++) {
        struct letter *letter = &producer->letters[i];

        letter->producer = producer->index;
        letter->number = i;
        (void)inbox_push(producer->inbox, &letter->node);
    }
    return NULL;
}

static void
nothing_is_lost_and_each_producer_keeps_its_order(void **state)
{
    static struct letter letters[PRODUCER_COUNT][LETTER_COUNT];
    struct producer producers[PRODUCER_COUNT];
    pthread_t threads[PRODUCER_COUNT];
    uint32_t expected[PRODUCER_COUNT] = {0};
    struct inbox inbox = {NULL};
    uint32_t taken = 0;

    (void)state;
    for (uint32_t i = 0; i < PRODUCER_COUNT; i++) {
        producers[i] = (struct producer){&inbox, letters[i], i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    while (taken < PRODUCER_COUNT * LETTER_COUNT) {
        struct inbox_node *node = inbox_take(&inbox);

        if (node == NULL)
            (void)sched_yield();
        while (node != NULL) {
            const struct letter *letter = CONTAINER_OF(node, struct letter, node);

            /* The consumer may hand the node on at once: read its successor first. */
            node = node->next;
            assert_int_equal(letter->number, expected[letter->producer]);
            expected[letter->producer]++;
            taken++;
        }
    }
    for (uint32_t i = 0; i < PRODUCER_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(inbox_take(&inbox));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_come_out_oldest_first),
        cmocka_unit_test(nothing_is_lost_and_each_producer_keeps_its_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
