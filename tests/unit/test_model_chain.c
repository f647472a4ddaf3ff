/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model_chain.c - of operations in flight together the model takes any order that explains
 * what they answered, and no other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_kit.h"

enum {
    SHORT = 2, /* Bytes. */
};

static const struct model_name name = {.space = 1, .key = 3};

/* What the chains' links are, by number. */
struct links {
    uint64_t ops[MODEL_LINKS];
    uint32_t count;
};

static void
right(const struct model *model)
{
    assert_string_equal(model->failure, "");
}

/* It was, and is no more. */
static void
wrong(struct model *model)
{
    assert_string_not_equal(model->failure, "");
    model->failure[0] = '\0';
}

/* A chain of puts (P), replaces (R) and deletes (D), of which none waits for another. */
static void
begin(struct model *model, struct links *links, const char *acts)
{
    links->count = 0;
    model_chain_begin(model, name);
    for (const char *act = acts; *act != '\0'; act++) {
        uint64_t op =
            *act == 'D' ? model_delete(model, name) : model_put(model, name, *act == 'R', true);

        links->ops[links->count++] = op;
        (void)model_chain_add(model, name,
            *act == 'D'   ? MODEL_DELETE
            : *act == 'R' ? MODEL_REPLACE
                          : MODEL_PUT,
            op, 0);
    }
}

/* ... all of which did what they say. */
static void
done(struct model *model, struct links *links, const char *acts)
{
    begin(model, links, acts);
    for (uint32_t i = 0; i < links->count; i++) {
        if (acts[i] == 'D')
            model_deleted(model, name, links->ops[i], true);
        else
            model_put_visible(model, name, links->ops[i]);
    }
    model_chain_end(model, name);
}

static void
order_that_explains_all_answers_is_found(void **state)
{
    struct model *model = *state;
    struct links links;

    done(model, &links, "PD");
    right(model);
    model_read_version(model, name, 0);
    right(model);
    done(model, &links, "PDP"); /* Either put is the last one. */
    right(model);
    model_read_version(model, name, 0);
    wrong(model);
    model_read_version(model, name, 3);
    right(model);
    model_read_version(model, name, 2);
    wrong(model);
}

static void
answers_that_no_order_explains_are_wrong(void **state)
{
    struct model *model = *state;
    struct links links;

    done(model, &links, "PP");
    wrong(model);
    done(model, &links, "P");
    done(model, &links, "RDD"); /* One delete before the replace. */
    right(model);
    done(model, &links, "PDD"); /* Nothing is there. */
    wrong(model);
}

static void
what_was_reached_before_comes_before(void **state)
{
    struct model *model = *state;
    uint64_t put, delete;

    for (uint32_t is_before = 0; is_before < 2; is_before++) {
        model_chain_begin(model, name);
        put = model_put(model, name, true, true);
        (void)model_chain_add(model, name, MODEL_REPLACE, put, 0);
        delete = model_delete(model, name);
        (void)model_chain_add(model, name, MODEL_DELETE, delete, is_before);
        model_put_visible(model, name, put);
        model_deleted(model, name, delete, is_before == 0);
        model_chain_end(model, name);
        if (is_before == 0)
            right(model);
    }
    wrong(model);
}

static void
read_sees_a_state_of_some_order(void **state)
{
    struct model *model = *state;
    struct links links;

    for (uint32_t version = 1; version <= 3; version++) {
        begin(model, &links, "R");
        model_chain_hear(
            model, name, model_chain_add(model, name, MODEL_READ, 0, version == 3 ? 1 : 0));
        model_put_visible(model, name, links.ops[0]);
        /* Its own block; the one before; the one before, behind its own. */
        model_read_version(model, name, version == 1 ? 1 : version - 1);
        model_chain_end(model, name);
        if (version < 3)
            right(model);
    }
    wrong(model);
}

