/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_output.c - bytes to a file or a pipe; a file is there whole or as it was.
 */
#include "kvtool_output.h"

#include <errno.h>
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

bool
output_close(struct output *output, bool is_whole)
{
    if (fflush(output->stream) != 0)
        output_complain(output);
    if (output->stream != stdout && fclose(output->stream) != 0)
        output_complain(output);
    if (output->temporary[0] == '\0')
        return !output->is_bad;
    if (is_whole && !output->is_bad && rename(output->temporary, output->file) != 0)
        output_complain(output);
    if (!is_whole || output->is_bad)
        unlink(output->temporary);
    return !output->is_bad;
}
