/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_sqlite.c - SQLite: one table with a row for each block, its bytes in a BLOB.
 *
 * A durable put is a transaction of the batch in WAL mode with synchronous FULL; one caller, for
 * there is one writer. A get finds the row by the unique key and reads its BLOB into the caller's
 * memory (sqlite3_blob_read: no copy between). Each caller has a connection of its own.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "pattern.h"
#include "peer.h"
#include "usage.h"

/* Of 4, 16, 32 and 64 KiB the one with the fastest cold gets of 64 KiB and of 1 MiB together, in a
 * file of 512 MiB. */
static const int page_bytes = 32768;

struct connection {
    sqlite3 *db;
    sqlite3_stmt *find;
    sqlite3_stmt *insert;
    sqlite3_blob *blob; /* NULL until the first get; then moved from row to row. */
};

struct sqlite_state {
    const char *directory;
    char path[4096];
    uint64_t block_bytes;
    struct connection connections[PEER_CALLERS_MAX]; /* Opened by the first call of its caller. */
};

static bool
complain_sqlite(const struct connection *connection, const char *what)
{
    complain("SQLite cannot %s: %s", what,
        connection->db != NULL ? sqlite3_errmsg(connection->db) : "there is no memory");
    return false;
}

static bool
connection_open(struct connection *connection, const char *path)
{
    char setup[512];

    if (sqlite3_open_v2(path, &connection->db,
            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return complain_sqlite(connection, "open its file");
    sqlite3_busy_timeout(connection->db, 60000);
    snprintf(setup, sizeof(setup),
        "PRAGMA page_size=%d; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "PRAGMA mmap_size=0; PRAGMA cache_size=-16384;"
        "CREATE TABLE IF NOT EXISTS block(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE,"
        " bytes BLOB NOT NULL);",
        page_bytes);
    if (sqlite3_exec(connection->db, setup, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(connection->db, "SELECT id FROM block WHERE key=?", -1,
            &connection->find, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(connection->db, "INSERT INTO block(key, bytes) VALUES(?, ?)", -1,
            &connection->insert, NULL) != SQLITE_OK)
        return complain_sqlite(connection, "make its table");
    return true;
}

static void
connection_close(struct connection *connection)
{
    sqlite3_blob_close(connection->blob);
    sqlite3_finalize(connection->find);
    sqlite3_finalize(connection->insert);
    sqlite3_close(connection->db);
    memset(connection, 0, sizeof(*connection));
}

static void *
sqlite_peer_open(const struct peer_place *place)
{
    struct sqlite_state *state = calloc(1, sizeof(*state));

    if (state == NULL) {
        complain("there is no memory");
        return NULL;
    }
    state->block_bytes = place->block_bytes;
    state->directory = place->directory;
    if (snprintf(state->path, sizeof(state->path), "%s/blocks.db", place->directory) >=
        (int)sizeof(state->path)) {
        complain("%s is too long", place->directory);
    } else {
        /* The first one makes the table, before callers meet. */
        if (connection_open(&state->connections[0], state->path))
            return state;
        connection_close(&state->connections[0]);
    }
    free(state);
    return NULL;
}

/* The caller's own connection; NULL: complained. */
static struct connection *
connection_of(struct sqlite_state *state, uint32_t caller)
{
    struct connection *connection = &state->connections[caller];

    if (connection->db == NULL && !connection_open(connection, state->path))
        return NULL;
    return connection;
}

static bool
row_insert(struct connection *connection, const struct peer_block *block, uint64_t size)
{
    uint8_t key[PATTERN_KEY_BYTES];
    bool is_fine = false;

    pattern_key(block->number, key);
    is_fine =
        sqlite3_bind_blob(connection->insert, 1, key, sizeof(key), SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_blob64(connection->insert, 2, block->bytes, size, SQLITE_STATIC) ==
            SQLITE_OK &&
        sqlite3_step(connection->insert) == SQLITE_DONE;
    return sqlite3_reset(connection->insert) == SQLITE_OK && is_fine;
}

static bool
sqlite_peer_put(void *opened, uint32_t caller, const struct peer_block *blocks, uint32_t count)
{
    struct sqlite_state *state = opened;
    struct connection *connection = connection_of(state, caller);

    if (connection == NULL)
        return false;
    if (sqlite3_exec(connection->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return complain_sqlite(connection, "begin a transaction");
    for (uint32_t i = 0; i < count; i++) {
        if (!row_insert(connection, &blocks[i], state->block_bytes))
            return complain_sqlite(connection, "insert a row");
    }
    if (sqlite3_exec(connection->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return complain_sqlite(connection, "commit");
    return true;
}

/* False: there is no such row, or SQLite finds its file damaged. */
static bool
row_read(struct connection *connection, const struct peer_block *block, uint64_t size)
{
    uint8_t key[PATTERN_KEY_BYTES];
    sqlite3_int64 row = 0;
    bool is_found = false;
    int result = SQLITE_OK;

    pattern_key(block->number, key);
    sqlite3_bind_blob(connection->find, 1, key, sizeof(key), SQLITE_STATIC);
    is_found = sqlite3_step(connection->find) == SQLITE_ROW;
    if (is_found)
        row = sqlite3_column_int64(connection->find, 0);
    sqlite3_reset(connection->find);
    if (!is_found)
        return false;
    if (connection->blob == NULL)
        result =
            sqlite3_blob_open(connection->db, "main", "block", "bytes", row, 0, &connection->blob);
    else
        result = sqlite3_blob_reopen(connection->blob, row);
    return result == SQLITE_OK && (uint64_t)sqlite3_blob_bytes(connection->blob) == size &&
           sqlite3_blob_read(connection->blob, block->bytes, (int)size, 0) == SQLITE_OK;
}

static bool
sqlite_peer_get(void *opened, uint32_t caller, struct peer_block *blocks, uint32_t count)
{
    struct sqlite_state *state = opened;
    struct connection *connection = connection_of(state, caller);

    if (connection == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        blocks[i].is_refused = !row_read(connection, &blocks[i], state->block_bytes);
        if (blocks[i].is_refused) {
            /* A handle whose move failed can only be closed. */
            sqlite3_blob_close(connection->blob);
            connection->blob = NULL;
        }
    }
    return true;
}

/* The pages of each connection, then the system's. */
static bool
sqlite_peer_forget(void *opened)
{
    struct sqlite_state *state = opened;

    for (uint32_t i = 0; i < PEER_CALLERS_MAX; i++) {
        struct connection *connection = &state->connections[i];

        if (connection->db == NULL)
            continue;
        sqlite3_blob_close(connection->blob); /* It holds pages. */
        connection->blob = NULL;
        sqlite3_db_release_memory(connection->db);
    }
    return page_cache_drop(state->directory);
}

static bool
sqlite_peer_close(void *opened)
{
    struct sqlite_state *state = opened;
    struct connection *first = &state->connections[0];
    bool is_fine = true;

    for (uint32_t i = 1; i < PEER_CALLERS_MAX; i++)
        connection_close(&state->connections[i]);
    sqlite3_blob_close(first->blob); /* It reads: the log could not be taken over. */
    first->blob = NULL;
    if (first->db != NULL &&
        sqlite3_exec(first->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK)
        is_fine = complain_sqlite(first, "take its log over");
    connection_close(first);
    free(state);
    return is_fine;
}

static void
sqlite_peer_describe(const struct peer_place *place, struct peer_facts *facts_out)
{
    snprintf(facts_out->version, sizeof(facts_out->version), "%s", sqlite3_libversion());
    snprintf(facts_out->settings, sizeof(facts_out->settings),
        "one table, BLOB rows, pages of %d bytes, WAL, synchronous FULL, a transaction of %u, "
        "mmap off, page cache of 16 MiB a connection, no checksums, its "
        "and the system's page cache dropped before each lap, sqlite3_blob_read into the caller's "
        "huge pages",
        page_bytes, place->batch_blocks);
}

const struct peer peer_sqlite = {
    .name = "sqlite",
    .put_callers = {1},
    .get_callers = {1, 2, 4, 8},
    .open = sqlite_peer_open,
    .put_batch = sqlite_peer_put,
    .get_batch = sqlite_peer_get,
    .forget = sqlite_peer_forget,
    .close = sqlite_peer_close,
    .describe = sqlite_peer_describe,
};
