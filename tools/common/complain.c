/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complain.c - one line on stderr, `program: sentence`, for whoever typed the command.
 */
#include "complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier.h"
#include "utf8.h"

enum {
    LINE_BYTES = 2048
};

/* The first byte at or behind `at` that does not go on with a character of UTF-8. */
static const char *
character_begin(const char *at)
{
    while (((unsigned char)*at & 0xC0) == 0x80)
        at++;
    return at;
}

/* A file name or a key from the command line must not reach the terminal as commands to it, and a
 * long one not push out what is said of it: the middle of such a line goes. */
static void
line_print(char *line)
{
    size_t length = strlen(line);
    const char *gap = line + length;

    for (size_t at = 0, step = 0; at < length; at += step) {
        size_t character = utf8_length(line + at, length - at);

        step = character == 0 ? 1 : character;
        if (character == 0 || utf8_is_control(line + at, character))
            memset(line + at, '?', step);
    }
    if (length >= LINE_BYTES)
        gap = character_begin(line + LINE_BYTES / 2);
    fprintf(stderr, "%s: %.*s%s%s\n", program_invocation_short_name, (int)(gap - line), line,
        length >= LINE_BYTES ? " ... " : "",
        length >= LINE_BYTES ? character_begin(line + length - LINE_BYTES / 2) : "");
}

/* A line of any length, or without memory what `room` holds of it. */
static char *
line_make(char room[LINE_BYTES], const char *format, va_list values)
{
    char *line = NULL;
    va_list again;

    va_copy(again, values);
    if (vasprintf(&line, format, values) < 0) {
        vsnprintf(room, LINE_BYTES, format, again);
        line = room;
    }
    va_end(again);
    return line;
}

void
complain(const char *format, ...)
{
    char room[LINE_BYTES];
    char *line = NULL;
    va_list values;

    va_start(values, format);
    line = line_make(room, format, values);
    va_end(values);
    line_print(line);
    if (line != room)
        free(line);
}

void
complain_status(enum kvt_status status, const char *format, ...)
{
    char room[LINE_BYTES];
    struct kvt_error error;
    char *line = NULL;
    va_list values;

    kvt_last_error(&error);
    va_start(values, format);
    line = line_make(room, format, values);
    va_end(values);
    if (error.status == status && error.text[0] != '\0')
        complain("%s: %s (%s)", line, error.text, kvt_status_name(status));
    else
        complain("%s: %s", line, kvt_status_name(status));
    if (line != room)
        free(line);
}
