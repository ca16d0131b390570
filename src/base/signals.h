/* signals.h - the signals that a thread of the library leaves to the calling thread */
#ifndef XD_BASE_SIGNALS_H
#define XD_BASE_SIGNALS_H

#include <signal.h>

/* All signals but those that an instruction of the thread itself raises, such as SIGBUS when a
 * mapped file has become shorter: if blocked, they would end the process in spite of its
 * handlers. */
static inline void xd_signals_for_caller(sigset_t *set)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigfillset(set);
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(set, own[i]);
}

#endif
