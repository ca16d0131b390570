/* session.h - sets up the ranks of an engine: connects them, chooses the plan, and opens the groups
 * of ranks. */
#ifndef XD_ENGINE_SESSION_H
#define XD_ENGINE_SESSION_H

#include "engine/engine.h"

/* Connects an engine to the other ranks. The ranks of an engine are the ranks of the MPI
 * communicator that the program passes or, without such a communicator, all launched ranks. If
 * `alone` is 1, the engine has no other ranks. xd_session_join also sets up threads and, unless
 * `alone` is 1, binds the rank to CPUs. Unless `alone` is 1, all ranks must call
 * xd_session_join. */
xd_status xd_session_join(xd_engine *g, const xd_open_args *a, int alone, xd_err *e);
/* Makes the plan that the arguments specify or, if they specify no plan, chooses a plan. Checks
 * that all ranks have the same version, model and plan, and opens the groups of ranks. `s` is this
 * rank's status so far; if a rank has failed, all ranks return its error. All ranks must call
 * xd_session_open. */
xd_status xd_session_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e);
/* Opens the groups of ranks of the engine's plan. All ranks must call xd_session_groups. */
xd_status xd_session_groups(xd_engine *g, xd_err *e);
void      xd_session_close(xd_engine *g);

#endif
