/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.c - the folders that a benchmark makes and removes.
 */
#include "directory.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "complain.h"

bool
directory_make(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return true;
    complain("cannot make %s: %s", path, strerror(errno));
    return false;
}

static int
entry_remove(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    (void)facts;
    (void)type;
    (void)place;
    return remove(path);
}

bool
directory_remove(const char *path)
{
    if (nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return true;
    complain("cannot remove %s: %s", path, strerror(errno));
    return false;
}
