/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_dir.c - directories for tests, and files in them seen from outside.
 */
#include "scratch_dir.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
stop(const char *what, const char *path)
{
    (void)fprintf(stderr, "scratch_dir: %s %s: ", what, path);
    perror(NULL);
    abort();
}

void
scratch_dir_make(struct scratch_dir *scratch)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(scratch->path, sizeof(scratch->path), "%s/kvt-test-XXXXXX",
        base != NULL && strlen(base) < 80 ? base : "/tmp");
    if (mkdtemp(scratch->path) == NULL)
        stop("mkdtemp", scratch->path);
}

static int
entry_remove(const char *path, const struct stat *info, int flag, struct FTW *place)
{
    (void)info;
    (void)flag;
    (void)place;
    return remove(path);
}

void
scratch_dir_remove(struct scratch_dir *scratch)
{
    if (nftw(scratch->path, entry_remove, 8, FTW_DEPTH | FTW_PHYS) != 0)
        stop("remove", scratch->path);
}

const char *
scratch_path(const struct scratch_dir *scratch, const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", scratch->path, name);
    return path;
}

size_t
scratch_read(const struct scratch_dir *scratch, const char *name, void *target, size_t size)
{
    const char *path = scratch_path(scratch, name);
    FILE *file = fopen(path, "rb");
    size_t count;

    if (file == NULL)
        stop("open", path);
    count = fread(target, 1, size, file);
    if (fclose(file) != 0)
        stop("close", path);
    return count;
}

void
scratch_write(const struct scratch_dir *scratch, const char *name, const void *source, size_t size)
{
    const char *path = scratch_path(scratch, name);
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        stop("create", path);
    if (fwrite(source, 1, size, file) != size || fclose(file) != 0)
        stop("write", path);
}

bool
scratch_exists(const struct scratch_dir *scratch, const char *name)
{
    return access(scratch_path(scratch, name), F_OK) == 0;
}

void
scratch_unlink(const struct scratch_dir *scratch, const char *name)
{
    if (unlink(scratch_path(scratch, name)) != 0)
        stop("unlink", name);
}
