/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_lines.h - the lines of a text file that is plain or compressed by zstd.
 */
#ifndef BENCH_TRACE_LINES_H
#define BENCH_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_lines;

/* trace_lines_open - NULL, and why in *wrong_out, when it cannot be read. */
struct trace_lines *trace_lines_open(const char *path, const char **wrong_out);
void trace_lines_close(struct trace_lines *lines);

/*
 * trace_lines_next - the next line, ended by 0 in place of its newline; good until the next call.
 * False at the end, or with *wrong_out not NULL: the file is damaged or a line is too long.
 */
bool trace_lines_next(
    struct trace_lines *lines, char **line_out, size_t *length_out, const char **wrong_out);

#endif /* BENCH_TRACE_LINES_H */
