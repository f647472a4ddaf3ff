/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import_source.c - an archive that can be read twice: a file, or a copy of what a pipe
 * brings.
 */
#include "kvtool_import_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"

enum {
    COPY_BYTES = 1 << 20
};

/* A file that has no name and goes with us. */
static int
nameless_file(void)
{
    const char *folder = getenv("TMPDIR");
    int descriptor = -1;

    if (folder == NULL || folder[0] == '\0')
        folder = "/var/tmp";
    descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0)
        complain("cannot make a temporary file in %s: %s", folder, strerror(errno));
    return descriptor;
}

static bool
all_write(int descriptor, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = write(descriptor, bytes, size);

        if (count < 0 && errno == EINTR && !interrupt_came())
            continue;
        if (count < 0) {
            complain("cannot write the temporary file (TMPDIR): %s", strerror(errno));
            return false;
        }
        bytes += count;
        size -= (size_t)count;
    }
    return true;
}

/* Copies a pipe into `target`. */
static bool
pipe_copy(int source, const char *name, int target)
{
    char *bytes = malloc(COPY_BYTES);
    bool is_fine = bytes != NULL;

    while (is_fine) {
        ssize_t count = read(source, bytes, COPY_BYTES);

        if (interrupt_came()) {
            complain("interrupted");
            is_fine = false;
        } else if (count == 0) {
            break;
        } else if (count > 0) {
            is_fine = all_write(target, bytes, (size_t)count);
        } else if (errno != EINTR) {
            complain("cannot read %s: %s", name, strerror(errno));
            is_fine = false;
        }
    }
    free(bytes);
    return is_fine;
}

int
import_source_open(const char *file, const char **name_out)
{
    bool is_pipe = strcmp(file, "-") == 0;
    int source = is_pipe ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    int target = -1;

    *name_out = is_pipe ? "standard input" : file;
    if (source < 0 || fstat(source, &facts) != 0) {
        complain("cannot read %s: %s", *name_out, strerror(errno));
        if (source >= 0)
            close(source);
        return -1;
    }
    if (S_ISREG(facts.st_mode))
        return source;
    target = nameless_file();
    if (target >= 0 && !pipe_copy(source, *name_out, target)) {
        close(target);
        target = -1;
    }
    close(source);
    return target;
}
