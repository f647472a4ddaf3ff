/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complain.c - one line on stderr, `program: sentence`, for whoever typed the command.
 */
#include "complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kvtier/kvtier.h"

enum {
    LINE_BYTES = 2048
};

/* A file name or a key from the command line must not reach the terminal as commands to it. */
static void
line_print(char *line)
{
    for (char *at = line; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = '?';
    }
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
}

void
complain(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list values;

    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    line_print(line);
}

void
complain_status(enum kvt_status status, const char *format, ...)
{
    char line[LINE_BYTES];
    struct kvt_error error;
    va_list values;
    size_t length = 0;

    kvt_last_error(&error);
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    length = strlen(line);
    if (error.status == status && error.text[0] != '\0')
        snprintf(
            line + length, sizeof(line) - length, ": %s (%s)", error.text, kvt_status_name(status));
    else
        snprintf(line + length, sizeof(line) - length, ": %s", kvt_status_name(status));
    line_print(line);
}
