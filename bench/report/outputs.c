/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outputs.c - the files beside a command's report.
 */
#include "outputs.h"

#include <errno.h>
#include <string.h>

#include "complain.h"
#include "plot.h"

/* What is in the file stays until there is something to replace it. */
static bool
path_check(const char *path)
{
    FILE *out = fopen(path, "ae");

    if (out == NULL) {
        complain("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    return fclose(out) == 0;
}

bool
outputs_check(const struct outputs *outputs)
{
    if (outputs->csv_path != NULL && !path_check(outputs->csv_path))
        return false;
    return outputs->plot_path == NULL || (plot_can() && path_check(outputs->plot_path));
}

FILE *
csv_open(const char *path, const char *columns)
{
    FILE *out = fopen(path, "we");

    if (out == NULL)
        complain("cannot write %s: %s", path, strerror(errno));
    else
        fprintf(out, "%s\n", columns);
    return out;
}

bool
csv_close(FILE *out, const char *path)
{
    bool is_fine = ferror(out) == 0;

    is_fine = fclose(out) == 0 && is_fine;
    if (!is_fine)
        complain("cannot write all of %s", path);
    return is_fine;
}
