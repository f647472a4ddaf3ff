/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghost_table.c - a linear hash table of buckets that forget.
 */
#include "ghost_table.h"

enum {
    CHUNK_BYTES = 2 << 20,
    GROWTH_A_CALL = 4, /* Buckets. */
};

struct ghost {
    uint32_t tag; /* The fingerprint's lower half: it says the bucket too. */
    uint32_t last_use;
    uint16_t more_tag;
    uint16_t traits; /* 0: none here. */
};

struct ghost_row {
    struct ghost ghosts[GHOSTS_A_BUCKET];
    uint32_t reserved;
};

_Static_assert(sizeof(struct ghost_row) == 64, "a cache line");

enum {
    ROWS_A_CHUNK = CHUNK_BYTES / sizeof(struct ghost_row),
    CHUNK_COUNT_MAX = GHOSTS_BYTES_MAX / CHUNK_BYTES,
};

void
ghost_table_close(struct ghost_table *table, const struct kvt_env *env)
{
    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && table->chunks != NULL; i++) {
        if (table->chunks[i] != NULL)
            env_unmap(env, table->chunks[i], CHUNK_BYTES);
    }
    env_put(env, table->chunks, CHUNK_COUNT_MAX * sizeof(*table->chunks));
    *table = (struct ghost_table){.chunks = NULL};
}

static struct ghost_row *
row_at(const struct ghost_table *table, uint32_t bucket)
{
    return &table->chunks[bucket / ROWS_A_CHUNK][bucket % ROWS_A_CHUNK];
}

/* Buckets below the split have one bit more of the tag in their number than the others. */
static struct ghost_row *
row_of(const struct ghost_table *table, uint32_t tag)
{
    uint32_t power = 1u << (31 - __builtin_clz(table->bucket_count));
    uint32_t bucket = tag & (2 * power - 1);

    return row_at(table, bucket < table->bucket_count ? bucket : bucket & (power - 1));
}

/* --- Growing ---------------------------------------------------------------------------------- */

static bool
chunk_take(struct ghost_table *table, const struct kvt_env *env, uint32_t chunk)
{
    if (table->chunks == NULL)
        table->chunks = env_take(env, CHUNK_COUNT_MAX * sizeof(*table->chunks));
    if (table->chunks == NULL)
        return false;
    if (table->chunks[chunk] == NULL)
        table->chunks[chunk] = env_map(env, CHUNK_BYTES);
    return table->chunks[chunk] != NULL;
}

/* One more bucket: it takes its share of the one that was at its place. */
static void
bucket_split(struct ghost_table *table)
{
    uint32_t fresh = table->bucket_count++;
    struct ghost_row *old, *new;
    uint32_t moved = 0;

    if (fresh == 0)
        return;
    old = row_at(table, fresh - (1u << (31 - __builtin_clz(fresh))));
    new = row_at(table, fresh);
    for (uint32_t i = 0; i < GHOSTS_A_BUCKET; i++) {
        struct ghost *ghost = &old->ghosts[i];

        if (ghost->traits == 0 || row_of(table, ghost->tag) != new)
            continue;
        new->ghosts[moved++] = *ghost;
        ghost->traits = 0;
    }
}

void
ghost_table_reserve(struct ghost_table *table, const struct kvt_env *env, uint64_t count)
{
    uint64_t wanted = (count + GHOSTS_A_BUCKET - 1) / GHOSTS_A_BUCKET;

    for (uint32_t i = 0; i < GROWTH_A_CALL && table->bucket_count < wanted; i++) {
        if (table->bucket_count == GHOSTS_BYTES_MAX / sizeof(struct ghost_row) ||
            !chunk_take(table, env, table->bucket_count / ROWS_A_CHUNK))
            return;
        bucket_split(table);
    }
}

size_t
ghost_table_bytes(const struct ghost_table *table)
{
    return table->bucket_count * sizeof(struct ghost_row);
}

/* --- Ghosts ----------------------------------------------------------------------------------- */

static uint16_t
more_tag_of(uint64_t fingerprint)
{
    return (uint16_t)(fingerprint >> 48);
}

bool
ghost_table_add(struct ghost_table *table, uint64_t fingerprint, const struct ghost_facts *facts,
    struct ghost_facts *forgotten_out)
{
    struct ghost_row *row;
    struct ghost *place;
    bool is_full;

    *forgotten_out = *facts;
    if (table->bucket_count == 0)
        return true;
    row = row_of(table, (uint32_t)fingerprint);
    place = &row->ghosts[0];
    for (uint32_t i = 1; i < GHOSTS_A_BUCKET && place->traits != 0; i++) {
        if (row->ghosts[i].traits == 0 || row->ghosts[i].last_use < place->last_use)
            place = &row->ghosts[i];
    }
    is_full = place->traits != 0;
    if (is_full && place->last_use > facts->last_use)
        return true;
    if (is_full)
        *forgotten_out = (struct ghost_facts){place->last_use, place->traits};
    *place = (struct ghost){.tag = (uint32_t)fingerprint,
        .more_tag = more_tag_of(fingerprint),
        .last_use = facts->last_use,
        .traits = facts->traits};
    return is_full;
}

bool
ghost_table_take(struct ghost_table *table, uint64_t fingerprint, struct ghost_facts *facts_out)
{
    struct ghost_row *row;

    if (table->bucket_count == 0)
        return false;
    row = row_of(table, (uint32_t)fingerprint);
    for (uint32_t i = 0; i < GHOSTS_A_BUCKET; i++) {
        struct ghost *ghost = &row->ghosts[i];

        if (ghost->traits == 0 || ghost->tag != (uint32_t)fingerprint ||
            ghost->more_tag != more_tag_of(fingerprint))
            continue;
        *facts_out = (struct ghost_facts){ghost->last_use, ghost->traits};
        ghost->traits = 0;
        return true;
    }
    return false;
}
