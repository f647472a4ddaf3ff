/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complain.h - one line on stderr, `program: sentence`, for whoever typed the command. The
 * program's name is the one that it was started by.
 */
#ifndef TOOLS_COMPLAIN_H
#define TOOLS_COMPLAIN_H

#include "kvtier/status.h"

/* complain - print the line. Control characters in it are shown as '?', of a very long one its
 * beginning and its end. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * complain_status - the sentence of kvt_last_error() with `status`'s name, behind what was tried
 * ("cannot open build/store"). Call it before any other call into kvtier.
 */
void complain_status(enum kvt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif /* TOOLS_COMPLAIN_H */
