/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs.c - `tierbench vs`: checks the command line and becomes tierbench-peers, which is linked with
 * the libraries of the others: tierbench itself must run where they are not.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "tierbench.h"
#include "vs_settings.h"

enum {
    PATH_BYTES = 4096,
    WORDS_MAX = 64
};

/* The path of `name` in the folder of the running program. */
static bool
beside_path(const char *name, char path_out[PATH_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", path_out, PATH_BYTES);

    while (length > 0 && path_out[length - 1] != '/')
        length--;
    if (length <= 0 || (size_t)length + strlen(name) >= PATH_BYTES)
        return false;
    memcpy(path_out + length, name, strlen(name) + 1);
    return true;
}

int
tierbench_vs(int argc, char **argv)
{
    struct vs_settings settings;
    char path[PATH_BYTES];
    char *words[WORDS_MAX] = {program_invocation_short_name};
    int exit_code = EXIT_FINE;

    if (!vs_settings_read(&settings, argc, argv, &exit_code))
        return exit_code;
    if (argc + 2 > WORDS_MAX || !beside_path("tierbench-peers", path)) {
        complain("cannot find the folder of this program");
        return EXIT_PROBLEM;
    }
    for (int i = 0; i < argc; i++)
        words[1 + i] = argv[i];
    execv(path, words);
    if (errno == ENOENT)
        complain("vs needs tierbench-peers beside tierbench; it is built where the packages "
                 "librocksdb-dev and libsqlite3-dev are installed");
    else
        complain("cannot run %s: %s", path, strerror(errno));
    return EXIT_PROBLEM;
}
