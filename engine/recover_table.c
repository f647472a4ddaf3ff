/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover_table.c - the rows.
 */
#include "recover_table.h"

#include <stddef.h>

#define ANY (-1)

const struct recover_row recover_rows[] = {
    /* index, names, rebuild wanted, read-only */
    {ANY, RECOVER_NAMES_DAMAGED, ANY, ANY, RECOVER_REFUSE,
        "NAMES.a and NAMES.b are both damaged: without them no block may be served"},
    {ANY, RECOVER_NAMES_ABSENT, ANY, ANY, RECOVER_REFUSE,
        "NAMES.a and NAMES.b are both missing: without them no block may be served"},
    {INDEX_CLEAN, RECOVER_NAMES_VALID, 0, ANY, RECOVER_LOAD, ""},
    {INDEX_UNCLEAN, RECOVER_NAMES_VALID, 0, ANY, RECOVER_LOAD, ""},
    {INDEX_CLEAN, RECOVER_NAMES_VALID, 1, 0, RECOVER_REBUILD, ""},
    {INDEX_UNCLEAN, RECOVER_NAMES_VALID, 1, 0, RECOVER_REBUILD, ""},
    {INDEX_CLEAN, RECOVER_NAMES_VALID, 1, 1, RECOVER_REFUSE,
        "a rebuild writes: the store cannot be opened for reading only"},
    {INDEX_UNCLEAN, RECOVER_NAMES_VALID, 1, 1, RECOVER_REFUSE,
        "a rebuild writes: the store cannot be opened for reading only"},
    {INDEX_ABSENT, RECOVER_NAMES_VALID, ANY, 0, RECOVER_REBUILD, ""},
    {INDEX_DAMAGED, RECOVER_NAMES_VALID, ANY, 0, RECOVER_REBUILD, ""},
    {INDEX_ABSENT, RECOVER_NAMES_VALID, ANY, 1, RECOVER_REFUSE,
        "meta/data.mdb is missing: open the store for writing once, so that it is rebuilt"},
    {INDEX_DAMAGED, RECOVER_NAMES_VALID, ANY, 1, RECOVER_REFUSE,
        "meta/data.mdb is damaged: open the store for writing once, so that it is rebuilt"},
};

const unsigned recover_row_count = sizeof(recover_rows) / sizeof(recover_rows[0]);

static bool
fits(int cell, int value)
{
    return cell == ANY || cell == value;
}

const struct recover_row *
recover_decide(const struct recover_facts *facts)
{
    for (unsigned i = 0; i < recover_row_count; i++) {
        const struct recover_row *row = &recover_rows[i];

        if (fits(row->index, (int)facts->index) && fits(row->names, (int)facts->names) &&
            fits(row->is_rebuild_wanted, facts->is_rebuild_wanted) &&
            fits(row->is_read_only, facts->is_read_only))
            return row;
    }
    return NULL;
}
