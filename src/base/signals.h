/* signals.h - which signals a thread of the library leaves to the thread that called it */
#ifndef XD_BASE_SIGNALS_H
#define XD_BASE_SIGNALS_H

#include <signal.h>

/* All but those that an instruction of the thread itself raises: blocked, they would end the process whatever its
 * handlers, as when a mapped file has become shorter. */
static inline void xd_signals_for_caller(sigset_t *set)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigfillset(set);
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(set, own[i]);
}

#endif
