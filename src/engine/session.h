/* session.h - what the engine does because there are several ranks */
#ifndef XD_ENGINE_SESSION_H
#define XD_ENGINE_SESSION_H

#include "engine/engine.h"

/* Joins the other ranks (or stands alone, also when asked to) and takes threads (0: this rank's share of the
 * cores) and, unless asked to be alone, the cpus of `bind`. Collective unless alone. */
xd_status xd_session_join(xd_engine *g, int threads, const char *bind, int alone, xd_err *e);
/* Makes the plan or chooses it, compares versions, models and plans with the other ranks, and opens the
 * topologies. `s` is how this rank fared so far: when one failed, all return its failure.
 * Collective. */
xd_status xd_session_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e);
void      xd_session_close(xd_engine *g);






#endif
