/* ranks.h - what the engine does because there are several ranks */
#ifndef XD_ENGINE_RANKS_H
#define XD_ENGINE_RANKS_H

#include "engine/engine.h"

/* Joins the other ranks (or stands alone, also when asked to) and takes threads (0: this rank's share of the
 * cores) and, unless asked to be alone, the cpus of `bind`. Collective unless alone. */
xd_status xd_ranks_join(xd_engine *g, int threads, const char *bind, int alone, xd_err *e);
/* Makes the plan or chooses it, compares versions, models and plans with the other ranks, and opens the
 * topologies. `s` is how this rank fared so far: when one failed, all return its failure.
 * Collective. */
xd_status xd_ranks_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e);
void      xd_ranks_close(xd_engine *g);

/* The arena of a request: where ranks of one host exchange tokens, heads or sums, in memory that they lend each other, if there
 * is such. `s` is how this rank fared so far, which it returns then. Collective over the ranks in use. */
xd_status xd_ranks_room_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e);
void      xd_ranks_room_close(xd_context *ctx, xd_arena *a);


typedef struct xd_asked {       /* what rank 0 alone knows of a request                        */
    int64_t seed;               /* the one asked for, or drawn by chance                        */
    int     picks;              /* it will say which images are wanted                          */
} xd_asked;
/* Fails on every rank whose request is not rank 0's. Collective over the ranks in use. */
xd_status xd_ranks_asked(const xd_context *ctx, const xd_request *r, xd_asked *told, xd_err *e);

/* Cuts the transformer's blocks into the plan's stages by counted cost (or as the plan lists them):
 * stage i runs [cut[i], cut[i + 1]). Nothing may be loaded. */
xd_status xd_ranks_cut(xd_job *j, int cut[XD_MAXSTAGE + 1], xd_err *e);
/* The same, and gives this rank its own stage. Does nothing when weights are loaded. */
xd_status xd_ranks_stages(xd_job *j, xd_err *e);



#endif
