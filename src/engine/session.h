/* session.h - setup of an engine's ranks: connecting them, choosing the plan, making the groups */
#ifndef XD_ENGINE_SESSION_H
#define XD_ENGINE_SESSION_H

#include "engine/engine.h"

/* Connects to the other ranks (those of the program's communicator, or all that were launched; none
 * if `alone`), and sets up threads and, unless `alone`, the CPU binding. Collective unless
 * alone. */
xd_status xd_session_join(xd_engine *g, const xd_open_args *a, int alone, xd_err *e);
/* Makes the given plan or chooses one, checks that all ranks have the same version, model and plan,
 * and opens the groups of ranks. `s` is this rank's status so far: if one rank has failed, all
 * return its error. Collective. */
xd_status xd_session_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e);
/* Opens the groups of ranks of the plan that was made. Collective. */
xd_status xd_session_groups(xd_engine *g, xd_err *e);
void      xd_session_close(xd_engine *g);

#endif
