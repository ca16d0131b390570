/* plan.h - checks the plan by which a model is distributed over ranks: the degrees of parallelism,
 * patches, warm-up steps and stages. */
#ifndef XD_PLAN_PLAN_H
#define XD_PLAN_PLAN_H

#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/tools.h"

enum { XD_MAXSTAGE = 256, XD_MAXPATCH = 1024 };

typedef struct xd_plan {
    xd_degrees deg;
    /* Number of PipeFusion patches; 1 if the plan has no pipeline stages, or if all steps are
     * exact. */
    int        npatch;
    /* Number of steps at the start of a request that use no values of earlier steps (exact steps);
     * at least 1 if the plan has several patches. */
    int        warmup;
    int text_every; /* 1: text tokens are sent with every patch; 0: only with the first patch */
    /* 1: ring parallelism uses keys and values of the previous step (DistriFusion) */
    int displaced;
    int vae_rows; /* 1: the VAE's images are split into bands of rows */
    int text_tp;  /* text encoders are split over the first text_tp ranks in use */
    /* list[i]: number of transformer blocks that the user requested for pipeline stage i; nlist:
     * number of stages in this list. If nlist is 0, the stages are balanced by the costs of their
     * blocks. */
    int nlist, list[XD_MAXSTAGE];
    xd_dtype codes; /* type of activations in messages between hosts (xd_topo.codes) */
    /* how the image differs from the image of one rank, as a set of bits (plan_table.h) */
    int      changes;
    /* description of the plan, "pipefusion 2 x ulysses 2 (4 patches, 1 warm-up, VAE rows)" */
    char     text[256];
} xd_plan;

/* Checks the requested plan `a` against the number of ranks and the model `d`, and fills in
 * defaults. If `d` is NULL, only the checks that need no model are made. The error message is one
 * sentence with the requested plan, the limit that it breaks, and up to three plans that work. */
xd_status xd_plan_make(xd_plan *p, const xd_parallel *a, int ranks, const xd_dit_info *d,
                       xd_err *e);
/* Returns 1 if parallelism along `axis` splits neither the network nor the tokens, so that it is
 * possible for transformers that each rank must compute as a whole (xd_dit_info.whole). */
int       xd_plan_keeps_whole(xd_axis axis);
/* Returns the number of exact steps (which use no values of earlier steps) at the start of a
 * request. */
int       xd_plan_exact(const xd_plan *p);

/* Divides n transformer blocks into `stages` runs of consecutive blocks so that the slowest stage
 * takes as little time as possible: stage i gets blocks [cut[i], cut[i + 1]). `cost` contains the
 * costs of the n blocks. `head` is an extra cost of the first pipeline stage, and `tail` an extra
 * cost of the last stage, in the unit of `cost`. `speed` contains the relative speeds of the
 * stages, or is NULL if all stages are equally fast. */
void xd_plan_balance(const double *cost, int n, int stages, double head, double tail,
                     const double *speed, int *cut);

#endif
