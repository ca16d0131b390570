/* signals.h - defines the set of signals that the library's own threads block, so that the
 * program's threads handle these signals. */
#ifndef XD_BASE_SIGNALS_H
#define XD_BASE_SIGNALS_H

#include <signal.h>

/* Fills `set` with all signals except synchronous signals, which an instruction of the thread
 * itself raises, such as SIGBUS after a mapped file was truncated. If a synchronous signal were
 * blocked, the system would kill the process without calling the signal's handler. */
static inline void xd_signals_for_caller(sigset_t *set)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigfillset(set);
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(set, own[i]);
}

#endif
