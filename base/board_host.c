/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_host.c - the file in which the owner of a store shows what it does, and who it is.
 *
 * Threads   any; one board by one thread at a time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_host_internal.h"
#include "failure.h"
#include "try.h"

enum {
    STAT_BYTES = 1024, /* /proc/PID/stat has some 350. */
    START_FIELD = 22,  /* In it, counted from 1 (proc(5)). */
    NAME_BYTES = 64,
};

struct board {
    struct fs_dir *dir;
    struct fs_file *file;
    char name[NAME_BYTES];
};

/* Reads a file of /proc; "" when it is not there. */
static void
proc_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t length = 0;

    if (file != NULL) {
        length = fread(text, 1, size - 1, file);
        (void)fclose(file);
    }
    text[length] = '\0';
}

/* When a process began, in ticks since the machine's start; 0: there is no such process. */
static uint64_t
start_time_of(uint32_t pid)
{
    char path[64];
    char text[STAT_BYTES];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
    proc_read(path, text, sizeof(text));
    /* The second field is a name in parentheses, and may itself have spaces and parentheses. */
    at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static void
host_self(void *context, struct process_id *id_out)
{
    size_t length;

    (void)context;
    memset(id_out, 0, sizeof(*id_out));
    id_out->pid = (uint32_t)getpid();
    id_out->start_time = start_time_of(id_out->pid);
    proc_read("/proc/self/comm", id_out->program, sizeof(id_out->program));
    length = strcspn(id_out->program, "\n");
    memset(id_out->program + length, 0, sizeof(id_out->program) - length);
}

static bool
host_is_alive(void *context, const struct process_id *id)
{
    uint64_t start_time = start_time_of(id->pid);

    (void)context;
    return start_time != 0 && start_time == id->start_time;
}

static void
host_board_close(struct board *board)
{
    if (board == NULL)
        return;
    if (board->file != NULL)
        (void)fs_host_ops.unlink(board->dir, board->name);
    fs_host_ops.close(board->file);
    free(board);
}

static enum kvt_status
host_board_open(void *context, struct fs_dir *dir, const char *name, struct board **board_out)
{
    struct board *board = calloc(1, sizeof(*board));
    enum kvt_status status;

    (void)context;
    *board_out = NULL;
    if (board == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the board %s", name);
    board->dir = dir;
    (void)snprintf(board->name, sizeof(board->name), "%s", name);
    /* Whoever still reads the old file goes on reading it. */
    status = fs_host_ops.unlink(dir, name);
    if (status == KVT_OK || status == KVT_MISS)
        status = fs_host_ops.open(dir, name, FS_CREATE | FS_EXCLUSIVE, &board->file);
    if (status == KVT_EXISTS)
        status = failure_set(KVT_E_IO, 0, "the board %s appears as fast as it is removed", name);
    if (status != KVT_OK) {
        host_board_close(board);
        return status;
    }
    *board_out = board;
    return KVT_OK;
}

static void
host_board_write(struct board *board, const void *bytes, size_t size)
{
    (void)fs_host_ops.write_at(board->file, bytes, size, 0);
}

const struct board_ops board_host_ops = {
    .open = host_board_open,
    .write = host_board_write,
    .close = host_board_close,
    .self = host_self,
    .is_alive = host_is_alive,
};
