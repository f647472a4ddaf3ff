/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_screen.h - the whole terminal for one command: entered, drawn line by line, and given back
 * as it was on every way out, signals included.
 *
 * There is one terminal, hence one screen: what it was before lies in static storage, where a
 * signal handler can reach it.
 */
#ifndef KVTOOL_SCREEN_H
#define KVTOOL_SCREEN_H

#include <stdbool.h>

/* screen_is_possible - standard input and output are terminals that understand ANSI. */
bool screen_is_possible(void);

/* screen_enter - false, with a sentence, when the terminal refuses. */
bool screen_enter(void);
void screen_leave(void); /* Harmless twice. */

/* screen_begin - a new picture; screen_line - its next line, cut at the right edge and dropped
 * below the bottom one; screen_end - show it. */
void screen_begin(void);
void screen_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void screen_end(void);

/* screen_wait - until a key was pressed (returned), the window has changed size (0) or the time has
 * passed (-1). */
int screen_wait(double seconds);

#endif /* KVTOOL_SCREEN_H */
