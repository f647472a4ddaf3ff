/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_recover_table.c - every combination of what can be seen has exactly one row, and no row says
 * what must never be done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recover_table.h"

enum {
    INDEX_CONDITIONS = INDEX_DAMAGED + 1,
    NAMES_CONDITIONS = RECOVER_NAMES_DAMAGED + 1,
    FACTS_COUNT = INDEX_CONDITIONS * NAMES_CONDITIONS * 2 * 2,
};

static struct recover_facts
facts_at(unsigned i)
{
    return (struct recover_facts){
        .index = (enum index_condition)(i / 4 % INDEX_CONDITIONS),
        .names = (enum recover_names)(i / 4 / INDEX_CONDITIONS),
        .is_rebuild_wanted = (i & 1) != 0,
        .is_read_only = (i & 2) != 0,
    };
}

static bool
cell_fits(int cell, int value)
{
    return cell == -1 || cell == value;
}

static bool
row_fits(const struct recover_row *row, const struct recover_facts *facts)
{
    return cell_fits(row->index, (int)facts->index) && cell_fits(row->names, (int)facts->names) &&
           cell_fits(row->is_rebuild_wanted, facts->is_rebuild_wanted) &&
           cell_fits(row->is_read_only, facts->is_read_only);
}

static void
every_combination_has_exactly_one_row(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);
        const struct recover_row *decided = recover_decide(&facts);
        unsigned fitting = 0;

        for (unsigned r = 0; r < recover_row_count; r++) {
            if (!row_fits(&recover_rows[r], &facts))
                continue;
            fitting++;
            assert_ptr_equal(&recover_rows[r], decided);
        }
        assert_int_equal(fitting, 1);
    }
}

static void
every_row_is_of_some_combination(void **state)
{
    (void)state;
    for (unsigned r = 0; r < recover_row_count; r++) {
        bool is_used = false;

        for (unsigned i = 0; i < FACTS_COUNT; i++) {
            struct recover_facts facts = facts_at(i);

            is_used = is_used || recover_decide(&facts) == &recover_rows[r];
        }
        assert_true(is_used);
    }
}

static void
without_names_nothing_is_decided(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);

        if (facts.names != RECOVER_NAMES_VALID)
            assert_int_equal(recover_decide(&facts)->action, RECOVER_REFUSE);
    }
}

static void
index_that_is_missing_or_damaged_is_never_loaded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);

        if (facts.index == INDEX_ABSENT || facts.index == INDEX_DAMAGED)
            assert_int_not_equal(recover_decide(&facts)->action, RECOVER_LOAD);
    }
}

static void
store_that_is_only_read_is_never_rebuilt(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);

        if (facts.is_read_only)
            assert_int_not_equal(recover_decide(&facts)->action, RECOVER_REBUILD);
    }
}

static void
rebuild_that_is_asked_for_is_made_or_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);

        if (facts.names != RECOVER_NAMES_VALID || !facts.is_rebuild_wanted)
            continue;
        assert_int_equal(
            recover_decide(&facts)->action, facts.is_read_only ? RECOVER_REFUSE : RECOVER_REBUILD);
    }
}

static void
good_store_opens_whatever_it_is_opened_for(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FACTS_COUNT; i++) {
        struct recover_facts facts = facts_at(i);
        bool is_good = facts.index == INDEX_CLEAN || facts.index == INDEX_UNCLEAN;

        if (is_good && facts.names == RECOVER_NAMES_VALID && !facts.is_rebuild_wanted)
            assert_int_equal(recover_decide(&facts)->action, RECOVER_LOAD);
    }
}

static void
refusals_have_a_reason_and_nothing_else_has_one(void **state)
{
    (void)state;
    for (unsigned r = 0; r < recover_row_count; r++)
        assert_int_equal(
            recover_rows[r].reason[0] != '\0', recover_rows[r].action == RECOVER_REFUSE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_exactly_one_row),
        cmocka_unit_test(every_row_is_of_some_combination),
        cmocka_unit_test(without_names_nothing_is_decided),
        cmocka_unit_test(index_that_is_missing_or_damaged_is_never_loaded),
        cmocka_unit_test(store_that_is_only_read_is_never_rebuilt),
        cmocka_unit_test(rebuild_that_is_asked_for_is_made_or_refused),
        cmocka_unit_test(good_store_opens_whatever_it_is_opened_for),
        cmocka_unit_test(refusals_have_a_reason_and_nothing_else_has_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
