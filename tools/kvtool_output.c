/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_output.c - bytes to a file or a pipe; a file is there whole or as it was.
 *
 * That holds for a power cut, too: the file is synced before it takes its place, and then the
 * folder, without which the old name might come back.
 */
#include "kvtool_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"

static void
output_complain(struct output *output)
{
    if (!output->is_bad)
        complain("cannot write %s: %s", output->file, strerror(errno));
    output->is_bad = true;
}

/* A file beside `output->file`, with the rights that the user's umask gives. */
static FILE *
temporary_open(struct output *output)
{
    mode_t mask = umask(0);
    FILE *stream = NULL;
    int descriptor = -1;

    umask(mask);
    snprintf(output->temporary, sizeof(output->temporary), "%s.XXXXXX", output->file);
    descriptor = mkstemp(output->temporary);
    if (descriptor < 0)
        return NULL;
    if (fchmod(descriptor, 0666 & ~mask) == 0)
        stream = fdopen(descriptor, "wb");
    if (stream == NULL) {
        close(descriptor);
        unlink(output->temporary);
    }
    return stream;
}

bool
output_open(struct output *output, const char *file)
{
    struct stat facts;
    bool is_there = false;

    memset(output, 0, sizeof(*output));
    output->file = file;
    if (strcmp(file, "-") == 0) {
        output->file = "standard output";
        output->stream = stdout;
        return true;
    }
    is_there = lstat(file, &facts) == 0;
    if ((is_there && !S_ISREG(facts.st_mode)) || strlen(file) >= PATH_MAX)
        output->stream = fopen(file, "wbe");
    else
        output->stream = temporary_open(output);
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
    const char *slash = strrchr(file, '/');
    int length = slash == NULL ? 0 : slash == file ? 1 : (int)(slash - file);
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
    if (output->temporary[0] == '\0')
        return !output->is_bad;
    if (is_whole && !output->is_bad &&
        (rename(output->temporary, output->file) != 0 || !folder_sync(output->file)))
        output_complain(output);
    if (!is_whole || output->is_bad)
        unlink(output->temporary);
    return !output->is_bad;
}
