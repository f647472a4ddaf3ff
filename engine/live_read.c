/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_read.c - what the owner of a store shows, read by another program.
 *
 * The file is not trusted: a page that is torn, because its owner is writing it, is read again, for
 * at most some tens of milliseconds; anything else that is no page is refused.
 */
#include "failure.h"
#include "store_internal.h"

enum {
    ATTEMPTS_MAX = 100,
};

static const uint64_t pause_ns = 200 * 1000;

static void
pause_between(const struct kvt_env *env)
{
    struct gate gate = {0};

    gate_wait(env, &gate, 0, env_now(env) + pause_ns);
}

static enum kvt_status
page_read(const struct kvt_env *env, struct fs_dir *dir, uint8_t *page, struct kvt_live *live_out)
{
    struct fs_file *file;
    enum kvt_status status = env->fs->open(dir, LIVE_NAME, FS_READ_ONLY, &file);

    KVT_TRY(status);
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        size_t size = 0;

        if (i > 0)
            pause_between(env);
        status = env->fs->read_at(file, page, LIVE_PAGE_BYTES_MAX, 0, &size);
        if (status == KVT_OK)
            status = live_page_read(page, size, env_now(env), live_out);
        if (status != KVT_E_CORRUPT)
            break;
    }
    env->fs->close(file);
    return status;
}

enum kvt_status
live_read_in(const struct kvt_env *env, const char *path, struct kvt_live *live_out)
{
    uint8_t *page = env_take(env, LIVE_PAGE_BYTES_MAX);
    struct process_id owner = {0};
    struct fs_dir *dir = NULL;
    enum kvt_status status;

    if (page == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a page");
    status = env->fs->dir_open(env->fs_context, path, 0, &dir);
    if (status == KVT_OK)
        status = page_read(env, dir, page, live_out);
    env->fs->dir_close(dir);
    env_put(env, page, LIVE_PAGE_BYTES_MAX);
    KVT_TRY(status);
    owner.pid = live_out->pid;
    owner.start_time = live_out->start_time;
    live_out->is_stale = env->board == NULL || !env->board->is_alive(env->board_context, &owner);
    return KVT_OK;
}

enum kvt_status
kvt_live_read(const char *path, struct kvt_live *live_out)
{
    struct kvt_env env;

    if (path == NULL || path[0] == '\0' || live_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "path is NULL or empty, or live_out is NULL");
    if (live_out->struct_size != sizeof(*live_out))
        return failure_set(
            KVT_E_INVAL, 0, "struct_size %u is not %zu", live_out->struct_size, sizeof(*live_out));
    env_host(&env);
    return live_read_in(&env, path, live_out);
}
