/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_output.h - bytes to a file or a pipe; a file is there whole or as it was.
 */
#ifndef KVTOOL_OUTPUT_H
#define KVTOOL_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct output {
    FILE *stream;
    const char *file;              /* For sentences. */
    char place[PATH_MAX];          /* The file, or where links lead to. */
    char temporary[PATH_MAX + 16]; /* Renamed to `place` when it is whole; "": written as it is. */
    bool is_bad;                   /* A sentence was printed. */
};

/* output_open - "-": standard output. A regular file, or a new one, is written beside its place.
 * False, with a sentence: it cannot be written, or is a file of a store. */
bool output_open(struct output *output, const char *file);

/* output_write - a sink for parts_get(). False: it cannot be written, or Ctrl-C. */
bool output_write(void *output, const void *bytes, uint64_t size);

/* output_close - with `is_whole` the file takes its place, durably; else nothing is left of it.
 * False, with a sentence: it could not be written. */
bool output_close(struct output *output, bool is_whole);

#endif /* KVTOOL_OUTPUT_H */
