/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.c - Ctrl-C, noticed where it does no harm.
 */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

/* Static because a signal handler has no other way to tell. */
static volatile sig_atomic_t came;

static void
note(int number)
{
    (void)number;
    came = 1;
}

void
interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignored = {.sa_handler = SIG_IGN};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &ignored, NULL);
}

bool
interrupt_came(void)
{
    return came != 0;
}
