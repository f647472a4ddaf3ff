/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot.h - pictures of measured values, drawn by gnuplot as SVG.
 *
 * A picture is a script: what plot_begin() has in it, then data blocks and a plot command that the
 * caller prints. The same script gives the same bytes.
 */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A picture in the making. */
struct plot {
    FILE *script; /* Print to it. */
    char *text;
    size_t size;
};

/* plot_can - gnuplot is there and runs. False: complained. */
bool plot_can(void);

/* plot_begin - an empty picture, `width` x `height`; the title has no quotes. False: complained. */
bool plot_begin(struct plot *plot, const char *title, int width, int height);

/* plot_end - draws it to the file `path`, and frees it. False: complained; there is no file, unless
 * it is a device or another that is no regular one. */
bool plot_end(struct plot *plot, const char *path);

#endif /* BENCH_PLOT_H */
