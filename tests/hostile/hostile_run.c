/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile_run.c - runs a program in surroundings that are worse than usual.
 *
 * Usage: hostile_run [uring=ERRNO] [memlock=BYTES] [nofile=COUNT] [umask=OCTAL] [user=ID] --
 * PROGRAM [ARGUMENT...]. uring=: io_uring_setup() fails with this errno (seccomp).
 */
#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call_refuse.h"

static int
limit_set(int which, rlim_t value)
{
    const struct rlimit limit = {value, value};

    return setrlimit((__rlimit_resource_t)which, &limit);
}

static int
user_become(uid_t id)
{
    if (setgroups(0, NULL) != 0 || setgid(id) != 0)
        return -1;
    return setuid(id);
}

/* -1: the system refused. -2: there is no such word. */
static int
word_obey(const char *word)
{
    const char *value = strchr(word, '=');
    unsigned long number;

    if (value == NULL)
        return -2;
    number = strtoul(value + 1, NULL, strncmp(word, "umask=", 6) == 0 ? 8 : 10);
    if (strncmp(word, "uring=", 6) == 0)
        return call_refuse(SYS_io_uring_setup, (unsigned)number) ? 0 : -1;
    if (strncmp(word, "memlock=", 8) == 0)
        return limit_set(RLIMIT_MEMLOCK, number);
    if (strncmp(word, "nofile=", 7) == 0)
        return limit_set(RLIMIT_NOFILE, number);
    if (strncmp(word, "user=", 5) == 0)
        return user_become((uid_t)number);
    if (strncmp(word, "umask=", 6) != 0)
        return -2;
    (void)umask((mode_t)number);
    return 0;
}

int
main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0 && i + 1 < argc) {
            (void)execv(argv[i + 1], argv + i + 1);
            (void)fprintf(stderr, "hostile_run: %s: %s\n", argv[i + 1], strerror(errno));
            return 126;
        }
        if (word_obey(argv[i]) != 0) {
            (void)fprintf(stderr, "hostile_run: %s: %s\n", argv[i], strerror(errno));
            return 125;
        }
    }
    (void)fprintf(stderr, "hostile_run: which program?\n");
    return 125;
}
