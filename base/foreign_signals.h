/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_signals.h - which signals the library's threads leave to the host's: all, except those
 * that a fault of the thread itself raises, which would otherwise kill the process past the host's
 * crash handler.
 */
#ifndef KVT_BASE_FOREIGN_SIGNALS_H
#define KVT_BASE_FOREIGN_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* foreign_signals_block - before a thread is made, which inherits the mask: so it never runs with
 * the host's signals open. *before_out: what to set behind that (SIG_SETMASK). */
static inline void
foreign_signals_block(sigset_t *before_out)
{
    static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t foreign;

    (void)sigfillset(&foreign);
    for (size_t i = 0; i < sizeof(own_faults) / sizeof(own_faults[0]); i++)
        (void)sigdelset(&foreign, own_faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &foreign, before_out);
}

#endif /* KVT_BASE_FOREIGN_SIGNALS_H */
