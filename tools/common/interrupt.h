/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.h - Ctrl-C, noticed where it does no harm.
 *
 * The first SIGINT, SIGTERM or SIGHUP is only noted (a read that waits ends with EINTR); the second
 * of its kind ends the program at once. One that was ignored before (nohup) stays ignored. SIGPIPE
 * and SIGXFSZ end nothing: whoever writes is told by EPIPE or EFBIG, and a sentence that nobody
 * reads does no harm.
 */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <stdbool.h>

/* interrupt_watch - from here on. */
void interrupt_watch(void);

/* interrupt_came - somebody wants us to end. */
bool interrupt_came(void);

#endif /* TOOLS_INTERRUPT_H */
