/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_output.c - bytes to a file or a pipe; a file is there whole or as it was.
 *
 * That holds for a power cut, too: the file is synced before it takes its place, and then the
 * folder, without which the old name might come back. Links stay: what they lead to is written.
 */
#include "kvtool_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"

enum {
    LINKS_MAX = 40 /* As the kernel follows. */
};

static void
output_complain(struct output *output)
{
    if (!output->is_bad)
        complain("cannot write %s: %s", output->file, strerror(errno));
    output->is_bad = true;
}

/* The folder that `file` lies in, with its slash; "": the one we are in. Its length. */
static int
folder_length(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash == NULL ? 0 : (int)(slash - file) + 1;
}

/* Where links lead to, though nothing is there. False: errno says why. */
static bool
place_find(char place[PATH_MAX], const char *file)
{
    char target[PATH_MAX];
    struct stat facts;

    if (snprintf(place, PATH_MAX, "%s", file) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t length;
        int folder;

        if (lstat(place, &facts) != 0)
            return errno == ENOENT;
        if (!S_ISLNK(facts.st_mode))
            return true;
        length = readlink(place, target, sizeof(target));
        if (length < 0)
            return false;
        folder = length > 0 && target[0] == '/' ? 0 : folder_length(place);
        if (folder + length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(place + folder, target, (size_t)length);
        place[folder + length] = '\0';
    }
    errno = ELOOP;
    return false;
}

/* A new file beside the place. A name that leaves no room for more gets another one. */
static int
temporary_make(struct output *output)
{
    int descriptor;

    snprintf(output->temporary, sizeof(output->temporary), "%s.XXXXXX", output->place);
    descriptor = mkstemp(output->temporary);
    if (descriptor >= 0 || errno != ENAMETOOLONG)
        return descriptor;
    snprintf(output->temporary, sizeof(output->temporary), "%.*skvtool.XXXXXX",
        folder_length(output->place), output->place);
    return mkstemp(output->temporary);
}

/* With the rights of the file that it replaces, or those that the user's umask gives. */
static FILE *
temporary_open(struct output *output, const struct stat *replaced)
{
    mode_t mask = umask(0);
    mode_t mode = replaced == NULL ? 0666 & ~mask : replaced->st_mode & 0777;
    FILE *stream = NULL;
    int descriptor = -1;

    umask(mask);
    descriptor = temporary_make(output);
    if (descriptor < 0)
        return NULL;
    if (fchmod(descriptor, mode) == 0)
        stream = fdopen(descriptor, "wb");
    if (stream == NULL) {
        close(descriptor);
        unlink(output->temporary);
    }
    return stream;
}

/* The place is the file that `facts` are of: a link in /proc leads to none that has a name. */
static bool
place_is(const struct output *output, const struct stat *facts)
{
    struct stat found;

    return lstat(output->place, &found) == 0 && found.st_dev == facts->st_dev &&
           found.st_ino == facts->st_ino;
}

/* A file of some store, which nothing could bring back. Roots of data files lie anywhere. */
static bool
place_is_of_store(const struct output *output)
{
    static const char *const copies[] = {"STORE.a", "STORE.b", "../STORE.a", "../STORE.b"};
    int length = folder_length(output->place);
    char path[PATH_MAX + 16];

    for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        snprintf(path, sizeof(path), "%.*s%s", length, output->place, copies[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return strcmp(output->place + length, "data.00") == 0;
}

static FILE *
stream_open(struct output *output, const char *file)
{
    struct stat facts;
    bool is_there = stat(file, &facts) == 0;

    if (!is_there && errno != ENOENT)
        return NULL;
    if (is_there && !S_ISREG(facts.st_mode))
        return fopen(file, "wbe");
    if (!place_find(output->place, file))
        return NULL;
    if (is_there && !place_is(output, &facts))
        return fopen(file, "wbe");
    if (is_there && place_is_of_store(output)) {
        complain("cannot write %s: it is a file of a store, and stays as it is", file);
        output->is_bad = true;
        return NULL;
    }
    return temporary_open(output, is_there ? &facts : NULL);
}

bool
output_open(struct output *output, const char *file)
{
    memset(output, 0, sizeof(*output));
    output->file = file;
    if (strcmp(file, "-") == 0) {
        output->file = "standard output";
        output->stream = stdout;
        return true;
    }
    output->stream = stream_open(output, file);
    if (output->stream != NULL)
        return true;
    output_complain(output);
    return false;
}

bool
output_write(void *output, const void *bytes, uint64_t size)
{
    struct output *to = output;

    if (interrupt_came()) {
        if (!to->is_bad)
            complain("interrupted");
        to->is_bad = true;
    } else if (fwrite(bytes, 1, size, to->stream) != size) {
        output_complain(to);
    }
    return !to->is_bad;
}

/* What was flushed, unless it went to a pipe or a device; false: errno says why. */
static bool
stream_sync(FILE *stream)
{
    struct stat facts;

    if (fstat(fileno(stream), &facts) != 0)
        return false;
    return !S_ISREG(facts.st_mode) || fsync(fileno(stream)) == 0;
}

/* The folder that `file` lies in; false: errno says why. */
static bool
folder_sync(const char *file)
{
    char folder[PATH_MAX];
    int length = folder_length(file);
    int descriptor = -1;
    bool is_fine;
    int error;

    snprintf(folder, sizeof(folder), "%.*s", length, file);
    descriptor = open(length == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    /* EINVAL: a file system without such a sync. */
    is_fine = fsync(descriptor) == 0 || errno == EINVAL;
    error = errno;
    close(descriptor);
    errno = error;
    return is_fine;
}

bool
output_close(struct output *output, bool is_whole)
{
    if (fflush(output->stream) != 0)
        output_complain(output);
    if (is_whole && !output->is_bad && output->stream != stdout && !stream_sync(output->stream))
        output_complain(output);
    if (output->stream != stdout && fclose(output->stream) != 0)
        output_complain(output);
    if (output->stream == stdout && output->is_bad) {
        /* It was said: the end of the program does not try again. */
        __fpurge(stdout);
        clearerr(stdout);
    }
    if (output->temporary[0] == '\0')
        return !output->is_bad;
    if (is_whole && !output->is_bad &&
        (rename(output->temporary, output->place) != 0 || !folder_sync(output->place)))
        output_complain(output);
    if (!is_whole || output->is_bad)
        unlink(output->temporary);
    return !output->is_bad;
}
