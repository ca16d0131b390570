/* bench_compare.h - the work of a plan of several ranks against the same work on one rank
 *
 * Both are timed alternately within one run, because the clock of a machine changes, and with the
 * code that generates (xd_denoise_*, xd_vae_decode). A round has three runs: rank 0 computes alone
 * while the others sleep; all ranks work as the plan says; all ranks compute alone at the same
 * time. The second against the first is the user's gain. The third separates the machine's share
 * of the loss (ranks share memory bandwidth and the clock of the package) from the method's. */
#ifndef XD_REPORT_BENCH_COMPARE_H
#define XD_REPORT_BENCH_COMPARE_H

#include "pipeline/denoise.h"
#include "report/bench.h"

enum { XD_MAXROUNDS = 128 };

typedef enum xd_bench_run { XD_RUN_ALONE, XD_RUN_PLAN, XD_RUN_BUSY, XD_NRUNS } xd_bench_run;

typedef struct xd_bench_side {  /* one way of doing the work                                   */
    xd_engine *g;
    xd_request r;
    xd_job     job;
    xd_net     net;             /* not closed: a view of a component's weights                 */
    xd_arena   a;
    size_t     bytes;           /* of the arena                                                */
    xd_denoise f;
    xd_exec    x;               /* of the VAE                                                  */
    float     *rgb;
    int        step, going;     /* the next step; 0 when the ranks have agreed on a failure    */
} xd_bench_side;

typedef struct xd_bench_pair {
    const xd_bench_args *a;
    xd_bench_side one, all;     /* one rank; the plan                                          */
    xd_cond   text;             /* stands for an encoded prompt                                */
    float    *lat;              /* latents to decode                                           */
    const char *unit;           /* "a step"                                                    */
    void    (*work)(struct xd_bench_pair *d, xd_bench_side *s);
    int       warm, rounds;     /* rounds before the reported ones; reported rounds            */
    int       exact;            /* exact steps at the start, if later steps are stale          */
    int       lead, span;       /* steps of a run before the timed ones; timed steps           */
    double    flops;            /* of the work of one rank                                     */
    double    t[XD_NRUNS][XD_MAXROUNDS];        /* seconds, on rank 0                          */
    /* Bytes of this rank's first timed step, of all ranks'; counted bytes. */
    int64_t   sent[2], count[2];
    int       parts;            /* printed so far                                              */
} xd_bench_pair;

/* Runs all rounds. Collective; they end early if a rank has failed. */
xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e);
/* Prints the results on rank 0. Collective. */
xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e);

#endif
