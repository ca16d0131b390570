/* plan.h - how a model is spread over ranks: degrees, patches, warm-up, stages */
#ifndef XD_PLAN_PLAN_H
#define XD_PLAN_PLAN_H

#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/xdit.h"

enum { XD_MAXSTAGE = 256, XD_MAXPATCH = 1024 };

typedef struct xd_plan {
    xd_degrees deg;
    int  npatch;                /* patches of PipeFusion; 1: every step is exact, or no stages  */
    int  warmup;                /* exact steps at the start; at least 1 when patches are used   */
    int  text_every;            /* text goes with every patch, not with the first alone          */
    int  displaced;             /* the ring axis uses stale K,V (DistriFusion)                  */
    int  vae_rows;              /* the VAE is cut into bands of rows                            */
    int  text_tp;               /* the first of the ranks in use, which share text encoders     */
    int  nlist, list[XD_MAXSTAGE];      /* blocks of each stage as asked for; none: balanced    */
    int changes;                /* how the image differs from that of one rank (plan_table.h)   */
    char text[256];             /* "pipefusion 2 x ulysses 2 (4 patches, 1 warm-up, VAE rows)" */
} xd_plan;

/* Checks what is asked against `ranks` that are there and the model (NULL: what can be said without
 * one); fills defaults. Refuses with
 * one sentence: what was asked, what is there, and up to three plans that work. */
xd_status xd_plan_make(xd_plan *p, const xd_parallel *a, int ranks, const xd_dit_info *d,
                       xd_err *e);
/* Steps below this one are exact. */
int xd_plan_exact(const xd_plan *p);

/* Cuts n blocks into `stages` runs so that the slowest is as fast as can be: stage i runs
 * [cut[i], cut[i + 1]) at speed[i] (NULL: all at the same). `head` and `tail` are what the first and last
 * stage do besides. */
void xd_plan_balance(const double *cost, int n, int stages, double head, double tail, const double *speed,
                     int *cut);

#endif
