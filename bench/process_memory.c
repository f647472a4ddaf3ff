/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_memory.c - reading /proc/self/status.
 */
#include "process_memory.h"

#include <stdio.h>

uint64_t
process_anonymous_bytes(void)
{
    FILE *in = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long kilobytes = 0;

    if (in == NULL)
        return 0;
    while (fgets(line, sizeof(line), in) != NULL) {
        if (sscanf(line, "RssAnon: %llu", &kilobytes) == 1)
            break;
    }
    fclose(in);
    return kilobytes * 1024;
}
