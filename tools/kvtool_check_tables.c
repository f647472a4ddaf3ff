/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_check_tables.c - what is wrong with the tables of N-gram embeddings of a store.
 */
#include "kvtool_check_tables.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "interrupt.h"
#include "kvtool.h"
#include "quantity.h"

/* Those of a store: kvt_engram_list() allows no other calls while it goes on. */
struct tables {
    struct kvt_engram_info *infos;
    size_t count, capacity;
    bool is_short; /* Of memory. */
};

/* --- Which there are -------------------------------------------------------------------------- */

/* Without tables the store need not be opened: an index of millions takes a while. A folder that
 * cannot be read may have some: what is wrong with it, the list says. */
static bool
may_have_files(const char *path)
{
    const struct dirent *entry = NULL;
    char folder[4096];
    bool may_have = false;
    DIR *dir;

    if (snprintf(folder, sizeof(folder), "%s/engram", path) >= (int)sizeof(folder))
        return true;
    dir = opendir(folder);
    if (dir == NULL)
        return errno != ENOENT;
    while (!may_have && (errno = 0, entry = readdir(dir)) != NULL)
        may_have = entry->d_name[0] != '.';
    may_have = may_have || errno != 0;
    closedir(dir);
    return may_have;
}

static int
table_note(void *context, const struct kvt_engram_info *info)
{
    struct tables *tables = context;

    if (tables->count == tables->capacity) {
        size_t capacity = tables->capacity == 0 ? 16 : tables->capacity * 2;
        struct kvt_engram_info *infos = realloc(tables->infos, capacity * sizeof(*infos));

        if (infos == NULL) {
            tables->is_short = true;
            return 0;
        }
        tables->infos = infos;
        tables->capacity = capacity;
    }
    tables->infos[tables->count++] = *info;
    return 1;
}

/* --- What is wrong with one ------------------------------------------------------------------- */

struct reading {
    struct findings *findings;
    uint64_t before_bytes; /* Of the tables before. */
    uint64_t row_bytes;
};

static int
reading_progress(void *context, uint64_t rows_done, uint64_t row_count)
{
    const struct reading *reading = context;

    (void)row_count;
    progress_at(
        &reading->findings->progress, reading->before_bytes + rows_done * reading->row_bytes);
    return !interrupt_came();
}

static void
failure_note(struct findings *findings, const char *subject, const char *what)
{
    struct kvt_error error;

    kvt_last_error(&error);
    findings_note(findings, "table", "%s cannot be %s: %s", subject, what, error.text);
}

static void
damage_note(struct findings *findings, const char *name, const struct kvt_engram_findings *found)
{
    char texts[3][QUANTITY_TEXT_BYTES];

    if (found->damaged_count > 0)
        findings_note(findings, "table",
            "%s: %s of %s pages are damaged, the first with row %s; drop it and import it again",
            name, quantity_count_text(texts[0], found->damaged_count),
            quantity_count_text(texts[1], found->page_count),
            quantity_count_text(texts[2], found->first_row));
    else if (found->is_sum_wrong != 0)
        findings_note(findings, "table",
            "%s: its pages are whole, and together not what was imported; drop it and import it "
            "again",
            name);
}

static enum kvt_status
table_read(kvt_store *store, const struct kvt_engram_info *info, struct reading *reading)
{
    struct kvt_engram_findings found = {0};
    kvt_engram *table = NULL;
    enum kvt_status status = kvt_engram_open(store, info->name, &table);

    reading->row_bytes = info->row_bytes;
    if (status == KVT_OK)
        status = kvt_engram_verify(table, reading_progress, reading, &found);
    if (status == KVT_OK) {
        damage_note(reading->findings, info->name, &found);
        reading->findings->report.block_bytes += info->row_count * info->row_bytes;
    } else if (status != KVT_CANCELLED) {
        failure_note(reading->findings, info->name, "read");
    }
    if (kvt_engram_close(table) != KVT_OK)
        failure_note(reading->findings, info->name, "closed");
    return status == KVT_CANCELLED ? KVT_CANCELLED : KVT_OK;
}

/* --- All of them ------------------------------------------------------------------------------ */

static enum kvt_status
tables_read(kvt_store *store, const struct tables *tables, struct findings *findings)
{
    struct reading reading = {.findings = findings};
    enum kvt_status status = KVT_OK;
    uint64_t total_bytes = 0;

    for (size_t i = 0; i < tables->count; i++) {
        if (tables->infos[i].state == KVT_ENGRAM_WHOLE)
            total_bytes += tables->infos[i].row_count * tables->infos[i].row_bytes;
    }
    progress_end(&findings->progress);
    progress_begin(&findings->progress, "tables", PROGRESS_BYTES, 0, total_bytes);
    for (size_t i = 0; i < tables->count && status == KVT_OK; i++) {
        const struct kvt_engram_info *info = &tables->infos[i];

        if (info->state == KVT_ENGRAM_DAMAGED)
            findings_note(findings, "table",
                "%s: neither head of its file is good; drop it and import it again", info->name);
        if (info->state == KVT_ENGRAM_FOREIGN)
            findings_note(findings, "table",
                "%s: it is of a later version, which alone can read and check it", info->name);
        if (info->state != KVT_ENGRAM_WHOLE)
            continue;
        status = table_read(store, info, &reading);
        reading.before_bytes += info->row_count * info->row_bytes;
    }
    return status;
}

enum kvt_status
check_tables(const char *path, struct findings *findings)
{
    struct tables tables = {0};
    kvt_store *store = NULL;
    enum kvt_status status;

    if (!may_have_files(path))
        return KVT_OK;
    store = store_open_to_read(path);
    if (store == NULL) {
        findings_note(findings, "table", "none was looked at, since the store cannot be opened");
        return KVT_OK;
    }
    status = kvt_engram_list(store, table_note, &tables);
    if (status != KVT_OK) /* The others are there. */
        failure_note(findings, "some tables", "listed");
    if (tables.is_short)
        findings_note(findings, "table", "there is no memory for a list of them");
    else
        status = tables_read(store, &tables, findings);
    free(tables.infos);
    if (!store_close(store, path))
        failure_note(findings, "the store", "closed");
    return status == KVT_CANCELLED ? KVT_CANCELLED : KVT_OK;
}
