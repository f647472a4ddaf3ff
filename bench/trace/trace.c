/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - a recorded request trace in memory.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_lines.h"

static bool
line_is_empty(const char *line, size_t length)
{
    return strspn(line, " \t\r") == length;
}

static int
id_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* Counts the different ids. False: no memory. */
static bool
unique_count(struct trace *trace)
{
    uint64_t *sorted = malloc((trace->id_count + 1) * sizeof(*sorted));

    if (sorted == NULL)
        return false;
    memcpy(sorted, trace->ids, trace->id_count * sizeof(*sorted));
    qsort(sorted, trace->id_count, sizeof(*sorted), id_compare);
    trace->unique_count = 0;
    for (size_t i = 0; i < trace->id_count; i++)
        trace->unique_count += i == 0 || sorted[i] != sorted[i - 1];
    free(sorted);
    return true;
}

/* What is wrong, with *line_number_out; NULL: all lines are in. */
static const char *
lines_parse(struct trace *trace, struct trace_lines *lines, uint64_t *line_number_out)
{
    const char *wrong = NULL;
    char *line = NULL;
    size_t length = 0;

    for (*line_number_out = 1; trace_lines_next(lines, &line, &length, &wrong);
         (*line_number_out)++) {
        if (line_is_empty(line, length))
            continue;
        wrong = trace_line_parse(trace, line, length);
        if (wrong != NULL)
            return wrong;
    }
    return wrong;
}

bool
trace_load(struct trace *trace_out, const char *path, char message[TRACE_MESSAGE_BYTES])
{
    return trace_load_blocks(trace_out, path, 0, message);
}

bool
trace_load_blocks(struct trace *trace_out, const char *path, uint32_t block_tokens,
    char message[TRACE_MESSAGE_BYTES])
{
    uint64_t line_number = 0;
    const char *wrong = NULL;
    struct trace_lines *lines = trace_lines_open(path, &wrong);

    *trace_out = (struct trace){.block_tokens = block_tokens};
    if (lines == NULL) {
        snprintf(message, TRACE_MESSAGE_BYTES, "cannot read the trace %s: %s", path, wrong);
        return false;
    }
    wrong = lines_parse(trace_out, lines, &line_number);
    trace_lines_close(lines);
    if (wrong != NULL)
        snprintf(
            message, TRACE_MESSAGE_BYTES, "%s, line %" PRIu64 ": %s", path, line_number, wrong);
    else if (trace_out->id_count == 0)
        snprintf(message, TRACE_MESSAGE_BYTES, "%s has no request with a full block", wrong = path);
    else if (!unique_count(trace_out))
        snprintf(message, TRACE_MESSAGE_BYTES, "%s: there is no memory to count its blocks",
            wrong = path);
    if (wrong == NULL)
        return true;
    trace_free(trace_out);
    return false;
}

void
trace_free(struct trace *trace)
{
    free(trace->requests);
    free(trace->ids);
    memset(trace, 0, sizeof(*trace));
}
