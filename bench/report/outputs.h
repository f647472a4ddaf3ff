/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outputs.h - the files beside a command's report: --csv and --plot.
 */
#ifndef BENCH_OUTPUTS_H
#define BENCH_OUTPUTS_H

#include <stdbool.h>
#include <stdio.h>

/* What was asked for; NULL: not. */
struct outputs {
    const char *csv_path;
    const char *plot_path;
};

/* The lines of --help, for a command's table of options. */
#define OUTPUT_CSV_OPTION                                         \
    {                                                             \
        "--csv", "FILE", "write the figures there, one line each" \
    }
#define OUTPUT_PLOT_OPTION(picture)   \
    {                                 \
        "--plot", "FILE.svg", picture \
    }

/* outputs_check - whether they can be made, before anything is measured. False: complained. */
bool outputs_check(const struct outputs *outputs);

/* csv_open - the file with its first line in it. NULL: complained. */
FILE *csv_open(const char *path, const char *columns);

/* csv_close - false: it could not all be written, and that was said. */
bool csv_close(FILE *out, const char *path);

#endif /* BENCH_OUTPUTS_H */
