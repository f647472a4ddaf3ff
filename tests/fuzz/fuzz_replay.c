/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_replay.c - a fuzz target without a fuzzer: runs it once over each file of its arguments, and
 * over shortened and slightly changed copies of it.
 *
 * Usage: fuzz_NAME FOLDER-OR-FILE... A folder that is missing has no files; without any file it
 * fails.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz_world.h"
#include "rng.h"

enum {
    BYTES_MAX = 1 << 20,
    CHANGED_COPIES = 24,
};

static uint8_t original[BYTES_MAX];
static uint8_t changed[BYTES_MAX];
static unsigned long run_count;

/* A few bytes differ, or the end is missing; the same each time. */
static void
changed_run(size_t size, struct rng *rng)
{
    memcpy(changed, original, size);
    for (uint32_t n = 1 + rng_below(rng, 4); n > 0; n--) {
        uint32_t at = rng_below(rng, (uint32_t)(size < 512 || rng_below(rng, 2) == 0 ? size : 512));

        changed[at] =
            rng_below(rng, 3) == 0 ? (uint8_t)(0u - rng_below(rng, 2)) : (uint8_t)rng_next(rng);
    }
    if (rng_below(rng, 4) == 0)
        size = rng_below(rng, (uint32_t)size);
    (void)LLVMFuzzerTestOneInput(changed, size);
    run_count++;
}

static int
file_run(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct rng rng;
    size_t size;

    if (file == NULL) {
        (void)fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    size = fread(original, 1, sizeof(original), file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(original, size);
    run_count++;
    rng.state = size;
    for (int i = 0; i < CHANGED_COPIES && size > 0; i++)
        changed_run(size, &rng);
    return 0;
}

static int
folder_run(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int result = 0;

    if (folder == NULL)
        return 0;
    while ((entry = readdir(folder)) != NULL) {
        char name[PATH_MAX];

        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        result |= file_run(name);
    }
    (void)closedir(folder);
    return result;
}

int
main(int argc, char **argv)
{
    int result = 0;

    for (int i = 1; i < argc; i++) {
        struct stat facts;
        bool is_file = stat(argv[i], &facts) == 0 && S_ISREG(facts.st_mode);

        result |= is_file ? file_run(argv[i]) : folder_run(argv[i]);
    }
    printf("%lu runs\n", run_count);
    return run_count == 0 ? 1 : result;
}
