/* session.h - the engine's part for several ranks: joining, the plan, topologies */
#ifndef XD_ENGINE_SESSION_H
#define XD_ENGINE_SESSION_H

#include "engine/engine.h"

/* Joins the other ranks (those of a lent communicator, or all that were launched; none if `alone`)
 * and sets up threads and, unless `alone`, the CPU binding. Collective unless alone. */
xd_status xd_session_join(xd_engine *g, const xd_open_args *a, int alone, xd_err *e);
/* Makes or chooses the plan, compares versions, models and plans with the other ranks, and opens
 * the topologies. `s` is this rank's status so far: if one rank has failed, all return its
 * failure. Collective. */
xd_status xd_session_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e);
/* Opens the groups of the plan, which is made. Collective. */
xd_status xd_session_groups(xd_engine *g, xd_err *e);
void      xd_session_close(xd_engine *g);

#endif
