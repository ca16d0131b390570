/* bench_compare.h - times the work of a plan of several ranks against the same work on one rank
 *
 * Both alternate within one run, because the clock rate of a machine varies, and both run the
 * code of generation (xd_denoise_*, xd_vae_decode). A round has three runs: rank 0 computes alone
 * while the others sleep; all ranks run the plan; all ranks compute alone at the same time. The
 * ratio of the first two is the user's speed-up. The third separates the machine's part of the loss
 * (ranks share memory bandwidth and the clock of the package) from the method's. */
#ifndef XD_REPORT_BENCH_COMPARE_H
#define XD_REPORT_BENCH_COMPARE_H

#include "pipeline/denoise.h"
#include "report/bench.h"

enum { XD_MAXROUNDS = 128 };

typedef enum xd_bench_run { XD_RUN_ALONE, XD_RUN_PLAN, XD_RUN_BUSY, XD_NRUNS } xd_bench_run;

typedef struct xd_bench_side {  /* one of the two setups                                       */
    xd_engine *g;
    xd_request r;
    xd_job     job;
    xd_net     net;             /* not closed: a view of a component's weights                 */
    xd_arena   a;
    size_t     bytes;           /* size of the arena                                           */
    xd_denoise f;
    xd_exec    x;               /* context of the VAE                                          */
    float     *rgb;
    int        step, going;     /* the next step; 0 when the ranks have agreed on a failure    */
} xd_bench_side;

typedef struct xd_bench_pair {
    const xd_bench_args *a;
    xd_bench_side one, all;     /* one rank; the plan                                          */
    xd_cond   text;             /* synthetic encoded prompt                                    */
    float    *lat;              /* latents to decode                                           */
    const char *unit;           /* "a step"                                                    */
    void    (*work)(struct xd_bench_pair *d, xd_bench_side *s);
    int       warm, rounds;     /* rounds before the reported ones; reported rounds            */
    int       exact;            /* exact steps at the start, if later steps are stale          */
    int       lead, span;       /* steps of a run before the timed ones; timed steps           */
    double    flops;            /* of one rank's work                                          */
    double    t[XD_NRUNS][XD_MAXROUNDS];        /* seconds, on rank 0                          */
    /* sent: bytes of the first timed step, of this rank and of all ranks; count: counted bytes. */
    int64_t   sent[2], count[2];
    int       parts;            /* results printed so far                                      */
} xd_bench_pair;

/* Runs all rounds; stops early if a rank has failed. Collective. */
xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e);
/* Prints the results on rank 0. Collective. */
xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e);

#endif
