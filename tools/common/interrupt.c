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

/* What whoever started us has ignored stays so: that is what nohup is for. */
static void
signal_watch(int number)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;

    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void
interrupt_watch(void)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN};

    signal_watch(SIGINT);
    signal_watch(SIGTERM);
    signal_watch(SIGHUP);
    sigaction(SIGPIPE, &ignored, NULL);
    sigaction(SIGXFSZ, &ignored, NULL);
}

bool
interrupt_came(void)
{
    return came != 0;
}
