/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_thread.c - how long a thread of this process was on a processor, by its name.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu_bench.h"

/* The first line of a file below /proc; false: it is not there. */
static bool
line_read(const char *task, const char *name, char *line, int size)
{
    char path[320];
    FILE *file;
    bool is_read;

    snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", task, name);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    is_read = fgets(line, size, file) != NULL;
    (void)fclose(file);
    return is_read;
}

uint64_t
gpu_thread_ns(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    uint64_t sum_ns = 0;

    if (tasks == NULL)
        return 0;
    while ((task = readdir(tasks)) != NULL) {
        char line[128];
        uint64_t run_ns;

        if (!line_read(task->d_name, "comm", line, sizeof(line)) ||
            strncmp(line, name, strlen(name)) != 0)
            continue;
        if (line_read(task->d_name, "schedstat", line, sizeof(line)) &&
            sscanf(line, "%" SCNu64, &run_ns) == 1)
            sum_ns += run_ns;
    }
    (void)closedir(tasks);
    return sum_ns;
}
