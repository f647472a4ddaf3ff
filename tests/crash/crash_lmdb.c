/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_lmdb.c - plain LMDB as a subject of the crash harness (crash_lmdb.h).
 */
#include "crash_lmdb.h"

#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <unistd.h>

enum {
    FILE_BYTES = 1 << 20,
    KEYS = 40,
    VALUE_BYTES_MAX = 6000,
};

static void
must(int code, const char *what)
{
    if (code != 0)
        run_fail("%s: %s", what, mdb_strerror(code));
}

/* LMDB has written its first pages: zeros up to the full size, and all of it durable with its name,
 * as a careful program does it. */
static void
fill_file(const char *dir, const char *path)
{
    static const uint8_t zeros[FILE_BYTES];
    int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;

    if (parent < 0 || size < 0 || write(fd, zeros, (size_t)(FILE_BYTES - size)) < 0 ||
        fsync(fd) != 0 || fsync(parent) != 0)
        run_fail("cannot make %s", path);
    close(fd);
    close(parent);
}

static void
commit(struct run *run, MDB_env *env, uint32_t first, bool is_delete)
{
    static uint8_t value[VALUE_BYTES_MAX];
    uint64_t versions[4];
    MDB_txn *txn;
    MDB_dbi dbi;
    char line[96];

    must(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
    must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t number = (first + i) % KEYS;
        MDB_val key = {sizeof(number), &number};
        versions[i] = ++run->version;
        MDB_val data = {
            payload_length(number, versions[i], PAYLOAD_BYTES_MIN, VALUE_BYTES_MAX), value};
        payload_fill(value, data.mv_size, number, versions[i]);
        snprintf(line, sizeof(line), is_delete ? "del %u" : "put %u %" PRIu64, number, versions[i]);
        run->mark(line);
        int code = is_delete ? mdb_del(txn, dbi, &key, NULL) : mdb_put(txn, dbi, &key, &data, 0);
        must(code == MDB_NOTFOUND ? 0 : code, "a change");
    }
    must(mdb_txn_commit(txn), "mdb_txn_commit");
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(line, sizeof(line), is_delete ? "del_ok %u" : "put_ok %u %" PRIu64,
            (first + i) % KEYS, versions[i]);
        run->mark(line);
    }
}

static void
life(struct run *run, unsigned flags)
{
    MDB_env *env;
    char path[512];

    snprintf(path, sizeof(path), "%s/data.mdb", run->dir);
    must(mdb_env_create(&env), "mdb_env_create");
    must(mdb_env_set_mapsize(env, FILE_BYTES), "mdb_env_set_mapsize");
    must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK | flags, 0600), "mdb_env_open");
    fill_file(run->dir, path);
    run->mark("open");
    for (uint32_t i = 0; i < 40; i++)
        commit(run, env, i * 3, i % 4 == 3);
    mdb_env_close(env);
}

void
lmdb_steps(struct run *run)
{
    life(run, 0);
}

void
lmdb_steps_unsynced(struct run *run)
{
    life(run, MDB_NOSYNC);
}

static bool
verify_key(MDB_txn *txn, MDB_dbi dbi, uint32_t number, const struct oracle *oracle)
{
    MDB_val key = {sizeof(number), &number};
    MDB_val data;
    uint64_t version = 0;
    int code = mdb_get(txn, dbi, &key, &data);

    if (code == 0 && !payload_is_right(data.mv_data, data.mv_size, number, &version))
        return false;
    return (code == 0 || code == MDB_NOTFOUND) && oracle_allows(oracle, number, version);
}

bool
lmdb_verify(const char *path, const struct oracle *oracle, char *problem, size_t problem_size)
{
    char file[512];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    bool is_right = true;

    snprintf(file, sizeof(file), "%s/data.mdb", path);
    if (!oracle->is_open)
        return true;
    must(mdb_env_create(&env), "mdb_env_create");
    must(mdb_env_set_mapsize(env, FILE_BYTES), "mdb_env_set_mapsize");
    int code = mdb_env_open(env, file, MDB_NOSUBDIR | MDB_NOLOCK | MDB_RDONLY, 0600);
    if (code == 0)
        code = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    if (code != 0) {
        snprintf(problem, problem_size, "LMDB: the open failed: %s", mdb_strerror(code));
        mdb_env_close(env);
        return false;
    }
    code = mdb_dbi_open(txn, NULL, 0, &dbi);
    for (uint32_t i = 0; i < KEYS && code == 0 && is_right; i++) {
        is_right = verify_key(txn, dbi, i, oracle);
        if (!is_right)
            snprintf(problem, problem_size, "LMDB: key %u has a value it must not have", i);
    }
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return is_right && code == 0;
}
