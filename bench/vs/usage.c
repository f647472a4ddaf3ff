/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.c - getrusage(), /proc/self/io and posix_fadvise().
 */
#include "usage.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "complain.h"

static double
seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

bool
usage_now(struct usage *usage_out)
{
    struct rusage used;
    char line[128];
    unsigned long long bytes = 0;
    bool is_accounted = false;
    FILE *in = fopen("/proc/self/io", "re");

    memset(usage_out, 0, sizeof(*usage_out));
    getrusage(RUSAGE_SELF, &used);
    usage_out->cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    if (in == NULL)
        return false;
    while (!is_accounted && fgets(line, sizeof(line), in) != NULL)
        is_accounted = sscanf(line, "read_bytes: %llu", &bytes) == 1;
    fclose(in);
    usage_out->read_bytes = bytes;
    return is_accounted;
}

static int
file_drop(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    int fd = -1;

    (void)facts;
    (void)place;
    if (type != FTW_F)
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    fdatasync(fd); /* What is not written cannot be dropped. */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return 0;
}

bool
page_cache_drop(const char *directory)
{
    if (nftw(directory, file_drop, 16, FTW_PHYS) == 0)
        return true;
    complain("cannot drop the page cache of %s: %s", directory, strerror(errno));
    return false;
}

void
storage_settle(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    syncfs(fd);
    close(fd);
}