/* Versions 1 and 2 of a block are the same few bytes: it may have been either. */
static void
read_of_bytes_that_two_versions_have_saw_either(void **state)
{
    struct model *model = *state;
    struct links links;
    uint8_t one[SHORT];
    bool is_short;

    do {
        model->salt++;
        is_short = model_length(model, name, 1) <= SHORT && model_length(model, name, 2) <= SHORT;
        if (is_short)
            model_fill(model, name, 1, one);
    } while (!is_short || !model_is(model, name, 2, one, model_length(model, name, 1)));
    done(model, &links, "R");
    begin(model, &links, "R");
    model_chain_hear(model, name, model_chain_add(model, name, MODEL_READ, 0, 1));
    model_put_visible(model, name, links.ops[0]);
    model_read_version(model, name, 2);
    model_chain_end(model, name);
    right(model);
}

static void
acknowledged_delete_lasts_in_every_order(void **state)
{
    struct model *model = *state;
    struct links links;

    done(model, &links, "PD");
    model_ack(model, name, links.ops[1]);
    model_reopened(model, true);
    model_read_version(model, name, 0);
    right(model);
    model_read_version(model, name, 1);
    wrong(model);
    model_settled(model, true);
    done(model, &links, "PDP");
    model_ack(model, name, links.ops[1]);
    for (uint32_t version = 0; version <= 3; version += version == 0 ? 2 : 1) {
        model_reopened(model, false); /* One of the puts came behind it, and was not durable. */
        model_read_version(model, name, version);
        right(model);
    }
}

static void
what_is_read_behind_it_tells_the_orders_apart(void **state)
{
    struct model *model = *state;
    struct links links;

    done(model, &links, "PDP");
    model_read_version(model, name, 2);
    right(model);
    model_ack(model, name, links.ops[1]); /* The first put came before. */
    model_reopened(model, true);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
flush_covers_every_lasting_link(void **state)
{
    struct model *model = *state;
    struct links links;

    done(model, &links, "PRR");
    model_ack_all(model);
    model_reopened(model, false);
    model_read_version(model, name, 0);
    wrong(model);
    done(model, &links, "RD");
    model_ack(model, name, links.ops[0]);
    model_ack(model, name, links.ops[1]);
    model_reopened(model, true);
    right(model);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
clear_that_comes_behind_it_leaves_nothing(void **state)
{
    struct model *model = *state;
    struct links links;

    begin(model, &links, "PD");
    model_clear_begin(model, name.space);
    model_clear_end(model, name.space, true);
    model_put_visible(model, name, links.ops[0]);
    model_deleted(model, name, links.ops[1], false);
    model_chain_end(model, name);
    model_read_version(model, name, 0);
    right(model);
    model_read_version(model, name, 1);
    wrong(model);
}

static void
chain_that_was_cut_off_may_have_left_anything(void **state)
{
    struct model *model = *state;
    struct links links;

    for (uint32_t version = 0; version <= 2; version++) {
        model_init(model, 7, 8, 0);
        begin(model, &links, "PDP");
        model_reopened(model, false);
        model_read_version(model, name, version);
        right(model);
    }
}

static void
put_that_found_another_shares_its_acknowledgement(void **state)
{
    struct model *model = *state;
    struct links links;

    begin(model, &links, "PP");
    model_put_visible(model, name, links.ops[0]);
    model_put_exists(model, name, links.ops[1]);
    model_chain_end(model, name);
    right(model);
    model_ack_present(model, name, links.ops[1]);
    model_reopened(model, true);
    model_read_version(model, name, 1);
    right(model);
    model_read_version(model, name, 0);
    wrong(model);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            order_that_explains_all_answers_is_found, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            answers_that_no_order_explains_are_wrong, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            what_was_reached_before_comes_before, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            read_sees_a_state_of_some_order, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            read_of_bytes_that_two_versions_have_saw_either, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            acknowledged_delete_lasts_in_every_order, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            what_is_read_behind_it_tells_the_orders_apart, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            flush_covers_every_lasting_link, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            clear_that_comes_behind_it_leaves_nothing, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            chain_that_was_cut_off_may_have_left_anything, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(
            put_that_found_another_shares_its_acknowledgement, model_setup, model_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
