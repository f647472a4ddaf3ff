/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_rows.c - rows of N-gram tables (Engram) for a batch of tokens: a table is imported once,
 * then each step plans which rows it needs and fetches them.
 *
 * Usage: engram_rows DIR. The table is a toy: 3 orders, 2 heads, rows of 32 numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>

enum {
    CLASSES = 5000,
    VALUES = 32,
    BATCH = 24,
    COLUMNS = 6,
    SLOTS = BATCH * COLUMNS,
};

/* --- What a serving engine writes ------------------------------------------------------------- */

/* What a step needs besides the store. */
struct lookup {
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *table;
    uint8_t rows[SLOTS * (VALUES + 1)];
};

/* Rows for the tokens of one sequence, of which the first `history` came in earlier steps: starts
 * reading and returns at once. *fetch_out is waited for where the layer needs its rows. */
static enum kvt_status
rows_ask(struct lookup *lookup, const uint32_t *tokens, uint32_t count, uint32_t history,
    kvt_engram_fetch **fetch_out)
{
    const struct kvt_engram_sequence sequence = {
        .tokens = tokens, .token_count = count, .history_count = history};
    const struct kvt_engram_target target = {.table = lookup->table,
        .destination = lookup->rows,
        .capacity = sizeof(lookup->rows),
        .deadline_ns = 1}; /* Before all that can wait longer. */
    enum kvt_status status = kvt_engram_plan_fill(lookup->plan, &sequence, 1, KVT_ENGRAM_UNIQUE);

    if (status != KVT_OK)
        return status;
    return kvt_engram_fetch_submit(lookup->plan, &target, 1, fetch_out);
}

/* The rows as bfloat16 numbers, slot after slot. */
static enum kvt_status
rows_take(struct lookup *lookup, kvt_engram_fetch *fetch, uint16_t *values_out)
{
    enum kvt_status status = kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL);

    kvt_engram_fetch_free(fetch);
    if (status != KVT_OK)
        return status; /* Rows are damaged or unreadable: there is no answer without them. */
    return kvt_engram_dequantise(&lookup->profile, lookup->rows, SLOTS, values_out);
}

/* --- The program around it -------------------------------------------------------------------- */

/* A toy checkpoint: value i of a row is 1.0 * 2^(row modulo 4), for all i. */
static enum kvt_status
checkpoint_read(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    uint8_t *row = rows_out;

    (void)context;
    for (uint64_t i = 0; i < row_count; i++, row += VALUES + 1) {
        memset(row, 0x38, VALUES);
        row[VALUES] = (uint8_t)(127 + (row_first + i) % 4);
    }
    return KVT_OK;
}

static void
profile_make(struct kvt_engram_profile *profile)
{
    struct kvt_engram_layer *layer = &profile->layers[0];

    *profile = (struct kvt_engram_profile){.struct_size = sizeof(*profile),
        .layer_count = 1,
        .order_max = 4,
        .head_count = 2,
        .class_count = CLASSES,
        .pad_class = 2,
        .encoding = KVT_ENGRAM_E4M3_E8M0,
        .row_bytes = VALUES + 1,
        .value_count = VALUES,
        .scale_count = 1};
    layer->number = 1;
    for (uint32_t s = 0; s < 4; s++)
        layer->multipliers[s] = 76632096046245 + 2 * s;
    for (uint32_t c = 0; c < COLUMNS; c++) {
        layer->primes[c] = 4001 + 2 * c;
        layer->offsets[c] = layer->row_count;
        layer->row_count += layer->primes[c];
    }
}

/* The table of an earlier run, or a new one. */
static enum kvt_status
table_open(struct lookup *lookup, kvt_store *store)
{
    const struct kvt_engram_source source = {.struct_size = sizeof(source),
        .name = "toy.layer1",
        .profile = &lookup->profile,
        .read = checkpoint_read};
    enum kvt_status status = kvt_engram_open(store, source.name, &lookup->table);

    if (status != KVT_MISS)
        return status;
    status = kvt_engram_import(store, &source);
    return status == KVT_OK ? kvt_engram_open(store, source.name, &lookup->table) : status;
}

/* Every number against the row that the plan names. */
static uint32_t
values_wrong(const struct lookup *lookup, const uint16_t *values)
{
    static const uint16_t powers[] = {0x3F80, 0x4000, 0x4080, 0x4100};
    struct kvt_engram_rows rows;
    uint32_t wrong = 0;

    if (kvt_engram_plan_rows(lookup->plan, 0, &rows) != KVT_OK || rows.slot_count != SLOTS)
        return SLOTS;
    for (uint32_t i = 0; i < SLOTS * VALUES; i++)
        wrong += values[i] != powers[rows.rows[rows.inverse[i / VALUES]] % 4];
    return wrong;
}

static enum kvt_status
steps_run(struct lookup *lookup)
{
    static uint16_t values[SLOTS * VALUES];
    uint32_t tokens[BATCH + 3];
    uint32_t wrong = 0;

    for (uint32_t step = 0; step < 8; step++) {
        kvt_engram_fetch *fetch = NULL;
        enum kvt_status status;

        for (uint32_t i = 0; i < BATCH + 3; i++)
            tokens[i] = (step * BATCH + i) * 2654435761u % CLASSES;
        status = rows_ask(lookup, tokens, BATCH + 3, 3, &fetch);
        if (status == KVT_OK)
            status = rows_take(lookup, fetch, values);
        if (status != KVT_OK)
            return status;
        wrong += values_wrong(lookup, values);
    }
    printf(
        "8 steps of %d tokens, %d rows each, %s\n", BATCH, COLUMNS, wrong == 0 ? "right" : "WRONG");
    return wrong == 0 ? KVT_OK : KVT_E_CORRUPT;
}

int
main(int argc, char **argv)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    static struct lookup lookup;
    kvt_store *store = NULL;
    enum kvt_status status;

    if (argc != 2) {
        fprintf(stderr, "usage: engram_rows DIR\n");
        return 2;
    }
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    profile_make(&lookup.profile);
    status = kvt_open(argv[1], &options, &store);
    if (status == KVT_OK)
        status = kvt_engram_hasher_open(&lookup.profile, NULL, 0, &lookup.hasher);
    if (status == KVT_OK)
        status = kvt_engram_plan_create(lookup.hasher, BATCH, &lookup.plan);
    if (status == KVT_OK)
        status = table_open(&lookup, store);
    if (status == KVT_OK)
        status = steps_run(&lookup);
    if (status != KVT_OK) {
        struct kvt_error error;

        kvt_last_error(&error);
        fprintf(stderr, "engram_rows: %s: %s\n", kvt_status_name(status), error.text);
    }
    kvt_engram_plan_destroy(lookup.plan);
    kvt_engram_hasher_close(lookup.hasher);
    if (kvt_engram_close(lookup.table) != KVT_OK || kvt_close(store) != KVT_OK)
        return 1;
    return status == KVT_OK ? 0 : 1;
}
