/* plan.h - how a model is spread over ranks: degrees, patches, warm-up, stages */
#ifndef XD_PLAN_PLAN_H
#define XD_PLAN_PLAN_H

#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/tools.h"

enum { XD_MAXSTAGE = 256, XD_MAXPATCH = 1024 };

typedef struct xd_plan {
    xd_degrees deg;
    int  npatch;                /* patches of PipeFusion; 1: no stages, or every step is exact */
    int  warmup;                /* exact steps at the start; at least 1 when patches are used  */
    int  text_every;            /* text goes with every patch, not with the first alone        */
    int  displaced;             /* the ring axis uses stale K, V (DistriFusion)                */
    int  vae_rows;              /* the VAE is cut into bands of rows                           */
    int  text_tp;               /* text encoders are shared by this many ranks, the first in use */
    int  nlist, list[XD_MAXSTAGE];      /* blocks of each stage as requested; none: balanced   */
    int  changes;               /* how the image differs from that of one rank (plan_table.h)  */
    char text[256];             /* "pipefusion 2 x ulysses 2 (4 patches, 1 warm-up, VAE rows)" */
} xd_plan;

/* Checks the request `a` against the number of ranks and the model (NULL: checks only what needs
 * no model) and fills in defaults. A refusal is one sentence: what was requested, what there is,
 * and up to three plans that work. */
xd_status xd_plan_make(xd_plan *p, const xd_parallel *a, int ranks, const xd_dit_info *d,
                       xd_err *e);
/* The number of exact steps at the start. */
int xd_plan_exact(const xd_plan *p);

/* Cuts n blocks into `stages` consecutive runs so that the slowest stage is as fast as possible:
 * stage i runs blocks [cut[i], cut[i + 1]) at speed[i] (NULL: all equal). `head` and `tail` are
 * the additional costs of the first and the last stage. */
void xd_plan_balance(const double *cost, int n, int stages, double head, double tail,
                     const double *speed, int *cut);

#endif
